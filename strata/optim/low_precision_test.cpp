// Parameters of bf16 and f16: beside the same rule in f64, rounding, determinism, state.
#include "strata/optim/low_precision.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>

#include "strata/autograd/autograd.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/nn/layers.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/loss_scaler.h"
#include "strata/optim/optim.h"
#include "strata/optim/optim_test_util.h"
#include "strata/optim/rounding_inl.h"

namespace strata::optim {
namespace {

using Make = std::function<std::unique_ptr<Optimizer>(const NamedTensors&, const LowPrecision&)>;
struct NamedRule {
  const char* name;
  Make make;
};
template <class O, class Options>
NamedRule rule(const char* name, Options options) {
  return {name, [options](const NamedTensors& params, const LowPrecision& low) -> std::unique_ptr<Optimizer> {
            Options o = options;
            o.low = low;
            return std::make_unique<O>(params, o);
          }};
}
const std::vector<NamedRule>& rules() {
  static const std::vector<NamedRule> all{
      rule<SGD>("sgd", SGDOptions{.lr = 0.03, .weight_decay = 0.1}),
      rule<SGD>("momentum", SGDOptions{.lr = 0.02, .momentum = 0.9, .dampening = 0.1}),
      rule<SGD>("nesterov", SGDOptions{.lr = 0.02, .momentum = 0.9, .nesterov = true}),
      rule<Adam>("adam", AdamOptions{.lr = 0.02, .weight_decay = 0.1}),
      rule<AdamW>("adamw", AdamWOptions{.lr = 0.02, .weight_decay = 0.1}),
      rule<AdamW>("amsgrad", AdamWOptions{.lr = 0.02, .weight_decay = 0.1, .amsgrad = true}),
      rule<RMSprop>("rmsprop", RMSpropOptions{.lr = 0.01}),
      rule<RMSprop>("rmsprop_momentum", RMSpropOptions{.lr = 0.01, .momentum = 0.5}),
      rule<RMSprop>("rmsprop_centered", RMSpropOptions{.lr = 0.01, .eps = 1e-2, .centered = true}),
      rule<Adagrad>("adagrad", AdagradOptions{.lr = 0.05}),
      rule<Adadelta>("adadelta", AdadeltaOptions{.lr = 1}),
      rule<Adamax>("adamax", AdamaxOptions{.lr = 0.02}),
      rule<NAdam>("nadam", NAdamOptions{.lr = 0.02}),
      rule<RAdam>("radam", RAdamOptions{.lr = 0.02, .weight_decay = 0.1, .decoupled_weight_decay = true}),
      rule<Rprop>("rprop", RpropOptions{.lr = 0.02}),
      rule<ASGD>("asgd", ASGDOptions{.lr = 0.03, .lambd = 0.1, .t0 = 3, .weight_decay = 0.1}),
      rule<Lion>("lion", LionOptions{.lr = 0.01, .weight_decay = 0.1}),
      rule<Adafactor>("adafactor", AdafactorOptions{.lr = 0.05, .weight_decay = 0.1}),
      rule<Muon>("muon", MuonOptions{.lr = 0.02}),
      rule<Muon>("muon_adamw", MuonOptions{.lr = 0.02, .use_adamw = true}),
  };
  return all;
}

std::vector<uint8_t> bytes(const Tensor& t) {
  const auto* p = static_cast<const uint8_t*>(t.raw_data());
  return {p, p + t.nbytes()};
}

// The distance between x and the next number of `dtype` away from zero.
double ulp(double x, DType dtype) {
  const int digits = dtype == DType::bf16 ? 8 : 11, least = dtype == DType::bf16 ? -133 : -24;
  return std::ldexp(1, std::max(x == 0 ? least : std::ilogb(x) + 1 - digits, least));
}

struct Case {
  DType dtype, grad;
  LowPrecision low;
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (DType dtype : {DType::bf16, DType::f16})
    for (DType grad : {dtype, DType::f32}) {
      all.push_back({dtype, grad, {}});
      all.push_back({dtype, grad, {.master_weights = true}});
      if (dtype == DType::bf16) all.push_back({dtype, grad, {.stochastic_rounding = true, .seed = 3}});
    }
  return all;
}

TEST(LowPrecision, EveryRuleFollowsItselfInDoublePrecision) {
  for (const NamedRule& r : rules())
    for (const Case& c : cases())
      for (const Shape& shape : {Shape{1037}, Shape{9, 21}}) {
        SCOPED_TRACE(cat(r.name, " ", c.dtype, " grad ", c.grad, " master ", c.low.master_weights, " stochastic ",
                         c.low.stochastic_rounding, " ", shape));
        Tensor p = start(shape, c.dtype), wide = leaf(to(p.detach(), DType::f64));
        auto o = r.make({{"p", p}}, c.low), in_double = r.make({{"p", wide}}, {});
        Samples random(DType::f32, 7);
        const double rule_error = std::string_view(r.name) == "muon" ? 1e-4 : 1e-5;
        for (int t = 1; t <= 12; ++t) {
          const Tensor g = to(random.tensor(shape), c.grad);
          p.set_grad(g);
          wide.set_grad(to(g, DType::f64));
          o->step();
          in_double->step();
          const Doubles got = values(p), want = values(wide);
          if (c.low.master_weights) {
            const Tensor master = o->state_dict().at("p.master");
            EXPECT_EQ(bytes(p), bytes(to(master, c.dtype)));
            const Doubles weights = values(master);
            for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(weights[i], want[i], t * rule_error) << i;
            continue;
          }
          // A half of the last bit, or the whole of it.
          const double part = c.low.stochastic_rounding ? 1 : 0.5;
          for (size_t i = 0; i < want.size(); ++i)
            ASSERT_NEAR(got[i], want[i],
                        part * ulp(std::max(std::abs(got[i]), std::abs(want[i])), c.dtype) + rule_error)
                << i;
          NoGrad guard;
          wide.copy_(to(p.detach(), DType::f64));  // goes on from what there is
        }
      }
}

// How an update that a device takes for the first gets the random bits of its own number.
static_assert(rounding_key(17 + 4 * kRoundingStride, 1) == rounding_key(17, 5));

TEST(LowPrecision, GradientsOf16BitsInF32Parameters) {
  for (const NamedRule& r : rules()) {
    Tensor p = start({9, 21}), q = leaf(p);
    auto a = r.make({{"p", p}}, {}), b = r.make({{"p", q}}, {});
    for (DType dtype : {DType::f16, DType::bf16}) {
      const Tensor g = to(Samples(DType::f32, 5).tensor(p.shape()), dtype);
      p.set_grad(g);
      q.set_grad(to(g, DType::f32));
      a->step();
      b->step();
    }
    EXPECT_EQ(bytes(p), bytes(q)) << r.name;
  }
}

TEST(LowPrecision, StochasticRoundingIsUnbiased) {
  constexpr int64_t n = 1 << 20;
  const double bit = 1.0 / 128;  // from 1 to the next bf16
  for (const double part : {0.03, 0.3, 0.5, 0.9}) {
    Tensor p = leaf(ones({n}, DType::bf16)), down = leaf(full({n}, -1.0, DType::bf16));
    SGD o(TensorList{p, down}, {.lr = 1, .low = {.stochastic_rounding = true, .seed = 17}});
    p.set_grad(full({n}, -part * bit));
    down.set_grad(full({n}, part * bit));
    o.step();
    const double sigma = bit * std::sqrt(part * (1 - part) / n);
    const auto mean_of = [](const Tensor& t) { return mean(to(t.detach(), DType::f64)).item(); };
    EXPECT_NEAR(mean_of(p), 1 + part * bit, 4 * sigma) << part;
    EXPECT_NEAR(mean_of(down), -1 - part * bit, 4 * sigma) << part;
    for (double v : values(p)) ASSERT_TRUE(v == 1 || v == 1 + bit);
  }
  // Over many steps, each a hundredth of the last bit: to nearest nothing would ever move.
  constexpr int64_t few = 4096;
  constexpr int steps = 1000;
  Tensor p = leaf(ones({few}, DType::bf16)), stuck = leaf(ones({few}, DType::bf16));
  SGD o(TensorList{p}, {.lr = 1, .low = {.stochastic_rounding = true}}), nearest(TensorList{stuck}, {.lr = 1});
  p.set_grad(full({few}, -0.01 * bit));
  stuck.set_grad(full({few}, -0.01 * bit));
  for (int i = 0; i < steps; ++i) {
    o.step();
    nearest.step();
  }
  const Doubles moved = values(p);
  double mean = 0, square = 0;
  for (double v : moved) mean += v / few;
  for (double v : moved) square += (v - mean) * (v - mean) / few;
  // Each step's rounding is a coin of its own: the walk's variance is that of 1000 of them.
  const double variance = steps * bit * bit * 0.01 * 0.99;
  EXPECT_NEAR(mean, 1 + steps * 0.01 * bit, 5 * std::sqrt(variance / few));
  EXPECT_NEAR(square, variance, 0.12 * variance);
  EXPECT_EQ(values(stuck), Doubles(few, 1.0));
}

TEST(LowPrecision, RoundingKeepsWhatIsNotFinite) {
  const auto rounded = [](float x, uint32_t random) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    BFloat16 r;
    r.bits = stochastic_bf16(bits, random);
    return static_cast<float>(r);
  };
  for (const uint32_t random : {0u, 0x1234u, 0xffffu}) {
    EXPECT_EQ(rounded(INFINITY, random), INFINITY);
    EXPECT_EQ(rounded(-INFINITY, random), -INFINITY);
    EXPECT_TRUE(std::isnan(rounded(std::nanf(""), random)));
    EXPECT_EQ(rounded(1.5f, random), 1.5f);  // what bf16 has stays
    EXPECT_EQ(rounded(-0.0f, random), 0.0f);
  }
  uint32_t quiet = 0x7f800001;  // a NaN whose bits are all in the lower half
  EXPECT_GT(stochastic_bf16(quiet, 0) & 0x7fu, 0u);
  EXPECT_EQ(rounded(1 + 0x1p-16f, 0xfeff), 1);
  EXPECT_EQ(rounded(1 + 0x1p-8f, 0x8000), 1 + 0x1p-7f);
}

TEST(LowPrecision, RandomBitsFollowFromSeedStepParameterAndElement) {
  const int threads = num_threads();
  const auto run = [](uint64_t seed, int thread_count, const Make& make) {
    set_num_threads(thread_count);
    Tensor a = leaf(to(Samples(DType::f32, 5).tensor({70'001}), DType::bf16)), b = leaf(a.detach().narrow(0, 0, 999));
    auto o = make({{"a", a}, {"b", b}}, {.stochastic_rounding = true, .seed = seed});
    Samples random(DType::f32, 6);
    for (int i = 0; i < 3; ++i) {
      const Tensor g = random.tensor({70'001});
      a.set_grad(g);
      b.set_grad(g.narrow(0, 0, 999));
      o->step();
    }
    return std::pair{bytes(a), bytes(b)};
  };
  for (const NamedRule& r : rules()) {
    const auto one = run(1, 1, r.make);
    EXPECT_EQ(one, run(1, 1, r.make)) << r.name;
    EXPECT_EQ(one, run(1, 2, r.make)) << r.name;
    EXPECT_EQ(one, run(1, 5, r.make)) << r.name;
    EXPECT_NE(one.first, run(2, 1, r.make).first) << r.name;
  }
  // Two parameters with the same numbers are rounded independently; so are two steps.
  Tensor a = leaf(ones({4096}, DType::bf16)), b = leaf(ones({4096}, DType::bf16));
  SGD o(TensorList{a, b}, {.lr = 1, .low = {.stochastic_rounding = true}});
  std::vector<std::vector<uint8_t>> seen;
  for (int i = 0; i < 2; ++i) {
    for (Tensor* t : {&a, &b}) {
      NoGrad guard;
      t->fill_(1);
      t->set_grad(full({4096}, -0x1p-8));
    }
    o.step();
    seen.push_back(bytes(a));
    seen.push_back(bytes(b));
  }
  for (size_t i = 0; i < seen.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(seen[i], seen[j]);
  set_num_threads(threads);
}

TEST(LowPrecision, LowStateIsUnbiasedToo) {
  constexpr int64_t n = 1 << 18;
  constexpr int steps = 20;
  for (const uint64_t seed : {0, 1, 2}) {
    Tensor p = leaf(zeros({n}, DType::bf16));
    AdamW o(TensorList{p}, {.lr = 1e-3, .low = {.stochastic_rounding = true, .low_state = true, .seed = seed}});
    for (int i = 0; i < steps; ++i) {
      p.set_grad(full({n}, 0.3));
      o.step();
    }
    const StateDict state = o.state_dict();
    EXPECT_EQ(state.at("0.exp_avg").dtype(), DType::bf16);
    // Each step's rounding is independent of the others, of at most half of a last bit's deviation.
    const auto expect_mean = [&](const char* key, double beta, double value) {
      double want = 0, variance = 0;
      for (int i = 0; i < steps; ++i) {
        want = beta * want + (1 - beta) * value;
        variance = beta * beta * variance + std::pow(ulp(want, DType::bf16) / 2, 2);
      }
      EXPECT_NEAR(mean(to(state.at(key), DType::f64)).item(), want, 4 * std::sqrt(variance / n)) << key;
    };
    expect_mean("0.exp_avg", 0.9, 0.3);
    expect_mean("0.exp_avg_sq", 0.999, 0.09);
    EXPECT_EQ(o.state_bytes(), n * 4 + 8);
  }
}

TEST(LowPrecision, StateRoundTripIsBitwise) {
  for (const NamedRule& r : rules())
    for (const Case& c : cases())
      for (const bool low_state : {false, true}) {
        if (low_state && !c.low.stochastic_rounding) continue;
        LowPrecision low = c.low;
        low.low_state = low_state;
        Tensor p = start({6, 5}, c.dtype), v = start({37}, c.dtype), q = leaf(p), w = leaf(v);
        auto one = r.make({{"p", p}, {"v", v}}, low), two = r.make({{"p", q}, {"v", w}}, low);
        Samples random(DType::f32, 5);
        for (int t = 0; t < 6; ++t) {
          for (auto [a, b] : {std::pair{&p, &q}, {&v, &w}}) {
            const Tensor g = to(random.tensor(a->shape()), c.grad);
            a->set_grad(g);
            b->set_grad(g);
          }
          one->step_clipped(1);
          two->step_clipped(1);
          StateDict saved;
          int64_t held = 0;
          for (const auto& [key, tensor] : two->state_dict()) {
            saved.emplace(key, clone(tensor));
            held += tensor.nbytes();
          }
          EXPECT_EQ(held, two->state_bytes());
          q = leaf(q);
          w = leaf(w);
          two = r.make({{"p", q}, {"v", w}}, low);
          two->load_state_dict(saved);
        }
        EXPECT_EQ(bytes(p), bytes(q)) << r.name;
        EXPECT_EQ(bytes(v), bytes(w)) << r.name;
      }
}

TEST(LowPrecision, BytesOfTheState) {
  const auto bytes_under = [](DType dtype, const LowPrecision& low) {
    Tensor p = leaf(zeros({1000}, dtype));
    return AdamW(TensorList{p}, {.low = low}).state_bytes();
  };
  EXPECT_EQ(bytes_under(DType::f32, {.master_weights = true}), 8008);
  EXPECT_EQ(bytes_under(DType::bf16, {}), 8008);
  EXPECT_EQ(bytes_under(DType::bf16, {.stochastic_rounding = true}), 8008);
  EXPECT_EQ(bytes_under(DType::bf16, {.low_state = true}), 4008);
  EXPECT_EQ(bytes_under(DType::f16, {.master_weights = true}), 12008);
  Tensor p = leaf(zeros({1000}, DType::bf16));
  EXPECT_EQ(SGD(TensorList{p}).state_bytes(), 0);
  EXPECT_EQ(SGD(TensorList{p}, {.low = {.stochastic_rounding = true}}).state_bytes(), 8);  // the count of its updates
}

TEST(LowPrecision, MixedListsKeepEachInItsOwnWay) {
  Tensor w = start({16, 8}, DType::bf16), norm = start({8}), half = start({8}, DType::f16),
         wide = start({3}, DType::f64);
  Tensor norm_alone = leaf(norm);
  AdamW o({{"w", w}, {"norm", norm}, {"half", half}, {"wide", wide}}, {.lr = 0.01, .low = {.master_weights = true}});
  AdamW alone({{"norm", norm_alone}}, {.lr = 0.01});
  for (Tensor* t : {&w, &norm, &half, &wide, &norm_alone}) t->set_grad(full(t->shape(), 0.25, t->dtype()));
  for (int i = 0; i < 3; ++i) {
    o.step();
    alone.step();
  }
  const StateDict state = o.state_dict();
  EXPECT_TRUE(state.contains("w.master") && state.contains("half.master"));
  EXPECT_FALSE(state.contains("norm.master") || state.contains("wide.master"));
  EXPECT_EQ(state.at("wide.exp_avg").dtype(), DType::f64);
  EXPECT_EQ(bytes(norm), bytes(norm_alone));
  // Decay and clipping by groups.
  Tensor a = leaf(ones({4, 4}, DType::bf16)), b = leaf(ones({4}));
  const auto [matrices, vectors] = split_by_rank({{"a", a}, {"b", b}});
  SGD groups({{matrices, {.lr = 1, .weight_decay = 0.5}}, {vectors, {.lr = 1}}});
  a.set_grad(zeros({4, 4}, DType::bf16));
  b.set_grad(full({4}, 4.0));
  EXPECT_NEAR(groups.step_clipped(1), 8, 1e-6);
  EXPECT_EQ(values(a), Doubles(16, 0.5));
  EXPECT_NEAR(values(b)[0], 0.5, 1e-6);
}

TEST(LowPrecision, MasterWeightsFollowWhoeverWritesTheParameter) {
  Tensor p = leaf(ones({4}, DType::bf16));
  SGD o(TensorList{p}, {.lr = 1, .low = {.master_weights = true}});
  p.set_grad(full({4}, -0x1p-10));
  o.step();
  EXPECT_EQ(values(p), Doubles(4, 1.0));
  {
    NoGrad guard;
    p.narrow(0, 0, 2).fill_(3);
  }
  o.step();
  const Doubles master = values(o.state_dict().at("0.master"));
  EXPECT_EQ(master[0], 3 + 0x1p-10);  // the new value counts
  EXPECT_EQ(master[3], 1 + 0x1p-9);   // what was not written keeps its lower bits
}

TEST(LowPrecision, StateFollowsAParameterThatChangesItsType) {
  for (const bool master : {false, true}) {
    nn::Linear layer(37, 1, false);
    Tensor p = layer.weight;
    AdamW o(layer.named_parameters(), {.lr = 0.01, .low = {.master_weights = master}});
    const auto step = [&] {
      p.set_grad(ones({1, 37}, p.dtype()));
      o.step();
      return o.state_dict();
    };
    step();
    layer.to(DType::f64);
    StateDict state = step();
    EXPECT_EQ(state.at("weight.exp_avg").dtype(), DType::f64);
    EXPECT_NEAR(values(state.at("weight.exp_avg"))[36], 1 - 0.81, 1e-7);
    layer.to(DType::bf16);
    state = step();
    EXPECT_EQ(state.at("weight.exp_avg").dtype(), DType::f32);
    EXPECT_NEAR(values(state.at("weight.exp_avg"))[36], 1 - 0.729, 1e-7);
    EXPECT_EQ(state.contains("weight.master"), master);
  }
}

TEST(LowPrecision, GradientsOf16BitsAreClippedAndMeasured) {
  for (DType dtype : {DType::bf16, DType::f16}) {
    Tensor p = leaf(zeros({2049}, dtype));
    p.set_grad(full({2049}, 0.5, dtype));
    const double norm = 0.5 * std::sqrt(2049.0);
    EXPECT_NEAR(grad_norm({p}), norm, 1e-12 * norm);
    EXPECT_NEAR(clip_grad_norm({p}, norm / 2), norm, 1e-12 * norm);
    EXPECT_NEAR(grad_norm({p}), norm / 2, 2e-3 * norm);
    clip_grad_value({p}, 0.125);
    EXPECT_EQ(values(p.grad()), Doubles(2049, 0.125));
  }
}

TEST(LowPrecision, HalfPrecisionWithALossScale) {
  Tensor p = leaf(full({8}, 1.0, DType::f16));
  AdamW o(TensorList{p}, {.lr = 1e-4, .low = {.master_weights = true}});
  LossScaler scaler(Device::cpu(), {.init = 4096, .growth_interval = 3});
  const auto step = [&](double factor) {
    o.zero_grad();
    const Tensor loss = sum(p * Scalar(factor));
    scaler.scale(loss).backward();
    const Tensor report = o.step_guarded({.max_norm = 1, .scaler = &scaler});
    return StepReport::of(report.data<double>());
  };
  EXPECT_EQ(step(1e-7).outcome, StepReport::updated);  // a gradient that f16 has only when it is scaled
  EXPECT_LT(values(o.state_dict().at("0.master"))[0], 1);
  EXPECT_EQ(step(100).outcome, StepReport::skipped);
  EXPECT_EQ(scaler.value(), 2048);
  EXPECT_EQ(o.state_dict().at("0.step").item<int64_t>(), 1);
}

TEST(LowPrecision, RefusesWhatDoesNotGoTogether) {
  const TensorList bf16{leaf(ones({4}, DType::bf16))}, f16{leaf(ones({4}, DType::f16))};
  EXPECT_THROW(SGD(bf16, {.low = {.master_weights = true, .stochastic_rounding = true}}), ValueError);
  EXPECT_THROW(AdamW(bf16, {.low = {.master_weights = true, .low_state = true}}), ValueError);
  EXPECT_THROW(Adam(f16, {.low = {.stochastic_rounding = true}}), DTypeError);
  EXPECT_THROW(Lion(f16, {.low = {.low_state = true}}), DTypeError);
  EXPECT_THROW(SGD(TensorList{ones({4}, DType::i64)}), DTypeError);
  // A state that was saved under another choice.
  AdamW plain(bf16), master(bf16, {.low = {.master_weights = true}});
  Tensor p = bf16[0];
  p.set_grad(ones({4}, DType::bf16));
  plain.step();
  EXPECT_THROW(master.load_state_dict(plain.state_dict()), ValueError);
  master.step();
  EXPECT_THROW(plain.load_state_dict(master.state_dict()), ValueError);
}

// A small network that learns a function; its last loss, over the last steps.
double trained(DType dtype, const LowPrecision& low, double lr) {
  Samples random(DType::f32, 21);
  const Tensor x = random.tensor({256, 8}),
               target = (matmul(x, random.tensor({8, 1})).tanh() + x.narrow(1, 0, 1)) * 0.5;
  Tensor w1 = leaf((random.tensor({8, 32}) * 0.35).to(dtype)), w2 = leaf((random.tensor({32, 1}) * 0.2).to(dtype));
  AdamW o({{"w1", w1}, {"w2", w2}}, {.lr = lr, .weight_decay = 0, .low = low});
  double last = 0;
  for (int i = 0; i < 1500; ++i) {
    o.zero_grad();
    const Tensor y = matmul(matmul(x, to(w1, DType::f32)).tanh(), to(w2, DType::f32));
    const Tensor loss = mean((y - target) * (y - target));
    loss.backward();
    o.step();
    if (i >= 1400) last += loss.item() / 100;
  }
  return last;
}

TEST(LowPrecision, ASmallNetworkLearnsAsInF32) {
  const double lr = 2e-4, want = trained(DType::f32, {}, lr);
  EXPECT_LT(want, 0.05);
  EXPECT_NEAR(trained(DType::bf16, {.master_weights = true}, lr), want, 0.1 * want);
  EXPECT_NEAR(trained(DType::bf16, {.stochastic_rounding = true}, lr), want, 0.1 * want);
  EXPECT_NEAR(trained(DType::bf16, {.stochastic_rounding = true, .low_state = true}, lr), want, 0.2 * want);
  EXPECT_GT(trained(DType::bf16, {}, lr), 1.5 * want);  // what both are for
}

}  // namespace
}  // namespace strata::optim
