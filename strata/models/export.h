#pragma once
// Models given back: folders that Hugging Face's library reads.

#include <cstdint>
#include <optional>
#include <string>

#include "strata/io/sharded_safetensors.h"
#include "strata/models/pretrained.h"

namespace strata {

/// How a folder is written.
struct ExportOptions {
  /// Of the files' tensors; where not given, each has its parameter's.
  std::optional<DType> dtype = {};
  uint64_t max_shard_bytes = io::kShardBytes;
  /// The text of the config.json that the model was made of, which is kept; where empty, the family writes one.
  std::string config = {};
  /// A folder whose tokenizer, chat template and generation settings are copied, or a GGUF file whose are written as
  /// such a folder has them; none where empty.
  std::string companions = {};
  /// How low-bit layers (nn::is_packed()) are stored. Where not given as `config` says; where that says nothing as
  /// compressed-tensors, and nf4 as bitsandbytes, does. config.json gets its quantization_config.
  std::optional<PackedScheme> packed = {};
  /// The folder that low-bit layers were loaded from. Those that still are as they came get their bytes from there; so
  /// that also what joining them loses (double quantised scales of q, k and v) comes back.
  std::string source = {};
};

/// Writes a folder, whole or not at all (io::FolderWriter; one that is there is refused): config.json, the parameters
/// by the family's rows in safetensors files (with an index where they are several), and the companions. Tensors of a
/// model that was loaded and not touched have the bytes that they came with. Low-bit layers stay so; where the model
/// has none, a quantization_config of the given config goes. Throws ValueError for a row whose parameter the module has
/// not or that has another size, a parameter that no row writes, a config that says another spec, low-bit layers that
/// one scheme does not store, and what write_config throws; IoError where something cannot be read or written.
///
///     save_pretrained(*model, family_named("llama"), model->spec(), "my-model", {.dtype = DType::bf16});
void save_pretrained(const nn::Module& module, const Family& family, const ModelSpec& spec, const std::string& folder,
                     const ExportOptions& options = {});
/// The same of what load_pretrained gave, with its config.json and its folder's companions where the options name none.
void save_pretrained(const Pretrained& model, const std::string& folder, ExportOptions options = {});

}  // namespace strata
