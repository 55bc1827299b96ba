#include <algorithm>
#include <atomic>
#include <bit>

#include "strata/core/dispatch.h"
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

namespace {
constexpr int64_t kBlock = 64;  // columns of a part

// The largest magnitude, as bits: ordered as the numbers are, NaN above all.
uint32_t larger(uint32_t most, float v) {
  return std::max(most, std::bit_cast<uint32_t>(v) & 0x7fffffffu);
}
float scale_of(uint32_t most, Fp8 format) {
  return fp8_scale(std::bit_cast<float>(most), format);
}

template <class T>
void codes_of(const Fp8CodesOf& to, const Tensor& x) {
  const int64_t m = x.size(0), k = x.size(1);
  const auto* from = x.data<T>();
  const auto value = [&](int64_t r, int64_t c) { return static_cast<float>(from[r * k + c]); };
  float one = 1;
  if (!to.by_row) {
    std::atomic<uint32_t> most{0};
    parallel_for(0, m * k, kGrain, [&](int64_t b, int64_t e) {
      uint32_t own = 0;
      for (int64_t i = b; i < e; ++i) own = larger(own, static_cast<float>(from[i]));
      uint32_t seen = most.load();
      while (seen < own && !most.compare_exchange_weak(seen, own)) {
      }
    });
    one = scale_of(most, to.format);
    if (to.scale.defined()) to.scale.data<float>()[0] = one;
    if (to.scale_t.defined()) to.scale_t.data<float>()[0] = one;
  }
  if (to.codes.defined()) {
    auto* codes = to.codes.data<uint8_t>();
    parallel_for(0, m, std::max<int64_t>(1, kGrain / k), [&](int64_t b, int64_t e) {
      for (int64_t r = b; r < e; ++r) {
        float scale = one;
        if (to.by_row) {
          uint32_t most = 0;
          for (int64_t c = 0; c < k; ++c) most = larger(most, value(r, c));
          to.scale.data<float>()[r] = scale = scale_of(most, to.format);
        }
        const float inverse = 1 / scale;
        for (int64_t c = 0; c < k; ++c) codes[r * k + c] = fp8_code(value(r, c) * inverse, to.format);
      }
    });
  }
  if (!to.codes_t.defined()) return;
  auto* codes = to.codes_t.data<uint8_t>();
  const int64_t padded = to.codes_t.size(1);
  parallel_for(0, (k + kBlock - 1) / kBlock, 1, [&](int64_t b, int64_t e) {
    for (int64_t block = b; block < e; ++block) {
      const int64_t first = block * kBlock, end = std::min(k, first + kBlock);
      float inverse[kBlock];
      std::fill_n(inverse, kBlock, 1 / one);
      if (to.by_row) {
        uint32_t most[kBlock] = {};
        for (int64_t r = 0; r < m; ++r)
          for (int64_t c = first; c < end; ++c) most[c - first] = larger(most[c - first], value(r, c));
        for (int64_t c = first; c < end; ++c) {
          const float scale = scale_of(most[c - first], to.format);
          to.scale_t.data<float>()[c] = scale;
          inverse[c - first] = 1 / scale;
        }
      }
      for (int64_t r = 0; r < m; ++r)
        for (int64_t c = first; c < end; ++c)
          codes[c * padded + r] = fp8_code(value(r, c) * inverse[c - first], to.format);
      for (int64_t c = first; c < end; ++c) std::fill(codes + c * padded + m, codes + (c + 1) * padded, uint8_t{0});
    }
  });
}
}  // namespace

void fp8_codes_cpu(const Fp8CodesOf& to, const Tensor& x) {
  if (x.dtype() == DType::bf16)
    codes_of<BFloat16>(to, x);
  else if (x.dtype() == DType::f16)
    codes_of<Half>(to, x);
  else
    codes_of<float>(to, x);
}

}  // namespace strata
