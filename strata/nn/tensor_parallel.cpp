#include "strata/nn/tensor_parallel.h"

#include <algorithm>
#include <map>
#include <memory>

#include "strata/core/node.h"
#include "strata/core/place_into.h"
#include "strata/dist/collectives/later_inl.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/collectives/placed_products_inl.h"
#include "strata/dist/group.h"
#include "strata/memory/allocator.h"
#include "strata/nn/hooks.h"
#include "strata/nn/late_weights_inl.h"
#include "strata/nn/module_hooks_inl.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/matmul/matmul.h"

namespace strata::distributed {
namespace {

constexpr std::string_view kOp = "shard_module";

// The placements of `x`, a sharded tensor, but `p` along `axis`, as text.
std::string text_with(const Tensor& x, const std::string& axis, const Placement& p) {
  Layout l = *layout_of(x);
  for (size_t a = 0; a < l.placements.size(); ++a)
    if (l.mesh->axes[a].name == axis) l.placements[a] = p;
  return text_of(l.placements);
}
// How it lies along `axis`; whole where it is plain or lies on other axes alone.
Placement along(const Tensor& x, const std::string& axis) {
  if (!is_placed(x)) return {};
  const Layout& l = *layout_of(x);
  for (size_t a = 0; a < l.placements.size(); ++a)
    if (l.mesh->axes[a].name == axis) return l.placements[a];
  return {};
}

// Whole along `axis`; the gradient, a sum, as x lies.
Tensor entered(const Tensor& x, const std::string& axis) {
  if (!is_placed(x)) return distribute(x, "R", axis);
  return redistribute(x, text_with(x, axis, {}), text_with(x, axis, along(x, axis)));
}

// The sum along `axis`, or this rank's part of dimension 1 of it; the gradient whole.
Tensor left(const Tensor& y, const std::string& axis, int ranks, bool sequence) {
  if (!is_placed(y)) return y;
  if (sequence && along(y, axis) == Placement::sharded(1)) return y;  // by its last product
  const bool cut = sequence && y.dim() > 1 && y.size(1) >= ranks;
  const std::string to = text_with(y, axis, cut ? Placement::sharded(1) : Placement()), back = text_with(y, axis, {});
  // Whoever called the branch computes on meanwhile.
  return detail::LaterScope::current() != nullptr ? detail::redistribute_later(y, to, back) : redistribute(y, to, back);
}

// A layer at one end of a branch, its exchange beside the product where that may be.
struct EndOfBranch final : nn::detail::Replacement {
  Tensor weight, bias;  // the layer's parameters
  std::string axis;
  bool first = false;

  Tensor forward(const Tensor& x) const override {
    constexpr int64_t kPositions = 1;  // the dimension of x [batch, time, ..] that lies in parts
    const auto biased = [&](const Tensor& y) { return bias.defined() ? y + bias.to(y.dtype()) : y; };
    if (x.dim() == 3 && first && detail::may_gather_linear(x, weight, kPositions))
      return biased(detail::gather_linear(x, weight, kPositions));
    // What is waited for later needs no product to hide behind.
    if (x.dim() == 3 && !first && detail::LaterScope::current() == nullptr &&
        detail::may_linear_scatter(x, weight, kPositions))
      return detail::linear_scatter(x, weight, bias, kPositions);
    return linear(first ? entered(x, axis) : x, weight, bias);
  }
};

void replace(const nn::Module& layer, const std::string& axis, bool first) {
  auto end = std::make_shared<EndOfBranch>();
  for (const auto& [name, t] : layer.named_parameters()) (name == "weight" ? end->weight : end->bias) = t;
  end->axis = axis;
  end->first = first;
  nn::detail::ModuleHooks::of_module(layer, true)->instead = std::move(end);
}

// What each parameter's part is, and whether it can be one.
std::vector<std::pair<Tensor, LayoutRef>> layouts_of(const nn::Module& module, const ShardPlan& plan,
                                                     const std::string& axis) {
  std::map<std::string, Tensor> by_name;
  for (const auto& [name, t] : module.named_parameters()) by_name.emplace(name, t);
  std::vector<std::pair<Tensor, LayoutRef>> found;
  const auto mesh = layout_of(distribute(empty({}), "R", axis))->mesh;
  for (const ShardPlan::Weight& w : plan.weights) {
    const auto p = by_name.find(w.name);
    check(p != by_name.end(), kOp, "there is no parameter '", w.name, "'");
    check(w.placement.is_shard(), kOp, w.name, " cannot lie as ", text_of(w.placement),
          ": a part of a dimension is wanted");
    check(!is_placed(p->second), kOp, w.name, " is sharded already");
    const Layout layout{mesh, {w.placement}};
    layout.check(p->second.shape(), cat(kOp, ": ", w.name));
    found.emplace_back(p->second, std::make_shared<const Layout>(layout));
  }
  return found;
}

nn::Module part(const nn::Module& module, const std::string& name) {
  for (const auto& [own, child] : module.named_modules())
    if (own == name) return child;
  throw ValueError(kOp, cat("there is no module '", name, "'"));
}

}  // namespace

Tensor whole_for(const Tensor& x, const Tensor& weight) {
  if (!is_placed(weight)) return x;
  Tensor y = x;
  const Layout& l = *layout_of(weight);
  for (size_t a = 0; a < l.placements.size(); ++a)
    if (l.placements[a].is_shard() && l.placements[a].dim == 0) y = entered(y, l.mesh->axes[a].name);
  return y;
}

void shard_module(const nn::Module& module, const ShardPlan& plan, const std::string& axis,
                  const ShardOptions& options) {
  const int ranks = group(axis).size();
  if (ranks == 1) return;
  std::vector<nn::Module> branches, tables, firsts, lasts;
  for (const std::string& name : plan.branches) branches.push_back(part(module, name));
  for (const std::string& name : plan.tables) tables.push_back(part(module, name));
  for (const auto& [names, layers] : {std::pair(&plan.first, &firsts), std::pair(&plan.last, &lasts)})
    for (const std::string& name : *names) {
      layers->push_back(part(module, name));
      check(layers->back().kind() == "Linear" && !nn::has_forward_hooks(layers->back()), kOp, "'", name,
            "' is no Linear that its branch calls as it is");
    }
  const auto layouts = layouts_of(module, plan, axis);

  const NoGrad guard;
  const memory::TagScope tag(memory::Tag::parameter);
  for (const auto& [t, layout] : layouts) {
    if (nn::detail::is_elsewhere(t)) continue;
    nn::detail::come(t);
    const Layout whole{layout->mesh, std::vector<Placement>(layout->placements.size())};
    const Tensor here = strata::detail::placement_room().relay(t.detach(), t.shape(), whole, *layout);
    strata::detail::place_into(t, here, t.meta(), layout);
  }
  if (options.sequence) {
    for (const nn::Module& m : firsts) replace(m, axis, true);
    for (const nn::Module& m : lasts) replace(m, axis, false);
  }
  for (size_t i = 0; i < branches.size(); ++i) {
    const nn::Module& m = branches[i];
    const std::string inside = plan.branches[i].empty() ? "" : plan.branches[i] + ".";
    const bool by_product = options.sequence && std::ranges::any_of(plan.first, [&](const std::string& name) {
                              return name.starts_with(inside);
                            });
    if (!by_product)
      nn::register_forward_pre_hook(m, [axis](const nn::Module&, const Tensor& x) { return entered(x, axis); });
    nn::register_forward_hook(
        m, [=](const nn::Module&, const Tensor&, const Tensor& y) { return left(y, axis, ranks, options.sequence); });
  }
  for (const nn::Module& m : tables)
    nn::register_forward_hook(
        m, [=](const nn::Module&, const Tensor&, const Tensor& y) { return left(y, axis, ranks, options.sequence); });
}

}  // namespace strata::distributed
