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

// The first number of largest magnitude.
float largest(const float* x, int n, std::string_view type) {
  float largest = x[0];
  for (int i = 0; i < n; ++i) {
    check<ValueError>(std::isfinite(x[i]), type, "a number is ", x[i], ", which blocks do not hold");
    if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
  }
  return largest;
}

}  // namespace

void decode_q8_0(const std::byte* from, int64_t blocks, float* to) {
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 34, to += 32) {
    const float d = half_at(b);
    for (int i = 0; i < 32; ++i) to[i] = static_cast<float>(static_cast<int8_t>(b[2 + i])) * d;
  }
}

void decode_q4_0(const std::byte* from, int64_t blocks, float* to) {
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 18, to += 32) {
    const float d = half_at(b);
    for (int i = 0; i < 16; ++i) {
      to[i] = d * static_cast<float>((b[2 + i] & 15) - 8);
      to[16 + i] = d * static_cast<float>((b[2 + i] >> 4) - 8);
    }
  }
}

void decode_q4_k(const std::byte* from, int64_t blocks, float* to) {
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

void decode_q5_k(const std::byte* from, int64_t blocks, float* to) {
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

void decode_q6_k(const std::byte* from, int64_t blocks, float* to) {
  for (const Byte* b = bytes(from); blocks > 0; --blocks, b += 210) {
    const Byte *low = b, *high = b + 128, *scale = b + 192;
    const float d = half_at(b + 208);
    for (int half = 0; half < 2; ++half, low += 64, high += 32, scale += 8) {
      for (int part = 0; part < 4; ++part, to += 32) {
        float ds[2];
        for (int i = 0; i < 2; ++i) ds[i] = d * static_cast<float>(static_cast<int8_t>(scale[part * 2 + i]));
        const Byte* l = low + part % 2 * 32;
        const int shift = part / 2 * 4;
        for (int i = 0; i < 32; ++i) {
          const int q = ((l[i] >> shift) & 15) | ((high[i] >> part * 2) & 3) << 4;
          to[i] = ds[i / 16] * static_cast<float>(q - 32);
        }
      }
    }
  }
}

void encode_q8_0(const float* from, int64_t blocks, std::byte* to) {
  for (; blocks > 0; --blocks, from += 32, to += 34) {
    const Scale scale(std::fabs(largest(from, 32, "Q8_0")) / 127, "Q8_0", to);
    for (int i = 0; i < 32; ++i)
      to[2 + i] = static_cast<std::byte>(static_cast<int8_t>(std::round(from[i] * scale.inverse)));
  }
}

void encode_q4_0(const float* from, int64_t blocks, std::byte* to) {
  for (; blocks > 0; --blocks, from += 32, to += 18) {
    const float d = largest(from, 32, "Q4_0") / -8;
    const Scale scale(d, "Q4_0", to);
    // Where the scale has no inverse the reference's numbers are what a processor makes of infinities: 0.
    const bool none = d != 0 && scale.inverse == 0;
    const auto q = [&](float x) { return none ? 0 : std::clamp(static_cast<int>(x * scale.inverse + 8.5F), 0, 15); };
    for (int i = 0; i < 16; ++i) to[2 + i] = static_cast<std::byte>(q(from[i]) | q(from[16 + i]) << 4);
  }
}

}  // namespace strata::io
