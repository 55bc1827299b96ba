// The attention kernels on every instruction-set level against sums in double, and what the generated tests do not
// cover: packed layouts, many tiles, bits that do not depend on the number of threads, memory that does not grow with
// T^2.

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/parallel.h"
#include "strata/memory/allocator.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/attention/attention_definition_record.h"
#include "strata/ops/attention/attention_kernel.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/vec/level.h"

namespace strata {
namespace {

struct Config {
  int64_t batch, heads, kv_heads, tq, tk, d, dv;
  bool causal;
  int64_t window, offset;
  enum { none, boolean, additive } mask;
};

double value_of(double v) {
  return v;
}
template <class T>
double value_of(T v) {
  return static_cast<float>(v);
}

// One call with queries, keys and values as [B, T, H, D], and the same computed in double.
template <class T>
struct Case {
  using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Config c;
  std::vector<T> q, k, v, out, go, gq, gk, gv;
  std::vector<R> lse;
  std::vector<float> additive;
  std::vector<uint8_t> seen;
  AttentionCall call;

  static std::vector<T> numbers(int64_t n, unsigned seed) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    std::vector<T> r(static_cast<size_t>(n));
    for (T& x : r) x = T(normal(rng));
    return r;
  }
  static AttentionView heads_of(std::vector<T>& t, int64_t time, int64_t heads, int64_t size) {
    return {t.data(), time * heads * size, size, heads * size};
  }

  explicit Case(const Config& config) : c(config) {
    q = numbers(c.batch * c.tq * c.heads * c.d, 1);
    k = numbers(c.batch * c.tk * c.kv_heads * c.d, 2);
    v = numbers(c.batch * c.tk * c.kv_heads * c.dv, 3);
    go = numbers(c.batch * c.tq * c.heads * c.dv, 4);
    out.resize(go.size());
    gq.resize(q.size());
    gk.resize(k.size());
    gv.resize(v.size());
    lse.resize(static_cast<size_t>(c.batch * c.heads * c.tq));
    std::mt19937 rng(5);
    for (int64_t i = 0; i < c.tq * c.tk; ++i) {
      additive.push_back(static_cast<float>(rng() % 1000) / 500 - 1);
      seen.push_back(rng() % 3 != 0);
    }
    call.dtype = dtype_of<T>;
    call.batch = c.batch;
    call.heads = c.heads;
    call.kv_heads = c.kv_heads;
    call.tq = c.tq;
    call.tk = c.tk;
    call.d = c.d;
    call.dv = c.dv;
    call.scale = 0.9 / std::sqrt(static_cast<double>(c.d));
    call.causal = c.causal;
    call.window = c.window;
    call.offset = c.offset;
    if (c.mask != Config::none) {
      call.mask = c.mask == Config::boolean ? static_cast<const void*>(seen.data()) : additive.data();
      call.mask_dtype = c.mask == Config::boolean ? DType::boolean : DType::f32;
      call.mask_stride[2] = c.tk;
      call.mask_stride[3] = 1;
    }
    call.q = heads_of(q, c.tq, c.heads, c.d);
    call.k = heads_of(k, c.tk, c.kv_heads, c.d);
    call.v = heads_of(v, c.tk, c.kv_heads, c.dv);
    call.out = heads_of(out, c.tq, c.heads, c.dv);
    call.lse = lse.data();
    call.lse_head = call.tq;
    call.grad_out = heads_of(go, c.tq, c.heads, c.dv);
    call.grad_q = heads_of(gq, c.tq, c.heads, c.d);
    call.grad_k = heads_of(gk, c.tk, c.kv_heads, c.d);
    call.grad_v = heads_of(gv, c.tk, c.kv_heads, c.dv);
  }

  void run() {
    attention_forward_cpu(call);
    attention_backward_cpu(call);
  }

  // The largest error of results and of gradients.
  std::pair<double, double> errors() const {
    std::vector<double> rq(q.size()), rk(k.size()), rv(v.size()), p(static_cast<size_t>(c.tk));
    double forward = 0, backward = 0;
    const auto worse = [](double& worst, double e) {
      if (!(e <= worst)) worst = e;  // NaN counts
    };
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t h = 0; h < c.heads; ++h)
        for (int64_t i = 0; i < c.tq; ++i) {
          const int64_t hk = h / (c.heads / c.kv_heads);
          const size_t qi = static_cast<size_t>(((b * c.tq + i) * c.heads + h) * c.d);
          const size_t oi = static_cast<size_t>(((b * c.tq + i) * c.heads + h) * c.dv);
          const auto ki = [&](int64_t j) { return static_cast<size_t>(((b * c.tk + j) * c.kv_heads + hk) * c.d); };
          const auto vi = [&](int64_t j) { return static_cast<size_t>(((b * c.tk + j) * c.kv_heads + hk) * c.dv); };
          double top = -INFINITY, sum = 0, delta = 0;
          for (int64_t j = 0; j < c.tk; ++j) {
            double s = 0;
            for (int64_t e = 0; e < c.d; ++e) s += value_of(q[qi + e]) * value_of(k[ki(j) + e]);
            s *= call.scale;
            const size_t m = static_cast<size_t>(i * c.tk + j);
            if (c.mask == Config::additive) s += additive[m];
            const bool hidden = (c.mask == Config::boolean && !seen[m]) || (c.causal && j > i + c.offset) ||
                                (c.window > 0 && std::abs(i + c.offset - j) >= c.window);
            p[j] = hidden ? -INFINITY : s;
            top = std::max(top, p[j]);
          }
          for (double& x : p) sum += x = top == -INFINITY ? 0 : std::exp(x - top);
          if (sum == 0) {
            EXPECT_EQ(lse[(b * c.heads + h) * c.tq + i], -INFINITY);
          } else {
            worse(forward, std::abs(lse[(b * c.heads + h) * c.tq + i] - (top + std::log(sum))) / 4);
            for (double& x : p) x /= sum;
          }
          for (int64_t e = 0; e < c.dv; ++e) {
            double o = 0;
            for (int64_t j = 0; j < c.tk; ++j) o += p[j] * value_of(v[vi(j) + e]);
            worse(forward, std::abs(o - value_of(out[oi + e])));
            delta += o * value_of(go[oi + e]);
          }
          for (int64_t j = 0; j < c.tk; ++j) {
            if (p[j] == 0) continue;
            double dp = 0;
            for (int64_t e = 0; e < c.dv; ++e) {
              dp += value_of(go[oi + e]) * value_of(v[vi(j) + e]);
              rv[vi(j) + e] += p[j] * value_of(go[oi + e]);
            }
            const double ds = p[j] * (dp - delta) * call.scale;
            for (int64_t e = 0; e < c.d; ++e) {
              rq[qi + e] += ds * value_of(k[ki(j) + e]);
              rk[ki(j) + e] += ds * value_of(q[qi + e]);
            }
          }
        }
    const auto compare = [&](const std::vector<double>& want, const std::vector<T>& got) {
      for (size_t i = 0; i < want.size(); ++i)
        worse(backward, std::abs(want[i] - value_of(got[i])) / (1 + std::abs(want[i])));
    };
    compare(rq, gq);
    compare(rk, gk);
    compare(rv, gv);
    return {forward, backward};
  }
};

const Config kConfigs[] = {
    {1, 2, 2, 32, 32, 32, 32, false, 0, 0, Config::none},    // whole tiles
    {2, 3, 3, 70, 70, 32, 32, true, 0, 0, Config::none},     // a part of a tile at the end
    {1, 4, 2, 100, 133, 40, 24, true, 0, 33, Config::none},  // grouped heads, earlier keys, odd sizes
    {1, 2, 1, 65, 300, 64, 64, false, 0, 0, Config::additive},
    {1, 2, 2, 300, 300, 64, 64, true, 50, 0, Config::none},  // keys before the window are skipped
    {1, 2, 2, 97, 97, 16, 16, false, 9, 0, Config::boolean},
    {1, 1, 1, 1, 77, 64, 64, true, 0, 76, Config::none},       // one query against a cache
    {2, 2, 2, 33, 31, 7, 5, true, 0, -3, Config::none},        // the first queries see nothing
    {1, 1, 1, 600, 1100, 64, 32, true, 0, 400, Config::none},  // keys in several tasks
    {1, 1, 1, 5, 3, 1, 1, false, 0, 0, Config::boolean},
    {1, 2, 2, 40, 40, 128, 128, true, 0, 0, Config::none},
};

struct Level {
  explicit Level(int level) { set_vec_level(level); }
  ~Level() { set_vec_level(-1); }
};
struct Threads {
  int before = num_threads();
  ~Threads() { set_num_threads(before); }
};

template <class T>
void check_all(double forward, double backward) {
  for (int level = 0; level <= 3; ++level) {
    Level at(level);
    if (vec_level() != level) continue;  // this processor ends below
    for (size_t i = 0; i < std::size(kConfigs); ++i) {
      Case<T> c(kConfigs[i]);
      c.run();
      const auto [f, b] = c.errors();
      EXPECT_LT(f, forward) << "level " << level << ", configuration " << i;
      EXPECT_LT(b, backward) << "level " << level << ", configuration " << i;
    }
  }
}

TEST(Attention, MatchesTheDefinitionInF64) {
  check_all<double>(1e-13, 1e-13);
}
TEST(Attention, MatchesTheDefinitionInF32) {
  check_all<float>(4e-6, 4e-6);
}
// The operands' last bit is 4e-3 (bf16) or 5e-4 (f16) of their size, and results here are of size 1 to 3.
TEST(Attention, MatchesTheDefinitionInBf16) {
  check_all<BFloat16>(1.5e-2, 1.5e-2);
}
TEST(Attention, MatchesTheDefinitionInF16) {
  check_all<Half>(2e-3, 2e-3);
}

// A kernel that ignored the mask would be caught.
TEST(Attention, ComparisonNoticesAWrongMask) {
  Case<float> c({1, 1, 1, 40, 40, 16, 16, true, 0, 0, Config::none});
  c.call.causal = false;
  c.run();
  EXPECT_GT(c.errors().first, 1e-2);
}

TEST(Attention, BitsDoNotDependOnTheNumberOfThreads) {
  Threads restore;
  for (const Config& config : kConfigs) {
    set_num_threads(1);
    Case<BFloat16> one(config);
    one.run();
    for (int threads : {2, 3, 8}) {
      set_num_threads(threads);
      Case<BFloat16> many(config);
      many.run();
      for (auto member : {&Case<BFloat16>::out, &Case<BFloat16>::gq, &Case<BFloat16>::gk, &Case<BFloat16>::gv})
        EXPECT_EQ(std::memcmp((one.*member).data(), (many.*member).data(), (one.*member).size() * 2), 0)
            << threads << " threads";
    }
  }
}

TEST(Attention, DroppedWeightsAreThoseOfTheKey) {
  // With v = identity the result's row i holds the weights of query i.
  const int64_t t = 40;
  Case<float> c({1, 2, 2, t, t, 8, t, false, 0, 0, Config::none});
  for (int64_t j = 0; j < t; ++j)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t e = 0; e < t; ++e) c.v[static_cast<size_t>((j * 2 + h) * t + e)] = e == j;
  c.run();
  const std::vector<float> whole = c.out;
  c.call.dropout = 0.25;
  c.call.key = {11, 5};
  c.call.numbers = WeightNumbers::whole(2, t, t);
  c.run();
  int64_t dropped = 0;
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t i = 0; i < t; ++i)
      for (int64_t j = 0; j < t; ++j) {
        const uint64_t n = static_cast<uint64_t>((h * t + i) * t + j);
        const bool keep = uniform_f32(philox({11, 5}, n / 4)[n % 4]) >= 0.25f;
        const size_t at = static_cast<size_t>((i * 2 + h) * t + j);
        EXPECT_NEAR(c.out[at], keep ? whole[at] / 0.75f : 0, 1e-6);
        dropped += !keep;
      }
  EXPECT_GT(dropped, 600);
  EXPECT_LT(dropped, 1000);
}

// Forward leaves dropout's bits to backward; a caller without them draws again.
TEST(Attention, GradientsByBitsOfForwardAreThoseByNumbersDrawnAgain) {
  for (const bool causal : {false, true}) {
    detail::AttentionArguments a;
    a.is_causal = causal, a.dropout_p = 0.3, a.key = RngKey{11, 5}, a.window = causal ? 50 : 0;
    Tensor q = randn({2, 4, 70, 8}), k = randn({2, 2, 90, 8}), v = randn({2, 2, 90, 8});
    for (Tensor* x : {&q, &k, &v}) x->set_requires_grad();
    const auto [out, lse] = detail::attention_with_lse(q, k, v, {}, a);
    const Tensor gout = randn(out.shape());
    const std::vector<Tensor> by_bits = grad({out}, {q, k, v}, {gout});
    const auto [gq, gk, gv] =
        detail::attention_gradients(gout, {}, q.detach(), k.detach(), v.detach(), out.detach(), lse.detach(), a);
    EXPECT_TRUE(equal(by_bits[0], gq));
    EXPECT_TRUE(equal(by_bits[1], gk));
    EXPECT_TRUE(equal(by_bits[2], gv));
  }
}

TEST(Attention, ADroppedWeightsNumberIsBelowABoundThatIsNeverZero) {
  EXPECT_EQ(drop_below(0), 0u);
  EXPECT_EQ(drop_below(0.5), 1u << 31);
  EXPECT_EQ(drop_below(0.99999999), ~0u) << "f32 rounds it to 1";
  for (const double p : {1e-12, 1e-7, 0.1, 0.2, 0.75, 1 - 1e-7})
    for (const int64_t by : {-256, -1, 0, 1, 255}) {
      const int64_t bits = static_cast<int64_t>(drop_below(p)) + by;
      if (bits < 0 || bits > UINT32_MAX) continue;
      EXPECT_EQ(static_cast<uint32_t>(bits) < drop_below(p),
                uniform_f32(static_cast<uint32_t>(bits)) < static_cast<float>(p))
          << p << " " << by;
    }
}

TEST(Attention, StoresNoMatrixOfScores) {
  const int before_threads = num_threads();
  set_num_threads(2);  // each thread has workspace of its own
  const int64_t t = 3000, d = 16;
  Tensor q = ones({1, 1, t, d}), k = ones({1, 1, t, d}), v = ones({1, 1, t, d});
  for (Tensor* x : {&q, &k, &v}) x->set_requires_grad();
  memory::reset_peak(DeviceType::cpu);
  const int64_t before = memory::stats(DeviceType::cpu).live_total;
  const Tensor y = scaled_dot_product_attention(q, k, v, {}, {.is_causal = true});
  y.backward(ones({1, 1, t, d}));
  const int64_t growth = memory::stats(DeviceType::cpu).peak_total - before;
  set_num_threads(before_threads);
  EXPECT_LT(growth, t * t * 4 / 4) << "a quarter of one f32 matrix of scores";
  EXPECT_GT(growth, t * d * 4 * 4) << "the result and three gradients at least: else this measures nothing";
}

TEST(Attention, DryRunsOfGradientsOfGradientsTakeNoMemory) {
  const Tensor q = empty({{1, 1, 65536, 8}, DType::f32, Device::meta(), std::nullopt}).set_requires_grad();
  const Tensor y = scaled_dot_product_attention(q, q, q, {}, 0, true);
  const Tensor g = grad({y}, {q}, {empty(like(y))}, true)[0];
  EXPECT_EQ(grad({g}, {q}, {empty(like(g))})[0].shape(), q.shape());
}

TEST(Attention, WindowsBehindTheLastKeySeeNothing) {
  for (DType t : {DType::f32, DType::bf16, DType::f64}) {
    for (int64_t offset : {3, 7, 41, 100}) {
      Tensor q = ones({1, 1, 5, 8}, t), k = ones({1, 1, 3, 8}, t), v = ones({1, 1, 3, 8}, t);
      for (Tensor* x : {&q, &k, &v}) x->set_requires_grad();
      const Tensor y =
          scaled_dot_product_attention(q, k, v, {}, {.is_causal = true, .window = 1, .query_offset = offset});
      y.backward(ones({1, 1, 5, 8}, t));
      for (const Tensor& x : {y, q.grad(), k.grad(), v.grad()})
        for (double e : x.to_vector<double>()) EXPECT_EQ(e, 0) << name_of(t) << " offset " << offset;
    }
  }
}

TEST(Attention, SequencesOfDifferentLengthsSeeThemselvesAlone) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  std::vector<int64_t> q_ends{0}, k_ends{0};
  for (int i = 0; i < 19; ++i) q_ends.push_back(q_ends.back() + i % 5), k_ends.push_back(k_ends.back() + 3 + i % 4);
  const auto numbers = [&](int64_t rows, int64_t heads) {
    Tensor x = empty({rows, heads, 8});
    for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = normal(rng);
    x.set_requires_grad();
    return x;
  };
  const Tensor q = numbers(q_ends.back(), 4), k = numbers(k_ends.back(), 2), v = numbers(k_ends.back(), 2);
  const AttentionOptions o{.is_causal = true, .query_offset = 1};
  const Tensor y = varlen_attention(q, k, v, q_ends, k_ends, o);
  ASSERT_EQ(y.shape(), q.shape());
  // The same as one call with a mask that hides the other sequences.
  std::vector<double> seen(static_cast<size_t>(q_ends.back() * k_ends.back()));
  for (size_t s = 0; s + 1 < q_ends.size(); ++s)
    for (int64_t i = q_ends[s]; i < q_ends[s + 1]; ++i)
      for (int64_t j = k_ends[s]; j < k_ends[s + 1]; ++j)
        seen[static_cast<size_t>(i * k_ends.back() + j)] = j - k_ends[s] <= i - q_ends[s] + 1;
  const Tensor mask = from_span<double>(seen, {q_ends.back(), k_ends.back()}).to(DType::boolean);
  const auto heads_first = [](const Tensor& x) { return x.transpose(0, 1).unsqueeze(0); };
  const Tensor whole = scaled_dot_product_attention(heads_first(q), heads_first(k), heads_first(v), mask);
  const Tensor want = whole.squeeze(0).transpose(0, 1), g = ones(q.shape());
  const std::vector<Tensor> a = grad({y}, {q, k, v}, {g}), b = grad({want}, {q, k, v}, {g});
  EXPECT_TRUE(allclose(y, want, 1e-5, 1e-5));
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(allclose(a[i], b[i], 1e-4, 1e-5)) << i;
  // The form for lengths of the device takes rows behind the last sequence, which see nothing.
  const auto on_device = [](std::vector<int64_t> ends) {
    return from_span<int64_t>(ends, {static_cast<int64_t>(ends.size())});
  };
  const Tensor early = varlen_attention(q, k, v, on_device({0, 2, 2, 9}), on_device({0, 3, 7, 12}), o);
  const Tensor none = early.narrow(0, 9, q_ends.back() - 9);
  EXPECT_TRUE(equal(none, none * 0));
  EXPECT_TRUE(allclose(early.narrow(0, 0, 2), varlen_attention(q.narrow(0, 0, 2), k.narrow(0, 0, 3), v.narrow(0, 0, 3),
                                                               on_device({0, 2}), on_device({0, 3}), o)));
  EXPECT_THROW(varlen_attention(q, k, v, on_device({0, 5, 3}), on_device({0, 1, 2})), ShapeError);
  EXPECT_THROW(varlen_attention(q, k, v, on_device({0, 5}), on_device({0, 1000})), ShapeError);
  EXPECT_THROW(varlen_attention(q, k, v, k_ends, k_ends), ShapeError);
  EXPECT_THROW(varlen_attention(q, k, v, std::vector<int64_t>{0, q_ends.back()}, k_ends), ShapeError);
  EXPECT_THROW(varlen_attention(q, k, v, std::vector<int64_t>{0, 5, 3, q_ends.back()},
                                std::vector<int64_t>{0, 1, 2, k_ends.back()}),
               ShapeError);
}

TEST(Attention, ResultIsContiguousWithHeadsInside) {
  const Tensor q = ones({2, 3, 5, 4});
  const Tensor y = scaled_dot_product_attention(q, q, q);
  EXPECT_EQ(y.shape(), q.shape());
  EXPECT_TRUE(y.transpose(1, 2).is_contiguous());
}

TEST(Attention, PackedEqualsSeparateHeads) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  Tensor qkv = empty({2, 37, (4 + 2 * 2) * 8});
  for (int64_t i = 0; i < qkv.numel(); ++i) qkv.data<float>()[i] = normal(rng);
  qkv.set_requires_grad();
  const AttentionOptions o{.is_causal = true, .window = 20};
  const auto heads = [&](int64_t first, int64_t n) {
    return qkv.narrow(2, first * 8, n * 8).reshape({2, 37, n, 8}).transpose(1, 2);
  };
  const Tensor packed = packed_attention(qkv, 4, 2, o);
  const Tensor separate =
      scaled_dot_product_attention(heads(0, 4), heads(4, 2), heads(6, 2), {}, o).transpose(1, 2).reshape({2, 37, 32});
  const Tensor g = ones({2, 37, 32});
  const Tensor a = grad({packed}, {qkv}, {g})[0], b = grad({separate}, {qkv}, {g})[0];
  ASSERT_EQ(a.shape(), b.shape());
  for (int64_t i = 0; i < packed.numel(); ++i) EXPECT_EQ(packed.data<float>()[i], separate.data<float>()[i]);
  const Tensor ac = a.contiguous(), bc = b.contiguous();
  for (int64_t i = 0; i < a.numel(); ++i) EXPECT_EQ(ac.data<float>()[i], bc.data<float>()[i]);
}

// Weights below the normal numbers count as 0, in the kernel alone.
TEST(Attention, PeakedScoresAreExactAndLeaveDenormalNumbersAsTheyWere) {
  std::mt19937 rng(9);
  std::normal_distribution<float> normal;
  Tensor q = empty({1, 2, 40, 16}), k = empty({1, 2, 70, 16}), v = empty({1, 2, 70, 16});
  for (const Tensor& t : {q, k, v})
    for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = normal(rng) * (t.same_as(v) ? 1.0f : 6.0f);
  const auto run = [&](DType t) {
    TensorList in;
    for (const Tensor& x : {q, k, v}) in.push_back(x.to(t).clone().set_requires_grad());
    const Tensor y = scaled_dot_product_attention(in[0], in[1], in[2]);
    TensorList all = grad({y}, in, {ones_like(y)});
    all.push_back(y);
    return all;
  };
  const TensorList single = run(DType::f32), wide = run(DType::f64);
  for (size_t i = 0; i < single.size(); ++i) EXPECT_TRUE(allclose(single[i].to(DType::f64), wide[i], 1e-3, 1e-3)) << i;
  volatile float small = 1e-39f;
  EXPECT_GT(small * 0.5f, 0.0f);
}

TEST(Rotary, KeepsLengthsAndDependsOnDistanceOnly) {
  const auto [cos, sin] = rotary_tables(10, 8);
  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  Tensor q = empty({1, 10, 8}), k = empty({1, 10, 8});
  // The same query and key at every position.
  for (int64_t i = 0; i < 8; ++i) {
    const float a = normal(rng), b = normal(rng);
    for (int64_t t = 0; t < 10; ++t) {
      q.data<float>()[t * 8 + i] = a;
      k.data<float>()[t * 8 + i] = b;
    }
  }
  for (bool interleaved : {false, true}) {
    const Tensor rq = rotary(q, cos, sin, interleaved), rk = rotary(k, cos, sin, interleaved);
    const auto dot = [&](int64_t i, int64_t j) {
      double s = 0;
      for (int64_t e = 0; e < 8; ++e) s += rq.data<float>()[i * 8 + e] * rk.data<float>()[j * 8 + e];
      return s;
    };
    for (int64_t i = 3; i < 10; ++i) EXPECT_NEAR(dot(i, i - 3), dot(3, 0), 1e-4);
    EXPECT_GT(std::abs(dot(9, 0) - dot(3, 0)), 1e-3);
  }
}

}  // namespace
}  // namespace strata
