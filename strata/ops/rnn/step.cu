// One step of a GRU or LSTM on a CUDA device: a thread a unit.

#include "strata/ops/rnn/recurrence_cell.cuh"
#include "strata/ops/rnn/step_kernel.h"

namespace strata::recurrent {
namespace {

constexpr int kThreads = 256;

template <class T, bool kLstm>
__global__ void __launch_bounds__(kThreads)
    step_kernel(int64_t units, int64_t hidden, const T* from_x, const T* from_h, const T* before, T* h, T* c) {
  using R = compute_t<T>;
  constexpr int kGates = kLstm ? 4 : 3;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= units) return;
  const int64_t row = i / hidden, first = row * kGates * hidden + (i - row * hidden);
  R x[kGates], s[kGates];
#pragma unroll
  for (int g = 0; g < kGates; ++g) {
    x[g] = read<T>(from_x, first + g * hidden);
    s[g] = read<T>(from_h, first + g * hidden);
  }
  const R was = read<T>(before, i);
  if constexpr (kLstm) {
    const R now = sigmoid_of(x[1] + s[1]) * was + sigmoid_of(x[0] + s[0]) * tanh_of(x[2] + s[2]);
    write<T>(c, i, now);
    write<T>(h, i, sigmoid_of(x[3] + s[3]) * tanh_of(now));
  } else {
    const R n = tanh_of(x[2] + sigmoid_of(x[0] + s[0]) * s[2]);
    write<T>(h, i, n + sigmoid_of(x[1] + s[1]) * (was - n));
  }
}

}  // namespace

void step_cuda(Cell cell, DType t, int64_t batch, int64_t hidden, const void* from_x, const void* from_h,
               const void* before, void* h, void* c) {
  const int64_t units = batch * hidden;
  if (units == 0) return;
  dispatch_floats(t, "step", [&]<class T>() {
    const auto kernel = cell == Cell::lstm ? step_kernel<T, true> : step_kernel<T, false>;
    kernel<<<cuda::blocks_for(units, kThreads), kThreads, 0, cuda::stream()>>>(
        units, hidden, static_cast<const T*>(from_x), static_cast<const T*>(from_h), static_cast<const T*>(before),
        static_cast<T*>(h), static_cast<T*>(c));
  });
}

}  // namespace strata::recurrent
