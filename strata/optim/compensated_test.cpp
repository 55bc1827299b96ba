// f32 weights in two halves: the split at every bf16, and every rule beside master_weights.
#include <bit>
#include <cmath>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/optim/optim_test_util.h"
#include "strata/optim/record.h"
#include "strata/optim/rounding_inl.h"

namespace strata::optim {
namespace {

// Whether it is the one number of 131,072 whose last bit a split loses.
bool is_tie(uint32_t bits) {
  return (bits & 0x1ffffu) == 0x8000u;
}

TEST(Compensated, TheUpperHalfIsTheRoundingAndBothAreTheNumber) {
  std::vector<uint32_t> lowers;
  for (uint32_t i = 0; i < 8; ++i)
    for (const uint32_t at : {0u, 0x4000u, 0x7ffcu, 0x7ff8u, 0xfff8u, 0xc000u}) lowers.push_back(at + i);
  for (uint32_t i = 0; i < 0x10000; i += 257) lowers.push_back(i);
  int64_t ties = 0;
  for (uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const uint32_t lower : lowers) {
      const uint32_t bits = upper << 16 | lower;
      const auto x = std::bit_cast<float>(bits);
      const Halves halves = split(bits);
      const uint32_t again = joined(halves.upper, halves.lower);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(std::bit_cast<float>(again))) << bits;
        continue;
      }
      ASSERT_EQ(halves.upper, BFloat16(x).bits) << bits;
      ASSERT_EQ(again, is_tie(bits) ? bits - 1 : bits);
      ties += is_tie(bits);
      // What was joined is split in the same halves: nothing more is lost.
      const Halves twice = split(again);
      ASSERT_TRUE(twice.upper == halves.upper && twice.lower == halves.lower) << bits;
    }
  EXPECT_EQ(ties, 0x7f80);  // of even upper halves, of both signs, below infinity
}

TEST(Compensated, AParameterThatOthersWroteIsJoinedToSomethingNearIt) {
  for (const int lower : {-0x8000, -1, 0, 1, 0x7fff})
    for (uint32_t upper = 0; upper < 0x10000; ++upper) {
      BFloat16 p;
      p.bits = static_cast<uint16_t>(upper);
      const float written = p, x = std::bit_cast<float>(joined(p.bits, static_cast<int16_t>(lower)));
      if (std::isnan(written)) {
        ASSERT_TRUE(std::isnan(x)) << upper;
      } else if (std::isinf(written)) {
        ASSERT_GE(std::abs(x), 3.38e38f);
      } else {
        ASSERT_LE(std::abs(x - written),
                  std::ldexp(1.0, std::max(std::ilogb(written == 0 ? 0x1p-126f : written), -126) - 8))
            << upper;
      }
    }
}

std::vector<std::pair<std::string_view, OptionValues>> rules() {
  return {{"sgd", {{"lr", 0.03}, {"weight_decay", 0.1}}},
          {"sgd", {{"lr", 0.02}, {"momentum", 0.9}}},
          {"adam", {{"lr", 0.02}}},
          {"adamw", {{"lr", 0.02}, {"amsgrad", true}}},
          {"rmsprop", {{"lr", 0.01}, {"momentum", 0.5}}},
          {"adagrad", {{"lr", 0.05}}},
          {"adadelta", {}},
          {"adamax", {{"lr", 0.02}}},
          {"nadam", {{"lr", 0.02}}},
          {"radam", {{"lr", 0.02}}},
          {"rprop", {{"lr", 0.02}}},
          {"asgd", {{"lr", 0.03}, {"t0", 3.0}}},
          {"lion", {{"lr", 0.01}}},
          {"sparse_adam", {{"lr", 0.02}}},
          {"muon", {{"lr", 0.02}}},
          {"muon", {{"lr", 0.02}, {"use_adamw", true}}}};
}
Doubles joined_values(const Tensor& p, const Tensor& lower) {
  Doubles all;
  for (int64_t i = 0; i < p.numel(); ++i)
    all.push_back(
        std::bit_cast<float>(joined(static_cast<const BFloat16*>(p.raw_data())[i].bits, lower.data<int16_t>()[i])));
  return all;
}

TEST(Compensated, TheWeightsAreThoseOfMasterWeights) {
  int64_t exact = 0;
  for (const auto& [rule, options] : rules())
    for (const DType grad : {DType::bf16, DType::f32})
      for (const Shape& shape : {Shape{1037}, Shape{9, 21}}) {
        SCOPED_TRACE(cat(rule, " grad ", grad, " ", shape));
        OptionValues with = options;
        with["master_weights"] = true;
        Tensor p = start(shape, DType::bf16), q = leaf(p);
        const auto master = make_optimizer(rule, {{{{"p", p}}, with}});
        with["master_weights"] = false;
        with["compensated_weights"] = true;
        const auto halves = make_optimizer(rule, {{{{"p", q}}, with}});
        EXPECT_EQ(master->state_bytes() - halves->state_bytes(), 2 * p.numel());
        Samples random(DType::f32, 7);
        bool tied = false;
        for (int t = 0; t < 12; ++t) {
          const Tensor g = to(random.tensor(shape), grad);
          p.set_grad(g);
          q.set_grad(g);
          master->step();
          halves->step();
          const Tensor weights = master->state_dict().at("p.master");
          for (int64_t i = 0; i < weights.numel(); ++i)
            tied = tied || is_tie(std::bit_cast<uint32_t>(weights.data<float>()[i]));
          const Doubles want = values(weights), got = joined_values(q, halves->state_dict().at("p.compensation"));
          if (tied) {  // the last bit of a few weights
            for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4 * (1 + std::abs(want[i])));
            continue;
          }
          ASSERT_EQ(got, want);
          ASSERT_EQ(values(q), values(p));
          ++exact;
        }
      }
  EXPECT_GT(exact, 500);  // of 768
}

TEST(Compensated, ResumesAndCountsItsBytes) {
  for (const auto& [rule, options] : rules()) {
    OptionValues with = options;
    with["compensated_weights"] = true;
    Tensor p = start({6, 50}, DType::bf16), q = leaf(p);
    const auto one = make_optimizer(rule, {{{{"p", p}}, with}});
    auto two = make_optimizer(rule, {{{{"p", q}}, with}});
    Samples random(DType::f32, 5);
    for (int t = 0; t < 4; ++t) {
      const Tensor g = random.tensor(p.shape());
      p.set_grad(g);
      q.set_grad(g);
      one->step();
      two->step();
      StateDict saved;
      int64_t held = 0;
      for (const auto& [key, tensor] : two->state_dict()) {
        saved.emplace(key, clone(tensor));
        held += tensor.nbytes();
      }
      EXPECT_EQ(held, two->state_bytes());
      q = leaf(q);
      two = make_optimizer(rule, {{{{"p", q}}, with}});
      two->load_state_dict(saved);
    }
    EXPECT_EQ(values(p), values(q)) << rule;
    EXPECT_EQ(values(one->state_dict().at("p.compensation")), values(two->state_dict().at("p.compensation"))) << rule;
  }
}

TEST(Compensated, SmallUpdatesAddUpAndThreadsChangeNothing) {
  const int threads = num_threads();
  std::vector<Doubles> all;
  for (const int count : {1, 2, 5}) {
    set_num_threads(count);
    Tensor p = leaf(ones({40'001}, DType::bf16));
    SGD o(TensorList{p}, {.lr = 1, .low = {.compensated_weights = true}});
    for (int i = 0; i < 1024; ++i) {
      p.set_grad(full({40'001}, -0x1p-17));
      o.step();
    }
    EXPECT_EQ(values(p)[40'000], 1 + 0x1p-7);
    all.push_back(values(p));
  }
  set_num_threads(threads);
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
}

TEST(Compensated, ConcernsBf16AloneAndGoesWithNoOtherWay) {
  const TensorList bf16{leaf(ones({4}, DType::bf16))}, f16{leaf(ones({4}, DType::f16))};
  EXPECT_THROW(SGD(f16, {.low = {.compensated_weights = true}}), DTypeError);
  EXPECT_THROW(SGD(bf16, {.low = {.master_weights = true, .compensated_weights = true}}), ValueError);
  EXPECT_THROW(SGD(bf16, {.low = {.compensated_weights = true, .stochastic_rounding = true}}), ValueError);
  EXPECT_THROW(AdamW(bf16, {.low = {.compensated_weights = true, .low_state = true}}), ValueError);
  EXPECT_THROW(make_optimizer("adafactor", {{number_params(bf16), {{"compensated_weights", true}}}}), ValueError);
  for (const DType dtype : {DType::f32, DType::f64}) {
    Tensor p = start({9}, dtype), q = leaf(p);
    AdamW plain(TensorList{p}), with(TensorList{q}, {.low = {.compensated_weights = true}});
    for (Tensor* t : {&p, &q}) t->set_grad(ones({9}, dtype));
    plain.step();
    with.step();
    EXPECT_EQ(values(p), values(q));
    EXPECT_FALSE(with.state_dict().contains("0.compensation"));
  }
}

}  // namespace
}  // namespace strata::optim
