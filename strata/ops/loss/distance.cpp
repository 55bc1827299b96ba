// Similarities and distances of rows, and the losses made of them.

#include <cmath>
#include <vector>

#include "strata/core/layout.h"
#include "strata/core/node.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/linalg/linalg.h"
#include "strata/ops/linalg/vecdot_kernel.h"
#include "strata/ops/loss/by_hand_inl.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/loss/reduction.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using by_hand::Numbers;
using detail::reduced;
using detail::widened;

// The dtype of a function of two: integers count as the default dtype.
DType floating_type(const Tensor& a, const Tensor& b) {
  const DType t = result_type(a, b);
  return is_floating(t) ? t : default_dtype();
}
Tensor as_floating(const Tensor& x) {
  return is_floating(x.dtype()) ? widened(x) : x.to(default_dtype());
}

// A p-norm of differences by hand.
double norm_by_hand(const Numbers& v, double p) {
  double sum = 0, most = 0;
  for (const double x : v) {
    most = std::max(most, std::abs(x));
    sum += p == 0 ? (x != 0) : std::pow(std::abs(x), p);
  }
  return std::isinf(p) ? most : p == 0 ? sum : std::pow(sum, 1 / p);
}

// f of the rows of a and b that lie along `dim`, at each place of their common shape without it.
template <class F>
Tensor rows_by_hand(const Tensor& a, const Tensor& b, int64_t dim, F&& f) {
  const Shape shape = by_hand::common_shape(a, b);
  const int64_t at = dim < 0 ? dim + shape.size() : dim;
  const auto last = [&](const Tensor& x) { return transpose(x.expand(shape), at, shape.size() - 1).contiguous(); };
  const Tensor x = last(a), y = last(b);
  const Numbers u = x.to_vector<double>(), v = y.to_vector<double>();
  const int64_t n = shape[at], rows = n == 0 ? 0 : shape.product() / n;
  Numbers r;
  for (int64_t i = 0; i < rows; ++i)
    r.push_back(
        f(Numbers(u.begin() + i * n, u.begin() + (i + 1) * n), Numbers(v.begin() + i * n, v.begin() + (i + 1) * n)));
  Shape swapped = x.shape();
  swapped[swapped.size() - 1] = 1;
  return transpose(from_span<double>(r, swapped), at, shape.size() - 1).contiguous().squeeze(at);
}

// ---- cosine_similarity --------------------------------------------------------------------------------------------

// The norm of x, which counts as at least eps; the gradient is that of the norm, as in PyTorch.
Tensor length(const Tensor& x, int64_t dim, double eps) {
  const Tensor n = norm(x, 2, {dim});
  if (!n.requires_grad()) return clamp_min(n, eps);
  const Tensor fixed = n.detach();
  return n + (clamp_min(fixed, eps) - fixed);
}

const Op<Tensor(const Tensor&, const Tensor&, int64_t, double)> cosine_similarity_op{{
    .schema = "cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-8) -> Tensor",
    .doc = "x1 . x2 over the product of their norms along `dim`, each norm counting as at least eps. The arguments "
           "broadcast and promote; `dim` counts in their common shape, and is not in the result's. IndexError, "
           "ShapeError.",
    .example = "assert(std::abs(cosine_similarity(full({1, 2}, 3.0), ones({1, 2})).item() - 1) < 1e-6);",
    .composed =
        [](const Tensor& a, const Tensor& b, int64_t dim, double eps) {
          const std::string_view op = "cosine_similarity";
          const Shape shape = broadcast_shapes(a.shape(), b.shape(), op);
          const int64_t at = wrap_dim(dim, shape.size(), op);
          check<ShapeError>(!shape.empty(), op, "x1 is ", a, " and x2 is ", b, "; they need a dimension");
          const Tensor u = as_floating(a), v = as_floating(b);
          const DType wide = result_type(u, v);
          const Tensor x = u.to(wide).expand(shape), y = v.to(wide).expand(shape);
          return (linalg_vecdot(x, y, at) / length(x, at, eps) / length(y, at, eps)).to(floating_type(a, b));
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.tensor({3, 5}));
          s.add(s.tensor({3, 5}), s.tensor({5}), -1).named("broadcast");
          s.add(s.tensor({2, 1, 3}), s.tensor({4, 3}), 2).named("broadcast both");
          // Below the floor the gradient is that of the norm, not that of the constant.
          s.add(s.tensor({4, 3}), s.tensor({4, 3}), 0, 10.0).not_differentiable().named("floor");
          s.invalid<ShapeError>("", s.tensor({3}), s.tensor({4}), 0);
          s.invalid<IndexError>("", s.tensor({3}), s.tensor({3}), 1);
        },
    .reference =
        [](const Tensor& a, const Tensor& b, int64_t dim, double eps) {
          return rows_by_hand(a, b, dim, [&](const Numbers& u, const Numbers& v) {
            double dot = 0;
            for (size_t i = 0; i < u.size(); ++i) dot += u[i] * v[i];
            return dot / (std::max(norm_by_hand(u, 2), eps) * std::max(norm_by_hand(v, 2), eps));
          });
        },
}};

// ---- distances ----------------------------------------------------------------------------------------------------

Tensor distances(const Tensor& a, const Tensor& b, double p, double eps) {
  return norm(as_floating(a) - as_floating(b) + eps, p, {-1}).to(floating_type(a, b));
}
// Of tensors of one floating dtype and shape, which a card has a kernel for.
const Op<Tensor(const Tensor&, const Tensor&, double, double)> distances_of_rows_op{{
    .schema = "distances_of_rows(Tensor x1, Tensor x2, float p, float eps) -> Tensor",
    .shard = "... k!, ... k! -> ...",
    .internal = true,
    .doc = "pairwise_distance for tensors of one floating dtype and one shape, and p neither 0 nor infinite.",
    .infer =
        [](const Tensor& a, const Tensor& b, double p, double) {
          constexpr std::string_view op = "distances_of_rows";
          check<DTypeError>(is_floating(a.dtype()) && a.dtype() == b.dtype(), op, "x1 is ", a, " and x2 is ", b,
                            ", wants one floating dtype");
          check<ShapeError>(a.dim() > 0 && a.shape() == b.shape(), op, "x1 is ", a, " and x2 is ", b,
                            ", wants one shape with a dimension");
          check(p != 0 && std::isfinite(p), op, "p must be neither 0 nor infinite, got ", p);
          Shape shape = a.shape();
          shape.resize(shape.size() - 1);
          return like(a).with_shape(shape);
        },
    .kernels = {.cuda = STRATA_CUDA_KERNEL([](Tensor& y, const Tensor& a, const Tensor& b, double p, double eps) {
                  if (!distances_cuda(y, a, b, p, eps)) copy_elements(y, distances(a, b, p, eps));
                })},
    .composed = distances,
    .cost =
        [](const Tensor& a, const Tensor& b, double, double) {
          return Cost{4.0 * a.numel(), static_cast<double>(a.nbytes() + b.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.tensor({3, 5}), 2.0, 1e-6);
          s.add(s.distinct({3, 40}), s.uniform({3, 40}, -0.01, 0.01), 1.0, 0.0);
          s.add(s.distinct({2, 3, 4}), s.uniform({4}, -0.01, 0.01).expand({2, 3, 4}), 3.0, 1e-6).named("expanded");
          s.add(s.tensor({0, 4}), s.tensor({0, 4}), 2.0, 1e-6).named("no rows");
          s.invalid<ShapeError>("one shape", s.tensor({3, 4}), s.tensor({4}), 2.0, 1e-6);
          s.invalid<ValueError>("p must be", s.tensor({3, 4}), s.tensor({3, 4}), 0.0, 1e-6);
        },
    .reference =
        [](const Tensor& a, const Tensor& b, double p, double eps) {
          return rows_by_hand(a, b, -1, [&](const Numbers& u, const Numbers& v) {
            Numbers d(u);
            for (size_t i = 0; i < d.size(); ++i) d[i] += eps - v[i];
            return norm_by_hand(d, p);
          });
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, double, double, bool)> pairwise_distance_op{{
    .schema = "pairwise_distance(Tensor x1, Tensor x2, float p=2.0, float eps=1e-6, bool keepdim=false) -> Tensor",
    .doc = "The p-norm of x1 - x2 + eps over the last dimension. The arguments broadcast and promote. ShapeError.",
    .example = "assert(std::abs(pairwise_distance(full({1, 2}, 3.0), zeros({1, 2}), 1).item() - 6) < 1e-4);",
    .composed =
        [](const Tensor& a, const Tensor& b, double p, double eps, bool keepdim) {
          const Shape shape = broadcast_shapes(a.shape(), b.shape(), "pairwise_distance");
          check<ShapeError>(!shape.empty(), "pairwise_distance", "x1 is ", a, " and x2 is ", b,
                            "; they need a dimension");
          if (a.device().is_cuda() && is_floating(a.dtype()) && a.dtype() == b.dtype() && p != 0 && std::isfinite(p)) {
            const Tensor y = distances_of_rows_op(a.expand(shape), b.expand(shape), p, eps);
            return keepdim ? y.unsqueeze(-1) : y;
          }
          const Tensor d = as_floating(a) - as_floating(b) + eps;
          return norm(d, p, {-1}, keepdim).to(floating_type(a, b));
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.tensor({3, 5}));
          s.add(s.tensor({3, 5}), s.tensor({5}), 1.0, 1e-6, true);
          s.add(s.distinct({3, 4}), s.uniform({4}, -0.01, 0.01), 3.0, 0.0);
          s.add(s.distinct({3, 4}), s.uniform({3, 1}, -0.01, 0.01), static_cast<double>(INFINITY));
          s.invalid<ShapeError>("", s.tensor({3}), s.tensor({4}));
        },
    .reference =
        [](const Tensor& a, const Tensor& b, double p, double eps, bool keepdim) {
          const Tensor y = rows_by_hand(a, b, -1, [&](const Numbers& u, const Numbers& v) {
            Numbers d(u);
            for (size_t i = 0; i < d.size(); ++i) d[i] += eps - v[i];
            return norm_by_hand(d, p);
          });
          return keepdim ? y.unsqueeze(-1) : y;
        },
}};

// From so many rows on, Euclidean distances are made of products, as in PyTorch.
constexpr int64_t kFewRows = 25;

// |x|^2 + |y|^2 - 2 x . y, which rounding may take below 0; where it does, and where rows are equal, no gradient flows.
Tensor euclidean_by_products(const Tensor& x, const Tensor& y) {
  const Tensor xx = sum(square(x), {-1}, true), yy = sum(square(y), {-1}, true);
  const Tensor squares = xx + transpose(yy, -2, -1) - matmul(x, transpose(y, -2, -1)) * 2;
  const Tensor none = squares <= 0;
  return where(none, Scalar(0), sqrt(where(none, Scalar(1), squares)));
}

// How many elements of each pair of rows differ, for as many rows of x at once on a processor as its cache has room for
// the differences of.
Tensor unequal_elements(const Tensor& x, const Tensor& y) {
  constexpr int64_t kAtOnce = int64_t{1} << 17;
  const auto count = [&](const Tensor& rows) { return norm(rows.unsqueeze(-2) - y.unsqueeze(-3), 0, {-1}); };
  const int64_t n = x.size(-2);
  int64_t all = 1;
  for (const int64_t size : broadcast_shapes(x.unsqueeze(-2).shape(), y.unsqueeze(-3).shape(), "cdist")) all *= size;
  if (!x.device().is_cpu() || all <= kAtOnce || n < 2) return count(x);
  const int64_t step = std::max<int64_t>(1, n * kAtOnce / all);
  TensorList parts;
  for (int64_t at = 0; at < n; at += step) parts.push_back(count(slice(x, x.dim() - 2, at, std::min(n, at + step))));
  return cat(parts, -2);
}

// How many elements of each pair of rows differ. No gradient flows: what has the rows' gradient beside the counts is 0
// whatever the rows hold, and makes nothing of the size of all differences.
Tensor counts_of_unequal(const Tensor& x, const Tensor& y) {
  const Tensor counts = unequal_elements(x.detach(), y.detach());
  const auto nothing = [](const Tensor& rows) {
    const Tensor sums = sum(rows, {-1}, true);
    return where(zeros_like(sums.detach()) != 0, sums, Scalar(0));
  };
  return counts + nothing(x) + transpose(nothing(y), -2, -1);
}

const Op<Tensor(const Tensor&, const Tensor&, double)> cdist_op{{
    .schema = "cdist(Tensor x1, Tensor x2, float p=2.0) -> Tensor",
    .doc = "The p-norms of the differences of each row of x1 [.., P, M] and each of x2 [.., R, M]: [.., P, R]. The "
           "leading dimensions broadcast. With p 2 and more than 25 rows they are computed as |x|^2 + |y|^2 - 2 x . y, "
           "which loses digits of small distances. ShapeError, and ValueError where p is negative.",
    .example = "assert(cdist(zeros({1, 2}), full({3, 2}, 2.0), 1.0).sum().item() == 12);",
    .composed =
        [](const Tensor& a, const Tensor& b, double p) {
          check<ShapeError>(a.dim() >= 2 && b.dim() >= 2 && a.size(-1) == b.size(-1), "cdist", "x1 is ", a, ", x2 is ",
                            b, ", wanted [.., P, M] and [.., R, M]");
          check(p >= 0, "cdist", "p must not be negative, got ", p);
          const Tensor x = as_floating(a), y = as_floating(b);
          const bool many = a.size(-2) > kFewRows || b.size(-2) > kFewRows;
          const Tensor d = p == 0                             ? counts_of_unequal(x, y)
                           : p == 2 && many && a.size(-1) > 0 ? euclidean_by_products(x, y)
                                                              : norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, {-1});
          return d.to(floating_type(a, b));
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({5, 3}), s.tensor({4, 3}));
          s.add(s.tensor({2, 3, 2}), s.tensor({4, 2}), 1.5);
          s.add(s.uniform({2, 27, 3}, 1, 2), s.uniform({5, 3}, -2, -1)).named("by products");
          s.add(s.integers({2, 3, 4}, 0, 2, s.dtype()), s.integers({5, 4}, 0, 2, s.dtype()), 0.0)
              .named("counts")
              .not_differentiable();
          s.add(s.integers({2, 75, 31}, 0, 2, s.dtype()), s.integers({41, 31}, 0, 2, s.dtype()), 0.0)
              .named("counts of some rows at once")
              .not_differentiable();
          s.invalid<ShapeError>("wanted", s.tensor({3, 2}), s.tensor({3, 4}));
          s.invalid<ValueError>("negative", s.tensor({3, 2}), s.tensor({3, 2}), -1.0);
        },
    .reference =
        [](const Tensor& a, const Tensor& b, double p) {
          return rows_by_hand(a.unsqueeze(-2), b.unsqueeze(-3), -1, [&](const Numbers& u, const Numbers& v) {
            Numbers d(u);
            for (size_t i = 0; i < d.size(); ++i) d[i] -= v[i];
            return norm_by_hand(d, p);
          });
        },
}};

// ---- losses of distances ------------------------------------------------------------------------------------------

constexpr double kCosineFloor = 1e-12;  // added to squared norms, as in PyTorch

using CosineLoss = Op<Tensor(const Tensor&, const Tensor&, const Tensor&, double, const std::string&)>;
const CosineLoss cosine_embedding_loss_op{{
    .schema = "cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, str "
              "reduction=\"mean\") -> Tensor",
    .doc =
        "With c the cosine of the rows of input1 and input2, [N, D] or [D]: 1 - c where target ([N] or no dimension) "
        "is 1, max(0, c - margin) where it is -1; averaged (mean), added (sum) or as it is (none). ShapeError.",
    .example =
        "assert(std::abs(cosine_embedding_loss(ones({1, 2}), ones({1, 2}), full({1}, -1.0)).item() - 1) < 1e-6);",
    .composed =
        [](const Tensor& a, const Tensor& b, const Tensor& target, double margin, const std::string& r) {
          const std::string_view op = "cosine_embedding_loss";
          check<ShapeError>((target.dim() == 0 && a.dim() == 1 && b.dim() == 1) ||
                                (target.dim() == 1 && a.dim() == 2 && b.dim() == 2),
                            op, "input1 is ", a, ", input2 is ", b, ", target is ", target,
                            ", wanted [N, D] twice and [N], or [D] twice and no dimension");
          const Tensor x = as_floating(a), y = as_floating(b);
          const Tensor c =
              sum(x * y, {-1}) / sqrt((sum(x * x, {-1}) + kCosineFloor) * (sum(y * y, {-1}) + kCosineFloor));
          const Tensor near = where(target == 1, 1 - c, Scalar(0.0));
          const Tensor far = where(target == -1, clamp_min(c - margin, 0), Scalar(0.0));
          return reduced(near + far, r, floating_type(a, b), op);
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          const Tensor sign = s.integers({4}, 0, 2) * 2 - 1;
          s.add(s.tensor({4, 5}), s.tensor({4, 5}), sign, -1.5);
          s.add(s.tensor({4, 5}), s.tensor({4, 5}), sign, -1.5, "none");
          s.add(s.tensor({5}), s.tensor({5}), ones({}, s.dtype()), 0.5, "sum");
          s.invalid<ShapeError>("wanted", s.tensor({4, 5}), s.tensor({4, 5}), s.tensor({4, 1}));
        },
    .reference =
        [](const Tensor& a, const Tensor& b, const Tensor& target, double margin, const std::string& r) {
          const Tensor c = rows_by_hand(a, b, -1, [](const Numbers& u, const Numbers& v) {
            double dot = 0, uu = kCosineFloor, vv = kCosineFloor;
            for (size_t i = 0; i < u.size(); ++i) dot += u[i] * v[i], uu += u[i] * u[i], vv += v[i] * v[i];
            return dot / std::sqrt(uu * vv);
          });
          return by_hand::each(
              r, [&](double x, double t) { return t == 1    ? 1 - x
                                                  : t == -1 ? std::max(0.0, x - margin)
                                                            : 0.0; }, c,
              target);
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, double, const std::string&)> triplet_of_distances_op{{
    .schema = "triplet_margin_of_distances(Tensor near, Tensor far, Tensor? between=None, float margin=1.0, str "
              "reduction=\"mean\") -> Tensor",
    .doc =
        "max(0, near - far + margin), what triplet losses are made of: near are the distances of anchor and positive, "
        "far those of anchor and negative, between those of positive and negative; where given, the smaller of far "
        "and between counts (swap, Balntas et al., 2016). Averaged (mean), added (sum) or as it is (none).",
    .example = "assert(triplet_margin_of_distances(full({1}, 2.0), full({1}, 1.0)).item() == 2);",
    .composed =
        [](const Tensor& near, const Tensor& far, const Tensor& between, double margin, const std::string& r) {
          const Tensor other = between.defined() ? minimum(widened(far), widened(between)) : widened(far);
          return reduced(clamp_min(widened(near) - other + margin, 0), r, result_type(near, far),
                         "triplet_margin_of_distances");
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}), s.uniform({3, 5}, -0.05, 0.05));
          s.add(s.off_grid({6}), s.uniform({6}, 0.01, 0.05), s.uniform({6}, -0.05, -0.01), 1.0, "none");
          s.invalid<ValueError>("reduction", s.tensor({3}), s.tensor({3}), std::nullopt, 1.0, "median");
        },
    .reference =
        [](const Tensor& near, const Tensor& far, const Tensor& between, double margin, const std::string& r) {
          return by_hand::each(
              r,
              [&](double a, double b, double c) {
                return std::max(0.0, a - (between.defined() ? std::min(b, c) : b) + margin);
              },
              near, far, between);
        },
}};

using Triplet =
    Op<Tensor(const Tensor&, const Tensor&, const Tensor&, double, double, double, bool, const std::string&)>;
const Triplet triplet_margin_loss_op{{
    .schema = "triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2.0, "
              "float eps=1e-6, bool swap=false, str reduction=\"mean\") -> Tensor",
    .doc =
        "max(0, d(anchor, positive) - d(anchor, negative) + margin) with d pairwise_distance of p and eps; with swap "
        "the negative's distance is that from anchor or positive, whichever is smaller (Balntas et al., 2016). "
        "Averaged (mean), added (sum) or as it is (none). ShapeError unless all have one number of dimensions.",
    .example = "assert(std::abs(triplet_margin_loss(zeros({1, 2}), zeros({1, 2}), zeros({1, 2})).item() - 1) < 1e-4);",
    .composed =
        [](const Tensor& a, const Tensor& p, const Tensor& n, double margin, double order, double eps, bool swap,
           const std::string& r) {
          const std::string_view op = "triplet_margin_loss";
          check<ShapeError>(a.dim() == p.dim() && a.dim() == n.dim(), op, "anchor is ", a, ", positive is ", p,
                            ", negative is ", n, ": they must have one number of dimensions");
          check(margin > 0, op, "margin must be positive, got ", margin);
          const Tensor x = as_floating(a), y = as_floating(p), z = as_floating(n);
          const Tensor between = swap ? pairwise_distance(y, z, order, eps) : Tensor();
          const Tensor near = pairwise_distance(x, y, order, eps), far = pairwise_distance(x, z, order, eps);
          return triplet_margin_of_distances(near, far, between, margin, r).to(floating_type(a, p));
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 5}), s.tensor({4, 5}), s.tensor({4, 5}), 20.0);
          s.add(s.tensor({4, 5}), s.tensor({4, 5}), s.tensor({4, 5}), 30.0, 1.0, 1e-6, true, "none");
          s.add(s.tensor({5}), s.tensor({5}), s.tensor({5}), 20.0, 2.0, 1e-6, false, "sum");
          s.invalid<ShapeError>("number of dimensions", s.tensor({4, 5}), s.tensor({5}), s.tensor({5}));
          s.invalid<ValueError>("margin", s.tensor({4, 5}), s.tensor({4, 5}), s.tensor({4, 5}), -1.0);
        },
    .reference =
        [](const Tensor& a, const Tensor& p, const Tensor& n, double margin, double order, double eps, bool swap,
           const std::string& r) {
          const auto distance = [&](const Tensor& x, const Tensor& y) {
            return rows_by_hand(x, y, -1, [&](Numbers u, const Numbers& v) {
              for (size_t i = 0; i < u.size(); ++i) u[i] += eps - v[i];
              return norm_by_hand(u, order);
            });
          };
          return by_hand::each(
              r,
              [&](double near, double far, double between) {
                return std::max(0.0, near - (swap ? std::min(far, between) : far) + margin);
              },
              distance(a, p), distance(a, n), distance(p, n));
        },
}};

}  // namespace

Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int64_t dim, double eps) {
  return cosine_similarity_op(x1, x2, dim, eps);
}
Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p, double eps, bool keepdim) {
  return pairwise_distance_op(x1, x2, p, eps, keepdim);
}
Tensor cdist(const Tensor& x1, const Tensor& x2, double p) {
  return cdist_op(x1, x2, p);
}
Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin,
                             const std::string& reduction) {
  return cosine_embedding_loss_op(input1, input2, target, margin, reduction);
}
Tensor triplet_margin_of_distances(const Tensor& near, const Tensor& far, const Tensor& between, double margin,
                                   const std::string& reduction) {
  return triplet_of_distances_op(near, far, between, margin, reduction);
}
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative, double margin,
                           double p, double eps, bool swap, const std::string& reduction) {
  return triplet_margin_loss_op(anchor, positive, negative, margin, p, eps, swap, reduction);
}

}  // namespace strata
