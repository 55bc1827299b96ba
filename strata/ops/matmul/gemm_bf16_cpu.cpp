// Picks the copy of the bf16 product for this processor.

#include <cmath>

#include "strata/core/parallel.h"
#include "strata/ops/matmul/gemm_cpu.h"
#include "strata/ops/vec/level.h"
#include "strata/ops/vec/scratch.h"

#define STRATA_VEC_FILE "strata/ops/matmul/gemm_bf16_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata::cpu::detail {

bool gemm_bf16(const Gemm& g, bool amx) {
  if (g.in != DType::bf16 || !g.batch.empty() || g.epilogue == Epilogue::gelu) return false;
// A build for one machine (STRATA_QUICK_BUILD) may be without this copy.
#if defined(__x86_64__) && (!defined(STRATA_VEC_ONLY) || STRATA_VEC_ONLY == 3)
  if (amx ? !has_amx_bf16() : vec_level() < 3) return false;
  level3::multiply(g, amx);
  return true;
#else
  return false;
#endif
}

int64_t gemm_bf16_scratch(const Gemm& g) {
#if defined(__x86_64__) && (!defined(STRATA_VEC_ONLY) || STRATA_VEC_ONLY == 3)
  return g.in == DType::bf16 && vec_level() >= 3 ? level3::scratch_of(g) : 0;
#else
  return 0;
#endif
}

void gelu_tanh_run(DType t, bool slope, const void* from, void* to, int64_t n) {
  STRATA_VEC_CALL(gelu_tanh_run)(t, slope, from, to, n);
}

}  // namespace strata::cpu::detail
