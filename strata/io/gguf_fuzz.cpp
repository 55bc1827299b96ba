// libFuzzer: any bytes are a valid GGUF file or an IoError.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "strata/core/error.h"
#include "strata/io/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata::io;
  try {
    const GgufHeader header = parse_gguf({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    uint64_t end = 0;
    for (const GgufEntry& e : header.entries) {
      if (e.offset < end || e.offset % header.alignment != 0) std::abort();
      if (e.offset > size || e.nbytes > size - e.offset) std::abort();
      if (stored_bytes(*e.type, e.shape) != e.nbytes) std::abort();
      end = e.offset + e.nbytes;
    }
    for (const auto& [key, value] : header.metadata.entries()) {
      if (header.metadata.find(key) != &value) std::abort();
      try {
        header.metadata.numbers(key);
      } catch (const strata::IoError&) {
      }
    }
  } catch (const strata::IoError&) {
  }
  return 0;
}
