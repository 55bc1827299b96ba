#include "strata/generate/generation_config.h"

#include <cmath>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/json.h"

namespace strata {
namespace {
using nlohmann::json;

constexpr double kNever = -std::numeric_limits<double>::infinity();

// A value and where it is, for errors.
struct Field {
  std::string_view source, key;
  const json& value;

  [[noreturn]] void refuse(const std::string& why) const {
    throw IoError("generation_config", cat(source, ": ", key, " is ", value.dump().substr(0, 80), ": ", why));
  }
  int64_t whole(const json& v) const {
    if (v.is_number_integer() && v <= std::numeric_limits<int32_t>::max() && v >= std::numeric_limits<int32_t>::min())
      return v.get<int64_t>();
    refuse("wanted a whole number");
  }
  int64_t whole() const { return whole(value); }
  double number() const {
    if (value.is_number()) return value.get<double>();
    refuse("wanted a number");
  }
  bool truth() const {
    if (value.is_boolean()) return value.get<bool>();
    refuse("wanted true or false");
  }
  // One or several.
  std::vector<int64_t> ids() const {
    std::vector<int64_t> all;
    if (!value.is_array()) return {whole()};
    for (const json& v : value) all.push_back(whole(v));
    return all;
  }
};

// What is read before it is decided what counts.
struct Read {
  GenerationOptions o;
  bool draws = false;
  bool top_k_given = false;
};

void read_stop_strings(Read& r, const Field& f) {
  if (f.value.is_string()) {
    r.o.stop_strings = {f.value.get<std::string>()};
    return;
  }
  if (!f.value.is_array()) f.refuse("wanted a text or a list of texts");
  for (const json& v : f.value) {
    if (!v.is_string()) f.refuse("wanted a list of texts");
    r.o.stop_strings.push_back(v.get<std::string>());
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

// Every key that transformers writes, and what it is here. A value of null is none given.
struct Key {
  const char* name;
  void (*read)(Read&, const Field&);
  const char* neutral = nullptr;  // of what there is not: JSON of the values that ask for nothing, between blanks
};
void pass(Read&, const Field&) {}  // changes nothing that is written
void refused(Read&, const Field& f) {
  f.refuse("there is no such thing here, and without it other texts would be written");
}

const Key kKeys[] = {
    {"max_new_tokens", [](Read& r, const Field& f) { r.o.max_tokens = f.whole(); }},
    {"max_length", [](Read& r, const Field& f) { r.o.max_length = f.whole(); }},
    {"min_new_tokens", [](Read& r, const Field& f) { r.o.min_tokens = f.whole(); }},
    {"min_length", [](Read& r, const Field& f) { r.o.min_length = f.whole(); }},
    {"do_sample", [](Read& r, const Field& f) { r.draws = f.truth(); }},
    {"temperature", [](Read& r, const Field& f) { r.o.temperature = f.number(); }},
    {"top_k",
     [](Read& r, const Field& f) {
       r.o.top_k = f.whole();
       r.top_k_given = true;
     }},
    {"top_p", [](Read& r, const Field& f) { r.o.top_p = f.number(); }},
    {"min_p", [](Read& r, const Field& f) { r.o.min_p = f.number(); }},
    {"typical_p", [](Read& r, const Field& f) { r.o.typical_p = f.number(); }},
    {"repetition_penalty", [](Read& r, const Field& f) { r.o.repetition_penalty = f.number(); }},
    {"eos_token_id", [](Read& r, const Field& f) { r.o.stop_ids = f.ids(); }},
    {"stop_strings", read_stop_strings},
    {"suppress_tokens",
     [](Read& r, const Field& f) {
       for (const int64_t id : f.ids()) r.o.logit_bias.emplace_back(id, kNever);
     }},
    {"begin_suppress_tokens", [](Read& r, const Field& f) { r.o.not_first = f.ids(); }},
    {"bad_words_ids", read_bad_words},
    {"sequence_bias", read_sequence_bias},
    {"num_return_sequences", [](Read& r, const Field& f) { r.o.n = f.whole(); }},
    {"num_beams", [](Read& r, const Field& f) { r.o.beams = f.whole(); }},
    {"length_penalty", [](Read& r, const Field& f) { r.o.length_penalty = f.number(); }},
    {"early_stopping", read_early_stopping},

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
    // Of times of words, and of texts that go on from sound to sound, which are not had.
    {"alignment_heads", pass},
    {"max_initial_timestamp_index", pass},
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

}  // namespace

GenerationOptions parse_generation_config(std::string_view text, std::string_view source) {
  const json all = io::parse_json(text, source);
  if (!all.is_object()) throw IoError("generation_config", cat(source, ": wanted an object"));
  Read r;
  for (const auto& [name, value] : all.items()) {
    const Key* key = nullptr;
    for (const Key& k : kKeys)
      if (name == k.name) key = &k;
    const Field field{source, name, value};
    if (key == nullptr) field.refuse("the key is not known, and may change what is written");
    if (!value.is_null() && !is_neutral(*key, value)) key->read(r, field);
  }
  GenerationOptions& o = r.o;
  if (o.beams > 1 && r.draws)
    throw IoError("generation_config",
                  cat(source, ": num_beams is ", o.beams, " with do_sample: beams draw nothing here"));
  if (o.beams > 1 || !r.draws) {
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
    throw IoError("generation_config", cat(source, ": ", e.what()));
  }
  return o;
}

}  // namespace strata
