// Launches of dot_products.cuh.

#include "strata/ops/matmul/gemm_dot.h"

#include "strata/cuda/runtime.h"
#include "strata/ops/matmul/dot_products.cuh"

namespace strata::cuda {
namespace {

template <class T, class O, int kVector>
void queue(DotProducts p, const DotPlan& plan, Device device) {
  using C = compute_t<T>;
  p.parts = plan.parts, p.slice = plan.slice;
  Tensor partial;
  if (p.parts > 1) {
    partial = empty({{p.count * p.parts}, std::is_same_v<C, double> ? DType::f64 : DType::f32, device, std::nullopt});
    p.partial = partial.raw_data();
  }
  const auto kernel = plan.team == 32 ? dot_kernel<T, O, C, kVector, 32> : dot_kernel<T, O, C, kVector, kDotThreads>;
  kernel<<<blocks_for(p.count * p.parts, kDotThreads / plan.team), kDotThreads, kDotSharedBytes, stream()>>>(p);
  if (p.parts > 1)
    add_dot_parts_kernel<T, O, C><<<blocks_for(p.count, kDotThreads / 32), kDotThreads, 0, stream()>>>(p);
}

}  // namespace

bool gemm_dot(const Gemm& g, Device device) {
  if (g.m != 1 || g.n != 1 || g.batch.size() > 1 || g.bias != nullptr || g.epilogue != Epilogue::none ||
      g.aux != nullptr || !is_floating(g.in))
    return false;
  DotProducts p{};
  p.a = g.a, p.b = g.b, p.c = g.c;
  p.count = g.batch.empty() ? 1 : g.batch[0], p.k = g.k;
  p.a_step = g.a_col, p.b_step = g.b_row;
  if (!g.batch.empty()) p.a_batch = g.a_batch[0], p.b_batch = g.b_batch[0], p.c_batch = g.c_batch[0];
  p.alpha = g.alpha, p.beta = g.beta;
  const DeviceScope here(device.index);
  const auto with = [&]<class T, class O>() {
    constexpr int kVector = 16 / static_cast<int>(sizeof(T));
    const auto whole = [&](const void* at, int64_t step, int64_t batch) {
      return aligned16(at) && step == 1 && (p.count == 1 || batch % kVector == 0);
    };
    if (whole(p.a, p.a_step, p.a_batch) && whole(p.b, p.b_step, p.b_batch))
      queue<T, O, kVector>(p, plan_dots(p.count, p.k, kVector), device);
    else
      queue<T, O, 1>(p, plan_dots(p.count, p.k, 1), device);
  };
  const auto reduced = [&]<class T>() {
    g.out == DType::f32 ? with.template operator()<T, float>() : with.template operator()<T, T>();
  };
  if (g.in == DType::f64)
    with.operator()<double, double>();
  else if (g.in == DType::f32)
    with.operator()<float, float>();
  else if (g.in == DType::bf16)
    reduced.operator()<BFloat16>();
  else
    reduced.operator()<Half>();
  return true;
}

}  // namespace strata::cuda
