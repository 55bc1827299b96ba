// Reductions of every dtype: sums, products, extremes, logic.

#include <cmath>
#include <limits>

#include "strata/core/error.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/reduce/reduce_inl.h"

namespace strata {

uint32_t dim_mask(const Dims& dims, int64_t rank, std::string_view op) {
  if (dims.empty()) return ~0u;
  uint32_t mask = 0;
  for (int64_t d : dims) {
    d = wrap_dim(d, rank, op);
    check(!(mask >> d & 1), op, "dims ", dims, " lists dimension ", d, " twice");
    mask |= 1u << d;
  }
  return mask;
}

Shape reduced_shape(const Shape& s, uint32_t mask, bool keepdim) {
  Shape r;
  for (int i = 0; i < s.size(); ++i) {
    if (!(mask >> i & 1))
      r.push_back(s[i]);
    else if (keepdim)
      r.push_back(1);
  }
  return r;
}

int64_t reduced_count(const Shape& s, uint32_t mask) {
  int64_t n = 1;
  for (int i = 0; i < s.size(); ++i)
    if (mask >> i & 1) n *= s[i];
  return n;
}

namespace {
using namespace reduce_detail;

template <class T>
using Wide = std::conditional_t<std::is_integral_v<T>, int64_t, compute_t<T>>;

// Integer arithmetic wraps around.
template <class A>
A plus(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}
template <class A>
A times(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}

template <class T>
struct Sum {
  using Acc = Wide<T>;
  using Shift = Acc;
  Acc init() const { return 0; }
  template <class X>
  void step(Acc& a, X x, Shift, int64_t) const {
    a = plus(a, static_cast<Acc>(x));
  }
  Acc combine(Acc a, Acc b) const { return plus(a, b); }
};
template <class T>
struct Prod {
  using Acc = Wide<T>;
  using Shift = Acc;
  Acc init() const { return 1; }
  template <class X>
  void step(Acc& a, X x, Shift, int64_t) const {
    a = times(a, static_cast<Acc>(x));
  }
  Acc combine(Acc a, Acc b) const { return times(a, b); }
};
// NaN wins: once there, no comparison replaces it.
template <class T, bool Largest>
struct Extreme {
  using Acc = compute_t<T>;
  using Shift = Acc;
  // Vector code for whole runs.
  struct OfInts {
    void (*run)(const void*, int64_t, void*) = extreme_of_ints(dtype_of<T>, Largest);
    explicit operator bool() const { return true; }
    Acc operator()(const void* p, int64_t n) const {
      Acc result;
      run(p, n, &result);
      return result;
    }
  };
  static auto vector_run() {
    if constexpr (std::is_same_v<Acc, float>)
      return extreme_of_run(dtype_of<T>, Largest);
    else if constexpr (std::is_same_v<Acc, double>)
      return extreme_of_doubles(Largest);
    else
      return OfInts();
  }
  decltype(vector_run()) run = vector_run();
  Acc init() const {
    if constexpr (std::is_floating_point_v<Acc>)
      return Largest ? -std::numeric_limits<Acc>::infinity() : std::numeric_limits<Acc>::infinity();
    else
      return Largest ? std::numeric_limits<Acc>::lowest() : std::numeric_limits<Acc>::max();
  }
  Acc combine(Acc a, Acc b) const {
    if constexpr (std::is_floating_point_v<Acc>) {
      const bool better = Largest ? b > a : b < a;  // false where a is NaN
      return better | (b != b) ? b : a;
    } else {
      return Largest ? std::max(a, b) : std::min(a, b);
    }
  }
  template <class X>
  void step(Acc& a, X x, Shift, int64_t) const {
    a = combine(a, static_cast<Acc>(x));
  }
};
struct Any {
  using Acc = uint8_t;
  using Shift = Acc;
  Acc init() const { return 0; }
  void step(Acc& a, uint8_t x, Shift, int64_t) const { a |= x; }
  Acc combine(Acc a, Acc b) const { return a | b; }
};
struct All {
  using Acc = uint8_t;
  using Shift = Acc;
  Acc init() const { return 1; }
  void step(Acc& a, uint8_t x, Shift, int64_t) const { a &= x; }
  Acc combine(Acc a, Acc b) const { return a & b; }
};

template <class T, bool Largest>
struct IndexOf {
  struct Acc {
    compute_t<T> value;
    int64_t index;
  };
  using Shift = char;
  Acc init() const { return {Extreme<T, Largest>().init(), -1}; }
  Acc combine(Acc a, Acc b) const {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    if (nan_a || nan_b) return nan_a && nan_b ? (a.index < b.index ? a : b) : nan_a ? a : b;
    if (a.value == b.value) return a.index < b.index ? a : b;
    return (Largest ? a.value > b.value : a.value < b.value) ? a : b;
  }
  // The first of equal elements stays, and the first NaN for good.
  template <class X>
  void step(Acc& a, X x, Shift, int64_t i) const {
    const compute_t<T> v = static_cast<compute_t<T>>(x);
    const bool better = a.index < 0 || ((Largest ? v > a.value : v < a.value) || (v != v && a.value == a.value));
    if (better && !(a.value != a.value)) a = {v, i};
  }
};

template <class R, class In, class Out, class Finish>
void run(const R& r, const Tensor& y, const ReduceLayout& l, const Tensor& shift, Finish finish) {
  Out* out = static_cast<Out*>(y.raw_data());
  const auto* s = shift.defined() ? static_cast<const typename R::Shift*>(shift.raw_data()) : nullptr;
  reduce_layout_with<R, In>(r, l, s, [&](int64_t i, typename R::Acc a) { out[i] = static_cast<Out>(finish(a)); });
}

constexpr auto as_is = [](auto a) { return a; };

// ---- floating reductions ----

template <class T>
struct Deviations {
  using Acc = compute_t<T>;
  using Shift = Acc;
  Acc init() const { return 0; }
  template <class X>
  void step(Acc& a, X x, Shift mean, int64_t) const {
    const Acc d = static_cast<Acc>(x) - mean;
    a += d * d;
  }
  Acc combine(Acc a, Acc b) const { return a + b; }
};
template <class T, class F>
struct SumOf {
  using Acc = compute_t<T>;
  using Shift = Acc;
  F f;
  Acc init() const { return 0; }
  template <class X>
  void step(Acc& a, X x, Shift shift, int64_t) const {
    a += f(static_cast<Acc>(x), shift);
  }
  Acc combine(Acc a, Acc b) const { return a + b; }
};
template <class T, bool Largest>
struct ExtremeAbs : Extreme<T, Largest> {
  using Acc = compute_t<T>;
  ExtremeAbs() { this->run = nullptr; }
  template <class X>
  void step(Acc& a, X x, Acc, int64_t) const {
    a = this->combine(a, std::abs(static_cast<Acc>(x)));
  }
};

template <class T>
void floating(Reduction what, const Tensor& y, const ReduceLayout& l, const Tensor& shift, double p) {
  using A = compute_t<T>;
  constexpr DType x_type = dtype_of<T>;
  const auto sum_of = [&]<class F>(F f) { run<SumOf<T, F>, T, T>(SumOf<T, F>{f}, y, l, shift, as_is); };
  switch (what) {
    case Reduction::mean: {
      const auto over_n = [n = static_cast<A>(l.n)](A a) { return a / n; };
      if (y.dtype() == x_type) return run<Sum<T>, T, T>({}, y, l, {}, over_n);
      return run<Sum<T>, T, A>({}, y, l, {}, over_n);
    }
    case Reduction::squared_deviations:
      return run<Deviations<T>, T, A>({}, y, l, shift, as_is);
    case Reduction::sum_abs:
      return sum_of([](A x, A) { return std::abs(x); });
    case Reduction::sum_squares:
      return run<Deviations<T>, T, A>({}, y, l, {}, as_is);
    case Reduction::sum_powers: {
      const auto f = [p = static_cast<A>(p)](A x, A) { return std::pow(std::abs(x), p); };
      return run<SumOf<T, decltype(f)>, T, A>({f}, y, l, {}, as_is);
    }
    case Reduction::count_nonzero_float:
      return sum_of([](A x, A) { return x != 0 ? A(1) : A(0); });
    case Reduction::max_abs:
      return run<ExtremeAbs<T, true>, T, T>({}, y, l, {}, as_is);
    case Reduction::min_abs:
      return run<ExtremeAbs<T, false>, T, T>({}, y, l, {}, as_is);
    default:
      throw ValueError("reduce", "not a floating reduction");
  }
}

template <class T>
void general(Reduction what, const Tensor& y, const ReduceLayout& l) {
  using R = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
  switch (what) {
    case Reduction::sum:
      return run<Sum<T>, T, R>({}, y, l, {}, as_is);
    case Reduction::prod:
      return run<Prod<T>, T, R>({}, y, l, {}, as_is);
    case Reduction::max:
      return run<Extreme<T, true>, T, T>({}, y, l, {}, as_is);
    default:
      return run<Extreme<T, false>, T, T>({}, y, l, {}, as_is);
  }
}

// bool has u8's representation, and sums, products and extremes of it are those of u8.
DType element_type(DType t) {
  return t == DType::boolean ? DType::u8 : t;
}

template <class F>
void dispatch_numbers(DType t, F&& f) {
  t = element_type(t);
  if (is_floating(t))
    dispatch_floats(t, "reduce", f);
  else
    dispatch_ints(t, "reduce", f);
}

}  // namespace

// Rows: first the extreme, which vectorises, then the first place where it stands.
namespace {
template <class T, bool Largest>
void index_rows(const ReduceLayout& l, const Tensor& values, int64_t* at) {
  using A = compute_t<T>;
  std::vector<A> extremes(static_cast<size_t>(l.outer));
  const Extreme<T, Largest> r;
  reduce_layout_with<Extreme<T, Largest>, T>(r, l, nullptr,
                                             [&](int64_t i, A a) { extremes[static_cast<size_t>(i)] = a; });
  const T* p = static_cast<const T*>(l.data.raw_data());
  T* v = values.defined() ? static_cast<T*>(values.raw_data()) : nullptr;
  parallel_for(0, l.outer, std::max<int64_t>(1, kGrain / l.n), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const A wanted = extremes[static_cast<size_t>(o)];
      const T* row = p + o * l.n;
      const auto is_wanted = [&](T x) {
        const A a = static_cast<A>(x);
        return (a == wanted) | ((wanted != wanted) & (a != a));
      };
      int64_t i = 0;
      for (constexpr int64_t kBlock = 64; i + kBlock <= l.n; i += kBlock) {
        int found = 0;
        for (int64_t j = 0; j < kBlock; ++j) found |= is_wanted(row[i + j]);
        if (found) break;
      }
      while (!is_wanted(row[i])) ++i;
      at[o] = i;
      if (v) v[o] = row[i];
    }
  });
}

// Rows of exponentials: blocks of x - shift go through the vectorised exp, then are summed.
template <class T>
void sum_exp_rows(const Tensor& y, const ReduceLayout& l, const Tensor& shift) {
  using A = compute_t<T>;
  const Map f = Map::exp;
  DenseMap exp = simd_map(f, dtype_of<A>);
  if (!exp) exp = scalar_map(f, dtype_of<A>);
  const T* p = static_cast<const T*>(l.data.raw_data());
  const A* s = static_cast<const A*>(shift.raw_data());
  A* out = static_cast<A*>(y.raw_data());
  parallel_for(0, l.outer, std::max<int64_t>(1, kGrain / std::max<int64_t>(l.n, 1)), [&](int64_t begin, int64_t end) {
    constexpr int64_t kBlock = kSteps * kLanes;
    A e[kBlock];
    for (int64_t o = begin; o < end; ++o) {
      const Sum<A> r;
      Cascade<Sum<A>> total;
      for (int64_t i = 0; i < l.n; i += kBlock) {
        const int64_t m = std::min(kBlock, l.n - i);
        if constexpr (std::is_same_v<T, Half>) {
          widen_run(p + o * l.n + i, m, e);
          for (int64_t j = 0; j < m; ++j) e[j] -= s[o];
        } else {
          for (int64_t j = 0; j < m; ++j) e[j] = static_cast<A>(p[o * l.n + i + j]) - s[o];
        }
        const void* in[] = {e};
        exp(e, in, m, {});
        total.add(r, reduce_run<Sum<A>, A>(r, e, m, 0, 0));
      }
      out[o] = total.total(r);
    }
  });
}
}  // namespace

void reduce_cpu(Reduction what, const Tensor& y, const Tensor& x, uint32_t mask, const Tensor& shift, double p) {
  const ReduceLayout l = what == Reduction::sum_exp ? rows_layout(x, mask) : reduce_layout(x, mask);
  switch (what) {
    case Reduction::sum_exp:
      return dispatch_floats(x.dtype(), "reduce", [&]<class T>() { sum_exp_rows<T>(y, l, shift); });
    case Reduction::any:
      return run<Any, uint8_t, uint8_t>({}, y, l, {}, as_is);
    case Reduction::all:
      return run<All, uint8_t, uint8_t>({}, y, l, {}, as_is);
    case Reduction::count:
      return run<Sum<uint8_t>, uint8_t, int64_t>({}, y, l, {}, as_is);
    case Reduction::sum:
    case Reduction::prod:
    case Reduction::max:
    case Reduction::min:
      return dispatch_numbers(x.dtype(), [&]<class T>() { general<T>(what, y, l); });
    default:
      return dispatch_floats(x.dtype(), "reduce", [&]<class T>() { floating<T>(what, y, l, shift, p); });
  }
}

void reduce_index_cpu(bool largest, const Tensor& values, const Tensor& indices, const Tensor& x, uint32_t mask) {
  const ReduceLayout l = reduce_layout(x, mask);
  int64_t* at = indices.data<int64_t>();
  dispatch_numbers(x.dtype(), [&]<class T>() {
    if (l.inner == 1 && l.n > 0) {
      largest ? index_rows<T, true>(l, values, at) : index_rows<T, false>(l, values, at);
      return;
    }
    T* v = values.defined() ? static_cast<T*>(values.raw_data()) : nullptr;
    const auto go = [&]<class R>(const R& r) {
      reduce_layout_with<R, T>(r, l, nullptr, [&](int64_t i, typename R::Acc a) {
        at[i] = a.index;
        if (v) v[i] = static_cast<T>(a.value);
      });
    };
    largest ? go(IndexOf<T, true>()) : go(IndexOf<T, false>());
  });
}

void scan_cpu(Reduction what, const Tensor& y, const Tensor& indices, const Tensor& x, int64_t dim, bool reverse) {
  const Tensor from = contiguous(x);
  int64_t outer = 1, inner = 1;
  const int64_t n = x.dim() == 0 ? 1 : x.shape()[dim];
  for (int i = 0; i < x.dim(); ++i) (i < dim ? outer : i > dim ? inner : outer) *= i == dim ? 1 : x.shape()[i];
  int64_t* at = indices.defined() ? indices.data<int64_t>() : nullptr;
  dispatch_numbers(x.dtype(), [&]<class T>() {
    using A = Wide<T>;
    using Out = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
    const T* p = static_cast<const T*>(from.raw_data());
    parallel_for(0, outer * inner, std::max<int64_t>(1, kGrain / std::max<int64_t>(n, 1)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t line = begin; line < end; ++line) {
                     const int64_t base = line / inner * n * inner + line % inner + (reverse ? (n - 1) * inner : 0);
                     const int64_t step = reverse ? -inner : inner;
                     if (what == Reduction::sum || what == Reduction::prod) {
                       Out* o = static_cast<Out*>(y.raw_data());
                       A a = what == Reduction::sum ? 0 : 1;
                       for (int64_t k = 0, i = base; k < n; ++k, i += step) {
                         a = what == Reduction::sum ? plus(a, static_cast<A>(p[i])) : times(a, static_cast<A>(p[i]));
                         o[i] = static_cast<Out>(a);
                       }
                       continue;
                     }
                     T* o = static_cast<T*>(y.raw_data());
                     compute_t<T> best{};
                     int64_t where = -1;
                     for (int64_t k = 0, i = base; k < n; ++k, i += step) {
                       const auto v = static_cast<compute_t<T>>(p[i]);
                       const bool better = where < 0 || v != v || (what == Reduction::max ? v >= best : v <= best);
                       if (better) best = v, where = k;
                       o[i] = static_cast<T>(best);
                       at[i] = where;
                     }
                   }
                 });
  });
}

}  // namespace strata
