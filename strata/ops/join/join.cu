// cat on a CUDA device: row-major tensors joined in one launch, as rows of bytes that go side by side.

#include <algorithm>

#include "strata/cuda/elementwise.cuh"
#include "strata/ops/join/join_kernels.h"

namespace strata {
namespace {

constexpr int kThreads = 256;
constexpr int kMany = 64;  // tensors of a launch: their descriptions are parameters, of which there are 4 KiB

// Tensors of which row i becomes a part of row i of y, all measured in words.
template <int Most>
struct Parts {
  int count = 0;
  int64_t row = 0;                 // of y
  uint32_t blocks[Most + 1] = {};  // before each tensor's
  uint32_t words[Most] = {};
  int64_t at[Most] = {};  // in a row of y
  cuda::FastDivisor length[Most];
  const void* from[Most] = {};
};

// Each block copies 16 bytes a thread of one tensor.
template <class W, int Most>
__global__ void __launch_bounds__(kThreads) cat_kernel(const __grid_constant__ Parts<Most> parts, W* y) {
  constexpr int kEach = 16 / static_cast<int>(sizeof(W));
  int t = 0;
  while (t + 1 < parts.count && blockIdx.x >= parts.blocks[t + 1]) ++t;
  const auto* from = static_cast<const W*>(parts.from[t]);
  const uint32_t words = parts.words[t], first = (blockIdx.x - parts.blocks[t]) * (kThreads * kEach) + threadIdx.x;
  W v[kEach];
#pragma unroll
  for (int k = 0; k < kEach; ++k)
    if (first + k * kThreads < words) v[k] = from[first + k * kThreads];
  y += parts.at[t];
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const uint32_t i = first + k * kThreads;
    if (i >= words) break;
    const uint32_t row = parts.length[t].divide(i);
    y[row * parts.row + (i - row * parts.length[t].d)] = v[k];
  }
}

template <class W, int Most>
void join_rows(const Tensor& y, const Tensor* const* tensors, int count, int64_t rows, int64_t row_bytes, int64_t at) {
  constexpr int64_t kEach = 16 / sizeof(W);
  Parts<Most> parts;
  parts.count = count;
  parts.row = row_bytes / static_cast<int64_t>(sizeof(W));
  for (int i = 0; i < count; ++i) {
    const Tensor& t = *tensors[i];
    parts.from[i] = t.raw_data();
    parts.words[i] = static_cast<uint32_t>(t.nbytes() / static_cast<int64_t>(sizeof(W)));
    parts.length[i] = cuda::FastDivisor(static_cast<uint32_t>(parts.words[i] / rows));
    parts.at[i] = at / static_cast<int64_t>(sizeof(W));
    parts.blocks[i + 1] = parts.blocks[i] + cuda::blocks_for(parts.words[i], kThreads * kEach);
    at += t.nbytes() / rows;
  }
  cat_kernel<W, Most><<<parts.blocks[count], kThreads, 0, cuda::stream()>>>(parts, static_cast<W*>(y.raw_data()));
}

}  // namespace

bool cat_at_once_cuda(const Tensor& y, const TensorList& tensors, int64_t dim) {
  if (!y.is_contiguous()) return false;
  if (y.numel() == 0) return true;
  int64_t rows = 1;
  for (int64_t d = 0; d < dim; ++d) rows *= y.shape()[d];
  const int64_t row_bytes = y.nbytes() / rows;
  std::vector<const Tensor*> some;  // those that have elements
  some.reserve(tensors.size());
  // Words are as wide as all addresses and lengths are multiples of.
  auto multiple = static_cast<uint64_t>(16 | row_bytes) | reinterpret_cast<uintptr_t>(y.raw_data());
  for (const Tensor& t : tensors) {
    if (t.numel() == 0) continue;
    if (!t.is_contiguous() || t.nbytes() >= int64_t{1} << 31) return false;
    multiple |= static_cast<uint64_t>(t.nbytes() / rows) | reinterpret_cast<uintptr_t>(t.raw_data());
    some.push_back(&t);
  }
  int64_t at = 0;
  for (size_t begin = 0; begin < some.size();) {
    const size_t left = some.size() - begin;
    const auto count = static_cast<int>(std::min<size_t>(left, kMany));
    const auto join = [&]<class W>() {
      if (count <= 4)
        join_rows<W, 4>(y, &some[begin], count, rows, row_bytes, at);
      else
        join_rows<W, kMany>(y, &some[begin], count, rows, row_bytes, at);
    };
    switch (multiple & (~multiple + 1)) {
      case 16:
        join.template operator()<uint4>();
        break;
      case 8:
        join.template operator()<uint64_t>();
        break;
      case 4:
        join.template operator()<uint32_t>();
        break;
      case 2:
        join.template operator()<uint16_t>();
        break;
      default:
        join.template operator()<uint8_t>();
    }
    for (int i = 0; i < count; ++i) at += some[begin + static_cast<size_t>(i)]->nbytes() / rows;
    begin += static_cast<size_t>(count);
  }
  return true;
}

}  // namespace strata
