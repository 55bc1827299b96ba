// libFuzzer: any bytes are a valid safetensors file or an IoError.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "strata/core/error.h"
#include "strata/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
    const strata::io::SafetensorsHeader header = strata::io::parse_safetensors(file, "fuzz");
    // what passed must be consistent: every byte after the header in exactly one tensor
    size_t bytes = 0;
    for (const auto& e : header.entries) {
      if (e.nbytes != static_cast<size_t>(e.shape.product() * strata::size_of(e.dtype))) std::abort();
      if (e.offset > size || e.nbytes > size - e.offset) std::abort();
      bytes += e.nbytes;
    }
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | data[i];
    if (bytes + 8 + length != size) std::abort();
  } catch (const strata::IoError&) {
  }
  return 0;
}
