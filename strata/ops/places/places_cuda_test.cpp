// Values sent to places, runs, recurrences and pairs on a CUDA device against the CPU's, of sizes that samples lack:
// several tiles of places, several stretches of a line, ties in one stretch, lines that are rows and columns.

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/strata.h"

namespace strata {
namespace {

class PlacesCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
    manual_seed(5);
  }
  static Tensor on(const Tensor& t) { return t.to(Device::cuda()); }
  static void expect_same(const Tensor& got, const Tensor& want) { EXPECT_TRUE(equal(got.to(Device::cpu()), want)); }
  static void expect_near(const Tensor& got, const Tensor& want) {
    EXPECT_TRUE(allclose(got.to(Device::cpu()), want, 1e-4, 1e-5));
  }
};

TEST_F(PlacesCuda, ScatterAlongColumnsAndRows) {
  for (const int64_t n : {1, 40, 1000})
    for (const int64_t m : {1, 64, 1029})
      for (const int64_t other : {1, 33, 70}) {
        SCOPED_TRACE(cat(n, " places, ", m, " values, ", other, " lines"));
        const Tensor x = randn({n, other}), index = randint(0, n, {m, other}), src = randn({m, other});
        expect_near(scatter_add(on(x), 0, on(index), on(src)), scatter_add(x, 0, index, src));
        expect_near(scatter_add(on(x.t()), 1, on(index.t()), on(src.t())), scatter_add(x.t(), 1, index.t(), src.t()));
        expect_same(scatter(on(x), 0, on(index), on(src)), scatter(x, 0, index, src));
        for (const char* how : {"sum", "prod", "mean", "amax", "amin"})
          for (const bool self : {true, false})
            expect_near(scatter_reduce(on(x), 0, on(index), on(src), how, self),
                        scatter_reduce(x, 0, index, src, how, self));
      }
}

// So many lines of so many places that a block's tile takes all of a multiprocessor's memory, and a tile that is a part
// of such a line: elements that have a place each, and such that share a few.
TEST_F(PlacesCuda, ManyLongLines) {
  for (const auto& [places, lines] : {std::pair<int64_t, int64_t>{4096, 1100}, {8192, 600}})
    for (const int64_t named : {places, int64_t{40}}) {
      SCOPED_TRACE(cat(places, " places of ", lines, " lines, ", named, " named"));
      const Tensor x = randn({places, lines}), index = randint(0, named, {300, lines}), src = randn({300, lines});
      const Tensor got = scatter_add(on(x), 0, on(index), on(src));
      expect_near(got, scatter_add(x, 0, index, src));
      expect_same(scatter_add(on(x), 0, on(index), on(src)), got.to(Device::cpu()));
      expect_near(scatter_reduce(on(x), 0, on(index), on(src), "amax", true),
                  scatter_reduce(x, 0, index, src, "amax", true));
    }
}

TEST_F(PlacesCuda, ReadsOneByOne) {
  const Tensor x = randn({1000, 3}), index = randint(-3000, 3000, {70, 41});
  expect_same(take(on(x), on(index)), take(x, index));
  // Where they lie, of one with gaps, and of a copy where more are named than it has.
  const Tensor planes = randn({7, 20, 30}), gaps = planes.permute({2, 0, 1}).slice(1, 0, 7, 2);
  for (const int64_t n : {70, 4000}) {
    const Tensor places = randint(-2400, 2400, {n});
    expect_same(take(on(gaps), on(places)), take(gaps, places));
    const Tensor there = on(planes).permute({2, 0, 1}).slice(1, 0, 7, 2);
    expect_same(take(there, on(places)), take(gaps, places));
  }
  EXPECT_THROW(take(on(x).t(), on(full({1}, 3000))).to(Device::cpu()), IndexError);
  const Tensor wide = x.t().contiguous(), columns = randint(0, 1000, {2870});
  expect_same(index_select(on(wide), 1, on(columns)), index_select(wide, 1, columns));
  // So many that a thread has several.
  const Tensor table = randn({300, 1101}), names = randint(0, 300, {1001, 1101});
  expect_same(gather(on(table), 0, on(names)), gather(table, 0, names));
  expect_same(gather(on(table.t()), 1, on(names.t())), gather(table.t(), 1, names.t()));
}

// Past the L2 cache, by blocks of columns, whole and not, with lines before them and indices of either type.
TEST_F(PlacesCuda, ReadsByColumns) {
  const Tensor x = randn({2, 4001, 1101}), index = randint(0, 4001, {2, 61, 1101});
  for (const DType t : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor from = x.to(t);
    expect_same(gather(on(from), 1, on(index)), gather(from, 1, index));
    expect_same(gather(on(from), 1, on(index.to(DType::i32))), gather(from, 1, index));
    expect_same(take_along_dim(on(from), on(index - 4001), 1), gather(from, 1, index));
  }
}

TEST_F(PlacesCuda, AlongADimensionFromTheEnd) {
  const Tensor x = randn({300, 37}), index = randint(-300, 300, {41, 37});
  for (const DType t : {DType::i32, DType::i64}) {
    expect_same(take_along_dim(on(x), on(index.to(t)), 0), take_along_dim(x, index, 0));
    expect_same(take_along_dim(on(x), on(index.slice(0, 0, 1).to(t)), 0), take_along_dim(x, index.slice(0, 0, 1), 0));
    expect_same(take_along_dim(on(x.slice(0, 0, 1)), on((index.clamp(-37, 36)).to(t)), 1),
                take_along_dim(x.slice(0, 0, 1), index.clamp(-37, 36), 1));
    expect_same(take_along_dim(on(x.t()), on(index.view({-1}).to(t))), take_along_dim(x.t(), index.view({-1})));
  }
  EXPECT_THROW(take_along_dim(on(x), on(full({1, 37}, -301)), 0).to(Device::cpu()), IndexError);
}

TEST_F(PlacesCuda, ManyOfOnePlace) {
  const Tensor x = zeros({3, 8}), index = zeros({20000, 8}, DType::i64), src = randn({20000, 8});
  expect_near(scatter_add(on(x), 0, on(index), on(src)), scatter_add(x, 0, index, src));
  expect_same(scatter(on(x), 0, on(index), on(src)), scatter(x, 0, index, src));
}

TEST_F(PlacesCuda, SumsInAnyOrderAreTheSameBits) {
  const int64_t n = 40000;
  for (const int64_t places : {3, 5000, 70000})
    for (const DType t : {DType::f32, DType::bf16, DType::i32, DType::i64}) {
      SCOPED_TRACE(cat(places, " places of ", t));
      const Tensor index = randint(-places, places, {n});
      // Numbers of all sizes, so that an order would be seen.
      const Tensor wide = randn({n}) * exp(randn({n}) * 8);
      const Tensor src = is_floating(t) ? wide.to(t) : randint(-9, 9, {n}).to(t), x = zeros({places}, t);
      const Tensor first = put(on(x), on(index), on(src), true), again = put(on(x), on(index), on(src), true);
      expect_same(again, first.to(Device::cpu()));
      const Tensor exact = put(x.to(DType::f64), index, src.to(DType::f64), true);
      const Tensor sizes = put(x.to(DType::f64), index, src.to(DType::f64).abs(), true);
      const double digits = t == DType::bf16 ? 4e-3 : 1e-7;
      EXPECT_TRUE(all((first.to(Device::cpu()).to(DType::f64) - exact).abs() <= exact.abs() * digits + sizes * 1e-9)
                      .item<bool>());
    }
}

TEST_F(PlacesCuda, SumsWithoutEnd) {
  const double inf = INFINITY;
  const int64_t n = 30000;
  Tensor src = ones({n}), index = zeros({n}, DType::i64);
  const std::vector<double> odd = {inf, -inf, inf, -inf, NAN, 1};
  const std::vector<int64_t> where = {1, 2, 3, 3, 4, 5};
  for (size_t k = 0; k < odd.size(); ++k) {
    const auto at = static_cast<int64_t>(100 * k);
    src.slice(0, at, at + 1).fill_(odd[k]);
    index.slice(0, at, at + 1).fill_(where[k]);
  }
  const auto as_list = [](const Tensor& t) { return t.to(Device::cpu()).to_vector<float>(); };
  for (const int64_t places : {7, 40000}) {
    const std::vector<float> y = as_list(put(on(full({places}, 0.5)), on(index), on(src), true));
    EXPECT_EQ(y[0], static_cast<float>(n - 6) + 0.5f);
    EXPECT_EQ(y[1], static_cast<float>(inf));
    EXPECT_EQ(y[2], static_cast<float>(-inf));
    EXPECT_TRUE(std::isnan(y[3]) && std::isnan(y[4]));
    EXPECT_EQ(y[5], 1.5f);
    EXPECT_EQ(y[6], 0.5f);
  }
}

TEST_F(PlacesCuda, SlicesJoinedAndPut) {
  for (const int64_t n : {5, 900})
    for (const int64_t other : {1, 9, 40}) {
      SCOPED_TRACE(cat(n, " places, ", other, " lines"));
      const Tensor x = randn({n, other}), index = randint(-n, n, {300}), src = randn({300, other});
      const Tensor front = where(index < 0, index + n, index);
      expect_same(index_add(on(x), 0, on(front), on(src)), index_add(x, 0, front, src));
      expect_near(index_add(on(x.t()), 1, on(front), on(src.t()), 0.5), index_add(x.t(), 1, front, src.t(), 0.5));
      expect_same(index_copy(on(x), 0, on(index), on(src)), index_copy(x, 0, index, src));
      expect_same(index_copy(on(x.t()), 1, on(index), on(src.t())), index_copy(x.t(), 1, index, src.t()));
      for (const char* how : {"prod", "mean", "amax", "amin"})
        expect_near(index_reduce(on(x), 0, on(index), on(src), how, false), index_reduce(x, 0, index, src, how, false));
      Tensor in_place = on(x).clone();
      index_add_(in_place, 0, on(front), on(src));
      expect_same(in_place, index_add(x, 0, front, src));
    }
}

TEST_F(PlacesCuda, RowsPutLastWins) {
  const Tensor x = randn({300, 20}), index = randint(-300, 300, {1000}), src = randn({1000, 20});
  expect_same(index_copy(on(x), 0, on(randint(0, 300, {0})), on(src.slice(0, 0, 0))), x);
  expect_same(put(on(x), on(index), on(src.slice(1, 0, 1).reshape({1000}))),
              put(x, index, src.slice(1, 0, 1).reshape({1000})));
  const Tensor rows = randint(0, 300, {1000});
  expect_same(index_copy(on(x), 0, on(rows), on(src)), index_copy(x, 0, rows, src));
  expect_same(index_copy(on(x.t()), 1, on(rows), on(src.t())), index_copy(x.t(), 1, rows, src.t()));
}

TEST_F(PlacesCuda, RunningAlongRowsAndColumns) {
  for (const int64_t n : {1, 31, 32, 33, 512, 5000})
    for (const int64_t dim : {0, 1}) {
      SCOPED_TRACE(cat(n, " along ", dim));
      const Tensor x = dim == 0 ? rand({n, 35}) * 0.6 + 0.7 : rand({35, n}) * 0.6 + 0.7;
      const auto gradient = [&](const Tensor& from, const auto& f) {
        Tensor leaf = from.detach();
        leaf.set_requires_grad();
        f(leaf).sum().backward();
        return leaf.grad();
      };
      expect_near(logcumsumexp(on(x), dim), logcumsumexp(x, dim));
      const auto sums = [&](const Tensor& t) { return logcumsumexp(t, dim); };
      const auto products = [&](const Tensor& t) { return cumprod(t, dim); };
      const auto extremes = [&](const Tensor& t) { return cummax(t, dim).first; };
      expect_near(gradient(on(x), sums), gradient(x, sums));
      if (n < 100) expect_near(gradient(on(x), products), gradient(x, products));
      expect_same(gradient(on(x), extremes), gradient(x, extremes));
    }
}

TEST_F(PlacesCuda, RunsAndPairs) {
  const Tensor x = randint(0, 2, {100001}), y = randint(0, 2, {500, 3});
  const UniqueResult got = unique_consecutive(on(x), true, true), want = unique_consecutive(x, true, true);
  expect_same(got.values, want.values);
  expect_same(got.inverse, want.inverse);
  expect_same(got.counts, want.counts);
  expect_same(unique_consecutive(on(y), true, true, 0).counts, unique_consecutive(y, true, true, 0).counts);
  for (const double p : {1.0, 2.0}) {
    const Tensor rows = randn({83, 70});
    Tensor far = on(rows).detach(), near = rows.detach();
    far.set_requires_grad();
    near.set_requires_grad();
    expect_near(pdist(far, p), pdist(rows, p));
    pdist(far, p).sum().backward();
    pdist(near, p).sum().backward();
    expect_near(far.grad(), near.grad());
  }
}

}  // namespace
}  // namespace strata
