#pragma once
// Short proofs of what a model computed, for whoever has the same weights to check: TOPLOC (Ong et al.,
// arXiv:2501.16007).

#include <cstdint>
#include <span>
#include <vector>

#include "strata/core/tensor.h"

namespace strata::eval {

/// Which activations are the largest, and their values: `top` points (place modulo m, bits in bf16) as the polynomial
/// over the integers modulo 65497 through them. 2 + 2 top bytes, little-endian: m, then the coefficients. Kernels,
/// batches and cards that sum in another order change few of the largest and their last bits only; other weights, a
/// lower precision or another prompt change most of them.
///
///     const auto proof = activation_proof(hidden);             // of [32, dim]: 258 bytes
///     const bool same = check_proof(proof, recomputed).accepted();
///
/// `activations` of any shape with at least `top` elements, floating. Throws ValueError for fewer elements, or where
/// no m tells the places apart.
std::vector<uint8_t> activation_proof(const Tensor& activations, int64_t top = 128);

/// How activations compare with those of a proof, over the `top` largest of the former.
struct ProofCheck {
  int64_t top = 0;
  int64_t other_exponents = 0;  ///< whose sign or exponent is another, or that were not among the proof's largest
  double mean_mantissa = 0;     ///< mean distance of mantissas, in their last bits, of the others
  double median_mantissa = 0;   ///< and the median

  /// By the paper's thresholds for 128: at most 38 other exponents, mean at most 10, median at most 8.
  bool accepted() const { return other_exponents * 128 <= 38 * top && mean_mantissa <= 10 && median_mantissa <= 8; }
};

/// Throws ValueError for a proof that is none (its size, m or a coefficient), or activations with fewer elements than
/// it has points.
ProofCheck check_proof(std::span<const uint8_t> proof, const Tensor& activations);

/// A proof for each `every` rows of `hidden` [T, dim] (the last may have fewer): 258 bytes per 32 tokens.
std::vector<std::vector<uint8_t>> activation_proofs(const Tensor& hidden, int64_t every = 32, int64_t top = 128);

}  // namespace strata::eval
