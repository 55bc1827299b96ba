#include "strata/train/generate.h"

#include <algorithm>
#include <optional>

#include "strata/generate/text_generator.h"
#include "strata/train/precision.h"

namespace strata {

namespace {
SampleOptions within(const text::Tokenizer& tokenizer, SampleOptions options) {
  const int64_t known = tokenizer.vocab_size();
  options.vocab = options.vocab > 0 ? std::min(options.vocab, known) : known;
  return options;
}
}  // namespace

TextWriter::TextWriter(const TrainedModel& trained, std::string_view prompt, const SampleOptions& options)
    : tokenizer_(trained.tokenizer),
      sampler_(trained.model, trained.tokenizer->encode(prompt), within(*trained.tokenizer, options)) {}

std::string TextWriter::next() {
  const int32_t token = sampler_.next();
  return tokenizer_->decode({&token, 1});
}

std::string sample_text(const TrainedModel& trained) {
  const TrainConfig& config = trained.config;
  std::vector<int32_t> prompt = trained.tokenizer->encode(config.sample_prompt);
  if (prompt.empty()) prompt = trained.tokenizer->encode("\n");
  if (prompt.empty()) prompt.push_back(0);  // ids alone: a blank is none
  std::optional<AutocastScope> autocast;    // weights of two types want it
  if (config.param_dtype != "f32") autocast.emplace(activation_dtype(config));
  if (trained.encoder_decoder) {
    const std::vector<int64_t> source(prompt.begin(), prompt.end());
    TextGenerator writer(trained.encoder_decoder, trained.tokenizer);
    const GenerationOptions drawn{.max_tokens = config.sample_tokens,
                                  .temperature = 0.8,
                                  .top_p = 0.95,
                                  .seed = static_cast<uint64_t>(config.seed)};
    return writer
        .generate({{trained.start, drawn, from_span<int64_t>(source, {static_cast<int64_t>(source.size())})}})[0]
        .completions[0]
        .text;
  }
  const SampleOptions options{.temperature = 0.8, .top_p = 0.95, .seed = static_cast<uint64_t>(config.seed)};
  TokenSampler sampler(trained.model, std::move(prompt), within(*trained.tokenizer, options));
  std::vector<int32_t> written;
  for (int64_t i = 0; i < config.sample_tokens; ++i) written.push_back(sampler.next());
  return trained.tokenizer->decode(written);
}

}  // namespace strata
