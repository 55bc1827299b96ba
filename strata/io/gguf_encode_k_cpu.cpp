// Numbers to the blocks of 256 of GGUF: for each run of a block the scale (and minimum) that leave the least square
// error, weighted towards large numbers, of some around the obvious one; then the runs' scales in a few bits under the
// block's; then each number to the nearest that these allow.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "strata/core/dtype.h"
#include "strata/core/error.h"
#include "strata/io/gguf_blocks_cpu.h"

namespace strata::io {
namespace {

using Byte = uint8_t;
constexpr int kBlock = 256, kRun = 32, kSmallRun = 16;

// How large an error at each number counts: as the number and the run's root mean square.
template <size_t n>
std::array<float, n> weights(const float* x) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  const auto usual = static_cast<float>(std::sqrt(sum / static_cast<double>(n)));
  std::array<float, n> w;
  for (size_t i = 0; i < n; ++i) w[i] = usual + std::fabs(x[i]);
  return w;
}

int nearest(float x, int least, int most) {
  return static_cast<int>(std::lround(std::clamp(x, static_cast<float>(least), static_cast<float>(most))));
}

void store_half(float x, std::string_view type, Byte* to, float& stored) {
  const Half half(x);
  stored = static_cast<float>(half);
  check<ValueError>(std::isfinite(stored), type, "a block's scale would be ", x, ", which f16 does not hold");
  std::memcpy(to, &half.bits, sizeof half.bits);
}

void check_finite(const float* x, std::string_view type) {
  for (int i = 0; i < kBlock; ++i)
    check<ValueError>(std::isfinite(x[i]), type, "a number is not finite, which blocks do not hold");
}

// x is near scale q - min, with q from 0 to `most` and min >= 0.
struct Affine {
  float scale = 0, min = 0;
};
Affine fit(const float* x, int most) {
  const auto w = weights<kRun>(x);
  float low = 0, high = 0;
  for (int i = 0; i < kRun; ++i) low = std::min(low, x[i]), high = std::max(high, x[i]);
  if (high == low) return {};
  Affine best{(high - low) / static_cast<float>(most), -low};
  double least = INFINITY;
  for (int step = -5; step <= 5; ++step) {
    const float inverse = (static_cast<float>(most) + 0.1f * static_cast<float>(step)) / (high - low);
    // The line through (q, x) of least squares; of a positive minimum the one through 0.
    double sw = 0, sq = 0, sqq = 0, sx = 0, sqx = 0;
    std::array<double, kRun> q;
    for (size_t i = 0; i < kRun; ++i) {
      q[i] = nearest(inverse * (x[i] - low), 0, most);
      sw += w[i], sq += w[i] * q[i], sqq += w[i] * q[i] * q[i];
      sx += static_cast<double>(w[i]) * x[i], sqx += w[i] * q[i] * x[i];
    }
    const double determinant = sw * sqq - sq * sq;
    if (!(determinant > 0)) continue;
    double scale = (sw * sqx - sx * sq) / determinant, min = -(sqq * sx - sq * sqx) / determinant;
    if (min < 0) scale = sqq > 0 ? sqx / sqq : 0, min = 0;
    if (!(scale > 0)) continue;
    double error = 0;
    for (size_t i = 0; i < kRun; ++i) {
      const double gap = scale * q[i] - min - x[i];
      error += w[i] * gap * gap;
    }
    if (error < least) least = error, best = {static_cast<float>(scale), static_cast<float>(min)};
  }
  return best;
}

// Eight scales and eight minima of 6 bits in 12 bytes, as decode_q4_k() reads them.
void pack_scales(const Byte* scale, const Byte* min, Byte* to) {
  for (int i = 0; i < 4; ++i) {
    to[i] = static_cast<Byte>(scale[i] | (scale[4 + i] >> 4) << 6);
    to[4 + i] = static_cast<Byte>(min[i] | (min[4 + i] >> 4) << 6);
    to[8 + i] = static_cast<Byte>((scale[4 + i] & 15) | (min[4 + i] & 15) << 4);
  }
}

// Q4_K and Q5_K: scales, minima and the 256 codes of a block.
void encode_affine(const float* x, int most, std::string_view type, Byte* to, Byte* codes) {
  check_finite(x, type);
  Affine runs[8];
  float scale = 0, min = 0;
  for (int r = 0; r < 8; ++r) {
    runs[r] = fit(x + r * kRun, most);
    scale = std::max(scale, runs[r].scale), min = std::max(min, runs[r].min);
  }
  float d = 0, dmin = 0;
  store_half(scale / 63, type, to, d);
  store_half(min / 63, type, to + 2, dmin);
  Byte scales[8], mins[8];
  for (int r = 0; r < 8; ++r) {
    scales[r] = static_cast<Byte>(d > 0 ? nearest(runs[r].scale / d, 0, 63) : 0);
    mins[r] = static_cast<Byte>(dmin > 0 ? nearest(runs[r].min / dmin, 0, 63) : 0);
    const float step = d * static_cast<float>(scales[r]), off = dmin * static_cast<float>(mins[r]);
    for (int i = 0; i < kRun; ++i)
      codes[r * kRun + i] = static_cast<Byte>(step > 0 ? nearest((x[r * kRun + i] + off) / step, 0, most) : 0);
  }
  pack_scales(scales, mins, to + 4);
}

// The scale of x near scale q, q from -32 to 31.
float fit_symmetric(const float* x) {
  const auto w = weights<kSmallRun>(x);
  float largest = 0;
  for (int i = 0; i < kSmallRun; ++i) largest = std::fabs(x[i]) > std::fabs(largest) ? x[i] : largest;
  if (largest == 0) return 0;
  double best = -1;
  float scale = largest / -32;
  for (int step = -9; step <= 9; ++step) {
    const float inverse = (-32 + 0.1f * static_cast<float>(step)) / largest;
    double xq = 0, qq = 0;
    for (size_t i = 0; i < kSmallRun; ++i) {
      const double q = nearest(inverse * x[i], -32, 31);
      xq += w[i] * q * x[i], qq += w[i] * q * q;
    }
    // What the error is less of than without codes.
    if (qq > 0 && xq * xq / qq > best) best = xq * xq / qq, scale = static_cast<float>(xq / qq);
  }
  return scale;
}

}  // namespace

void encode_q4_k(const float* from, int64_t blocks, std::byte* to) {
  for (auto* b = reinterpret_cast<Byte*>(to); blocks > 0; --blocks, from += kBlock, b += 144) {
    Byte codes[kBlock];
    encode_affine(from, 15, "Q4_K", b, codes);
    for (int pair = 0; pair < 4; ++pair)
      for (int i = 0; i < kRun; ++i)
        b[16 + pair * kRun + i] = static_cast<Byte>(codes[2 * pair * kRun + i] | codes[(2 * pair + 1) * kRun + i] << 4);
  }
}

void encode_q5_k(const float* from, int64_t blocks, std::byte* to) {
  for (auto* b = reinterpret_cast<Byte*>(to); blocks > 0; --blocks, from += kBlock, b += 176) {
    Byte codes[kBlock];
    encode_affine(from, 31, "Q5_K", b, codes);
    std::memset(b + 16, 0, kRun);
    for (int run = 0; run < 8; ++run)
      for (int i = 0; i < kRun; ++i) b[16 + i] = static_cast<Byte>(b[16 + i] | (codes[run * kRun + i] >> 4) << run);
    for (int pair = 0; pair < 4; ++pair)
      for (int i = 0; i < kRun; ++i)
        b[48 + pair * kRun + i] =
            static_cast<Byte>((codes[2 * pair * kRun + i] & 15) | (codes[(2 * pair + 1) * kRun + i] & 15) << 4);
  }
}

void encode_q6_k(const float* from, int64_t blocks, std::byte* to) {
  for (auto* b = reinterpret_cast<Byte*>(to); blocks > 0; --blocks, from += kBlock, b += 210) {
    check_finite(from, "Q6_K");
    float scales[16], largest = 0;
    for (int r = 0; r < 16; ++r) {
      scales[r] = fit_symmetric(from + r * kSmallRun);
      largest = std::fabs(scales[r]) > std::fabs(largest) ? scales[r] : largest;
    }
    float d = 0;
    store_half(largest / -128, "Q6_K", b + 208, d);
    Byte codes[kBlock];
    for (int r = 0; r < 16; ++r) {
      const int s = d != 0 ? nearest(scales[r] / d, -128, 127) : 0;
      b[192 + r] = static_cast<Byte>(static_cast<int8_t>(s));
      const float step = d * static_cast<float>(s);
      for (int i = 0; i < kSmallRun; ++i) {
        const int at = r * kSmallRun + i;
        codes[at] = static_cast<Byte>((step != 0 ? nearest(from[at] / step, -32, 31) : 0) + 32);
      }
    }
    // Four runs of 32 share 64 bytes of low halves and 32 of high bits.
    for (int half = 0; half < 2; ++half) {
      const Byte* const q = codes + half * 128;
      Byte *const low = b + half * 64, *const high = b + 128 + half * 32;
      for (int i = 0; i < kRun; ++i) {
        low[i] = static_cast<Byte>((q[i] & 15) | (q[64 + i] & 15) << 4);
        low[32 + i] = static_cast<Byte>((q[32 + i] & 15) | (q[96 + i] & 15) << 4);
        high[i] = static_cast<Byte>(q[i] >> 4 | (q[32 + i] >> 4) << 2 | (q[64 + i] >> 4) << 4 | (q[96 + i] >> 4) << 6);
      }
    }
  }
}

}  // namespace strata::io
