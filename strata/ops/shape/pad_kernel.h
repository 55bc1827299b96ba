#pragma once
#include <cstdint>
#include <vector>

#include "strata/core/tensor.h"

namespace strata {

enum class PadMode : int8_t { reflect, replicate, circular };

/// What pad does to a dimension: of its elements [begin, begin + size) are left, to which `before` and `after` come on
/// either side; what is negative crops.
struct PadSpan {
  int64_t dim = 0, begin = 0, size = 0, before = 0, after = 0;
};

/// The place in [0, size) of what stands at p, which counts from the first of the elements that are left: one that is
/// not among them repeats one.
constexpr int64_t pad_place(PadMode mode, int64_t p, int64_t size) {
  if (p >= 0 && p < size) return p;
  if (mode == PadMode::replicate) return p < 0 ? 0 : size - 1;
  if (mode == PadMode::reflect) return p < 0 ? -p : 2 * size - 2 - p;
  return p < 0 ? p + size : p - size;
}

/// y = x with the spans done to its dimensions, on a CUDA device; y is row-major, x has any strides.
void pad_by_itself_cuda(Tensor& y, const Tensor& x, PadMode mode, const std::vector<PadSpan>& spans);

}  // namespace strata
