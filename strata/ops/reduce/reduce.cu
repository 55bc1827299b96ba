// Sums, products, extremes and logic on a CUDA device.

#include "strata/ops/reduce/reduce.cuh"
#include "strata/ops/reduce/reduce_cuda.h"

namespace strata {
namespace {
using namespace cuda::reduce_detail;

template <class T>
struct SumOf {
  using Acc = Wide<T>;
  using Shift = Acc;
  void* y;
  Acc divisor;
  bool wide;  // y has the type of Acc
  __device__ Acc init() const { return 0; }
  __device__ void step(Acc& a, compute_t<T> v, Shift, int64_t) const { a = plus(a, static_cast<Acc>(v)); }
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
// any, all and the count of bool, which are the largest, the smallest and the sum of bytes 0 and 1, but for no elements.
template <bool kAll>
struct Logic {
  using Acc = int;
  using Shift = int;
  uint8_t* y;
  __device__ Acc init() const { return kAll; }
  __device__ void step(Acc& a, uint8_t v, Shift, int64_t) const { a = combine(a, v); }
  __device__ Acc combine(Acc a, Acc b) const { return kAll ? a & b : a | b; }
  __device__ void write(int64_t i, Acc a) const { y[i] = static_cast<uint8_t>(a); }
};

// bool has u8's representation, and sums, products and extremes of it are those of u8.
template <class F>
void dispatch_numbers(DType t, F&& f) {
  if (is_floating(t))
    dispatch_floats(t, "reduce", f);
  else
    dispatch_ints(t == DType::boolean ? DType::u8 : t, "reduce", f);
}

template <class T>
void sum_of(const Tensor& y, const ReduceLayout& l, Wide<T> divisor) {
  const bool wide = y.dtype() != l.data.dtype() || std::is_integral_v<T> || sizeof(T) == sizeof(Wide<T>);
  reduce_with<SumOf<T>, T>({y.raw_data(), divisor, wide}, l);
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
  reduce_cuda(what, r, x, run, {}, 0);
  return r;
}
}  // namespace

void reduce_cuda(Reduction what, const Tensor& y, const Tensor& x, uint32_t mask, const Tensor& shift, double p) {
  if (what == Reduction::sum || what == Reduction::mean || what == Reduction::max || what == Reduction::min) {
    if (const uint32_t run = last_run(x, mask)) {
      const Tensor rest = reduced_first(what, x, run);
      if (rest.dtype() == y.dtype()) return reduce_cuda(what, y, rest, mask, {}, 0);
      const Tensor wide = empty({y.shape(), rest.dtype(), y.device(), std::nullopt});
      reduce_cuda(what, wide, rest, mask, {}, 0);
      return copy_elements(y, wide);
    }
  }
  const ReduceLayout l = what == Reduction::sum_exp ? rows_layout(x, mask) : reduce_layout(x, mask);
  uint8_t* const bytes = static_cast<uint8_t*>(y.raw_data());
  switch (what) {
    case Reduction::any:
      return reduce_with<Logic<false>, uint8_t>({bytes}, l);
    case Reduction::all:
      return reduce_with<Logic<true>, uint8_t>({bytes}, l);
    case Reduction::count:
      return sum_of<uint8_t>(y, l, 1);
    case Reduction::sum:
      return dispatch_numbers(x.dtype(), [&]<class T>() { sum_of<T>(y, l, 1); });
    case Reduction::mean:
      return dispatch_floats(x.dtype(), "mean", [&]<class T>() { sum_of<T>(y, l, static_cast<Wide<T>>(l.n)); });
    case Reduction::prod:
      return dispatch_numbers(x.dtype(), [&]<class T>() {
        reduce_with<ProductOf<T>, T>({static_cast<typename ProductOf<T>::Out*>(y.raw_data())}, l);
      });
    case Reduction::max:
      return dispatch_numbers(x.dtype(), [&]<class T>() {
        reduce_with<ExtremeOf<T, true>, T>({static_cast<T*>(y.raw_data())}, l);
      });
    case Reduction::min:
      return dispatch_numbers(x.dtype(), [&]<class T>() {
        reduce_with<ExtremeOf<T, false>, T>({static_cast<T*>(y.raw_data())}, l);
      });
    default:
      return reduce_floating_cuda(what, y, l, shift, p);
  }
}

}  // namespace strata
