#pragma once
// safetensors files (https://github.com/huggingface/safetensors, "Format"): 8 bytes little-endian length, a JSON header
// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, "__metadata__": {"key": "text"}}, then the
// tensors' bytes, each byte in exactly one tensor. Everything is checked before anything is believed.

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/io/files.h"
#include "strata/io/input_file.h"

namespace strata::io {

/// Tensors by name, in the order of their names.
using TensorMap = std::map<std::string, Tensor>;
/// The free-text part of a safetensors header.
using Metadata = std::map<std::string, std::string>;

/// A header longer than this is refused, as the reference implementation does.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

/// One tensor of a file: its bytes are row-major and little-endian, and may be unaligned.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  uint64_t offset = 0;  ///< of its first byte in the file
  uint64_t nbytes = 0;
};

/// What a file says of itself.
struct SafetensorsHeader {
  /// In the order of their bytes.
  std::vector<SafetensorsEntry> entries;
  Metadata metadata;
};

/// Checks a whole file image and describes it. `name` stands in the messages. Throws IoError that says what the file is
/// where it is one of PyTorch, NumPy or GGUF, and how to convert it; and IoError that names the file, the tensor or
/// field, and the byte, for: a truncated file, a header length over the file or over kMaxSafetensorsHeader, anything
/// that is not the JSON above, a name or key given twice, an unknown dtype, a negative or overflowing shape, more than
/// kMaxDims dimensions, bytes out of range, overlapping, left out, or not as many as the shape says. Allocates no more
/// than a small multiple of the header that is really there.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, std::string_view name);

/// The same of a file, of which only the header is read.
SafetensorsHeader read_safetensors_header(const InputFile& file);

/// Copies of all tensors of a file image that parse_safetensors describes. Throws IoError as SafetensorsFile::tensor().
TensorMap read_safetensors(std::span<const std::byte> file, const SafetensorsHeader& header, std::string_view name);

/// A safetensors file: opening reads the header, a tensor's bytes are read when asked for.
class SafetensorsFile {
 public:
  /// Throws IoError as InputFile and parse_safetensors do.
  explicit SafetensorsFile(const std::string& path);
  explicit SafetensorsFile(InputFile file);

  const std::string& path() const { return file_.path(); }
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const Metadata& metadata() const { return header_.metadata; }
  /// Bytes of the whole file, header included.
  uint64_t size() const { return file_.size(); }
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// Throws IoError where the file has no such tensor.
  const SafetensorsEntry& entry(std::string_view name) const;
  /// A copy on the host. Throws IoError as entry(), where the file was cut meanwhile, and for a BOOL tensor with a byte
  /// that is neither 0 nor 1.
  Tensor tensor(std::string_view name) const;
  /// Copies of all tensors.
  TensorMap tensors() const;
  /// All tensors, the file read once and by several threads (fill_tensors). One that `into` has under its name, with
  /// its dtype and shape and contiguous, is filled in place, in memory of whatever tier, and given back; of the others
  /// there are copies on `device`, of booleans on the host, in the tier of the thread's TierScope. `hasher`, where given, takes every byte of the file. Throws
  /// IoError as tensor(); what was to be filled may hold anything then.
  TensorMap read(const TensorMap& into, Device device = Device::cpu(), Hasher* hasher = nullptr) const;

 private:
  const SafetensorsEntry* find(std::string_view name) const;
  Tensor copy(const SafetensorsEntry& entry) const;

  InputFile file_;
  SafetensorsHeader header_;
  std::map<std::string_view, size_t> index_;  // views of the entries' names
};

/// A tensor to be written: `size_of(dtype) * shape.product()` bytes at `data`, row-major.
struct SafetensorsItem {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  const void* data = nullptr;
};

/// Writes a file (FileWriter: whole or not at all) that the reference implementation reads: items in the order of
/// falling element size then name, so that each is aligned to its element. Throws ValueError for a name given twice,
/// empty, reserved or not UTF-8, and for metadata that is not UTF-8; IoError where the file cannot be written.
WrittenFile save_safetensors(const std::string& path, std::vector<SafetensorsItem> items,
                             const Metadata& metadata = {});
/// The same for tensors of any tier, which pass through the host's memory one after the other. Views are written
/// row-major; DeviceError for meta tensors.
WrittenFile save_safetensors(const std::string& path, const TensorMap& tensors, const Metadata& metadata = {});
/// The bytes that save_safetensors writes, in memory.
std::string encode_safetensors(const TensorMap& tensors, const Metadata& metadata = {});

}  // namespace strata::io
