#include "strata/core/parallel.h"
#include "strata/ops/matmul/scaled_kernels.h"

namespace strata {
namespace {
constexpr int64_t kGrain = 16384;
}

void fp8_encode_cpu(const Tensor& y, const Tensor& x, Fp8 format) {
  auto* to = y.data<uint8_t>();
  const auto* from = x.data<float>();
  parallel_for(0, x.numel(), kGrain, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) to[i] = fp8_code(from[i], format);
  });
}

void fp8_decode_cpu(const Tensor& y, const Tensor& codes, Fp8 format) {
  auto* to = y.data<float>();
  const auto* from = codes.data<uint8_t>();
  parallel_for(0, codes.numel(), kGrain, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) to[i] = fp8_value(from[i], format);
  });
}

}  // namespace strata
