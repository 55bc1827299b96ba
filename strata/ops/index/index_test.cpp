// What samples and their references do not show: the results of x[...] against NumPy's rules, sums in order.
#include <limits>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Ints = std::vector<int64_t>;

Tensor ints(const Ints& v) {
  return from_span<int64_t>(v, {static_cast<int64_t>(v.size())});
}
Tensor cube() {
  return arange(24).view({2, 3, 4});
}

TEST(Index, BasicIndexingMakesViews) {
  const Tensor x = cube();
  const Tensor y = x.index({1, Slice(0, 3, 2), None, Ellipsis});
  EXPECT_EQ(y.shape(), Shape({2, 1, 4}));
  EXPECT_EQ(y.to_vector<int64_t>(), Ints({12, 13, 14, 15, 20, 21, 22, 23}));
  EXPECT_EQ(y.storage(), x.storage());
  EXPECT_EQ(x.index({Ellipsis, -1}).to_vector<int64_t>(), Ints({3, 7, 11, 15, 19, 23}));
  EXPECT_EQ(x.index({Slice(), Slice({}, -1), 0}).to_vector<int64_t>(), Ints({0, 4, 12, 16}));
}

TEST(Index, TensorsReplaceTheirDimensionInPlace) {
  const Tensor x = cube();
  EXPECT_EQ(x.index({ints({1, -1})}).shape(), Shape({2, 3, 4}));
  const Tensor y = x.index({Slice(), ints({2, 0}).view({2, 1}), ints({0, 3, 3})});
  EXPECT_EQ(y.shape(), Shape({2, 2, 3}));
  EXPECT_EQ(y.to_vector<int64_t>(), Ints({8, 11, 11, 0, 3, 3, 20, 23, 23, 12, 15, 15}));
}

TEST(Index, SeparatedTensorsComeFirst) {
  const Tensor y = cube().index({ints({0, 1, 1}), Slice(), ints({1, 2, 3})});
  EXPECT_EQ(y.shape(), Shape({3, 3}));
  EXPECT_EQ(y.to_vector<int64_t>(), Ints({1, 5, 9, 14, 18, 22, 15, 19, 23}));
}

TEST(Index, MasksSelectAndKeepTheRest) {
  const Tensor x = cube();
  const Tensor rows = from_span<bool>(std::initializer_list<bool>{true, false, true, false, true, false}, {2, 3});
  const Tensor y = x.index({rows});
  EXPECT_EQ(y.shape(), Shape({3, 4}));
  EXPECT_EQ(y.select(1, 0).to_vector<int64_t>(), Ints({0, 8, 16}));
  EXPECT_EQ(x.index({full({}, false)}).shape(), Shape({0, 2, 3, 4}));
  EXPECT_EQ(x.index({full({}, true)}).shape(), Shape({1, 2, 3, 4}));
}

TEST(Index, ErrorsNameTheDimension) {
  const Tensor x = cube();
  const auto message = [&](const std::vector<TensorIndex>& i) {
    try {
      x.index(i);
    } catch (const IndexError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message({0, 3}), "index: index 3 is out of range for dimension 1 with size 3");
  EXPECT_EQ(message({Slice(), Slice(), ints({4})}), "index: index 4 is out of range for dimension 2 with size 4");
  EXPECT_NE(message({0, 0, 0, 0}).find("too many indices: 4"), std::string::npos);
  EXPECT_NE(message({Ellipsis, Ellipsis}).find("only one Ellipsis"), std::string::npos);
  EXPECT_NE(message({full({3}, true)}).find("does not fit"), std::string::npos);
  EXPECT_THROW(x.index({Slice(0, 2, 0)}), ValueError);
}

TEST(Index, AlongADimensionFromTheEnd) {
  const Tensor x = arange(6).view({2, 3});
  EXPECT_EQ(take_along_dim(x, ints({-1, 0}).view({2, 1}), 1).to_vector<int64_t>(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(take_along_dim(x, ints({-1, -6})).to_vector<int64_t>(), (std::vector<int64_t>{5, 0}));
  // The index stays as it is, and takes its part in the gradient.
  const Tensor last = ints({-1, 0}).view({2, 1});
  const Tensor y = arange(6).view({2, 3}).to(DType::f32).set_requires_grad();
  backward({sum(take_along_dim(y, last, 1))});
  EXPECT_EQ(last.to_vector<int64_t>(), (std::vector<int64_t>{-1, 0}));
  EXPECT_EQ(y.grad().to_vector<float>(), (std::vector<float>{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(take_along_dim(full({}, 7), full({}, -1), 0).item<int64_t>(), 7);
  const auto message = [&](std::vector<int64_t> index, std::optional<int64_t> dim) {
    try {
      take_along_dim(x, dim ? ints(std::move(index)).view({2, 1}) : ints(std::move(index)), dim);
    } catch (const IndexError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message({-4, 0}, 1), "take_along_dim: index -4 is out of range for dimension 1 with size 3");
  EXPECT_EQ(message({6}, {}), "take_along_dim: index 6 is out of range for dimension 0 with size 6");
}

TEST(Index, WithoutElementsTheOtherSizesCostNothing) {
  const int64_t large = int64_t{1} << 40;
  Tensor x = zeros({0, large, 3});
  const Tensor none = zeros({0}, DType::i64);
  EXPECT_EQ(x.index({none}).shape(), (Shape{0, large, 3}));
  EXPECT_EQ(index_select(x, 0, none).shape(), (Shape{0, large, 3}));
  x.index_put_({none}, full({}, 1.0));
  EXPECT_THROW(zeros({0, 3}).index({zeros({1}, DType::i64)}), IndexError);
}

TEST(Index, IntegerSumsWrapAround) {
  const Tensor most = full({1}, Scalar(INT32_MAX), DType::i32);
  EXPECT_EQ(scatter_add(most, 0, zeros({2}, DType::i64), full({2}, Scalar(1), DType::i32)).to_vector<int32_t>()[0],
            INT32_MIN + 1);
  EXPECT_EQ(index_add(most, 0, zeros({2}, DType::i64), full({2}, Scalar(1), DType::i32)).to_vector<int32_t>()[0],
            INT32_MIN + 1);
}

TEST(Index, PutBroadcastsAndConverts) {
  Tensor x = zeros({2, 3});
  x.index_put_({Slice(), ints({0, 2})}, ints({1, 2}).view({1, 1, 2}));
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>({1, 0, 2, 1, 0, 2}));
  x.index_put_({ints({0, 0, 0}), ints({1, 1, 1})}, full({}, 1.5), true);
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>({1, 4.5, 2, 1, 0, 2}));
  x.t().index_put_({1}, full({}, 9.0));  // through a view
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>({1, 9, 2, 1, 9, 2}));
  EXPECT_THROW(x.index_put_({0}, zeros({2})), ShapeError);
}

TEST(Index, SumsInBf16AreRoundedOnce) {
  const Tensor x = zeros({1}, DType::bf16);
  const Tensor y = scatter_add(x, 0, zeros({1000}, DType::i64), ones({1000}, DType::bf16));
  EXPECT_EQ(y.item<float>(), 1000);  // step by step in bf16 it would stop at 256
}

TEST(Index, SumsDoNotDependOnThreads) {
  const Tensor index = randint(0, 50, {20000}), source = randn({20000, 8});
  const int before = num_threads();
  set_num_threads(1);
  const std::vector<float> one = index_add(zeros({50, 8}), 0, index, source).to_vector<float>();
  set_num_threads(5);
  const std::vector<float> five = index_add(zeros({50, 8}), 0, index, source).to_vector<float>();
  set_num_threads(before);
  EXPECT_EQ(one, five);
}

TEST(Index, ScatterTakesALargerSourceAndItsGradientIsCut) {
  Tensor src = arange(6, DType::f32).view({2, 3}).clone().set_requires_grad();
  const Tensor y = scatter(zeros({2, 4}), 1, ints({3, 1}).view({1, 2}), src);
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>({0, 1, 0, 0, 0, 0, 0, 0}));
  sum(y).backward();
  EXPECT_EQ(src.grad().to_vector<float>(), std::vector<float>({1, 1, 0, 0, 0, 0}));
}

TEST(Index, OneHotAndBincountWorkOutTheirSize) {
  EXPECT_EQ(one_hot(ints({2, 0})).to_vector<int64_t>(), Ints({0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(bincount(ints({1, 3, 1})).to_vector<int64_t>(), Ints({0, 2, 0, 1}));
  EXPECT_EQ(bincount(ints({1, 0}), arange(2, DType::f32), 3).to_vector<float>(), std::vector<float>({1, 0, 0}));
  EXPECT_THROW(one_hot(ints({})), ShapeError);
}

// Slices whose elements lie apart are those of a copy without gaps, in elements of every size; one slice too.
TEST(Index, SlicesOfElementsThatLieApart) {
  for (const DType t : {DType::u8, DType::i16, DType::f32, DType::f64, DType::boolean})
    for (const int64_t width : {1, 7, 8, 33})
      for (const int64_t step : {1, 2, 3}) {
        const Tensor x =
            remainder(arange(6 * step * width), 101).to(t).view({6, step * width}).slice(1, 0, step * width, step);
        const Tensor dense = x.contiguous();
        for (const Tensor& at : {from_span<int64_t>(std::vector<int64_t>{5, 0, 3, 3}, {4}), full({1}, 4)}) {
          EXPECT_EQ(index_select(x, 0, at).to_vector<double>(), index_select(dense, 0, at).to_vector<double>());
          EXPECT_EQ(index(x, {at}).to_vector<double>(), index(dense, {at}).to_vector<double>());
          EXPECT_EQ(index_select(x.t(), 1, at).to_vector<double>(), index_select(dense.t(), 1, at).to_vector<double>());
          const Tensor each = expand(at.view({at.numel(), 1}), {at.numel(), width});
          EXPECT_EQ(gather(x, 0, each).to_vector<double>(), index_select(dense, 0, at).to_vector<double>());
        }
      }
  for (const int64_t outside :
       {int64_t{6}, int64_t{-1}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    const Tensor x = ones({6, 4});
    EXPECT_THROW(index_select(x, 0, full({1}, outside)), IndexError) << outside;
    EXPECT_THROW(gather(x, 0, full({2, 4}, outside)), IndexError) << outside;
    EXPECT_THROW(scatter(x, 0, full({2, 4}, outside), zeros({2, 4})), IndexError) << outside;
  }
}

}  // namespace
}  // namespace strata
