#pragma once
// What is said in sound, written by a model that reads it (Whisper).

#include <memory>
#include <string>
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
  GenerationOptions writing = {.temperature = 0};
  int64_t batch = 4;  ///< pieces that are written at a time
};

/// The text of one piece of sound.
struct SpokenText {
  double begin = 0, end = 0;  ///< seconds
  Completion written;         ///< the likeliest text
};

/// The texts of sound, a piece of features.seconds after the other: each is read and written by itself, and a word
/// across two pieces may be lost. Times are not written. Throws ValueError for sound of another rate than the model's,
/// for a model that reads no sound of these features, and what DecoderStart::tokens() and TextGenerator do.
///
///     const std::vector<SpokenText> texts = transcribe(data::read_wav("a.wav"), model, tokenizer, features, start);
std::vector<SpokenText> transcribe(const data::Sound& sound, const std::shared_ptr<EncoderDecoder>& model,
                                   const std::shared_ptr<const text::Tokenizer>& tokenizer,
                                   const SoundFeatures& features, const DecoderStart& start,
                                   const TranscriptionOptions& options = {});

/// Which of start.languages is the likeliest for what the encoder gave, [S, dim]: "<|de|>". Throws ValueError where
/// there are none, or ids that the model does not have.
std::string likeliest_language(const EncoderDecoder& model, const Tensor& encoded, const DecoderStart& start);

}  // namespace strata
