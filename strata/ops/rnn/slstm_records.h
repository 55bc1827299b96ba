#pragma once
// What the records of the sLSTM share.

#include <tuple>

#include "strata/ops/rnn/records.h"

namespace strata::recurrent {

/// What c / n and log n are kept in.
inline DType slstm_wide(DType t) {
  return is_reduced_floating(t) ? DType::f32 : t;
}

/// One step behind its products: h, c, l and the sums of the gates.
std::tuple<Tensor, Tensor, Tensor, Tensor> slstm_step(const Tensor& from_x, const Tensor& from_h, const Tensor& c,
                                                      const Tensor& l);
/// Its gradients for the sums, c and l, by ops.
std::tuple<Tensor, Tensor, Tensor> slstm_step_gradients(const Tensor& gh, const Tensor& gc, const Tensor& gl,
                                                        const Tensor& sums, const Tensor& c, const Tensor& l);

/// Whether slstm_recurrence() is the way to go there: it has a kernel, and products by the library would not be faster.
bool has_slstm_recurrence(DType t, const Device& device, int64_t batch, int64_t hidden);
/// h, c and l [T, B, hidden] after each step; from_x [T, B, 4 hidden] is what the input gives the gates.
std::tuple<Tensor, Tensor, Tensor> slstm_recurrence(const Tensor& from_x, const Tensor& h, const Tensor& c,
                                                    const Tensor& l, const Tensor& w, const Tensor& bias);

/// h, c / n and log n after each step, by hand, as the paper has them: c, n and m apart. from_x is [steps, batch, 4
/// hidden], the first states [batch, hidden].
struct NaiveSlstm {
  Numbers h, c, l;
};
NaiveSlstm naive_slstm(const Numbers& from_x, const NaiveSlstm& first, const Numbers& w, const Numbers& bias,
                       int64_t batch, int64_t hidden);

}  // namespace strata::recurrent
