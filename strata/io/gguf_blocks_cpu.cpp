#include <algorithm>
#include <cmath>
#include <cstring>

#include "strata/core/dtype.h"
#include "strata/core/error.h"
#include "strata/io/gguf_blocks_cpu.h"

namespace strata::io {
namespace {

using Byte = uint8_t;

const Byte* bytes(const std::byte* p) {
  return reinterpret_cast<const Byte*>(p);
}

float half_at(const Byte* p) {
  Half h;
  std::memcpy(&h.bits, p, sizeof h.bits);
  return h;
}

// 6 bits each of 8 scales and 8 minima: the first four of either in the low bits of bytes 0-3 and 4-7, the others'
// low halves in bytes 8-11 and their upper two bits on top of the first ones.
void unpack_scales(const Byte* packed, Byte* scale, Byte* min) {
  for (int i = 0; i < 4; ++i) {
    scale[i] = packed[i] & 0x3f;
    min[i] = packed[4 + i] & 0x3f;
    scale[4 + i] = static_cast<Byte>((packed[8 + i] & 0x0f) | ((packed[i] >> 2) & 0x30));
    min[4 + i] = static_cast<Byte>((packed[8 + i] >> 4) | ((packed[4 + i] >> 2) & 0x30));
  }
}

// The scale as it is stored; what it divides by, 0 where that leaves f32's range.
struct Scale {
  float inverse = 0;
  explicit Scale(float d, std::string_view type, std::byte* to) {
    const Half stored(d);
    check<ValueError>(std::isfinite(static_cast<float>(stored)), type, "a block's scale would be ", d,
                      ", which f16 does not hold");
    std::memcpy(to, &stored.bits, sizeof stored.bits);
    if (d != 0 && std::isfinite(1 / d)) inverse = 1 / d;
  }
};

// The largest magnitude: as integers, in whose order the bits of positive numbers stand, which a compiler makes vectors
// of.
float largest(const float* x, std::string_view type) {
  int32_t bits[32], most = 0;
  std::memcpy(bits, x, sizeof bits);
  for (int i = 0; i < 32; ++i) most = std::max(most, bits[i] & 0x7fffffff);
  check<ValueError>(most < 0x7f800000, type, "a number is not finite, which blocks do not hold");
  float magnitude;
  std::memcpy(&magnitude, &most, sizeof magnitude);
  return magnitude;
}

// To the nearest integer, halves away from zero, as roundf.
int rounded(float x) {
  const float a = std::fabs(x);
  const int whole = static_cast<int>(a), n = whole + (a - static_cast<float>(whole) >= 0.5F);
  return x < 0 ? -n : n;
}

}  // namespace

void decode_q8_0(const std::byte* from, int64_t blocks, float* __restrict to) {
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 34, to += 32) {
    const float d = half_at(b);
    for (int i = 0; i < 32; ++i) to[i] = static_cast<float>(static_cast<int8_t>(b[2 + i])) * d;
  }
}

void decode_q4_0(const std::byte* from, int64_t blocks, float* __restrict to) {
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 18, to += 32) {
    const float d = half_at(b);
    for (int i = 0; i < 16; ++i) {
      to[i] = d * static_cast<float>((b[2 + i] & 15) - 8);
      to[16 + i] = d * static_cast<float>((b[2 + i] >> 4) - 8);
    }
  }
}

void decode_q4_k(const std::byte* from, int64_t blocks, float* __restrict to) {
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 144) {
    const float d = half_at(b), dmin = half_at(b + 2);
    Byte scale[8], min[8];
    unpack_scales(b + 4, scale, min);
    const Byte* q = b + 16;
    for (int part = 0; part < 8; ++part, to += 32) {
      const float ds = d * static_cast<float>(scale[part]), dm = dmin * static_cast<float>(min[part]);
      const int shift = part % 2 * 4;
      for (int i = 0; i < 32; ++i) to[i] = ds * static_cast<float>((q[i] >> shift) & 15) - dm;
      if (part % 2 == 1) q += 32;
    }
  }
}

void decode_q5_k(const std::byte* from, int64_t blocks, float* __restrict to) {
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 176) {
    const float d = half_at(b), dmin = half_at(b + 2);
    Byte scale[8], min[8];
    unpack_scales(b + 4, scale, min);
    const Byte *high = b + 16, *q = b + 48;
    for (int part = 0; part < 8; ++part, to += 32) {
      const float ds = d * static_cast<float>(scale[part]), dm = dmin * static_cast<float>(min[part]);
      const int shift = part % 2 * 4;
      for (int i = 0; i < 32; ++i)
        to[i] = ds * static_cast<float>(((q[i] >> shift) & 15) | ((high[i] >> part) & 1) << 4) - dm;
      if (part % 2 == 1) q += 32;
    }
  }
}

void decode_q6_k(const std::byte* from, int64_t blocks, float* __restrict to) {
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 210) {
    const Byte *low = b, *high = b + 128, *scale = b + 192;
    const float d = half_at(b + 208);
    for (int half = 0; half < 2; ++half, low += 64, high += 32, scale += 8) {
      for (int part = 0; part < 4; ++part, to += 32) {
        const Byte *l = low + part % 2 * 32, *h = high;
        const int shift = part / 2 * 4;
        for (int run = 0; run < 2; ++run, l += 16, h += 16) {
          const float ds = d * static_cast<float>(static_cast<int8_t>(scale[part * 2 + run]));
          for (int i = 0; i < 16; ++i) {
            const int q = ((l[i] >> shift) & 15) | ((h[i] >> part * 2) & 3) << 4;
            to[run * 16 + i] = ds * static_cast<float>(q - 32);
          }
        }
      }
    }
  }
}

void decode_q4_1(const std::byte* from, int64_t blocks, float* __restrict to) {
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 20, to += 32) {
    const float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < 16; ++i) {
      to[i] = d * static_cast<float>(b[4 + i] & 15) + m;
      to[16 + i] = d * static_cast<float>(b[4 + i] >> 4) + m;
    }
  }
}

void five_bit_codes(const uint8_t* high, const uint8_t* low, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = static_cast<Byte>((low[i] & 15) | (high[i / 8] >> i % 8 & 1) << 4);
    codes[16 + i] = static_cast<Byte>(low[i] >> 4 | (high[2 + i / 8] >> i % 8 & 1) << 4);
  }
}

void decode_q5_0(const std::byte* from, int64_t blocks, float* __restrict to) {
  Byte codes[32];
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 22, to += 32) {
    const float d = half_at(b);
    five_bit_codes(b + 2, b + 6, codes);
    for (int i = 0; i < 32; ++i) to[i] = d * static_cast<float>(codes[i] - 16);
  }
}

void decode_q5_1(const std::byte* from, int64_t blocks, float* __restrict to) {
  Byte codes[32];
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 24, to += 32) {
    const float d = half_at(b), m = half_at(b + 2);
    five_bit_codes(b + 4, b + 8, codes);
    for (int i = 0; i < 32; ++i) to[i] = d * static_cast<float>(codes[i]) + m;
  }
}

void decode_q2_k(const std::byte* from, int64_t blocks, float* __restrict to) {
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 84, to += 256) {
    const float d = half_at(b + 80), dmin = half_at(b + 82);
    for (int k = 0; k < 256; ++k) {
      const Byte both = b[k / 16];
      const int q = b[16 + k / 128 * 32 + k % 32] >> k % 128 / 32 * 2 & 3;
      to[k] = d * static_cast<float>(both & 15) * static_cast<float>(q) - dmin * static_cast<float>(both >> 4);
    }
  }
}

void q3_k_scales(const uint8_t* block, int8_t* scales) {
  const Byte* s = block + 96;  // eight bytes of low halves, four of upper two bits
  for (int i = 0; i < 16; ++i)
    scales[i] = static_cast<int8_t>(((s[i % 8] >> i / 8 * 4 & 15) | (s[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32);
}

void q3_k_codes(const uint8_t* block, uint8_t* codes) {
  for (int k = 0; k < 256; ++k)
    codes[k] = static_cast<Byte>((block[32 + k / 128 * 32 + k % 32] >> k % 128 / 32 * 2 & 3) |
                                 (block[k % 32] >> k / 32 & 1) << 2);
}

void decode_q3_k(const std::byte* from, int64_t blocks, float* __restrict to) {
  int8_t scales[16];
  Byte codes[256];
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 110, to += 256) {
    const float d = half_at(b + 108);
    q3_k_scales(b, scales);
    q3_k_codes(b, codes);
    for (int k = 0; k < 256; ++k) to[k] = d * static_cast<float>(scales[k / 16]) * static_cast<float>(codes[k] - 4);
  }
}

void four_bit_values(const uint8_t* codes, const int8_t* values, int8_t* numbers) {
  for (int i = 0; i < 16; ++i) {
    numbers[i] = values[codes[i] & 15];
    numbers[16 + i] = values[codes[i] >> 4];
  }
}

void decode_iq4_nl(const std::byte* from, int64_t blocks, float* __restrict to) {
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 18, to += 32) {
    const float d = half_at(b);
    int8_t numbers[32];
    four_bit_values(b + 2, kIq4Values, numbers);
    for (int i = 0; i < 32; ++i) to[i] = d * static_cast<float>(numbers[i]);
  }
}

void iq4_xs_scales(const uint8_t* block, int8_t* scales) {
  for (int i = 0; i < 8; ++i)
    scales[i] = static_cast<int8_t>(
        ((block[4 + i / 2] >> i % 2 * 4 & 15) | (block[2 + i / 4] >> i % 4 * 2 & 3) << 4) - 32);
}

void decode_iq4_xs(const std::byte* from, int64_t blocks, float* __restrict to) {
  int8_t scales[8];
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 136) {
    const float d = half_at(b);
    iq4_xs_scales(b, scales);
    for (int part = 0; part < 8; ++part, to += 32) {
      const float ds = d * static_cast<float>(scales[part]);
      int8_t numbers[32];
      four_bit_values(b + 8 + part * 16, kIq4Values, numbers);
      for (int i = 0; i < 32; ++i) to[i] = ds * static_cast<float>(numbers[i]);
    }
  }
}

float mxfp4_scale(uint8_t e) {
  return std::ldexp(1.0F, e - 128);
}

void decode_mxfp4(const std::byte* from, int64_t blocks, float* __restrict to) {
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 17, to += 32) {
    const float d = mxfp4_scale(b[0]);
    int8_t numbers[32];
    four_bit_values(b + 1, kMxfp4Values, numbers);
    for (int i = 0; i < 32; ++i) to[i] = d * static_cast<float>(numbers[i]);
  }
}

void encode_q8_0(const float* from, int64_t blocks, std::byte* to) {
  for (; blocks > 0; --blocks, from += 32, to += 34) {
    const float inverse = Scale(largest(from, "Q8_0") / 127, "Q8_0", to).inverse;
    int8_t q[32];
    for (int i = 0; i < 32; ++i) q[i] = static_cast<int8_t>(rounded(from[i] * inverse));
    std::memcpy(to + 2, q, sizeof q);
  }
}

void encode_q4_0(const float* from, int64_t blocks, std::byte* to) {
  for (; blocks > 0; --blocks, from += 32, to += 18) {
    const float most = largest(from, "Q4_0");
    float first = 0;
    for (int i = 31; i >= 0; --i) first = std::fabs(from[i]) == most ? from[i] : first;
    const float d = first / -8, inverse = Scale(d, "Q4_0", to).inverse;
    // Where the scale has no inverse the reference's numbers are what a processor makes of infinities: 0.
    const float half = d != 0 && inverse == 0 ? 0 : 8.5F;
    Byte q[32], packed[16];
    for (int i = 0; i < 32; ++i) q[i] = static_cast<Byte>(std::min(static_cast<int>(from[i] * inverse + half), 15));
    for (int i = 0; i < 16; ++i) packed[i] = static_cast<Byte>(q[i] | q[16 + i] << 4);
    std::memcpy(to + 2, packed, sizeof packed);
  }
}

}  // namespace strata::io
