// libFuzzer: any bytes are an index of files in its folder, or an IoError.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "strata/core/error.h"
#include "strata/io/weight_index_inl.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata::io;
  try {
    uint64_t line = 1;
    for (const WeightIndexLine& l : parse_weight_index({reinterpret_cast<const char*>(data), size}, "fuzz")) {
      if (l.file.empty() || l.file.front() == '.' || l.file.find('/') != std::string::npos) std::abort();
      if (l.line < line || l.line > size) std::abort();
      line = l.line;
    }
  } catch (const strata::IoError&) {
  }
  return 0;
}
