#include <algorithm>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/loops.h"
#include "strata/core/parallel.h"
#include "strata/ops/reduce/kernels.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/reduce/extreme_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

void (*extreme_of_ints(DType t, bool largest))(const void*, int64_t, void*) {
  return STRATA_VEC_CALL(run_extreme_of_type)(t, largest);
}
void widen_run(const Half* from, int64_t n, float* to) {
  STRATA_VEC_CALL(widen_halves)(from, n, to);
}

void extremes_cpu(const Tensor& low, const Tensor& high, const Tensor& x, uint32_t mask) {
  const bool floats = x.dtype() == DType::f32;
  if ((is_floating(x.dtype()) && !floats) || low.numel() != 1 || !x.is_contiguous() || x.numel() == 0) {
    reduce_cpu(Reduction::min, low, x, mask, {}, 0);
    return reduce_cpu(Reduction::max, high, x, mask, {}, 0);
  }
  // By stretches, whose extremes stand side by side.
  const auto by_stretches = [&]<class T>(auto&& both) {
    constexpr auto kStretch = static_cast<int64_t>(65536 / sizeof(T));
    const T* const p = static_cast<const T*>(x.raw_data());
    const int64_t n = x.numel(), parts = (n + kStretch - 1) / kStretch;
    std::vector<T> lows(static_cast<size_t>(parts)), highs(lows.size());
    parallel_for(0, parts, std::max<int64_t>(1, kGrain / kStretch), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto part = static_cast<size_t>(i);
        both(p + i * kStretch, std::min(kStretch, n - i * kStretch), &lows[part], &highs[part]);
      }
    });
    T unused;
    both(lows.data(), parts, static_cast<T*>(low.raw_data()), &unused);
    both(highs.data(), parts, &unused, static_cast<T*>(high.raw_data()));
  };
  if (floats) return by_stretches.template operator()<float>(STRATA_VEC_CALL(both_of_floats));
  const DType type = x.dtype() == DType::boolean ? DType::u8 : x.dtype();
  dispatch_ints(type, "aminmax", [&]<class T>() {
    by_stretches.template operator()<T>([type](const T* p, int64_t n, T* least, T* most) {
      STRATA_VEC_CALL(both_of_ints)(type, p, n, least, most);
    });
  });
}

}  // namespace strata
