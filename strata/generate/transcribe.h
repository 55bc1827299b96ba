#pragma once
// What is said in sound, written by a model that reads it (Whisper).

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/data/wav.h"
#include "strata/generate/decoder_start.h"
#include "strata/generate/text_generator.h"
#include "strata/models/encoder_decoder.h"
#include "strata/models/sound_features.h"

namespace strata {

/// Of transcribe().
struct TranscriptionOptions {
  std::string language = {};  ///< as DecoderStart::tokens() has it; empty: the forced one, else the likeliest
  std::string task = {};      ///< "transcribe" (where empty) or "translate", which writes English
  /// Whether times are written. Where nothing is said they are for sound that is longer than a piece, of a model that
  /// writes them.
  std::optional<bool> timestamps = {};
  GenerationOptions writing = {.temperature = 0};
  int64_t batch = 4;  ///< without times: pieces that are written at a time

  /// @name What the text of a window sees
  /// @{
  /// Ids of a text that stands before: how names are spelled, a style. Without the token that says so
  /// (DecoderStart::previous).
  std::vector<int64_t> prompt = {};
  /// With `condition_on_prev_tokens` the prompt stands before every window's earlier text (transformers'
  /// prompt_condition_type "all-segments"); else it is the beginning of that text.
  bool prompt_everywhere = false;
  /// With times: a window sees what was said before it, as much as half the context takes, unless the last window
  /// wanted a temperature of 0.5 or more.
  bool condition_on_prev_tokens = false;
  /// @}

  /// @name Unlikely texts
  /// @{
  /// A window is written by the first; where its text is unlikely, by the next, and so on. 0 takes the likeliest, or
  /// beams; above it tokens are drawn by writing's filters, without beams. Empty: by writing's alone.
  std::vector<double> temperatures = {};
  /// A text is unlikely whose ids, as little-endian numbers, zlib makes smaller by more than this factor: it repeats
  /// itself.
  std::optional<double> compression_ratio_threshold = {};
  /// .. or whose tokens have a lower mean logprob, under suppressed tokens and rules of times.
  std::optional<double> logprob_threshold = {};
  /// A window where that is lower, and the token before no_timestamps (silence) is likelier than this at the start, has
  /// no text. Wants logprob_threshold.
  std::optional<double> no_speech_threshold = {};
  /// @}

  bool words = false;  ///< when each word is said
};

/// A word, its blank and its punctuation with it, and when it is said, in seconds.
struct SpokenWord {
  double begin = 0, end = 0;
  std::string text = {};
};

/// A part of what is said.
struct SpokenText {
  double begin = 0, end = 0;         ///< seconds
  std::string text = {};             ///< without times; empty without a tokenizer
  std::vector<int64_t> tokens = {};  ///< all of it, times too, without the end
  /// @name With times of words
  /// @{
  std::vector<double> token_ends = {};  ///< when each token ends, in seconds
  std::vector<SpokenWord> words = {};   ///< empty without a tokenizer
  /// @}
  /// @name With a threshold: of the window's text
  /// @{
  double temperature = 0;        ///< that it was written by
  double avg_logprob = 0;        ///< what logprob_threshold is compared with
  double compression_ratio = 0;  ///< what compression_ratio_threshold is
  double no_speech_prob = 0;     ///< what no_speech_threshold is, where that is given
  /// @}
};

/// All of it.
struct Transcription {
  std::string language = {};  ///< that was asked for or found, "<|de|>" as the model's files have it; empty: not known
  bool timestamps = false;
  std::vector<SpokenText> parts = {};
  bool words = false;   ///< parts have times of words
  bool judged = false;  ///< parts say how likely they are
  /// The parts' texts one after the other.
  std::string text() const;
};

/// What is said in sound of any length. With times, each window (features.seconds) of it is written with times, and the
/// next begins where the last of these says that something ended, as the paper has it (Radford et al., 2022, section
/// 3.8) and transformers' generate(return_timestamps=True) does: nothing is lost at a border. Without, one window after
/// the other is read and written by itself, and a word across two of them may be lost. Words get times from the
/// attention heads that follow the sound: each token's weights, normalised over the tokens, smoothed by a median,
/// averaged over the heads, and a path through them by dynamic time warping. Throws ValueError for sound of another
/// rate than the model's, for a model that reads no sound of these features or writes no times (of words: has no
/// alignment_heads) where they are wanted, options that need others, and what DecoderStart::tokens() and TextGenerator
/// do.
///
///     const Transcription all = transcribe(data::read_wav("a.wav"), model, tokenizer, features, start);
Transcription transcribe(const data::Sound& sound, const std::shared_ptr<EncoderDecoder>& model,
                         const std::shared_ptr<const text::Tokenizer>& tokenizer, const SoundFeatures& features,
                         const DecoderStart& start, const TranscriptionOptions& options = {});

/// Which of start.languages is the likeliest for what the encoder gave, [S, dim]: "<|de|>". Throws ValueError where
/// there are none, or ids that the model does not have.
std::string likeliest_language(const EncoderDecoder& model, const Tensor& encoded, const DecoderStart& start);

/// {"language", "text", "segments": [{"start", "end", "text", "tokens"}, ..]}; "language" is null where it is not
/// known. With times of words a segment has "words", [{"start", "end", "text"}, ..], and "token_ends"; with a threshold
/// "temperature", "avg_logprob", "compression_ratio", "no_speech_prob".
std::string to_json(const Transcription& transcription);
/// Subtitles in the form of SubRip: numbers, "00:00:01,500 --> 00:00:04,000", the text. Parts without text are left
/// out. With times of words each is one.
std::string to_srt(const Transcription& transcription);

}  // namespace strata
