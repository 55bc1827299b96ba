#include "strata/optim/eight_bit_cpu.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/memory/allocator.h"
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
constexpr Decades kDecadesOf[] = {make_decades(false), make_decades(true)};

// What each decade has, as often as the widest vectors need it.
constexpr int kTableLanes = 16;
struct alignas(64) DecadeTables {
  float width[kTableLanes] = {}, start[kTableLanes] = {}, parts[kTableLanes] = {}, shift[kTableLanes] = {};
  float last[kTableLanes] = {};
  float next[kTableLanes] = {};  // where the decade above begins
};
constexpr DecadeTables make_tables(const Decades& decades) {
  DecadeTables t;
  for (int i = 0; i < kTableLanes; ++i) {
    const int d = i % kDecades;
    t.width[i] = decades.width[d];
    t.start[i] = decades.start[d];
    t.parts[i] = decades.parts[d];
    t.shift[i] = decades.shift[d];
    t.last[i] = static_cast<float>(decades.last[d]);
    t.next[i] = d + 1 == kDecades ? 2 : decades.least[d + 1];
  }
  return t;
}
constexpr DecadeTables kTables[] = {make_tables(kDecadesOf[0]), make_tables(kDecadesOf[1])};
// f32 has whole numbers above this one alone: what is added to it is rounded to one, which is in the lowest bits.
constexpr float kWhole = 8388608;
// A number's bits times the first, and the second added, is its decade or the one below when it is rounded: 0.77 less
// than the logarithm, of which a decade begins at most 0.28 late, and the line between two powers of 2 at most 0.03
// below that.
constexpr float kDecadesOfBits = 0.30103f / 8388608, kDecadeOfNone = -32.5f;
static_assert(kMaps[0].complete && kMaps[0].magnitudes == 256 && kMaps[1].complete && kMaps[1].magnitudes == 129);
}  // namespace strata::optim
#endif

HWY_BEFORE_NAMESPACE();
namespace strata::optim {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors compute what a device looks up (EightBitMap): gathers from tables are slower by far.
#undef STRATA_VECTORS
#if HWY_NATIVE_FMA && HWY_MAX_BYTES >= 32
#define STRATA_VECTORS 1
#else
#define STRATA_VECTORS 0
#endif

#if STRATA_VECTORS
using D = hn::ScalableTag<float>;
using F = hn::Vec<D>;
using I = hn::Vec<hn::RebindToSigned<D>>;

// A number of each decade, to look up by lanes.
HWY_INLINE F of_decade(const float (&numbers)[kTableLanes], I decade) {
  return hn::TableLookupLanes(hn::Load(D(), numbers), hn::IndicesFromVec(D(), decade));
}
#endif

template <bool HasSign>
void widen_as(const uint8_t* codes, float scale, int64_t n, float* to) {
  const float* values = kMaps[HasSign].values;
  int64_t i = 0;
#if STRATA_VECTORS
  const D d;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> db;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const DecadeTables& tables = kTables[HasSign];
  const F factor = hn::Set(d, scale);
  for (; i + lanes <= n; i += lanes) {
    I code = hn::PromoteTo(di, hn::LoadU(db, codes + i));
    if constexpr (HasSign) code = hn::Sub(code, hn::Set(di, static_cast<int32_t>(kZeroCode)));
    const F number = hn::ConvertTo(d, code), index = hn::Abs(number);
    // A decade's first index is a power of 2, or without a sign one less.
    const F power = HasSign ? index : hn::Add(index, hn::Set(d, 1.f));
    const I exponent = hn::Sub(hn::ShiftRight<23>(hn::BitCast(di, power)), hn::Set(di, HasSign ? 127 : 128));
    const I decade = hn::And(exponent, hn::Set(di, kDecades - 1));
    const F magnitude = hn::MulAdd(index, of_decade(tables.width, decade), of_decade(tables.start, decade));
    const F value = hn::IfThenElseZero(hn::Gt(index, hn::Zero(d)), hn::CopySign(magnitude, number));
    hn::StoreU(hn::Mul(value, factor), d, to + i);
  }
#endif
  for (; i < n; ++i) to[i] = values[codes[i]] * scale;
}

template <bool HasSign>
void narrow_as(const float* from, float inverse, int64_t n, uint8_t* codes) {
  const EightBitMap& map = kMaps[HasSign];
  int64_t i = 0;
#if STRATA_VECTORS
  const D d;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> db;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const DecadeTables& tables = kTables[HasSign];
  const F factor = hn::Set(d, inverse), zero = hn::Zero(d), one = hn::Set(d, 1.f);
  const F of_bits = hn::Set(d, kDecadesOfBits), of_none = hn::Set(d, kDecadeOfNone + kWhole);
  const F least = hn::Set(d, kDecadesOf[HasSign].least[0]), whole = hn::Set(d, kWhole);
  const I low_bits = hn::Set(di, kDecades - 1);
  // Nothing is relative to a scale of 0 or NaN.
  for (; inverse > 0 && i + lanes <= n; i += lanes) {
    const F x = hn::LoadU(d, from + i), y = hn::Abs(hn::Mul(x, factor));
    const F logarithm = hn::MulAdd(hn::ConvertTo(d, hn::BitCast(di, y)), of_bits, of_none);
    const I below = hn::And(hn::BitCast(di, hn::Max(logarithm, whole)), low_bits);
    const I decade = hn::IfThenElse(hn::RebindMask(di, hn::Ge(y, of_decade(tables.next, below))),
                                    hn::Add(below, hn::Set(di, 1)), below);
    const F place = hn::MulAdd(y, of_decade(tables.parts, decade), of_decade(tables.shift, decade));
    const F index = hn::Min(hn::Floor(place), of_decade(tables.last, decade));
    F code;  // and kWhole
    if constexpr (HasSign) {
      const F middle = hn::Set(d, kWhole + static_cast<float>(kZeroCode));
      code = hn::Max(hn::Add(middle, hn::CopySign(hn::IfThenElseZero(hn::Ge(y, least), index), x)), whole);
    } else {
      code = hn::Add(hn::IfThenElseZero(hn::Gt(x, zero), hn::Max(index, one)), whole);
    }
    hn::StoreU(hn::TruncateTo(db, hn::BitCast(hn::RebindToUnsigned<D>(), code)), db, codes + i);
  }
#endif
  for (; i < n; ++i) {
    codes[i] = static_cast<uint8_t>(code_of<HasSign>(from[i], nearest_of(map, place_of(from[i], inverse))));
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
    (has_sign ? widen_as<true> : widen_as<false>)(codes + at, scales[at / kScaleBlock], std::min(kScaleBlock, n - at),
                                                  to + at);
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
  const memory::TierScope own{Tier()};
  const Tensor from = contiguous(t.detach().to(Device::cpu()).to(DType::f32));
  const Pin pin(from, Access::read);  // it may be on disk
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
  const memory::TierScope own{Tier()};
  check<DTypeError>(codes.dtype() == DType::u8 && scales.dtype() == DType::f32, "dequantize",
                    "takes codes of u8 and scales of f32, got ", codes, " and ", scales);
  check<ShapeError>(scales.shape() == Shape{scale_blocks(codes.numel())}, "dequantize", "codes of shape ",
                    codes.shape(), " have ", scale_blocks(codes.numel()), " scales, got ", scales);
  const Tensor from = contiguous(codes.detach().to(Device::cpu()));
  const Tensor factors = contiguous(scales.detach().to(Device::cpu()));
  const Pin pin(from, Access::read), another(factors, Access::read);
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
