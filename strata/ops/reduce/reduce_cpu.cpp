// Reductions of every dtype: sums, products, extremes, logic.

#include <cmath>
#include <limits>

#include "strata/core/error.h"
#include "strata/core/layout.h"
#include "strata/ops/reduce/fold_kernels.h"
#include "strata/ops/reduce/memory_order_inl.h"
#include "strata/ops/reduce/reduce_inl.h"
#include "strata/ops/reduce/sum_exp_kernel.h"

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

// The vector loops of reductions that have some.
template <Fold F, class T>
struct WithLoops {
  FoldLoops loops = fold_loops(F, dtype_of<T>);
};
struct WithoutLoops {};
template <Fold F, class T>
using Loops = std::conditional_t<std::is_integral_v<T>, WithoutLoops, WithLoops<F, T>>;

template <class T>
struct Sum : Loops<Fold::sum, T> {
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
struct Prod : Loops<Fold::prod, T> {
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
struct Extreme : Loops<Largest ? Fold::max : Fold::min, T> {
  using Acc = compute_t<T>;
  using Shift = Acc;
  // Vector code for whole runs.
  struct OfInts {
    void (*run)(const void*, int64_t, void*) = extreme_of_ints(dtype_of<T>, Largest);
    Acc operator()(const void* p, int64_t n) const {
      Acc result;
      run(p, n, &result);
      return result;
    }
  };
  std::conditional_t<std::is_integral_v<T>, OfInts, WithoutLoops> run;
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

// reduce_layout(); where it would copy, long runs are reduced as they lie, and where the last dimension is kept, the
// reduced ones come first: that copy moves runs, not single elements.
RunsLayout runs_layout(const Tensor& x, uint32_t mask) {
  constexpr int64_t kLongRun = 32;
  const Shape& s = x.shape();
  int64_t last = s.size() - 1;
  while (last > 0 && s[static_cast<int>(last)] == 1) --last;
  int groups = 0;  // of neighbours that are reduced
  bool before = false;
  for (int i = 0; i <= last; ++i) {
    if (s[i] == 1) continue;
    const bool reduced = mask >> i & 1;
    groups += reduced && !before, before = reduced;
  }
  RunsLayout l;
  if (groups == 2 && before && x.is_contiguous() && x.numel() > 0) {
    int64_t* const parts[] = {&l.n, &l.inner, &l.runs, &l.outer};  // from the last on
    int part = 0;
    for (int i = static_cast<int>(last); i >= 0; --i) {
      if (s[i] == 1) continue;
      if ((mask >> i & 1) != (part % 2 == 0 ? 1u : 0u)) ++part;
      *parts[part] *= s[i];
    }
    l.data = x;
    if (l.n >= kLongRun) return l;
  }
  if (groups < 2 || before || x.numel() == 0) return {reduce_layout(x, mask)};
  Dims order;
  for (int i = 0; i < s.size(); ++i)
    if (mask >> i & 1) order.push_back(i), l.n *= s[i];
  for (int i = 0; i < s.size(); ++i)
    if (!(mask >> i & 1)) order.push_back(i), l.inner *= s[i];
  l.data = contiguous(permute(x, order));
  return l;
}

template <class R, class In, class Out, class Finish>
void run(const R& r, const Tensor& y, const RunsLayout& l, const Tensor& shift, Finish finish) {
  Out* out = static_cast<Out*>(y.raw_data());
  const auto* s = shift.defined() ? static_cast<const typename R::Shift*>(shift.raw_data()) : nullptr;
  const auto write = [&](int64_t i, typename R::Acc a) { out[i] = static_cast<Out>(finish(a)); };
  l.runs > 1 ? reduce_runs_with<R, In>(r, l, s, write) : reduce_layout_with<R, In>(r, l, s, write);
}

constexpr auto as_is = [](auto a) { return a; };
constexpr int64_t kExpColumns = 8;  // fewer are turned into lines

// ---- floating reductions ----

template <class T>
struct Deviations : WithLoops<Fold::sum_squares, T> {
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
template <class T, class F, class Inner = WithoutLoops>
struct SumOf : Inner {
  using Acc = compute_t<T>;
  using Shift = Acc;
  F f;
  explicit SumOf(F g) : f(g) {}
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
  ExtremeAbs() { this->loops = fold_loops(Largest ? Fold::max_abs : Fold::min_abs, dtype_of<T>); }
  template <class X>
  void step(Acc& a, X x, Acc, int64_t) const {
    a = this->combine(a, std::abs(static_cast<Acc>(x)));
  }
};

template <class T>
void floating(Reduction what, const Tensor& y, const RunsLayout& l, const Tensor& shift, double p) {
  using A = compute_t<T>;
  constexpr DType x_type = dtype_of<T>;
  const auto sum_of = [&]<Fold Vectors, class F>(F f) {
    using S = SumOf<T, F, WithLoops<Vectors, T>>;
    run<S, T, T>(S(f), y, l, shift, as_is);
  };
  switch (what) {
    case Reduction::mean: {
      const auto over_n = [n = static_cast<A>(l.count())](A a) { return a / n; };
      if (y.dtype() == x_type) return run<Sum<T>, T, T>({}, y, l, {}, over_n);
      return run<Sum<T>, T, A>({}, y, l, {}, over_n);
    }
    case Reduction::squared_deviations:
      return run<Deviations<T>, T, A>({}, y, l, shift, as_is);
    case Reduction::sum_abs:
      return sum_of.template operator()<Fold::sum_abs>([](A x, A) { return std::abs(x); });
    case Reduction::sum_numbers:
      return sum_of.template operator()<Fold::sum_numbers>([](A x, A) { return x == x ? x : A(0); });
    case Reduction::sum_squares:
      return run<Deviations<T>, T, A>({}, y, l, {}, as_is);
    case Reduction::sum_powers: {
      const auto f = [p = static_cast<A>(p)](A x, A) { return std::pow(std::abs(x), p); };
      return run<SumOf<T, decltype(f)>, T, A>(SumOf<T, decltype(f)>(f), y, l, {}, as_is);
    }
    case Reduction::count_nonzero_float:
      return sum_of.template operator()<Fold::count_nonzero>([](A x, A) { return x != 0 ? A(1) : A(0); });
    case Reduction::max_abs:
      return run<ExtremeAbs<T, true>, T, T>({}, y, l, {}, as_is);
    case Reduction::min_abs:
      return run<ExtremeAbs<T, false>, T, T>({}, y, l, {}, as_is);
    default:
      throw ValueError("reduce", "not a floating reduction");
  }
}

template <class T>
void general(Reduction what, const Tensor& y, const RunsLayout& l) {
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

namespace {
template <class T>
void index_rows(bool largest, const ReduceLayout& l, T* values, int64_t* at) {
  using A = compute_t<T>;
  const auto loop = index_loops(dtype_of<T>, largest).lines;
  const T* p = static_cast<const T*>(l.data.raw_data());
  // Of one line its stretches, of which those that come first win where elements are equal.
  const int64_t length = l.outer < 16 ? kRowJob : l.n, parts = (l.n + length - 1) / length;
  std::vector<A> best(static_cast<size_t>(l.outer * parts));
  std::vector<int64_t> place(best.size());
  parallel_for(0, l.outer * parts, std::max<int64_t>(1, kGrain / length), [&](int64_t begin, int64_t end) {
    if (parts == 1)
      return loop(p + begin * l.n, end - begin, l.n, &best[static_cast<size_t>(begin)],
                  &place[static_cast<size_t>(begin)]);
    for (int64_t job = begin; job < end; ++job) {
      const int64_t from = job % parts * length;
      loop(p + job / parts * l.n + from, 1, std::min(length, l.n - from), &best[static_cast<size_t>(job)],
           &place[static_cast<size_t>(job)]);
    }
  });
  for (int64_t o = 0; o < l.outer; ++o) {
    A most = best[static_cast<size_t>(o * parts)];
    int64_t where = place[static_cast<size_t>(o * parts)];
    for (int64_t i = 1; i < parts; ++i) {
      const A b = best[static_cast<size_t>(o * parts + i)];
      if ((largest ? b > most : b < most) || (b != b && most == most))
        most = b, where = i * length + place[static_cast<size_t>(o * parts + i)];
    }
    at[o] = where;
    if (values) values[o] = static_cast<T>(most);
  }
}

// Columns: stretches of them, of which those of the earlier rows win where elements are equal.
template <class T>
void index_columns(bool largest, const ReduceLayout& l, T* values, int64_t* at) {
  using A = compute_t<T>;
  constexpr int64_t kRows = 4096;
  const auto loop = index_loops(dtype_of<T>, largest).columns;
  const int64_t tiles = (l.inner + kIndexWidth - 1) / kIndexWidth, parts = (l.n + kRows - 1) / kRows;
  const T* p = static_cast<const T*>(l.data.raw_data());
  const int64_t work = std::min(l.inner, kIndexWidth) * l.n;
  parallel_for(0, l.outer * tiles, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
    for (int64_t job = begin; job < end; ++job) {
      const int64_t o = job / tiles, column = job % tiles * kIndexWidth,
                    width = std::min(kIndexWidth, l.inner - column);
      std::vector<A> best(static_cast<size_t>(parts * width));
      std::vector<int32_t> place(best.size());
      const auto part = [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i)
          loop(p + (o * l.n + i * kRows) * l.inner + column, std::min(kRows, l.n - i * kRows), l.inner, width,
               &best[static_cast<size_t>(i * width)], &place[static_cast<size_t>(i * width)]);
      };
      parallel_for(0, parts, 1, part);
      for (int64_t j = 0; j < width; ++j) {
        A most = best[static_cast<size_t>(j)];
        int64_t where = place[static_cast<size_t>(j)];
        for (int64_t i = 1; i < parts; ++i) {
          const A b = best[static_cast<size_t>(i * width + j)];
          if ((largest ? b > most : b < most) || (b != b && most == most))
            most = b, where = i * kRows + place[static_cast<size_t>(i * width + j)];
        }
        at[o * l.inner + column + j] = where;
        if (values) values[o * l.inner + column + j] = static_cast<T>(most);
      }
    }
  });
}

// Its dimensions as they lie, where x has no gaps: what is reduced is then next to it more often, and needs no copy.
std::optional<Dims> order_in_memory(const Tensor& x) {
  if (x.is_contiguous() || !lie_alike(x, x)) return std::nullopt;
  return dims_in_memory(x);
}
void reduce_as_given(Reduction what, const Tensor& y, const Tensor& x, uint32_t mask, const Tensor& shift, double p);

// The same over x as it lies. The results come in the order of the dimensions that are left, and are turned back.
void reduce_turned(Reduction what, const Tensor& y, const Tensor& x, const Dims& order, uint32_t mask,
                   const Tensor& shift, double p) {
  uint32_t turned = 0;
  Dims left, places;  // the kept dimensions as they lie, and each one's place among them
  for (int i = 0; i < order.size(); ++i)
    if (mask >> order[i] & 1)
      turned |= 1u << i;
    else
      left.push_back(order[i]);
  Shape wide, narrow;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (mask >> d & 1) continue;
    wide.push_back(x.shape()[static_cast<int>(d)]);
    for (int i = 0; i < left.size(); ++i)
      if (left[i] == d) places.push_back(i);
  }
  const Tensor data = permute(x, order);
  if (std::is_sorted(left.begin(), left.end())) return reduce_as_given(what, y, data, turned, shift, p);
  Dims back = Dims::filled(places.size(), 0);
  for (int i = 0; i < places.size(); ++i) back[static_cast<int>(places[i])] = i;
  for (int64_t d : left) narrow.push_back(x.shape()[static_cast<int>(d)]);
  const Tensor to = empty({narrow, y.dtype(), y.device(), std::nullopt});
  const Tensor less = shift.defined() ? contiguous(permute(view(shift, wide), back)) : Tensor();
  reduce_as_given(what, to, data, turned, less, p);
  Tensor result = view(y, wide);
  copy_elements(result, permute(to, places));
}

void reduce_as_given(Reduction what, const Tensor& y, const Tensor& x, uint32_t mask, const Tensor& shift, double p) {
  if (what == Reduction::sum_exp) {
    const ReduceLayout l = reduce_layout(x, mask);
    return sum_exp_cpu(y, l.inner == 1 || l.inner >= kExpColumns ? l : rows_layout(x, mask), shift);
  }
  const RunsLayout l = runs_layout(x, mask);
  switch (what) {
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

}  // namespace

void reduce_cpu(Reduction what, const Tensor& y, const Tensor& x, uint32_t mask, const Tensor& shift, double p) {
  if (const auto order = order_in_memory(x)) return reduce_turned(what, y, x, *order, mask, shift, p);
  reduce_as_given(what, y, x, mask, shift, p);
}

void reduce_index_cpu(bool largest, const Tensor& values, const Tensor& indices, const Tensor& x, uint32_t mask) {
  const ReduceLayout l = reduce_layout(x, mask);
  int64_t* at = indices.data<int64_t>();
  dispatch_numbers(x.dtype(), [&]<class T>() {
    T* v = values.defined() ? static_cast<T*>(values.raw_data()) : nullptr;
    if (l.inner == 1 && l.n > 0) {
      index_rows<T>(largest, l, v, at);
      return;
    }
    if (l.inner >= 16 && l.n > 0 && l.n < (int64_t{1} << 31)) {
      index_columns<T>(largest, l, v, at);
      return;
    }
    const auto go = [&]<class R>(const R& r) {
      reduce_layout_with<R, T>(r, l, nullptr, [&](int64_t i, typename R::Acc a) {
        at[i] = a.index;
        if (v) v[i] = static_cast<T>(a.value);
      });
    };
    largest ? go(IndexOf<T, true>()) : go(IndexOf<T, false>());
  });
}

bool dot_cpu(const Tensor& y, const Tensor& x, const Tensor& z, int64_t dim) {
  if (!lie_alike(x, z)) return false;
  const Dims order = order_in_memory(x).value_or(Dims());
  int64_t outer = 1, n = 1, inner = 1, last = -1;
  bool before = true;
  for (int i = 0; i < x.dim(); ++i) {
    const int64_t d = order.empty() ? i : order[i];
    const int64_t size = x.shape()[d];
    if (d == dim) {
      n = size, before = false;
      continue;
    }
    if (d < last) return false;
    last = d;
    (before ? outer : inner) *= size;
  }
  if (outer * inner == 0) return true;
  const DotLoops loops = dot_loops(x.dtype());
  dispatch_floats(x.dtype(), "dot", [&]<class T>() {
    using A = compute_t<T>;
    const T *p = x.data<T>(), *q = z.data<T>();
    T* to = y.data<T>();
    if (inner == 1 && n > kRowJob) {
      const int64_t jobs = (n + kRowJob - 1) / kRowJob;
      std::vector<A> parts(static_cast<size_t>(outer * jobs)), sums(static_cast<size_t>(outer));
      parallel_for(0, outer * jobs, 1, [&](int64_t begin, int64_t end) {
        for (int64_t job = begin; job < end; ++job) {
          const int64_t at = job % jobs * kRowJob, from = job / jobs * n + at;
          loops.lines(p + from, q + from, 1, std::min(kRowJob, n - at), &parts[static_cast<size_t>(job)]);
        }
      });
      fold_loops(Fold::sum, dtype_of<A>).lines(parts.data(), outer, jobs, nullptr, sums.data());
      for (int64_t i = 0; i < outer; ++i) to[i] = static_cast<T>(sums[static_cast<size_t>(i)]);
      return;
    }
    if (inner == 1) {
      parallel_for(0, outer, std::max<int64_t>(1, kGrain / std::max<int64_t>(n, 1)), [&](int64_t begin, int64_t end) {
        A sums[kTile];
        for (int64_t i = begin; i < end; i += kTile) {
          const int64_t m = std::min(kTile, end - i);
          loops.lines(p + i * n, q + i * n, m, n, sums);
          for (int64_t k = 0; k < m; ++k) to[i + k] = static_cast<T>(sums[k]);
        }
      });
      return;
    }
    const int64_t tiles = (inner + kTile - 1) / kTile;
    parallel_for(0, outer * tiles, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, n * std::min(inner, kTile))),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t job = begin; job < end; ++job) {
                     const int64_t column = job % tiles * kTile, width = std::min(kTile, inner - column);
                     const int64_t first = job / tiles * n * inner + column;
                     A sums[kTile] = {};
                     for (int64_t k = 0; k < n; k += kSteps) {
                       A part[kTile] = {};
                       loops.rows(p + first + k * inner, q + first + k * inner, std::min(kSteps, n - k), inner, width,
                                  part);
                       for (int64_t j = 0; j < width; ++j) sums[j] += part[j];
                     }
                     T* const row = to + job / tiles * inner + column;
                     for (int64_t j = 0; j < width; ++j) row[j] = static_cast<T>(sums[j]);
                   }
                 });
  });
  return true;
}

}  // namespace strata
