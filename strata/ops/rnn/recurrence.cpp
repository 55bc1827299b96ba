// The record of all steps of one direction of a recurrent layer, which the records of whole sequences call: what the
// input gives the gates is computed for all steps before it, the gradient of the recurrent weight for all after it.

#include <algorithm>
#include <array>
#include <cmath>

#include "strata/autograd/autograd.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
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

// How many of the sequences have each step, and how many rows of from_x those before it have; empty: all of them.
struct Counts {
  std::vector<int64_t> of, before;
  bool all() const { return of.empty(); }
};
Counts counts_of(std::string_view op, const Tensor& batch_sizes, const Tensor& places, const int64_t batches) {
  Counts c;
  if (!batch_sizes.defined()) return c;
  c.of = batch_sizes.to_vector<int64_t>();
  int64_t rows = 0, batch = batches;
  for (const int64_t n : c.of) {
    check(n >= 0 && n <= batch, op, "batch_sizes must be at most the batch and never rise, got ", batch_sizes);
    c.before.push_back(rows);
    rows += n, batch = n;
  }
  check(rows == places.size(0), op, "batch_sizes add up to ", rows, ", the rows are ", places.size(0));
  const std::vector<int64_t> at = places.to_vector<int64_t>();
  for (size_t t = 0; t < c.of.size(); ++t)
    for (int64_t b = 0; b < c.of[t]; ++b) {
      const int64_t wanted = static_cast<int64_t>(t) * batches + b, given = at[static_cast<size_t>(c.before[t] + b)];
      check(given == wanted, op, "row ", b, " of step ", t, " lies at ", wanted, " among the [T B], places says ",
            given);
    }
  return c;
}

void check_arguments(std::string_view op, Cell cell, const TensorMeta& from_x, const Tensor& h, const Tensor& c,
                     const Tensor& w, const Tensor& batch_sizes, const Tensor& places) {
  const bool packed = batch_sizes.defined();
  const Shape& shape = from_x.shape;
  check<DTypeError>(is_floating(from_x.dtype), op, "needs a floating dtype, got ", from_x.dtype);
  check<ShapeError>(shape.size() == (packed ? 2 : 3) && (packed || shape[0] > 0), op, "from_x must be ",
                    packed ? "[rows, gates hidden]" : "[T, B, gates hidden]", ", got ", shape);
  const int64_t width = shape[shape.size() - 1], hidden = width / gates(cell);
  check<ShapeError>(width % gates(cell) == 0, op, "from_x is ", shape, ", wanted ", gates(cell), " hidden columns");
  const auto expect = [&](const Tensor& t, const char* what, const Shape& wanted) {
    check<ShapeError>(t.shape() == wanted, op, what, " is ", t, ", wanted ", wanted);
    check<DTypeError>(t.dtype() == from_x.dtype, op, what, " is ", t, ", from_x of ", from_x.dtype);
  };
  check<ShapeError>(h.dim() == 2, op, "h is ", h, ", wanted [B, hidden]");
  expect(h, "h", {packed ? h.size(0) : shape[1], hidden});
  check<ShapeError>(c.defined() == (cell == Cell::lstm), op, "c belongs to lstm and to no other cell");
  if (c.defined()) expect(c, "c", {h.size(0), hidden});
  expect(w, "w_hh", {width, hidden});
  check<ShapeError>(places.defined() == packed, op, "batch_sizes and places come together");
  if (!packed) return;
  check<ShapeError>(batch_sizes.dtype() == DType::i64 && batch_sizes.dim() == 1 && batch_sizes.size(0) > 0, op,
                    "batch_sizes must be i64 [T], got ", batch_sizes);
  check<ShapeError>(places.dtype() == DType::i64 && places.shape() == Shape{shape[0]}, op, "places must be i64 [",
                    shape[0], "], got ", places);
}

// h before each step, from that after each and the first one.
Tensor before_each(const Tensor& y, const Tensor& h, bool reverse) {
  const int64_t steps = y.size(0);
  return reverse ? cat({y.narrow(0, 1, steps - 1), h.unsqueeze(0)}, 0)
                 : cat({h.unsqueeze(0), y.narrow(0, 0, steps - 1)}, 0);
}

// Rows [from, to) of a state, which may be none.
Tensor rows_of(const Tensor& t, int64_t from, int64_t to) {
  return !t.defined() || (from == 0 && to == t.size(0)) ? t : t.narrow(0, from, to - from);
}
// The rows of step t of an array of gates.
Tensor step_of(const Tensor& all, const Counts& counts, int64_t t) {
  const auto i = static_cast<size_t>(t);
  return counts.all() ? all.select(0, t) : all.narrow(0, counts.before[i], counts.of[i]);
}
Tensor joined(const Tensor& a, const Tensor& b) {
  return b.size(0) == 0 ? a : cat({a, b}, 0);
}

// All results by ops: y and states step by step, then the gates of all steps from the states before them.
std::tuple<Tensor, Tensor, Tensor> composed(const Tensor& from_x, const Tensor& h, const Tensor& c, const Tensor& w,
                                            const Tensor& bias, const Tensor& batch_sizes, const Tensor& places,
                                            const std::string& name, bool reverse, bool keep) {
  const Cell cell = cell_of("recurrence", name);
  const int64_t batch = h.size(0), hidden = h.size(1);
  const Counts counts = counts_of("recurrence", batch_sizes, places, batch);
  const int64_t steps = counts.all() ? from_x.size(0) : batch_sizes.size(0);
  TensorList ys(static_cast<size_t>(steps)), cs = ys;
  State s{h, c};
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = reverse ? steps - 1 - i : i, m = counts.all() ? batch : counts.of[static_cast<size_t>(t)];
    State next = advance(cell, step_of(from_x, counts, t), rows_of(linear(s.h, w, bias), 0, m),
                         {rows_of(s.h, 0, m), rows_of(s.c, 0, m)});
    s.h = joined(next.h, s.h.narrow(0, m, batch - m));
    if (c.defined()) s.c = joined(next.c, s.c.narrow(0, m, batch - m));
    ys[static_cast<size_t>(t)] = s.h;
    cs[static_cast<size_t>(t)] = s.c;
  }
  const Tensor y = stack(ys, 0), none = from_x.detach().reshape({-1}).narrow(0, 0, 0);
  const Tensor states = c.defined() ? stack(cs, 0) : none;
  if (!keep || kept_gates(cell) == 0) return {y, states, none};
  Tensor from_h = linear(before_each(y, h, reverse), w, bias);
  if (places.defined()) from_h = index_select(from_h.reshape({steps * batch, from_h.size(2)}), 0, places);
  const auto part = [&](const Tensor& of, int64_t gate) { return of.narrow(-1, gate * hidden, hidden); };
  const auto sum = [&](int64_t gate) { return part(from_x, gate) + part(from_h, gate); };
  const Tensor first = sigmoid(sum(0)), second = sigmoid(sum(1));
  if (cell == Cell::lstm) return {y, states, cat({first, second, tanh(sum(2)), sigmoid(sum(3))}, -1)};
  return {y, states, cat({first, second, tanh(part(from_x, 2) + first * part(from_h, 2)), part(from_h, 2)}, -1)};
}

using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// The gradients by ops, from the last step to the first. `ggates`, where defined, is the gradient of the gates that
// were kept, which gradients of gradients have.
Four gradients(Cell cell, const Tensor& gy, const Tensor& gstates, const Tensor& ggates, const Tensor& h,
               const Tensor& c, const Tensor& w, const Tensor& batch_sizes, const Tensor& places, const Tensor& y,
               const Tensor& states, const Tensor& gates, bool reverse) {
  const int64_t steps = y.size(0), batch = h.size(0);
  const Counts counts = counts_of("recurrence_backward", batch_sizes, places, batch);
  TensorList gx(static_cast<size_t>(steps)), gfrom_h = gx;
  Tensor of_h = zeros_like(h), of_c = c.defined() ? zeros_like(c) : Tensor();
  for (int64_t i = steps; i-- > 0;) {
    const int64_t t = reverse ? steps - 1 - i : i, before = reverse ? t + 1 : t - 1;
    const int64_t m = counts.all() ? batch : counts.of[static_cast<size_t>(t)];
    const auto here = [&](const Tensor& all, const Tensor& first, int64_t at) {
      return rows_of(i == 0 && at != t ? first : all.select(0, at), 0, m);
    };
    of_h = of_h + gy.select(0, t);
    if (gstates.defined()) of_c = of_c + gstates.select(0, t);
    const Tensor own = rows_of(of_h, 0, m);
    Tensor through, of_state;
    if (kept_gates(cell) == 0) {
      const Tensor v = here(y, h, t);
      through = cell == Cell::tanh ? own * (1 - v * v) : own * gt(v, zeros_like(v)).to(v.dtype());
      gx[static_cast<size_t>(t)] = through;
    } else {
      const bool lstm = cell == Cell::lstm;
      const auto [of_x, of_from_h, rest] =
          step_gradients(cell, own, rows_of(of_c, 0, m), ggates.defined() ? step_of(ggates, counts, t) : Tensor(),
                         lstm ? here(states, c, before) : here(y, h, before), lstm ? here(states, c, t) : Tensor(),
                         step_of(gates, counts, t));
      gx[static_cast<size_t>(t)] = of_x;
      through = gfrom_h[static_cast<size_t>(t)] = of_from_h;
      of_state = rest;
    }
    Tensor of_before = matmul(through, w);
    if (cell == Cell::gru) of_before = of_before + of_state;
    of_h = joined(of_before, of_h.narrow(0, m, batch - m));
    if (c.defined()) of_c = joined(of_state, of_c.narrow(0, m, batch - m));
  }
  const auto all = [&](const TensorList& list) { return counts.all() ? stack(list, 0) : cat(list, 0); };
  const Tensor none = h.detach().reshape({-1}).narrow(0, 0, 0);
  return {all(gx), cell == Cell::gru ? all(gfrom_h) : none, of_h, c.defined() ? of_c : none};
}

// ---- calls of the kernels ------------------------------------------------------------------------------------------

// A call on contiguous memory; `keep` holds what had to be copied. A card reads the counts where they are: reading them
// here would wait for it.
struct Prepared {
  std::vector<Tensor> keep;
  Counts counts;
  RecurrenceCall call;

  Prepared(std::string_view op, Cell cell, int64_t steps, const Tensor& h, const Tensor& c, const Tensor& w,
           const Tensor& batch_sizes, const Tensor& places, bool reverse) {
    if (!h.device().is_cuda()) counts = counts_of(op, batch_sizes, places, h.size(0));
    call = {.cell = cell,
            .t = h.dtype(),
            .steps = steps,
            .batch = h.size(0),
            .hidden = h.size(1),
            .reverse = reverse,
            .tf32 = h.dtype() == DType::f32 && allow_tf32_convolutions(),
            .counts = counts.all() ? nullptr : counts.of.data(),
            .firsts = counts.all() ? nullptr : counts.before.data(),
            .rows = places.defined() ? places.size(0) : steps * h.size(0),
            .from_x = nullptr,
            .h = memory(h),
            .c = c.defined() ? memory(c) : nullptr,
            .w = memory(w),
            .bias = nullptr,
            .y = nullptr,
            .states = nullptr,
            .gates = nullptr};
    if (h.device().is_cuda() && batch_sizes.defined()) call.counts = static_cast<const int64_t*>(memory(batch_sizes));
  }
  void* memory(const Tensor& t) {
    keep.push_back(t.contiguous());
    return keep.back().raw_data();
  }
};

template <auto Kernel>
void forward_kernel(Tensor& y, Tensor& states, Tensor& gates, const Tensor& from_x, const Tensor& h, const Tensor& c,
                    const Tensor& w, const Tensor& bias, const Tensor& batch_sizes, const Tensor& places,
                    const std::string& cell, bool reverse, bool) {
  Prepared p("recurrence", cell_of("recurrence", cell), y.size(0), h, c, w, batch_sizes, places, reverse);
  p.call.from_x = p.memory(from_x);
  if (bias.defined()) p.call.bias = p.memory(bias);
  p.call.y = y.raw_data();
  p.call.states = states.raw_data();
  p.call.gates = gates.numel() > 0 ? gates.raw_data() : nullptr;
  Kernel(p.call);
}

template <auto Kernel>
void backward_kernel(Tensor& gfrom_x, Tensor& gfrom_h, Tensor& gh, Tensor& gc, const Tensor& gy, const Tensor& gstates,
                     const Tensor& h, const Tensor& c, const Tensor& w, const Tensor& batch_sizes, const Tensor& places,
                     const Tensor& y, const Tensor& states, const Tensor& gates, const std::string& cell,
                     bool reverse) {
  constexpr std::string_view op = "recurrence_backward";
  Prepared p(op, cell_of(op, cell), y.size(0), h, c, w, batch_sizes, places, reverse);
  p.call.y = p.memory(y);
  p.call.states = p.memory(states);
  p.call.gates = p.memory(gates);
  Kernel({.forward = p.call,
          .gy = p.memory(gy),
          .gstates = gstates.defined() ? p.memory(gstates) : nullptr,
          .gfrom_x = gfrom_x.raw_data(),
          .gfrom_h = gfrom_h.numel() > 0 ? gfrom_h.raw_data() : nullptr,
          .gh = gh.raw_data(),
          .gc = c.defined() ? gc.raw_data() : nullptr});
}

// Rows of from_x, of which `like` [T, B, ..] has one for each sequence.
double rows_of_steps(const Tensor& like, const Tensor& places) {
  return static_cast<double>(places.defined() ? places.size(0) : like.size(0) * like.size(1));
}
// `arrays`: how often as many bytes as from_x has are read or written.
Cost steps_cost(double rows, const Tensor& w, double arrays) {
  const double elements = rows * static_cast<double>(w.size(0));
  return {(2 * static_cast<double>(w.size(1)) + 10) * elements,
          arrays * elements * static_cast<double>(size_of(w.dtype())) + static_cast<double>(w.nbytes())};
}

// ---- samples and references ----------------------------------------------------------------------------------------

Tensor counted(const std::vector<int64_t>& sizes) {
  return from_span<int64_t>(sizes, {static_cast<int64_t>(sizes.size())});
}

// With lengths: the sizes of the steps and the places of their rows among [T B].
struct Example {
  Tensor from_x, h, c, w, bias, sizes, places;
};
Example example(Samples& s, Cell cell, int64_t steps, int64_t batch, int64_t hidden,
                const std::vector<int64_t>& sizes = {}) {
  const int64_t width = gates(cell) * hidden;
  const double most = std::min(0.5, 2.5 / std::sqrt(static_cast<double>(hidden)));  // so that states do not grow
  std::vector<int64_t> places;
  for (size_t t = 0; t < sizes.size(); ++t)
    for (int64_t b = 0; b < sizes[t]; ++b) places.push_back(static_cast<int64_t>(t) * batch + b);
  const Shape shape = sizes.empty() ? Shape{steps, batch, width} : Shape{static_cast<int64_t>(places.size()), width};
  return {s.uniform(shape, -1, 1),
          s.uniform({batch, hidden}, -1, 1),
          cell == Cell::lstm ? s.uniform({batch, hidden}, -1, 1) : Tensor(),
          s.uniform({width, hidden}, -most, most),
          s.uniform({width}, -0.5, 0.5),
          sizes.empty() ? Tensor() : counted(sizes),
          sizes.empty() ? Tensor() : counted(places)};
}

using Triple = std::tuple<Tensor, Tensor, Tensor>;

Shape kept_shape(Shape from_x, int64_t kept) {
  from_x[from_x.size() - 1] = kept;
  return from_x;
}

// Each sequence on its own, by hand.
Triple naive_recurrence(const Tensor& from_x, const Tensor& h, const Tensor& c, const Tensor& w, const Tensor& bias,
                        const Tensor& batch_sizes, const Tensor& places, const std::string& name, bool reverse,
                        bool keep) {
  const Cell cell = cell_of("recurrence", name);
  const Counts counts = counts_of("recurrence", batch_sizes, places, h.size(0));
  const int64_t steps = counts.all() ? from_x.size(0) : batch_sizes.size(0);
  const int64_t batch = h.size(0), hidden = h.size(1), width = from_x.size(-1);
  const int64_t kept = keep ? kept_gates(cell) * hidden : 0;
  const auto numbers = [](const Tensor& t) { return t.defined() ? t.to_vector<double>() : Numbers(); };
  const Numbers x = numbers(from_x), h0 = numbers(h), c0 = numbers(c), wn = numbers(w), bn = numbers(bias);
  Numbers one(static_cast<size_t>(width * width));  // from_x is what the input gives the gates already
  for (int64_t i = 0; i < width; ++i) one[static_cast<size_t>(i * width + i)] = 1;
  Numbers y(static_cast<size_t>(steps * batch * hidden)), states(cell == Cell::lstm ? y.size() : 0),
      all(static_cast<size_t>(from_x.numel() / std::max<int64_t>(width, 1) * kept));
  const auto row = [](const Numbers& of, int64_t at, int64_t n) {
    return of.empty() ? Numbers() : Numbers(of.begin() + at * n, of.begin() + (at + 1) * n);
  };
  const auto logistic = [](double v) { return 1 / (1 + std::exp(-v)); };
  for (int64_t b = 0; b < batch; ++b) {
    NaiveState s{row(h0, b, hidden), row(c0, b, hidden)};
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t t = reverse ? steps - 1 - i : i, at = t * batch + b;
      if (counts.all() || b < counts.of[static_cast<size_t>(t)]) {
        const int64_t own = counts.all() ? at : counts.before[static_cast<size_t>(t)] + b;
        const Numbers gx = row(x, own, width), gh = naive_product(wn, bn, s.h, width);
        for (int64_t j = 0; j < hidden && kept > 0; ++j) {
          const auto sum = [&](int64_t gate) {
            const auto k = static_cast<size_t>(gate * hidden + j);
            return gx[k] + gh[k];
          };
          double* const g = all.data() + own * kept + j;
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
          kept == 0 ? made({}, {0}) : made(all, kept_shape(from_x.shape(), kept))};
}

// ---- records -------------------------------------------------------------------------------------------------------

const Op<Four(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
              const Tensor&, const Tensor&, const Tensor&, const std::string&, bool)>
    backward_op{{
        .schema = "recurrence_backward(Tensor gy, Tensor? gstates, Tensor h, Tensor? c, Tensor w_hh, Tensor? "
                  "batch_sizes, Tensor? places, Tensor y, Tensor states, Tensor gates, str cell, bool reverse) -> "
                  "(Tensor gfrom_x, Tensor gfrom_h, Tensor gh, Tensor gc)",
        .shard = "whole",
        .internal = true,
        .doc = "The gradients of recurrence for from_x, h and c, from those of its results y and states (none: zero). "
               "gfrom_h is that of what h gives the gates, [0] where it is gfrom_x (all cells but gru); gc is [0] but "
               "for lstm. ShapeError, DTypeError.",
        .infer =
            [](const Tensor& gy, const Tensor& gstates, const Tensor& h, const Tensor& c, const Tensor& w,
               const Tensor& batch_sizes, const Tensor& places, const Tensor& y, const Tensor& states,
               const Tensor& gates, const std::string& name, bool) {
              constexpr std::string_view op = "recurrence_backward";
              const Cell cell = cell_of(op, name);
              check<ShapeError>(y.dim() == 3, op, "y must be [T, B, hidden], got ", y);
              const int64_t width = recurrent::gates(cell) * y.size(2);
              const TensorMeta x =
                  y.meta().with_shape(places.defined() && places.dim() == 1 ? Shape{places.size(0), width}
                                                                            : Shape{y.size(0), y.size(1), width});
              check_arguments(op, cell, x, h, c, w, batch_sizes, places);
              const Shape shape{batch_sizes.defined() ? batch_sizes.size(0) : y.size(0), h.size(0), h.size(1)};
              const auto expect = [&](const Tensor& t, const char* what, const Shape& wanted) {
                check<ShapeError>(t.shape() == wanted && t.dtype() == y.dtype(), op, what, " is ", t, ", wanted ",
                                  wanted, " of ", y.dtype());
              };
              expect(y, "y", shape);
              expect(gy, "gy", shape);
              check<ShapeError>(!gstates.defined() || cell == Cell::lstm, op,
                                "gstates belongs to lstm and to no other cell");
              if (gstates.defined()) expect(gstates, "gstates", shape);
              expect(states, "states", cell == Cell::lstm ? shape : Shape{0});
              const int64_t kept = kept_gates(cell) * h.size(1);
              expect(gates, "gates", kept_gates(cell) > 0 ? kept_shape(x.shape, kept) : Shape{0});
              return std::array<TensorMeta, 4>{x, cell == Cell::gru ? x : x.with_shape({0}), h.meta(),
                                               c.defined() ? c.meta() : x.with_shape({0})};
            },
        .kernels = {.cpu = backward_kernel<recurrence_backward_cpu>,
                    .cuda = STRATA_CUDA_KERNEL(backward_kernel<recurrence_backward_cuda>)},
        .composed =
            [](const Tensor& gy, const Tensor& gstates, const Tensor& h, const Tensor& c, const Tensor& w,
               const Tensor& batch_sizes, const Tensor& places, const Tensor& y, const Tensor& states,
               const Tensor& gates, const std::string& name, bool reverse) {
              return gradients(cell_of("recurrence_backward", name), gy, gstates, {}, h, c, w, batch_sizes, places, y,
                               states, gates, reverse);
            },
        .cost = [](const Tensor& gy, const Tensor&, const Tensor&, const Tensor&, const Tensor& w, const Tensor&,
                   const Tensor& places, const Tensor&, const Tensor&, const Tensor&, const std::string&,
                   bool) { return steps_cost(rows_of_steps(gy, places), w, 3); },
        .samples =
            [](Samples& s) {
              const auto add = [&](const std::string& name, const Example& e, bool reverse, bool states_too,
                                   const char* what) {
                const auto [y, states, gates] =
                    naive_recurrence(e.from_x, e.h, e.c, e.w, e.bias, e.sizes, e.places, name, reverse, true);
                const auto own = [&](const Tensor& t) { return t.to(s.dtype()); };
                s.add(s.uniform(y.shape(), -1, 1), states_too ? s.uniform(y.shape(), -1, 1) : Tensor(), e.h, e.c, e.w,
                      e.sizes, e.places, own(y), own(states), own(gates), name, reverse)
                    .not_differentiable()
                    .named(cat(name, what));
              };
              for (const auto& [text, cell] : kCells) {
                const std::string name(text);
                const bool lstm = cell == Cell::lstm;
                add(name, example(s, cell, 4, 3, 5), false, lstm, "");
                add(name, example(s, cell, 4, 3, 5, {3, 2, 2, 1}), true, lstm, ", backward, lengths");
                add(name, example(s, cell, 2, 37, 18, {37, 20}), false, lstm, ", many sequences");
                add(name, example(s, cell, 2, 17, 133, {17, 6}), lstm, false, ", many units");
              }
              const Example e = example(s, Cell::tanh, 2, 3, 4);
              const Tensor y = s.tensor({2, 3, 4}), none = s.tensor({0});
              s.invalid<ShapeError>("gstates belongs to lstm", y, y, e.h, e.c, e.w, std::nullopt, std::nullopt, y, none,
                                    none, std::string("tanh"), false);
              s.invalid<ShapeError>("gy is", e.h, std::nullopt, e.h, e.c, e.w, std::nullopt, std::nullopt, y, none,
                                    none, std::string("tanh"), false);
            },
        .tolerance = 4,
        .tolerance_reason = "each step rounds its gradients, and the step before multiplies them",
    }};

const Op<Triple(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                const std::string&, bool, bool)>
    forward_op{{
        .schema = "recurrence(Tensor from_x, Tensor h, Tensor? c, Tensor w_hh, Tensor? b_hh, Tensor? batch_sizes, "
                  "Tensor? places, str cell, bool reverse=false, bool keep=true) -> (Tensor y, Tensor states, Tensor "
                  "gates)",
        .shard = "whole",
        .shown = 2,
        .internal = true,
        .doc =
            "All steps of one direction of a recurrent layer: from_x [T, B, gates H] is what the input gives the "
            "gates, h [B, H] (and c for lstm) the first state, w_hh [gates H, H] and b_hh what h gives them. cell "
            "is tanh, relu, lstm or gru. y [T, B, H] is h after each step, states c after each step ([0] but for "
            "lstm). batch_sizes (i64 [T], never rising) says how many of the sequences, the first ones, have each "
            "step; the others keep their state. from_x then has their rows alone, step after step, and places (i64 "
            "[rows]) says where these lie among the [T B] of y. gates is what the gradient needs ([0] without keep). "
            "ShapeError, DTypeError, ValueError.",
        .infer =
            [](const Tensor& from_x, const Tensor& h, const Tensor& c, const Tensor& w, const Tensor& bias,
               const Tensor& batch_sizes, const Tensor& places, const std::string& name, bool, bool keep) {
              constexpr std::string_view op = "recurrence";
              const Cell cell = cell_of(op, name);
              check_arguments(op, cell, from_x.meta(), h, c, w, batch_sizes, places);
              check<ShapeError>(!bias.defined() || bias.shape() == Shape{w.size(0)}, op, "b_hh is ", bias, ", wanted [",
                                w.size(0), "]");
              check<DTypeError>(!bias.defined() || bias.dtype() == w.dtype(), op, "b_hh is ", bias, ", w_hh ", w);
              const int64_t steps = batch_sizes.defined() ? batch_sizes.size(0) : from_x.size(0);
              const TensorMeta y = from_x.meta().with_shape({steps, h.size(0), h.size(1)});
              const bool keeps = keep && kept_gates(cell) > 0;
              return std::array<TensorMeta, 3>{
                  y, cell == Cell::lstm ? y : y.with_shape({0}),
                  y.with_shape(keeps ? kept_shape(from_x.shape(), kept_gates(cell) * h.size(1)) : Shape{0})};
            },
        .kernels = {.cpu = forward_kernel<recurrence_cpu>, .cuda = STRATA_CUDA_KERNEL(forward_kernel<recurrence_cuda>)},
        .composed = composed,
        .saves = "h c w_hh batch_sizes places y states gates",
        .backward =
            [](Backward& b, const Tensor&, const Tensor& h, const Tensor& c, const Tensor& w, const Tensor& bias,
               const Tensor& batch_sizes, const Tensor& places, const std::string& name, bool reverse, bool keep) {
              check<AutogradError>(keep || kept_gates(cell_of("recurrence", name)) == 0, "recurrence",
                                   "has no gradient with keep=false: the gates were not kept");
              const Tensor y = b.y(0), gy = b.has_gy(0) ? b.gy(0) : zeros_like(y),
                           gstates = b.has_gy(1) && c.defined() ? b.gy(1) : Tensor();
              const auto [gx, gfrom_h, gh, gc] =
                  b.has_gy(2)
                      ? gradients(cell_of("recurrence", name), gy, gstates, b.gy(2), h, c, w, batch_sizes, places, y,
                                  b.y(1), b.y(2), reverse)
                      : backward_op(gy, gstates, h, c, w, batch_sizes, places, y, b.y(1), b.y(2), name, reverse);
              if (b.needs(0)) b.set(0, gx);
              if (b.needs(1)) b.set(1, gh);
              if (c.defined() && b.needs(2)) b.set(2, gc);
              const Tensor g = flatten(gfrom_h.numel() > 0 ? gfrom_h : gx, 0, -2);
              if (b.needs(3)) {
                Tensor before = flatten(before_each(y, h, reverse), 0, 1);
                if (places.defined()) before = index_select(before, 0, places);
                b.set(3, product(g.transpose(0, 1), before));
              }
              if (bias.defined() && b.needs(4)) b.set(4, sum(g, {0}));
            },
        .autocast = Autocast::low,
        .cost = [](const Tensor& from_x, const Tensor& h, const Tensor&, const Tensor& w, const Tensor&, const Tensor&,
                   const Tensor& places, const std::string&, bool,
                   bool) { return steps_cost(rows_of_steps(from_x, places), w, 2.5); },
        .samples =
            [](Samples& s) {
              const auto add = [&](const std::string& name, const Example& e, bool bias, bool reverse, bool keep,
                                   const char* what) {
                s.add(e.from_x, e.h, e.c, e.w, bias ? e.bias : Tensor(), e.sizes, e.places, name, reverse, keep)
                    .not_differentiable()
                    .named(cat(name, what));
              };
              for (const auto& [text, cell] : kCells) {
                const std::string name(text);
                add(name, example(s, cell, 4, 3, 5), true, false, true, "");
                add(name, example(s, cell, 4, 3, 5, {3, 3, 1, 1}), false, true, false,
                    ", backward, lengths, no bias, no gradient");
                // Several blocks of sequences, odd rows.
                add(name, example(s, cell, 2, 37, 18, {37, 20}), true, false, true, ", many sequences");
                // On a card several blocks and several pieces of the depth for each warp.
                add(name, example(s, cell, 3, 17, 133, {17, 16, 5}), true, cell != Cell::relu, true, ", many units");
              }
              const Example e = example(s, Cell::gru, 2, 3, 4), p = example(s, Cell::gru, 2, 3, 4, {2, 1});
              const auto none = std::nullopt;
              const std::string gru("gru");
              s.invalid<ValueError>("cell must be", e.from_x, e.h, e.c, e.w, e.bias, none, none, std::string("elman"));
              s.invalid<ShapeError>("c belongs to lstm", e.from_x, e.h, e.h, e.w, e.bias, none, none, gru);
              s.invalid<ShapeError>("w_hh is", e.from_x, e.h, e.c, e.h, e.bias, none, none, gru);
              s.invalid<ShapeError>("b_hh is", e.from_x, e.h, e.c, e.w, e.h, none, none, gru);
              s.invalid<ShapeError>("come together", e.from_x, e.h, e.c, e.w, e.bias, none, counted({3}), gru);
              s.invalid<ShapeError>("from_x must be", e.from_x, e.h, e.c, e.w, e.bias, p.sizes, p.places, gru);
              s.invalid<ValueError>("never rise", p.from_x, p.h, p.c, p.w, p.bias, counted({1, 2}), p.places, gru);
              s.invalid<ValueError>("lies at", p.from_x, p.h, p.c, p.w, p.bias, p.sizes, p.places + 1, gru);
              s.invalid<ValueError>("add up", p.from_x, p.h, p.c, p.w, p.bias, counted({3, 3}), p.places, gru);
            },
        .reference = naive_recurrence,
        .tolerance = 4,
        .tolerance_reason = "each step rounds its state, and the next multiplies it",
    }};

}  // namespace

namespace recurrent {

bool has_recurrence(Cell cell, DType t, const Device& device, int64_t batch, int64_t hidden, bool multiplies_more) {
  if (device.type == DeviceType::meta) return true;
  if (!forward_op.has_kernel(device.type)) return false;
  return !device.is_cuda() || batch * hidden == 0 || !multiplies_more ||
         recurrence_pays(cell, t, allow_tf32_convolutions(), batch, hidden, card_limits(device.index));
}

std::tuple<Tensor, Tensor> recurrence(Cell cell, const Tensor& from_x, const State& first, const Tensor& w,
                                      const Tensor& bias, const Tensor& batch_sizes, const Tensor& places,
                                      bool reverse) {
  const auto wants = [](const Tensor& t) { return t.defined() && t.requires_grad(); };
  const bool keep = grad_enabled() && (wants(from_x) || wants(first.h) || wants(first.c) || wants(w) || wants(bias));
  for (const auto& [name, each] : kCells) {
    if (each != cell) continue;
    auto [y, states, gates] =
        forward_op(from_x, first.h, first.c, w, bias, batch_sizes, places, std::string(name), reverse, keep);
    return {y, cell == Cell::lstm ? states : Tensor()};
  }
  return {};
}

}  // namespace recurrent
}  // namespace strata
