#include <type_traits>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/ops/loss/pair_loss_inl.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/loss/pair_loss_rows_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {
namespace {

template <class T>
using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The n losses to `loss`, or where that is null their sum, which is returned.
template <PairLoss kind, class T>
double rows(const T* x, const T* target, int64_t n, double param, T* loss) {
  return STRATA_VEC_CALL(pair_rows_any)(kind, dtype_of<T>, x, target, n, param, loss);
}

template <PairLoss kind, class T>
void run(const T* x, const T* target, int64_t n, double param, Reduction reduction, double divisor, T* loss) {
  if (reduction == Reduction::none) {
    parallel_for(0, n, 8192,
                 [&](int64_t from, int64_t to) { rows<kind>(x + from, target + from, to - from, param, loss + from); });
    return;
  }
  constexpr int64_t kPart = 4096;
  std::vector<double> sums((n + kPart - 1) / kPart);
  parallel_for(0, static_cast<int64_t>(sums.size()), 2, [&](int64_t from, int64_t to) {
    for (int64_t part = from; part < to; ++part) {
      const int64_t begin = part * kPart, end = std::min(n, begin + kPart);
      sums[part] = rows<kind, T>(x + begin, target + begin, end - begin, param, nullptr);
    }
  });
  double total = 0;
  for (double s : sums) total += s;
  *loss = T(static_cast<Real<T>>(total / divisor));
}

template <class F>
void dispatch(DType t, F&& f) {
  switch (t) {
    case DType::f64:
      return f(double{});
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(BFloat16{});
    default:
      return f(Half{});
  }
}

}  // namespace

void pair_loss_cpu(PairLoss kind, DType t, const void* x, const void* target, int64_t n, double param,
                   Reduction reduction, double divisor, void* loss) {
  dispatch(t, [&](auto tag) {
    using T = decltype(tag);
    const auto go = [&](auto k) {
      run<decltype(k)::value>(static_cast<const T*>(x), static_cast<const T*>(target), n, param, reduction, divisor,
                              static_cast<T*>(loss));
    };
    dispatch_pair_loss(kind, go);
  });
}

}  // namespace strata
