#pragma once
// generation_config.json: how a model's makers would have it generate.

#include <string>
#include <string_view>
#include <vector>

#include "strata/generate/options.h"

namespace strata {

/// The options that a generation_config.json of a Hugging Face folder describes, with the meanings and defaults of
/// transformers: without do_sample the likeliest token is taken and what shapes drawing is passed over; with it top_k
/// is 50 unless it says otherwise. But transformers' length of 20 where none is given is not taken: texts go on to the
/// end of the context. Keys that do not change what is written are passed over. Throws IoError naming `source` and the
/// key for what is no JSON, for a value of the wrong type or out of range, for a key that asks for what there is not,
/// and for a key that is not known.
GenerationOptions parse_generation_config(std::string_view json, std::string_view source = "generation_config.json");

/// The options of a call, as Python, Node and C spell them: a JSON object with the keys of generation_keys(), over a
/// generation_config.json (its text; empty: none), of which null takes a key back. A call that says how to draw
/// (temperature, top_k, .., seed) and not do_sample draws. Throws IoError as parse_generation_config() does for the
/// file, ValueError naming the key for the call.
///
///     const GenerationOptions o = parse_generation_options(R"({"max_new_tokens": 50, "top_p": 0.9})", config);
GenerationOptions parse_generation_options(std::string_view call, std::string_view config = {},
                                           std::string_view source = "generation_config.json");

/// Options that are there with what a call says, spelled as parse_generation_options() has it: for who has no file, or
/// has added to what it said, as the command line. A call that says how to draw (temperature, top_k, .., seed) has
/// something drawn where `usual` takes the likeliest. A search that it asks for (num_beams above 1) begins without the
/// temperature and filters of `usual`, which say nothing of it, and draws where the call says how; one beam where
/// `usual` searches takes the likeliest token. Throws ValueError naming the key.
///
///     const GenerationOptions o = change_generation_options(usual, R"({"temperature": 0.7, "seed": 1})");
GenerationOptions change_generation_options(const GenerationOptions& usual, std::string_view call);

/// An option as calls and files spell it.
struct GenerationKey {
  std::string name;  ///< "max_new_tokens"
  std::string type;  ///< integer, number, boolean, ids, texts, id lists, id biases, stopping, biases
  std::string doc;
};
/// Every option that parse_generation_options() takes and that shapes what is written or given back.
std::vector<GenerationKey> generation_keys();
/// generation_keys() as JSON, which declarations in other languages are made of: [{"name", "type", "doc"}, ..].
std::string describe_generation_options();

}  // namespace strata
