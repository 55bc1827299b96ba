#pragma once
// The blocks of quantised numbers that GGUF files hold, from bytes to f32 and back: layouts of ggml
// (https://github.com/ggml-org/ggml, docs/gguf.md), arithmetic of the reference in its Python package `gguf`
// (quants.py), in f32 step by step, so that every bit agrees with it. Blocks are little-endian and may be unaligned.

#include <cstddef>
#include <cstdint>

namespace strata::io {

/// @name Blocks to numbers
/// `blocks` of them at `from`, their elements at `to`: 32 each of Q8_0 and Q4_0, 256 of the others.
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
