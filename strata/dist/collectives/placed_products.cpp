// The records of linear layers between sharded tensors whose exchange lies beside the product.

#include "strata/dist/collectives/placed_products_inl.h"

#include "strata/core/autocast_fp8.h"
#include "strata/core/node.h"
#include "strata/core/op.h"
#include "strata/core/placement.h"
#include "strata/core/samples.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/collectives/placed.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/matmul/matmul_kernels.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata::distributed {
namespace {

using Pair = std::tuple<Tensor, Tensor>;

// Rows of a piece below which a message of its own costs more than the product that could hide it.
constexpr int64_t kLeastRows = 8;

int last_of(const Tensor& x) {
  return static_cast<int>(x.dim()) - 1;
}
// Whether both lie on the same single axis, `x` cut along dimension `dx` and `weight` along `dw`.
bool lie_cut(const Tensor& x, int64_t dx, const Tensor& weight, int64_t dw) {
  if (!is_placed(x) || !is_placed(weight)) return false;
  const Layout &lx = *layout_of(x), &lw = *layout_of(weight);
  if (lx.placements.size() != 1 || !(*lx.mesh == *lw.mesh)) return false;
  const Placement &px = lx.placements[0], &pw = lw.placements[0];
  return px.is_shard() && px.dim == dx && pw.is_shard() && pw.dim == dw;
}
bool even(const Tensor& x, int64_t dim, const MeshPlace& mesh) {
  return x.size(dim) % mesh.axes[0].size == 0;
}
bool gathers(const Tensor& x, const Tensor& weight, int64_t dim) {
  return x.dim() >= 2 && dim >= 0 && dim < last_of(x) && weight.dim() == 2 && lie_cut(x, dim, weight, 0) &&
         layout_of(x)->placements[0].cuts_like(Placement::sharded(0)) && even(x, dim, *layout_of(x)->mesh);
}
bool scatters(const Tensor& x, const Tensor& weight, int64_t dim) {
  return x.dim() >= 2 && dim >= 0 && dim < last_of(x) && weight.dim() == 2 && lie_cut(x, last_of(x), weight, 1) &&
         layout_of(x)->placements[0].cuts_like(layout_of(weight)->placements[0]) && even(x, dim, *layout_of(x)->mesh);
}

Layout with(const Tensor& like_this, Placement p) {
  return {layout_of(like_this)->mesh, {std::move(p)}};
}
Placement cut_like(const Tensor& weight, int dim) {
  Placement p = layout_of(weight)->placements[0];
  p.dim = dim;
  return p;
}
const std::string& axis_of(const Tensor& x) {
  return layout_of(x)->mesh->axes[0].name;
}
Tensor handle(const Tensor& part, const Shape& whole, const Layout& layout) {
  TensorMeta meta = part.meta();
  meta.shape = whole;
  meta.strides = std::nullopt;
  return strata::detail::place(part, meta, std::make_shared<const Layout>(layout));
}
Shape linear_shape(const Tensor& x, const Tensor& weight) {
  Shape shape = x.shape();
  shape[static_cast<size_t>(last_of(x))] = weight.size(0);
  return shape;
}
// A gradient, whichever way it came, as the result lay.
Tensor lying(const Tensor& t, const Placement& p, const Tensor& like_this) {
  return is_placed(t) ? redistribute(t, text_of(p)) : distribute(t, text_of(p), axis_of(like_this));
}
// [rows, last] from [.., last].
Tensor as_rows(const Tensor& t) {
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < t.dim(); ++d) rows *= t.size(d);
  return t.reshape({rows, t.size(t.dim() - 1)});
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t)>& linear_scatter_record();

const Op<Pair(const Tensor&, const Tensor&, int64_t)> gather_linear_op{{
    .schema = "gather_linear(Tensor x, Tensor weight, int dim) -> (Tensor y, Tensor gathered)",
    .shard = "itself",
    .shown = 1,
    .internal = true,
    .doc = "linear(x, weight) of sharded tensors: x [.., K] cut along `dim` in even parts, weight [N, K] along "
           "dimension 0. "
           "Each rank computes its part of the last dimension by all_gather_matmul, and keeps all of x beside it. The "
           "gradient of x, a sum, lies as x by linear_scatter. Of plain tensors it is linear.",
    .dynamic = {.everywhere =
                    [](const Tensor& x, const Tensor& weight, int64_t dim) {
                      if (!is_placed(x) && !is_placed(weight)) return Pair(linear(x, weight), x.clone());
                      check<ShapeError>(gathers(x, weight, dim), "gather_linear", "x is ", x, " as '", placements_of(x),
                                        "', weight ", weight, " as '", placements_of(weight),
                                        "': wanted even parts of dimension ", dim, " and rows of weight");
                      const NoGrad guard;
                      const auto [y, all] = all_gather_matmul(local_part(x), local_part(weight).t(), dim, axis_of(x));
                      return Pair(handle(y, linear_shape(x, weight), with(x, cut_like(weight, last_of(x)))),
                                  handle(all, x.shape(), with(x, {})));
                    }},
    .saves = "weight gathered",
    .backward =
        [](Backward& b, const Tensor&, const Tensor& weight, int64_t dim) {
          const Tensor gathered = b.y(1);
          const bool plain = !is_placed(weight);
          const Placement rows = Placement::sharded(static_cast<int>(dim));
          Tensor gx;
          if (b.has_gy(0)) {
            const Tensor gy = plain ? b.gy(0) : lying(b.gy(0), cut_like(weight, last_of(gathered)), weight);
            gx = linear_scatter_record()(gy, weight.t(), {}, dim);
            if (b.needs(1)) set_weight_gradient(b, 1, as_rows(gy), as_rows(gathered));
          }
          if (b.has_gy(1)) {
            const Tensor direct = plain ? b.gy(1) : lying(b.gy(1), rows, weight);
            gx = gx.defined() ? gx + direct : direct;
          }
          b.set(0, gx);
        },
    .autocast = Autocast::low,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.tensor({5, 3}), 0);
          s.add(s.tensor({2, 4, 3}), s.tensor({2, 3}), 1);
        },
    .reference = [](const Tensor& x, const Tensor& weight, int64_t) { return Pair(matmul(x, weight.t()), x.clone()); },
}};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t)> linear_scatter_op{{
    .schema = "linear_scatter(Tensor x, Tensor weight, Tensor? bias, int dim) -> Tensor",
    .shard = "itself",
    .internal = true,
    .doc = "linear(x, weight, bias) of sharded tensors: x [.., K] cut along its last dimension as weight [N, K] along "
           "dimension 1. "
           "bias [N] is whole. The ranks' products are summed, and each gets an even part of dimension `dim` of the "
           "sum, by "
           "matmul_reduce_scatter. The gradient of x lies as x by gather_linear. Of plain tensors it is linear.",
    .dynamic = {.everywhere =
                    [](const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t dim) {
                      if (!is_placed(x) && !is_placed(weight)) return linear(x, weight, bias);
                      check<ShapeError>(
                          scatters(x, weight, dim) && (!bias.defined() || !is_placed(bias)), "linear_scatter", "x is ",
                          x, " as '", placements_of(x), "', weight ", weight, " as '", placements_of(weight),
                          "': wanted its last dimension and weight's cut alike, dimension ", dim, " in even parts");
                      const NoGrad guard;
                      const Tensor y = matmul_reduce_scatter(local_part(x), local_part(weight).t(), dim, axis_of(x));
                      return handle(bias.defined() ? y + bias : y, linear_shape(x, weight),
                                    with(x, Placement::sharded(static_cast<int>(dim))));
                    }},
    .saves = "x weight",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& weight, const Tensor&, int64_t dim) {
          const Tensor gy =
              is_placed(weight) ? lying(b.gy(), Placement::sharded(static_cast<int>(dim)), weight) : b.gy();
          // Whatever is asked for, every rank makes the same exchange.
          const auto [gx, whole] = gather_linear_op(gy, weight.t(), dim);
          b.set(0, gx);
          // All of gy is here: the bias's gradient costs no exchange.
          set_layer_gradients(b, as_rows(whole), as_rows(x));
        },
    .autocast = Autocast::low,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.tensor({5, 3}), s.tensor({5}), 0);
          s.add(s.tensor({2, 4, 3}), s.tensor({2, 3}), std::nullopt, 1);
        },
    .reference =
        [](const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t) {
          const Tensor y = matmul(x, weight.t());
          return bias.defined() ? y + bias : y;
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t)>& linear_scatter_record() {
  return linear_scatter_op;
}

bool worth_it(const Tensor& x, const Tensor& weight) {
  const int64_t rows = x.numel() / std::max<int64_t>(1, x.size(last_of(x)));
  // Products in fp8 have one scale for all rows.
  return rows / layout_of(weight)->mesh->axes[0].size >= kLeastRows &&
         !(strata::detail::autocast_fp8() != nullptr && strata::detail::may_be_fp8(weight));
}

}  // namespace

Tensor detail::gather_linear(const Tensor& x, const Tensor& weight, int64_t dim) {
  return std::get<0>(gather_linear_op(x, weight, dim));
}
Tensor detail::linear_scatter(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t dim) {
  return linear_scatter_op(x, weight, bias, dim);
}
bool detail::may_gather_linear(const Tensor& x, const Tensor& weight, int64_t dim) {
  return gathers(x, weight, dim) && worth_it(x, weight);
}
bool detail::may_linear_scatter(const Tensor& x, const Tensor& weight, int64_t dim) {
  return scatters(x, weight, dim) && worth_it(x, weight);
}

}  // namespace strata::distributed
