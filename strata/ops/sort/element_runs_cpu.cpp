// Runs of equal neighbours among single elements.

#include <bit>
#include <tuple>

#include "strata/core/dispatch.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/sort/order_inl.h"
#include "strata/ops/sort/runs_kernel.h"

namespace strata {
namespace {

// Whether elements are equal as numbers: -0 and 0 are, NaN is not.
template <class T>
bool equal_elements(T a, T b) {
  if constexpr (is_reduced_floating(dtype_of<T>)) {
    constexpr auto infinity = static_cast<uint16_t>(order::kInfinity<T>);
    const auto x = std::bit_cast<uint16_t>(a), y = std::bit_cast<uint16_t>(b);
    return (x == y && (x & 0x7fff) <= infinity) || ((x | y) & 0x7fff) == 0;
  } else {
    return a == b;
  }
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> element_runs_cpu(const Tensor& x, bool return_inverse, bool return_counts) {
  const Tensor host = contiguous(x);
  const int64_t n = x.numel();
  std::tuple<Tensor, Tensor, Tensor> all;
  dispatch_all(x.dtype(), "unique_consecutive", [&]<class T>() {
    const T* p = n > 0 ? host.data<T>() : nullptr;
    int64_t found = n > 0 ? 1 : 0;
    for (int64_t i = 1; i < n; ++i) found += equal_elements(p[i], p[i - 1]) ? 0 : 1;
    const auto made = [](const Shape& shape, DType t) { return empty({shape, t, Device::cpu(), std::nullopt}); };
    const Tensor values = made({found}, x.dtype()), inverse = made(return_inverse ? x.shape() : Shape{0}, DType::i64),
                 counts = made({return_counts ? found : 0}, DType::i64);
    all = {values, inverse, counts};
    if (n == 0) return;
    T* const first = values.data<T>();
    int64_t *const run = return_inverse ? inverse.data<int64_t>() : nullptr,
                   *const often = return_counts ? counts.data<int64_t>() : nullptr;
    // Written for every element and not where a run begins, which would be guessed wrong.
    const auto fill = [&]<bool kNumbered, bool kCounted>() {
      int64_t k = 0;
      [[maybe_unused]] int64_t begin = 0;
      T current = p[0];
      first[0] = current;
      if constexpr (kNumbered) run[0] = 0;
      if constexpr (kCounted) often[0] = 1;
      for (int64_t i = 1; i < n; ++i) {
        const bool same = equal_elements(p[i], p[i - 1]);
        k += same ? 0 : 1;
        current = same ? current : p[i];
        first[k] = current;
        if constexpr (kNumbered) run[i] = k;
        if constexpr (kCounted) {
          begin = same ? begin : i;
          often[k] = i + 1 - begin;
        }
      }
    };
    const auto with = [&]<bool kNumbered>() {
      often ? fill.template operator()<kNumbered, true>() : fill.template operator()<kNumbered, false>();
    };
    run ? with.template operator()<true>() : with.template operator()<false>();
  });
  return all;
}

}  // namespace strata
