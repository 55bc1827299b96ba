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
};

/// Writes a folder, whole or not at all (io::FolderWriter; one that is there is refused): config.json, the parameters
/// by the family's rows in safetensors files (with an index where they are several), and the companions. Tensors of a
/// model that was loaded and not touched have the bytes that they came with. Throws ValueError for a row whose
/// parameter the module has not or that has another size, a parameter that no row writes, a config that says another
/// spec, and what write_config throws; IoError where something cannot be read or written.
///
///     save_pretrained(*model, family_named("llama"), model->spec(), "my-model", {.dtype = DType::bf16});
void save_pretrained(const nn::Module& module, const Family& family, const ModelSpec& spec, const std::string& folder,
                     const ExportOptions& options = {});
/// The same of what load_pretrained gave, with its config.json and its folder's companions where the options name none.
void save_pretrained(const Pretrained& model, const std::string& folder, ExportOptions options = {});

}  // namespace strata
