#pragma once
// The weights of a model that exists, in whatever file they are: a folder as Hugging Face writes it, with safetensors
// or with PyTorch's zip files, one file or several with an index, or a GGUF file.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/io/safetensors.h"
#include "strata/io/stored_type.h"

namespace strata::io {

class GgufMetadata;

/// The kinds of files that weights come in.
enum class WeightsFormat : uint8_t { safetensors, torch, gguf };
/// "safetensors", "PyTorch zip", "GGUF".
std::string_view name_of(WeightsFormat format);

/// One tensor of the files.
struct WeightEntry {
  std::string name;
  const StoredType* type = nullptr;
  /// In PyTorch's order, the last dimension's elements side by side (GGUF files write it the other way round).
  Shape shape;
  size_t file = 0;      ///< its place in WeightFiles::files()
  uint64_t offset = 0;  ///< of its first byte in that file
  uint64_t nbytes = 0;  ///< of the file, from the first to the last that it shows
  /// In elements, where they do not lie row-major: views that PyTorch saved. `nbytes` spans all that they reach.
  std::optional<Strides> strides;
};

/// One part of a bulk read: rows of an entry into a tensor.
struct WeightRead {
  std::string name;  ///< of the entry
  /// Any view of any tensor: contiguous or not, of any device, tier and dtype. Its shape is the entry's (or `view`'s),
  /// but for the first size where rows are taken. What is floating may not go into integers.
  Tensor target;
  /// Takes rows of the first dimension, as many as target's first size says, from this one on. Not given: all of it.
  std::optional<int64_t> first = std::nullopt;
  /// Reads the entry as if it had this shape, of as many elements: rows by heads, say. Blocks stay whole: the last size
  /// is a multiple of the block.
  std::optional<Shape> view = std::nullopt;
};

/// The files of a model's weights, open. Opening reads and checks what the files say of themselves; a tensor's bytes
/// are read when asked for, by any number of threads. Files are read and not mapped into memory: InputFile says why.
///
/// Every failure is an IoError that names the file and, where it has them, the tensor, the index's key and the byte.
///
///     const io::WeightFiles files("llama");            // a folder, or llama/model.safetensors, or llama.gguf
///     Tensor qkv = empty(TensorMeta{{3 * 64, 64}, DType::bf16, Device::cuda()});
///     files.read({{"q.weight", qkv.narrow(0, 0, 64)},  // straight into one parameter
///                 {"k.weight", qkv.narrow(0, 64, 64)},
///                 {"v.weight", qkv.narrow(0, 128, 64)}});
class WeightFiles {
 public:
  /// A folder, or one file: what it is, is seen by its content. In a folder the first of these is taken:
  /// model.safetensors, model.safetensors.index.json, adapter_model.safetensors, pytorch_model.bin,
  /// pytorch_model.bin.index.json, adapter_model.bin, the only *.gguf. A path to an index's JSON is taken as well. Of a
  /// GGUF model in parts (gguf_parts) any may be named: all are read.
  ///
  /// Refused: names of an index that leave its folder, a shard that is missing or cut, an index's name that its shard
  /// has not, a tensor of a shard that the index has not or puts elsewhere; a safetensors header that is not right (its
  /// types are all of the format's), and what parse_gguf refuses; of PyTorch's files all but plain tensors in dicts, by
  /// the name of what was to be called: nothing is ever executed; their format from before the zip files; TorchScript;
  /// a GGUF model of which a part is missing, says that it is another, or has a tensor of an earlier one.
  explicit WeightFiles(const std::string& path);
  ~WeightFiles();
  WeightFiles(WeightFiles&&) noexcept;
  WeightFiles& operator=(WeightFiles&&) noexcept;

  /// As it was given.
  const std::string& path() const;
  WeightsFormat format() const;
  /// Paths of the files that hold tensors.
  const std::vector<std::string>& files() const;
  /// In the order of their bytes, file after file.
  const std::vector<WeightEntry>& entries() const;
  /// Bytes of all files.
  uint64_t size() const;
  /// nullptr where there is none of that name.
  const WeightEntry* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// Throws IoError where there is none of that name.
  const WeightEntry& entry(std::string_view name) const;
  /// The free text of a safetensors header, of the first file. Empty for other formats.
  const Metadata& metadata() const;
  /// What a GGUF file, or the first of its parts, says of the model; nullptr for other formats.
  const GgufMetadata* gguf() const;

  /// A copy, of its own dtype; blocks become f32. Throws DTypeError for a type that has no dtype, by its name.
  Tensor tensor(std::string_view name, Device device = Device::cpu()) const;
  /// Some rows (of the first dimension) of it. Throws IndexError where it has not so many.
  Tensor rows(std::string_view name, int64_t first, int64_t count, Device device = Device::cpu()) const;
  /// Into `target`, as one part of read().
  void read_into(std::string_view name, const Tensor& target) const;
  /// All parts, in the order of their bytes in the files whatever their order here, on several threads. Where dtypes
  /// agree and the target is contiguous, straight into its memory (fill_tensors): no second copy on the host; others in
  /// pieces of a few MiB, converted as copy_ does. Targets of two parts must not overlap; entries may come twice.
  /// Throws IoError, DTypeError (a type without a dtype, floating into integer), ShapeError, IndexError (rows);
  /// all of it is checked before anything is read, but for bytes that cannot be read or are no booleans: then targets
  /// may hold anything.
  void read(const std::vector<WeightRead>& parts) const;
  /// The bytes of an entry as they stand in the file, as a u8 tensor [nbytes] on the host: for types without a dtype,
  /// and to give weights back byte for byte. Throws IoError for an entry with strides.
  Tensor bytes(std::string_view name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata::io
