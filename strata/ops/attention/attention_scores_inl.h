// Which keys a query sees and what becomes of its scores, for one processor level: limits, soft cap, distances, masks,
// dropout. No include guard: see strata/ops/vec/levels_inl.h.

#include "strata/ops/vec/functions_inl.h"

namespace strata::STRATA_VEC_NS {

struct Range {
  int64_t begin, end;
};

// Keys that some query of [q0, q1) sees, masks aside.
STRATA_INLINE Range visible_keys(const AttentionCall& c, int64_t q0, int64_t q1) {
  Range r{0, c.tk};
  if (c.causal) r.end = std::min(r.end, q1 - 1 + c.offset + 1);
  if (c.window > 0) {
    r.begin = std::max<int64_t>(0, q0 + c.offset - c.window + 1);
    r.end = std::min(r.end, q1 - 1 + c.offset + c.window);
  }
  // None: a window may lie behind the last key, and callers round its begin down.
  return r.begin < r.end ? r : Range{0, 0};
}

// Queries that see some key of [k0, k1), masks aside.
STRATA_INLINE Range visible_queries(const AttentionCall& c, int64_t k0, int64_t k1) {
  Range r{0, c.tq};
  if (c.causal) r.begin = std::max<int64_t>(0, k0 - c.offset);
  if (c.window > 0) {
    r.begin = std::max(r.begin, k0 - c.offset - c.window + 1);
    r.end = std::min(r.end, k1 - 1 - c.offset + c.window);
  }
  r.begin = std::max<int64_t>(0, r.begin);
  r.end = std::min(r.end, c.tq);
  return r.begin < r.end ? r : Range{0, 0};
}

// Turns raw products of `rows` keys from k0 on (of which those below c.tk exist) and the block of queries at q0 into
// scores of which the caller takes the exponential base 2 after multiplying by the returned factor.
template <class R>
struct Scores {
  const AttentionCall& c;
  R factor;            // scale * log2(e)
  R* bias = nullptr;   // [keys][32] in the same unit, where there is a mask
  R* slope = nullptr;  // [keys][32]: the soft cap's slope at each score, where it is wanted

  explicit Scores(const AttentionCall& call) : c(call), factor(static_cast<R>(call.scale * 1.4426950408889634)) {}

  template <class M>
  void read_mask(int64_t b, int64_t h, int64_t q0, int64_t k0, int64_t rows) const {
    const M* base = static_cast<const M*>(c.mask) + b * c.mask_stride[0] + h * c.mask_stride[1];
    const R lowest = std::numeric_limits<R>::lowest() / R(1.5);
    for (int64_t q = 0; q < kQueries; ++q) {
      const M* p = base + (q0 + q) * c.mask_stride[2] + k0 * c.mask_stride[3];
      for (int64_t k = 0; k < rows; ++k) {
        R v = 0;
        if (q0 + q < c.tq && k0 + k < c.tk) {
          const M m = p[k * c.mask_stride[3]];
          if constexpr (std::is_same_v<M, bool>) {
            v = m ? R(0) : -std::numeric_limits<R>::infinity();
          } else {
            v = static_cast<R>(static_cast<Real<M>>(m));
            if (v > -std::numeric_limits<R>::infinity()) v = std::max(v, lowest) * R(1.4426950408889634);
          }
        }
        bias[k * kQueries + q] = v;
      }
    }
  }

  void take_distances(R* S, int64_t b, int64_t h, int64_t q0, int64_t k0, int64_t rows) const {
    const R by = static_cast<const R*>(c.alibi_slopes)[b * c.alibi_batch + h] * R(1.4426950408889634);
    for (int64_t k = 0; k < rows; ++k) {
      const R first = static_cast<R>(q0 + c.offset - k0 - k);
      for (int64_t q = 0; q < kQueries; ++q) S[k * kQueries + q] -= by * std::abs(first + static_cast<R>(q));
    }
  }

  R prepare(R* S, int64_t b, int64_t h, int64_t q0, int64_t nq, int64_t k0, int64_t rows) const {
    constexpr int W = kLanesOf<R>;
    R f = factor;
    if (c.mask || c.soft_cap > 0 || c.alibi_slopes || f <= 0) {
      if (c.mask) {
        switch (c.mask_dtype) {
          case DType::boolean:
            read_mask<bool>(b, h, q0, k0, rows);
            break;
          case DType::f32:
            read_mask<float>(b, h, q0, k0, rows);
            break;
          case DType::f64:
            read_mask<double>(b, h, q0, k0, rows);
            break;
          case DType::bf16:
            read_mask<BFloat16>(b, h, q0, k0, rows);
            break;
          default:
            read_mask<Half>(b, h, q0, k0, rows);
            break;
        }
      }
      const R cap = static_cast<R>(c.soft_cap * 1.4426950408889634), inverse = cap > 0 ? 1 / cap : R(0);
      for (int64_t i = 0; i < rows * kQueries; i += W) {
        VR<R> s = load(S + i) * f;
        if (cap > 0) {
          const VR<R> u = tanh_of(s * inverse);
          if (slope) store(slope + i, fma(u, -u, set1(R(1))));
          s = u * cap;
        }
        store(S + i, c.mask ? s + load(bias + i) : s);
      }
      if (c.alibi_slopes) take_distances(S, b, h, q0, k0, rows);
      f = 1;
    }
    const int64_t last = k0 + rows - 1;
    const bool edge = last >= c.tk || (c.causal && last > q0 + c.offset) ||
                      (c.window > 0 && (k0 <= q0 + nq - 1 + c.offset - c.window || last >= q0 + c.offset + c.window));
    if (edge) {
      for (int64_t k = 0; k < rows; ++k) {
        const int64_t j = k0 + k;
        // Lanes [lo, hi) of this key's row are seen.
        int64_t lo = 0, hi = kQueries;
        if (c.causal) lo = std::max(lo, j - c.offset - q0);
        if (c.window > 0) {
          lo = std::max(lo, j - c.offset - c.window + 1 - q0);
          hi = std::min(hi, j - c.offset + c.window - q0);
        }
        if (j >= c.tk) hi = 0;
        lo = std::min(lo, kQueries);
        if (lo <= 0 && hi >= kQueries) continue;
        R* s = S + k * kQueries;
        for (int64_t q = 0; q < lo; ++q) s[q] = -std::numeric_limits<R>::infinity();
        for (int64_t q = std::max<int64_t>(hi, 0); q < kQueries; ++q) s[q] = -std::numeric_limits<R>::infinity();
      }
    }
    return f;
  }
};

// Bit k: number `first` + k of the key's stream is not below `below`. N blocks of four are drawn side by side.
template <int N>
static uint32_t kept_word(RngKey key, uint64_t first, uint32_t below) {
  uint32_t c[4][N], bits[N] = {}, k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int i = 0; i < N; ++i) {
    const uint64_t counter = key.offset + first / 4 + static_cast<uint64_t>(i);
    c[0][i] = static_cast<uint32_t>(counter), c[1][i] = static_cast<uint32_t>(counter >> 32), c[2][i] = c[3][i] = 0;
  }
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < N; ++i) {
      const uint64_t p = uint64_t{0xD2511F53} * c[0][i], q = uint64_t{0xCD9E8D57} * c[2][i];
      c[0][i] = static_cast<uint32_t>(q >> 32) ^ c[1][i] ^ k0, c[1][i] = static_cast<uint32_t>(q);
      c[2][i] = static_cast<uint32_t>(p >> 32) ^ c[3][i] ^ k1, c[3][i] = static_cast<uint32_t>(p);
    }
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  for (uint32_t k = 0; k < 4; ++k)
    for (int i = 0; i < N; ++i) bits[i] |= static_cast<uint32_t>(c[k][i] >= below) << k;
  uint64_t all = 0;
  for (int i = 0; i < 9 && i < N; ++i) all |= uint64_t{bits[i]} << (4 * i);
  return static_cast<uint32_t>(all >> (first % 4));
}

static void attention_draw_kept(const AttentionCall& c, uint32_t* to) {
  const uint32_t below = drop_below(c.dropout);
  const bool fours = c.numbers.fours();
  parallel_for(0, c.batch * c.heads * c.tq, std::max<int64_t>(1, 4096 / (c.tk + 1)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t i = row % c.tq, h = row / c.tq % c.heads, b = row / c.tq / c.heads;
      for (int64_t w = 0; w < c.kept_words; ++w) {
        const uint32_t seen = c.seen_word(i, 32 * w);
        const uint64_t first = c.numbers.of(b, h, i, 32 * w);
        to[row * c.kept_words + w] =
            seen == 0 ? 0 : seen & (fours ? kept_word<8>(c.key, first, below) : kept_word<16>(c.key, first, below));
      }
    }
  });
}

// What each weight is multiplied by: 0 or 1 / (1 - dropout), [keys][32].
template <class R>
static void dropout_block(const AttentionCall& c, int64_t b, int64_t h, int64_t q0, int64_t k0, int64_t rows, R* to) {
  const R keep = static_cast<R>(1 / (1 - c.dropout));
  if (c.kept != nullptr) {
    for (int64_t q = 0; q < kQueries; ++q) {
      const uint32_t* row = q0 + q < c.tq ? c.kept + ((b * c.heads + h) * c.tq + q0 + q) * c.kept_words : nullptr;
      for (int64_t k = 0; k < rows; ++k) {
        const int64_t at = k0 + k;
        to[k * kQueries + q] = row != nullptr && (row[at / 32] >> (at % 32) & 1) != 0 ? keep : R(0);
      }
    }
    return;
  }
  const float p = static_cast<float>(c.dropout);
  for (int64_t q = 0; q < kQueries; ++q) {
    const uint64_t first = c.numbers.of(b, h, q0 + q, k0);
    uint64_t block = ~uint64_t{0};
    std::array<uint32_t, 4> numbers{};
    for (int64_t k = 0; k < rows; ++k) {
      const uint64_t i = first + static_cast<uint64_t>(k);
      if (i / 4 != block) numbers = philox(c.key, block = i / 4);
      to[k * kQueries + q] = uniform_f32(numbers[i % 4]) < p ? R(0) : keep;
    }
  }
}

// The call of a batch whose keys are fewer than the others'.
STRATA_INLINE AttentionCall call_of(const AttentionCall& c, int64_t b) {
  AttentionCall r = c;
  if (c.key_lengths != nullptr) {
    r.tk = std::clamp<int64_t>(c.key_lengths[b], 0, c.tk);
    r.hidden_keys = c.tk - r.tk;
  }
  return r;
}

}  // namespace strata::STRATA_VEC_NS
