#pragma once
// Products of bf16 with GELU or its derivative at the end, on Hopper.

#include "strata/core/device.h"
#include "strata/ops/matmul/gemm_cpu.h"

namespace strata::cuda {

/// Queues `g` on the current stream if it is a large product of bf16 with one of the two GELU epilogues and lies as a
/// feed-forward layer's operands do: A by rows, B by columns for gelu_tanh and by rows for gelu_tanh_grad, everything
/// aligned to 16 bytes. False, with nothing queued, for any other product or card. `sums` (gelu_tanh_grad; or null)
/// gets the sums over blocks of 128 rows of C, unrounded: [gelu_gemm_blocks(m), n] of f32.
bool gelu_gemm(const cpu::Gemm& g, float* sums, Device device);
int64_t gelu_gemm_blocks(int64_t m);

}  // namespace strata::cuda
