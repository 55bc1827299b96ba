#pragma once
// Models in GGUF files: what such a file says of a model, and a config.json that says the same.

#include <string>
#include <string_view>

#include "strata/io/gguf.h"
#include "strata/models/pretrained.h"

namespace strata {

/// The family of a GGUF file, by its general.architecture, and the spec that its metadata say. Keys of the architecture
/// that are not known are refused rather than passed over; those of tokenizers and general ones decide no number.
/// Throws ValueError, and what read_spec throws.
std::pair<const Family*, ModelSpec> read_gguf_spec(const io::WeightFiles& files);

/// A GGUF file's model; of decoders. Blocks are decoded to f32 and become `options.dtype`; where none is given, the
/// embedding's own. Throws as load_pretrained.
Pretrained load_gguf(const std::string& path, const PretrainedOptions& options = {});

/// Writes the model as a GGUF file, whole or not at all, without a tokenizer. `type`, F32, F16, BF16, Q8_0 or Q4_0, is
/// that of matrices; vectors are F32, as llama.cpp has them, and matrices whose rows the type's blocks do not divide
/// F16. Throws ValueError for a family that GGUF has no name for, a type that is none of these, a spec that its
/// metadata cannot say; IoError where the file cannot be written.
///
///     save_gguf(*model, family_named("llama"), model->spec(), "model.gguf", "Q8_0");
///     const Pretrained again = load_gguf("model.gguf");
void save_gguf(const nn::Module& module, const Family& family, const ModelSpec& spec, const std::string& path,
               std::string_view type = "F16");

}  // namespace strata
