#include "strata/ops/loss/preference.h"

#include <cmath>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/loss/by_hand_inl.h"
#include "strata/ops/loss/reduction.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "dpo_loss";

using Record = Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, double, double, const std::string&,
                      const std::string&);

void check_arguments(const TensorList& tensors, double beta, double smoothing, const std::string& kind) {
  for (const Tensor& t : tensors)
    check<DTypeError>(is_floating(t.dtype()), kOp, "log-probabilities are floating, got ", t);
  check(kind == "sigmoid" || kind == "ipo", kOp, "kind is sigmoid or ipo, got '", kind, "'");
  check(beta > 0 && std::isfinite(beta), kOp, "beta is above 0, got ", beta);
  check(smoothing >= 0 && smoothing < 0.5, kOp, "label_smoothing is in [0, 0.5), got ", smoothing);
  check(kind == "sigmoid" || smoothing == 0, kOp, "label_smoothing is of kind sigmoid, not of ", kind);
}

double log_sigmoid(double z) {
  return std::min(z, 0.0) - std::log1p(std::exp(-std::abs(z)));
}

const Op<Record> dpo_loss_op{{
    .schema = "dpo_loss(Tensor chosen, Tensor rejected, Tensor reference_chosen, Tensor reference_rejected, float "
              "beta=0.1, float label_smoothing=0.0, str kind=\"sigmoid\", str reduction=\"mean\") -> Tensor",
    .doc = "Direct preference optimisation (Rafailov et al., arXiv:2305.18290) of log-probabilities of answers, the "
           "wanted (chosen) and the rejected ones, under the model and under its reference. With d = (chosen - "
           "reference_chosen) - (rejected - reference_rejected), kind \"sigmoid\" is -(1 - s) log sigmoid(beta d) - s "
           "log sigmoid(-beta d), s being label_smoothing in [0, 0.5), and \"ipo\" (Azar et al., arXiv:2310.12036) (d "
           "- 1 / (2 beta))^2; averaged (mean), added (sum) or as it is (none). The arguments broadcast and promote; "
           "of bf16 or f16 the loss "
           "is f32. ValueError, DTypeError.",
    .example = "const Tensor one = zeros({2});\n"
               "assert(std::abs(dpo_loss(one, one, one, one).item() - std::log(2.0)) < 1e-6);",
    .composed =
        [](const Tensor& chosen, const Tensor& rejected, const Tensor& ref_chosen, const Tensor& ref_rejected,
           double beta, double smoothing, const std::string& kind, const std::string& r) {
          check_arguments({chosen, rejected, ref_chosen, ref_rejected}, beta, smoothing, kind);
          using detail::widened;
          const Tensor d = (widened(chosen) - widened(ref_chosen)) - (widened(rejected) - widened(ref_rejected));
          if (kind == "ipo") return detail::reduced(square(d - 1 / (2 * beta)), r, d.dtype(), kOp);
          Tensor each = logsigmoid(d * beta) * (smoothing - 1);
          if (smoothing > 0) each = each - logsigmoid(d * -beta) * smoothing;
          return detail::reduced(each, r, d.dtype(), kOp);
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          const auto four = [&](const Shape& shape) {
            return TensorList{s.tensor(shape), s.tensor(shape), s.tensor(shape), s.tensor(shape)};
          };
          for (const char* kind : {"sigmoid", "ipo"})
            for (const char* reduction : {"mean", "sum", "none"}) {
              const TensorList t = four({5});
              s.add(t[0], t[1], t[2], t[3], 0.5, 0.0, kind, reduction);
            }
          const TensorList t = four({3});
          s.add(t[0], t[1], t[2], t[3], 2.0, 0.25, "sigmoid", "none").named("smoothed");
          s.add(s.tensor({2, 3}), s.tensor({3}), s.tensor({2, 1}), s.tensor({1}), 0.1).named("broadcast");
          s.add(s.uniform({4}, -900, -800), s.uniform({4}, -300, -200), t[0].select(0, 0), t[1].select(0, 0), 1.0)
              .not_differentiable()
              .named("far apart");
          s.invalid<ValueError>("kind", t[0], t[1], t[2], t[3], 0.1, 0.0, "hinge");
          s.invalid<ValueError>("beta", t[0], t[1], t[2], t[3], 0.0);
          s.invalid<ValueError>("label_smoothing", t[0], t[1], t[2], t[3], 0.1, 0.5);
          s.invalid<ValueError>("label_smoothing", t[0], t[1], t[2], t[3], 0.1, 0.1, "ipo");
          s.invalid<ValueError>("reduction", t[0], t[1], t[2], t[3], 0.1, 0.0, "sigmoid", "median");
          s.invalid<DTypeError>("floating", s.integers({3}, 0, 3), t[1], t[2], t[3]);
        },
    .reference =
        [](const Tensor& chosen, const Tensor& rejected, const Tensor& ref_chosen, const Tensor& ref_rejected,
           double beta, double smoothing, const std::string& kind, const std::string& r) {
          return by_hand::each(
              r,
              [&](double c, double w, double rc, double rw) {
                const double d = c - rc - w + rw;
                if (kind == "ipo") return (d - 0.5 / beta) * (d - 0.5 / beta);
                return -(1 - smoothing) * log_sigmoid(beta * d) - smoothing * log_sigmoid(-beta * d);
              },
              chosen, rejected, ref_chosen, ref_rejected);
        },
}};

}  // namespace

Tensor dpo_loss(const Tensor& chosen, const Tensor& rejected, const Tensor& reference_chosen,
                const Tensor& reference_rejected, const DpoOptions& o) {
  return dpo_loss_op(chosen, rejected, reference_chosen, reference_rejected, o.beta, o.label_smoothing, o.kind,
                     o.reduction);
}

}  // namespace strata
