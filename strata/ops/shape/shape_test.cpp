#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/pad_kernel.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/vec/level.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Ints = std::vector<int64_t>;

TEST(Shape, CatPromotesAndJoinsStridedParts) {
  const Tensor a = arange(6).view({2, 3}).t(), b = full({3, 1}, 0.5);
  const Tensor y = cat({a, b}, -1);
  EXPECT_EQ(y.dtype(), DType::f32);
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>({0, 3, 0.5, 1, 4, 0.5, 2, 5, 0.5}));
}

// Where a card finds a padded tensor's elements.
TEST(Shape, PlacesOfPaddedElementsAreThoseOfTheOp) {
  constexpr std::pair<PadMode, const char*> modes[] = {
      {PadMode::reflect, "reflect"}, {PadMode::replicate, "replicate"}, {PadMode::circular, "circular"}};
  for (const auto& [mode, name] : modes)
    for (const int64_t size : {2, 5})
      for (const int64_t before : {-1, 0, 1, 4})
        for (const int64_t after : {-1, 0, 1, 4}) {
          const int64_t most = mode == PadMode::reflect ? size - 1 : size;
          const bool crops = mode == PadMode::circular && (before < 0 || after < 0);
          if ((mode != PadMode::replicate && std::max(before, after) > most) || crops) continue;
          const Ints want = pad(arange(size), {before, after}, name).to_vector<int64_t>();
          Ints got;
          for (int64_t i = 0; i < size + before + after; ++i) got.push_back(pad_place(mode, i - before, size));
          EXPECT_EQ(got, want) << name << " " << size << " " << before << " " << after;
        }
}

TEST(Shape, SplitPartsWithoutAGradientCountAsZero) {
  Tensor x = arange(5, DType::f32).set_requires_grad();
  const TensorList parts = split(x, 2);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].storage(), x.storage());
  sum(parts[1] * parts[1]).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>({0, 0, 4, 6, 0}));
}

TEST(Shape, PartsOfAnEmptyDimension) {
  const TensorList chunks = chunk(zeros({0, 3}), 3);
  ASSERT_EQ(chunks.size(), 3u);
  for (const Tensor& c : chunks) EXPECT_EQ(c.shape(), Shape({0, 3}));
  const TensorList parts = split(zeros({3, 0}), 0, 1);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].shape(), Shape({3, 0}));
  EXPECT_THROW(split(zeros({3, 2}), 0, 1), ValueError);
  Tensor x = zeros({0, 3}).set_requires_grad();
  sum(chunk(x, 2)[1]).backward();
  EXPECT_EQ(x.grad().shape(), Shape({0, 3}));
}

TEST(Shape, MeshgridGradientSumsOverTheGrid) {
  Tensor a = arange(2, DType::f32).set_requires_grad(), b = arange(3, DType::f32).set_requires_grad();
  const TensorList g = meshgrid({a, b}, "xy");
  EXPECT_EQ(g[0].shape(), Shape({3, 2}));
  sum(g[0] * g[1]).backward();
  EXPECT_EQ(a.grad().to_vector<float>(), std::vector<float>({3, 3}));
  EXPECT_EQ(b.grad().to_vector<float>(), std::vector<float>({1, 1, 1}));
}

TEST(Shape, RepeatsLikeNumPy) {
  const Tensor x = arange(4).view({2, 2});
  EXPECT_EQ(repeat(x, {1, 2}).to_vector<int64_t>(), Ints({0, 1, 0, 1, 2, 3, 2, 3}));
  EXPECT_EQ(repeat_interleave(x, 2, 0).to_vector<int64_t>(), Ints({0, 1, 0, 1, 2, 3, 2, 3}));
  EXPECT_EQ(repeat_interleave(x, from_span<int64_t>(Ints{2, 0}, {2}), 1).to_vector<int64_t>(), Ints({0, 0, 2, 2}));
  EXPECT_EQ(tile(x, {2}).shape(), Shape({2, 4}));
  EXPECT_THROW(repeat_interleave(x, arange(3), 0), ShapeError);
}

// Of dimensions that fit beside their repetitions and of more, repeated, single, empty, and left alone.
TEST(Shape, RepeatsAreThoseOfEachDimension) {
  const auto by_dimensions = [](const Tensor& x, const Dims& repeats) {
    Tensor y = x;
    for (int d = 0; d < repeats.size(); ++d)
      y = repeats[d] == 0 ? y.narrow(d, 0, 0) : cat(TensorList(static_cast<size_t>(repeats[d]), y), d);
    return y;
  };
  const std::vector<std::pair<Shape, Dims>> cases = {{{2, 3, 4}, {1, 2, 1}},
                                                     {{2, 3, 4}, {3, 1, 2}},
                                                     {{2, 1, 4}, {2, 3, 1}},
                                                     {{1, 5}, {4, 1}},
                                                     {{2, 0, 3}, {2, 2, 2}},
                                                     {{2, 3}, {2, 0}},
                                                     {{2, 1, 2, 3, 2}, {2, 3, 2, 1, 2}},
                                                     {{2, 3, 2, 2, 2}, {2, 2, 2, 2, 2}}};
  for (const auto& [shape, repeats] : cases) {
    SCOPED_TRACE(strata::cat(shape, " times ", repeats));
    const Tensor x = arange(shape.product()).view(shape);
    const Tensor got = repeat(x, repeats), want = by_dimensions(x, repeats);
    EXPECT_EQ(got.shape(), want.shape());
    EXPECT_EQ(got.to_vector<int64_t>(), want.to_vector<int64_t>());
    const Tensor back = repeat(x.transpose(0, 1), repeats);
    EXPECT_EQ(back.to_vector<int64_t>(), by_dimensions(x.transpose(0, 1), repeats).to_vector<int64_t>());
  }
  EXPECT_THROW(repeat(zeros({2}), {int64_t{1} << 61}), ShapeError);
}

TEST(Shape, PadsInEveryMode) {
  const Tensor x = arange(3);
  EXPECT_EQ(pad(x, {2, 2}, "reflect").to_vector<int64_t>(), Ints({2, 1, 0, 1, 2, 1, 0}));
  EXPECT_EQ(pad(x, {1, 2}, "replicate").to_vector<int64_t>(), Ints({0, 0, 1, 2, 2, 2}));
  EXPECT_EQ(pad(x, {1, 3}, "circular").to_vector<int64_t>(), Ints({2, 0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(pad(x, {-1, 2}, "constant", 7).to_vector<int64_t>(), Ints({1, 2, 7, 7}));
  EXPECT_EQ(pad(x.view({1, 3}), {0, 0, 1, 0}).to_vector<int64_t>(), Ints({0, 0, 0, 0, 1, 2}));
}

TEST(Shape, AbsurdPadsAreRefused) {
  const Tensor x = arange(3);
  EXPECT_THROW(pad(x, {0, int64_t{1} << 45}, "replicate"), MemoryError);
  EXPECT_THROW(pad(x, {INT64_MIN, INT64_MAX}, "replicate"), ShapeError);
  EXPECT_THROW(pad(x, {INT64_MIN, INT64_MAX}), ShapeError);
}

TEST(Shape, CombinationsOfManyPlaces) {
  EXPECT_EQ(combinations(ones({1}), 1 << 20, true).shape(), Shape({1, 1 << 20}));  // deeper than a stack
  EXPECT_EQ(combinations(ones({2}), 3).shape(), Shape({0, 3}));
  EXPECT_EQ(combinations(ones({0}), 2, true).shape(), Shape({0, 2}));
  EXPECT_EQ(combinations(arange(3), 2, true).to_vector<int64_t>(),
            std::vector<int64_t>({0, 0, 0, 1, 0, 2, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(combinations(arange(4), 3).to_vector<int64_t>(),
            std::vector<int64_t>({0, 1, 2, 0, 1, 3, 0, 2, 3, 1, 2, 3}));
  EXPECT_THROW(combinations(ones({3}), std::numeric_limits<int64_t>::max(), true), ShapeError);
}

// Long runs are copied to places a few bytes from where they came, at any ends.
TEST(Shape, LongRunsAFewElementsApart) {
  for (const DType t : {DType::u8, DType::i16, DType::f32, DType::i64})
    for (const int64_t n : {1025, 4099, 70001})
      for (const int64_t shift : {1, 3, 17, 1023}) {
        const Tensor x = arange(n).to(t);
        const Ints from = x.to_vector<int64_t>(), to = roll(x, {shift}).to_vector<int64_t>();
        for (int64_t i = 0; i < n; ++i)
          ASSERT_EQ(to[static_cast<size_t>((i + shift) % n)], from[static_cast<size_t>(i)]) << n << ' ' << shift;
      }
}

TEST(Shape, RollFlipAndTriangles) {
  const Tensor x = arange(6).view({2, 3});
  EXPECT_EQ(roll(x, {1}).to_vector<int64_t>(), Ints({5, 0, 1, 2, 3, 4}));
  EXPECT_EQ(roll(x, {1, -1}, {0, 1}).to_vector<int64_t>(), Ints({4, 5, 3, 1, 2, 0}));
  EXPECT_EQ(flip(x, {0, 1}).to_vector<int64_t>(), Ints({5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(tril(x).to_vector<int64_t>(), Ints({0, 0, 0, 3, 4, 0}));
  EXPECT_EQ(triu(x, 1).to_vector<int64_t>(), Ints({0, 1, 2, 0, 0, 5}));
  EXPECT_EQ(movedim(zeros({2, 3, 4}), {0}, {2}).shape(), Shape({3, 4, 2}));
  EXPECT_EQ(diag(arange(2), 1).to_vector<int64_t>(), Ints({0, 0, 0, 0, 0, 1, 0, 0, 0}));
}

// What is not 0 is true, of every type, in dense runs of any length and in elements that lie apart.
TEST(Shape, BitsOfNumbers) {
  for (const DType t : kAllDTypes)
    for (const int64_t n : {0, 1, 7, 64, 131}) {
      Tensor x = remainder(arange(2 * n), 3).to(t);
      if (is_floating(t)) x = x * -0.25;
      const std::vector<double> values = x.to_vector<double>();
      const std::vector<float> all = x.to(DType::boolean).to_vector<float>(),
                               seconds = x.slice(0, 0, 2 * n, 2).to(DType::boolean).to_vector<float>();
      for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(all[i], values[i] != 0 ? 1 : 0) << name_of(t) << ' ' << i;
      for (size_t i = 0; i < seconds.size(); ++i) EXPECT_EQ(seconds[i], all[2 * i]) << name_of(t) << ' ' << i;
      EXPECT_EQ(count_nonzero(x).item(), std::accumulate(all.begin(), all.end(), 0.0)) << name_of(t);
    }
  EXPECT_EQ(full({3}, std::nan(""), DType::f64).to(DType::boolean).to_vector<float>(), std::vector<float>(3, 1));
  EXPECT_EQ(full({9}, 256, DType::i16).to(DType::boolean).to_vector<float>(), std::vector<float>(9, 1));
  EXPECT_EQ(full({9}, int64_t{1} << 40, DType::i64).to(DType::boolean).to_vector<float>(), std::vector<float>(9, 1));
}

// Narrow matrices are turned by weaving vectors of their lines, at each level of the processor.
TEST(Layout, NarrowMatricesTurned) {
  for (const int level : {0, 1, 2, 3}) {
    set_vec_level(level);
    for (const DType t : {DType::u8, DType::i16, DType::f32, DType::i64})
      for (const int64_t lines : {2, 3, 4, 5})
        for (const int64_t n : {2, 15, 64, 197}) {
          const Tensor x = remainder(arange(lines * n), 251).to(t), flat = x.view({lines, n}),
                       tall = x.view({n, lines});
          Ints woven, parts;
          for (int64_t i = 0; i < n; ++i)
            for (int64_t k = 0; k < lines; ++k) woven.push_back((k * n + i) % 251);
          for (int64_t k = 0; k < lines; ++k)
            for (int64_t i = 0; i < n; ++i) parts.push_back((i * lines + k) % 251);
          EXPECT_EQ(flat.t().contiguous().to_vector<int64_t>(), woven) << level << ' ' << lines << " x " << n;
          EXPECT_EQ(tall.t().contiguous().to_vector<int64_t>(), parts) << level << ' ' << n << " x " << lines;
          // Lines that are parts of longer ones; what lies between is left alone.
          const Tensor wide = full({n, lines + 1}, 7, t);
          wide.slice(1, 0, lines).copy_(flat.t());
          EXPECT_EQ(wide.slice(1, 0, lines).contiguous().to_vector<int64_t>(), woven);
          EXPECT_EQ(wide.slice(1, lines, lines + 1).contiguous().to_vector<int64_t>(), Ints(static_cast<size_t>(n), 7));
        }
  }
  set_vec_level(-1);
}

// Numbers repeated along lines, and conversions of numbers that lie apart, at each level of the processor.
TEST(Layout, RepeatedAndConvertedLines) {
  for (const int level : {0, 1, 2, 3}) {
    set_vec_level(level);
    for (const DType t : {DType::u8, DType::i16, DType::f32, DType::i64, DType::f64, DType::f16, DType::bf16})
      for (const int64_t n : {1, 3, 16, 63, 200, 1030}) {
        const Tensor column = remainder(arange(12), 251).to(t).view({12, 1});
        Tensor wide = full({12, n + 2}, 3, t);
        wide.slice(1, 1, n + 1).copy_(column.expand({12, n}));
        const Ints all = wide.to_vector<int64_t>(), repeated = column.expand({12, n}).contiguous().to_vector<int64_t>();
        for (int64_t i = 0; i < 12; ++i)
          for (int64_t j = 0; j < n + 2; ++j) {
            const bool inside = j > 0 && j <= n;
            ASSERT_EQ(all[static_cast<size_t>(i * (n + 2) + j)], inside ? i : 3) << level << ' ' << n;
            if (inside) ASSERT_EQ(repeated[static_cast<size_t>(i * n + j - 1)], i) << level << ' ' << n;
          }
        const Tensor x = remainder(arange(5 * 3 * n), 120).to(t).view({5, 3 * n});
        for (const Tensor& apart :
             {x.slice(1, 1, 3 * n, 2), x.slice(1, 0, 3 * n, 3), x.t(), x.slice(1, 0, n).expand({5, n})})
          for (const DType to : {DType::f32, DType::f16, DType::bf16, DType::i64, DType::f64, DType::boolean}) {
            std::vector<double> want = apart.contiguous().to_vector<double>();
            if (to == DType::boolean)
              for (double& v : want) v = v != 0;
            EXPECT_EQ(apart.to(to).contiguous().to_vector<double>(), want) << level << ' ' << n;
            Tensor dense = empty(like(apart).with_dtype(to));
            dense.copy_(apart);
            EXPECT_EQ(dense.to_vector<double>(), want) << level << ' ' << n;
          }
      }
  }
  set_vec_level(-1);
}

TEST(Layout, CopiesKeepTheOrderInMemory) {
  const Tensor x = arange(24).view({2, 3, 4}), turned = x.permute({2, 0, 1});
  for (const Tensor& y : {clone(turned), roll(turned, {1, 2}, {0, 2}), roll(turned, {0}, {1})}) {
    EXPECT_TRUE(y.strides() == turned.strides());
    EXPECT_FALSE(y.storage() == x.storage());
  }
  EXPECT_EQ(clone(turned).to_vector<int64_t>(), turned.to_vector<int64_t>());
  EXPECT_EQ(roll(turned, {1, 2}, {0, 2}).to_vector<int64_t>(),
            roll(contiguous(turned), {1, 2}, {0, 2}).to_vector<int64_t>());
  // Without gaps, and row-major where elements share a place.
  EXPECT_TRUE(clone(turned.narrow(0, 1, 2)).strides() == Strides({1, 6, 2}));
  EXPECT_TRUE(clone(arange(3).view({3, 1}).expand({3, 4})).is_contiguous());
  EXPECT_TRUE(roll(turned, {5}).is_contiguous());
  EXPECT_TRUE(contiguous(turned).is_contiguous());
  EXPECT_EQ(roll(turned, {5}).to_vector<int64_t>(), roll(contiguous(turned), {5}).to_vector<int64_t>());
}

TEST(Layout, GradientsOfCopiesAreThoseOfTheirElements) {
  Tensor x = ones({3, 4});
  x.set_requires_grad();
  const Tensor weight = arange(12).to(DType::f32).view({4, 3});
  (clone(x.t()) * weight + roll(x.t(), {1, 1}, {0, 1}) * weight).sum().backward();
  const Tensor want = weight + roll(weight, {-1, -1}, {0, 1});
  EXPECT_EQ(x.grad().to_vector<float>(), want.t().to_vector<float>());
  EXPECT_TRUE(x.grad().is_contiguous());
}

}  // namespace
}  // namespace strata
