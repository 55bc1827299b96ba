#include "strata/ops/rnn/recurrence_alone.cuh"

#include "strata/core/dispatch.h"
#include "strata/cuda/current.h"
#include "strata/cuda/kernel.cuh"
#include "strata/ops/factory/factory.h"
#include "strata/ops/rnn/recurrence_cuda.h"

namespace strata::recurrent {
namespace {

template <class P, Cell kCell, int Units>
void launch(const RecurrenceCall& r) {
  alone_kernel<P, kCell, Units>
      <<<cuda::blocks_for(r.batch, kAloneRows), kWalkThreads, kAloneBytes<stored_t<P>, Units>, cuda::stream()>>>(r);
}
template <class P, Cell kCell>
void launch(const RecurrenceCall& r, int units) {
  if constexpr (sizeof(stored_t<P>) == 2) {
    if (units == 4) return launch<P, kCell, 4>(r);
  }
  units == 1 ? launch<P, kCell, 1>(r) : launch<P, kCell, 2>(r);
}
template <class P>
void launch(const RecurrenceCall& r, int units) {
  switch (r.cell) {
    case Cell::tanh:
      return launch<P, Cell::tanh>(r, units);
    case Cell::relu:
      return launch<P, Cell::relu>(r, units);
    case Cell::lstm:
      return launch<P, Cell::lstm, 1>(r);
    case Cell::gru:
      return launch<P, Cell::gru, 1>(r);
  }
}

}  // namespace

void recurrence_alone(const RecurrenceCall& given) {
  RecurrenceCall r = given;
  Tensor copy;
  if (reinterpret_cast<uintptr_t>(r.w) % 16 != 0) {
    const int64_t bytes = gates(r.cell) * r.hidden * r.hidden * size_of(r.t);
    copy = empty({{bytes}, DType::u8, Device::cuda(cuda::current_device()), std::nullopt});
    cuda::check_cuda(
        cudaMemcpyAsync(copy.raw_data(), r.w, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, cuda::stream()),
        "recurrence", "cudaMemcpyAsync");
    r.w = copy.raw_data();
  }
  const int units = units_alone(r.cell, r.t, r.tf32, r.hidden);
  if (r.t == DType::f32) return launch<Tf32>(r, units);
  if (r.t == DType::bf16) return launch<BFloat16>(r, units);
  launch<Half>(r, units);
}

}  // namespace strata::recurrent
