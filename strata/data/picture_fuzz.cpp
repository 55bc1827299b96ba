// libFuzzer: any bytes are a picture of bounded size, or an IoError.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "strata/core/error.h"
#include "strata/data/picture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  try {
    const Tensor x = data::parse_picture(std::as_bytes(std::span(data, size)), "fuzz");
    if (x.dim() != 3 || x.size(2) != 3 || x.numel() > 300'000'000) std::abort();
  } catch (const IoError&) {
  }
  return 0;
}
