#include "strata/core/dtype_limits.h"

#include <cmath>

#include "strata/core/error.h"

namespace strata {

FloatLimits float_limits(DType t) {
  check<DTypeError>(is_floating(t), "float_limits", "a floating dtype is wanted, got ", t);
  // Binary digits behind the point, the exponents of the smallest and past the largest normal number.
  struct Form {
    int digits, low, high;
    double resolution;
  };
  const Form f = t == DType::f16    ? Form{10, -14, 16, 1e-3}
                 : t == DType::bf16 ? Form{7, -126, 128, 1e-2}
                 : t == DType::f32  ? Form{23, -126, 128, 1e-6}
                                    : Form{52, -1022, 1024, 1e-15};
  const double eps = std::ldexp(1.0, -f.digits);
  return {eps, std::ldexp(2 - eps, f.high - 1), std::ldexp(1.0, f.low), f.resolution};
}

IntLimits int_limits(DType t) {
  check<DTypeError>(is_integral(t), "int_limits", "an integer dtype is wanted, got ", t);
  if (t == DType::u8) return {0, 255};
  const int64_t max = INT64_MAX >> (64 - 8 * size_of(t));
  return {-max - 1, max};
}

}  // namespace strata
