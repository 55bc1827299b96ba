#pragma once
// The tokenizer of a folder as Hugging Face writes them, or of a GGUF file.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "strata/text/tokenizer.h"

namespace strata::text {

/// What a folder says about text: its tokenizer, and what stands beside it.
struct TokenizerFolder {
  /// From tokenizer.json, else from sentencepiece's tokenizer.model or spiece.model, else from vocab.json and
  /// merges.txt, else from vocab.txt; a tokenizer.json of our own runs may be any Tokenizer, the others are
  /// PipelineTokenizers.
  std::unique_ptr<Tokenizer> tokenizer;
  /// Ids by their name in tokenizer_config.json or special_tokens_map.json ("bos_token", "eos_token", "unk_token",
  /// "sep_token", "pad_token", "cls_token", "mask_token"); only those that the tokenizer has.
  std::map<std::string, int32_t> named;
  std::optional<int32_t> bos, eos, pad, unk;  ///< of `named`
  /// For DecodeOptions; false where the folder does not say.
  bool clean_up_tokenization_spaces = false;
  /// The template for chats, empty where there is none: chat_template.jinja, else chat_template.json, else
  /// tokenizer_config.json; of several, the one named "default".
  std::string chat_template;
  /// All of them by name, where tokenizer_config.json has a list.
  std::map<std::string, std::string> chat_templates;
  /// How its configuration names it ("LlamaTokenizer"); may be empty.
  std::string tokenizer_class;
};

/// Reads a folder. Only files of these names directly in it are opened. Tokens that tokenizer_config.json has beyond
/// tokenizer.json's are added, as `transformers` does. A GGUF file, or the only one of a folder without any of these
/// files, is read as well: all that it says of text. Throws IoError that names the file and the field; ValueError for a
/// GGUF file's vocabulary that is not known.
///
///     const TokenizerFolder folder = load_tokenizer_folder("Qwen2.5-0.5B");
///     folder.tokenizer->encode("Hello");
TokenizerFolder load_tokenizer_folder(const std::string& path);

/// Whether there is a tokenizer to load: one of the files, or a GGUF file with a vocabulary. Throws IoError for a GGUF
/// file that cannot be read.
bool has_tokenizer(const std::string& path);

/// The tokenizer of a folder, of a model of sentencepiece (tokenizer.model, spiece.model) or of a file that
/// load_tokenizer() reads; of files nothing but the tokenizer. Throws IoError naming the file.
TokenizerFolder load_tokenizer_at(const std::string& path);

}  // namespace strata::text
