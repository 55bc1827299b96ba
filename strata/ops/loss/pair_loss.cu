// The losses of pairs on a CUDA device. Sums are f64, in two stages of fixed order.

#include "strata/cuda/current.h"
#include "strata/cuda/elementwise.cuh"
#include "strata/cuda/row_loops.cuh"
#include "strata/ops/loss/pair_loss_inl.h"

namespace strata {
namespace {
using namespace cuda;

constexpr int kThreads = 256;

struct Add {
  __device__ double operator()(double a, double b) const { return a + b; }
};
__device__ __forceinline__ double block_sum(double v) {
  __shared__ double shared[kMostRowThreads / kWarp];
  return row_reduce(v, Add(), shared);
}

template <PairLoss kind, class T>
struct Value {
  compute_t<T> p;
  __device__ compute_t<T> operator()(const T& x, const T& t) const {
    return pair_value<kind, compute_t<T>>(widen(x), widen(t), p);
  }
};

// The losses themselves, or the blocks' sums.
template <int V, class T, class F>
__global__ void __launch_bounds__(kThreads)
    pairs_kernel(F f, const T* x, const T* t, int64_t n, T* loss, double* sums) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads * V;
  double sum = 0;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V; i < n; i += step) {
    const auto a = load_vec<V>(x + i), b = load_vec<V>(t + i);
    Vec<T, V> to;
    compute_t<T> part = 0;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const compute_t<T> v = f(a.v[k], b.v[k]);
      part += v;
      to.v[k] = narrow<T>(v);
    }
    sum += part;
    if (loss != nullptr) store_vec(loss + i, to);
  }
  if (sums == nullptr) return;
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
template <class T>
__global__ void __launch_bounds__(kMostRowThreads) sums_kernel(const double* sums, int64_t n, double divisor, T* loss) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += sums[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *loss = narrow<T>(static_cast<compute_t<T>>(sum / divisor));
}

template <class T, class F>
void run_pairs(F f, const T* x, const T* t, int64_t n, bool each, double divisor, T* loss) {
  const bool vectors = n % kVec<T> == 0 && aligned16(x) && aligned16(t) && (!each || aligned16(loss));
  const int64_t wanted = blocks_for(n, int64_t{kThreads} * (vectors ? kVec<T> : 1));
  const int64_t blocks = each ? wanted : std::clamp<int64_t>(wanted, 1, 1024);
  if (each && n == 0) return;
  const Tensor workspace =
      each ? Tensor() : empty({Shape{blocks}, DType::f64, Device::cuda(current_device()), std::nullopt});
  double* sums = each ? nullptr : static_cast<double*>(workspace.raw_data());
  T* to = each ? loss : nullptr;
  if (vectors)
    pairs_kernel<kVec<T>><<<static_cast<unsigned>(blocks), kThreads, 0, stream()>>>(f, x, t, n, to, sums);
  else
    pairs_kernel<1><<<static_cast<unsigned>(blocks), kThreads, 0, stream()>>>(f, x, t, n, to, sums);
  if (!each) sums_kernel<T><<<1, kMostRowThreads, 0, stream()>>>(sums, blocks, divisor, loss);
}
}  // namespace

void pair_loss_cuda(PairLoss kind, DType t, const void* x, const void* target, int64_t n, double param,
                    Reduction reduction, double divisor, void* loss) {
  dispatch_floats(t, "loss", [&]<class T>() {
    const auto go = [&]<PairLoss k>(std::integral_constant<PairLoss, k>) {
      run_pairs<T>(Value<k, T>{static_cast<compute_t<T>>(param)}, static_cast<const T*>(x),
                   static_cast<const T*>(target), n, reduction == Reduction::none, divisor, static_cast<T*>(loss));
    };
    dispatch_pair_loss(kind, go);
  });
}

}  // namespace strata
