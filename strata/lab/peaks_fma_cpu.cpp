#include "strata/lab/peaks_inl.h"

#include <hwy/cache_control.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/lab/peaks_fma_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;

// Enough independent chains to hide the latency of two multiply-add units of 4 cycles, few enough for 16 registers.
constexpr int64_t kChains = 12;

void Triad(float* HWY_RESTRICT a, const float* HWY_RESTRICT b, const float* HWY_RESTRICT c, int64_t n) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto s = hn::Set(d, 3.0f);
  int64_t i = 0;
  for (; i < n && reinterpret_cast<uintptr_t>(a + i) % (lanes * sizeof(float)) != 0; ++i) a[i] = b[i] + 3.0f * c[i];
  for (; i + lanes <= n; i += lanes) hn::Stream(hn::MulAdd(s, hn::LoadU(d, c + i), hn::LoadU(d, b + i)), d, a + i);
  for (; i < n; ++i) a[i] = b[i] + 3.0f * c[i];
  hwy::FlushStream();
}

float Sum(const float* a, int64_t n) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, a + i));
    s1 = hn::Add(s1, hn::LoadU(d, a + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, a + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(d, a + i + 3 * lanes));
  }
  float s = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) s += a[i];
  return s;
}

float FmaLoop(int64_t rounds) {
  const D d;
  const auto m = hn::Set(d, 0.5f), k = hn::Set(d, 1.0f);
  auto a = hn::Set(d, 0.1f), b = hn::Set(d, 0.2f), c = hn::Set(d, 0.3f), e = hn::Set(d, 0.4f);
  auto f = hn::Set(d, 0.5f), g = hn::Set(d, 0.6f), h = hn::Set(d, 0.7f), i = hn::Set(d, 0.8f);
  auto j = hn::Set(d, 0.9f), l = hn::Set(d, 1.0f), o = hn::Set(d, 1.1f), p = hn::Set(d, 1.2f);
  for (int64_t r = 0; r < rounds; ++r) {
    a = hn::MulAdd(a, m, k), b = hn::MulAdd(b, m, k), c = hn::MulAdd(c, m, k), e = hn::MulAdd(e, m, k);
    f = hn::MulAdd(f, m, k), g = hn::MulAdd(g, m, k), h = hn::MulAdd(h, m, k), i = hn::MulAdd(i, m, k);
    j = hn::MulAdd(j, m, k), l = hn::MulAdd(l, m, k), o = hn::MulAdd(o, m, k), p = hn::MulAdd(p, m, k);
  }
  const auto s = hn::Add(hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)), hn::Add(hn::Add(f, g), hn::Add(h, i))),
                         hn::Add(hn::Add(j, l), hn::Add(o, p)));
  return hn::GetLane(hn::SumOfLanes(d, s));
}

int64_t FmaFlops(int64_t rounds) {
  return rounds * kChains * 2 * static_cast<int64_t>(hn::Lanes(D()));
}

}  // namespace HWY_NAMESPACE
}  // namespace strata
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {

HWY_EXPORT(Triad);
HWY_EXPORT(Sum);
HWY_EXPORT(FmaLoop);
HWY_EXPORT(FmaFlops);

void detail::triad(float* a, const float* b, const float* c, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Triad)(a, b, c, n);
}
float detail::sum(const float* a, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(Sum)(a, n);
}
float detail::fma_loop(int64_t rounds) {
  return HWY_DYNAMIC_DISPATCH(FmaLoop)(rounds);
}
int64_t detail::fma_flops(int64_t rounds) {
  return HWY_DYNAMIC_DISPATCH(FmaFlops)(rounds);
}

}  // namespace strata
#endif
