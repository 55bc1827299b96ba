#pragma once
// generation_config.json: how a model's makers would have it generate.

#include <string_view>

#include "strata/generate/options.h"

namespace strata {

/// The options that a generation_config.json of a Hugging Face folder describes, with the meanings and defaults of
/// transformers: without do_sample the likeliest token is taken and what shapes drawing is passed over; with it top_k
/// is 50 unless it says otherwise. But transformers' length of 20 where none is given is not taken: texts go on to the
/// end of the context. Keys that do not change what is written are passed over. Throws IoError naming `source` and the
/// key for what is no JSON, for a value of the wrong type or out of range, for a key that asks for what there is not,
/// and for a key that is not known.
GenerationOptions parse_generation_config(std::string_view json, std::string_view source = "generation_config.json");

}  // namespace strata
