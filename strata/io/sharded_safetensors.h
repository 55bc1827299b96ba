#pragma once
// Folders of safetensors files with an index, as Hugging Face's libraries write and read them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/io/safetensors.h"
#include "strata/io/stored_type.h"

namespace strata::io {

/// Bytes of a shard where nothing else is said, as transformers has it.
inline constexpr uint64_t kShardBytes = 5'000'000'000;

/// Writes STEM.safetensors, or STEM-00001-of-00003.safetensors and so on with STEM.safetensors.index.json where the
/// tensors need several, one tensor after the other. Each file is there whole or not at all; so that the folder is,
/// too, write into FolderWriter::path().
///
///     io::FolderWriter folder("my-model");
///     io::ShardedSafetensorsWriter out(folder.path(), {{"w", &io::stored_type(DType::bf16), w.shape()}});
///     for (const std::string& name : out.order()) out.write(weights.at(name));
///     out.commit();
///     folder.commit();
class ShardedSafetensorsWriter {
 public:
  /// Tensors come into shards in the order of `items`, as many as `max_shard_bytes` take; one that is larger has a
  /// shard of its own. transformers wants metadata with "format": "pt". Throws ValueError as save_safetensors does, for
  /// a type that safetensors has not, and for max_shard_bytes 0; IoError where a file cannot be written.
  ShardedSafetensorsWriter(std::string folder, std::vector<StoredItem> items, uint64_t max_shard_bytes = kShardBytes,
                           Metadata metadata = {{"format", "pt"}}, std::string stem = "model");
  ~ShardedSafetensorsWriter();
  ShardedSafetensorsWriter(ShardedSafetensorsWriter&&) noexcept;

  /// Names in the order in which they are to be written.
  const std::vector<std::string>& order() const;
  /// The next tensor, of the item's shape, from any device and tier; its elements become the item's type as copy_
  /// converts them. Throws ShapeError, DTypeError (a type without a dtype: write_bytes(); floating into integers),
  /// ValueError where all have been written.
  void write(const Tensor& tensor);
  /// The next tensor's bytes as the file has them. Throws ValueError unless there are as many as it needs.
  void write_bytes(std::span<const std::byte> bytes);
  /// Names of the files, written, the index last. Throws ValueError where tensors have not been written.
  std::vector<std::string> commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A new folder with all of them, whole or not at all. Throws as FolderWriter and ShardedSafetensorsWriter do.
void save_sharded(const std::string& folder, const TensorMap& tensors, uint64_t max_shard_bytes = kShardBytes,
                  const Metadata& metadata = {{"format", "pt"}});

}  // namespace strata::io
