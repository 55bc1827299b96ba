// Sums of rows by index whose runs of equal keys are cut into parts, against the CPU.

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/strata.h"

namespace strata::cuda {
namespace {

class RowsByIndex : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << unavailable_reason();
    manual_seed(7);
  }
};

// Keys of n positions with runs of very different lengths: key k has about n / 2^(k + 1) of them.
Tensor lopsided(int64_t n) {
  return floor(log2(rand({n}) * 0.998 + 1e-3) * -1.0).to(DType::i64);
}

TEST_F(RowsByIndex, LongRunsAddUpAsOnTheProcessor) {
  const int64_t rows = 12;
  for (const int64_t n : {63, 64, 65, 128, 129, 1000, 20000})
    for (const int64_t width : {1, 5, 96, 768})
      for (const DType type : {DType::f32, DType::bf16, DType::f64, DType::i32}) {
        SCOPED_TRACE(cat(n, " of width ", width, " ", type));
        const Tensor index = lopsided(n), source = (randn({n, width}) * 4.0).to(type),
                     start = ones({rows, width}, type);
        const auto on_card = [&] {
          return index_add(start.to(Device::cuda()), 0, index.to(Device::cuda()), source.to(Device::cuda()));
        };
        const Tensor want = index_add(start, 0, index, source), got = on_card();
        const std::vector<double> u = want.to_vector<double>(), v = got.to_vector<double>();
        double most = 0, scale = 1;
        for (size_t i = 0; i < u.size(); ++i) {
          most = std::max(most, std::isnan(v[i]) ? INFINITY : std::abs(u[i] - v[i]));
          scale = std::max(scale, std::abs(u[i]));
        }
        EXPECT_LE(most, scale * (type == DType::bf16 ? 8e-3 : type == DType::f32 ? 1e-5 : 1e-12));
        EXPECT_EQ(on_card().to_vector<double>(), v);
      }
}

TEST_F(RowsByIndex, EveryPositionNamesOneRow) {
  const int64_t n = 5000, width = 72;
  const Tensor w = zeros({3, width}).to(Device::cuda()).set_requires_grad();
  const Tensor index = full({n}, 1, DType::i64).to(Device::cuda());
  embedding(index, w).backward(ones({n, width}).to(Device::cuda()));
  const std::vector<double> g = w.grad().to_vector<double>();
  for (int64_t i = 0; i < 3 * width; ++i) EXPECT_EQ(g[static_cast<size_t>(i)], i / width == 1 ? n : 0);
}

TEST_F(RowsByIndex, PaddingRowIsLeftAloneWhereItsRunIsLong) {
  const int64_t n = 700, width = 8;
  const Tensor w = zeros({3, width}).to(Device::cuda()).set_requires_grad();
  Tensor index = full({n}, 2, DType::i64);
  index.narrow(0, 0, 300).fill_(1);
  embedding(index.to(Device::cuda()), w, 2).backward(ones({n, width}).to(Device::cuda()));
  const std::vector<double> g = w.grad().to_vector<double>();
  for (int64_t i = 0; i < 3 * width; ++i) EXPECT_EQ(g[static_cast<size_t>(i)], i / width == 1 ? 300 : 0);
}

TEST_F(RowsByIndex, RowsOfEveryLengthAreTaken) {
  for (const int64_t width : {1, 3, 24, 96, 1000, 4096, 9000}) {
    const Tensor table = randn({50, width}), index = randint(0, 50, {77});
    EXPECT_EQ(embedding(index.to(Device::cuda()), table.to(Device::cuda())).to_vector<float>(),
              embedding(index, table).to_vector<float>())
        << width;
  }
}

// More rows than one thread takes, of every way in which threads stand along a row.
TEST_F(RowsByIndex, ManyRowsOfEveryLengthAreTaken) {
  for (const int64_t width : {2, 3, 12, 33, 40, 64, 100, 128, 129, 256, 300, 512, 1000}) {
    const int64_t rows = 61, n = (int64_t{1} << 20) * 4 / width + 13;
    const Tensor table = randn({rows, width}), index = randint(-rows, rows, {n});
    const Tensor want = table.index({index}), got = table.to(Device::cuda()).index({index.to(Device::cuda())});
    EXPECT_TRUE(equal(got.to(Device::cpu()), want)) << width;
  }
  const Tensor blocks = randn({3, 50, 40}), index = randint(0, 50, {40000});
  EXPECT_TRUE(equal(index_select(blocks.to(Device::cuda()), 1, index.to(Device::cuda())).to(Device::cpu()),
                    index_select(blocks, 1, index)));
}

// The gradient of x[index]: rows that begin anywhere, are named often, once, not at all, and from the end.
TEST_F(RowsByIndex, GradientsOfIndexAddUpAsOnTheProcessor) {
  const int64_t rows = 300;
  for (const int64_t n : {0, 1, 63, 5000})
    for (const int64_t width : {1, 3, 16, 100, 264, 1024})
      for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
        SCOPED_TRACE(cat(n, " of width ", width, " ", type));
        Tensor index = randint(-rows, rows / 2, {n});
        if (n > 1000) index.narrow(0, 0, 700).fill_(-1);
        const Tensor g = randn({n, width}).to(type);
        const auto gradient = [&](Device device, bool one) {
          const Tensor x = zeros({rows, width}, type).to(device).set_requires_grad();
          const Tensor at = (one ? index * 0 + 7 : index).to(device);
          x.index({at}).backward(g.to(device));
          return x.grad().to(Device::cpu());
        };
        for (const bool one : {false, true}) {
          const Tensor want = gradient(Device::cpu(), one), got = gradient(Device::cuda(), one);
          const double digits = type == DType::bf16  ? 8e-3
                                : type == DType::f16 ? 1e-3
                                : type == DType::f32 ? 1e-5
                                                     : 1e-12;
          EXPECT_TRUE(allclose(got.to(DType::f64), want.to(DType::f64), digits, digits * 100));
          EXPECT_TRUE(equal(gradient(Device::cuda(), one), got));
        }
      }
}

// Sums of slices that are long enough for a sorted index, where y is another tensor and where it is x; a source that
// does not begin at a multiple of 16 bytes.
TEST_F(RowsByIndex, SlicesAddUpAsOnTheProcessor) {
  const int64_t rows = 500, n = 6000;
  for (const int64_t width : {64, 1001})
    for (const int64_t first : {0, 1}) {
      SCOPED_TRACE(cat("width ", width, " from ", first));
      const Tensor x = randn({rows, width}), index = randint(0, rows, {n});
      const Tensor all = randn({n * width + 4}), source = all.narrow(0, first, n * width).view({n, width});
      const Tensor there = all.to(Device::cuda()).narrow(0, first, n * width).view({n, width});
      const Tensor want = index_add(x, 0, index, source, 0.5);
      Tensor y = x.to(Device::cuda());
      const Tensor apart = index_add(y, 0, index.to(Device::cuda()), there, 0.5);
      index_add_(y, 0, index.to(Device::cuda()), there, 0.5);
      EXPECT_TRUE(allclose(apart.to(Device::cpu()), want, 1e-5, 1e-4));
      EXPECT_TRUE(equal(apart, y));
    }
}

}  // namespace
}  // namespace strata::cuda
