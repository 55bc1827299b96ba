// tokenizer.ggml.* in a file's metadata.

#include "strata/text/pipeline/gguf_vocabulary.h"

#include <algorithm>

#include "strata/core/error.h"
#include "strata/text/pipeline/gguf_pre_inl.h"

namespace strata::text {
namespace {

using io::GgufMetadata;
using io::GgufValue;

std::string key(std::string_view name) {
  return cat("tokenizer.ggml.", name);
}

template <class T>
struct Field {
  std::string_view name;
  std::optional<T> GgufVocabulary::*value;
};
constexpr Field<int32_t> kIds[] = {
    {"bos_token_id", &GgufVocabulary::bos},         {"eos_token_id", &GgufVocabulary::eos},
    {"unknown_token_id", &GgufVocabulary::unknown}, {"seperator_token_id", &GgufVocabulary::separator},
    {"padding_token_id", &GgufVocabulary::padding}, {"mask_token_id", &GgufVocabulary::mask},
};
constexpr Field<bool> kFlags[] = {
    {"add_bos_token", &GgufVocabulary::add_bos},
    {"add_eos_token", &GgufVocabulary::add_eos},
    {"add_space_prefix", &GgufVocabulary::add_space_prefix},
    {"remove_extra_whitespaces", &GgufVocabulary::remove_extra_whitespaces},
    {"normalizer.lowercase", &GgufVocabulary::lowercase},
    {"normalizer.strip_accents", &GgufVocabulary::strip_accents},
};
constexpr std::string_view kCharsmap = "precompiled_charsmap";
}  // namespace

GgufVocabulary gguf_vocabulary(const GgufMetadata& metadata) {
  GgufVocabulary v;
  v.model = metadata.text(key("model"));
  v.tokens = metadata.texts(key("tokens"));
  if (metadata.contains(key("pre"))) v.pre = metadata.text(key("pre"));
  if (metadata.contains(key("merges"))) v.merges = metadata.texts(key("merges"));
  if (metadata.contains(key("scores")))
    for (const double score : metadata.numbers(key("scores"))) v.scores.push_back(static_cast<float>(score));
  if (metadata.contains(key("token_type")))
    for (const int64_t type : metadata.integers(key("token_type")))
      v.token_types.push_back(static_cast<int32_t>(std::clamp<int64_t>(type, -1, 100)));
  const auto tokens = static_cast<int64_t>(v.tokens.size());
  for (const auto& [name, value] : kIds) {
    if (!metadata.contains(key(name))) continue;
    const int64_t id = metadata.integer(key(name));
    // Files have 2^32 - 1 and the like for "none".
    if (id >= 0 && id < tokens) v.*value = static_cast<int32_t>(id);
  }
  for (const auto& [name, value] : kFlags)
    if (metadata.contains(key(name))) v.*value = metadata.boolean(key(name));
  if (metadata.contains(key(kCharsmap)))
    for (const int64_t byte : metadata.integers(key(kCharsmap)))
      v.precompiled_charsmap += static_cast<char>(static_cast<uint8_t>(byte));
  return v;
}

void set_gguf_vocabulary(const GgufVocabulary& v, GgufMetadata& metadata) {
  metadata.set(key("model"), GgufValue::of(v.model));
  if (!v.pre.empty()) metadata.set(key("pre"), GgufValue::of(v.pre));
  metadata.set(key("tokens"), GgufValue::of(v.tokens));
  if (!v.scores.empty()) metadata.set(key("scores"), GgufValue::of(v.scores));
  if (!v.token_types.empty()) metadata.set(key("token_type"), GgufValue::of(v.token_types));
  if (!v.merges.empty()) metadata.set(key("merges"), GgufValue::of(v.merges));
  for (const auto& [name, value] : kIds)
    if (v.*value) metadata.set(key(name), GgufValue::of(static_cast<uint32_t>(*(v.*value))));
  for (const auto& [name, value] : kFlags)
    if (v.*value) metadata.set(key(name), GgufValue::of(*(v.*value)));
  if (!v.precompiled_charsmap.empty()) {
    std::vector<GgufValue> bytes;
    bytes.reserve(v.precompiled_charsmap.size());
    for (const char c : v.precompiled_charsmap) bytes.push_back(GgufValue::of(static_cast<uint8_t>(c)));
    metadata.set(key(kCharsmap), GgufValue::of(std::move(bytes), io::GgufType::u8));
  }
}

std::vector<std::string_view> gguf_pre_names() {
  std::vector<std::string_view> names;
  for (const detail::GgufPre& pre : detail::gguf_pres()) names.insert(names.end(), pre.names.begin(), pre.names.end());
  return names;
}

}  // namespace strata::text
