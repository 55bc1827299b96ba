// What the gates' sums make of a state.

#include <array>
#include <cmath>

#include "strata/core/node.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/rnn/records.h"
#include "strata/ops/rnn/step_kernel.h"
#include "strata/ops/view/view.h"

namespace strata::recurrent {
namespace {

using Pair = std::tuple<Tensor, Tensor>;

Tensor gate(const Tensor& all, int64_t index, int64_t hidden) {
  return all.narrow(1, index * hidden, hidden);
}
Pair lstm_composed(const Tensor& from_x, const Tensor& from_h, const Tensor& before) {
  const int64_t hidden = from_x.size(1) / 4;
  const Tensor sum = from_x + from_h;
  const Tensor c = sigmoid(gate(sum, 1, hidden)) * before + sigmoid(gate(sum, 0, hidden)) * tanh(gate(sum, 2, hidden));
  return {sigmoid(gate(sum, 3, hidden)) * tanh(c), c};
}
Tensor gru_composed(const Tensor& from_x, const Tensor& from_h, const Tensor& before) {
  const int64_t hidden = from_x.size(1) / 3;
  const Tensor r = sigmoid(gate(from_x, 0, hidden) + gate(from_h, 0, hidden));
  const Tensor z = sigmoid(gate(from_x, 1, hidden) + gate(from_h, 1, hidden));
  const Tensor n = tanh(gate(from_x, 2, hidden) + r * gate(from_h, 2, hidden));
  return n + z * (before - n);
}

TensorMeta infer_step(Cell cell, const Tensor& from_x, const Tensor& from_h, const Tensor& before,
                      std::string_view op) {
  check<ShapeError>(from_x.dim() == 2 && before.dim() == 2 && from_x.size(0) == before.size(0) &&
                        from_x.size(1) == gates(cell) * before.size(1) && from_h.shape() == from_x.shape(),
                    op, "from_x is ", from_x, ", from_h ", from_h, ", the state before ", before);
  check<DTypeError>(is_floating(from_x.dtype()) && from_h.dtype() == from_x.dtype() && before.dtype() == from_x.dtype(),
                    op, "wants one floating dtype, got ", from_x, ", ", from_h, " and ", before);
  return like(before);
}
void launch(Cell cell, Tensor& h, void* c, const Tensor& from_x, const Tensor& from_h, const Tensor& before,
            decltype(&step_cuda) run) {
  const Tensor x = contiguous(from_x), s = contiguous(from_h), state = contiguous(before);
  run(cell, h.dtype(), h.size(0), h.size(1), x.raw_data(), s.raw_data(), state.raw_data(), h.raw_data(), c);
}
template <decltype(&step_cuda) kRun>
void lstm_kernel(Tensor& h, Tensor& c, const Tensor& from_x, const Tensor& from_h, const Tensor& before) {
  launch(Cell::lstm, h, c.raw_data(), from_x, from_h, before, kRun);
}
template <decltype(&step_cuda) kRun>
void gru_kernel(Tensor& h, const Tensor& from_x, const Tensor& from_h, const Tensor& before) {
  launch(Cell::gru, h, nullptr, from_x, from_h, before, kRun);
}

template <Cell kCell>
void samples_step(Samples& s) {
  for (const auto& [batch, hidden] : {std::pair<int64_t, int64_t>{4, 5}, {37, 130}, {0, 3}})
    s.add(s.tensor({batch, gates(kCell) * hidden}), s.tensor({batch, gates(kCell) * hidden}),
          s.tensor({batch, hidden}));
  const Tensor x = s.tensor({2, gates(kCell) * 3}), t = s.tensor({gates(kCell) * 3, 2}).t();
  s.add(t, x, s.tensor({3, 2}).t()).named("strided");
  s.invalid<ShapeError>("the state before", x, x, s.tensor({2, 2}));
}
// The state of one sequence after the other, the gates' sums being what naive_step() makes of an input of no numbers.
template <Cell kCell>
NaiveState naive(const Tensor& from_x, const Tensor& from_h, const Tensor& before) {
  const Numbers x = from_x.to_vector<double>(), s = from_h.to_vector<double>(), was = before.to_vector<double>();
  const int64_t hidden = before.size(1), width = from_x.size(1);
  NaiveState all;
  for (int64_t b = 0; b < before.size(0); ++b) {
    const NaiveWeights w{{},
                         Numbers(static_cast<size_t>(width * hidden)),
                         Numbers(x.begin() + b * width, x.begin() + (b + 1) * width),
                         Numbers(s.begin() + b * width, s.begin() + (b + 1) * width),
                         {}};
    const Numbers own(was.begin() + b * hidden, was.begin() + (b + 1) * hidden);
    const NaiveState one = naive_step(kCell, w, {}, {own, own}, hidden);
    all.h.insert(all.h.end(), one.h.begin(), one.h.end());
    all.c.insert(all.c.end(), one.c.begin(), one.c.end());
  }
  return all;
}

const Op<Pair(const Tensor&, const Tensor&, const Tensor&)> lstm_step_op{{
    .schema = "lstm_step(Tensor from_x, Tensor from_h, Tensor c) -> (Tensor h, Tensor c_next)",
    .internal = true,
    .doc = "A step of lstm: from_x and from_h [B, 4 hidden] are what input and state give the gates i, f, g, o, c "
           "[B, hidden] is the cell. ShapeError, DTypeError.",
    .infer =
        [](const Tensor& from_x, const Tensor& from_h, const Tensor& c) {
          const TensorMeta m = infer_step(Cell::lstm, from_x, from_h, c, "lstm_step");
          return std::array<TensorMeta, 2>{m, m};
        },
    .kernels = {.cuda = STRATA_CUDA_KERNEL(lstm_kernel<step_cuda>)},
    .composed = lstm_composed,
    .cost =
        [](const Tensor& from_x, const Tensor&, const Tensor& c) {
          return Cost{10.0 * from_x.numel(), 2.0 * from_x.nbytes() + 3.0 * c.nbytes()};
        },
    .samples = samples_step<Cell::lstm>,
    .reference =
        [](const Tensor& from_x, const Tensor& from_h, const Tensor& c) {
          const NaiveState s = naive<Cell::lstm>(from_x, from_h, c);
          return Pair(from_span<double>(s.h, c.shape()), from_span<double>(s.c, c.shape()));
        },
}};
const Op<Tensor(const Tensor&, const Tensor&, const Tensor&)> gru_step_op{{
    .schema = "gru_step(Tensor from_x, Tensor from_h, Tensor h) -> Tensor",
    .internal = true,
    .doc = "A step of gru: from_x and from_h [B, 3 hidden] are what input and state give the gates r, z, n, h [B, "
           "hidden] is the state. ShapeError, DTypeError.",
    .infer = [](const Tensor& from_x, const Tensor& from_h,
                const Tensor& h) { return infer_step(Cell::gru, from_x, from_h, h, "gru_step"); },
    .kernels = {.cuda = STRATA_CUDA_KERNEL(gru_kernel<step_cuda>)},
    .composed = gru_composed,
    .cost =
        [](const Tensor& from_x, const Tensor&, const Tensor& h) {
          return Cost{10.0 * from_x.numel(), 2.0 * from_x.nbytes() + 2.0 * h.nbytes()};
        },
    .samples = samples_step<Cell::gru>,
    .reference = [](const Tensor& from_x, const Tensor& from_h,
                    const Tensor& h) { return from_span<double>(naive<Cell::gru>(from_x, from_h, h).h, h.shape()); },
}};

}  // namespace

State advance(Cell cell, const Tensor& from_x, const Tensor& from_h, const State& before) {
  if (cell == Cell::tanh) return {tanh(from_x + from_h), {}};
  if (cell == Cell::relu) return {relu(from_x + from_h), {}};
  const Tensor& state = cell == Cell::lstm ? before.c : before.h;
  // In one launch; under autocast the parts may differ in their dtype.
  const bool once = from_x.device().is_cuda() && from_h.dtype() == from_x.dtype() && state.dtype() == from_x.dtype();
  if (cell == Cell::gru) return {once ? gru_step_op(from_x, from_h, state) : gru_composed(from_x, from_h, state), {}};
  const auto [h, c] = once ? lstm_step_op(from_x, from_h, state) : lstm_composed(from_x, from_h, state);
  return {h, c};
}

}  // namespace strata::recurrent
