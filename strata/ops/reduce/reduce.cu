// Sums, products, extremes and logic on a CUDA device.

#include "strata/ops/reduce/reduce.cuh"
#include "strata/ops/reduce/reduce_cuda.h"

namespace strata {
namespace {
using namespace cuda::reduce_detail;

// With kNumbers NaN is left out.
template <class T, bool kNumbers = false>
struct SumOf {
  using Acc = Wide<T>;
  using Shift = Acc;
  void* y;
  Acc divisor;
  bool wide;  // y has the type of Acc
  __device__ Acc init() const { return 0; }
  __device__ void step(Acc& a, compute_t<T> v, Shift, int64_t) const {
    if (!kNumbers || v == v) a = plus(a, static_cast<Acc>(v));
  }
  __device__ Acc combine(Acc a, Acc b) const { return plus(a, b); }
  __device__ void write(int64_t i, Acc a) const {
    if constexpr (std::is_floating_point_v<Acc>) a /= divisor;
    if (wide)
      static_cast<Acc*>(y)[i] = a;
    else
      static_cast<T*>(y)[i] = cuda::narrow<T>(a);
  }
};
template <class T>
struct ProductOf {
  using Acc = Wide<T>;
  using Shift = Acc;
  using Out = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
  Out* y;
  __device__ Acc init() const { return 1; }
  __device__ void step(Acc& a, compute_t<T> v, Shift, int64_t) const { a = times(a, static_cast<Acc>(v)); }
  __device__ Acc combine(Acc a, Acc b) const { return times(a, b); }
  __device__ void write(int64_t i, Acc a) const { y[i] = cuda::narrow<Out>(a); }
};
template <class T, bool kLargest>
struct ExtremeOf {
  using Acc = compute_t<T>;
  using Shift = Acc;
  T* y;
  __device__ Acc init() const { return worst<Acc, kLargest>(); }
  __device__ void step(Acc& a, Acc v, Shift, int64_t) const { a = better_of<Acc, kLargest>(a, v); }
  __device__ Acc combine(Acc a, Acc b) const { return better_of<Acc, kLargest>(a, b); }
  __device__ void write(int64_t i, Acc a) const { y[i] = cuda::narrow<T>(a); }
};
// Both extremes with one reading.
template <class T>
struct BothExtremes {
  using Value = compute_t<T>;
  using C = std::conditional_t<sizeof(Value) < 4, int, Value>;  // whole words for shuffles
  struct Acc {
    C low, high;
  };
  using Shift = C;
  T *low, *high;
  __device__ Acc init() const { return {worst<C, false>(), worst<C, true>()}; }
  __device__ void step(Acc& a, Value v, Shift, int64_t) const {
    a = {better_of<C, false>(a.low, v), better_of<C, true>(a.high, v)};
  }
  __device__ Acc combine(const Acc& a, const Acc& b) const {
    return {better_of<C, false>(a.low, b.low), better_of<C, true>(a.high, b.high)};
  }
  __device__ void write(int64_t i, const Acc& a) const {
    low[i] = cuda::narrow<T>(a.low);
    high[i] = cuda::narrow<T>(a.high);
  }
};
// any, all and count look at elements as integers of their size: one is not 0 where a bit of `bits` is set, which are
// all but a floating number's sign.
template <class U, bool kAll>
struct Logic {
  using Acc = int;
  using Shift = int;
  uint8_t* y;
  U bits;
  __device__ Acc init() const { return kAll; }
  __device__ void step(Acc& a, U v, Shift, int64_t) const { a = combine(a, (v & bits) != 0); }
  __device__ Acc combine(Acc a, Acc b) const { return kAll ? a & b : a | b; }
  __device__ void write(int64_t i, Acc a) const { y[i] = static_cast<uint8_t>(a); }
};
template <class U>
struct Count {
  using Acc = int64_t;
  using Shift = int;
  int64_t* y;
  U bits;
  __device__ Acc init() const { return 0; }
  __device__ void step(Acc& a, U v, Shift, int64_t) const { a += (v & bits) != 0; }
  __device__ Acc combine(Acc a, Acc b) const { return a + b; }
  __device__ void write(int64_t i, Acc a) const { y[i] = a; }
};

template <class T>
void sum_of(const Tensor& y, const ReduceLayout& l, Wide<T> divisor) {
  const bool wide = y.dtype() != l.data.dtype() || std::is_integral_v<T> || sizeof(T) == sizeof(Wide<T>);
  reduce_with<SumOf<T>, T>({y.raw_data(), divisor, wide}, l);
}
void truth_of(Reduction what, const Tensor& y, const ReduceLayout& l) {
  dispatch_bytes(l.data.dtype(), [&]<class U>() {
    const U bits = static_cast<U>(is_floating(l.data.dtype()) ? static_cast<U>(-1) >> 1 : static_cast<U>(-1));
    auto* const to = static_cast<uint8_t*>(y.raw_data());
    if (what == Reduction::any) return reduce_with<Logic<U, false>, U>({to, bits}, l);
    if (what == Reduction::all) return reduce_with<Logic<U, true>, U>({to, bits}, l);
    reduce_with<Count<U>, U>({static_cast<int64_t*>(y.raw_data()), bits}, l);
  });
}

// The last run of neighbouring reduced dims, where there is more than one run: with it reduced first, a row-major
// tensor needs no copy. 0 otherwise.
uint32_t last_run(const Tensor& x, uint32_t mask) {
  if (!x.is_contiguous() || x.numel() == 0) return 0;
  uint32_t run = 0;
  bool ended = false;
  for (int i = x.dim() - 1; i >= 0; --i) {
    if (x.shape()[i] == 1) continue;
    const bool reduced = mask >> i & 1;
    if (reduced && ended) return run;
    if (reduced) run |= 1u << i;
    ended = ended || (!reduced && run != 0);
  }
  return 0;
}
// The first of two steps of a sum, mean or extreme: x with its last run reduced, sums and means in their own type.
Tensor reduced_first(Reduction what, const Tensor& x, uint32_t run) {
  const bool extreme = what == Reduction::max || what == Reduction::min;
  const DType type = extreme ? x.dtype() : is_floating(x.dtype()) ? statistic_dtype(x.dtype()) : DType::i64;
  const Tensor r = empty({reduced_shape(x.shape(), run, true), type, x.device(), std::nullopt});
  reduce_cuda(what, r, x, run, {});
  return r;
}
}  // namespace

void reduce_cuda(Reduction what, const Tensor& y, const Tensor& given, uint32_t given_mask, const Tensor& shift) {
  const auto [x, mask] = as_it_lies(given, given_mask);
  if (what == Reduction::sum || what == Reduction::mean || what == Reduction::max || what == Reduction::min) {
    if (const uint32_t run = last_run(x, mask)) {
      const Tensor rest = reduced_first(what, x, run);
      if (rest.dtype() == y.dtype()) return reduce_cuda(what, y, rest, mask, {});
      const Tensor wide = empty({y.shape(), rest.dtype(), y.device(), std::nullopt});
      reduce_cuda(what, wide, rest, mask, {});
      return copy_elements(y, wide);
    }
  }
  const ReduceLayout l = what == Reduction::sum_exp ? rows_layout(x, mask) : gapped_layout(x, mask, true);
  switch (what) {
    case Reduction::any:
    case Reduction::all:
    case Reduction::count:
      return truth_of(what, y, l);
    case Reduction::sum:
      return dispatch_numbers(x.dtype(), [&]<class T>() { sum_of<T>(y, l, 1); });
    case Reduction::sum_numbers:
      return dispatch_floats(x.dtype(), "nansum", [&]<class T>() {
        reduce_with<SumOf<T, true>, T>({y.raw_data(), 1, sizeof(T) == sizeof(Wide<T>)}, l);
      });
    case Reduction::mean:
      return dispatch_floats(x.dtype(), "mean",
                             [&]<class T>() { sum_of<T>(y, l, static_cast<Wide<T>>(l.pieces ? l.outer * l.n : l.n)); });
    case Reduction::prod:
      return dispatch_numbers(x.dtype(), [&]<class T>() {
        reduce_with<ProductOf<T>, T>({static_cast<typename ProductOf<T>::Out*>(y.raw_data())}, l);
      });
    case Reduction::max:
      return dispatch_numbers(
          x.dtype(), [&]<class T>() { reduce_with<ExtremeOf<T, true>, T>({static_cast<T*>(y.raw_data())}, l); });
    case Reduction::min:
      return dispatch_numbers(
          x.dtype(), [&]<class T>() { reduce_with<ExtremeOf<T, false>, T>({static_cast<T*>(y.raw_data())}, l); });
    default:
      return reduce_floating_cuda(what, y, l, shift);
  }
}

void extremes_cuda(const Tensor& low, const Tensor& high, const Tensor& given, uint32_t given_mask) {
  const auto [x, mask] = as_it_lies(given, given_mask);
  const ReduceLayout l = gapped_layout(x, mask, true);
  dispatch_numbers(l.data.dtype(), [&]<class T>() {
    reduce_with<BothExtremes<T>, T>({static_cast<T*>(low.raw_data()), static_cast<T*>(high.raw_data())}, l);
  });
}

}  // namespace strata
