#pragma once
// Activations made of elementwise functions (those are in elementwise.h), gated ones, and those that draw random
// numbers.

#include <cstdint>
#include <string_view>

#include "strata/core/rng.h"
#include "strata/core/tensor.h"

namespace strata {

/// x where positive, else alpha (exp(x / alpha) - 1) (Barron, arXiv:1704.07483). Throws ValueError where alpha is 0.
Tensor celu(const Tensor& x, double alpha = 1);
/// x / (1 + |x|).
Tensor softsign(const Tensor& x);
/// x nearer to 0 by lambd, 0 where |x| <= lambd. Throws ValueError where lambd is negative.
Tensor softshrink(const Tensor& x, double lambd = 0.5);
/// x, 0 where |x| <= lambd.
Tensor hardshrink(const Tensor& x, double lambd = 0.5);
/// x - tanh(x).
Tensor tanhshrink(const Tensor& x);
/// x where it is above `limit`, else `value`.
Tensor threshold(const Tensor& x, double limit, double value);
/// x where positive, else weight x: weight has one element, or one for each channel x.size(1). Throws ShapeError.
Tensor prelu(const Tensor& x, const Tensor& weight);
/// a sigmoid(b) of the two halves of x along `dim` (Dauphin et al., arXiv:1612.08083). Throws ShapeError where there
/// are no two halves.
Tensor glu(const Tensor& x, int64_t dim = -1);
/// silu(a) * b = a * sigmoid(a) * b, for a and b of one shape and dtype (Shazeer, arXiv:2002.05202). Throws ShapeError.
///   Tensor h = swiglu(gate(x), up(x));
Tensor swiglu(const Tensor& a, const Tensor& b);
/// The same of the two halves of x's last dimension: x [..., 2 N] gives [..., N]. The gradient is one tensor like x.
Tensor swiglu(const Tensor& x);
/// gelu(a) * b of the two halves of x's last dimension, likewise; `approximate` is gelu's, "none" or "tanh".
///   Tensor h = geglu(gate_up(x), "tanh");
Tensor geglu(const Tensor& x, std::string_view approximate = "none");
/// softmax(-x) along `dim`.
Tensor softmin(const Tensor& x, int64_t dim);

/// x where positive, else x times a slope that is drawn for each element from [lower, upper) in training, and their
/// mean else (Xu et al., arXiv:1505.00853). Throws ValueError where lower is above upper.
Tensor rrelu(const Tensor& x, double lower = 1.0 / 8, double upper = 1.0 / 3, bool training = false);
/// softmax((logits + g) / tau) along `dim`, g being drawn from Gumbel's distribution (Jang et al., arXiv:1611.01144);
/// with `hard` 1 at the largest and 0 elsewhere, with the gradient of the soft one. Throws ValueError unless tau > 0.
Tensor gumbel_softmax(const Tensor& logits, double tau = 1, bool hard = false, int64_t dim = -1);

}  // namespace strata
