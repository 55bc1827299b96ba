// Printing, compared with what PyTorch 2 prints for the same tensors (dtype names are ours).
#include <gtest/gtest.h>

#include <limits>

#include "strata/core/recording.h"
#include "strata/core/tensor.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor f32(std::vector<float> v) {
  return from_span<float>(std::span<const float>(v), {static_cast<int64_t>(v.size())});
}
Tensor range(int64_t n) {
  return cumsum(full({n}, 1), 0) - 1;
}

TEST(Print, ScalarsAndModes) {
  EXPECT_EQ(full({}, 2.5).to_string(), "tensor(2.5000)");
  EXPECT_EQ(f32({1, 2, 3}).to_string(), "tensor([1., 2., 3.])");
  EXPECT_EQ(f32({1, 2.5f, -3}).to_string(), "tensor([ 1.0000,  2.5000, -3.0000])");
  EXPECT_EQ(f32({1e-5f, 1}).to_string(), "tensor([1.0000e-05, 1.0000e+00])");
  EXPECT_EQ(f32({1.5f, 12345.678f}).to_string(), "tensor([1.5000e+00, 1.2346e+04])");
  EXPECT_EQ(f32({1, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}).to_string(),
            "tensor([1., inf, nan])");
  EXPECT_EQ(range(3).to_string(), "tensor([0, 1, 2])");
  EXPECT_EQ((range(3) > 1).to_string(), "tensor([False, False,  True])");
}

TEST(Print, DtypeAndHistory) {
  EXPECT_EQ(full({2}, 1, DType::bf16).to_string(), "tensor([1., 1.], dtype=bf16)");
  EXPECT_EQ(full({2}, 1, DType::i32).to_string(), "tensor([1, 1], dtype=i32)");
  Tensor w = f32({1}).set_requires_grad();
  EXPECT_EQ(w.to_string(), "tensor([1.], requires_grad=True)");
  EXPECT_EQ(exp(w * 0.0).to_string(), "tensor([1.], grad_fn=<exp>)");
  EXPECT_EQ(Tensor().to_string(), "tensor(undefined)");
}

TEST(Print, NestingAndEmpty) {
  EXPECT_EQ(range(4).reshape({2, 2}).to_string(), "tensor([[0, 1],\n        [2, 3]])");
  EXPECT_EQ(range(4).reshape({2, 2}).t().to_string(), "tensor([[0, 2],\n        [1, 3]])");
  EXPECT_EQ(range(4).reshape({2, 1, 2}).to_string(), "tensor([[[0, 1]],\n\n        [[2, 3]]])");
  EXPECT_EQ(zeros({0}).to_string(), "tensor([])");
  EXPECT_EQ(zeros({0, 3}).to_string(), "tensor([], size=[0, 3])");
}

TEST(Print, LargeTensorsAreSummarised) {
  EXPECT_EQ(range(2000).to_string(), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])");
  EXPECT_EQ(range(4000).reshape({2000, 2}).to_string(),
            "tensor([[   0,    1],\n        [   2,    3],\n        [   4,    5],\n        ...,\n        [3994, 3995],\n"
            "        [3996, 3997],\n        [3998, 3999]])");
  // 1000 elements are still shown, in lines of at most 80 characters.
  const std::string all = range(1000).to_string();
  EXPECT_EQ(all.find("..."), std::string::npos);
  EXPECT_NE(all.find("999])"), std::string::npos);
  for (size_t at = 0, end; at < all.size(); at = end + 1) {
    end = std::min(all.find('\n', at), all.size());
    EXPECT_LE(end - at, 80u);
  }
}

// Wherever the tensor lies: of a large one only what is shown is copied.
TEST(Print, CopiesWhatItShows) {
  const Tensor x = range(3 * 9000).view({3, 90, 100}).transpose(1, 2);
  std::string text;
  int64_t copied = 0;
  const Recording seen = record([&] { text = x.to_string(); });
  for (const RecordedCall& c : seen.calls)
    for (const ValueIndex v : c.targets) copied += seen.values[static_cast<size_t>(v.at)].shape.product();
  EXPECT_EQ(copied, 3 * 6 * 6);
  EXPECT_EQ(text.find("[[[    0,   100,   200,  ...,  8700,  8800,  8900],"), 7u) << text;
  EXPECT_NE(text.find("[18099, 18199, 18299,  ..., 26799, 26899, 26999]]])"), std::string::npos) << text;
}

TEST(Print, ToVectorConvertsAndReordersStrides) {
  EXPECT_EQ(range(4).reshape({2, 2}).t().to_vector<double>(), (std::vector<double>{0, 2, 1, 3}));
  EXPECT_EQ(f32({0, 2.7f}).to_vector<int>(), (std::vector<int>{0, 2}));
  EXPECT_EQ(f32({0, 2.7f}).to_vector<bool>(), (std::vector<bool>{false, true}));
  // Refused before memory is taken for the values.
  EXPECT_THROW(empty({{int64_t{1} << 40}, DType::f32, Device::meta(), std::nullopt}).to_vector<double>(), DeviceError);
}

}  // namespace
}  // namespace strata
