// Runs that begin from models that exist: whole, in parts, with adapters, on weights of 4 bits; conversations and
// preferences.

#include "strata/train/fine_tune_inl.h"

#include <cmath>
#include <filesystem>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/safetensors.h"
#include "strata/models/average.h"
#include "strata/nn/lora.h"
#include "strata/nn/packed.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/train/estimate.h"
#include "strata/train/run.h"
#include "strata/train/trainer_test_util.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

bool equal_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::equal(static_cast<const char*>(a.raw_data()), static_cast<const char*>(a.raw_data()) + a.nbytes(),
                    static_cast<const char*>(b.raw_data()));
}

class FineTune : public TrainTest {
 protected:
  // A base that has seen other text, and the settings of runs from it.
  void make_base(const std::string& family = "llama") {
    c_.model.family = family;
    c_.model.dim = 64;
    c_.optim.lr = 5e-3;
    c_.steps = 80;
    train_in("base");
    c_.init = dir_ / "base";
    std::string text;
    for (int i = 0; i < 300; ++i) text += "a slow red fox " + std::to_string(i % 7) + " sleeps under the tree. ";
    io::write_file(dir_ / "new.txt", text);
    c_.data.path = dir_ / "new.txt";
    c_.data.valid_fraction = 0.2;
    c_.optim.lr = 5e-3;
    c_.tune.rank = 4;
    c_.tune.alpha = 8;
  }
  TrainResult train_in(const std::string& name, bool resume = false, bool (*stop)() = nullptr) {
    return train(c_, {.out = dir_ / name, .resume = resume, .stop_requested = stop, .log = nullptr});
  }
  double first_loss(const char* name) { return metrics(name).front().loss; }
  double last_loss(const char* name) { return metrics(name).back().loss; }
  // The mean of the last third: a batch's own loss varies by more than what is compared.
  double late_loss(const char* name) {
    const auto all = metrics(name);
    double sum = 0;
    for (size_t i = all.size() * 2 / 3; i < all.size(); ++i) sum += all[i].loss;
    return sum / static_cast<double>(all.size() - all.size() * 2 / 3);
  }
  io::TensorMap kept(const std::string& name) {
    return io::load_checkpoint(io::list_checkpoints(dir_ / name).back()).files.at("model");
  }
  // Four steps at once, and three and then the rest, give the same checkpoint.
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
  }
};

TEST_F(FineTune, AdaptersLearnAndTheCheckpointHoldsThemAlone) {
  make_base();
  for (const std::string method : {"lora", "dora"}) {
    c_.tune.method = method;
    c_.tune.dropout = 0.05;
    c_.steps = 25;
    train_in(method);
    EXPECT_LT(last_loss(method.c_str()), 0.8 * first_loss(method.c_str())) << method;
    const io::TensorMap model = kept(method);
    EXPECT_EQ(model.size(), method == "lora" ? 28U : 42U)
        << method;  // of q, k, v, out, gate, up and down, in two blocks
    for (const auto& [name, t] : model) EXPECT_NE(name.find(".lora."), std::string::npos) << name;
    // A trained model is the base with its adapters; the base's weights are those that it had.
    const TrainedModel trained = load_trained_model(dir_ / method), base = load_trained_model(dir_ / "base");
    EXPECT_TRUE(equal_bits(trained.model->blocks[0].attn.qkv.weight, base.model->blocks[0].attn.qkv.weight));
    EXPECT_EQ(nn::adapted_maps(*trained.model).size(), 8U);
    // The adapter's folder gives a base the same.
    load_adapter(dir_ / (method + "/adapter"), *base.model, own_adapter_names(*base.model));
    const Tensor tokens = from_span<int64_t>(std::vector<int64_t>{97, 32, 115, 108, 111, 119}, {1, 6});
    const NoGrad guard;
    EXPECT_EQ((base.model->forward(tokens) - trained.model->forward(tokens)).abs().max().item(), 0) << method;
  }
}

TEST_F(FineTune, GoesOnToTheSameBits) {
  make_base();
  c_.tune.method = "lora";
  c_.tune.dropout = 0.1;
  expect_resumes("lora");
  c_.tune.method = "dora";
  c_.tune.targets = "q v mlp";
  c_.tune.ranks = "mlp=2 q=3";
  c_.tune.train = "norm token_embedding";
  expect_resumes("dora");
  const io::TensorMap model = kept("dora");
  EXPECT_EQ(model.at("blocks.1.mlp.down.lora.down.A").size(0), 2);
  EXPECT_EQ(model.at("blocks.1.attn.qkv.lora.q.A").size(0), 3);
  EXPECT_TRUE(model.contains("token_embedding.weight"));
  c_.tune = {};
  c_.tune.freeze = "blocks.0 token_embedding";
  expect_resumes("frozen");
}

TEST_F(FineTune, PartsAreFrozenOrTrainedByName) {
  make_base("gpt");
  c_.steps = 12;
  c_.tune.freeze = "token_embedding blocks.0";
  train_in("frozen");
  const TrainedModel base = load_trained_model(dir_ / "base");
  const auto changed = [&](const std::string& run) {
    std::set<std::string> names;
    const TrainedModel trained = load_trained_model(dir_ / run);
    const nn::StateDict before = base.model->state_dict();
    for (const auto& [name, t] : trained.model->state_dict())
      if (!equal_bits(t, before.at(name))) names.insert(name);
    return names;
  };
  for (const std::string& name : changed("frozen"))
    EXPECT_TRUE(!name.starts_with("blocks.0.") && name != "token_embedding.weight") << name;
  EXPECT_EQ(changed("frozen").size(), 15U);  // the second block's 12, positions, and the last norm's 2
  EXPECT_EQ(kept("frozen").size(), 15U);
  c_.tune.freeze = "";
  c_.tune.train = "bias norm";
  train_in("bitfit");
  for (const std::string& name : changed("bitfit"))
    EXPECT_TRUE(name.ends_with("bias") || name.starts_with("norm")) << name;
  EXPECT_LT(last_loss("bitfit"), first_loss("bitfit"));
  c_.tune.train = "";
  train_in("full");
  EXPECT_EQ(changed("full").size(), base.model->state_dict().size());
  for (const char* wrong : {"tune.train", "tune.freeze"}) {
    c_.tune.train = wrong == std::string("tune.train") ? "nothing.like.it" : "";
    c_.tune.freeze = wrong == std::string("tune.freeze") ? "blocks.7" : "";
    try {
      train_in("wrong");
      ADD_FAILURE() << wrong;
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find(wrong), std::string::npos) << e.what();
    }
  }
  c_.tune.freeze = "blocks token_embedding position_embedding norm";
  EXPECT_THROW(train_in("nothing"), ValueError);
}

TEST_F(FineTune, AnotherBaseIsRefused) {
  make_base();
  c_.tune.method = "lora";
  c_.steps = 2;
  train_in("run");
  const std::string base = io::list_checkpoints(dir_ / "base").back();
  // The same file with one weight changed, as if somebody had trained on.
  io::Checkpoint c = io::load_checkpoint(base);
  Tensor w = c.files.at("model").at("blocks.0.attn.out.weight");
  w.select(0, 0).fill_(1);
  io::save_checkpoint(dir_ / "base", c.step, c.files, c.state);
  const std::vector<std::function<void()>> loads{[&] { load_trained_model(dir_ / "run"); },
                                                 [&] {
                                                   c_.steps = 4;
                                                   train_in("run", true);
                                                 }};
  for (const auto& load : loads) {
    try {
      load();
      ADD_FAILURE();
    } catch (const IoError& e) {
      EXPECT_NE(std::string(e.what()).find("other weights"), std::string::npos) << e.what();
    }
  }
  c_.init = dir_ / "nowhere";
  EXPECT_THROW(train_in("other"), IoError);
}

// A run that begins from one with adapters begins from what that had learned.
TEST_F(FineTune, BeginsFromATunedRun) {
  make_base();
  c_.tune.method = "lora";
  c_.steps = 20;
  train_in("first");
  c_.init = dir_ / "first";
  c_.steps = 1;
  train_in("second");
  EXPECT_LT(first_loss("second"), 1.15 * last_loss("first"));
  EXPECT_GT(first_loss("first"), 1.5 * first_loss("second"));
  EXPECT_EQ(load_trained_model(dir_ / "second").step, 1);
}

TEST_F(FineTune, WeightsOfFourBitsLearnAsWell) {
  make_base();
  c_.dtype = "bf16";
  c_.steps = 150;
  c_.tune.method = "lora";
  c_.tune.rank = 8;
  c_.eval_every = 0;
  const TrainResult plain = train_in("bf16");
  c_.tune.quantize = "nf4";
  const TrainResult low = train_in("nf4");
  const double p = late_loss("bf16"), q = late_loss("nf4");
  EXPECT_LT(q, 0.8 * first_loss("nf4"));
  RecordProperty("of_bf16", std::to_string(p));
  RecordProperty("of_nf4", std::to_string(q));
  EXPECT_LE(q, 1.01 * p);
  const TrainedModel trained = load_trained_model(dir_ / "nf4");
  int64_t packed = 0;
  for (const auto& [name, m] : trained.model->named_modules()) {
    if (!nn::is_packed(m)) continue;
    ++packed;
    // Four bits, a byte for 64 of them, a number for 256 such bytes, and the 257 numbers of each matrix.
    const double numbers = static_cast<double>(nn::packed_weight(m).rows * nn::packed_weight(m).columns);
    EXPECT_LE(nn::packed_weight(m).bits(), 4 + 8.0 / 64 + 32.0 / (64 * 256) + 259 * 32 / numbers) << name;
  }
  EXPECT_EQ(packed, 8);
  for (const auto& [name, t] : kept("nf4")) EXPECT_NE(name.find(".lora."), std::string::npos) << name;
  expect_resumes("nf4-again");
}

// Told before anything is loaded: also by the dry run that plans the memory.
TEST_F(FineTune, AWeightThatHasNoFourBitsIsNamed) {
  make_base();
  const TrainConfig from_64 = c_;
  c_.init = "";
  c_.steps = 1;
  c_.model.dim = 96;
  train_in("odd");
  c_ = from_64;
  c_.init = dir_ / "odd";
  c_.tune.method = "lora";
  c_.tune.quantize = "nf4";
  for (const bool dry : {false, true}) {
    try {
      if (dry) {
        const DeviceScope meta(Device::meta());
        make_tuned_model(c_);
      } else {
        train_in("refused");
      }
      ADD_FAILURE() << "no error, dry: " << dry;
    } catch (const ShapeError& e) {
      EXPECT_NE(std::string(e.what()).find("layer \"blocks.0."), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("96"), std::string::npos) << e.what();
    }
  }
}

TEST_F(FineTune, QuestionsAreNotLearned) {
  make_base();
  std::string rows;
  for (int i = 0; i < 60; ++i)
    rows += "{\"prompt\": \"" + std::string(1, static_cast<char>('a' + i % 9)) + "? \", \"completion\": \"yes " +
            std::to_string(i % 3) + "\"}\n";
  io::write_file(dir_ / "chat.jsonl", rows);
  c_.data.path = dir_ / "chat.jsonl";
  c_.data.format = "chat";
  c_.steps = 30;
  c_.tune.method = "lora";
  const TrainResult r = train_in("chat");
  EXPECT_LT(last_loss("chat"), 0.5 * first_loss("chat"));
  EXPECT_TRUE(r.finished);
  EXPECT_TRUE(std::isfinite(r.last.loss));
  expect_resumes("chat-again");
  io::write_file(dir_ / "messages.jsonl", R"({"messages": [{"role": "user", "content": "x"}]})");
  c_.data.path = dir_ / "messages.jsonl";
  EXPECT_THROW(train_in("no-template"), Error);
}

TEST_F(FineTune, PreferencesAreLearned) {
  make_base();
  std::string rows;
  for (int i = 0; i < 40; ++i)
    rows += "{\"prompt\": \"" + std::string(1, static_cast<char>('a' + i % 9)) +
            "? \", \"chosen\": \"good\", \"rejected\": \"bad\"}\n";
  io::write_file(dir_ / "pairs.jsonl", rows);
  c_.data.path = dir_ / "pairs.jsonl";
  c_.data.format = "preferences";
  c_.steps = 30;
  for (const std::string method : {"lora", "full"}) {
    c_.tune.method = method;
    c_.optim.lr = method == "lora" ? 5e-3 : 1e-3;
    train_in("dpo-" + method);
    // At the beginning the model is its reference.
    EXPECT_NEAR(first_loss(("dpo-" + method).c_str()), std::log(2.0), 1e-4) << method;
    EXPECT_LT(last_loss(("dpo-" + method).c_str()), 0.5) << method;
    expect_resumes("dpo-again-" + method);
    c_.save_every = 0;
    c_.steps = 30;
  }
  c_.tune.preference = "ipo";
  c_.tune.beta = 0.5;
  train_in("ipo");
  EXPECT_NEAR(first_loss("ipo"), 1, 1e-4);  // (1 / (2 beta))^2
  EXPECT_LT(last_loss("ipo"), 0.7);
  // What the first model said is kept: without it a run of all weights cannot go on.
  fs::remove(dir_ / "ipo/data/train.reference.safetensors");
  c_.steps = 35;
  EXPECT_THROW(train_in("ipo", true), IoError);
}

// What a plan says of adapters is less than of all weights: no gradient and no state of the frozen.
TEST_F(FineTune, EstimatesCountWhatIsTrained) {
  make_base();
  const MemoryEstimate full = estimate_memory(c_);
  c_.tune.method = "lora";
  const MemoryEstimate lora = estimate_memory(c_);
  EXPECT_GT(lora.parameters, full.parameters);  // and the adapters
  EXPECT_LT(lora.gradients, full.gradients / 2);
  c_.dtype = "bf16";
  c_.tune.quantize = "nf4";
  const MemoryEstimate low = estimate_memory(c_);
  EXPECT_LT(low.parameters, lora.parameters / 2);
}

TEST_F(FineTune, SettingsThatDoNotFitAreRefused) {
  const auto refused = [&](const std::vector<std::string>& settings, const std::string& word) {
    try {
      parse_config("", "config", settings);
      ADD_FAILURE() << settings[0];
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    }
  };
  refused({"tune.quantize=nf4"}, "tune.quantize");
  refused({"tune.quantize=nf4", "model.init=a"}, "tune.quantize");
  refused({"tune.method=lora", "tune.freeze=head"}, "tune.freeze");
  refused({"tune.method=half"}, "tune.method");
  refused({"data.format=preferences"}, "model.init");
  refused({"model.family=init"}, "model.init");
  refused({"tune.preference=ipo", "tune.label_smoothing=0.1"}, "tune.label_smoothing");
  make_base();
  c_.tune.method = "lora";
  for (const char* wrong : {"q=", "=3", "q=x", "q=0", "q=1.5", "q"}) {
    c_.tune.ranks = wrong;
    EXPECT_THROW(train_in("ranks"), ValueError) << wrong;
  }
  const auto says = [&](const std::string& name, const std::string& words) {
    try {
      train_in(name);
      ADD_FAILURE() << name;
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  };
  c_.tune.ranks = "mpl=2";  // a slip of the pen, which would have had no effect
  says("ranks", "'mpl', which is given a rank");
  c_.tune.ranks = "";
  c_.tune.alphas = "mpl=2";
  says("alphas", "'mpl', which is given an alpha");
  c_.tune.alphas = "";
  c_.tune.train = "nrom";
  says("train", "no weight named 'nrom'; names have the parts attn, blocks, ");
  c_.tune.train = "";
  c_.tune.targets = "q_proj";
  EXPECT_THROW(train_in("targets"), ValueError);  // a run's maps have names of their own
}

// Fine-tuned apart from one beginning and averaged, models are at least as good on held-out text as the best of them.
TEST_F(FineTune, AnAverageIsAtLeastAsGoodAsItsBestMember) {
  make_base();
  c_.steps = 12;
  c_.optim.lr = 2e-3;
  std::vector<std::string> members;
  for (const int64_t seed : {1, 2, 3}) {
    c_.seed = seed;
    train_in("seed" + std::to_string(seed));
    members.push_back(io::list_checkpoints(dir_ / ("seed" + std::to_string(seed))).back());
  }
  std::string held;
  for (int i = 0; i < 80; ++i) held += "a slow red fox " + std::to_string(i % 7) + " sleeps under the tree. ";
  const auto loss = [&](const std::string& folder) {
    const NoGrad guard;
    const TrainedModel t = load_trained_model(folder);
    const std::vector<int32_t> ids = t.tokenizer->encode(held);
    const std::vector<int64_t> wide(ids.begin(), ids.begin() + 33 * 16);
    const Tensor rows = from_span<int64_t>(wide, {16, 33});
    return t.model->loss(rows.narrow(1, 0, 32).contiguous(), rows.narrow(1, 1, 32).contiguous()).item();
  };
  const GreedySoup soup = greedy_average(members, dir_ / "soup", loss);
  EXPECT_LE(soup.loss, soup.losses[0].second);
  EXPECT_EQ(loss(dir_ / "soup"), soup.loss);
  average_models(members, dir_ / "all");
  EXPECT_LT(loss(dir_ / "all"), soup.losses.back().second);
}

}  // namespace
}  // namespace strata
