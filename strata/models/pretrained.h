#pragma once
// Models that exist: a folder as Hugging Face writes it, or a GGUF file, made into a module.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/models/encoder_decoder.h"
#include "strata/models/family.h"
#include "strata/models/image_encoder.h"
#include "strata/models/language_model.h"
#include "strata/models/packed_files.h"
#include "strata/models/text_encoder.h"

namespace strata {
namespace io {
class WeightFiles;
}

/// How a folder is read.
struct PretrainedOptions {
  /// Of the parameters; where not given, the one that most bytes of the files have.
  std::optional<DType> dtype = {};
  Device device = Device::cpu();
  /// Low-bit matrices stay so in layers that can multiply them (nn::pack_linear); false: they become numbers.
  bool keep_packed = true;
};

/// What load_pretrained found in a folder.
struct Pretrained {
  const Family* family = nullptr;
  ModelSpec spec;
  /// @name The model, in evaluation mode: the one of these that its ModelKind says
  /// @{
  std::shared_ptr<LanguageModel> model;
  std::shared_ptr<TextEncoder> text_encoder;
  std::shared_ptr<ImageEncoder> image_encoder;
  std::shared_ptr<ContrastivePair> pair;
  std::shared_ptr<EncoderDecoder> encoder_decoder;
  /// @}
  /// It, whichever it is.
  nn::Module& module() const;
  std::string config;             ///< the text of config.json; of a GGUF file one that says the same
  std::string generation_config;  ///< of generation_config.json, or of a GGUF file; empty where there is none
  std::string folder;             ///< the path, as it was given
};

/// The model of a spec, with weights as they are drawn: the spec and the module of its kind, and nothing else. On the
/// meta device it has shapes alone. Throws what check_spec does.
///
///     const Pretrained p = make_module(read_pretrained_spec("models/t5").second);
///     const size_t tensors = p.module().parameters().size();
Pretrained make_module(const ModelSpec& spec);

/// Whether a path is what load_pretrained takes, by its name and first bytes: a folder with a config.json, a GGUF file,
/// or a folder with one *.gguf.
bool is_pretrained(const std::string& path);

/// Reads config.json and the weights of a folder, in whatever files io::WeightFiles finds them; or a GGUF file, alone
/// or the only one of a folder without a config.json. The files are checked against the family's rows before memory is
/// taken, and then read in the order of their bytes straight into the parameters. Throws IoError for files that cannot
/// be read, ValueError for a configuration that is refused, and what load_weights throws.
///
///     const Pretrained p = load_pretrained("models/llama", {.dtype = DType::bf16});
///     const Tensor logits = p.model->forward(tokens);
///     const Pretrained q = load_pretrained("llama-q4_k.gguf");
Pretrained load_pretrained(const std::string& path, const PretrainedOptions& options = {});

/// The family and spec of a folder's config.json, or of a GGUF file; no weight is read.
std::pair<const Family*, ModelSpec> read_pretrained_spec(const std::string& path);
/// The text of a folder's config.json, or of one that says what a GGUF file does.
std::string read_pretrained_config(const std::string& path);

/// Fills the parameters of `module` from files by the family's rows. Throws one ValueError that lists all of: tensors
/// of the files that no row takes, rows without a tensor, tensors of another shape or of a type that is not decoded,
/// parameters that no row fills; then nothing was read. ValueError as well where an output layer that is to be the
/// embedding is another one: then parameters are filled.
/// Where `scheme` is given, and of GGUF's blocks, low-bit matrices stay so in the layers that they are the weights of
/// (nn::pack_linear) unless `keep_packed` is false; the head, embeddings, and layers of a folder that are made of matrices
/// of several kinds get their numbers.
void load_weights(nn::Module& module, const Family& family, const ModelSpec& spec, const io::WeightFiles& files,
                  const std::optional<PackedScheme>& scheme = {}, bool keep_packed = true);

}  // namespace strata
