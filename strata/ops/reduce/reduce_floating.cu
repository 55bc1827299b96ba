// Norms, deviations and sums of exponentials on a CUDA device.

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

// The sum of squares about the mean, with one reading: each vector has a mean and squares of its own, and these are put
// together (Chan, Golub and LeVeque, 1983), so that no digits are lost.
template <class T>
struct SquaresAboutMean {
  using C = compute_t<T>;
  struct Acc {
    C count, mean, squares;
  };
  using Shift = C;
  C* y;
  __device__ Acc init() const { return {0, 0, 0}; }
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
    y[i] = a.squares;
  }
};

struct Magnitude {
  template <class A>
  __device__ A operator()(A x, A) const {
    return x < 0 ? -x : x;
  }
};
struct SquaredDeviation {
  template <class A>
  __device__ A operator()(A x, A shift) const {
    return (x - shift) * (x - shift);
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

void reduce_floating_cuda(Reduction what, const Tensor& y, const ReduceLayout& l, const Tensor& shift, double p) {
  dispatch_floats(l.data.dtype(), "reduce", [&]<class T>() {
    using A = compute_t<T>;
    T* const to = static_cast<T*>(y.raw_data());
    const auto sum_of = [&]<class Out, class F>(Out* out, F f) {
      reduce_with<SumOf<T, Out, F>, T>({out, f}, l, shift);
    };
    A* const wide = static_cast<A*>(y.raw_data());
    switch (what) {
      case Reduction::squared_deviations:
      case Reduction::sum_squares:
        return sum_of(wide, SquaredDeviation{});
      case Reduction::sum_powers:
        return sum_of(wide, Power{p});
      case Reduction::sum_exp:
        return sum_of(wide, Exponential{});
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

bool squares_about_mean_cuda(const Tensor& y, const Tensor& x, uint32_t mask) {
  const ReduceLayout l = reduce_layout(x, mask);
  if (l.inner != 1) return false;
  dispatch_floats(x.dtype(), "reduce", [&]<class T>() {
    reduce_with<SquaresAboutMean<T>, T>({static_cast<compute_t<T>*>(y.raw_data())}, l);
  });
  return true;
}

}  // namespace strata
