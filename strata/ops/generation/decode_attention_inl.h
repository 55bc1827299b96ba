// Attention of one query a text, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

#include "strata/ops/softmax/row_inl.h"
#include "strata/ops/vec/functions_inl.h"

namespace strata::STRATA_VEC_NS {

// Up to so many heads over the same keys are computed together: each row of the cache is then read once for them.
constexpr int kDecodeHeads = 4;

// scores[h][j] = q[h] . k[j] for n keys, `step` elements apart.
template <int H, class T>
STRATA_INLINE void decode_scores(const Real<T>* q, const T* k, int64_t step, int64_t n, int64_t d, Real<T>* scores) {
  for (int64_t j = 0; j < n; ++j, k += step) {
    V<T> sum[H] = {};
    for_vectors<T>(d, [&](int64_t i, int64_t lanes) {
      const V<T> key = load_upto(k + i, lanes, Real<T>{});
      for (int h = 0; h < H; ++h) sum[h] = fma(load_upto(q + h * d + i, lanes, Real<T>{}), key, sum[h]);
    });
    for (int h = 0; h < H; ++h) scores[h * n + j] = reduce_add(sum[h]);
  }
}

// out[h] = sum over j of weights[h][j] v[j], times factor[h].
template <int H, class T>
STRATA_INLINE void decode_sums(const Real<T>* weights, const T* v, int64_t step, int64_t n, int64_t dv,
                               const Real<T>* factor, T* const* out) {
  for_vectors<T>(dv, [&](int64_t i, int64_t lanes) {
    V<T> sum[H] = {};
    for (int64_t j = 0; j < n; ++j) {
      const V<T> value = load_upto(v + j * step + i, lanes, Real<T>{});
      for (int h = 0; h < H; ++h) sum[h] = fma(V<T>{} + weights[h * n + j], value, sum[h]);
    }
    for (int h = 0; h < H; ++h) store_upto(out[h] + i, sum[h] * factor[h], lanes);
  });
}

// Scores to weights, and one over their sum. A sink is a score without a value.
template <class R>
STRATA_INLINE R decode_softmax(R* scores, int64_t n, double soft_cap, const double* sink) {
  if (soft_cap > 0) {
    const R cap = static_cast<R>(soft_cap);
    for (int64_t j = 0; j < n; ++j) scores[j] = cap * std::tanh(scores[j] / cap);
  }
  R top = row_max(scores, n);
  if (sink) top = std::max(top, static_cast<R>(*sink));
  V<R> sum = {};
  for_vectors<R>(n, [&](int64_t j, int64_t lanes) {
    const V<R> weight = exp(load_upto(scores + j, lanes, -std::numeric_limits<R>::infinity()) - top);
    sum += weight;
    store_upto(scores + j, weight, lanes);
  });
  R total = reduce_add(sum);
  if (sink) total += std::exp(static_cast<R>(*sink) - top);
  return 1 / total;
}

template <int H, class T>
void decode_heads(const generation::DecodeAttention& c, int64_t b, int64_t head) {
  using R = Real<T>;
  const int64_t first = c.first[b], n = c.last[b] - first + 1, of_keys = head / (c.heads / c.kv_heads);
  ScratchFrame frame;
  R* const q = frame.take<R>(H * c.d);
  R* const scores = frame.take<R>(H * n);
  T* out[H];
  R factor[H];
  for (int h = 0; h < H; ++h) {
    const T* const from = static_cast<const T*>(c.q.data) + b * c.q.batch + (head + h) * c.q.head;
    for (int64_t i = 0; i < c.d; ++i) q[h * c.d + i] = get(from[i]) * static_cast<R>(c.scale);
    out[h] = static_cast<T*>(c.out) + (b * c.heads + head + h) * c.dv;
  }
  const auto rows = [&](const auto& of) {
    return static_cast<const T*>(of.data) + b * of.batch + of_keys * of.head + first * of.place;
  };
  decode_scores<H, T>(q, rows(c.k), c.k.place, n, c.d, scores);
  for (int h = 0; h < H; ++h)
    factor[h] = decode_softmax(scores + h * n, n, c.soft_cap, c.sinks ? c.sinks + head + h : nullptr);
  decode_sums<H, T>(scores, rows(c.v), c.v.place, n, c.dv, factor, out);
}

void decode_attention(const generation::DecodeAttention& c) {
  const int64_t group = c.heads / c.kv_heads, parts = (group + kDecodeHeads - 1) / kDecodeHeads;
  int64_t longest = 1;
  for (int64_t b = 0; b < c.batches; ++b) longest = std::max(longest, c.last[b] - c.first[b] + 1);
  const int64_t work = longest * (c.d + c.dv) * std::min<int64_t>(group, kDecodeHeads);
  dispatch_floating(c.dtype, [&]<class T>(T) {
    parallel_for(0, c.batches * c.kv_heads * parts, std::max<int64_t>(1, 65536 / work),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t part = i % parts, b = i / parts / c.kv_heads;
                     const int64_t head = i / parts % c.kv_heads * group + part * kDecodeHeads;
                     switch (std::min<int64_t>(kDecodeHeads, group - part * kDecodeHeads)) {
                       case 1:
                         decode_heads<1, T>(c, b, head);
                         break;
                       case 2:
                         decode_heads<2, T>(c, b, head);
                         break;
                       case 3:
                         decode_heads<3, T>(c, b, head);
                         break;
                       default:
                         decode_heads<4, T>(c, b, head);
                     }
                   }
                 });
  });
}

}  // namespace strata::STRATA_VEC_NS
