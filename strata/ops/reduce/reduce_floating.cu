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

}  // namespace strata
