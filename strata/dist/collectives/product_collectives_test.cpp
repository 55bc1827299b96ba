// Products with their exchanges: values and gradients of ranks that are threads, against the collective and the product
// one after the other.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "strata/autograd/autograd.h"
#include "strata/core/error_test_util.h"
#include "strata/core/node.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/collectives/placed_products_inl.h"
#include "strata/dist/rank_threads.h"
#include "strata/dist/recorder.h"
#include "strata/ops/ops.h"

namespace strata::distributed {
namespace {

void expect(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}
void expect_near(const Tensor& got, const Tensor& want, double most, const std::string& what) {
  expect(got.shape() == want.shape() && got.dtype() == want.dtype(), what + ": " + got.to_string());
  const NoGrad guard;
  if (got.numel() == 0) return;
  const double off = (got - want).to(DType::f64).abs().max().item();
  expect(off <= most, strata::cat(what, " is off by ", off));
}
// Numbers without a pattern between -1 and 1, of their own for each `seed`.
Tensor numbers(const Shape& shape, int seed, DType dtype = DType::f64) {
  return sin(arange(0, shape.product(), 1).to(DType::f64) * 1.7 + static_cast<double>(seed) * 0.9)
      .view(shape)
      .to(dtype);
}
// Small whole numbers, whose products and sums every dtype holds exactly.
Tensor whole_numbers(const Shape& shape, int seed, DType dtype) {
  return round(numbers(shape, seed) * 2).to(dtype);
}

struct Sizes {
  Shape x;
  int64_t out;
  int64_t dim;
};
// Of the pieces; the whole has `ranks` times as many along dim.
const Sizes kSizes[] = {{{3, 5}, 7, 0}, {{2, 3, 5}, 4, 1}, {{3, 2, 7}, 1, 0},
                        {{1, 1}, 1, 0}, {{2, 0, 3}, 2, 1}, {{33, 19}, 21, 0}};

TEST(ProductCollectives, NumbersAreThoseOfOneAfterTheOther) {
  for (const int ranks : {2, 4})
    run_as_ranks(Mesh(strata::cat("tp=", ranks)), [&](int rank) {
      for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
        for (const auto& [shape, out, dim] : kSizes) {
          const std::string what = strata::cat(dtype, ' ', shape, " on ", ranks);
          const int64_t inner = shape[static_cast<size_t>(shape.size() - 1)];
          Shape wide = shape;
          wide[static_cast<size_t>(dim)] *= ranks;
          for (const bool exact : {true, false}) {
            const auto make = [&](const Shape& s, int seed) {
              return exact ? whole_numbers(s, seed, dtype) : numbers(s, seed, dtype);
            };
            // A product of other rows may be added up in other blocks: the last bit of a sum of `inner` terms.
            const double most = exact ? 0 : dtype == DType::f64 ? 1e-14 : dtype == DType::f32 ? 1e-5 : 0.05;
            const Tensor x = make(shape, rank), w = make({inner, out}, 10 + rank);
            const auto [y, all] = all_gather_matmul(x, w, dim, "tp");
            const Tensor gathered = all_gather(x, dim, "tp");
            expect_near(all, gathered, 0, what);
            expect_near(y, matmul(gathered, w), most, what);
            const Tensor z = make(wide, 20 + rank);
            expect_near(matmul_reduce_scatter(z, w, dim, "tp"), reduce_scatter(matmul(z, w), dim, "sum", "tp"), most,
                        what);
            // Views of any strides.
            expect_near(matmul_reduce_scatter(z, make({out, inner}, 3).t(), dim - z.dim(), "tp"),
                        reduce_scatter(matmul(z, make({out, inner}, 3).t()), dim, "sum", "tp"), most, what);
          }
        }
    });
}

TEST(ProductCollectives, GradientsAreThoseOfTheComposedForms) {
  for (const int ranks : {2, 4})
    run_as_ranks(Mesh(strata::cat("tp=", ranks)), [&](int rank) {
      const int64_t n = ranks;
      const auto both = [&](const Shape& shape, const std::function<Tensor(const Tensor&, const Tensor&, bool)>& f) {
        std::vector<Tensor> grads[2];
        for (const bool fused : {false, true}) {
          const Tensor x = numbers(shape, rank).set_requires_grad(), w = numbers({5, 3}, 9 + rank).set_requires_grad();
          const Tensor y = f(x, w, fused);
          // Also a gradient of gradients.
          const Tensor loss = sum(y * y * numbers(y.shape(), 30 + rank));
          const std::vector<Tensor> first = grad(TensorList{loss}, TensorList{x, w}, {}, true);
          const std::vector<Tensor> second =
              grad(TensorList{sum(first[0] * first[0]) + sum(first[1])}, TensorList{x, w});
          for (const auto& all : {first, second})
            for (const Tensor& g : all) grads[fused].push_back(g.detach());
        }
        for (size_t i = 0; i < grads[0].size(); ++i)
          expect_near(grads[1][i], grads[0][i], 1e-9, strata::cat("gradient ", i, " of ", shape));
      };
      both({2, 3, 5}, [&](const Tensor& x, const Tensor& w, bool fused) {
        if (fused) return std::get<0>(all_gather_matmul(x, w, 1, "tp"));
        return matmul(all_gather(x, 1, "tp"), w);
      });
      both({2, 3, 5}, [&](const Tensor& x, const Tensor& w, bool fused) {  // of what was gathered, too
        if (!fused) {
          const Tensor all = all_gather(x, 0, "tp");
          return matmul(all, w) + sum(all * all);
        }
        const auto [y, all] = all_gather_matmul(x, w, 0, "tp");
        return y + sum(all * all);
      });
      both({3 * n, 5}, [&](const Tensor& x, const Tensor& w, bool fused) {
        if (fused) return matmul_reduce_scatter(x, w, 0, "tp");
        return reduce_scatter(matmul(x, w), 0, "sum", "tp");
      });
    });
}

TEST(ProductCollectives, PiecesMoveBesideTheProducts) {
  run_as_ranks(Mesh("tp=4"), [&](int) {
    group("tp").barrier();
    const Tensor x = numbers({3, 5}, 1), w = numbers({5, 2}, 2);
    (void)all_gather_matmul(x, w, 0, "tp");
    (void)matmul_reduce_scatter(numbers({12, 5}, 1), w, 0, "tp");
    group("tp").barrier();
  });
  // Three messages each and no collective that waits for all.
  int gathering = 0, scattering = 0;
  for (const CollectiveEntry& e : recorder().entries()) {
    gathering += e.what == "all_gather_matmul step 1 f64 [3, 5]" || e.what == "all_gather_matmul step 3 f64 [3, 5]";
    scattering += e.what == "matmul_reduce_scatter step 2 f64 [3, 2]";
  }
  EXPECT_EQ(gathering, 8);
  EXPECT_EQ(scattering, 4);
}

TEST(ProductCollectives, WhatDoesNotFitIsNamed) {
  run_as_ranks(Mesh("tp=2"), [&](int) {
    expect(message<ShapeError>([&] {
             matmul_reduce_scatter(ones({3, 4}), ones({4, 2}), 0, "tp");
           }) == "matmul_reduce_scatter: dimension 0 of [3, 4] f32 is no multiple of the 2 ranks of tp",
           "sizes");
    expect(message<DTypeError>([&] {
             all_gather_matmul(ones({3, 4}), ones({4, 2}, DType::f64), 0, "tp");
           }) == "all_gather_matmul: x and weight have different dtypes: [3, 4] f32 and [4, 2] f64",
           "dtypes");
  });
  // Ranks whose pieces differ find it before a number is written.
  EXPECT_THROW(run_as_ranks(Mesh("tp=2"),
                            [&](int rank) {
                              (void)all_gather_matmul(ones({3 + rank, 4}), ones({4, 2}), 0, "tp");
                            }),
               DistributedError);
}

TEST(PlacedProducts, AreLinearLayersOfTheWhole) {
  const Tensor x = numbers({2, 8, 6}, 1), up = numbers({12, 6}, 2) * 0.5, down = numbers({6, 12}, 3) * 0.5,
               bias = numbers({6}, 5);
  std::vector<Tensor> want;
  const Tensor g = numbers({2, 8, 6}, 4);
  {
    Tensor e = bias.clone().set_requires_grad(), a = x.clone().set_requires_grad(), u = up.clone().set_requires_grad(),
           d = down.clone().set_requires_grad();
    const Tensor y = linear(gelu(linear(a, u)), d, e);
    y.backward(g);
    want = {y.detach(), a.grad(), u.grad(), d.grad(), e.grad()};
  }
  for (const int ranks : {2, 4})
    run_as_ranks(Mesh(strata::cat("tp=", ranks)), [&](int) {
      const auto leaf = [](const Tensor& t, const char* text) {
        return distribute(t, text, "tp").detach().set_requires_grad();
      };
      Tensor a = leaf(x, "S(1)"), u = leaf(up, "S(0,unit=3)"), d = leaf(down, "S(1,unit=3)");
      expect(detail::may_gather_linear(a, u, 1) == (ranks == 2), "pieces of eight rows are worth it");
      Tensor plain = bias.clone().set_requires_grad();
      const Tensor inner = detail::gather_linear(a, u, 1);
      expect(placements_of(inner) == "S(2,unit=3)", placements_of(inner));
      expect(detail::may_linear_scatter(inner, d, 1) == (ranks == 2), "and of less are not");
      const Tensor y = detail::linear_scatter(gelu(inner), d, plain, 1);
      expect(placements_of(y) == "S(1)", placements_of(y));
      y.backward(distribute(g, "S(1)", "tp"));
      const std::vector<Tensor> got{y.detach(), a.grad(), u.grad(), d.grad(), plain.grad()};
      const std::vector<const char*> lies{"S(1)", "S(1)", "S(0,unit=3)", "S(1,unit=3)", ""};
      for (size_t i = 0; i < got.size(); ++i) {
        expect(placements_of(got[i]) == lies[i], placements_of(got[i]));
        expect_near(full_tensor(got[i]), want[i], 1e-12, strata::cat("result ", i));
      }
      expect(message<ShapeError>([&] { detail::gather_linear(a, d, 1); }) ==
                 strata::cat("gather_linear: x is [2, 8, 6] f64 as 'S(1)', weight [6, 12] f64 as 'S(1,unit=3)': wanted "
                             "even parts of dimension 1 and rows of weight"),
             "what lies otherwise");
    });
}

}  // namespace
}  // namespace strata::distributed
