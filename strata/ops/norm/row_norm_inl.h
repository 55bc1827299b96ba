// Layer norm and RMS norm, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

// Affine parameters: of the arithmetic type after this.
template <class A, class T>
STRATA_INLINE V<T> load_affine(const A* p, int64_t i, int64_t k) {
  return load_upto(p + i, k, 0);
}

template <class T, class A, bool kRms>
static void row_norm_of(const RowNorm& c) {
  using R = Real<T>;
  constexpr int W = kLanes<T>;
  const int64_t n = c.n;
  const T* x0 = static_cast<const T*>(c.x);
  const T* residual = static_cast<const T*>(c.residual);
  const A *w = static_cast<const A*>(c.weight), *b = static_cast<const A*>(c.bias);
  T *y0 = static_cast<T*>(c.y), *s0 = static_cast<T*>(c.sum);
  R *mean_of = static_cast<R*>(c.mean), *rstd_of = static_cast<R*>(c.rstd);
  const bool nt = should_stream(y0, c.rows, n);
  parallel_for(0, c.rows, std::max<int64_t>(1, 16384 / n), [&](int64_t from, int64_t to) {
    ScratchFrame frame;
    R* row = residual ? frame.take<R>(n) : nullptr;
    // x: elements of T, or their exact sum with the residual.
    const auto normalise = [&](int64_t r, const auto* x) {
      V<T> acc[4] = {};
      R mean = 0;
      if constexpr (!kRms) {
        int64_t i = 0;
        for (; i + 4 * W <= n; i += 4 * W)
          for (int j = 0; j < 4; ++j) acc[j] += load(x + i + j * W);
        for (; i < n; i += W) acc[0] += load_upto(x + i, std::min<int64_t>(W, n - i), 0);
        mean = reduce_add((acc[0] + acc[1]) + (acc[2] + acc[3])) / static_cast<R>(n);
        acc[0] = acc[1] = acc[2] = acc[3] = V<T>{};
      }
      const V<T> mv = set1(mean);
      V<T> rest[4] = {};
      const auto square = [&](V<T> v, int j) {
        if constexpr (!kRms) {
          v -= mv;
          rest[j] += v;
        }
        acc[j] = fma(v, v, acc[j]);
      };
      int64_t i = 0;
      for (; i + 4 * W <= n; i += 4 * W)
        for (int j = 0; j < 4; ++j) square(load(x + i + j * W), j);
      for (; i < n; i += W) square(load_upto(x + i, std::min<int64_t>(W, n - i), mean), 0);
      R correction = 0;
      R var = reduce_add((acc[0] + acc[1]) + (acc[2] + acc[3])) / static_cast<R>(n);
      if constexpr (!kRms) {
        // What rounding took from the mean, which matters where it is large beside the deviations.
        correction = reduce_add((rest[0] + rest[1]) + (rest[2] + rest[3])) / static_cast<R>(n);
        var = std::max(var - correction * correction, R(0));
      }
      const R rstd = R(1) / std::sqrt(var + static_cast<R>(c.eps));
      if (mean_of) mean_of[r] = mean + correction;
      if (rstd_of) rstd_of[r] = rstd;
      const V<T> rv = set1(rstd), shift = set1(-correction * rstd);
      T* y = y0 + r * n;
      const auto value = [&](int64_t at, int64_t k) {
        V<T> v = load_upto(x + at, k, 0);
        v = kRms ? v * rv : fma(v - mv, rv, shift);
        if (w && b) return fma(v, load_affine<A, T>(w, at, k), load_affine<A, T>(b, at, k));
        if (w) v *= load_affine<A, T>(w, at, k);
        if (b) v += load_affine<A, T>(b, at, k);
        return v;
      };
      if (nt) {
        for (int64_t at = 0; at < n; at += W) stream(y + at, value(at, W));
      } else {
        for_vectors<T>(n, [&](int64_t at, int64_t k) { store_upto(y + at, value(at, k), k); });
      }
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
      R *dw = nullptr, *db = nullptr;
      if (sums) {
        dw = partial + part * 2 * width;
        db = dw + width;
        std::fill(dw, dw + 2 * width, R(0));
      }
      const int64_t end = c.rows * (part + 1) / parts;
      for (int64_t r0 = c.rows * part / parts; r0 < end; r0 += kBlock) {
        const int64_t block = std::min(kBlock, end - r0);
        V<T> a1[kBlock], a2[kBlock], mean[kBlock], rstd[kBlock];
        for (int64_t j = 0; j < block; ++j) {
          const int64_t r = r0 + j;
          const T *x = x0 + r * n, *g = g0 + r * n;
          mean[j] = set1(kRms ? R(0) : mean_of[r]);
          rstd[j] = set1(rstd_of[r]);
          V<T> s1[2] = {}, s2[2] = {};
          const auto add = [&](int64_t i, int64_t k, int chain) {
            V<T> gv = load_upto(g + i, k, 0);
            if (w) gv *= load_affine<A, T>(w, i, k);
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
          // grad_x = rstd * (g w - m1 - xhat m2) = rstd * g w - a1 - (x - mean) * a2
          const R m1 = kRms ? R(0) : reduce_add(s1[0] + s1[1]) / static_cast<R>(n);
          const R m2 = reduce_add(s2[0] + s2[1]) * rstd_of[r] / static_cast<R>(n);
          a1[j] = set1(m1 * rstd_of[r]);
          a2[j] = set1(m2 * rstd_of[r] * rstd_of[r]);
        }
        const auto columns = [&](int64_t i, int64_t k, auto full) {
          const V<T> wv = w ? load_affine<A, T>(w, i, k) : set1(R(1));
          V<T> sw{}, sb{};
          const auto one = [&](int64_t j) {
            const int64_t at = (r0 + j) * n + i;
            const V<T> g = load_upto(g0 + at, k, 0);
            const V<T> xc = kRms ? load_upto(x0 + at, k, 0) : load_upto(x0 + at, k, 0) - mean[j];
            V<T> v = g * wv * rstd[j] - a2[j] * xc;
            if constexpr (!kRms) v -= a1[j];
            if (more) v += load_upto(more + at, k, 0);
            if (nt)
              stream(gx0 + at, v);
            else
              store_upto(gx0 + at, v, k);
            sw = fma(g * rstd[j], xc, sw);
            sb += g;
          };
          if constexpr (decltype(full)::value) {
#pragma GCC unroll 4
            for (int64_t j = 0; j < kBlock; ++j) one(j);
          } else {
            for (int64_t j = 0; j < block; ++j) one(j);
          }
          if (sums) {  // padded to whole vectors; lanes past n hold sums that nobody reads
            store(dw + i, load(dw + i) + sw);
            store(db + i, load(db + i) + sb);
          }
        };
        int64_t i = 0;
        if (block == kBlock)
          for (; i + W <= n; i += W) columns(i, W, std::true_type{});
        for (; i < n; i += W) columns(i, std::min<int64_t>(W, n - i), std::false_type{});
      }
    }
    if (nt) stream_fence();
  });
  if (!sums) return;
  const auto total = [&](const R* from, A* to) {
    if (!to) return;
    for (int64_t i = 0; i < n; i += W) {
      const int64_t k = std::min<int64_t>(W, n - i);
      V<T> s{};
      for (int64_t part = 0; part < parts; ++part) s += load(from + part * 2 * width + i);
      store_upto(to + i, s, k);
    }
  };
  total(partial, static_cast<A*>(c.grad_weight));
  total(partial + width, static_cast<A*>(c.grad_bias));
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
