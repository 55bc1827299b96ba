// Where a loop runs within some budget it runs within every larger one, and to the bits of the loop without: networks of
// several shapes, optimizers, passes and numbers of threads, at shares of the peak. scripts/sweep-budgets looks at each
// percent (STRATA_SWEEP_STEP) with the threads that there are; here it is a few of them.

#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/core/rng.h"
#include "strata/io/temp_dir.h"
#include "strata/memory/allocator.h"
#include "strata/nn/nn.h"
#include "strata/ops/ops.h"
#include "strata/optim/optim.h"
#include "strata/optim/record.h"
#include "strata/train/budget_scope.h"

namespace strata {
namespace {

// A network, and a step's loss.
struct Program {
  nn::Module net;
  std::function<Tensor()> loss;
};

Program perceptron() {
  nn::Sequential net(nn::Linear(128, 256), nn::ReLU(), nn::Dropout(0.1));
  for (int i = 0; i < 5; ++i) {
    net.push_back(nn::Linear(256, 256));
    net.push_back(nn::GELU());
  }
  net.push_back(nn::Linear(256, 16));
  return {net, [net] { return mean(square(net(randn({512, 128})))); }};
}

Program convolutions() {
  nn::Sequential net(nn::Conv2d(3, 16, 3, {.padding = {1}}), nn::BatchNorm2d(16), nn::ReLU());
  for (int i = 0; i < 6; ++i) {
    net.push_back(nn::Conv2d(16, 16, 3, {.padding = {1}}));
    net.push_back(nn::ReLU());
  }
  net.push_back(nn::MaxPool2d(2));
  net.push_back(nn::Flatten());
  net.push_back(nn::Linear(16 * 12 * 12, 64));
  return {net, [net] { return mean(square(net(randn({16, 3, 24, 24})))); }};
}

// Attention and a perceptron with norms before, and a table that is the head too.
struct Decoder : nn::Module {
  struct Block : nn::Module {
    nn::LayerNorm before = register_module("before", nn::LayerNorm(Shape{128}));
    nn::Linear qkv = register_module("qkv", nn::Linear(128, 384));
    nn::Linear out = register_module("out", nn::Linear(128, 128));
    nn::LayerNorm after = register_module("after", nn::LayerNorm(Shape{128}));
    nn::Linear up = register_module("up", nn::Linear(128, 512));
    nn::Linear down = register_module("down", nn::Linear(512, 128));
    Tensor forward(const Tensor& x) const {
      const Tensor all = qkv(before(x)).reshape({8, 64, 3, 4, 32});
      const auto part = [&](int64_t i) { return transpose(select(all, 2, i), 1, 2); };
      const Tensor y = scaled_dot_product_attention(part(0), part(1), part(2), {}, {.is_causal = true});
      const Tensor z = x + out(transpose(y, 1, 2).reshape({8, 64, 128}));
      return z + down(gelu(up(after(z))));
    }
  };
  Decoder() {
    for (int i = 0; i < 4; ++i) blocks.push_back(Block());
  }
  Tensor forward(const Tensor& tokens) const {
    Tensor x = embedding(tokens, table);
    for (const Block& b : blocks) x = b.forward(x);
    return mean(square(matmul(x, transpose(table, 0, 1))));
  }
  Tensor table = register_parameter("table", randn({512, 128}) * 0.1);
  nn::ModuleList<Block> blocks = register_module("blocks", nn::ModuleList<Block>());
};
Program decoder() {
  const auto net = std::make_shared<Decoder>();
  return {*net, [net] { return net->forward(randint(0, 512, {8, 64}, DType::i64)); }};
}

Program encoder() {
  const auto net = std::make_shared<nn::TransformerEncoder>(nn::TransformerOptions{
      .d_model = 128, .nhead = 4, .num_encoder_layers = 3, .dim_feedforward = 384, .dropout = 0.1});
  return {*net, [net] { return mean(square((*net)(randn({32, 16, 128})))); }};
}

// Weights are most of it, activations next to nothing.
Program wide() {
  nn::Sequential net(nn::Linear(64, 768));
  for (int i = 0; i < 3; ++i) {
    net.push_back(nn::ReLU());
    net.push_back(nn::Linear(768, 768));
  }
  return {net, [net] { return mean(square(net(randn({16, 64})))); }};
}

// Calls that can all run again.
struct Chain : nn::Module {
  Chain() {
    for (int i = 0; i < 3; ++i) layers.push_back(nn::Linear(192, 192, false));
  }
  Tensor forward(Tensor h) const {
    for (const nn::Linear& layer : layers) h = tanh(layer(h)) * sigmoid(h) + h;
    return mean(h * h);
  }
  nn::ModuleList<nn::Linear> layers = register_module("layers", nn::ModuleList<nn::Linear>());
};
Program chain() {
  const auto net = std::make_shared<Chain>();
  return {*net, [net] { return net->forward(randn({512, 192})); }};
}

struct Case {
  const char* name;
  std::function<Program()> make;
  int threads = 2;
  std::string optimizer = "adamw";
  int passes = 1;
  std::string elsewhere = "auto";  // state and weights
};

struct Outcome {
  bool ran = false;
  int64_t peak = 0;
  std::string text;     // the plan, or the error
  int64_t advised = 0;  // after an error
  std::vector<double> losses;
};

// The bytes that a text names after these words.
int64_t bytes_after(const std::string& text, const std::string& words) {
  const size_t at = text.rfind(words);
  if (at == std::string::npos) return 0;
  char* unit = nullptr;
  const double n = std::strtod(text.c_str() + at + words.size(), &unit);
  while (*unit == ' ') ++unit;
  const int shift = *unit == 'G' ? 30 : *unit == 'M' ? 20 : *unit == 'K' ? 10 : 0;
  return static_cast<int64_t>(std::ceil(n * static_cast<double>(int64_t{1} << shift)));
}

class BudgetSweep : public testing::Test {
 protected:
  ~BudgetSweep() override { set_num_threads(threads_); }

  static Outcome run(const Case& c, int64_t device) {
    manual_seed(7);
    const Program p = c.make();
    const auto optimizer = optim::make_optimizer(c.optimizer, {{p.net.named_parameters(), {{"lr", 1e-3}}}});
    Outcome o;
    memory::reset_peak(Device::cpu());
    std::optional<BudgetScope> budget;
    try {
      if (device > 0)
        budget.emplace(p.net, *optimizer,
                       MemoryConfig{.device = std::to_string(device),
                                    .disk = folder()->path(),
                                    .state = c.elsewhere,
                                    .parameters = c.elsewhere});
      for (int i = 0; i < 5; ++i) {
        optimizer->zero_grad();
        for (int k = 0; k < c.passes; ++k) {
          const Tensor loss = p.loss();
          loss.backward();
          o.losses.push_back(loss.item());
        }
        if (budget) {
          budget->step([&] { optimizer->step(); });
        } else {
          optimizer->step();
        }
      }
      o.ran = true;
      o.peak = budget ? budget->peak() : memory::stats(Device::cpu()).peak_total;
      if (budget) o.text = budget->describe();
    } catch (const MemoryError& e) {
      o.text = e.what();
      o.advised = budget ? bytes_after(budget->advice(), "device = \"") : bytes_after(o.text, "it needs ");
      if (budget) o.text += "\n" + budget->advice() + "\n" + budget->describe();
    }
    return o;
  }

  // From the whole down to shares that no loop runs with.
  static void sweep(const Case& c, std::vector<int> shares) {
    if (!every_percent())
      set_num_threads(c.threads);
    else
      shares = percents();
    SCOPED_TRACE(cat(c.name, ", ", c.optimizer, ", ", c.passes, " passes, ", num_threads(), " threads, state and weights ",
                     c.elsewhere));
    const Outcome plain = run(c, 0);
    ASSERT_TRUE(plain.ran);
    std::vector<int> failed;
    std::string texts, line;
    int64_t advised = 0;
    int ran = 0;
    for (const int percent : shares) {
      const int64_t device = plain.peak * percent / 100;
      const Outcome o = run(c, device);
      line += o.ran ? '+' : '-';
      if (!o.ran) {
        failed.push_back(percent);
        texts += cat(percent, "%: ", o.text, "\n");
        advised = o.advised;
        if (failed.size() > 6) break;
        continue;
      }
      ++ran;
      EXPECT_TRUE(failed.empty()) << percent << "% of " << plain.peak << " bytes runs, and not\n" << texts;
      failed.clear();
      texts.clear();
      EXPECT_LE(o.peak, device) << percent << "\n" << o.text;
      EXPECT_EQ(o.losses, plain.losses) << percent << "\n" << o.text;
    }
    EXPECT_GT(ran, 0) << texts;
    // Whoever does as an error says gets there.
    for (int tries = 0; advised > 0 && tries < 6; ++tries) {
      const Outcome o = run(c, advised);
      advised = o.advised;
      if (!o.ran) texts += o.text;
    }
    EXPECT_EQ(advised, 0) << texts;
    if (!every_percent()) return;
    std::printf("%-14s %-10s %d passes, %2d threads, %s: %5.1f MiB %s\n", c.name, c.optimizer.c_str(), c.passes,
                num_threads(), c.elsewhere.c_str(), static_cast<double>(plain.peak) / (1 << 20), line.c_str());
    std::fflush(stdout);
  }
  static bool every_percent() { return std::getenv("STRATA_SWEEP_STEP") != nullptr; }
  static std::vector<int> percents() {
    std::vector<int> all;
    for (int p = 100; p >= 5; p -= std::max(1, std::atoi(std::getenv("STRATA_SWEEP_STEP")))) all.push_back(p);
    return all;
  }

  static void SetUpTestSuite() { folder() = std::make_unique<io::TempDir>(); }
  static void TearDownTestSuite() { folder().reset(); }
  static std::unique_ptr<io::TempDir>& folder() {  // one for all: how fast its disk is is measured once
    static std::unique_ptr<io::TempDir> dir;
    return dir;
  }
  const int threads_ = num_threads();
};

const std::vector<int> kFew{91, 55, 34, 10};

TEST_F(BudgetSweep, ShapesOfNetworks) {
  sweep({"perceptron", perceptron, 1}, {91, 55, 22, 19, 10});
  sweep({"convolutions", convolutions, 3}, {91, 82, 55, 40});
  sweep({"decoder", decoder, 24}, kFew);
  sweep({"encoder", encoder, 2}, kFew);
  sweep({"wide", wide, 24}, kFew);
  sweep({"chain", chain, 2}, {91, 82, 55, 40});
}

TEST_F(BudgetSweep, PassesWhoseGradientsAddUp) {
  sweep({"convolutions", convolutions, 2, "sgd", 3}, {70, 45});
  sweep({"decoder", decoder, 3, "adamw", 3}, {70, 45});
  if (every_percent())
    for (const auto& [name, make] : {std::pair("perceptron", &perceptron), std::pair("encoder", &encoder),
                                     std::pair("wide", &wide), std::pair("chain", &chain)})
      sweep({name, make, 2, "adamw", 3}, {});
}

// Groups of an update whose rule has little state are as large as what comes with it.
TEST_F(BudgetSweep, WeightsAndStateOnADisk) {
  for (const char* optimizer : {"sgd", "adafactor", "muon"}) sweep({"decoder", decoder, 2, optimizer, 1, "disk"}, {80});
  sweep({"wide", wide, 24, "adamw", 1, "disk"}, {60});
}

TEST_F(BudgetSweep, EveryOptimizer) {
  if (!every_percent()) GTEST_SKIP() << "scripts/sweep-budgets does; Budgets.OptimizersOfEveryRecord has one share";
  for (const optim::OptimizerRecord* record : optim::optimizer_records()) {
    if (record->name == "sparse_adam") continue;  // its gradients are lists of rows
    for (const char* elsewhere : {"auto", "disk"}) {
      sweep({"decoder", decoder, 2, std::string(record->name), 1, elsewhere}, {});
      sweep({"wide", wide, 2, std::string(record->name), 1, elsewhere}, {});
    }
  }
}

}  // namespace
}  // namespace strata
