// The loss of a language model's head, in the way that suits the device.

#include "strata/core/by_device.h"
#include "strata/core/dry_run.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/matmul/matmul.h"

namespace strata {
namespace {

Tensor of_whole_logits(const Tensor& x, const Tensor& weight, const Tensor& target, const CrossEntropyOptions& o) {
  return cross_entropy(linear(x, weight), target, o);
}

constexpr ByDevice<Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const CrossEntropyOptions&)> kWays{
    .cuda = linear_cross_entropy, .everywhere = of_whole_logits};

CrossEntropyOptions options_of(int64_t ignore_index, const std::string& reduction, double smoothing,
                               const Tensor& class_weight) {
  return {.ignore_index = ignore_index, .reduction = reduction, .label_smoothing = smoothing, .weight = class_weight};
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t, const std::string&, double, const Tensor&)>
    head_cross_entropy_op{{
        .schema = "head_cross_entropy(Tensor x, Tensor weight, Tensor target, int ignore_index=-100, str "
                  "reduction=\"mean\", float label_smoothing=0.0, Tensor? class_weight=None) -> Tensor",
        .doc =
            "cross_entropy(linear(x, weight), target) for x [N, D], weight [C, D] and i64 targets [N] in the way that "
            "suits the device: linear_cross_entropy on a card, where the logits never are whole; the CPU keeps them, "
            "which is as fast.",
        .example =
            "Tensor loss = head_cross_entropy(zeros({2, 3}), ones({4, 3}), from_span<int64_t>(std::vector<int64_t>"
            "{1, 3}, {2})); assert(std::abs(loss.item() - std::log(4.0)) < 1e-6);",
        .composed =
            [](const Tensor& x, const Tensor& weight, const Tensor& target, int64_t ignore_index,
               const std::string& reduction, double smoothing, const Tensor& class_weight) {
              return kWays.on(way_of(x.device()))(x, weight, target,
                                                  options_of(ignore_index, reduction, smoothing, class_weight));
            },
        .samples =
            [](Samples& s) {
              s.add(s.tensor({4, 5}), s.tensor({7, 5}), s.integers({4}, 0, 7));
              s.add(s.tensor({5, 8}), s.tensor({40, 8}), s.integers({5}, 0, 40), -100, "sum", 0.1).named("smoothed");
              s.add(s.tensor({6, 3}), s.tensor({3, 3}), s.integers({6}, 0, 3), 1, "none").named("ignored rows");
              s.add(s.tensor({6, 3}), s.tensor({3, 3}), s.integers({6}, 0, 3), -100, "mean", 0.0,
                    s.uniform({3}, 0.5, 2))
                  .named("weights of classes");
              s.invalid<ShapeError>("", s.tensor({2, 3}), s.tensor({3, 4}), s.integers({2}, 0, 3));
              s.invalid<ValueError>("reduction", s.tensor({2, 3}), s.tensor({3, 3}), s.integers({2}, 0, 3), -100,
                                    "median");
            },
        .reference =
            [](const Tensor& x, const Tensor& weight, const Tensor& target, int64_t ignore_index,
               const std::string& reduction, double smoothing, const Tensor& class_weight) {
              return of_whole_logits(x, weight, target, options_of(ignore_index, reduction, smoothing, class_weight));
            },
        .tolerance = 8,
        .tolerance_reason = "logits and their gradients are rounded to the dtype between the products",
    }};

}  // namespace

Tensor head_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& target, const CrossEntropyOptions& o) {
  return head_cross_entropy_op(x, weight, target, o.ignore_index, o.reduction, o.label_smoothing, o.weight);
}

}  // namespace strata
