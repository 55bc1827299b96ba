#pragma once
// Recurrent layers by hand, in double precision: every sequence on its own, step by step. For the records' references.

#include <algorithm>

#include "strata/core/rng.h"
#include "strata/ops/rnn/records.h"

namespace strata::recurrent {

/// output, h and c as the records lay them out.
inline std::tuple<Tensor, Tensor, Tensor> naive_sequences(Cell cell, const Tensor& input, const TensorList& given,
                                                          const TensorList& params, const RecurrentArguments& a) {
  const bool packed = a.batch_sizes.defined(), single = !packed && input.dim() == 2;
  const int64_t directions = a.bidirectional ? 2 : 1, each = a.has_biases ? 4 : 2;
  const bool projects = static_cast<int64_t>(params.size()) == a.num_layers * directions * (each + 1);
  const int64_t hidden = params[1].size(0) / gates(cell);
  const int64_t real = projects ? params[static_cast<size_t>(each)].size(0) : hidden;
  const int64_t in = input.size(-1), steps = input.numel() / std::max<int64_t>(in, 1);

  // rows[b][t]: which row of the input (as a matrix of `steps` rows) is step t of sequence b.
  std::vector<std::vector<int64_t>> rows;
  if (packed) {
    const std::vector<int64_t> counts = a.batch_sizes.to_vector<int64_t>();
    rows.resize(static_cast<size_t>(counts[0]));
    int64_t at = 0;
    for (const int64_t n : counts)
      for (int64_t b = 0; b < n; ++b) rows[static_cast<size_t>(b)].push_back(at++);
  } else {
    const int64_t first = input.size(0), second = single ? 1 : input.size(1);
    const int64_t time = a.batch_first && !single ? second : first, batch = a.batch_first && !single ? first : second;
    rows.resize(static_cast<size_t>(batch));
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = 0; t < time; ++t)
        rows[static_cast<size_t>(b)].push_back(a.batch_first && !single ? b * time + t : t * batch + b);
  }
  const auto batch = static_cast<int64_t>(rows.size());

  std::vector<Numbers> x(static_cast<size_t>(steps));
  const Numbers flat = input.to_vector<double>();
  for (int64_t i = 0; i < steps; ++i)
    x[static_cast<size_t>(i)] = Numbers(flat.begin() + i * in, flat.begin() + (i + 1) * in);
  const auto numbers = [&](size_t i, int64_t width) {
    return i < given.size() && given[i].defined()
               ? given[i].to_vector<double>()
               : Numbers(static_cast<size_t>(a.num_layers * directions * batch * width));
  };
  const Numbers h0 = numbers(0, real), c0 = numbers(1, hidden);
  const auto part = [](const Numbers& all, int64_t i, int64_t n) {
    return Numbers(all.begin() + i * n, all.begin() + (i + 1) * n);
  };

  Numbers last_h, last_c;
  size_t at = 0;
  for (int64_t layer = 0; layer < a.num_layers; ++layer) {
    std::vector<Numbers> y(x.size());
    for (int64_t d = 0; d < directions; ++d) {
      NaiveWeights w{params[at].to_vector<double>(), params[at + 1].to_vector<double>(), {}, {}, {}};
      if (a.has_biases) w.bias_ih = params[at + 2].to_vector<double>(), w.bias_hh = params[at + 3].to_vector<double>();
      if (projects) w.hr = params[at + static_cast<size_t>(each)].to_vector<double>();
      at += static_cast<size_t>(each + (projects ? 1 : 0));
      for (int64_t b = 0; b < batch; ++b) {
        std::vector<int64_t> order = rows[static_cast<size_t>(b)];
        if (d == 1) std::reverse(order.begin(), order.end());
        const int64_t place = (layer * directions + d) * batch + b;
        NaiveState s{part(h0, place, real), part(c0, place, hidden)};
        for (const int64_t row : order) {
          const auto r = static_cast<size_t>(row);
          s = naive_step(cell, w, x[r], s, hidden);
          y[r].insert(y[r].end(), s.h.begin(), s.h.end());
        }
        last_h.insert(last_h.end(), s.h.begin(), s.h.end());
        last_c.insert(last_c.end(), s.c.begin(), s.c.end());
      }
    }
    if (a.train && a.dropout > 0 && layer + 1 < a.num_layers) {
      const auto width = static_cast<size_t>(real * directions);
      RngKey key = a.key.value();
      key.offset += static_cast<uint64_t>(layer) * ((x.size() * width + 3) / 4);
      for (size_t i = 0; i < y.size() * width; ++i) {
        // Numbers follow the order of [T, B, ..], which rows have unless batches come first.
        double& v = y[i / width][i % width];
        const bool dropped = uniform_f32(philox(key, i / 4)[i % 4]) < static_cast<float>(a.dropout);
        v = dropped ? 0 : v / (1 - a.dropout);
      }
    }
    x = std::move(y);
  }
  Numbers out;
  for (const Numbers& row : x) out.insert(out.end(), row.begin(), row.end());
  Shape shape = input.shape();
  shape[shape.size() - 1] = real * directions;
  const auto state = [&](const Numbers& v, int64_t width) {
    return from_span<double>(
        v, single ? Shape{a.num_layers * directions, width} : Shape{a.num_layers * directions, batch, width});
  };
  return {from_span<double>(out, shape), state(last_h, real), cell == Cell::lstm ? state(last_c, hidden) : Tensor()};
}

}  // namespace strata::recurrent
