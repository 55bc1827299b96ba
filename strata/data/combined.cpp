#include "strata/data/combined.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "strata/core/error.h"

namespace strata::data {
namespace {

// Number `i` of the stream that seed and epoch name, in [0, 1).
double uniform_number(uint64_t seed, uint64_t epoch, int64_t i) {
  const auto block = philox({mix(seed, epoch), 0}, static_cast<uint64_t>(i));
  return uniform_f64(block[0], block[1]);
}

// Rows of `from` into rows `to[i]` of `into`.
void put_rows(const Tensor& from, const std::vector<size_t>& to, const Tensor& into) {
  if (from.numel() == 0) return;
  const Tensor dense = from.contiguous();
  const auto row = static_cast<size_t>(dense.nbytes()) / to.size();
  for (size_t i = 0; i < to.size(); ++i)
    std::memcpy(static_cast<char*>(into.raw_data()) + to[i] * row, static_cast<const char*>(dense.raw_data()) + i * row,
                row);
}

}  // namespace

ConcatDataset::ConcatDataset(std::vector<std::shared_ptr<const Dataset>> datasets) : datasets_(std::move(datasets)) {
  check(!datasets_.empty(), "ConcatDataset", "needs at least one data set");
  int64_t end = 0;
  for (const auto& set : datasets_) {
    check(set != nullptr, "ConcatDataset", "a data set is null");
    ends_.push_back(end += set->size());
  }
}

Batch ConcatDataset::get_batch(std::span<const Sample> samples) const {
  std::vector<std::vector<Sample>> wanted(datasets_.size());
  std::vector<std::vector<size_t>> places(datasets_.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    const int64_t index = samples[i].index;
    check<IndexError>(index >= 0 && index < size(), "ConcatDataset", "sample ", index, " is out of range, there are ",
                      size());
    const auto set = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
    wanted[set].push_back({index - (set == 0 ? 0 : ends_[set - 1]), samples[i].epoch});
    places[set].push_back(i);
  }
  Batch all;
  for (size_t set = 0; set < datasets_.size(); ++set) {
    if (wanted[set].empty()) continue;
    const Batch part = datasets_[set]->get_batch(wanted[set]);
    if (wanted[set].size() == samples.size()) return part;
    if (all.empty()) {
      for (const Tensor& t : part) {
        Shape shape = t.shape();
        shape[0] = static_cast<int64_t>(samples.size());
        all.push_back(empty(TensorMeta{shape, t.dtype(), Device::cpu()}));
      }
    }
    check<ShapeError>(part.size() == all.size(), "ConcatDataset", "one data set gives ",
                      static_cast<int64_t>(all.size()), " tensors, another ", static_cast<int64_t>(part.size()));
    for (size_t k = 0; k < part.size(); ++k) {
      Shape shape = part[k].shape();
      shape[0] = all[k].size(0);
      check<ShapeError>(shape == all[k].shape() && part[k].dtype() == all[k].dtype(), "ConcatDataset",
                        "the data sets' samples differ: ", part[k], " and ", all[k]);
      put_rows(part[k], places[set], all[k]);
    }
  }
  return all.empty() ? datasets_[0]->get_batch({}) : all;
}

Subset::Subset(std::shared_ptr<const Dataset> dataset, std::vector<int64_t> indices)
    : dataset_(std::move(dataset)), indices_(std::move(indices)) {
  check(dataset_ != nullptr, "Subset", "the data set is null");
  for (const int64_t i : indices_)
    check<IndexError>(i >= 0 && i < dataset_->size(), "Subset", "index ", i, " is out of range, there are ",
                      dataset_->size());
}

Batch Subset::get_batch(std::span<const Sample> samples) const {
  std::vector<Sample> mapped;
  for (const Sample& s : samples) {
    check<IndexError>(s.index >= 0 && s.index < size(), "Subset", "sample ", s.index, " is out of range, there are ",
                      size());
    mapped.push_back({indices_[static_cast<size_t>(s.index)], s.epoch});
  }
  return dataset_->get_batch(mapped);
}

std::vector<std::shared_ptr<Subset>> random_split(const std::shared_ptr<const Dataset>& dataset,
                                                  const std::vector<int64_t>& lengths, uint64_t seed) {
  check(dataset != nullptr, "random_split", "the data set is null");
  int64_t total = 0;
  for (const int64_t n : lengths) {
    check(n >= 0 && n <= dataset->size() - total, "random_split", "the lengths do not add up to the ", dataset->size(),
          " samples");
    total += n;
  }
  check(total == dataset->size(), "random_split", "the lengths add up to ", total, ", there are ", dataset->size(),
        " samples");
  const KeyedPermutation order(dataset->size(), mix(seed, 0));
  std::vector<std::shared_ptr<Subset>> parts;
  int64_t at = 0;
  for (const int64_t n : lengths) {
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < n; ++i) indices.push_back(order(at++));
    parts.push_back(std::make_shared<Subset>(dataset, std::move(indices)));
  }
  return parts;
}

std::vector<int64_t> IndexSampler::epoch() {
  std::vector<int64_t> all;
  while (const std::optional<int64_t> i = next()) all.push_back(*i);
  return all;
}

SequentialSampler::SequentialSampler(int64_t size) : size_(size) {
  check(size >= 0, "SequentialSampler", "size must not be negative, got ", size);
}
std::optional<int64_t> SequentialSampler::next() {
  if (position_ < size_) return position_++;
  position_ = 0;
  return {};
}

RandomSampler::RandomSampler(int64_t size, uint64_t seed, bool replacement, std::optional<int64_t> num_samples)
    : range_(size),
      count_(num_samples.value_or(size)),
      seed_(seed),
      replacement_(replacement),
      order_(std::max<int64_t>(size, 1), mix(seed, 0)) {
  check(size >= 1, "RandomSampler", "size must be at least 1, got ", size);
  check(count_ >= 0 && (replacement || count_ <= size), "RandomSampler", "num_samples must be from 0 to ", size,
        " without replacement, got ", count_);
}
std::optional<int64_t> RandomSampler::next() {
  if (position_ == count_) {
    position_ = 0;
    order_ = KeyedPermutation(range_, mix(seed_, ++epoch_));
    return {};
  }
  const int64_t i = position_++;
  if (!replacement_) return order_(i);
  const auto drawn = static_cast<int64_t>(uniform_number(seed_, epoch_, i) * static_cast<double>(range_));
  return std::min(drawn, range_ - 1);
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, int64_t num_samples, bool replacement,
                                             uint64_t seed)
    : weights_(std::move(weights)), count_(num_samples), seed_(seed), replacement_(replacement) {
  constexpr std::string_view op = "WeightedRandomSampler";
  double sum = 0;
  int64_t positive = 0;
  for (const double w : weights_) {
    check(std::isfinite(w) && w >= 0, op, "weights must be finite and not negative, got ", w);
    sums_.push_back(sum += w);
    positive += w > 0 ? 1 : 0;
  }
  check(positive > 0 && std::isfinite(sum), op, "the weights add up to ", sum);
  check(num_samples >= 1 && (replacement || num_samples <= positive), op, "num_samples must be at least 1, and ",
        positive, " at most without replacement, got ", num_samples);
  begin_epoch();
}

// The places with the largest u^(1 / weight) are a weighted sample without replacement; its logarithm orders the same.
void WeightedRandomSampler::begin_epoch() {
  if (replacement_) return;
  std::vector<std::pair<double, int64_t>> keys;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] <= 0) continue;
    const double u = 1 - uniform_number(seed_, epoch_, static_cast<int64_t>(i));
    keys.emplace_back(-std::log(u) / weights_[i], static_cast<int64_t>(i));
  }
  std::partial_sort(keys.begin(), keys.begin() + count_, keys.end());
  chosen_.clear();
  for (int64_t i = 0; i < count_; ++i) chosen_.push_back(keys[static_cast<size_t>(i)].second);
}

std::optional<int64_t> WeightedRandomSampler::next() {
  if (position_ == count_) {
    position_ = 0;
    ++epoch_;
    begin_epoch();
    return {};
  }
  const int64_t i = position_++;
  if (!replacement_) return chosen_[static_cast<size_t>(i)];
  const double at = uniform_number(seed_, epoch_, i) * sums_.back();
  // The first sum above it: a place of weight 0 has the sum of the one before, and is never it.
  const auto found = std::upper_bound(sums_.begin(), sums_.end(), at) - sums_.begin();
  return std::min<int64_t>(found, static_cast<int64_t>(sums_.size()) - 1);
}

BatchSampler::BatchSampler(std::shared_ptr<IndexSampler> sampler, int64_t batch_size, bool drop_last)
    : sampler_(std::move(sampler)), batch_size_(batch_size), drop_last_(drop_last) {
  check(sampler_ != nullptr, "BatchSampler", "the sampler is null");
  check(batch_size >= 1, "BatchSampler", "batch_size must be at least 1, got ", batch_size);
}
int64_t BatchSampler::size() const {
  return (sampler_->size() + (drop_last_ ? 0 : batch_size_ - 1)) / batch_size_;
}
std::vector<int64_t> BatchSampler::next() {
  if (std::exchange(ended_, false)) return {};
  std::vector<int64_t> batch;
  while (static_cast<int64_t>(batch.size()) < batch_size_) {
    const std::optional<int64_t> i = sampler_->next();
    if (!i) {
      // A short batch ends the epoch; the empty one that says so comes with the next call.
      if (drop_last_ || batch.empty()) return {};
      ended_ = true;
      return batch;
    }
    batch.push_back(*i);
  }
  return batch;
}

}  // namespace strata::data
