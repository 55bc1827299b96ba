// roll on a CUDA device: every element is read and written once, in one launch.

#include <algorithm>

#include "strata/cuda/elementwise.cuh"
#include "strata/ops/shape/shape_kernels.h"

namespace strata {
namespace {

constexpr int kThreads = 256;

// How an element's place in y says where it stands in x. Dimensions innermost (of y) first, strides in elements;
// by[0] divides by the pieces of a line.
struct Rolled {
  uint32_t pieces = 0;
  int dims = 0;
  cuda::FastDivisor by[cuda::kMostDims];
  uint32_t size[cuda::kMostDims] = {}, shift[cuda::kMostDims] = {};
  int64_t y[cuda::kMostDims] = {}, x[cuda::kMostDims] = {};
  bool y_whole = false, x_whole = false;  // every piece is a vector, aligned; of x: one that does not wrap round either
};

// A thread takes V elements that follow each other in y's innermost dimension.
template <int V, class B>
__global__ void __launch_bounds__(kThreads) roll_kernel(const Rolled r, const B* x, B* y) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= r.pieces) return;
  uint32_t rest = r.by[0].divide(i);
  const uint32_t first = (i - rest * r.by[0].d) * V;
  const auto source = [&](uint32_t at, int d) {
    return at >= r.shift[d] ? at - r.shift[d] : at + r.size[d] - r.shift[d];
  };
#pragma unroll
  for (int d = 1; d < cuda::kMostDims; ++d) {
    if (d >= r.dims) break;
    const uint32_t q = r.by[d].divide(rest), at = rest - q * r.by[d].d;
    rest = q;
    y += at * r.y[d];
    x += source(at, d) * r.x[d];
  }
  y += first * r.y[0];
  uint32_t from = source(first, 0);
  if (r.x_whole) return cuda::store_vec(y, cuda::load_vec<V>(x + from));
  const int count = static_cast<int>(min(r.size[0] - first, static_cast<uint32_t>(V)));
  cuda::Vec<B, V> v;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    if (k < count) v.v[k] = x[from * r.x[0]];
    from = from + 1 == r.size[0] ? 0 : from + 1;
  }
  if (r.y_whole) return cuda::store_vec(y, v);
#pragma unroll
  for (int k = 0; k < V; ++k)
    if (k < count) y[k * r.y[0]] = v.v[k];
}

// Dimensions of one element left out, and those put together of which only the outer one moves.
bool describe(const Tensor& y, const Tensor& x, const Dims& by, Rolled& r) {
  int order[kMaxDims], used = 0;
  for (int64_t d = y.dim() - 1; d >= 0; --d)
    if (y.shape()[d] != 1) order[used++] = static_cast<int>(d);
  std::stable_sort(order, order + used, [&](int a, int b) { return y.strides()[a] < y.strides()[b]; });
  for (int i = 0; i < used; ++i) {
    const int d = order[i], inner = r.dims - 1;
    const auto size = static_cast<uint32_t>(y.shape()[d]), shift = static_cast<uint32_t>(by[d]);
    if (inner >= 0 && r.shift[inner] == 0 && y.strides()[d] == r.y[inner] * r.size[inner] &&
        x.strides()[d] == r.x[inner] * r.size[inner]) {
      r.shift[inner] = shift * r.size[inner];
      r.size[inner] *= size;
      continue;
    }
    if (r.dims == cuda::kMostDims) return false;
    r.size[r.dims] = size, r.shift[r.dims] = shift;
    r.y[r.dims] = y.strides()[d], r.x[r.dims] = x.strides()[d];
    ++r.dims;
  }
  if (r.dims == 0) r.dims = 1, r.size[0] = 1;
  return true;
}

}  // namespace

bool roll_at_once_cuda(const Tensor& y, const Tensor& x, const Dims& by) {
  Rolled r;
  if (y.numel() >= int64_t{1} << 31 || !describe(y, x, by, r)) return false;
  dispatch_bytes(y.dtype(), [&]<class B>() {
    constexpr uint32_t V = cuda::kVec<B>;
    const auto lies_whole = [&](const Tensor& t, const int64_t* strides) {
      bool whole = cuda::aligned16(t.raw_data()) && strides[0] == 1 && r.size[0] % V == 0;
      for (int d = 1; d < r.dims; ++d) whole = whole && strides[d] % V == 0;
      return whole;
    };
    r.y_whole = lies_whole(y, r.y);
    r.x_whole = r.y_whole && lies_whole(x, r.x) && r.shift[0] % V == 0;
    const uint32_t line = (r.size[0] + V - 1) / V;
    r.by[0] = cuda::FastDivisor(line);
    r.pieces = line;
    for (int d = 1; d < r.dims; ++d) {
      r.by[d] = cuda::FastDivisor(r.size[d]);
      r.pieces *= r.size[d];
    }
    roll_kernel<static_cast<int>(V), B><<<cuda::blocks_for(r.pieces, kThreads), kThreads, 0, cuda::stream()>>>(
        r, static_cast<const B*>(x.raw_data()), static_cast<B*>(y.raw_data()));
  });
  return true;
}

}  // namespace strata
