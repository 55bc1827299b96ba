#include <algorithm>
#include <bit>
#include <cstring>

#include "strata/optim/rounding_inl.h"
#include "strata/optim/storage_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/optim/halves_cpu.cpp"
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_BASELINE_TARGETS | HWY_AVX2 | HWY_AVX3))
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::optim {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DU = hn::ScalableTag<uint32_t>;
using DI = hn::RebindToSigned<DU>;

// joined(), of each lane.
void join_all(const uint16_t* upper, const int16_t* lower, int64_t n, float* to) {
  const DU du;
  const DI di;
  const hn::Rebind<uint16_t, DU> dh;
  const hn::Rebind<int16_t, DU> ds;
  const auto lanes = static_cast<int64_t>(hn::Lanes(du));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto high = hn::BitCast(di, hn::PromoteTo(du, hn::LoadU(dh, upper + i)));
    const auto low = hn::PromoteTo(di, hn::LoadU(ds, lower + i));
    const auto magnitude = hn::And(high, hn::Set(di, 0x7fff));
    const auto fits = hn::Or(hn::And(hn::Lt(low, hn::Zero(di)), hn::Gt(magnitude, hn::Zero(di))),
                             hn::And(hn::Gt(low, hn::Set(di, -1)), hn::Lt(magnitude, hn::Set(di, 0x7f80))));
    const auto bits = hn::Add(hn::ShiftLeft<16>(high), hn::IfThenElseZero(fits, low));
    hn::StoreU(hn::BitCast(hn::RebindToFloat<DU>(), bits), hn::RebindToFloat<DU>(), to + i);
  }
  for (; i < n; ++i) to[i] = std::bit_cast<float>(joined(upper[i], lower[i]));
}

// split(), of each lane.
void split_all(const float* from, int64_t n, uint16_t* upper, int16_t* lower) {
  const DU du;
  const DI di;
  const hn::Rebind<uint16_t, DU> dh;
  const auto lanes = static_cast<int64_t>(hn::Lanes(du));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto bits = hn::BitCast(du, hn::LoadU(hn::RebindToFloat<DU>(), from + i));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    const auto high = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd));
    const auto away = hn::BitCast(di, hn::Sub(bits, hn::ShiftLeft<16>(high)));
    const auto low = hn::Min(away, hn::Set(di, 0x7fff));
    const auto nan = hn::Gt(hn::BitCast(di, hn::And(bits, hn::Set(du, 0x7fffffffu))), hn::Set(di, 0x7f800000));
    const auto kept = hn::IfThenElse(hn::RebindMask(du, nan), hn::Set(du, 0x7fc0u), high);
    const auto rest = hn::BitCast(du, hn::IfThenZeroElse(nan, low));
    hn::StoreU(hn::TruncateTo(dh, kept), dh, upper + i);
    hn::StoreU(hn::TruncateTo(dh, rest), dh, reinterpret_cast<uint16_t*>(lower) + i);
  }
  for (; i < n; ++i) {
    const Halves halves = split(std::bit_cast<uint32_t>(from[i]));
    upper[i] = halves.upper;
    lower[i] = halves.lower;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace strata::optim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::optim {
HWY_EXPORT(join_all);
HWY_EXPORT(split_all);

void widen_halves(const void* upper, const void* lower, int64_t at, int64_t n, float* buffer) {
  HWY_DYNAMIC_DISPATCH(join_all)
  (static_cast<const uint16_t*>(upper) + at, static_cast<const int16_t*>(lower) + at, n, buffer);
}
void narrow_halves(const float* from, void* upper, void* lower, int64_t at, int64_t n) {
  HWY_DYNAMIC_DISPATCH(split_all)
  (from, n, static_cast<uint16_t*>(upper) + at, static_cast<int16_t*>(lower) + at);
}

}  // namespace strata::optim
#endif
