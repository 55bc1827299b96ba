#include "strata/eval/subject.h"

#include <algorithm>
#include <array>

#include "strata/core/error.h"
#include "strata/generate/text_generator.h"
#include "strata/models/language_model.h"
#include "strata/text/pipeline_tokenizer.h"
#include "strata/text/tokenizer_folder.h"

namespace strata::eval {
namespace {

constexpr const char* kOp = "make_subject";

std::vector<int32_t> encode(const text::Tokenizer& tokenizer, std::string_view text, bool special) {
  const auto* pipeline = dynamic_cast<const text::PipelineTokenizer*>(&tokenizer);
  return pipeline != nullptr ? pipeline->encode(text, text::EncodeOptions{.add_special_tokens = special})
                             : tokenizer.encode(text);
}

int32_t usual_prefix(const text::Tokenizer& tokenizer) {
  const auto& special = tokenizer.special_tokens();
  if (special.size() == 1) return special.begin()->second;
  const std::vector<int32_t> line = encode(tokenizer, "\n", false);
  return line.empty() ? 0 : line.front();
}

// Writes the likeliest texts; its rows are made when they are first wanted.
class Writer {
 public:
  Writer(std::shared_ptr<LanguageModel> model, std::shared_ptr<const text::Tokenizer> tokenizer,
         const SubjectOptions& options)
      : model_(std::move(model)), tokenizer_(std::move(tokenizer)), usual_(options.generation) {
    room_.batch = options.batch;
    room_.capacity = options.context;
    usual_.temperature = 0;
    usual_.n = usual_.beams = 1;
    usual_.max_length = 0;
  }

  std::vector<std::string> operator()(const std::vector<std::vector<int32_t>>& prompts, int64_t tokens,
                                      const std::vector<std::string>& stops, const Watch& watch) {
    if (!generator_) generator_ = std::make_unique<TextGenerator>(model_, tokenizer_, room_);
    GenerationOptions options = usual_;
    options.max_tokens = tokens;
    options.stop_strings = stops;
    std::vector<GenerationRequest> requests;
    for (const std::vector<int32_t>& p : prompts) requests.push_back({{p.begin(), p.end()}, options});
    struct Stopped {};  // prompts that wait would be read before they end
    int64_t done = 0;
    const auto all = static_cast<int64_t>(prompts.size());
    std::vector<std::string> texts;
    try {
      for (const Generated& g : generator_->generate(requests, [&](const GenerationPiece& piece) {
             done += piece.last;
             if (watch && !watch(done, all)) throw Stopped{};
             return true;
           }))
        texts.push_back(g.completions[0].text);
    } catch (const Stopped&) {
      generator_.reset();  // which is in the midst of texts
    }
    return texts;
  }

 private:
  std::shared_ptr<LanguageModel> model_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  GenerationOptions usual_;
  TextGeneratorOptions room_;
  std::unique_ptr<TextGenerator> generator_;
};

}  // namespace

SubjectOptions with_folder(SubjectOptions o, const text::TokenizerFolder& folder) {
  if (!o.prefix) o.prefix = folder.bos ? folder.bos : folder.eos;
  std::vector<int64_t>& stops = o.generation.stop_ids;
  if (folder.eos && std::ranges::find(stops, *folder.eos) == stops.end()) stops.push_back(*folder.eos);
  return o;
}

Subject make_subject(const std::shared_ptr<LanguageModel>& model,
                     const std::shared_ptr<const text::Tokenizer>& tokenizer, const SubjectOptions& options) {
  check(options.context >= 0, kOp, "a context is at least 1, got ", options.context);
  Subject s;
  s.context = options.context > 0 ? options.context : model->context();
  check(s.context > 0, kOp, "the model does not say how many positions it takes");
  s.prefix = options.prefix ? *options.prefix : usual_prefix(*tokenizer);
  check(s.prefix >= 0 && s.prefix < model->vocab(), kOp, "the prefix ", s.prefix, " is none of the model's ",
        model->vocab(), " ids");
  s.device = model->device();
  model->eval();
  s.hidden = [model](const Tensor& tokens) { return model->hidden(tokens); };
  s.logits = [model](const Tensor& hidden) { return model->logits(hidden); };
  const std::string beginning = s.prefix < tokenizer->vocab_size() ? tokenizer->decode(std::array{s.prefix}) : "";
  s.encode = [tokenizer, beginning, special = options.special_tokens](std::string_view text) {
    const bool has_it = !beginning.empty() && text.starts_with(beginning);
    return encode(*tokenizer, text, special && !has_it);
  };
  s.encode_plain = [tokenizer](std::string_view text) { return encode(*tokenizer, text, false); };
  SubjectOptions with = options;
  with.context = s.context;
  s.generate = [writer = std::make_shared<Writer>(model, tokenizer, with)](const auto&... arguments) {
    return (*writer)(arguments...);
  };
  return s;
}

}  // namespace strata::eval
