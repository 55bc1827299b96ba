// Files of conversations, every row by whichever core is free.

#include <algorithm>
#include <utility>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/data/chat.h"
#include "strata/data/packed_rows.h"
#include "strata/data/text_reader.h"

namespace strata::data {
namespace {

// Calls encode(line, part, file) for each row, several at once, and add(result) in their order.
template <class T, class Encode, class Add>
void for_each_row(std::span<const std::string> sources, Encode encode, Add add) {
  int64_t rows = 0;
  for (const TextFile& file : find_text_files(sources)) {
    TextReader reader(file.path, {.format = TextFormat::jsonl});
    TextBlock block;
    while (reader.next(block)) {
      std::vector<T> results(block.parts.size());
      parallel_for(0, static_cast<int64_t>(results.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const TextBlock::Part& part = block.parts[static_cast<size_t>(i)];
          results[static_cast<size_t>(i)] = encode(block.part(part), reader.name(), part.line, part.byte);
        }
      });
      for (T& result : results) add(result);
      rows += static_cast<int64_t>(results.size());
    }
  }
  check<IoError>(rows > 0, "", "there are no rows in '", sources.front(), "'");
}

}  // namespace

std::shared_ptr<StoredSequences> load_chats(std::span<const std::string> sources, const ChatEncoder& encoder) {
  auto texts = std::make_shared<StoredSequences>();
  for_each_row<MarkedTokens>(
      sources, [&](auto... row) { return encoder.encode(row...); },
      [&](const MarkedTokens& text) { texts->add(text); });
  return texts;
}

std::shared_ptr<PreferenceDataset> load_preferences(std::span<const std::string> sources, const ChatEncoder& encoder,
                                                    int64_t context) {
  auto chosen = std::make_shared<StoredSequences>(), rejected = std::make_shared<StoredSequences>();
  for_each_row<PreferencePair>(
      sources, [&](auto... row) { return encoder.encode_pair(row...); },
      [&](const PreferencePair& pair) {
        chosen->add(pair.chosen);
        rejected->add(pair.rejected);
      });
  return std::make_shared<PreferenceDataset>(chosen, rejected, context);
}

PreferenceDataset::PreferenceDataset(std::shared_ptr<const Sequences> chosen, std::shared_ptr<const Sequences> rejected,
                                     int64_t context)
    : chosen_(std::move(chosen)), rejected_(std::move(rejected)), context_(context) {
  constexpr std::string_view op = "PreferenceDataset";
  check(chosen_ && rejected_ && chosen_->size() == rejected_->size() && chosen_->size() > 0, op,
        "wants as many chosen as rejected texts, at least one");
  check(context >= 1, op, "context must be at least 1, got ", context);
  for (int64_t i = 0; i < size(); ++i) truncated_ += std::max(chosen_->length(i), rejected_->length(i)) > context + 1;
}

Batch PreferenceDataset::get_batch(std::span<const Sample> samples) const {
  const TensorMeta meta{Shape{static_cast<int64_t>(samples.size()), context_}, DType::i64, Device::cpu()};
  Batch batch{empty(meta), empty(meta), empty(meta), empty(meta)};
  std::vector<int32_t> ids;
  std::vector<uint8_t> learned;
  for (size_t b = 0; b < samples.size(); ++b)
    for (size_t side = 0; side < 2; ++side) {
      const Sequences& texts = side == 0 ? *chosen_ : *rejected_;
      const auto n = static_cast<size_t>(std::min(texts.length(samples[b].index), context_ + 1));
      ids.resize(n);
      learned.resize(n);
      texts.read(samples[b].index, 0, ids, learned);
      const auto row = b * static_cast<size_t>(context_);
      int64_t* tokens = batch[2 * side].data<int64_t>() + row;
      int64_t* targets = batch[2 * side + 1].data<int64_t>() + row;
      std::fill_n(tokens, context_, 0);
      std::fill_n(targets, context_, PackedRows::kIgnored);
      for (size_t i = 0; i + 1 < n; ++i) {
        tokens[i] = ids[i];
        if (learned[i + 1]) targets[i] = ids[i + 1];
      }
    }
  return batch;
}

}  // namespace strata::data
