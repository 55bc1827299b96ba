#include "strata/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "strata/core/rng.h"
#include "strata/generate/sequences.h"

namespace strata {
namespace {

constexpr const char* kOp = "sample";

void check_options(const SampleOptions& o) {
  check(o.temperature >= 0 && std::isfinite(o.temperature), kOp, "temperature is at least 0, got ", o.temperature);
  check(o.top_k >= 0, kOp, "top_k is at least 0, got ", o.top_k);
  check(o.vocab >= 0, kOp, "vocab is at least 0, got ", o.vocab);
  check(o.top_p > 0 && o.top_p <= 1, kOp, "top_p is above 0 and at most 1, got ", o.top_p);
}

}  // namespace

int64_t sample_token(std::span<const float> logits, const SampleOptions& options, uint64_t draw) {
  check_options(options);
  check(!logits.empty(), kOp, "there are no logits");
  std::vector<int32_t> order;
  const size_t ids = options.vocab > 0 ? std::min(logits.size(), static_cast<size_t>(options.vocab)) : logits.size();
  for (size_t i = 0; i < ids; ++i)
    if (!std::isnan(logits[i])) order.push_back(static_cast<int32_t>(i));
  // Ties go to the smaller id, so that the result does not depend on the sort.
  const auto likelier = [&](int32_t a, int32_t b) {
    const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
    return la > lb || (la == lb && a < b);
  };
  check(!order.empty(), kOp, "every logit is NaN: the model has diverged");
  if (options.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);

  const size_t keep = options.top_k > 0 ? std::min(order.size(), static_cast<size_t>(options.top_k)) : order.size();
  if (keep < order.size())
    std::nth_element(order.begin(), order.begin() + static_cast<int64_t>(keep) - 1, order.end(), likelier);
  order.resize(keep);
  std::sort(order.begin(), order.end(), likelier);
  const double largest = logits[static_cast<size_t>(order.front())];
  std::vector<double> weights;
  for (const int32_t i : order) {
    // Of infinite logits the largest have all the weight.
    const double gap = logits[static_cast<size_t>(i)] == largest ? 0 : logits[static_cast<size_t>(i)] - largest;
    weights.push_back(std::exp(gap / options.temperature));
  }
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (options.top_p < 1) {
    double sum = 0;
    size_t n = 0;
    while (n < weights.size() && sum < options.top_p * total) sum += weights[n++];
    weights.resize(std::max<size_t>(n, 1));
    total = std::accumulate(weights.begin(), weights.end(), 0.0);
  }
  const auto bits = philox({options.seed, 0}, draw);
  double point = uniform_f64(bits[0], bits[1]) * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    point -= weights[i];
    if (point < 0) return order[i];
  }
  return order[weights.size() - 1];
}

TokenSampler::TokenSampler(std::shared_ptr<LanguageModel> model, std::vector<int32_t> prompt,
                           const SampleOptions& options)
    : tokens_(prompt.begin(), prompt.end()),
      options_{
          .temperature = options.temperature, .top_k = options.top_k, .top_p = options.top_p, .seed = options.seed},
      row_(std::make_shared<Sequences>(std::move(model), 1, SequencesOptions{.vocab = options.vocab})) {
  check_options(options);
  check(!tokens_.empty(), kOp, "the prompt is empty");
  for (const int64_t t : tokens_)
    check<IndexError>(t >= 0 && t < row_->model_vocab(), kOp, "token ", t, " is not in the vocabulary of ",
                      row_->model_vocab());
}

int32_t TokenSampler::next() {
  const int64_t context = row_->capacity(), seen = row_->length(0);
  if (seen == 0 || seen > context) {
    const int64_t wanted = seen == 0 ? context : std::max<int64_t>(1, context / 2);
    const auto all = std::span<const int64_t>(tokens_);
    row_->start(0, all.last(std::min(all.size(), static_cast<size_t>(wanted))), options_, drawn_);
  }
  row_->step();
  ++drawn_;
  tokens_.push_back(row_->ids().to_vector<int64_t>().front());
  return static_cast<int32_t>(tokens_.back());
}

}  // namespace strata
