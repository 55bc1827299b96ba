#pragma once
// What Whisper's encoder reads: log-mel frames of sound, as transformers' WhisperFeatureExtractor makes them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/tensor.h"

namespace strata {

/// How sound is cut into frames: preprocessor_config.json of a folder. The defaults are the library's.
struct SoundFeatures {
  int64_t bins = 80;     ///< numbers of a frame ("feature_size")
  int64_t fft = 400;     ///< samples that a frame is made of ("n_fft")
  int64_t hop = 160;     ///< samples from frame to frame ("hop_length")
  int64_t seconds = 30;  ///< of a piece, which is filled up with silence ("chunk_length")
  int64_t rate = 16000;  ///< samples a second ("sampling_rate")

  /// Samples and frames of a piece.
  int64_t samples() const { return seconds * rate; }
  int64_t frames() const { return samples() / hop; }
};

/// From the text of a preprocessor_config.json; `source` names it in errors. Throws ValueError naming the key for a
/// value out of range, a key that is not known, and what is not had (dither, another class's features).
SoundFeatures parse_sound_features(std::string_view text, std::string_view source);

/// The frames of one piece: `sound` f32 [n], n up to features.samples(), to f32 [bins, frames]. The spectrum of Hann
/// windows around each hop (the sound is mirrored at its ends), its power summed by mel filters, the logarithm to base
/// 10, no more than 8 below the largest, then (x + 4) / 4. Computed in f64. Throws ShapeError, DTypeError, ValueError
/// for features out of range.
///
///     const Tensor frames = sound_features(sound.mono(), features);      // [80, 3000]
Tensor sound_features(const Tensor& sound, const SoundFeatures& features = {});

/// The frames of sound of any length, f32 [n] to f32 [bins, n / hop]: as above, but no silence is put behind it, and
/// the largest is that of all of it. Sound shorter than a window is filled up to one.
Tensor long_sound_features(const Tensor& sound, const SoundFeatures& features = {});

/// The weights of frequency i * rate / fft in each of `bins` filters, [bins][fft / 2 + 1]: triangles on Slaney's mel
/// scale (Auditory Toolbox, 1998) up to 8 kHz, each of area 1.
std::vector<std::vector<double>> mel_filters(int64_t bins, int64_t fft, int64_t rate);

}  // namespace strata
