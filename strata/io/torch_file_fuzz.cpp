// libFuzzer: any bytes are a PyTorch zip file of tensors that lie in it, or an IoError.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "strata/core/error.h"
#include "strata/io/torch_file_inl.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata::io;
  try {
    const Source source({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    for (const WeightEntry& e : read_torch_file(source)) {
      if (e.offset > size || e.nbytes > size - e.offset) std::abort();
      const auto bytes = stored_bytes(*e.type, e.shape);
      if (!bytes || *bytes > size) std::abort();
      if (!e.strides && *bytes != e.nbytes) std::abort();
    }
  } catch (const strata::IoError&) {
  }
  return 0;
}
