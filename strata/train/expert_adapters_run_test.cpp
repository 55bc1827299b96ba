// Runs that train adapters of experts.

#include <filesystem>

#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/generate/text_model_test_util.h"
#include "strata/io/safetensors.h"
#include "strata/memory/allocator.h"
#include "strata/models/average.h"
#include "strata/models/pretrained.h"
#include "strata/nn/convert.h"
#include "strata/nn/lora.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/train/estimate.h"
#include "strata/train/fine_tune_inl.h"
#include "strata/train/ranks.h"
#include "strata/train/rounded_run_inl.h"
#include "strata/train/run.h"
#include "strata/train/trainer_test_util.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

class ExpertAdapterRuns : public TrainTest {
 protected:
  // Runs from a folder of Mixtral, 4 experts of width 48 in each of two layers.
  ExpertAdapterRuns() {
    write_text_model(dir_ / "mixtral", "mixtral");
    c_.init = dir_ / "mixtral";
    c_.tune.method = "lora";
    c_.tune.targets = "experts q_proj";
    c_.tune.rank = 4;
    c_.tune.alpha = 8;
    c_.optim.lr = 5e-3;
  }
  TrainResult train_in(const std::string& name, bool resume = false) {
    return train(c_, {.out = dir_ / name, .resume = resume, .log = nullptr});
  }
  io::TensorMap kept(const std::string& name) {
    return io::load_checkpoint(io::list_checkpoints(dir_ / name).back()).files.at("model");
  }
  // Six steps at once, and three and then the rest, give the same checkpoint.
  void expect_resumes(const std::string& name) {
    c_.steps = 6;
    c_.save_every = 3;
    c_.keep_last = 2;
    train_in(name);
    fs::create_directories(dir_ / (name + "-again"));
    fs::copy(dir_ / (name + "/step-00000003"), dir_ / (name + "-again/step-00000003"), fs::copy_options::recursive);
    if (fs::exists(dir_ / (name + "/data")))
      fs::copy(dir_ / (name + "/data"), dir_ / (name + "-again/data"), fs::copy_options::recursive);
    train_in(name + "-again", true);
    expect_same_checkpoints(dir_ / (name + "/step-00000006"), dir_ / (name + "-again/step-00000006"));
    c_.save_every = 0;
  }
  static double off(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item() / b.abs().max().item(); }
  const Tensor tokens_ = from_span<int64_t>(std::vector<int64_t>{5, 70, 32, 51, 8, 60}, {1, 6});
};

TEST_F(ExpertAdapterRuns, LearnAndTheFolderAndTheMergedModelComputeTheSame) {
  c_.steps = 25;
  train_in("run");
  EXPECT_LT(metrics("run").back().loss, 0.8 * metrics("run").front().loss);
  const io::TensorMap model = kept("run");
  EXPECT_EQ(model.size(), 2U * (2 + 4));  // of q, gate_up and down, in two blocks
  for (const auto& [name, t] : model) EXPECT_NE(name.find(".lora"), std::string::npos) << name;
  EXPECT_EQ(model.at("blocks.1.mlp.experts.lora_gate_up.gate_up_proj.A").shape(), (Shape{4, 4, 64}));
  EXPECT_EQ(model.at("blocks.1.mlp.experts.lora_down.down_proj.B").shape(), (Shape{4, 64, 4}));
  const NoGrad guard;
  const TrainedModel trained = load_trained_model(dir_ / "run");
  trained.model->eval();
  const Tensor want = trained.model->forward(tokens_);
  const Pretrained base = load_pretrained(dir_ / "mixtral");
  EXPECT_GT(off(base.model->forward(tokens_), want), 0.01);
  load_adapter(dir_ / "run/adapter", *base.model, adapter_names(*base.model, base.family->weights(base.spec)));
  base.model->eval();
  EXPECT_EQ(off(base.model->forward(tokens_), want), 0);
  merge_adapter(dir_ / "mixtral", dir_ / "run/adapter", dir_ / "merged");
  EXPECT_LE(off(load_pretrained(dir_ / "merged").model->forward(tokens_), want), 1e-5);
}

TEST_F(ExpertAdapterRuns, GoOnToTheSameBits) {
  expect_resumes("all");
  // A module for each expert, with what experts that share one have not: dropout.
  c_.tune.targets = "experts.*.w1 experts.*.w2";
  c_.tune.ranks = "experts.*.w2=2";
  c_.tune.dropout = 0.1;
  expect_resumes("each");
  EXPECT_EQ(kept("each").at("blocks.0.mlp.experts.lora_down.w2.A").shape(), (Shape{4, 2, 48}));
  EXPECT_TRUE(io::SafetensorsFile(dir_ / "each/adapter/adapter_model.safetensors")
                  .contains("base_model.model.model.layers.1.block_sparse_moe.experts.3.w1.lora_A.weight"));
  c_.tune.targets = "experts";
  c_.tune.ranks = "";
  EXPECT_NE(message<ValueError>([&] { train_in("dropped"); }).find("tune.dropout: 'model.layers.0.mlp.experts.gate_up"),
            std::string::npos);
}

// What targets meant before they mean still.
TEST_F(ExpertAdapterRuns, DefaultTargetsLeaveExpertsAlone) {
  c_.tune.targets = TrainConfig().tune.targets;
  c_.steps = 1;
  train_in("run");
  for (const auto& [name, t] : kept("run")) EXPECT_EQ(name.find("experts"), std::string::npos) << name;
}

// What is frozen has no gradient: in the plan, and in the run.
TEST_F(ExpertAdapterRuns, FrozenExpertsTakeNoMemoryOfGradients) {
  const MemoryEstimate lora = estimate_memory(c_);
  c_.tune.method = "full";
  const MemoryEstimate full = estimate_memory(c_);
  EXPECT_LT(lora.gradients, full.gradients / 3);
  c_.tune.method = "lora";
  const std::shared_ptr<TokenDecoder> model = make_tuned_model(c_);
  auto& decoder = dynamic_cast<LanguageModel&>(*model);
  decoder.train();
  decoder.loss(tokens_.narrow(1, 0, 5).contiguous(), tokens_.narrow(1, 1, 5).contiguous()).backward();
  for (const auto& [name, p] : decoder.named_parameters())
    EXPECT_EQ(p.grad().defined(), name.find(".lora") != std::string::npos) << name;
}

TEST_F(ExpertAdapterRuns, ModelsOfOurOwnAndRunsThatBeginFromThem) {
  c_.init = "";
  c_.model.family = "llama";
  c_.model.dim = 64;
  c_.model.experts = 4;
  c_.model.ffn_dim = 24;
  c_.model.shared_dim = 32;
  c_.tune.method = "full";
  c_.steps = 3;
  train_in("base");
  c_.init = dir_ / "base";
  c_.tune.method = "lora";
  c_.tune.targets = "q experts.gate_up experts.down";
  expect_resumes("tuned");
  EXPECT_TRUE(kept("tuned").contains("blocks.0.mlp.experts.lora_down.down.A"));
  const NoGrad guard;
  const TrainedModel base = load_trained_model(dir_ / "base"), tuned = load_trained_model(dir_ / "tuned");
  load_adapter(dir_ / "tuned/adapter", *base.model, own_adapter_names(*base.model));
  const Tensor want = tuned.model->forward(tokens_);
  EXPECT_EQ(off(base.model->forward(tokens_), want), 0);
  // A run from it begins with what its adapters add; so does one whose linear maps get four bits.
  nn::merge_lora(*tuned.model);
  nn::remove_lora(*tuned.model);
  c_.init = dir_ / "tuned";
  const std::shared_ptr<TokenDecoder> next = make_tuned_model(c_);
  const auto same_experts = [&](const nn::Module& module) {
    const nn::StateDict state = module.state_dict();
    for (const auto& [name, t] : tuned.model->state_dict())
      if (name.ends_with("experts.gate_up") || name.ends_with("experts.down")) {
        EXPECT_EQ((state.at(name) - t).abs().max().item(), 0) << name;
      }
  };
  same_experts(next->as_module());
  const auto rounded = load_rounded_run(find_init(dir_ / "tuned"), DType::f32, "nf4",
                                        {.rounding = {.block_columns = 32, .nested = true}});
  ASSERT_NE(rounded, nullptr);
  same_experts(rounded->as_module());
}

TEST_F(ExpertAdapterRuns, WhatTheyAreNotForIsRefusedByName) {
  c_.tune.method = "dora";
  EXPECT_NE(message<ValueError>([&] { train_in("dora"); }).find("'blocks.0.mlp.experts.gate_up' out of the targets"),
            std::string::npos);
  c_.tune.method = "lora";
  c_.tune.targets = "gate_up_proj";
  EXPECT_NE(message<ValueError>([&] { train_in("word"); }).find("experts.gate_up_proj"), std::string::npos);
  c_.tune.targets = "experts";
  c_.parallel.ep = 2;
  EXPECT_NE(message<ValueError>([&] { expert_ranks(c_, 2); }).find("parallel.ep is 2, and tune.targets gives adapters"),
            std::string::npos);
}

}  // namespace
}  // namespace strata
