#include "strata/optim/eight_bit_cpu.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/optim/eight_bit_inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/optim/eight_bit_cpu.cpp"
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_BASELINE_TARGETS | HWY_AVX2 | HWY_AVX3))
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef STRATA_EIGHT_BIT_MAPS
#define STRATA_EIGHT_BIT_MAPS
namespace strata::optim {
// Without a sign, with one.
constexpr EightBitMap kMaps[] = {make_eight_bit_map(false), make_eight_bit_map(true)};
static_assert(kMaps[0].complete && kMaps[0].magnitudes == 256 && kMaps[1].complete && kMaps[1].magnitudes == 129);
}  // namespace strata::optim
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::optim {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void widen_block(const uint8_t* codes, float scale, bool has_sign, int64_t n, float* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> db;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* values = kMaps[has_sign].values;
  const auto factor = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto code = hn::PromoteTo(di, hn::LoadU(db, codes + i));
    hn::StoreU(hn::Mul(hn::GatherIndex(d, values, code), factor), d, to + i);
  }
  for (; i < n; ++i) to[i] = values[codes[i]] * scale;
}

template <bool HasSign>
void narrow_as(const float* from, float inverse, int64_t n, uint8_t* codes) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> db;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const EightBitMap& map = kMaps[HasSign];
  const auto factor = hn::Set(d, inverse);
  const auto zero = hn::Zero(d);
  const auto first = hn::Set(di, static_cast<int32_t>(kFirstKey)), last = hn::Set(di, kKeys - 1);
  const auto lower = hn::Set(di, 0xffff), magnitude = hn::Set(di, 0x7fffffff);
  const auto middle = hn::Set(di, static_cast<int32_t>(kZeroCode));
  const auto* steps = reinterpret_cast<const int32_t*>(map.steps);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto x = hn::LoadU(d, from + i);
    const auto bits = hn::And(hn::BitCast(di, hn::Mul(x, factor)), magnitude);
    const auto key = hn::Min(hn::Max(hn::Sub(hn::ShiftRight<16>(bits), first), hn::Zero(di)), last);
    const auto step = hn::GatherIndex(di, steps, key);
    auto code = hn::ShiftRight<16>(hn::Add(step, hn::And(bits, lower)));
    if constexpr (HasSign) {
      const auto negative = hn::RebindMask(di, hn::Lt(x, zero));
      code = hn::IfThenElse(negative, hn::Sub(middle, hn::Min(code, middle)), hn::Add(middle, code));
    } else {
      code = hn::IfThenElseZero(hn::RebindMask(di, hn::Gt(x, zero)), hn::Max(code, hn::Set(di, 1)));
    }
    hn::StoreU(hn::DemoteTo(db, code), db, codes + i);
  }
  for (; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(from[i] * inverse) & 0x7fffffffu;
    codes[i] = static_cast<uint8_t>(code_of<HasSign>(from[i], nearest_of(map.steps[key_of(bits)], bits)));
  }
}

// Returns the block's scale.
float narrow_block(const float* from, bool has_sign, int64_t n, uint8_t* codes) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  // As integers: NaN is above all.
  auto most = hn::Zero(di);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) most = hn::Max(most, hn::BitCast(di, hn::Abs(hn::LoadU(d, from + i))));
  int32_t parts[HWY_MAX_BYTES / sizeof(int32_t)] = {};
  hn::StoreU(most, di, parts);
  uint32_t bits = 0;
  for (int64_t l = 0; l < lanes; ++l) bits = std::max(bits, static_cast<uint32_t>(parts[l]));
  for (; i < n; ++i) bits = std::max(bits, std::bit_cast<uint32_t>(from[i]) & 0x7fffffffu);
  const float scale = scale_of(bits), inverse = inverse_scale(scale);
  if (has_sign) {
    narrow_as<true>(from, inverse, n, codes);
  } else {
    narrow_as<false>(from, inverse, n, codes);
  }
  return scale;
}

void widen_blocks(const uint8_t* codes, const float* scales, bool has_sign, int64_t n, float* to) {
  for (int64_t at = 0; at < n; at += kScaleBlock)
    widen_block(codes + at, scales[at / kScaleBlock], has_sign, std::min(kScaleBlock, n - at), to + at);
}
void narrow_blocks(const float* from, bool has_sign, int64_t n, uint8_t* codes, float* scales) {
  for (int64_t at = 0; at < n; at += kScaleBlock)
    scales[at / kScaleBlock] = narrow_block(from + at, has_sign, std::min(kScaleBlock, n - at), codes + at);
}

}  // namespace HWY_NAMESPACE
}  // namespace strata::optim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::optim {
HWY_EXPORT(widen_blocks);
HWY_EXPORT(narrow_blocks);

void dequantize(const uint8_t* codes, const float* scales, bool has_sign, int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(widen_blocks)(codes, scales, has_sign, n, to);
}
void quantize(const float* from, bool has_sign, int64_t n, uint8_t* codes, float* scales) {
  HWY_DYNAMIC_DISPATCH(narrow_blocks)(from, has_sign, n, codes, scales);
}

std::pair<Tensor, Tensor> quantized(const Tensor& t, bool has_sign) {
  NoGrad guard;
  const Tensor from = contiguous(t.detach().to(Device::cpu()).to(DType::f32));
  const Tensor codes = empty({t.shape(), DType::u8, Device::cpu(), std::nullopt});
  const Tensor scales = empty({{scale_blocks(t.numel())}, DType::f32, Device::cpu(), std::nullopt});
  const auto* x = from.data<float>();
  auto* c = codes.data<uint8_t>();
  auto* s = scales.data<float>();
  parallel_for(0, scales.numel(), 64, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * kScaleBlock, n = std::min(end * kScaleBlock, from.numel()) - at;
    quantize(x + at, has_sign, n, c + at, s + begin);
  });
  return {codes.to(t.device()), scales.to(t.device())};
}

Tensor dequantized(const Tensor& codes, const Tensor& scales, bool has_sign, DType dtype) {
  NoGrad guard;
  check<DTypeError>(codes.dtype() == DType::u8 && scales.dtype() == DType::f32, "dequantize",
                    "takes codes of u8 and scales of f32, got ", codes, " and ", scales);
  check<ShapeError>(scales.shape() == Shape{scale_blocks(codes.numel())}, "dequantize", "codes of shape ",
                    codes.shape(), " have ", scale_blocks(codes.numel()), " scales, got ", scales);
  const Tensor from = contiguous(codes.detach().to(Device::cpu()));
  const Tensor factors = contiguous(scales.detach().to(Device::cpu()));
  const Tensor to = empty({codes.shape(), DType::f32, Device::cpu(), std::nullopt});
  const auto* c = from.data<uint8_t>();
  const auto* s = factors.data<float>();
  auto* x = to.data<float>();
  parallel_for(0, scales.numel(), 64, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * kScaleBlock, n = std::min(end * kScaleBlock, from.numel()) - at;
    dequantize(c + at, s + begin, has_sign, n, x + at);
  });
  return to.to(codes.device()).to(dtype);
}

}  // namespace strata::optim
#endif
