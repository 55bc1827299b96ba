#include "strata/generate/sequences.h"

#include <algorithm>
#include <limits>

#include "strata/core/node.h"
#include "strata/nn/window_ring_inl.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "Sequences";

int64_t ids_of(const TokenDecoder& model, int64_t vocab) {
  check(vocab >= 0, kOp, "vocab is at least 0, got ", vocab);
  return vocab > 0 ? std::min(vocab, model.vocab()) : model.vocab();
}

}  // namespace

Sequences::Sequences(std::shared_ptr<TokenDecoder> model, int64_t rows, const SequencesOptions& o)
    : model_(std::move(model)), vocab_(ids_of(*model_, o.vocab)), chunk_(o.prefill_chunk), graphs_(o.graph) {
  check(rows >= 1 && rows < 65536, kOp, "there are from 1 to 65535 rows, got ", rows);
  check(o.prefill_chunk >= 1, kOp, "prefill_chunk is at least 1, got ", o.prefill_chunk);
  check(o.capacity >= 0, kOp, "capacity is at least 0, got ", o.capacity);
  model_->as_module().eval();
  const NoGrad guard;
  cache_ = model_->make_cache(rows, o.capacity, o.source);
  lengths_.resize(static_cast<size_t>(rows));
  runs_.resize(static_cast<size_t>(rows));
  sourced_.resize(static_cast<size_t>(rows));
  uses_.resize(static_cast<size_t>(rows));
  const DeviceScope there(model_->device());
  const auto whole = [&](const Shape& shape) { return zeros(shape, DType::i64); };
  const auto real = [&](double value) { return full({rows}, value, DType::f32); };
  last_ = whole({rows, 1});
  tokens_ = whole({rows, 1, capacity() + 1, 1});
  running_ = whole({rows}), drawn_ = whole({rows}), prompts_ = whole({rows}), seeds_ = whole({rows});
  filters_ = {real(1), whole({rows}), real(1), real(0), real(1)};
  penalties_ = {real(1), real(0), real(0)};
  bias_ids_ = stop_ids_ = first_ids_ = whole({rows, 0});
  bias_values_ = never_ = first_never_ = zeros({rows, 0}, DType::f32);
  first_ = full({rows}, 1, DType::i64);
  least_ = whole({rows});
  times_.emplace(rows);
  ids_ = whole({rows});
  logprobs_ = real(0), adjusted_logprobs_ = real(0);
  cache_.host_counts = !(graphs_ && model_->device().is_cuda());
}

Tensor Sequences::part(const Tensor& t, int64_t row) const {
  return narrow(t, 0, row, 1);
}

void Sequences::set(const Tensor& column, int64_t row, double value) {
  Tensor at = part(column, row);
  at.fill_(value);
}

// Row `row` of [rows, N]; N grows where it does not suffice. -1 stands for none.
void Sequences::set_ids(Tensor& ids, Tensor* values, int64_t row, const std::vector<int64_t>& wanted,
                        const std::vector<double>& amounts) {
  const auto n = static_cast<int64_t>(wanted.size());
  const DeviceScope there(model_->device());
  if (const int64_t more = n - ids.size(1); more > 0) {
    ids = cat({ids, full({rows(), more}, -1, DType::i64)}, 1);
    *values = cat({*values, zeros({rows(), more}, DType::f32)}, 1);
    warm_ = false;
    graph_.reset();
  }
  std::vector<int64_t> row_ids(static_cast<size_t>(ids.size(1)), -1);
  std::vector<float> row_values(row_ids.size());
  std::copy(wanted.begin(), wanted.end(), row_ids.begin());
  for (size_t i = 0; i < amounts.size(); ++i) row_values[i] = static_cast<float>(amounts[i]);
  const Shape shape{1, ids.size(1)};
  part(ids, row).copy_(from_span<int64_t>(row_ids, shape));
  part(*values, row).copy_(from_span<float>(row_values, shape));
}

int64_t Sequences::keepable(int64_t row, int64_t kept) const {
  for (const nn::KvCache& layer : cache_.layers) {
    if (layer.k.size(2) == cache_.capacity) continue;
    const auto ring = nn::detail::WindowRing::with_places(layer.k.size(2));
    if (ring && !ring->keeps(kept, length(row))) return 0;
  }
  return kept;
}

void Sequences::start(int64_t row, std::span<const int64_t> prompt, const GenerationOptions& o, int64_t drawn,
                      int64_t kept, Tensor* hidden, const Tensor& source) {
  check<IndexError>(row >= 0 && row < rows(), kOp, "there is no row ", row, " of ", rows());
  check(!prompt.empty(), kOp, "the prompt is empty");
  const auto n = static_cast<int64_t>(prompt.size());
  check(n <= capacity(), kOp, "a prompt of ", n, " tokens does not fit ", capacity(), " positions");
  for (const int64_t t : prompt)
    check<IndexError>(t >= 0 && t < model_->vocab(), kOp, "token ", t, " is not in the vocabulary of ",
                      model_->vocab());
  check_options(o, model_->vocab());
  check(kept >= 0 && kept < n && kept < std::max<int64_t>(1, length(row)) && keepable(row, kept) == kept, kOp,
        "of a text of ", length(row), " tokens a prompt of ", n, " cannot keep ", kept);
  stop(row);
  const NoGrad guard;
  const Tensor text =
      from_span<int64_t>(std::vector<int64_t>(prompt.begin(), prompt.end()), {1, n}).to(model_->device());

  // The row alone: a cache that shares its memory, so that a prompt is read the same in any batch.
  ModelCache own = cache_.row(row);
  own.lengths.fill_(kept);
  own.length = kept;
  if (source.defined()) model_->read_source(own, source.unsqueeze(0));
  sourced_[static_cast<size_t>(row)] = sourced_[static_cast<size_t>(row)] || source.defined();
  check(own.source.empty() || sourced_[static_cast<size_t>(row)], kOp, "this model writes for a source, and row ", row,
        " has none");
  std::vector<Tensor> read;
  for (int64_t at = kept; at < n - 1; at += chunk_) {
    const Tensor y = model_->hidden(narrow(text, 1, at, std::min(chunk_, n - 1 - at)), own);
    if (hidden != nullptr) read.push_back(y.select(0, 0));
  }
  if (hidden != nullptr) *hidden = read.empty() ? Tensor() : cat(read, 0);

  part(last_, row).copy_(narrow(text, 1, n - 1, 1));
  narrow(part(tokens_, row), 2, 0, n).copy_(text.view({1, 1, n, 1}));
  part(seeds_, row).copy_(from_span<int64_t>(std::vector<int64_t>{static_cast<int64_t>(o.seed)}, {1}));
  for (const auto& [column, value] :
       std::initializer_list<std::pair<Tensor, double>>{{running_, 1},
                                                        {drawn_, static_cast<double>(drawn)},
                                                        {prompts_, static_cast<double>(n)},
                                                        {filters_.temperature, o.temperature},
                                                        {filters_.top_k, static_cast<double>(o.top_k)},
                                                        {filters_.top_p, o.top_p},
                                                        {filters_.min_p, o.min_p},
                                                        {filters_.typical_p, o.typical_p},
                                                        {penalties_.repetition, o.repetition_penalty},
                                                        {penalties_.frequency, o.frequency_penalty},
                                                        {penalties_.presence, o.presence_penalty}})
    set(column, row, value);

  std::vector<int64_t> biased;
  std::vector<double> amounts;
  for (const auto& [id, value] : o.logit_bias) biased.push_back(id), amounts.push_back(value);
  set_ids(bias_ids_, &bias_values_, row, biased, amounts);
  const std::vector<double> never(o.stop_ids.size(), -std::numeric_limits<double>::infinity());
  set_ids(stop_ids_, &never_, row, o.stop_ids, never);
  set_ids(first_ids_, &first_never_, row, o.not_first,
          std::vector<double>(o.not_first.size(), -std::numeric_limits<double>::infinity()));
  // Counted in tokens drawn.
  const int64_t least = std::max(o.min_tokens, o.min_length - n);
  set(least_, row, static_cast<double>(std::max<int64_t>(0, least) + drawn));
  times_->start(row, o.timestamps);

  const auto r = static_cast<size_t>(row);
  lengths_[r] = n;
  runs_[r] = true;
  uses_[r] = {o.repetition_penalty != 1 || o.frequency_penalty != 0 || o.presence_penalty != 0, !biased.empty(),
              least > 0 && !o.stop_ids.empty(), !o.not_first.empty(), o.timestamps.has_value()};
  update_uses();
}

void Sequences::update_uses() {
  Uses all;
  for (size_t r = 0; r < runs_.size(); ++r)
    if (runs_[r]) {
      all.penalties |= uses_[r].penalties;
      all.biases |= uses_[r].biases;
      all.minimum |= uses_[r].minimum;
      all.first |= uses_[r].first;
      all.times |= uses_[r].times;
    }
  // A step that does more than is wanted is right too; one that does less is another.
  const Uses either{all.penalties || all_.penalties, all.biases || all_.biases, all.minimum || all_.minimum,
                    all.first || all_.first, all.times || all_.times};
  if (either == all_) return;
  all_ = either;
  warm_ = false;
  graph_.reset();
}

void Sequences::copy(int64_t from, int64_t to, uint64_t seed) {
  check<IndexError>(from >= 0 && from < rows() && to >= 0 && to < rows(), kOp, "rows ", from, " and ", to, " of ",
                    rows());
  const NoGrad guard;
  const auto take = [&](const Tensor& t) { part(t, to).copy_(part(t, from)); };
  for (const Tensor& t : cache_.rows()) take(t);
  for (const Tensor& t : {last_,
                          tokens_,
                          running_,
                          drawn_,
                          prompts_,
                          filters_.temperature,
                          filters_.top_k,
                          filters_.top_p,
                          filters_.min_p,
                          filters_.typical_p,
                          penalties_.repetition,
                          penalties_.frequency,
                          penalties_.presence,
                          bias_ids_,
                          bias_values_,
                          stop_ids_,
                          never_,
                          least_,
                          first_ids_,
                          first_never_})
    take(t);
  for (const Tensor& t : times_->columns()) take(t);
  part(seeds_, to).copy_(from_span<int64_t>(std::vector<int64_t>{static_cast<int64_t>(seed)}, {1}));
  const auto f = static_cast<size_t>(from), t = static_cast<size_t>(to);
  lengths_[t] = lengths_[f];
  runs_[t] = runs_[f];
  uses_[t] = uses_[f];
  sourced_[t] = sourced_[f];
  update_uses();
}

void Sequences::reorder(std::span<const int64_t> from) {
  check<ShapeError>(static_cast<int64_t>(from.size()) == rows(), kOp, "an order of ", from.size(), " for ", rows(),
                    " rows");
  for (const int64_t r : from) check<IndexError>(r >= 0 && r < rows(), kOp, "there is no row ", r, " of ", rows());
  const NoGrad guard;
  const Tensor order =
      from_span<int64_t>(std::vector<int64_t>(from.begin(), from.end()), {rows()}).to(model_->device());
  const auto take = [&](const Tensor& t) { Tensor(t).copy_(index_select(t, 0, order)); };
  for (const nn::KvCache& layer : cache_.layers) take(layer.k), take(layer.v);
  for (const Tensor& t : {cache_.lengths, last_, tokens_, running_, drawn_, prompts_}) take(t);
  for (const Tensor& t : times_->columns()) take(t);
  const std::vector<int64_t> lengths = lengths_;
  const std::vector<bool> runs = runs_;
  for (size_t r = 0; r < from.size(); ++r) {
    lengths_[r] = lengths[static_cast<size_t>(from[r])];
    runs_[r] = runs[static_cast<size_t>(from[r])];
  }
}

void Sequences::stop(int64_t row) {
  check<IndexError>(row >= 0 && row < rows(), kOp, "there is no row ", row, " of ", rows());
  const NoGrad guard;
  runs_[static_cast<size_t>(row)] = false;
  set(running_, row, 0);
  // It is computed like the others: at a place that every cache has. What it read stays, for start() to keep.
  set(cache_.lengths, row, 0);
}

void Sequences::check_room() const {
  for (size_t r = 0; r < runs_.size(); ++r)
    check(!runs_[r] || lengths_[r] <= capacity(), kOp, "row ", r, " is full: it has ", lengths_[r], " tokens for ",
          capacity(), " positions");
}

void Sequences::forward() {
  const NoGrad guard;
  // What is behind the longest row that runs no row sees. Rows at rest are computed too, to no effect.
  cache_.length = 0;
  for (size_t r = 0; r < runs_.size(); ++r)
    if (runs_[r]) cache_.length = std::max(cache_.length, lengths_[r] - 1);
  logits_ = model_->next_logits(last_, cache_, running_);
}

void Sequences::read() {
  check_room();
  forward();
}

Tensor Sequences::adjusted(const Tensor& scores) const {
  const NoGrad guard;
  Tensor x = scores;
  if (all_.penalties)
    x = penalise_logits(x, tokens_.view({rows(), capacity() + 1}), cache_.lengths, prompts_, penalties_);
  if (all_.biases) x = bias_logits(x, bias_ids_, bias_values_);
  if (all_.minimum) x = bias_logits(x, stop_ids_, never_, drawn_, least_);
  if (all_.first) x = bias_logits(x, first_ids_, first_never_, drawn_, first_);
  if (all_.times) x = times_->restrict(x, drawn_);
  return x;
}

// On the device alone.
void Sequences::put(const Tensor& ids) {
  const NoGrad guard;
  cache_write_(tokens_, ids.view({rows(), 1, 1, 1}), cache_.lengths, running_);
  last_.copy_(ids.view({rows(), 1}));
  drawn_.add_(running_);
  if (all_.times) times_->draw(ids, running_);
  ids_.copy_(ids);
}

void Sequences::count() {
  for (size_t r = 0; r < runs_.size(); ++r) lengths_[r] += runs_[r] ? 1 : 0;
}

void Sequences::append(const Tensor& ids) {
  check<ShapeError>(ids.shape() == Shape{rows()} && ids.dtype() == DType::i64, kOp, "ids are i64 [", rows(), "], got ",
                    ids);
  put(ids);
  count();
}

// All that a step does on the device.
void Sequences::work() {
  forward();
  const NoGrad guard;
  const Tensor x = adjusted(logits_);
  const auto [ids, logprobs] = sample_tokens(x, seeds_, drawn_, filters_, vocab_);
  put(ids);
  adjusted_logprobs_.copy_(logprobs);
  logprobs_.copy_(x.same_as(logits_) ? logprobs : neg(cross_entropy(logits_, ids, {.reduction = "none"})));
}

void Sequences::step() {
  check_room();
  if (!graphs_ || !model_->device().is_cuda() || !warm_) {
    work();
    warm_ = true;
  } else {
    if (graph_ == nullptr) {
      graph_ = std::make_unique<cuda::Graph>(cuda::GraphPool(model_->device().index));
      graph_->capture([this] { work(); });
    }
    graph_->replay();
  }
  count();
}

}  // namespace strata
