#include "strata/io/bitmap_cpu.h"

#include <array>
#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/io/bitmap_cpu.cpp"
// Bytes are shuffled in vectors of 16: wider ones do not do more.
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_BASELINE_TARGETS | HWY_AVX2))
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::io {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// For each pattern of the bits of 16 bytes' elements, where each byte comes from; 0x80 makes a zero.
template <int kSize>
struct Places {
  static constexpr int kLanes = 16 / kSize;
  alignas(16) uint8_t from[1 << kLanes][16];
  constexpr Places() : from() {
    for (int pattern = 0; pattern < 1 << kLanes; ++pattern)
      for (int lane = 0, next = 0; lane < kLanes; ++lane) {
        const bool set = pattern >> lane & 1;
        for (int b = 0; b < kSize; ++b) from[pattern][lane * kSize + b] = set ? static_cast<uint8_t>(next * kSize + b) : 0x80;
        next += set;
      }
  }
};

// Whole bytes of bits; returns how many elements that were.
template <int kSize>
int64_t expand(const uint8_t* bits, const std::byte*& values, int64_t n, std::byte* out) {
#if HWY_TARGET == HWY_SCALAR
  return 0;  // a processor without vectors: one by one
#else
  static constexpr Places<kSize> places;
  constexpr int kLanes = 16 / kSize, kVectors = 8 / kLanes;
  const hn::FixedTag<uint8_t, 16> d;
  const auto* from = reinterpret_cast<const uint8_t*>(values);
  auto* to = reinterpret_cast<uint8_t*>(out);
  const int64_t whole = n / 8;
  for (int64_t i = 0; i < whole; ++i) {
    unsigned pattern = bits[i];
    for (int v = 0; v < kVectors; ++v, pattern >>= kLanes) {
      const unsigned mine = pattern & ((1u << kLanes) - 1);
      hn::StoreU(hn::TableLookupBytesOr0(hn::LoadU(d, from), hn::Load(d, places.from[mine])), d, to);
      to += 16;
      from += kSize * std::popcount(mine);
    }
  }
  values = reinterpret_cast<const std::byte*>(from);
  return whole * 8;
#endif
}

int64_t expand_2(const uint8_t* bits, const std::byte*& values, int64_t n, std::byte* out) {
  return expand<2>(bits, values, n, out);
}
int64_t expand_4(const uint8_t* bits, const std::byte*& values, int64_t n, std::byte* out) {
  return expand<4>(bits, values, n, out);
}
int64_t expand_8(const uint8_t* bits, const std::byte*& values, int64_t n, std::byte* out) {
  return expand<8>(bits, values, n, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace strata::io
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::io {
HWY_EXPORT(expand_2);
HWY_EXPORT(expand_4);
HWY_EXPORT(expand_8);

void expand_bits(const uint8_t* bits, const std::byte* values, int64_t n, int size, std::byte* out) {
  int64_t done = 0;
  if (size == 2) done = HWY_DYNAMIC_DISPATCH(expand_2)(bits, values, n, out);
  if (size == 4) done = HWY_DYNAMIC_DISPATCH(expand_4)(bits, values, n, out);
  if (size == 8) done = HWY_DYNAMIC_DISPATCH(expand_8)(bits, values, n, out);
  const auto each = static_cast<size_t>(size);
  for (int64_t i = done; i < n; ++i) {
    std::byte* to = out + static_cast<size_t>(i) * each;
    if (bits[i / 8] >> (i % 8) & 1) {
      std::memcpy(to, values, each);
      values += each;
    } else {
      std::memset(to, 0, each);
    }
  }
}

namespace {
template <class T>
int64_t pack(const std::byte* dense, int64_t n, uint8_t* bits, std::byte* values) {
  std::memset(bits, 0, static_cast<size_t>((n + 7) / 8));
  int64_t kept = 0;
  for (int64_t i = 0; i < n; ++i) {
    T v;
    std::memcpy(&v, dense + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    // Written over by the next one unless it counts.
    std::memcpy(values + static_cast<size_t>(kept) * sizeof(T), &v, sizeof(T));
    const bool set = v != 0;
    bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | set << (i % 8));
    kept += set;
  }
  return kept;
}
}  // namespace

int64_t pack_bits(const std::byte* dense, int64_t n, int size, uint8_t* bits, std::byte* values) {
  switch (size) {
    case 1:
      return pack<uint8_t>(dense, n, bits, values);
    case 2:
      return pack<uint16_t>(dense, n, bits, values);
    case 4:
      return pack<uint32_t>(dense, n, bits, values);
    default:
      return pack<uint64_t>(dense, n, bits, values);
  }
}

int64_t count_bits(const uint8_t* bits, int64_t n) {
  int64_t set = 0, i = 0;
  for (; i + 64 <= n; i += 64) {
    uint64_t word;
    std::memcpy(&word, bits + i / 8, 8);
    set += std::popcount(word);
  }
  for (; i + 8 <= n; i += 8) set += std::popcount(bits[i / 8]);
  if (i == n) return set;
  const unsigned last = bits[i / 8];
  return last >> (n - i) != 0 ? -1 : set + std::popcount(last);
}

}  // namespace strata::io
#endif
