// libFuzzer: any bytes are a packed tensor, which packs to as many bytes again, or an IoError.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "strata/core/error.h"
#include "strata/io/bitmap.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  // Of their own size, so that a byte behind them is seen to be read.
  const std::unique_ptr<std::byte[]> copy(new std::byte[size]);
  for (size_t i = 0; i < size; ++i) copy[i] = static_cast<std::byte>(data[i]);
  const std::span<const std::byte> bytes(copy.get(), size);
  try {
    const io::BitmapHeader header = io::parse_bitmap_header(bytes, size);
    if (header.chunks() * io::kBitmapChunk < header.numel || header.nbytes() > size) std::abort();
    const Tensor x = io::unpack_bitmap(bytes);
    if (x.numel() != header.numel || io::unpack_bitmap(io::pack_bitmap(x)).nbytes() != x.nbytes()) std::abort();
  } catch (const IoError&) {
  }
  return 0;
}
