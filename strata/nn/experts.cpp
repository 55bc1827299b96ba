#include "strata/nn/experts.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/core/place_into.h"
#include "strata/core/placement.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/collectives/own_parts_inl.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/group.h"
#include "strata/memory/allocator.h"
#include "strata/nn/expert_exchange_inl.h"
#include "strata/nn/expert_lora_inl.h"
#include "strata/nn/init.h"
#include "strata/nn/late_weights_inl.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/experts/experts.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/segments_inl.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/view/view.h"

namespace strata::nn {
namespace {

RouteOptions route_of(const ExpertsSpec& s) {
  return {.scoring = s.scoring == ExpertsSpec::Scoring::sigmoid ? "sigmoid" : "softmax",
          .groups = s.groups,
          .top_groups = s.top_groups,
          .group_score = s.groups_by_two ? "top2" : "max",
          .normalize = s.normalise,
          .scale = s.scale};
}

}  // namespace

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
  if (activation == Activation::gelu) return geglu(x);
  if (activation == Activation::gelu_tanh) return geglu(x, "tanh");
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
  check(spec.capacity >= 0 && spec.balance_loss >= 0 && spec.z_loss >= 0, "Experts", "capacity ", spec.capacity,
        ", balance_loss ", spec.balance_loss, " and z_loss ", spec.z_loss, " are to be 0 or more");
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

void Experts::spread(const std::string& group) {
  const distributed::Group& g = distributed::group(group);
  check(spec_.count % g.size() == 0, "Experts", g.size(), " ranks along '", group, "' do not share ", spec_.count,
        " experts evenly");
  check(!is_placed(gate_up) && !is_placed(down), "Experts", "the experts are on several ranks already");
  if (g.size() == 1) return;
  check(!detail::has_expert_lora(*this), "Experts", "the experts of '", path(),
        "' have adapters, which are for ranks that have all experts");
  const NoGrad guard;
  const memory::TagScope tag(memory::Tag::parameter);
  const auto mesh = std::make_shared<const MeshPlace>(MeshPlace{{{group, g.size(), g.rank()}}});
  const auto parts = std::make_shared<const Layout>(Layout{mesh, {Placement::sharded(0)}});
  for (const Tensor& t : {gate_up, down}) {
    detail::come(t);
    const Tensor own = strata::detail::placement_room().relay(t.detach(), t.shape(), {mesh, {Placement()}}, *parts);
    strata::detail::place_into(t, own, t.meta(), parts);
  }
}

Experts::Spread Experts::spread_on(int64_t alike) const {
  if (!is_placed(gate_up)) return {};
  const Layout& l = *layout_of(gate_up);
  for (size_t a = 0; a < l.placements.size(); ++a)
    if (l.placements[a].is_shard() && l.placements[a].dim == 0)
      return {l.mesh->axes[a].name, l.mesh->axes[a].size, alike};
  throw ValueError("Experts", cat("experts lie on ranks as 'S(0)', gate_up lies as '", text_of(l.placements), "'"));
}

Tensor Experts::logits_of(const Tensor& rows) const {
  if (!spec_.precise_router) return linear(rows, router);
  const AutocastScope none(DType::bf16, false);
  const DType wide = rows.dtype() == DType::f64 ? DType::f64 : DType::f32;
  return linear(rows.to(wide), router.to(wide));
}

void Experts::add_losses(const Tensor& logits, const Tensor& chosen, Tensor& loss) const {
  const auto add = [&](const Tensor& t, double factor) { loss = loss.defined() ? loss + t * factor : t * factor; };
  if (spec_.balance_loss > 0) {
    Tensor counts;
    {
      const NoGrad guard;
      const DeviceScope there(chosen.device());
      const Tensor all = chosen.reshape({-1});
      counts = index_add(zeros({spec_.count}, DType::i64), 0, all, ones_like(all));
      if (!batch_group_.empty()) counts = distributed::all_reduce(counts, "sum", batch_group_);
    }
    add(balance_loss(logits, counts, route_of(spec_).scoring), spec_.balance_loss);
  }
  if (spec_.z_loss > 0) add(router_z_loss(logits), spec_.z_loss);
}

// Gradients of a rank's experts are summed over rows of all ranks, whose losses are averaged.
Tensor Experts::products(const Tensor& rows, const Tensor& offsets, const Spread& on) const {
  const auto product = [&](const Tensor& x, const Tensor& weight, std::string_view name) {
    const double share = static_cast<double>(on.alike) / static_cast<double>(on.ranks);
    const Tensor y = grouped_linear(x, distributed::detail::own_part(weight, share), offsets);
    return detail::with_expert_lora(*this, name, x, y, offsets);
  };
  return product(activate_gated(product(rows, gate_up, "gate_up"), activation_), down, "down");
}

Tensor Experts::all_that_come(const Tensor& rows, const Tensor& chosen, const Tensor& weights, const Spread& on) const {
  const ExpertOrder order = order_by_expert(chosen, spec_.count);
  const Tensor place = order.place.view(chosen.shape()), sorted = dispatch_rows(rows, place, place.numel());
  if (on.ranks == 1) return combine_rows(products(sorted, order.offsets, on), place, weights);
  const ExpertExchange exchange(order.offsets, on.axis, on.ranks);
  const Tensor done = products(exchange.there(sorted), exchange.offsets(), on);
  return combine_rows(exchange.back(done), place, weights);
}

// Each expert has `each` places for every sequence, filled or not, so that all sizes are known.
Tensor Experts::within_capacity(const Tensor& rows, const Tensor& logits, const Tensor& chosen, const Tensor& weights,
                                int64_t time, const Spread& on) const {
  const int64_t tokens = rows.size(0), dim = rows.size(1), count = spec_.count;
  if (tokens == 0) return rows;
  const double even = static_cast<double>(time * spec_.per_token) / static_cast<double>(count);
  const auto each = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(spec_.capacity * even - 1e-9)));
  const int64_t all = tokens / time * each;
  const auto& [axis, ranks, alike] = on;
  const DeviceScope there(rows.device());
  Tensor experts, place, offsets;
  {
    const NoGrad guard;
    Tensor slots, scores = logits.detach();
    if (correction_bias.defined()) {
      const Tensor wide = scores.to(correction_bias.dtype());
      scores = (spec_.scoring == ExpertsSpec::Scoring::sigmoid ? sigmoid(wide) : softmax(wide, 1)) + correction_bias;
    }
    std::tie(experts, slots) = expert_slots(chosen, scores, time, each, spec_.reroute);
    const Tensor sequence = floor_divide(arange(tokens, DType::i64), time).unsqueeze(1);
    place = where(slots >= 0, experts * all + sequence * each + slots, slots);
    offsets = arange(count / ranks + 1, DType::i64) * (all * ranks);
  }
  const Tensor taken = spec_.reroute ? expert_weights(logits, experts, route_of(spec_)) : weights;
  Tensor at = dispatch_rows(rows, place, count * all).view({count, all, dim});
  if (ranks > 1) at = distributed::all_to_all(at, 0, 1, axis);  // [count / ranks, all ranks, dim]
  at = products(at.reshape({-1, dim}), offsets, on).view({count / ranks, all * ranks, dim});
  if (ranks > 1) at = distributed::all_to_all(at, 1, 0, axis);
  return combine_rows(at.reshape({count * all, dim}), place, taken);
}

Tensor Experts::shared(const Tensor& x) const {
  return (*shared_down)(activate_gated((*shared_gate_up)(x), activation_));
}

Tensor Experts::of_rows(const Tensor& rows, const Tensor& logits, int64_t time, int64_t alike, Tensor* loss) const {
  const auto [weights, chosen] = route_experts(logits, spec_.per_token, route_of(spec_), correction_bias);
  if (is_training() && loss) add_losses(logits, chosen, *loss);
  const Spread on = spread_on(alike);
  return is_training() && spec_.capacity > 0 ? within_capacity(rows, logits, chosen, weights, time, on)
                                             : all_that_come(rows, chosen, weights, on);
}

// Router and shared expert are computed as any product of sharded tensors; rows of a rank's positions go to experts.
Tensor Experts::of_positions(const Tensor& x, Tensor* loss) const {
  const Layout& lies = *layout_of(x);
  const MeshPlace::Axis& axis = lies.mesh->axes[0];
  const std::string ranks = cat('+', spread_on(1).axis, '+');
  check(lies.mesh->axes.size() == 1 && x.dim() > 2 && ranks.find(cat('+', axis.name, '+')) != std::string::npos,
        "Experts", "x lies as '", text_of(lies.placements), "' on ranks along '", axis.name, "', and the experts are ",
        is_placed(gate_up) ? cat("along '", spread_on(1).axis, "'") : std::string("whole"),
        ": wanted positions in parts along an axis that shares the experts");
  // Capacities count whole sequences: each rank then has some of these, else a part of all.
  const bool whole = is_training() && spec_.capacity > 0;
  check(!whole || x.size(0) % axis.size == 0, "Experts", "the ", axis.size, " ranks along '", axis.name,
        "' do not share ", x.size(0), " sequences evenly, which capacity ", spec_.capacity, " counts whole");
  const std::string before = text_of(lies.placements), parts = whole ? "S(0)" : "S(1)";
  const Tensor at = distributed::redistribute(x, parts, before);
  const Tensor logits = distributed::detail::own_part(distributed::redistribute(logits_of(at), parts));
  const Tensor own = distributed::detail::own_part(at);
  const int64_t dim = own.size(-1);
  Tensor more;
  Tensor y = of_rows(own.reshape({-1, dim}), logits.reshape({-1, spec_.count}), own.size(-2), axis.size,
                     loss ? &more : nullptr);
  if (more.defined()) {  // each rank's is the mean of its rows
    check<ShapeError>(own.numel() > 0, "Experts", "x is ", x, ", of which a rank along '", axis.name, "' has nothing");
    const double share = static_cast<double>(own.numel()) / static_cast<double>(x.numel());
    const auto sum = std::make_shared<const Layout>(Layout{lies.mesh, {Placement::partial_of("sum")}});
    more = distributed::detail::joined_parts(more * share, {}, sum);
    *loss = loss->defined() ? *loss + more : more;
  }
  y = distributed::detail::joined_parts(y.view(own.shape()), x.shape(), layout_of(at));
  if (shared_gate_up) y = y + shared(at);
  return distributed::redistribute(y, before, parts);
}

Tensor Experts::forward(const Tensor& x, Tensor* loss) const {
  if (is_placed(x)) return of_positions(x, loss);
  const Tensor rows = x.reshape({-1, x.size(-1)});
  Tensor y = of_rows(rows, logits_of(rows), x.dim() > 2 ? x.size(-2) : rows.size(0), 1, loss);
  if (shared_gate_up) y = y + shared(rows);
  return y.view(x.shape());
}

}  // namespace strata::nn
