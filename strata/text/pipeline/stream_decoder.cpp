#include <utility>

#include "strata/text/pipeline/pipeline_parts_inl.h"
#include "strata/text/pipeline/regex_inl.h"

namespace strata::text {
namespace {

struct Collect final : pipeline::TokenSink {
  void part(std::string_view more) override { text += more; }
  void end() override {}
  void finish() override {}
  std::string text;
};

}  // namespace

struct StreamDecoder::State {
  const pipeline::TokenizerParts& parts;
  bool skip_special;
  std::vector<std::unique_ptr<pipeline::TokenSink>> stages;  // the last takes the tokens, the first has the text
  Collect* made = nullptr;
};

StreamDecoder::StreamDecoder(const PipelineTokenizer& tokenizer, const DecodeOptions& options)
    : state_(new State{*tokenizer.parts_, options.skip_special_tokens, {}, nullptr}) {
  auto collect = std::make_unique<Collect>();
  state_->made = collect.get();
  state_->stages.push_back(std::move(collect));
  if (options.clean_up_tokenization_spaces) {
    static const std::unique_ptr<const pipeline::Decoder> clean_up = pipeline::clean_up_spaces();
    clean_up->start(state_->stages);
  }
  state_->parts.decoder.part->start(state_->stages);
}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::add(int32_t id) {
  const pipeline::RegexBudget budget(0);
  const std::optional<std::string_view> token = state_->parts.decoded(id);
  if (!token || (state_->skip_special && state_->parts.special.count(std::string(*token)) != 0)) return {};
  pipeline::TokenSink& first = *state_->stages.back();
  if (!token->empty()) first.part(*token);
  first.end();
  return std::exchange(state_->made->text, {});
}

std::string StreamDecoder::finish() {
  const pipeline::RegexBudget budget(0);
  state_->stages.back()->finish();
  return std::exchange(state_->made->text, {});
}

}  // namespace strata::text
