#include "strata/nn/rnn.h"

#include <cmath>

#include "strata/nn/init.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/sort/sort.h"

namespace strata::nn {
namespace {

void reset_uniform(const Module& module, int64_t hidden) {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  for (const Tensor& p : module.parameters()) init::uniform_(p, -bound, bound);
}

}  // namespace

PackedSequence PackedSequence::pack(const Tensor& padded, const Tensor& lengths, bool batch_first) {
  const Tensor on_host = lengths.to(Device::cpu());
  const auto [sorted, order] = sort(on_host, 0, true);
  const Tensor places = order.to(padded.device());
  auto [data, sizes] = pack_padded_sequence(index_select(padded, batch_first ? 0 : 1, places), sorted, batch_first);
  return {std::move(data), std::move(sizes), places};
}

std::tuple<Tensor, Tensor> PackedSequence::pad(bool batch_first, double padding_value) const {
  auto [padded, lengths] = pad_packed_sequence(data, batch_sizes, batch_first, padding_value);
  if (!sorted_indices.defined()) return {std::move(padded), std::move(lengths)};
  const Tensor back = argsort(sorted_indices, 0);
  return {index_select(padded, batch_first ? 0 : 1, back), index_select(lengths, 0, back.to(Device::cpu()))};
}

RecurrentBase::RecurrentBase(std::string_view kind, Cell cell, int64_t input_size, int64_t hidden_size,
                             const RnnOptions& options)
    : Module(kind, cat(input_size, ", ", hidden_size, ", num_layers=", options.num_layers,
                       options.bidirectional ? ", bidirectional=true" : "")),
      cell_(cell),
      hidden_(hidden_size),
      options_(options) {
  check(input_size > 0 && hidden_size > 0 && options.num_layers > 0, kind, "sizes and layers are at least 1, got ",
        input_size, ", ", hidden_size, " and ", options.num_layers);
  check(options.nonlinearity == "tanh" || options.nonlinearity == "relu", kind,
        "nonlinearity is 'tanh' or 'relu', got '", options.nonlinearity, "'");
  check(options.proj_size >= 0 && options.proj_size < hidden_size && (options.proj_size == 0 || cell == Cell::lstm),
        kind, "proj_size is for an LSTM, from 0 to below hidden_size, got ", options.proj_size);
  const int64_t rows = (cell == Cell::rnn ? 1 : cell == Cell::lstm ? 4 : 3) * hidden_size;
  const int64_t directions = options.bidirectional ? 2 : 1;
  const int64_t real = options.proj_size > 0 ? options.proj_size : hidden_size;
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    const int64_t width = layer == 0 ? input_size : real * directions;
    for (int64_t d = 0; d < directions; ++d) {
      const std::string suffix = cat("_l", layer, d ? "_reverse" : "");
      const auto add = [&](const char* name, const Shape& shape) {
        weights_.push_back(new_parameter(name + suffix, shape));
      };
      add("weight_ih", {rows, width});
      add("weight_hh", {rows, real});
      if (options.bias) add("bias_ih", {rows});
      if (options.bias) add("bias_hh", {rows});
      if (options.proj_size > 0) add("weight_hr", {real, hidden_size});
    }
  }
  reset_parameters();
}

void RecurrentBase::reset_parameters() {
  reset_uniform(*this, hidden_);
}

LstmOutput RecurrentBase::call(const Tensor& x, const Tensor& hidden, const Tensor& cell,
                               const Tensor& batch_sizes) const {
  const RecurrentArguments arguments{.has_biases = options_.bias,
                                     .num_layers = options_.num_layers,
                                     .dropout = options_.dropout,
                                     .train = is_training(),
                                     .bidirectional = options_.bidirectional,
                                     .batch_first = options_.batch_first,
                                     .batch_sizes = batch_sizes};
  if (cell_ == Cell::lstm) {
    auto [y, h, c] = lstm(x, {hidden, cell}, weights_, arguments);
    return {std::move(y), std::move(h), std::move(c)};
  }
  auto [y, h] = cell_ == Cell::gru                ? gru(x, hidden, weights_, arguments)
                : options_.nonlinearity == "relu" ? rnn_relu(x, hidden, weights_, arguments)
                                                  : rnn_tanh(x, hidden, weights_, arguments);
  return {std::move(y), std::move(h), {}};
}

LstmOutput RecurrentBase::run(const Tensor& x, const Tensor& hidden, const Tensor& cell) const {
  return call(x, hidden, cell, {});
}

PackedOutput RecurrentBase::run(const PackedSequence& x, const Tensor& hidden, const Tensor& cell) const {
  const auto in_order = [](const Tensor& state, const Tensor& order) {
    return state.defined() && order.defined() ? index_select(state, 1, order) : state;
  };
  const Tensor& order = x.sorted_indices;
  const Tensor back = order.defined() ? argsort(order, 0) : Tensor();
  LstmOutput r = call(x.data, in_order(hidden, order), in_order(cell, order), x.batch_sizes);
  return {{r.output, x.batch_sizes, order}, in_order(r.hidden, back), in_order(r.cell, back)};
}

RnnOutput RNN::forward(const Tensor& x, const Tensor& hidden) const {
  LstmOutput r = run(x, hidden, {});
  return {r.output, r.hidden};
}

RnnOutput GRU::forward(const Tensor& x, const Tensor& hidden) const {
  LstmOutput r = run(x, hidden, {});
  return {r.output, r.hidden};
}

CellBase::CellBase(std::string_view kind, int64_t gates, int64_t input_size, int64_t hidden_size, bool bias)
    : Module(kind, cat(input_size, ", ", hidden_size)) {
  check(input_size > 0 && hidden_size > 0, kind, "sizes are at least 1, got ", input_size, " and ", hidden_size);
  weight_ih = new_parameter("weight_ih", {gates * hidden_size, input_size});
  weight_hh = new_parameter("weight_hh", {gates * hidden_size, hidden_size});
  if (bias) {
    bias_ih = new_parameter("bias_ih", {gates * hidden_size});
    bias_hh = new_parameter("bias_hh", {gates * hidden_size});
  }
  reset_uniform(*this, hidden_size);
}

}  // namespace strata::nn
