// Micro-batches that go through the layers together: the numbers of one pass after another, with weights that move
// once.
#include "strata/train/layered_inl.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "strata/core/node.h"
#include "strata/memory/allocator.h"
#include "strata/memory/tiers.h"
#include "strata/models/model_test_util.h"
#include "strata/nn/lora.h"
#include "strata/nn/streamed.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/train/run.h"
#include "strata/train/tier_plan.h"
#include "strata/train/trainer_test_util.h"

namespace strata {
namespace {
using memory::kDisk;
using Bits = std::vector<uint8_t>;

Bits bits_of(const Tensor& t) {
  if (!t.defined()) return {};
  const Pin pin(t, Access::read);
  return bits(t);
}

std::vector<data::Batch> batches_of(const ModelConfig& c, int64_t count, bool packed) {
  std::vector<data::Batch> all;
  for (int64_t i = 0; i < count; ++i) {
    data::Batch b{stepping_tokens(2, c.context, 5 + i, c.vocab), stepping_tokens(2, c.context, 7 + i, c.vocab)};
    if (packed) {
      std::vector<int64_t> positions, documents;
      for (int64_t row = 0; row < 2; ++row)
        for (int64_t t = 0; t < c.context; ++t) {
          const bool second = t > 4 + row;
          positions.push_back(second ? t - 5 - row : t);
          documents.push_back(second);
        }
      b.push_back(from_span<int64_t>(positions, {2, c.context}));
      b.push_back(from_span<int64_t>(documents, {2, c.context}));
    }
    all.push_back(std::move(b));
  }
  return all;
}

struct Seen {
  std::vector<Bits> all;  // the loss and the gradients
  RngKey random;
  bool operator==(const Seen&) const = default;
};
Seen seen(const LanguageModel& model, const Tensor& loss) {
  Seen s{{bits_of(loss)}, default_generator().state()};
  for (const auto& [name, p] : model.named_parameters()) s.all.push_back(bits_of(p.grad()));
  return s;
}
void forget(const LanguageModel& model) {
  for (Tensor p : model.parameters()) p.set_grad({});
}
Tensor loss_of(const LanguageModel& m, const data::Batch& b) {
  return b.size() == 2 ? m.loss(b[0], b[1]) : m.packed_loss(b[0], b[1], b[2], b[3]);
}
// As StepRunner has it; `draws`, where given, becomes what a pass took.
Seen one_after_another(LanguageModel& m, const std::vector<data::Batch>& batches,
                       const std::optional<AutocastSettings>& autocast, uint64_t* draws = nullptr) {
  Tensor total;
  const double share = 1.0 / static_cast<double>(batches.size());
  for (const data::Batch& b : batches) {
    const uint64_t before = default_generator().state().offset;
    Tensor l;
    {
      std::optional<AutocastScope> low;
      if (autocast) low.emplace(*autocast);
      l = loss_of(m, b);
    }
    {
      const NoGrad guard;
      const Tensor part = to(l.detach(), DType::f64) * share;
      total = total.defined() ? total + part : part;
    }
    (l * share).backward();
    if (draws) *draws = default_generator().state().offset - before;
  }
  return seen(m, total);
}

TEST(LayeredAccumulation, TheBitsOfOnePassAfterAnother) {
  const std::optional<AutocastSettings> f32, bf16(AutocastSettings{DType::bf16, true, false, nullptr}),
      low_gradients(AutocastSettings{DType::bf16, true, true, nullptr});
  for (const std::string_view family : {"gpt", "llama"})
    for (const bool tied : {true, false})
      for (const bool packed : {false, true})
        for (const auto& autocast : {f32, bf16, low_gradients}) {
          ModelConfig c = small_model(family, 5, 16, 61);
          c.tied_embeddings = tied;
          c.dropout = 0.1;
          manual_seed(3);
          const auto model = make_model(c);
          model->train();
          const auto batches = batches_of(c, 3, packed);
          manual_seed(9);
          uint64_t draws = 0;
          const Seen wanted = one_after_another(*model, batches, autocast, &draws);
          EXPECT_GT(draws, 0u);
          for (const int64_t blocks : {1, 2, 5, 7})
            for (const Tier inputs : {Tier(), kDisk}) {
              SCOPED_TRACE(testing::Message() << family << " tied " << tied << " packed " << packed << " low "
                                              << autocast.has_value() << " blocks " << blocks);
              forget(*model);
              manual_seed(9);
              int groups = 0;
              LayeredAccumulation layered(
                  *model, {.blocks = blocks, .inputs = inputs, .leaving = 1 << 20, .draws = draws}, [&] { ++groups; });
              const Tensor loss = layered.run(batches, autocast);
              EXPECT_TRUE(seen(*model, loss) == wanted);
              EXPECT_EQ(groups, (5 + blocks - 1) / blocks + 2);
            }
          // A number of draws that is not the model's is found, not computed with.
          LayeredAccumulation wrong(*model, {.blocks = 2, .draws = draws + 1});
          EXPECT_THROW(wrong.run(batches, autocast), ValueError);
        }
}

// What experts add to the loss goes from group to group with the rest.
TEST(LayeredAccumulation, TheBitsOfExpertsWithLossesOfTheirOwn) {
  ModelConfig c = small_model("llama", 3, 16, 61);
  c.experts = 4, c.ffn_dim = 12, c.expert_capacity = 1, c.balance_loss = 0.3, c.z_loss = 0.2;
  manual_seed(3);
  const auto model = make_model(c);
  model->train();
  const auto batches = batches_of(c, 2, false);
  uint64_t draws = 0;
  const Seen wanted = one_after_another(*model, batches, {}, &draws);
  for (const int64_t blocks : {1, 2}) {
    forget(*model);
    LayeredAccumulation layered(*model, {.blocks = blocks, .draws = draws});
    const Tensor loss = layered.run(batches, {});
    EXPECT_TRUE(seen(*model, loss) == wanted) << blocks;
  }
}

// What is frozen below what learns is not gone through backward; what learns alone is the same.
TEST(LayeredAccumulation, PartsOfAModelLearn) {
  const ModelConfig c = small_model("llama", 4, 16, 61);
  const auto batches = batches_of(c, 2, false);
  for (const std::string_view part : {"blocks.2.", "norm", "token_embedding", "blocks.0.mlp"}) {
    SCOPED_TRACE(part);
    manual_seed(3);
    const auto model = make_model(c);
    for (auto& [name, p] : model->named_parameters()) Tensor(p).set_requires_grad(name.starts_with(part));
    const Seen wanted = one_after_another(*model, batches, {});
    forget(*model);
    int groups = 0;
    LayeredAccumulation layered(*model, {.blocks = 1}, [&] { ++groups; });
    EXPECT_TRUE(seen(*model, layered.run(batches, {})) == wanted);
    EXPECT_EQ(groups, part == "blocks.2." ? 3 : part == "norm" ? 1 : part == "blocks.0.mlp" ? 5 : 6);
  }
}

// Streamed weights come once forward and once backward of a step, not of a pass, and gradients leave once.
TEST(LayeredAccumulation, WeightsMoveOnceAStep) {
  ModelConfig c = small_model("llama", 12, 16, 61);
  c.tied_embeddings = false;
  manual_seed(3);
  const auto model = make_model(c);
  constexpr int64_t kPasses = 4;
  const auto batches = batches_of(c, kPasses, false);
  const Seen wanted = one_after_another(*model, batches, {});
  forget(*model);
  int64_t all = 0, block = 0, largest = 0;
  for (const auto& [name, p] : model->named_parameters()) {
    all += p.nbytes();
    if (name.starts_with("blocks.0.")) block += p.nbytes();
    if (!name.starts_with("blocks.")) largest = std::max<int64_t>(largest, p.nbytes());
  }
  largest = std::max(largest, block);
  nn::Streamed streamed(*model, {.tier = kDisk, .near_bytes = 2 * largest, .recompute = false});
  // What nobody pins stays no longer than there is room: for what is near, and the gradients of a part on their way.
  const int64_t limit = 6 * largest;
  memory::set_near_limit(limit, Device::cpu(), kDisk);
  struct Unbounded {
    ~Unbounded() { memory::set_near_limit(0, Device::cpu(), kDisk); }
  } unbounded;
  const auto came = [&](auto&& step) {
    const int64_t before = memory::near_stats(Device::cpu(), kDisk).bytes_in;
    step();
    return memory::near_stats(Device::cpu(), kDisk).bytes_in - before;
  };
  LayeredAccumulation layered(*model, {.blocks = 1}, [&] { streamed.send_gradients(); });
  int64_t once = 0, each = 0;
  for (int step = 0; step < 3; ++step) {
    forget(*model);
    Tensor loss;
    once = came([&] {
      const nn::StreamScope scope(streamed);
      streamed.hold_gradients(true);
      loss = layered.run(batches, {});
      streamed.hold_gradients(false);
    });
    EXPECT_TRUE(seen(*model, loss) == wanted);
    for (const auto& [name, p] : model->named_parameters()) EXPECT_EQ(p.grad().tier(), kDisk) << name;
  }
  EXPECT_EQ(streamed.stats().unforeseen, 0) << streamed.report();
  for (int step = 0; step < 2; ++step) {
    forget(*model);
    model->set_recomputed_blocks(c.layers);
    each = 0;
    for (const data::Batch& b : batches)
      each += came([&] {
        const nn::StreamScope scope(streamed);
        (loss_of(*model, b) * (1.0 / kPasses)).backward();
      });
  }
  // Both ways, but for what is near where forward ends and backward begins; a block that was brought and had to leave
  // before its turn comes twice.
  EXPECT_LE(once, 2 * all + limit) << streamed.report();
  EXPECT_GE(once, 2 * all - 2 * limit);
  EXPECT_GE(each, (kPasses - 1) * once);
}

class Layered : public TrainTest {
 protected:
  Layered() {
    c_.model.layers = 3;
    c_.model.dim = 64;
    c_.model.context = 16;
    c_.batch = 2;
    c_.accumulate = 3;
    c_.steps = 3;
    c_.optim.warmup = 1;
    c_.memory.disk = "";
    std::filesystem::create_directories(dir_ / "disk");
  }
  TrainResult run(const char* name, const MemoryConfig& memory, bool resume = false) {
    TrainConfig c = c_;
    c.memory = memory;
    return train(c, {.out = dir_ / name, .resume = resume, .log = nullptr});
  }
};

TEST_F(Layered, TrainsToTheSameBits) {
  for (const auto& [dtype, tied] : {std::pair{"f32", true}, {"f32", false}, {"bf16", true}, {"bf16", false}}) {
    c_.dtype = dtype;
    c_.model.tied_embeddings = tied;
    c_.model.dropout = 0.1;
    const std::string of = std::string(dtype) + (tied ? "-tied" : "");
    const TrainResult wanted = run(("plain-" + of).c_str(), {});
    int i = 0;
    for (const auto& [parameters, activations] : {std::pair{"device", "disk"}, {"disk", "keep"}, {"disk", "disk"}}) {
      MemoryConfig m;
      m.disk = dir_ / "disk";
      m.accumulation = "layers";
      m.parameters = m.state = parameters;
      m.activations = activations;
      const std::string name = of + std::to_string(i++);
      SCOPED_TRACE(name);
      expect_same_checkpoints(wanted.checkpoint, run(name.c_str(), m).checkpoint);
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "disk"));
}

// Stopped and gone on with, with another way to accumulate.
TEST_F(Layered, ResumesToTheSameBits) {
  c_.model.dropout = 0.1;
  const TrainResult whole = run("whole", {});
  MemoryConfig m;
  m.disk = dir_ / "disk";
  m.accumulation = "layers";
  m.parameters = m.state = "disk";
  c_.max_seconds = 1e-3;
  EXPECT_EQ(run("parts", m).step, 1);
  EXPECT_EQ(run("parts", {}, true).step, 2);
  c_.max_seconds = 0;
  const TrainResult last = run("parts", m, true);
  EXPECT_TRUE(last.finished);
  expect_same_checkpoints(whole.checkpoint, last.checkpoint);
}

TEST_F(Layered, WhatCannotGoTogetherIsSaid) {
  c_.memory.accumulation = "layers";
  c_.accumulate = 1;
  const auto told = [&] {
    try {
      validate(c_);
    } catch (const ValueError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(told().find("there is one pass a step"), std::string::npos) << told();
  c_.accumulate = 2;
  EXPECT_EQ(told(), "");
}

// A bus that is slow beside the arithmetic: weights that move once a step are faster, and the plan takes and names it.
TEST(LayeredPlan, IsTakenWhereItIsFaster) {
  const auto config = [](int accumulate) {
    TrainConfig c = parse_config("", "test",
                                 {"train.device=cuda", "model.family=llama", "model.layers=6", "model.dim=512",
                                  "model.heads=8", "model.context=64", "model.tied_embeddings=false", "train.batch=1",
                                  "train.dtype=bf16", "train.accumulate=" + std::to_string(accumulate)});
    c.memory.parameters = c.memory.state = "host";
    c.memory.update = "cpu";
    c.memory.activations = "keep";
    c.memory.device = "100MiB";
    return c;
  };
  constexpr lab::Limits kCard{.gb_s = 3000, .gflops = 30000, .matmul_f32 = 30000, .matmul_bf16 = 600000};
  constexpr TierRates kSlow{.to_host = 2e9, .from_host = 2e9, .host_memory = 1e12};
  TrainConfig c = config(4);
  const TierPlan p = plan_tiers(c, kCard, kSlow);
  ASSERT_TRUE(p.fits) << to_text(p);
  EXPECT_GT(p.layers_at_once, 0) << to_text(p);
  EXPECT_NE(to_text(p).find("all batches of a step go through"), std::string::npos) << to_text(p);
  c.memory.accumulation = "passes";
  const TierPlan passes = plan_tiers(c, kCard, kSlow);
  EXPECT_EQ(passes.layers_at_once, 0);
  EXPECT_LT(p.seconds, passes.seconds) << to_text(p) << to_text(passes);
  // One pass a step has nothing to gain.
  EXPECT_EQ(plan_tiers(config(1), kCard, kSlow).layers_at_once, 0);
}

}  // namespace
}  // namespace strata
