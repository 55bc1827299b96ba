// libFuzzer: any text parses or is refused with strata::Error, and what parses survives being written and read back.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "strata/core/error.h"
#include "strata/train/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  strata::TrainConfig config;
  try {
    config = strata::parse_config(text);
  } catch (const strata::Error&) {
    return 0;
  }
  if (!(strata::parse_config(strata::to_toml(config)) == config)) std::abort();
  return 0;
}
