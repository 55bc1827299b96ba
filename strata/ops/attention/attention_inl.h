// Tiled attention with online softmax (Dao et al., FlashAttention-2, arXiv:2307.08691), for one processor level.
// Scores are computed transposed, S^T = K Q^T: 32 queries lie side by side in the vector lanes, so that maxima, sums
// and rescalings of a query are lane-wise, and P^T and dS^T are operands of the following products as they are. No
// include guard: see strata/ops/vec/levels_inl.h.

#include "strata/ops/attention/attention_gemm_inl.h"
#include "strata/ops/attention/attention_pack_inl.h"
#include "strata/ops/attention/attention_scores_inl.h"

namespace strata::STRATA_VEC_NS {

STRATA_INLINE VD exp2(VD x) {
  for (int i = 0; i < kLanes<double>; ++i) x[i] = std::exp2(x[i]);
  return x;
}
// bf16 results do not show the difference to the degree 5 polynomial.
template <class E>
STRATA_INLINE VR<typename E::R> power2(VR<typename E::R> x) {
  if constexpr (std::is_same_v<typename E::P, uint16_t>)
    return exp2<4>(x);
  else
    return exp2(x);
}

template <class Vec>
STRATA_INLINE bool any_differs(Vec a, Vec b) {
  const auto ne = a != b;
  bool any = false;
  for (size_t i = 0; i < sizeof(Vec) / sizeof(a[0]); ++i) any |= ne[i] != 0;
  return any;
}
#if STRATA_VEC_LEVEL >= 2
STRATA_INLINE bool any_differs(VF a, VF b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ) != 0;
}
#endif

template <class E>
struct Forward {
  using T = typename E::T;
  using R = typename E::R;
  using Vec = VR<R>;
  static constexpr int W = kLanesOf<R>, NV = kQueries / W;
  static constexpr int64_t kKeys = 128;  // of a block

  // One block of scores (`sunk`: l begins with a sink's weight): advances maxima m and sums l, rescales O, leaves
  // exp2(score - m) as an operand in place of S (or in P, as pairs). rows is even.
  static void softmax_block(R* S, typename E::L* P, int64_t rows, R factor, Vec* m, Vec* l, R* O, int64_t dv,
                            bool first, bool sunk, const R* drop) {
    for (int j = 0; j < NV; ++j) {
      R* s = S + j * W;
      Vec m0 = load(s), m1 = load(s + kQueries);
      for (int64_t k = 2; k < rows; k += 2) {
        m0 = max(m0, load(s + k * kQueries));
        m1 = max(m1, load(s + (k + 1) * kQueries));
      }
      const Vec old = m[j];
      const Vec now = max(max(m0, m1) * factor, old);
      m[j] = now;
      if ((!first || sunk) && any_differs(now, old)) {
        const Vec alpha = power2<E>(old - now);
        l[j] *= alpha;
        for (int64_t i = 0; !first && i < dv; ++i)
          store(O + i * kQueries + j * W, load(O + i * kQueries + j * W) * alpha);
      }
      const Vec f = set1(factor);
      Vec sum0 = Vec{}, sum1 = Vec{};
      for (int64_t k = 0; k < rows; k += 2) {
        Vec p0 = power2<E>(fma(load(s + k * kQueries), f, -now));
        Vec p1 = power2<E>(fma(load(s + (k + 1) * kQueries), f, -now));
        sum0 += p0;
        sum1 += p1;
        if (drop) {
          p0 *= load(drop + k * kQueries + j * W);
          p1 *= load(drop + (k + 1) * kQueries + j * W);
        }
        if constexpr (std::is_same_v<typename E::L, R>) {
          store(s + k * kQueries, p0);
          store(s + (k + 1) * kQueries, p1);
        } else {
          const auto pair = E::interleave(p0, p1);
          __builtin_memcpy(P + k / 2 * kQueries + j * W, &pair, sizeof pair);
        }
      }
      l[j] += sum0 + sum1;
    }
  }

  // out[q][i] = O[i][q] / l[q], with rounding to the storage type.
  static void write(const R* O, const R* inverse, const Head<T>& out, int64_t q0, int64_t n, int64_t size) {
#if STRATA_VEC_LEVEL >= 2
    if constexpr (std::is_same_v<R, float>) {
      for (int64_t i = 0; i < size; i += 16) {
        const int64_t m = std::min<int64_t>(16, size - i);
        for (int64_t h = 0; h < n; h += 16) {
          __m512i r[16];
          const VF inv = load(inverse + h);
          for (int64_t j = 0; j < 16; ++j)
            r[j] = j < m ? _mm512_castps_si512(load(O + (i + j) * kQueries + h) * inv) : _mm512_setzero_si512();
          transpose16(r);
          for (int64_t q = 0; q < std::min<int64_t>(16, n - h); ++q)
            store_upto(out.row(q0 + h + q) + i, _mm512_castsi512_ps(r[q]), m);
        }
      }
      return;
    }
#endif
    for (int64_t q = 0; q < n; ++q)
      for (int64_t i = 0; i < size; ++i) put(out.row(q0 + q)[i], O[i * kQueries + q] * inverse[q]);
  }

  // Queries [q_begin, q_end) of one head.
  static void run(const AttentionCall& c, int64_t b, int64_t h, int64_t q_begin, int64_t q_end) {
    const int64_t hk = h / (c.heads / c.kv_heads);
    const Head<T> q = head_of<T>(c.q, b, h), k = head_of<T>(c.k, b, hk), v = head_of<T>(c.v, b, hk);
    const Head<T> out = head_of<T>(c.out, b, h);
    R* lse = static_cast<R*>(c.lse) + (b * c.heads + h) * c.lse_head;
    const int64_t dp = E::size_rows(c.d), dvp = E::size_rows(c.dv);
    const Range all = visible_keys(c, q_begin, q_end);
    const int64_t first_key = all.begin / 32 * 32;

    ScratchFrame frame;
    const auto K = E::rows(k, first_key, all.end, c.d, frame);
    const auto VT = E::columns(v, first_key, all.end, c.dv, frame, nullptr);
    auto* Q = frame.take<typename E::L>(E::lanes_count(c.d));
    R* S = frame.take<R>(kKeys * kQueries);
    auto* P = frame.take<typename E::L>(kKeys / 2 * kQueries);
    R* O = frame.take<R>(dvp * kQueries);
    R* inverse = frame.take<R>(kQueries);
    Scores<R> scores(c);
    if (c.mask) scores.bias = frame.take<R>(kKeys * kQueries);
    R* drop = c.dropout > 0 ? frame.take<R>(kKeys * kQueries) : nullptr;

    const R sink = c.sinks ? static_cast<const R*>(c.sinks)[h] * R(1.4426950408889634) : R(0);
    const bool sunk = c.sinks && sink > -std::numeric_limits<R>::infinity();

    E::begin();
    for (int64_t q0 = q_begin; q0 < q_end; q0 += kQueries) {
      const int64_t nq = std::min(kQueries, q_end - q0);
      Range keys = visible_keys(c, q0, q0 + nq);
      keys.begin = keys.begin / 32 * 32;
      Vec m[NV], l[NV];
      for (int j = 0; j < NV; ++j) {
        m[j] = set1(sunk ? sink : std::numeric_limits<R>::lowest());
        l[j] = set1(sunk ? R(1) : R(0));
      }
      if (keys.begin < keys.end) E::lanes(q, q0, nq, c.d, Q);
      for (int64_t k0 = keys.begin; k0 < keys.end; k0 += kKeys) {
        const int64_t n = std::min(kKeys, keys.end - k0);
        const int64_t computed = round_up(n, E::kSteps), rows = round_up(computed, 2);
        E::gemm(computed, kQueries, dp, K.p + (k0 - first_key) * K.sm, K.sm, K.sk, Q, kQueries, S, kQueries, false);
        if (rows > computed)
          for (int64_t i = 0; i < kQueries; ++i) S[computed * kQueries + i] = -std::numeric_limits<R>::infinity();
        const bool first = k0 == keys.begin;
        // Rows past the last key are masked below; an odd last row already is.
        const R factor = scores.prepare(S, b, h, q0, nq, k0, computed);
        if (drop) dropout_block(c, b, h, q0, k0, rows, drop);
        softmax_block(S, P, rows, factor, m, l, O, dvp, first, sunk, drop);
        const typename E::P* A = VT.p + (k0 - first_key) * VT.sk;
        if constexpr (std::is_same_v<typename E::L, R>)
          E::gemm(dvp, kQueries, computed, A, VT.sm, VT.sk, S, kQueries, O, kQueries, !first);
        else
          E::gemm(dvp, kQueries, computed, A, VT.sm, VT.sk, P, kQueries, O, kQueries, !first);
      }
      if (keys.begin >= keys.end) std::fill(O, O + dvp * kQueries, R(0));
      for (int64_t i = 0; i < nq; ++i) {
        const R sum = l[i / W][i % W], top = m[i / W][i % W];
        inverse[i] = sum == 0 ? R(0) : R(1) / sum;
        lse[q0 + i] = sum == 0 ? -std::numeric_limits<R>::infinity() : (top + std::log2(sum)) * R(0.6931471805599453);
      }
      for (int64_t i = nq; i < kQueries; ++i) inverse[i] = 0;
      write(O, inverse, out, q0, nq, c.dv);
    }
    E::end();
  }
};

template <class E>
struct Backward {
  using T = typename E::T;
  using R = typename E::R;
  using Vec = VR<R>;
  static constexpr int W = kLanesOf<R>, NV = kQueries / W;
  static constexpr int64_t kKeys = 64;  // of a block
  static constexpr bool kPairs = !std::is_same_v<typename E::L, R>;

  struct Block {
    R *S, *dP;                        // [kKeys][32]; where operands are R, they become P and dS in place
    typename E::P *P_rows, *dS_rows;  // A operands [kKeys][32]
    typename E::L* dS_lanes;          // B operand
    R* drop = nullptr;                // [kKeys][32] or null
    R* slope = nullptr;               // likewise: what scores' gradients are multiplied by
  };

  // P = exp2(S * factor - lse2), dS = P (dP - delta); with dropout's multipliers k, P k and P (dP k - delta); with a
  // soft cap dS times its slope.
  static void gradient_block(const Block& t, int64_t rows, R factor, const R* lse2, const R* delta) {
    const Vec f = set1(factor);
    const auto sloped = [&](int64_t at, Vec g) { return t.slope ? g * load(t.slope + at) : g; };
    if constexpr (!kPairs) {
      for (int64_t k = 0; k < rows; ++k)
        for (int j = 0; j < NV; ++j) {
          R *s = t.S + k * kQueries + j * W, *d = t.dP + k * kQueries + j * W;
          const Vec p = power2<E>(fma(load(s), f, -load(lse2 + j * W)));
          const Vec keep = t.drop ? load(t.drop + k * kQueries + j * W) : set1(R(1));
          store(s, p * keep);
          store(d, sloped(k * kQueries + j * W, p * (load(d) * keep - load(delta + j * W))));
        }
    } else {
      const Vec l0 = load(lse2), l1 = load(lse2 + W), d0 = load(delta), d1 = load(delta + W);
      for (int64_t k = 0; k < rows; k += 2) {
        const R *s = t.S + k * kQueries, *d = t.dP + k * kQueries;
        Vec p00 = power2<E>(fma(load(s), f, -l0)), p01 = power2<E>(fma(load(s + W), f, -l1));
        Vec p10 = power2<E>(fma(load(s + 2 * W), f, -l0)), p11 = power2<E>(fma(load(s + 3 * W), f, -l1));
        Vec g00, g01, g10, g11;
        if (t.drop) {
          const R* keep = t.drop + k * kQueries;
          const Vec k00 = load(keep), k01 = load(keep + W), k10 = load(keep + 2 * W), k11 = load(keep + 3 * W);
          g00 = p00 * (load(d) * k00 - d0);
          g01 = p01 * (load(d + W) * k01 - d1);
          g10 = p10 * (load(d + 2 * W) * k10 - d0);
          g11 = p11 * (load(d + 3 * W) * k11 - d1);
          p00 *= k00;
          p01 *= k01;
          p10 *= k10;
          p11 *= k11;
        } else {
          g00 = p00 * (load(d) - d0);
          g01 = p01 * (load(d + W) - d1);
          g10 = p10 * (load(d + 2 * W) - d0);
          g11 = p11 * (load(d + 3 * W) - d1);
        }
        if (t.slope) {
          const int64_t at = k * kQueries;
          g00 = sloped(at, g00), g01 = sloped(at + W, g01), g10 = sloped(at + 2 * W, g10),
          g11 = sloped(at + 3 * W, g11);
        }
        const auto put64 = [](void* to, auto v) { __builtin_memcpy(to, &v, sizeof v); };
        put64(t.P_rows + k * kQueries, E::row(p00, p01));
        put64(t.P_rows + (k + 1) * kQueries, E::row(p10, p11));
        put64(t.dS_rows + k * kQueries, E::row(g00, g01));
        put64(t.dS_rows + (k + 1) * kQueries, E::row(g10, g11));
        put64(t.dS_lanes + k / 2 * kQueries, E::interleave(g00, g10));
        put64(t.dS_lanes + k / 2 * kQueries + W, E::interleave(g01, g11));
      }
    }
  }

  // delta[q] = sum_i out[q][i] grad_out[q][i] - grad_lse[q]; lse2 in base 2, +inf for queries that see nothing or do
  // not exist.
  static void row_terms(const AttentionCall& c, int64_t b, int64_t h, R* delta, R* lse2) {
    const Head<T> out = head_of<T>(c.out, b, h), g = head_of<T>(c.grad_out, b, h);
    const R* lse = static_cast<const R*>(c.lse) + (b * c.heads + h) * c.lse_head;
    const R* glse = c.grad_lse ? static_cast<const R*>(c.grad_lse) + (b * c.heads + h) * c.lse_head : nullptr;
    for (int64_t q = 0; q < round_up(c.tq, kQueries); ++q) {
      Vec sum = Vec{};
      if (q < c.tq)
        for_vectors<T>(c.dv, [&](int64_t i, int64_t m) {
          sum = fma(load_upto(out.row(q) + i, m, 0), load_upto(g.row(q) + i, m, 0), sum);
        });
      delta[q] = reduce_add(sum) - (glse && q < c.tq ? glse[q] : R(0));
      const bool seen = q < c.tq && !(lse[q] == -std::numeric_limits<R>::infinity());
      lse2[q] = seen ? lse[q] * R(1.4426950408889634) : std::numeric_limits<R>::infinity();
    }
  }

  // to[t][i] = from[t][i] * scale
  static void write_rows(const R* from, int64_t ld, R scale, const Head<T>& to, int64_t t0, int64_t n, int64_t size) {
    for (int64_t t = 0; t < n; ++t)
      for_vectors<T>(size, [&](int64_t i, int64_t m) {
        const Vec v = (m == W ? load(from + t * ld + i) : load_n(from + t * ld + i, m, R(0))) * scale;
        store_upto(to.row(t0 + t) + i, v, m);
      });
  }

  // Keys [key_begin, key_end) of one key head: the gradients of those keys and values, and their share of the gradient
  // of the queries: written to grad_q, or, where another task has other keys, to partial [group][tq][d].
  static void run(const AttentionCall& c, int64_t b, int64_t hk, int64_t key_begin, int64_t key_end, R* partial) {
    const int64_t group = c.heads / c.kv_heads;
    const Head<T> k = head_of<T>(c.k, b, hk), v = head_of<T>(c.v, b, hk);
    const int64_t dp = E::size_rows(c.d), dvp = E::size_rows(c.dv);
    const int64_t dw = E::size_steps(c.d), dvw = E::size_steps(c.dv);
    const int64_t blocks = round_up(c.tq, kQueries) / kQueries;
    const int64_t keys = round_up(key_end - key_begin, E::kSteps);

    ScratchFrame frame;
    const auto K = E::rows(k, key_begin, key_end, c.d, frame);
    const auto V = E::rows(v, key_begin, key_end, c.dv, frame);
    const auto KT = E::columns(k, key_begin, key_end, c.d, frame, &K);
    R* dK = frame.take<R>(keys * dw);
    R* dV = frame.take<R>(keys * dvw);
    std::fill(dK, dK + keys * dw, R(0));
    std::fill(dV, dV + keys * dvw, R(0));
    R* dQ = frame.take<R>(blocks * dp * kQueries);
    R* delta = frame.take<R>(blocks * kQueries);
    R* lse2 = frame.take<R>(blocks * kQueries);
    R* ones = frame.take<R>(kQueries);
    std::fill(ones, ones + kQueries, static_cast<R>(c.scale));
    Block t;
    t.S = frame.take<R>(kKeys * kQueries);
    t.dP = frame.take<R>(kKeys * kQueries);
    if constexpr (kPairs) {
      t.P_rows = frame.take<typename E::P>(kKeys * kQueries);
      t.dS_rows = frame.take<typename E::P>(kKeys * kQueries);
      t.dS_lanes = frame.take<typename E::L>(kKeys / 2 * kQueries);
    } else {
      t.P_rows = t.S;
      t.dS_rows = t.dS_lanes = t.dP;
    }
    Scores<R> scores(c);
    if (c.mask) scores.bias = frame.take<R>(kKeys * kQueries);
    if (c.dropout > 0) t.drop = frame.take<R>(kKeys * kQueries);
    if (c.soft_cap > 0) t.slope = scores.slope = frame.take<R>(kKeys * kQueries);
    auto* q_lanes = frame.take<typename E::L>(blocks * E::lanes_count(c.d));
    auto* g_lanes = frame.take<typename E::L>(blocks * E::lanes_count(c.dv));

    E::begin();
    for (int64_t g = 0; g < group; ++g) {
      const int64_t h = hk * group + g;
      ScratchFrame of_head;
      const Head<T> q = head_of<T>(c.q, b, h), go = head_of<T>(c.grad_out, b, h);
      const auto q_steps = E::steps(q, c.tq, c.d, of_head);
      const auto g_steps = E::steps(go, c.tq, c.dv, of_head);
      const Range seen = visible_queries(c, key_begin, key_end);
      for (int64_t i = seen.begin / kQueries; i * kQueries < seen.end; ++i) {
        const int64_t n = std::min(kQueries, c.tq - i * kQueries);
        E::lanes(q, i * kQueries, n, c.d, q_lanes + i * E::lanes_count(c.d));
        E::lanes(go, i * kQueries, n, c.dv, g_lanes + i * E::lanes_count(c.dv));
      }
      row_terms(c, b, h, delta, lse2);
      std::fill(dQ, dQ + blocks * dp * kQueries, R(0));

      for (int64_t k0 = key_begin; k0 < key_end; k0 += kKeys) {
        const int64_t at = k0 - key_begin, nk = std::min(kKeys, key_end - k0);
        const Range queries = visible_queries(c, k0, k0 + nk);
        for (int64_t q0 = queries.begin / kQueries * kQueries; q0 < queries.end; q0 += kQueries) {
          const int64_t nq = std::min(kQueries, c.tq - q0);
          // The block's last keys may lie behind every query.
          const int64_t n = std::min(nk, visible_keys(c, q0, q0 + nq).end - k0);
          if (n <= 0) continue;
          const int64_t rows = round_up(n, E::kSteps);
          const auto* ql = q_lanes + q0 / kQueries * E::lanes_count(c.d);
          const auto* gl = g_lanes + q0 / kQueries * E::lanes_count(c.dv);
          E::gemm(rows, kQueries, dp, K.p + at * K.sm, K.sm, K.sk, ql, kQueries, t.S, kQueries, false);
          E::gemm(rows, kQueries, dvp, V.p + at * V.sm, V.sm, V.sk, gl, kQueries, t.dP, kQueries, false);
          const R factor = scores.prepare(t.S, b, h, q0, nq, k0, rows);
          if (t.drop) dropout_block(c, b, h, q0, k0, rows, t.drop);
          gradient_block(t, rows, factor, lse2 + q0, delta + q0);
          const int64_t steps = kPairs ? kQueries : nq;
          E::gemm(rows, dvw, steps, t.P_rows, kQueries, 1, E::steps_at(g_steps, q0), g_steps.ld, dV + at * dvw, dvw,
                  true);
          E::gemm(rows, dw, steps, t.dS_rows, kQueries, 1, E::steps_at(q_steps, q0), q_steps.ld, dK + at * dw, dw,
                  true);
          E::gemm(dp, kQueries, rows, KT.p + at * KT.sk, KT.sm, KT.sk, t.dS_lanes, kQueries, dQ + q0 * dp, kQueries,
                  true);
        }
      }
      const Head<T> gq = head_of<T>(c.grad_q, b, h);
      for (int64_t q0 = 0; q0 < c.tq; q0 += kQueries) {
        const int64_t n = std::min(kQueries, c.tq - q0);
        if (!partial) {
          Forward<E>::write(dQ + q0 * dp, ones, gq, q0, n, c.d);
        } else {
          Forward<FmaEngine<R>>::write(dQ + q0 * dp, ones, Head<R>{partial + g * c.tq * c.d, c.d}, q0, n, c.d);
        }
      }
    }
    E::end();
    write_rows(dK, dw, static_cast<R>(c.scale), head_of<T>(c.grad_k, b, hk), key_begin, key_end - key_begin, c.d);
    write_rows(dV, dvw, R(1), head_of<T>(c.grad_v, b, hk), key_begin, key_end - key_begin, c.dv);
  }
};

// The number of tasks that the keys of one head are split into; depends on sizes only, so that sums always have the
// same order.
STRATA_INLINE int64_t key_chunks(const AttentionCall& c) {
  constexpr int64_t kTasks = 32, kLeastKeys = 256;
  const int64_t wanted = (kTasks + c.batch * c.kv_heads - 1) / (c.batch * c.kv_heads);
  return std::max<int64_t>(1, std::min(wanted, c.tk / kLeastKeys));
}

// Runs one(0) .. one(n - 1) on all threads, each taking the next task when it is done with one. Peaked scores give
// weights below the normal numbers: they are 0.
template <class F>
static void run_tasks(int64_t n, F&& one) {
  std::atomic<int64_t> next{0};
  parallel_for(0, std::min<int64_t>(n, num_threads()), 1, [&](int64_t, int64_t) {
    const FlushDenormals flush;
    for (int64_t i = next++; i < n; i = next++) one(i);
  });
}

template <class E>
static void forward_all(const AttentionCall& c) {
  const int64_t heads = c.batch * c.heads;
  // Long runs of queries reuse the prepared keys; short ones keep all threads busy.
  int64_t run = 512;
  while (run > 64 && heads * ((c.tq + run - 1) / run) < 4 * num_threads()) run /= 2;
  const int64_t runs = (c.tq + run - 1) / run;
  run_tasks(heads * runs, [&](int64_t i) {
    // The last queries see the most keys: first.
    const int64_t r = runs - 1 - i / heads, head = i % heads;
    Forward<E>::run(call_of(c, head / c.heads), head / c.heads, head % c.heads, r * run, std::min(c.tq, (r + 1) * run));
  });
}

template <class E>
static void backward_all(const AttentionCall& c) {
  using R = typename E::R;
  using T = typename E::T;
  const int64_t chunks = key_chunks(c), heads = c.batch * c.kv_heads, group = c.heads / c.kv_heads;
  const int64_t chunk = round_up((c.tk + chunks - 1) / chunks, 64), per_head = group * c.tq * c.d;
  ScratchFrame frame;
  R* partial = chunks > 1 ? frame.take<R>(chunks * heads * per_head) : nullptr;
  run_tasks(heads * chunks, [&](int64_t i) {
    const int64_t part = i / heads, head = i % heads;
    const int64_t begin = std::min(c.tk, part * chunk), end = std::min(c.tk, begin + chunk);
    Backward<E>::run(call_of(c, head / c.kv_heads), head / c.kv_heads, head % c.kv_heads, begin, end,
                     partial ? partial + (part * heads + head) * per_head : nullptr);
  });
  if (!partial) return;
  parallel_for(0, c.batch * c.heads * c.tq, 64, [&](int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) {
      const int64_t t = r % c.tq, h = r / c.tq % c.heads, b = r / c.tq / c.heads;
      const R* p = partial + (b * c.heads + h) * c.tq * c.d + t * c.d;
      T* out = head_of<T>(c.grad_q, b, h).row(t);
      for_vectors<T>(c.d, [&](int64_t i, int64_t m) {
        VR<R> sum{};
        for (int64_t part = 0; part < chunks; ++part) sum += load_upto(p + part * heads * per_head + i, m, R(0));
        store_upto(out + i, sum, m);
      });
    }
  });
}

static void attention_forward(const AttentionCall& c, [[maybe_unused]] bool tiles) {
  switch (c.dtype) {
    case DType::f64:
      return forward_all<FmaEngine<double>>(c);
    case DType::f32:
      return forward_all<FmaEngine<float>>(c);
    case DType::f16:
      return forward_all<FmaEngine<Half>>(c);
    default:
#if STRATA_VEC_LEVEL >= 3
      return tiles ? forward_all<PairEngine<true>>(c) : forward_all<PairEngine<false>>(c);
#else
      return forward_all<FmaEngine<BFloat16>>(c);
#endif
  }
}

static void attention_backward(const AttentionCall& c, [[maybe_unused]] bool tiles) {
  switch (c.dtype) {
    case DType::f64:
      return backward_all<FmaEngine<double>>(c);
    case DType::f32:
      return backward_all<FmaEngine<float>>(c);
    case DType::f16:
      return backward_all<FmaEngine<Half>>(c);
    default:
#if STRATA_VEC_LEVEL >= 3
      return tiles ? backward_all<PairEngine<true>>(c) : backward_all<PairEngine<false>>(c);
#else
      return backward_all<FmaEngine<BFloat16>>(c);
#endif
  }
}

}  // namespace strata::STRATA_VEC_NS
