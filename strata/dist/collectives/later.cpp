#include "strata/dist/collectives/later_inl.h"

#include <vector>

#include "strata/core/op.h"
#include "strata/core/placement.h"
#include "strata/core/samples.h"
#include "strata/dist/collectives/placed.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/view/view.h"

namespace strata::distributed {
namespace {

using Text = const std::string&;

thread_local detail::LaterScope* t_later = nullptr;

Tensor room_for(const Tensor& like_this, const Shape& shape) {
  return empty(like(like_this).with_shape(shape));
}

// Begins; an undefined tensor where it is none of the two exchanges.
Tensor begin(const Tensor& x, const Placement& to, detail::LaterScope& later) {
  const Layout& from = *layout_of(x);
  const Placement& now = from.placements[0];
  const MeshPlace::Axis& axis = from.mesh->axes[0];
  if (from.placements.size() != 1 || !now.is_partial() || now.reduction != "sum" || x.numel() == 0 || to.is_partial() ||
      (to.is_shard() && (!to.cuts_like(Placement::sharded(0)) || x.size(to.dim) % axis.size != 0)))
    return {};
  const Tensor& part = local_part(x);
  Group& g = group(axis.name == "world" ? axis.name : strata::cat(axis.name, '+', axis.name));
  const std::string what = strata::cat(to.is_shard() ? "reduce_scatter" : "all_reduce", " later to ", text_of(to), ' ',
                                       x.dtype(), ' ', x.shape());
  Tensor y;
  if (!to.is_shard()) {
    y = room_for(part, part.shape());
    copy_elements(y, part);
    later.begun(g.start(y.device(), what,
                        [y](Collectives& c) { c.all_reduce(y.raw_data(), y.numel(), y.dtype(), Reduction::sum); },
                        {y}));
  } else {
    Shape shape = part.shape();
    const int64_t each = shape[static_cast<size_t>(to.dim)] / axis.size;
    shape[static_cast<size_t>(to.dim)] = each;
    y = room_for(part, shape);
    const Tensor pieces = room_for(part, {part.numel()});  // one rank's behind the other's
    for (int64_t r = 0; r < axis.size; ++r)
      copy_elements(pieces.narrow(0, r * y.numel(), y.numel()).view(shape), part.narrow(to.dim, r * each, each));
    later.begun(g.start(y.device(), what,
                        [=](Collectives& c) {
                          c.reduce_scatter(y.raw_data(), pieces.raw_data(), y.numel(), y.dtype(), Reduction::sum);
                        },
                        {y, pieces}));
  }
  TensorMeta whole = y.meta();
  whole.shape = x.shape();
  whole.strides = std::nullopt;
  return strata::detail::place(y, whole, std::make_shared<const Layout>(Layout{from.mesh, {to}}));
}

const Op<Tensor(const Tensor&, Text, Text)> redistribute_later_op{{
    .schema = "redistribute_later(Tensor x, str placements, str gradient) -> Tensor",
    .shard = "itself",
    .internal = true,
    .doc =
        "redistribute(x, placements, gradient) whose exchange may still be under way when it returns: whoever opened "
        "the scope waits for it.",
    .dynamic = {.everywhere =
                    [](const Tensor& x, Text placements, Text gradient) {
                      detail::LaterScope* const later = detail::LaterScope::current();
                      if (!is_placed(x)) return x.clone();
                      const NoGrad guard;
                      const std::vector<Placement> to = parse_placements(placements);
                      if (later != nullptr && later->free() && to.size() == 1)
                        if (Tensor y = begin(x, to[0], *later); y.defined()) return y;
                      return redistribute(x, placements, gradient);
                    }},
    .backward = [](Backward& b, const Tensor&, Text,
                   Text gradient) { b.set(0, is_placed(b.gy()) ? redistribute(b.gy(), gradient) : b.gy()); },
    .dtypes = kAllTypes,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), "R", "R");
        },
    .reference = [](const Tensor& x, Text, Text) { return x.clone(); },
}};

}  // namespace

detail::LaterScope::LaterScope() : outer_(t_later) {
  t_later = this;
}
detail::LaterScope::~LaterScope() {
  t_later = outer_;
}
detail::LaterScope* detail::LaterScope::current() {
  return t_later;
}

Tensor detail::redistribute_later(const Tensor& x, Text placements, Text gradient) {
  return redistribute_later_op(x, placements, gradient);
}

}  // namespace strata::distributed
