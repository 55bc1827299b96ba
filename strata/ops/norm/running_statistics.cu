// Running statistics on a CUDA device: one launch for a layer, a thread for a channel.

#include "strata/cuda/kernel.cuh"
#include "strata/ops/norm/running_statistics_kernel.h"

namespace strata {
namespace {

constexpr int kThreads = 128;

template <class T>
__global__ void __launch_bounds__(kThreads)
    running_kernel(int64_t channels, T keep, T share, T eps, T unbiased, const T* running_mean, const T* running_var,
                   const T* mean, const T* rstd, T* new_mean, T* new_var) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (c >= channels) return;
  const T r = rstd[c], var = (T(1) / (r * r) - eps) * unbiased;
  new_mean[c] = running_mean[c] * keep + mean[c] * share;
  new_var[c] = running_var[c] * keep + var * share;
}

}  // namespace

void running_statistics_cuda(Tensor& new_mean, Tensor& new_var, const Tensor& running_mean, const Tensor& running_var,
                             const Tensor& mean, const Tensor& rstd, const RunningUpdate& update) {
  const int64_t channels = mean.numel();
  if (channels == 0) return;
  const auto run = [&]<class T>() {
    const auto of = [](const Tensor& t) { return static_cast<const T*>(t.raw_data()); };
    running_kernel<T><<<cuda::blocks_for(channels, kThreads), kThreads, 0, cuda::stream()>>>(
        channels, static_cast<T>(1 - update.momentum), static_cast<T>(update.momentum), static_cast<T>(update.eps),
        static_cast<T>(update.unbiased), of(running_mean), of(running_var), of(mean), of(rstd),
        static_cast<T*>(new_mean.raw_data()), static_cast<T*>(new_var.raw_data()));
  };
  if (mean.dtype() == DType::f64)
    run.template operator()<double>();
  else
    run.template operator()<float>();
}

}  // namespace strata
