#include "strata/ops/norm/norm_kernel.h"
#include "strata/ops/vec/scratch.h"

#define STRATA_VEC_FILE "strata/ops/norm/channel_norm_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

void channel_norm_cpu(const ChannelNorm& c) {
  if (c.batch * c.channels * c.inner == 0) return;
  STRATA_VEC_CALL(channel_norm)(c);
}

void channel_norm_backward_cpu(const ChannelNormBackward& c) {
  if (c.batch * c.channels * c.inner == 0) {
    for (void* p : {c.grad_weight, c.grad_bias})
      if (p) std::memset(p, 0, static_cast<size_t>(c.channels * size_of(c.affine)));
    return;
  }
  STRATA_VEC_CALL(channel_norm_backward)(c);
}

}  // namespace strata
