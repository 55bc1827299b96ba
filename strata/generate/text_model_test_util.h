#pragma once
// A small model as a folder of Hugging Face, whose tokenizer knows the characters from the blank to 'z'.

#include <string>

#include <nlohmann/json.hpp>

#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/generate/text_model.h"
#include "strata/io/files.h"
#include "strata/models/export.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/random/random.h"

namespace strata {

/// tokenizer.json of characters: <s> 0 (put before a text), </s> 1, <unk> 2, then the characters in their order.
inline std::string character_tokenizer() {
  nlohmann::json vocab{{"<s>", 0}, {"</s>", 1}, {"<unk>", 2}}, added = nlohmann::json::array();
  for (const char* name : {"<s>", "</s>", "<unk>"})
    added.push_back({{"id", vocab[name]},
                     {"content", name},
                     {"special", true},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false}});
  for (char c = ' '; c <= 'z'; ++c) vocab[std::string(1, c)] = vocab.size();
  const nlohmann::json begin{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
      text{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, other{{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  nlohmann::json processor{{"type", "TemplateProcessing"}};
  processor["single"] = nlohmann::json::array({begin, text});
  processor["pair"] = nlohmann::json::array({begin, text, other});
  processor["special_tokens"]["<s>"] = {
      {"id", "<s>"}, {"ids", nlohmann::json::array({0})}, {"tokens", nlohmann::json::array({"<s>"})}};
  return nlohmann::json{
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", nullptr},
      {"post_processor", processor},
      {"decoder", {{"type", "Fuse"}}},
      {"model", {{"type", "BPE"}, {"unk_token", "<unk>"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}}
      .dump();
}

/// Writes the first sample of a family, with weights so large that the next token depends on those before, its
/// tokenizer, and a chat template.
inline void write_text_model(const std::string& folder, std::string_view family_name = "llama") {
  const Family& family = family_named(family_name);
  const ModelSpec spec = read_spec(family, ConfigReader(family.samples.front().config, "config.json"));
  std::shared_ptr<nn::Module> model;
  manual_seed(3);
  if (family.kind == ModelKind::decoder)
    model = std::make_shared<LanguageModel>(spec);
  else
    model = std::make_shared<TextEncoder>(spec);
  {
    const NoGrad guard;
    for (Tensor p : model->parameters())
      if (p.dim() >= 2) p.copy_(randn(p.shape()) * 0.3);
  }
  save_pretrained(*model, family, spec, folder);
  io::write_file(folder + "/tokenizer.json", character_tokenizer());
  io::write_file(folder + "/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
    "chat_template": "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}"})");
}

}  // namespace strata
