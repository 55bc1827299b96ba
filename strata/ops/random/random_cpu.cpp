#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/random/box_muller_inl.h"
#include "strata/ops/random/random_kernels.h"
#include "strata/ops/vec/scratch.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/random/draw_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {

// Eight blocks run side by side so that the compiler
// vectorises the rounds.
void draw_bits(RngKey key, uint64_t first, int64_t blocks, uint32_t* out) {
  constexpr int kLanes = 8;
  int64_t b = STRATA_VEC_CALL(draw_blocks)(key.offset + first, key.seed, blocks, out);
  out += 4 * b;
  for (; b + kLanes <= blocks; b += kLanes) {
    uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
    for (int j = 0; j < kLanes; ++j) {
      const uint64_t counter = key.offset + first + static_cast<uint64_t>(b + j);
      c0[j] = static_cast<uint32_t>(counter);
      c1[j] = static_cast<uint32_t>(counter >> 32);
      c2[j] = c3[j] = 0;
    }
    uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      for (int j = 0; j < kLanes; ++j) {
        const uint64_t p0 = uint64_t{0xD2511F53u} * c0[j], p1 = uint64_t{0xCD9E8D57u} * c2[j];
        c0[j] = static_cast<uint32_t>(p1 >> 32) ^ c1[j] ^ k0;
        c2[j] = static_cast<uint32_t>(p0 >> 32) ^ c3[j] ^ k1;
        c1[j] = static_cast<uint32_t>(p1);
        c3[j] = static_cast<uint32_t>(p0);
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    for (int j = 0; j < kLanes; ++j) {
      out[0] = c0[j];
      out[1] = c1[j];
      out[2] = c2[j];
      out[3] = c3[j];
      out += 4;
    }
  }
  for (; b < blocks; ++b) {
    const auto r = philox(key, first + static_cast<uint64_t>(b));
    out = std::copy(r.begin(), r.end(), out);
  }
}

namespace {

constexpr int64_t kChunk = 1024;     // elements drawn at once
constexpr int64_t kRandomGrain = 8;  // chunks below which a second thread does not pay

// Calls f(bits, begin, n) for stretches that cover [0, n): `bits` holds Words 32-bit numbers for each element.
template <int Words, class F>
void for_chunks(RngKey key, int64_t n, F&& f) {
  parallel_for(0, (n + kChunk - 1) / kChunk, kRandomGrain, [&](int64_t b, int64_t e) {
    uint32_t bits[kChunk * Words];
    for (int64_t chunk = b; chunk < e; ++chunk) {
      const int64_t begin = chunk * kChunk, count = std::min(kChunk, n - begin);
      draw_bits(key, static_cast<uint64_t>(begin * Words / 4), (count * Words + 3) / 4, bits);
      f(static_cast<const uint32_t*>(bits), begin, count);
    }
  });
}

// Runs `body` on y, or on a row-major stand-in that is then copied to y.
template <class Body>
void into_dense(Tensor& y, Body&& body) {
  if (y.is_contiguous()) {
    body(y);
    return;
  }
  Tensor dense = empty(like(y));
  body(dense);
  copy_elements(y, dense);
}

// The value in T; `high` itself, which rounding could reach, becomes `low`.
template <class T, class C>
T below(C v, C high, T low) {
  const T r = static_cast<T>(v);
  return static_cast<C>(r) < high ? r : low;
}

}  // namespace

uint64_t random_blocks(int64_t n, DType dtype) {
  const int64_t each = size_of(dtype) == 8 ? 2 : 4;
  return static_cast<uint64_t>(n / each + (n % each > 0));
}
uint64_t random_blocks(const Shape& shape, DType dtype) {
  int64_t n = 1;
  for (const int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(n, size, &n)) return 0;
  return random_blocks(n, dtype);
}

void uniform_cpu(Tensor& out, const Shape&, double low, double high, RngKey key, DType, Device) {
  into_dense(out, [&](Tensor& y) {
    dispatch_floats(y.dtype(), "uniform", [&]<class T>() {
      T* p = y.data<T>();
      if constexpr (std::is_same_v<T, double>) {
        for_chunks<2>(key, y.numel(), [&](const uint32_t* bits, int64_t begin, int64_t n) {
          for (int64_t i = 0; i < n; ++i)
            p[begin + i] = below<T>(low + (high - low) * uniform_f64(bits[2 * i], bits[2 * i + 1]), high, low);
        });
      } else {
        const float lo = static_cast<float>(low), range = static_cast<float>(high - low), hi = static_cast<float>(high);
        const T low_t = static_cast<T>(lo);
        for_chunks<1>(key, y.numel(), [&](const uint32_t* bits, int64_t begin, int64_t n) {
          for (int64_t i = 0; i < n; ++i) p[begin + i] = below<T>(lo + range * uniform_f32(bits[i]), hi, low_t);
        });
      }
    });
  });
}

// Elements 2j and 2j + 1 share two uniform numbers.
void normal_cpu(Tensor& out, const Shape&, double mean, double std, RngKey key, DType, Device) {
  into_dense(out, [&](Tensor& y) {
    dispatch_floats(y.dtype(), "normal", [&]<class T>() {
      T* p = y.data<T>();
      using C = compute_t<T>;
      constexpr int words = std::is_same_v<T, double> ? 2 : 1;
      const C m = static_cast<C>(mean), s = static_cast<C>(std);
      for_chunks<words>(key, y.numel(), [&](const uint32_t* bits, int64_t begin, int64_t n) {
        C first[kChunk / 2], second[kChunk / 2];
        for (int64_t j = 0; j < (n + 1) / 2; ++j) {
          C u, v;
          if constexpr (words == 2) {
            u = 1 - uniform_f64(bits[4 * j], bits[4 * j + 1]);
            v = uniform_f64(bits[4 * j + 2], bits[4 * j + 3]);
          } else {
            u = static_cast<float>(bits[2 * j]) * 0x1p-32f + 0x1p-33f;  // never 0: its logarithm is finite
            v = uniform_f32(bits[2 * j + 1]);
          }
          box_muller::pair(u, v, m, s, first[j], second[j]);
        }
        for (int64_t j = 0; j < n / 2; ++j) {
          p[begin + 2 * j] = static_cast<T>(first[j]);
          p[begin + 2 * j + 1] = static_cast<T>(second[j]);
        }
        if (n % 2 == 1) p[begin + n - 1] = static_cast<T>(first[n / 2]);
      });
    });
  });
}

void trunc_normal_cpu(Tensor& out, const Shape&, double mean, double std, double low, double high, RngKey key, DType,
                      Device) {
  const auto distribution = [](double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); };
  const double from = distribution((low - mean) / std), to = distribution((high - mean) / std);
  into_dense(out, [&](Tensor& y) {
    dispatch_floats(y.dtype(), "trunc_normal", [&]<class T>() {
      T* p = y.data<T>();
      for_chunks<2>(key, y.numel(), [&](const uint32_t* bits, int64_t begin, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          const double u =
              std::clamp(from + (to - from) * uniform_f64(bits[2 * i], bits[2 * i + 1]), 1e-300, 1 - 1e-16);
          const double v = std::clamp(mean + std * inverse_normal(u), low, high);
          p[begin + i] = static_cast<T>(static_cast<compute_t<T>>(v));
        }
      });
    });
  });
}

void randint_cpu(Tensor& out, int64_t low, int64_t high, const Shape&, RngKey key, DType, Device) {
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  into_dense(out, [&](Tensor& y) {
    dispatch_all(y.dtype(), "randint", [&]<class T>() {
      T* p = y.data<T>();
      for_chunks<2>(key, y.numel(), [&](const uint32_t* bits, int64_t begin, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          const uint64_t r = static_cast<uint64_t>(bits[2 * i]) << 32 | bits[2 * i + 1];
          // The high half of r * range: its bias is at most range / 2^64.
          const uint64_t v = static_cast<uint64_t>(static_cast<unsigned __int128>(r) * range >> 64);
          p[begin + i] =
              static_cast<T>(static_cast<compute_t<T>>(static_cast<int64_t>(static_cast<uint64_t>(low) + v)));
        }
      });
    });
  });
}

void bernoulli_cpu(Tensor& y, const Tensor& probabilities, RngKey key) {
  const DType wide = y.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor p = contiguous(to(probabilities, wide));
  dispatch_floats(y.dtype(), "bernoulli", [&]<class T>() {
    const compute_t<T>* in = p.data<compute_t<T>>();
    // 1 by its bits, of which 0 has none: a choice between numbers would be a branch that nothing predicts.
    using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
    Bits* o = static_cast<Bits*>(y.raw_data());
    const Bits one = std::bit_cast<Bits>(static_cast<T>(1.0f));
    for_chunks<1>(key, y.numel(), [&](const uint32_t* bits, int64_t begin, int64_t n) {
      const compute_t<T>* q = in + begin;
      bool inside = true;
      for (int64_t i = 0; i < n; ++i) inside &= (q[i] >= 0) & (q[i] <= 1);
      for (int64_t i = 0; !inside && i < n; ++i)
        check(q[i] >= 0 && q[i] <= 1, "bernoulli", "probabilities must lie in [0, 1], got ", static_cast<double>(q[i]),
              " at element ", begin + i);
      for (int64_t i = 0; i < n; ++i) {
        const bool yes = static_cast<double>(bits[i]) * 0x1p-32 < static_cast<double>(q[i]);
        o[begin + i] = static_cast<Bits>(one & (Bits{0} - static_cast<Bits>(yes)));
      }
    });
  });
}

// The sums of the first 1, 2, .. n numbers; returns the last. Those of eight wait for the ones before them once. None
// is below the one before it, as rounding keeps order.
double running_sums(const double* q, int64_t n, double* sums) {
  constexpr int64_t kAtOnce = 8;
  double total = 0;
  int64_t j = 0;
  for (; j + kAtOnce <= n; j += kAtOnce) {
    double within[kAtOnce];
    within[0] = q[j];
    for (int64_t i = 1; i < kAtOnce; ++i) within[i] = within[i - 1] + q[j + i];
    for (int64_t i = 0; i < kAtOnce; ++i) sums[j + i] = total + within[i];
    total = sums[j + kAtOnce - 1];
  }
  for (; j < n; ++j) sums[j] = total += q[j];
  return total;
}

void multinomial_cpu(Tensor& y, const Tensor& weights, int64_t num_samples, bool replacement, RngKey key) {
  const Tensor w = contiguous(to(weights, DType::f64));
  const int64_t n = w.shape().back(), rows = w.dim() == 1 ? 1 : w.shape()[0];
  const double* p = w.data<double>();
  int64_t* o = y.data<int64_t>();
  const auto unit = [&](int64_t i) {
    const auto bits = philox(key, static_cast<uint64_t>(i));
    return uniform_f64(bits[0], bits[1]);
  };
  parallel_for(0, rows, std::max<int64_t>(1, kChunk / std::max<int64_t>(n, 1)), [&](int64_t b, int64_t e) {
    ScratchFrame frame;
    auto* const sums = frame.take<double>(n);
    std::vector<int64_t> order(static_cast<size_t>(replacement ? 0 : n));
    for (int64_t row = b; row < e; ++row) {
      const double* q = p + row * n;
      // Looked at one by one only where a sign says that one may be negative, or the total that one is not finite.
      uint64_t signs = 0;
      for (int64_t j = 0; j < n; ++j) signs |= std::bit_cast<uint64_t>(q[j]);
      const double total = running_sums(q, n, sums);
      for (int64_t j = 0; (signs >> 63 != 0 || !std::isfinite(total)) && j < n; ++j)
        check(q[j] >= 0 && std::isfinite(q[j]), "multinomial", "weights must be finite and not negative, got ", q[j],
              " in row ", row);
      check(total > 0, "multinomial", "the weights of row ", row, " are all 0");
      if (replacement) {
        for (int64_t s = 0; s < num_samples; ++s) {
          const double target = unit(row * num_samples + s) * total;
          // The first running sum above the target belongs to a positive weight.
          const double* const found = std::upper_bound(sums, sums + n, target);
          int64_t index = std::min<int64_t>(found - sums, n - 1);
          while (q[index] == 0) --index;  // only when rounding put the target at the total
          o[row * num_samples + s] = index;
        }
        continue;
      }
      const int64_t positive = std::count_if(q, q + n, [](double v) { return v > 0; });
      check(num_samples <= positive, "multinomial", num_samples, " samples without replacement from row ", row,
            " with ", positive, " positive weights");
      // The smallest of exponential variables with these rates: the order in which they ring is a draw without
      // replacement.
      for (int64_t j = 0; j < n; ++j) sums[j] = q[j] > 0 ? -std::log(1 - unit(row * n + j)) / q[j] : HUGE_VAL;
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + num_samples, order.end(), [&](int64_t l, int64_t r) {
        const double a = sums[l], c = sums[r];
        return a < c || (a == c && l < r);
      });
      std::copy_n(order.begin(), num_samples, o + row * num_samples);
    }
  });
}

// The order of random keys: by their first bits into buckets that the cache holds, then each bucket by the next bits,
// so that hardly an element is far from its place; ties are broken by the index. The result's memory holds the buckets.
void randperm_cpu(Tensor& y, int64_t n, RngKey key, Device) {
  // A bucket has about 2^kSizeBits elements.
  constexpr int kSizeBits = 9;
  const int index_bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(n)));
  const int bucket_bits = std::clamp(index_bits - kSizeBits, 0, 12);
  const auto bucket_of = [&](uint64_t k) {
    return bucket_bits == 0 ? 0 : static_cast<size_t>(k >> (64 - bucket_bits));
  };
  const auto each_key = [&](auto&& f) {
    uint32_t bits[kChunk * 2];
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t count = std::min(kChunk, n - begin);
      draw_bits(key, static_cast<uint64_t>(begin / 2), (count + 1) / 2, bits);
      for (int64_t i = 0; i < count; ++i)
        f(static_cast<uint64_t>(bits[2 * i]) << 32 | bits[2 * i + 1], static_cast<uint64_t>(begin + i));
    }
  };
  const size_t buckets = size_t{1} << bucket_bits;
  std::vector<int64_t> starts(buckets + 1);
  each_key([&](uint64_t k, uint64_t) { ++starts[bucket_of(k) + 1]; });
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  // What is sorted in a bucket: the next bits of the key, and the index.
  const uint64_t index_mask = (uint64_t{1} << index_bits) - 1;
  int64_t* o = y.data<int64_t>();
  std::vector<int64_t> next(starts.begin(), starts.end() - 1);
  each_key([&](uint64_t k, uint64_t i) {
    o[next[bucket_of(k)]++] = static_cast<int64_t>((k << bucket_bits & ~index_mask) | i);
  });
  // Equal in the bits that were kept: the whole keys decide.
  const auto key_of = [&](uint64_t i) {
    const auto r = philox(key, i / 2);
    return i % 2 == 0 ? static_cast<uint64_t>(r[0]) << 32 | r[1] : static_cast<uint64_t>(r[2]) << 32 | r[3];
  };
  const auto before = [&](uint64_t a, uint64_t b) {
    if ((a ^ b) & ~index_mask) return a < b;
    const uint64_t i = a & index_mask, j = b & index_mask, first = key_of(i), second = key_of(j);
    return first != second ? first < second : i < j;
  };
  parallel_for(0, static_cast<int64_t>(buckets), 64, [&](int64_t first, int64_t last) {
    std::vector<uint64_t> sorted;
    std::vector<uint32_t> at;
    for (int64_t b = first; b < last; ++b) {
      const int64_t begin = starts[static_cast<size_t>(b)], m = starts[static_cast<size_t>(b) + 1] - begin;
      if (m == 0) continue;
      int64_t* in = o + begin;
      const int places_bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(m))), shift = 64 - places_bits;
      const auto place_of = [&](int64_t v) { return static_cast<size_t>(static_cast<uint64_t>(v) >> shift); };
      sorted.resize(static_cast<size_t>(m));
      at.assign((size_t{1} << places_bits) + 1, 0);
      for (int64_t i = 0; i < m; ++i) ++at[place_of(in[i]) + 1];
      std::partial_sum(at.begin(), at.end(), at.begin());
      for (int64_t i = 0; i < m; ++i) sorted[at[place_of(in[i])]++] = static_cast<uint64_t>(in[i]);
      for (int64_t i = 0; i < m; ++i) {
        const uint64_t v = sorted[static_cast<size_t>(i)];
        int64_t j = i;
        for (; j > 0 && before(v, static_cast<uint64_t>(in[j - 1])); --j) in[j] = in[j - 1];
        in[j] = static_cast<int64_t>(v);
      }
      for (int64_t i = 0; i < m; ++i) in[i] = static_cast<int64_t>(static_cast<uint64_t>(in[i]) & index_mask);
    }
  });
}

}  // namespace strata
