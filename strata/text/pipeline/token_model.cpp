#include "strata/text/pipeline/token_model.h"

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/token_models_inl.h"

namespace strata::text {
namespace detail {

using nlohmann::json;

void ModelReader::fail(std::string_view path, std::string_view what) const {
  throw IoError(source_, cat("model", path.empty() ? "" : ".", path, " ", what));
}

const json* ModelReader::optional(const char* key) const {
  const auto found = model_.find(key);
  return found == model_.end() || found->is_null() ? nullptr : &*found;
}

const json& ModelReader::required(const char* key) const {
  const json* const value = optional(key);
  need(value != nullptr, key, "is missing");
  return *value;
}

bool ModelReader::flag(const char* key) const {
  const json* const value = optional(key);
  if (value == nullptr) return false;
  need(value->is_boolean(), key, "must be true or false");
  return value->get<bool>();
}

std::optional<std::string> ModelReader::optional_text(const char* key) const {
  const json* const value = optional(key);
  if (value == nullptr) return std::nullopt;
  need(value->is_string(), key, "must be a string");
  return value->get<std::string>();
}

std::string ModelReader::text(const char* key) const {
  const json& value = required(key);
  need(value.is_string(), key, "must be a string");
  return value.get<std::string>();
}

Vocabulary ModelReader::vocabulary(size_t longest) const {
  const json& vocab = required("vocab");
  need(vocab.is_object(), "vocab", "must be an object of tokens and ids");
  size_t bytes = 0;
  for (const auto& [token, id] : vocab.items()) bytes += token.size();
  Vocabulary result;
  result.reserve(vocab.size(), bytes);
  for (const auto& [token, id] : vocab.items()) {
    const auto path = [&, &name = token] { return cat("vocab[", io::quote(name), "]"); };
    const std::optional<uint64_t> whole = whole_number(id, Vocabulary::kMaxIds);
    if (!whole) fail(path(), cat("must be an id from 0 to ", Vocabulary::kMaxIds - 1));
    if (token.size() > longest)
      fail(cat("vocab[", io::quote(token.substr(0, 64)), "...]"),
           cat("is a token of ", token.size(), " bytes, at most ", longest, " are allowed"));
    const auto number = static_cast<int32_t>(*whole);
    if (result.has(number)) fail(path(), cat("has the id ", number, " of ", io::quote(result.token(number))));
    result.add(token, number);
  }
  return result;
}

std::optional<uint64_t> whole_number(const json& value, uint64_t end) {
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0)) return std::nullopt;
  const auto number = value.get<uint64_t>();
  return number < end ? std::optional(number) : std::nullopt;
}

json vocabulary_json(const Vocabulary& vocabulary) {
  json vocab = json::object();
  for (int64_t id = 0; id < vocabulary.size(); ++id)
    if (vocabulary.has(static_cast<int32_t>(id))) vocab[std::string(vocabulary.token(static_cast<int32_t>(id)))] = id;
  return vocab;
}

std::string byte_token(unsigned char byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
}

std::vector<int32_t> byte_token_ids(const Vocabulary& vocabulary) {
  std::vector<int32_t> ids(256);
  for (size_t b = 0; b < 256; ++b) ids[b] = vocabulary.find(byte_token(static_cast<unsigned char>(b)));
  return ids;
}

std::span<const TokenModelType* const> token_model_types() {
  static constexpr const TokenModelType* kTypes[] = {&kBpeType, &kWordPieceType, &kWordLevelType, &kUnigramType};
  return kTypes;
}

}  // namespace detail

std::unique_ptr<TokenModel> parse_token_model(const nlohmann::json& model, std::string_view source) {
  const detail::ModelReader reader(model, source);
  reader.need(model.is_object(), "", "must be an object");
  const std::optional<std::string> wanted = reader.optional_text("type");
  std::string known;
  for (const detail::TokenModelType* type : detail::token_model_types()) {
    bool fits = !wanted;
    for (const char* field : type->fields) fits = fits && reader.optional(field) != nullptr;
    if (fits || wanted == type->name) return type->parse(reader);
    known += cat(known.empty() ? "" : ", ", type->name);
  }
  reader.fail("type", wanted ? cat("is ", io::quote(*wanted), ", known are ", known)
                             : cat("is missing, and the fields are of none of ", known));
}

}  // namespace strata::text
