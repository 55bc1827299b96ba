// Group and batch normalisation, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <class T>
STRATA_INLINE void sum_and_squares(const T* x, int64_t n, Real<T> shift, Real<T>& sum, Real<T>& squares) {
  constexpr int W = kLanes<T>;
  const V<T> sv = set1(shift);
  V<T> a[2] = {}, b[2] = {};
  int64_t i = 0;
  for (; i + 2 * W <= n; i += 2 * W)
    for (int c = 0; c < 2; ++c) {
      const V<T> d = load(x + i + c * W) - sv;
      a[c] += d;
      b[c] = fma(d, d, b[c]);
    }
  for (; i < n; i += W) {
    // Zeros past the end: the shift itself, as a T, would be rounded.
    const int64_t k = std::min<int64_t>(W, n - i);
    const V<T> d = keep_first<T>(load_upto(x + i, k, 0) - sv, k, 0);
    a[0] += d;
    b[0] = fma(d, d, b[0]);
  }
  sum += reduce_add(a[0] + a[1]);
  squares += reduce_add(b[0] + b[1]);
}

// sum of g and of g (x - shift)
template <class T>
STRATA_INLINE void sum_and_product(const T* g, const T* x, int64_t n, Real<T> shift, Real<T>& sum, Real<T>& product) {
  constexpr int W = kLanes<T>;
  const V<T> sv = set1(shift);
  V<T> a = {}, b = {};
  for (int64_t i = 0; i < n; i += W) {
    const int64_t k = std::min<int64_t>(W, n - i);
    const V<T> gv = load_upto(g + i, k, 0);
    a += gv;
    b = fma(gv, load_upto(x + i, k, 0) - sv, b);
  }
  sum += reduce_add(a);
  product += reduce_add(b);
}

template <class T, class A>
static void channel_norm_of(const ChannelNorm& c) {
  using R = Real<T>;
  const T* x = static_cast<const T*>(c.x);
  T* y = static_cast<T*>(c.y);
  const A *w = static_cast<const A*>(c.weight), *b = static_cast<const A*>(c.bias);
  R *mean = static_cast<R*>(c.mean), *rstd = static_cast<R*>(c.rstd);
  const int64_t C = c.channels, S = c.inner, per = C / c.groups;
  // A statistic is over the runs of `per * S` elements at the same group of each batch item (across_batch), or of one.
  const int64_t stats = c.across_batch ? c.groups : c.batch * c.groups;
  parallel_for(0, stats, std::max<int64_t>(1, 16384 * stats / std::max<int64_t>(1, c.batch * C * S)),
               [&](int64_t from, int64_t to) {
                 for (int64_t s = from; s < to; ++s) {
                   const int64_t first = c.across_batch ? 0 : s / c.groups, last = c.across_batch ? c.batch : first + 1;
                   const int64_t g = s % c.groups, n = per * S;
                   const auto run = [&](int64_t item) { return x + (item * C + g * per) * S; };
                   // Two passes: the mean first, so that no digits are lost in the variance.
                   R sum = 0, squares = 0, rest = 0;
                   for (int64_t i = first; i < last; ++i) sum_and_squares(run(i), n, R(0), sum, rest);
                   const R count = static_cast<R>(n * (last - first)), m = sum / count;
                   rest = 0;
                   for (int64_t i = first; i < last; ++i) sum_and_squares(run(i), n, m, rest, squares);
                   mean[s] = m;
                   rstd[s] = R(1) / std::sqrt(squares / count + static_cast<R>(c.eps));
                 }
               });
  if (S == 1 && !c.across_batch) {  // a group's channels are neighbours
    parallel_for(0, stats, std::max<int64_t>(1, 16384 / std::max<int64_t>(per, 1)), [&](int64_t from, int64_t to) {
      for (int64_t s = from; s < to; ++s) {
        const int64_t at = s * per, channel = s % c.groups * per;
        const V<T> m = set1(mean[s]), r = set1(rstd[s]);
        for_vectors<T>(per, [&](int64_t j, int64_t k) {
          const V<T> a = w ? r * load_upto(w + channel + j, k, 0) : r,
                     o = b ? load_upto(b + channel + j, k, 0) : V<T>{};
          store_upto(y + at + j, fma(load_upto(x + at + j, k, 0) - m, a, o), k);
        });
      }
    });
    return;
  }
  parallel_for(0, c.batch * C, std::max<int64_t>(1, 16384 / S), [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const int64_t channel = i % C, s = c.across_batch ? channel / per : i / C * c.groups + channel / per;
      const V<T> m = set1(mean[s]), a = set1(rstd[s] * (w ? get(w[channel]) : R(1))),
                 o = set1(b ? get(b[channel]) : R(0));
      for_vectors<T>(S, [&](int64_t j, int64_t k) {
        store_upto(y + i * S + j, fma(load_upto(x + i * S + j, k, 0) - m, a, o), k);
      });
    }
  });
}

template <class T, class A>
static void channel_norm_backward_of(const ChannelNormBackward& c) {
  using R = Real<T>;
  const T *x = static_cast<const T*>(c.x), *gy = static_cast<const T*>(c.grad_y);
  T* gx = static_cast<T*>(c.grad_x);
  const A* w = static_cast<const A*>(c.weight);
  const R *mean = static_cast<const R*>(c.mean), *rstd = static_cast<const R*>(c.rstd);
  A *gw = static_cast<A*>(c.grad_weight), *gb = static_cast<A*>(c.grad_bias);
  const int64_t C = c.channels, S = c.inner, per = C / c.groups;
  const int64_t stats = c.across_batch ? c.groups : c.batch * c.groups;
  const auto stat_of = [&](int64_t item, int64_t channel) {
    return c.across_batch ? channel / per : item * c.groups + channel / per;
  };
  ScratchFrame frame;
  R *sum = frame.take<R>(c.batch * C), *product = frame.take<R>(c.batch * C);
  const bool neighbours = S == 1 && !c.across_batch;  // a group's channels are
  // Calls f(statistic, first of its channels) for all groups of all items.
  const auto each_group = [&](auto&& f) {
    parallel_for(0, stats, std::max<int64_t>(1, 16384 / std::max<int64_t>(per, 1)), [&](int64_t from, int64_t to) {
      for (int64_t s = from; s < to; ++s) f(s, s % c.groups * per);
    });
  };
  if (neighbours) {
    each_group([&](int64_t s, int64_t) {
      const int64_t at = s * per;
      const V<T> m = set1(mean[s]);
      for_vectors<T>(per, [&](int64_t j, int64_t k) {
        const V<T> g = load_upto(gy + at + j, k, 0);
        store_upto(sum + at + j, g, k);
        store_upto(product + at + j, g * (load_upto(x + at + j, k, 0) - m), k);
      });
    });
  } else {
    parallel_for(0, c.batch * C, std::max<int64_t>(1, 16384 / S), [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) {
        sum[i] = product[i] = 0;
        sum_and_product(gy + i * S, x + i * S, S, mean[stat_of(i / C, i % C)], sum[i], product[i]);
      }
    });
  }
  if (gw || gb) {
    R *by_weight = frame.take<R>(C), *by_bias = frame.take<R>(C);
    std::fill_n(by_weight, C, R(0));
    std::fill_n(by_bias, C, R(0));
    for (int64_t item = 0; item < c.batch; ++item)
      for (int64_t first = 0; first < C; first += per) {
        const R r = rstd[stat_of(item, first)];
        for (int64_t channel = first; channel < first + per; ++channel) {
          by_weight[channel] += product[item * C + channel] * r;
          by_bias[channel] += sum[item * C + channel];
        }
      }
    for (int64_t channel = 0; channel < C; ++channel) {
      if (gw) put(gw[channel], by_weight[channel]);
      if (gb) put(gb[channel], by_bias[channel]);
    }
  }
  // grad_x = rstd w gy - m1 rstd - (x - mean) rstd^3 m2, m1 and m2 the means of w gy and of w gy (x - mean)
  R *m1 = frame.take<R>(stats), *m2 = frame.take<R>(stats);
  std::fill(m1, m1 + stats, R(0));
  std::fill(m2, m2 + stats, R(0));
  for (int64_t item = 0; item < c.batch; ++item)
    for (int64_t channel = 0; channel < C; ++channel) {
      const int64_t s = stat_of(item, channel);
      const R wv = w ? get(w[channel]) : R(1);
      m1[s] += sum[item * C + channel] * wv;
      m2[s] += product[item * C + channel] * wv;
    }
  const R count = static_cast<R>(per * S * (c.across_batch ? c.batch : 1));
  for (int64_t s = 0; s < stats; ++s) {
    m1[s] *= rstd[s] / count;
    m2[s] *= rstd[s] * rstd[s] * rstd[s] / count;
  }
  if (neighbours) {
    each_group([&](int64_t s, int64_t channel) {
      const int64_t at = s * per;
      const V<T> r = set1(rstd[s]), b = set1(m1[s]), p = set1(m2[s]), m = set1(mean[s]);
      for_vectors<T>(per, [&](int64_t j, int64_t k) {
        const V<T> a = w ? r * load_upto(w + channel + j, k, 0) : r;
        const V<T> v = load_upto(gy + at + j, k, 0) * a - b - (load_upto(x + at + j, k, 0) - m) * p;
        store_upto(gx + at + j, v, k);
      });
    });
    return;
  }
  parallel_for(0, c.batch * C, std::max<int64_t>(1, 16384 / S), [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const int64_t s = stat_of(i / C, i % C);
      const V<T> a = set1(rstd[s] * (w ? get(w[i % C]) : R(1))), b = set1(m1[s]), p = set1(m2[s]), m = set1(mean[s]);
      for_vectors<T>(S, [&](int64_t j, int64_t k) {
        const V<T> v = load_upto(gy + i * S + j, k, 0) * a - b - (load_upto(x + i * S + j, k, 0) - m) * p;
        store_upto(gx + i * S + j, v, k);
      });
    }
  });
}

// ---- statistics over the rows of a matrix [batch, channels] --------------------------------------------------------

// sums[v] = the sum over the rows i of add(sum so far, i, v), in parts of 128 rows: long sums lose fewer digits so.
template <class T, int kVectors, class F>
STRATA_INLINE void sum_rows(int64_t rows, V<T> (&sums)[kVectors], F&& add) {
  constexpr int64_t kPart = 128;
  for (int v = 0; v < kVectors; ++v) sums[v] = V<T>{};
  for (int64_t begin = 0; begin < rows; begin += kPart) {
    V<T> part[kVectors] = {};
    for (int64_t i = begin; i < std::min(rows, begin + kPart); ++i)
      for (int v = 0; v < kVectors; ++v) part[v] = add(part[v], i, v);
    for (int v = 0; v < kVectors; ++v) sums[v] += part[v];
  }
}

// Calls f(first column, columns, vectors) for all columns of the matrix: four whole vectors at once, the rest one by
// one, of which the last may have fewer columns.
template <class T, class F>
static void each_columns(int64_t rows, int64_t columns, F&& f) {
  constexpr int64_t W = kLanes<T>, kAtOnce = 4 * W;
  const int64_t grain = std::max<int64_t>(1, 16384 / (rows * kAtOnce));
  parallel_for(0, (columns + kAtOnce - 1) / kAtOnce, grain, [&](int64_t from, int64_t to) {
    const int64_t end = std::min(columns, to * kAtOnce);
    int64_t j = from * kAtOnce;
    for (; j + kAtOnce <= end; j += kAtOnce) f(j, W, std::integral_constant<int, 4>{});
    for (; j < end; j += W) f(j, std::min(W, end - j), std::integral_constant<int, 1>{});
  });
}

template <class T, class A>
static void column_norm_of(const ChannelNorm& c) {
  using R = Real<T>;
  constexpr int64_t W = kLanes<T>;
  const T* x = static_cast<const T*>(c.x);
  T* y = static_cast<T*>(c.y);
  const A *w = static_cast<const A*>(c.weight), *b = static_cast<const A*>(c.bias);
  R *mean = static_cast<R*>(c.mean), *rstd = static_cast<R*>(c.rstd);
  const int64_t rows = c.batch, C = c.channels;
  const R count = static_cast<R>(rows);
  ScratchFrame frame;
  R *factor = frame.take<R>(C), *offset = frame.take<R>(C);
  each_columns<T>(rows, C, [&](int64_t j, int64_t k, auto vectors) {
    V<T> sums[vectors], m[vectors];
    // Two passes: the mean first, so that no digits are lost in the variance.
    sum_rows<T>(rows, sums, [&](V<T> sum, int64_t i, int v) { return sum + load_upto(x + i * C + j + v * W, k, 0); });
    for (int v = 0; v < vectors; ++v) {
      m[v] = sums[v] / set1(count);
      store_upto(mean + j + v * W, m[v], k);
    }
    sum_rows<T>(rows, sums, [&](V<T> sum, int64_t i, int v) {
      const V<T> d = load_upto(x + i * C + j + v * W, k, 0) - m[v];
      return fma(d, d, sum);
    });
    for (int v = 0; v < vectors; ++v) store_upto(rstd + j + v * W, sums[v], k);
    for (int64_t l = j; l < j + (vectors - 1) * W + k; ++l) {
      rstd[l] = R(1) / std::sqrt(rstd[l] / count + static_cast<R>(c.eps));
      factor[l] = rstd[l] * (w ? get(w[l]) : R(1));
      offset[l] = b ? get(b[l]) : R(0);
    }
  });
  parallel_for(0, rows, std::max<int64_t>(1, 16384 / C), [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i)
      for_vectors<T>(C, [&](int64_t j, int64_t k) {
        const V<T> d = load_upto(x + i * C + j, k, 0) - load_upto(mean + j, k, 0);
        store_upto(y + i * C + j, fma(d, load_upto(factor + j, k, 0), load_upto(offset + j, k, 0)), k);
      });
  });
}

template <class T, class A>
static void column_norm_backward_of(const ChannelNormBackward& c) {
  using R = Real<T>;
  constexpr int64_t W = kLanes<T>;
  const T *x = static_cast<const T*>(c.x), *gy = static_cast<const T*>(c.grad_y);
  T* gx = static_cast<T*>(c.grad_x);
  const A* w = static_cast<const A*>(c.weight);
  const R *mean = static_cast<const R*>(c.mean), *rstd = static_cast<const R*>(c.rstd);
  A *gw = static_cast<A*>(c.grad_weight), *gb = static_cast<A*>(c.grad_bias);
  const int64_t rows = c.batch, C = c.channels;
  const R count = static_cast<R>(rows);
  ScratchFrame frame;
  R *factor = frame.take<R>(C), *m1 = frame.take<R>(C), *m2 = frame.take<R>(C);
  each_columns<T>(rows, C, [&](int64_t j, int64_t k, auto vectors) {
    V<T> sums[vectors];
    const auto gy_at = [&](int64_t i, int v) { return load_upto(gy + i * C + j + v * W, k, 0); };
    sum_rows<T>(rows, sums, [&](V<T> sum, int64_t i, int v) { return sum + gy_at(i, v); });
    for (int v = 0; v < vectors; ++v) store_upto(m1 + j + v * W, sums[v], k);
    V<T> m[vectors];
    for (int v = 0; v < vectors; ++v) m[v] = load_upto(mean + j + v * W, k, 0);
    sum_rows<T>(rows, sums, [&](V<T> sum, int64_t i, int v) {
      return fma(gy_at(i, v), load_upto(x + i * C + j + v * W, k, 0) - m[v], sum);
    });
    for (int v = 0; v < vectors; ++v) store_upto(m2 + j + v * W, sums[v], k);
    for (int64_t l = j; l < j + (vectors - 1) * W + k; ++l) {
      if (gw) put(gw[l], m2[l] * rstd[l]);
      if (gb) put(gb[l], m1[l]);
      // As for the other layouts: the means of w gy and of w gy (x - mean).
      factor[l] = rstd[l] * (w ? get(w[l]) : R(1));
      m1[l] *= factor[l] / count;
      m2[l] *= factor[l] * rstd[l] * rstd[l] / count;
    }
  });
  parallel_for(0, rows, std::max<int64_t>(1, 16384 / C), [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i)
      for_vectors<T>(C, [&](int64_t j, int64_t k) {
        const V<T> d = load_upto(x + i * C + j, k, 0) - load_upto(mean + j, k, 0);
        const V<T> v = load_upto(gy + i * C + j, k, 0) * load_upto(factor + j, k, 0) - load_upto(m1 + j, k, 0) -
                       d * load_upto(m2 + j, k, 0);
        store_upto(gx + i * C + j, v, k);
      });
  });
}

template <class C, class F>
static void dispatch_channel_norm(const C& c, F&& f) {
  dispatch_floating(c.dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (!std::is_same_v<T, Real<T>>)
      if (c.affine == DType::f32) return f(tag, float{});
    f(tag, tag);
  });
}
static void channel_norm(const ChannelNorm& c) {
  dispatch_channel_norm(c, [&](auto t, auto a) {
    c.inner == 1 && c.across_batch ? column_norm_of<decltype(t), decltype(a)>(c)
                                   : channel_norm_of<decltype(t), decltype(a)>(c);
  });
}
static void channel_norm_backward(const ChannelNormBackward& c) {
  dispatch_channel_norm(c, [&](auto t, auto a) {
    c.inner == 1 && c.across_batch ? column_norm_backward_of<decltype(t), decltype(a)>(c)
                                   : channel_norm_backward_of<decltype(t), decltype(a)>(c);
  });
}

}  // namespace strata::STRATA_VEC_NS
