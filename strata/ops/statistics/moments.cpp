// Sums and means without NaN, variances with means, covariances.

#include <algorithm>
#include <array>
#include <cmath>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/reduce/kernels.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/statistics/statistics.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using naive::Array;
using Pair = std::tuple<Tensor, Tensor>;
using NanOp = Op<Tensor(const Tensor&, const Dims&, bool)>;
using PairOp = Op<Pair(const Tensor&, const Dims&, double, bool)>;

Cost nan_cost(const Tensor& x, const Dims&, bool) {
  return {2.0 * static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
}
Tensor without_nan(const Tensor& x) {
  return is_floating(x.dtype()) ? masked_fill(x, isnan(x), 0) : x;
}
void samples_nan(Samples& s) {
  s.add(s.tensor({3, 5}));
  s.add(s.tensor({3, 5, 2}), Dims{0, -1}, true);
  s.add(s.tensor({}));
  if (is_floating(s.dtype())) {
    const Tensor x = s.tensor({3, 4});
    x.slice(0, 0, 1).slice(1, 1, 3).fill_(NAN);
    s.add(x, Dims{1}).named("NaN").not_differentiable();
  }
  s.invalid<IndexError>("out of range", s.tensor({3}), Dims{1});
}

const NanOp nansum_op{{
    .schema = "nansum(Tensor x, int[] dims=[], bool keepdim=false) -> Tensor",
    .shard = "reduce dims",
    .doc = "Sum over dims, or over everything, of what is not NaN. Integers and bool sum in i64.",
    .example = "Tensor x = ones({3}); x.slice(0, 0, 1).fill_(NAN); assert(nansum(x).item() == 2);",
    .infer =
        [](const Tensor& x, const Dims& dims, bool keepdim) {
          const TensorMeta m = like(x).with_shape(reduced_shape(x.shape(), dim_mask(dims, x.dim(), "nansum"), keepdim));
          return is_floating(x.dtype()) ? m : m.with_dtype(DType::i64);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Dims& dims, bool) {
      const uint32_t mask = dim_mask(dims, x.dim(), "nansum");
      reduce(on, is_floating(x.dtype()) ? Reduction::sum_numbers : Reduction::sum, y, x, mask);
    }),
    .saves = "x",
    .backward =
        [](Backward& b, const Tensor& x, const Dims& dims, bool) {
          const Tensor g = view(b.gy(), reduced_shape(x.shape(), dim_mask(dims, x.dim(), "nansum"), true));
          b.set(0, masked_fill(expand(g, x.shape()), isnan(x), 0));
        },
    .autocast = Autocast::full,
    .dtypes = kAllTypes,
    .cost = nan_cost,
    .samples = samples_nan,
    .reference =
        [](const Tensor& x, const Dims& dims, bool keepdim) {
          return Tensor(naive::reduced(Array(x), dims, keepdim, [](const std::vector<double>& v) {
            double total = 0;
            for (const double e : v) total += e == e ? e : 0;
            return total;
          }));
        },
}};

const NanOp nanmean_op{{
    .schema = "nanmean(Tensor x, int[] dims=[], bool keepdim=false) -> Tensor",
    .doc =
        "Mean over dims, or over everything, of what is not NaN; NaN where that is nothing. DTypeError for integers.",
    .example = "Tensor x = arange(3, DType::f32); x.slice(0, 0, 1).fill_(NAN); assert(nanmean(x).item() == 1.5);",
    .composed =
        [](const Tensor& x, const Dims& dims, bool keepdim) {
          check<DTypeError>(is_floating(x.dtype()), "nanmean", "needs a floating dtype, got ", x,
                            "; convert with .to(DType::f32)");
          const DType wide = is_reduced_floating(x.dtype()) ? DType::f32 : x.dtype();
          const Tensor count = sum(logical_not(isnan(x)), dims, keepdim);
          return to(sum(without_nan(to(x, wide)), dims, keepdim) / to(count, wide), x.dtype());
        },
    .cost = nan_cost,
    .samples = samples_nan,
    .reference =
        [](const Tensor& x, const Dims& dims, bool keepdim) {
          return Tensor(naive::reduced(Array(x), dims, keepdim, [](const std::vector<double>& v) {
            double total = 0, count = 0;
            for (const double e : v) {
              total += e == e ? e : 0;
              count += e == e ? 1 : 0;
            }
            return total / count;
          }));
        },
}};

template <bool Root>
Pair spread_and_mean(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  const auto over = [&](auto f) { return Tensor(naive::reduced(Array(x), dims, keepdim, f)); };
  const auto middle = [](const std::vector<double>& v) {
    double total = 0;
    for (const double e : v) total += e;
    return total / static_cast<double>(v.size());
  };
  const auto spread = [&](const std::vector<double>& v) {
    const double mean = middle(v);
    double total = 0;
    for (const double e : v) total += (e - mean) * (e - mean);
    const double variance = total / std::max(0.0, static_cast<double>(v.size()) - correction);
    return Root ? std::sqrt(variance) : variance;
  };
  return {over(spread), over(middle)};
}
void samples_pair(Samples& s) {
  s.add(s.tensor({3, 5}));
  s.add(s.tensor({3, 5, 2}), Dims{0, -1}, 0.0, true);
  s.add(s.tensor({37, 3}), Dims{0}, 2.0);
  s.add(s.tensor({4, 7}).t(), Dims{1}).named("transposed");
  s.invalid<DTypeError>("floating dtype", s.integers({3}, 0, 5));
}
Cost pair_cost(const Tensor& x, const Dims&, double, bool) {
  return {5.0 * static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
}

std::array<TensorMeta, 2> infer_pair(const Tensor& x, const Dims& dims, double, bool keepdim) {
  check<DTypeError>(is_floating(x.dtype()), "var", "needs a floating dtype, got ", x, "; convert with .to(DType::f32)");
  const TensorMeta m = like(x).with_shape(reduced_shape(x.shape(), dim_mask(dims, x.dim(), "var"), keepdim));
  return {m, m};
}
// A card has the mean when it has the squares about it.
template <bool Root>
void pair_cuda(Tensor& v, Tensor& m, const Tensor& x, const Dims& dims, double correction, bool) {
  const uint32_t mask = dim_mask(dims, x.dim(), "var");
  const auto n = static_cast<double>(reduced_count(x.shape(), mask));
  variance_cuda(v, m, x, mask, std::max(0.0, n - correction), Root);
}

const PairOp var_mean_op{{
    .schema = "var_mean(Tensor x, int[] dims=[], float correction=1, bool keepdim=false) -> (Tensor var, Tensor mean)",
    .shard = "reduce dims",
    .doc = "var and mean over the same dims.",
    .example = "auto [v, m] = var_mean(arange(3, DType::f32)); assert(v.item() == 1 && m.item() == 1);",
    .infer = infer_pair,
    .kernels = {.cuda = STRATA_CUDA_KERNEL(pair_cuda<false>)},
    .composed = [](const Tensor& x, const Dims& dims, double correction,
                   bool keepdim) { return Pair(var(x, dims, correction, keepdim), mean(x, dims, keepdim)); },
    .cost = pair_cost,
    .samples = samples_pair,
    .reference = spread_and_mean<false>,
}};
const PairOp std_mean_op{{
    .schema = "std_mean(Tensor x, int[] dims=[], float correction=1, bool keepdim=false) -> (Tensor std, Tensor mean)",
    .shard = "reduce dims",
    .doc = "std and mean over the same dims.",
    .example = "auto [s, m] = std_mean(arange(3, DType::f32)); assert(s.item() == 1 && m.item() == 1);",
    .infer = infer_pair,
    .kernels = {.cuda = STRATA_CUDA_KERNEL(pair_cuda<true>)},
    .composed = [](const Tensor& x, const Dims& dims, double correction,
                   bool keepdim) { return Pair(strata::std(x, dims, correction, keepdim), mean(x, dims, keepdim)); },
    .cost = pair_cost,
    .samples = samples_pair,
    .reference = spread_and_mean<true>,
}};

// ---- covariance

Tensor weights_of(const Tensor& w, const Tensor& rows, std::string_view name) {
  check<ShapeError>(w.dim() == 1 && w.numel() == rows.shape()[1], "cov", name, " are ", w, ", wanted one for each of ",
                    rows.shape()[1], " observations");
  if (w.device().is_cpu())
    for (const double v : w.to_vector<double>()) check(v >= 0, "cov", name, " must not be negative, got ", v);
  return to(w, rows.dtype());
}

// Those of each row of a with each of b; of one row, whose product's gradient would be two products of one column,
// 0-dim.
Tensor products(const Tensor& a, const Tensor& b) {
  if (a.shape()[0] == 1) return dot(reshape(a, {a.numel()}), reshape(b, {b.numel()}));
  return matmul(a, transpose(b, 0, 1));
}

const Op<Tensor(const Tensor&, double, const Tensor&, const Tensor&)> cov_op{{
    .schema = "cov(Tensor x, float correction=1, Tensor? fweights=None, Tensor? aweights=None) -> Tensor",
    .doc = "Covariances of the rows of x [variables, observations] (of one row, its variance, 0-dim): weighted sums of "
           "products of differences from the weighted mean, divided by w - correction (with aweights a: w - correction "
           "sum(a f a) / w), w being the sum of the weights f a. NaN or inf where that is not positive. fweights "
           "(integers) say how often an observation was seen, aweights how much it counts. Integers are converted.",
    .example = "Tensor c = cov(arange(6, DType::f32).view({2, 3})); "
               "assert(c.to_vector<float>() == std::vector<float>({1, 1, 1, 1}));",
    .composed =
        [](const Tensor& x, double correction, const Tensor& fweights, const Tensor& aweights) {
          check<ShapeError>(x.dim() <= 2, "cov", "needs at most two dimensions, got ", x);
          check<DTypeError>(!fweights.defined() || is_integral(fweights.dtype()), "cov",
                            "fweights must be integers, got ", fweights);
          check<DTypeError>(!aweights.defined() || is_floating(aweights.dtype()), "cov",
                            "aweights must be floating, got ", aweights);
          Tensor rows = is_floating(x.dtype()) ? x : to(x, default_dtype());
          if (x.dim() < 2) rows = reshape(rows, {1, x.numel()});
          Tensor w, total;
          if (fweights.defined()) w = weights_of(fweights, rows, "fweights");
          Tensor a;
          if (aweights.defined()) {
            a = weights_of(aweights, rows, "aweights");
            w = w.defined() ? w * a : a;
          }
          const auto n = static_cast<double>(rows.shape()[1]);
          const Tensor weighted = w.defined() ? rows * w : rows;
          if (!w.defined()) {
            const Tensor centred = rows - sum(rows, {1}, true) / n;
            return products(centred, centred) / std::max(0.0, n - correction);
          }
          total = sum(w);
          const Tensor centred = rows - sum(weighted, {1}, true) / total;
          const Tensor lost = a.defined() ? sum(w * a) / total * correction : zeros_like(total) + correction;
          return products(centred * w, centred) / clamp_min(total - lost, 0);
        },
    .autocast = Autocast::full,
    .cost =
        [](const Tensor& x, double, const Tensor&, const Tensor&) {
          const double rows = x.dim() < 2 ? 1 : static_cast<double>(x.shape()[0]);
          return Cost{2 * rows * static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          const Tensor f = s.integers({5}, 1, 4), a = s.uniform({5}, 0.5, 2.0);
          s.add(s.tensor({3, 5}));
          s.add(s.tensor({5}), 0.0);
          s.add(s.tensor({1, 5}), 1.0, f);
          s.add(s.tensor({3, 5}), 1.0, f);
          s.add(s.tensor({3, 5}), 1.0, std::nullopt, a);
          s.add(s.tensor({2, 5}), 2.0, f, a);
          s.invalid<ShapeError>("at most two", s.tensor({2, 2, 2}));
          s.invalid<ShapeError>("one for each", s.tensor({2, 3}), 1.0, f);
          s.invalid<DTypeError>("integers", s.tensor({2, 5}), 1.0, a);
        },
    .reference =
        [](const Tensor& x, double correction, const Tensor& fweights, const Tensor& aweights) {
          const int64_t n = x.dim() < 2 ? x.numel() : x.shape()[1], rows = x.dim() < 2 ? 1 : x.shape()[0];
          const Array v(Shape{rows, n}, x.to_vector<double>());
          std::vector<double> w(static_cast<size_t>(n), 1.0), a = w;
          if (aweights.defined()) w = a = aweights.to_vector<double>();
          double total = 0, squares = 0;
          const Array often = fweights.defined() ? Array(fweights) : Array(Shape{n}, 1);
          for (int64_t i = 0; i < n; ++i) {
            const auto at = static_cast<size_t>(i);
            w[at] *= often.flat(i);
            total += w[at];
            squares += w[at] * a[at];
          }
          const double by =
              std::max(0.0, aweights.defined() ? total - correction * squares / total : total - correction);
          std::vector<double> means(static_cast<size_t>(rows));
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t i = 0; i < n; ++i)
              means[static_cast<size_t>(r)] += v[{r, i}] * w[static_cast<size_t>(i)] / total;
          Array y(Shape{rows, rows});
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < rows; ++c)
              for (int64_t i = 0; i < n; ++i)
                y[{r, c}] += w[static_cast<size_t>(i)] * (v[{r, i}] - means[static_cast<size_t>(r)]) *
                             (v[{c, i}] - means[static_cast<size_t>(c)]) / by;
          return rows == 1 ? Tensor(Array(Shape{}, {y.flat(0)})) : Tensor(y);
        },
    .tolerance = 8,
    .tolerance_reason = "differences from a mean that is rounded, multiplied in the dtype",
}};

const Op<Tensor(const Tensor&)> corrcoef_op{{
    .schema = "corrcoef(Tensor x) -> Tensor",
    .doc = "Correlations of the rows of x [variables, observations]: their covariances divided by both standard "
           "deviations, kept within [-1, 1]; of one row 1.",
    .example = "Tensor c = corrcoef(arange(6, DType::f32).view({2, 3})); "
               "assert(c.to_vector<float>() == std::vector<float>({1, 1, 1, 1}));",
    .composed =
        [](const Tensor& x) {
          const Tensor c = cov(x);
          if (c.dim() == 0) return c / c;
          const Tensor d = sqrt(diagonal(c));
          return clamp(c / unsqueeze(d, 1) / d, Scalar(-1.0), Scalar(1.0));
        },
    .autocast = Autocast::full,
    .cost =
        [](const Tensor& x) {
          return Cost{2.0 * static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 7})).not_differentiable();  // the diagonal is clamped at 1
          s.add(s.tensor({5}));
          s.invalid<ShapeError>("at most two", s.tensor({2, 2, 2}));
        },
    .reference =
        [](const Tensor& x) {
          const int64_t rows = x.dim() < 2 ? 1 : x.shape()[0], n = x.dim() < 2 ? x.numel() : x.shape()[1];
          const Array v(Shape{rows, n}, x.to_vector<double>());
          const auto product = [&](int64_t a, int64_t b) {
            double ma = 0, mb = 0, total = 0;
            for (int64_t i = 0; i < n; ++i) ma += v[{a, i}], mb += v[{b, i}];
            const auto count = static_cast<double>(n);
            for (int64_t i = 0; i < n; ++i) total += (v[{a, i}] - ma / count) * (v[{b, i}] - mb / count);
            return total;
          };
          Array y(x.dim() < 2 ? Shape{1, 1} : Shape{rows, rows});
          for (int64_t a = 0; a < rows; ++a)
            for (int64_t b = 0; b < rows; ++b)
              y[{a, b}] = std::clamp(product(a, b) / std::sqrt(product(a, a) * product(b, b)), -1.0, 1.0);
          return x.dim() < 2 ? Tensor(Array(Shape{}, y.flat(0))) : Tensor(y);
        },
    .tolerance = 16,
    .tolerance_reason = "a quotient of sums of differences from rounded means",
}};

}  // namespace

Tensor nansum(const Tensor& x, const Dims& dims, bool keepdim) {
  return nansum_op(x, dims, keepdim);
}
Tensor nanmean(const Tensor& x, const Dims& dims, bool keepdim) {
  return nanmean_op(x, dims, keepdim);
}
std::tuple<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return var_mean_op(x, dims, correction, keepdim);
}
std::tuple<Tensor, Tensor> std_mean(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return std_mean_op(x, dims, correction, keepdim);
}
Tensor cov(const Tensor& x, double correction, const Tensor& fweights, const Tensor& aweights) {
  return cov_op(x, correction, fweights, aweights);
}
Tensor corrcoef(const Tensor& x) {
  return corrcoef_op(x);
}

}  // namespace strata
