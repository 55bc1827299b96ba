// Quantiles.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/sort/sort_kernels.h"
#include "strata/ops/statistics/order_inl.h"
#include "strata/ops/statistics/statistics.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using naive::Array;

void check_quantile(const Tensor& x, const Tensor& q, const std::string& how, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x, "; convert with .to(DType::f32)");
  check<ShapeError>(q.dim() <= 1, op, "q must be 0-dim or 1-D, got ", q);
  check(how == "linear" || how == "lower" || how == "higher" || how == "midpoint" || how == "nearest", op,
        "interpolation must be linear, lower, higher, midpoint or nearest, got \"", how, "\"");
  check<DeviceError>(q.device() == x.device(), op, "q is on ", q.device(), ", x on ", x.device());
  if (!q.device().is_cpu()) return;
  for (const double v : q.to_vector<double>()) check(v >= 0 && v <= 1, op, "q must be in [0, 1], got ", v);
}

Tensor quantiles(const Tensor& whole, const Tensor& shares, std::optional<int64_t> dim, bool keepdim,
                 const std::string& how, bool skip_nan, std::string_view op) {
  check_quantile(whole, shares, how, op);
  const DType wide = is_reduced_floating(whole.dtype()) ? DType::f32 : whole.dtype();
  const int64_t d = dim ? wrap_dim(*dim, whole.dim(), op) : 0;
  const Tensor rows = transpose(dim ? as_row(to(whole, wide)) : reshape(to(whole, wide), {whole.numel()}), d, -1);
  const int64_t n = rows.shape().back();
  check<ShapeError>(n > 0, op, "no elements in ", whole);
  // A copy: a number would yield in type promotion, and lose digits to the default dtype.
  const Tensor q = clone(to(reshape(shares, {shares.numel()}), wide));
  const Tensor ordered = sort_values(rows, -1);
  Tensor nan;
  {
    NoGrad guard;
    nan = isnan(rows);
  }
  Shape spread = rows.shape();
  spread[spread.size() - 1] = q.numel();
  Tensor place;
  if (skip_nan) {
    place = clamp_min((n - sum(nan, {-1}, true)) - 1, 0).to(wide) * q;
  } else {
    place = where(any(nan, {-1}, true), static_cast<double>(n - 1), expand(q * static_cast<double>(n - 1), spread));
  }
  const auto at = [&](const Tensor& p) { return gather(ordered, -1, p.detach().to(DType::i64)); };
  Tensor y;
  if (how == "lower") {
    y = at(floor(place));
  } else if (how == "higher") {
    y = at(ceil(place));
  } else if (how == "nearest") {
    y = at(round(place));
  } else {
    const Tensor low = floor(place.detach()), weight = how == "linear" ? place - low : full_like(low, 0.5);
    y = lerp(at(low), at(ceil(place)), weight);
  }
  y = transpose(y, d, -1);  // the shares along d
  y = shares.dim() == 0 ? select(y, d, 0) : movedim(y, {d}, {0});
  if (dim && keepdim && whole.dim() > 0) y = unsqueeze(y, d + shares.dim());
  if (!dim && keepdim) {
    Shape shape = Shape::filled(static_cast<int>(whole.dim()), 1);
    if (shares.dim() == 1) shape.insert(0, q.numel());
    y = reshape(y, shape);
  }
  return to(y, whole.dtype());
}

double quantile_of(std::vector<double> row, double q, const std::string& how, bool skip_nan) {
  const size_t all = row.size();
  std::erase_if(row, [](double v) { return v != v; });
  if (row.empty() || (!skip_nan && row.size() < all)) return NAN;
  std::sort(row.begin(), row.end());
  const double place = q * static_cast<double>(row.size() - 1);
  const auto at = [&](double p) { return row[static_cast<size_t>(p)]; };
  if (how == "lower") return at(std::floor(place));
  if (how == "higher") return at(std::ceil(place));
  if (how == "nearest") return at(std::nearbyint(place));
  const double low = at(std::floor(place)), high = at(std::ceil(place));
  return low + (high - low) * (how == "linear" ? place - std::floor(place) : 0.5);
}
template <bool SkipNan>
Tensor quantile_reference(const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                          const std::string& how) {
  const Array all = dim ? Array(x) : Array(Shape{x.numel()}, x.to_vector<double>());
  const int64_t d = naive::from_front(dim.value_or(0), all.dim());
  std::vector<double> values;
  for (const double share : q.to_vector<double>())
    naive::rows(all, d, [&](const std::vector<double>& row, const Dims&) {
      values.push_back(quantile_of(row, share, how, SkipNan));
    });
  Shape shape = x.shape();
  if (!dim) shape = keepdim ? Shape::filled(static_cast<int>(x.dim()), 1) : Shape{};
  if (dim && x.dim() > 0) shape[d] = 1;
  if (dim && x.dim() > 0 && !keepdim) shape.erase(d);
  if (q.dim() == 1) shape.insert(0, q.numel());
  return Array(shape, values);
}

using QuantileOp = Op<Tensor(const Tensor&, const Tensor&, std::optional<int64_t>, bool, const std::string&)>;
void samples_quantile(Samples& s) {
  const auto shares = [&](std::initializer_list<double> v) {
    return to(from_span<double>(std::vector<double>(v), {static_cast<int64_t>(v.size())}), s.dtype());
  };
  s.add(s.distinct({3, 5}), shares({0.3, 0.77, 0.55}), 1);
  s.add(s.distinct({4, 3}), reshape(shares({0.4}), {}), 0, true);
  s.add(s.distinct({2, 3}), shares({0.1, 0.9}), std::nullopt, true);
  s.add(s.distinct({2, 3}), reshape(shares({0.7}), {}));
  s.add(s.tensor({}), reshape(shares({0.5}), {}), 0).not_differentiable();
  for (const char* how : {"lower", "higher", "midpoint", "nearest"})
    s.add(s.distinct({3, 4}), shares({0.3, 0.77}), -1, false, how);
  s.add(with_nan(s), shares({0.3, 0.77}), 1).named("NaN").not_differentiable();
  s.invalid<ValueError>("in [0, 1]", s.tensor({3}), shares({1.5}));
  s.invalid<ValueError>("interpolation", s.tensor({3}), shares({0.5}), 0, false, "cubic");
  s.invalid<ShapeError>("no elements", s.tensor({0}), shares({0.5}));
  s.invalid<DTypeError>("floating dtype", s.integers({3}, 0, 5), shares({0.5}));
}
Cost quantile_cost(const Tensor& x, const Tensor&, std::optional<int64_t>, bool, const std::string&) {
  return sort_cost(x);
}

const QuantileOp quantile_op{{
    .schema = "quantile(Tensor x, Tensor q, int? dim=None, bool keepdim=false, str interpolation=\"linear\") -> Tensor",
    .doc = "The values below which the shares q (0-dim or 1-D) of the elements along dim, or of all, lie: place q (n - "
           "1) of the elements in order, between two of them by linear, lower, higher, midpoint or nearest. A 1-D q "
           "comes first in the shape. NaN where an element is NaN.",
    .example = "assert(quantile(arange(5, DType::f32), full({}, 0.375)).item() == 1.5);",
    .composed = [](const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                   const std::string& how) { return quantiles(x, q, dim, keepdim, how, false, "quantile"); },
    .autocast = Autocast::full,
    .cost = quantile_cost,
    .samples = samples_quantile,
    .reference = quantile_reference<false>,
}};
const QuantileOp nanquantile_op{{
    .schema =
        "nanquantile(Tensor x, Tensor q, int? dim=None, bool keepdim=false, str interpolation=\"linear\") -> Tensor",
    .doc = "quantile of the elements that are not NaN; NaN where there are none.",
    .example = "Tensor x = arange(4, DType::f32); x.slice(0, 0, 1).fill_(NAN); "
               "assert(nanquantile(x, full({}, 0.5)).item() == 2);",
    .composed = [](const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                   const std::string& how) { return quantiles(x, q, dim, keepdim, how, true, "nanquantile"); },
    .autocast = Autocast::full,
    .cost = quantile_cost,
    .samples = samples_quantile,
    .reference = quantile_reference<true>,
}};

}  // namespace

Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  return quantile_op(x, q, dim, keepdim, std::string(interpolation));
}
Tensor nanquantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                   std::string_view interpolation) {
  return nanquantile_op(x, q, dim, keepdim, std::string(interpolation));
}

}  // namespace strata
