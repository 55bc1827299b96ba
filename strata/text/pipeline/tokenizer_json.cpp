#include "strata/core/error.h"
#include "strata/text/pipeline/tokenizer_json_inl.h"

namespace strata::text::detail {

using nlohmann::json;

// RFC 4648.
std::string base64(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i)
      group = group << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i) text += at + i > bytes.size() ? '=' : digits[group >> (18 - 6 * i) & 63];
  }
  return text;
}

json added_token(size_t id, std::string_view text, bool special, bool normalized) {
  return {{"id", id},        {"content", text},          {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", normalized}, {"special", special}};
}

namespace {
// Puts the ids before and after; of two texts around each.
json ends_json(const json& added, const AddedEnds& ends) {
  json special = json::object();
  const auto token = [&](int32_t id) -> json {
    for (const json& t : added) {
      if (t.at("id") != id) continue;
      const std::string name = t.at("content");
      special[name] = {{"id", name}, {"ids", {id}}, {"tokens", {name}}};
      return name;
    }
    throw ValueError("tokenizer", cat("id ", id, ", to be set around texts, is no control token"));
  };
  const auto around = [&](std::string_view name, int type) {
    json list = json::array();
    if (ends.bos) list.push_back({{"SpecialToken", {{"id", token(*ends.bos)}, {"type_id", type}}}});
    list.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    if (ends.eos) list.push_back({{"SpecialToken", {{"id", token(*ends.eos)}, {"type_id", type}}}});
    return list;
  };
  json single = around("A", 0), pair = single;
  for (const json& part : around("B", 1)) pair.push_back(part);
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(special)}};
}
}  // namespace

json tokenizer_file(TokenizerParts parts, const AddedEnds& ends) {
  json post = ends.bos || ends.eos ? ends_json(parts.added_tokens, ends) : json();
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(parts.added_tokens)},
          {"normalizer", std::move(parts.normalizer)},
          {"pre_tokenizer", std::move(parts.pre_tokenizer)},
          {"post_processor", std::move(post)},
          {"decoder", std::move(parts.decoder)},
          {"model", std::move(parts.model)}};
}

}  // namespace strata::text::detail
