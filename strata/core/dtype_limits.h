#pragma once
// What the element types can hold: the figures behind finfo and iinfo.

#include <cstdint>

#include "strata/core/dtype.h"

namespace strata {

/// Of a floating type. Its largest number is `max`, its smallest -max.
struct FloatLimits {
  double eps;              ///< from 1 to the next number
  double max;              ///< the largest finite number
  double smallest_normal;  ///< the smallest positive one with all digits
  double resolution;       ///< 10 to the minus number of decimal digits that always survive
};
/// Throws DTypeError unless the type is floating.
FloatLimits float_limits(DType t);

/// Of an integer type.
struct IntLimits {
  int64_t min, max;
};
/// Throws DTypeError unless the type is an integer one; bool is none.
IntLimits int_limits(DType t);

}  // namespace strata
