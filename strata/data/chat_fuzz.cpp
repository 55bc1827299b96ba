// libFuzzer: any bytes are a row of a conversation, or a pair of them, or an error.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "strata/core/error.h"
#include "strata/data/chat.h"
#include "strata/text/bpe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace strata;
  static const auto tokenizer = std::make_shared<const text::BpeTokenizer>(std::vector<text::Merge>{{'h', 'i'}},
                                                                           std::vector<std::string>{"<|a|>", "<|b|>"});
  static const data::ChatEncoder encoders[] = {
      data::ChatEncoder(tokenizer,
                        "{% for m in messages %}<|a|>{{ m.role }}{{ m.content }}<|b|>{% endfor %}"
                        "{% if add_generation_prompt %}<|a|>assistant{% endif %}"),
      data::ChatEncoder(tokenizer,
                        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
                        {.end_token = "<|b|>"})};
  const std::string_view row(reinterpret_cast<const char*>(bytes), size);
  const auto look = [](const data::MarkedTokens& t) {
    if (t.tokens.size() != t.learned.size()) std::abort();
    if (std::ranges::any_of(t.learned, [](uint8_t mark) { return mark > 1; })) std::abort();
  };
  for (const data::ChatEncoder& encoder : encoders) {
    try {
      look(encoder.encode(row));
    } catch (const IoError&) {
    } catch (const ValueError&) {
    }
    try {
      const data::PreferencePair pair = encoder.encode_pair(row);
      look(pair.chosen);
      look(pair.rejected);
    } catch (const IoError&) {
    } catch (const ValueError&) {
    }
  }
  return 0;
}
