// The table of formats, and what holds for a matrix in one of them.

#include "strata/ops/lowbit/weight_format.h"

#include <algorithm>
#include <utility>

#include "strata/core/error.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/fp8.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// ---- reference decodes ----

const uint8_t* row_of(const PackedWeight& w, int64_t row) {
  return static_cast<const uint8_t*>(w.codes.raw_data()) + row * w.format->row_bytes(w.columns);
}
double element(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::u8:
      return t.data<uint8_t>()[i];
    case DType::i8:
      return t.data<int8_t>()[i];
    case DType::f16:
      return static_cast<float>(t.data<Half>()[i]);
    case DType::bf16:
      return static_cast<float>(t.data<BFloat16>()[i]);
    case DType::f64:
      return t.data<double>()[i];
    default:
      return t.data<float>()[i];
  }
}
// Where in `scales` and `zeros` the number at (row, column) finds its own.
int64_t block_of(const PackedWeight& w, int64_t row, int64_t column) {
  return (w.block_rows == 0 ? 0 : row / w.block_rows) * w.grid()[1] +
         (w.block_columns == 0 ? 0 : column / w.block_columns);
}
double scale_of(const PackedWeight& w, int64_t block) {
  const double s = element(w.scales, block);
  if (!w.nested.defined()) return s;
  return element(w.nested, 1 + static_cast<int64_t>(s)) * element(w.nested, 257 + block / 256) + element(w.nested, 0);
}
uint8_t four_bits(const uint8_t* codes, int64_t column) {
  const uint8_t byte = codes[column / 32 * 16 + column % 16];
  return column % 32 < 16 ? byte & 15 : byte >> 4;
}

void decode_int8(const PackedWeight& w, int64_t row, double* to) {
  const auto* codes = reinterpret_cast<const int8_t*>(row_of(w, row));
  for (int64_t k = 0; k < w.columns; ++k) {
    const int64_t b = block_of(w, row, k);
    to[k] = (codes[k] - (w.zeros.defined() ? element(w.zeros, b) : 0)) * scale_of(w, b);
  }
}
void decode_e4m3(const PackedWeight& w, int64_t row, double* to) {
  const uint8_t* codes = row_of(w, row);
  for (int64_t k = 0; k < w.columns; ++k) to[k] = fp8_value(codes[k], kE4m3) * scale_of(w, block_of(w, row, k));
}
void decode_int4(const PackedWeight& w, int64_t row, double* to) {
  const uint8_t* codes = row_of(w, row);
  for (int64_t k = 0; k < w.columns; ++k) {
    const int64_t b = block_of(w, row, k);
    to[k] = (four_bits(codes, k) - (w.zeros.defined() ? element(w.zeros, b) : 8)) * scale_of(w, b);
  }
}
void decode_nf4(const PackedWeight& w, int64_t row, double* to) {
  const uint8_t* codes = row_of(w, row);
  for (int64_t k = 0; k < w.columns; ++k) to[k] = nf4_values()[four_bits(codes, k)] * scale_of(w, block_of(w, row, k));
}

// GGUF's blocks, as its documentation and ggml's structures describe them:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
double half(const uint8_t* p) {
  Half h;
  h.bits = static_cast<uint16_t>(p[0] | p[1] << 8);
  return static_cast<float>(h);
}
template <int kBlock, int kBytes, class F>
void by_block(const PackedWeight& w, int64_t row, double* to, F&& number) {
  const uint8_t* b = row_of(w, row);
  for (int64_t k = 0; k < w.columns; ++k) to[k] = number(b + k / kBlock * kBytes, static_cast<int>(k % kBlock));
}
void decode_q8_0(const PackedWeight& w, int64_t row, double* to) {
  by_block<32, 34>(w, row, to, [](const uint8_t* b, int k) { return static_cast<int8_t>(b[2 + k]) * half(b); });
}
void decode_q4_0(const PackedWeight& w, int64_t row, double* to) {
  by_block<32, 18>(w, row, to, [](const uint8_t* b, int k) {
    return ((k < 16 ? b[2 + k] & 15 : b[2 + k - 16] >> 4) - 8) * half(b);
  });
}
// Q4_K and Q5_K: scale and least number of each 32 columns, in six bits each, packed into the twelve bytes from b + 4.
double k_number(const uint8_t* b, int sub, int code) {
  const uint8_t* s = b + 4;
  int scale = 0, least = 0;
  if (sub < 4) {
    scale = s[sub] % 64;
    least = s[sub + 4] % 64;
  } else {
    scale = s[sub + 4] % 16 + s[sub - 4] / 64 * 16;
    least = s[sub + 4] / 16 + s[sub] / 64 * 16;
  }
  return half(b) * scale * code - half(b + 2) * least;
}
int k_low(const uint8_t* q, int k) {
  const uint8_t byte = q[k / 64 * 32 + k % 32];
  return k % 64 < 32 ? byte % 16 : byte / 16;
}
void decode_q4_k(const PackedWeight& w, int64_t row, double* to) {
  by_block<256, 144>(w, row, to, [](const uint8_t* b, int k) { return k_number(b, k / 32, k_low(b + 16, k)); });
}
void decode_q5_k(const PackedWeight& w, int64_t row, double* to) {
  by_block<256, 176>(w, row, to, [](const uint8_t* b, int k) {
    return k_number(b, k / 32, k_low(b + 48, k) + (b[16 + k % 32] >> (k / 32) & 1) * 16);
  });
}
void decode_q6_k(const PackedWeight& w, int64_t row, double* to) {
  by_block<256, 210>(w, row, to, [](const uint8_t* b, int k) {
    const int part = k / 128, in = k % 128;
    const uint8_t low = b[part * 64 + in % 64], high = b[128 + part * 32 + in % 32];
    const int code = (in < 64 ? low % 16 : low / 16) + (high >> in / 32 * 2 & 3) * 16;
    return half(b + 208) * static_cast<int8_t>(b[192 + k / 16]) * (code - 32);
  });
}

constexpr WeightFormat kFormats[] = {
    {WeightCodes::int8, "int8", "Whole numbers of 8 bits, less a zero where there is one, times a scale.", DType::i8, 1,
     1, false, true, true, true, false, decode_int8},
    {WeightCodes::e4m3, "e4m3",
     "8-bit floating numbers e4m3fn (https://arxiv.org/abs/2209.05433), as bytes, times a scale.", DType::u8, 1, 1,
     false, true, false, false, false, decode_e4m3},
    {WeightCodes::int4, "int4",
     "Codes 0 to 15 less a zero (8 where there are none), times a scale: GPTQ, AWQ, compressed-tensors.", DType::u8, 32,
     16, false, true, true, true, false, decode_int4},
    {WeightCodes::nf4, "nf4",
     "One of sixteen quantiles of the normal distribution (QLoRA, https://arxiv.org/abs/2305.14314), times the largest "
     "magnitude of a block; those in 8 bits with scales of their own where nested.",
     DType::u8, 32, 16, false, true, false, false, true, decode_nf4},
    {WeightCodes::q8_0, "q8_0", "GGUF's Q8_0: 32 whole numbers of 8 bits and a scale in f16.", DType::u8, 32, 34, true,
     false, false, false, false, decode_q8_0},
    {WeightCodes::q4_0, "q4_0", "GGUF's Q4_0: 32 codes of 4 bits less 8, and a scale in f16.", DType::u8, 32, 18, true,
     false, false, false, false, decode_q4_0},
    {WeightCodes::q4_k, "q4_k",
     "GGUF's Q4_K: 256 codes of 4 bits; each 32 have a scale and a least number of 6 bits under two in f16.", DType::u8,
     256, 144, true, false, false, false, false, decode_q4_k},
    {WeightCodes::q5_k, "q5_k", "GGUF's Q5_K: Q4_K with codes of 5 bits.", DType::u8, 256, 176, true, false, false,
     false, false, decode_q5_k},
    {WeightCodes::q6_k, "q6_k",
     "GGUF's Q6_K: 256 codes of 6 bits less 32; each 16 have a scale of 8 bits under one in f16.", DType::u8, 256, 210,
     true, false, false, false, false, decode_q6_k},
};

}  // namespace

std::span<const WeightFormat> weight_formats() {
  return kFormats;
}
const WeightFormat& weight_format(WeightCodes codes) {
  return kFormats[static_cast<size_t>(codes)];
}
const WeightFormat& weight_format(std::string_view name) {
  std::string all;
  for (const WeightFormat& f : kFormats) {
    if (f.name == name) return f;
    all += cat(all.empty() ? "" : ", ", f.name);
  }
  throw ValueError("weight_format", cat("there is no \"", name, "\"; there are ", all));
}

Shape PackedWeight::grid() const {
  return {block_rows == 0 ? (rows > 0 ? 1 : 0) : ceil_div(rows, block_rows),
          block_columns == 0 ? (columns > 0 ? 1 : 0) : ceil_div(columns, block_columns)};
}
std::vector<std::pair<std::string, Tensor>> PackedWeight::parts() const {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const auto& [name, t] : {std::pair{"codes", &codes}, std::pair{"scales", &scales}, std::pair{"zeros", &zeros},
                                std::pair{"order", &order}, std::pair{"nested", &nested}})
    if (t->defined()) all.emplace_back(name, *t);
  return all;
}
int64_t PackedWeight::nbytes() const {
  int64_t sum = 0;
  for (const auto& [name, t] : parts()) sum += t.nbytes();
  return sum;
}
double PackedWeight::bits() const {
  return 8.0 * static_cast<double>(nbytes()) / static_cast<double>(std::max<int64_t>(1, rows * columns));
}

PackedWeight moved(const PackedWeight& w, Device device) {
  PackedWeight there = w;
  for (Tensor* t : {&there.codes, &there.scales, &there.zeros, &there.order, &there.nested})
    if (t->defined()) *t = t->to(device);
  return there;
}

Tensor PackedWeight::decode() const {
  check("PackedWeight");
  PackedWeight dense = moved(*this, Device::cpu());
  for (Tensor* t : {&dense.codes, &dense.scales, &dense.zeros, &dense.order, &dense.nested})
    if (t->defined()) *t = t->contiguous();
  const Tensor y = empty({{rows, columns}, DType::f64, Device::cpu(), std::nullopt});
  if (y.numel() == 0) return y;
  std::vector<double> row(static_cast<size_t>(columns));
  for (int64_t n = 0; n < rows; ++n) {
    format->decode(dense, n, row.data());
    double* const to = y.data<double>() + n * columns;
    for (int64_t k = 0; k < columns; ++k)
      to[order.defined() ? dense.order.data<int32_t>()[k] : k] = row[static_cast<size_t>(k)];
  }
  return y;
}

void PackedWeight::check(std::string_view op, bool values) const {
  strata::check(format != nullptr && codes.defined(), op, "the packed weight is empty");
  const WeightFormat& f = *format;
  strata::check<ShapeError>(rows >= 0 && columns >= 0 && columns < (int64_t{1} << 31), op, "a weight of ", f.name,
                            " is [", rows, ", ", columns, "]");
  strata::check<ShapeError>(!f.whole_units || columns % f.unit == 0, op, f.name, " wants columns in multiples of ",
                            f.unit, ", got ", columns);
  strata::check<DTypeError>(codes.dtype() == f.dtype, op, "codes of ", f.name, " are ", f.dtype, ", got ", codes);
  strata::check<ShapeError>(codes.shape() == Shape{rows, f.row_bytes(columns)}, op, "codes of ", f.name, " for [", rows,
                            ", ", columns, "] are [", rows, ", ", f.row_bytes(columns), "], got ", codes);
  const auto only_where = [&](const Tensor& t, bool may, std::string_view name) {
    strata::check(may || !t.defined(), op, f.name, " has no ", name, ", got ", t);
    strata::check<DeviceError>(!t.defined() || t.device() == codes.device(), op, name, " is ", t, ", codes are ",
                               codes);
  };
  only_where(scales, f.scaled, "scales");
  only_where(zeros, f.zeros, "zeros");
  only_where(order, f.order, "order");
  only_where(nested, f.nested, "nested");
  if (!f.scaled) {
    strata::check(block_rows == 1 && block_columns == 0, op, f.name,
                  " holds its scales: block_rows is 1 and block_columns 0, got ", block_rows, " and ", block_columns);
    return;
  }
  constexpr int64_t kMost = int64_t{1} << 31;
  strata::check(block_rows >= 0 && block_columns >= 0 && block_rows < kMost && block_columns < kMost, op,
                "blocks are of 0 to 2^31 rows and columns, got ", block_rows, " and ", block_columns);
  strata::check(block_columns % 32 == 0 || block_columns >= columns, op, "block_columns is a multiple of 32 or all ",
                columns, ", got ", block_columns);
  strata::check<ShapeError>(scales.defined() && scales.shape() == grid(), op, "scales of [", rows, ", ", columns,
                            "] in blocks of [", block_rows, ", ", block_columns, "] are ", grid(), ", got ", scales);
  strata::check<DTypeError>(nested.defined() ? scales.dtype() == DType::u8 : is_floating(scales.dtype()), op,
                            "scales are ", nested.defined() ? "u8 where they are nested" : "floating", ", got ",
                            scales);
  if (zeros.defined()) {
    const DType want = f.codes == WeightCodes::int8 ? DType::i8 : DType::u8;
    strata::check<DTypeError>(zeros.dtype() == want, op, "zeros of ", f.name, " are ", want, ", got ", zeros);
    strata::check<ShapeError>(zeros.shape() == grid(), op, "zeros are like scales, ", grid(), ", got ", zeros);
  }
  if (f.codes == WeightCodes::nf4)
    strata::check<ShapeError>(block_rows == 1 && (block_columns == 0 || columns % block_columns == 0), op,
                              "blocks of nf4 are of one row and divide its columns, got [", block_rows, ", ",
                              block_columns, "] for ", columns, " columns");
  if (nested.defined()) {
    const int64_t want = 257 + ceil_div(scales.numel(), 256);
    strata::check<DTypeError>(is_floating(nested.dtype()), op, "nested is floating, got ", nested);
    strata::check<ShapeError>(nested.shape() == Shape{want}, op, "nested is [", want, "] for ", scales, ", got ",
                              nested);
  }
  if (!order.defined()) return;
  strata::check<DTypeError>(order.dtype() == DType::i32, op, "order is i32, got ", order);
  strata::check<ShapeError>(order.shape() == Shape{columns}, op, "order is [", columns, "], got ", order);
  if (!values || order.is_meta()) return;
  const std::vector<int32_t> columns_of = order.to_vector<int32_t>();
  std::vector<bool> seen(static_cast<size_t>(columns));
  for (int64_t k = 0; k < columns; ++k) {
    const int64_t c = columns_of[static_cast<size_t>(k)];
    strata::check<IndexError>(c >= 0 && c < columns && !seen[static_cast<size_t>(c)], op, "order names column ", c,
                              " at ", k, ": every one of ", columns, " columns once is wanted");
    seen[static_cast<size_t>(c)] = true;
  }
}

}  // namespace strata
