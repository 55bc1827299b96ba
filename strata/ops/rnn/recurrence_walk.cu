#include "strata/cuda/current.h"
#include "strata/cuda/range.cuh"
#include "strata/ops/factory/factory.h"
#include "strata/ops/rnn/recurrence.cuh"

namespace strata::recurrent {
namespace {

using cuda::check_cuda;

// Offsets of arrays in one block of memory.
class Places {
 public:
  int64_t take(int64_t bytes) {
    const int64_t at = bytes_;
    bytes_ += (bytes + 255) / 256 * 256;
    return at;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

__global__ void __launch_bounds__(cuda::kEachThreads)
    counts_kernel(const int64_t* counts, int64_t steps, int64_t batch, cuda::RangeCheck check) {
  cuda::for_each(steps, [&](int64_t t) {
    if (counts[t] < 0 || counts[t] > (t == 0 ? batch : counts[t - 1])) check.refuse(static_cast<double>(counts[t]));
  });
}

bool can_be_resident(const void* kernel, int64_t shared_bytes, int64_t blocks) {
  const int device = cuda::current_device();
  int cooperative = 0, of_one = 0;
  check_cuda(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device), "recurrence",
             "cudaDeviceGetAttribute");
  if (cooperative == 0) return false;
  check_cuda(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_one, kernel, kWalkThreads, static_cast<size_t>(shared_bytes)),
      "recurrence", "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return blocks <= static_cast<int64_t>(of_one) * cuda::properties(device).multiprocessors;
}

}  // namespace

WalkCall::WalkCall(const RecurrenceCall& r, const StepProduct& p, int64_t own_elements)
    : plan(plan_recurrence(p, card_limits(cuda::current_device()))) {
  const Device device = Device::cuda(cuda::current_device());
  const int64_t states_bytes = plan.groups * plan.rows * plan.depth_bytes;
  Places places;
  const int64_t weight = places.take(plan.parts * plan.columns * plan.depth_bytes),
                states = places.take(2 * states_bytes), arrivals = places.take(plan.groups * kArrivalBytes),
                array = places.take(own_elements * std::max<int64_t>(p.size, 4));
  memory_ = empty({{places.bytes()}, DType::u8, device, std::nullopt});
  auto* const base = static_cast<unsigned char*>(memory_.raw_data());
  cuda::fill_bytes(device, base, 0, static_cast<size_t>(places.bytes()));
  walk = {.batch = r.batch,
          .hidden = r.hidden,
          .rows = plan.rows,
          .depth_bytes = plan.depth_bytes,
          .pitch = plan.pitch,
          .partial_bytes_at = plan.shared_bytes - plan.partial_bytes,
          .parts = static_cast<int>(plan.parts),
          .units = static_cast<int>(plan.units),
          .columns = static_cast<int>(plan.columns),
          .partial_pitch = static_cast<int>(plan.partial_pitch),
          .weight = base + weight,
          .states = base + states,
          .states_bytes = states_bytes,
          .arrivals = reinterpret_cast<unsigned*>(base + arrivals)};
  own = base + array;
}

void check_counts(const RecurrenceCall& r) {
  if (r.counts == nullptr) return;
  counts_kernel<<<cuda::each_blocks(r.steps), cuda::kEachThreads, 0, cuda::stream()>>>(
      r.counts, r.steps, r.batch, cuda::value_check("batch_sizes must be at most the batch and never rise"));
}

void WalkCall::launch(const void* kernel, const void* streaming, const void* step, int64_t iterations) {
  const auto shared_bytes = static_cast<int>(plan.shared_bytes);
  const int64_t blocks = plan.groups * plan.parts;
  const auto allow = [&](const void* f) {
    check_cuda(cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "recurrence",
               "cudaFuncSetAttribute");
  };
  const void* const one = plan.resident ? kernel : streaming;
  allow(one);
  const auto run = [&](const void* f, int64_t first, int64_t last, bool together) {
    void* parameters[] = {&walk, const_cast<void*>(step), &first, &last};
    const dim3 grid(static_cast<unsigned>(blocks));
    const auto bytes = static_cast<size_t>(shared_bytes);
    return together ? cudaLaunchCooperativeKernel(f, grid, kWalkThreads, parameters, bytes, cuda::stream())
                    : cudaLaunchKernel(f, grid, kWalkThreads, parameters, bytes, cuda::stream());
  };
  const bool alone = plan.parts == 1;  // no block waits for another
  if (alone || can_be_resident(one, plan.shared_bytes, blocks)) {
    const cudaError_t e = run(one, 0, iterations, !alone);
    if (e != cudaErrorCooperativeLaunchTooLarge) return check_cuda(e, "recurrence", "the launch");
    cudaGetLastError();  // this process has a part of the card only
  }
  allow(streaming);
  for (int64_t i = 0; i < iterations; ++i) check_cuda(run(streaming, i, i + 1, false), "recurrence", "the launch");
}

}  // namespace strata::recurrent
