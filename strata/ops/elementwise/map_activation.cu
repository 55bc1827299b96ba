#include "strata/ops/elementwise/map.cuh"

#define STRATA_MAP_ACTIVATION
#include "strata/ops/elementwise/functions_inl.h"

namespace strata {
namespace {

// GELU of bf16 and f16. The card's bandwidth leaves some 30 instructions for an element of two bytes in and two out,
// and erfc or tanh alone are that many: these err by less than 5e-5 of the result, in the tails too.

__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// exp(-x^2 / 2), and the normal distribution's function. The smaller tail is t q(t) exp(-x^2 / 2) with
// t = 1 / (1 + 0.535 |x| / sqrt(2)), the form of Abramowitz and Stegun's 7.1.26, but with q fitted for the least error
// relative to the tail itself, down to where it leaves f32.
struct Normal {
  float e, cdf;
  __device__ __forceinline__ explicit Normal(float x) {
    const float t = fast_reciprocal(fmaf(0.535f * 0.70710678f, fabsf(x), 1.f));
    float q = fmaf(t, -0.0922712781f, 0.197673027f);
    q = fmaf(q, t, 0.0851218205f);
    q = fmaf(q, t, 0.159105225f);
    q = fmaf(q, t, 0.150350266f);
    e = fast_exp2(x * x * -0.72134752f);
    const float tail = q * t * e;
    cdf = x < 0 ? tail : 1.f - tail;
  }
};
// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
__device__ __forceinline__ float tanh_cdf(float x, float square) {
  constexpr float k = -2 * 0.79788456f * 1.44269504f;
  return fast_reciprocal(1.f + fast_exp2(x * fmaf(square, k * 0.044715f, k)));
}

void reduced_rows(Rows& r) {
  r.reduced<1>(Map::gelu, [] __device__(float x) { return x * Normal(x).cdf; });
  r.reduced<2>(Map::gelu_backward, [] __device__(float g, float x) {
    const Normal n(x);
    return g * fmaf(x * 0.39894228f, n.e, n.cdf);
  });
  r.reduced<1>(Map::gelu_tanh, [] __device__(float x) { return x * tanh_cdf(x, x * x); });
  r.reduced<2>(Map::gelu_tanh_backward, [] __device__(float g, float x) {
    const float square = x * x, s = tanh_cdf(x, square);
    return g * s * fmaf(x * (1.f - s), fmaf(square, 2 * 0.79788456f * 3 * 0.044715f, 2 * 0.79788456f), 1.f);
  });
}
}  // namespace

void add_activation_maps(CudaMaps& table) {
  Rows rows(table);
  activation_rows(rows);
  reduced_rows(rows);
}
}  // namespace strata
