#pragma once
// Models that exist: a folder as Hugging Face writes it, made into a module.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strata/models/family.h"
#include "strata/models/language_model.h"

namespace strata {

/// How a folder is read.
struct PretrainedOptions {
  std::optional<DType> dtype = {};  ///< of the parameters; as stored where not given
  Device device = Device::cpu();
};

/// What load_pretrained found in a folder.
struct Pretrained {
  const Family* family = nullptr;
  ModelSpec spec;
  std::shared_ptr<LanguageModel> model;  ///< of ModelKind::decoder, in evaluation mode
  std::string config;                    ///< the text of config.json
  std::string generation_config;         ///< of generation_config.json; empty where there is none
  std::string folder;
};

/// Reads config.json and the weights of a folder: model.safetensors, or the shards that model.safetensors.index.json
/// lists. The model is made without memory first, then each file is read in the order of its bytes into the parameters.
/// Throws IoError for files that cannot be read or are no JSON, ValueError for a configuration that is refused, and
/// ValueError that lists all of: tensors of the files that no row takes, rows without a tensor, and tensors of another
/// shape.
///
///     const Pretrained p = load_pretrained("models/llama", {.dtype = DType::bf16});
///     const Tensor logits = p.model->forward(tokens);
Pretrained load_pretrained(const std::string& folder, const PretrainedOptions& options = {});

/// The family and spec of a folder's config.json alone.
std::pair<const Family*, ModelSpec> read_pretrained_spec(const std::string& folder);

/// Fills the parameters of `module` from a folder's files by rows; what load_pretrained does after making the module.
void load_weights(nn::Module& module, const Family& family, const ModelSpec& spec, const std::string& folder);

}  // namespace strata
