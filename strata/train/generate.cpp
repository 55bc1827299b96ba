#include "strata/train/generate.h"

namespace strata {

TextWriter::TextWriter(const TrainedModel& trained, std::string_view prompt, const SampleOptions& options)
    : tokenizer_(trained.tokenizer), sampler_(trained.model, trained.tokenizer->encode(prompt), options) {}

std::string TextWriter::next() {
  const int32_t token = sampler_.next();
  return tokenizer_->decode({&token, 1});
}

}  // namespace strata
