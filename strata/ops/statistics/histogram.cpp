// Histograms.

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/statistics/histogram_kernel.h"
#include "strata/ops/statistics/statistics.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using naive::Array;

void check_floating(const Tensor& x, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x, "; convert with .to(DType::f32)");
}
Tensor wide(const Tensor& x) {
  return is_reduced_floating(x.dtype()) ? to(x, DType::f32) : x;
}

// Edges that are not in order have no answer to compare with.
Array ascending(const Tensor& edges) {
  const Array e(edges);
  for (int64_t i = 1; i < e.size(); ++i) check(e.flat(i - 1) <= e.flat(i), "histogram", "the edges are not in order");
  return e;
}

// The lowest and highest of the elements; those of nothing are 0 and 1.
std::pair<double, double> range_of(const Tensor& x, std::string_view op) {
  if (x.numel() == 0) return {0, 1};
  const double low = min(x).item(), high = max(x).item();
  check(std::isfinite(low) && std::isfinite(high), op, "the range of the elements, ", low, " to ", high,
        ", is not finite");
  return {low, high};
}
void check_range(double low, double high, std::string_view op) {
  check(std::isfinite(low) && std::isfinite(high) && low <= high, op, "the range must be finite and ascending, got ",
        low, " to ", high);
}

// On the CPU: how many elements lie in each of `bins` equal parts of [low, high].
Tensor equal_parts(const Tensor& flat, int64_t bins, double low, double high) {
  const DeviceScope there(flat.device());
  const Tensor v = contiguous(flat), y = full({bins}, Scalar(0), v.dtype());
  Tensor counts = zeros({bins}, DType::i64);  // not a vector: what does not fit in memory is an error that says so
  int64_t* count = counts.data<int64_t>();
  dispatch_wide_floats(v.dtype(), "histc", [&]<class T>() {
    const T from = static_cast<T>(low), to = static_cast<T>(high), many = static_cast<T>(bins),
            width = static_cast<T>(high - low);
    const T* p = v.numel() > 0 ? v.data<T>() : nullptr;
    for (int64_t i = 0; i < v.numel(); ++i)
      if (p[i] >= from && p[i] <= to) {
        const auto part = static_cast<int64_t>((p[i] - from) * many / width);
        ++count[std::clamp<int64_t>(part, 0, bins - 1)];
      }
    for (int64_t k = 0; k < bins; ++k) y.data<T>()[k] = static_cast<T>(count[k]);
  });
  return y;
}

const Op<Tensor(const Tensor&, int64_t, Scalar, Scalar)> histc_op{{
    .schema = "histc(Tensor x, int bins=100, Scalar min=0, Scalar max=0) -> Tensor",
    .shard = "whole",
    .doc = "How many elements lie in each of `bins` equal parts of [min, max], in x's dtype; what lies outside is not "
           "counted. Where min and max are equal: the range of the elements. Not differentiable.",
    .example = "assert(histc(arange(4, DType::f32), 2).to_vector<float>() == std::vector<float>({2, 2}));",
    .dynamic = {.everywhere =
                    [](const Tensor& x, int64_t bins, Scalar min, Scalar max) {
                      check_floating(x, "histc");
                      check(bins >= 1 && bins < INT64_MAX, "histc", "bins must be at least 1 and fit in memory, got ",
                            bins);
                      const Tensor flat = wide(reshape(x, {x.numel()}));
                      double low = min.to_double(), high = max.to_double();
                      check_range(low, high, "histc");
                      if (low == high && flat.numel() > 0) std::tie(low, high) = range_of(flat, "histc");
                      if (low == high) low -= 1, high += 1;
#ifdef STRATA_WITH_CUDA
                      if (x.device().is_cuda()) return to(histc_cuda(flat, bins, low, high), x.dtype());
#endif
                      return equal_parts(flat, bins, low, high).to(x.dtype());
                    }},
    .cost =
        [](const Tensor& x, int64_t, Scalar, Scalar) {
          return Cost{3.0 * static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({4, 5}) + 0.013, 6, Scalar(-1), Scalar(1)).not_differentiable();
          s.add(from_span<double>(std::vector<double>{0, 1, 2, 2, 4}, {5}).to(s.dtype()), 4).not_differentiable();
          s.add(full({3}, Scalar(2), s.dtype()), 3).not_differentiable();
          s.add(s.tensor({0}), 2).not_differentiable();
          s.add(s.distinct({5, 6}).t() + 0.01357, 8999, Scalar(-2.1), Scalar(2.3))
              .not_differentiable()
              .named("many parts");
          s.add(s.distinct({1, 4999}) * 0.5 + 0.013, 7, Scalar(-2), Scalar(2))
              .not_differentiable()
              .named("several blocks");
          s.invalid<ValueError>("at least 1", s.tensor({3}), 0);
          s.invalid<ValueError>("ascending", s.tensor({3}), 2, Scalar(1), Scalar(0));
          s.invalid<DTypeError>("floating dtype", s.integers({3}, 0, 5));
        },
    .reference =
        [](const Tensor& x, int64_t bins, Scalar min, Scalar max) {
          const std::vector<double> all = x.to_vector<double>();
          double low = min.to_double(), high = max.to_double();
          if (low == high && !all.empty()) {
            low = *std::min_element(all.begin(), all.end());
            high = *std::max_element(all.begin(), all.end());
          }
          if (low == high) low -= 1, high += 1;
          Array y(Shape{bins});
          for (const double v : all)
            for (int64_t b = bins - 1; b >= 0; --b) {
              if (v > high || v < low + (high - low) * static_cast<double>(b) / static_cast<double>(bins)) continue;
              y.flat(b) += 1;
              break;
            }
          return Tensor(y);
        },
}};

const Op<TensorList(const Tensor&, const Dims&, const Tensor&)> bin_edges_op{{
    .schema = "bin_edges(Tensor x, int[] bins, Tensor? range=None) -> Tensor[]",
    .shard = "whole",
    .doc = "bins[d] + 1 equally spaced edges for each column d of x [samples, columns], over the range (lowest and "
           "highest of each column in turn) or that of the elements; 0.5 to both sides where that is one number. Not "
           "differentiable.",
    .example = "TensorList e = bin_edges(arange(3, DType::f32).view({3, 1}), {2}); "
               "assert(e[0].to_vector<float>() == std::vector<float>({0, 1, 2}));",
    .dynamic = {.everywhere =
                    [](const Tensor& x, const Dims& bins, const Tensor& range) {
                      constexpr std::string_view op = "bin_edges";
                      check_floating(x, op);
                      check<ShapeError>(x.dim() == 2 && x.shape()[1] == bins.size(), op, "x is ", x,
                                        ", wanted a column for each of ", bins.size(), " numbers of bins");
                      check<ShapeError>(!range.defined() || range.numel() == 2 * bins.size(), op, "range is ", range,
                                        ", wanted ", 2 * bins.size(), " numbers");
                      TensorList edges;
                      for (int d = 0; d < bins.size(); ++d) {
                        check(bins[d] >= 1, op, "bins must be at least 1, got ", bins);
                        double low = 0, high = 0;
                        if (range.defined()) {
                          const std::vector<double> r = range.to_vector<double>();
                          low = r[static_cast<size_t>(2 * d)];
                          high = r[static_cast<size_t>(2 * d) + 1];
                        } else {
                          std::tie(low, high) = range_of(select(x, 1, d), op);
                        }
                        check_range(low, high, op);
                        if (low == high) low -= 0.5, high += 0.5;
                        const DeviceScope there(x.device());
                        edges.push_back(linspace(low, high, bins[d] + 1, x.dtype()));
                      }
                      return edges;
                    }},
    .cost =
        [](const Tensor& x, const Dims&, const Tensor&) {
          return Cost{2.0 * static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({5, 2}), Dims{3, 4}).not_differentiable();
          s.add(s.tensor({0, 1}), Dims{2}).not_differentiable();
          s.add(s.tensor({3, 1}), Dims{2}, from_span<double>(std::vector<double>{-1, 3}, {2})).not_differentiable();
          s.invalid<ShapeError>("a column for each", s.tensor({5, 2}), Dims{3});
          s.invalid<ValueError>("at least 1", s.tensor({5, 1}), Dims{0});
        },
    .reference =
        [](const Tensor& x, const Dims& bins, const Tensor& range) {
          const Array v(x);
          TensorList edges;
          for (int d = 0; d < bins.size(); ++d) {
            double low = x.shape()[0] == 0 ? 0 : HUGE_VAL, high = x.shape()[0] == 0 ? 1 : -HUGE_VAL;
            for (int64_t i = 0; i < x.shape()[0]; ++i) {
              low = std::min(low, v[{i, d}]);
              high = std::max(high, v[{i, d}]);
            }
            if (range.defined()) low = Array(range).flat(2 * d), high = Array(range).flat(2 * d + 1);
            if (low == high) low -= 0.5, high += 0.5;
            Array e(Shape{bins[d] + 1});
            for (int64_t i = 0; i <= bins[d]; ++i)
              e.flat(i) = low + (high - low) * static_cast<double>(i) / static_cast<double>(bins[d]);
            edges.push_back(e);
          }
          return edges;
        },
}};

const Op<Tensor(const Tensor&, const TensorList&, const Tensor&, bool)> histogramdd_op{{
    .schema = "histogramdd(Tensor x, Tensor[] edges, Tensor? weight=None, bool density=false) -> Tensor",
    .shard = "whole",
    .doc =
        "How many points of x [..., columns] (or the sum of their weights [...]) lie between neighbours of the "
        "ascending edges of each column; the last part holds its upper edge too, points outside are not counted. With "
        "density divided by the total and by the widths. In x's dtype; not differentiable.",
    .example = "Tensor h = histogramdd(arange(4, DType::f32).view({4, 1}), {from_span<float>(std::vector<float>{0, 2, "
               "3}, {3})}); assert(h.to_vector<float>() == std::vector<float>({2, 2}));",
    .infer =
        [](const Tensor& x, const TensorList& edges, const Tensor& weight, bool) {
          constexpr std::string_view op = "histogramdd";
          check_floating(x, op);
          check<ShapeError>(x.dim() >= 1 && x.shape().back() == static_cast<int64_t>(edges.size()) && !edges.empty(),
                            op, "x is ", x, ", wanted a column for each of ", edges.size(), " tensors of edges");
          Shape shape, points = x.shape();
          points.resize(points.size() - 1);
          for (const Tensor& e : edges) {
            check<ShapeError>(e.dim() == 1 && e.numel() >= 2, op, "edges must be 1-D with two elements or more, got ",
                              e);
            check<DTypeError>(e.dtype() == x.dtype(), op, "edges are ", e, ", x is ", x, ": they must have one dtype");
            shape.push_back(e.numel() - 1);
          }
          check<ShapeError>(!weight.defined() || weight.shape() == points, op, "weight is ", weight, ", wanted shape ",
                            points);
          check<DTypeError>(!weight.defined() || weight.dtype() == x.dtype(), op, "weight is ", weight, ", x is ", x,
                            ": they must have one dtype");
          return like(x).with_shape(shape);
        },
    .kernels = {.everywhere =
                    [](Tensor& y, const Tensor& x, const TensorList& edges, const Tensor& weight, bool density) {
                      const auto columns = static_cast<int64_t>(edges.size());
                      const Tensor points = wide(reshape(x, {x.numel() / std::max<int64_t>(columns, 1), columns}));
                      const int64_t n = points.shape()[0];
                      const int64_t parts = y.numel();
                      const Tensor w = weight.defined() ? wide(reshape(weight, {n})) : Tensor();
                      Tensor h;
                      if (x.device().is_cpu()) {
                        h = histogramdd_cpu(points, edges, w, parts);
                      } else {
                        Tensor part = full_like(empty(like(x).with_shape({n}).with_dtype(DType::i64)), 0);
                        Tensor inside = full_like(part, true, DType::boolean);
                        for (int64_t d = 0; d < columns; ++d) {
                          const Tensor e = wide(edges[static_cast<size_t>(d)]), v = contiguous(select(points, 1, d));
                          const int64_t bins = e.numel() - 1;
                          Tensor at = searchsorted(e, v, true) - 1;
                          at = where(eq(v, select(e, 0, bins)), bins - 1, at);
                          inside =
                              logical_and(inside, logical_and(ge(at, full_like(at, 0)), lt(at, full_like(at, bins))));
                          part = part * bins + at;
                        }
                        // What is outside, and NaN, goes to one part more.
                        part = where(inside, part, parts);
                        h = to(slice(bincount(part, w, parts + 1), 0, 0, parts), wide(y).dtype());
                      }
                      h = reshape(h, y.shape());
                      if (density) {
                        h = h / sum(h);
                        for (int64_t d = 0; d < columns; ++d) {
                          Shape column = Shape::filled(static_cast<int>(columns), 1);
                          column[d] = y.shape()[d];
                          h = h / reshape(diff(wide(edges[static_cast<size_t>(d)])), column);
                        }
                      }
                      y.copy_(h);
                    }},
    .cost =
        [](const Tensor& x, const TensorList&, const Tensor&, bool) {
          return Cost{8.0 * static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          const auto edges = [&](std::vector<double> e) {
            return from_span<double>(e, {static_cast<int64_t>(e.size())}).to(s.dtype());
          };
          // Five edges and more, which are in order by no chance when a sample grows.
          s.add(s.tensor({9, 2}), TensorList{edges({-2, -1, -0.5, 0.25, 1, 2}), edges({-1, -0.5, 0, 0.75, 1.5})})
              .not_differentiable();
          s.add(s.tensor({3, 4, 1}), TensorList{edges({-1, -0.5, 0, 0.5, 1})}, s.uniform({3, 4}, 0.5, 2.0))
              .not_differentiable();
          s.add(s.tensor({20, 1}), TensorList{edges({-1, -0.75, 0.5, 0.75, 1})}, std::nullopt, true)
              .not_differentiable();
          s.add(edges({0, 1, 2, 2}).view({4, 1}), TensorList{edges({0, 1, 2})}).not_differentiable();
          s.add(s.tensor({2, 37}).t(), TensorList{edges({-2, 0.25, 2}), edges({-1, -0.5, -0.5, 1.5})})
              .not_differentiable();
          // Steps that every dtype has, between which most numbers lie; the same with some close together.
          std::vector<double> many, close;
          for (int i = 0; i < 64; ++i) {
            many.push_back(i / 32.0 - 1);
            close.push_back(i < 40 ? i / 64.0 - 0.5 : (i - 40) * 64.0 + 2);
          }
          const Tensor x = s.distinct({5, 101, 1}) + 0.0078125;
          s.add(x, TensorList{edges(many)}).not_differentiable().named("many edges");
          s.add(x.transpose(0, 1), TensorList{edges(many)}, s.uniform({101, 5}, 0.5, 2.0), true)
              .not_differentiable()
              .named("many edges, weights");
          s.add(x, TensorList{edges(close)}).not_differentiable().named("close edges");
          s.add(s.tensor({70, 2}), TensorList{edges(many), edges({-1, 0, 1})})
              .not_differentiable()
              .named("few and many");
          s.invalid<ShapeError>("a column for each", s.tensor({5, 2}), TensorList{edges({0, 1})});
          s.invalid<ShapeError>("two elements", s.tensor({5, 1}), TensorList{edges({0})});
          s.invalid<ShapeError>("weight", s.tensor({5, 1}), TensorList{edges({0, 1})}, s.tensor({4}));
        },
    .reference =
        [](const Tensor& x, const TensorList& edges, const Tensor& weight, bool density) {
          const auto columns = static_cast<int64_t>(edges.size());
          Shape shape;
          for (const Tensor& e : edges) shape.push_back(e.numel() - 1);
          Array y(shape);
          const Array v(x), weights = weight.defined() ? Array(weight) : Array(Shape{v.size()}, 1);
          std::vector<Array> borders;
          for (const Tensor& e : edges) borders.push_back(ascending(e));
          double total = 0;
          for (int64_t i = 0; i * columns < v.size(); ++i) {
            const double w = weights.flat(i);
            naive::each(shape, [&](const Dims& part) {
              bool hit = true;
              for (int64_t d = 0; d < columns; ++d) {
                const Array& e = borders[static_cast<size_t>(d)];
                const double p = v.flat(i * columns + d), low = e.flat(part[d]), high = e.flat(part[d] + 1);
                hit = hit && p >= low && (p < high || (p == high && part[d] + 1 == shape[d]));
              }
              y[part] += hit ? w : 0;
              total += hit ? w : 0;
            });
          }
          naive::each(shape, [&](const Dims& part) {
            for (int64_t d = 0; density && d < columns; ++d) {
              const Array& e = borders[static_cast<size_t>(d)];
              y[part] /= (e.flat(part[d] + 1) - e.flat(part[d])) * (d == 0 ? total : 1);
            }
          });
          return Tensor(y);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, bool)> histogram_op{{
    .schema = "histogram(Tensor x, Tensor edges, Tensor? weight=None, bool density=false) -> Tensor",
    .doc = "How many elements of x (or the sum of their weights, of x's shape) lie between neighbours of the ascending "
           "edges; the last part holds its upper edge too. With density divided by the total and by the width. In x's "
           "dtype; not differentiable.",
    .example = "Tensor h = histogram(arange(4, DType::f32), from_span<float>(std::vector<float>{0, 2, 3}, {3})); "
               "assert(h.to_vector<float>() == std::vector<float>({2, 2}));",
    .composed =
        [](const Tensor& x, const Tensor& edges, const Tensor& weight, bool density) {
          check<ShapeError>(!weight.defined() || weight.numel() == x.numel(), "histogram", "weight is ", weight,
                            ", x is ", x, ": they must have one shape");
          return histogramdd_op(reshape(x, {x.numel(), 1}), {edges},
                                weight.defined() ? reshape(weight, {x.numel()}) : weight, density);
        },
    .cost =
        [](const Tensor& x, const Tensor&, const Tensor&, bool) {
          return Cost{8.0 * static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          const Tensor edges = from_span<double>(std::vector<double>{-1, -0.25, 0.5, 0.75, 2}, {5}).to(s.dtype());
          s.add(s.tensor({4, 5}), edges).not_differentiable();
          s.add(s.tensor({6}), edges, s.uniform({6}, 0.5, 2.0), true).not_differentiable();
          s.invalid<ShapeError>("one shape", s.tensor({4}), edges, s.tensor({3}));
          s.invalid<DTypeError>("floating dtype", s.integers({3}, 0, 5), edges);
        },
    .reference =
        [](const Tensor& x, const Tensor& edges, const Tensor& weight, bool density) {
          const Array e = ascending(edges), v(x), weights = weight.defined() ? Array(weight) : Array(x.shape(), 1);
          Array y(Shape{e.size() - 1});
          double total = 0;
          for (int64_t i = 0; i < v.size(); ++i)
            for (int64_t b = 0; b < y.size(); ++b) {
              const bool last = b + 1 == y.size();
              if (v.flat(i) < e.flat(b) || !(last ? v.flat(i) <= e.flat(b + 1) : v.flat(i) < e.flat(b + 1))) continue;
              const double w = weights.flat(i);
              y.flat(b) += w;
              total += w;
            }
          for (int64_t b = 0; density && b < y.size(); ++b) y.flat(b) /= total * (e.flat(b + 1) - e.flat(b));
          return Tensor(y);
        },
}};

}  // namespace

Tensor histc(const Tensor& x, int64_t bins, Scalar min, Scalar max) {
  return histc_op(x, bins, min, max);
}
TensorList bin_edges(const Tensor& x, const Dims& bins, const Tensor& range) {
  return bin_edges_op(x, bins, range);
}
Tensor histogram(const Tensor& x, const Tensor& edges, const Tensor& weight, bool density) {
  return histogram_op(x, edges, weight, density);
}
Tensor histogramdd(const Tensor& x, const TensorList& edges, const Tensor& weight, bool density) {
  return histogramdd_op(x, edges, weight, density);
}

}  // namespace strata
