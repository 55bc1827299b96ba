#include "strata/text/pipeline/vocabulary_files_inl.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/json.h"
#include "strata/text/pipeline/sentencepiece.h"

namespace strata::text::pipeline {
namespace {

using Json = nlohmann::json;
constexpr std::string_view kOp = "tokenizer";
constexpr uint64_t kMaxFile = 100'000'000;

bool exists(const std::string& path) {
  std::error_code none;
  return std::filesystem::exists(path, none);
}

bool flag(const Json& config, const char* key, bool fallback) {
  const auto at = config.find(key);
  return at != config.end() && at->is_boolean() ? at->get<bool>() : fallback;
}

std::vector<std::string> lines_of(const std::string& path) {
  const std::string text = io::read_file(path, kMaxFile);
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    at = end + 1;
  }
  return lines;
}

Json bpe(const std::string& directory, const Json& unknown, std::string_view word_end) {
  const std::string vocab = directory + "/vocab.json", merges = directory + "/merges.txt";
  Json pairs = Json::array();
  for (const std::string& line : lines_of(merges)) {
    if (line.empty() || (pairs.empty() && line.starts_with("#version"))) continue;
    const size_t blank = line.find(' ');
    check<IoError>(blank != std::string::npos && line.find(' ', blank + 1) == std::string::npos, kOp, io::quote(merges),
                   ": ", io::quote(line), " is no pair of tokens");
    pairs.push_back({line.substr(0, blank), line.substr(blank + 1)});
  }
  return {{"type", "BPE"},
          {"unk_token", unknown},
          {"end_of_word_suffix", std::string(word_end)},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"vocab", io::parse_json(io::read_file(vocab, kMaxFile), vocab)},
          {"merges", std::move(pairs)}};
}

Json byte_level(bool prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", prefix_space}, {"trim_offsets", true}, {"use_regex", use_regex}};
}
Json split(const char* regex, const char* behavior, bool invert) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", behavior}, {"invert", invert}};
}
Json sequence(const char* list, std::initializer_list<Json> parts) {
  return {{"type", "Sequence"}, {list, Json::array_t(parts)}};
}

int64_t id_in(const Json& vocab, const std::string& token) {
  const auto at = vocab.find(token);
  check<IoError>(at != vocab.end() && at->is_number_unsigned() && at->get<uint64_t>() <= uint64_t{INT32_MAX}, kOp,
                 "the vocabulary has no token ", io::quote(token));
  return at->get<int64_t>();
}
Json token_and_id(const Json& vocab, const std::string& token) {
  return Json::array({token, static_cast<uint64_t>(id_in(vocab, token))});
}

// As the classes of transformers 5 make them.
Json gpt2(const std::string& directory, const Json& config) {
  return {{"pre_tokenizer", byte_level(flag(config, "add_prefix_space", false), true)},
          {"decoder", byte_level(true, true)},
          {"model", bpe(directory, nullptr, "")}};
}

Json roberta(const std::string& directory, const Json& config) {
  Json made = gpt2(directory, config);
  const Json& vocab = made["model"]["vocab"];
  made["post_processor"] = {{"type", "RobertaProcessing"},
                            {"sep", token_and_id(vocab, token_text(config["sep_token"]))},
                            {"cls", token_and_id(vocab, token_text(config["cls_token"]))},
                            {"trim_offsets", true},
                            {"add_prefix_space", flag(config, "add_prefix_space", false)}};
  return made;
}

constexpr const char* kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
Json qwen2(const std::string& directory, const Json& config) {
  return {{"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", sequence("pretokenizers", {split(kQwen2Words, "Isolated", false),
                                                       byte_level(flag(config, "add_prefix_space", false), false)})},
          {"decoder", byte_level(true, true)},
          {"model", bpe(directory, nullptr, "")}};
}

constexpr const char* kClipWords =
    R"(<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)";
Json clip(const std::string& directory, const Json& config) {
  Json made = {
      {"normalizer",
       sequence("normalizers",
                {Json{{"type", "NFC"}}, Json{{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", " "}},
                 Json{{"type", "Lowercase"}}})},
      {"pre_tokenizer", sequence("pretokenizers", {split(kClipWords, "Removed", true), byte_level(false, true)})},
      {"decoder", byte_level(true, true)},
      {"model", bpe(directory, token_text(config["unk_token"]), "</w>")}};
  const Json& vocab = made["model"]["vocab"];
  made["post_processor"] = {{"type", "RobertaProcessing"},
                            {"sep", token_and_id(vocab, token_text(config["eos_token"]))},
                            {"cls", token_and_id(vocab, token_text(config["bos_token"]))},
                            {"trim_offsets", false},
                            {"add_prefix_space", false}};
  return made;
}

Json bert(const std::string& directory, const Json& config) {
  Json vocab = Json::object();
  uint64_t id = 0;
  for (const std::string& line : lines_of(directory + "/vocab.txt")) vocab[line] = id++;
  const std::string cls = token_text(config["cls_token"]), sep = token_text(config["sep_token"]);
  const auto special = [](const std::string& token, int type) {
    return Json{{"SpecialToken", {{"id", token}, {"type_id", type}}}};
  };
  const auto text = [](const char* which, int type) { return Json{{"Sequence", {{"id", which}, {"type_id", type}}}}; };
  Json tokens = Json::object();
  for (const std::string& token : {cls, sep})
    tokens[token] = {{"id", token},
                     {"ids", Json::array({static_cast<uint64_t>(id_in(vocab, token))})},
                     {"tokens", Json::array({token})}};
  const auto accents = config.find("strip_accents");
  return {{"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", flag(config, "tokenize_chinese_chars", true)},
            {"strip_accents", accents != config.end() && accents->is_boolean() ? *accents : Json()},
            {"lowercase", flag(config, "do_lower_case", true)}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", Json::array({special(cls, 0), text("A", 0), special(sep, 0)})},
            {"pair", Json::array({special(cls, 0), text("A", 0), special(sep, 0), text("B", 1), special(sep, 1)})},
            {"special_tokens", std::move(tokens)}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", token_text(config["unk_token"])},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 100},
            {"vocab", std::move(vocab)}}}};
}

struct NamedToken {
  const char *name, *text;
};
/// A kind of folder: the classes and model types that have it, its files, the special tokens where the configuration
/// names none.
struct Kind {
  std::vector<std::string_view> classes, model_types;
  std::vector<const char*> files;
  std::vector<NamedToken> tokens;
  Json (*make)(const std::string& directory, const Json& config);
};
const Kind kKinds[] = {
    {{"GPT2Tokenizer"},
     {"gpt2"},
     {"vocab.json", "merges.txt"},
     {{"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}},
     gpt2},
    {{"RobertaTokenizer", "BartTokenizer"},
     {"roberta", "bart"},
     {"vocab.json", "merges.txt"},
     {{"bos_token", "<s>"},
      {"eos_token", "</s>"},
      {"sep_token", "</s>"},
      {"cls_token", "<s>"},
      {"unk_token", "<unk>"},
      {"pad_token", "<pad>"},
      {"mask_token", "<mask>"}},
     roberta},
    {{"Qwen2Tokenizer"},
     {"qwen2", "qwen3"},
     {"vocab.json", "merges.txt"},
     {{"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}, {"pad_token", "<|endoftext|>"}},
     qwen2},
    {{"CLIPTokenizer"},
     {"clip"},
     {"vocab.json", "merges.txt"},
     {{"bos_token", "<|startoftext|>"},
      {"eos_token", "<|endoftext|>"},
      {"unk_token", "<|endoftext|>"},
      {"pad_token", "<|endoftext|>"}},
     clip},
    {{"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"},
     {"bert", "distilbert", "electra"},
     {"vocab.txt"},
     {{"unk_token", "[UNK]"},
      {"sep_token", "[SEP]"},
      {"pad_token", "[PAD]"},
      {"cls_token", "[CLS]"},
      {"mask_token", "[MASK]"}},
     bert},
};

const Kind& kind_of(const std::string& directory, const Json& config) {
  std::string name, model_type;
  if (const auto at = config.find("tokenizer_class"); at != config.end() && at->is_string()) {
    name = at->get<std::string>();
    if (name.ends_with("Fast")) name.resize(name.size() - 4);
  } else if (const std::string path = directory + "/config.json"; exists(path)) {
    const Json model = io::parse_json(io::read_file(path, kMaxFile), path);
    if (model.is_object() && model.contains("model_type") && model["model_type"].is_string())
      model_type = model["model_type"].get<std::string>();
  }
  std::string known;
  const Kind* fits = nullptr;
  for (const Kind& kind : kKinds) {
    for (const std::string_view c : kind.classes) known += cat(known.empty() ? "" : ", ", c);
    const auto has = [](const std::vector<std::string_view>& all, const std::string& one) {
      return std::find(all.begin(), all.end(), one) != all.end();
    };
    if (has(kind.classes, name) || (name.empty() && has(kind.model_types, model_type))) fits = &kind;
  }
  check<IoError>(fits != nullptr, kOp, io::quote(directory), ": there is no tokenizer.json, and its tokenizer_class ",
                 name.empty() ? "is not named" : cat("is ", io::quote(name)), "; known are ", known);
  for (const char* file : fits->files)
    check<IoError>(exists(directory + "/" + file), kOp, io::quote(directory), ": there is no ", file);
  return *fits;
}

}  // namespace

std::string token_text(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string())
    return token["content"].get<std::string>();
  return {};
}

// XLM-RoBERTa's sentencepiece.bpe.model is not among the names: its ids are shifted.
Json tokenizer_of_sentencepiece(const std::string& directory, Json& config) {
  std::string path = directory + "/tokenizer.model";
  if (!exists(path)) path = directory + "/spiece.model";
  if (!exists(path)) return {};
  const SentencePieceModel model = parse_sentencepiece(io::read_file(path, kMaxFile), path);
  const auto place = [&](const std::string& text) -> std::optional<int32_t> {
    const auto at =
        std::find_if(model.pieces.begin(), model.pieces.end(), [&](const auto& p) { return p.text == text; });
    return at == model.pieces.end() ? std::nullopt : std::optional(static_cast<int32_t>(at - model.pieces.begin()));
  };
  const auto put = [&](const char* name, const std::string& piece) {
    if (!config.contains(name) && place(piece)) config[name] = piece;
  };
  put("bos_token", model.bos_piece);
  put("eos_token", model.eos_piece);
  for (const SentencePieceModel::Piece& p : model.pieces)
    if (p.type == PieceType::unknown) put("unk_token", p.text);

  // What goes around a text where the configuration does not say.
  struct Ends {
    std::string_view type;
    bool bos, eos;
  };
  constexpr Ends ends[] = {{"LlamaTokenizer", true, false},
                           {"CodeLlamaTokenizer", true, false},
                           {"GemmaTokenizer", true, false},
                           {"T5Tokenizer", false, true}};
  std::string name = config.contains("tokenizer_class") ? token_text(config["tokenizer_class"]) : std::string();
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  Ends usual{name, false, false};
  for (const Ends& e : ends)
    if (e.type == name) usual = e;
  AddedEnds around;
  const auto asked = [&](const char* key, bool fallback, const char* token) {
    return flag(config, key, fallback) && config.contains(token) ? place(token_text(config[token])) : std::nullopt;
  };
  around.bos = asked("add_bos_token", usual.bos, "bos_token");
  around.eos = asked("add_eos_token", usual.eos, "eos_token");
  try {
    return tokenizer_json(model, around);
  } catch (const ValueError& e) {
    throw IoError(kOp, cat(io::quote(path), ": ", e.what()));
  }
}

Json tokenizer_of_vocabulary_files(const std::string& directory, Json& config) {
  const Kind& kind = kind_of(directory, config);
  for (const NamedToken& t : kind.tokens)
    if (!config.contains(t.name)) config[t.name] = t.text;
  Json made = kind.make(directory, config);
  made["version"] = "1.0";
  made["added_tokens"] = Json::array();
  return made;
}

}  // namespace strata::text::pipeline
