#include <cmath>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/snake/snake_kernel.h"

namespace strata {
void snake_cpu(Tensor& y, const Tensor& x, double a) {
  const Tensor dense = x.contiguous();
  dispatch_floats(y.dtype(), "snake", [&]<class T>() {
    using C = compute_t<T>;
    const T* in = dense.data<T>();
    T* out = y.data<T>();
    parallel_for(0, y.numel(), 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const C v = static_cast<C>(in[i]), s = std::sin(static_cast<C>(a) * v);
        out[i] = static_cast<T>(v + s * s / static_cast<C>(a));
      }
    });
  });
}
}  // namespace strata
