// A transformer written by hand trains within a fraction of the memory that it takes, to the same losses:
//
//     large_transformer [DIM BLOCKS BATCH BUDGET FOLDER]       large_transformer 1024 24 8 2GiB /scratch
//
// Without BUDGET a half of what the loop without one took. On a processor the budget is of RAM, and FOLDER is on the
// disk that takes the rest (the system's folder for temporary files, where none is given).

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "strata/memory/budget.h"
#include "strata/strata.h"
#include "strata/train/budget_scope.h"

using namespace strata;

namespace {

constexpr int64_t kVocab = 256, kTime = 128, kHeads = 4, kSteps = 6;

struct Block : nn::Module {
  explicit Block(int64_t dim)
      : before(register_module("before", nn::LayerNorm(Shape{dim}))),
        qkv(register_module("qkv", nn::Linear(dim, 3 * dim))),
        out(register_module("out", nn::Linear(dim, dim))),
        after(register_module("after", nn::LayerNorm(Shape{dim}))),
        up(register_module("up", nn::Linear(dim, 4 * dim))),
        down(register_module("down", nn::Linear(4 * dim, dim))) {}
  Tensor forward(const Tensor& x) const {
    const int64_t batch = x.size(0), time = x.size(1), dim = x.size(2);
    const std::vector<Tensor> parts = chunk(qkv(before(x)), 3, -1);
    const auto heads = [&](const Tensor& t) {
      return transpose(reshape(t, {batch, time, kHeads, dim / kHeads}), 1, 2);
    };
    const Tensor y =
        scaled_dot_product_attention(heads(parts[0]), heads(parts[1]), heads(parts[2]), {}, {.is_causal = true});
    const Tensor z = x + out(reshape(transpose(y, 1, 2), {batch, time, dim}));
    return z + down(gelu(up(after(z))));
  }
  nn::LayerNorm before;
  nn::Linear qkv, out;
  nn::LayerNorm after;
  nn::Linear up, down;
};

struct Transformer : nn::Module {
  Transformer(int64_t dim, int64_t count)
      : embedding(register_module("embedding", nn::Embedding(kVocab, dim))),
        blocks(register_module("blocks", nn::ModuleList<Block>())),
        head(register_module("head", nn::Linear(dim, kVocab))) {
    for (int64_t i = 0; i < count; ++i) blocks.push_back(Block(dim));
  }
  Tensor loss(const Tensor& tokens, const Tensor& targets) const {
    Tensor x = embedding(tokens);
    for (const Block& b : blocks) x = b.forward(x);
    return cross_entropy(reshape(head(x), {-1, kVocab}), reshape(targets, {-1}));
  }
  nn::Embedding embedding;
  nn::ModuleList<Block> blocks;
  nn::Linear head;
};

// Losses of a few steps, and the most memory that tensors took.
struct Run {
  std::vector<double> losses;
  int64_t peak = 0;
};
Run train(int64_t dim, int64_t blocks, int64_t batch, const MemoryConfig* memory) {
  manual_seed(1);
  const Transformer net(dim, blocks);
  optim::AdamW optimizer(net.parameters(), {.lr = 1e-3});
  Run run;
  memory::reset_peak(Device::cpu());
  std::optional<BudgetScope> budget;
  if (memory) budget.emplace(net, optimizer, *memory);
  for (int64_t step = 0; step < kSteps; ++step) {
    const Tensor tokens = randint(0, kVocab, {batch, kTime});  // what is to be learned: each token's own successor
    optimizer.zero_grad();
    const Tensor loss = net.loss(tokens, remainder(tokens + 1, kVocab));
    loss.backward();
    run.losses.push_back(loss.item());
    if (budget) {
      budget->step([&] { optimizer.step(); });
    } else {
      optimizer.step();
    }
  }
  run.peak = memory::stats(Device::cpu()).peak_total;
  if (budget) std::printf("%s\n", budget->describe().c_str());
  return run;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t dim = argc > 1 ? std::atoll(argv[1]) : 192, blocks = argc > 2 ? std::atoll(argv[2]) : 6,
                batch = argc > 3 ? std::atoll(argv[3]) : 8;
  const Run whole = argc > 4 ? Run{} : train(dim, blocks, batch, nullptr);
  MemoryConfig memory;
  memory.device = argc > 4 ? argv[4] : std::to_string(whole.peak / 2);
  memory.disk = argc > 5 ? argv[5] : std::filesystem::temp_directory_path().string();
  const Run kept = train(dim, blocks, batch, &memory);
  const int64_t most = memory.budget().device;
  std::printf("within %s: %s at most\n", memory::bytes_text(most).c_str(), memory::bytes_text(kept.peak).c_str());
  for (size_t i = 0; i < kept.losses.size(); ++i) std::printf("step %zu: loss %.6f\n", i + 1, kept.losses[i]);
  if (kept.peak > most) return 1;
  if (argc > 4) return 0;
  std::printf("without a budget: %s, the losses are %s\n", memory::bytes_text(whole.peak).c_str(),
              whole.losses == kept.losses ? "the same" : "others");
  return whole.losses == kept.losses && 2 * kept.peak <= whole.peak ? 0 : 1;
}
