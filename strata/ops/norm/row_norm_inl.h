// Layer norm and RMS norm, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// Affine parameters: of the arithmetic type after this.
template <class A, class T>
STRATA_INLINE V<T> load_affine(const A* p, int64_t i, int64_t k) {
  return load_upto(p + i, k, 0);
}

// The moments of n values about `about`: the sums of (x - about) and (x - about)^2.
template <class R>
struct Moments {
  R first, second;
};
// X: an element type, or the arithmetic type where a row is a sum of two.
template <class X>
STRATA_INLINE Moments<Real<X>> row_moments(const X* x, int64_t n, Real<X> about) {
  using R = Real<X>;
  constexpr int W = kLanes<X>;
  const V<X> c = set1(about);
  V<X> first[4] = {}, second[4] = {};
  const auto add = [&](V<X> v, int j) {
    v -= c;
    first[j] += v;
    second[j] = fma(v, v, second[j]);
  };
  int64_t i = 0;
  for (; i + 4 * W <= n; i += 4 * W) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) add(load(x + i + j * W), j);
  }
  for (; i < n; i += W) add(load_upto(x + i, std::min<int64_t>(W, n - i), about), 0);
  return {reduce_add((first[0] + first[1]) + (first[2] + first[3])) / static_cast<R>(n),
          reduce_add((second[0] + second[1]) + (second[2] + second[3])) / static_cast<R>(n)};
}
template <class X>
STRATA_INLINE Real<X> mean_square(const X* x, int64_t n) {
  constexpr int W = kLanes<X>;
  V<X> s[4] = {};
  int64_t i = 0;
  for (; i + 4 * W <= n; i += 4 * W) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const V<X> v = load(x + i + j * W);
      s[j] = fma(v, v, s[j]);
    }
  }
  for (; i < n; i += W) {
    const V<X> v = load_upto(x + i, std::min<int64_t>(W, n - i), 0);
    s[0] = fma(v, v, s[0]);
  }
  return reduce_add((s[0] + s[1]) + (s[2] + s[3])) / static_cast<Real<X>>(n);
}

// The mean as a rounded value and what rounding took, which matters where the mean is large beside the deviations.
template <class R>
struct RowStatistics {
  R mean = 0, rest = 0, variance = 0;
};
template <class X>
STRATA_INLINE RowStatistics<Real<X>> row_statistics(const X* x, int64_t n) {
  using R = Real<X>;
  // One pass suffices about any value not far from the mean beside the deviations; the first one mostly is.
  R about = get(x[0]);
  Moments<R> m = row_moments(x, n, about);
  R variance = m.second - m.first * m.first;
  if (!(m.first * m.first <= 4 * variance)) {
    about += m.first;
    m = row_moments(x, n, about);
    // Where the first value stood far out the new one is not exact; the mean's own error is small enough.
    variance = std::max(m.second - m.first * m.first, R(0));
  }
  RowStatistics<R> s;
  s.mean = about + m.first;
  s.rest = (about - s.mean) + m.first;
  s.variance = variance;
  return s;
}

// y = (x - mean) * rstd * weight + bias
template <class T, class A, bool kRms, class X>
STRATA_INLINE void write_normalised(const RowNorm& c, const X* x, T* y, const RowStatistics<Real<T>>& s, Real<T> rstd,
                                    bool nt) {
  using R = Real<T>;
  constexpr bool kFewDigits = sizeof(X) == 2;
  const A *w = static_cast<const A*>(c.weight), *b = static_cast<const A*>(c.bias);
  const V<T> mean = set1(s.mean), rv = set1(rstd);
  const V<T> shift = set1(kFewDigits ? -(s.mean + s.rest) * rstd : -s.rest * rstd);
  const int64_t n = c.n;
  const auto next = [&](int64_t at) { prefetch2(x + n + at); };
  const auto scaled = [&](int64_t at, int64_t k) {
    const V<T> v = load_upto(x + at, k, R(0));
    if constexpr (kRms)
      return v * rv;
    else if constexpr (kFewDigits)
      return fma(v, rv, shift);
    else
      return fma(v - mean, rv, shift);
  };
  const auto weight = [&](int64_t at, int64_t k) { return load_affine<A, T>(w, at, k); };
  const auto bias = [&](int64_t at, int64_t k) { return load_affine<A, T>(b, at, k); };
  if (w && b)
    write_row(y, n, nt, next, [&](int64_t at, int64_t k) { return fma(scaled(at, k), weight(at, k), bias(at, k)); });
  else if (w)
    write_row(y, n, nt, next, [&](int64_t at, int64_t k) { return scaled(at, k) * weight(at, k); });
  else if (b)
    write_row(y, n, nt, next, [&](int64_t at, int64_t k) { return scaled(at, k) + bias(at, k); });
  else
    write_row(y, n, nt, next, scaled);
}

template <class T, class A, bool kRms>
static void row_norm_of(const RowNorm& c) {
  using R = Real<T>;
  const int64_t n = c.n;
  const T* x0 = static_cast<const T*>(c.x);
  const T* residual = static_cast<const T*>(c.residual);
  T *y0 = static_cast<T*>(c.y), *s0 = static_cast<T*>(c.sum);
  R *mean_of = static_cast<R*>(c.mean), *rstd_of = static_cast<R*>(c.rstd);
  const bool nt = should_stream(y0, c.rows, n);
  parallel_for(0, c.rows, std::max<int64_t>(1, 16384 / n), [&](int64_t from, int64_t to) {
    ScratchFrame frame;
    R* row = residual ? frame.take<R>(n) : nullptr;
    // x: elements of T, or their exact sum with the residual.
    const auto normalise = [&](int64_t r, const auto* x) {
      RowStatistics<R> s;
      if constexpr (kRms)
        s.variance = mean_square(x, n);
      else
        s = row_statistics(x, n);
      const R rstd = R(1) / std::sqrt(s.variance + static_cast<R>(c.eps));
      if (mean_of) mean_of[r] = s.mean;
      if (rstd_of) rstd_of[r] = rstd;
      write_normalised<T, A, kRms>(c, x, y0 + r * n, s, rstd, nt);
    };
    for (int64_t r = from; r < to; ++r) {
      const T* x = x0 + r * n;
      if (!residual) {
        normalise(r, x);
        continue;
      }
      for_vectors<T>(n, [&](int64_t i, int64_t k) {
        const V<T> v = load_upto(x + i, k, 0) + load_upto(residual + r * n + i, k, 0);
        store_upto(s0 + r * n + i, v, k);
        store_upto(row + i, v, k);
      });
      normalise(r, static_cast<const R*>(row));
    }
    if (nt) stream_fence();
  });
}

// Rows are cut into this many parts at most, whatever the number of threads: each sums its own weight gradient.
STRATA_INLINE int64_t row_parts(int64_t rows) {
  return std::max<int64_t>(1, std::min<int64_t>(64, rows / 32));
}

// The parts' sums, [parts][2][width], added in their order.
template <class T, class A>
static void add_parts(const Real<T>* from, int64_t parts, int64_t width, int64_t n, A* to) {
  constexpr int64_t W = kLanes<T>, kTogether = 8;
  if (!to) return;
  parallel_for(0, (n + W * kTogether - 1) / (W * kTogether), std::max<int64_t>(1, 2048 / parts),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i0 = begin * W * kTogether; i0 < std::min(n, end * W * kTogether); i0 += W * kTogether) {
                   V<T> s[kTogether] = {};
                   const int64_t vectors = std::min(kTogether, (n - i0 + W - 1) / W);
                   for (int64_t part = 0; part < parts; ++part) {
                     const Real<T>* p = from + part * 2 * width + i0;
                     if (vectors == kTogether) {
#pragma GCC unroll 8
                       for (int64_t j = 0; j < kTogether; ++j) s[j] += load(p + j * W);
                     } else {
                       for (int64_t j = 0; j < vectors; ++j) s[j] += load(p + j * W);
                     }
                   }
                   for (int64_t j = 0; j < vectors; ++j)
                     store_upto(to + i0 + j * W, s[j], std::min<int64_t>(W, n - i0 - j * W));
                 }
               });
}

// Some neighbouring rows, and what their backward pass adds to the sums of the weight gradient. (Values, not
// references to captured variables: the compiler would read those again after every store.)
template <class T, class A>
struct BackwardBlock {
  const T *x, *g, *more;  // of the first row
  const A* w;
  T* gx;
  const Real<T>*mean, *rstd;
  Real<T>*dw, *db;
  int64_t n;
  bool nt, first;  // first: dw and db hold nothing yet
};

// m1 and m2 of one row: grad_x = rstd * (g w - m1 - xhat m2), each times the rstd it needs.
template <class T, class A, bool kRms, bool kWeighted>
STRATA_INLINE Moments<Real<T>> backward_moments(const T* x, const T* g, const A* w, int64_t n, Real<T> mean,
                                                Real<T> rstd) {
  using R = Real<T>;
  constexpr int W = kLanes<T>;
  const V<T> mv = set1(mean);
  V<T> s1[2] = {}, s2[2] = {};
  const auto add = [&](int64_t i, int64_t k, int chain) {
    V<T> gv = load_upto(g + i, k, 0);
    if constexpr (kWeighted) gv *= load_affine<A, T>(w, i, k);
    const V<T> xc = kRms ? load_upto(x + i, k, 0) : load_upto(x + i, k, 0) - mv;
    if constexpr (!kRms) s1[chain] += gv;
    s2[chain] = fma(gv, xc, s2[chain]);
  };
  int64_t i = 0;
  for (; i + 2 * W <= n; i += 2 * W) {
    add(i, W, 0);
    add(i + W, W, 1);
  }
  for (; i < n; i += W) add(i, std::min<int64_t>(W, n - i), 0);
  const R m1 = kRms ? R(0) : reduce_add(s1[0] + s1[1]) / static_cast<R>(n);
  const R m2 = reduce_add(s2[0] + s2[1]) * rstd / static_cast<R>(n);
  return {m1 * rstd, m2 * rstd * rstd};
}

template <class T, class A, bool kRms, int kRows>
STRATA_INLINE void backward_block(const BackwardBlock<T, A> c) {
  constexpr int W = kLanes<T>;
  V<T> a1[kRows], a2[kRows], mean[kRows], rstd[kRows];
  for (int j = 0; j < kRows; ++j) {
    const Real<T> m = kRms ? Real<T>(0) : c.mean[j], r = c.rstd[j];
    const T *x = c.x + j * c.n, *g = c.g + j * c.n;
    const Moments<Real<T>> s = c.w ? backward_moments<T, A, kRms, true>(x, g, c.w, c.n, m, r)
                                   : backward_moments<T, A, kRms, false>(x, g, c.w, c.n, m, r);
    a1[j] = set1(s.first);
    a2[j] = set1(s.second);
    mean[j] = set1(m);
    rstd[j] = set1(r);
  }
  // Columns of `vectors` vectors from i on. All rows are read before any is written: rows often lie a multiple of 4096
  // bytes apart, and a load waits for an earlier store whose address ends in the same bits.
  const auto columns = [&](int64_t i, int64_t k, auto vectors) {
    constexpr int kVectors = decltype(vectors)::value;
    V<T> sw[kVectors] = {}, sb[kVectors] = {}, v[kRows][kVectors];
#pragma GCC unroll 2
    for (int h = 0; h < kVectors; ++h) {
      const V<T> wv = c.w ? load_affine<A, T>(c.w, i + h * W, k) : set1(Real<T>(1));
#pragma GCC unroll 4
      for (int j = 0; j < kRows; ++j) {
        const int64_t at = j * c.n + i + h * W;
        const V<T> g = load_upto(c.g + at, k, 0);
        const V<T> xc = kRms ? load_upto(c.x + at, k, 0) : load_upto(c.x + at, k, 0) - mean[j];
        const V<T> gr = g * rstd[j];
        v[j][h] = fma(gr, wv, kRms ? -a2[j] * xc : -fma(a2[j], xc, a1[j]));
        sw[h] = fma(gr, xc, sw[h]);
        sb[h] += g;
      }
    }
    if (c.more)
      for (int j = 0; j < kRows; ++j)
        for (int h = 0; h < kVectors; ++h) v[j][h] += load_upto(c.more + j * c.n + i + h * W, k, 0);
    if constexpr (kVectors == 2) {
#pragma GCC unroll 4
      for (int j = 0; j < kRows; ++j) {  // of the next rows
        prefetch2(c.g + (j + kRows) * c.n + i);
        prefetch2(c.x + (j + kRows) * c.n + i);
      }
      if (c.nt) {
#pragma GCC unroll 4
        for (int j = 0; j < kRows; ++j) stream2(c.gx + j * c.n + i, v[j][0], v[j][1]);
      } else {
#pragma GCC unroll 4
        for (int j = 0; j < kRows; ++j) store2(c.gx + j * c.n + i, v[j][0], v[j][1]);
      }
    } else {
      for (int j = 0; j < kRows; ++j)
        if (c.nt)
          stream(c.gx + j * c.n + i, v[j][0]);
        else
          store_upto(c.gx + j * c.n + i, v[j][0], k);
    }
    if (!c.dw) return;
#pragma GCC unroll 2
    for (int h = 0; h < kVectors; ++h) {  // padded to whole vectors; lanes past n hold sums that nobody reads
      Real<T>*dw = c.dw + i + h * W, *db = c.db + i + h * W;
      store(dw, c.first ? sw[h] : load(dw) + sw[h]);
      store(db, c.first ? sb[h] : load(db) + sb[h]);
    }
  };
  int64_t i = 0;
  for (; i + 2 * W <= c.n; i += 2 * W) columns(i, W, std::integral_constant<int, 2>{});
  for (; i < c.n; i += W) columns(i, std::min<int64_t>(W, c.n - i), std::integral_constant<int, 1>{});
}

template <class T, class A, bool kRms>
static void row_norm_backward_of(const RowNormBackward& c) {
  using R = Real<T>;
  constexpr int W = kLanes<T>;
  constexpr int64_t kBlock = 4;  // rows that share one pass over the sums of the weight gradient
  const int64_t n = c.n, parts = row_parts(c.rows), width = (n + W - 1) / W * W;
  const bool sums = c.grad_weight || c.grad_bias;
  const bool nt = should_stream(static_cast<const T*>(c.grad_x), c.rows, n);
  ScratchFrame frame;
  R* partial = sums ? frame.take<R>(parts * 2 * width) : nullptr;
  parallel_for(0, parts, 1, [&](int64_t part_from, int64_t part_to) {
    for (int64_t part = part_from; part < part_to; ++part) {
      const int64_t begin = c.rows * part / parts, end = c.rows * (part + 1) / parts;
      for (int64_t r = begin; r < end;) {
        BackwardBlock<T, A> b;
        b.x = static_cast<const T*>(c.x) + r * n;
        b.g = static_cast<const T*>(c.grad_y) + r * n;
        b.more = c.grad_sum ? static_cast<const T*>(c.grad_sum) + r * n : nullptr;
        b.w = static_cast<const A*>(c.weight);
        b.gx = static_cast<T*>(c.grad_x) + r * n;
        b.mean = kRms ? nullptr : static_cast<const R*>(c.mean) + r;
        b.rstd = static_cast<const R*>(c.rstd) + r;
        b.dw = sums ? partial + part * 2 * width : nullptr;
        b.db = sums ? b.dw + width : nullptr;
        b.n = n;
        b.nt = nt;
        b.first = r == begin;
        if (end - r >= kBlock) {
          backward_block<T, A, kRms, kBlock>(b);
          r += kBlock;
        } else {
          backward_block<T, A, kRms, 1>(b);
          ++r;
        }
      }
    }
    if (nt) stream_fence();
  });
  if (!sums) return;
  add_parts<T>(partial, parts, width, n, static_cast<A*>(c.grad_weight));
  add_parts<T>(partial + width, parts, width, n, static_cast<A*>(c.grad_bias));
}

template <class C, class F>
static void dispatch_row_norm(const C& c, F&& f) {
  dispatch_floating(c.dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto by_kind = [&](auto affine) {
      if (c.rms)
        f(tag, affine, std::true_type{});
      else
        f(tag, affine, std::false_type{});
    };
    if constexpr (!std::is_same_v<T, Real<T>>) {
      if (c.affine == DType::f32) return by_kind(float{});
    }
    by_kind(tag);
  });
}

static void row_norm(const RowNorm& c) {
  dispatch_row_norm(c,
                    [&](auto t, auto a, auto rms) { row_norm_of<decltype(t), decltype(a), decltype(rms)::value>(c); });
}
static void row_norm_backward(const RowNormBackward& c) {
  dispatch_row_norm(
      c, [&](auto t, auto a, auto rms) { row_norm_backward_of<decltype(t), decltype(a), decltype(rms)::value>(c); });
}

}  // namespace strata::STRATA_VEC_NS
