#pragma once
// For tests of the kernels of channels-last convolutions on the processor: numbers whose sums are exact, and maps.
// After a kernel's header.

#include <random>
#include <vector>

#include "strata/core/dtype.h"

namespace strata::conv_cuda {
namespace {

// Kernels with a type of a test are not those of the library.
struct Own {
  using T = BFloat16;
};
using Numbers = std::vector<BFloat16>;

// Multiples of 1 / 8: sums of their products are exact.
inline Numbers numbers(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  Numbers all(static_cast<size_t>(n));
  for (BFloat16& v : all) v = BFloat16(static_cast<float>(static_cast<int>(random() % 17) - 8) / 8);
  return all;
}

inline CUtensorMap box_map(const void* data, const BoxMap& m) {
  CUtensorMap map;
  map.data = static_cast<uint8_t*>(const_cast<void*>(data)) + 2 * m.offset;
  map.element_bytes = 2, map.dims = 4;
  const int64_t sizes[] = {m.channels, m.columns, m.rows, m.n}, steps[] = {1, m.column, m.row, m.image};
  const int box[] = {64, m.box_columns, m.box_rows, m.box_images};
  for (int i = 0; i < 4; ++i) map.sizes[i] = sizes[i], map.steps[i] = 2 * steps[i], map.box[i] = box[i];
  return map;
}

// The same convolution with the sizes of its result.
inline ConvSizes with_result(ConvSizes s) {
  s.oh = (s.ih + 2 * s.ph - (s.kh - 1) * s.dh - 1) / s.sh + 1;
  s.ow = (s.iw + 2 * s.pw - (s.kw - 1) * s.dw - 1) / s.sw + 1;
  return s;
}

// Calls f(pixel of x, pixel of y, tap) for all that meet.
template <class F>
void each_pair(const ConvSizes& s, const F& f) {
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t i = 0; i < s.oh; ++i)
      for (int64_t j = 0; j < s.ow; ++j)
        for (int64_t a = 0; a < s.kh; ++a)
          for (int64_t b = 0; b < s.kw; ++b) {
            const int64_t iy = i * s.sh + a * s.dh - s.ph, ix = j * s.sw + b * s.dw - s.pw;
            if (iy >= 0 && iy < s.ih && ix >= 0 && ix < s.iw)
              f((n * s.ih + iy) * s.iw + ix, (n * s.oh + i) * s.ow + j, a * s.kw + b);
          }
}

}  // namespace
}  // namespace strata::conv_cuda
