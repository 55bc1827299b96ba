// Matrices of GGUF files as the formats that products read: as they are, or in codes that give the same numbers.

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/io/gguf_blocks_cpu.h"
#include "strata/io/stored_type.h"
#include "strata/models/packed_files.h"
#include "strata/ops/factory/factory.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "packed_gguf";
constexpr int kLine = 32;  // numbers with a scale of their own in int8
constexpr int64_t kGrain = 1 << 16;  // numbers, below which threads are not worth it

// ---- a block as another type's, or as codes and scales in f32 ----

// Scale in f16 and 32 whole numbers.
void q5_0_block(const uint8_t* from, uint8_t* to, float*) {
  uint8_t codes[kLine];
  io::five_bit_codes(from + 2, from + 6, codes);
  std::memcpy(to, from, 2);
  for (int i = 0; i < kLine; ++i) to[2 + i] = static_cast<uint8_t>(codes[i] - 16);
}
void iq4_nl_block(const uint8_t* from, uint8_t* to, float*) {
  std::memcpy(to, from, 2);
  io::four_bit_values(from + 2, io::kIq4Values, reinterpret_cast<int8_t*>(to + 2));
}
// Q6_K: 128 bytes of low halves, 64 of upper two bits, 16 scales, a scale of them in f16; its codes are less 32.
void q3_k_block(const uint8_t* from, uint8_t* to, float*) {
  uint8_t codes[256];
  io::q3_k_codes(from, codes);
  std::memset(to, 0, 192);
  for (int k = 0; k < 256; ++k) {
    const int code = codes[k] - 4 + 32, half = k / 128, in = k % 128;
    to[half * 64 + in % 64] |= static_cast<uint8_t>((code & 15) << in / 64 * 4);
    to[128 + half * 32 + in % 32] |= static_cast<uint8_t>(code >> 4 << in / 32 * 2);
  }
  io::q3_k_scales(from, reinterpret_cast<int8_t*>(to + 192));
  std::memcpy(to + 208, from + 108, 2);
}
void iq4_xs_block(const uint8_t* from, uint8_t* to, float* scales) {
  int8_t own[8];
  io::iq4_xs_scales(from, own);
  Half d;
  std::memcpy(&d.bits, from, sizeof d.bits);
  for (int part = 0; part < 8; ++part) {
    scales[part] = static_cast<float>(d) * static_cast<float>(own[part]);
    io::four_bit_values(from + 8 + part * 16, io::kIq4Values, reinterpret_cast<int8_t*>(to + part * kLine));
  }
}
void mxfp4_block(const uint8_t* from, uint8_t* to, float* scales) {
  scales[0] = io::mxfp4_scale(from[0]);
  io::four_bit_values(from + 1, io::kMxfp4Values, reinterpret_cast<int8_t*>(to));
}

struct Type {
  std::string_view name;
  std::string_view format;
  void (*convert)(const uint8_t* from, uint8_t* to, float* scales) = nullptr;  // nullptr: its bytes are the format's
};
constexpr Type kTypes[] = {{"Q8_0", "q8_0"},
                           {"Q4_0", "q4_0"},
                           {"Q4_K", "q4_k"},
                           {"Q5_K", "q5_k"},
                           {"Q6_K", "q6_k"},
                           {"Q5_0", "q8_0", q5_0_block},
                           {"IQ4_NL", "q8_0", iq4_nl_block},
                           {"Q3_K", "q6_k", q3_k_block},
                           {"IQ4_XS", "int8", iq4_xs_block},
                           {"MXFP4", "int8", mxfp4_block}};

const Type* find(std::string_view name) {
  const auto* at = std::ranges::find(kTypes, name, &Type::name);
  return at == std::end(kTypes) ? nullptr : at;
}

}  // namespace

const WeightFormat* packed_gguf_format(std::string_view type) {
  const Type* const t = find(type);
  return t ? &weight_format(t->format) : nullptr;
}

PackedWeight packed_gguf(std::string_view type, const Tensor& bytes, int64_t rows, int64_t columns) {
  const Type* const t = find(type);
  if (!t) {
    std::string all;
    for (const Type& known : kTypes) all += cat(all.empty() ? "" : ", ", known.name);
    throw ValueError(kOp, cat("there is no type \"", type, "\"; there are ", all));
  }
  const io::StoredType& stored = *io::find_stored_type(type);
  const int64_t block = stored.block, row_bytes = columns / block * stored.block_bytes;
  check<DTypeError>(bytes.dtype() == DType::u8, kOp, "bytes are u8, got ", bytes);
  check<ShapeError>(rows >= 0 && columns >= 0 && columns < (int64_t{1} << 31) && columns % block == 0 &&
                        (rows == 0 || bytes.numel() / rows == row_bytes) && bytes.numel() == rows * row_bytes,
                    kOp, type, " of [", rows, ", ", columns, "] wants columns in multiples of ", block, " and ",
                    row_bytes, " bytes a row, got ", bytes);
  PackedWeight w;
  w.format = &weight_format(t->format), w.rows = rows, w.columns = columns;
  const Tensor from = bytes.contiguous().view({rows, row_bytes});
  if (!t->convert) {
    w.codes = from;
    return w;
  }
  check<DeviceError>(from.device().is_cpu(), kOp, type, " is converted on the processor, got ", bytes);
  const TensorMeta codes{{rows, w.format->row_bytes(columns)}, w.format->dtype, Device::cpu(), std::nullopt};
  w.codes = empty(codes);
  const int64_t blocks = columns / block, scales_each = w.format->scaled ? block / kLine : 0;
  if (scales_each > 0) {
    w.block_columns = kLine;
    w.scales = empty(TensorMeta{{rows, columns / kLine}, DType::f32, Device::cpu(), std::nullopt});
  }
  const auto* const source = static_cast<const uint8_t*>(from.raw_data());
  auto* const to = static_cast<uint8_t*>(w.codes.raw_data());
  float* const scales = scales_each > 0 ? w.scales.data<float>() : nullptr;
  const int64_t to_bytes = blocks == 0 ? 0 : codes.shape[1] / blocks;
  parallel_for(0, rows * blocks, std::max<int64_t>(1, kGrain / block), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      t->convert(source + i * stored.block_bytes, to + i * to_bytes, scales ? scales + i * scales_each : nullptr);
  });
  return w;
}

}  // namespace strata
