#pragma once
// One row's token, for a team of threads: a block on a CUDA device, one thread on the CPU. Nothing is sorted. The
// weights of tokens are integers, and what filters and the draw look for, the place where a running sum passes a
// number, is found digit by digit of the logits' order: a histogram of a digit among the tokens that share the digits
// found so far. Sums of integers have no order, so any team finds the same.

#include <bit>
#include <cmath>
#include <cstdint>

#include "strata/core/rng.h"
#include "strata/ops/generation/generation_kernels.h"

#ifdef __CUDACC__
#define STRATA_SAMPLE __device__ __forceinline__
#else
#define STRATA_SAMPLE inline
#endif

namespace strata::generation {

// Digits of 11, 11 and 10 bits.
inline constexpr int kBins = 2048;

// Below: each thread of a team calls
//   each(n, f)       f(i) for those of i < n that are this thread's
//   sum(v), max(v)   all threads' values together
//   clear(), add(bin, v), find(target): counters; the last says in which bin the running sum from the highest bin down
//                    passes target, the sum before it, and the bin's own
//   nth(n, f, r)     the (r + 1)-th i < n, in their order, for which f(i); -1 where there are not so many
struct Found {
  uint32_t key = 0;
  uint64_t before = 0, inside = 0;
};

// Ordered as the numbers are; 0 of a NaN alone. Zeros of both signs have one.
STRATA_SAMPLE uint32_t key_of(float v) {
  if (v != v) return 0;
  const uint32_t bits = v == 0 ? 0 : std::bit_cast<uint32_t>(v);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// Where the running sum of weights, from the largest key down, passes `target`, which must be below the sum of all.
template <class Team, class Key, class Weight>
STRATA_SAMPLE Found descend(Team& team, int64_t n, uint64_t target, Key key, Weight weight) {
  Found r;
  uint32_t known = 0;
  for (int shift = 21, bits = 11; bits > 0; bits = shift < 11 ? shift : 11, shift -= bits) {
    const uint32_t mask = (1u << bits) - 1;
    team.clear();
    team.each(n, [&](int64_t i) {
      const uint32_t k = key(i);
      if ((k & known) != r.key) return;
      if (const uint64_t w = weight(i); w > 0) team.add(static_cast<int>(k >> shift & mask), w);
    });
    const Found digit = team.find(target - r.before);
    r.key |= digit.key << shift;
    r.before += digit.before;
    r.inside = digit.inside;
    known |= mask << shift;
  }
  return r;
}

// What filters left of a row.
struct Kept {
  uint32_t least = 1, last_key = 0;  // keys from `least` on; of those with last_key ids up to last_id
  int64_t last_id = 0;
  float share = 0;  // of the likeliest token's probability
  float far = 0;    // from the entropy, where is_typical
  bool is_typical = false;
};

template <class Team, class T>
struct Row {
  Team& team;
  const T* x;
  int64_t n;  // ids that may be drawn
  float temperature, largest;
  double unit;  // the likeliest token's weight
  float log_sum = 0, entropy = 0;
  Kept kept;

  STRATA_SAMPLE float logit(int64_t i) const { return Team::load(x[i]); }
  STRATA_SAMPLE uint32_t key(int64_t i) const { return key_of(logit(i)); }
  // Of infinite logits the largest have all the weight.
  STRATA_SAMPLE float gap(float v) const { return v == largest ? 0.0f : (v - largest) / temperature; }
  STRATA_SAMPLE float distance(float v) const { return std::fabs(-(gap(v) - log_sum) - entropy); }
  STRATA_SAMPLE uint64_t weight(int64_t i) const {
    const float v = logit(i);
    const uint32_t k = key_of(v);
    if (k < kept.least || (k == kept.last_key && i > kept.last_id)) return 0;
    const float share = std::exp(gap(v));
    if (share < kept.share || (kept.is_typical && distance(v) > kept.far)) return 0;
    return static_cast<uint64_t>(static_cast<double>(share) * unit + 0.5);
  }
  STRATA_SAMPLE uint64_t total() const {
    uint64_t own = 0;
    team.each(n, [&](int64_t i) { own += weight(i); });
    return team.sum(own);
  }
  STRATA_SAMPLE Found descend_to(uint64_t target) const {
    return descend(
        team, n, target, [&](int64_t i) { return key(i); }, [&](int64_t i) { return weight(i); });
  }
  // The (r + 1)-th of the tokens left that have this key.
  STRATA_SAMPLE int64_t tied(uint32_t k, uint64_t r) const {
    return team.nth(
        n, [&](int64_t i) { return key(i) == k && weight(i) > 0; }, static_cast<int64_t>(r));
  }
};

// The smallest number of units that is at least this share of all of them, one at least.
STRATA_SAMPLE uint64_t share_of(float share, uint64_t all) {
  const auto units = static_cast<uint64_t>(std::ceil(static_cast<double>(share) * static_cast<double>(all)));
  return units < 1 ? 1 : units < all ? units : all;
}

template <class R>
STRATA_SAMPLE void keep_top_k(R& row, int64_t k) {
  uint64_t own = 0;
  row.team.each(row.n, [&](int64_t i) { own += row.key(i) > 0 ? 1 : 0; });
  if (row.team.sum(own) <= static_cast<uint64_t>(k)) return;
  row.kept.least = descend(
                       row.team, row.n, static_cast<uint64_t>(k) - 1, [&](int64_t i) { return row.key(i); },
                       [&](int64_t i) { return uint64_t(row.key(i) > 0 ? 1 : 0); })
                       .key;
}

// A token stays where those before it, in the order of their logits, have less than the share.
template <class R>
STRATA_SAMPLE void keep_top_p(R& row, float share) {
  const uint64_t limit = share_of(share, row.total());
  const Found f = row.descend_to(limit - 1);
  // The ties at the edge all weigh the same; how many of them begin below the limit?
  const int64_t first = row.tied(f.key, 0);
  const uint64_t each = row.weight(first), stay = (limit - f.before + each - 1) / each;
  if (stay * each < f.inside) {
    const int64_t last = row.tied(f.key, stay - 1);
    row.kept.last_key = f.key;
    row.kept.last_id = last;
  }
  row.kept.least = f.key;
}

template <class R>
STRATA_SAMPLE void keep_typical(R& row, float share) {
  const uint64_t all = row.total();
  const double sum = static_cast<double>(all) / row.unit;
  row.log_sum = static_cast<float>(std::log(sum));
  double own = 0;
  row.team.each(row.n, [&](int64_t i) {
    if (const uint64_t w = row.weight(i); w > 0)
      own -= static_cast<double>(w) * static_cast<double>(row.gap(row.logit(i)) - row.log_sum);
  });
  row.entropy = static_cast<float>(row.team.sum(own) / static_cast<double>(all));
  const auto nearness = [&](int64_t i) { return ~std::bit_cast<uint32_t>(row.distance(row.logit(i))); };
  const Found f =
      descend(row.team, row.n, share_of(share, all) - 1, nearness, [&](int64_t i) { return row.weight(i); });
  row.kept.far = std::bit_cast<float>(~f.key);
  row.kept.is_typical = true;
}

// Whether all parameters are in range; else `wrong` is the first that is not.
STRATA_SAMPLE bool in_range(const RowParams& p, double& wrong) {
  const auto refused = [&](bool fine, double value) {
    if (!fine) wrong = value;
    return !fine;
  };
  return !(refused(p.temperature >= 0 && std::isfinite(p.temperature), static_cast<double>(p.temperature)) ||
           refused(p.top_k >= 0, static_cast<double>(p.top_k)) ||
           refused(p.top_p > 0 && p.top_p <= 1, static_cast<double>(p.top_p)) ||
           refused(p.min_p >= 0 && p.min_p <= 1, static_cast<double>(p.min_p)) ||
           refused(p.typical_p > 0 && p.typical_p <= 1, static_cast<double>(p.typical_p)));
}

STRATA_SAMPLE RowParams params_of(const SampleArgs& a, int64_t row) {
  RowParams p;
  if (a.temperature.at != nullptr) p.temperature = a.temperature.at[row * a.temperature.step];
  if (a.top_k.at != nullptr) p.top_k = a.top_k.at[row * a.top_k.step];
  if (a.top_p.at != nullptr) p.top_p = a.top_p.at[row * a.top_p.step];
  if (a.min_p.at != nullptr) p.min_p = a.min_p.at[row * a.min_p.step];
  if (a.typical_p.at != nullptr) p.typical_p = a.typical_p.at[row * a.typical_p.step];
  p.seed = static_cast<uint64_t>(a.seeds[row]);
  p.position = static_cast<uint64_t>(a.positions[row]);
  return p;
}

// The likeliest of the first n ids, of equal ones the smallest; -1 where all are NaN.
template <class Team, class T>
STRATA_SAMPLE int64_t likeliest(Team& team, const T* x, int64_t n) {
  uint64_t own = 0;
  team.each(n, [&](int64_t i) {
    const uint64_t k = static_cast<uint64_t>(key_of(Team::load(x[i]))) << 32 | (0xffffffffu - static_cast<uint32_t>(i));
    own = k > own ? k : own;
  });
  const uint64_t best = team.max(own);
  return best >> 32 == 0 ? -1 : static_cast<int64_t>(0xffffffffu - static_cast<uint32_t>(best));
}

// A token of a row, from the first n of its ids, of which `best` is the likeliest; p is in range.
template <class Team, class T>
STRATA_SAMPLE int64_t draw(Team& team, const T* x, int64_t n, int64_t best, const RowParams& p) {
  if (p.temperature == 0) return best;
  // As many bits as sums of n weights have room for. Counted here: nvcc 13.0 makes std::bit_width() of a device function
  // the constant 0, and sums that pass 64 bits were the result.
  int bits = 62;
  for (auto left = static_cast<uint64_t>(n); left > 0; left >>= 1) --bits;
  Row<Team, T> row{team, x, n, p.temperature, Team::load(x[best]), static_cast<double>(uint64_t{1} << bits)};
  if (p.top_k > 0 && p.top_k < n) keep_top_k(row, p.top_k);
  if (p.top_p < 1) keep_top_p(row, p.top_p);
  row.kept.share = p.min_p;
  if (p.typical_p < 1) keep_typical(row, p.typical_p);
  const auto numbers = philox({p.seed, 0}, p.position);
  const uint64_t number = static_cast<uint64_t>(numbers[0]) << 32 | numbers[1];
  const uint64_t target = Team::high_product(number, row.total());
  const Found f = row.descend_to(target);
  const uint64_t each = row.weight(row.tied(f.key, 0));
  return row.tied(f.key, (target - f.before) / each);
}

// log softmax(x)[id] over all ids.
template <class Team, class T>
STRATA_SAMPLE float log_probability(Team& team, const T* x, int64_t columns, int64_t id) {
  const float largest = Team::load(x[likeliest(team, x, columns)]);
  const auto gap = [&](float v) { return v == largest ? 0.0f : v - largest; };
  double own = 0;
  team.each(columns, [&](int64_t i) {
    if (const float v = Team::load(x[i]); v == v) own += static_cast<double>(std::exp(gap(v)));
  });
  return static_cast<float>(static_cast<double>(gap(Team::load(x[id]))) - std::log(team.sum(own)));
}

}  // namespace strata::generation
