#pragma once
// Elements as numbers without a sign that stand in the elements' order, and rows of them put in order on the host.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "strata/core/dtype.h"

namespace strata::order {

template <size_t bytes>
using Unsigned =
    std::conditional_t<bytes == 1, uint8_t,
                       std::conditional_t<bytes == 2, uint16_t, std::conditional_t<bytes == 4, uint32_t, uint64_t>>>;
template <class T>
using Key = Unsigned<sizeof(T)>;

template <class T>
constexpr bool kHasNan = !std::is_integral_v<T>;

// The bits of infinity: what is above them, but for the sign, is NaN.
template <class T>
constexpr Key<T> kInfinity = 0;
template <>
inline constexpr uint64_t kInfinity<double> = 0x7ff0000000000000u;
template <>
inline constexpr uint32_t kInfinity<float> = 0x7f800000u;
template <>
inline constexpr uint16_t kInfinity<Half> = 0x7c00u;
template <>
inline constexpr uint16_t kInfinity<BFloat16> = 0x7f80u;

/// A smaller element has a smaller key, equal ones have one (-0 and 0 too), and so have all NaN: the largest.
template <class T>
Key<T> key_of(T v) {
  using K = Key<T>;
  constexpr K kTop = static_cast<K>(K{1} << (8 * sizeof(K) - 1));
  if constexpr (std::is_same_v<T, bool> || std::is_unsigned_v<T>) {
    return static_cast<K>(v);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<K>(static_cast<K>(v) ^ kTop);
  } else {
    // Without branches: the signs of elements are as good as random.
    const K bits = std::bit_cast<K>(v);
    const K sign = static_cast<K>(static_cast<std::make_signed_t<K>>(bits) >> (8 * sizeof(K) - 1));
    K key = static_cast<K>(bits ^ static_cast<K>(sign | kTop));
    key = static_cast<K>(key + (bits == kTop ? 1 : 0));  // -0
    return static_cast<K>(key | static_cast<K>(-static_cast<K>(static_cast<K>(bits & ~kTop) > kInfinity<T>)));
  }
}

/// An element with this key.
template <class T>
T value_of(Key<T> key) {
  using K = Key<T>;
  constexpr K kTop = static_cast<K>(K{1} << (8 * sizeof(K) - 1));
  if constexpr (std::is_same_v<T, bool> || std::is_unsigned_v<T>)
    return static_cast<T>(key);
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(key ^ kTop);
  else
    return std::bit_cast<T>((key & kTop) != 0 ? static_cast<K>(key ^ kTop) : static_cast<K>(~key));
}

/// The key that would stand at place k among `keys` in order; changes their order.
template <class K>
K select(std::vector<K>& keys, size_t k) {
  constexpr size_t kMany = size_t{1} << 17;
  constexpr int kRest = sizeof(K) > 2 ? 8 * (static_cast<int>(sizeof(K)) - 2) : 0;
  if (keys.size() >= kMany) {  // those whose first 16 bits are wanted are parted off
    std::vector<size_t> counts(size_t{1} << 16);
    for (const K key : keys) ++counts[static_cast<size_t>(key >> kRest)];
    size_t digit = 0;
    while (k >= counts[digit]) k -= counts[digit++];
    if constexpr (kRest == 0) return static_cast<K>(digit);
    keys.erase(std::remove_if(keys.begin(), keys.end(), [&](K key) { return key >> kRest != digit; }), keys.end());
  }
  const auto at = keys.begin() + static_cast<std::ptrdiff_t>(k);
  std::nth_element(keys.begin(), at, keys.end());
  return *at;
}

/// found[q] = how many of the n sorted numbers come before(key[q], number): a number that does follows none that does
/// not. All searches take the same steps, none of which waits for a guess.
template <class K, size_t many, class Before>
void search(const K* sorted, int64_t n, const K (&key)[many], int64_t (&found)[many], Before before) {
  std::fill_n(found, many, 0);
  if (n == 0) return;
  for (int64_t length = n; length > 1; length -= length / 2) {
    const int64_t half = length / 2;
    // A mask and no branch, which would be guessed wrong every other time.
    for (size_t q = 0; q < many; ++q)
      found[q] += half & -static_cast<int64_t>(before(key[q], sorted[found[q] + half - 1]));
  }
  for (size_t q = 0; q < many; ++q) found[q] += static_cast<int64_t>(before(key[q], sorted[found[q]]));
}

/// A key and its place in the row, ordered by the key and then by the place: one number where both fit into it.
struct Packed {
  uint64_t both;
  static Packed of(uint64_t key, int64_t at) { return {key << 32 | static_cast<uint64_t>(at)}; }
  uint64_t key() const { return both >> 32; }
  int64_t at() const { return static_cast<int64_t>(both & 0xffffffffu); }
  friend bool operator<(const Packed& a, const Packed& b) { return a.both < b.both; }
};
struct Wide {
  uint64_t first;
  int64_t second;
  static Wide of(uint64_t key, int64_t at) { return {key, at}; }
  uint64_t key() const { return first; }
  int64_t at() const { return second; }
  friend bool operator<(const Wide& a, const Wide& b) {
    return a.first < b.first || (a.first == b.first && a.second < b.second);
  }
};

/// Calls f.operator()<Item>() for rows of `length` elements of type T.
template <class T, class F>
void with_items(int64_t length, F&& f) {
  if (sizeof(T) <= 4 && length <= std::numeric_limits<int32_t>::max())
    f.template operator()<Packed>();
  else
    f.template operator()<Wide>();
}

/// items[i] = element i of a row; with `reversed` keys stand in descending order, places as before.
template <class T, class Item>
void fill(std::vector<Item>& items, const T* row, int64_t length, bool reversed) {
  using K = Key<T>;
  items.resize(static_cast<size_t>(length));
  if (reversed)
    for (int64_t i = 0; i < length; ++i) items[static_cast<size_t>(i)] = Item::of(static_cast<K>(~key_of(row[i])), i);
  else
    for (int64_t i = 0; i < length; ++i) items[static_cast<size_t>(i)] = Item::of(key_of(row[i]), i);
}

/// The first k of the items of a row in their order, by a heap of the best so far: for few of many.
template <class T, class Item>
void first_few(std::vector<Item>& items, const T* row, int64_t length, int64_t k, bool reversed) {
  using K = Key<T>;
  const K flip = reversed ? std::numeric_limits<K>::max() : K{0};
  const auto key = [&](int64_t i) { return static_cast<K>(key_of(row[i]) ^ flip); };
  items.clear();
  for (int64_t i = 0; i < k; ++i) items.push_back(Item::of(key(i), i));
  std::make_heap(items.begin(), items.end());
  auto worst = static_cast<K>(items.front().key());
  for (int64_t i = k; i < length; ++i) {
    const K next = key(i);
    if (next >= worst) continue;  // equal ones stand behind those before
    std::pop_heap(items.begin(), items.end());
    items.back() = Item::of(next, i);
    std::push_heap(items.begin(), items.end());
    worst = static_cast<K>(items.front().key());
  }
  std::sort_heap(items.begin(), items.end());
}

/// Puts items, whose places ascend, in order: by the digits of their keys of `bytes` bytes where there are many.
template <class Item>
void sort(std::vector<Item>& items, std::vector<Item>& room, size_t bytes) {
  const size_t n = items.size();
  if (n < 64 * bytes) return std::sort(items.begin(), items.end());
  std::array<std::array<uint32_t, 256>, 8> counts{};
  if (n > std::numeric_limits<uint32_t>::max()) return std::sort(items.begin(), items.end());
  for (const Item& item : items) {
    uint64_t key = item.key();
    for (size_t b = 0; b < bytes; ++b, key >>= 8) ++counts[b][key & 255];
  }
  room.resize(n);
  for (size_t b = 0; b < bytes; ++b) {
    auto& count = counts[b];
    if (count[items[0].key() >> 8 * b & 255] == n) continue;  // all have this digit
    uint32_t before = 0;
    for (uint32_t& c : count) before += std::exchange(c, before);
    for (const Item& item : items) room[count[item.key() >> 8 * b & 255]++] = item;
    items.swap(room);
  }
}

}  // namespace strata::order
