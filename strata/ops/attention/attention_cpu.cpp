#include "strata/ops/attention/attention_kernel.h"
#include "strata/ops/vec/flush_denormals.h"
#include "strata/ops/vec/scratch.h"

#define STRATA_VEC_FILE "strata/ops/attention/attention_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

void attention_forward_cpu(const AttentionCall& c) {
  if (c.batch * c.heads * c.tq == 0) return;
  STRATA_VEC_CALL(attention_forward)(c, has_amx_bf16());
}

void attention_draw_kept_cpu(const AttentionCall& c, uint32_t* to) {
  STRATA_VEC_CALL(attention_draw_kept)(c, to);
}

void attention_backward_cpu(const AttentionCall& c) {
  if (c.batch * c.heads == 0) return;
  STRATA_VEC_CALL(attention_backward)(c, has_amx_bf16());
}

}  // namespace strata
