#pragma once
// How files store the elements of a tensor: one record for each way, whatever kind of file it stands in.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "strata/core/dims.h"
#include "strata/core/dtype.h"

namespace strata::io {

/// One way to store elements. Elements come in blocks, each of `block` neighbours in the last dimension and of
/// `block_bytes` bytes; plain numbers are blocks of one.
struct StoredType {
  std::string_view name;  ///< "F32", "F8_E4M3", "Q4_K": as safetensors and ggml write it
  /// What a tensor of it is when it has been read: its own dtype, or f32 for blocks that `decode` knows. None: such a
  /// tensor can be listed and its bytes be read and written, but it cannot become a Tensor.
  std::optional<DType> dtype;
  int64_t block = 1;
  int64_t block_bytes = 1;
  int ggml = -1;                   ///< its number in GGUF files; negative where it has none
  bool safetensors = false;        ///< whether safetensors files may hold it
  std::string_view torch;          ///< PyTorch's name of the dtype ("float32"); empty where it has none
  std::string_view torch_storage;  ///< and of its class of storage ("FloatStorage")
  /// Blocks to f32 (strata/io/gguf_blocks_cpu.h); nullptr for plain numbers and for blocks that are not decoded.
  void (*decode)(const std::byte* from, int64_t blocks, float* to) = nullptr;
  /// f32 to blocks; nullptr where there is no encoder.
  void (*encode)(const float* from, int64_t blocks, std::byte* to) = nullptr;

  /// Whether elements are numbers of `dtype` as they stand.
  bool is_plain() const { return dtype.has_value() && decode == nullptr; }
};

/// All of them.
std::span<const StoredType> stored_types();
/// The one of these that holds elements of `dtype` as they are.
const StoredType& stored_type(DType dtype);
/// By its name, "Q8_0"; nullptr where there is none.
const StoredType* find_stored_type(std::string_view name);
/// By its number in GGUF files; nullptr where there is none.
const StoredType* find_ggml_type(uint64_t number);
/// By the name of PyTorch's class of storage, "HalfStorage", or of its dtype, "float16"; nullptr where there is none.
const StoredType* find_torch_type(std::string_view name);

/// A tensor that a file is to hold: what a writer must know of all of them before the first is written.
struct StoredItem {
  std::string name;
  const StoredType* type = nullptr;
  Shape shape;
};

/// Bytes of a row-major tensor. Nothing where they are more than 63 bits count, or where the last dimension (for the
/// types of GGUF) or the number of elements (for those of less than a byte) is no multiple of the block.
std::optional<uint64_t> stored_bytes(const StoredType& type, const Shape& shape);

}  // namespace strata::io
