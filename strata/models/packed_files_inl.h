#pragma once
// What the ways of storing low-bit weights share, and the functions that the table of packed_files.cpp names.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/models/packed_files.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/lowbit/codes_inl.h"
#include "strata/ops/view/view.h"

namespace strata::packed_file {

inline constexpr std::string_view kRead = "read_packed", kWrite = "write_packed";

inline Tensor host(const Shape& shape, DType dtype) {
  return empty({shape, dtype, Device::cpu(), std::nullopt});
}
inline Tensor near(const Tensor& t) {
  return t.detach().to(Device::cpu()).contiguous();
}
inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// A piece on the host, checked.
inline Tensor piece(const PackedPieces& pieces, std::string_view name, std::initializer_list<DType> dtypes,
                    int64_t dims) {
  const auto found = pieces.find(name);
  check(found != pieces.end(), kRead, "\"", name, "\" is missing");
  const Tensor& t = found->second;
  check<DTypeError>(std::ranges::find(dtypes, t.dtype()) != dtypes.end(), kRead, "\"", name, "\" is ", t, ", wants ",
                    *dtypes.begin());
  check<ShapeError>(t.dim() == dims, kRead, "\"", name, "\" is ", t, ", wants ", dims, " dimensions");
  return near(t);
}
inline void check_shape(const Tensor& t, std::string_view name, const Shape& shape) {
  check<ShapeError>(t.shape() == shape, kRead, "\"", name, "\" is ", t, ", wants ", shape);
}
inline bool has(const PackedPieces& pieces, std::string_view name) {
  return pieces.find(name) != pieces.end();
}
inline constexpr std::initializer_list<DType> kScales = {DType::f16, DType::bf16, DType::f32};

// The code at (i, j) of words that hold 32 / bits codes, side by side along a row or one below the other.
struct Words {
  const uint32_t* at;
  int64_t row;  // words from one row of the matrix of words to the next
  int bits;
  int code(int64_t word_row, int64_t word_column, int place) const {
    return static_cast<int>(at[word_row * row + word_column] >> (place * bits) & ((1u << bits) - 1));
  }
};
inline Words words_of(const Tensor& t, int bits) {
  return {t.numel() > 0 ? static_cast<const uint32_t*>(t.raw_data()) : nullptr, t.size(1), bits};
}

// Codes of our order from code(row, column), 0 to 2^bits - 1. Whole numbers of 8 bits are kept less 128.
template <class Code>
Tensor codes_from(const WeightFormat& f, int64_t rows, int64_t columns, Code&& code) {
  const Tensor codes = zeros({rows, f.row_bytes(columns)}, f.dtype).to(Device::cpu());
  if (codes.numel() == 0) return codes;
  auto* const to = static_cast<uint8_t*>(codes.raw_data());
  const int64_t bytes = f.row_bytes(columns);
  parallel_for(0, rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      for (int64_t k = 0; k < columns; ++k) {
        if (f.codes == WeightCodes::int8)
          to[n * bytes + k] = static_cast<uint8_t>(code(n, k) - 128);
        else
          lowbit::put_four_bits(to + n * bytes, k, code(n, k));
      }
  });
  return codes;
}
// The same of 4-bit codes that lie along the columns, without an order: word(row, i) has columns [8 i, 8 i + 8).
template <class Word>
Tensor codes_from_words(const WeightFormat& f, int64_t rows, int64_t columns, Word&& word) {
  const Tensor codes = host({rows, f.row_bytes(columns)}, f.dtype);
  const int64_t units = columns / 32;
  parallel_for(0, rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      for (int64_t u = 0; u < units; ++u)
        lowbit::put_unit(codes.data<uint8_t>() + (n * units + u) * 16,
                         {word(n, 4 * u), word(n, 4 * u + 1), word(n, 4 * u + 2), word(n, 4 * u + 3)});
  });
  return codes;
}
inline int code_of(const PackedWeight& w, const Tensor& codes, int64_t n, int64_t k) {
  const uint8_t* row = static_cast<const uint8_t*>(codes.raw_data()) + n * w.format->row_bytes(w.columns);
  return w.format->codes == WeightCodes::int8 ? static_cast<int8_t>(row[k]) + 128 : lowbit::get_four_bits(row, k);
}
// Words [rows, columns] of which code(row, column, place) fills each place.
template <class Code>
Tensor words_from(int64_t rows, int64_t columns, int bits, Code&& code) {
  const Tensor words = host({rows, columns}, DType::i32);
  if (words.numel() == 0) return words;
  auto* const to = static_cast<uint32_t*>(words.raw_data());
  parallel_for(0, rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        uint32_t word = 0;
        for (int p = 0; p < 32 / bits; ++p) word |= static_cast<uint32_t>(code(i, j, p)) << (p * bits);
        to[i * columns + j] = word;
      }
  });
  return words;
}
inline const WeightFormat& whole(int bits) {
  return weight_format(bits == 8 ? WeightCodes::int8 : WeightCodes::int4);
}
// Zeros [rows, groups] of our dtype from zero(row, group), 0 to 2^bits - 1.
template <class Zero>
Tensor zeros_from(const WeightFormat& f, int64_t rows, int64_t groups, Zero&& zero) {
  const bool eight = f.codes == WeightCodes::int8;
  const Tensor z = host({rows, groups}, eight ? DType::i8 : DType::u8);
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t g = 0; g < groups; ++g)
      static_cast<uint8_t*>(z.raw_data())[n * groups + g] = static_cast<uint8_t>(zero(n, g) - (eight ? 128 : 0));
  return z;
}
inline int zero_of(const PackedWeight& w, const Tensor& zeros, int64_t n, int64_t g) {
  const bool eight = w.format->codes == WeightCodes::int8;
  if (!zeros.defined()) return eight ? 128 : 8;
  const uint8_t byte = static_cast<const uint8_t*>(zeros.raw_data())[n * zeros.size(1) + g];
  return eight ? static_cast<int8_t>(byte) + 128 : byte;
}

/// bitsandbytes' piece that describes a matrix.
inline constexpr std::string_view kNf4State = "weight.quant_state.bitsandbytes__nf4";

PackedWeight read_gptq(const PackedScheme& scheme, const PackedPieces& pieces);
PackedPieces write_gptq(const PackedScheme& scheme, const PackedWeight& weight);
PackedWeight read_awq(const PackedScheme& scheme, const PackedPieces& pieces);
PackedPieces write_awq(const PackedScheme& scheme, const PackedWeight& weight);
PackedWeight read_pack_quantized(const PackedScheme& scheme, const PackedPieces& pieces);
PackedPieces write_pack_quantized(const PackedScheme& scheme, const PackedWeight& weight);
PackedWeight read_int8(const PackedScheme& scheme, const PackedPieces& pieces);
PackedPieces write_int8(const PackedScheme& scheme, const PackedWeight& weight);
PackedWeight read_float8(const PackedScheme& scheme, const PackedPieces& pieces);
PackedPieces write_float8(const PackedScheme& scheme, const PackedWeight& weight);
PackedWeight read_fp8(const PackedScheme& scheme, const PackedPieces& pieces);
PackedPieces write_fp8(const PackedScheme& scheme, const PackedWeight& weight);
PackedWeight read_nf4(const PackedScheme& scheme, const PackedPieces& pieces);
PackedPieces write_nf4(const PackedScheme& scheme, const PackedWeight& weight);

}  // namespace strata::packed_file
