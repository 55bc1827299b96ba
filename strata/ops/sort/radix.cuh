#pragma once
// Stable radix sorts of unsigned keys on a CUDA device (CUB's), each built in one file.

#include <cstdint>

#include "strata/core/device.h"

namespace strata::sort_detail {

/// Keys and what belongs to them, each in one of two buffers: a sort swaps `now` and `other` as it needs.
template <class T>
struct TwoBuffers {
  T *now, *other;
};

/// Sorts n < 2^32 keys by their lowest `bits` bits; for K of 32 and 64 bits.
template <class K>
void radix_sort(TwoBuffers<K>& keys, int64_t n, int bits, Device device);
/// The same with a value for each key.
template <class K>
void radix_sort(TwoBuffers<K>& keys, TwoBuffers<uint32_t>& values, int64_t n, int bits, Device device);

/// Sorts n < 2^32 signed numbers of 32 or 64 bits from one piece of memory into another.
template <class T>
void radix_sort_signed(const T* from, T* to, int64_t n, Device device);
/// The same with a value for each.
template <class T>
void radix_sort_signed(const T* from, T* to, const uint32_t* values, uint32_t* sorted, int64_t n, Device device);

}  // namespace strata::sort_detail
