#pragma once
// What the kernel of a decoder's step reads: layers on raw memory, and where what passes between its phases lies.

#include <cstdint>

#include "strata/ops/lowbit/weight_format.h"

namespace strata::decoder {

/// Rows of a frozen matrix [rows, columns] as they lie: a row's codes one after another, and its scales and zeros.
struct Rows {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;  ///< of each block of columns, f32 or 16 bits; null: the codes are the numbers
  const uint8_t* zeros = nullptr;   ///< a byte for each block of columns, or null
  int32_t row_bytes = 0;            ///< of codes
  int32_t scale_bytes = 0;          ///< of a row's scales
  int32_t zero_bytes = 0;           ///< of a row's zeros
  int32_t row_shift = 0;            ///< 2^row_shift rows share their scales
};

/// A layer of Llama's kind. k and v are caches [kv_heads, capacity, head size].
struct Layer {
  const void *norm1 = nullptr, *norm2 = nullptr;  ///< bf16 [dim]
  Rows qkv, out, gate_up, down;
  void *k = nullptr, *v = nullptr;
};

// Arguments of a kernel may have 32 KiB since CUDA 12.1, and 4 before.
#if defined(CUDART_VERSION) && CUDART_VERSION < 12010
inline constexpr int kMostLayers = 18;
#else
inline constexpr int kMostLayers = 128;
#endif

/// One token through all layers. It is a kernel's argument as it is: a captured graph keeps it.
struct Walk {
  Layer layers[kMostLayers];
  int32_t count = 0;  ///< of layers
  int32_t dim = 0, heads = 0, kv_heads = 0, width = 0;
  int64_t head_stride = 0;  ///< elements between the heads of a cache
  float eps = 0;
  int32_t block_shift = 0;                     ///< 2^block_shift columns, at least 128, share a scale
  int32_t scale_size = 0;                      ///< 4: f32; 2: bf16 or f16
  bool scale_half = false;                     ///< f16
  const void* x = nullptr;                     ///< bf16 [dim]
  void* y = nullptr;                           ///< bf16 [dim]
  const int64_t* place = nullptr;              ///< where this token stands, within the cache
  const int64_t* running = nullptr;            ///< 0: the text rests, its cache stays as it is; null: it runs
  const float *cos = nullptr, *sin = nullptr;  ///< [head size / 2]
  // Scratch:
  float* stream = nullptr;       ///< [dim]: the residual stream
  float* qkv = nullptr;          ///< [(heads + 2 kv_heads) head size]
  float* parts = nullptr;        ///< [heads, kMostSplits, head size + 4]: sums of stretches, their maxima and weights
  uint16_t* attended = nullptr;  ///< bf16 [heads head size]
  uint16_t* inner = nullptr;     ///< bf16 [width]
  unsigned* arrivals = nullptr;  ///< 0 at first
  int* done = nullptr;           ///< [kv_heads, groups of kSharedHeads query heads]: stretches attended, 0 at first
};

inline constexpr int kWarps = 16, kThreads = kWarps * 32;
inline constexpr int kMostSplits = 16;    ///< stretches of positions
inline constexpr int kSplitPlaces = 32;   ///< at least so many in each but where there are fewer
inline constexpr int kSharedHeads = 4;    ///< query heads that read a key together
inline constexpr int kPieceBytes = 2048;  ///< of a row's codes that are copied at a time
inline constexpr int kScalesAt = 128;  ///< apart are the scales of a piece's two rows, of which there are no more bytes
inline constexpr int kZerosAt = 32;    ///< apart are their zeros
inline constexpr int kMostSlots = 16;  ///< of a warp's ring
inline constexpr int kSharedLimit = 232448;

/// Whether the scales (and zeros) of every piece of a row of `row_bytes` are runs of 16 bytes, as the copy engine wants
/// them: a scale of `scale_size` bytes is for 2^shift columns, of which 16 bytes of codes hold `columns`.
constexpr bool scales_align(int row_bytes, int columns, int shift, int scale_size, bool zeros) {
  for (const int bytes : {row_bytes < kPieceBytes ? row_bytes : kPieceBytes, row_bytes % kPieceBytes}) {
    const int held = bytes / 16 * columns, blocks = held >> shift;
    if (blocks << shift != held || blocks * scale_size % 16 != 0 || (zeros && blocks % 16 != 0)) return false;
  }
  return true;
}

/// How shared memory is shared out.
struct Room {
  int32_t slot_bytes = 0;  ///< of the codes, scales and zeros of two rows' pieces
  int32_t slots = 0;       ///< of each warp
  int32_t x_bytes = 0;
  int32_t sums_at = 0;  ///< within them: sums of x's groups of 128 columns
  int32_t bytes = 0;
};
/// `columns`: of the widest matrix. `scaled`: codes have scales, and zeros perhaps.
constexpr Room room_of(int columns, bool scaled, int head_size, int limit = kSharedLimit) {
  Room r;
  r.slot_bytes = 2 * (kPieceBytes + (scaled ? kScalesAt + kZerosAt : 0));
  const int sums = kWarps / 2 * kSharedHeads * (head_size + 4) * 4 + kSharedHeads * head_size * 4;
  r.x_bytes = (2 * columns > sums ? 2 * columns : sums);
  r.sums_at = (r.x_bytes + 127) / 128 * 128;
  r.x_bytes = r.sums_at + (scaled ? (columns / 128 * 8 + 127) / 128 * 128 : 0);
  r.slots = (limit - 256 - r.x_bytes) / (kWarps * (r.slot_bytes + 8));
  if (r.slots > kMostSlots) r.slots = kMostSlots;
  r.bytes = r.x_bytes + kWarps * r.slots * (r.slot_bytes + 8) + 256;
  return r;
}

}  // namespace strata::decoder
