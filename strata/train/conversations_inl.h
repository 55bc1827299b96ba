#pragma once
// Conversations, preferences, and texts with what is to be written for them, as the data of a run.

#include <memory>
#include <string>

#include "strata/data/dataset.h"
#include "strata/models/language_model.h"
#include "strata/text/tokenizer_folder.h"
#include "strata/train/config.h"
#include "strata/train/train_data.h"

namespace strata {

/// Fills in all but the tokenizer, which is there, for data.format = chat or preferences, through the template of
/// `init`. Throws IoError, ValueError.
void open_conversations(TrainData& data, const TrainConfig& config, const text::TokenizerFolder& init);
/// The same for data.format = seq2seq; what is written begins with `start`.
void open_source_targets(TrainData& data, const TrainConfig& config, const text::TokenizerFolder& init,
                         const std::vector<int64_t>& start);

/// The mean loss of a batch of the settings' data.format, under the thread's autocast. A batch of preferences is
/// data::PreferenceDataset's and behind it [B] each, what reference_answers() appends; of seq2seq
/// data::SourceTargets'.
Tensor batch_loss(const TokenDecoder& model, const data::Batch& batch, const TrainConfig& config);
/// Tokens of a row: of what is read or continued, and of what is written apart from it (seq2seq).
struct RowTokens {
  int64_t read = 0, written = 0;
};
/// Of the settings: the context; of seq2seq those of the data's longest, which is opened, and where no data is named or
/// there the most that there may be.
RowTokens row_tokens(const TrainConfig& config);
/// A batch like those of the settings, without contents: on the thread's default device.
data::Batch empty_batch(const TrainConfig& config, const RowTokens& tokens);

/// `pairs` with the log-probabilities of their answers under `model` as it is now, adapters switched off. They are kept
/// in the file at `path`, and read from there where it holds those of this text (`text`, TrainData's checksum). A run
/// that goes on (`resumed`) and trains the whole model has no other way to know them. Throws IoError.
std::shared_ptr<const data::Dataset> reference_answers(std::shared_ptr<const data::Dataset> pairs,
                                                       const LanguageModel& model, const TrainConfig& config,
                                                       const std::string& path, uint64_t text, bool resumed);

}  // namespace strata
