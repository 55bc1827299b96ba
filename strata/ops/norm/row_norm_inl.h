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

// y = x * rstd * weight + bias, with kFused for x that carries few digits in one step.
template <class T, class A, bool kRms, class X>
STRATA_INLINE void write_normalised(const RowNorm& c, const X* x, T* y, const RowStatistics<Real<T>>& s, Real<T> rstd,
                                    bool nt) {
  using R = Real<T>;
  constexpr bool kFewDigits = sizeof(X) == 2;
  const A *w = static_cast<const A*>(c.weight), *b = static_cast<const A*>(c.bias);
  const V<T> mean = set1(s.mean), rv = set1(rstd);
  const V<T> shift = set1(kFewDigits ? -(s.mean + s.rest) * rstd : -s.rest * rstd);
  const auto next = [&](int64_t at) { prefetch2(x + c.n + at); };
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
    write_row(y, c.n, nt, next,
              [&](int64_t at, int64_t k) { return fma(scaled(at, k), weight(at, k), bias(at, k)); });
  else if (w)
    write_row(y, c.n, nt, next, [&](int64_t at, int64_t k) { return scaled(at, k) * weight(at, k); });
  else if (b)
    write_row(y, c.n, nt, next, [&](int64_t at, int64_t k) { return scaled(at, k) + bias(at, k); });
  else
    write_row(y, c.n, nt, next, scaled);
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

template <class T, class A, bool kRms>
static void row_norm_backward_of(const RowNormBackward& c) {
  using R = Real<T>;
  constexpr int W = kLanes<T>;
  constexpr int64_t kBlock = 4;  // rows that share one pass over the sums of the weight gradient
  const int64_t n = c.n, parts = row_parts(c.rows), width = (n + W - 1) / W * W;
  const T *x0 = static_cast<const T*>(c.x), *g0 = static_cast<const T*>(c.grad_y),
          *more = static_cast<const T*>(c.grad_sum);
  const A* w = static_cast<const A*>(c.weight);
  const R *mean_of = static_cast<const R*>(c.mean), *rstd_of = static_cast<const R*>(c.rstd);
  T* gx0 = static_cast<T*>(c.grad_x);
  const bool sums = c.grad_weight || c.grad_bias;
  const bool nt = should_stream(gx0, c.rows, n);
  ScratchFrame frame;
  R* partial = sums ? frame.take<R>(parts * 2 * width) : nullptr;
  parallel_for(0, parts, 1, [&](int64_t part_from, int64_t part_to) {
    for (int64_t part = part_from; part < part_to; ++part) {
      R *dw = sums ? partial + part * 2 * width : nullptr, *db = dw + width;
      const int64_t begin = c.rows * part / parts, end = c.rows * (part + 1) / parts;
      for (int64_t r0 = begin; r0 < end; r0 += kBlock) {
        const int64_t block = std::min(kBlock, end - r0);
        V<T> a1[kBlock], a2[kBlock], mean[kBlock], rstd[kBlock];
        for (int64_t j = 0; j < block; ++j) {
          const int64_t r = r0 + j;
          const T *x = x0 + r * n, *g = g0 + r * n;
          mean[j] = set1(kRms ? R(0) : mean_of[r]);
          rstd[j] = set1(rstd_of[r]);
          V<T> s1[2] = {}, s2[2] = {};
          const auto scan = [&](auto weighted) {
            const auto add = [&](int64_t i, int64_t k, int chain) {
              V<T> gv = load_upto(g + i, k, 0);
              if constexpr (decltype(weighted)::value) gv *= load_affine<A, T>(w, i, k);
              const V<T> xc = kRms ? load_upto(x + i, k, 0) : load_upto(x + i, k, 0) - mean[j];
              if constexpr (!kRms) s1[chain] += gv;
              s2[chain] = fma(gv, xc, s2[chain]);
            };
            int64_t i = 0;
            for (; i + 2 * W <= n; i += 2 * W) {
              add(i, W, 0);
              add(i + W, W, 1);
            }
            for (; i < n; i += W) add(i, std::min<int64_t>(W, n - i), 0);
          };
          if (w)
            scan(std::true_type{});
          else
            scan(std::false_type{});
          // grad_x = rstd * (g w - m1 - xhat m2) = rstd * g w - (a1 + (x - mean) * a2)
          const R m1 = kRms ? R(0) : reduce_add(s1[0] + s1[1]) / static_cast<R>(n);
          const R m2 = reduce_add(s2[0] + s2[1]) * rstd_of[r] / static_cast<R>(n);
          a1[j] = set1(m1 * rstd_of[r]);
          a2[j] = set1(m2 * rstd_of[r] * rstd_of[r]);
        }
        // Vectors columns of one vector each from column i on. All rows are read before any is written: rows often lie
        // a multiple of 4096 bytes apart, and a load waits for an earlier store whose address ends in the same bits.
        const auto columns = [&](int64_t i, int64_t k, auto full, auto vectors) {
          constexpr int kVectors = decltype(vectors)::value;
          V<T> sw[kVectors] = {}, sb[kVectors] = {}, wv[kVectors], v[kBlock][kVectors];
#pragma GCC unroll 2
          for (int h = 0; h < kVectors; ++h) wv[h] = w ? load_affine<A, T>(w, i + h * W, k) : set1(R(1));
          const auto read = [&](int64_t j) {
#pragma GCC unroll 2
            for (int h = 0; h < kVectors; ++h) {
              const int64_t at = (r0 + j) * n + i + h * W;
              const V<T> g = load_upto(g0 + at, k, 0);
              const V<T> xc = kRms ? load_upto(x0 + at, k, 0) : load_upto(x0 + at, k, 0) - mean[j];
              const V<T> gr = g * rstd[j];
              v[j][h] = gr * wv[h] - (kRms ? a2[j] * xc : fma(a2[j], xc, a1[j]));
              if (more) v[j][h] += load_upto(more + at, k, 0);
              sw[h] = fma(gr, xc, sw[h]);
              if constexpr (!kRms) sb[h] += g;
            }
          };
          const auto write = [&](int64_t j) {
            T* to = gx0 + (r0 + j) * n + i;
            if constexpr (kVectors == 2) {
              prefetch2(g0 + (r0 + j + kBlock) * n + i);
              prefetch2(x0 + (r0 + j + kBlock) * n + i);
              if (nt)
                stream2(to, v[j][0], v[j][1]);
              else
                store2(to, v[j][0], v[j][1]);
            } else if (nt) {
              stream(to, v[j][0]);
            } else {
              store_upto(to, v[j][0], k);
            }
          };
          if constexpr (decltype(full)::value) {
#pragma GCC unroll 4
            for (int64_t j = 0; j < kBlock; ++j) read(j);
#pragma GCC unroll 4
            for (int64_t j = 0; j < kBlock; ++j) write(j);
          } else {
            for (int64_t j = 0; j < block; ++j) read(j);
            for (int64_t j = 0; j < block; ++j) write(j);
          }
          if (!sums) return;
          for (int h = 0; h < kVectors; ++h) {  // padded to whole vectors; lanes past n hold sums that nobody reads
            R *dwi = dw + i + h * W, *dbi = db + i + h * W;
            store(dwi, r0 == begin ? sw[h] : load(dwi) + sw[h]);
            if constexpr (!kRms) store(dbi, r0 == begin ? sb[h] : load(dbi) + sb[h]);
          }
        };
        using One = std::integral_constant<int, 1>;
        int64_t i = 0;
        if (block == kBlock)
          for (; i + 2 * W <= n; i += 2 * W) columns(i, W, std::true_type{}, std::integral_constant<int, 2>{});
        for (; i < n; i += W) columns(i, std::min<int64_t>(W, n - i), std::false_type{}, One{});
      }
    }
    if (nt) stream_fence();
  });
  if (!sums) return;
  add_parts<T>(partial, parts, width, n, static_cast<A*>(c.grad_weight));
  if constexpr (!kRms) add_parts<T>(partial + width, parts, width, n, static_cast<A*>(c.grad_bias));
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
    if constexpr (std::is_same_v<T, Real<T>>)
      by_kind(tag);
    else if (c.affine == DType::f32)
      by_kind(float{});
    else
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
