#include "strata/ops/generation/decode_attention_kernel.h"
#include "strata/ops/vec/scratch.h"

#define STRATA_VEC_FILE "strata/ops/generation/decode_attention_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata::generation {

void decode_attention_cpu(const DecodeAttention& call) {
  STRATA_VEC_CALL(decode_attention)(call);
}

}  // namespace strata::generation
