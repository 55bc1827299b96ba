#include "strata/generate/text_model.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "strata/core/node.h"
#include "strata/generate/card_beside.h"
#include "strata/generate/chat_prompt.h"
#include "strata/generate/generation_config.h"
#include "strata/io/files.h"
#include "strata/io/json.h"
#include "strata/ops/factory/factory.h"
#include "strata/text/pipeline_tokenizer.h"

namespace strata {
namespace {
using nlohmann::json;

constexpr uint64_t kMaxSettings = 16 << 20;

std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

const ModelSpec& text_spec(const ModelSpec& spec) {
  if (spec.kind == ModelKind::pair) return spec.parts[0];
  return spec.kind == ModelKind::encoder_decoder ? spec.parts[1] : spec;
}

std::vector<int32_t> small_ids(std::span<const int64_t> ids, const text::Tokenizer& tokenizer) {
  std::vector<int32_t> small;
  small.reserve(ids.size());
  for (const int64_t id : ids) {
    check<IndexError>(id >= 0 && id < tokenizer.vocab_size(), "decode", "token ", id, " is not one of the ",
                      tokenizer.vocab_size());
    small.push_back(static_cast<int32_t>(id));
  }
  return small;
}

json to_json_value(const std::vector<std::vector<TokenLogprob>>& all) {
  json lists = json::array();
  for (const auto& place : all) {
    json list = json::array();
    for (const TokenLogprob& t : place) list.push_back({t.id, t.logprob});
    lists.push_back(std::move(list));
  }
  return lists;
}

// The module of a kind of model, which another kind lacks.
template <class T>
T& part(const Pretrained& model, const std::shared_ptr<T>& module, std::string_view what, const char* lacks) {
  check(module != nullptr, what, "a ", model.family->title, lacks);
  return *module;
}

}  // namespace

std::shared_ptr<TextModel> TextModel::load(const std::string& folder, const PretrainedOptions& options) {
  std::shared_ptr<const text::TokenizerFolder> tokenizer;
  // What is wrong with its files is told before the weights are read.
  if (text::has_tokenizer(folder))
    tokenizer = detail::beside_card(
        options.device, [&] { return std::make_shared<text::TokenizerFolder>(text::load_tokenizer_folder(folder)); });
  return std::make_shared<TextModel>(load_pretrained(folder, options), std::move(tokenizer));
}

TextModel::TextModel(Pretrained model, std::shared_ptr<const text::TokenizerFolder> folder)
    : model_(std::move(model)), folder_(std::move(folder)) {}

std::shared_ptr<const text::Tokenizer> TextModel::tokenizer() const {
  return folder_ ? std::shared_ptr<const text::Tokenizer>(folder_, folder_->tokenizer.get()) : nullptr;
}

const char* TextModel::kind() const {
  if (model_.model) return "decoder";
  if (model_.text_encoder) return "encoder";
  if (model_.encoder_decoder) return "encoder_decoder";
  return model_.image_encoder ? "image_encoder" : "pair";
}
int64_t TextModel::context() const {
  return text_spec(model_.spec).context;
}
int64_t TextModel::vocab() const {
  return text_spec(model_.spec).vocab;
}

std::string TextModel::describe() const {
  json all{{"family", model_.family->name},
           {"title", model_.family->title},
           {"kind", kind()},
           {"context", context()},
           {"vocab_size", vocab()},
           {"special_ids", folder_ ? json(folder_->named) : json::object()},
           {"config", io::parse_json(model_.config, "config.json")},
           {"generation_config", nullptr},
           {"tokenizer", folder_ != nullptr},
           {"chat_template", folder_ != nullptr && !folder_->chat_template.empty()}};
  if (!model_.generation_config.empty())
    all["generation_config"] = io::parse_json(model_.generation_config, "generation_config.json");
  return text_of(all);
}

// The writer's turn.
std::unique_lock<std::mutex> TextModel::alone(std::string_view what) const {
  check(writing_.load() != std::this_thread::get_id(), what, "was called by a callback of what the model is doing");
  return std::unique_lock(mutex_);
}

// While it writes: no callback may call it, and a model that trained does so afterwards.
struct TextModel::Writing {
  explicit Writing(TextModel& model) : self(model), training(model.model_.module().is_training()) {
    self.writing_ = std::this_thread::get_id();
  }
  Writing(const Writing&) = delete;
  ~Writing() {
    if (training) self.model_.module().train();
    self.writing_ = std::thread::id();
  }
  TextModel& self;
  bool training;
};

void TextModel::to(Device device) {
  const auto lock = alone("to");
  writer_.reset();
  model_.module().to(device);
}

LanguageModel& TextModel::decoder(std::string_view what) const {
  return part(model_, model_.model, what, " is no model that writes");
}
TextEncoder& TextModel::text_encoder(std::string_view what) const {
  return part(model_, model_.text_encoder, what, " is no encoder of text");
}
ImageEncoder& TextModel::image_encoder(std::string_view what) const {
  return part(model_, model_.image_encoder, what, " is no encoder of images");
}
ContrastivePair& TextModel::pair(std::string_view what) const {
  return part(model_, model_.pair, what, " is no pair of encoders");
}

EncoderDecoder& TextModel::encoder_decoder(std::string_view what) const {
  return part(model_, model_.encoder_decoder, what, " has no encoder beside its decoder");
}

Tensor TextModel::forward(const Tensor& x, const Tensor& padding, const Tensor& types) const {
  if (model_.model) return model_.model->forward(x, padding);
  if (model_.text_encoder) return model_.text_encoder->forward(x, padding, types);
  check(model_.encoder_decoder == nullptr, "forward", "a ", model_.family->title,
        " wants the tokens that it writes beside those that it reads");
  return image_encoder("forward").forward(x);
}
Tensor TextModel::forward_source(const Tensor& source, const Tensor& tokens, const Tensor& padding) const {
  return encoder_decoder("forward").forward(source, tokens, padding);
}
Tensor TextModel::hidden(const Tensor& x, const Tensor& padding, const Tensor& types) const {
  if (model_.model) return model_.model->hidden(x, padding);
  if (model_.text_encoder) return model_.text_encoder->hidden(x, padding, types);
  return image_encoder("hidden").hidden(x);
}

static const text::Tokenizer& need_tokenizer(const text::TokenizerFolder* folder, std::string_view what) {
  check(folder != nullptr, what, "the folder has no tokenizer: give ids");
  return *folder->tokenizer;
}

std::vector<int64_t> TextModel::encode(std::string_view text) const {
  const text::Tokenizer& tokenizer = need_tokenizer(folder_.get(), "encode");
  const auto* pipeline = dynamic_cast<const text::PipelineTokenizer*>(&tokenizer);
  const std::vector<int32_t> ids = pipeline ? pipeline->encode(text, text::EncodeOptions{}) : tokenizer.encode(text);
  return {ids.begin(), ids.end()};
}

std::string TextModel::decode(std::span<const int64_t> ids, bool skip_special_tokens) const {
  const text::Tokenizer& tokenizer = need_tokenizer(folder_.get(), "decode");
  std::vector<int32_t> small = small_ids(ids, tokenizer);
  if (const auto* pipeline = dynamic_cast<const text::PipelineTokenizer*>(&tokenizer))
    return pipeline->decode(small, text::DecodeOptions{skip_special_tokens, folder_->clean_up_tokenization_spaces});
  if (skip_special_tokens)
    std::erase_if(small, [&](int32_t id) {
      return std::ranges::any_of(tokenizer.special_tokens(), [&](const auto& each) { return each.second == id; });
    });
  return tokenizer.decode(small);
}

std::vector<int64_t> TextModel::chat_prompt(std::string_view messages, std::string_view variables) const {
  need_tokenizer(folder_.get(), "chat");
  return strata::chat_prompt(*folder_, messages, variables);
}

GenerationOptions TextModel::options(std::string_view call) const {
  GenerationOptions o = parse_generation_options(call, model_.generation_config);
  const json said = call.empty() ? json::object() : io::parse_json(call, "generate");
  if (said.contains("eos_token_id")) return o;
  // A file may name an end that a smaller vocabulary has not: it is never drawn.
  std::erase_if(o.stop_ids, [&](int64_t id) { return id >= vocab(); });
  if (o.stop_ids.empty() && folder_ && folder_->eos && *folder_->eos < vocab()) o.stop_ids = {*folder_->eos};
  return o;
}

std::vector<Generated> TextModel::generate(std::span<const std::vector<int64_t>> prompts,
                                           const GenerationOptions& options, const TextGenerator::Callback& callback) {
  const EncoderDecoder* reader = model_.encoder_decoder.get();
  if (reader == nullptr) decoder("generate");
  check(reader == nullptr || !reader->reads_sound(), "generate", "a ", model_.family->title,
        " reads sound, and no text: transcribe it");
  const auto lock = alone("generate");
  const Writing writing(*this);
  if (!writer_)
    writer_ = reader ? std::make_unique<TextGenerator>(model_.encoder_decoder, tokenizer())
                     : std::make_unique<TextGenerator>(model_.model, tokenizer());
  const std::vector<int64_t> start = reader ? decoder_start().tokens() : std::vector<int64_t>();
  std::vector<GenerationRequest> requests;
  for (const std::vector<int64_t>& prompt : prompts) {
    check(reader == nullptr || !prompt.empty(), "generate", "a text without tokens has no answer");
    requests.push_back(
        reader ? GenerationRequest{start, options, from_span<int64_t>(prompt, {static_cast<int64_t>(prompt.size())})}
               : GenerationRequest{prompt, options});
  }
  return writer_->generate(requests, callback);
}

std::vector<Generated> TextModel::generate(std::span<const std::vector<int64_t>> prompts, std::string_view call,
                                           const TextGenerator::Callback& callback) {
  if (!model_.encoder_decoder) decoder("generate");
  return generate(prompts, options(call), callback);
}

DecoderStart TextModel::decoder_start() const {
  return parse_decoder_start(model_.generation_config, model_.config, model_.folder);
}

TranscriptionOptions TextModel::transcription_options(std::string_view call) const {
  constexpr std::string_view kOp = "transcribe";
  json said = call.empty() ? json::object() : io::parse_json(call, kOp);
  check(said.is_object(), kOp, "options are an object");
  // What the folder's file says of these counts where the call does not.
  const json file =
      model_.generation_config.empty() ? json::object() : io::parse_json(model_.generation_config, model_.folder);
  for (const char* key :
       {"condition_on_prev_tokens", "compression_ratio_threshold", "logprob_threshold", "no_speech_threshold"})
    if (file.is_object() && file.contains(key) && !said.contains(key)) said[key] = file[key];
  TranscriptionOptions o;
  const auto take = [&](const char* key, auto read) {
    const auto at = said.find(key);
    if (at == said.end()) return;
    if (!at->is_null()) read(*at);
    said.erase(at);
  };
  for (const auto& [key, to] : {std::pair{"language", &o.language}, {"task", &o.task}})
    take(key, [&, name = key, text = to](const json& value) {
      check(value.is_string(), kOp, name, " is a text, got ", text_of(value));
      *text = value.get<std::string>();
    });
  take("timestamps", [&](const json& value) {
    check(value.is_boolean(), kOp, "timestamps is true or false, got ", text_of(value));
    o.timestamps = value.get<bool>();
  });
  for (const auto& [key, to] :
       {std::pair{"condition_on_prev_tokens", &o.condition_on_prev_tokens}, {"word_timestamps", &o.words}})
    take(key, [&, name = key, truth = to](const json& value) {
      check(value.is_boolean(), kOp, name, " is true or false, got ", text_of(value));
      *truth = value.get<bool>();
    });
  for (const auto& [key, to] : {std::pair{"compression_ratio_threshold", &o.compression_ratio_threshold},
                                {"logprob_threshold", &o.logprob_threshold},
                                {"no_speech_threshold", &o.no_speech_threshold}})
    take(key, [&, name = key, number = to](const json& value) {
      check(value.is_number(), kOp, name, " is a number, got ", text_of(value));
      *number = value.get<double>();
    });
  take("prompt", [&](const json& value) {
    check(value.is_string(), kOp, "prompt is a text, got ", text_of(value));
    need_tokenizer(folder_.get(), "transcribe");
    const std::string text = value.get<std::string>();
    const size_t begin = text.find_first_not_of(" \t\n");
    if (begin == std::string::npos) return;
    // What the text spells is text.
    const std::string words = " " + text.substr(begin, text.find_last_not_of(" \t\n") + 1 - begin);
    const auto* pipeline = dynamic_cast<const text::PipelineTokenizer*>(folder_->tokenizer.get());
    const std::vector<int32_t> ids =
        pipeline ? pipeline->encode(words, text::EncodeOptions{.add_special_tokens = false, .parse_special = false})
                 : folder_->tokenizer->encode(words);
    o.prompt.assign(ids.begin(), ids.end());
  });
  take("prompt_condition_type", [&](const json& value) {
    check(value == "first-segment" || value == "all-segments", kOp,
          "prompt_condition_type is \"first-segment\" or \"all-segments\", got ", text_of(value));
    o.prompt_everywhere = value == "all-segments";
  });
  // Temperatures that are tried in turn; those above 0 draw by the filters.
  if (const auto at = said.find("temperature"); at != said.end() && at->is_array()) {
    bool draws = false;
    for (const json& t : *at) {
      check(t.is_number() && t >= 0, kOp, "temperature is a list of numbers of at least 0, got ", text_of(*at));
      o.temperatures.push_back(t.get<double>());
      draws = draws || o.temperatures.back() > 0;
    }
    check(!o.temperatures.empty(), kOp, "temperature is an empty list");
    said.erase(at);
    if (draws && !said.contains("do_sample")) said["do_sample"] = true;
  }
  o.writing = options(text_of(said));
  return o;
}

Transcription TextModel::transcribe(const data::Sound& sound, const TranscriptionOptions& options) {
  constexpr std::string_view kOp = "transcribe";
  check(model_.encoder_decoder && model_.encoder_decoder->reads_sound(), kOp, "a ", model_.family->title,
        " reads no sound");
  const std::string settings = model_.folder + "/preprocessor_config.json";
  const SoundFeatures features = parse_sound_features(io::read_file(settings, kMaxSettings), settings);
  const auto lock = alone(kOp);
  const Writing writing(*this);
  return strata::transcribe(sound, model_.encoder_decoder, tokenizer(), features, decoder_start(), options);
}

Transcription TextModel::transcribe(const data::Sound& sound, std::string_view call) {
  encoder_decoder("transcribe");
  return transcribe(sound, transcription_options(call));
}

void TextModel::in_turn(std::string_view what, const std::function<void()>& f) {
  const auto lock = alone(what);
  const Writing writing(*this);
  f();
}

GenerationStatistics TextModel::statistics() const {
  const auto lock = alone("statistics");
  return writer_ ? writer_->statistics() : GenerationStatistics{};
}

Device TextModel::device() const {
  return model_.module().parameters().front().device();
}

std::vector<int32_t> TextModel::embedded_ids(const std::string& text, int64_t longest) const {
  const text::Tokenizer& tokenizer = *folder_->tokenizer;
  const auto* pipeline = dynamic_cast<const text::PipelineTokenizer*>(&tokenizer);
  std::vector<int32_t> ids =
      pipeline ? pipeline->encode(text, text::EncodeOptions{.parse_special = false}) : tokenizer.encode(text);
  if (static_cast<int64_t>(ids.size()) > longest) {
    const int32_t last = ids.back();
    ids.resize(static_cast<size_t>(longest));
    ids.back() = last;
  }
  check(!ids.empty(), "embed", "a text without tokens has no vector");
  return ids;
}

Tensor TextModel::embed(std::span<const std::string> texts, const SentenceOptions& how) const {
  need_tokenizer(folder_.get(), "embed");
  check(model_.text_encoder != nullptr || model_.model != nullptr, "embed", "a ", model_.family->title,
        " has no hidden states of text");
  check(!texts.empty(), "embed", "there are no texts");
  const int64_t longest = how.max_length > 0 ? std::min(how.max_length, context()) : context();
  std::vector<std::vector<int32_t>> ids;
  size_t time = 1;
  for (const std::string& text : texts) {
    ids.push_back(embedded_ids(text, longest));
    time = std::max(time, ids.back().size());
  }
  std::vector<int64_t> tokens(texts.size() * time, folder_->pad.value_or(0));
  std::vector<uint8_t> padding(tokens.size(), 1);
  for (size_t b = 0; b < ids.size(); ++b)
    for (size_t t = 0; t < ids[b].size(); ++t) tokens[b * time + t] = ids[b][t], padding[b * time + t] = 0;
  const Shape shape{static_cast<int64_t>(texts.size()), static_cast<int64_t>(time)};
  const NoGrad guard;
  const Tensor x = from_span<int64_t>(tokens, shape).to(device());
  const Tensor hide = from_span<uint8_t>(padding, shape).to(DType::boolean).to(device());
  return text_embeddings(hidden(x, hide), hide, how.embedding);
}

Tensor TextModel::embed(std::span<const std::string> texts, std::string_view call) const {
  SentenceOptions how = read_sentence_options(model_.folder);
  const json said = call.empty() ? json::object() : io::parse_json(call, "embed");
  check(said.is_object(), "embed", "options are an object");
  for (const auto& [key, value] : said.items()) {
    if (value.is_null()) continue;
    if (key == "pooling" && value.is_string())
      how.embedding.pooling = parse_pooling(value.get<std::string>());
    else if (key == "normalize" && value.is_boolean())
      how.embedding.normalize = value.get<bool>();
    else
      check(false, "embed", "the options are pooling, a text, and normalize, true or false; got ",
            text_of({{key, value}}));
  }
  return embed(texts, how);
}

std::string to_json(std::span<const Generated> generated) {
  json all = json::array();
  for (const Generated& g : generated) {
    json completions = json::array();
    for (const Completion& c : g.completions)
      completions.push_back({{"text", c.text},
                             {"tokens", c.tokens},
                             {"finish", to_string(c.finish)},
                             {"score", c.score},
                             {"logprobs", c.logprobs},
                             {"top_logprobs", to_json_value(c.top_logprobs)}});
    all.push_back({{"completions", std::move(completions)},
                   {"prompt_logprobs", g.prompt_logprobs},
                   {"top_prompt_logprobs", to_json_value(g.top_prompt_logprobs)}});
  }
  return text_of(all);
}

}  // namespace strata
