// The losses on a CUDA device. Sums over rows and pairs are f64, in two stages of fixed order.

#include "strata/cuda/rows.cuh"
#include "strata/ops/loss/loss_kernel.h"

namespace strata {
namespace {
using namespace cuda;

constexpr int kThreads = 256;

template <class C>
Tensor make_workspace(int64_t count) {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "loss", "cudaGetDevice");
  return empty({Shape{count}, dtype_of<C>, Device::cuda(device), std::nullopt});
}

// A loss, and how many rows count for it.
struct Total {
  double sum;
  int64_t count;
};
struct AddTotals {
  __device__ Total operator()(const Total& a, const Total& b) const { return {a.sum + b.sum, a.count + b.count}; }
};
__device__ __forceinline__ Total block_total(Total t) {
  __shared__ Total shared[kMostRowThreads / kWarp];
  return row_reduce(t, AddTotals(), shared);
}
__device__ __forceinline__ bool is_class(int64_t target, int64_t classes) {
  return target >= 0 && target < classes;
}
// What stands where a target is no class: a kernel cannot throw.
template <class C>
__device__ __forceinline__ C bad_target() {
  return static_cast<C>(NAN);
}

// ---- cross entropy ----

// log(sum(exp)) and the loss of each row; each row is read once.
template <class T, int V>
__global__ void __launch_bounds__(kMostRowThreads) cross_entropy_kernel(const CrossEntropyCall c, compute_t<T>* each) {
  using C = compute_t<T>;
  __shared__ ExpSum<C> shared[kMostRowThreads / kWarp];
  __shared__ C sums[kMostRowThreads / kWarp];
  const int64_t r = this_row(), n = r < c.rows ? c.classes : 0;
  const T* x = static_cast<const T*>(c.x) + r * c.classes;
  ExpSum<C> s{-INFINITY, 0};
  C sum = 0;
  for_row<V, false>(n, [&](int64_t i, int) {
    const auto v = load_vec<V>(x + i);
    add_exponentials(s, v);
    if (c.smoothing > 0)
#pragma unroll
      for (int j = 0; j < V; ++j) sum += widen(v.v[j]);
  });
  s = row_reduce(s, AddExpSums(), shared);
  if (c.smoothing > 0) sum = row_reduce(sum, Sum(), sums);
  if (threadIdx.x != 0 || n == 0) return;
  const C lse = s.top + log(s.sum);
  static_cast<C*>(c.lse)[r] = lse;
  const int64_t t = c.target[r];
  C v = 0;
  if (t != c.ignore_index) {
    v = is_class(t, n) ? lse - widen(x[t]) : bad_target<C>();
    if (c.smoothing > 0) {
      const C e = static_cast<C>(c.smoothing);
      v = v * (1 - e) + e * (lse - sum / static_cast<C>(n));
    }
  }
  each[r] = v;
}

// One block: the sum of the rows' losses, over the number of rows that count where the mean is wanted.
template <class C, class Out>
__global__ void __launch_bounds__(kMostRowThreads) total_kernel(const CrossEntropyCall c, const C* each, Out* loss) {
  Total t{0, 0};
  for (int64_t r = threadIdx.x; r < c.rows; r += blockDim.x) {
    t.sum += each[r];
    t.count += c.target[r] != c.ignore_index;
  }
  t = block_total(t);
  if (threadIdx.x == 0)
    *loss = narrow<Out>(static_cast<compute_t<Out>>(
        c.reduction == Reduction::mean ? t.sum / static_cast<double>(t.count) : t.sum));
}

// One block: 1 over the number of rows that count.
template <class C>
__global__ void __launch_bounds__(kMostRowThreads) share_kernel(const CrossEntropyCall c, C* share) {
  Total t{0, 0};
  for (int64_t r = threadIdx.x; r < c.rows; r += blockDim.x) t.count += c.target[r] != c.ignore_index;
  t = block_total(t);
  if (threadIdx.x == 0) *share = static_cast<C>(1.0 / static_cast<double>(t.count));
}

// (exp(x - lse) - wanted) g; share: what g is multiplied by, 1 where it is null.
template <class T, int V>
__global__ void __launch_bounds__(kMostRowThreads)
    cross_entropy_backward_kernel(const CrossEntropyCall c, const compute_t<T>* share) {
  using C = compute_t<T>;
  const int64_t r = this_row(), n = c.classes;
  if (r >= c.rows) return;
  const T* x = static_cast<const T*>(c.x) + r * n;
  const int64_t t = c.target[r];
  const bool used = t != c.ignore_index;
  const C lse = static_cast<const C*>(c.lse)[r], e = static_cast<C>(c.smoothing), even = e / static_cast<C>(n);
  C g = static_cast<const C*>(c.grad_loss)[c.reduction == Reduction::none ? r : 0];
  if (share != nullptr) g *= *share;
  if (used && !is_class(t, n)) g = bad_target<C>();
  for_row<V, false>(n, [&](int64_t i, int) {
    Vec<T, V> to;
    if (used) {
      const auto v = load_vec<V>(x + i);
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C p = exp_for<T>(widen(v.v[j]) - lse) - even - (i + j == t ? 1 - e : C(0));
        to.v[j] = narrow<T>(p * g);
      }
    } else {
#pragma unroll
      for (int j = 0; j < V; ++j) to.v[j] = narrow<T>(C(0));
    }
    store_vec(static_cast<T*>(c.grad_x) + r * n + i, to);
  });
}

template <class T, class F>
void by_vectors(const RowLaunch& l, F&& f) {
  if (l.vectors)
    f(std::integral_constant<int, kVec<T>>());
  else
    f(std::integral_constant<int, 1>());
}

// ---- negative log-likelihood ----

template <class T, class Out>
__global__ void __launch_bounds__(kThreads) nll_kernel(const CrossEntropyCall c, Out* each) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (r >= c.rows) return;
  const int64_t t = c.target[r];
  compute_t<T> v = 0;
  if (t != c.ignore_index)
    v = is_class(t, c.classes) ? -widen(static_cast<const T*>(c.x)[r * c.classes + t]) : bad_target<compute_t<T>>();
  each[r] = narrow<Out>(v);
}

// ---- pairs ----

template <PairLoss kind, class R>
__device__ __forceinline__ R value(R x, R t, R p) {
  const R d = x - t, a = fabs(d);
  if constexpr (kind == PairLoss::mse)
    return d * d;
  else if constexpr (kind == PairLoss::l1)
    return a;
  else if constexpr (kind == PairLoss::smooth_l1)
    return a < p ? R(0.5) * d * d / p : a - R(0.5) * p;
  else if constexpr (kind == PairLoss::huber)
    return a <= p ? R(0.5) * d * d : p * (a - R(0.5) * p);
  else if constexpr (kind == PairLoss::bce_with_logits)
    return (x > 0 ? x : x == x ? R(0) : x) - x * t + log1p(exp(-fabs(x)));
  else if (p != 0)
    return exp(t) * (t - x);
  else
    return t > 0 ? t * (log(t) - x) : (t == 0 ? R(0) : static_cast<R>(NAN));
}

template <PairLoss kind, class T>
struct Value {
  compute_t<T> p;
  __device__ compute_t<T> operator()(const T& x, const T& t) const {
    return value<kind, compute_t<T>>(widen(x), widen(t), p);
  }
};

// The losses themselves, or the blocks' sums.
template <int V, class T, class F>
__global__ void __launch_bounds__(kThreads) pairs_kernel(F f, const T* x, const T* t, int64_t n, T* loss, double* sums) {
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
  const Total all = block_total({sum, 0});
  if (threadIdx.x == 0) sums[blockIdx.x] = all.sum;
}
template <class T>
__global__ void __launch_bounds__(kMostRowThreads) sums_kernel(const double* sums, int64_t n, double divisor, T* loss) {
  Total t{0, 0};
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) t.sum += sums[i];
  t = block_total(t);
  if (threadIdx.x == 0) *loss = narrow<T>(static_cast<compute_t<T>>(t.sum / divisor));
}

template <class T, class F>
void run_pairs(F f, const T* x, const T* t, int64_t n, bool each, double divisor, T* loss) {
  const bool vectors = n % kVec<T> == 0 && aligned16(x) && aligned16(t) && (!each || aligned16(loss));
  const int64_t wanted = blocks_for(n, int64_t{kThreads} * (vectors ? kVec<T> : 1));
  const int64_t blocks = each ? wanted : std::clamp<int64_t>(wanted, 1, 1024);
  if (each && n == 0) return;
  const Tensor workspace = each ? Tensor() : make_workspace<double>(blocks);
  double* sums = each ? nullptr : static_cast<double*>(workspace.raw_data());
  T* to = each ? loss : nullptr;
  if (vectors)
    pairs_kernel<kVec<T>><<<static_cast<unsigned>(blocks), kThreads, 0, stream()>>>(f, x, t, n, to, sums);
  else
    pairs_kernel<1><<<static_cast<unsigned>(blocks), kThreads, 0, stream()>>>(f, x, t, n, to, sums);
  if (!each) sums_kernel<T><<<1, kMostRowThreads, 0, stream()>>>(sums, blocks, divisor, loss);
}
}  // namespace

void cross_entropy_cuda(const CrossEntropyCall& c) {
  dispatch_floats(c.dtype, "cross_entropy", [&]<class T>() {
    using C = compute_t<T>;
    C* loss = static_cast<C*>(c.loss);
    const bool none = c.reduction == Reduction::none;
    const Tensor workspace = none ? Tensor() : make_workspace<C>(c.rows);
    C* each = none ? loss : static_cast<C*>(workspace.raw_data());
    if (c.rows > 0) {
      const RowLaunch l = row_launch<T>(c.rows, c.classes, aligned16(c.x));
      by_vectors<T>(l, [&](auto v) {
        cross_entropy_kernel<T, decltype(v)::value><<<l.blocks, l.threads, 0, stream()>>>(c, each);
      });
    }
    if (!none) total_kernel<<<1, kMostRowThreads, 0, stream()>>>(c, static_cast<const C*>(each), loss);
  });
}

void cross_entropy_backward_cuda(const CrossEntropyCall& c) {
  if (c.rows == 0) return;
  dispatch_floats(c.dtype, "cross_entropy_backward", [&]<class T>() {
    using C = compute_t<T>;
    const bool mean = c.reduction == Reduction::mean;
    const Tensor workspace = mean ? make_workspace<C>(1) : Tensor();
    C* share = mean ? static_cast<C*>(workspace.raw_data()) : nullptr;
    if (mean) share_kernel<C><<<1, kMostRowThreads, 0, stream()>>>(c, share);
    const RowLaunch l = row_launch<T>(c.rows, c.classes, aligned16(c.x) && aligned16(c.grad_x));
    by_vectors<T>(l, [&](auto v) {
      cross_entropy_backward_kernel<T, decltype(v)::value><<<l.blocks, l.threads, 0, stream()>>>(c, share);
    });
  });
}

void nll_loss_cuda(const CrossEntropyCall& c) {
  dispatch_floats(c.dtype, "nll_loss", [&]<class T>() {
    using C = compute_t<T>;
    T* loss = static_cast<T*>(c.loss);
    const unsigned blocks = blocks_for(c.rows, kThreads);
    if (c.reduction == Reduction::none) {
      if (c.rows > 0) nll_kernel<T, T><<<blocks, kThreads, 0, stream()>>>(c, loss);
      return;
    }
    const Tensor workspace = make_workspace<C>(c.rows);
    C* each = static_cast<C*>(workspace.raw_data());
    if (c.rows > 0) nll_kernel<T, C><<<blocks, kThreads, 0, stream()>>>(c, each);
    total_kernel<<<1, kMostRowThreads, 0, stream()>>>(c, static_cast<const C*>(each), loss);
  });
}

void pair_loss_cuda(PairLoss kind, DType t, const void* x, const void* target, int64_t n, double param,
                    Reduction reduction, double divisor, void* loss) {
  dispatch_floats(t, "loss", [&]<class T>() {
    const auto go = [&]<PairLoss k>(std::integral_constant<PairLoss, k>) {
      run_pairs<T>(Value<k, T>{static_cast<compute_t<T>>(param)}, static_cast<const T*>(x),
                   static_cast<const T*>(target), n, reduction == Reduction::none, divisor, static_cast<T*>(loss));
    };
    switch (kind) {
      case PairLoss::mse:
        return go(std::integral_constant<PairLoss, PairLoss::mse>());
      case PairLoss::l1:
        return go(std::integral_constant<PairLoss, PairLoss::l1>());
      case PairLoss::smooth_l1:
        return go(std::integral_constant<PairLoss, PairLoss::smooth_l1>());
      case PairLoss::huber:
        return go(std::integral_constant<PairLoss, PairLoss::huber>());
      case PairLoss::bce_with_logits:
        return go(std::integral_constant<PairLoss, PairLoss::bce_with_logits>());
      case PairLoss::kl_div:
        return go(std::integral_constant<PairLoss, PairLoss::kl_div>());
    }
  });
}

}  // namespace strata
