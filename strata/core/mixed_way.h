#pragma once
// Ops that read operands of several dtypes as they are, where promotion would first make copies.

#include "strata/core/arg_type.h"

namespace strata {
class OpBase;

namespace detail {

/// The way of an op for operands that would be promoted; a static object beside its record.
struct MixedWay {
  /// Computes the op's result; false, with nothing done, where these arguments go the usual way.
  using Go = bool (*)(ArgsAt at, const Results& into);
  /// The same into `self`, the first argument of an in-place call.
  using GoInplace = bool (*)(Tensor& self, ArgsAt at);
  MixedWay(const OpBase& op, Go go, GoInplace go_inplace);
  const OpBase& op;
  Go go;
  GoInplace go_inplace;
  const MixedWay* next;
};
/// Whether the call of `op`, whose arguments are not alike, went its mixed way.
bool go_mixed(const OpBase& op, ArgsAt at, const Results& into);
bool go_mixed_inplace(const OpBase& op, Tensor& self, ArgsAt at);

}  // namespace detail
}  // namespace strata
