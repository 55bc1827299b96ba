#include "strata/ops/norm/weight_norm.h"

#include <array>
#include <cmath>
#include <tuple>
#include <vector>

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/norm/weight_norm_kernel.h"
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
  if (of_all(dim)) return sum(a * b);
  const int64_t kept = wrap_dim(dim, a.dim(), "weight_norm");
  Dims others;
  for (int64_t d = 0; d < a.dim(); ++d)
    if (d != kept) others.push_back(d);
  return others.empty() ? a * b : sum(a * b, others, true);
}

// The shape of the lengths; whether g has one for each.
Shape lengths_shape(const Tensor& v, int64_t dim, std::string_view op) {
  Shape n;
  if (of_all(dim)) return n;
  const int64_t kept = wrap_dim(dim, v.dim(), op);
  if (v.dim() > 0) n = Shape::filled(static_cast<int>(v.dim()), 1), n[kept] = v.shape()[kept];
  return n;
}
bool one_each(const Tensor& v, const Tensor& g, int64_t dim) {
  const Shape n = lengths_shape(v, dim, "weight_norm");
  return broadcast_shapes(g.shape(), n, "weight_norm") == n;
}

using Slopes = std::tuple<Tensor, Tensor>;
// What of the gradient lies along v changes its length alone.
Slopes slopes(const Tensor& up, const Tensor& of_v, const Tensor& of_g, int64_t dim) {
  const auto wide = [](const Tensor& t) { return is_reduced_floating(t.dtype()) ? t.to(DType::f32) : t; };
  const Tensor gy = wide(up), v = wide(of_v), g = wide(of_g), n = norm_except_dim(v, 2, dim), scale = g / n;
  const Tensor along = dots_except_dim(gy, v, dim).reshape(n.shape());
  return {addcmul(gy * scale, v, -(scale * along / (n * n))).to(of_v.dtype()),
          sum_to(along / n, g.shape()).to(of_g.dtype())};
}
// Whether the lengths are those of rows.
bool of_rows(const Tensor& v, const Tensor& g, int64_t dim) {
  const int64_t kept = of_all(dim) ? -1 : wrap_dim(dim, v.dim(), "weight_norm");
  for (int64_t d = 0; d < kept; ++d)
    if (v.shape()[d] != 1) return false;
  return v.dtype() == g.dtype() && one_each(v, g, dim) && g.numel() == (kept < 0 ? 1 : v.shape()[kept]);
}

const Op<Slopes(const Tensor&, const Tensor&, const Tensor&, int64_t)> weight_norm_backward_op{{
    .schema = "weight_norm_backward(Tensor gy, Tensor v, Tensor g, int dim) -> (Tensor gv, Tensor gg)",
    .shard = "whole",
    .internal = true,
    .doc = "The gradients of weight_norm(v, g, dim) for v and g, gy being that of its result.",
    .infer =
        [](const Tensor& gy, const Tensor& v, const Tensor& g, int64_t dim) {
          constexpr std::string_view op = "weight_norm_backward";
          check<DTypeError>(is_floating(v.dtype()) && v.dtype() == gy.dtype(), op, "v is ", v, " and gy is ", gy,
                            ", wants one floating dtype");
          check<ShapeError>(gy.shape() == v.shape(), op, "v is ", v, ", but gy is ", gy);
          check<ShapeError>(one_each(v, g, dim), op, "g is ", g, ", wants one number for each length of ", v);
          return std::array<TensorMeta, 2>{like(v), like(g)};
        },
    .kernels = on_each_device([](auto on, Tensor& gv, Tensor& gg, const Tensor& gy, const Tensor& v, const Tensor& g,
                                 int64_t dim) {
      const int64_t rows = g.numel(), n = rows == 0 ? 0 : v.numel() / rows;
      if (of_rows(v, g, dim) && gv.is_contiguous() && v.numel() > 0 &&
          (!on.cuda || (v.is_contiguous() && blocks_have_rows(rows, n)))) {
        const Tensor up = contiguous(gy), from = contiguous(v), wanted = contiguous(g);
        const auto run = [&](auto kernel) {
          kernel(v.dtype(), up.raw_data(), from.raw_data(), wanted.raw_data(), rows, n, gv.raw_data(), gg.raw_data());
        };
        if constexpr (on.cuda)
          run(weight_norm_backward_cuda);
        else
          run(weight_norm_backward_cpu);
        return;
      }
      const auto [of_v, of_g] = slopes(gy, v, g, dim);
      copy_elements(gv, of_v);
      copy_elements(gg, of_g);
    }),
    .composed = slopes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 4}), s.off_grid({3, 4}), s.tensor({3, 1}), 0);
          s.add(s.tensor({5, 70}), s.off_grid({5, 70}), s.tensor({5, 1}), -2).named("long rows");
          s.add(s.tensor({2, 1300}), s.off_grid({2, 1300}), s.tensor({2, 1}), 0)
              .named("longer than a block")
              .not_differentiable();
          s.add(s.tensor({2, 3, 2}), s.off_grid({2, 3, 2}), s.tensor({1, 3, 1}), 1).named("not of rows");
          s.add(s.tensor({4, 3}), s.off_grid({4, 3}), s.tensor({}), -1).named("one length");
          s.invalid<ShapeError>("but gy is", s.tensor({3, 2}), s.tensor({2, 3}), s.tensor({2, 1}), 0);
          s.invalid<IndexError>("out of range", s.tensor({3, 2}), s.tensor({3, 2}), s.tensor({3, 1}), 2);
        },
    .reference =
        [](const Tensor& gy, const Tensor& v, const Tensor& g, int64_t dim) {
          const std::vector<double> own = lengths(v, 2, dim), wanted = g.to_vector<double>();
          const Array values(v), up(gy);
          const auto at = [&](const Dims& place) {
            return of_all(dim) ? size_t{0}
                               : static_cast<size_t>(place[static_cast<int>(naive::from_front(dim, v.dim()))]);
          };
          std::vector<double> along(own.size());
          naive::each(v.shape(), [&](const Dims& place) { along[at(place)] += up[place] * values[place]; });
          std::vector<double> of_g(own.size());
          for (size_t i = 0; i < own.size(); ++i) of_g[i] = along[i] / own[i];
          return Slopes{naive::made(v.shape(),
                                    [&](const Dims& place) {
                                      const size_t i = at(place);
                                      const double rest = values[place] * along[i] / (own[i] * own[i]);
                                      return wanted[i] / own[i] * (up[place] - rest);
                                    }),
                        from_span<double>(of_g, g.shape())};
        },
}};

TensorMeta infer(const Tensor& v, const Tensor& g, int64_t dim) {
  constexpr std::string_view op = "weight_norm";
  check<DTypeError>(is_floating(v.dtype()) && is_floating(g.dtype()), op, "needs floating dtypes, got ", v, " and ", g);
  const Shape n = lengths_shape(v, dim, op);
  const Shape all = broadcast_shapes(v.shape(), broadcast_shapes(g.shape(), n, op), op);
  return (all == v.shape() ? laid_like(v) : like(v).with_shape(all)).with_dtype(result_type(v, g));
}
// Of a g that makes the result larger than v.
Slopes broadcast_slopes(const Tensor& gy, const Tensor& v, const Tensor& g, int64_t dim) {
  const Tensor n = norm_except_dim(v, 2, dim), scale = g / n, of_scale = sum_to(gy * v, scale.shape());
  const Tensor of_n = sum_to(of_scale * scale, n.shape()) / (n * n);
  return {(sum_to(gy * scale, v.shape()) - v * of_n).to(v.dtype()), sum_to(of_scale / n, g.shape()).to(g.dtype())};
}

const Op<Tensor(const Tensor&, const Tensor&, int64_t)> weight_norm_op{{
    .schema = "weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor",
    .shard = "whole",
    .doc = "v times g over its own lengths, norm_except_dim(v, 2, dim): a weight from directions and lengths (Salimans "
           "and Kingma, arXiv:1602.07868).",
    .example = "assert(weight_norm(full({1, 4}, 3.0), ones({1, 1})).sum().item() == 2);",
    .infer = infer,
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& v, const Tensor& g, int64_t dim) {
      const int64_t rows = g.numel(), n = rows == 0 ? 0 : v.numel() / rows;
      if (of_rows(v, g, dim) && y.shape() == v.shape() && y.is_contiguous() && v.numel() > 0 &&
          (!on.cuda || (v.is_contiguous() && blocks_have_rows(rows, n)))) {
        const Tensor from = contiguous(v), wanted = contiguous(g);
        const auto run = [&](auto kernel) {
          kernel(v.dtype(), from.raw_data(), wanted.raw_data(), rows, n, y.raw_data());
        };
        if constexpr (on.cuda)
          run(weight_norm_cuda);
        else
          run(weight_norm_cpu);
        return;
      }
      if constexpr (on.cuda)
        if (!of_all(dim) && weight_norm_across_cuda(y, v, g, wrap_dim(dim, v.dim(), "weight_norm"))) return;
      if (is_reduced_floating(y.dtype())) {  // rounded once
        const Tensor wide = v.to(DType::f32);
        return copy_elements(y, expand(wide * (g.to(DType::f32) / norm_except_dim(wide, 2, dim)), y.shape()));
      }
      const Tensor scale = expand((g / norm_except_dim(v, 2, dim)).to(y.dtype()), y.shape());
      const Tensor from = expand(v.to(y.dtype()), y.shape());
      map(on, Map::mul, y, {&from, &scale});
    }),
    .saves = "v g",
    .backward =
        [](Backward& b, const Tensor& v, const Tensor& g, int64_t dim) {
          const Tensor& gy = b.gy();
          const bool alike = gy.shape() == v.shape() && one_each(v, g, dim);
          const auto [of_v, of_g] = !alike ? broadcast_slopes(gy, v, g, dim)
                                    : of_rows(v, g, dim) && gy.dtype() == v.dtype()
                                        ? weight_norm_backward_op(gy, v, g, dim)
                                        : slopes(gy, v, g, dim);
          if (b.needs(0)) b.set(0, of_v);
          if (b.needs(1)) b.set(1, of_g);
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 4}), s.tensor({3, 1}));
          s.add(s.tensor({2, 3, 2}), s.tensor({1, 3, 1}), 1);
          s.add(s.tensor({4, 3}).t(), s.tensor({}), -1).named("one length, strided");
          s.add(s.tensor({5, 70}), s.tensor({5, 1})).named("long rows");
          s.add(s.tensor({2, 1300}), s.tensor({2, 1})).named("longer than a block").not_differentiable();
          s.add(s.tensor({3, 5}).t(), s.tensor({5, 1})).named("strided");
          s.add(s.tensor({5, 3}), s.tensor({1, 3}), 1).named("of columns");
          s.add(s.tensor({3, 3}), s.tensor({1, 3})).named("g across the lengths");
          s.invalid<IndexError>("out of range", s.tensor({3, 2}), s.tensor({3, 1}), 2);
        },
    .reference =
        [](const Tensor& v, const Tensor& g, int64_t dim) {
          const std::vector<double> own = lengths(v, 2, dim), wanted = g.expand(v.shape()).to_vector<double>();
          const Array values(v);
          size_t next = 0;
          return Tensor(naive::made(v.shape(), [&](const Dims& place) {
            const size_t i =
                of_all(dim) ? 0 : static_cast<size_t>(place[static_cast<int>(naive::from_front(dim, v.dim()))]);
            return values[place] * wanted[next++] / own[i];
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
