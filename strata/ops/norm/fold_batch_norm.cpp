// A batch norm in evaluation is one factor and one summand a channel: they go into the layer before it.

#include <cmath>
#include <tuple>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/norm/weight_norm.h"
#include "strata/ops/shape/shape.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "fold_batch_norm";
using Layer = std::tuple<Tensor, Tensor>;

// Which dimension of the weight has the channels.
int64_t channels_of(const Tensor& weight, const Tensor& mean, const Tensor& var, int64_t dim) {
  check<DTypeError>(is_floating(weight.dtype()), kOp, "needs a floating weight, got ", weight);
  check<ShapeError>(weight.dim() >= 1, kOp, "the weight has no dimensions");
  const int64_t at = wrap_dim(dim, weight.dim(), kOp);
  const Shape each{weight.size(at)};
  check<ShapeError>(mean.shape() == each && var.shape() == each, kOp, "mean ", mean, " and var ", var,
                    " are not one number for each of the ", each[0], " channels of the weight");
  return at;
}

Layer composed(const Tensor& weight, const Tensor& bias, const Tensor& mean, const Tensor& var, double eps,
               const Tensor& scale, const Tensor& shift, int64_t dim) {
  const int64_t at = channels_of(weight, mean, var, dim);
  for (const Tensor& t : {bias, scale, shift})
    check<ShapeError>(!t.defined() || t.shape() == mean.shape(), kOp, "bias, scale and shift are ", mean.shape(),
                      ", got ", t.defined() ? t.shape() : Shape());
  Tensor factor = rsqrt(var + eps);
  if (scale.defined()) factor = factor * scale;
  Tensor made = (bias.defined() ? bias - mean : -mean) * factor;
  if (shift.defined()) made = made + shift;
  Shape form = Shape::filled(weight.dim(), 1);
  form[at] = weight.size(at);
  return Layer((weight * factor.reshape(form)).to(weight.dtype()), made.to(weight.dtype()));
}

const Op<Layer(const Tensor&, const Tensor&, const Tensor&, const Tensor&, double, const Tensor&, const Tensor&,
               int64_t)>
    fold_batch_norm_op{{
        .schema = "fold_batch_norm(Tensor weight, Tensor? bias, Tensor mean, Tensor var, float eps=1e-5, Tensor? "
                  "scale=None, Tensor? shift=None, int dim=0) -> (Tensor folded_weight, Tensor folded_bias)",
        .doc = "Weight and bias of a linear map or convolution that does what (weight, bias) and a batch norm in "
               "evaluation after it do: weight times scale / sqrt(var + eps) along dim, which has its output channels "
               "(1 for transposed convolutions), and (bias - mean) scale / sqrt(var + eps) + shift. In the weight's "
               "dtype. ShapeError, IndexError, DTypeError.",
        .example = "const auto [w, b] = fold_batch_norm(ones({2, 3}), {}, ones({2}), full({2}, 4.0), 0);\n"
                   "assert(w.sum().item() == 3 && b.sum().item() == -1);",
        .composed = composed,
        .samples =
            [](Samples& s) {
              const auto none = std::nullopt;
              const auto var = [&](int64_t n) { return s.uniform({n}, 0.5, 2); };
              s.add(s.tensor({3, 5}), s.tensor({3}), s.tensor({3}), var(3), 1e-5, s.tensor({3}), s.tensor({3}));
              s.add(s.tensor({2, 3, 4}), none, s.tensor({3}), var(3), 0.1, s.tensor({3}), none, 1)
                  .named("transposed, no bias");
              s.add(s.tensor({5, 3}).t(), s.tensor({3}), s.tensor({3}), var(3)).named("strided, not affine");
              s.add(s.tensor({2, 4}), none, s.tensor({4}), var(4), 1e-3, none, s.tensor({4}), -1).named("shift alone");
              s.invalid<ShapeError>("for each of the 3", s.tensor({3, 5}), none, s.tensor({5}), var(5));
              s.invalid<ShapeError>("bias, scale", s.tensor({3, 5}), s.tensor({5}), s.tensor({3}), var(3));
              s.invalid<IndexError>("out of range", s.tensor({3, 5}), none, s.tensor({3}), var(3), 1e-5, none, none, 2);
              s.invalid<DTypeError>("floating", s.tensor({3}, DType::i32), none, s.tensor({3}), var(3));
            },
        .reference =
            [](const Tensor& weight, const Tensor& bias, const Tensor& mean, const Tensor& var, double eps,
               const Tensor& scale, const Tensor& shift, int64_t dim) {
              const auto at = static_cast<int>(naive::from_front(dim, weight.dim()));
              const naive::Array w(weight), m(mean), v(var);
              const auto number = [](const Tensor& t, int64_t c, double otherwise) {
                return t.defined() ? naive::Array(t).flat(c) : otherwise;
              };
              const auto factor = [&](int64_t c) { return number(scale, c, 1) / std::sqrt(v.flat(c) + eps); };
              return Layer(naive::made(weight.shape(), [&](const Dims& p) { return w[p] * factor(p[at]); }),
                           naive::made(mean.shape(), [&](const Dims& p) {
                             return (number(bias, p[0], 0) - m.flat(p[0])) * factor(p[0]) + number(shift, p[0], 0);
                           }));
            },
    }};

}  // namespace

std::tuple<Tensor, Tensor> fold_batch_norm(const Tensor& weight, const Tensor& bias, const Tensor& mean,
                                           const Tensor& var, double eps, const Tensor& scale, const Tensor& shift,
                                           int64_t dim) {
  return fold_batch_norm_op(weight, bias, mean, var, eps, scale, shift, dim);
}

}  // namespace strata
