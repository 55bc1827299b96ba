#pragma once
// What the texts of an encoder-decoder begin with, before a token is written.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/generate/options.h"

namespace strata {

/// The tokens before a text of an encoder-decoder, as a folder's generation_config.json and config.json say. T5 begins
/// with one; Whisper says a language and a task behind it, and whether times are written.
///
///     const DecoderStart start = parse_decoder_start(pretrained.generation_config, pretrained.config, folder);
///     const std::vector<int64_t> prompt = start.tokens("de", "translate");
struct DecoderStart {
  int64_t start = 0;                              ///< decoder_start_token_id
  std::vector<std::optional<int64_t>> forced;     ///< forced_decoder_ids, those behind the first; none: left open
  std::map<std::string, int64_t> languages = {};  ///< lang_to_id: "<|de|>" and its token
  std::map<std::string, int64_t> tasks = {};      ///< task_to_id: "transcribe", "translate"
  std::optional<int64_t> no_timestamps = {};  ///< the token that says that no times are written; behind it times begin
  int64_t most_initial = -1;                  ///< max_initial_timestamp_index; -1: none
  /// prev_sot_token_id, the token before what stands before the text: what was said earlier, or a prompt. Where it is
  /// not said the last but one of suppress_tokens, as in transformers.
  std::optional<int64_t> previous = {};
  /// alignment_heads: attention heads, as (layer, head), that follow the sound; times of words come from them.
  std::vector<std::pair<int64_t, int64_t>> alignment_heads = {};
  int64_t median_filter_width = 7;  ///< of these heads' weights along the sound, odd

  /// The prompt of the decoder. `language` is one of `languages`, also without its signs ("de"); where it is empty, the
  /// forced one. `task`: one of `tasks`; where empty "transcribe". Throws ValueError for one that is not there, and
  /// where the language is left open: whoever has the sound may find it by the likeliest of languages' tokens behind
  /// the start.
  /// With `timestamps` without the token that says that no times are written.
  std::vector<int64_t> tokens(std::string_view language = {}, std::string_view task = {},
                              bool timestamps = false) const;
  /// How times are written, where `end` ends a text. Throws ValueError where the model writes none.
  TimestampRules timestamps(int64_t end) const;
};

/// From the texts of both files; either may be empty. `source` names them in errors. Throws IoError for what is not
/// JSON or has values of another kind, and where neither says a start.
DecoderStart parse_decoder_start(std::string_view generation_config, std::string_view config, std::string_view source);

}  // namespace strata
