#include <algorithm>
#include <cmath>
#include <type_traits>

#include "strata/core/parallel.h"
#include "strata/ops/loss/pdist_kernel.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/loss/pdist_rows_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {
namespace {

// Where the pair of rows i < j of n stands.
int64_t pair_at(int64_t i, int64_t j, int64_t n) {
  return i * (2 * n - i - 1) / 2 + j - i - 1;
}

struct Single {
  using Number = float;
  float (*distance)(const float*, const float*, int64_t, bool) = STRATA_VEC_CALL(row_distance);
  void (*add)(const float*, const float*, float, float*, int64_t, bool) = STRATA_VEC_CALL(add_difference);
};
struct Double {
  using Number = double;
  double (*distance)(const double*, const double*, int64_t, bool) = STRATA_VEC_CALL(row_distance_f64);
  void (*add)(const double*, const double*, double, double*, int64_t, bool) = STRATA_VEC_CALL(add_difference_f64);
};

// Calls f(rows' functions) for the type that t computes in.
template <class F>
void in_type(DType t, F&& f) {
  t == DType::f64 ? f(Double()) : f(Single());
}
Tensor dense(const Tensor& x) {
  return (is_reduced_floating(x.dtype()) ? x.to(DType::f32) : x).contiguous();
}

}  // namespace

void pdist_cpu(Tensor& y, const Tensor& x, double p) {
  const int64_t n = x.size(0), m = x.size(1);
  const Tensor from = dense(x);
  Tensor to = empty(from.meta().with_shape(y.shape()));
  in_type(from.dtype(), [&](const auto& rows) {
    using T = typename std::decay_t<decltype(rows)>::Number;
    const T* const v = from.template data<T>();
    T* const out = to.template data<T>();
    parallel_for(0, n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t j = i + 1; j < n; ++j) {
          const T sum = rows.distance(v + i * m, v + j * m, m, p == 2);
          out[pair_at(i, j, n)] = p == 2 ? std::sqrt(sum) : sum;
        }
    });
  });
  y.copy_(to);
}

// Each row's own sum over all others, in their order: the pairs are met twice, but no two threads write to one row.
void pdist_backward_cpu(Tensor& gx, const Tensor& g, const Tensor& x, const Tensor& y, double p) {
  const int64_t n = x.size(0), m = x.size(1);
  const Tensor from = dense(x), weight = dense(g), length = dense(y);
  Tensor to = empty(from.meta());
  to.fill_(0);
  in_type(from.dtype(), [&](const auto& rows) {
    using T = typename std::decay_t<decltype(rows)>::Number;
    const T *const v = from.template data<T>(), *const w = weight.template data<T>(),
                   *const d = length.template data<T>();
    T* const out = to.template data<T>();
    parallel_for(0, n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t j = 0; j < n; ++j) {
          if (i == j) continue;
          const int64_t at = pair_at(std::min(i, j), std::max(i, j), n);
          if (d[at] != 0) rows.add(v + i * m, v + j * m, p == 2 ? w[at] / d[at] : w[at], out + i * m, m, p == 2);
        }
    });
  });
  gx.copy_(to);
}

}  // namespace strata
