// tril and triu on a CUDA device.

#include <algorithm>

#include "strata/cuda/kernel.cuh"
#include "strata/ops/shape/shape_kernels.h"

namespace strata {
namespace {

constexpr int kThreads = 256;

// The steps of a matrix's rows and elements, and from one matrix to the next; y is row-major.
struct Steps {
  int64_t matrix, row, element;
};

template <class B>
__global__ void __launch_bounds__(kThreads)
    triangle_kernel(const B* x, Steps steps, B* y, int64_t rows, int64_t cols, int64_t diagonal, bool lower) {
  const int64_t r = blockIdx.x, m = r / rows, own = r - m * rows, edge = own + diagonal;
  x += m * steps.matrix + own * steps.row;
  for (int64_t j = threadIdx.x; j < cols; j += kThreads) {
    const bool keep = lower ? j <= edge : j >= edge;
    y[r * cols + j] = keep ? x[j * steps.element] : B(0);
  }
}

// Where x is read as it lies: a copy's launch takes longer than small matrices whose elements do not lie side by side,
// and reads as many sectors of large ones whose elements are near. Leading dimensions have to lie evenly.
bool read_as_it_lies(const Tensor& x, Steps& steps) {
  constexpr int64_t kSmall = int64_t{1} << 20, kNearBytes = 16;
  const auto size = [&](int64_t d) { return x.shape()[static_cast<int>(d)]; };
  const auto step = [&](int64_t d) { return x.strides()[static_cast<int>(d)]; };
  const int64_t dims = x.dim();
  steps = {0, step(dims - 2), step(dims - 1)};
  int64_t count = 1;
  for (int64_t d = dims - 3; d >= 0; --d) {
    if (size(d) == 1) continue;
    if (count == 1) steps.matrix = step(d);
    if (step(d) != steps.matrix * count) return false;
    count *= size(d);
  }
  return x.numel() <= kSmall || steps.element * size_of(x.dtype()) <= kNearBytes;
}

void triangle(Tensor& y, const Tensor& x, int64_t diagonal, bool lower) {
  if (x.numel() == 0) return;
  const int64_t cols = x.shape().back(), rows = x.shape()[x.dim() - 2];
  Steps steps;
  const Tensor in = read_as_it_lies(x, steps) ? x : x.contiguous();
  if (!in.same_as(x)) steps = {rows * cols, cols, 1};
  diagonal = std::clamp<int64_t>(diagonal, -rows - 1, cols + 1);
  dispatch_bytes(x.dtype(), [&]<class B>() {
    triangle_kernel<B><<<cuda::blocks_for(x.numel(), cols), kThreads, 0, cuda::stream()>>>(
        static_cast<const B*>(in.raw_data()), steps, static_cast<B*>(y.raw_data()), rows, cols, diagonal, lower);
  });
}

}  // namespace

void tril_cuda(Tensor& y, const Tensor& x, int64_t diagonal) {
  triangle(y, x, diagonal, true);
}
void triu_cuda(Tensor& y, const Tensor& x, int64_t diagonal) {
  triangle(y, x, diagonal, false);
}

}  // namespace strata
