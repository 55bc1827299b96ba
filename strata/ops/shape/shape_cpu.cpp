#include <algorithm>
#include <cstring>

#include "strata/core/dispatch.h"
#include "strata/core/loops.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/shape/shape_kernels.h"

namespace strata {

void constant_pad_into(Tensor& y, const Tensor& x, const Dims& pads, Scalar value) {
  constexpr int64_t kLarge = int64_t{1} << 20;  // bytes that are not written twice
  // What lies inside both: x without what negative pads crop, y without what positive ones add.
  Shape shape = x.shape();
  int64_t from = x.storage_offset(), to = y.storage_offset();
  for (int i = 0; i < pads.size() / 2; ++i) {
    const int64_t d = x.dim() - 1 - i, before = pads[2 * i], after = pads[2 * i + 1];
    const __int128 left = static_cast<__int128>(shape[d]) + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
    shape[d] = left < 0 ? 0 : static_cast<int64_t>(left);
    if (shape[d] == 0) return fill_elements(y, value);
    from += std::max<int64_t>(-before, 0) * x.strides()[d];
    to += std::max<int64_t>(before, 0) * y.strides()[d];
  }
  if (y.nbytes() < kLarge) {
    fill_elements(y, value);
  } else {
    for (int i = 0; i < pads.size() / 2; ++i) {
      const int64_t d = x.dim() - 1 - i, begin = std::max<int64_t>(pads[2 * i], 0), end = begin + shape[d];
      const auto fill = [&](int64_t first, int64_t count) {
        if (count <= 0) return;
        Shape part = y.shape();
        part[d] = count;
        fill_elements(alias(y, part, y.strides(), y.storage_offset() + first * y.strides()[d]), value);
      };
      fill(0, begin);
      fill(end, y.shape()[d] - end);
    }
  }
  if (shape.product() > 0) copy_elements(alias(y, shape, y.strides(), to), alias(x, shape, x.strides(), from));
}

void flip_into(Tensor& y, const Tensor& x, const Dims& dims) {
  if (x.numel() == 0) return;
  Strides strides = x.strides();
  int64_t offset = x.storage_offset();
  for (int64_t d : dims) {
    d = wrap_dim(d, x.dim(), "flip");
    if (x.dim() == 0) break;
    offset += (x.shape()[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  copy_elements(y, alias(x, x.shape(), strides, offset));
}

namespace {
// Row by row: the elements on the kept side are copied, the others zeroed.
void triangle(Tensor& y, const Tensor& x, int64_t diagonal, bool lower) {
  const Tensor in = contiguous(x);
  const int64_t cols = x.shape().back(), rows = x.shape()[x.dim() - 2], size = size_of(x.dtype());
  if (x.numel() == 0) return;
  diagonal = std::clamp<int64_t>(diagonal, -rows - 1, cols + 1);
  const char* from = static_cast<const char*>(in.raw_data());
  char* to = static_cast<char*>(y.raw_data());
  parallel_for(0, x.numel() / cols, std::max<int64_t>(1, kGrain / cols), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      const int64_t edge = std::clamp<int64_t>(r % rows + diagonal + (lower ? 1 : 0), 0, cols);
      const int64_t zero_begin = lower ? edge : 0, zero_end = lower ? cols : edge;
      const int64_t keep_begin = lower ? 0 : edge, keep_end = lower ? edge : cols;
      char* row = to + r * cols * size;
      std::memset(row + zero_begin * size, 0, static_cast<size_t>((zero_end - zero_begin) * size));
      std::memcpy(row + keep_begin * size, from + (r * cols + keep_begin) * size,
                  static_cast<size_t>((keep_end - keep_begin) * size));
    }
  });
}
}  // namespace

void tril_cpu(Tensor& y, const Tensor& x, int64_t diagonal) {
  triangle(y, x, diagonal, true);
}
void triu_cpu(Tensor& y, const Tensor& x, int64_t diagonal) {
  triangle(y, x, diagonal, false);
}

}  // namespace strata
