#pragma once
// What generate and chat share: a model that writes, from a folder of any kind, and the options of writing.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "strata/generate/options.h"
#include "strata/generate/text_generator.h"
#include "strata/models/encoder_decoder.h"
#include "strata/models/language_model.h"
#include "strata/text/tokenizer_folder.h"

namespace strata::cli {

/// The device of that name; without one the card where there is one. Asked only when a command runs: counting cards
/// before a rank has hidden the others would show it all of them.
Device device_or_usual(const std::string& name);

/// A model and what it reads and writes with.
struct Language {
  std::shared_ptr<LanguageModel> model;    ///< that continues texts; nullptr where there is `reader`
  std::shared_ptr<EncoderDecoder> reader;  ///< that writes an answer to a text
  std::vector<int64_t> start;              ///< of reader: what its texts begin with
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<text::TokenizerFolder> folder;  ///< of a model from elsewhere; nullptr for a run of ours
  GenerationOptions options;                      ///< what its makers would have; of a run 0.8 for the temperature
  bool bare = false;  ///< it began from nothing, and has seen no special tokens around texts

  /// A text's ids, as its makers begin one.
  std::vector<int64_t> encode(const std::string& text) const;
  /// To continue a text, or to write what goes with it.
  GenerationRequest request(const std::string& text, const GenerationOptions& asked) const;
  /// Writes with whichever model there is.
  std::unique_ptr<TextGenerator> writer(const TextGeneratorOptions& room) const;
};

/// From a folder as Hugging Face writes it (it has a config.json) or a run or checkpoint of ours. `prompt`: what it
/// will be asked first, if it is known. `dtype`: of the weights; empty: the files'. Warnings go to the standard error.
Language load_language(const std::string& path, const std::string& prompt, const std::string& device,
                       const std::string& dtype);

/// What was asked for on the command line, most of it options of generation_keys(); what was not is left as it is.
/// Stays where it is from add() until the line is read.
class WritingOptions {
 public:
  /// Adds the options to `command`. `texts`: also those that ask for several texts.
  void add(CLI::App& command, bool texts);
  /// `usual`, with what was asked for.
  GenerationOptions over(GenerationOptions usual) const;

 private:
  std::map<std::string, std::string> said_;  // by generation's key, JSON
  std::optional<int64_t> tokens_;
  std::vector<std::string> stops_, biases_;
  std::vector<int64_t> stop_ids_, forbidden_;
  bool ignore_stop_ids_ = false;
};

/// The model's and device's options of both commands.
struct ModelArguments {
  std::string path, device, dtype;
  int64_t threads = 0;
  void add(CLI::App& command, bool checkpoint);
  /// Sets the number of threads and loads.
  Language load(const std::string& prompt = {}) const;
  /// Another model, in the same place and dtype.
  Language beside(const std::string& other) const { return load_language(other, {}, device, dtype); }
};

}  // namespace strata::cli
