#pragma once
// References of the random ops: Philox's counter stream, written again from the paper, and the transforms of its
// numbers one at a time. DType arguments of random ops are not widened: how many bits an element takes depends on them.

#include <array>
#include <numbers>

#include "strata/core/rng.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/naive_inl.h"

namespace strata::by_loops {

using naive::Array;
using Words = std::array<uint32_t, 4>;

/// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11, section 3.2): each round
/// multiplies two words, keeps the low halves and mixes the high ones with the others and the key.
constexpr Words philox_of(Words counter, uint32_t key0, uint32_t key1) {
  for (uint32_t round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t{counter[0]} * 0xD2511F53, right = uint64_t{counter[2]} * 0xCD9E8D57;
    counter = {
        static_cast<uint32_t>(right >> 32) ^ counter[1] ^ (key0 + round * 0x9E3779B9), static_cast<uint32_t>(right),
        static_cast<uint32_t>(left >> 32) ^ counter[3] ^ (key1 + round * 0xBB67AE85), static_cast<uint32_t>(left)};
  }
  return counter;
}
// Known answers of the authors' library.
static_assert(philox_of({0, 0, 0, 0}, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox_of({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0) ==
              Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

/// The i-th 32-bit number that a key names.
inline uint32_t word(RngKey key, int64_t i) {
  const uint64_t block = key.offset + static_cast<uint64_t>(i) / 4;
  const Words four = philox_of({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0},
                               static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32));
  return four[static_cast<size_t>(i % 4)];
}
/// The i-th 64-bit number.
inline uint64_t long_word(RngKey key, int64_t i) {
  return uint64_t{word(key, 2 * i)} << 32 | word(key, 2 * i + 1);
}
/// The i-th uniform number in [0, 1): 53 bits of the i-th long word.
inline double unit(RngKey key, int64_t i) {
  return static_cast<double>(long_word(key, i) >> 11) * 0x1p-53;
}
/// The same with the bits that a number of `dtype` takes: 24 of the i-th word below f64.
inline double unit(RngKey key, int64_t i, DType dtype) {
  return dtype == DType::f64 ? unit(key, i) : static_cast<double>(word(key, i) >> 8) * 0x1p-24;
}

inline Tensor uniform_numbers(const Shape& shape, double low, double high, RngKey key, DType dtype, Device) {
  Array y(shape);
  for (int64_t i = 0; i < y.size(); ++i) y.flat(i) = low + (high - low) * unit(key, i, dtype);
  // What the dtype rounds up to `high` becomes `low`.
  Array rounded(to(Tensor(y), dtype));
  for (int64_t i = 0; i < y.size(); ++i)
    if (rounded.flat(i) >= high) y.flat(i) = low;
  return y;
}

/// Box and Muller: a pair of elements from a pair of uniform numbers, the first of which is never 0.
inline Tensor normal_numbers(const Shape& shape, double mean, double std, RngKey key, DType dtype, Device) {
  Array y(shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t first = i - i % 2;
    const double u = dtype == DType::f64
                         ? 1 - unit(key, first)
                         : static_cast<double>(static_cast<float>(word(key, first))) * 0x1p-32 + 0x1p-33;
    const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * unit(key, first + 1, dtype);
    y.flat(i) = mean + std * radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
  }
  return y;
}

/// The number below which a share u of the interval's normal numbers lies, by bisection.
inline Tensor truncated_normal_numbers(const Shape& shape, double mean, double std, double low, double high, RngKey key,
                                       DType, Device) {
  const auto below = [&](double x) { return 0.5 * std::erfc((mean - x) / std / std::numbers::sqrt2); };
  Array y(shape);
  for (int64_t i = 0; i < y.size(); ++i) {
    const double wanted = below(low) + (below(high) - below(low)) * unit(key, i);
    double left = low, right = high;
    for (int step = 0; step < 100; ++step) {
      const double middle = 0.5 * (left + right);
      (below(middle) < wanted ? left : right) = middle;
    }
    y.flat(i) = left;
  }
  return y;
}

/// 64 bits read as a fraction of 1, of the range.
inline Tensor integers(int64_t low, int64_t high, const Shape& shape, RngKey key, DType, Device) {
  Array y(shape);
  for (int64_t i = 0; i < y.size(); ++i)
    y.flat(i) =
        static_cast<double>(low) + std::floor(static_cast<double>(static_cast<long double>(long_word(key, i)) *
                                                                  static_cast<long double>(high - low) * 0x1p-64L));
  return y;
}

inline Tensor trials(const Tensor& p, RngKey key) {
  const Array share(p);
  Array y(p.shape());
  for (int64_t i = 0; i < y.size(); ++i) y.flat(i) = static_cast<double>(word(key, i)) * 0x1p-32 < share.flat(i);
  return y;
}

/// With replacement the first category whose running sum passes a share of all; else the categories in the order in
/// which exponential clocks of their rates ring. Each number takes the first half of a block of its own.
inline Tensor categories(const Tensor& weights, int64_t num_samples, bool replacement, RngKey key) {
  const Array w(weights);
  const auto share = [&](int64_t i) { return unit(key, 2 * i); };
  const int64_t n = weights.shape().back();
  Array y(naive::moved(weights.shape(), weights.dim() - 1, num_samples));
  for (int64_t row = 0; row < w.size() / n; ++row) {
    double total = 0;
    for (int64_t j = 0; j < n; ++j) total += w.flat(row * n + j);
    std::vector<std::pair<double, int64_t>> rings;
    for (int64_t j = 0; j < n; ++j) rings.emplace_back(-std::log(1 - share(row * n + j)) / w.flat(row * n + j), j);
    std::sort(rings.begin(), rings.end());
    for (int64_t s = 0; s < num_samples; ++s) {
      const int64_t at = row * num_samples + s;
      int64_t chosen = 0;
      for (double sum = w.flat(row * n); replacement && chosen + 1 < n && sum <= share(at) * total;)
        sum += w.flat(row * n + ++chosen);
      y.flat(at) = static_cast<double>(replacement ? chosen : rings[static_cast<size_t>(s)].second);
    }
  }
  return y;
}

inline Tensor order(int64_t n, RngKey key, Device) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < n; ++i) places.push_back(i);
  std::sort(places.begin(), places.end(), [&](int64_t a, int64_t b) { return long_word(key, a) < long_word(key, b); });
  return Array(Shape{n}, std::vector<double>(places.begin(), places.end()));
}

}  // namespace strata::by_loops
