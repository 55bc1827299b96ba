#include "strata/core/error.h"
#include "strata/text/pipeline/tokenizer_json_inl.h"

namespace strata::text::detail {

using nlohmann::json;

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
      special[name] = {{"id", name}, {"ids", {static_cast<uint32_t>(id)}}, {"tokens", {name}}};
      return name;
    }
    throw ValueError("tokenizer", cat("id ", id, ", to be set around texts, is no control token"));
  };
  const auto around = [&](std::string_view name, unsigned type) {
    json list = json::array();
    if (ends.bos) list.push_back({{"SpecialToken", {{"id", token(*ends.bos)}, {"type_id", type}}}});
    list.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    if (ends.eos) list.push_back({{"SpecialToken", {{"id", token(*ends.eos)}, {"type_id", type}}}});
    return list;
  };
  json single = around("A", 0u), pair = single;
  for (const json& part : around("B", 1u)) pair.push_back(part);
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
