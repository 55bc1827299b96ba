#include "strata/dist/collectives/own_parts_inl.h"

#include <utility>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/view/view.h"

namespace strata::distributed::detail {
namespace {

// Makes the gradient of a part the part of the gradient.
struct OwnPart final : Node {
  OwnPart(const Tensor& x, double share) : whole(x.meta()), layout(layout_of(x)), share(share) {
    whole.strides = std::nullopt;
    edges.push_back(gradient_edge(x));
  }
  std::string_view name() const override { return "own part"; }
  void apply(Grads& gy, Grads& gx) override {
    if (!gy[0].defined()) return;
    TensorMeta meta = whole;
    meta.dtype = gy[0].dtype();
    const Tensor g = share == 1 ? gy[0] : gy[0] * share;
    gx[0] = strata::detail::place(g.contiguous().detach(), meta, layout);
  }
  TensorMeta whole;
  LayoutRef layout;
  double share;
};

// And back.
struct JoinedParts final : Node {
  JoinedParts(const Tensor& part, LayoutRef gradient) : gradient(std::move(gradient)) {
    edges.push_back(gradient_edge(part));
  }
  std::string_view name() const override { return "joined parts"; }
  void apply(Grads& gy, Grads& gx) override {
    if (!gy[0].defined()) return;
    const NoGrad guard;
    gx[0] = local_part(strata::detail::placement_room().redistribute(gy[0], gradient)).detach();
  }
  LayoutRef gradient;
};

}  // namespace

Tensor own_part(const Tensor& x, double share) {
  if (!is_placed(x)) return x;
  const Tensor part = local_part(x).detach();
  if (grad_enabled() && x.requires_grad()) set_history(part, Ref<Node>(new OwnPart(x, share)), 0);
  return part;
}

Tensor joined_parts(const Tensor& part, const Shape& whole, const LayoutRef& layout) {
  check<ShapeError>(part.shape() == layout->local_shape(whole), "joined_parts", "the part is ", part, ", wanted ",
                    layout->local_shape(whole));
  TensorMeta meta = part.meta();
  meta.shape = whole;
  meta.strides = std::nullopt;
  const Tensor all = strata::detail::place(part.contiguous().detach(), meta, layout);
  if (!grad_enabled() || !part.requires_grad()) return all;
  Layout gradient = *layout;
  for (Placement& p : gradient.placements)
    if (p.is_partial()) p = {};
  set_history(all, Ref<Node>(new JoinedParts(part, std::make_shared<const Layout>(std::move(gradient)))), 0);
  return all;
}

}  // namespace strata::distributed::detail
