#include "strata/data/source_targets.h"

#include <algorithm>
#include <utility>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/data/json_rows_inl.h"
#include "strata/data/text_reader.h"
#include "strata/io/hash.h"
#include "strata/ops/factory/factory.h"
#include "strata/text/pipeline_tokenizer.h"

namespace strata::data {
namespace {

constexpr int64_t kIgnored = -100;
using Ids = std::vector<int32_t>;

Ids ids_of(const text::Tokenizer& tokenizer, const JsonLine& line, const char* field) {
  std::string text;
  check<IoError>(json_text(line, field, text), place_of(line), ": '", field, "' is empty");
  const auto* pipeline = dynamic_cast<const text::PipelineTokenizer*>(&tokenizer);
  Ids ids = pipeline ? pipeline->encode(text, text::EncodeOptions{.parse_special = false}) : tokenizer.encode(text);
  check<IoError>(!ids.empty(), place_of(line), ": '", field, "' has no tokens");
  return ids;
}

}  // namespace

SourceTargets::SourceTargets(std::vector<Ids> sources, std::vector<Ids> targets, const SourceTargetOptions& options)
    : sources_(std::move(sources)), targets_(std::move(targets)), options_(options) {
  constexpr std::string_view op = "SourceTargets";
  check(sources_.size() == targets_.size() && !sources_.empty(), op, "wants as many sources as targets, at least one");
  check(!options_.start.empty(), op, "a text begins with at least one token");
  const auto start = static_cast<int64_t>(options_.start.size());
  check(options_.context > start, op, "a context of ", options_.context, " has no room behind the first ", start,
        " tokens");
  for (size_t i = 0; i < sources_.size(); ++i) {
    bool cut = false;
    for (Ids* ids : {&sources_[i], &targets_[i]}) {
      check(!ids->empty(), op, "a text has no tokens");
      if (options_.end && ids->back() != *options_.end) ids->push_back(*options_.end);
      const int64_t most = options_.context - (ids == &targets_[i] ? start - 1 : 0);
      if (static_cast<int64_t>(ids->size()) <= most) continue;
      const int32_t last = ids->back();
      ids->resize(static_cast<size_t>(most));
      ids->back() = last;
      cut = true;
    }
    truncated_ += cut ? 1 : 0;
    widen(static_cast<int64_t>(sources_[i].size()), static_cast<int64_t>(targets_[i].size()) + start - 1);
  }
}

void SourceTargets::widen(int64_t source_tokens, int64_t target_tokens) {
  source_tokens_ = std::max(source_tokens_, source_tokens);
  target_tokens_ = std::max(target_tokens_, target_tokens);
}

Batch SourceTargets::get_batch(std::span<const Sample> samples) const {
  const auto rows = static_cast<int64_t>(samples.size());
  const auto ids = [&](int64_t width) { return empty(TensorMeta{Shape{rows, width}, DType::i64, Device::cpu()}); };
  Batch batch{ids(source_tokens_), empty(TensorMeta{Shape{rows, source_tokens_}, DType::boolean, Device::cpu()}),
              ids(target_tokens_), ids(target_tokens_)};
  for (int64_t b = 0; b < rows; ++b) {
    const int64_t index = samples[static_cast<size_t>(b)].index;
    check<IndexError>(index >= 0 && index < size(), "SourceTargets", "there is no sample ", index, " of ", size());
    const Ids &source = sources_[static_cast<size_t>(index)], &target = targets_[static_cast<size_t>(index)];
    int64_t* read = batch[0].data<int64_t>() + b * source_tokens_;
    auto* padding = batch[1].data<bool>() + b * source_tokens_;
    std::fill_n(read, source_tokens_, 0);
    std::copy(source.begin(), source.end(), read);
    for (int64_t i = 0; i < source_tokens_; ++i) padding[i] = i >= static_cast<int64_t>(source.size());
    int64_t* tokens = batch[2].data<int64_t>() + b * target_tokens_;
    int64_t* targets = batch[3].data<int64_t>() + b * target_tokens_;
    std::fill_n(tokens, target_tokens_, 0);
    std::fill_n(targets, target_tokens_, kIgnored);
    const size_t start = options_.start.size();
    std::copy(options_.start.begin(), options_.start.end(), tokens);
    std::copy(target.begin(), target.end() - 1, tokens + start);
    std::copy(target.begin(), target.end(), targets + start - 1);
  }
  return batch;
}

uint64_t SourceTargets::checksum() const {
  io::Hasher hasher;
  for (const std::vector<Ids>* side : {&sources_, &targets_})
    for (const Ids& ids : *side) {
      hasher.update_u64(ids.size());
      hasher.update(ids.data(), ids.size() * sizeof(int32_t));
    }
  return hasher.digest();
}

std::shared_ptr<SourceTargets> load_source_targets(std::span<const std::string> sources,
                                                   const text::Tokenizer& tokenizer,
                                                   const SourceTargetOptions& options) {
  std::vector<Ids> inputs, targets;
  for (const TextFile& file : find_text_files(sources)) {
    TextReader reader(file.path, {.format = TextFormat::jsonl});
    TextBlock block;
    while (reader.next(block)) {
      std::vector<std::pair<Ids, Ids>> rows(block.parts.size());
      parallel_for(0, static_cast<int64_t>(rows.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const TextBlock::Part& part = block.parts[static_cast<size_t>(i)];
          const JsonLine line{block.part(part), reader.name(), part.line, part.byte};
          rows[static_cast<size_t>(i)] = {ids_of(tokenizer, line, "input"), ids_of(tokenizer, line, "target")};
        }
      });
      for (auto& [input, target] : rows) {
        inputs.push_back(std::move(input));
        targets.push_back(std::move(target));
      }
    }
  }
  check<IoError>(!inputs.empty(), "", "there are no rows in '", sources.front(), "'");
  return std::make_shared<SourceTargets>(std::move(inputs), std::move(targets), options);
}

}  // namespace strata::data
