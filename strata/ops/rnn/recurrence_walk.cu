#include <cub/block/block_scan.cuh>

#include "strata/cuda/array_places_inl.h"
#include "strata/cuda/current.h"
#include "strata/cuda/range.cuh"
#include "strata/ops/factory/factory.h"
#include "strata/ops/rnn/recurrence.cuh"
#include "strata/ops/rnn/walk_of.cuh"

namespace strata::recurrent {
namespace {

using cuda::check_cuda;

constexpr int kPlaceThreads = 256;

// One block: counts [steps] that never rise and whose sum is `rows`, and the sums before each.
__global__ void __launch_bounds__(kPlaceThreads)
    places_kernel(const int64_t* given, int64_t steps, int64_t batch, int64_t rows, int64_t* counts, int64_t* firsts,
                  cuda::RangeCheck check) {
  using Scan = cub::BlockScan<int64_t, kPlaceThreads>;
  __shared__ typename Scan::TempStorage storage;
  int64_t before = 0;
  for (int64_t begin = 0; begin < steps; begin += kPlaceThreads) {
    const int64_t t = begin + threadIdx.x;
    int64_t count = t < steps ? given[t] : 0, first, total;
    const int64_t most = t == 0 || t >= steps ? batch : given[t - 1];
    if (count < 0 || count > most) check.refuse(static_cast<double>(count));
    count = max(int64_t{0}, min(count, batch));
    Scan(storage).ExclusiveSum(count, first, total);
    first = min(before + first, rows);
    if (t < steps) counts[t] = min(count, rows - first), firsts[t] = first;
    before += total;
    __syncthreads();
  }
  if (threadIdx.x == 0 && before != rows) check.refuse(static_cast<double>(before));
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

WalkCall::WalkCall(const StepProduct& p, int64_t own_elements, int64_t steps)
    : plan(plan_recurrence(p, card_limits(cuda::current_device()))) {
  const Device device = Device::cuda(cuda::current_device());
  const int64_t states_bytes = plan.groups * plan.rows * plan.depth_bytes;
  cuda::ArrayPlaces places;
  const int64_t weight = places.take(plan.parts * plan.columns * plan.depth_bytes),
                states = places.take(2 * states_bytes), arrivals = places.take(plan.groups * kArrivalBytes),
                array = places.take(own_elements * std::max<int64_t>(p.size, 4)),
                counts = places.take(2 * steps * static_cast<int64_t>(sizeof(int64_t)));
  memory_ = empty({{places.bytes()}, DType::u8, device, std::nullopt});
  auto* const base = static_cast<unsigned char*>(memory_.raw_data());
  cuda::fill_bytes(device, base, 0, static_cast<size_t>(places.bytes()));
  walk = walk_of(p, plan, base + weight, base + states, reinterpret_cast<unsigned*>(base + arrivals));
  own = base + array;
  places_ = reinterpret_cast<int64_t*>(base + counts);
}

void WalkCall::place(RecurrenceCall& r) const {
  if (r.counts == nullptr) return;
  int64_t *const counts = places_, *const firsts = places_ + r.steps;
  places_kernel<<<1, kPlaceThreads, 0, cuda::stream()>>>(
      r.counts, r.steps, r.batch, r.rows, counts, firsts,
      cuda::value_check("batch_sizes must be at most the batch, never rise and add up to the rows"));
  r.counts = counts;
  r.firsts = firsts;
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
