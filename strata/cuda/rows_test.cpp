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

}  // namespace
}  // namespace strata::cuda
