// The norm of several tensors as if they were one: what gradients are clipped by.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/norm/weight_norm.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "total_norm";

Tensor composed(const TensorList& tensors, double p) {
  check(!std::isnan(p), kOp, "the order p is not a number");
  if (tensors.empty()) return zeros({}, DType::f32);
  DType wide = DType::f32;
  for (const Tensor& t : tensors) {
    check<DTypeError>(is_floating(t.dtype()), kOp, "needs floating dtypes, got ", t);
    if (t.dtype() == DType::f64) wide = DType::f64;
  }
  TensorList norms;
  for (const Tensor& t : tensors) {
    // Its smallest element bounds nothing where there is none.
    if (t.numel() == 0 && p < 0) continue;
    norms.push_back(
        (t.numel() == 0 ? sum(t) : norm(t.to(statistic_dtype(t.dtype())), p)).to(tensors[0].device()).to(wide));
  }
  return norms.empty() ? full({}, std::numeric_limits<double>::infinity(), wide).to(tensors[0].device())
                       : norm(stack(norms), p);
}

double by_hand(const std::vector<double>& v, double p) {
  double y = p < 0 && std::isinf(p) ? std::numeric_limits<double>::infinity() : 0;
  for (const double x : v) {
    const double a = std::abs(x);
    if (std::isinf(p))
      y = p > 0 ? std::max(y, a) : std::min(y, a);
    else if (p == 0)
      y += a != 0;
    else
      y += std::pow(a, p);
  }
  return std::isinf(p) || p == 0 ? y : std::pow(y, 1 / p);
}

const Op<Tensor(const TensorList&, double)> total_norm_op{{
    .schema = "total_norm(Tensor[] tensors, float p=2.0) -> Tensor",
    .doc = "The p-norm of the tensors' p-norms, which but for p 0 is that of all their elements together: p inf gives "
           "the largest magnitude, -inf the smallest, 0 how many tensors are not zero (as PyTorch has it). In f64 "
           "where one of them is, else in f32, on the first one's device; 0 without tensors. DTypeError unless they "
           "are floating.",
    .example = "assert(total_norm({full({3}, 2.0), ones({4})}).item() == 4);",
    .composed = composed,
    .autocast = Autocast::full,
    .dtypes = dtype_bit(DType::f32) | dtype_bit(DType::f64),
    .samples =
        [](Samples& s) {
          s.add(TensorList{s.off_grid({3, 5}), s.off_grid({4}), s.off_grid({2, 3}).t()});
          for (const double p : {1.0, 3.0, 0.5, -1.0, 0.0})
            s.add(TensorList{s.off_grid({3, 2}), s.off_grid({5})}, p).named("p");
          for (const double p : {double(INFINITY), -double(INFINITY)})
            s.add(TensorList{s.distinct({3, 2}), s.distinct({5}) * 1.5 + 0.02}, p).named("infinite p");
          s.add(TensorList{s.off_grid({}), s.tensor({0})}).named("0-dim, empty");
          s.invalid<DTypeError>("floating", TensorList{s.tensor({3}), s.tensor({3}, DType::i32)});
          s.invalid<ValueError>("not a number", TensorList{s.tensor({3})}, double(NAN));
        },
    .reference =
        [](const TensorList& tensors, double p) {
          std::vector<double> norms;
          for (const Tensor& t : tensors) norms.push_back(by_hand(t.to_vector<double>(), p));
          const double y = by_hand(norms, p);
          return from_span<double>(std::vector<double>{y}, {});
        },
}};

}  // namespace

Tensor total_norm(const TensorList& tensors, double p) {
  return total_norm_op(tensors, p);
}

}  // namespace strata
