#include "strata/lab/limits.h"

#include <algorithm>

namespace strata::lab {
namespace {

// Whether it multiplies matrices: nothing else has so many operations for a byte.
bool is_product(const OpBase& op, Cost cost) {
  return op.autocast() == Autocast::low || cost.flops > 32 * cost.bytes;
}

double peak_flops(const OpBase& op, DType dtype, Cost cost, const Limits& limits) {
  if (!is_product(op, cost)) return 1e9 * limits.gflops;
  return 1e9 * (is_reduced_floating(dtype) && limits.matmul_bf16 > 0 ? limits.matmul_bf16 : limits.matmul_f32);
}

double seconds_to_move(Cost cost, const Limits& limits) {
  return limits.gb_s > 0 ? cost.bytes / (1e9 * limits.gb_s) : 0;
}

}  // namespace

double least_seconds(const OpBase& op, DType dtype, Cost cost, const Limits& limits) {
  const double peak = peak_flops(op, dtype, cost, limits);
  return std::max(peak > 0 ? cost.flops / peak : 0, seconds_to_move(cost, limits));
}

}  // namespace strata::lab
