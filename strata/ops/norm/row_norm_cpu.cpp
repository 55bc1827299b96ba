#include "strata/ops/norm/norm_kernel.h"
#include "strata/ops/vec/scratch.h"

#define STRATA_VEC_FILE "strata/ops/norm/row_norm_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

void row_norm_cpu(const RowNorm& c) {
  if (c.rows * c.n == 0) return;
  STRATA_VEC_CALL(row_norm)(c);
}

void row_norm_backward_cpu(const RowNormBackward& c) {
  if (c.rows * c.n == 0) {
    for (void* p : {c.grad_weight, c.grad_bias})
      if (p) std::memset(p, 0, static_cast<size_t>(c.n * size_of(c.affine)));
    return;
  }
  STRATA_VEC_CALL(row_norm_backward)(c);
}

}  // namespace strata
