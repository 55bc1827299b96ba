// Runs of equal neighbours on a CUDA device, from where they begin: one selection, one scan, one wait.

#include <algorithm>

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>

#include "strata/cuda/current.h"
#include "strata/cuda/launch.h"
#include "strata/cuda/memory.h"
#include "strata/ops/sort/order.cuh"
#include "strata/ops/sort/runs_kernel.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {
using namespace sort_detail;

constexpr int kThreads = 256;

// Whether element i begins a run: the first does, and those that differ from the one before.
struct Begins {
  const bool* differs;
  __host__ __device__ bool operator()(int64_t i) const { return i == 0 || differs[i - 1]; }
};
// 1 where another run than the first begins: their running sums are the runs' numbers.
struct Another {
  const bool* differs;
  __host__ __device__ int64_t operator()(int64_t i) const { return i > 0 && differs[i - 1] ? 1 : 0; }
};

__global__ void __launch_bounds__(kThreads)
    lengths_kernel(const int64_t* starts, int64_t found, int64_t n, int64_t* lengths) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (j < found) lengths[j] = (j + 1 < found ? starts[j + 1] : n) - starts[j];
}

// call(workspace, bytes), which says how much it needs when given none.
template <class Call>
void with_workspace(const Tensor& x, const char* what, Call&& call) {
  size_t bytes = 0;
  cuda::check_cuda(call(nullptr, bytes), "unique_consecutive", what);
  const Tensor workspace = make({std::max<int64_t>(1, static_cast<int64_t>(bytes))}, DType::u8, x);
  cuda::check_cuda(call(workspace.raw_data(), bytes), "unique_consecutive", what);
}

}  // namespace

Runs runs_cuda(const Tensor& differs, bool numbers_wanted, bool lengths_wanted) {
  const cuda::LaunchScope scope("unique_consecutive", differs.device());
  cuda::refuse_in_capture("unique_consecutive", "the result's size depends on values of the device");
  const Tensor flags = contiguous(differs);
  const int64_t n = flags.numel() + 1;
  const auto* const p = static_cast<const bool*>(flags.raw_data());
  const Tensor places = make({n}, DType::i64, flags), number = make({1}, DType::i64, flags);
  auto* const starts = static_cast<int64_t*>(places.raw_data());
  with_workspace(flags, "cub::DeviceSelect::If", [&](void* workspace, size_t& bytes) {
    return cub::DeviceSelect::If(workspace, bytes, thrust::counting_iterator<int64_t>(0), starts,
                                 static_cast<int64_t*>(number.raw_data()), n, Begins{p}, cuda::stream());
  });
  Runs r;
  r.numbers = make({numbers_wanted ? n : 0}, DType::i64, flags);
  if (numbers_wanted) {
    const auto another = thrust::make_transform_iterator(thrust::counting_iterator<int64_t>(0), Another{p});
    with_workspace(flags, "cub::DeviceScan::InclusiveSum", [&](void* workspace, size_t& bytes) {
      return cub::DeviceScan::InclusiveSum(workspace, bytes, another, static_cast<int64_t*>(r.numbers.raw_data()), n,
                                           cuda::stream());
    });
  }
  int64_t found = 0;
  cuda::copy_bytes(&found, Device::cpu(), number.raw_data(), flags.device(), sizeof found);
  r.starts = slice(places, 0, 0, found);
  r.lengths = make({lengths_wanted ? found : 0}, DType::i64, flags);
  if (lengths_wanted)
    lengths_kernel<<<cuda::blocks_for(found, kThreads), kThreads, 0, cuda::stream()>>>(
        starts, found, n, static_cast<int64_t*>(r.lengths.raw_data()));
  if (const char* failure = scope.failure()) throw DeviceError("unique_consecutive", failure);
  return r;
}

}  // namespace strata
