#include "strata/nn/experts.h"

#include <cmath>

#include "strata/core/node.h"
#include "strata/nn/init.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/experts/experts.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/segments_inl.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::nn {

Tensor activate(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return gelu(x, "none");
    case Activation::gelu_tanh:
      return gelu(x, "tanh");
    case Activation::gelu_quick:
      return x * (x * 1.702).sigmoid();
    case Activation::silu:
      return silu(x);
    case Activation::relu:
      return relu(x);
    case Activation::tanh:
      return x.tanh();
    case Activation::sigmoid:
      return x.sigmoid();
  }
  throw ValueError("activate", "there is no such activation");
}

Tensor activate_gated(const Tensor& x, Activation activation) {
  if (activation == Activation::silu) return swiglu(x);
  const int64_t n = x.size(-1) / 2;
  const TensorList parts = strata::detail::segments_of(x, {n, n}, -1);
  return activate(parts[0], activation) * parts[1];
}

Experts::Experts(int64_t dim, const ExpertsSpec& spec, Activation activation)
    : Module("Experts", cat("count=", spec.count, ", per_token=", spec.per_token)),
      spec_(spec),
      activation_(activation) {
  check(dim > 0 && spec.count > 0 && spec.width > 0 && spec.per_token > 0 && spec.per_token <= spec.count, "Experts",
        spec.per_token, " of ", spec.count, " experts of width ", spec.width);
  check(spec.groups > 0 && spec.count % spec.groups == 0 && spec.top_groups > 0 && spec.top_groups <= spec.groups,
        "Experts", spec.top_groups, " of ", spec.groups, " groups of ", spec.count, " experts");
  router = new_parameter("router", {spec.count, dim});
  gate_up = new_parameter("gate_up", {spec.count, 2 * spec.width, dim});
  down = new_parameter("down", {spec.count, dim, spec.width});
  const double wide = 1 / std::sqrt(static_cast<double>(dim)), narrow = 1 / std::sqrt(static_cast<double>(spec.width));
  init::uniform_(router, -wide, wide);
  init::uniform_(gate_up, -wide, wide);
  init::uniform_(down, -narrow, narrow);
  if (spec.correction_bias) correction_bias = register_buffer("correction_bias", zeros({spec.count}, DType::f32));
  if (spec.shared_width == 0) return;
  shared_gate_up = register_module("shared_gate_up", Linear(dim, 2 * spec.shared_width, false));
  shared_down = register_module("shared_down", Linear(spec.shared_width, dim, false));
}

Tensor Experts::forward(const Tensor& x) const {
  const int64_t dim = x.size(-1), k = spec_.per_token;
  const Tensor rows = x.reshape({-1, dim});
  const Tensor scores =
      spec_.precise_router ? linear(rows.to(DType::f32), router.to(DType::f32)) : linear(rows, router);
  const bool sigmoid = spec_.scoring == ExpertsSpec::Scoring::sigmoid;
  const auto [weights, chosen] = route_experts(scores, k,
                                               {.scoring = sigmoid ? "sigmoid" : "softmax",
                                                .groups = spec_.groups,
                                                .top_groups = spec_.top_groups,
                                                .group_score = spec_.groups_by_two ? "top2" : "max",
                                                .normalize = spec_.normalise,
                                                .scale = spec_.scale},
                                               correction_bias);
  const ExpertOrder order = order_by_expert(chosen, spec_.count);
  const Tensor sorted = index_select(rows, 0, floor_divide(order.order, k));
  const Tensor inside = activate_gated(grouped_linear(sorted, gate_up, order.offsets), activation_);
  const Tensor given = index_select(grouped_linear(inside, down, order.offsets), 0, order.place).view({-1, k, dim});
  Tensor y = sum(given * weights.to(given.dtype()).unsqueeze(2), {1});
  if (shared_gate_up) y = y + (*shared_down)(activate_gated((*shared_gate_up)(rows), activation_));
  return y.view(x.shape());
}

}  // namespace strata::nn
