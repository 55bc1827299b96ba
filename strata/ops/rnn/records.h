#pragma once
// What the records of this family share: one step, written with ops and by hand.

#include <string_view>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/rnn/rnn.h"

namespace strata::recurrent {

enum class Cell : uint8_t { tanh, relu, lstm, gru };

constexpr int64_t gates(Cell cell) {
  return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1;
}

/// c is undefined but for the LSTM.
struct State {
  Tensor h, c;
};
/// A state of zeros, with the dtype and device of `like`.
Tensor no_state(const Tensor& like, const Shape& shape);
/// Numbers of rows, or counts, on a device: queued behind its work without waiting for it.
Tensor rows_on(const std::vector<int64_t>& rows, const Device& device);
/// The states [B, hidden] after one step: from_x and from_h [B, gates hidden] are what the input and h give the gates.
State advance(Cell cell, const Tensor& from_x, const Tensor& from_h, const State& before);

/// The gradients of a step of lstm or gru by ops, for what input and h give the gates and for the state before, c or h
/// (of which what flows beside from_h). `ggates`, where defined, is that of the gates that the step kept.
std::tuple<Tensor, Tensor, Tensor> step_gradients(Cell cell, const Tensor& gh, const Tensor& gc, const Tensor& ggates,
                                                  const Tensor& before, const Tensor& c, const Tensor& gates);

/// a b of matrices, and x weight^T + bias along x's last dimension, for all steps at once: of f32 on a card with
/// TF32 where set_allow_tf32_convolutions() says so, which gradients keep.
Tensor product(const Tensor& a, const Tensor& b);
Tensor input_product(const Tensor& x, const Tensor& weight, const Tensor& bias);

/// Whether recurrence() is the way to go there: it has a kernel. Where it multiplies more than steps by ops do, of
/// sequences with lengths of their own and with a projection, only up to where those would be faster.
bool has_recurrence(Cell cell, DType t, const Device& device, int64_t batch, int64_t hidden, bool multiplies_more);
/// h and (LSTM) c [T, B, hidden] after each step: from_x [T, B, gates hidden] is what the input gives the gates.
/// batch_sizes i64 [T], where defined, says how many sequences have each step; the others keep their state. from_x then
/// has their rows alone, and places i64 [rows] says where these lie among the [T B] of h.
std::tuple<Tensor, Tensor> recurrence(Cell cell, const Tensor& from_x, const State& first, const Tensor& w,
                                      const Tensor& bias, const Tensor& batch_sizes, const Tensor& places,
                                      bool reverse);

/// @name By hand, in double precision: for references
/// @{
using Numbers = std::vector<double>;
struct NaiveState {
  Numbers h, c;
};
/// The parameters of a direction: W_ih, W_hh, then (where there are any) b_ih and b_hh.
struct NaiveWeights {
  Numbers ih, hh, bias_ih, bias_hh, hr;
};
/// W x + b for W [rows, x.size()]; an empty b is 0.
Numbers naive_product(const Numbers& w, const Numbers& b, const Numbers& x, int64_t rows);
NaiveState naive_step(Cell cell, const NaiveWeights& w, const Numbers& x, const NaiveState& before, int64_t hidden);
/// @}

}  // namespace strata::recurrent
