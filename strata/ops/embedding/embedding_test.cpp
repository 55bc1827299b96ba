// What the generated tests of embedding do not cover: long inputs, and bits that do not depend on the number of threads.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/op_base.h"
#include "strata/core/parallel.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

Tensor numbers(const Shape& shape, unsigned seed = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  Tensor t = empty(shape);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = normal(rng);
  return t;
}

TEST(Embedding, GradientRowsAddUpInOneOrder) {
  const int before = num_threads();
  const int64_t n = 5000, rows = 37, d = 21;
  Tensor index = empty({n}, DType::i64), g = numbers({n, d});
  for (int64_t i = 0; i < n; ++i) index.data<int64_t>()[i] = i * i % rows;
  std::vector<float> first;
  for (int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    Tensor w = zeros({rows, d});
    w.set_requires_grad();
    const Tensor gw = grad({embedding(index, w)}, {w}, {g})[0];
    const std::vector<float> got(gw.data<float>(), gw.data<float>() + rows * d);
    if (first.empty()) first = got;
    EXPECT_EQ(std::memcmp(first.data(), got.data(), got.size() * 4), 0) << threads << " threads";
  }
  set_num_threads(before);
  std::vector<double> want(static_cast<size_t>(rows * d));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < d; ++j) want[i * i % rows * d + j] += g.data<float>()[i * d + j];
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(first[i], want[i], 1e-4);
}

TEST(Embedding, PaddingRowGetsNoGradient) {
  Tensor w = numbers({5, 3});
  w.set_requires_grad();
  Tensor index = empty({4}, DType::i64);
  for (int64_t i = 0; i < 4; ++i) index.data<int64_t>()[i] = i % 2 == 0 ? 4 : 1;
  embedding(index, w, -1).backward(ones({4, 3}));
  for (int64_t j = 0; j < 3; ++j) {
    EXPECT_EQ(w.grad().data<float>()[4 * 3 + j], 0);
    EXPECT_EQ(w.grad().data<float>()[1 * 3 + j], 2);
  }
}

// A table that is also the last layer's weight: the rows are added to the gradient which that gave, in place.
TEST(Embedding, TiedTableAddsItsRowsToTheGradientThatIsThere) {
  Tensor w = numbers({7, 3});
  w.set_requires_grad();
  Tensor index = empty({2, 4}, DType::i64);
  for (int64_t i = 0; i < 8; ++i) index.data<int64_t>()[i] = i * 3 % 5;
  const Tensor target = numbers({8, 7}, 2);
  struct Seen : CallObserver {
    void after(const Call& call, std::span<const Tensor>) override { names.emplace_back(call.op.name()); }
    std::vector<std::string> names;
  };
  const auto loss = [&](const Tensor& table, const Tensor& head) {
    return sum(linear(embedding(index, table).reshape({8, 3}), head) * target);
  };
  Tensor table = w.detach().clone(), head = w.detach().clone();
  table.set_requires_grad();
  head.set_requires_grad();
  const TensorList apart = grad({loss(table, head)}, {table, head});
  Seen seen;
  {
    const Tensor l = loss(w, w);
    const ObserverScope scope(seen);
    l.backward();
  }
  EXPECT_EQ(std::count(seen.names.begin(), seen.names.end(), "index_add"), 1);
  EXPECT_EQ(std::count(seen.names.begin(), seen.names.end(), "embedding_backward"), 0);
  const Tensor want = apart[0] + apart[1];
  for (int64_t i = 0; i < w.numel(); ++i) EXPECT_NEAR(w.grad().data<float>()[i], want.data<float>()[i], 1e-5) << i;
  // Recorded, held by others or with a gradient of its own kept from before, nothing is written over.
  const Tensor before = w.grad().clone();
  const Tensor again = grad({loss(w, w)}, {w}, {}, true)[0];
  EXPECT_TRUE(again.requires_grad());
  loss(w, w).backward();
  for (int64_t i = 0; i < w.numel(); ++i) {
    EXPECT_NEAR(again.data<float>()[i], want.data<float>()[i], 1e-5);
    EXPECT_NEAR(w.grad().data<float>()[i], 2 * before.data<float>()[i], 1e-5);
  }
}

}  // namespace
}  // namespace strata
