#include "strata/ops/norm/weight_norm.h"

#include <cmath>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/linalg/linalg.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using naive::Array;

bool of_all(int64_t dim) {
  return dim == -1;
}

// The lengths by one loop: of each slice, or one for all.
std::vector<double> lengths(const Tensor& v, double p, int64_t dim) {
  const Array values(v);
  const int64_t at = of_all(dim) ? 0 : naive::from_front(dim, v.dim());
  std::vector<double> sums(static_cast<size_t>(of_all(dim) ? 1 : v.shape()[static_cast<int>(at)]));
  naive::each(v.shape(), [&](const Dims& place) {
    sums[of_all(dim) ? 0 : static_cast<size_t>(place[static_cast<int>(at)])] += std::pow(std::abs(values[place]), p);
  });
  for (double& s : sums) s = std::pow(s, 1 / p);
  return sums;
}

const Op<Tensor(const Tensor&, double, int64_t)> norm_except_dim_op{{
    .schema = "norm_except_dim(Tensor v, float pow=2.0, int dim=0) -> Tensor",
    .doc = "The norms of order pow of v over all dimensions but dim, which stay with size 1; with -1 "
           "that of all elements. IndexError for another dim that v lacks.",
    .example = "assert(norm_except_dim(full({2, 4}, 3.0)).to_vector<float>() == std::vector<float>({6, 6}));",
    .composed =
        [](const Tensor& v, double p, int64_t dim) {
          if (of_all(dim)) return norm(v, p);
          const int64_t kept = wrap_dim(dim, v.dim(), "norm_except_dim");
          Dims others;
          for (int64_t d = 0; d < v.dim(); ++d)
            if (d != kept) others.push_back(d);
          return others.empty() ? abs(v) : norm(v, p, others, true);
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 4}));
          s.add(s.tensor({2, 3, 5}), 3.0, 1);
          s.add(s.tensor({4, 3}).t(), 1.0, -2).named("strided");
          s.add(s.tensor({3, 2}), 2.0, -1).named("all");
          s.add(s.tensor({5})).named("one dimension");
          s.invalid<IndexError>("out of range", s.tensor({3, 2}), 2.0, 2);
        },
    .reference =
        [](const Tensor& v, double p, int64_t dim) {
          Shape shape;
          for (int64_t d = 0; !of_all(dim) && d < v.dim(); ++d)
            shape.push_back(d == naive::from_front(dim, v.dim()) ? v.shape()[static_cast<int>(d)] : 1);
          return from_span<double>(lengths(v, p, dim), shape);
        },
}};

// The sums of a * b over all dimensions but dim.
Tensor dots_except_dim(const Tensor& a, const Tensor& b, int64_t dim) {
  if (of_all(dim)) return linalg_vecdot(reshape(a, {a.numel()}), reshape(b, {b.numel()}), 0);
  const int64_t kept = wrap_dim(dim, a.dim(), "weight_norm"), n = a.shape()[kept];
  int64_t outer = 1, inner = 1;
  for (int64_t d = 0; d < a.dim(); ++d)
    if (d != kept) (d < kept ? outer : inner) *= a.shape()[d];
  if (inner == 1) return linalg_vecdot(reshape(a, {outer, n}), reshape(b, {outer, n}), 0);
  const Tensor dots = linalg_vecdot(reshape(a, {outer, n, inner}), reshape(b, {outer, n, inner}), 2);
  return outer == 1 ? dots : sum(dots, {0});
}

const Op<Tensor(const Tensor&, const Tensor&, int64_t)> weight_norm_op{{
    .schema = "weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor",
    .doc = "v times g over its own lengths, norm_except_dim(v, 2, dim): a weight from directions and lengths (Salimans "
           "and Kingma, arXiv:1602.07868).",
    .example = "assert(weight_norm(full({1, 4}, 3.0), ones({1, 1})).sum().item() == 2);",
    .composed = [](const Tensor& v, const Tensor& g, int64_t dim) { return v * (g / norm_except_dim(v, 2, dim)); },
    .saves = "v g",
    .backward =
        [](Backward& b, const Tensor& v, const Tensor& g, int64_t dim) {
          // What of the gradient lies along v changes its length alone.
          const Tensor n = norm_except_dim(v, 2, dim), scale = g / n;
          const Tensor along = dots_except_dim(b.gy(), v, dim).reshape(n.shape());
          if (b.needs(0)) b.set(0, addcmul(b.gy() * scale, v, -(scale * along / (n * n))).to(v.dtype()));
          if (b.needs(1)) b.set(1, sum_to(along / n, g.shape()).to(g.dtype()));
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 4}), s.tensor({3, 1}));
          s.add(s.tensor({2, 3, 2}), s.tensor({1, 3, 1}), 1);
          s.add(s.tensor({4, 3}).t(), s.tensor({}), -1).named("one length, strided");
          s.add(s.tensor({5, 70}), s.tensor({5, 1})).named("long rows");
          s.add(s.tensor({3, 5}).t(), s.tensor({5, 1})).named("strided");
          s.invalid<IndexError>("out of range", s.tensor({3, 2}), s.tensor({3, 1}), 2);
        },
    .reference =
        [](const Tensor& v, const Tensor& g, int64_t dim) {
          const std::vector<double> own = lengths(v, 2, dim), wanted = g.to_vector<double>();
          const Array values(v);
          return Tensor(naive::made(v.shape(), [&](const Dims& place) {
            const size_t i =
                of_all(dim) ? 0 : static_cast<size_t>(place[static_cast<int>(naive::from_front(dim, v.dim()))]);
            return values[place] * wanted[i] / own[i];
          }));
        },
}};

}  // namespace

Tensor norm_except_dim(const Tensor& v, double p, std::optional<int64_t> dim) {
  return norm_except_dim_op(v, p, dim.value_or(-1));
}
Tensor weight_norm(const Tensor& v, const Tensor& g, std::optional<int64_t> dim) {
  return weight_norm_op(v, g, dim.value_or(-1));
}

}  // namespace strata
