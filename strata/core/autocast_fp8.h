#pragma once
// What autocast's fp8 policy asks of the ops that know it, and what it keeps for them.

#include <array>

#include "strata/core/arg_type.h"
#include "strata/core/autocast.h"

namespace strata {
class OpBase;

namespace detail {

/// The way of an op under the fp8 policy; a static object beside its record.
struct Fp8Way {
  /// Computes the op's result; false, with nothing done, where these arguments go the usual way.
  using Go = bool (*)(ArgsAt at, const Results& into);
  Fp8Way(const OpBase& op, Go go);
  const OpBase& op;
  Go go;
  const Fp8Way* next;
};
/// Whether the call of `op` went its fp8 way: the thread's policy is fp8, the op has a way, and the arguments fit.
bool go_fp8(const OpBase& op, ArgsAt at, const Results& into);

/// The policy of this thread, nullptr while it is another.
const Fp8Options* autocast_fp8();
/// Whether what this thread computes may be what a product in fp8 reads next, whose scale is one for all of it: in the
/// outermost Fp8WeightsScope since its first such policy, so in the backward pass too.
bool fp8_follows();
/// While one lives on this thread, who captures a graph has an optimizer's step in it that renews what is kept beside
/// parameters, and has it brought up to date before each replay.
class Fp8RenewedScope {
 public:
  Fp8RenewedScope();
  ~Fp8RenewedScope();
  Fp8RenewedScope(const Fp8RenewedScope&) = delete;
  Fp8RenewedScope& operator=(const Fp8RenewedScope&) = delete;

 private:
  bool before_;
};
bool fp8_magnitudes_renewed();
/// Whether `weight`, a linear layer's, may be in fp8 under this thread's policy.
bool may_be_fp8(const Tensor& weight);

/// Says by whom to learn whether this thread is capturing a graph: a room above this one knows. A static object.
struct CaptureAnswer {
  explicit CaptureAnswer(bool (*capturing)());
};

/// Codes and scales of a weight, as they lie and transposed.
using Fp8Codes = std::array<Tensor, 4>;
/// What make(weight, scaling) gives: kept until the outermost Fp8WeightsScope ends for a parameter that nobody writes
/// to, else made anew.
Fp8Codes fp8_weight_codes(const Tensor& weight, const std::string& scaling,
                          Fp8Codes (*make)(const Tensor& weight, const std::string& scaling));

}  // namespace detail
}  // namespace strata
