#pragma once
// What tests of parts of a network share: one with all kinds of parameters.

#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "strata/autograd/checkpoint.h"
#include "strata/nn/nn.h"
#include "strata/ops/ops.h"

namespace strata::nn {

// What an expectation of every rank says.
inline void is(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

struct Block : Module {
  explicit Block(int64_t width) : Module("Block"), up(width, 2 * width + 1), down(2 * width + 1, width), norm(width) {
    register_module("up", up);
    register_module("down", down);
    register_module("norm", norm);
  }
  Tensor forward(const Tensor& x) const {
    const ModuleCall in(*this);
    return x + down(gelu(up(norm(x))));
  }
  Linear up, down;
  LayerNorm norm;
};

// A tied table at both ends, blocks, a scale that only some ranks use, a number, a frozen matrix, one that nobody uses.
struct Net : Module {
  static constexpr int64_t kWords = 11, kWidth = 6;
  explicit Net(uint64_t seed, int64_t width = kWidth, int blocks = 3) : Module("Net") {
    static std::mutex mutex;  // ranks are threads, and draw from one generator
    const std::lock_guard lock(mutex);
    manual_seed(seed);
    table = register_parameter("table", randn({kWords, width}) * 0.3);
    for (int i = 0; i < blocks; ++i) all.push_back(Block(width));
    scale = register_parameter("scale", ones({width}));
    number = register_parameter("number", full({}, 0.9));
    Generator same(7);  // what is frozen DataParallel leaves to each rank
    frozen = register_parameter("frozen", randn({width, width}, DType::f32, same) * 0.3);
    frozen.set_requires_grad(false);
    idle = register_parameter("idle", randn({3, 2}));
    pair = register_parameter("pair", randn({2, width}));  // fewer rows than ranks
  }
  Tensor loss(const Tensor& words, bool scaled, bool again = false) const {
    Tensor x = index_select(table, 0, words);
    for (const Block& b : all) x = again ? checkpoint([&b](const Tensor& t) { return b.forward(t); }, x) : b.forward(x);
    if (scaled) x = x * scale;
    x = matmul(x, frozen) * number + sum(pair, {0}, false);
    return mean(square(matmul(x, table.t())));
  }
  ModuleList<Block> all = register_module("blocks", ModuleList<Block>());
  Tensor table, scale, number, frozen, idle, pair;
};

inline Tensor words(int rank, int step, int pass) {
  std::vector<int64_t> w;
  for (int64_t i = 0; i < 9; ++i) w.push_back((i * (rank + 2) + 3 * step + 5 * pass) % Net::kWords);
  return from_span<int64_t>(w, {9});
}

}  // namespace strata::nn
