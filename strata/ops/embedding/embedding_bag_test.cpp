// What the generated tests of embedding bags do not cover: long bags, every instruction-set level, bits that do not
// depend on the number of threads, and a CUDA device.

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/compare_test_util.h"
#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/vec/level.h"

namespace strata {
namespace {

struct Bags {
  Tensor indices, offsets;
};
// Some bags are empty, one is most of all.
Bags bags(int64_t n, int64_t count, int64_t rows) {
  manual_seed(3);
  const Tensor starts = std::get<0>(sort(randint(0, n / 4, {count})));
  starts.data<int64_t>()[0] = 0;
  return {randint(0, rows, {n}), starts};
}

TEST(EmbeddingBag, IsTheSumOfItsRows) {
  const auto [indices, offsets] = bags(400, 11, 37);
  manual_seed(4);
  const Tensor table = randn({37, 21}), weights = randn({400});
  const std::vector<float> w = table.to_vector<float>(), f = weights.to_vector<float>();
  const std::vector<int64_t> at = indices.to_vector<int64_t>(), from = offsets.to_vector<int64_t>();
  for (int level = 0; level <= 3; ++level) {
    set_vec_level(level);
    const Tensor sums = embedding_bag(indices, table, offsets, "sum", weights),
                 means = embedding_bag(indices, table, offsets, "mean", {}, false, 5),
                 most = embedding_bag(indices, table, offsets, "max");
    for (int64_t b = 0; b < 11; ++b)
      for (int64_t j = 0; j < 21; ++j) {
        const int64_t end = b == 10 ? 400 : from[b + 1];
        double sum = 0, mean = 0, best = 0;
        int64_t count = 0;
        for (int64_t i = from[b]; i < end; ++i) {
          const double v = w[at[i] * 21 + j];
          sum += v * f[i];
          best = i == from[b] ? v : std::max(best, v);
          if (at[i] == 5) continue;
          mean += v;
          ++count;
        }
        ASSERT_NEAR(sums[b][j].item(), sum, 2e-4) << "level " << level;
        ASSERT_NEAR(means[b][j].item(), count ? mean / static_cast<double>(count) : 0, 1e-5) << "level " << level;
        ASSERT_EQ(most[b][j].item(), best) << "level " << level;
      }
  }
  set_vec_level(-1);
}

TEST(EmbeddingBag, TheSameBitsOnAnyNumberOfThreads) {
  const int before = num_threads();
  const auto [indices, offsets] = bags(3000, 50, 37);
  manual_seed(4);
  Tensor table = randn({37, 21}), weights = randn({3000});
  table.set_requires_grad();
  weights.set_requires_grad();
  const Tensor g = randn({50, 21});
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    const TensorList grads = grad({embedding_bag(indices, table, offsets, "sum", weights)}, {table, weights}, {g});
    std::vector<float> got = grads[0].to_vector<float>();
    for (float v : grads[1].to_vector<float>()) got.push_back(v);
    if (first.empty()) first = got;
    EXPECT_EQ(got, first) << threads << " threads";
  }
  set_num_threads(before);
}

TEST(EmbeddingBag, ThePaddingRowGetsNoGradient) {
  manual_seed(4);
  for (const char* mode : {"sum", "mean", "max"}) {
    Tensor table = randn({5, 3});
    table.set_requires_grad();
    embedding_bag(from_span<int64_t>(std::vector<int64_t>{4, 1, 4, 1}, {2, 2}), table, {}, mode, {}, false, -1)
        .backward(ones({2, 3}));
    for (int64_t j = 0; j < 3; ++j) {
      EXPECT_EQ(table.grad()[4][j].item(), 0) << mode;
      EXPECT_EQ(table.grad()[1][j].item(), 2) << mode;
    }
  }
}

class CudaEmbeddingBag : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
};

TEST_F(CudaEmbeddingBag, AgreesWithTheCpuInDouble) {
  for (const auto& [n, count, rows, width] :
       {std::array<int64_t, 4>{5000, 300, 41, 64}, {700, 9, 100000, 33}, {3000, 2000, 50, 512}})
    for (const char* mode : {"sum", "mean", "max", "weighted"})
      for (const auto& [t, bound] : {std::pair(DType::f64, 1e-12), {DType::f32, 1e-5}, {DType::bf16, 6e-3}}) {
        const auto [indices, offsets] = bags(n, count, rows);
        manual_seed(9);
        const Tensor table = randn({rows, width}), factors = randn({n}), g = randn({count, width});
        const bool weighted = std::string(mode) == "weighted";
        const auto run = [&](DType given, DType dtype, Device device) {
          Tensor w = table.to(given).to(dtype).to(device), f = factors.to(given).to(dtype).to(device);
          w.set_requires_grad();
          f.set_requires_grad();
          const Tensor y = embedding_bag(indices.to(device), w, offsets.to(device), weighted ? "sum" : mode,
                                         weighted ? f : Tensor(), false, 7);
          TensorList r = weighted ? grad({y}, {w, f}, {g.to(given).to(dtype).to(device)})
                                  : grad({y}, {w}, {g.to(given).to(dtype).to(device)});
          r.push_back(y);
          return r;
        };
        const TensorList want = run(t, DType::f64, Device::cpu()), got = run(t, t, Device::cuda()),
                         again = run(t, t, Device::cuda());
        for (size_t i = 0; i < want.size(); ++i) {
          EXPECT_LE(difference(got[i], want[i]), bound) << mode << ' ' << name_of(t) << ' ' << n << ' ' << i;
          EXPECT_EQ(got[i].to_vector<double>(), again[i].to_vector<double>());
        }
      }
}

TEST_F(CudaEmbeddingBag, AnIndexOutsideTheTableIsAnError) {
  const Tensor table = ones({4, 3}).to(Device::cuda());
  const auto bag = [&](int64_t index) {
    return embedding_bag(full({1, 2}, index, DType::i64).to(Device::cuda()), table, {}, "sum");
  };
  EXPECT_THROW(sum(bag(4)).item(), IndexError);
  EXPECT_EQ(sum(bag(3)).item(), 6);
  const Tensor indices = zeros({4}, DType::i64).to(Device::cuda());
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{1, 3}, {0, 3, 2}}) {
    const Tensor offsets = from_span<int64_t>(wrong, {static_cast<int64_t>(wrong.size())}).to(Device::cuda());
    EXPECT_THROW(sum(embedding_bag(indices, table, offsets, "sum")).item(), ValueError);
    EXPECT_THROW(sum(embedding_bag(indices, table, offsets, "max")).item(), ValueError);
  }
}

// Widths on both sides of what registers hold at once, beside a plain loop; NaN wins, of equal elements the first.
TEST(EmbeddingBag, LargestOfRowsOfEveryWidth) {
  for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const int64_t width : {1, 7, 16, 33, 128, 150, 300}) {
      SCOPED_TRACE(cat(type, " ", width));
      const int64_t rows = 5, n = 7;
      const std::vector<int64_t> at{3, 1, 1, 4, 0, 2, 3}, from{0, 3, 3, 7};
      Tensor table = randint(0, 11, {rows, width}).to(type);
      table.select(0, 1).slice(0, 0, 1).fill_(NAN);
      const std::vector<double> v = table.to_vector<double>();
      const Tensor y =
          embedding_bag(from_span<int64_t>(at, {n}), table, from_span<int64_t>(from, {4}), "max", {}, true, int64_t{2});
      const std::vector<double> got = y.to_vector<double>();
      for (size_t b = 0; b + 1 < from.size(); ++b)
        for (int64_t j = 0; j < width; ++j) {
          double most = 0;
          bool any = false;
          for (int64_t i = from[b]; i < from[b + 1]; ++i) {
            const int64_t row = at[static_cast<size_t>(i)];
            if (row == 2) continue;
            const double x = v[static_cast<size_t>(row * width + j)];
            if (!any || x > most || std::isnan(x)) most = x;
            any = true;
          }
          const double have = got[b * static_cast<size_t>(width) + static_cast<size_t>(j)];
          EXPECT_TRUE(have == most || (std::isnan(have) && std::isnan(most))) << b << " " << j << ": " << have;
        }
    }
}

}  // namespace
}  // namespace strata
