#pragma once
// Loops that do nothing but reach a limit, compiled for every instruction set (peaks_fma_cpu.cpp).

#include <cstdint>

#include "strata/lab/limits.h"

namespace strata::detail {

/// a[i] = b[i] + 3 c[i], with stores that bypass the caches.
void triad(float* a, const float* b, const float* c, int64_t n);
/// The sum of a[0] .. a[n-1] (in no particular order).
float sum(const float* a, int64_t n);
/// `rounds` of independent f32 multiply-adds in registers; the result only keeps them from being optimised away.
float fma_loop(int64_t rounds);
/// Operations that fma_loop(rounds) does: two per multiply-add and lane.
int64_t fma_flops(int64_t rounds);

}  // namespace strata::detail

namespace strata::lab::detail {
/// measure_limits() of a CUDA device.
Limits card_limits(Device card, double seconds);
}  // namespace strata::lab::detail
