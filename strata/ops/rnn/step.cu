#include "strata/core/dispatch.h"
#include "strata/cuda/current.h"
#include "strata/cuda/each.cuh"
#include "strata/ops/rnn/recurrence_cell.cuh"
#include "strata/ops/rnn/step_kernel.h"

namespace strata::recurrent {
namespace {

// A unit of a sequence is a thread: what it reads and writes, neighbours have beside it.
template <class T, class S>
__global__ void __launch_bounds__(cuda::kEachThreads) forward_kernel(StepCall s) {
  using R = compute_t<T>;
  const int64_t H = s.hidden, G = gates(s.cell);
  cuda::for_each(s.n * H, [&](int64_t e) {
    const int64_t row = e / H, unit = e - row * H, at = row * G * H + unit;
    R x[4] = {}, h[4] = {};
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      if (g < G) x[g] = read<T>(s.from_x, at + g * H), h[g] = read<T>(s.from_h, at + g * H);
    }
    const CellResult<R> out = unit_of<R>(s.cell, x, h, read<S>(s.before, e), read<S>(s.before, e));
    write<S>(s.h, e, out.h);
    if (s.c != nullptr) write<S>(s.c, e, out.c);
    if (s.gates == nullptr) return;
#pragma unroll
    for (int g = 0; g < 4; ++g) write<T>(s.gates, (row * 4 + g) * H + unit, out.kept[g]);
  });
}

template <class T, class S>
__global__ void __launch_bounds__(cuda::kEachThreads) backward_kernel(StepBackwardCall s) {
  using R = compute_t<T>;
  const int64_t H = s.hidden, G = gates(s.cell);
  cuda::for_each(s.n * H, [&](int64_t e) {
    const int64_t row = e / H, unit = e - row * H, at = row * G * H + unit;
    R kept[4];
#pragma unroll
    for (int g = 0; g < 4; ++g) kept[g] = read<T>(s.gates, (row * 4 + g) * H + unit);
    const bool lstm = s.cell == Cell::lstm;
    const CellGradient<R> out =
        unit_gradient_of<R>(s.cell, kept, R(0), lstm ? read<S>(s.c, e) : R(0), read<S>(s.before, e), read<S>(s.gh, e),
                            s.gc != nullptr ? read<S>(s.gc, e) : R(0));
    write<S>(s.gbefore, e, lstm ? out.c : out.beside);
#pragma unroll
    for (int g = 0; g < 4; ++g) {
      if (g >= G) break;
      write<T>(s.gfrom_x, at + g * H, out.gates[g]);
      if (s.gfrom_h != nullptr) write<T>(s.gfrom_h, at + g * H, g == 2 ? out.through_reset : out.gates[g]);
    }
  });
}

// f(T, S) for gates of T and states of S.
template <class F>
void dispatch_step(DType t, DType own, F&& f) {
  dispatch_floats(t, "recurrent_step", [&]<class T>() {
    if constexpr (sizeof(T) == 2) {
      if (own == DType::f32) return f.template operator()<T, float>();
    }
    f.template operator()<T, T>();
  });
}

}  // namespace

void step_forward_cuda(const StepCall& s) {
  dispatch_step(s.t, s.own, [&]<class T, class S>() {
    forward_kernel<T, S><<<cuda::each_blocks(s.n * s.hidden), cuda::kEachThreads, 0, cuda::stream()>>>(s);
  });
}

void step_backward_cuda(const StepBackwardCall& s) {
  dispatch_step(s.t, s.own, [&]<class T, class S>() {
    backward_kernel<T, S><<<cuda::each_blocks(s.n * s.hidden), cuda::kEachThreads, 0, cuda::stream()>>>(s);
  });
}

}  // namespace strata::recurrent
