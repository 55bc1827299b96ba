// Sizes at which reductions, softmax, norms and losses change their way through the card, against the CPU.

#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/strata.h"

namespace strata::cuda {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f64};

// Results and gradients of f on both devices, for inputs of one shape; `tolerance` is of the f32 result's scale.
void expect_alike(const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Shape>& shapes,
                  const char* what) {
  for (const DType type : kTypes) {
    SCOPED_TRACE(cat(what, " ", type, " ", shapes[0]));
    std::vector<Tensor> host, card;
    for (const Shape& s : shapes) {
      host.push_back((randn(s) + 1).to(type));  // not around 0, where sums would cancel
      card.push_back(host.back().to(Device::cuda()));
    }
    for (Tensor& t : host) t.set_requires_grad();
    for (Tensor& t : card) t.set_requires_grad();
    const Tensor a = f(host), b = f(card);
    const auto alike = [&](const Tensor& p, const Tensor& q) {
      const std::vector<double> u = p.to_vector<double>(), v = q.to_vector<double>();
      ASSERT_EQ(u.size(), v.size());
      double most = 0, scale = 1e-6;
      for (size_t i = 0; i < u.size(); ++i) {
        most = std::max(most, std::isnan(v[i]) ? INFINITY : std::abs(u[i] - v[i]));
        scale = std::max(scale, std::abs(u[i]));
      }
      EXPECT_LE(most, (type == DType::bf16 ? 2e-2 : type == DType::f32 ? 2e-5 : 1e-12) * scale);
    };
    alike(a, b);
    if (!a.requires_grad()) continue;
    const Tensor w = randn(a.shape()).to(a.dtype());
    (a * w).sum().backward();
    (b * w.to(Device::cuda())).sum().backward();
    for (size_t i = 0; i < host.size(); ++i) alike(host[i].grad(), card[i].grad());
  }
}

class CudaRows : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << unavailable_reason();
    manual_seed(5);
  }
  // Within a warp, several warps, 512 threads, too long to be held; with 16-byte accesses and without.
  const std::vector<Shape> rows = {{65, 64}, {33, 1000}, {9, 1003}, {5, 4096}, {3, 9001}, {2, 16384}, {2, 40000}};
};

TEST_F(CudaRows, Sums) {
  for (const Shape& s : rows) {
    for (const Dims& d : {Dims{}, Dims{0}, Dims{1}}) {
      expect_alike([&](const auto& x) { return sum(x[0], d); }, {s}, "sum");
      expect_alike([&](const auto& x) { return amax(x[0], d); }, {s}, "amax");
      expect_alike([&](const auto& x) { return var(x[0], d); }, {s}, "var");
    }
    expect_alike([&](const auto& x) { return logsumexp(x[0], {1}); }, {s}, "logsumexp");
    expect_alike([&](const auto& x) { return cumsum(x[0], 1); }, {s}, "cumsum");
    expect_alike([&](const auto& x) { return max(x[0], 1).first; }, {s}, "max");
  }
  for (const Shape& s : {Shape{3000, 40}, Shape{5000, 3}, Shape{2, 700, 24}, Shape{300, 4, 8}, Shape{100000, 1}})
    for (const Dims& d : {Dims{0}, Dims{-2}, Dims{0, -1}}) {
      expect_alike([&](const auto& x) { return mean(x[0], d); }, {s}, "mean");
      expect_alike([&](const auto& x) { return amin(x[0], d); }, {s}, "amin");
    }
  expect_alike([&](const auto& x) { return sum(x[0], {0, 2, 3}); }, {{4, 6, 9, 11}}, "sum over two runs");
  const Tensor x = randn({3000, 40});
  for (const int64_t dim : {0, 1})
    EXPECT_EQ(argmax(x, dim).to_vector<int64_t>(), argmax(x.to(Device::cuda()), dim).to_vector<int64_t>());
  EXPECT_EQ(argmin(x).item<int64_t>(), argmin(x.to(Device::cuda())).item<int64_t>());
}

TEST_F(CudaRows, Softmax) {
  for (const Shape& s : rows) {
    expect_alike([](const auto& x) { return softmax(x[0], 1); }, {s}, "softmax");
    expect_alike([](const auto& x) { return log_softmax(x[0], 1); }, {s}, "log_softmax");
  }
  expect_alike([](const auto& x) { return softmax(x[0], 1); }, {{3, 500, 40}}, "softmax of columns");
}

TEST_F(CudaRows, Norms) {
  for (const Shape& s : rows) {
    const Shape n{s[1]};
    expect_alike([&](const auto& x) { return layer_norm(x[0], n, x[1], x[2]); }, {s, n, n}, "layer_norm");
    expect_alike([&](const auto& x) { return rms_norm(x[0], n, x[1]); }, {s, n}, "rms_norm");
    expect_alike([&](const auto& x) { return std::get<0>(add_rms_norm(x[0], x[1], x[2])); }, {s, s, n}, "add_rms_norm");
  }
  // Blocks that take many rows; both results of the forms that add.
  for (const Shape& s : {Shape{5000, 96}, Shape{3000, 768}, Shape{2100, 1024}, Shape{1100, 2048}, Shape{600, 4096}}) {
    const Shape w{s[1]};
    expect_alike([&](const auto& x) { return layer_norm(x[0], w, x[1], x[2]); }, {s, w, w}, "layer_norm");
    expect_alike([&](const auto& x) { return rms_norm(x[0], w, x[1]); }, {s, w}, "rms_norm");
    expect_alike(
        [&](const auto& x) {
          const auto [y, sum] = add_layer_norm(x[0], x[1], x[2], x[3]);
          return y + sum;
        },
        {s, s, w, w}, "add_layer_norm");
    expect_alike(
        [&](const auto& x) {
          const auto [y, sum] = add_rms_norm(x[0], x[1], x[2]);
          return y * sum;
        },
        {s, s, w}, "add_rms_norm");
  }
  for (const Shape& s : {Shape{5, 12, 40, 37}, Shape{3, 12, 64, 64}, Shape{70, 12}}) {
    const Shape c{12};
    expect_alike([&](const auto& x) { return group_norm(x[0], 4, x[1], x[2]); }, {s, c, c}, "group_norm");
    expect_alike([&](const auto& x) { return batch_norm(x[0], {}, {}, x[1], x[2], true); }, {s, c, c}, "batch_norm");
  }
}

// Rows that the blocks of a cluster share, and that are copied ahead: several to each, so that the ring turns.
TEST_F(CudaRows, LongRows) {
  for (const Shape& s : {Shape{280, 12000}, Shape{140, 16384}, Shape{700, 8200}, Shape{150, 32768}}) {
    const Shape n{s[1]};
    expect_alike([](const auto& x) { return softmax(x[0], -1); }, {s}, "softmax");
    expect_alike([&](const auto& x) { return rms_norm(x[0], n, x[1]); }, {s, n}, "rms_norm");
    expect_alike([&](const auto& x) { return layer_norm(x[0], n, x[1], x[2]); }, {s, n, n}, "layer_norm");
    expect_alike(
        [&](const auto& x) {
          const auto [y, sum] = add_layer_norm(x[0], x[1], x[2], x[3]);
          return y + sum;
        },
        {s, s, n, n}, "add_layer_norm");
    expect_alike(
        [&](const auto& x) {
          const auto [y, sum] = add_rms_norm(x[0], x[1], x[2]);
          return y * sum;
        },
        {s, s, n}, "add_rms_norm");
  }
}

TEST_F(CudaRows, DropoutKeepsWhatTheProcessorKeeps) {
  for (const int64_t n : {1, 7, 2048, 4095, 4096, 4097, 100003})
    for (const DType type : kTypes)
      for (const double p : {0.0, 0.3, 1.0}) {
        const Tensor x = randn({n}).to(type), there = x.to(Device::cuda());
        const RngKey key{9, 3};
        EXPECT_EQ(dropout(there, p, key).to_vector<double>(), dropout(x, p, key).to_vector<double>()) << n << " " << p;
      }
}

TEST_F(CudaRows, Losses) {
  for (const Shape& s : rows) {
    Tensor target = randint(0, s[1], {s[0]});
    target.select(0, 1).fill_(-100);
    for (const char* reduction : {"mean", "none"})
      for (const double smoothing : {0.0, 0.1}) {
        const CrossEntropyOptions o{.reduction = reduction, .label_smoothing = smoothing};
        expect_alike([&](const auto& x) { return cross_entropy(x[0], target.to(x[0].device()), o); }, {s},
                     "cross_entropy");
      }
    expect_alike([&](const auto& x) { return nll_loss(x[0], target.to(x[0].device())); }, {s}, "nll_loss");
    expect_alike([&](const auto& x) { return mse_loss(x[0], x[1]); }, {s, s}, "mse_loss");
    expect_alike([&](const auto& x) { return huber_loss(x[0], x[1], "none"); }, {s, s}, "huber_loss");
  }
}

// Up to rows that shared memory holds a part of, or nothing of.
TEST_F(CudaRows, HeadAndLoss) {
  for (const int64_t n : {40, 1003, 9001, 40000, 50257, 140003}) {
    const Tensor target = from_span<int64_t>(std::vector<int64_t>{n - 1, 0, -100, n / 2}, {4});
    for (const double smoothing : {0.0, 0.1}) {
      const CrossEntropyOptions o{.label_smoothing = smoothing};
      expect_alike([&](const auto& x) { return linear_cross_entropy(x[0], x[1], target.to(x[0].device()), o); },
                   {{4, 6}, {n, 6}}, "linear_cross_entropy");
    }
  }
}

}  // namespace
}  // namespace strata::cuda
