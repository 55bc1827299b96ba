#pragma once
// Matrices of a linear layer in 4 to 8 bits a number: one table of formats, and what a matrix in one of them consists
// of. docs/design/low_bit.md.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/tensor.h"

namespace strata {

/// How numbers are coded; the order is that of weight_formats().
enum class WeightCodes : uint8_t { int8, e4m3, int4, nf4, q8_0, q4_0, q4_k, q5_k, q6_k };

struct PackedWeight;

/// All that is known of a format. Its decode is the reference that kernels are compared with.
struct WeightFormat {
  WeightCodes codes;
  std::string_view name;  ///< "int4"
  std::string_view doc;   ///< what it is, and where it is described
  DType dtype;            ///< of the codes: i8 or u8
  int unit;               ///< columns that are coded together; a row is filled up to whole units
  int unit_bytes;         ///< bytes of a unit
  bool whole_units;       ///< the columns must be a multiple of `unit`
  bool scaled;            ///< has `scales` apart from its codes
  bool zeros, order;      ///< may have them
  bool nested;            ///< its scales may be codes themselves
  /// Row `row` of the codes' matrix in double, `w.columns` numbers in the order of the codes (w.order not applied).
  void (*decode)(const PackedWeight& w, int64_t row, double* to);

  /// Bytes of the codes of one row.
  int64_t row_bytes(int64_t columns) const { return (columns + unit - 1) / unit * unit_bytes; }
};

/// Every format.
std::span<const WeightFormat> weight_formats();
/// By its code, or by its name: ValueError that lists the names there are.
const WeightFormat& weight_format(WeightCodes codes);
const WeightFormat& weight_format(std::string_view name);

/// A matrix W [rows, columns] in one of the formats: see docs/design/low_bit.md for the parts. Parts that a matrix
/// lacks are undefined tensors.
///
///     PackedWeight w = quantize_weight(randn({64, 128}), "int4", {.block_columns = 32});
///     Tensor y = packed_linear(x, w);                  // x [.., 128] -> [.., 64]
struct PackedWeight {
  const WeightFormat* format = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t block_rows = 1, block_columns = 0;  ///< what one scale is for; 0: all rows, or all columns
  Tensor codes;                               ///< format->dtype [rows, format->row_bytes(columns)]
  Tensor scales;                              ///< [blocks of rows, blocks of columns], floating; u8 where nested
  Tensor zeros;                               ///< like scales, i8 for int8, u8 for int4
  Tensor order;                               ///< i32 [columns]: column j of the codes is column order[j] of W
  Tensor nested;  ///< f32 [257 + ceil(scales / 256)]: offset, values of codes, scales of scales

  /// Blocks down and across: the shape of `scales`.
  Shape grid() const;
  /// Bytes of all parts.
  int64_t nbytes() const;
  /// Bits for each number of W, all parts counted.
  double bits() const;
  /// The parts there are with their names: "codes", "scales", "zeros", "order", "nested".
  std::vector<std::pair<std::string, Tensor>> parts() const;
  /// W in f64 on the CPU, by the format's reference decode. Throws as check().
  Tensor decode() const;
  /// Throws ShapeError, DTypeError, ValueError in the name of `op` unless the parts are as said here. `values`: also
  /// looks into `order`, which must then be in the host's memory.
  void check(std::string_view op, bool values = true) const;
};

/// The same with its parts on `device`.
PackedWeight moved(const PackedWeight& w, Device device);

/// How quantize_weight() makes codes.
struct QuantizeOptions {
  int64_t block_rows = 1;     ///< what one scale is for; 0: all rows
  int64_t block_columns = 0;  ///< 0: all columns; a multiple of 32 for int4 and nf4
  bool symmetric = true;      ///< int8, int4: no zeros
  bool nested = false;        ///< nf4: scales in 8 bits, QLoRA's double quantisation
  DType scale_dtype = DType::f32;
};

/// W [rows, columns], floating, rounded to the nearest of `format`'s numbers under scales by the largest magnitude (for
/// int8 and int4 not symmetric: by the range). nf4 takes block_rows 1 and columns that are a multiple of block_columns,
/// 64 where that is 0. Formats of GGUF: q8_0 and q4_0; the others are read, not made. Throws ValueError, ShapeError,
/// DTypeError. On the CPU.
PackedWeight quantize_weight(const Tensor& weight, std::string_view format, const QuantizeOptions& options = {});

/// The sixteen numbers of NF4 ("QLoRA: Efficient Finetuning of Quantized LLMs", https://arxiv.org/abs/2305.14314,
/// appendix E).
std::span<const float, 16> nf4_values();

}  // namespace strata
