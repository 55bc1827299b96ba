#include "strata/text/tokenizer_folder.h"

#include <charconv>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/gguf.h"
#include "strata/io/json.h"
#include "strata/text/pipeline/gguf_folder.h"
#include "strata/text/pipeline/pipeline_parts_inl.h"
#include "strata/text/pipeline/vocabulary_files_inl.h"
#include "strata/text/pipeline_tokenizer.h"

namespace strata::text {
namespace {

using Json = nlohmann::json;
constexpr std::string_view kOp = "tokenizer";
constexpr uint64_t kMaxFile = 100'000'000, kMaxTemplate = 1'000'000;
constexpr const char* kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};

/// A file of the folder as an object; an empty one where it is absent.
Json object_of(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return Json::object();
  Json made = io::parse_json(io::read_file(path, kMaxFile), path);
  check<IoError>(made.is_object(), kOp, io::quote(path), ": the file must be an object");
  return made;
}

/// A token of a configuration as tokenizer.json's "added_tokens" have them.
Json added_token(const std::string& path, const std::string& field, const Json& token) {
  const std::string content = pipeline::token_text(token);
  check<IoError>(!content.empty(), kOp, io::quote(path), ": ", field, " must be a token's text, or an object with it");
  const auto flag = [&](const char* key, bool fallback) {
    if (!token.is_object() || !token.contains(key)) return fallback;
    check<IoError>(token[key].is_boolean(), kOp, io::quote(path), ": ", field, ".", key, " must be true or false");
    return token[key].get<bool>();
  };
  const bool special = flag("special", true);
  return {{"id", 0u},
          {"content", content},
          {"single_word", flag("single_word", false)},
          {"lstrip", flag("lstrip", false)},
          {"rstrip", flag("rstrip", false)},
          {"normalized", flag("normalized", !special)},
          {"special", special}};
}

/// Adds to a tokenizer.json's tokens those that only the configuration has.
void add_tokens(Json& root, const Json& config, const std::string& path) {
  Json& tokens = root["added_tokens"];
  if (tokens.is_null()) tokens = Json::array();
  if (!tokens.is_array()) return;  // whoever reads it says so
  if (const auto listed = config.find("added_tokens_decoder"); listed != config.end()) {
    check<IoError>(listed->is_object(), kOp, io::quote(path), ": added_tokens_decoder must be an object");
    std::map<int64_t, Json> by_id;
    for (const auto& [key, token] : listed->items()) {
      int64_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      check<IoError>(error == std::errc() && end == key.data() + key.size() && id >= 0, kOp, io::quote(path),
                     ": added_tokens_decoder has ", io::quote(key), ", wanted ids");
      Json made = added_token(path, cat("added_tokens_decoder.", key), token);
      // Behind a flag that is not there stands false, not what is usual for a named token.
      if (!token.contains("special")) made["special"] = false;
      if (!token.contains("normalized")) made["normalized"] = true;
      by_id[id] = std::move(made);
    }
    for (auto& [id, token] : by_id) tokens.push_back(std::move(token));
  }
  const auto known = [&](const std::string& content) {
    for (const Json& t : tokens)
      if (t.is_object() && pipeline::token_text(t) == content) return true;
    return false;
  };
  for (const char* name : kNames) {
    const auto at = config.find(name);
    if (at == config.end() || at->is_null()) continue;
    Json token = added_token(path, name, *at);
    token["special"] = true;
    if (!known(token["content"])) tokens.push_back(std::move(token));
  }
}

/// added_tokens.json of older folders: tokens and their ids.
void add_listed_tokens(Json& root, const std::string& path) {
  std::map<uint64_t, std::string> by_id;
  const Json listed = object_of(path);
  for (const auto& [content, id] : listed.items()) {
    check<IoError>(id.is_number_unsigned(), kOp, io::quote(path), ": ", io::quote(content), " must have an id");
    by_id[id.get<uint64_t>()] = content;
  }
  for (const auto& [id, content] : by_id) {
    Json token = added_token(path, content, content);
    token["special"] = false;
    token["normalized"] = true;
    root["added_tokens"].push_back(std::move(token));
  }
}

void read_templates(const std::string& directory, const Json& config, const std::string& path, TokenizerFolder& made) {
  Json listed;
  if (const auto at = config.find("chat_template"); at != config.end()) listed = *at;
  const std::string own = directory + "/chat_template.jinja", json = directory + "/chat_template.json";
  if (const Json beside = object_of(json); beside.contains("chat_template")) listed = beside["chat_template"];
  constexpr std::string_view wanted = "chat_template must be a text, or a list of {name, template}";
  if (listed.is_string()) {
    made.chat_template = listed.get<std::string>();
  } else if (listed.is_array()) {
    for (const Json& t : listed) {
      const bool fits = t.is_object() && t.contains("name") && t["name"].is_string() && t.contains("template") &&
                        t["template"].is_string();
      check<IoError>(fits, kOp, io::quote(path), ": ", wanted);
      made.chat_templates[t["name"].get<std::string>()] = t["template"].get<std::string>();
    }
    if (const auto at = made.chat_templates.find("default"); at != made.chat_templates.end())
      made.chat_template = at->second;
  } else {
    check<IoError>(listed.is_null(), kOp, io::quote(path), ": ", wanted);
  }
  std::error_code none;
  if (std::filesystem::exists(own, none)) made.chat_template = io::read_file(own, kMaxTemplate);
}

bool has_tokenizer_file(const std::string& directory) {
  std::error_code none;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt"})
    if (std::filesystem::exists(std::filesystem::path(directory) / name, none)) return true;
  return false;
}

}  // namespace

bool has_tokenizer(const std::string& path) {
  if (has_tokenizer_file(path)) return true;
  const std::string file = io::find_gguf(path);
  return !file.empty() && has_gguf_tokenizer(io::read_gguf_header(io::InputFile(file)).metadata);
}

TokenizerFolder load_tokenizer_folder(const std::string& directory) {
  if (!has_tokenizer_file(directory))
    if (const std::string file = io::find_gguf(directory); !file.empty())
      return gguf_tokenizer(io::read_gguf_header(io::InputFile(file)).metadata, file);
  TokenizerFolder made;
  const std::string path = directory + "/tokenizer_config.json", tokenizer = directory + "/tokenizer.json";
  Json config = object_of(path);
  if (!config.contains("added_tokens_decoder")) {
    const Json map = object_of(directory + "/special_tokens_map.json");
    for (const auto& [key, value] : map.items()) config[key] = value;
  }

  std::error_code none;
  if (std::filesystem::exists(tokenizer, none)) {
    Json root = io::parse_json(io::read_file(tokenizer, kMaxFile), tokenizer);
    if (!root.is_object() || root.contains("format") || !root.contains("model")) {
      made.tokenizer = load_tokenizer(tokenizer);
    } else {
      add_tokens(root, config, path);
      made.tokenizer = pipeline::TokenizerParts::parse(root, tokenizer);
    }
  } else if (Json root = pipeline::tokenizer_of_sentencepiece(directory, config); !root.is_null()) {
    add_listed_tokens(root, directory + "/added_tokens.json");
    add_tokens(root, config, path);
    made.tokenizer = pipeline::TokenizerParts::parse(root, directory);
  } else {
    root = pipeline::tokenizer_of_vocabulary_files(directory, config);
    add_listed_tokens(root, directory + "/added_tokens.json");
    add_tokens(root, config, path);
    auto pipeline = pipeline::TokenizerParts::parse(root, directory);
    const auto asked = [&](const char* key, const char* token) -> std::optional<int32_t> {
      const bool wanted = config.contains(key) && config[key].is_boolean() && config[key].get<bool>();
      return wanted && config.contains(token) ? pipeline->id(pipeline::token_text(config[token])) : std::nullopt;
    };
    const auto begin = asked("add_bos_token", "bos_token"), end = asked("add_eos_token", "eos_token");
    if (begin || end) pipeline = pipeline->with_template(begin, end);
    made.tokenizer = std::move(pipeline);
  }

  const auto* pipeline = dynamic_cast<const PipelineTokenizer*>(made.tokenizer.get());
  for (const char* name : kNames) {
    const auto at = config.find(name);
    if (at == config.end()) continue;
    const std::string text = pipeline::token_text(*at);
    const auto& special = made.tokenizer->special_tokens();
    const auto own = special.find(text);
    if (own != special.end())
      made.named[name] = own->second;
    else if (pipeline != nullptr && pipeline->id(text))
      made.named[name] = *pipeline->id(text);
  }
  const auto named = [&](const char* name) -> std::optional<int32_t> {
    const auto at = made.named.find(name);
    return at == made.named.end() ? std::nullopt : std::optional(at->second);
  };
  made.bos = named("bos_token");
  made.eos = named("eos_token");
  made.pad = named("pad_token");
  made.unk = named("unk_token");
  if (const auto at = config.find("clean_up_tokenization_spaces"); at != config.end() && at->is_boolean())
    made.clean_up_tokenization_spaces = at->get<bool>();
  if (const auto at = config.find("tokenizer_class"); at != config.end() && at->is_string())
    made.tokenizer_class = at->get<std::string>();
  read_templates(directory, config, path, made);
  return made;
}

TokenizerFolder load_tokenizer_at(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (fs::is_directory(path, none)) return load_tokenizer_folder(path);
  TokenizerFolder made;
  const fs::path file(path);
  if (file.filename() != "tokenizer.model" && file.filename() != "spiece.model") {
    made.tokenizer = load_tokenizer(path);
    return made;
  }
  const std::string directory = file.has_parent_path() ? file.parent_path().string() : ".";
  Json config = object_of(directory + "/tokenizer_config.json");
  const Json root = pipeline::tokenizer_of_sentencepiece(directory, config);
  check<IoError>(!root.is_null(), kOp, "there is no ", io::quote(path));
  made.tokenizer = pipeline::TokenizerParts::parse(root, path);
  return made;
}

}  // namespace strata::text
