#include "strata/nn/rnn.h"

#include <cmath>

#include "strata/nn/init.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/shape/shape.h"

namespace strata::nn {

RecurrentBase::RecurrentBase(std::string_view kind, Cell cell, int64_t input_size, int64_t hidden_size,
                             const RnnOptions& options)
    : Module(kind, cat(input_size, ", ", hidden_size, ", num_layers=", options.num_layers,
                       options.bidirectional ? ", bidirectional=true" : "")),
      cell_(cell),
      input_(input_size),
      hidden_(hidden_size),
      options_(options) {
  check(input_size > 0 && hidden_size > 0 && options.num_layers > 0, kind, "sizes and layers are at least 1, got ",
        input_size, ", ", hidden_size, " and ", options.num_layers);
  check(options.nonlinearity == "tanh" || options.nonlinearity == "relu", kind,
        "nonlinearity is 'tanh' or 'relu', got '", options.nonlinearity, "'");
  const int64_t gates = cell == Cell::rnn ? 1 : cell == Cell::lstm ? 4 : 3;
  const int64_t directions = options.bidirectional ? 2 : 1;
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    const int64_t width = layer == 0 ? input_size : hidden_size * directions;
    for (int64_t d = 0; d < directions; ++d) {
      const std::string suffix = cat("_l", layer, d ? "_reverse" : "");
      Weights w;
      w.ih = new_parameter("weight_ih" + suffix, {gates * hidden_size, width});
      w.hh = new_parameter("weight_hh" + suffix, {gates * hidden_size, hidden_size});
      if (options.bias) {
        w.bias_ih = new_parameter("bias_ih" + suffix, {gates * hidden_size});
        w.bias_hh = new_parameter("bias_hh" + suffix, {gates * hidden_size});
      }
      weights_.push_back(w);
    }
  }
  reset_parameters();
}

void RecurrentBase::reset_parameters() {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden_));
  for (const Tensor& p : parameters()) init::uniform_(p, -bound, bound);
}

// x [T, B, in] -> [T, B, hidden]; h and c [B, hidden] become the last states.
Tensor RecurrentBase::run_direction(const Weights& w, const Tensor& x, Tensor& h, Tensor& c, bool reverse) const {
  const int64_t time = x.size(0), n = hidden_;
  const Tensor projected = linear(x, w.ih, w.bias_ih);  // all steps in one product
  TensorList outputs(static_cast<size_t>(time));
  for (int64_t i = 0; i < time; ++i) {
    const int64_t t = reverse ? time - 1 - i : i;
    const Tensor from_x = projected.select(0, t), from_h = linear(h, w.hh, w.bias_hh);
    const auto gate = [n](const Tensor& all, int64_t index) { return all.narrow(1, index * n, n); };
    if (cell_ == Cell::rnn) {
      const Tensor sum = from_x + from_h;
      h = options_.nonlinearity == "relu" ? relu(sum) : tanh(sum);
    } else if (cell_ == Cell::lstm) {
      const Tensor sum = from_x + from_h;
      c = sigmoid(gate(sum, 1)) * c + sigmoid(gate(sum, 0)) * tanh(gate(sum, 2));
      h = sigmoid(gate(sum, 3)) * tanh(c);
    } else {
      const Tensor r = sigmoid(gate(from_x, 0) + gate(from_h, 0));
      const Tensor z = sigmoid(gate(from_x, 1) + gate(from_h, 1));
      const Tensor candidate = tanh(gate(from_x, 2) + r * gate(from_h, 2));
      h = candidate + z * (h - candidate);
    }
    outputs[static_cast<size_t>(t)] = h;
  }
  return stack(outputs, 0);
}

LstmOutput RecurrentBase::run(const Tensor& input, const Tensor& hidden, const Tensor& cell) const {
  check<ShapeError>(input.dim() == 3 && input.size(2) == input_, kind(), "wants three dimensions, the last of ", input_,
                    ", got ", input);
  Tensor x = options_.batch_first ? input.transpose(0, 1) : input;
  check<ShapeError>(x.size(0) > 0, kind(), "wants at least one step, got ", input);
  const int64_t batch = x.size(1), directions = options_.bidirectional ? 2 : 1;
  const Shape state{options_.num_layers * directions, batch, hidden_};
  for (const Tensor* s : {&hidden, &cell})
    check<ShapeError>(!s->defined() || s->shape() == state, kind(), "a state is ", state, ", got ",
                      s->defined() ? s->shape() : state);
  const auto initial = [&](const Tensor& given, int64_t i) {
    return given.defined() ? given.select(0, i) : zeros_like(x.select(0, 0).narrow(1, 0, 1)).expand({batch, hidden_});
  };
  TensorList last_h, last_c;
  for (int64_t layer = 0; layer < options_.num_layers; ++layer) {
    TensorList outputs;
    for (int64_t d = 0; d < directions; ++d) {
      const int64_t i = layer * directions + d;
      Tensor h = initial(hidden, i), c = initial(cell, i);
      outputs.push_back(run_direction(weights_[static_cast<size_t>(i)], x, h, c, d == 1));
      last_h.push_back(h);
      last_c.push_back(c);
    }
    x = directions == 1 ? outputs[0] : cat(outputs, 2);
    if (options_.dropout > 0 && is_training() && layer + 1 < options_.num_layers) x = dropout(x, options_.dropout);
  }
  return {options_.batch_first ? x.transpose(0, 1) : x, stack(last_h, 0),
          cell_ == Cell::lstm ? stack(last_c, 0) : Tensor()};
}

RnnOutput RNN::forward(const Tensor& x, const Tensor& hidden) const {
  LstmOutput r = run(x, hidden, {});
  return {r.output, r.hidden};
}

RnnOutput GRU::forward(const Tensor& x, const Tensor& hidden) const {
  LstmOutput r = run(x, hidden, {});
  return {r.output, r.hidden};
}

}  // namespace strata::nn
