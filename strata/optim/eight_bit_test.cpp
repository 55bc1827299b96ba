// Moments in 8 bits: the map and its rounding beside a search, every rule beside itself in f64, state, determinism.
#include "strata/optim/eight_bit_inl.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/core/recording.h"
#include "strata/nn/layers.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/optim/eight_bit_cpu.h"
#include "strata/optim/optim_test_util.h"
#include "strata/optim/record.h"

namespace strata::optim {
namespace {

constexpr EightBitMap kMaps[] = {make_eight_bit_map(false), make_eight_bit_map(true)};

std::vector<uint8_t> bytes(const Tensor& t) {
  const auto* p = static_cast<const uint8_t*>(t.raw_data());
  return {p, p + t.nbytes()};
}
std::map<std::string, std::vector<uint8_t>> bytes(const StateDict& state) {
  std::map<std::string, std::vector<uint8_t>> all;
  for (const auto& [key, t] : state) all.emplace(key, bytes(t));
  return all;
}

// The paper's dynamic map as its authors' words have it: for each of seven exponents, middles of equal parts.
std::vector<float> paper_map(bool has_sign) {
  std::vector<double> all{0, 1};
  for (int e = 0; e < 7; ++e) {
    const int points = static_cast<int>(std::pow(2, has_sign ? e : e + 1)) + 1;
    for (int i = 0; i + 1 < points; ++i) {
      const double left = 0.1 + i * 0.9 / (points - 1), right = 0.1 + (i + 1) * 0.9 / (points - 1);
      const double value = std::pow(10, e - 6) * (left + right) / 2;
      all.push_back(value);
      if (has_sign) all.push_back(-value);
    }
  }
  std::sort(all.begin(), all.end());
  return {all.begin(), all.end()};
}

TEST(EightBit, TheMapIsThePapers) {
  for (const bool has_sign : {false, true}) {
    const std::vector<float> want = paper_map(has_sign);
    ASSERT_EQ(want.size(), 256u);
    for (size_t c = 0; c < 256; ++c) EXPECT_NEAR(kMaps[has_sign].values[c], want[c], 1e-6 * std::abs(want[c])) << c;
    EXPECT_EQ(kMaps[has_sign].values[has_sign ? kZeroCode : 0], 0);
    EXPECT_EQ(kMaps[has_sign].values[255], 1);
  }
}

// By looking at all of them; of two that are equally near the larger in magnitude.
int nearest_code(const EightBitMap& map, double y) {
  int best = 0;
  for (int c = 1; c < kCodes; ++c) {
    const double d = std::abs(map.values[c] - y), least = std::abs(map.values[best] - y);
    if (d < least || (d == least && std::abs(map.values[c]) > std::abs(map.values[best]))) best = c;
  }
  return best;
}

TEST(EightBit, RoundsToTheNearestOfAllValues) {
  for (const bool has_sign : {false, true}) {
    const EightBitMap& map = kMaps[has_sign];
    std::vector<float> numbers{0, 1, 0x1p-149f, 1e-30f, 1e-7f, 0.99999994f};
    for (int c = 0; c + 1 < kCodes; ++c) {
      const auto middle = static_cast<float>((double{map.values[c]} + double{map.values[c + 1]}) / 2);
      for (float x = std::nextafter(std::nextafter(middle, -1.f), -1.f), i = 0; i < 5; ++i, x = std::nextafter(x, 1.f))
        numbers.push_back(x);
      numbers.push_back(map.values[c]);
    }
    Samples random(DType::f32, 11);
    for (double x : values(random.uniform({20'000}, -26, 0))) numbers.push_back(static_cast<float>(std::exp2(x)));
    if (has_sign)
      for (size_t i = 0, n = numbers.size(); i < n; ++i) numbers.push_back(-numbers[i]);
    for (size_t begin = 0; begin < numbers.size(); begin += kScaleBlock - 1) {
      // The largest of each block is 1, so that numbers are relative to it already.
      std::vector<float> block{1};
      for (size_t i = begin; i < std::min(numbers.size(), begin + kScaleBlock - 1); ++i) block.push_back(numbers[i]);
      std::vector<uint8_t> codes(block.size());
      std::vector<float> again(block.size());
      float scale = 0;
      quantize(block.data(), has_sign, static_cast<int64_t>(block.size()), codes.data(), &scale);
      dequantize(codes.data(), &scale, has_sign, static_cast<int64_t>(block.size()), again.data());
      ASSERT_EQ(scale, 1);
      for (size_t i = 0; i < block.size(); ++i) {
        const int want =
            !has_sign && block[i] > 0 ? std::max(1, nearest_code(map, block[i])) : nearest_code(map, block[i]);
        if (codes[i] != want) {  // one of two that are equally near, up to f32's rounding
          const double got = std::abs(again[i] - block[i]), least = std::abs(map.values[want] - block[i]);
          ASSERT_NEAR(got, least, 4e-6 * std::abs(block[i])) << block[i];
        }
        const uint32_t index = nearest_of(map, place_of(block[i], 1));
        ASSERT_EQ(int{codes[i]},
                  static_cast<int>(has_sign ? code_of<true>(block[i], index) : code_of<false>(block[i], index)))
            << block[i];
        ASSERT_EQ(again[i], map.values[codes[i]]);
        // Half of a part of its decade; between two decades half of the distance of values, a part and a fifth of it.
        const double x = std::abs(block[i]), error = std::abs(again[i] - block[i]);
        if (x == 1) {
          ASSERT_LE(error, has_sign && block[i] < 0 ? 0.0071 : 0);
          continue;
        }
        double decade = 1, parts = has_sign ? 64 : 128;
        for (; x < decade / 10 && decade > 1e-6; decade /= 10) parts /= 2;
        ASSERT_LE(error, x < 1e-7 ? 3.3e-7 : (x > 0.108 ? 1.001 : 3.001) * 0.45 * decade / parts) << block[i];
      }
    }
  }
}

TEST(EightBit, VectorsAndOneNumberAtATimeAreTheSame) {
  for (const bool has_sign : {false, true})
    for (const int64_t n : {1, 3, 4, 7, 8, 15, 16, 17, 31, 255, 256, 257, 511, 1000, 1024}) {
      const Tensor t = Samples(DType::f32, static_cast<uint64_t>(n)).tensor({n});
      const Tensor x = has_sign ? t : t * t;
      const auto [codes, scales] = quantized(x, has_sign);
      EXPECT_EQ(scales.shape(), Shape{(n + 255) / 256});
      const float* from = x.data<float>();
      for (int64_t b = 0; b < scales.numel(); ++b) {
        const int64_t end = std::min(n, (b + 1) * kScaleBlock);
        float most = 0;
        for (int64_t i = b * kScaleBlock; i < end; ++i) most = std::max(most, std::abs(from[i]));
        ASSERT_EQ(scales.data<float>()[b], most);
        for (int64_t i = b * kScaleBlock; i < end; ++i) {
          const uint32_t index = nearest_of(kMaps[has_sign], place_of(from[i], inverse_scale(most)));
          ASSERT_EQ(codes.data<uint8_t>()[i],
                    has_sign ? code_of<true>(from[i], index) : code_of<false>(from[i], index));
        }
      }
      EXPECT_EQ(dequantized(codes, scales, has_sign, DType::f64).dtype(), DType::f64);
    }
}

TEST(EightBit, BlocksThatAreNotFiniteOrNearlyNothing) {
  for (const bool has_sign : {false, true})
    for (const float bad : {INFINITY, -INFINITY, std::nanf("")})
      for (const int64_t at : {0, 17, 256, 599}) {
        Tensor x = ones({600});
        x.data<float>()[at] = bad;
        const auto [codes, scales] = quantized(x, has_sign);
        const Doubles got = values(dequantized(codes, scales, has_sign, DType::f32));
        for (int64_t i = 0; i < 600; ++i) {
          if (i / kScaleBlock == at / kScaleBlock) {
            ASSERT_TRUE(std::isnan(got[static_cast<size_t>(i)])) << i;
          } else {
            ASSERT_EQ(got[static_cast<size_t>(i)], 1) << i;
          }
        }
      }
  const auto [codes, scales] = quantized(full({300}, 1e-40), false);
  EXPECT_EQ(values(scales), Doubles(2, 0.0));
  EXPECT_EQ(values(dequantized(codes, scales, false, DType::f32)), Doubles(300, 0.0));
  // What is divided by never becomes 0 beside something large.
  Tensor uneven = full({2}, 1e-12);
  uneven.data<float>()[0] = 1;
  const auto [some, scale] = quantized(uneven, false);
  EXPECT_GT(values(dequantized(some, scale, false, DType::f32))[1], 0);
  EXPECT_THROW(dequantized(some, scales, false, DType::f32), ShapeError);
  EXPECT_THROW(dequantized(scale, scale, false, DType::f32), DTypeError);
  EXPECT_EQ(quantized(zeros({0}), true).second.numel(), 0);
}

struct Case {
  std::string_view rule;
  OptionValues options;
};
// Every rule with states in 8 bits, in each of its forms.
std::vector<Case> cases() {
  return {{"sgd", {{"lr", 0.02}, {"momentum", 0.9}, {"dampening", 0.1}}},
          {"sgd", {{"lr", 0.02}, {"momentum", 0.9}, {"nesterov", true}, {"weight_decay", 0.1}}},
          {"adam", {{"lr", 0.02}, {"weight_decay", 0.1}}},
          {"adamw", {{"lr", 0.02}}},
          {"adamw", {{"lr", 0.02}, {"amsgrad", true}}},
          {"rmsprop", {{"lr", 0.01}}},
          {"rmsprop", {{"lr", 0.01}, {"momentum", 0.5}}},
          {"rmsprop", {{"lr", 0.01}, {"eps", 1e-2}, {"centered", true}, {"alpha", 0.9}}},
          {"adagrad", {{"lr", 0.05}, {"initial_accumulator_value", 0.1}}},
          {"adadelta", {}},
          {"adamax", {{"lr", 0.02}}},
          {"nadam", {{"lr", 0.02}}},
          {"radam", {{"lr", 0.02}, {"beta2", 0.9}}},
          {"lion", {{"lr", 0.01}, {"weight_decay", 0.1}}},
          {"muon", {{"lr", 0.02}, {"use_adamw", true}}}};
}
OptionValues with(OptionValues options, const OptionValues& more) {
  for (const auto& [name, value] : more) options.insert_or_assign(name, value);
  return options;
}
const OptionValues kEight{{"state_8bit", true}, {"min_8bit_size", int64_t{0}}};

TEST(EightBit, EveryRuleFollowsItselfInDoublePrecision) {
  for (const Case& c : cases())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const char* update : {"", "master_weights", "compensated_weights", "stochastic_rounding"}) {
        const bool nearest = *update == 0;
        if ((dtype == DType::f32 && !nearest) || (dtype == DType::f16 && std::string_view(update) != "master_weights"))
          continue;
        for (const DType grad : {DType::f32, DType::bf16}) {
          SCOPED_TRACE(cat(c.rule, " ", dtype, " grad ", grad, " ", update));
          OptionValues options = with(c.options, kEight);
          if (!nearest) options[update] = true;
          const Shape shape{3, 211};
          Tensor p = start(shape, dtype), wide = leaf(to(p.detach(), DType::f64));
          const auto o = make_optimizer(c.rule, {{{{"p", p}}, options}});
          const auto reference = make_optimizer(c.rule, {{{{"p", wide}}, c.options}});
          Samples random(DType::f32, 7);
          size_t compared = 0;
          for (int t = 1; t <= 8; ++t) {
            const Tensor g = to(random.tensor(shape), grad);
            p.set_grad(g);
            wide.set_grad(to(g, DType::f64));
            o->step();
            reference->step();
            const StateDict state = o->state_dict();
            // The weights as the update computed them, where they are kept; else to the parameter's last bit.
            const Doubles want = values(wide), got = values(p);
            const double bit = dtype == DType::f32 ? 0 : dtype == DType::bf16 ? 0x1p-7 : 0x1p-10;
            for (size_t i = 0; i < want.size(); ++i)
              ASSERT_NEAR(got[i], want[i], bit * std::abs(want[i]) + 2e-5) << "step " << t << " element " << i;
            StateDict next;
            for (const auto& [key, tensor] : reference->state_dict()) {
              if (tensor.dtype() != DType::f64) {
                next.emplace(key, clone(state.at(key)));
                continue;
              }
              const Tensor codes = state.at(key), scales = state.at(key + "_absmax");
              ASSERT_EQ(codes.dtype(), DType::u8);
              next.emplace(key, codes);
              next.emplace(key + "_absmax", scales);
              const Doubles exact = values(tensor), scale = values(scales);
              double least = 0;
              for (double x : exact) least = std::min(least, x);
              const bool unsigned_map =
                  key.find("sq") != std::string::npos || key == "p.sum" || key == "p.acc_delta" || key == "p.exp_inf";
              const EightBitMap& map = kMaps[!unsigned_map];
              if (unsigned_map) {
                ASSERT_GE(least, 0) << key;
              }
              for (size_t b = 0; b < scale.size(); ++b) {
                const size_t begin = b * kScaleBlock, end = std::min(exact.size(), begin + kScaleBlock);
                double most = 0;
                for (size_t i = begin; i < end; ++i) most = std::max(most, std::abs(exact[i]));
                ASSERT_NEAR(scale[b], most, 1e-5 * most) << key;
                for (size_t i = begin; i < end; ++i) {
                  const double kept = map.values[codes.data<uint8_t>()[i]] * scale[b];
                  const double best = map.values[nearest_code(map, exact[i] / most)] * most;
                  ASSERT_LE(std::abs(kept - exact[i]),
                            std::abs(best - exact[i]) + 2e-5 * std::abs(exact[i]) + 4e-7 * most)
                      << key << " element " << i;
                  ++compared;
                }
              }
            }
            // The next step begins at what there is.
            reference->load_state_dict(next);
            NoGrad guard;
            if (state.contains("p.master")) {
              wide.copy_(to(state.at("p.master"), DType::f64));
            } else {
              wide.copy_(to(p.detach(), DType::f64));
              if (state.contains("p.compensation")) {
                const auto* lower = state.at("p.compensation").data<int16_t>();
                for (int64_t i = 0; i < wide.numel(); ++i) {
                  const uint32_t upper = std::bit_cast<uint32_t>(static_cast<float>(wide.data<double>()[i]));
                  wide.data<double>()[i] = std::bit_cast<float>(upper + static_cast<uint32_t>(int32_t{lower[i]}));
                }
              }
            }
          }
          EXPECT_GE(compared, size_t{8 * 633});
        }
      }
}

TEST(EightBit, TheNumberOfThreadsChangesNothing) {
  const int threads = num_threads();
  for (const Case& c : cases()) {
    const auto run = [&](int count) {
      set_num_threads(count);
      Tensor a = start({70'001}), b = start({4099}, DType::bf16);
      const auto o = make_optimizer(c.rule, {{{{"a", a}, {"b", b}}, with(c.options, kEight)}});
      Samples random(DType::f32, 6);
      for (int i = 0; i < 3; ++i) {
        a.set_grad(random.tensor({70'001}));
        b.set_grad(random.tensor({4099}));
        o->step();
      }
      return std::tuple{bytes(a), bytes(b), bytes(o->state_dict())};
    };
    const auto one = run(1);
    EXPECT_EQ(one, run(2)) << c.rule;
    EXPECT_EQ(one, run(5)) << c.rule;
  }
  set_num_threads(threads);
}

TEST(EightBit, StateRoundTripIsBitwise) {
  for (const Case& c : cases())
    for (const char* update : {"", "master_weights", "compensated_weights", "stochastic_rounding"}) {
      const DType dtype = *update == 0 ? DType::f32 : DType::bf16;
      OptionValues options = with(c.options, kEight);
      if (*update != 0) options[update] = true;
      Tensor p = start({600}, dtype), q = leaf(p);
      const auto one = make_optimizer(c.rule, {{{{"p", p}}, options}});
      auto two = make_optimizer(c.rule, {{{{"p", q}}, options}});
      Samples random(DType::f32, 5);
      for (int t = 0; t < 4; ++t) {
        const Tensor g = random.tensor(p.shape());
        p.set_grad(g);
        q.set_grad(g);
        one->step_clipped(1);
        two->step_clipped(1);
        StateDict saved;
        int64_t held = 0;
        for (const auto& [key, tensor] : two->state_dict()) {
          saved.emplace(key, clone(tensor));
          held += tensor.nbytes();
        }
        EXPECT_EQ(held, two->state_bytes());
        EXPECT_EQ(bytes(saved), bytes(one->state_dict()));
        q = leaf(q);
        two = make_optimizer(c.rule, {{{{"p", q}}, options}});
        if (t % 2 == 0) {
          two->load_state_dict(saved);
        } else {
          two->take_state_dict(std::move(saved));
        }
      }
      EXPECT_EQ(bytes(p), bytes(q)) << c.rule << ' ' << update;
    }
}

// A step that was recorded is run again from its text: codes, scales and halves are among what it writes.
TEST(EightBit, ARecordedStepHasTheSameBitsAgain) {
  for (const Case& c : cases())
    for (const char* update : {"", "master_weights", "compensated_weights", "stochastic_rounding"}) {
      OptionValues options = with(c.options, kEight);
      if (*update != 0) options[update] = true;
      Tensor p = start({600}, *update == 0 ? DType::f32 : DType::bf16);
      const auto o = make_optimizer(c.rule, {{{{"p", p}}, options}});
      const auto step = [&](uint64_t seed) {
        p.set_grad(Samples(DType::f32, seed).tensor({600}));
        o->step();
      };
      step(3);
      const Recording recorded = Recording::from_text(record([&] { step(4); }, {.values = true}).to_text());
      Replay again(recorded);
      again.run();
      size_t found = 0;
      for (const RecordedCall& call : recorded.calls) {
        if (call.op->name() != "optimizer_update") continue;
        const auto of = [&](size_t arg, size_t i) {
          return bytes(again.value(std::get<std::vector<ValueIndex>>(call.args[arg]).at(i)));
        };
        const StateDict state = o->state_dict();
        const auto master = state.find("p.master"), lower = state.find("p.compensation");
        EXPECT_EQ(of(1, 0), bytes(master != state.end() ? master->second : p)) << c.rule << ' ' << update;
        const bool in_halves = lower != state.end();
        if (in_halves || master != state.end()) {
          EXPECT_EQ(of(4, 0), bytes(in_halves ? lower->second : p)) << c.rule << ' ' << update;
        }
        size_t moment = 0;
        for (const OptimizerState& s : o->record()->states) {
          const auto codes = state.find(cat("p.", s.name));
          if (codes == state.end() || codes->second.dtype() != DType::u8) continue;
          EXPECT_EQ(of(3, moment), bytes(codes->second)) << c.rule << ' ' << s.name;
          EXPECT_EQ(of(10, moment), bytes(state.at(cat("p.", s.name, "_absmax")))) << c.rule << ' ' << s.name;
          ++moment;
        }
        EXPECT_GT(moment, 0u);
        ++found;
      }
      EXPECT_EQ(found, 1u) << c.rule;
    }
}

TEST(EightBit, BytesOfTheState) {
  const auto bytes_under = [](DType dtype, const LowPrecision& low, int64_t n = 10'000) {
    Tensor p = leaf(zeros({n}, dtype));
    return AdamW(TensorList{p}, {.low = low}).state_bytes();
  };
  const int64_t moments = 2 * 10'000 + 2 * 40 * 4 + 8;
  EXPECT_EQ(bytes_under(DType::f32, {.state_8bit = true}), moments);
  EXPECT_EQ(bytes_under(DType::bf16, {.state_8bit = true}), moments);
  EXPECT_EQ(bytes_under(DType::f16, {.state_8bit = true}), moments);
  EXPECT_EQ(bytes_under(DType::f16, {.master_weights = true, .state_8bit = true}), moments + 40'000);
  EXPECT_EQ(bytes_under(DType::bf16, {.compensated_weights = true, .state_8bit = true}), moments + 20'000);
  EXPECT_EQ(bytes_under(DType::bf16, {.compensated_weights = true}), 80'008 + 20'000);
  EXPECT_EQ(bytes_under(DType::f64, {.state_8bit = true}), 160'008);
  // Below the size, and just not.
  EXPECT_EQ(bytes_under(DType::f32, {.state_8bit = true}, 4095), 2 * 4 * 4095 + 8);
  EXPECT_EQ(bytes_under(DType::f32, {.state_8bit = true}, 4096), 2 * (4096 + 16 * 4) + 8);
  EXPECT_EQ(bytes_under(DType::f32, {.state_8bit = true, .min_8bit_size = 0}, 0), 8);
  // States that are not moments, or small anyway.
  Tensor p = leaf(zeros({64, 128}));
  const OptionValues eight{{"state_8bit", true}};
  for (const char* name : {"asgd", "rprop", "sparse_adam", "adafactor"})
    EXPECT_EQ(make_optimizer(name, {{{{"p", p}}, eight}})->state_bytes(),
              make_optimizer(name, {{{{"p", p}}}})->state_bytes())
        << name;
  EXPECT_EQ(make_optimizer("muon", {{{{"p", p}}, eight}})->state_bytes(), 8192 + 32 * 4);
}

TEST(EightBit, StridedGradientsAndThoseOfOtherTypes) {
  for (const DType grad : {DType::f32, DType::bf16, DType::f16}) {
    Tensor p = start({70, 90}), q = leaf(p);
    const AdamWOptions options{.lr = 0.05, .low = {.state_8bit = true}};
    AdamW a(TensorList{p}, options), b(TensorList{q}, options);
    for (uint64_t t = 0; t < 3; ++t) {
      const Tensor g = to(Samples(DType::f32, 3 + t).tensor({90, 70}), grad);
      p.set_grad(g.t());
      q.set_grad(to(contiguous(g.t()), DType::f32));
      a.step();
      b.step();
    }
    EXPECT_EQ(bytes(p), bytes(q));
    EXPECT_EQ(bytes(a.state_dict()), bytes(b.state_dict()));
  }
}

TEST(EightBit, NothingAndOneElementAreUpdated) {
  for (const Shape& shape : {Shape{0}, Shape{}, Shape{1}, Shape{2, 0, 3}, Shape{257}}) {
    Tensor p = start(shape);
    const Doubles before = values(p);
    AdamW o(TensorList{p}, {.lr = 0.5, .low = {.state_8bit = true, .min_8bit_size = 0}});
    p.set_grad(ones(shape));
    o.step();
    o.step();
    const Doubles after = values(p);
    for (size_t i = 0; i < after.size(); ++i) EXPECT_LT(after[i], before[i] - 0.9);
    EXPECT_EQ(o.state_dict().at("0.step").item<int64_t>(), 2);
  }
}

TEST(EightBit, AGuardedStepThatIsLeftOutChangesNothing) {
  for (const float bad : {INFINITY, std::nanf("")}) {
    Tensor p = start({5000}, DType::bf16);
    AdamW o(TensorList{p}, {.lr = 0.1, .low = {.compensated_weights = true, .state_8bit = true}});
    p.set_grad(Samples(DType::f32, 3).tensor({5000}));
    o.step_guarded();
    const auto before = bytes(o.state_dict());
    const auto weights = bytes(p);
    Tensor g = ones({5000});
    g.data<float>()[4999] = bad;
    p.set_grad(g);
    const Tensor report = o.step_guarded();
    EXPECT_EQ(StepReport::of(report.data<double>()).outcome, StepReport::diverged);
    EXPECT_EQ(before, bytes(o.state_dict()));
    EXPECT_EQ(weights, bytes(p));
    // Unguarded it is in the block's moments, as it is in the element's with f32.
    o.step();
    const StateDict state = o.state_dict();
    const Doubles m = values(dequantized(state.at("0.exp_avg"), state.at("0.exp_avg_absmax"), true, DType::f32));
    EXPECT_TRUE(std::isnan(m[4999]) && std::isnan(m[4864]));
    EXPECT_TRUE(std::isfinite(m[4863]) && std::isfinite(m[0]));
  }
}

TEST(EightBit, StatesInOneTensorAreConvertedAndBack) {
  Tensor p = start({5000}), q = leaf(p), r = leaf(p);
  AdamW whole({{"p", p}}, {.lr = 0.01}), eight({{"p", q}}, {.lr = 0.01, .low = {.state_8bit = true}}),
      back({{"p", r}}, {.lr = 0.01});
  p.set_grad(Samples(DType::f32, 3).tensor({5000}));
  whole.step();
  whole.step();
  const StateDict saved = whole.state_dict();
  eight.load_state_dict(saved);
  const StateDict state = eight.state_dict();
  EXPECT_EQ(state.at("p.step").item<int64_t>(), 2);
  for (const auto& [key, has_sign] : {std::pair<std::string, bool>{"p.exp_avg", true}, {"p.exp_avg_sq", false}}) {
    const auto [codes, scales] = quantized(saved.at(key), has_sign);
    EXPECT_EQ(bytes(state.at(key)), bytes(codes));
    EXPECT_EQ(bytes(state.at(key + "_absmax")), bytes(scales));
    back.load_state_dict(state);
    EXPECT_EQ(bytes(back.state_dict().at(key)), bytes(dequantized(codes, scales, has_sign, DType::f32)));
  }
  EXPECT_FALSE(back.state_dict().contains("p.exp_avg_absmax"));
  // In bf16 too, as low_state keeps them.
  Tensor low = leaf(to(p.detach(), DType::bf16)), also = leaf(low);
  AdamW in_bf16({{"p", low}}, {.low = {.low_state = true}}), in_eight({{"p", also}}, {.low = {.state_8bit = true}});
  low.set_grad(Samples(DType::f32, 3).tensor({5000}));
  in_bf16.step();
  in_eight.load_state_dict(in_bf16.state_dict());
  const auto from_bf16 = quantized(in_bf16.state_dict().at("p.exp_avg"), true);
  EXPECT_EQ(bytes(in_eight.state_dict().at("p.exp_avg")), bytes(from_bf16.first));
  in_bf16.load_state_dict(in_eight.state_dict());
  EXPECT_EQ(in_bf16.state_dict().at("p.exp_avg").dtype(), DType::bf16);
  EXPECT_EQ(saved.size(), 3u);  // what was given is as it was
  // Codes without scales, or with those of another tensor.
  StateDict broken = state;
  broken.erase("p.exp_avg_absmax");
  EXPECT_THROW(eight.load_state_dict(broken), ValueError);
  EXPECT_THROW(back.load_state_dict(broken), DTypeError);
  broken["p.exp_avg_absmax"] = zeros({3});
  EXPECT_THROW(eight.load_state_dict(broken), ShapeError);
  EXPECT_THROW(back.load_state_dict(broken), ShapeError);
  EXPECT_EQ(bytes(eight.state_dict()), bytes(state));
}

TEST(EightBit, StateFollowsAParameterThatChangesItsType) {
  nn::Linear layer(64, 64, false);
  Tensor p = layer.weight;
  AdamW o(layer.named_parameters(), {.lr = 0.01, .low = {.state_8bit = true}});
  const auto step = [&] {
    p.set_grad(ones({64, 64}, p.dtype()));
    o.step();
    return o.state_dict();
  };
  EXPECT_EQ(step().at("weight.exp_avg").dtype(), DType::u8);
  layer.to(DType::f64);
  StateDict state = step();
  EXPECT_EQ(state.at("weight.exp_avg").dtype(), DType::f64);
  EXPECT_EQ(state.size(), 3u);
  EXPECT_NEAR(values(state.at("weight.exp_avg"))[36], 1 - 0.81, 1e-7);
  layer.to(DType::bf16);
  state = step();
  EXPECT_EQ(state.at("weight.exp_avg").dtype(), DType::u8);
  EXPECT_NEAR(values(state.at("weight.exp_avg_absmax"))[3], 1 - 0.729, 1e-6);
  EXPECT_EQ(state.at("weight.step").item<int64_t>(), 3);
}

TEST(EightBit, RefusesWhatDoesNotGoTogether) {
  const TensorList params{leaf(ones({4}, DType::bf16))};
  EXPECT_THROW(AdamW(params, {.low = {.low_state = true, .state_8bit = true}}), ValueError);
  EXPECT_THROW(AdamW(params, {.low = {.state_8bit = true, .min_8bit_size = -1}}), ValueError);
  EXPECT_THROW(make_optimizer("adamw", {{number_params(params), {{"min_8bit_size", int64_t{-1}}}}}), ValueError);
  EXPECT_THROW(make_optimizer("adamw", {{number_params(params), {{"state_8bit", true}, {"low_state", true}}}}),
               ValueError);
}

}  // namespace
}  // namespace strata::optim
