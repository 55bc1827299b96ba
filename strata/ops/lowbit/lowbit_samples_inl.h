#pragma once
// Packed matrices for samples, tests and measurements: any codes, scales of common sizes.

#include <cstring>
#include <string_view>
#include <vector>

#include "strata/core/samples.h"
#include "strata/ops/lowbit/weight_format.h"

namespace strata::lowbit {

/// What a random matrix shall have.
struct RandomParts {
  int64_t block_rows = 1, block_columns = 0;
  bool zeros = false, order = false, nested = false;
  DType scale_dtype = DType::f32;
};

/// A matrix of random codes. Scales keep numbers below about 2.
inline PackedWeight random_packed(Samples& s, std::string_view format, int64_t rows, int64_t columns,
                                  const RandomParts& p = {}) {
  PackedWeight w;
  const WeightFormat& f = weight_format(format);
  w.format = &f, w.rows = rows, w.columns = columns;
  const bool is_signed = f.dtype == DType::i8, e4m3 = f.codes == WeightCodes::e4m3;
  // e4m3's 127 and 255 are no numbers: those have tests of their own.
  w.codes = is_signed ? s.integers({rows, f.row_bytes(columns)}, -128, 128, DType::i8)
                      : s.integers({rows, f.row_bytes(columns)}, 0, e4m3 ? 127 : 256, DType::u8);
  if (!f.scaled) {  // their scales are within: halves of which random bits may be infinite
    auto* const codes = w.codes.numel() > 0 ? w.codes.data<uint8_t>() : nullptr;
    const int at = f.codes == WeightCodes::q6_k ? 208 : 0;
    for (int64_t b = 0; b < w.codes.numel() / f.unit_bytes; ++b) {
      const auto put = [&](int where, float v) {
        const uint16_t bits = Half(v).bits;
        std::memcpy(codes + b * f.unit_bytes + where, &bits, 2);
      };
      const float d = (b % 3 == 1 ? -1.0f : 1.0f) / static_cast<float>(97 + b % 29);
      put(at, f.unit == 256 ? d / 32 : d);
      if (f.unit == 256 && at == 0) put(2, d / 16);
    }
    return w;
  }
  w.block_rows = p.block_rows, w.block_columns = p.block_columns;
  const Shape grid = w.grid();
  const double most = is_signed ? 0.01 : e4m3 ? 0.004 : f.codes == WeightCodes::nf4 ? 1.5 : 0.12;
  w.scales = p.nested ? s.integers(grid, 0, 256, DType::u8) : s.uniform(grid, most / 4, most, p.scale_dtype);
  if (p.nested) w.nested = s.uniform({257 + (grid.product() + 255) / 256}, -1, 1, DType::f32);
  if (p.zeros) w.zeros = is_signed ? s.integers(grid, -20, 20, DType::i8) : s.integers(grid, 0, 16, DType::u8);
  if (p.order) {
    std::vector<int32_t> order(static_cast<size_t>(columns));
    for (int64_t k = 0; k < columns; ++k)
      order[static_cast<size_t>(k)] =
          static_cast<int32_t>(columns - 1 - (k % 2 == 0 ? k / 2 : columns / 2 + columns % 2 + k / 2));
    w.order = from_span<int32_t>(order, {columns});
  }
  return w;
}

/// One of each format and each part, with odd sizes.
inline std::vector<PackedWeight> random_formats(Samples& s) {
  const auto make = [&](std::string_view format, int64_t rows, int64_t columns, const RandomParts& p = {}) {
    return random_packed(s, format, rows, columns, p);
  };
  return {
      make("int8", 5, 37),
      make("int8", 9, 96, {.block_columns = 32, .zeros = true, .order = true, .scale_dtype = DType::f16}),
      make("int8", 7, 64, {.block_rows = 0}),
      make("e4m3", 33, 100, {.block_rows = 16, .block_columns = 32}),
      make("e4m3", 3, 19),
      make("int4", 6, 160, {.block_columns = 64, .scale_dtype = DType::bf16}),
      make("int4", 13, 96, {.block_columns = 32, .zeros = true, .order = true}),
      make("int4", 4, 45, {.zeros = true}),
      make("nf4", 5, 128, {.block_columns = 64}),
      make("nf4", 9, 2176, {.block_columns = 64, .nested = true}),
      make("q8_0", 5, 96),
      make("q4_0", 5, 96),
      make("q4_k", 3, 512),
      make("q5_k", 3, 512),
      make("q6_k", 3, 512),
  };
}

}  // namespace strata::lowbit
