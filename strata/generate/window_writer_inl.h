#pragma once
// Texts of windows of sound: written, judged, and written anew where they are unlikely.

#include <memory>
#include <vector>

#include "strata/generate/transcribe.h"

namespace strata::detail {

/// A window of sound, and what its text begins with.
struct SoundWindow {
  Tensor encoded = {};               ///< [S, dim]
  std::vector<int64_t> prompt = {};  ///< of the decoder
  size_t start = 0;                  ///< where in it DecoderStart::start is: behind what was said before
  int64_t places = 0;                ///< of what is encoded, those that are about sound
};

/// What was written for one.
struct WindowText {
  std::vector<int64_t> tokens = {};  ///< without the end
  std::string text = {};             ///< empty without a tokenizer
  std::vector<int64_t> places = {};  ///< with times of words: where of the source each token ends
  double temperature = 0, avg_logprob = 0, compression_ratio = 0, no_speech_prob = 0;
  bool is_silent = false;  ///< nobody speaks: the text does not count
};

/// Writes windows by TranscriptionOptions, as transformers' generate_with_fallback() does.
class WindowWriter {
 public:
  /// `batch` windows at a time. Throws ValueError for options that do not go together.
  WindowWriter(std::shared_ptr<EncoderDecoder> model, std::shared_ptr<const text::Tokenizer> tokenizer,
               const DecoderStart& start, const TranscriptionOptions& options, int64_t batch);
  /// `writing` is options.writing with what the windows' rules add.
  std::vector<WindowText> write(const std::vector<SoundWindow>& windows, const GenerationOptions& writing);
  /// Whether there is a threshold.
  bool judges() const { return judges_; }

 private:
  GenerationOptions at_temperature(const GenerationOptions& writing, size_t which, size_t prompt) const;
  bool judge(const Completion& written, WindowText& text) const;
  double no_speech(const SoundWindow& window) const;
  std::vector<int64_t> token_ends(const SoundWindow& window, const std::vector<int64_t>& tokens, bool ended) const;

  std::shared_ptr<EncoderDecoder> model_;
  const DecoderStart& start_;
  const TranscriptionOptions& options_;
  TextGenerator writer_;
  bool judges_;
};

}  // namespace strata::detail
