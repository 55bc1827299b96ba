// Norms of vectors and matrices.

#include <charconv>
#include <cmath>
#include <limits>

#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/linalg/records.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace linalg;
using OptDims = std::optional<Dims>;
using OptDType = std::optional<DType>;

// "inf", "2", "-1.5" as a number; "fro", "nuc" and "" are none.
std::optional<double> number(const std::string& ord) {
  if (ord == "inf") return std::numeric_limits<double>::infinity();
  if (ord == "-inf") return -std::numeric_limits<double>::infinity();
  double v = 0;
  const auto [end, error] = std::from_chars(ord.data(), ord.data() + ord.size(), v);
  if (error != std::errc() || end != ord.data() + ord.size()) return std::nullopt;
  return v;
}

Tensor converted(std::string_view op, const Tensor& x, OptDType dtype) {
  check<DTypeError>(!dtype || is_floating(*dtype), op, "dtype is ", dtype.value_or(DType::f32),
                    ", wants a floating one");
  check<DTypeError>(is_floating(x.dtype()), op, "x is ", x, ", wants a floating dtype");
  return dtype ? x.to(*dtype) : x;
}

Tensor vector_norm(const Tensor& given, double ord, OptDims dim, bool keepdim, OptDType dtype) {
  const Tensor x = converted("linalg_vector_norm", given, dtype);
  check<ValueError>(!std::isnan(ord), "linalg_vector_norm", "ord is not a number");
  if (x.dim() == 0 && dim)
    for (const int64_t d : *dim) wrap_dim(d, 0, "linalg_vector_norm");
  return norm(x, ord, x.dim() == 0 || !dim ? Dims() : *dim, keepdim);
}

void add_vectors(Samples& s) {
  s.add(s.off_grid({4, 3}));
  for (const double ord : {1.0, 2.0, 3.0, 0.5, 0.0}) s.add(s.off_grid({2, 4, 3}), ord, Dims{1});
  for (const double ord : {double(INFINITY), -double(INFINITY)}) s.add(s.distinct({2, 3, 2}), ord, Dims{-1, 0}, true);
  s.add(s.off_grid({})).named("0-dim");
  s.add(s.off_grid({3}), 2.0, Dims()).named("no dims: all");
  s.add(s.tensor({0, 3}), 2.0, Dims{0}).named("empty");
  s.invalid<DTypeError>("floating", s.tensor({3}, DType::i32));
  s.invalid<IndexError>("", s.tensor({3}), 2.0, Dims{1});
  s.invalid<ShapeError>("no elements", s.tensor({0, 3}), double(INFINITY), Dims{0});
}

Tensor vector_reference(const Tensor& x, double ord, OptDims dim, bool keepdim, OptDType) {
  uint32_t over = 0;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (!dim || dim->empty() || dim->contains(d) || dim->contains(d - x.dim())) over |= 1u << d;
  Shape kept, left;
  for (int64_t d = 0; d < x.dim(); ++d) {
    kept.push_back(over >> d & 1 ? 1 : x.shape()[d]);
    if (!(over >> d & 1)) left.push_back(x.shape()[d]);
  }
  std::vector<double> all(static_cast<size_t>(kept.product()), ord < 0 ? double(INFINITY) : 0.0);
  const std::vector<double> v = x.to_vector<double>();
  for (size_t i = 0; i < v.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), at = 0, step = 1;
    for (int64_t d = x.dim() - 1; d >= 0; --d) {
      const int64_t index = rest % x.shape()[d];
      rest /= x.shape()[d];
      if (over >> d & 1) continue;
      at += index * step;
      step *= x.shape()[d];
    }
    double& y = all[static_cast<size_t>(at)];
    const double a = std::abs(v[i]);
    y = std::isinf(ord) ? (ord > 0 ? std::max(y, a) : std::min(y, a)) : ord == 0 ? y + (a != 0) : y + std::pow(a, ord);
  }
  if (!std::isinf(ord) && ord != 0)
    for (double& y : all) y = std::pow(y, 1 / ord);
  return naive::numbers(all, keepdim ? kept : left);
}

const Op<Tensor(const Tensor&, double, OptDims, bool, OptDType)> vector_norm_op{{
    .schema =
        "linalg_vector_norm(Tensor x, float ord=2, int[]? dim=None, bool keepdim=false, DType? dtype=None) -> Tensor",
    .doc = "(sum |x|^ord)^(1/ord) over dim, over everything without it; the largest |x| for ord inf, the smallest for "
           "-inf, "
           "the count of non-zeros for 0. dtype converts x first.",
    .example = "assert(linalg_vector_norm(ones({4})).item() == 2);",
    .composed = vector_norm,
    .autocast = Autocast::full,
    .cost =
        [](const Tensor& x, double, OptDims, bool, OptDType) {
          return Cost{2.0 * static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
        },
    .samples = add_vectors,
    .reference = vector_reference,
}};

Tensor matrix_norm(const Tensor& given, const std::string& ord, const Dims& dim, bool keepdim, OptDType dtype) {
  constexpr std::string_view op = "linalg_matrix_norm";
  const Tensor x = converted(op, given, dtype);
  check<ShapeError>(x.dim() >= 2 && dim.size() == 2, op, "x is ", x, " and dim is ", dim,
                    ", wants matrices and two dims");
  const int64_t r = wrap_dim(dim[0], x.dim(), op), c = wrap_dim(dim[1], x.dim(), op);
  check<ValueError>(r != c, op, "dim is ", dim, ", wants two different dims");
  if (ord == "fro") return norm(x, 2, {r, c}, keepdim);
  const std::optional<double> p = number(ord);
  if (p && (std::isinf(*p) || std::abs(*p) == 1)) {
    const bool columns = std::abs(*p) == 1;
    const Tensor sums = sum(abs(x), {columns ? r : c}, true);
    const int64_t other = columns ? c : r;
    const Tensor y = *p > 0 ? amax(sums, {other}, true) : amin(sums, {other}, true);
    return keepdim ? y : squeeze(squeeze(y, std::max(r, c)), std::min(r, c));
  }
  check<ValueError>(ord == "nuc" || (p && std::abs(*p) == 2), op, "ord is \"", ord,
                    "\", wants fro, nuc, inf, -inf, 1, -1, 2 or -2");
  const Tensor S = linalg_svdvals(movedim(x, {r, c}, {-2, -1}));
  const Tensor y = ord == "nuc" ? sum(S, {-1}) : *p > 0 ? amax(S, {-1}) : amin(S, {-1});
  return keepdim ? unsqueeze(unsqueeze(y, std::min(r, c)), std::max(r, c)) : y;
}

Tensor matrix_reference(const Tensor& given, const std::string& ord, const Dims& dim, bool keepdim, OptDType) {
  const int64_t r = (dim[0] + given.dim()) % given.dim(), c = (dim[1] + given.dim()) % given.dim();
  const Tensor A = movedim(given, {r, c}, {-2, -1});
  std::vector<double> all;
  for (const naive::Matrix& a : naive::matrices(A)) {
    double y = 0;
    if (ord == "fro") {
      for (const double v : a.v) y += v * v;
      all.push_back(std::sqrt(y));
      continue;
    }
    const double p = ord == "nuc" ? 0 : *number(ord);
    if (ord == "nuc" || std::abs(p) == 2) {
      naive::Matrix u, v;
      std::vector<double> s;
      naive::svd(a, u, s, v);
      for (const double x : s) y += x;
      all.push_back(ord == "nuc" ? y : p > 0 ? s[0] : s.back());
      continue;
    }
    const naive::Matrix m = std::abs(p) == 1 ? naive::transposed(a) : a;
    for (int64_t i = 0; i < m.m; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < m.n; ++j) sum += std::abs(m(i, j));
      y = i == 0 ? sum : p > 0 ? std::max(y, sum) : std::min(y, sum);
    }
    all.push_back(y);
  }
  Shape s = given.shape();
  s[r] = s[c] = 1;
  const Tensor y = naive::numbers(all, s);
  return keepdim ? y : y.squeeze(std::max(r, c)).squeeze(std::min(r, c));
}

Cost norm_cost(const Tensor& x) {
  return {4.0 * static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
}

const Op<Tensor(const Tensor&, const std::string&, const Dims&, bool, OptDType)> matrix_norm_op{{
    .schema =
        "linalg_matrix_norm(Tensor A, str ord=\"fro\", int[] dim=[-2, -1], bool keepdim=false, DType? dtype=None) -> "
        "Tensor",
    .doc = "Norms of the matrices in two dimensions: \"fro\" (the root of the sum of squares), \"nuc\" (the sum of the "
           "singular "
           "values), \"inf\" and \"-inf\" (the largest and smallest sum of a row's sizes), \"1\" and \"-1\" (of a "
           "column's), "
           "\"2\" and \"-2\" (singular value). Those of singular values take f32 and f64.",
    .example = "assert(linalg_matrix_norm(ones({3, 2}), \"1\").item() == 3);",
    .composed = matrix_norm,
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& x, const std::string&, const Dims&, bool, OptDType) { return norm_cost(x); },
    .samples =
        [](Samples& s) {
          for (const char* ord : {"fro", "nuc", "inf", "-inf", "1", "-1", "2", "-2"}) s.add(apart(s, {3, 4}), ord);
          s.add(apart(s, {2, 4, 3}), "2", Dims{2, 1}, true).named("transposed, kept");
          s.add(transpose(apart(s, {2, 4, 3}), 0, 1), "1", Dims{0, -1}).named("other dims");
          s.add(s.tensor({0, 2, 3}), "2").named("no matrices");
          s.invalid<ShapeError>("matrices", s.tensor({3}));
          s.invalid<ValueError>("ord", s.tensor({3, 3}), "3");
          s.invalid<ValueError>("different", s.tensor({3, 3}), "fro", Dims{0, 0});
          s.invalid<DTypeError>("floating", s.tensor({3, 3}, DType::i64));
        },
    .reference = matrix_reference,
}};

const Op<Tensor(const Tensor&, const std::string&, OptDims, bool, OptDType)> norm_op{{
    .schema = "linalg_norm(Tensor x, str ord=\"\", int[]? dim=None, bool keepdim=false, DType? dtype=None) -> Tensor",
    .doc = "linalg_matrix_norm where ord is given and there are two dimensions (dim, or x's own), linalg_vector_norm "
           "where "
           "there is one; without ord the 2-norm of all elements, or of those of dim.",
    .example = "assert(linalg_norm(ones({4})).item() == 2 && linalg_norm(ones({3, 2}), \"1\").item() == 3);",
    .composed =
        [](const Tensor& x, const std::string& ord, OptDims dim, bool keepdim, OptDType dtype) {
          if (ord.empty()) return vector_norm(x, 2, dim, keepdim, dtype);
          const int64_t n = dim ? dim->size() : x.dim();
          check<ShapeError>(n == 1 || n == 2, "linalg_norm", "ord is \"", ord, "\" for ", x,
                            ", wants one or two dimensions: give dim");
          if (n == 2) return matrix_norm(x, ord, dim ? *dim : Dims{0, 1}, keepdim, dtype);
          const std::optional<double> p = number(ord);
          check<ValueError>(p.has_value(), "linalg_norm", "ord is \"", ord, "\", wants a number for vectors");
          return vector_norm(x, *p, dim, keepdim, dtype);
        },
    .autocast = Autocast::full,
    .dtypes = kWide,
    .cost = [](const Tensor& x, const std::string&, OptDims, bool, OptDType) { return norm_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({2, 4, 3}));
          s.add(s.off_grid({5}), "3").named("vector");
          s.add(apart(s, {3, 4}), "nuc").named("matrix");
          s.add(apart(s, {2, 3, 4}), "inf", Dims{1, 2}, true).named("matrices");
          s.add(s.off_grid({2, 4, 3}), "1", Dims{1}).named("vectors");
          s.invalid<ShapeError>("give dim", s.tensor({2, 3, 4}), "1");
          s.invalid<ValueError>("number", s.tensor({3}), "fro");
        },
    .reference =
        [](const Tensor& x, const std::string& ord, OptDims dim, bool keepdim, OptDType dtype) {
          if (ord.empty()) return vector_reference(x, 2, dim, keepdim, dtype);
          if ((dim ? dim->size() : x.dim()) == 2)
            return matrix_reference(x, ord, dim ? *dim : Dims{0, 1}, keepdim, dtype);
          return vector_reference(x, *number(ord), dim, keepdim, dtype);
        },
}};

}  // namespace

Tensor linalg_vector_norm(const Tensor& x, double ord, std::optional<Dims> dim, bool keepdim,
                          std::optional<DType> dtype) {
  return vector_norm_op(x, ord, dim, keepdim, dtype);
}
Tensor linalg_matrix_norm(const Tensor& A, std::string_view ord, const Dims& dim, bool keepdim,
                          std::optional<DType> dtype) {
  return matrix_norm_op(A, std::string(ord), dim, keepdim, dtype);
}
Tensor linalg_norm(const Tensor& x, std::string_view ord, std::optional<Dims> dim, bool keepdim,
                   std::optional<DType> dtype) {
  return norm_op(x, std::string(ord), dim, keepdim, dtype);
}

}  // namespace strata
