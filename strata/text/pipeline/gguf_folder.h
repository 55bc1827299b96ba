#pragma once
// What a GGUF file says of text, as a folder says it: tokenizer, special ids, chat template, settings of generation.

#include <cstdint>
#include <string>
#include <string_view>

#include "strata/io/gguf.h"
#include "strata/text/tokenizer_folder.h"

namespace strata::text {

/// Whether the metadata has a tokenizer. llama.cpp takes no file that does not say which; without one it is "none", or
/// "no_vocab". Throws IoError where the key is no text.
bool has_gguf_tokenizer(const io::GgufMetadata& metadata);
/// Says that there is none, unless there is one.
void set_no_gguf_tokenizer(io::GgufMetadata& metadata);

/// The tokenizer of a file's metadata, with its special ids and its chat template. Throws IoError and ValueError that
/// name `source` and the key.
TokenizerFolder gguf_tokenizer(const io::GgufMetadata& metadata, const std::string& source);

/// What generation_config.json would say: ids that end a text (the end of sequence, of a turn and of a message, and
/// control tokens that are known to be such ends), and the sampling that the file recommends ("general.sampling.").
/// Empty where the file has no tokenizer.
std::string gguf_generation_config(const io::GgufMetadata& metadata);

/// Sets the keys of a model with `vocab` rows of embeddings: vocabulary, special ids, chat template, and what
/// `generation_config` (the text of a generation_config.json, or empty) says. Rows without a token get one that no text
/// has. Throws ValueError where GGUF cannot say this tokenizer, or it has more tokens than rows.
void set_gguf_tokenizer(const TokenizerFolder& folder, int64_t vocab, std::string_view generation_config,
                        io::GgufMetadata& metadata);

/// Writes tokenizer.json, tokenizer_config.json and, where there is a template, chat_template.jinja into a folder.
void write_tokenizer_files(const TokenizerFolder& folder, const std::string& directory);

}  // namespace strata::text
