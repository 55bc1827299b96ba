#pragma once
// Folders without a tokenizer.json: what the classes of `transformers` make of vocab.json and merges.txt, of vocab.txt, or
// of sentencepiece's tokenizer.model.

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace strata::text::pipeline {

/// The tokenizer.json that a folder with a model of sentencepiece means (tokenizer.model, spiece.model); null where
/// there is none. `config` as below. Throws IoError for what is no such model, or one that tokenizer.json cannot say.
nlohmann::json tokenizer_of_sentencepiece(const std::string& directory, nlohmann::json& config);

/// The tokenizer.json that a folder of the older kind means. `config`: its tokenizer_config.json, an object; special
/// tokens by their names ("bos_token") are put in where it has none. Throws IoError for a folder without such files and
/// for a class that is in no record.
nlohmann::json tokenizer_of_vocabulary_files(const std::string& directory, nlohmann::json& config);

/// The text of a token that a configuration names: a string or an object with "content"; empty for others.
std::string token_text(const nlohmann::json& token);

}  // namespace strata::text::pipeline
