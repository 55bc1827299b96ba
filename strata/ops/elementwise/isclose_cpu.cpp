#include <cmath>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/elementwise/isclose_kernel.h"

namespace strata {

bool isclose_ints_cpu(Tensor& y, const Tensor& a, const Tensor& b, double rtol, double atol) {
  if (!y.is_contiguous() || !a.is_contiguous() || !b.is_contiguous() || a.shape() != y.shape() ||
      b.shape() != y.shape())
    return false;
  if (y.numel() == 0) return true;
  dispatch_all(a.dtype(), "isclose", [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      const T *p = a.data<T>(), *q = b.data<T>();
      auto* const to = static_cast<uint8_t*>(y.raw_data());
      parallel_for(0, y.numel(), 16384, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const auto v = static_cast<double>(p[i]), w = static_cast<double>(q[i]);
          to[i] = static_cast<uint8_t>((v == w) | (std::abs(v - w) <= atol + rtol * std::abs(w)));
        }
      });
    }
  });
  return true;
}

}  // namespace strata
