#pragma once
// Low-bit weights as other programs store them: which tensors a layer's weight is made of, and what config.json says
// of them. docs/design/low_bit.md.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/ops/lowbit/weight_format.h"

namespace strata {

struct PackedScheme;

/// The tensors of one layer's weight by what follows the layer's name and a dot: "qweight", "weight.absmax". Those of
/// 8-bit floating numbers are their bytes, u8.
using PackedPieces = std::map<std::string, Tensor, std::less<>>;

/// One piece that a way of storing has.
struct PackedPiece {
  std::string_view suffix;
  bool required;  ///< a layer without it is stored in another way
};

/// All that is known of a way to store low-bit weights in safetensors or PyTorch files.
struct PackedFile {
  std::string_view name;          ///< "GPTQ"
  std::string_view quant_method;  ///< of config.json's quantization_config
  std::string_view doc;
  std::string_view skip_key;  ///< of that: the list of layers that are not packed; empty where it needs none
  std::vector<PackedPiece> pieces;
  PackedWeight (*read)(const PackedScheme& scheme, const PackedPieces& pieces);
  PackedPieces (*write)(const PackedScheme& scheme, const PackedWeight& weight);
};
/// Every one.
std::span<const PackedFile> packed_files();

/// What a quantization_config says.
struct PackedScheme {
  const PackedFile* file = nullptr;
  int bits = 4;
  int64_t group_size = 0;                  ///< columns with one scale; 0: all
  int64_t block_rows = 1;                  ///< rows with one scale; 0: all
  bool symmetric = false;                  ///< compressed-tensors: no zero points
  bool act_order = false;                  ///< columns are in groups in any order
  int zero_offset = 0;                     ///< what is added to stored zeros: 1 in GPTQ's first format
  std::string storage_dtype = "bfloat16";  ///< bitsandbytes: the dtype that its own files name
};

/// The scheme of a whole config.json, from its "quantization_config" (or "compression_config"); nothing where there is
/// none. Layers that it leaves alone need no list: their files have a plain weight. Throws IoError where `config` is no
/// JSON; ValueError naming `source` and the key for a method, a number of bits, a version or a setting that is not
/// known here, with what is.
///
///     const std::optional<PackedScheme> scheme = packed_scheme(text, "model/config.json");
std::optional<PackedScheme> packed_scheme(std::string_view config, std::string_view source);
/// That object for weights stored so: what packed_scheme() reads back.
std::string packed_config(const PackedScheme& scheme);

/// Whether these are the pieces of a layer of `scheme`: all that are required are there.
bool is_packed_layer(const PackedScheme& scheme, const PackedPieces& pieces);
/// The weight [rows, columns] that pieces make. Throws ValueError naming `layer` for a piece that is missing or not
/// known, ShapeError and DTypeError for one that does not fit.
PackedWeight read_packed(const PackedScheme& scheme, const PackedPieces& pieces, std::string_view layer);
/// The pieces again, byte for byte those that read_packed() got (bitsandbytes' quant_state: with the scheme's
/// storage_dtype). Throws ValueError for a weight that cannot be stored so.
PackedPieces write_packed(const PackedScheme& scheme, const PackedWeight& weight, std::string_view layer);

/// The format that products read matrices of a GGUF type in; nullptr where there is none, so that they are read as
/// numbers. Q8_0, Q4_0, Q4_K, Q5_K, Q6_K: their blocks as they are. In more bits, with the same numbers to the bit:
/// Q5_0 and IQ4_NL as Q8_0's blocks, Q3_K as Q6_K's, IQ4_XS and MXFP4 as int8 with a scale for each 32.
const WeightFormat* packed_gguf_format(std::string_view type);
/// A matrix [rows, columns] of a GGUF file from its bytes [rows * row bytes] (u8) in packed_gguf_format(type), which
/// shares them where the blocks are its own. Throws ValueError for a type without a format, ShapeError, DTypeError,
/// DeviceError for bytes on a card that are to be converted.
PackedWeight packed_gguf(std::string_view type, const Tensor& bytes, int64_t rows, int64_t columns);

}  // namespace strata
