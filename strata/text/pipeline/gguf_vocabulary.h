#pragma once
// The vocabularies of GGUF files ("tokenizer.ggml.*"), as tokenizer.json and back.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "strata/io/gguf.h"

namespace strata::text {

/// What a file says under "tokenizer.ggml."; what it leaves out is empty.
struct GgufVocabulary {
  std::string model;  // "gpt2": BPE of bytes; "llama": BPE of sentencepiece; "bert": WordPiece; "t5": Unigram
  std::string pre;    // of "gpt2": how texts are cut, a name of gguf_pre_names()
  std::vector<std::string> tokens;   // ids are their places
  std::vector<float> scores;         // of "llama" and "t5"
  std::vector<int32_t> token_types;  // PieceType; 0 counts as normal
  std::vector<std::string> merges;   // "left right", of "gpt2"
  std::optional<int32_t> bos, eos, unknown, separator, padding, mask;
  std::optional<bool> add_bos, add_eos;
  std::optional<bool> add_space_prefix, remove_extra_whitespaces;  // of "llama" and "t5"
  std::optional<bool> lowercase, strip_accents;                    // of "bert"
  std::string precompiled_charsmap;                                // of "t5"
};

/// Reads a file's. Throws IoError that names file and key.
GgufVocabulary gguf_vocabulary(const io::GgufMetadata& metadata);
/// Sets the keys in a file's metadata.
void set_gguf_vocabulary(const GgufVocabulary& vocabulary, io::GgufMetadata& metadata);

/// As tokenizer.json says it. Control tokens are special; with add_bos and add_eos (a "llama" without add_bos adds it,
/// "bert" and "t5" have their ends always) ids go around texts. Throws ValueError for a model or a `pre` that is not
/// known, listing those that are, and for arrays that do not fit together.
nlohmann::json tokenizer_json(const GgufVocabulary& vocabulary);
/// The vocabulary that a file needs for this tokenizer.json. Throws ValueError for one that GGUF cannot say: a model
/// or a way to cut texts without a name there, merges that are in no order of scores.
GgufVocabulary gguf_vocabulary(const nlohmann::json& tokenizer);

/// Names of ways to cut texts, as "tokenizer.ggml.pre" has them.
std::vector<std::string_view> gguf_pre_names();

}  // namespace strata::text
