#include "strata/text/pipeline/gguf_folder.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/json.h"
#include "strata/text/pipeline/gguf_vocabulary.h"
#include "strata/text/pipeline/sentencepiece.h"
#include "strata/text/pipeline_tokenizer.h"

namespace strata::text {
namespace {

using Json = nlohmann::ordered_json;
using io::GgufMetadata;
using io::GgufValue;

constexpr std::string_view kOp = "tokenizer.ggml", kTemplate = "tokenizer.chat_template",
                           kModel = "tokenizer.ggml.model", kNone = "none", kEos = "tokenizer.ggml.eos_token_id",
                           kEndOfTurn = "tokenizer.ggml.eot_token_id", kEndOfMessage = "tokenizer.ggml.eom_token_id";

// Names of a vocabulary's ids in tokenizer_config.json.
struct Named {
  std::string_view name;
  std::optional<int32_t> GgufVocabulary::*id;
};
constexpr Named kNamed[] = {
    {"bos_token", &GgufVocabulary::bos},     {"eos_token", &GgufVocabulary::eos},
    {"unk_token", &GgufVocabulary::unknown}, {"sep_token", &GgufVocabulary::separator},
    {"pad_token", &GgufVocabulary::padding}, {"mask_token", &GgufVocabulary::mask},
};

// Control tokens that end a turn or a text in some model: files name one or two ids, and models write others too.
constexpr std::string_view kEnds[] = {"<|eot_id|>",      "<|eom_id|>", "<|im_end|>",    "<|end|>",
                                      "<end_of_turn>",   "<|return|>", "<|endoftext|>", "<|end_of_text|>",
                                      "<|end_of_turn|>", "<EOT>",      "</s>"};

// Recommended sampling: a key behind "general.sampling.", and generation_config.json's.
struct Sampling {
  std::string_view gguf, config;
  bool whole = false;
};
constexpr Sampling kSampling[] = {{"temp", "temperature"},
                                  {"top_k", "top_k", true},
                                  {"top_p", "top_p"},
                                  {"min_p", "min_p"},
                                  {"penalty_repeat", "repetition_penalty"}};
std::string sampling_key(const Sampling& s) {
  return cat("general.sampling.", s.gguf);
}

}  // namespace

bool has_gguf_tokenizer(const GgufMetadata& metadata) {
  if (!metadata.contains(kModel)) return false;
  const std::string& model = metadata.text(kModel);
  return model != kNone && model != "no_vocab";
}

void set_no_gguf_tokenizer(GgufMetadata& metadata) {
  if (!metadata.contains(kModel)) metadata.set(std::string(kModel), io::GgufValue::of(std::string(kNone)));
}

TokenizerFolder gguf_tokenizer(const GgufMetadata& metadata, const std::string& source) {
  if (metadata.contains(kModel))
    check<IoError>(has_gguf_tokenizer(metadata), kOp, io::quote(source), " has no tokenizer: ", kModel, " is \"",
                   metadata.text(kModel), "\"");
  TokenizerFolder made;
  const GgufVocabulary v = gguf_vocabulary(metadata);
  std::string tokenizer;
  try {
    tokenizer = tokenizer_json(v).dump();
  } catch (const ValueError& e) {
    throw ValueError(kOp, cat(io::quote(source), ": ", e.what()));
  } catch (const nlohmann::json::exception& e) {
    throw ValueError(kOp, cat(io::quote(source), ": a text of the vocabulary is not UTF-8: ", e.what()));
  }
  made.tokenizer = PipelineTokenizer::parse(tokenizer, source);
  for (const Named& n : kNamed)
    if (v.*n.id) made.named.emplace(n.name, *(v.*n.id));
  if (v.model == "bert" && v.bos) made.named.emplace("cls_token", *v.bos);
  made.bos = v.bos;
  made.eos = v.eos;
  made.pad = v.padding;
  made.unk = v.unknown;
  if (metadata.contains(kTemplate)) made.chat_template = metadata.text(kTemplate);
  return made;
}

std::string gguf_generation_config(const GgufMetadata& metadata) {
  if (!has_gguf_tokenizer(metadata)) return "";
  const GgufVocabulary v = gguf_vocabulary(metadata);
  std::vector<int64_t> ends;
  const auto add = [&](int64_t id) {
    if (id >= 0 && id < static_cast<int64_t>(v.tokens.size()) && std::ranges::find(ends, id) == ends.end())
      ends.push_back(id);
  };
  for (const std::string_view key : {kEos, kEndOfTurn, kEndOfMessage})
    if (metadata.contains(key)) add(metadata.integer(key));
  const std::set<std::string_view> known(std::begin(kEnds), std::end(kEnds));
  for (size_t i = 0; i < v.tokens.size() && i < v.token_types.size(); ++i)
    if (v.token_types[i] == static_cast<int32_t>(PieceType::control) && known.contains(v.tokens[i]))
      add(static_cast<int64_t>(i));
  Json config;
  if (v.bos) config["bos_token_id"] = *v.bos;
  if (!ends.empty()) config["eos_token_id"] = ends;
  if (v.padding) config["pad_token_id"] = *v.padding;
  bool samples = false;
  for (const Sampling& s : kSampling) {
    const std::string key = sampling_key(s);
    if (!metadata.contains(key)) continue;
    samples = true;
    config[std::string(s.config)] = s.whole ? Json(metadata.integer(key)) : Json(metadata.number(key));
  }
  if (samples) config["do_sample"] = config.value("temperature", 1.0) > 0;
  if (samples && config["do_sample"] == false) config.erase("temperature");
  return config.dump(2) + "\n";
}

void set_gguf_tokenizer(const TokenizerFolder& folder, int64_t vocab, std::string_view generation_config,
                        GgufMetadata& metadata) {
  check(folder.tokenizer != nullptr && dynamic_cast<const PipelineTokenizer*>(folder.tokenizer.get()), kOp,
        "GGUF has no vocabulary of this kind of tokenizer");
  GgufVocabulary v = gguf_vocabulary(nlohmann::json::parse(folder.tokenizer->to_json()));
  const auto rows = static_cast<size_t>(vocab);
  check(v.tokens.size() <= rows, kOp, "the tokenizer has ", v.tokens.size(), " tokens, the model ", rows,
        " rows for them");
  while (v.tokens.size() < rows) {
    v.tokens.push_back(cat("[PAD", v.tokens.size(), "]"));
    v.token_types.push_back(static_cast<int32_t>(PieceType::unused));
    if (!v.scores.empty()) v.scores.push_back(v.scores.back());
  }
  for (const Named& n : kNamed)
    if (const auto at = folder.named.find(std::string(n.name)); at != folder.named.end()) v.*n.id = at->second;
  const nlohmann::json config = generation_config.empty() ? nlohmann::json::object()
                                                          : io::parse_json(generation_config, "generation_config.json");
  check(config.is_object(), kOp, "generation_config.json is no object");
  std::vector<int64_t> ends;
  if (const auto at = config.find("eos_token_id"); at != config.end())
    for (const nlohmann::json& id : at->is_array() ? *at : nlohmann::json::array({*at}))
      if (id.is_number_integer() && id >= 0 && id < vocab) ends.push_back(id.get<int64_t>());
  if (!v.eos && !ends.empty()) v.eos = static_cast<int32_t>(ends.front());
  set_gguf_vocabulary(v, metadata);
  for (const int64_t id : ends)
    if (id != v.eos) {
      metadata.set(std::string(kEndOfTurn), GgufValue::of(static_cast<uint32_t>(id)));
      break;
    }
  if (!folder.chat_template.empty()) metadata.set(std::string(kTemplate), GgufValue::of(folder.chat_template));
  const auto sampled = config.find("do_sample");
  if (sampled == config.end() || *sampled != true) return;
  for (const Sampling& s : kSampling) {
    const auto at = config.find(s.config);
    if (at == config.end() || !at->is_number()) continue;
    metadata.set(sampling_key(s), s.whole ? GgufValue::of(at->get<int32_t>()) : GgufValue::of(at->get<float>()));
  }
}

void write_tokenizer_files(const TokenizerFolder& folder, const std::string& directory) {
  const auto file = [&](const char* name) { return (std::filesystem::path(directory) / name).string(); };
  io::write_file(file("tokenizer.json"), folder.tokenizer->to_json());
  Json config;
  const auto& pipeline = dynamic_cast<const PipelineTokenizer&>(*folder.tokenizer);
  for (const auto& [name, id] : folder.named) config[name] = pipeline.token(id);
  config["clean_up_tokenization_spaces"] = folder.clean_up_tokenization_spaces;
  config["tokenizer_class"] = folder.tokenizer_class.empty() ? "PreTrainedTokenizerFast" : folder.tokenizer_class;
  io::write_file(file("tokenizer_config.json"), config.dump(2) + "\n");
  if (!folder.chat_template.empty()) io::write_file(file("chat_template.jinja"), folder.chat_template);
}

}  // namespace strata::text
