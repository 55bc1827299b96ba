#include "apps/strata/language.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

#include <fmt/format.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "strata/core/parallel.h"
#include "strata/cuda/runtime.h"
#include "strata/generate/card_beside.h"
#include "strata/generate/decoder_start.h"
#include "strata/generate/generation_config.h"
#include "strata/models/pretrained.h"
#include "strata/text/pipeline_tokenizer.h"
#include "strata/train/rehearse.h"

namespace strata::cli {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr double kMost = std::numeric_limits<double>::max();

constexpr double kInt = std::numeric_limits<int32_t>::max();

// Options that are generation's: how they are spelled here, and what a number may be.
struct Flag {
  const char *name, *key, *type;
  double least, most;
  bool texts = false;         // only of commands that write several
  const char* doc = nullptr;  // where it is not that of generation_keys()
};
const Flag kFlags[] = {
    {"--min-tokens", "min_new_tokens", "N", 0, kInt},
    {"--temperature", "temperature", "T", 0, 1000, false,
     "Above 1 more varied, below 1 more likely text; 0 always the likeliest token"},
    {"--top-k", "top_k", "N", 0, kInt, false, "Only the N likeliest; 0: all."},
    {"--top-p", "top_p", "P", 1e-6, 1},
    {"--min-p", "min_p", "P", 0, 1},
    {"--typical-p", "typical_p", "P", 1e-6, 1},
    {"--repetition-penalty", "repetition_penalty", "X", 1e-6, 1000},
    {"--frequency-penalty", "frequency_penalty", "X", -1000, 1000},
    {"--presence-penalty", "presence_penalty", "X", -1000, 1000},
    {"--seed", "seed", "N", 0, 0x1p63},
    {"--n", "num_return_sequences", "N", 1, kInt, true},
    {"--beams", "num_beams", "N", 1, kInt, true,
     "Above 1: beam search; over continuations that are drawn where it is said how"},
    {"--length-penalty", "length_penalty", "X", -kMost, kMost, true},
};
// And how early stopping is.
const std::pair<const char*, const char*> kEarlyStopping[] = {
    {"likely", "false"}, {"at-once", "true"}, {"never", "\"never\""}};
const std::pair<const char*, DType> kDTypes[] = {{"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};

// "ID:VALUE".
std::pair<int64_t, double> bias_of(const std::string& text) {
  int64_t id = 0;
  double value = 0;
  const size_t colon = text.find(':');
  const auto whole = [](const char* from, const char* to, auto& v) {
    const auto [end, error] = std::from_chars(from, to, v);
    return error == std::errc() && end == to;
  };
  const char* all = text.data();
  if (colon == std::string::npos || !whole(all, all + colon, id) || !whole(all + colon + 1, all + text.size(), value))
    throw UsageError(fmt::format("--logit-bias wants ID:NUMBER, got '{}'", text));
  return {id, value};
}

}  // namespace

Device device_or_usual(const std::string& name) {
  return parse_device(!name.empty() ? name : cuda::device_count() > 0 ? "cuda" : "cpu");
}

std::vector<int64_t> Language::encode(const std::string& text) const {
  const auto* pipeline = dynamic_cast<const text::PipelineTokenizer*>(tokenizer.get());
  const std::vector<int32_t> ids =
      pipeline != nullptr && !bare ? pipeline->encode(text, text::EncodeOptions{}) : tokenizer->encode(text);
  return {ids.begin(), ids.end()};
}

GenerationRequest Language::request(const std::string& text, const GenerationOptions& asked) const {
  const std::vector<int64_t> ids = encode(text);
  if (!reader) return {ids, asked, {}};
  if (ids.empty()) throw ValueError("generate", "a text without tokens has no answer");
  return {start, asked, from_span<int64_t>(ids, {static_cast<int64_t>(ids.size())})};
}

std::unique_ptr<TextGenerator> Language::writer(const TextGeneratorOptions& room) const {
  return reader ? std::make_unique<TextGenerator>(reader, tokenizer, room)
                : std::make_unique<TextGenerator>(model, tokenizer, room);
}

Language load_language(const std::string& path, const std::string& prompt, const std::string& device,
                       const std::string& dtype) {
  Language l;
  if (!is_pretrained(path)) {
    std::vector<std::string> warnings;
    const TrainedModel trained = detail::load_trained_model_for(prompt, path, &warnings, device_or_usual(device));
    for (const std::string& w : warnings) std::fputs(fmt::format("note: skipping the {}\n", w).c_str(), stderr);
    l.model = trained.model;
    l.reader = trained.encoder_decoder;
    l.start = trained.start;
    l.tokenizer = trained.tokenizer;
    l.bare = trained.config.init.empty();
    l.options.temperature = 0.8;
    return l;
  }
  PretrainedOptions options{.device = device_or_usual(device)};
  for (const auto& [name, type] : kDTypes)
    if (dtype == name) options.dtype = type;
  l.folder = detail::beside_card(
      options.device, [&] { return std::make_shared<text::TokenizerFolder>(text::load_tokenizer_folder(path)); });
  l.tokenizer = std::shared_ptr<const text::Tokenizer>(l.folder, l.folder->tokenizer.get());
  const Pretrained pretrained = load_pretrained(path, options);
  if (pretrained.model == nullptr && pretrained.encoder_decoder == nullptr)
    throw ValueError(
        "load", fmt::format("'{}' is no model that writes text: a {} is an encoder", path, pretrained.family->name));
  if (pretrained.encoder_decoder != nullptr && pretrained.encoder_decoder->reads_sound())
    throw ValueError("load", fmt::format("'{}' reads sound, and no text: a {}", path, pretrained.family->name));
  l.model = pretrained.model;
  l.reader = pretrained.encoder_decoder;
  if (l.reader) l.start = parse_decoder_start(pretrained.generation_config, pretrained.config, path).tokens();
  l.options = pretrained.generation_config.empty()
                  ? GenerationOptions{.temperature = 0.8}
                  : parse_generation_config(pretrained.generation_config, path + ": generation_config");
  if (l.options.stop_ids.empty() && l.folder->eos) l.options.stop_ids = {*l.folder->eos};
  return l;
}

void WritingOptions::add(CLI::App& c, bool texts) {
  c.add_option("--tokens", tokens_, "Tokens to write at most")->type_name("N")->check(at_least(0));
  const std::vector<GenerationKey> keys = generation_keys();
  for (const Flag& f : kFlags) {
    if (f.texts && !texts) continue;
    const GenerationKey& key = *std::ranges::find(keys, f.key, &GenerationKey::name);
    const bool whole = key.type == "integer";
    // As the validator read it, spelled as JSON has numbers.
    const auto take = [this, name = key.name, whole](const std::string& text) {
      int64_t integer = 0;
      double number = 0;
      const char *begin = text.data(), *end = begin + text.size();
      if (whole)
        std::from_chars(begin, end, integer);
      else
        std::from_chars(begin, end, number);
      said_[name] = whole ? std::to_string(integer) : fmt::format("{:.17g}", number);
    };
    const auto most = f.most >= 0x1p63 ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(f.most);
    c.add_option_function<std::string>(f.name, take, f.doc ? f.doc : key.doc)
        ->type_name(f.type)
        ->check(whole ? between<int64_t>(static_cast<int64_t>(f.least), most) : between(f.least, f.most));
  }
  c.add_option("--logit-bias", biases_, "Added to the logit of an id; may come more than once")
      ->type_name("ID:X")
      ->allow_extra_args(false);
  c.add_option("--forbid", forbidden_, "An id that is never written; may come more than once")
      ->type_name("ID")
      ->allow_extra_args(false)
      ->check(at_least(0));
  c.add_option("--stop", stops_, "Text that ends the text, and is no part of it; may come more than once")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  c.add_option("--stop-id", stop_ids_, "An id that ends the text, besides the model's own; may come more than once")
      ->type_name("ID")
      ->allow_extra_args(false)
      ->check(at_least(0));
  c.add_flag("--ignore-stop-ids", ignore_stop_ids_, "The model's own stop ids end no text");
  if (!texts) return;
  std::vector<std::string> names;
  for (const auto& [name, value] : kEarlyStopping) names.emplace_back(name);
  const auto stopping = [this](const std::string& text) {
    for (const auto& [name, value] : kEarlyStopping)
      if (text == name) said_["early_stopping"] = value;
  };
  c.add_option_function<std::string>("--early-stopping", stopping, "Beams: when a search ends")
      ->type_name("WHEN")
      ->check(CLI::IsMember(names));
}

GenerationOptions WritingOptions::over(GenerationOptions usual) const {
  std::string call;
  for (const auto& [key, value] : said_) call += fmt::format("{}\"{}\": {}", call.empty() ? "" : ", ", key, value);
  GenerationOptions o = change_generation_options(usual, "{" + call + "}");
  if (tokens_) o.max_tokens = *tokens_, o.max_length = 0;
  for (const std::string& text : biases_) o.logit_bias.push_back(bias_of(text));
  for (const int64_t id : forbidden_) o.logit_bias.emplace_back(id, kNever);
  if (ignore_stop_ids_) o.stop_ids.clear();
  o.stop_ids.insert(o.stop_ids.end(), stop_ids_.begin(), stop_ids_.end());
  o.stop_strings.insert(o.stop_strings.end(), stops_.begin(), stops_.end());
  return o;
}

void ModelArguments::add(CLI::App& c, bool checkpoint) {
  CLI::Option* model = c.add_option(
      checkpoint ? "--model,--checkpoint" : "--model", path,
      "A model: a folder as Hugging Face writes it, a GGUF file, a run's folder (its newest checkpoint) or a "
      "checkpoint's");
  model->required()->type_name("PATH");
  std::vector<std::string> types;
  for (const auto& [name, type] : kDTypes) types.emplace_back(name);
  c.add_option("--dtype", dtype, "Of a model's weights; the files' where not given")
      ->type_name("TYPE")
      ->check(CLI::IsMember(types));
  c.add_option("--threads", threads, "Threads; 0 takes every core")->type_name("N")->check(between<int64_t>(0, 4096));
  c.add_option("--device", device, "cpu or cuda; a card where there is one")->type_name("DEVICE")->check(device_name());
}

Language ModelArguments::load(const std::string& prompt) const {
  if (threads > 0) set_num_threads(static_cast<int>(threads));
  return load_language(path, prompt, device, dtype);
}

}  // namespace strata::cli
