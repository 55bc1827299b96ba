#include "strata/ops/activation/swiglu_kernel.h"

#define STRATA_VEC_FILE "strata/ops/activation/swiglu_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {
namespace {

// One long row is many short ones: rows are what threads share.
template <class F>
void with_short_rows(const SwigluCall& c, F&& run) {
  constexpr int64_t kRow = 4096;
  if (c.rows * c.n == 0) return;
  if (c.rows > 1 || c.n <= kRow) return run(c);
  SwigluCall rows = c, rest = c;
  rows.rows = c.n / kRow;
  rows.n = rows.a_row = rows.b_row = rows.grad_a_row = rows.grad_b_row = kRow;
  run(rows);
  const int64_t done = rows.rows * kRow * size_of(c.dtype);
  rest.n = c.n % kRow;
  if (rest.n == 0) return;
  for (const void** p : {&rest.a, &rest.b, &rest.grad_y})
    if (*p) *p = static_cast<const std::byte*>(*p) + done;
  for (void** p : {&rest.y, &rest.grad_a, &rest.grad_b})
    if (*p) *p = static_cast<std::byte*>(*p) + done;
  run(rest);
}

}  // namespace

void swiglu_cpu(const SwigluCall& c) {
  with_short_rows(c, STRATA_VEC_CALL(swiglu));
}

void swiglu_backward_cpu(const SwigluCall& c) {
  with_short_rows(c, STRATA_VEC_CALL(swiglu_backward));
}

}  // namespace strata
