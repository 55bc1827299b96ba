#include "strata/generate/generation_config.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/core/json_text.h"
#include "strata/generate/json_field_inl.h"

namespace strata {
namespace {
using detail::object_of;
using detail::refuse_source;
using nlohmann::json;
using Field = detail::JsonField;

constexpr double kNever = -std::numeric_limits<double>::infinity();

// What is read before it is decided what counts.
struct Read {
  GenerationOptions o;
  bool draws = false;
  bool top_k_given = false;
};

// A field of the options, as its type has it.
template <auto member>
void read(Read& r, const Field& f) {
  auto& to = r.o.*member;
  using T = std::remove_reference_t<decltype(to)>;
  if constexpr (std::is_same_v<T, bool>)
    to = f.truth();
  else if constexpr (std::is_same_v<T, double>)
    to = f.number();
  else if constexpr (std::is_same_v<T, uint64_t>)
    to = f.seed();
  else if constexpr (std::is_same_v<T, int64_t>)
    to = f.whole();
  else
    to = f.ids();
}

// {"id": number}
void read_logit_bias(Read& r, const Field& f) {
  if (!f.value.is_object()) f.refuse("wanted {\"id\": number}");
  for (const auto& [id, value] : f.value.items()) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
    if (error != std::errc() || end != id.data() + id.size() || !value.is_number()) f.refuse("wanted {\"id\": number}");
    r.o.logit_bias.emplace_back(number, value.get<double>());
  }
}

void read_early_stopping(Read& r, const Field& f) {
  if (f.value.is_boolean())
    r.o.early_stopping = f.value.get<bool>() ? EarlyStopping::at_once : EarlyStopping::likely;
  else if (f.value == "never")
    r.o.early_stopping = EarlyStopping::never;
  else
    f.refuse("wanted true, false or \"never\"");
}

// Lists of ids, of which only those of one id are a bias.
void read_bad_words(Read& r, const Field& f) {
  if (!f.value.is_array()) f.refuse("wanted a list of lists of ids");
  for (const json& word : f.value) {
    if (!word.is_array() || word.empty()) f.refuse("wanted a list of lists of ids");
    if (word.size() > 1) f.refuse("words of several ids cannot be forbidden here");
    r.o.logit_bias.emplace_back(f.whole(word[0]), kNever);
  }
}

void read_sequence_bias(Read& r, const Field& f) {
  if (!f.value.is_array()) f.refuse("wanted a list of [[id], number]");
  for (const json& entry : f.value) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_array() || entry[0].empty() || !entry[1].is_number())
      f.refuse("wanted a list of [[id], number]");
    if (entry[0].size() > 1) f.refuse("sequences of several ids cannot be biased here");
    r.o.logit_bias.emplace_back(f.whole(entry[0][0]), entry[1].get<double>());
  }
}

// Every key that transformers writes, what it is here, and those of calls that files do not have. A value of null is
// none given.
struct Key {
  const char* name;
  void (*read)(Read&, const Field&);
  const char* neutral = nullptr;  // of what there is not: JSON of the values that ask for nothing, between blanks
  const char* type = nullptr;     // of what shapes what is written
  const char* doc = nullptr;
  bool call = false;  // no file's
};
void pass(Read&, const Field&) {}  // changes nothing that is written
void refused(Read&, const Field& f) {
  f.refuse("there is no such thing here, and without it other texts would be written");
}
constexpr const char* kNone = nullptr;

const Key kKeys[] = {
    {"max_new_tokens",
     [](Read& r, const Field& f) {
       read<&GenerationOptions::max_tokens>(r, f);
       // Who asks for none gets none of what a full context would be.
       if (f.call && r.o.max_tokens == 0) f.refuse("wanted at least 1");
     },
     kNone, "integer", "Most tokens to write; as many as the context has room for where nothing is said."},
    {"max_length", read<&GenerationOptions::max_length>, kNone, "integer",
     "Most tokens with the prompt; 0: no such limit. max_new_tokens counts where both are given."},
    {"min_new_tokens", read<&GenerationOptions::min_tokens>, kNone, "integer",
     "Before as many are written no stop id is drawn."},
    {"min_length", read<&GenerationOptions::min_length>, kNone, "integer", "The same, the prompt counted."},
    {"do_sample", [](Read& r, const Field& f) { r.draws = f.truth(); }, kNone, "boolean",
     "Whether tokens are drawn; else the likeliest is taken. A call that says how to draw draws."},
    {"temperature", read<&GenerationOptions::temperature>, kNone, "number",
     "Logits are divided by it; 0 takes the likeliest token."},
    {"top_k",
     [](Read& r, const Field& f) {
       read<&GenerationOptions::top_k>(r, f);
       r.top_k_given = true;
     },
     kNone, "integer", "Only the k likeliest, 50 where nothing is said; 0: all."},
    {"top_p", read<&GenerationOptions::top_p>, kNone, "number",
     "Only the likeliest that together have this probability."},
    {"min_p", read<&GenerationOptions::min_p>, kNone, "number",
     "Only those at least this share as likely as the likeliest."},
    {"typical_p", read<&GenerationOptions::typical_p>, kNone, "number",
     "Only those nearest to the entropy that together have this probability."},
    {"repetition_penalty", read<&GenerationOptions::repetition_penalty>, kNone, "number",
     "Logits of all tokens so far are divided by it, negative ones multiplied."},
    {"eos_token_id", read<&GenerationOptions::stop_ids>, kNone, "ids",
     "Ids that end a text; the tokenizer's end where nothing is said."},
    {"stop_strings", [](Read& r, const Field& f) { r.o.stop_strings = f.texts(); }, kNone, "texts",
     "Texts that end a text, and are not part of it."},
    {"suppress_tokens",
     [](Read& r, const Field& f) {
       for (const int64_t id : f.ids()) r.o.logit_bias.emplace_back(id, kNever);
     },
     kNone, "ids", "Ids that are never written."},
    {"begin_suppress_tokens", read<&GenerationOptions::not_first>, kNone, "ids",
     "Ids that are not the first to be written."},
    {"bad_words_ids", read_bad_words, kNone, "id lists", "The same, each in a list of its own."},
    {"sequence_bias", read_sequence_bias, kNone, "id biases", "What is added to logits: [[[id], number], ..]."},
    {"num_return_sequences", read<&GenerationOptions::n>, kNone, "integer",
     "Texts for each prompt; of beams the best."},
    {"num_beams", read<&GenerationOptions::beams>, kNone, "integer",
     "Above 1: beam search, with do_sample over continuations that are drawn."},
    {"length_penalty", read<&GenerationOptions::length_penalty>, kNone, "number",
     "Of beam search: scores are divided by the number of tokens to this power."},
    {"early_stopping", read_early_stopping, kNone, "stopping",
     "When beam search ends: false, when a better text is unlikely; true, when there are as many whole texts as beams; "
     "\"never\", when there cannot be a better one."},
    {"seed", read<&GenerationOptions::seed>, kNone, "integer",
     "The same seed, prompt and model write the same, whatever else is written at the time.", true},
    {"frequency_penalty", read<&GenerationOptions::frequency_penalty>, kNone, "number",
     "Times how often a token was written, taken off its logit.", true},
    {"presence_penalty", read<&GenerationOptions::presence_penalty>, kNone, "number",
     "Taken off the logits of tokens that were written.", true},
    {"logit_bias", read_logit_bias, kNone, "biases", "What is added to logits, by id.", true},
    {"logprobs", read<&GenerationOptions::logprobs>, kNone, "boolean",
     "Gives the logarithms of the tokens' probabilities under the model itself.", true},
    {"top_logprobs", read<&GenerationOptions::top_logprobs>, kNone, "integer",
     "Gives those of the likeliest so many at each place.", true},
    {"prompt_logprobs", read<&GenerationOptions::prompt_logprobs>, kNone, "boolean",
     "Gives those of the prompt's tokens but the first.", true},

    {"constraints", refused, "[]"},
    {"diversity_penalty", refused, "0 0.0"},
    {"dola_layers", refused},
    {"encoder_no_repeat_ngram_size", refused, "0"},
    {"encoder_repetition_penalty", refused, "1 1.0"},
    {"epsilon_cutoff", refused, "0 0.0"},
    {"eta_cutoff", refused, "0 0.0"},
    {"exponential_decay_length_penalty", refused},
    {"force_words_ids", refused, "[]"},
    {"forced_bos_token_id", refused},
    {"forced_eos_token_id", refused},
    {"guidance_scale", refused, "1 1.0"},
    {"max_time", refused},
    {"no_repeat_ngram_size", refused, "0"},
    {"num_beam_groups", refused, "1"},
    {"penalty_alpha", refused, "0 0.0"},
    {"renormalize_logits", refused, "false"},
    {"token_healing", refused, "false"},
    {"top_h", refused},
    {"use_mtp", refused, "false"},
    {"watermarking_config", refused},

    // NaN is never drawn, and infinite logits are what they are, whether this is on or not.
    {"remove_invalid_values", pass},
    // Of prompts and batches, which here need no padding, and of models with an encoder.
    {"bos_token_id", pass},
    {"pad_token_id", pass},
    // Tokens that an encoder-decoder's texts begin with: parse_decoder_start().
    {"decoder_start_token_id", pass},
    {"forced_decoder_ids", pass},
    {"lang_to_id", pass},
    {"task_to_id", pass},
    {"no_timestamps_token_id", pass},
    {"is_multilingual", pass},
    // How it is computed.
    {"use_cache", pass},
    {"cache_implementation", pass},
    {"cache_config", pass},
    {"max_cache_len", pass},
    {"return_legacy_cache", pass},
    {"low_memory", pass},
    {"prefill_chunk_size", pass},
    {"compile_config", pass},
    {"disable_compile", pass},
    {"continuous_batching_config", pass},
    // Guesses by another model, each checked by the model itself.
    {"is_assistant", pass},
    {"num_assistant_tokens", pass},
    {"num_assistant_tokens_schedule", pass},
    {"assistant_confidence_threshold", pass},
    {"assistant_early_exit", pass},
    {"assistant_lookbehind", pass},
    {"target_lookbehind", pass},
    {"prompt_lookup_num_tokens", pass},
    {"max_matching_ngram_size", pass},
    {"speculation_type", pass},
    // What is given back beside the text.
    {"output_attentions", pass},
    {"output_hidden_states", pass},
    {"output_scores", pass},
    {"output_logits", pass},
    {"return_dict_in_generate", pass},
    // Of times, of what stands before a text: parse_decoder_start(), too. And of windows of sound:
    // TextModel::transcription_options().
    {"condition_on_prev_tokens", pass},
    {"compression_ratio_threshold", pass},
    {"logprob_threshold", pass},
    {"no_speech_threshold", pass},
    {"max_initial_timestamp_index", pass},
    {"alignment_heads", pass},
    {"median_filter_width", pass},
    {"prev_sot_token_id", pass},
    {"return_timestamps", refused, "false"},
    // Where the file comes from.
    {"_from_model_config", pass},
    {"transformers_version", pass},
};

bool is_neutral(const Key& key, const json& value) {
  if (key.neutral == nullptr) return false;
  const std::string_view all = key.neutral;
  const std::string text = value.dump();
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find(' ', at), all.size());
    if (all.substr(at, end - at) == text) return true;
    at = end + 1;
  }
  return false;
}

const Key* key_named(std::string_view name) {
  for (const Key& k : kKeys)
    if (name == k.name) return &k;
  return nullptr;
}

void read_field(Read& r, const Field& field) {
  const Key* key = key_named(field.key);
  if (key == nullptr || (key->call && !field.call))
    field.refuse(field.call ? "there is no such option" : "the key is not known, and may change what is written");
  if (!field.value.is_null() && !is_neutral(*key, field.value)) key->read(r, field);
}

// The options of all that was read, by transformers' rules.
GenerationOptions finished(Read r, std::string_view source, bool call) {
  GenerationOptions& o = r.o;
  o.draw_beams = o.beams > 1 && r.draws;
  if (!r.draws) {
    // What transformers passes over too.
    o.temperature = o.beams > 1 ? 1 : 0;
    o.top_k = 0;
    o.top_p = o.typical_p = 1;
    o.min_p = 0;
  } else if (!r.top_k_given) {
    o.top_k = 50;
  }
  // The number of tokens counts where both are given.
  if (o.max_tokens > 0) o.max_length = 0;
  if (o.min_tokens > 0) o.min_length = 0;
  try {
    check_options(o, std::numeric_limits<int32_t>::max());
  } catch (const Error& e) {
    if (call) throw;
    refuse_source(source, call, e.what());
  }
  return o;
}

}  // namespace

GenerationOptions parse_generation_config(std::string_view text, std::string_view source) {
  const json file = object_of(text, source, false);
  Read r;
  for (const auto& [name, value] : file.items()) read_field(r, {source, name, value});
  return finished(std::move(r), source, false);
}

GenerationOptions parse_generation_options(std::string_view call, std::string_view config, std::string_view source) {
  constexpr std::string_view kOp = "generate";
  const json file = object_of(config, source, false), said = object_of(call, kOp, true);
  Read r;
  for (const auto& [name, value] : file.items())
    if (!said.contains(name)) read_field(r, {source, name, value});
  for (const auto& [name, value] : said.items()) read_field(r, {kOp, name, value, true});
  // Who says how to draw wants something drawn.
  const auto says = [&](const char* name) { return said.contains(name) && !said[name].is_null(); };
  if (!says("do_sample") && r.o.beams == 1)
    for (const char* how : {"temperature", "top_k", "top_p", "min_p", "typical_p", "seed"}) r.draws |= says(how);
  // A length that the call says counts beside a file's number of tokens.
  if (says("max_length") && !says("max_new_tokens")) r.o.max_tokens = 0;
  if (says("min_length") && !says("min_new_tokens")) r.o.min_tokens = 0;
  return finished(std::move(r), kOp, true);
}

GenerationOptions change_generation_options(const GenerationOptions& usual, std::string_view call) {
  constexpr std::string_view kOp = "generate";
  const json said = object_of(call, kOp, true);
  Read r;
  r.o = usual;
  for (const auto& [name, value] : said.items()) read_field(r, {kOp, name, value, true});
  GenerationOptions& o = r.o;
  const auto says = [&](const char* name) { return said.contains(name) && !said[name].is_null(); };
  bool draws = false;
  for (const char* how : {"temperature", "top_k", "top_p", "min_p", "typical_p"}) draws = draws || says(how);
  const bool told = says("do_sample");
  if (usual.temperature == 0 && !says("temperature") && (told ? r.draws : draws || says("seed"))) o.temperature = 1;
  if (told && !r.draws && o.beams == 1) o.temperature = 0;
  if (says("max_new_tokens")) o.max_length = 0;
  if (!says("num_beams")) return o;
  if (o.beams > 1) {
    const GenerationOptions off;
    o.draw_beams = told ? r.draws : draws;
    if (!says("temperature")) o.temperature = off.temperature;
    if (!says("top_k")) o.top_k = off.top_k;
    if (!says("top_p")) o.top_p = off.top_p;
    if (!says("min_p")) o.min_p = off.min_p;
    if (!says("typical_p")) o.typical_p = off.typical_p;
  } else if (usual.beams > 1 && !says("temperature")) {
    o.temperature = 0;
  }
  return o;
}

std::vector<GenerationKey> generation_keys() {
  std::vector<GenerationKey> keys;
  for (const Key& k : kKeys)
    if (k.type != nullptr) keys.push_back({k.name, k.type, k.doc});
  return keys;
}

std::string describe_generation_options() {
  return detail::json_list(generation_keys(), [](const GenerationKey& k) {
    return cat("{\"name\": ", detail::json_string(k.name), ", \"type\": ", detail::json_string(k.type),
               ", \"doc\": ", detail::json_string(k.doc), "}");
  });
}

}  // namespace strata
