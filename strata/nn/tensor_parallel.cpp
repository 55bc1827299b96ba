#include "strata/nn/tensor_parallel.h"

#include <map>
#include <memory>

#include "strata/core/node.h"
#include "strata/core/place_into.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/group.h"
#include "strata/memory/allocator.h"
#include "strata/nn/hooks.h"

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
  const bool cut = sequence && y.dim() > 1 && y.size(1) >= ranks;
  return redistribute(y, text_with(y, axis, cut ? Placement::sharded(1) : Placement()), text_with(y, axis, {}));
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
  std::vector<nn::Module> branches, tables;
  for (const std::string& name : plan.branches) branches.push_back(part(module, name));
  for (const std::string& name : plan.tables) tables.push_back(part(module, name));
  const auto layouts = layouts_of(module, plan, axis);

  const NoGrad guard;
  const memory::TagScope tag(memory::Tag::parameter);
  for (const auto& [t, layout] : layouts) {
    const Layout whole{layout->mesh, std::vector<Placement>(layout->placements.size())};
    const Tensor here = strata::detail::placement_room().relay(t.detach(), t.shape(), whole, *layout);
    strata::detail::place_into(t, here, t.meta(), layout);
  }
  for (const nn::Module& m : branches) {
    nn::register_forward_pre_hook(m, [axis](const nn::Module&, const Tensor& x) { return entered(x, axis); });
    nn::register_forward_hook(
        m, [=](const nn::Module&, const Tensor&, const Tensor& y) { return left(y, axis, ranks, options.sequence); });
  }
  for (const nn::Module& m : tables)
    nn::register_forward_hook(
        m, [=](const nn::Module&, const Tensor&, const Tensor& y) { return left(y, axis, ranks, options.sequence); });
}

}  // namespace strata::distributed
