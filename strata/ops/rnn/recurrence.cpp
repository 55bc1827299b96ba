// The record of all steps of one direction of a recurrent layer, which the records of whole sequences call: what the
// input gives the gates is computed for all steps before it, the gradient of the recurrent weight for all after it.

#include <algorithm>
#include <array>
#include <cmath>

#include "strata/autograd/autograd.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/join/join.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/rnn/records.h"
#include "strata/ops/rnn/recurrence_cuda.h"
#include "strata/ops/rnn/recurrence_kernel.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace recurrent;

constexpr std::array<std::pair<std::string_view, Cell>, 4> kCells{
    {{"tanh", Cell::tanh}, {"relu", Cell::relu}, {"lstm", Cell::lstm}, {"gru", Cell::gru}}};

Cell cell_of(std::string_view op, const std::string& name) {
  for (const auto& [text, cell] : kCells)
    if (name == text) return cell;
  throw ValueError(op, cat("cell must be tanh, relu, lstm or gru, got '", name, "'"));
}

// How many of the sequences have each step; empty: all of them.
std::vector<int64_t> counts_of(const Tensor& batch_sizes, int64_t batch) {
  if (!batch_sizes.defined()) return {};
  const std::vector<int64_t> counts = batch_sizes.to_vector<int64_t>();
  for (const int64_t n : counts) {
    check(n >= 0 && n <= batch, "recurrence", "batch_sizes must be at most the batch and never rise, got ",
          batch_sizes);
    batch = n;
  }
  return counts;
}

void check_arguments(std::string_view op, Cell cell, const Tensor& from_x, const Tensor& h, const Tensor& c,
                     const Tensor& w, const Tensor& bias, const Tensor& batch_sizes) {
  check<DTypeError>(is_floating(from_x.dtype()), op, "needs a floating dtype, got ", from_x.dtype());
  check<ShapeError>(from_x.dim() == 3 && from_x.size(0) > 0, op, "from_x must be [T, B, gates hidden], got ", from_x);
  const int64_t steps = from_x.size(0), batch = from_x.size(1), width = from_x.size(2), hidden = width / gates(cell);
  check<ShapeError>(width % gates(cell) == 0, op, "from_x is ", from_x, ", wanted ", gates(cell), " hidden columns");
  const auto expect = [&](const Tensor& t, const char* what, const Shape& shape) {
    check<ShapeError>(t.shape() == shape, op, what, " is ", t, ", wanted ", shape);
    check<DTypeError>(t.dtype() == from_x.dtype(), op, what, " is ", t, ", from_x ", from_x);
  };
  expect(h, "h", {batch, hidden});
  check<ShapeError>(c.defined() == (cell == Cell::lstm), op, "c belongs to lstm and to no other cell");
  if (c.defined()) expect(c, "c", {batch, hidden});
  expect(w, "w_hh", {width, hidden});
  if (bias.defined()) expect(bias, "b_hh", {width});
  if (!batch_sizes.defined()) return;
  check<ShapeError>(batch_sizes.dtype() == DType::i64 && batch_sizes.shape() == Shape{steps}, op,
                    "batch_sizes must be i64 [", steps, "], got ", batch_sizes);
}

// h before each step, from that after each and the first one.
Tensor before_each(const Tensor& y, const Tensor& h, bool reverse) {
  const int64_t steps = y.size(0);
  return reverse ? cat({y.narrow(0, 1, steps - 1), h.unsqueeze(0)}, 0)
                 : cat({h.unsqueeze(0), y.narrow(0, 0, steps - 1)}, 0);
}

// y and states by ops, step by step. `more` [T, B, gates hidden], where defined, is added to what h gives the gates.
State by_ops(Cell cell, const Tensor& from_x, const State& first, const Tensor& w, const Tensor& bias,
             const std::vector<int64_t>& counts, bool reverse, const Tensor& more) {
  const int64_t steps = from_x.size(0), batch = from_x.size(1);
  TensorList y(static_cast<size_t>(steps)), states = y;
  State s = first;
  const auto rows = [](const Tensor& of, int64_t from, int64_t to) {
    return !of.defined() || (from == 0 && to == of.size(0)) ? of : of.narrow(0, from, to - from);
  };
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = reverse ? steps - 1 - i : i, m = counts.empty() ? batch : counts[static_cast<size_t>(t)];
    Tensor from_h = linear(s.h, w, bias);
    if (more.defined()) from_h = from_h + more.select(0, t);
    State next = advance(cell, rows(from_x.select(0, t), 0, m), rows(from_h, 0, m), {rows(s.h, 0, m), rows(s.c, 0, m)});
    if (m < batch) {
      next.h = cat({next.h, rows(s.h, m, batch)}, 0);
      if (next.c.defined()) next.c = cat({next.c, rows(s.c, m, batch)}, 0);
    }
    s = next;
    y[static_cast<size_t>(t)] = s.h;
    states[static_cast<size_t>(t)] = s.c;
  }
  return {stack(y, 0), first.c.defined() ? stack(states, 0) : Tensor()};
}

// All results by ops: the gates of all steps follow from the states before them.
std::tuple<Tensor, Tensor, Tensor> composed(const Tensor& from_x, const Tensor& h, const Tensor& c, const Tensor& w,
                                            const Tensor& bias, const Tensor& batch_sizes, const std::string& name,
                                            bool reverse, bool keep) {
  const Cell cell = cell_of("recurrence", name);
  const State s = by_ops(cell, from_x, {h, c}, w, bias, counts_of(batch_sizes, from_x.size(1)), reverse, {});
  const Tensor none = from_x.detach().reshape({-1}).narrow(0, 0, 0), states = s.c.defined() ? s.c : none;
  if (!keep || kept_gates(cell) == 0) return {s.h, states, none};
  const int64_t hidden = h.size(1);
  const Tensor from_h = linear(before_each(s.h, h, reverse), w, bias);
  const auto part = [&](const Tensor& of, int64_t gate) { return of.narrow(2, gate * hidden, hidden); };
  const auto sum = [&](int64_t gate) { return part(from_x, gate) + part(from_h, gate); };
  const Tensor first = sigmoid(sum(0)), second = sigmoid(sum(1));
  const Tensor gates = cell == Cell::lstm
                           ? cat({first, second, tanh(sum(2)), sigmoid(sum(3))}, 2)
                           : cat({first, second, tanh(part(from_x, 2) + first * part(from_h, 2)), part(from_h, 2)}, 2);
  if (!batch_sizes.defined()) return {s.h, states, gates};
  const DeviceScope there(from_x.device());
  const Tensor has = lt(arange(0, from_x.size(1)), batch_sizes.to(from_x.device()).unsqueeze(1));
  return {s.h, states, where(has.unsqueeze(2), gates, zeros_like(gates))};
}

// ---- calls of the kernels ------------------------------------------------------------------------------------------

// A call on contiguous memory; `keep` holds what had to be copied. A card reads the counts where they are: reading them
// here would wait for it.
struct Forward {
  std::vector<Tensor> keep;
  std::vector<int64_t> counts;
  RecurrenceCall call;

  Forward(Cell cell, const Tensor& from_x, const Tensor& h, const Tensor& c, const Tensor& w, const Tensor& bias,
          const Tensor& batch_sizes, bool reverse)
      : counts(from_x.device().is_cuda() ? std::vector<int64_t>() : counts_of(batch_sizes, from_x.size(1))) {
    call = {.cell = cell,
            .t = from_x.dtype(),
            .steps = from_x.size(0),
            .batch = from_x.size(1),
            .hidden = h.size(1),
            .reverse = reverse,
            .counts = counts.empty() ? nullptr : counts.data(),
            .from_x = memory(from_x),
            .h = memory(h),
            .c = c.defined() ? memory(c) : nullptr,
            .w = memory(w),
            .bias = bias.defined() ? memory(bias) : nullptr,
            .y = nullptr,
            .states = nullptr,
            .gates = nullptr};
    if (from_x.device().is_cuda() && batch_sizes.defined())
      call.counts = static_cast<const int64_t*>(memory(batch_sizes));
  }
  void* memory(const Tensor& t) {
    keep.push_back(t.contiguous());
    return keep.back().raw_data();
  }
};

template <auto Kernel>
void forward_kernel(Tensor& y, Tensor& states, Tensor& gates, const Tensor& from_x, const Tensor& h, const Tensor& c,
                    const Tensor& w, const Tensor& bias, const Tensor& batch_sizes, const std::string& cell,
                    bool reverse, bool) {
  Forward f(cell_of("recurrence", cell), from_x, h, c, w, bias, batch_sizes, reverse);
  f.call.y = y.raw_data();
  f.call.states = states.raw_data();
  f.call.gates = gates.numel() > 0 ? gates.raw_data() : nullptr;
  Kernel(f.call);
}

template <auto Kernel>
void backward_kernel(Tensor& gfrom_x, Tensor& gfrom_h, Tensor& gh, Tensor& gc, const Tensor& gy, const Tensor& gstates,
                     const Tensor& from_x, const Tensor& h, const Tensor& c, const Tensor& w, const Tensor&,
                     const Tensor& batch_sizes, const Tensor& y, const Tensor& states, const Tensor& gates,
                     const std::string& cell, bool reverse) {
  Forward f(cell_of("recurrence_backward", cell), from_x, h, c, w, {}, batch_sizes, reverse);
  f.call.y = f.memory(y);
  f.call.states = f.memory(states);
  f.call.gates = f.memory(gates);
  Kernel({.forward = f.call,
          .gy = f.memory(gy),
          .gstates = gstates.defined() ? f.memory(gstates) : nullptr,
          .gfrom_x = gfrom_x.raw_data(),
          .gfrom_h = gfrom_h.numel() > 0 ? gfrom_h.raw_data() : nullptr,
          .gh = gh.raw_data(),
          .gc = c.defined() ? gc.raw_data() : nullptr});
}

Cost steps_cost(const Tensor& from_x, const Tensor& w, double products, double arrays) {
  const double rows = static_cast<double>(from_x.size(0) * from_x.size(1));
  return {(2 * products * static_cast<double>(w.size(1)) + 10) * rows * static_cast<double>(w.size(0)),
          arrays * static_cast<double>(from_x.nbytes()) + static_cast<double>(w.nbytes())};
}

// ---- samples and references ----------------------------------------------------------------------------------------

struct Example {
  Tensor from_x, h, c, w, bias;
};
Example example(Samples& s, Cell cell, int64_t steps, int64_t batch, int64_t hidden) {
  const int64_t width = gates(cell) * hidden;
  const double most = std::min(0.5, 2.5 / std::sqrt(static_cast<double>(hidden)));  // so that states do not grow
  return {s.uniform({steps, batch, width}, -1, 1), s.uniform({batch, hidden}, -1, 1),
          cell == Cell::lstm ? s.uniform({batch, hidden}, -1, 1) : Tensor(), s.uniform({width, hidden}, -most, most),
          s.uniform({width}, -0.5, 0.5)};
}
Tensor counted(const std::vector<int64_t>& sizes) {
  return from_span<int64_t>(sizes, {static_cast<int64_t>(sizes.size())});
}

using Triple = std::tuple<Tensor, Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Each sequence on its own, by hand.
Triple naive_recurrence(const Tensor& from_x, const Tensor& h, const Tensor& c, const Tensor& w, const Tensor& bias,
                        const Tensor& batch_sizes, const std::string& name, bool reverse, bool keep) {
  const Cell cell = cell_of("recurrence", name);
  const int64_t steps = from_x.size(0), batch = from_x.size(1), hidden = h.size(1), width = from_x.size(2);
  const int64_t kept = keep ? kept_gates(cell) * hidden : 0;
  const auto numbers = [](const Tensor& t) { return t.defined() ? t.to_vector<double>() : Numbers(); };
  const Numbers x = numbers(from_x), h0 = numbers(h), c0 = numbers(c), wn = numbers(w), bn = numbers(bias);
  const std::vector<int64_t> counts = counts_of(batch_sizes, batch);
  Numbers one(static_cast<size_t>(width * width));  // from_x is what the input gives the gates already
  for (int64_t i = 0; i < width; ++i) one[static_cast<size_t>(i * width + i)] = 1;
  Numbers y(static_cast<size_t>(steps * batch * hidden)), states(cell == Cell::lstm ? y.size() : 0),
      all(static_cast<size_t>(steps * batch * kept));
  const auto row = [](const Numbers& of, int64_t at, int64_t n) {
    return of.empty() ? Numbers() : Numbers(of.begin() + at * n, of.begin() + (at + 1) * n);
  };
  const auto logistic = [](double v) { return 1 / (1 + std::exp(-v)); };
  for (int64_t b = 0; b < batch; ++b) {
    NaiveState s{row(h0, b, hidden), row(c0, b, hidden)};
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t t = reverse ? steps - 1 - i : i, at = t * batch + b;
      if (counts.empty() || b < counts[static_cast<size_t>(t)]) {
        const Numbers gx = row(x, at, width), gh = naive_product(wn, bn, s.h, width);
        for (int64_t j = 0; j < hidden && kept > 0; ++j) {
          const auto sum = [&](int64_t gate) {
            const auto k = static_cast<size_t>(gate * hidden + j);
            return gx[k] + gh[k];
          };
          double* const g = all.data() + at * kept + j;
          g[0] = logistic(sum(0));
          g[hidden] = logistic(sum(1));
          const auto third = static_cast<size_t>(2 * hidden + j);
          g[2 * hidden] = cell == Cell::lstm ? std::tanh(sum(2)) : std::tanh(gx[third] + g[0] * gh[third]);
          g[3 * hidden] = cell == Cell::lstm ? logistic(sum(3)) : gh[third];
        }
        s = naive_step(cell, {one, wn, {}, bn, {}}, gx, s, hidden);
      }
      std::copy(s.h.begin(), s.h.end(), y.begin() + at * hidden);
      if (!states.empty()) std::copy(s.c.begin(), s.c.end(), states.begin() + at * hidden);
    }
  }
  const auto made = [](const Numbers& v, const Shape& shape) { return from_span<double>(v, shape); };
  return {made(y, {steps, batch, hidden}),
          states.empty() && cell != Cell::lstm ? made({}, {0}) : made(states, {steps, batch, hidden}),
          kept == 0 ? made({}, {0}) : made(all, {steps, batch, kept})};
}

// ---- records -------------------------------------------------------------------------------------------------------

const Op<Four(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
              const Tensor&, const Tensor&, const Tensor&, const Tensor&, const std::string&, bool)>
    backward_op{{
        .schema = "recurrence_backward(Tensor gy, Tensor? gstates, Tensor from_x, Tensor h, Tensor? c, Tensor w_hh, "
                  "Tensor? b_hh, Tensor? batch_sizes, Tensor y, Tensor states, Tensor gates, str cell, bool reverse) "
                  "-> (Tensor gfrom_x, Tensor gfrom_h, Tensor gh, Tensor gc)",
        .internal = true,
        .doc = "The gradients of recurrence for from_x, h and c, from those of its results y and states (none: zero). "
               "gfrom_h is that of what h gives the gates, [0] where it is gfrom_x (all cells but gru); gc is [0] but "
               "for lstm. ShapeError, DTypeError.",
        .infer =
            [](const Tensor& gy, const Tensor& gstates, const Tensor& from_x, const Tensor& h, const Tensor& c,
               const Tensor& w, const Tensor& bias, const Tensor& batch_sizes, const Tensor& y, const Tensor& states,
               const Tensor& gates, const std::string& name, bool) {
              constexpr std::string_view op = "recurrence_backward";
              const Cell cell = cell_of(op, name);
              check_arguments(op, cell, from_x, h, c, w, bias, batch_sizes);
              const Shape shape{from_x.size(0), from_x.size(1), h.size(1)};
              const auto expect = [&](const Tensor& t, const char* what, const Shape& wanted) {
                check<ShapeError>(t.shape() == wanted && t.dtype() == from_x.dtype(), op, what, " is ", t, ", wanted ",
                                  wanted, " of ", from_x.dtype());
              };
              expect(gy, "gy", shape);
              expect(y, "y", shape);
              check<ShapeError>(!gstates.defined() || cell == Cell::lstm, op,
                                "gstates belongs to lstm and to no other cell");
              if (gstates.defined()) expect(gstates, "gstates", shape);
              expect(states, "states", cell == Cell::lstm ? shape : Shape{0});
              const int64_t kept = kept_gates(cell) * h.size(1);
              expect(gates, "gates", kept > 0 ? Shape{shape[0], shape[1], kept} : Shape{0});
              const TensorMeta x = from_x.meta();
              return std::array<TensorMeta, 4>{x, cell == Cell::gru ? x : x.with_shape({0}), h.meta(),
                                               c.defined() ? c.meta() : x.with_shape({0})};
            },
        .kernels = {.cpu = backward_kernel<recurrence_backward_cpu>,
                    .cuda = STRATA_CUDA_KERNEL(backward_kernel<recurrence_backward_cuda>)},
        .composed =
            [](const Tensor& gy, const Tensor& gstates, const Tensor& from_x, const Tensor& h, const Tensor& c,
               const Tensor& w, const Tensor& bias, const Tensor& batch_sizes, const Tensor&, const Tensor&,
               const Tensor&, const std::string& name, bool reverse) {
              const Cell cell = cell_of("recurrence_backward", name);
              const GradMode on(true);
              const auto leaf = [](const Tensor& t) {
                if (!t.defined() || t.requires_grad()) return t;
                Tensor own = t.detach();
                own.set_requires_grad();
                return own;
              };
              TensorList inputs{leaf(from_x), leaf(h)};
              if (c.defined()) inputs.push_back(leaf(c));
              if (cell == Cell::gru) inputs.push_back(leaf(zeros_like(from_x)));
              const State s =
                  by_ops(cell, inputs[0], {inputs[1], c.defined() ? inputs[2] : Tensor()}, w, bias,
                         counts_of(batch_sizes, from_x.size(1)), reverse, cell == Cell::gru ? inputs[2] : Tensor());
              TensorList results{s.h}, grads{gy};
              if (gstates.defined() && s.c.defined()) {
                results.push_back(s.c);
                grads.push_back(gstates);
              }
              const TensorList g = grad(results, inputs, grads, true);
              const Tensor none = from_x.detach().reshape({-1}).narrow(0, 0, 0);
              return Four(g[0], cell == Cell::gru ? g[2] : none, g[1], c.defined() ? g[2] : none);
            },
        .cost = [](const Tensor&, const Tensor&, const Tensor& from_x, const Tensor&, const Tensor&, const Tensor& w,
                   const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const std::string&,
                   bool) { return steps_cost(from_x, w, 1, 3); },
        .samples =
            [](Samples& s) {
              const auto add = [&](const std::string& name, const Example& e, const Tensor& sizes, bool reverse,
                                   bool states_too, const char* what) {
                const auto [y, states, gates] =
                    naive_recurrence(e.from_x, e.h, e.c, e.w, e.bias, sizes, name, reverse, true);
                const auto own = [&](const Tensor& t) { return t.to(s.dtype()); };
                s.add(s.uniform(y.shape(), -1, 1), states_too ? s.uniform(y.shape(), -1, 1) : Tensor(), e.from_x, e.h,
                      e.c, e.w, e.bias, sizes, own(y), own(states), own(gates), name, reverse)
                    .not_differentiable()
                    .named(cat(name, what));
              };
              for (const auto& [text, cell] : kCells) {
                const std::string name(text);
                const bool lstm = cell == Cell::lstm;
                const Example e = example(s, cell, 4, 3, 5);
                add(name, e, {}, false, lstm, "");
                add(name, e, counted({3, 2, 2, 1}), true, lstm, ", backward, lengths");
                add(name, example(s, cell, 2, 37, 18), counted({37, 20}), false, lstm, ", many sequences");
                add(name, example(s, cell, 2, 17, 133), counted({17, 6}), lstm, false, ", many units");
              }
              const Example e = example(s, Cell::tanh, 2, 3, 4);
              const Tensor y = s.tensor({2, 3, 4}), none = s.tensor({0});
              s.invalid<ShapeError>("gstates belongs to lstm", y, y, e.from_x, e.h, e.c, e.w, e.bias, std::nullopt, y,
                                    none, none, std::string("tanh"), false);
              s.invalid<ShapeError>("gy is", e.h, std::nullopt, e.from_x, e.h, e.c, e.w, e.bias, std::nullopt, y, none,
                                    none, std::string("tanh"), false);
            },
        .tolerance = 4,
        .tolerance_reason = "each step rounds its gradients, and the step before multiplies them",
    }};

const Op<Triple(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                const std::string&, bool, bool)>
    forward_op{{
        .schema = "recurrence(Tensor from_x, Tensor h, Tensor? c, Tensor w_hh, Tensor? b_hh, Tensor? batch_sizes, str "
                  "cell, bool reverse=false, bool keep=true) -> (Tensor y, Tensor states, Tensor gates)",
        .shown = 2,
        .internal = true,
        .doc = "All steps of one direction of a recurrent layer: from_x [T, B, gates H] is what the input gives the "
               "gates, h [B, H] (and c for lstm) the first state, w_hh [gates H, H] and b_hh what h gives them. cell "
               "is tanh, relu, lstm or gru. y [T, B, H] is h after each step, states c after each step ([0] but for "
               "lstm). batch_sizes (i64 [T], never rising) says how many of the sequences, the first ones, have each "
               "step; the others keep their state. gates is what the gradient needs ([0] without keep) and has none. "
               "ShapeError, DTypeError, ValueError.",
        .infer =
            [](const Tensor& from_x, const Tensor& h, const Tensor& c, const Tensor& w, const Tensor& bias,
               const Tensor& batch_sizes, const std::string& name, bool, bool keep) {
              const Cell cell = cell_of("recurrence", name);
              check_arguments("recurrence", cell, from_x, h, c, w, bias, batch_sizes);
              const int64_t kept = keep ? kept_gates(cell) * h.size(1) : 0;
              const TensorMeta y = from_x.meta().with_shape({from_x.size(0), from_x.size(1), h.size(1)});
              return std::array<TensorMeta, 3>{
                  y, cell == Cell::lstm ? y : y.with_shape({0}),
                  y.with_shape(kept > 0 ? Shape{from_x.size(0), from_x.size(1), kept} : Shape{0})};
            },
        .kernels = {.cpu = forward_kernel<recurrence_cpu>, .cuda = STRATA_CUDA_KERNEL(forward_kernel<recurrence_cuda>)},
        .composed = composed,
        .saves = "from_x h c w_hh b_hh batch_sizes y states gates",
        .backward =
            [](Backward& b, const Tensor& from_x, const Tensor& h, const Tensor& c, const Tensor& w, const Tensor& bias,
               const Tensor& batch_sizes, const std::string& cell, bool reverse, bool) {
              const Tensor y = b.y(0);
              check<AutogradError>(!b.has_gy(2), "recurrence", "gates has no gradient");
              const auto [gx, gfrom_h, gh, gc] =
                  backward_op(b.has_gy(0) ? b.gy(0) : zeros_like(y), b.has_gy(1) && c.defined() ? b.gy(1) : Tensor(),
                              from_x, h, c, w, bias, batch_sizes, y, b.y(1), b.y(2), cell, reverse);
              if (b.needs(0)) b.set(0, gx);
              if (b.needs(1)) b.set(1, gh);
              if (c.defined() && b.needs(2)) b.set(2, gc);
              const Tensor g = gfrom_h.numel() > 0 ? gfrom_h : gx;
              if (b.needs(3)) {
                b.set(3, product(g.reshape({-1, g.size(2)}).transpose(0, 1),
                                 before_each(y, h, reverse).reshape({-1, h.size(1)})));
              }
              if (bias.defined() && b.needs(4)) b.set(4, sum(g, {0, 1}));
            },
        .autocast = Autocast::low,
        .cost = [](const Tensor& from_x, const Tensor&, const Tensor&, const Tensor& w, const Tensor&, const Tensor&,
                   const std::string&, bool, bool) { return steps_cost(from_x, w, 1, 2.5); },
        .samples =
            [](Samples& s) {
              for (const auto& [text, cell] : kCells) {
                const std::string name(text);
                const Example e = example(s, cell, 4, 3, 5);
                s.add(e.from_x, e.h, e.c, e.w, e.bias, std::nullopt, name).not_differentiable().named(name);
                s.add(e.from_x, e.h, e.c, e.w, std::nullopt, counted({3, 3, 1, 1}), name, true, false)
                    .not_differentiable()
                    .named(cat(name, ", backward, lengths, no bias, no gradient"));
                const Example many = example(s, cell, 2, 37, 18);  // several blocks of sequences, odd rows
                s.add(many.from_x, many.h, many.c, many.w, many.bias, counted({37, 20}), name)
                    .not_differentiable()
                    .named(cat(name, ", many sequences"));
                // On a card several blocks and several pieces of the depth for each warp.
                const Example wide = example(s, cell, 3, 17, 133);
                s.add(wide.from_x, wide.h, wide.c, wide.w, wide.bias, counted({17, 16, 5}), name, cell != Cell::relu)
                    .not_differentiable()
                    .named(cat(name, ", many units"));
              }
              const Example e = example(s, Cell::gru, 2, 3, 4);
              s.invalid<ValueError>("cell must be", e.from_x, e.h, e.c, e.w, e.bias, std::nullopt,
                                    std::string("elman"));
              s.invalid<ShapeError>("c belongs to lstm", e.from_x, e.h, e.h, e.w, e.bias, std::nullopt,
                                    std::string("gru"));
              s.invalid<ShapeError>("w_hh is", e.from_x, e.h, e.c, e.h, e.bias, std::nullopt, std::string("gru"));
              s.invalid<ShapeError>("batch_sizes must be i64", e.from_x, e.h, e.c, e.w, e.bias, counted({3}),
                                    std::string("gru"));
              s.invalid<ValueError>("never rise", e.from_x, e.h, e.c, e.w, e.bias, counted({2, 3}), std::string("gru"));
            },
        .reference = naive_recurrence,
        .tolerance = 4,
        .tolerance_reason = "each step rounds its state, and the next multiplies it",
    }};

}  // namespace

namespace recurrent {

bool has_recurrence(Cell cell, DType t, const Device& device, int64_t batch, int64_t hidden) {
  if (device.type == DeviceType::meta) return true;
  if (!forward_op.has_kernel(device.type)) return false;
  return !device.is_cuda() || batch * hidden == 0 || recurrence_pays(cell, t, batch, hidden, card_limits(device.index));
}

std::tuple<Tensor, Tensor> recurrence(Cell cell, const Tensor& from_x, const State& first, const Tensor& w,
                                      const Tensor& bias, const Tensor& batch_sizes, bool reverse) {
  const auto wants = [](const Tensor& t) { return t.defined() && t.requires_grad(); };
  const bool keep = grad_enabled() && (wants(from_x) || wants(first.h) || wants(first.c) || wants(w) || wants(bias));
  for (const auto& [name, each] : kCells) {
    if (each != cell) continue;
    auto [y, states, gates] =
        forward_op(from_x, first.h, first.c, w, bias, batch_sizes, std::string(name), reverse, keep);
    return {y, cell == Cell::lstm ? states : Tensor()};
  }
  return {};
}

}  // namespace recurrent
}  // namespace strata
