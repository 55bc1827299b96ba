#pragma once
// Models written as GGUF files; load_pretrained (pretrained.h) reads them.

#include <string>
#include <string_view>
#include <vector>

#include "strata/models/pretrained.h"

namespace strata {

/// How a GGUF file is written.
struct GgufOptions {
  /// Of matrices, one of gguf_types(); empty: as they are. Vectors, routers of experts and tables of positions are F32;
  /// the output layer (or the embedding where it is the output layer) of Q4_0, Q4_K and Q5_K is Q6_K, as llama.cpp has
  /// them. A matrix whose rows a type's blocks do not divide is Q8_0, and where its blocks do not either, F16.
  std::string type = {};
  /// A folder or a GGUF file whose tokenizer, chat template, generation settings and, of a GGUF file, general keys are
  /// written as well; none where empty, and none where it has no tokenizer.
  std::string companions = {};
  std::string name = {};  ///< general.name; empty: what the companions say, else none
};

/// Types that matrices may be written as: "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K".
std::vector<std::string_view> gguf_types();

/// Writes the model as a GGUF file, whole or not at all. Low-bit layers are written as numbers of `type`; without one,
/// tensors that are equal to those of a GGUF file under `companions` keep its bytes. Throws ValueError for a family
/// that GGUF has no name for, a type that is none of gguf_types(), a spec or a tokenizer that a file cannot say,
/// numbers that are not finite (of blocks); IoError where the file cannot be written.
///
///     save_gguf(*model, family_named("llama"), model->spec(), "model.gguf", {.type = "Q8_0"});
///     const Pretrained again = load_pretrained("model.gguf");
void save_gguf(const nn::Module& module, const Family& family, const ModelSpec& spec, const std::string& path,
               const GgufOptions& options = {});

/// The same of a model that was loaded; its folder is the companion where none is given.
void save_gguf(const Pretrained& model, const std::string& path, GgufOptions options = {});

}  // namespace strata
