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

void nll_loss_cpu(const CrossEntropyCall& c) {
  dispatch(c.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* x = static_cast<const T*>(c.x);
    T* loss = static_cast<T*>(c.loss);
    double sum = 0;
    int64_t count = 0;
    for (int64_t r = 0; r < c.rows; ++r) {
      const int64_t t = c.target[r];
      const bool used = t != c.ignore_index;
      check<IndexError>(!used || (t >= 0 && t < c.classes), "nll_loss", "target ", t, " in row ", r,
                        " is not one of the ", c.classes, " classes (allowed: 0 to ", c.classes - 1,
                        ", or ignore_index ", c.ignore_index, ")");
      const double v = used ? -static_cast<double>(static_cast<Real<T>>(x[r * c.classes + t])) : 0;
      if (c.reduction == Reduction::none) loss[r] = T(static_cast<Real<T>>(v));
      sum += v;
      count += used;
    }
    if (c.reduction == Reduction::mean) *loss = T(static_cast<Real<T>>(sum / static_cast<double>(count)));
    if (c.reduction == Reduction::sum) *loss = T(static_cast<Real<T>>(sum));
  });
}

}  // namespace strata
