#include "strata/core/loops.h"
#include "strata/ops/elementwise/mixed_kernel.h"

#define STRATA_VEC_FILE "strata/ops/elementwise/mixed_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {
namespace {

using Rows = void (*)(DType t, char* const* p, const int64_t* strides, int64_t n, float alpha);

void by_rows(Rows rows, DType t, Tensor& y, const Tensor& a, const Tensor& b, float alpha = 1) {
  for_each_strided(y.shape(), std::array<const Tensor*, 3>{&y, &a, &b}, kGrain,
                   [&](char** p, const int64_t* strides, int64_t n) { rows(t, p, strides, n, alpha); });
}

}  // namespace

void add_mixed_cpu(Tensor& y, const Tensor& a, const Tensor& b, float alpha) {
  by_rows(STRATA_VEC_CALL(add_mixed_rows), b.dtype(), y, a, b, alpha);
}
void mul_mixed_cpu(Tensor& y, const Tensor& a, const Tensor& b) {
  by_rows(STRATA_VEC_CALL(mul_mixed_rows), b.dtype(), y, a, b);
}
void mul_narrow_cpu(Tensor& y, const Tensor& a, const Tensor& b) {
  by_rows(STRATA_VEC_CALL(mul_narrow_rows), y.dtype(), y, a, b);
}
void mul_rounded_cpu(Tensor& y, const Tensor& a, const Tensor& b) {
  by_rows(STRATA_VEC_CALL(mul_rounded_rows), y.dtype(), y, a, b);
}

}  // namespace strata
