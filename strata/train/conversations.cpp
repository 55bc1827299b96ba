#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/data/chat.h"
#include "strata/data/combined.h"
#include "strata/data/packed_rows.h"
#include "strata/data/source_targets.h"
#include "strata/io/files.h"
#include "strata/io/hash.h"
#include "strata/io/safetensors.h"
#include "strata/memory/allocator.h"
#include "strata/models/encoder_decoder.h"
#include "strata/nn/lora.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"
#include "strata/ops/loss/preference.h"
#include "strata/train/conversations_inl.h"

namespace strata {
namespace {

data::ChatEncoder encoder_of(const TrainData& d, const text::TokenizerFolder& init) {
  data::ChatOptions o;
  nlohmann::json variables = nlohmann::json::object();
  for (const auto& [name, id] : init.named)
    for (const auto& [text, special] : d.tokenizer->special_tokens())
      if (special == id) variables[name] = text;
  o.variables = variables.dump();
  o.end_token = variables.value("eos_token", std::string());
  return data::ChatEncoder(d.tokenizer, init.chat_template, o);
}

// Of tokens and of what is learned: another text, tokenizer or template has another.
uint64_t checksum_of(const data::Sequences& texts) {
  io::Hasher hasher;
  std::vector<int32_t> tokens;
  std::vector<uint8_t> learned;
  for (int64_t i = 0; i < texts.size(); ++i) {
    const auto n = static_cast<size_t>(texts.length(i));
    tokens.resize(n);
    learned.resize(n);
    texts.read(i, 0, tokens, learned);
    hasher.update_u64(n);
    hasher.update(tokens.data(), n * sizeof(int32_t));
    hasher.update(learned.data(), n);
  }
  return hasher.digest();
}
uint64_t checksum_of(const data::Dataset& pairs) {
  io::Hasher hasher;
  for (int64_t i = 0; i < pairs.size(); ++i) {
    const data::Sample one{.index = i, .epoch = 0};
    for (const Tensor& t : pairs.get_batch({&one, 1})) {
      const Tensor whole = t.contiguous();
      hasher.update(whole.raw_data(), static_cast<size_t>(whole.nbytes()));
    }
  }
  return hasher.digest();
}

// The last `fraction` of the samples, at least one, for validation.
void split(TrainData& d, const std::shared_ptr<const data::Dataset>& all, double fraction, const std::string& path) {
  const int64_t n = all->size();
  const int64_t last = fraction > 0 ? std::max<int64_t>(1, std::llround(fraction * static_cast<double>(n))) : 0;
  check(last < n, "train", "'", path, "' has ", n, " rows, too few to keep data.valid_fraction = ", fraction,
        " of them for validation");
  if (last == 0) {
    d.train = all;
    return;
  }
  std::vector<int64_t> places(static_cast<size_t>(n));
  std::iota(places.begin(), places.end(), 0);
  d.train = std::make_shared<data::Subset>(all, std::vector<int64_t>(places.begin(), places.end() - last));
  d.valid = std::make_shared<data::Subset>(all, std::vector<int64_t>(places.end() - last, places.end()));
}

void count(TrainData& d, int64_t of_row) {
  d.train_tokens = d.train->size() * of_row;
  d.valid_tokens = d.valid ? d.valid->size() * of_row : 0;
}

}  // namespace

void open_conversations(TrainData& d, const TrainConfig& config, const text::TokenizerFolder& init) {
  const data::ChatEncoder encoder = encoder_of(d, init);
  const int64_t context = config.model.context;
  const bool pairs = config.data.format == "preferences";
  uint64_t text = 0;
  const auto open = [&](const std::string& path) -> std::shared_ptr<const data::Dataset> {
    const std::vector<std::string> sources{path};
    if (pairs) {
      const auto set = data::load_preferences(sources, encoder, context);
      if (set->truncated() > 0)
        d.notes.push_back(cat(set->truncated(), " pairs of '", path, "' are longer than model.context and were cut"));
      text = checksum_of(*set);
      return set;
    }
    const auto texts = data::load_chats(sources, encoder);
    text = checksum_of(*texts);
    const auto rows = std::make_shared<data::PackedRows>(
        texts, data::PackedRowsOptions{.context = context,
                                       .packing = data::parse_packing(config.data.packing),
                                       .shuffle = config.data.shuffle,
                                       .seed = static_cast<uint64_t>(config.seed)});
    if (rows->truncated() > 0)
      d.notes.push_back(cat(rows->truncated(), " texts of '", path, "' are longer than model.context and were cut"));
    if (rows->dropped() > 0) d.notes.push_back(cat(rows->dropped(), " texts of '", path, "' have nothing to learn"));
    return rows;
  };
  const std::shared_ptr<const data::Dataset> all = open(config.data.path);
  d.text = text;
  if (config.data.valid_path.empty()) {
    split(d, all, config.data.valid_fraction, config.data.path);
  } else {
    d.train = all;
    d.valid = open(config.data.valid_path);
  }
  count(d, context * (pairs ? 2 : 1));
}

void open_source_targets(TrainData& d, const TrainConfig& config, const text::TokenizerFolder& init,
                         const std::vector<int64_t>& start) {
  const data::SourceTargetOptions options{.context = config.model.context, .start = start, .end = init.eos};
  const auto open = [&](const std::string& path) {
    const std::vector<std::string> sources{path};
    auto set = data::load_source_targets(sources, *d.tokenizer, options);
    if (set->truncated() > 0)
      d.notes.push_back(cat(set->truncated(), " rows of '", path, "' are longer than model.context and were cut"));
    return set;
  };
  const auto all = open(config.data.path);
  d.text = all->checksum();
  if (config.data.valid_path.empty()) {
    split(d, all, config.data.valid_fraction, config.data.path);
  } else {
    const auto valid = open(config.data.valid_path);
    valid->widen(all->source_tokens(), all->target_tokens());
    d.train = all;
    d.valid = valid;
  }
  d.row_tokens = all->source_tokens() + all->target_tokens();
  count(d, d.row_tokens);
}

namespace {

// Log-probabilities [2 B] of answers, the chosen ones first: of IPO their means over tokens.
Tensor answers(const LanguageModel& model, const data::Batch& batch, bool means) {
  const Tensor tokens = cat({batch[0], batch[2]}, 0), targets = cat({batch[1], batch[3]}, 0);
  const Tensor sums = model.log_probabilities(tokens, targets);
  return means ? sums / clamp_min((targets != -100).to(DType::f32).sum({1}), 1) : sums;
}

}  // namespace

Tensor batch_loss(const TokenDecoder& any, const data::Batch& batch, const TrainConfig& config) {
  if (const auto* answers = dynamic_cast<const EncoderDecoder*>(&any))
    return answers->loss(batch[0], batch[2], batch[3], batch[1]);
  const auto& model = dynamic_cast<const LanguageModel&>(any);
  if (config.data.format == "text") return model.loss(batch[0], batch[1]);
  if (config.data.format == "chat") return model.packed_loss(batch[0], batch[1], batch[2], batch[3]);
  const TuneConfig& t = config.tune;
  const Tensor now = answers(model, batch, t.preference == "ipo");
  const int64_t n = batch[0].size(0);
  return dpo_loss(now.narrow(0, 0, n), now.narrow(0, n, n), batch[4], batch[5],
                  {.beta = t.beta, .label_smoothing = t.label_smoothing, .kind = t.preference});
}

RowTokens row_tokens(const TrainConfig& config) {
  const int64_t context = config.model.context;
  if (config.data.format != "seq2seq") return {context, 0};
  if (config.data.path.empty() || !std::filesystem::exists(config.data.path)) return {context, context};
  const TrainData data = open_train_data(config, "", "");
  const data::Sample first{.index = 0, .epoch = 0};
  const data::Batch row = data.train->get_batch({&first, 1});
  return {row[0].size(1), row[2].size(1)};
}

data::Batch empty_batch(const TrainConfig& config, const RowTokens& tokens) {
  const Shape rows{config.batch, tokens.read};
  if (config.data.format == "seq2seq") {
    const Shape written{config.batch, tokens.written};
    return {empty(rows, DType::i64), empty(rows, DType::boolean), empty(written, DType::i64),
            empty(written, DType::i64)};
  }
  const size_t of_rows = config.data.format == "text" ? 2 : 4;
  data::Batch batch;
  for (size_t i = 0; i < of_rows; ++i) batch.push_back(empty(rows, DType::i64));
  if (config.data.format == "preferences")
    for (int i = 0; i < 2; ++i) batch.push_back(empty({config.batch}, DType::f32));
  return batch;
}

namespace {

class Referenced final : public data::Dataset {
 public:
  Referenced(std::shared_ptr<const data::Dataset> pairs, Tensor chosen, Tensor rejected)
      : pairs_(std::move(pairs)), chosen_(std::move(chosen)), rejected_(std::move(rejected)) {}
  int64_t size() const override { return pairs_->size(); }
  data::Batch get_batch(std::span<const data::Sample> samples) const override {
    data::Batch batch = pairs_->get_batch(samples);
    std::vector<int64_t> places;
    for (const data::Sample& s : samples) places.push_back(s.index);
    const Tensor at = from_span<int64_t>(places, {static_cast<int64_t>(places.size())});
    batch.push_back(index_select(chosen_, 0, at));
    batch.push_back(index_select(rejected_, 0, at));
    return batch;
  }

 private:
  std::shared_ptr<const data::Dataset> pairs_;
  Tensor chosen_, rejected_;
};

// What the file holds, where it is of this text and of so many pairs.
std::optional<io::TensorMap> kept_reference(const std::string& path, const std::string& text, int64_t pairs) {
  if (!std::filesystem::is_regular_file(path)) return std::nullopt;
  const io::SafetensorsFile file(path);
  const auto of = file.metadata().find("text");
  if (of == file.metadata().end() || of->second != text) return std::nullopt;
  for (const char* name : {"chosen", "rejected"})
    if (!file.contains(name) || file.entry(name).shape != Shape{pairs} || file.entry(name).dtype != DType::f32)
      return std::nullopt;
  return file.tensors();
}

}  // namespace

std::shared_ptr<const data::Dataset> reference_answers(std::shared_ptr<const data::Dataset> pairs,
                                                       const LanguageModel& model, const TrainConfig& config,
                                                       const std::string& path, uint64_t text, bool resumed) {
  const std::string of = io::to_hex(text) + " " + config.tune.preference;
  const int64_t n = pairs->size();
  std::optional<io::TensorMap> kept;
  if (resumed) kept = kept_reference(path, of, n);
  check<IoError>(kept || !resumed || config.tune.method != "full", path,
                 "the log-probabilities under the model that the run began with are not there any more");
  if (!kept) {
    const NoGrad guard;
    const nn::WithoutLora off;
    const bool trained = model.is_training();
    nn::Module(model).eval();
    TensorList parts[2];
    for (int64_t begin = 0; begin < n; begin += config.batch) {
      std::vector<data::Sample> samples;
      for (int64_t i = begin; i < std::min(n, begin + config.batch); ++i) samples.push_back({.index = i, .epoch = 0});
      data::Batch batch = pairs->get_batch(samples);
      for (Tensor& t : batch) t = t.to(model.device());
      const Tensor both = answers(model, batch, config.tune.preference == "ipo").to(DType::f32).to(Device::cpu());
      const auto count = static_cast<int64_t>(samples.size());
      for (int64_t i : {0, 1}) parts[i].push_back(both.narrow(0, i * count, count));
    }
    nn::Module(model).train(trained);
    kept = io::TensorMap{{"chosen", cat(parts[0], 0)}, {"rejected", cat(parts[1], 0)}};
    io::make_directories(io::parent_directory(path));
    io::save_safetensors(path, *kept, {{"text", of}});
  }
  return std::make_shared<Referenced>(std::move(pairs), kept->at("chosen"), kept->at("rejected"));
}

}  // namespace strata
