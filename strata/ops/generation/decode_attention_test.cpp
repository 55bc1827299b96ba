// Attention of one query a text on the processor, from the card's source, against sums in double precision.

#define STRATA_TILE_EMULATION
#include "strata/ops/generation/decode_attention.cuh"
#include "strata/cuda/tile/emulation_stored.cuh"

#include <vector>

#include <gtest/gtest.h>

namespace strata::generation {
namespace {

namespace emulation = cuda::tile::emulation;
using emulation::Stored;

struct Case {
  int batch = 1, heads = 1, kv_heads = 1, d = 8, capacity = 1;
  unsigned ranks = 1;
  int window = 0;
  float soft_cap = 0;
};

// A cache, and what a step brings: queries, keys and values of heads beside one another.
template <class T>
struct Problem {
  explicit Problem(const Case& c)
      : of(c),
        k(c.batch, c.kv_heads * c.capacity, c.d, 1),
        v(c.batch, c.kv_heads * c.capacity, c.d, 2),
        packed(1, c.batch, (c.heads + 2 * c.kv_heads) * c.d, 3),
        y(1, c.batch, c.heads * c.d, 4) {
    for (int b = 0; b < c.batch; ++b) places.push_back(b % 2 == 0 ? c.capacity - 1 : (b * 29) % c.capacity);
  }
  int64_t place_step() { return of.kv_heads * of.capacity > 1 ? &k.at(0, 1, 0) - &k.at(0, 0, 0) : of.d; }
  int64_t text_step() { return of.batch > 1 ? &k.at(1, 0, 0) - &k.at(0, 0, 0) : 0; }
  DecodeCall call() {
    DecodeCall c{};
    const int64_t step = place_step(), text = text_step();
    c.k = {&k.at(0, 0, 0), text, of.capacity * step, step}, c.v = {&v.at(0, 0, 0), text, of.capacity * step, step};
    c.q = {&packed.at(0, 0, 0), of.batch > 1 ? &packed.at(0, 1, 0) - &packed.at(0, 0, 0) : 0, of.d, 0};
    c.y = dense.data(), c.places = places.data();
    c.heads = of.heads, c.kv_heads = of.kv_heads, c.group = of.heads / of.kv_heads, c.d = c.dv = of.d;
    c.capacity = of.capacity, c.window = of.window, c.scale = 0.3f, c.soft_cap = of.soft_cap;
    return c;
  }
  // What head h of text b gives for the query, over keys and values that `key` and `value` tell by their place.
  template <class K, class V>
  std::vector<double> attended(int b, const std::vector<double>& query, const K& key, const V& value) {
    const int last = static_cast<int>(places[static_cast<size_t>(b)]);
    const int first = of.window > 0 ? std::max(0, last - of.window + 1) : 0;
    double total = 0;
    std::vector<double> sums(static_cast<size_t>(of.d));
    for (int j = first; j <= last; ++j) {
      double score = 0;
      for (int e = 0; e < of.d; ++e) score += query[static_cast<size_t>(e)] * key(j, e);
      score *= 0.3;
      if (of.soft_cap > 0) score = of.soft_cap * std::tanh(score / of.soft_cap);
      total += std::exp(score);
      for (int e = 0; e < of.d; ++e) sums[static_cast<size_t>(e)] += std::exp(score) * value(j, e);
    }
    for (double& s : sums) s /= total;
    return sums;
  }

  Case of;
  Stored<T> k, v, packed, y;
  std::vector<int64_t> places;
  std::vector<T> dense = std::vector<T>(static_cast<size_t>(of.batch * of.heads * of.d));
};

template <class T, int kLanes, int kHeads, bool kNew>
std::string run(DecodeCall c, const Case& of, uint64_t seed) {
  c.parts = (c.group + kHeads - 1) / kHeads;
  const auto blocks = static_cast<unsigned>(of.batch * of.kv_heads * c.parts);
  const auto kernel = decode::decode_kernel<T, kLanes, kHeads, kNew>;
  constexpr size_t kShared = sizeof(decode::DecodeShared<T, kLanes, kHeads>);
  if (of.ranks == 1) return emulation::launch(kernel, blocks, kDecodeThreads, kShared, seed, c);
  return emulation::launch_clusters(kernel, of.ranks, blocks * of.ranks, kDecodeThreads, kShared, seed, c);
}

template <class T, int kLanes, int kHeads>
void expect_attention(const Case& c, uint64_t seed) {
  SCOPED_TRACE(cat(c.batch, " texts, ", c.heads, " heads, ", c.kv_heads, " of keys, ", c.capacity, " places, ", c.ranks,
                   " blocks, seed ", seed));
  Problem<T> p(c);
  ASSERT_EQ((run<T, kLanes, kHeads, false>(p.call(), c, seed)), "");
  for (int b = 0; b < c.batch; ++b)
    for (int h = 0; h < c.heads; ++h) {
      const int row = h / (c.heads / c.kv_heads) * c.capacity;
      std::vector<double> query;
      for (int e = 0; e < c.d; ++e) query.push_back(p.packed(0, b, h * c.d + e));
      const auto want = p.attended(
          b, query, [&](int j, int e) { return p.k(b, row + j, e); }, [&](int j, int e) { return p.v(b, row + j, e); });
      for (int e = 0; e < c.d; ++e)
        ASSERT_NEAR(emulation::value(p.dense[static_cast<size_t>((b * c.heads + h) * c.d + e)]),
                    want[static_cast<size_t>(e)], 5e-3)
            << b << " " << h << " " << e;
    }
}

// The same with the step's own key and value, turned by `pairs` angles; texts with an odd number rest.
template <class T, int kLanes, int kHeads>
void expect_step(const Case& c, int pairs, uint64_t seed) {
  SCOPED_TRACE(cat(c.batch, " texts, ", c.heads, " heads, ", c.kv_heads, " of keys, ", c.capacity, " places, ", c.ranks,
                   " blocks, seed ", seed));
  const auto rounded = [](double v) { return emulation::value(T(static_cast<float>(v))); };
  Problem<T> p(c), before(c);
  std::vector<float> cos, sin;
  std::vector<int64_t> counts;
  for (int b = 0; b < c.batch; ++b) {
    counts.push_back(b % 2 == 0 ? 1 : 0);
    for (int i = 0; i < pairs; ++i) {
      cos.push_back(std::cos(static_cast<float>(b + 1) * 0.7f / static_cast<float>(i + 1)));
      sin.push_back(std::sin(static_cast<float>(b + 1) * 0.7f / static_cast<float>(i + 1)));
    }
  }
  DecodeCall call = p.call();
  call.cos = cos.data(), call.sin = sin.data(), call.pairs = pairs, call.counts = counts.data();
  call.k_to = &p.k.at(0, 0, 0), call.v_to = &p.v.at(0, 0, 0);
  ASSERT_EQ((run<T, kLanes, kHeads, true>(call, c, seed)), "");
  EXPECT_TRUE(p.k.padding_is_whole());
  EXPECT_TRUE(p.v.padding_is_whole());
  for (int b = 0; b < c.batch; ++b) {
    const auto turned = [&](int head) {
      std::vector<double> x;
      for (int e = 0; e < c.d; ++e) x.push_back(p.packed(0, b, head * c.d + e));
      for (int i = 0; i < pairs; ++i) {
        const double co = cos[static_cast<size_t>(b * pairs + i)], si = sin[static_cast<size_t>(b * pairs + i)];
        double &low = x[static_cast<size_t>(i)], &high = x[static_cast<size_t>(i + pairs)];
        const double l = low, u = high;
        low = rounded(l * co - u * si), high = rounded(l * si + u * co);
      }
      return x;
    };
    const int place = static_cast<int>(p.places[static_cast<size_t>(b)]);
    for (int g = 0; g < c.kv_heads; ++g) {
      const std::vector<double> new_key = turned(c.heads + g);
      const auto new_value = [&](int e) { return p.packed(0, b, (c.heads + c.kv_heads + g) * c.d + e); };
      for (int j = 0; j < c.capacity; ++j)
        for (int e = 0; e < c.d; ++e) {
          const bool written = j == place && counts[static_cast<size_t>(b)] > 0;
          const double key = written ? new_key[static_cast<size_t>(e)] : before.k(b, g * c.capacity + j, e);
          ASSERT_NEAR(p.k(b, g * c.capacity + j, e), key, written ? 8e-3 : 0) << b << " " << g << " " << j;
          ASSERT_EQ(p.v(b, g * c.capacity + j, e), written ? new_value(e) : before.v(b, g * c.capacity + j, e));
        }
      for (int h = g * (c.heads / c.kv_heads); h < (g + 1) * (c.heads / c.kv_heads); ++h) {
        const auto want = p.attended(
            b, turned(h),
            [&](int j, int e) {
              return j == place ? new_key[static_cast<size_t>(e)] : before.k(b, g * c.capacity + j, e);
            },
            [&](int j, int e) { return j == place ? new_value(e) : before.v(b, g * c.capacity + j, e); });
        for (int e = 0; e < c.d; ++e)
          ASSERT_NEAR(emulation::value(p.dense[static_cast<size_t>((b * c.heads + h) * c.d + e)]),
                      want[static_cast<size_t>(e)], 1e-2)
              << b << " " << h << " " << e;
      }
    }
  }
}

TEST(DecodeKernel, IsAttention) {
  if (!emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  for (const uint64_t seed : {0, 1}) {
    expect_attention<BFloat16, 8, 4>({.batch = 2, .heads = 8, .kv_heads = 2, .d = 64, .capacity = 300}, seed);
    expect_attention<Half, 16, 2>({.batch = 1, .heads = 2, .kv_heads = 2, .d = 96, .capacity = 130, .ranks = 2}, seed);
    expect_attention<BFloat16, 8, 4>({.heads = 6, .d = 40, .capacity = 150, .ranks = 4, .window = 90, .soft_cap = 2},
                                     seed);
  }
}

TEST(StepKernel, TurnsAttendsAndWritesTheCache) {
  if (!emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  for (const uint64_t seed : {0, 1, 2}) {
    expect_step<BFloat16, 8, 4>({.batch = 3, .heads = 8, .kv_heads = 2, .d = 64, .capacity = 140}, 32, seed);
    expect_step<Half, 8, 4>({.batch = 2, .heads = 6, .d = 48, .capacity = 300, .ranks = 4}, 16, seed);
    expect_step<BFloat16, 16, 4>({.heads = 4, .d = 128, .capacity = 70, .ranks = 2, .window = 20, .soft_cap = 3}, 64,
                                 seed);
    expect_step<Half, 4, 1>({.batch = 2, .heads = 2, .kv_heads = 2, .d = 16, .capacity = 1}, 8, seed);
  }
}

}  // namespace
}  // namespace strata::generation
