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
};

/// A part of what is said.
struct SpokenText {
  double begin = 0, end = 0;         ///< seconds
  std::string text = {};             ///< without times; empty without a tokenizer
  std::vector<int64_t> tokens = {};  ///< all of it, times too, without the end
};

/// All of it.
struct Transcription {
  std::string language = {};  ///< that was asked for or found, "<|de|>" as the model's files have it; empty: not known
  bool timestamps = false;
  std::vector<SpokenText> parts = {};
  /// The parts' texts one after the other.
  std::string text() const;
};

/// What is said in sound of any length. With times, each window (features.seconds) of it is written with times, and the
/// next begins where the last of these says that something ended, as the paper has it (Radford et al., 2022, section
/// 3.8) and transformers' generate(return_timestamps=True) does: nothing is lost at a border. Without, one window after
/// the other is read and written by itself, and a word across two of them may be lost. Throws ValueError for sound of
/// another rate than the model's, for a model that reads no sound of these features or writes no times where they are
/// wanted, and what DecoderStart::tokens() and TextGenerator do.
///
///     const Transcription all = transcribe(data::read_wav("a.wav"), model, tokenizer, features, start);
Transcription transcribe(const data::Sound& sound, const std::shared_ptr<EncoderDecoder>& model,
                         const std::shared_ptr<const text::Tokenizer>& tokenizer, const SoundFeatures& features,
                         const DecoderStart& start, const TranscriptionOptions& options = {});

/// Which of start.languages is the likeliest for what the encoder gave, [S, dim]: "<|de|>". Throws ValueError where
/// there are none, or ids that the model does not have.
std::string likeliest_language(const EncoderDecoder& model, const Tensor& encoded, const DecoderStart& start);

/// {"language", "text", "segments": [{"start", "end", "text", "tokens"}, ..]}; "language" is null where it is not
/// known.
std::string to_json(const Transcription& transcription);
/// Subtitles in the form of SubRip: numbers, "00:00:01,500 --> 00:00:04,000", the text. Parts without text are left
/// out.
std::string to_srt(const Transcription& transcription);

}  // namespace strata
