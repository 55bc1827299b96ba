#pragma once
// From a run-time dtype to a compile-time element type.

#include "strata/core/dtype.h"
#include "strata/core/error.h"

namespace strata {

/// Calls f.template operator()<T>() with the element type of `t`; throws DTypeError naming `op` when the set
/// does not hold it. `dispatch_floats(t, "op", [&]<class T>() { ... })`.
#define STRATA_DISPATCH_CASE(TYPE, CPP) \
  case DType::TYPE:                     \
    return f.template operator()<CPP>();

/// f32 and f64.
template <class F>
decltype(auto) dispatch_wide_floats(DType t, std::string_view op, F&& f) {
  switch (t) {
    STRATA_DISPATCH_CASE(f32, float)
    STRATA_DISPATCH_CASE(f64, double)
    default:
      throw DTypeError(op, cat("does not take ", t));
  }
}
/// f16, bf16, f32, f64.
template <class F>
decltype(auto) dispatch_floats(DType t, std::string_view op, F&& f) {
  switch (t) {
    STRATA_DISPATCH_CASE(f16, Half)
    STRATA_DISPATCH_CASE(bf16, BFloat16)
    STRATA_DISPATCH_CASE(f32, float)
    STRATA_DISPATCH_CASE(f64, double)
    default:
      throw DTypeError(op, cat("needs a floating dtype, got ", t));
  }
}
/// u8, i8, i16, i32, i64.
template <class F>
decltype(auto) dispatch_ints(DType t, std::string_view op, F&& f) {
  switch (t) {
    STRATA_DISPATCH_CASE(u8, uint8_t)
    STRATA_DISPATCH_CASE(i8, int8_t)
    STRATA_DISPATCH_CASE(i16, int16_t)
    STRATA_DISPATCH_CASE(i32, int32_t)
    STRATA_DISPATCH_CASE(i64, int64_t)
    default:
      throw DTypeError(op, cat("needs an integer dtype, got ", t));
  }
}
/// Every dtype.
template <class F>
decltype(auto) dispatch_all(DType t, std::string_view op, F&& f) {
  switch (t) {
    STRATA_DISPATCH_CASE(u8, uint8_t)
    STRATA_DISPATCH_CASE(i8, int8_t)
    STRATA_DISPATCH_CASE(i16, int16_t)
    STRATA_DISPATCH_CASE(i32, int32_t)
    STRATA_DISPATCH_CASE(i64, int64_t)
    STRATA_DISPATCH_CASE(f16, Half)
    STRATA_DISPATCH_CASE(bf16, BFloat16)
    STRATA_DISPATCH_CASE(f32, float)
    STRATA_DISPATCH_CASE(f64, double)
    STRATA_DISPATCH_CASE(boolean, bool)
  }
  throw DTypeError(op, "unknown dtype");
}
/// By size in bytes, for kernels that only move elements: uint8_t, uint16_t, uint32_t or uint64_t.
template <class F>
decltype(auto) dispatch_bytes(DType t, F&& f) {
  switch (size_of(t)) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    default:
      return f.template operator()<uint64_t>();
  }
}
#undef STRATA_DISPATCH_CASE

/// The type that arithmetic on T is done in: float for Half and BFloat16, else T.
template <class T>
struct ComputeType {
  using type = T;  ///< but float for Half and BFloat16
};
template <>
struct ComputeType<Half> {
  using type = float;
};
template <>
struct ComputeType<BFloat16> {
  using type = float;
};
template <class T>
using compute_t = typename ComputeType<T>::type;

}  // namespace strata
