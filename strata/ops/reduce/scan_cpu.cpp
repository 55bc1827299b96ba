// Running sums, products and extremes.

#include <algorithm>

#include "strata/core/dispatch.h"
#include "strata/core/layout.h"
#include "strata/core/loops.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/reduce/kernels.h"
#include "strata/ops/reduce/memory_order_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr int64_t kTile = 1024;  // lines side by side of a job

template <class T>
using Wide = std::conditional_t<std::is_integral_v<T>, int64_t, compute_t<T>>;

// What goes along a line, and what of it is written; integer arithmetic wraps around.
template <class T, bool Product>
struct Total {
  static constexpr int64_t kLines = 8;
  using Out = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
  using State = Wide<T>;
  Out* to;
  Total writing(Out* there) const { return {there}; }
  State first() const { return Product ? 1 : 0; }
  void step(State& s, T x, int64_t, int64_t at) const {
    if constexpr (std::is_integral_v<T>) {
      const auto a = static_cast<uint64_t>(s), b = static_cast<uint64_t>(static_cast<int64_t>(x));
      s = static_cast<int64_t>(Product ? a * b : a + b);
    } else {
      s = Product ? s * static_cast<State>(x) : s + static_cast<State>(x);
    }
    to[at] = static_cast<Out>(s);
  }
};
template <class T, bool Largest>
struct Best {
  static constexpr int64_t kLines = 4;
  struct State {
    compute_t<T> value;
    int64_t place;
  };
  T* to;
  int64_t* places;
  State first() const { return {compute_t<T>{}, -1}; }
  void step(State& s, T x, int64_t k, int64_t at) const {
    const auto v = static_cast<compute_t<T>>(x);
    const bool better = s.place < 0 || v != v || (Largest ? v >= s.value : v <= s.value);
    s.value = better ? v : s.value;
    s.place = better ? k : s.place;
    to[at] = static_cast<T>(s.value);
    places[at] = s.place;
  }
};

struct Sizes {
  int64_t outer = 1, n = 1, inner = 1;
};

// Some lines, which lie one behind the other, are walked together: none waits for what came before in its own.
template <class T, class R>
void scan_lines(const R& r, const T* p, const Sizes& z, bool reverse) {
  const int64_t first = reverse ? z.n - 1 : 0, step = reverse ? -1 : 1;
  constexpr int64_t kStretch = 64;
  const auto walk = [&]<int64_t Count>(int64_t line) {
    typename R::State s[Count];
    for (auto& one : s) one = r.first();
    if constexpr (requires { r.writing(nullptr); })
      if (z.n >= kStretch) {
        // By stretches in memory of its own: a line's next number need not wait for what was written at the same place
        // of a page for another line.
        T in[Count * kStretch];
        typename R::Out out[Count * kStretch];
        const R near = r.writing(out);
        for (int64_t done = 0; done < z.n; done += kStretch) {
          const int64_t m = std::min(kStretch, z.n - done), at = line * z.n + (reverse ? z.n - done - m : done);
          for (int64_t l = 0; l < Count; ++l) std::copy_n(p + at + l * z.n, m, in + l * kStretch);
          for (int64_t k = 0, i = reverse ? m - 1 : 0; k < m; ++k, i += step)
            for (int64_t l = 0; l < Count; ++l) near.step(s[l], in[l * kStretch + i], k, l * kStretch + i);
          for (int64_t l = 0; l < Count; ++l) std::copy_n(out + l * kStretch, m, r.to + at + l * z.n);
        }
        return;
      }
    for (int64_t k = 0, i = line * z.n + first; k < z.n; ++k, i += step)
      for (int64_t l = 0; l < Count; ++l) r.step(s[l], p[i + l * z.n], k, i + l * z.n);
  };
  parallel_for(0, z.outer, std::max<int64_t>(1, kGrain / z.n), [&](int64_t begin, int64_t end) {
    int64_t line = begin;
    for (; line + R::kLines <= end; line += R::kLines) walk.template operator()<R::kLines>(line);
    for (; line < end; ++line) walk.template operator()<1>(line);
  });
}

template <class T, class R>
void scan_columns(const R& r, const T* p, const Sizes& z, bool reverse) {
  const int64_t tiles = (z.inner + kTile - 1) / kTile, work = z.n * std::min(z.inner, kTile);
  parallel_for(0, z.outer * tiles, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
    for (int64_t job = begin; job < end; ++job) {
      const int64_t column = job % tiles * kTile, width = std::min(kTile, z.inner - column);
      typename R::State s[kTile];
      for (int64_t j = 0; j < width; ++j) s[j] = r.first();
      for (int64_t k = 0; k < z.n; ++k) {
        const int64_t at = (job / tiles * z.n + (reverse ? z.n - 1 - k : k)) * z.inner + column;
#pragma GCC ivdep
        for (int64_t j = 0; j < width; ++j) r.step(s[j], p[at + j], k, at + j);
      }
    }
  });
}

}  // namespace

void scan_cpu(Reduction what, const Tensor& y, const Tensor& indices, const Tensor& x, int64_t dim, bool reverse) {
  // Results lie as x does where that has no gaps, and x is read as they lie.
  Tensor from = x;
  if (!lie_alike(x, y)) {
    TensorMeta m = y.meta();
    m.dtype = x.dtype(), m.strides = y.strides();
    from = empty(m);
    copy_elements(from, x);
  }
  Sizes z;
  bool before = true;
  for (const int64_t d : dims_in_memory(y)) {
    if (d == dim)
      z.n = y.shape()[d], before = false;
    else
      (before ? z.outer : z.inner) *= y.shape()[d];
  }
  // Sums and products of f16 are those of f32 rounded once: by the processor's own conversions, not number by number.
  if (x.dtype() == DType::f16 && (what == Reduction::sum || what == Reduction::prod)) {
    TensorMeta m = y.meta();
    m.dtype = DType::f32, m.strides = y.strides();
    const Tensor wide = empty(m);
    const int64_t count = y.numel();
    float* const p = wide.data<float>();
    const auto in_parts = [&](auto f) {
      parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) { f(begin, end - begin); });
    };
    in_parts([&](int64_t at, int64_t n) { widen_run(static_cast<const Half*>(from.raw_data()) + at, n, p + at); });
    scan_cpu(what, wide, {}, wide, dim, reverse);
    in_parts([&](int64_t at, int64_t n) { converters().f32_to_f16(static_cast<Half*>(y.raw_data()) + at, p + at, n); });
    return;
  }
  const auto go = [&]<class T, class R>(const T* p, const R& r) {
    z.inner == 1 ? scan_lines(r, p, z, reverse) : scan_columns(r, p, z, reverse);
  };
  const auto each = [&]<class T>() {
    const T* p = static_cast<const T*>(from.raw_data());
    using Out = typename Total<T, false>::Out;
    if (what == Reduction::sum) return go(p, Total<T, false>{static_cast<Out*>(y.raw_data())});
    if (what == Reduction::prod) return go(p, Total<T, true>{static_cast<Out*>(y.raw_data())});
    T* const to = static_cast<T*>(y.raw_data());
    int64_t* const at = static_cast<int64_t*>(indices.raw_data());
    what == Reduction::max ? go(p, Best<T, true>{to, at}) : go(p, Best<T, false>{to, at});
  };
  // bool has u8's representation.
  if (is_floating(x.dtype()))
    dispatch_floats(x.dtype(), "scan", each);
  else
    dispatch_ints(x.dtype() == DType::boolean ? DType::u8 : x.dtype(), "scan", each);
}

}  // namespace strata
