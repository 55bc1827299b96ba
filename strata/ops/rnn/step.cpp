// One step of the LSTM and of the GRU behind its products, as a record, and the gradient of that.

#include <algorithm>
#include <array>

#include "strata/core/node.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/rnn/records.h"
#include "strata/ops/rnn/step_kernel.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace recurrent;
using Three = std::tuple<Tensor, Tensor, Tensor>;

Cell cell_of(std::string_view op, const std::string& name) {
  check(name == "lstm" || name == "gru", op, "cell must be lstm or gru, got '", name, "'");
  return name == "lstm" ? Cell::lstm : Cell::gru;
}

Tensor gate(const Tensor& all, int64_t index, int64_t hidden) {
  return all.narrow(1, index * hidden, hidden);
}
Tensor nothing(const Tensor& like) {
  return like.detach().reshape({-1}).narrow(0, 0, 0);
}

// The states [B, hidden] may be f32 beside gates of 16 bits, as under autocast.
bool fits(DType state, DType gates) {
  return state == gates || (state == DType::f32 && is_reduced_floating(gates));
}
void check_state(std::string_view op, const Tensor& t, const char* what, int64_t hidden, const Tensor& gates) {
  check<ShapeError>((t.shape() == Shape{gates.size(0), hidden}), op, what, " is ", t, ", wanted ",
                    Shape{gates.size(0), hidden});
  check<DTypeError>(fits(t.dtype(), gates.dtype()), op, what, " is ", t, ", the gates ", gates);
}

Three by_ops(Cell cell, const Tensor& from_x, const Tensor& from_h, const Tensor& before) {
  const int64_t hidden = before.size(1);
  const auto x = [&](int64_t g) { return gate(from_x, g, hidden); };
  const auto h = [&](int64_t g) { return gate(from_h, g, hidden); };
  const Tensor first = sigmoid(x(0) + h(0)), second = sigmoid(x(1) + h(1));
  if (cell == Cell::lstm) {
    const Tensor g = tanh(x(2) + h(2)), o = sigmoid(x(3) + h(3)), c = second * before + first * g;
    return {o * tanh(c), c, cat({first, second, g, o}, 1)};
  }
  const Tensor n = tanh(x(2) + first * h(2));
  return {n + second * (before - n), nothing(before), cat({first, second, n, h(2)}, 1)};
}

const Op<Three(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const std::string&)>
    backward_op{{
        .schema = "recurrent_step_backward(Tensor gh, Tensor? gc, Tensor before, Tensor c, Tensor gates, str cell) -> "
                  "(Tensor gfrom_x, Tensor gfrom_h, Tensor gbefore)",
        .shard = "whole",
        .internal = true,
        .doc = "The gradients of recurrent_step for from_x, from_h ([0] where it is that of from_x: lstm) and before, "
               "from those of h and c (none: zero). ShapeError, DTypeError, ValueError.",
        .infer =
            [](const Tensor& gh, const Tensor& gc, const Tensor& before, const Tensor& c, const Tensor& gates,
               const std::string& name) {
              constexpr std::string_view op = "recurrent_step_backward";
              const bool lstm = cell_of(op, name) == Cell::lstm;
              check<DTypeError>(is_floating(gates.dtype()), op, "needs a floating dtype, got ", gates.dtype());
              check<ShapeError>(gates.dim() == 2 && gates.size(1) % 4 == 0, op, "the gates are [B, 4 hidden], got ",
                                gates);
              const int64_t hidden = gates.size(1) / 4;
              check_state(op, before, "before", hidden, gates);
              check<ShapeError>(lstm || (!gc.defined() && c.numel() == 0), op,
                                "c belongs to lstm and to no other cell");
              for (const Tensor* t : {&gh, &gc, &c}) {
                if (!t->defined() || (t == &c && !lstm)) continue;
                check<ShapeError>(t->shape() == before.shape() && t->dtype() == before.dtype(), op, "gh, gc and c are ",
                                  *t, ", before ", before);
              }
              const TensorMeta x = gates.meta().with_shape({gates.size(0), (lstm ? 4 : 3) * hidden});
              return std::array<TensorMeta, 3>{x, lstm ? x.with_shape({0}) : x, before.meta().with_shape(gh.shape())};
            },
        .kernels = {.cpu = step_backward<step_backward_cpu>,
                    .cuda = STRATA_CUDA_KERNEL(step_backward<step_backward_cuda>)},
        .composed =
            [](const Tensor& gh, const Tensor& gc, const Tensor& before, const Tensor& c, const Tensor& gates,
               const std::string& name) {
              const Cell cell = cell_of("recurrent_step_backward", name);
              auto [gx, gfrom_h, rest] = step_gradients(cell, gh, gc, {}, before, c, gates);
              return Three(gx, cell == Cell::lstm ? nothing(gx) : gfrom_h, rest);
            },
        .cost =
            [](const Tensor& gh, const Tensor&, const Tensor&, const Tensor&, const Tensor& gates, const std::string&) {
              return Cost{6.0 * gates.numel(), 2.0 * gates.nbytes() + 5.0 * gh.nbytes()};
            },
        .samples =
            [](Samples& s) {
              const auto add = [&](const std::string& name, int64_t batch, int64_t hidden, bool gc, bool wide,
                                   const char* what) {
                const auto state = [&] {
                  const Tensor t = s.uniform({batch, hidden}, -1, 1);
                  return wide && is_reduced_floating(t.dtype()) ? t.to(DType::f32) : t;
                };
                const bool lstm = name == "lstm";
                const Tensor gh = state();
                s.add(gh, lstm && gc ? state() : Tensor(), state(), lstm ? state() : nothing(gh),
                      s.uniform({batch, 4 * hidden}, 0.1, 0.9), name)
                    .not_differentiable()
                    .named(cat(name, what));
              };
              for (const char* name : {"lstm", "gru"}) {
                add(name, 3, 5, true, false, "");
                add(name, 37, 130, false, false, ", several blocks");
                add(name, 2, 19, true, true, ", wide states");
                add(name, 0, 4, true, false, ", empty");
              }
              const Tensor t = s.tensor({2, 3}), gates = s.tensor({2, 12});
              s.invalid<ShapeError>("gh, gc and c", s.tensor({2, 2}), std::nullopt, t, t, gates, std::string("lstm"));
              s.invalid<ShapeError>("c belongs to", t, std::nullopt, t, t, gates, std::string("gru"));
            },
        .tolerance = 4,
        .tolerance_reason = "products of four rounded factors",
    }};

const Op<Three(const Tensor&, const Tensor&, const Tensor&, const std::string&, bool)> step_op{{
    .schema = "recurrent_step(Tensor from_x, Tensor from_h, Tensor before, str cell, bool keep=true) -> (Tensor h, "
              "Tensor c, Tensor gates)",
    .shard = "whole",
    .shown = 2,
    .internal = true,
    .doc = "A step of lstm or gru: from_x and from_h [B, gates hidden] are what input and h give the gates, before "
           "[B, hidden] is c of lstm, h of gru, and may be f32 beside gates of 16 bits. h and c ([0] for gru) have its "
           "dtype; gates [B, 4 hidden] are what the gradient needs ([0] without keep): i, f, g, o or r, z, n and what "
           "h gives n. ShapeError, DTypeError, ValueError.",
    .infer =
        [](const Tensor& from_x, const Tensor& from_h, const Tensor& before, const std::string& name, bool keep) {
          constexpr std::string_view op = "recurrent_step";
          const Cell cell = cell_of(op, name);
          check<DTypeError>(is_floating(from_x.dtype()), op, "needs a floating dtype, got ", from_x.dtype());
          check<ShapeError>(from_x.dim() == 2 && from_x.size(1) % gates(cell) == 0, op, "from_x is ", from_x,
                            ", wanted ", gates(cell), " hidden columns");
          check<ShapeError>(from_h.shape() == from_x.shape(), op, "from_h is ", from_h, ", from_x ", from_x);
          check<DTypeError>(from_h.dtype() == from_x.dtype(), op, "from_h is ", from_h, ", from_x ", from_x);
          check_state(op, before, "the state", from_x.size(1) / gates(cell), from_x);
          const TensorMeta h = before.meta().with_shape(before.shape());
          return std::array<TensorMeta, 3>{
              h, cell == Cell::lstm ? h : h.with_shape({0}),
              from_x.meta().with_shape(keep ? Shape{from_x.size(0), 4 * before.size(1)} : Shape{0})};
        },
    .kernels = {.cpu = step_forward<step_forward_cpu>, .cuda = STRATA_CUDA_KERNEL(step_forward<step_forward_cuda>)},
    .composed =
        [](const Tensor& from_x, const Tensor& from_h, const Tensor& before, const std::string& name, bool keep) {
          auto [h, c, gates] = by_ops(cell_of("recurrent_step", name), from_x, from_h, before);
          return Three(h, c, keep ? gates : nothing(gates));
        },
    .saves = "before c gates",
    .backward =
        [](Backward& b, const Tensor&, const Tensor&, const Tensor& before, const std::string& name, bool keep) {
          check<AutogradError>(keep, "recurrent_step", "has no gradient with keep=false: the gates were not kept");
          const Tensor gh = b.has_gy(0) ? b.gy(0) : zeros_like(before), c = b.y(1), gates = b.y(2);
          const Tensor gc = name == "lstm" && b.has_gy(1) ? b.gy(1) : Tensor();
          const auto [gx, gfrom_h, rest] =
              b.has_gy(2) ? step_gradients(cell_of("recurrent_step", name), gh, gc, b.gy(2), before, c, gates)
                          : backward_op(gh, gc, before, c, gates, name);
          if (b.needs(0)) b.set(0, gx);
          if (b.needs(1)) b.set(1, gfrom_h.numel() > 0 ? gfrom_h : gx);
          if (b.needs(2)) b.set(2, rest);
        },
    .cost =
        [](const Tensor& from_x, const Tensor&, const Tensor& before, const std::string&, bool keep) {
          return Cost{6.0 * from_x.numel(), (keep ? 3.0 : 2.0) * from_x.nbytes() + 3.0 * before.nbytes()};
        },
    .samples =
        [](Samples& s) {
          const auto add = [&](const std::string& name, int64_t batch, int64_t hidden, bool wide, bool keep,
                               const char* what) {
            const Shape gates{batch, (name == "lstm" ? 4 : 3) * hidden};
            const Tensor state = s.uniform({batch, hidden}, -1, 1);
            s.add(s.uniform(gates, -2, 2), s.uniform(gates, -2, 2),
                  wide && is_reduced_floating(state.dtype()) ? state.to(DType::f32) : state, name, keep)
                .not_differentiable()  // the cells' samples are, through this
                .named(cat(name, what));
          };
          for (const char* name : {"lstm", "gru"}) {
            add(name, 3, 5, false, true, "");
            add(name, 37, 130, false, true, ", several blocks");
            add(name, 2, 19, true, true, ", wide states");
            add(name, 3, 17, false, false, ", nothing kept");
            add(name, 0, 4, false, true, ", empty");
          }
          const Tensor x = s.tensor({2, 12}), state = s.tensor({2, 3});
          s.invalid<ValueError>("cell must be", x, x, state, std::string("tanh"));
          s.invalid<ShapeError>("from_x is", s.tensor({2, 7}), x, state, std::string("lstm"));
          s.invalid<ShapeError>("from_h is", x, s.tensor({3, 12}), state, std::string("lstm"));
          s.invalid<ShapeError>("the state is", x, x, state, std::string("gru"));
        },
    .tolerance = 4,
    .tolerance_reason = "the sigmoids and tanh of a step follow each other",
}};

}  // namespace

namespace recurrent {

State advance(Cell cell, const Tensor& from_x, const Tensor& from_h, const State& before) {
  if (cell == Cell::tanh) return {tanh(from_x + from_h), {}};
  if (cell == Cell::relu) return {relu(from_x + from_h), {}};
  const bool lstm = cell == Cell::lstm;
  const Tensor& state = lstm ? before.c : before.h;
  if (!fits(state.dtype(), from_x.dtype()) || from_h.dtype() != from_x.dtype()) {
    const auto [h, c, gates] = by_ops(cell, from_x, from_h, state);
    return {h, lstm ? c : Tensor()};
  }
  const bool keep = grad_enabled() && (from_x.requires_grad() || from_h.requires_grad() || state.requires_grad());
  const auto [h, c, gates] = step_op(from_x, from_h, state, lstm ? "lstm" : "gru", keep);
  return {h, lstm ? c : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> step_gradients(Cell cell, const Tensor& gh, const Tensor& gc, const Tensor& ggates,
                                                  const Tensor& before, const Tensor& c, const Tensor& gates) {
  const DType own = before.dtype();
  const int64_t hidden = before.size(1);
  const Tensor all = gates.to(own), more = ggates.defined() ? ggates.to(own) : Tensor();
  // The gradient of a gate, its own and what comes from elsewhere.
  const auto with = [&](int64_t g, const Tensor& t) { return more.defined() ? t + gate(more, g, hidden) : t; };
  const Tensor p = gate(all, 0, hidden), q = gate(all, 1, hidden), r = gate(all, 2, hidden), s = gate(all, 3, hidden);
  if (cell == Cell::lstm) {  // i, f, g, o
    const Tensor th = tanh(c), of_h = gh * s * (1 - th * th), of_c = gc.defined() ? of_h + gc : of_h;
    const Tensor gx = cat({with(0, of_c * r) * p * (1 - p), with(1, of_c * before) * q * (1 - q),
                           with(2, of_c * p) * (1 - r * r), with(3, gh * th) * s * (1 - s)},
                          1)
                          .to(gates.dtype());
    return {gx, gx, of_c * q};
  }
  // r, z, n and what h gives n.
  const Tensor of_n = with(2, gh * (1 - q)) * (1 - r * r), of_z = with(1, gh * (before - r)) * q * (1 - q),
               of_r = with(0, of_n * s) * p * (1 - p);
  return {cat({of_r, of_z, of_n}, 1).to(gates.dtype()), cat({of_r, of_z, with(3, of_n * p)}, 1).to(gates.dtype()),
          gh * q};
}

}  // namespace recurrent
}  // namespace strata
