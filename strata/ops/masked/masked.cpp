#include "strata/ops/masked/masked.h"

#include <algorithm>
#include <cmath>
#include <limits>
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
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using naive::Array;
constexpr double kInf = std::numeric_limits<double>::infinity();

void check_mask(const Tensor& mask, std::string_view op) {
  check<DTypeError>(!mask.defined() || mask.dtype() == DType::boolean, op, "the mask must be bool, got ", mask);
}

// x where the mask keeps it, else `value`.
Tensor kept(const Tensor& x, const Tensor& mask, Scalar value) {
  if (!mask.defined()) return x;
  const DeviceScope there(x.device());
  return where(mask, x, full({}, value, x.dtype()));
}

// The least (greatest) number of a dtype.
Scalar edge(DType dtype, bool low) {
  if (is_floating(dtype)) return low ? -kInf : kInf;
  if (dtype == DType::boolean) return int64_t{low ? 0 : 1};
  const bool is_unsigned = dtype == DType::u8;
  const int bits = static_cast<int>(8 * size_of(dtype)) - (is_unsigned ? 0 : 1);
  const auto high = static_cast<int64_t>((uint64_t{1} << bits) - 1);
  return low ? (is_unsigned ? 0 : -high - 1) : high;
}

// Means of few digits are made in f32.
DType wide(DType dtype) {
  return is_reduced_floating(dtype) ? DType::f32 : dtype;
}

Tensor count(const Tensor& x, const Tensor& mask, const Dims& dims, bool keepdim) {
  return sum(kept(ones_like(x), mask, 0), dims, keepdim);
}
Tensor mean_of(const Tensor& x, const Tensor& mask, const Dims& dims, bool keepdim) {
  return sum(kept(x, mask, 0), dims, keepdim) / count(x, mask, dims, keepdim);
}
Tensor variance(const Tensor& x, const Tensor& mask, const Dims& dims, bool keepdim, double correction) {
  const Tensor away = x - mean_of(x, mask, dims, true), off = kept(away, mask, 0);
  const Tensor n = count(away, mask, dims, keepdim) - correction;
  return sum(off * off, dims, keepdim) / clamp(n, std::optional<Scalar>(0.0));
}
Tensor product(Tensor x, const Dims& dims, bool keepdim) {
  std::vector<int64_t> order;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (naive::listed(dims, d, x.dim())) order.push_back(d);
  for (size_t i = order.size(); i-- > 0;) x = prod(x, order[i], keepdim);
  return x;
}
std::optional<int64_t> only(const Dims& dims, std::string_view what) {
  check(dims.size() <= 1, "masked_reduce", what, " wants one dimension, got ", dims);
  return dims.empty() ? std::nullopt : std::optional<int64_t>(dims[0]);
}
double neutral_of_norm(double ord) {
  return ord == -kInf ? kInf : 0;
}

Tensor reduce(const Tensor& x, const Tensor& mask, const std::string& what, const Dims& dims, bool keepdim,
              double correction, double ord) {
  check_mask(mask, "masked_reduce");
  for (const int64_t d : dims) wrap_dim(d, x.dim(), "masked_reduce");
  const Tensor w = to(x, wide(x.dtype()));
  const auto narrow = [&](const Tensor& y) { return is_floating(x.dtype()) ? to(y, x.dtype()) : y; };
  if (what == "sum") return sum(kept(x, mask, 0), dims, keepdim);
  if (what == "prod") return product(kept(x, mask, 1), dims, keepdim);
  if (what == "amax") return amax(kept(x, mask, edge(x.dtype(), true)), dims, keepdim);
  if (what == "amin") return amin(kept(x, mask, edge(x.dtype(), false)), dims, keepdim);
  if (what == "argmax") return argmax(kept(x, mask, edge(x.dtype(), true)), only(dims, what), keepdim);
  if (what == "argmin") return argmin(kept(x, mask, edge(x.dtype(), false)), only(dims, what), keepdim);
  if (what == "mean") return narrow(mean_of(w, mask, dims, keepdim));
  if (what == "var") return narrow(variance(w, mask, dims, keepdim, correction));
  if (what == "std") return narrow(sqrt(variance(w, mask, dims, keepdim, correction)));
  if (what == "norm") return norm(kept(x, mask, neutral_of_norm(ord)), ord, dims, keepdim);
  check(what == "logsumexp", "masked_reduce", "reduction '", what,
        "' is none of: sum prod amax amin argmax argmin mean var std norm logsumexp");
  Dims all = dims;
  for (int64_t d = 0; dims.empty() && d < x.dim(); ++d) all.push_back(d);
  return logsumexp(kept(x, mask, -kInf), all, keepdim);
}

// f(the kept elements, in order, and where each is among all of its group).
template <class F>
Tensor over_kept(const Tensor& x, const Tensor& mask, const Dims& dims, bool keepdim, F f) {
  const Array values(x);
  const Array keeps(mask.defined() ? expand(mask, x.shape()) : ones_like(x, DType::boolean));
  Array places(x.shape());
  for (int64_t i = 0; i < places.size(); ++i) places.flat(i) = static_cast<double>(i);
  return naive::reduced(places, dims, keepdim, [&](const std::vector<double>& group) {
    std::vector<double> chosen, at;
    for (size_t i = 0; i < group.size(); ++i) {
      const auto place = static_cast<int64_t>(group[i]);
      if (keeps.flat(place) == 0) continue;
      chosen.push_back(values.flat(place));
      at.push_back(static_cast<double>(i));
    }
    return f(chosen, at);
  });
}

double total(const std::vector<double>& v) {
  double y = 0;
  for (const double e : v) y += e;
  return y;
}
double order_norm(const std::vector<double>& v, double ord) {
  double y = 0;
  for (const double e : v) y += std::pow(std::abs(e), ord);
  return std::pow(y, 1 / ord);
}
double by_name(const std::vector<double>& v, const std::vector<double>& at, const std::string& what, double correction,
               double ord) {
  const auto n = static_cast<double>(v.size());
  if (what == "sum") return total(v);
  if (what == "mean") return total(v) / n;
  if (what == "norm") return order_norm(v, ord);
  if (what == "amax") return v.empty() ? -kInf : *std::ranges::max_element(v);
  if (what == "amin") return v.empty() ? kInf : *std::ranges::min_element(v);
  if (what == "argmax") return v.empty() ? 0 : at[static_cast<size_t>(std::ranges::max_element(v) - v.begin())];
  if (what == "argmin") return v.empty() ? 0 : at[static_cast<size_t>(std::ranges::min_element(v) - v.begin())];
  double y = what == "prod" ? 1 : 0;
  for (const double e : v) {
    if (what == "prod") y *= e;
    if (what == "logsumexp") y += std::exp(e);
    if (what == "var" || what == "std") y += std::pow(e - total(v) / n, 2) / std::max(0.0, n - correction);
  }
  if ((what == "var" || what == "std") && n <= correction) return NAN;
  return what == "logsumexp" ? std::log(y) : what == "std" ? std::sqrt(y) : y;
}

const Op<Tensor(const Tensor&, const Tensor&, const std::string&, const Dims&, bool, double, double)> masked_reduce_op{{
    .schema = "masked_reduce(Tensor x, Tensor? mask, str reduction, int[] dims=[], bool keepdim=false, float "
              "correction=1, float ord=2) -> Tensor",
    .doc =
        "A reduction over dims, or over everything, of the elements that the mask (bool, broadcast with x) keeps, or "
        "of all without one: sum (0 of none), prod (1 of none), amax and amin (the dtype's least and greatest of "
        "none), argmax and argmin, mean, var and std (divided by the number less correction), norm ((sum "
        "|x|^ord)^(1/ord)), logsumexp (-inf of none).",
    .example = "Tensor odd = eq(remainder(arange(4, DType::f32), 2), full({}, 1.0)); "
               "assert(masked_reduce(arange(4, DType::f32), odd, \"mean\").item() == 2);",
    .composed = reduce,
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          const Tensor x = s.distinct({3, 5}), some = s.boolean({3, 5});
          const Tensor row = from_span<float>(std::vector<float>{1, 0, 1, 1, 0}, {5}).to(DType::boolean);
          for (const char* what : {"sum", "prod", "amax", "amin", "mean", "logsumexp"}) {
            s.add(x, row, what).named(what);
            s.add(x, row, what, Dims{1}, true);
            s.add(x.t(), some.t(), "sum", Dims{-1}).named("strided");
          }
          s.add(x, row, "argmax", Dims{1});
          s.add(x, row, "argmin");
          s.add(x, row, "var", Dims{1}, true, 0.0);
          s.add(x, row, "std", Dims{0, 1});
          s.add(x, std::nullopt, "var").named("no mask");
          s.add(x, row, "norm", Dims{1}, false, 1.0, 3.0);
          s.add(s.tensor({}), std::nullopt, "sum").named("0-dim");
          s.invalid<ValueError>("is none of: sum", s.tensor({3}), std::nullopt, "median");
          s.invalid<DTypeError>("mask must be bool", s.tensor({3}), s.tensor({3}), "sum");
          s.invalid<IndexError>("out of range", s.tensor({3}), std::nullopt, "sum", Dims{1});
          s.invalid<ValueError>("one dimension", s.tensor({3, 2}), std::nullopt, "argmax", Dims{0, 1});
        },
    .reference =
        [](const Tensor& x, const Tensor& mask, const std::string& what, const Dims& dims, bool keepdim,
           double correction, double ord) {
          return over_kept(x, mask, dims, keepdim, [&](const std::vector<double>& v, const std::vector<double>& at) {
            return by_name(v, at, what, correction, ord);
          });
        },
}};

Tensor along(const Tensor& x, const Tensor& mask, const std::string& what, int64_t dim, double ord, double eps) {
  check_mask(mask, "masked_along");
  wrap_dim(dim, x.dim(), "masked_along");
  if (what == "cumsum") return cumsum(kept(x, mask, 0), dim);
  if (what == "cumprod") return cumprod(kept(x, mask, 1), dim);
  if (what == "softmax") return softmax(kept(x, mask, -kInf), dim);
  if (what == "softmin") return softmax(kept(neg(x), mask, -kInf), dim);
  if (what == "log_softmax") return log_softmax(kept(x, mask, -kInf), dim);
  check(what == "normalize", "masked_along", "function '", what,
        "' is none of: cumsum cumprod softmax softmin log_softmax normalize");
  const Tensor length = norm(kept(x, mask, neutral_of_norm(ord)), ord, {dim}, true);
  return kept(x, mask, 0) / clamp(length, std::optional<Scalar>(eps));
}

const Op<Tensor(const Tensor&, const Tensor&, const std::string&, int64_t, double, double)> masked_along_op{{
    .schema = "masked_along(Tensor x, Tensor? mask, str function, int dim, float ord=2, float eps=1e-12) -> Tensor",
    .doc = "A function along dim of the elements that the mask (bool, broadcast with x) keeps, or of all without one: "
           "softmax and softmin (0 for the others), log_softmax (-inf for the others), cumsum and cumprod (the others "
           "count as 0, and as 1), normalize (x over its norm of order ord, at least eps; 0 for the others).",
    .example = "Tensor first = lt(arange(3, DType::f32), full({}, 2.0)); "
               "assert(allclose(masked_along(ones({3}), first, \"softmax\", 0), from_span<float>(std::vector<float>{"
               "0.5f, 0.5f, 0}, {3})));",
    .composed = along,
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          const Tensor x = s.distinct({3, 5});
          const Tensor row = from_span<float>(std::vector<float>{1, 0, 1, 1, 0}, {5}).to(DType::boolean);
          for (const char* what : {"cumsum", "cumprod", "softmax", "softmin", "normalize"}) {
            s.add(x, row, what, 1).named(what);
            s.add(x.t(), std::nullopt, what, -1);
          }
          s.add(x, std::nullopt, "log_softmax", 0);
          s.add(x, row, "normalize", 1, 3.0, 0.5);
          s.invalid<ValueError>("is none of: cumsum", s.tensor({3}), std::nullopt, "median", 0);
          s.invalid<DTypeError>("mask must be bool", s.tensor({3}), s.tensor({3}), "softmax", 0);
          s.invalid<IndexError>("out of range", s.tensor({3}), std::nullopt, "softmax", 1);
        },
    .reference =
        [](const Tensor& x, const Tensor& mask, const std::string& what, int64_t dim, double ord, double eps) {
          const Array keeps(mask.defined() ? expand(mask, x.shape()) : ones_like(x, DType::boolean));
          Array y(x.shape());
          naive::rows(Array(x), dim, [&](const std::vector<double>& row, const Dims& first) {
            double sum = 0, running = what == "cumprod" ? 1 : 0, length = 0;
            for (int pass = 0; pass < 2; ++pass) {
              for (size_t i = 0; i < row.size(); ++i) {
                const Dims place = naive::moved(first, naive::from_front(dim, x.dim()), static_cast<int64_t>(i));
                const bool keep = keeps[place] != 0;
                const double e = std::exp(what == "softmin" ? -row[i] : row[i]);
                if (pass == 0) {
                  sum += keep ? e : 0;
                  length += keep ? std::pow(std::abs(row[i]), ord) : 0;
                  continue;
                }
                if (what == "cumsum") running += keep ? row[i] : 0;
                if (what == "cumprod") running *= keep ? row[i] : 1;
                y[place] = running;
                if (what == "softmax" || what == "softmin") y[place] = keep ? e / sum : 0;
                if (what == "log_softmax") y[place] = keep ? row[i] - std::log(sum) : -kInf;
                if (what == "normalize") y[place] = keep ? row[i] / std::max(eps, std::pow(length, 1 / ord)) : 0;
              }
            }
          });
          return Tensor(y);
        },
}};

}  // namespace

Tensor masked_reduce(const Tensor& x, const Tensor& mask, std::string_view reduction, const Dims& dims, bool keepdim,
                     double correction, double ord) {
  return masked_reduce_op(x, mask, std::string(reduction), dims, keepdim, correction, ord);
}
Tensor masked_along(const Tensor& x, const Tensor& mask, std::string_view function, int64_t dim, double ord,
                    double eps) {
  return masked_along_op(x, mask, std::string(function), dim, ord, eps);
}

}  // namespace strata
