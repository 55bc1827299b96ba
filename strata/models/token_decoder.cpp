#include "strata/models/token_decoder.h"

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/dist/collectives/placed.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/indexing.h"
#include "strata/ops/view/view.h"

namespace strata {

std::vector<Tensor> ModelCache::rows() const {
  std::vector<Tensor> all;
  for (const auto* of : {&layers, &source})
    for (const nn::KvCache& layer : *of) {
      all.push_back(layer.k);
      all.push_back(layer.v);
    }
  if (source_seen.defined()) all.push_back(source_seen);
  all.push_back(lengths);
  return all;
}

ModelCache ModelCache::row(int64_t row) const {
  const auto part = [&](const Tensor& t) { return t.defined() ? narrow(t, 0, row, 1) : t; };
  ModelCache own;
  for (const nn::KvCache& layer : layers) own.layers.push_back({part(layer.k), part(layer.v)});
  for (const nn::KvCache& layer : source) own.source.push_back({part(layer.k), part(layer.v)});
  own.source_seen = part(source_seen);
  own.lengths = part(lengths);
  own.capacity = capacity;
  return own;
}

std::pair<nn::Places, Tensor> TokenDecoder::places_of(std::string_view op, const Tensor& tokens,
                                                      const ModelCache& cache, const Tensor& counts) {
  check<ShapeError>(tokens.dim() == 2 && cache.lengths.shape() == Shape{tokens.size(0)}, op, "tokens are ", tokens,
                    ", the cache is for ", cache.lengths.shape());
  check<ShapeError>(!counts.defined() || (counts.shape() == cache.lengths.shape() && counts.dtype() == DType::i64), op,
                    "counts are i64 ", cache.lengths.shape(), ", got ", counts);
  const int64_t time = tokens.size(1), filled = cache.host_counts ? cache.length : 0;
  check<ShapeError>(filled + time <= cache.capacity, op, time, " tokens after ", filled, " do not fit the context of ",
                    cache.capacity);
  nn::Places places;
  places.starts = cache.lengths;
  places.counts = counts;
  places.first = cache.host_counts && cache.length == 0;
  places.reach = cache.host_counts ? cache.length + time : cache.capacity;
  // A row that rests may be longer than those that the host counts; its results mean nothing.
  places.queries = clamp_max(cache.lengths, places.reach - time);
  places.turns_by_row = !places.first;
  // Behind a row's tokens may be no room: what is there means nothing.
  if (time == 1 && places.reach == cache.capacity) return {places, places.queries.unsqueeze(1)};
  return {places,
          clamp(cache.lengths.unsqueeze(1) + arange(time, DType::i64).unsqueeze(0), std::nullopt, cache.capacity - 1)};
}

void TokenDecoder::advance(ModelCache& cache, int64_t time, const Tensor& counts) {
  if (counts.defined())
    cache.lengths.add_(counts);
  else
    cache.lengths.add_(Scalar(time));
  if (cache.host_counts) cache.length += time;
}

Tensor TokenDecoder::next_logits(const Tensor& tokens, ModelCache& cache, const Tensor& counts) const {
  const NoGrad guard;
  const Tensor x = hidden(tokens, cache, counts);
  // Who chooses the next token looks at all of them, on every rank that has a part.
  const auto all = [&](const Tensor& rows) { return distributed::full_tensor(logits(rows)); };
  if (!counts.defined() || x.size(1) == 1) return all(x.select(1, x.size(1) - 1));
  const DeviceScope there(x.device());
  const Tensor last = clamp(counts - 1, 0, std::nullopt);
  return all(x.index({arange(x.size(0), DType::i64), last}));
}

}  // namespace strata
