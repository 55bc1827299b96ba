// Runs of equal neighbours among single elements.

#include <algorithm>
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
    int64_t *const run = return_inverse ? inverse.data<int64_t>() : nullptr, *const often = return_counts
                                                                                                ? counts.data<int64_t>()
                                                                                                : nullptr;
    // Where runs begin is written for every element and not where one does, which would be guessed wrong; what is asked
    // of each run is then a loop over those. Where nearly every element begins one, or hardly any, guesses are right.
    const bool guessed = found > n - n / 16 || found < n / 16;
    const auto fill = [&]<bool kNumbered, bool kCounted>() {
      if (guessed) {
        int64_t k = 0, begin = 0;
        T before = p[0];
        first[0] = before;
        if constexpr (kNumbered) run[0] = 0;
        for (int64_t i = 1; i < n; ++i) {
          const T here = p[i];
          if (!equal_elements(here, before)) {
            if constexpr (kCounted) often[k] = i - begin;
            begin = i;
            first[++k] = here;
          }
          before = here;
          if constexpr (kNumbered) run[i] = k;
        }
        if constexpr (kCounted) often[k] = n - begin;
        return;
      }
      constexpr int64_t kChunk = 2048;
      int64_t begins[kChunk + 1], runs = 0, last = 0;  // runs that began before, and where the last of them did
      for (int64_t from = 0; from < n; from += kChunk) {
        const int64_t end = std::min(n, from + kChunk);
        int64_t here = 0;
        for (int64_t i = from; i < end; ++i) {
          begins[here] = i;
          here += i == 0 || !equal_elements(p[i], p[i - 1]) ? 1 : 0;
          if constexpr (kNumbered) run[i] = runs + here - 1;
        }
        for (int64_t k = 0; k < here; ++k) {
          first[runs + k] = p[begins[k]];
          if constexpr (kCounted)
            if (runs + k > 0) often[runs + k - 1] = begins[k] - (k > 0 ? begins[k - 1] : last);
        }
        if (here > 0) last = begins[here - 1];
        runs += here;
      }
      if constexpr (kCounted) often[runs - 1] = n - last;
    };
    const auto with = [&]<bool kNumbered>() {
      often ? fill.template operator()<kNumbered, true>() : fill.template operator()<kNumbered, false>();
    };
    run ? with.template operator()<true>() : with.template operator()<false>();
  });
  return all;
}

}  // namespace strata
