#include <algorithm>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/activation/rrelu_kernels.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/random/random_kernels.h"

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
    constexpr int64_t kChunk = 1024;  // numbers drawn at once
    parallel_for(0, (n + kChunk - 1) / kChunk, 32, [&](int64_t first, int64_t last) {
      uint32_t bits[kChunk];
      for (int64_t begin = first * kChunk; begin < std::min(n, last * kChunk); begin += kChunk) {
        const int64_t count = std::min(kChunk, n - begin);
        draw_bits(key, static_cast<uint64_t>(begin / 4), (count + 3) / 4, bits);
        for (int64_t i = 0; i < count; ++i) {
          const C slope = static_cast<C>(uniform_f32(bits[i])) * range + low, v = static_cast<C>(p[begin + i]);
          out[begin + i] = static_cast<T>(static_cast<C>(q[begin + i]) > 0 ? v : v * slope);
        }
      }
    });
  });
  if (!rows.same_as(y)) copy_elements(y, rows);
}

}  // namespace strata
