#pragma once
// The blocks of quantised numbers that GGUF files hold, from bytes to f32 and back: layouts of ggml
// (https://github.com/ggml-org/ggml, docs/gguf.md), arithmetic of the reference in its Python package `gguf`
// (quants.py), in f32 step by step, so that every bit agrees with it. Blocks are little-endian and may be unaligned.

#include <cstddef>
#include <cstdint>

namespace strata::io {

/// @name Blocks to numbers
/// `blocks` of them at `from`, their elements at `to`: 256 each of the types with K or XS in their names, 32 of the
/// others.
/// @{

/// 34 bytes: f16 scale d, 32 i8 q: d q.
void decode_q8_0(const std::byte* from, int64_t blocks, float* to);
/// 18 bytes: f16 scale d, 16 bytes of q, the low halves first: d (q - 8).
void decode_q4_0(const std::byte* from, int64_t blocks, float* to);
/// 144 bytes: f16 d and dmin, 12 bytes with 8 scales s and minima m of 6 bits, 128 bytes of q: d s q - dmin m.
void decode_q4_k(const std::byte* from, int64_t blocks, float* to);
/// 176 bytes: as Q4_K with 32 bytes of fifth bits before the q.
void decode_q5_k(const std::byte* from, int64_t blocks, float* to);
/// 210 bytes: 128 of low halves, 64 of two high bits, 16 i8 scales s, f16 d: d s (q - 32).
void decode_q6_k(const std::byte* from, int64_t blocks, float* to);
/// 20 bytes: f16 d and m, 16 bytes of q as Q4_0's: d q + m.
void decode_q4_1(const std::byte* from, int64_t blocks, float* to);
/// 22 bytes: f16 d, 32 fifth bits, 16 bytes of q: d (q - 16).
void decode_q5_0(const std::byte* from, int64_t blocks, float* to);
/// 24 bytes: f16 d and m, 32 fifth bits, 16 bytes of q: d q + m.
void decode_q5_1(const std::byte* from, int64_t blocks, float* to);
/// 84 bytes: 16 scales s and minima m of 4 bits, 64 bytes of q of 2 bits, f16 d and dmin: d s q - dmin m.
void decode_q2_k(const std::byte* from, int64_t blocks, float* to);
/// 110 bytes: 32 of third bits, 64 of two low bits, 12 with 16 scales s of 6 bits, f16 d: d (s - 32) (q - 4).
void decode_q3_k(const std::byte* from, int64_t blocks, float* to);
/// 18 bytes: f16 d, 16 bytes of q: d v[q], of sixteen whole numbers v.
void decode_iq4_nl(const std::byte* from, int64_t blocks, float* to);
/// 136 bytes: f16 d, 8 scales s of 6 bits (2 bytes of high bits, 4 of low ones), 128 of q: d (s - 32) v[q].
void decode_iq4_xs(const std::byte* from, int64_t blocks, float* to);
/// 17 bytes: e, 16 bytes of q, codes of e2m1: 2^(e - 127) times the code's number (OCP Microscaling Formats 1.0).
void decode_mxfp4(const std::byte* from, int64_t blocks, float* to);
/// @}

/// @name Parts of blocks
/// @{

/// The numbers that IQ4_NL's and IQ4_XS's codes stand for.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/// Twice the numbers of e2m1's codes.
inline constexpr int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
/// The 32 of sixteen numbers that 16 bytes of codes stand for, those of the low halves first.
void four_bit_values(const uint8_t* codes, const int8_t* values, int8_t* numbers);
/// 2^(e - 128), by which those are multiplied.
float mxfp4_scale(uint8_t e);
/// The 16 scales, less 32, of a block of Q3_K.
void q3_k_scales(const uint8_t* block, int8_t* scales);
/// The 8 scales, less 32, of a block of IQ4_XS.
void iq4_xs_scales(const uint8_t* block, int8_t* scales);
/// The 32 codes of Q5_0 and Q5_1, 0 to 31: fifth bits at `high`, the others at `low`.
void five_bit_codes(const uint8_t* high, const uint8_t* low, uint8_t* codes);
/// The 256 codes of a block of Q3_K, 0 to 7.
void q3_k_codes(const uint8_t* block, uint8_t* codes);
/// @}

/// @name Numbers to blocks
/// The rounding of quants.py's quantize: equal bytes. Throws ValueError for a number that is not finite, or a block so
/// large that its scale leaves f16.
/// @{

/// d is the largest magnitude / 127.
void encode_q8_0(const float* from, int64_t blocks, std::byte* to);
/// d is the number of largest magnitude (the first of them) / -8.
void encode_q4_0(const float* from, int64_t blocks, std::byte* to);
/// @}

/// @name Numbers to blocks of 256
/// The reference has no encoder of these; these search for scales of small squared error. They throw as the others.
/// @{
void encode_q4_k(const float* from, int64_t blocks, std::byte* to);
void encode_q5_k(const float* from, int64_t blocks, std::byte* to);
void encode_q6_k(const float* from, int64_t blocks, std::byte* to);
/// @}

}  // namespace strata::io
