// Vocabularies of GGUF as tokenizer.json, one record for each "tokenizer.ggml.model".

#include <algorithm>
#include <map>

#include "strata/core/base64_inl.h"
#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/gguf_pre_inl.h"
#include "strata/text/pipeline/gguf_vocabulary.h"
#include "strata/text/pipeline/sentencepiece.h"
#include "strata/text/pipeline/token_models_inl.h"
#include "strata/text/pipeline/tokenizer_json_inl.h"

namespace strata::text {
namespace {

using nlohmann::json;

constexpr std::string_view kOp = "tokenizer.ggml";
constexpr std::string_view kBlank = "\xe2\x96\x81";  // U+2581

PieceType type_of(const GgufVocabulary& v, size_t id) {
  const int32_t type = v.token_types.empty() ? 0 : v.token_types[id];
  return type >= 1 && type <= 6 ? static_cast<PieceType>(type) : PieceType::normal;
}

bool is_special(PieceType type) {
  return type == PieceType::control || type == PieceType::unknown;
}

json vocabulary_of(const std::vector<std::string>& tokens) {
  detail::Vocabulary vocabulary;
  for (size_t i = 0; i < tokens.size(); ++i)
    check(vocabulary.add(tokens[i], static_cast<int32_t>(i)), kOp, "tokens[", i, "] ", io::quote(tokens[i]),
          " is token ", vocabulary.find(tokens[i]), " already");
  return detail::vocabulary_json(vocabulary);
}

json added_tokens(const GgufVocabulary& v) {
  json added = json::array();
  for (size_t i = 0; i < v.tokens.size(); ++i)
    if (const PieceType type = type_of(v, i); is_special(type) || type == PieceType::user_defined)
      added.push_back(detail::added_token(i, v.tokens[i], is_special(type), false));
  return added;
}

AddedEnds ends_of(const GgufVocabulary& v, bool bos, bool eos) {
  AddedEnds ends;
  if (v.add_bos.value_or(bos)) ends.bos = v.bos;
  if (v.add_eos.value_or(eos)) ends.eos = v.eos;
  return ends;
}

// A part of tokenizer.json; null where there is none.
const json& part_of(const json& tokenizer, const char* name) {
  static const json kNone;
  const auto found = tokenizer.find(name);
  return found == tokenizer.end() ? kNone : *found;
}

// BPE of bytes.

// Files from before the key was there have none, which means this one.
const detail::GgufPre& pre_of(std::string_view name) {
  if (name.empty()) name = "default";
  std::string known;
  for (const detail::GgufPre& pre : detail::gguf_pres()) {
    if (std::find(pre.names.begin(), pre.names.end(), name) != pre.names.end()) return pre;
    for (const std::string_view n : pre.names) known += cat(known.empty() ? "" : ", ", n);
  }
  throw ValueError(kOp, cat("pre is ", io::quote(name), ", known are ", known));
}

json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

json byte_bpe_json(const GgufVocabulary& v) {
  const detail::GgufPre& pre = pre_of(v.pre);
  json steps = json::array();
  for (const std::string_view expression : pre.expressions)
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}});
  steps.push_back(byte_level(false));
  json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", pre.ignore_merges},
                {"vocab", vocabulary_of(v.tokens)},
                {"merges", v.merges}};
  return detail::tokenizer_file({.model = std::move(model),
                                 .pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}},
                                 .decoder = byte_level(true),
                                 .added_tokens = added_tokens(v)},
                                ends_of(v, pre.add_bos, false));
}

// The expressions that a pre-tokeniser cuts with; nothing where it is another kind of thing.
bool add_expressions(const json& pre, std::vector<std::string>& expressions, bool& bytes) {
  const std::string type = pre.is_object() ? pre.value("type", "") : "";
  if (type == "Sequence" && pre.contains("pretokenizers") && pre["pretokenizers"].is_array())
    return std::all_of(pre["pretokenizers"].begin(), pre["pretokenizers"].end(),
                       [&](const json& part) { return add_expressions(part, expressions, bytes); });
  if (bytes) return false;  // nothing may come after it
  if (type == "ByteLevel") {
    bytes = true;
    if (pre.value("use_regex", true)) expressions.emplace_back(detail::gguf_pres()[0].expressions[0]);
    return !pre.value("add_prefix_space", true);
  }
  if (type == "Digits" && pre.value("individual_digits", false)) {
    expressions.emplace_back(R"(\p{N})");
    return true;
  }
  const json pattern = type == "Split" ? pre.value("pattern", json()) : json();
  if (!pattern.is_object() || !pattern.contains("Regex") || !pattern["Regex"].is_string()) return false;
  expressions.push_back(pattern["Regex"].get<std::string>());
  return !pre.value("invert", false) &&
         (pre.value("behavior", "") == "Isolated" || pre.value("behavior", "") == "Removed");
}

void byte_bpe_of(const json& tokenizer, GgufVocabulary& v) {
  const json& model = tokenizer.at("model");
  for (const json& merge : model.at("merges"))
    v.merges.push_back(merge.is_array() ? cat(merge.at(0).get_ref<const std::string&>(), " ",
                                              merge.at(1).get_ref<const std::string&>())
                                        : merge.get<std::string>());
  std::vector<std::string> expressions;
  bool bytes = false;
  const bool cuts = add_expressions(part_of(tokenizer, "pre_tokenizer"), expressions, bytes) && bytes;
  const bool ignore = model.value("ignore_merges", false);
  for (const detail::GgufPre& pre : detail::gguf_pres()) {
    if (!cuts || pre.ignore_merges != ignore) continue;
    if (!std::equal(expressions.begin(), expressions.end(), pre.expressions.begin(), pre.expressions.end())) continue;
    v.pre = pre.names[0];
    return;
  }
  throw ValueError(kOp, "the pre_tokenizer of this tokenizer.json has no name in GGUF");
}

// Models of sentencepiece.

json sentencepiece_json(const GgufVocabulary& v, SentencePieceModel::Kind kind, bool remove_blanks, AddedEnds ends) {
  check(v.scores.size() == v.tokens.size(), kOp, "scores has ", v.scores.size(), " entries for ", v.tokens.size(),
        " tokens");
  SentencePieceModel model;
  model.kind = kind;
  model.add_dummy_prefix = v.add_space_prefix.value_or(true);
  model.remove_extra_whitespaces = v.remove_extra_whitespaces.value_or(remove_blanks);
  model.precompiled_charsmap = v.precompiled_charsmap;
  bool has_unknown = false;
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    PieceType type = type_of(v, i);
    has_unknown = has_unknown || type == PieceType::unknown;
    model.byte_fallback = model.byte_fallback || type == PieceType::byte;
    if (type == PieceType::unused) type = PieceType::control;  // room that is left: no text has it
    model.pieces.push_back({v.tokens[i], v.scores[i], type});
  }
  if (!has_unknown && v.unknown) model.pieces[static_cast<size_t>(*v.unknown)].type = PieceType::unknown;
  return tokenizer_json(model, ends);
}

json sentencepiece_bpe_json(const GgufVocabulary& v) {
  return sentencepiece_json(v, SentencePieceModel::Kind::bpe, false, ends_of(v, true, false));
}

json unigram_json(const GgufVocabulary& v) {
  return sentencepiece_json(v, SentencePieceModel::Kind::unigram, true, ends_of(v, false, true));
}

// The first object of this type in the JSON; nullptr where there is none.
const json* find_type(const json& part, std::string_view type) {
  if (part.is_object() && part.value("type", json()) == type) return &part;
  if (part.is_structured())
    for (const json& inner : part)
      if (const json* found = find_type(inner, type)) return found;
  return nullptr;
}

void read_blanks(const json& tokenizer, GgufVocabulary& v) {
  const json& normalizer = part_of(tokenizer, "normalizer");
  const json* const metaspace = find_type(part_of(tokenizer, "pre_tokenizer"), "Metaspace");
  v.add_space_prefix = find_type(normalizer, "Prepend") != nullptr ||
                       (metaspace != nullptr && metaspace->value("prepend_scheme", "always") != "never");
  v.remove_extra_whitespaces = normalizer.dump().find(" {2,}") != std::string::npos;
}

// A piece's score is the place of the first merge that makes it: all that make it must stand together.
void sentencepiece_bpe_of(const json& tokenizer, GgufVocabulary& v) {
  read_blanks(tokenizer, v);
  std::map<std::string, float> place;
  std::string last;
  for (const json& merge : tokenizer.at("model").at("merges")) {
    std::string made;
    if (merge.is_array())
      made = merge.at(0).get<std::string>() + merge.at(1).get<std::string>();
    else
      for (const char c : merge.get<std::string>()) made += c == ' ' ? "" : std::string(1, c);
    if (made == last) continue;
    check(place.emplace(made, -static_cast<float>(place.size())).second, kOp, "the merges that make ", io::quote(made),
          " do not stand together: no order of scores says that");
    last = made;
  }
  for (const std::string& token : v.tokens) {
    const auto found = place.find(token);
    v.scores.push_back(found == place.end() ? -static_cast<float>(place.size()) : found->second);
  }
}

void unigram_of(const json& tokenizer, GgufVocabulary& v) {
  read_blanks(tokenizer, v);
  v.scores.assign(v.tokens.size(), 0.0f);
  const json& vocab = tokenizer.at("model").at("vocab");
  for (size_t i = 0; i < vocab.size(); ++i) v.scores[i] = vocab[i].at(1).get<float>();
  if (const json* charsmap = find_type(part_of(tokenizer, "normalizer"), "Precompiled")) {
    const auto bytes = strata::detail::from_base64(charsmap->value("precompiled_charsmap", ""));
    check(bytes.has_value(), kOp, "precompiled_charsmap is not base64");
    v.precompiled_charsmap = *bytes;
  }
}

// WordPiece: tokens that start a word have U+2581 before them, those within have not.

bool in_brackets(std::string_view token) {
  return token.size() > 2 && token.front() == '[' && token.back() == ']';
}

json word_piece_json(const GgufVocabulary& v) {
  std::vector<std::string> tokens;
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    const std::string_view token = v.tokens[i];
    if (token.starts_with(kBlank))
      tokens.emplace_back(token.substr(kBlank.size()));
    else if (is_special(type_of(v, i)) || in_brackets(token))
      tokens.emplace_back(token);
    else
      tokens.push_back(cat("##", token));
  }
  const bool lowercase = v.lowercase.value_or(true);
  const std::string unknown = v.unknown ? tokens[static_cast<size_t>(*v.unknown)] : "[UNK]";
  json model = {{"type", "WordPiece"},
                {"unk_token", unknown},
                {"continuing_subword_prefix", "##"},
                {"max_input_chars_per_word", 100u},
                {"vocab", vocabulary_of(tokens)}};
  return detail::tokenizer_file({.model = std::move(model),
                                 .normalizer = {{"type", "BertNormalizer"},
                                                {"clean_text", true},
                                                {"handle_chinese_chars", true},
                                                {"strip_accents", v.strip_accents.value_or(lowercase)},
                                                {"lowercase", lowercase}},
                                 .pre_tokenizer = {{"type", "BertPreTokenizer"}},
                                 .decoder = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}},
                                 .added_tokens = added_tokens(v)},
                                {.bos = v.bos, .eos = v.separator ? v.separator : v.eos});
}

void word_piece_of(const json& tokenizer, GgufVocabulary& v) {
  const std::string prefix = tokenizer.at("model").at("continuing_subword_prefix");
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    std::string& token = v.tokens[i];
    if (is_special(type_of(v, i)) || type_of(v, i) == PieceType::unused || in_brackets(token)) continue;
    token = token.starts_with(prefix) && !prefix.empty() ? token.substr(prefix.size()) : cat(kBlank, token);
  }
  const json* const normalizer = find_type(part_of(tokenizer, "normalizer"), "BertNormalizer");
  v.lowercase = normalizer != nullptr && normalizer->value("lowercase", true);
  const json accents = normalizer == nullptr ? json() : normalizer->value("strip_accents", json());
  v.strip_accents = accents.is_boolean() ? accents.get<bool>() : *v.lowercase;
}

struct GgufModel {
  std::string_view name;
  json (*to_json)(const GgufVocabulary&);
  /// Whether a tokenizer.json's "model" is of this kind, and the fields that are its own.
  bool (*fits)(const json& model);
  void (*from_json)(const json& tokenizer, GgufVocabulary&);
};

bool is_type(const json& model, std::string_view type) {
  return model.value("type", "") == type;
}

constexpr GgufModel kModels[] = {
    {"gpt2", byte_bpe_json, [](const json& m) { return is_type(m, "BPE") && !m.value("byte_fallback", false); },
     byte_bpe_of},
    {"llama", sentencepiece_bpe_json, [](const json& m) { return is_type(m, "BPE"); }, sentencepiece_bpe_of},
    {"bert", word_piece_json, [](const json& m) { return is_type(m, "WordPiece"); }, word_piece_of},
    {"t5", unigram_json, [](const json& m) { return is_type(m, "Unigram"); }, unigram_of},
};

void read_tokens(const json& tokenizer, const TokenModel& model, GgufVocabulary& v) {
  int64_t size = model.vocab_size();
  const json added = tokenizer.value("added_tokens", json::array());
  for (const json& token : added) {
    const auto id = token.at("id").get<int64_t>();
    check(id >= 0 && id < detail::Vocabulary::kMaxIds, kOp, "added_tokens has the id ", id);
    size = std::max(size, id + 1);
  }
  for (int64_t id = 0; id < size; ++id) {
    const std::string_view token = model.token(static_cast<int32_t>(id));
    v.tokens.push_back(token.empty() ? cat("[PAD", id, "]") : std::string(token));
    v.token_types.push_back(static_cast<int32_t>(token.empty() ? PieceType::unused : PieceType::normal));
  }
  const auto mark = [&](int64_t id, PieceType type) {
    v.token_types[static_cast<size_t>(id)] = static_cast<int32_t>(type);
  };
  if (tokenizer.at("model").value("byte_fallback", false))
    for (int b = 0; b < 256; ++b)
      if (const auto id = model.id(detail::byte_token(static_cast<unsigned char>(b)))) mark(*id, PieceType::byte);
  for (const json& token : added) {
    const auto id = token.at("id").get<int64_t>();
    v.tokens[static_cast<size_t>(id)] = token.at("content").get<std::string>();
    mark(id, token.value("special", false) ? PieceType::control : PieceType::user_defined);
  }
}

// The unknown token, and the ids that are set around texts.
void read_ends(const json& tokenizer, const TokenModel& model, GgufVocabulary& v) {
  const json& m = tokenizer.at("model");
  const json unknown = m.contains("unk_id") ? m["unk_id"] : m.value("unk_token", json());
  if (unknown.is_number()) v.unknown = unknown.get<int32_t>();
  if (unknown.is_string()) v.unknown = model.id(unknown.get<std::string>());
  if (v.unknown) v.token_types[static_cast<size_t>(*v.unknown)] = static_cast<int32_t>(PieceType::unknown);
  v.add_bos = v.add_eos = false;
  const json* const post = find_type(part_of(tokenizer, "post_processor"), "TemplateProcessing");
  if (post == nullptr) return;
  bool text = false;
  for (const json& part : post->at("single")) {
    text = text || part.contains("Sequence");
    if (!part.contains("SpecialToken")) continue;
    const std::string name = part["SpecialToken"].at("id");
    const auto id = post->at("special_tokens").at(name).at("ids").at(0).get<int32_t>();
    (text ? v.eos : v.bos) = id;
    (text ? v.add_eos : v.add_bos) = true;
  }
}
}  // namespace

json tokenizer_json(const GgufVocabulary& v) {
  check(v.tokens.size() < static_cast<size_t>(detail::Vocabulary::kMaxIds), kOp, "tokens has ", v.tokens.size(),
        " entries, at most ", detail::Vocabulary::kMaxIds - 1, " are allowed");
  check(v.token_types.empty() || v.token_types.size() == v.tokens.size(), kOp, "token_type has ", v.token_types.size(),
        " entries for ", v.tokens.size(), " tokens");
  std::string known;
  for (const GgufModel& model : kModels) {
    if (model.name == v.model) return model.to_json(v);
    known += cat(known.empty() ? "" : ", ", model.name);
  }
  throw ValueError(kOp, cat("model is ", io::quote(v.model), ", known are ", known));
}

GgufVocabulary gguf_vocabulary(const json& tokenizer) {
  try {
    const auto model = parse_token_model(tokenizer.at("model"), "tokenizer");
    for (const GgufModel& kind : kModels) {
      if (!kind.fits(tokenizer.at("model"))) continue;
      GgufVocabulary v;
      v.model = kind.name;
      read_tokens(tokenizer, *model, v);
      read_ends(tokenizer, *model, v);
      kind.from_json(tokenizer, v);
      return v;
    }
    throw ValueError(kOp, cat("a model of the type ", model->type(), " has no name in GGUF"));
  } catch (const json::exception& e) {
    throw ValueError(kOp, cat("this is no tokenizer.json: ", e.what()));
  }
}

}  // namespace strata::text
