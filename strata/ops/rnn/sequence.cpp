// The records of whole sequences: rnn_tanh, rnn_relu, gru, lstm. Steps are cells.cpp's; what is here are layers,
// directions and lengths.

#include <algorithm>

#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/rnn/records.h"
#include "strata/ops/rnn/sequence_reference_inl.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using namespace recurrent;

struct Weights {
  Tensor ih, hh, bias_ih, bias_hh, hr;
};

// A call after its checks. Inside, x is [T, B, in] or packed, and states are [layers directions, B, ..].
class Sequences {
 public:
  Sequences(std::string_view op, Cell cell, const Tensor& input, const TensorList& given, const TensorList& params,
            const RecurrentArguments& a)
      : op_(op), cell_(cell), a_(a), directions_(a.bidirectional ? 2 : 1) {
    constexpr int64_t kMostLayers = int64_t{1} << 32;
    check(a.num_layers >= 1 && a.num_layers <= kMostLayers, op, "num_layers must be at least 1 and at most ",
          kMostLayers, ", got ", a.num_layers);
    check(a.dropout >= 0 && a.dropout <= 1, op, "dropout must be in [0, 1], got ", a.dropout);
    check<DTypeError>(is_floating(input.dtype()), op, "needs a floating dtype, got ", input.dtype());
    if (packed()) {
      check<ShapeError>(input.dim() == 2, op, "packed input must be [total of the lengths, in], got ", input);
      read_batch_sizes(input);
    } else {
      check<ShapeError>(input.dim() == 2 || input.dim() == 3, op, "Expected input to be 2D or 3D, got ", input.dim(),
                        "D instead");
      single_ = input.dim() == 2;
    }
    x_ = single_ ? input.unsqueeze(1) : packed() || !a.batch_first ? input : input.transpose(0, 1);
    check<ShapeError>(packed() || x_.size(0) > 0, op, "Expected sequence length to be larger than 0, got ", input);
    take_parameters(params);
    if (batch_ < 0) batch_ = packed() ? batch_of(given) : x_.size(1);
    hidden_state_ = state(given, 0, real_);
    has_first_ = !given.empty() && given[0].defined();
    if (cell == Cell::lstm) cell_state_ = state(given, 1, hidden_);
  }

  /// output, h and c.
  std::tuple<Tensor, Tensor, Tensor> run() {
    if (packed() && counts_.empty()) return sizes_only();
    if (packed()) find_rows();
    const RngKey key = dropout_key();
    TensorList last_h, last_c;
    Tensor x = x_;
    const int side = packed() ? 1 : 2;
    for (int64_t layer = 0; layer < a_.num_layers; ++layer) {
      TensorList outputs;
      for (int64_t d = 0; d < directions_; ++d) {
        const int64_t i = layer * directions_ + d;
        State s{hidden_state_.select(0, i), cell_ == Cell::lstm ? cell_state_.select(0, i) : Tensor()};
        outputs.push_back(direction(weights_[static_cast<size_t>(i)], x, s, d == 1));
        last_h.push_back(s.h);
        last_c.push_back(s.c);
      }
      x = directions_ == 1 ? outputs[0] : cat(outputs, side);
      if (drops() && layer + 1 < a_.num_layers) {
        RngKey own = key;
        own.offset += static_cast<uint64_t>(layer) * blocks();
        x = strata::dropout(x, a_.dropout, own);
      }
    }
    // Under autocast steps run low, and results have the dtype of the first states.
    const auto own = [&](const Tensor& t) { return t.to(x_.dtype()); };
    x = own(x);
    const Tensor h = own(stack(last_h, 0)), c = cell_ == Cell::lstm ? own(stack(last_c, 0)) : Tensor();
    if (single_) return {x.squeeze(1), h.squeeze(1), c.defined() ? c.squeeze(1) : c};
    return {packed() || !a_.batch_first ? x : x.transpose(0, 1), h, c};
  }

 private:
  bool packed() const { return a_.batch_sizes.defined(); }
  bool drops() const { return a_.train && a_.dropout > 0; }

  void read_batch_sizes(const Tensor& input) {
    const Tensor& sizes = a_.batch_sizes;
    check<ShapeError>(sizes.dim() == 1 && sizes.dtype() == DType::i64, op_, "batch_sizes must be i64 [T], got ", sizes);
    check<ShapeError>(sizes.size(0) > 0, op_, "Expected sequence length to be larger than 0, got ", sizes);
    if (sizes.device().is_meta()) return;  // a dry run: sizes come from the states
    counts_ = sizes.to_vector<int64_t>();
    int64_t total = 0;
    for (size_t t = 0; t < counts_.size(); ++t) {
      check(counts_[t] >= 1 && (t == 0 || counts_[t] <= counts_[t - 1]), op_,
            "batch_sizes must be positive and never rise, got ", counts_[t], " at step ", static_cast<int64_t>(t));
      check<ShapeError>(counts_[t] <= input.size(0) - total, op_,
                        "batch_sizes add up to more than the rows of the input, ", input);
      total += counts_[t];
    }
    check<ShapeError>(total == input.size(0), op_, "batch_sizes add up to ", total, ", the input is ", input);
    batch_ = counts_[0];
  }
  int64_t batch_of(const TensorList& given) const {
    check<ShapeError>(!given.empty() && given[0].defined() && given[0].dim() == 3, op_,
                      "a dry run of packed sequences needs hx");
    return given[0].size(1);
  }

  void take_parameters(const TensorList& params) {
    const auto pairs = static_cast<size_t>(a_.num_layers * directions_), each = size_t{a_.has_biases ? 4u : 2u};
    projects_ = cell_ == Cell::lstm && params.size() == pairs * (each + 1);
    check<ShapeError>(projects_ || params.size() == pairs * each, op_, "params must hold ",
                      static_cast<int64_t>(pairs * each), " tensors for ", a_.num_layers, " layers of ", directions_,
                      directions_ == 1 ? " direction" : " directions", a_.has_biases ? " with" : " without",
                      " biases, got ", static_cast<int64_t>(params.size()));
    const Tensor& first = params[1];
    check<ShapeError>(first.dim() == 2 && first.size(0) % gates(cell_) == 0, op_, "W_hh is ", first, ", wanted ",
                      gates(cell_), " hidden rows");
    hidden_ = first.size(0) / gates(cell_);
    real_ = projects_ ? params[each].size(0) : hidden_;
    const int64_t rows = gates(cell_) * hidden_;
    size_t at = 0;
    for (size_t i = 0; i < pairs; ++i) {
      const int64_t width = i < static_cast<size_t>(directions_) ? x_.size(-1) : real_ * directions_;
      const auto take = [&](const char* what, const Shape& shape) {
        const Tensor& t = params[at++];
        check<ShapeError>(t.defined() && t.shape() == shape, op_, what, " of layer ",
                          static_cast<int64_t>(i) / directions_, " must be ", shape, ", got ", t);
        return t;
      };
      if (i == 0)
        check<ShapeError>(params[0].dim() == 2 && params[0].size(1) == width, op_,
                          "input.size(-1) must be equal to input_size. Expected ", params[0].size(-1), ", got ", width);
      Weights w;
      w.ih = take("W_ih", {rows, width});
      w.hh = take("W_hh", {rows, real_});
      if (a_.has_biases) {
        w.bias_ih = take("b_ih", {rows});
        w.bias_hh = take("b_hh", {rows});
      }
      if (projects_) w.hr = take("W_hr", {real_, hidden_});
      weights_.push_back(w);
    }
  }

  Tensor state(const TensorList& given, size_t i, int64_t width) const {
    const Shape shape{a_.num_layers * directions_, batch_, width};
    if (given.size() <= i || !given[i].defined()) return no_state(x_, shape);
    const Tensor s = single_ && given[i].dim() == 2 ? given[i].unsqueeze(1) : given[i];
    check<ShapeError>(s.shape() == shape, op_, "Expected hidden size ", shape, ", got ", s.shape());
    return s;
  }

  // Blocks of random numbers that a layer's dropout reads.
  uint64_t blocks() const {
    const int64_t rows = packed() ? x_.size(0) : x_.size(0) * batch_;
    return (static_cast<uint64_t>(rows * real_ * directions_) + 3) / 4;
  }
  RngKey dropout_key() const {
    if (!drops() || a_.num_layers == 1) return {};
    return a_.key ? *a_.key : default_generator().next(blocks() * static_cast<uint64_t>(a_.num_layers - 1));
  }

  std::tuple<Tensor, Tensor, Tensor> sizes_only() const {
    return {no_state(x_, {x_.size(0), real_ * directions_}), hidden_state_, cell_state_};
  }

  // Where sequences have less than all steps: for each row of the packed input its place among [T B], and how many rows
  // are those of earlier steps.
  void find_rows() {
    if (counts_.back() == batch_) return;
    std::vector<int64_t> places;
    for (size_t t = 0; t < counts_.size(); ++t) {
      firsts_.push_back(static_cast<int64_t>(places.size()));
      for (int64_t b = 0; b < counts_[t]; ++b) places.push_back(static_cast<int64_t>(t) * batch_ + b);
    }
    places_ = rows_on(places, x_.device());
    sizes_there_ = rows_on(counts_, x_.device());
  }
  bool lengths() const { return places_.defined(); }

  // What the input gives the gates, one product for all steps: [T, B, rows], with lengths packed as the input.
  Tensor from_input(const Weights& w, const Tensor& x) const {
    const Tensor all = input_product(x, w.ih, w.bias_ih);
    if (!packed() || lengths()) return all;
    return all.reshape({static_cast<int64_t>(counts_.size()), batch_, all.size(1)});
  }
  TensorList steps_of(const Tensor& from_x) const {
    if (!lengths()) return unbind(from_x, 0);
    TensorList steps;
    for (size_t t = 0; t < counts_.size(); ++t) steps.push_back(from_x.narrow(0, firsts_[t], counts_[t]));
    return steps;
  }

  State step(const Weights& w, const Tensor& from_x, const State& before) const {
    State after = advance(cell_, from_x, linear(before.h, w.hh, w.bias_hh), before);
    if (w.hr.defined()) after.h = linear(after.h, w.hr);
    return after;
  }

  // A projection h = W_hr m of what the cell gives, m: the gates get W_hh W_hr m, so that all steps are a recurrence of
  // m, whose weight is that product, and one product for h of all steps after it. It multiplies more than steps one by
  // one do, on a card in fewer launches than a step has.
  bool merges(const Weights& w) const { return x_.device().is_cuda() || 2 * w.hr.size(0) >= hidden_; }

  // What the first h, which is no such product, gives the gates, added to what the input gives them.
  Tensor with_first(const Weights& w, const Tensor& from_x, const Tensor& h, bool reverse) const {
    if (!has_first_) return from_x;
    const int64_t steps = lengths() ? static_cast<int64_t>(counts_.size()) : from_x.size(0);
    std::vector<int64_t> rows(static_cast<size_t>(batch_));
    for (int64_t b = 0, t = reverse ? steps - 1 : 0; b < batch_; ++b) {
      while (reverse && lengths() && counts_[static_cast<size_t>(t)] <= b) --t;
      rows[static_cast<size_t>(b)] = (lengths() ? firsts_[static_cast<size_t>(t)] : t * batch_) + b;
    }
    return index_add(flatten(from_x, 0, -2), 0, rows_on(rows, x_.device()), linear(h, w.hh).to(from_x.dtype()))
        .reshape(from_x.shape());
  }

  // x through one direction: its outputs in the order of x; s becomes the last state of each sequence.
  Tensor direction(const Weights& w, const Tensor& x, State& s, bool reverse) const {
    Tensor from_x = from_input(w, x);
    const bool projects = w.hr.defined();
    if ((!projects || merges(w)) &&
        has_recurrence(cell_, from_x.dtype(), x.device(), batch_, hidden_, lengths() || projects)) {
      if (projects) from_x = with_first(w, from_x, s.h, reverse);
      const State first{projects ? no_state(from_x, {batch_, hidden_}) : s.h, s.c};
      auto [y, states] = recurrence(cell_, from_x, first, projects ? matmul(w.hh, w.hr) : w.hh, w.bias_hh, sizes_there_,
                                    places_, reverse);
      if (projects) y = input_product(y, w.hr, {});
      const int64_t last = reverse ? 0 : y.size(0) - 1;
      s = {y.select(0, last), states.defined() ? states.select(0, last) : Tensor()};
      if (!packed()) return y;
      const Tensor rows = y.reshape({-1, y.size(2)});
      return lengths() ? index_select(rows, 0, places_) : rows;
    }
    const TensorList steps = steps_of(from_x);
    TensorList outputs(steps.size());
    if (lengths()) return packed_direction(w, steps, s, reverse, outputs);
    for (size_t i = 0; i < steps.size(); ++i) {
      const size_t t = reverse ? steps.size() - 1 - i : i;
      s = step(w, steps[t], s);
      outputs[t] = s.h;
    }
    return packed() ? cat(outputs, 0) : stack(outputs, 0);
  }
  Tensor packed_direction(const Weights& w, const TensorList& steps, State& s, bool reverse,
                          TensorList& outputs) const {
    const auto rows = [&](const State& of, int64_t from, int64_t to) {
      const auto part = [&](const Tensor& t) { return t.defined() ? t.narrow(0, from, to - from) : t; };
      return State{part(of.h), part(of.c)};
    };
    const auto joined = [&](const State& a, const State& b) {
      return State{cat({a.h, b.h}, 0), a.c.defined() ? cat({a.c, b.c}, 0) : a.c};
    };
    if (reverse) {  // sequences join as their last steps come
      const State start = s;
      s = rows(start, 0, 0);
      for (size_t t = steps.size(); t-- > 0;) {
        const int64_t n = s.h.size(0);
        if (n < counts_[t]) s = n == 0 ? rows(start, 0, counts_[t]) : joined(s, rows(start, n, counts_[t]));
        s = step(w, steps[t], s);
        outputs[t] = s.h;
      }
      return cat(outputs, 0);
    }
    std::vector<State> done;
    for (size_t t = 0; t < steps.size(); ++t) {  // sequences leave after their last steps, the shortest first
      const int64_t n = s.h.size(0);
      if (counts_[t] < n) {
        done.push_back(rows(s, counts_[t], n));
        s = rows(s, 0, counts_[t]);
      }
      s = step(w, steps[t], s);
      outputs[t] = s.h;
    }
    while (!done.empty()) {
      s = joined(s, done.back());
      done.pop_back();
    }
    return cat(outputs, 0);
  }

  std::string_view op_;
  Cell cell_;
  RecurrentArguments a_;
  int64_t directions_, hidden_ = 0, real_ = 0, batch_ = -1;
  bool single_ = false, projects_ = false, has_first_ = false;
  std::vector<int64_t> counts_, firsts_;  // of the steps, packed
  Tensor x_, hidden_state_, cell_state_, places_, sizes_there_;
  std::vector<Weights> weights_;
};

Cost sequence_cost(Cell cell, const Tensor& input, const TensorList& params) {
  double flops = 0, bytes = 2.0 * static_cast<double>(input.nbytes());
  const double steps = input.dim() > 0 && input.size(-1) > 0 ? static_cast<double>(input.numel() / input.size(-1)) : 0;
  for (const Tensor& p : params) {
    flops += (p.dim() == 2 ? 2.0 : 10.0 / static_cast<double>(gates(cell))) * steps * static_cast<double>(p.numel());
    bytes += static_cast<double>(p.nbytes());
  }
  return {flops, bytes};
}

using Pair = std::tuple<Tensor, Tensor>;
using Triple = std::tuple<Tensor, Tensor, Tensor>;
using Plain = Op<Pair(const Tensor&, const Tensor&, const TensorList&, bool, int64_t, double, bool, bool, bool,
                      const Tensor&, std::optional<RngKey>)>;

template <Cell kCell>
Pair plain(const Tensor& input, const Tensor& hx, const TensorList& params, bool has_biases, int64_t num_layers,
           double dropout, bool train, bool bidirectional, bool batch_first, const Tensor& batch_sizes,
           std::optional<RngKey> key) {
  constexpr std::string_view op = kCell == Cell::tanh ? "rnn_tanh" : kCell == Cell::relu ? "rnn_relu" : "gru";
  auto [y, h, c] = Sequences(op, kCell, input, {hx}, params,
                             {has_biases, num_layers, dropout, train, bidirectional, batch_first, batch_sizes, key})
                       .run();
  return {y, h};
}
template <Cell kCell>
Pair plain_reference(const Tensor& input, const Tensor& hx, const TensorList& params, bool has_biases,
                     int64_t num_layers, double dropout, bool train, bool bidirectional, bool batch_first,
                     const Tensor& batch_sizes, std::optional<RngKey> key) {
  auto [y, h, c] =
      naive_sequences(kCell, input, {hx}, params,
                      {has_biases, num_layers, dropout, train, bidirectional, batch_first, batch_sizes, key});
  return {y, h};
}
template <Cell kCell>
Cost plain_cost(const Tensor& input, const Tensor&, const TensorList& params, bool, int64_t, double, bool, bool, bool,
                const Tensor&, std::optional<RngKey>) {
  return sequence_cost(kCell, input, params);
}

constexpr int64_t kIn = 3, kHidden = 4;
TensorList parameters(Samples& s, int64_t gate_count, int64_t layers, int64_t directions, bool biases,
                      int64_t projection = 0) {
  const int64_t rows = gate_count * kHidden, real = projection ? projection : kHidden;
  TensorList all;
  const auto add = [&](const Shape& shape) { all.push_back(s.uniform(shape, -0.5, 0.5)); };
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (int64_t d = 0; d < directions; ++d) {
      add({rows, layer == 0 ? kIn : real * directions});
      add({rows, real});
      if (biases) add({rows});
      if (biases) add({rows});
      if (projection) add({projection, kHidden});
    }
  }
  return all;
}
Tensor counted(const std::vector<int64_t>& sizes) {
  return from_span<int64_t>(sizes, {static_cast<int64_t>(sizes.size())});
}
// Lengths 4, 3, 3, 1.
Tensor packed_sizes() {
  return counted({4, 3, 3, 1});
}

template <Cell kCell>
void plain_samples(Samples& s) {
  constexpr int64_t g = gates(kCell);
  const auto none = std::nullopt;
  const auto state = [&](int64_t n, int64_t batch) { return s.uniform({n, batch, kHidden}, -1, 1); };
  s.add(s.tensor({3, 2, kIn}), state(1, 2), parameters(s, g, 1, 1, true));
  s.add(s.tensor({2, 3, kIn}), state(4, 2), parameters(s, g, 2, 2, true), true, 2, 0.0, false, true, true)
      .named("two layers, both directions, batch first");
  s.add(s.tensor({3, kIn}), none, parameters(s, g, 1, 1, false), false).named("one sequence, no biases, from zeros");
  s.add(s.tensor({11, kIn}), state(4, 4), parameters(s, g, 2, 2, true), true, 2, 0.0, false, true, false,
        packed_sizes())
      .named("packed");
  s.add(s.tensor({3, 2, kIn}), none, parameters(s, g, 2, 1, true), true, 2, 0.5, true, false, false, none, RngKey{5, 2})
      .named("dropout");
  s.add(s.tensor({3, 0, kIn}), none, parameters(s, g, 1, 2, true), true, 1, 0.0, false, true).named("empty batch");
  s.invalid<ShapeError>("params must hold 4 tensors", s.tensor({3, 2, kIn}), none, parameters(s, g, 1, 1, false));
  s.invalid<ShapeError>("Expected input to be 2D or 3D", s.tensor({kIn}), none, parameters(s, g, 1, 1, true));
  s.invalid<ShapeError>("Expected 3, got 2", s.tensor({3, 2, 2}), none, parameters(s, g, 1, 1, true));
  s.invalid<ShapeError>("Expected hidden size", s.tensor({3, 2, kIn}), state(1, 3), parameters(s, g, 1, 1, true));
  s.invalid<ShapeError>("larger than 0", s.tensor({0, 2, kIn}), none, parameters(s, g, 1, 1, true));
  s.invalid<ShapeError>("add up to", s.tensor({10, kIn}), none, parameters(s, g, 1, 1, true), true, 1, 0.0, false,
                        false, false, packed_sizes());
  s.invalid<ValueError>("never rise", s.tensor({3, kIn}), none, parameters(s, g, 1, 1, true), true, 1, 0.0, false,
                        false, false, counted({1, 2}));
  if (s.benchmarking())
    s.bench(s.tensor({32, 16, 64}), none,
            TensorList{s.uniform({g * 128, 64}, -0.1, 0.1), s.uniform({g * 128, 128}, -0.1, 0.1),
                       s.uniform({g * 128}, -0.1, 0.1), s.uniform({g * 128}, -0.1, 0.1)});
}

#define STRATA_RECURRENT_ARGUMENTS                                                                      \
  "Tensor[] params, bool has_biases=true, int num_layers=1, float dropout=0.0, bool train=false, bool " \
  "bidirectional=false, bool batch_first=false, Tensor? batch_sizes=None, RngKey? key=None)"
#define STRATA_RECURRENT_DOC                                                                                         \
  " The input is [T, B, in] ([B, T, in] with batch_first), [T, in], or with batch_sizes (i64 [T], how many of the "  \
  "sequences have each step, never rising) packed: [total of the lengths, in], the first step of all sequences, "    \
  "then the second of those that have one, and so on. States are [layers directions, B, hidden]; without hx they "   \
  "start at zero. params holds, for each layer and direction, W_ih [gates hidden, in], W_hh [gates hidden, hidden] " \
  "and, with has_biases, b_ih and b_hh. With train, what each layer but the last gives is dropped with probability " \
  "dropout: element i of layer l by number i of the key's stream from block l ceil(elements / 4) on; the key comes " \
  "from the default generator where there is none. "

const Plain rnn_tanh_op{{
    .schema = "rnn_tanh(Tensor input, Tensor? hx, " STRATA_RECURRENT_ARGUMENTS " -> (Tensor output, Tensor h)",
    .doc = "Layers of h' = tanh(W_ih x + b_ih + W_hh h + b_hh) over a sequence: the last layer's output "
           "[T, B, directions hidden] and the last states." STRATA_RECURRENT_DOC "ShapeError, ValueError.",
    .example = "auto [y, h] = rnn_tanh(zeros({5, 2, 3}), {}, {ones({4, 3}), ones({4, 4})}, {.has_biases = false}); "
               "assert(y.shape() == Shape({5, 2, 4}) && h.shape() == Shape({1, 2, 4}));",
    .composed = plain<Cell::tanh>,
    .cost = plain_cost<Cell::tanh>,
    .samples = plain_samples<Cell::tanh>,
    .reference = plain_reference<Cell::tanh>,
}};

const Plain rnn_relu_op{{
    .schema = "rnn_relu(Tensor input, Tensor? hx, " STRATA_RECURRENT_ARGUMENTS " -> (Tensor output, Tensor h)",
    .doc = "Layers of h' = relu(W_ih x + b_ih + W_hh h + b_hh) over a sequence: the last layer's output "
           "[T, B, directions hidden] and the last states." STRATA_RECURRENT_DOC "ShapeError, ValueError.",
    .example = "auto [y, h] = rnn_relu(ones({2, 1, 3}), {}, {ones({1, 3}), ones({1, 1})}, {.has_biases = false}); "
               "assert(y.to_vector<float>() == std::vector<float>({3, 6}));",
    .composed = plain<Cell::relu>,
    .cost = plain_cost<Cell::relu>,
    .samples = plain_samples<Cell::relu>,
    .reference = plain_reference<Cell::relu>,
}};

const Plain gru_op{{
    .schema = "gru(Tensor input, Tensor? hx, " STRATA_RECURRENT_ARGUMENTS " -> (Tensor output, Tensor h)",
    .doc = "Layers of gated recurrent units over a sequence, gates r, z, n: n = tanh(W_in x + b_in + r (W_hn h + "
           "b_hn)), h' = (1 - z) n + z h (Cho et al., arXiv:1406.1078): the last layer's output "
           "[T, B, directions hidden] and the last states." STRATA_RECURRENT_DOC "ShapeError, ValueError.",
    .example = "auto [y, h] = gru(zeros({5, 2, 3}), {}, {ones({12, 3}), ones({12, 4})}, {.has_biases = false}); "
               "assert(y.shape() == Shape({5, 2, 4}) && h.sum().item() == 0);",
    .composed = plain<Cell::gru>,
    .cost = plain_cost<Cell::gru>,
    .samples = plain_samples<Cell::gru>,
    .reference = plain_reference<Cell::gru>,
}};

const Op<Triple(const Tensor&, const TensorList&, const TensorList&, bool, int64_t, double, bool, bool, bool,
                const Tensor&, std::optional<RngKey>)>
    lstm_op{{
        .schema =
            "lstm(Tensor input, Tensor[] hx, " STRATA_RECURRENT_ARGUMENTS " -> (Tensor output, Tensor h, Tensor c)",
        .doc = "Layers of long short-term memory over a sequence, gates i, f, g, o: c' = sigmoid(f) c + sigmoid(i) "
               "tanh(g), h' = sigmoid(o) tanh(c') (Hochreiter and Schmidhuber 1997): the last layer's output "
               "[T, B, directions hidden] and the last states h and c." STRATA_RECURRENT_DOC
               "hx is {h, c} or empty. With one more matrix W_hr [projection, hidden] at the end of each direction's "
               "parameters h is W_hr h' (Sak et al., arXiv:1402.1128). ShapeError, ValueError.",
        .example = "auto [y, h, c] = lstm(zeros({5, 2, 3}), {}, {ones({16, 3}), ones({16, 4})}, "
                   "{.has_biases = false}); assert(y.shape() == Shape({5, 2, 4}) && c.sum().item() == 0);",
        .composed =
            [](const Tensor& input, const TensorList& hx, const TensorList& params, bool has_biases, int64_t num_layers,
               double dropout, bool train, bool bidirectional, bool batch_first, const Tensor& batch_sizes,
               std::optional<RngKey> key) {
              check<ShapeError>(hx.empty() || hx.size() == 2, "lstm", "hx must be {h, c} or empty, got ",
                                static_cast<int64_t>(hx.size()), " tensors");
              return Sequences("lstm", Cell::lstm, input, hx, params,
                               {has_biases, num_layers, dropout, train, bidirectional, batch_first, batch_sizes, key})
                  .run();
            },
        .cost = [](const Tensor& input, const TensorList&, const TensorList& params, bool, int64_t, double, bool, bool,
                   bool, const Tensor&, std::optional<RngKey>) { return sequence_cost(Cell::lstm, input, params); },
        .samples =
            [](Samples& s) {
              const auto none = std::nullopt;
              const auto states = [&](int64_t n, int64_t batch, int64_t real = kHidden) {
                return TensorList{s.uniform({n, batch, real}, -1, 1), s.tensor({n, batch, kHidden})};
              };
              s.add(s.tensor({3, 2, kIn}), states(1, 2), parameters(s, 4, 1, 1, true));
              s.add(s.tensor({2, 3, kIn}), states(4, 2), parameters(s, 4, 2, 2, true), true, 2, 0.0, false, true, true)
                  .named("two layers, both directions, batch first");
              s.add(s.tensor({3, kIn}), TensorList(), parameters(s, 4, 1, 1, false), false)
                  .named("one sequence, no biases, from zeros");
              s.add(s.tensor({3, 2, kIn}), states(4, 2, 2), parameters(s, 4, 2, 2, true, 2), true, 2, 0.0, false, true)
                  .named("projection");
              s.add(s.tensor({11, kIn}), states(4, 4, 2), parameters(s, 4, 2, 2, false, 2), false, 2, 0.0, false, true,
                    false, packed_sizes())
                  .named("packed, projection");
              s.add(s.tensor({3, 2, kIn}), TensorList(), parameters(s, 4, 2, 1, true), true, 2, 0.5, true, false, false,
                    none, RngKey{5, 2})
                  .named("dropout");
              s.add(s.tensor({3, 0, kIn}), TensorList(), parameters(s, 4, 1, 2, true), true, 1, 0.0, false, true)
                  .named("empty batch");
              s.invalid<ShapeError>("params must hold 4 tensors", s.tensor({3, 2, kIn}), TensorList(),
                                    parameters(s, 4, 1, 1, false));
              s.invalid<ShapeError>("hx must be", s.tensor({3, 2, kIn}), TensorList{s.tensor({1, 2, kHidden})},
                                    parameters(s, 4, 1, 1, true));
              s.invalid<ShapeError>("Expected hidden size", s.tensor({3, 2, kIn}), states(1, 2, 3),
                                    parameters(s, 4, 1, 1, true));
              s.invalid<ValueError>("dropout must be", s.tensor({3, 2, kIn}), TensorList(),
                                    parameters(s, 4, 1, 1, true), true, 1, 1.5);
              s.invalid<ValueError>("num_layers", s.tensor({3, 2, kIn}), TensorList(), parameters(s, 4, 1, 1, true),
                                    true, 0);
              if (s.benchmarking())
                s.bench(s.tensor({32, 16, 64}), TensorList(),
                        TensorList{s.uniform({512, 64}, -0.1, 0.1), s.uniform({512, 128}, -0.1, 0.1),
                                   s.uniform({512}, -0.1, 0.1), s.uniform({512}, -0.1, 0.1)});
            },
        .reference =
            [](const Tensor& input, const TensorList& hx, const TensorList& params, bool has_biases, int64_t num_layers,
               double dropout, bool train, bool bidirectional, bool batch_first, const Tensor& batch_sizes,
               std::optional<RngKey> key) {
              return naive_sequences(
                  Cell::lstm, input, hx, params,
                  {has_biases, num_layers, dropout, train, bidirectional, batch_first, batch_sizes, key});
            },
    }};

Pair call(const Plain& op, const Tensor& input, const Tensor& hx, const TensorList& params,
          const RecurrentArguments& a) {
  return op(input, hx, params, a.has_biases, a.num_layers, a.dropout, a.train, a.bidirectional, a.batch_first,
            a.batch_sizes, a.key);
}

}  // namespace

std::tuple<Tensor, Tensor> rnn_tanh(const Tensor& input, const Tensor& hx, const TensorList& params,
                                    const RecurrentArguments& options) {
  return call(rnn_tanh_op, input, hx, params, options);
}
std::tuple<Tensor, Tensor> rnn_relu(const Tensor& input, const Tensor& hx, const TensorList& params,
                                    const RecurrentArguments& options) {
  return call(rnn_relu_op, input, hx, params, options);
}
std::tuple<Tensor, Tensor> gru(const Tensor& input, const Tensor& hx, const TensorList& params,
                               const RecurrentArguments& options) {
  return call(gru_op, input, hx, params, options);
}
std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, const TensorList& hx, const TensorList& params,
                                        const RecurrentArguments& a) {
  return lstm_op(input, hx, params, a.has_biases, a.num_layers, a.dropout, a.train, a.bidirectional, a.batch_first,
                 a.batch_sizes, a.key);
}

}  // namespace strata
