#include <algorithm>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/activation/rrelu_kernels.h"
#include "strata/ops/copy/copy.h"

namespace strata {

void rrelu_apply_cpu(Tensor& y, const Tensor& g, const Tensor& x, double lower, double upper, RngKey key) {
  const Tensor from = contiguous(g), where = contiguous(x);
  const Tensor rows = y.is_contiguous() ? y : empty({y.shape(), y.dtype(), y.device(), std::nullopt});
  const int64_t n = x.numel();
  dispatch_floats(x.dtype(), "rrelu", [&]<class T>() {
    using C = compute_t<T>;
    const T *const p = from.data<T>(), *const q = where.data<T>();
    T* const out = static_cast<T*>(rows.raw_data());
    const C low = static_cast<C>(lower), range = static_cast<C>(upper - lower);
    parallel_for(0, (n + 3) / 4, 8192, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const auto bits = philox(key, static_cast<uint64_t>(block));
        for (int64_t i = 4 * block; i < std::min(n, 4 * block + 4); ++i) {
          const C slope = static_cast<C>(uniform_f32(bits[static_cast<size_t>(i % 4)])) * range + low;
          const C v = static_cast<C>(p[i]);
          out[i] = static_cast<T>(static_cast<C>(q[i]) > 0 ? v : v * slope);
        }
      }
    });
  });
  if (!rows.same_as(y)) copy_elements(y, rows);
}

}  // namespace strata
