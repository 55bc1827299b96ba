// The records of one step: rnn_tanh_cell, rnn_relu_cell, gru_cell, lstm_cell.

#include <algorithm>
#include <cmath>

#include "strata/core/node.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/rnn/records.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace recurrent {

Tensor no_state(const Tensor& like, const Shape& shape) {
  const DeviceScope there(like.device());
  return zeros(shape, like.dtype());
}

Numbers naive_product(const Numbers& w, const Numbers& b, const Numbers& x, int64_t rows) {
  Numbers y(static_cast<size_t>(rows));
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = b.empty() ? 0 : b[i];
    for (size_t k = 0; k < x.size(); ++k) y[i] += w[i * x.size() + k] * x[k];
  }
  return y;
}

NaiveState naive_step(Cell cell, const NaiveWeights& w, const Numbers& x, const NaiveState& before, int64_t hidden) {
  const auto n = static_cast<size_t>(hidden);
  const Numbers gx = naive_product(w.ih, w.bias_ih, x, gates(cell) * hidden);
  const Numbers gh = naive_product(w.hh, w.bias_hh, before.h, gates(cell) * hidden);
  const auto logistic = [](double v) { return 1 / (1 + std::exp(-v)); };
  NaiveState after{Numbers(n), before.c};
  for (size_t i = 0; i < n; ++i) {
    const auto sum = [&](size_t gate) { return gx[gate * n + i] + gh[gate * n + i]; };
    if (cell == Cell::tanh) {
      after.h[i] = std::tanh(sum(0));
    } else if (cell == Cell::relu) {
      after.h[i] = std::max(0.0, sum(0));
    } else if (cell == Cell::lstm) {
      after.c[i] = logistic(sum(1)) * before.c[i] + logistic(sum(0)) * std::tanh(sum(2));
      after.h[i] = logistic(sum(3)) * std::tanh(after.c[i]);
    } else {
      const double r = logistic(sum(0)), z = logistic(sum(1));
      const double candidate = std::tanh(gx[2 * n + i] + r * gh[2 * n + i]);
      after.h[i] = (1 - z) * candidate + z * before.h[i];
    }
  }
  if (!w.hr.empty()) after.h = naive_product(w.hr, {}, after.h, static_cast<int64_t>(w.hr.size() / n));
  return after;
}

}  // namespace recurrent

namespace {

using namespace recurrent;

// Input and states as [B, ..]; `given` are the states in the order h, c.
State step(std::string_view op, Cell cell, const Tensor& input, const TensorList& given, const Tensor& w_ih,
           const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh) {
  const bool single = input.dim() == 1;
  check<ShapeError>(
      w_ih.dim() == 2 && w_hh.dim() == 2 && w_ih.size(0) == gates(cell) * w_hh.size(1) && w_hh.size(0) == w_ih.size(0),
      op, "w_ih is ", w_ih, " and w_hh ", w_hh, ", wanted ", gates(cell), " hidden rows each and hidden ",
      "columns of w_hh");
  const int64_t hidden = w_hh.size(1);
  for (const Tensor* b : {&b_ih, &b_hh})
    check<ShapeError>(!b->defined() || b->shape() == Shape{gates(cell) * hidden}, op, "a bias is ", *b, ", wanted [",
                      gates(cell) * hidden, "]");
  check<ShapeError>((single || input.dim() == 2) && input.size(-1) == w_ih.size(1), op, "the input must be [B, ",
                    w_ih.size(1), "] or [", w_ih.size(1), "], got ", input);
  const Tensor x = single ? input.unsqueeze(0) : input;
  const Shape shape{x.size(0), hidden};
  const auto state = [&](size_t i) {
    if (given.size() <= i || !given[i].defined()) return no_state(x, shape);
    const Tensor s = single && given[i].dim() == 1 ? given[i].unsqueeze(0) : given[i];
    check<ShapeError>(s.shape() == shape, op, "a state must be ", shape, ", got ", given[i]);
    return s;
  };
  const State before{state(0), cell == Cell::lstm ? state(1) : Tensor()};
  State after = advance(cell, linear(x, w_ih, b_ih), linear(before.h, w_hh, b_hh), before);
  if (!single) return after;
  return {after.h.squeeze(0), after.c.defined() ? after.c.squeeze(0) : Tensor()};
}

NaiveState naive(Cell cell, const Tensor& input, const TensorList& given, const Tensor& w_ih, const Tensor& w_hh,
                 const Tensor& b_ih, const Tensor& b_hh) {
  const auto numbers = [](const Tensor& t) { return t.defined() ? t.to_vector<double>() : Numbers(); };
  const NaiveWeights w{numbers(w_ih), numbers(w_hh), numbers(b_ih), numbers(b_hh), {}};
  const int64_t batch = input.dim() == 1 ? 1 : input.size(0), hidden = w_hh.size(1), width = w_ih.size(1);
  const Numbers x = numbers(input), zero(static_cast<size_t>(batch * hidden));
  const Numbers h = !given.empty() && given[0].defined() ? numbers(given[0]) : zero;
  const Numbers c = given.size() > 1 ? numbers(given[1]) : zero;
  NaiveState all;
  for (int64_t b = 0; b < batch; ++b) {
    const NaiveState one = naive_step(cell, w, Numbers(x.begin() + b * width, x.begin() + (b + 1) * width),
                                      {Numbers(h.begin() + b * hidden, h.begin() + (b + 1) * hidden),
                                       Numbers(c.begin() + b * hidden, c.begin() + (b + 1) * hidden)},
                                      hidden);
    all.h.insert(all.h.end(), one.h.begin(), one.h.end());
    all.c.insert(all.c.end(), one.c.begin(), one.c.end());
  }
  return all;
}
Shape state_shape(const Tensor& input, const Tensor& w_hh) {
  return input.dim() == 1 ? Shape{w_hh.size(1)} : Shape{input.size(0), w_hh.size(1)};
}

Cost step_cost(Cell cell, const Tensor& input, const Tensor& w_ih, const Tensor& w_hh) {
  const double batch = input.dim() == 1 ? 1.0 : static_cast<double>(input.size(0));
  const double hidden = static_cast<double>(w_hh.size(1)), size = static_cast<double>(size_of(input.dtype()));
  const double states = cell == Cell::lstm ? 4 : 2;
  return {2.0 * batch * static_cast<double>(w_ih.numel() + w_hh.numel()) +
              10.0 * static_cast<double>(gates(cell)) * batch * hidden,
          static_cast<double>(input.nbytes() + w_ih.nbytes() + w_hh.nbytes()) + states * batch * hidden * size};
}

// Sizes that differ, so that none can stand for another.
template <Cell kCell>
void cell_samples(Samples& s) {
  constexpr int64_t kIn = 3, kHidden = 5, rows = gates(kCell) * kHidden;
  // Halves: sums of a few stay moderate in every dtype.
  const auto w = [&](const Shape& shape) { return s.uniform(shape, -0.5, 0.5); };
  const auto add = [&](const Shape& lead, bool biases, bool states) -> Sample& {
    Shape in = lead, state = lead;
    in.push_back(kIn);
    state.push_back(kHidden);
    const Tensor x = s.tensor(in), w_ih = w({rows, kIn}), w_hh = w({rows, kHidden});
    if constexpr (kCell == Cell::lstm) {
      const TensorList hx = states ? TensorList{w(state), s.tensor(state)} : TensorList();
      return biases ? s.add(x, hx, w_ih, w_hh, w({rows}), w({rows})) : s.add(x, hx, w_ih, w_hh);
    } else {
      if (!states) return s.add(x, std::nullopt, w_ih, w_hh, w({rows}), w({rows}));
      return biases ? s.add(x, w(state), w_ih, w_hh, w({rows}), w({rows})) : s.add(x, w(state), w_ih, w_hh);
    }
  };
  add({4}, true, true);
  add({2}, false, true);
  add({}, true, true).named("no batch");
  add({2}, true, false).named("from zeros");
  add({0}, true, true).named("empty");
  const Tensor x = s.tensor({2, kIn}), h = w({2, kHidden}), w_ih = w({rows, kIn}), w_hh = w({rows, kHidden});
  if constexpr (kCell == Cell::lstm)
    s.add(x, TensorList{h, s.tensor({2, kHidden})}, w_ih, w_hh, std::nullopt, w({rows})).named("b_hh alone");
  else
    s.add(x, h, w_ih, w_hh, std::nullopt, w({rows})).named("b_hh alone");
}

template <Cell kCell>
void plain_cell_samples(Samples& s) {
  cell_samples<kCell>(s);
  constexpr int64_t rows = gates(kCell) * 5;
  s.invalid<ShapeError>("the input must be", s.tensor({4, 2}), s.tensor({4, 5}), s.tensor({rows, 3}),
                        s.tensor({rows, 5}));
  s.invalid<ShapeError>("a state must be", s.tensor({4, 3}), s.tensor({3, 5}), s.tensor({rows, 3}),
                        s.tensor({rows, 5}));
  s.invalid<ShapeError>("w_ih is", s.tensor({4, 3}), s.tensor({4, 5}), s.tensor({rows + 1, 3}), s.tensor({rows, 5}));
  s.invalid<ShapeError>("a bias is", s.tensor({4, 3}), s.tensor({4, 5}), s.tensor({rows, 3}), s.tensor({rows, 5}),
                        s.tensor({rows + 1}));
}

using PlainCell = Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&)>;

template <Cell kCell>
Tensor plain_reference(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh,
                       const Tensor& b_ih, const Tensor& b_hh) {
  return from_span<double>(naive(kCell, input, {hx}, w_ih, w_hh, b_ih, b_hh).h, state_shape(input, w_hh));
}
template <Cell kCell>
Cost plain_cost(const Tensor& input, const Tensor&, const Tensor& w_ih, const Tensor& w_hh, const Tensor&,
                const Tensor&) {
  return step_cost(kCell, input, w_ih, w_hh);
}

const PlainCell rnn_tanh_cell_op{{
    .schema = "rnn_tanh_cell(Tensor input, Tensor? hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) "
              "-> Tensor",
    .doc = "One step of rnn_tanh: tanh(w_ih x + b_ih + w_hh h + b_hh) for input [B, in] or [in], w_ih [hidden, in], "
           "w_hh [hidden, hidden] and hx [B, hidden] or [hidden], zeros where not given. ShapeError.",
    .example = "Tensor h = rnn_tanh_cell(zeros({2, 3}), {}, ones({4, 3}), ones({4, 4})); "
               "assert(h.shape() == Shape({2, 4}) && h.sum().item() == 0);",
    .composed = [](const Tensor& x, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                   const Tensor& b_hh) { return step("rnn_tanh_cell", Cell::tanh, x, {hx}, w_ih, w_hh, b_ih, b_hh).h; },
    .cost = plain_cost<Cell::tanh>,
    .samples = plain_cell_samples<Cell::tanh>,
    .reference = plain_reference<Cell::tanh>,
}};

const PlainCell rnn_relu_cell_op{{
    .schema = "rnn_relu_cell(Tensor input, Tensor? hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) "
              "-> Tensor",
    .doc = "One step of rnn_relu: rnn_tanh_cell with relu in tanh's place. ShapeError.",
    .example = "Tensor h = rnn_relu_cell(ones({2, 3}), {}, ones({4, 3}), ones({4, 4})); assert(h.sum().item() == 24);",
    .composed = [](const Tensor& x, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                   const Tensor& b_hh) { return step("rnn_relu_cell", Cell::relu, x, {hx}, w_ih, w_hh, b_ih, b_hh).h; },
    .cost = plain_cost<Cell::relu>,
    .samples = plain_cell_samples<Cell::relu>,
    .reference = plain_reference<Cell::relu>,
}};

const PlainCell gru_cell_op{{
    .schema =
        "gru_cell(Tensor input, Tensor? hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
    .doc = "One step of gru, gates r, z, n: n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h' = (1 - z) n + z h (Cho et "
           "al., arXiv:1406.1078), for input [B, in] or [in], w_ih [3 hidden, in], w_hh [3 hidden, hidden] and hx "
           "[B, hidden] or [hidden], zeros where not given. ShapeError.",
    .example = "Tensor h = gru_cell(zeros({2, 3}), ones({2, 4}), ones({12, 3}), zeros({12, 4})); "
               "assert(h.sum().item() == 4);  // z is 1/2, n is 0",
    .composed = [](const Tensor& x, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                   const Tensor& b_hh) { return step("gru_cell", Cell::gru, x, {hx}, w_ih, w_hh, b_ih, b_hh).h; },
    .cost = plain_cost<Cell::gru>,
    .samples = plain_cell_samples<Cell::gru>,
    .reference = plain_reference<Cell::gru>,
}};

using Pair = std::tuple<Tensor, Tensor>;
const Op<Pair(const Tensor&, const TensorList&, const Tensor&, const Tensor&, const Tensor&, const Tensor&)>
    lstm_cell_op{{
        .schema = "lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None)"
                  " -> (Tensor h, Tensor c)",
        .doc = "One step of lstm, gates i, f, g, o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c') "
               "(Hochreiter and Schmidhuber 1997), for input [B, in] or [in], w_ih [4 hidden, in], w_hh "
               "[4 hidden, hidden] and hx = {h, c}, [B, hidden] or [hidden] each; zeros where the list is empty. "
               "ShapeError.",
        .example = "auto [h, c] = lstm_cell(zeros({2, 3}), {zeros({2, 4}), ones({2, 4})}, ones({16, 3}), "
                   "zeros({16, 4})); assert(c.sum().item() == 4);  // the forget gate is 1/2",
        .composed =
            [](const Tensor& x, const TensorList& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
               const Tensor& b_hh) {
              check<ShapeError>(hx.empty() || hx.size() == 2, "lstm_cell", "hx must be {h, c} or empty, got ",
                                static_cast<int64_t>(hx.size()), " tensors");
              const State s = step("lstm_cell", Cell::lstm, x, hx, w_ih, w_hh, b_ih, b_hh);
              return Pair(s.h, s.c);
            },
        .cost = [](const Tensor& x, const TensorList&, const Tensor& w_ih, const Tensor& w_hh, const Tensor&,
                   const Tensor&) { return step_cost(Cell::lstm, x, w_ih, w_hh); },
        .samples =
            [](Samples& s) {
              cell_samples<Cell::lstm>(s);
              s.invalid<ShapeError>("the input must be", s.tensor({4, 2}), TensorList(), s.tensor({20, 3}),
                                    s.tensor({20, 5}));
              s.invalid<ShapeError>("hx must be", s.tensor({4, 3}), TensorList{s.tensor({4, 5})}, s.tensor({20, 3}),
                                    s.tensor({20, 5}));
              s.invalid<ShapeError>("a state must be", s.tensor({4, 3}), TensorList{s.tensor({4, 5}), s.tensor({4, 4})},
                                    s.tensor({20, 3}), s.tensor({20, 5}));
            },
        .reference =
            [](const Tensor& x, const TensorList& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
               const Tensor& b_hh) {
              const NaiveState s = naive(Cell::lstm, x, hx, w_ih, w_hh, b_ih, b_hh);
              return Pair(from_span<double>(s.h, state_shape(x, w_hh)), from_span<double>(s.c, state_shape(x, w_hh)));
            },
    }};

}  // namespace

Tensor rnn_tanh_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                     const Tensor& b_hh) {
  return rnn_tanh_cell_op(input, hx, w_ih, w_hh, b_ih, b_hh);
}
Tensor rnn_relu_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                     const Tensor& b_hh) {
  return rnn_relu_cell_op(input, hx, w_ih, w_hh, b_ih, b_hh);
}
Tensor gru_cell(const Tensor& input, const Tensor& hx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih,
                const Tensor& b_hh) {
  return gru_cell_op(input, hx, w_ih, w_hh, b_ih, b_hh);
}
std::tuple<Tensor, Tensor> lstm_cell(const Tensor& input, const TensorList& hx, const Tensor& w_ih, const Tensor& w_hh,
                                     const Tensor& b_ih, const Tensor& b_hh) {
  return lstm_cell_op(input, hx, w_ih, w_hh, b_ih, b_hh);
}

}  // namespace strata
