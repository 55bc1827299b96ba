// Differences, integrals, running sums of exponentials.

#include <algorithm>
#include <cmath>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/reduce/recurrence_kernels.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/statistics/statistics.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using naive::Array;

Cost line_cost(const Tensor& x) {
  return {2.0 * static_cast<double>(x.numel()), 2.0 * static_cast<double>(x.nbytes())};
}
Tensor floating(const Tensor& x) {
  return is_floating(x.dtype()) ? x : to(x, default_dtype());
}
// All but the first, and all but the last.
std::pair<Tensor, Tensor> neighbours(const Tensor& x, int64_t dim) {
  const int64_t n = x.shape()[dim];
  return {slice(x, dim, std::min<int64_t>(1, n), n), slice(x, dim, 0, std::max<int64_t>(n - 1, 0))};
}

// ---- diff

const Op<Tensor(const Tensor&, int64_t, int64_t, const Tensor&, const Tensor&)> diff_op{{
    .schema = "diff(Tensor x, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor",
    .doc = "Differences of neighbours along dim, n times, with prepend and append joined on first unless n is 0; of "
           "bool whether they "
           "differ.",
    .example = "assert(diff(arange(3) * arange(3)).to_vector<int64_t>() == std::vector<int64_t>({1, 3}));",
    .composed =
        [](const Tensor& x, int64_t n, int64_t dim, const Tensor& prepend, const Tensor& append) {
          check<ShapeError>(x.dim() > 0, "diff", "a 0-dim tensor has no neighbours");
          check(n >= 0, "diff", "n must not be negative, got ", n);
          dim = wrap_dim(dim, x.dim(), "diff");
          Tensor y = x;
          if (n == 0) return clone(x);  // PyTorch joins nothing then
          if (prepend.defined() || append.defined()) {
            TensorList parts;
            for (const Tensor& t : {prepend, x, append})
              if (t.defined()) parts.push_back(t);
            y = cat(parts, dim);
          }
          n = std::min(n, y.shape()[dim]);
          for (int64_t i = 0; i < n; ++i) {
            const auto [late, early] = neighbours(y, dim);
            y = y.dtype() == DType::boolean ? logical_xor(late, early) : late - early;
          }
          return y.same_as(x) ? clone(x) : y;
        },
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, int64_t, int64_t, const Tensor&, const Tensor&) { return line_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          s.add(s.tensor({4, 3}), 2, 0);
          s.add(s.tensor({3, 4}), 1, -1, s.tensor({3, 1}), s.tensor({3, 2}));
          s.add(s.tensor({3}), 5);
          s.add(s.tensor({3}), 0);
          s.add(s.tensor({3, 4}), 0, 1, s.tensor({3, 1}));
          s.invalid<ShapeError>("0-dim", s.tensor({}));
          s.invalid<ValueError>("negative", s.tensor({3}), -1);
        },
    .reference =
        [](const Tensor& x, int64_t n, int64_t dim, const Tensor& prepend, const Tensor& append) {
          if (n == 0) return x;
          dim = naive::from_front(dim, x.dim());
          Shape joined = x.shape();
          std::vector<Array> parts;
          joined[dim] = 0;
          for (const Tensor& t : {prepend, x, append}) {
            if (!t.defined()) continue;
            parts.emplace_back(t);
            joined[dim] += t.shape()[dim];
          }
          Array y(joined);
          int64_t at = 0;
          for (const Array& p : parts) {
            naive::each(p.shape(), [&](const Dims& place) { y[naive::moved(place, dim, at + place[dim])] = p[place]; });
            at += p.shape()[dim];
          }
          for (int64_t i = 0; i < n; ++i) {
            Shape shorter = y.shape();
            shorter[dim] = std::max<int64_t>(0, shorter[dim] - 1);
            Array z(shorter);
            naive::each(shorter, [&](const Dims& place) {
              const double d = y[naive::moved(place, dim, place[dim] + 1)] - y[place];
              z[place] = x.dtype() == DType::boolean ? std::abs(d) : d;
            });
            y = z;
          }
          return Tensor(y);
        },
}};

// ---- trapezoids

// The trapezoids along dim: one fewer than points.
Tensor trapezoids(const Tensor& y, const Tensor& x, double dx, int64_t dim, std::string_view op) {
  const auto [late, early] = neighbours(floating(y), dim);
  const Tensor height = (late + early) / 2;
  if (!x.defined()) return dx == 1 ? height : height * dx;
  Tensor points = floating(x);
  int64_t along = dim;
  if (x.dim() == 1) {
    check<ShapeError>(x.numel() == y.shape()[dim], op, "x is ", x, ", wanted a point for each of ", y.shape()[dim],
                      " in dimension ", dim, " of y");
    Shape column = Shape::filled(static_cast<int>(y.dim()), 1);
    column[dim] = x.numel();
    points = reshape(points, column);
  } else {
    check<ShapeError>(x.dim() <= y.dim(), op, "x is ", x, ", y is ", y, ": x must not have more dimensions");
    along = dim - (y.dim() - x.dim());
    check<ShapeError>(along >= 0 && x.shape()[along] == y.shape()[dim], op, "x is ", x, ", wanted a point for each of ",
                      y.shape()[dim], " in dimension ", dim, " of y");
  }
  const auto [after, before] = neighbours(points, along);
  return height * (after - before);
}
int64_t integral_dim(const Tensor& y, int64_t dim, std::string_view op) {
  check<ShapeError>(y.dim() > 0, op, "y must have a dimension to integrate along");
  return wrap_dim(dim, y.dim(), op);
}

Array area(const Tensor& y, const Tensor& x, double dx, int64_t dim, bool cumulative) {
  const Array v(y), p = x.defined() ? Array(x) : Array(Shape{0});
  dim = naive::from_front(dim, y.dim());
  const int64_t n = y.shape()[dim];
  Shape shape = y.shape();
  shape[dim] = cumulative ? std::max<int64_t>(0, n - 1) : 1;
  Array r(shape);
  Shape outer = y.shape();
  outer[dim] = 1;
  naive::each(outer, [&](const Dims& place) {
    double total = 0;
    for (int64_t i = 0; i + 1 < n; ++i) {
      double width = dx;
      if (x.defined()) {
        const auto at = [&](int64_t k) {
          if (x.dim() == 1) return p.flat(k);
          Dims from;
          for (int64_t d = y.dim() - x.dim(); d < y.dim(); ++d)
            from.push_back(d == dim ? k : p.shape()[d - (y.dim() - x.dim())] == 1 ? 0 : place[d]);
          return p[from];
        };
        width = at(i + 1) - at(i);
      }
      total += (v[naive::moved(place, dim, i)] + v[naive::moved(place, dim, i + 1)]) / 2 * width;
      if (cumulative) r[naive::moved(place, dim, i)] = total;
    }
    if (!cumulative) r[place] = total;
  });
  if (cumulative) return r;
  shape.erase(dim);
  return {shape, Tensor(r).to_vector<double>()};
}

using TrapezoidOp = Op<Tensor(const Tensor&, const Tensor&, double, int64_t)>;
Cost area_cost(const Tensor& y, const Tensor&, double, int64_t) {
  return {4.0 * static_cast<double>(y.numel()), static_cast<double>(y.nbytes())};
}
void samples_area(Samples& s) {
  s.add(s.tensor({3, 5}));
  s.add(s.tensor({4, 3}), s.tensor({4}), 1.0, 0);
  s.add(s.tensor({2, 4, 3}), s.tensor({4, 3}), 1.0, 1);
  s.add(s.tensor({2, 4}), s.tensor({2, 4}));
  s.add(s.tensor({5, 2}), std::nullopt, 0.5, 0);
  s.add(s.tensor({2, 3}), std::nullopt, 1.0, 0);
  s.add(s.tensor({2, 1}));
  s.invalid<ShapeError>("a point for each", s.tensor({3, 4}), s.tensor({3}));
  s.invalid<ShapeError>("a dimension", s.tensor({}));
}

const TrapezoidOp trapezoid_op{{
    .schema = "trapezoid(Tensor y, Tensor? x=None, float dx=1, int dim=-1) -> Tensor",
    .doc = "The integral of y along dim by trapezoids, over points x (1-D, or broadcast to y) or steps of dx. Integers "
           "are converted to the default dtype.",
    .example = "assert(trapezoid(arange(3, DType::f32)).item() == 2);",
    .composed =
        [](const Tensor& y, const Tensor& x, double dx, int64_t dim) {
          dim = integral_dim(y, dim, "trapezoid");
          const int64_t n = y.shape()[dim];
          if (x.defined() || n < 2) return sum(trapezoids(y, x, dx, dim, "trapezoid"), {dim});
          // Of equal steps: every point counts once, the first and the last half.
          const Tensor v = floating(y), all = sum(v, {dim}) - (select(v, dim, 0) + select(v, dim, n - 1)) * 0.5;
          return dx == 1 ? all : all * dx;
        },
    .cost = area_cost,
    .samples = samples_area,
    .reference = [](const Tensor& y, const Tensor& x, double dx,
                    int64_t dim) { return Tensor(area(y, x, dx, dim, false)); },
}};
const TrapezoidOp cumulative_trapezoid_op{{
    .schema = "cumulative_trapezoid(Tensor y, Tensor? x=None, float dx=1, int dim=-1) -> Tensor",
    .doc = "trapezoid up to each point but the first.",
    .example =
        "assert(cumulative_trapezoid(arange(3, DType::f32)).to_vector<float>() == std::vector<float>({0.5, 2}));",
    .composed =
        [](const Tensor& y, const Tensor& x, double dx, int64_t dim) {
          dim = integral_dim(y, dim, "cumulative_trapezoid");
          return cumsum(trapezoids(y, x, dx, dim, "cumulative_trapezoid"), dim);
        },
    .cost = area_cost,
    .samples = samples_area,
    .reference = [](const Tensor& y, const Tensor& x, double dx,
                    int64_t dim) { return Tensor(area(y, x, dx, dim, true)); },
}};

// ---- gradient

// Derivatives along one dimension from values at coordinates (1-D) or a distance (0-dim).
Tensor derivative(const Tensor& x, const Tensor& spacing, int64_t dim, int64_t edge_order) {
  const int64_t n = x.shape()[dim];
  const auto at = [&](int64_t begin, int64_t end) { return slice(x, dim, begin, end); };
  const auto one = [&](int64_t i) { return at(i, i + 1); };
  Tensor first, middle, last;
  if (spacing.dim() == 0) {
    middle = (at(2, n) - at(0, n - 2)) / (spacing * 2);
    if (edge_order == 1) {
      first = (one(1) - one(0)) / spacing;
      last = (one(n - 1) - one(n - 2)) / spacing;
    } else {
      first = (one(1) * 2 - one(0) * 1.5 - one(2) * 0.5) / spacing;
      last = (one(n - 1) * 1.5 - one(n - 2) * 2 + one(n - 3) * 0.5) / spacing;
    }
    return cat({first, middle, last}, dim);
  }
  // Of the parabola through three points that are a and b apart, at each of them.
  Shape column = Shape::filled(static_cast<int>(x.dim()), 1);
  column[dim] = n - 1;
  const Tensor widths = reshape(diff(spacing), column);
  const auto width = [&](int64_t begin, int64_t end) { return slice(widths, dim, begin, end); };
  const Tensor a = width(0, n - 2), b = width(1, n - 1);
  middle = at(2, n) * (a / (b * (a + b))) + at(1, n - 1) * ((b - a) / (a * b)) - at(0, n - 2) * (b / (a * (a + b)));
  if (edge_order == 1) {
    first = (one(1) - one(0)) / width(0, 1);
    last = (one(n - 1) - one(n - 2)) / width(n - 2, n - 1);
  } else {
    const Tensor p = width(0, 1), q = width(1, 2), r = width(n - 3, n - 2), t = width(n - 2, n - 1);
    first = one(1) * ((p + q) / (p * q)) - one(0) * ((p * 2 + q) / (p * (p + q))) - one(2) * (p / (q * (p + q)));
    last = one(n - 3) * (t / (r * (r + t))) - one(n - 2) * ((r + t) / (r * t)) +
           one(n - 1) * ((t * 2 + r) / (t * (r + t)));
  }
  return cat({first, middle, last}, dim);
}

const Op<TensorList(const Tensor&, const TensorList&, const Dims&, int64_t)> gradient_op{{
    .schema = "gradient(Tensor x, Tensor[] spacing, int[] dims=[], int edge_order=1) -> Tensor[]",
    .doc = "Derivatives of samples along each of dims (all without any): central differences of second order, at the "
           "ends one-sided ones of edge_order 1 or 2. spacing holds one entry for all dims or one for each: a distance "
           "(0-dim) or coordinates (1-D); an empty list stands for distance 1. Fornberg, Generation of finite "
           "difference formulas on arbitrarily spaced grids, 1988.",
    .example = "TensorList g = gradient(arange(4, DType::f32) * arange(4, DType::f32)); "
               "assert(g[0].to_vector<float>() == std::vector<float>({1, 2, 4, 5}));",
    .composed =
        [](const Tensor& x, const TensorList& spacing, const Dims& dims, int64_t edge_order) {
          constexpr std::string_view op = "gradient";
          check<ShapeError>(x.dim() > 0, op, "a 0-dim tensor has no derivatives");
          check(edge_order == 1 || edge_order == 2, op, "edge_order must be 1 or 2, got ", edge_order);
          Dims along = dims;
          for (int64_t d = 0; dims.empty() && d < x.dim(); ++d) along.push_back(d);
          check<ShapeError>(spacing.size() <= 1 || static_cast<int>(spacing.size()) == along.size(), op, "spacing has ",
                            spacing.size(), " entries for ", along.size(), " dims");
          const Tensor values = floating(x);
          TensorList results;
          unsigned seen = 0;
          for (int i = 0; i < along.size(); ++i) {
            const int64_t d = wrap_dim(along[i], x.dim(), op), n = x.shape()[d];
            check(!(seen >> d & 1), op, "dims ", along, " lists dimension ", d, " twice");
            seen |= 1u << d;
            check<ShapeError>(n > edge_order, op, "dimension ", d, " of ", x, " needs at least ", edge_order + 1,
                              " elements");
            Tensor h = spacing.empty()       ? full_like(empty(like(values).with_shape({})), 1)
                       : spacing.size() == 1 ? spacing[0]
                                             : spacing[static_cast<size_t>(i)];
            check<ShapeError>(h.dim() == 0 || (h.dim() == 1 && h.numel() == n), op, "spacing ", h,
                              " is neither a distance nor a coordinate for each of ", n, " elements");
            h = to(h, values.dtype());
            if (!(h.device() == x.device())) h = to(h, x.device());
            results.push_back(derivative(values, h, d, edge_order));
          }
          return results;
        },
    .cost = [](const Tensor& x, const TensorList&, const Dims&, int64_t) { return line_cost(x); },
    .samples =
        [](Samples& s) {
          const Tensor points = from_span<double>(std::vector<double>{0, 0.5, 2, 2.5}, {4}).to(s.dtype());
          const Tensor step = full({}, Scalar(0.5), s.dtype());
          s.add(s.tensor({3, 4}), TensorList{});
          s.add(s.tensor({3, 4}), TensorList{step}, Dims{1}, 2);
          s.add(s.tensor({2, 4}), TensorList{points}, Dims{-1});
          s.add(s.tensor({4, 3}), TensorList{points, step}, Dims{0, 1}, 2).not_differentiable();
          s.add(s.tensor({4}), TensorList{points}, Dims(), 2);
          s.add(s.tensor({2}), TensorList{});
          s.invalid<ValueError>("edge_order", s.tensor({4}), TensorList{}, Dims(), 3);
          s.invalid<ShapeError>("at least 3", s.tensor({2}), TensorList{}, Dims(), 2);
          s.invalid<ShapeError>("neither", s.tensor({3}), TensorList{points});
          s.invalid<ValueError>("twice", s.tensor({3}), TensorList{}, Dims{0, -1});
        },
    .reference =
        [](const Tensor& x, const TensorList& spacing, const Dims& dims, int64_t edge_order) {
          TensorList results;
          Dims along = dims;
          for (int64_t d = 0; dims.empty() && d < x.dim(); ++d) along.push_back(d);
          for (int i = 0; i < along.size(); ++i) {
            const int64_t d = naive::from_front(along[i], x.dim()), n = x.shape()[d];
            const Array v(x);
            std::vector<double> at(static_cast<size_t>(n));
            const Array h = spacing.empty() ? Array(Shape{}, 1.0)
                                            : Array(spacing[spacing.size() == 1 ? 0 : static_cast<size_t>(i)]);
            for (size_t k = 0; k < at.size(); ++k) {
              at[k] = h.dim() == 0 ? h.flat(0) * static_cast<double>(k) : h.flat(static_cast<int64_t>(k));
            }
            Array y(x.shape());
            // The slope at place k of the polynomial through `count` points from `from` on, after Lagrange.
            const auto slope = [&](const Dims& place, int64_t from, int64_t count, int64_t k) {
              double total = 0;
              for (int64_t j = from; j < from + count; ++j) {
                double term = 0, below = 1;
                for (int64_t m = from; m < from + count; ++m) {
                  if (m == j) continue;
                  below *= at[static_cast<size_t>(j)] - at[static_cast<size_t>(m)];
                  double product = 1;
                  for (int64_t o = from; o < from + count; ++o)
                    if (o != j && o != m) product *= at[static_cast<size_t>(k)] - at[static_cast<size_t>(o)];
                  term += product;
                }
                total += v[naive::moved(place, d, j)] * term / below;
              }
              return total;
            };
            naive::each(x.shape(), [&](const Dims& place) {
              const int64_t k = place[d];
              if (k == 0)
                y[place] = slope(place, 0, edge_order + 1, 0);
              else if (k == n - 1)
                y[place] = slope(place, n - 1 - edge_order, edge_order + 1, k);
              else
                y[place] = slope(place, k - 1, 3, k);
            });
            results.push_back(y);
          }
          return results;
        },
    .tolerance = 4,
    .tolerance_reason = "coefficients are rounded before they multiply",
}};

// ---- running sums

const Op<Tensor(const Tensor&, int64_t)> logcumsumexp_op{{
    .schema = "logcumsumexp(Tensor x, int dim) -> Tensor",
    .shard = "along dim",
    .doc = "log of the sums of exp(x) up to each element along dim, without overflow. DTypeError for integers.",
    .example = "assert(std::abs(logcumsumexp(zeros({3}), 0).to_vector<float>()[2] - std::log(3.0)) < 1e-6);",
    .infer =
        [](const Tensor& x, int64_t dim) {
          check<DTypeError>(is_floating(x.dtype()), "logcumsumexp", "needs a floating dtype, got ", x,
                            "; convert with .to(DType::f32)");
          wrap_dim(dim, x.dim(), "logcumsumexp");
          return like(x);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, int64_t dim) {
      dim = wrap_dim(dim, x.dim(), "logcumsumexp");
      if constexpr (on.cuda)
        logcumsumexp_cuda(y, x, dim);
      else
        logcumsumexp_cpu(y, x, dim);
    }),
    .saves = "x result",
    .backward =
        [](Backward& b, const Tensor& x, int64_t dim) {
          if (x.dim() == 0) return b.set(0, b.gy());
          // The sum of g[i] exp(x - y[i]) over i from the element on, taken as exp(x - y) times that of
          // g[i] exp(y - y[i]): y grows, so that nothing overflows. What is infinite less the same counts as 0.
          const DType wide = is_reduced_floating(x.dtype()) ? DType::f32 : x.dtype();
          const Tensor y = to(b.y(), wide), fall = exp(nan_to_num(detail::shifted(y, dim, 0) - y));
          const Tensor sums = detail::linear_recurrence(fall, to(b.gy(), wide), dim, true);
          b.set(0, to(nan_to_num(exp(to(x, wide) - y)) * sums, x.dtype()));
        },
    .autocast = Autocast::full,
    .cost =
        [](const Tensor& x, int64_t) {
          return Cost{20.0 * static_cast<double>(x.numel()), 2.0 * static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), 1);
          s.add(s.tensor({7, 2}), 0);
          s.add(s.tensor({2, 4, 3}), -2);
          s.add(s.tensor({}), 0);
          s.add(s.tensor({0, 3}), 0);
          s.add(s.uniform({3, 5}, 80, 200), 1).named("large");
          s.add(s.tensor({2, 300}), 1).named("long rows");
          s.add(s.tensor({130, 3}), 0).named("long columns");
          s.add(s.tensor({3, 40}).t(), 0).named("strided");
          const Tensor odd = s.tensor({3, 6});
          odd.slice(0, 0, 1).slice(1, 0, 2).fill_(-INFINITY);
          odd.slice(0, 1, 2).slice(1, 3, 4).fill_(INFINITY);
          odd.slice(0, 2, 3).slice(1, 2, 3).fill_(NAN);
          s.add(odd, 1).named("infinite, NaN").not_differentiable();
          if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), 1);
          s.invalid<IndexError>("out of range", s.tensor({3}), 1);
          s.invalid<DTypeError>("floating dtype", s.integers({3}, 0, 5), 0);
        },
    .reference =
        [](const Tensor& x, int64_t dim) {
          Array y(x);
          dim = naive::from_front(dim, x.dim());
          naive::rows(Array(x), dim, [&](const std::vector<double>& row, const Dims& place) {
            double largest = -HUGE_VAL, total = 0;
            for (size_t i = 0; i < row.size(); ++i) {
              const double most = std::max(largest, row[i]), shift = std::isinf(most) ? 0 : most;
              total = (std::isinf(largest) ? 0 : total * std::exp(largest - shift)) + std::exp(row[i] - shift);
              largest = most;
              y[naive::moved(place, dim, static_cast<int64_t>(i))] =
                  most == HUGE_VAL && total == total ? most : std::log(total) + shift;
            }
          });
          return Tensor(y);
        },
}};

}  // namespace

Tensor diff(const Tensor& x, int64_t n, int64_t dim, const Tensor& prepend, const Tensor& append) {
  return diff_op(x, n, dim, prepend, append);
}
Tensor trapezoid(const Tensor& y, const Tensor& x, double dx, int64_t dim) {
  return trapezoid_op(y, x, dx, dim);
}
Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, double dx, int64_t dim) {
  return cumulative_trapezoid_op(y, x, dx, dim);
}
TensorList gradient(const Tensor& x, const TensorList& spacing, const Dims& dims, int64_t edge_order) {
  return gradient_op(x, spacing, dims, edge_order);
}
Tensor logcumsumexp(const Tensor& x, int64_t dim) {
  return logcumsumexp_op(x, dim);
}

}  // namespace strata
