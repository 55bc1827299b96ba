#pragma once
// The text of a run as tokens.

#include <memory>
#include <string>
#include <vector>

#include "strata/data/dataset.h"
#include "strata/text/tokenizer.h"
#include "strata/train/config.h"

namespace strata {

/// What a run learns from. Running text is tokenised once into OUT/data/*.tokens and read from there: it may be larger
/// than memory. Conversations and preferences are tokens in memory.
struct TrainData {
  std::shared_ptr<text::Tokenizer> tokenizer;
  std::shared_ptr<const data::Dataset> train;
  std::shared_ptr<const data::Dataset> valid;  ///< nullptr where none was asked for
  int64_t train_tokens = 0;
  int64_t valid_tokens = 0;
  int64_t row_tokens = 0;          ///< of a row of a batch
  uint64_t text = 0;               ///< checksum of the training text and of what cut it into tokens
  std::vector<std::string> notes;  ///< what was mended on the way: damaged files that were built again
};

/// The tokenizer that the settings name: of a kind (for byte pairs it is learned from the training text), or one that
/// exists. Throws IoError, ValueError.
std::shared_ptr<text::Tokenizer> make_tokenizer(const DataConfig& data, int64_t vocab);

/// Tokenises (or finds tokenised) the text of `config` under `out`, and splits it. `tokenizer_json` is a resumed run's
/// tokenizer, empty for a new one. A text that is a token file already is read as it is, with the tokenizer beside it;
/// one of another tokenizer than a resumed run's, the init's or the one that data.tokenizer names is refused. Throws
/// IoError (no such text, unreadable, no text in it) and ValueError (too short for the context and the split).
TrainData open_train_data(const TrainConfig& config, const std::string& out, const std::string& tokenizer_json = {});

/// The validation batches: `batches` of `batch` windows, spread evenly over the data, the same each time. Fewer where
/// the data has fewer.
std::vector<std::vector<data::Sample>> validation_samples(const data::Dataset& data, int64_t batch, int64_t batches);

}  // namespace strata
