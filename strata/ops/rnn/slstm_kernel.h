#pragma once
// One step of the sLSTM of one unit, and the kernels that make a step of it.
//
// xLSTM (Beck et al., arXiv:2405.04517, section 2.2) has c' = f c + i z, n' = f n + i, h = o c' / n' with i = exp of
// its gate, and a stabiliser m that is taken out of c and n. Here the states are c / n, which that is all about, and l
// = log n + m, the same number whatever m is: with p = log f + l the share of the new is a = i / (f n + i) = sigmoid(i
// - p), and l' = log(e^p + e^i). Nothing overflows, and no gradient flows around a maximum.

#include <cmath>
#include <cstdint>

#include "strata/core/tensor.h"

namespace strata::recurrent {

/// The l of a cell that has seen nothing: n = 0, as far from any gate as f32 says exactly.
inline constexpr double kNothing = -1e30;

/// The sums of what input and state give the gates, or their gradients.
template <class R>
struct SlstmSums {
  R i, f, z, o;
};
template <class R>
struct SlstmState {
  R h, c, l;
};

// Templates, and constexpr, so that they compile for CUDA devices too.
template <class R>
constexpr R logistic(R x) {
  return 1 / (1 + std::exp(-x));
}
/// log(logistic(f)) + l: the logarithm of the old normaliser's part in the new one.
template <class R>
constexpr R log_kept(R f, R l) {
  return (f < 0 ? f : R(0)) - std::log1p(std::exp(-std::abs(f))) + l;
}

template <class R>
constexpr SlstmState<R> slstm_unit(const SlstmSums<R>& s, R c, R l) {
  const R p = log_kept(s.f, l), next = c + logistic(s.i - p) * (std::tanh(s.z) - c);
  return {logistic(s.o) * next, next, (p > s.i ? p : s.i) + std::log1p(std::exp(-std::abs(p - s.i)))};
}

/// The gradients of the sums from those of the step's results; gc and gl become those of the states before, c and l.
template <class R>
constexpr SlstmSums<R> slstm_unit_backward(const SlstmSums<R>& s, R c, R l, R gh, R& gc, R& gl) {
  const R a = logistic(s.i - log_kept(s.f, l)), z = std::tanh(s.z), o = logistic(s.o), next = c + a * (z - c);
  const R all = gc + gh * o, d = all * (z - c) * a * (1 - a), p = gl * (1 - a) - d;
  gc = all * (1 - a);
  const SlstmSums<R> sums{d + gl * a, p * logistic(-s.f), all * a * (1 - z * z), gh * next * o * (1 - o)};
  gl = p;
  return sums;
}

void slstm_step_cpu(Tensor& h, Tensor& c_next, Tensor& l_next, Tensor& sums, const Tensor& from_x, const Tensor& from_h,
                    const Tensor& c, const Tensor& l);
void slstm_step_backward_cpu(Tensor& gsums, Tensor& gc_before, Tensor& gl_before, const Tensor& gh, const Tensor& gc,
                             const Tensor& gl, const Tensor& sums, const Tensor& c, const Tensor& l);
void slstm_step_cuda(Tensor& h, Tensor& c_next, Tensor& l_next, Tensor& sums, const Tensor& from_x,
                     const Tensor& from_h, const Tensor& c, const Tensor& l);
void slstm_step_backward_cuda(Tensor& gsums, Tensor& gc_before, Tensor& gl_before, const Tensor& gh, const Tensor& gc,
                              const Tensor& gl, const Tensor& sums, const Tensor& c, const Tensor& l);

/// All steps of a layer, on contiguous memory. Gates, h and the weight are of dtype t, c and l of the dtype of sums, R.
struct SlstmCall {
  DType t;
  bool tf32;  ///< f32 operands of products are rounded to TF32
  int64_t steps, batch, hidden;
  const void* from_x;         ///< [steps, batch, 4 H]: what the input gives the gates
  const void *h, *c, *l;      ///< [batch, H]: the first states
  const void *w, *bias;       ///< [4 H, H], [4 H] or nullptr
  void *y, *c_each, *l_each;  ///< [steps, batch, H]: h, c and l after each step
  void* sums;                 ///< [steps, batch, 4 H], or nullptr where no gradient is wanted
};
void slstm_recurrence_cuda(const SlstmCall& s);

/// Its gradient, from those of y and (nullptr: zero) c_each and l_each.
struct SlstmBackwardCall {
  SlstmCall forward;  ///< from_x, h, bias and y are none
  const void *gy, *gc_each, *gl_each;
  void* gsums;         ///< [steps, batch, 4 H]
  void *gh, *gc, *gl;  ///< [batch, H]
};
void slstm_recurrence_backward_cuda(const SlstmBackwardCall& s);

}  // namespace strata::recurrent
