// Tensors of more than 2^31 elements of one or two bytes: elementwise functions, copies, reductions, indexing.

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/strata.h"

namespace strata::cuda {
namespace {

constexpr int64_t kRows = 46341, kColumns = 46343;  // both odd
constexpr int64_t kAll = kRows * kColumns;
static_assert(kAll > int64_t{1} << 31);

class CudaLarge : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << unavailable_reason();
    if (properties().memory_bytes < int64_t{40} << 30) GTEST_SKIP() << "the card has less than 40 GiB";
    rows = remainder(arange(kRows), 101).to(DType::u8);
    columns = remainder(arange(kColumns), 103).to(DType::u8);
  }
  // Element (i, j) is i % 101 + j % 103.
  Tensor matrix() const { return rows.to(Device::cuda()).unsqueeze(1) + columns.to(Device::cuda()).unsqueeze(0); }
  static int64_t at(int64_t i, int64_t j) { return i % 101 + j % 103; }

  Tensor rows, columns;
};

TEST_F(CudaLarge, ElementsAndCopies) {
  const Tensor x = matrix();
  ASSERT_EQ(x.numel(), kAll);
  for (const int64_t i : {int64_t{0}, kRows / 2, kRows - 1})
    for (const int64_t j : {int64_t{0}, kColumns / 3, kColumns - 1})
      EXPECT_EQ(x.select(0, i).select(0, j).item<int64_t>(), at(i, j)) << i << " " << j;
  {
    const Tensor twice = x + x, last = twice.select(0, kRows - 1);
    EXPECT_EQ(last.select(0, kColumns - 1).item<int64_t>(), 2 * at(kRows - 1, kColumns - 1) % 256);
  }
  const Tensor turned = x.transpose(0, 1).contiguous();
  EXPECT_EQ(turned.select(0, kColumns - 1).select(0, kRows - 2).item<int64_t>(), at(kRows - 2, kColumns - 1));
  EXPECT_TRUE(all(eq(turned.transpose(0, 1), x)).item<bool>());
  const Tensor flat = x.reshape({kAll});
  flat.narrow(0, kAll - 5, 3).fill_(250);
  EXPECT_EQ(flat.select(0, kAll - 3).item<int64_t>(), 250);
  EXPECT_EQ(flat.select(0, kAll - 2).item<int64_t>(), at(kRows - 1, kColumns - 2));
}

TEST_F(CudaLarge, HalvesOfTwoBytes) {
  const DeviceScope on(Device::cuda());
  Tensor x = full({kAll}, 0.5, DType::bf16);
  x.narrow(0, kAll - 1, 1).fill_(3);
  const Tensor y = relu(x * 2.0);
  EXPECT_EQ(y.select(0, kAll - 1).item(), 6);
  EXPECT_EQ(y.select(0, kAll - 2).item(), 1);
  EXPECT_EQ(max(y).item(), 6);
  EXPECT_EQ(argmax(y).item<int64_t>(), kAll - 1);
}

TEST_F(CudaLarge, Reductions) {
  const Tensor x = matrix();
  const auto sum_of = [](const Tensor& t) { return sum(t.to(DType::i64)).item<int64_t>(); };
  EXPECT_EQ(sum(x).item<int64_t>(), sum_of(rows) * kColumns + sum_of(columns) * kRows);
  EXPECT_EQ(sum(x, {0}).select(0, kColumns - 1).item<int64_t>(), sum_of(rows) + kRows * ((kColumns - 1) % 103));
  EXPECT_EQ(sum(x, {1}).select(0, kRows - 1).item<int64_t>(), sum_of(columns) + kColumns * ((kRows - 1) % 101));
  EXPECT_EQ(max(x).item<int64_t>(), 100 + 102);
  EXPECT_EQ(count_nonzero(x).item<int64_t>(), kAll - ((kRows + 100) / 101) * ((kColumns + 102) / 103));
}

TEST_F(CudaLarge, Indexing) {
  const Tensor x = matrix(), flat = x.reshape({kAll});
  const std::vector<int64_t> wanted{kAll - 1, 0, (int64_t{1} << 31) + 3};
  const Tensor index = from_span<int64_t>(wanted, {3}).to(Device::cuda());
  const std::vector<int64_t> got = index_select(flat, 0, index).to(DType::i64).to_vector<int64_t>();
  for (size_t k = 0; k < wanted.size(); ++k) EXPECT_EQ(got[k], at(wanted[k] / kColumns, wanted[k] % kColumns));
  const Tensor order = from_span<int64_t>(std::vector<int64_t>{kRows - 1, 1}, {2}).to(Device::cuda());
  const Tensor taken = index_select(x, 0, order);
  EXPECT_EQ(taken.select(0, 0).select(0, kColumns - 1).item<int64_t>(), at(kRows - 1, kColumns - 1));
  const Tensor filled = masked_fill(x, x > 200, 255);
  EXPECT_EQ(max(filled).item<int64_t>(), 255);
  EXPECT_EQ(sum(filled == 255).item<int64_t>(), sum(x > 200).item<int64_t>());
}

}  // namespace
}  // namespace strata::cuda
