#include "strata/ops/prune/prune.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/random/random.h"
#include "strata/ops/random/random_reference_inl.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/sort/sort.h"

namespace strata {
namespace {

constexpr RngKey kSampleKey{42, 7};
constexpr std::string_view kL1 = "l1_unstructured_mask", kRandom = "random_unstructured_mask",
                           kLn = "ln_structured_mask", kSlices = "random_structured_mask";

void check_amount(std::string_view op, Scalar amount) {
  check(amount.kind() != DType::boolean, op, "amount is a share or a count, got a bool");
  if (amount.kind() == DType::f64)
    check(amount.to_double() >= 0 && amount.to_double() <= 1, op, "amount, a share, must lie in [0, 1], got ",
          amount.to_double());
  else
    check(amount.to_int() >= 0, op, "amount, a count, must not be negative, got ", amount.to_int());
}
void check_scores(std::string_view op, const Tensor& mask, const Tensor& scores) {
  check<ShapeError>(scores.shape() == mask.shape(), op, "the scores ", scores, " do not have the shape of the mask ",
                    mask);
}
// The dimension of the slices.
int64_t slices_of(std::string_view op, const Tensor& mask, int64_t dim) {
  check<ShapeError>(mask.dim() >= 2, op, "slices are of two dimensions or more, got ", mask);
  return wrap_dim(dim, mask.dim(), op);
}
Dims all_but(int64_t dim, int64_t rank) {
  Dims others;
  for (int64_t d = 0; d < rank; ++d)
    if (d != dim) others.push_back(d);
  return others;
}

// Where `there` [n] holds and `scores` [n] is not among the smallest of those. Without a copy to the host but for the
// check of a count: a mask's number of elements stays on its device.
Tensor kept(std::string_view op, const Tensor& there, const Tensor& scores, Scalar amount) {
  const Tensor left = sum(there);
  Tensor count;
  if (amount.kind() == DType::f64) {
    count = round(left.to(DType::f64) * amount.to_double()).to(DType::i64);
  } else {
    if (!there.is_meta())
      check(amount.to_int() <= left.to(Device::cpu()).to_vector<int64_t>()[0], op, "amount is ", amount.to_int(),
            ", the mask has ", left.to(Device::cpu()).to_vector<int64_t>()[0], " left");
    count = full_like(left, amount);
  }
  // By score, those that are out behind all others: both orders keep what is equal as it was.
  const Tensor by_score = argsort(scores.detach(), 0);
  const Tensor order = gather(by_score, 0, argsort(gather(logical_not(there), 0, by_score), 0));
  return logical_and(there, ge(argsort(order, 0), count));
}

Tensor l1(const Tensor& mask, const Tensor& scores, Scalar amount) {
  check_amount(kL1, amount);
  check_scores(kL1, mask, scores);
  const Tensor stays = kept(kL1, (mask > 0).flatten(), abs(scores.detach()).flatten(), amount);
  return mask * stays.reshape(mask.shape()).to(mask.dtype());
}
Tensor random(const Tensor& mask, Scalar amount, RngKey key) {
  check_amount(kRandom, amount);
  const Tensor drawn = detail::uniform_of({mask.numel()}, 0, 1, key, DType::f32, mask.device());
  const Tensor stays = kept(kRandom, (mask > 0).flatten(), drawn, amount);
  return mask * stays.reshape(mask.shape()).to(mask.dtype());
}
Tensor without_slices(std::string_view op, const Tensor& mask, const Tensor& scores, Scalar amount, int64_t dim) {
  const Tensor stays = kept(op, any(mask > 0, all_but(dim, mask.dim())), scores, amount);
  Shape form = Shape::filled(mask.dim(), 1);
  form[dim] = mask.size(dim);
  return mask * stays.reshape(form).to(mask.dtype());
}
Tensor ln(const Tensor& mask, const Tensor& scores, Scalar amount, double n, int64_t dim) {
  check_amount(kLn, amount);
  check_scores(kLn, mask, scores);
  const int64_t at = slices_of(kLn, mask, dim);
  return without_slices(
      kLn, mask, norm(scores.detach().to(statistic_dtype(scores.dtype())), n, all_but(at, mask.dim())), amount, at);
}
Tensor random_slices(const Tensor& mask, Scalar amount, int64_t dim, RngKey key) {
  check_amount(kSlices, amount);
  const int64_t at = slices_of(kSlices, mask, dim);
  return without_slices(kSlices, mask, detail::uniform_of({mask.size(at)}, 0, 1, key, DType::f32, mask.device()),
                        amount, at);
}

// ---- the same by loops ----

using naive::Array;

std::vector<bool> kept(std::vector<bool> there, const std::vector<double>& scores, Scalar amount) {
  const auto left = static_cast<double>(std::ranges::count(there, true));
  // nearbyint() rounds halves to even numbers, as Python does.
  int64_t out = amount.kind() == DType::f64 ? std::lrint(std::nearbyint(amount.to_double() * left)) : amount.to_int();
  for (; out > 0; --out) {
    size_t least = there.size();
    for (size_t i = 0; i < there.size(); ++i)
      if (there[i] && (least == there.size() || scores[i] < scores[least])) least = i;
    there[least] = false;
  }
  return there;
}
std::vector<double> drawn(RngKey key, int64_t n) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(by_loops::unit(key, i, DType::f32));
  return v;
}
Tensor elements_by_loops(const Tensor& mask, const std::vector<double>& scores, Scalar amount) {
  Array y(mask);
  std::vector<bool> there;
  for (int64_t i = 0; i < y.size(); ++i) there.push_back(y.flat(i) > 0);
  const std::vector<bool> stays = kept(there, scores, amount);
  for (int64_t i = 0; i < y.size(); ++i) y.flat(i) *= stays[static_cast<size_t>(i)];
  return y;
}
Tensor slices_by_loops(const Tensor& mask, const std::vector<double>& scores, Scalar amount, int64_t dim) {
  const auto at = static_cast<int>(naive::from_front(dim, mask.dim()));
  Array y(mask);
  std::vector<bool> there(static_cast<size_t>(mask.size(at)), false);
  naive::each(y.shape(), [&](const Dims& place) {
    if (y[place] > 0) there[static_cast<size_t>(place[at])] = true;
  });
  const std::vector<bool> stays = kept(there, scores, amount);
  naive::each(y.shape(), [&](const Dims& place) { y[place] *= stays[static_cast<size_t>(place[at])]; });
  return y;
}
double norm_of(const std::vector<double>& v, double n) {
  double y = n < 0 ? INFINITY : 0;
  for (const double x : v) {
    const double a = std::abs(x);
    y = std::isinf(n) ? (n > 0 ? std::max(y, a) : std::min(y, a)) : y + std::pow(a, n);
  }
  return std::isinf(n) ? y : std::pow(y, 1 / n);
}

// ---- records ----

// A mask with some zeros.
Tensor some(Samples& s, const Shape& shape) {
  const int64_t n = shape.product();
  return (arange(0, n, 1, DType::i64) % 4 != 2).to(s.dtype()).reshape(shape);
}

const Op<Tensor(const Tensor&, const Tensor&, Scalar)> l1_op{{
    .schema = "l1_unstructured_mask(Tensor mask, Tensor scores, Scalar amount) -> Tensor",
    .doc = "The mask (zero: out, positive: there) without the elements of the smallest |scores| among those that it "
           "has: amount is the share of them that goes (a floating number in [0, 1], times their count and rounded) or "
           "how many go (an integer). Of equal scores the first go; NaN counts as the largest. ShapeError, ValueError. "
           "Magnitude pruning (Han et al., arXiv:1506.02626).",
    .example =
        "Tensor w = from_span<float>(std::vector<float>{3, -1, 2, -4}, {4});\n"
        "assert(l1_unstructured_mask(ones({4}), w, 0.5).to_vector<float>() == std::vector<float>({1, 0, 0, 1}));",
    .composed = l1,
    .samples =
        [](Samples& s) {
          s.add(ones({3, 5}, s.dtype()), s.distinct({3, 5}), 0.4).not_differentiable();
          s.add(some(s, {4, 5}), s.distinct({5, 4}).t(), 3).named("a count, strided").not_differentiable();
          s.add(some(s, {9}), s.distinct({9}), 1.0).named("everything").not_differentiable();
          s.add(some(s, {9}), s.distinct({9}), 0).named("nothing").not_differentiable();
          s.add(ones({6}, s.dtype()), ones({6}, s.dtype()), 0.25).named("equal scores").not_differentiable();
          s.add(ones({0}, s.dtype()), s.tensor({0}), 0.5).named("empty").not_differentiable();
          s.invalid<ValueError>("[0, 1], got 1.5", some(s, {4}), s.tensor({4}), 1.5);
          s.invalid<ValueError>("not be negative", some(s, {4}), s.tensor({4}), -1);
          s.invalid<ValueError>("the mask has 3 left", some(s, {4}), s.tensor({4}), 4);
          s.invalid<ValueError>("got a bool", some(s, {4}), s.tensor({4}), Scalar(true));
          s.invalid<ShapeError>("shape of the mask", some(s, {4}), s.tensor({5}), 1);
        },
    .reference =
        [](const Tensor& mask, const Tensor& scores, Scalar amount) {
          std::vector<double> v = scores.to_vector<double>();
          for (double& x : v) x = std::abs(x);
          return elements_by_loops(mask, v, amount);
        },
}};

const Op<Tensor(const Tensor&, Scalar, RngKey)> random_op{{
    .schema = "random_unstructured_mask(Tensor mask, Scalar amount, RngKey key) -> Tensor",
    .doc = "The mask without elements that are drawn among those that it has: amount as in l1_unstructured_mask, whose "
           "scores are here one uniform number for each element. ValueError.",
    .example = "assert(random_unstructured_mask(ones({10}), 3).sum().item() == 7);",
    .composed = random,
    .draws = [](const Tensor& mask, Scalar, RngKey) { return random_blocks(mask.numel()); },
    .samples =
        [](Samples& s) {
          s.add(ones({3, 5}, s.dtype()), 0.4, kSampleKey).not_differentiable();
          s.add(some(s, {5, 4}).t(), 3, kSampleKey).named("a count, strided").not_differentiable();
          s.add(some(s, {9}), 1.0, kSampleKey).named("everything").not_differentiable();
          s.invalid<ValueError>("[0, 1], got -0.5", some(s, {4}), -0.5, kSampleKey);
          s.invalid<ValueError>("the mask has 3 left", some(s, {4}), 4, kSampleKey);
        },
    .reference = [](const Tensor& mask, Scalar amount,
                    RngKey key) { return elements_by_loops(mask, drawn(key, mask.numel()), amount); },
}};

const Op<Tensor(const Tensor&, const Tensor&, Scalar, double, int64_t)> ln_op{{
    .schema = "ln_structured_mask(Tensor mask, Tensor scores, Scalar amount, float n=2.0, int dim=-1) -> Tensor",
    .doc = "The mask without the slices along dim whose scores have the smallest n-norms (n may be inf, -inf or 0, as "
           "in norm) among those of which it has an element: amount is the share of them, or how many of them go, as "
           "in l1_unstructured_mask. ShapeError for fewer than two dimensions, IndexError, ValueError.",
    .example = "Tensor w = from_span<float>(std::vector<float>{3, 1, 2, 4}, {2, 2});\n"
               "assert(ln_structured_mask(ones({2, 2}), w, 1, 2, 0).to_vector<float>() == "
               "std::vector<float>({0, 0, 1, 1}));",
    .composed = ln,
    .samples =
        [](Samples& s) {
          // Whole numbers: sums of their powers are equal or apart, in whichever order they are added.
          const auto whole = [&](const Shape& shape) { return s.integers(shape, -8, 9, s.dtype()); };
          s.add(ones({3, 5}, s.dtype()), whole({3, 5}), 0.4).not_differentiable();
          s.add(some(s, {4, 5}), whole({5, 4}).t(), 3, 1.0, 0).named("a count, strided").not_differentiable();
          s.add(some(s, {3, 2, 4}), s.distinct({3, 2, 4}), 0.5, double(INFINITY), -3).not_differentiable();
          s.add(cat({zeros({2, 3}, s.dtype()), ones({3, 3}, s.dtype())}, 0), whole({5, 3}), 2, 3.0, 0)
              .named("slices that are out")
              .not_differentiable();
          s.invalid<ValueError>("[0, 1], got 2", some(s, {4, 2}), s.tensor({4, 2}), 2.0);
          s.invalid<ValueError>("the mask has 2 left", some(s, {4, 2}), s.tensor({4, 2}), 3);
          s.invalid<ShapeError>("two dimensions", some(s, {4}), s.tensor({4}), 1);
          s.invalid<ShapeError>("shape of the mask", some(s, {4, 2}), s.tensor({2, 4}), 1);
          s.invalid<IndexError>("out of range", some(s, {4, 2}), s.tensor({4, 2}), 1, 2.0, 2);
        },
    .reference =
        [](const Tensor& mask, const Tensor& scores, Scalar amount, double n, int64_t dim) {
          const auto at = static_cast<int>(naive::from_front(dim, mask.dim()));
          std::vector<std::vector<double>> slices(static_cast<size_t>(mask.size(at)));
          const Array v(scores);
          naive::each(v.shape(),
                      [&](const Dims& place) { slices[static_cast<size_t>(place[at])].push_back(v[place]); });
          std::vector<double> norms;
          norms.reserve(slices.size());
          for (const auto& slice : slices) norms.push_back(norm_of(slice, n));
          return slices_by_loops(mask, norms, amount, dim);
        },
}};

const Op<Tensor(const Tensor&, Scalar, int64_t, RngKey)> random_slices_op{{
    .schema = "random_structured_mask(Tensor mask, Scalar amount, int dim=-1, RngKey key) -> Tensor",
    .doc = "The mask without slices along dim that are drawn among those of which it has an element: amount as in "
           "ln_structured_mask, whose norms are here one uniform number for each slice. ShapeError for fewer than two "
           "dimensions, IndexError, ValueError.",
    .example = "assert(random_structured_mask(ones({4, 3}), 0.5, 0).sum().item() == 6);",
    .composed = random_slices,
    .draws = [](const Tensor& mask, Scalar, int64_t dim,
                RngKey) { return random_blocks(mask.size(slices_of(kSlices, mask, dim))); },
    .samples =
        [](Samples& s) {
          s.add(ones({3, 5}, s.dtype()), 0.4, -1, kSampleKey).not_differentiable();
          s.add(some(s, {5, 4}).t(), 3, 0, kSampleKey).named("a count, strided").not_differentiable();
          s.add(some(s, {3, 2, 4}), 1.0, 1, kSampleKey).named("everything").not_differentiable();
          s.invalid<ValueError>("[0, 1], got -0.5", some(s, {4, 2}), -0.5, 0, kSampleKey);
          s.invalid<ValueError>("the mask has 2 left", some(s, {4, 2}), 3, 1, kSampleKey);
          s.invalid<ShapeError>("two dimensions", some(s, {4}), 1, 0, kSampleKey);
          s.invalid<IndexError>("out of range", some(s, {4, 2}), 1, -3, kSampleKey);
        },
    .reference =
        [](const Tensor& mask, Scalar amount, int64_t dim, RngKey key) {
          return slices_by_loops(mask, drawn(key, mask.size(static_cast<int>(naive::from_front(dim, mask.dim())))),
                                 amount, dim);
        },
}};

}  // namespace

Tensor l1_unstructured_mask(const Tensor& mask, const Tensor& scores, Scalar amount) {
  return l1_op(mask, scores, amount);
}
Tensor random_unstructured_mask(const Tensor& mask, Scalar amount, Generator& g) {
  return random_op.drawn(g, mask, amount, {});
}
Tensor ln_structured_mask(const Tensor& mask, const Tensor& scores, Scalar amount, double n, int64_t dim) {
  return ln_op(mask, scores, amount, n, dim);
}
Tensor random_structured_mask(const Tensor& mask, Scalar amount, int64_t dim, Generator& g) {
  return random_slices_op.drawn(g, mask, amount, dim, {});
}

}  // namespace strata
