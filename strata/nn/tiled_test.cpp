#include "strata/nn/tiled.h"

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/hooks.h"
#include "strata/core/error_test_util.h"
#include "strata/memory/allocator.h"
#include "strata/ops/ops.h"

namespace strata {
namespace {

double farthest(const Tensor& a, const Tensor& b) {
  return (a.detach().to(DType::f64) - b.detach().to(DType::f64)).abs().max().item();
}
Tensor waves(const Shape& shape, double turn) {
  return sin(arange(0, shape.product(), 1).to(DType::f32) * turn).view(shape);
}

TEST(Tiled, IsTheFunction) {
  const Tensor w = waves({6, 5}, 0.7).set_requires_grad(true), v = waves({6, 5}, 0.7).set_requires_grad(true);
  const Tensor weight = waves({3, 11, 6}, 0.3);
  for (const int64_t size : {0, 1, 4, 11, 40}) {
    Tensor x = waves({3, 11, 5}, 0.9).set_requires_grad(true), y = waves({3, 11, 6}, 0.2).set_requires_grad(true);
    Tensor a = x.detach().set_requires_grad(true), b = y.detach().set_requires_grad(true);
    Tensor(w).set_grad({});
    Tensor(v).set_grad({});
    int calls = 0;
    const Tensor got = tiled(
        1, size,
        [&](const Tensor& rows, const Tensor& more) {
          ++calls;
          return linear(rows, w).tanh() * more;
        },
        x, y);
    EXPECT_EQ(calls, size == 0 || size >= 11 ? 1 : (11 + size - 1) / size);
    const Tensor want = linear(a, v).tanh() * b;
    EXPECT_LT(farthest(got, want), 1e-6);
    (got * weight).sum().backward();
    (want * weight).sum().backward();
    EXPECT_LT(farthest(x.grad(), a.grad()), 1e-6) << size;
    EXPECT_LT(farthest(y.grad(), b.grad()), 1e-6) << size;
    EXPECT_LT(farthest(w.grad(), v.grad()), 1e-5) << size;
  }
}

// A leaf that every tile reads gets its gradient once, as who waits for it counts on.
TEST(Tiled, AGradientComesOnce) {
  Tensor w = waves({6, 5}, 0.7).set_requires_grad(true);
  int times = 0;
  register_post_accumulate_grad_hook(w, [&](const Tensor&) { ++times; });
  tiled(
      0, 3, [&](const Tensor& rows) { return linear(rows, w).tanh(); }, waves({12, 5}, 0.4))
      .sum()
      .backward();
  EXPECT_EQ(times, 1);
}

TEST(Tiled, TellsATileWhereItBegins) {
  for (const int64_t size : {0, 1, 4, 11}) {
    Tensor x = waves({2, 11}, 0.9).set_requires_grad(true);
    const Tensor y = tiled(
        1, size,
        [](int64_t first, const Tensor& part) { return part * (arange(0, part.size(1), 1) + first).to(DType::f32); },
        x);
    const Tensor places = arange(0, 11, 1).to(DType::f32);
    EXPECT_EQ(farthest(y, x * places), 0) << size;
    y.sum().backward();
    EXPECT_EQ(farthest(x.grad(), places.expand({2, 11})), 0) << size;
  }
}

TEST(Tiled, KeepsOneTileAtATime) {
  const int64_t rows = 4096, wide = 512;
  const Tensor up = waves({wide, 8}, 0.7).set_requires_grad(true), down = waves({8, wide}, 0.3).set_requires_grad(true);
  const Tensor x = waves({rows, 8}, 0.1).set_requires_grad(true);
  const auto peak = [&](int64_t size) {
    memory::reset_peak(Device::cpu());
    const int64_t before = memory::stats(Device::cpu()).live_total;
    tiled(
        0, size, [&](const Tensor& t) { return linear(gelu(linear(t, up), "tanh"), down); }, x)
        .sum()
        .backward();
    return memory::stats(Device::cpu()).peak_total - before;
  };
  const int64_t whole = peak(0), tiles = peak(128);
  EXPECT_GE(whole, 2 * rows * wide * 4);
  EXPECT_LE(tiles, rows * wide * 4 / 4);
}

TEST(Tiled, SaysWhatIsWrong) {
  const auto same = [](const Tensor& t) { return t; };
  const auto first = [](const Tensor& t, const Tensor&) { return t; };
  EXPECT_NE(message<ValueError>([&] { tiled(0, -1, same, ones({4})); }).find("a tile has -1 places"),
            std::string::npos);
  EXPECT_NE(message<ShapeError>([&] { tiled(0, 2, first, ones({4}), ones({3})); }).find("what goes with it"),
            std::string::npos);
}

}  // namespace
}  // namespace strata
