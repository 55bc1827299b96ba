// The record of all steps of a layer of the sLSTM, for devices that have a kernel of them.

#include <algorithm>
#include <array>
#include <cmath>

#include "strata/core/node.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/rnn/recurrence_cuda.h"
#include "strata/ops/rnn/slstm_kernel.h"
#include "strata/ops/rnn/slstm_records.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace recurrent {

NaiveSlstm naive_slstm(const Numbers& from_x, const NaiveSlstm& first, const Numbers& w, const Numbers& bias,
                       int64_t batch, int64_t hidden) {
  const auto logistic = [](double v) { return 1 / (1 + std::exp(-v)); };
  const auto width = static_cast<size_t>(4 * hidden), states = static_cast<size_t>(batch * hidden);
  const size_t steps = from_x.size() / std::max<size_t>(width * static_cast<size_t>(batch), 1);
  NaiveSlstm all{Numbers(steps * states), Numbers(steps * states), Numbers(steps * states)};
  for (size_t b = 0; b < static_cast<size_t>(batch); ++b) {
    const auto row = [&](const Numbers& of, size_t at, size_t n) {
      const auto begin = of.begin() + static_cast<std::ptrdiff_t>(at * n);
      return Numbers(begin, begin + static_cast<std::ptrdiff_t>(n));
    };
    const auto size = static_cast<size_t>(hidden);
    Numbers h = row(first.h, b, size), c = row(first.c, b, size), m = row(first.l, b, size), n(size, 1);
    for (size_t t = 0; t < steps; ++t) {
      const size_t at = t * static_cast<size_t>(batch) + b;
      const Numbers gx = row(from_x, at, width), gh = naive_product(w, bias, h, 4 * hidden);
      for (size_t j = 0; j < size; ++j) {
        const auto sum = [&](size_t g) { return gx[g * size + j] + gh[g * size + j]; };
        const double log_f = std::log(logistic(sum(1))), most = std::max(log_f + m[j], sum(0));
        const double in = std::exp(sum(0) - most), keep = std::exp(log_f + m[j] - most);
        c[j] = keep * c[j] + in * std::tanh(sum(2));
        n[j] = keep * n[j] + in;
        m[j] = most;
        h[j] = logistic(sum(3)) * c[j] / n[j];
        all.h[at * size + j] = h[j];
        all.c[at * size + j] = c[j] / n[j];
        all.l[at * size + j] = std::log(n[j]) + m[j];
      }
    }
  }
  return all;
}

}  // namespace recurrent

namespace {

using namespace recurrent;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// x [T, B, ..] says the shapes and the dtype of all.
void check_layer(std::string_view op, const TensorMeta& x, const Tensor& c, const Tensor& l, const Tensor& w) {
  check<DTypeError>(is_floating(x.dtype), op, "needs a floating dtype, got ", x.dtype);
  check<ShapeError>(x.shape.size() == 3 && x.shape[0] > 0 && x.shape[2] % 4 == 0, op,
                    "the gates must be [T, B, 4 hidden], got ", x.shape);
  const int64_t hidden = x.shape[2] / 4;
  for (const Tensor* t : {&c, &l}) {
    check<ShapeError>(t->shape() == Shape({x.shape[1], hidden}), op, "a state is ", *t, ", the gates ", x.shape);
    check<DTypeError>(t->dtype() == slstm_wide(x.dtype), op, "c or l is ", *t, ", the gates of ", x.dtype);
  }
  check<ShapeError>(w.shape() == Shape({4 * hidden, hidden}), op, "w_hh is ", w, ", wanted ",
                    Shape{4 * hidden, hidden});
  check<DTypeError>(w.dtype() == x.dtype, op, "w_hh is ", w, ", the gates of ", x.dtype);
}

// ---- calls of the kernels -------------------------------------------------------------------------------------------

// A call on contiguous memory; `keep` holds what had to be copied.
struct Prepared {
  std::vector<Tensor> keep;
  SlstmCall call{};

  Prepared(const Tensor& gates, const Tensor& c, const Tensor& l, const Tensor& w) {
    call.t = gates.dtype();
    call.tf32 = call.t == DType::f32 && allow_tf32_convolutions();
    call.steps = gates.size(0), call.batch = gates.size(1), call.hidden = w.size(1);
    call.c = memory(c), call.l = memory(l), call.w = memory(w);
  }
  void* memory(const Tensor& t) {
    keep.push_back(t.contiguous());
    return keep.back().raw_data();
  }
};

template <auto Kernel>
void forward_kernel(Tensor& y, Tensor& c_each, Tensor& l_each, Tensor& sums, const Tensor& from_x, const Tensor& h,
                    const Tensor& c, const Tensor& l, const Tensor& w, const Tensor& bias, bool) {
  Prepared p(from_x, c, l, w);
  p.call.from_x = p.memory(from_x);
  p.call.h = p.memory(h);
  p.call.bias = bias.defined() ? p.memory(bias) : nullptr;
  p.call.y = y.raw_data(), p.call.c_each = c_each.raw_data(), p.call.l_each = l_each.raw_data();
  p.call.sums = sums.numel() > 0 ? sums.raw_data() : nullptr;
  Kernel(p.call);
}

template <auto Kernel>
void backward_kernel(Tensor& gsums, Tensor& gh, Tensor& gc, Tensor& gl, const Tensor& gy, const Tensor& gc_each,
                     const Tensor& gl_each, const Tensor& c, const Tensor& l, const Tensor& w, const Tensor& c_each,
                     const Tensor& l_each, const Tensor& sums) {
  Prepared p(sums, c, l, w);
  p.call.c_each = p.memory(c_each), p.call.l_each = p.memory(l_each), p.call.sums = p.memory(sums);
  Kernel({.forward = p.call,
          .gy = p.memory(gy),
          .gc_each = gc_each.defined() ? p.memory(gc_each) : nullptr,
          .gl_each = gl_each.defined() ? p.memory(gl_each) : nullptr,
          .gsums = gsums.raw_data(),
          .gh = gh.raw_data(),
          .gc = gc.raw_data(),
          .gl = gl.raw_data()});
}

Cost steps_cost(const Tensor& gates, const Tensor& w, double arrays) {
  return {(2 * static_cast<double>(w.size(1)) + 15) * static_cast<double>(gates.numel()),
          arrays * static_cast<double>(gates.nbytes()) + static_cast<double>(w.nbytes())};
}

// ---- by ops ---------------------------------------------------------------------------------------------------------

// From the last step to the first. `more`, where defined, is the gradient of the sums, which gradients of gradients
// have.
Four gradients(const Tensor& gy, const Tensor& gc_each, const Tensor& gl_each, const Tensor& more, const Tensor& c,
               const Tensor& l, const Tensor& w, const Tensor& c_each, const Tensor& l_each, const Tensor& sums) {
  const int64_t steps = sums.size(0);
  TensorList gsums(static_cast<size_t>(steps));
  Tensor of_h = zeros_like(gy.select(0, 0)), of_c = zeros_like(c), of_l = zeros_like(l);
  for (int64_t t = steps; t-- > 0;) {
    if (gc_each.defined()) of_c = of_c + gc_each.select(0, t);
    if (gl_each.defined()) of_l = of_l + gl_each.select(0, t);
    auto [g, of_c_before, of_l_before] =
        slstm_step_gradients(of_h + gy.select(0, t), of_c, of_l, sums.select(0, t),
                             t == 0 ? c : c_each.select(0, t - 1), t == 0 ? l : l_each.select(0, t - 1));
    if (more.defined()) g = g + more.select(0, t);
    gsums[static_cast<size_t>(t)] = g;
    of_h = matmul(g, w), of_c = of_c_before, of_l = of_l_before;
  }
  return {stack(gsums, 0), of_h, of_c, of_l};
}

Four steps(const Tensor& from_x, const Tensor& h, const Tensor& c, const Tensor& l, const Tensor& w, const Tensor& bias,
           bool keep) {
  TensorList hs, cs, ls, kept;
  Tensor before = h, c_before = c, l_before = l;
  for (int64_t t = 0; t < from_x.size(0); ++t) {
    auto [after, c_next, l_next, sums] = slstm_step(from_x.select(0, t), linear(before, w, bias), c_before, l_before);
    before = after, c_before = c_next, l_before = l_next;
    hs.push_back(before), cs.push_back(c_before), ls.push_back(l_before);
    if (keep) kept.push_back(sums);
  }
  return {stack(hs, 0), stack(cs, 0), stack(ls, 0),
          keep ? stack(kept, 0) : from_x.detach().reshape({-1}).narrow(0, 0, 0)};
}

// ---- records --------------------------------------------------------------------------------------------------------

struct Example {
  Tensor from_x, h, c, l, w, bias;
};
Example example(Samples& s, int64_t steps, int64_t batch, int64_t hidden) {
  const double most = std::min(0.5, 2.5 / std::sqrt(static_cast<double>(hidden)));  // so that states do not grow
  const auto own = [&](const Tensor& t) { return t.to(slstm_wide(s.dtype())); };
  return {s.uniform({steps, batch, 4 * hidden}, -1, 1), s.uniform({batch, hidden}, -1, 1),
          own(s.uniform({batch, hidden}, -1, 1)),       own(s.uniform({batch, hidden}, -1, 1)),
          s.uniform({4 * hidden, hidden}, -most, most), s.uniform({4 * hidden}, -0.5, 0.5)};
}

Four reference(const Tensor& from_x, const Tensor& h, const Tensor& c, const Tensor& l, const Tensor& w,
               const Tensor& bias, bool keep) {
  const auto numbers = [](const Tensor& t) { return t.defined() ? t.to_vector<double>() : Numbers(); };
  const int64_t steps = from_x.size(0), batch = h.size(0), hidden = h.size(1);
  const Numbers x = numbers(from_x), wn = numbers(w), bn = numbers(bias), first = numbers(h);
  const NaiveSlstm all = naive_slstm(x, {first, numbers(c), numbers(l)}, wn, bn, batch, hidden);
  Numbers sums = x;
  for (int64_t row = 0; row < steps * batch; ++row) {
    const Numbers& from = row < batch ? first : all.h;
    const auto at = from.begin() + (row < batch ? row : row - batch) * hidden;
    const Numbers given = naive_product(wn, bn, Numbers(at, at + hidden), 4 * hidden);
    for (size_t k = 0; k < given.size(); ++k) sums[static_cast<size_t>(row * 4 * hidden) + k] += given[k];
  }
  const auto made = [&](const Numbers& v) { return from_span<double>(v, {steps, batch, hidden}); };
  return {made(all.h), made(all.c), made(all.l),
          keep ? from_span<double>(sums, from_x.shape()) : from_span<double>({}, {0})};
}

const Op<Four(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
              const Tensor&, const Tensor&)>
    backward_op{{
        .schema = "slstm_recurrence_backward(Tensor gy, Tensor? gc_each, Tensor? gl_each, Tensor c, Tensor l, Tensor "
                  "w_hh, Tensor c_each, Tensor l_each, Tensor sums) -> (Tensor gsums, Tensor gh, Tensor gc, Tensor gl)",
        .shard = "whole",
        .internal = true,
        .doc =
            "The gradients of slstm_recurrence for the sums of its gates and for the first states, from those of its "
            "results (of c_each and l_each none: zero). ShapeError, DTypeError.",
        .infer =
            [](const Tensor& gy, const Tensor& gc_each, const Tensor& gl_each, const Tensor& c, const Tensor& l,
               const Tensor& w, const Tensor& c_each, const Tensor& l_each, const Tensor& sums) {
              constexpr std::string_view op = "slstm_recurrence_backward";
              check_layer(op, sums.meta(), c, l, w);
              const Shape shape{sums.size(0), sums.size(1), w.size(1)};
              check<ShapeError>(gy.shape() == shape && gy.dtype() == sums.dtype(), op, "gy is ", gy, ", sums ", sums);
              for (const Tensor* t : {&c_each, &l_each, &gc_each, &gl_each}) {
                if (!t->defined()) continue;
                check<ShapeError>(t->shape() == shape && t->dtype() == c.dtype(), op, "states are ", *t, ", wanted ",
                                  shape, " of ", c.dtype());
              }
              return std::array<TensorMeta, 4>{sums.meta().with_shape(sums.shape()), gy.meta().with_shape(c.shape()),
                                               c.meta().with_shape(c.shape()), c.meta().with_shape(c.shape())};
            },
        .kernels = {.cuda = STRATA_CUDA_KERNEL(backward_kernel<slstm_recurrence_backward_cuda>)},
        .composed =
            [](const Tensor& gy, const Tensor& gc_each, const Tensor& gl_each, const Tensor& c, const Tensor& l,
               const Tensor& w, const Tensor& c_each, const Tensor& l_each,
               const Tensor& sums) { return gradients(gy, gc_each, gl_each, {}, c, l, w, c_each, l_each, sums); },
        .cost = [](const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor& w,
                   const Tensor&, const Tensor&, const Tensor& sums) { return steps_cost(sums, w, 3); },
        .samples =
            [](Samples& s) {
              const auto add = [&](const Example& e, bool states, const char* name) {
                const auto [y, c, l, sums] = reference(e.from_x, e.h, e.c, e.l, e.w, e.bias, true);
                const auto own = [&](const Tensor& t) { return t.to(slstm_wide(s.dtype())); };
                const auto drawn = [&] { return s.uniform(y.shape(), -1, 1); };
                s.add(drawn(), states ? own(drawn()) : Tensor(), states ? own(drawn()) : Tensor(), e.c, e.l, e.w,
                      own(c), own(l), sums.to(s.dtype()))
                    .not_differentiable()
                    .named(name);
              };
              add(example(s, 4, 3, 5), true, "small");
              add(example(s, 2, 37, 18), false, "many sequences");
              add(example(s, 2, 17, 133), true, "many units");
              const Example e = example(s, 2, 3, 4);
              const Tensor y = s.tensor({2, 3, 4}), own = y.to(slstm_wide(s.dtype()));
              const auto none = std::nullopt;
              s.invalid<ShapeError>("gy is", e.h, none, none, e.c, e.l, e.w, own, own, e.from_x);
              s.invalid<ShapeError>("states are", y, none, none, e.c, e.l, e.w, e.c, own, e.from_x);
            },
        .tolerance = 8,
        .tolerance_reason = "each step rounds its gradients, products of four rounded factors, and the step before "
                            "multiplies them",
    }};

const Op<Four(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool)>
    forward_op{{
        .schema = "slstm_recurrence(Tensor from_x, Tensor h, Tensor c, Tensor l, Tensor w_hh, Tensor? b_hh, bool "
                  "keep=true) -> (Tensor y, Tensor c_each, Tensor l_each, Tensor sums)",
        .shard = "whole",
        .shown = 3,
        .internal = true,
        .doc = "All steps of a layer of slstm: from_x [T, B, 4 H] is what the input gives the gates, w_hh [4 H, H] and "
               "b_hh what h gives them; h, c and l [B, H] are the first states, c and l of the gates' dtype, f32 for "
               "16 bits. y, c_each and l_each [T, B, H] are the states after each step; sums, what the gates were "
               "given in all, is what the gradient needs ([0] without keep). ShapeError, DTypeError.",
        .infer =
            [](const Tensor& from_x, const Tensor& h, const Tensor& c, const Tensor& l, const Tensor& w,
               const Tensor& bias, bool keep) {
              constexpr std::string_view op = "slstm_recurrence";
              check_layer(op, from_x.meta(), c, l, w);
              check<ShapeError>(h.shape() == c.shape() && h.dtype() == w.dtype(), op, "h is ", h, ", c ", c, ", w_hh ",
                                w);
              check<ShapeError>(!bias.defined() || (bias.shape() == Shape{w.size(0)} && bias.dtype() == w.dtype()), op,
                                "b_hh is ", bias, ", w_hh ", w);
              const Shape shape{from_x.size(0), from_x.size(1), w.size(1)};
              return std::array<TensorMeta, 4>{from_x.meta().with_shape(shape), c.meta().with_shape(shape),
                                               c.meta().with_shape(shape),
                                               from_x.meta().with_shape(keep ? from_x.shape() : Shape{0})};
            },
        .kernels = {.cuda = STRATA_CUDA_KERNEL(forward_kernel<slstm_recurrence_cuda>)},
        .composed = steps,
        .saves = "h c l w_hh y c_each l_each sums",
        .backward =
            [](Backward& b, const Tensor&, const Tensor& h, const Tensor& c, const Tensor& l, const Tensor& w,
               const Tensor& bias, bool keep) {
              check<AutogradError>(keep, "slstm_recurrence", "has no gradient with keep=false: the sums were not kept");
              const Tensor y = b.y(0), c_each = b.y(1), l_each = b.y(2), sums = b.y(3);
              const Tensor gy = b.has_gy(0) ? b.gy(0) : zeros_like(y);
              const Tensor gc_each = b.has_gy(1) ? b.gy(1) : Tensor(), gl_each = b.has_gy(2) ? b.gy(2) : Tensor();
              const auto [g, gh, gc, gl] = b.has_gy(3)
                                               ? gradients(gy, gc_each, gl_each, b.gy(3), c, l, w, c_each, l_each, sums)
                                               : backward_op(gy, gc_each, gl_each, c, l, w, c_each, l_each, sums);
              if (b.needs(0)) b.set(0, g);
              if (b.needs(1)) b.set(1, gh);
              if (b.needs(2)) b.set(2, gc);
              if (b.needs(3)) b.set(3, gl);
              if (b.needs(4)) {
                const Tensor before = cat({h.unsqueeze(0), y.narrow(0, 0, y.size(0) - 1)}, 0);
                b.set(4, product(flatten(g, 0, 1).transpose(0, 1), flatten(before, 0, 1)));
              }
              if (bias.defined() && b.needs(5)) b.set(5, sum(g, {0, 1}));
            },
        .cost = [](const Tensor& from_x, const Tensor&, const Tensor&, const Tensor&, const Tensor& w, const Tensor&,
                   bool) { return steps_cost(from_x, w, 3); },
        .samples =
            [](Samples& s) {
              const auto add = [&](const Example& e, bool bias, bool keep) -> Sample& {
                return s.add(e.from_x, e.h, e.c, e.l, e.w, bias ? e.bias : Tensor(), keep);
              };
              add(example(s, 3, 2, 3), true, true);
              add(example(s, 4, 3, 5), false, false).not_differentiable().named("no bias, no gradient");
              // On a card several blocks of sequences; several blocks of units and pieces of the depth for each warp.
              add(example(s, 2, 37, 18), true, true).not_differentiable().named("many sequences");
              add(example(s, 3, 17, 133), true, true).not_differentiable().named("many units");
              const Example e = example(s, 2, 3, 4);
              s.invalid<ShapeError>("w_hh is", e.from_x, e.h, e.c, e.l, e.h, e.bias);
              s.invalid<ShapeError>("h is", e.from_x, s.tensor({3, 5}), e.c, e.l, e.w, e.bias);
              s.invalid<ShapeError>("b_hh is", e.from_x, e.h, e.c, e.l, e.w, e.h);
              s.invalid<ShapeError>("a state is", e.from_x, e.h, e.c, s.tensor({2, 4}), e.w, e.bias);
            },
        .reference = reference,
        .tolerance = 4,
        .tolerance_reason = "each step rounds its state, and the next multiplies it",
    }};

}  // namespace

namespace recurrent {

bool has_slstm_recurrence(DType t, const Device& device, int64_t batch, int64_t hidden) {
  // A step multiplies what one of the LSTM does.
  return device.is_cuda() && forward_op.has_kernel(device.type) &&
         (batch * hidden == 0 ||
          recurrence_pays(Cell::lstm, t, allow_tf32_convolutions(), batch, hidden, card_limits(device.index)));
}

std::tuple<Tensor, Tensor, Tensor> slstm_recurrence(const Tensor& from_x, const Tensor& h, const Tensor& c,
                                                    const Tensor& l, const Tensor& w, const Tensor& bias) {
  const auto wants = [](const Tensor& t) { return t.defined() && t.requires_grad(); };
  const bool keep = grad_enabled() && (wants(from_x) || wants(h) || wants(c) || wants(l) || wants(w) || wants(bias));
  auto [y, c_each, l_each, sums] = forward_op(from_x, h, c, l, w, bias, keep);
  return {y, c_each, l_each};
}

}  // namespace recurrent
}  // namespace strata
