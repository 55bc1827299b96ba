// Norms, deviations and sums of exponentials on a CUDA device.

#include <cmath>
#include <limits>

#include "strata/ops/reduce/reduce.cuh"
#include "strata/ops/reduce/reduce_cuda.h"

namespace strata {
namespace {
using namespace cuda::reduce_detail;

// The sum of f(x, shift), stored as Out.
template <class T, class Out, class F>
struct SumOf {
  using Acc = compute_t<T>;
  using Shift = Acc;
  Out* y;
  F f;
  __device__ Acc init() const { return 0; }
  __device__ void step(Acc& a, Acc v, Shift shift, int64_t) const { a += f(v, shift); }
  __device__ Acc combine(Acc a, Acc b) const { return a + b; }
  __device__ void write(int64_t i, Acc a) const { y[i] = cuda::narrow<Out>(a); }
};
template <class T, bool kLargest>
struct ExtremeAbs {
  using Acc = compute_t<T>;
  using Shift = Acc;
  T* y;
  __device__ Acc init() const { return worst<Acc, kLargest>(); }
  __device__ void step(Acc& a, Acc v, Shift, int64_t) const { a = combine(a, v < 0 ? -v : v); }
  __device__ Acc combine(Acc a, Acc b) const { return better_of<Acc, kLargest>(a, b); }
  __device__ void write(int64_t i, Acc a) const { y[i] = cuda::narrow<T>(a); }
};

// The root of order 1 / power of the sum of f(x), rounded once.
template <class T, class F>
struct RootOfSum {
  using Acc = compute_t<T>;
  using Shift = Acc;
  T* y;
  F f;
  Acc power;
  __device__ Acc init() const { return 0; }
  __device__ void step(Acc& a, Acc v, Shift, int64_t) const { a += f(v, Acc(0)); }
  __device__ Acc combine(Acc a, Acc b) const { return a + b; }
  __device__ void write(int64_t i, Acc a) const {
    y[i] = cuda::narrow<T>(power == Acc(0.5) ? std::sqrt(a) : std::pow(a, power));
  }
};

// The squares about the mean over `freedom`, or the root of that, with one reading: what is read has a mean and squares
// of its own, which are put together (Chan, Golub and LeVeque, 1983), so that no digits are lost.
template <class T>
struct Variance {
  using C = compute_t<T>;
  struct Acc {
    C count, mean, squares;
  };
  using Shift = C;
  T* y;
  T* means;  // or nullptr
  C freedom;
  bool root;
  __device__ Acc init() const { return {0, 0, 0}; }
  // One more element (Welford, 1962).
  __device__ void step(Acc& a, C v, Shift, int64_t) const {
    a.count += 1;
    const C away = v - a.mean;
    a.mean += away / a.count;
    a.squares += away * (v - a.mean);
  }
  template <int V>
  __device__ void steps(Acc& a, const cuda::Vec<C, V>& v) const {
    C mean = 0, squares = 0;
#pragma unroll
    for (int k = 0; k < V; ++k) mean += v.v[k];
    mean *= C(1) / V;
#pragma unroll
    for (int k = 0; k < V; ++k) squares += (v.v[k] - mean) * (v.v[k] - mean);
    a = combine(a, {C(V), mean, squares});
  }
  __device__ Acc combine(const Acc& a, const Acc& b) const {
    const C count = a.count + b.count;
    if (count == 0) return a;
    const C away = b.mean - a.mean, share = b.count / count;
    // In this order: of no elements on one side the product is 0, however far the mean is.
    return {count, a.mean + away * share, a.squares + b.squares + away * (away * (a.count * share))};
  }
  __device__ void write(int64_t i, const Acc& a) const {
    const C v = a.squares / freedom;
    y[i] = cuda::narrow<T>(root ? std::sqrt(v) : v);
    if (means != nullptr) means[i] = cuda::narrow<T>(a.count > 0 ? a.mean : std::numeric_limits<C>::quiet_NaN());
  }
};

struct Magnitude {
  template <class A>
  __device__ A operator()(A x, A) const {
    return x < 0 ? -x : x;
  }
};
struct Square {
  template <class A>
  __device__ A operator()(A x, A) const {
    return x * x;
  }
};
struct Power {
  double p;
  __device__ float operator()(float x, float) const { return powf(fabsf(x), static_cast<float>(p)); }
  __device__ double operator()(double x, double) const { return pow(fabs(x), p); }
};
struct NonZero {
  template <class A>
  __device__ A operator()(A x, A) const {
    return x != 0 ? A(1) : A(0);
  }
};
struct Exponential {
  __device__ float operator()(float x, float shift) const { return expf(x - shift); }
  __device__ double operator()(double x, double shift) const { return exp(x - shift); }
};
}  // namespace

void reduce_floating_cuda(Reduction what, const Tensor& y, const ReduceLayout& l, const Tensor& shift) {
  dispatch_floats(l.data.dtype(), "reduce", [&]<class T>() {
    using A = compute_t<T>;
    T* const to = static_cast<T*>(y.raw_data());
    const auto sum_of = [&]<class Out, class F>(Out* out, F f) {
      reduce_with<SumOf<T, Out, F>, T>({out, f}, l, shift);
    };
    switch (what) {
      case Reduction::sum_exp:
        return sum_of(static_cast<A*>(y.raw_data()), Exponential{});
      case Reduction::sum_abs:
        return sum_of(to, Magnitude{});
      case Reduction::count_nonzero_float:
        return sum_of(to, NonZero{});
      case Reduction::max_abs:
        return reduce_with<ExtremeAbs<T, true>, T>({to}, l);
      case Reduction::min_abs:
        return reduce_with<ExtremeAbs<T, false>, T>({to}, l);
      default:
        throw ValueError("reduce", "not a floating reduction");
    }
  });
}

void variance_cuda(const Tensor& y, const Tensor& mean, const Tensor& given, uint32_t given_mask, double freedom,
                   bool root) {
  const auto [x, mask] = as_it_lies(given, given_mask);
  const ReduceLayout l = gapped_layout(x, mask, true);
  dispatch_floats(l.data.dtype(), "var", [&]<class T>() {
    T* const means = mean.defined() ? static_cast<T*>(mean.raw_data()) : nullptr;
    reduce_with<Variance<T>, T>({static_cast<T*>(y.raw_data()), means, static_cast<compute_t<T>>(freedom), root}, l);
  });
}

void norm_cuda(const Tensor& y, const Tensor& given, uint32_t given_mask, double p) {
  const auto [x, mask] = as_it_lies(given, given_mask);
  const ReduceLayout l = gapped_layout(x, mask, true);
  dispatch_floats(l.data.dtype(), "norm", [&]<class T>() {
    T* const to = static_cast<T*>(y.raw_data());
    const auto power = static_cast<compute_t<T>>(1 / p);
    if (p == 2)
      reduce_with<RootOfSum<T, Square>, T>({to, {}, power}, l);
    else
      reduce_with<RootOfSum<T, Power>, T>({to, {p}, power}, l);
  });
}

}  // namespace strata
