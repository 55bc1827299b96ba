// The steps of a recurrent layer as the library's products, one a step, each followed by its cell.

#include "strata/core/dispatch.h"
#include "strata/cuda/array_places_inl.h"
#include "strata/cuda/current.h"
#include "strata/cuda/each.cuh"
#include "strata/cuda/kernel.cuh"
#include "strata/cuda/memory.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/gemm_cuda.h"
#include "strata/ops/rnn/recurrence_cuda.h"
#include "strata/ops/rnn/recurrence_products.cuh"

namespace strata::recurrent {
namespace {

template <class T>
__global__ void widen_kernel(int64_t n, const T* from, compute_t<T>* to) {
  cuda::for_each(n, [&](int64_t e) { to[e] = cuda::widen(from[e]); });
}

// The memory of a call: sums [batch, columns hidden] of a step and a Step's array of `own` elements, zeros at first.
template <class T>
struct Steps {
  using R = compute_t<T>;
  const RecurrenceCall& r;
  Device device = Device::cuda(cuda::current_device());
  int64_t columns;
  Tensor memory;
  R *sums, *carry;

  Steps(const RecurrenceCall& call, int64_t columns_of_unit, int64_t own) : r(call), columns(columns_of_unit) {
    cuda::ArrayPlaces places;
    constexpr auto kSize = static_cast<int64_t>(sizeof(R));
    const int64_t first = places.take(r.batch * columns * r.hidden * kSize), second = places.take(own * kSize);
    memory = empty({{places.bytes()}, DType::u8, device, std::nullopt});
    auto* const base = static_cast<unsigned char*>(memory.raw_data());
    sums = reinterpret_cast<R*>(base + first), carry = reinterpret_cast<R*>(base + second);
    if (own > 0) cuda::fill_bytes(device, carry, 0, static_cast<size_t>(own * kSize));
  }
  const T* rows(const void* all, int64_t step, int64_t width) const {
    return static_cast<const T*>(all) + step * r.batch * width;
  }
  // sums = a [batch, depth] w, or its transpose: w [gates hidden, hidden].
  void multiply(const T* a, int64_t depth, bool transposed) const {
    Gemm g;
    g.in = r.t;
    g.out = size_of(r.t) == 2 ? DType::f32 : r.t;
    g.m = r.batch, g.n = columns * r.hidden, g.k = depth;
    g.a = a, g.a_row = depth, g.a_col = 1;
    g.b = r.w, g.b_row = transposed ? 1 : r.hidden, g.b_col = transposed ? r.hidden : 1;
    g.c = sums, g.c_row = g.n;
    g.tf32 = r.tf32;
    cuda::gemm(g, device);
  }
  template <class Step>
  void cell(const Step& step, int64_t i) const {
    cell_kernel<R, Step><<<static_cast<unsigned>(cell_blocks(r.batch, r.hidden)), kCellThreads, 0, cuda::stream()>>>(
        step, i, r.hidden, columns, sums);
  }
};

}  // namespace

void recurrence_by_products(const RecurrenceCall& r) {
  const int64_t g = gates(r.cell), states = r.batch * r.hidden;
  dispatch_floats(r.t, "recurrence", [&]<class T>() {
    const Steps<T> steps(r, g, r.cell == Cell::lstm ? states : 0);
    if (r.cell == Cell::lstm)
      widen_kernel<T><<<cuda::each_blocks(states), cuda::kEachThreads, 0, cuda::stream()>>>(
          states, static_cast<const T*>(r.c), steps.carry);
    const ForwardStep<T> step{r, steps.carry, static_cast<int>(g)};
    for (int64_t i = 0; i < r.steps; ++i) {
      const int64_t before = r.reverse ? r.steps - i : i - 1;
      steps.multiply(i == 0 ? static_cast<const T*>(r.h) : steps.rows(r.y, before, r.hidden), r.hidden, true);
      steps.cell(step, i);
    }
  });
}

void recurrence_backward_by_products(const RecurrenceBackwardCall& b) {
  const RecurrenceCall& r = b.forward;
  const int64_t g = gates(r.cell);
  const void* const of_gates = b.gfrom_h != nullptr ? b.gfrom_h : b.gfrom_x;
  dispatch_floats(r.t, "recurrence_backward", [&]<class T>() {
    const Steps<T> steps(r, 1, 2 * r.batch * r.hidden);
    const BackwardStep<T> step{b, steps.carry, static_cast<int>(g), r.cell == Cell::gru};
    for (int64_t i = 0; i <= r.steps; ++i) {
      const int64_t after = r.reverse ? i - 1 : r.steps - i;  // the step of the iteration before
      if (i > 0) steps.multiply(steps.rows(of_gates, after, g * r.hidden), g * r.hidden, false);
      steps.cell(step, i);
    }
  });
}

}  // namespace strata::recurrent
