// libFuzzer: a tokenizer.json, a NUL and a text: ids within the vocabulary and UTF-8 again, or an error. The lines of
// cases.jsonl and model_cases.jsonl are good seeds.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "strata/core/error.h"
#include "strata/text/pipeline_tokenizer.h"
#include "strata/text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t nul = std::min(all.find('\0'), all.size());
  const std::string_view text = all.substr(std::min(nul + 1, all.size()));
  try {
    const auto tokenizer = text::PipelineTokenizer::parse(all.substr(0, nul));
    for (const bool special : {false, true}) {
      const auto ids = tokenizer->encode(text, {.add_special_tokens = special, .parse_special = special});
      for (const int32_t id : ids)
        if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
      const std::string back = tokenizer->decode(ids);
      if (text::valid_utf8(back) != back) std::abort();
    }
    if (text::PipelineTokenizer::parse(tokenizer->to_json())->identity() != tokenizer->identity()) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
