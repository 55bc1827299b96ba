#pragma once
// What both directions of a recurrent layer do around their launch of recurrence_walk.cuh.

#include "strata/cuda/each.cuh"
#include "strata/cuda/kernel.cuh"
#include "strata/cuda/memory.h"
#include "strata/ops/rnn/recurrence_cuda.h"
#include "strata/ops/rnn/recurrence_walk.cuh"

namespace strata::recurrent {

/// Before the walk: the weight in its blocks' rows, and the first states. What is not written was filled with zeros.
template <class P, bool Transposed, class T = stored_t<P>>
__global__ void prepare_kernel(const __grid_constant__ Walk w, const T* given, int64_t columns_per_unit, const T* h,
                               const T* c, compute_t<T>* carry) {
  const int64_t H = w.hidden;
  cuda::for_each(columns_per_unit * H * H, [&](int64_t e) {
    const int64_t row = e / H, column = e % H, unit = row % H;
    const int64_t to = Transposed ? column : unit / w.units * w.columns + row / H * w.units + unit % w.units;
    auto* const packed = const_cast<unsigned char*>(w.weight) + to * w.depth_bytes;
    reinterpret_cast<T*>(packed)[Transposed ? row : column] = operand_of<P>(cuda::widen(given[e]));
  });
  cuda::for_each(w.batch * H, [&](int64_t e) {
    if (h != nullptr) reinterpret_cast<T*>(w.states + e / H * w.depth_bytes)[e % H] = operand_of<P>(cuda::widen(h[e]));
    if (c != nullptr) carry[e] = cuda::widen(c[e]);
  });
}

/// What both directions do around their walk: memory of zeros on the current stream, the first states, the launch.
class WalkCall {
 public:
  /// `own`: elements of the step's array, of the sums' type; `steps`: whose counts there are, 0 where all sequences
  /// have every step.
  WalkCall(const StepProduct& p, int64_t own, int64_t steps = 0);
  RecurrencePlan plan;
  Walk walk{};
  void* own;  ///< the step's array

  /// A call whose counts are as given (on the device) gets its own, and the rows before each step. Counts that are no
  /// batch sizes are told of and made such that nothing out of range is read.
  void place(RecurrenceCall& r) const;
  /// Launches the preparation: the weight [columns_per_unit hidden, hidden]; `h` and `c`, where they are given, become
  /// the first states and the step's array.
  template <class P, bool Transposed, class T = stored_t<P>>
  void prepare(const void* weight, int64_t columns_per_unit, const void* h, const void* c) const {
    const int64_t elements = std::max(columns_per_unit * walk.hidden, walk.batch) * walk.hidden;
    prepare_kernel<P, Transposed><<<cuda::each_blocks(elements), cuda::kEachThreads, 0, cuda::stream()>>>(
        walk, static_cast<const T*>(weight), columns_per_unit, static_cast<const T*>(h), static_cast<const T*>(c),
        static_cast<compute_t<T>*>(own));
  }
  /// Launches iterations [0, iterations) of a walk_kernel: all at once where the card can have all blocks at a time,
  /// else one by one with `streaming`, the same with a weight that is not resident.
  void launch(const void* kernel, const void* streaming, const void* step, int64_t iterations);

 private:
  Tensor memory_;
  int64_t* places_;  // counts of all steps, then the rows before each
};

/// f(P) for the operands of a call: its dtype's, or f32 rounded to TF32.
template <class F>
void dispatch_operands(DType t, bool tf32, std::string_view op, F&& f) {
  if (t == DType::f32 && tf32) return f.template operator()<Tf32>();
  dispatch_floats(t, op, f);
}

template <class P, class Step, bool Resident, int Rows, int Width>
const void* address_of_walk() {
  return reinterpret_cast<const void*>(walk_kernel<P, Step, Rows, Width, Resident>);
}
/// The kernels for a plan: the one whose weight is resident, and the one that reads it from global memory.
template <class P, class Step>
const void* walk_kernel_of(const RecurrencePlan& p) {
  if constexpr (kTensorCores<P>) {
    if (p.tile == 32)
      return p.width == 16 ? address_of_walk<P, Step, true, 32, 16>() : address_of_walk<P, Step, true, 32, 64>();
    if (p.width == 8) return address_of_walk<P, Step, true, 16, 8>();
    return p.width == 32 ? address_of_walk<P, Step, true, 16, 32>() : address_of_walk<P, Step, true, 16, 64>();
  } else {
    constexpr int kWide = sizeof(P) == 4 ? 32 : 16;
    return p.width == 8 ? address_of_walk<P, Step, true, 16, 8>() : address_of_walk<P, Step, true, 16, kWide>();
  }
}
template <class P, class Step>
const void* streaming_kernel_of(const RecurrencePlan& p) {
  if constexpr (kTensorCores<P>)
    return p.tile == 32 ? address_of_walk<P, Step, false, 32, 64>() : address_of_walk<P, Step, false, 16, 64>();
  else
    return address_of_walk < P, Step, false, 16, sizeof(P) == 4 ? 32 : 16 > ();
}

}  // namespace strata::recurrent
