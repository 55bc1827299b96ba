// Penalties and biases on a CUDA device.

#include "strata/cuda/kernel.cuh"
#include "strata/cuda/range.cuh"
#include "strata/ops/generation/penalty_inl.h"

namespace strata::generation {
namespace {

constexpr int kThreads = 256;

// Counters of integers: their order does not show. Block (x, row).
__global__ void __launch_bounds__(kThreads) seen_kernel(const PenaltyArgs a, uint32_t* seen, cuda::RangeCheck check) {
  const int64_t b = blockIdx.y, t = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (t >= a.places || t >= a.lengths[b]) return;
  const int64_t id = a.history[b * a.places + t];
  if (!check(id, a.columns)) return;
  uint32_t* const s = seen + b * a.columns + id;
  atomicOr(s, kAnywhere);
  if (t >= a.prompts[b]) atomicAdd(s, 1u);
}

__global__ void __launch_bounds__(kThreads)
    penalise_kernel(const PenaltyArgs a, const float* x, const uint32_t* seen, float* y) {
  const int64_t b = blockIdx.y, i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= a.columns) return;
  const int64_t at = b * a.columns + i;
  y[at] = penalised(x[at], seen[at], penalties_of(a, b));
}

// A thread for each id. The first of several equal ones adds them all, in their order.
__global__ void __launch_bounds__(kThreads) bias_kernel(const BiasArgs a, float* y, cuda::RangeCheck check) {
  const int64_t b = blockIdx.y, j = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (j >= a.n || (a.counts != nullptr && a.counts[b] >= a.limits[b])) return;
  const int64_t* const ids = a.ids + b * a.step;
  const int64_t id = ids[j];
  if (id < 0 || !check(id, a.columns)) return;
  for (int64_t i = 0; i < j; ++i)
    if (ids[i] == id) return;
  float v = y[b * a.columns + id];
  for (int64_t i = j; i < a.n; ++i)
    if (ids[i] == id) v += a.values[b * a.step + i];
  y[b * a.columns + id] = v;
}

dim3 grid(int64_t n, int64_t rows) {
  return {cuda::blocks_for(n, kThreads), static_cast<unsigned>(rows)};
}

}  // namespace

void penalise_logits_cuda(const PenaltyArgs& a, const float* x, float* y, uint32_t* seen) {
  if (a.rows * a.columns == 0) return;
  cuda::check_cuda(cudaMemsetAsync(seen, 0, static_cast<size_t>(a.rows * a.columns) * sizeof *seen, cuda::stream()),
                   "penalise_logits", "cudaMemsetAsync");
  if (a.places > 0)
    seen_kernel<<<grid(a.places, a.rows), kThreads, 0, cuda::stream()>>>(a, seen, cuda::range_check());
  penalise_kernel<<<grid(a.columns, a.rows), kThreads, 0, cuda::stream()>>>(a, x, seen, y);
}

void bias_logits_cuda(const BiasArgs& a, float* y) {
  if (a.rows * a.n == 0) return;
  bias_kernel<<<grid(a.n, a.rows), kThreads, 0, cuda::stream()>>>(a, y, cuda::range_check());
}

}  // namespace strata::generation
