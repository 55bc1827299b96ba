// libFuzzer: any text is a template that renders within its limits, or a ValueError.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "strata/core/error.h"
#include "strata/text/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata::text::jinja;
  const Options options{.limits = {.steps = 20'000, .depth = 60, .output_bytes = 1 << 16}};
  static const nlohmann::ordered_json kData = {
      {"messages", {{{"role", "user"}, {"content", "<s>Hi "}}, {{"role", "assistant"}, {"content", "a\xc3\xa4"}}}},
      {"tools", {{{"name", "f"}, {"n", 1.5}, {"k", nullptr}}}}};
  try {
    const Rendered r =
        Template({reinterpret_cast<const char*>(data), size}, options).render(kData, {{"bos_token", "<s>"}});
    if (r.text.size() > size_t{1} << 16) std::abort();
    size_t end = 0;
    for (const auto& [b, e] : r.from_data) {
      if (b >= e || e > r.text.size() || (end > 0 && b <= end)) std::abort();
      end = e;
    }
  } catch (const strata::ValueError&) {
  }
  return 0;
}
