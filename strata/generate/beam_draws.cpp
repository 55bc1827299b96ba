#include <algorithm>
#include <limits>
#include <tuple>

#include "strata/generate/beam_draws_inl.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/view/view.h"

namespace strata::detail {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// A number beside a tensor.
Tensor number(double value, const Tensor& x) {
  return full({1, 1}, value, x.dtype()).to(x.device());
}

// `x` without what is `removed`, which is said of places in `order`.
Tensor without(const Tensor& x, const Tensor& order, const Tensor& removed) {
  return masked_fill(x, scatter(removed, 1, order, removed), kNever);
}

// True at the places of a row from `first` on.
Tensor from_place(int64_t first, const Tensor& x) {
  const Tensor places = arange(x.size(1)).to(x.device()).view({1, x.size(1)});
  return ge(places, number(static_cast<double>(first), places));
}

Tensor top_k(const Tensor& x, int64_t k) {
  const Tensor least = narrow(std::get<0>(topk(x, k)), 1, k - 1, 1);
  return masked_fill(x, lt(x, least), kNever);
}

Tensor top_p(const Tensor& x, double p, int64_t least) {
  const auto [values, order] = sort(x, 1, /*descending=*/true);
  // What is behind those that have the probability: all that follow have the rest of it or less.
  const Tensor chances = softmax(values, 1);
  const Tensor behind = sum(chances, {1}, true) - cumsum(chances, 1) + chances;
  return without(x, order, logical_and(le(behind, number(1 - p, behind)), from_place(least, x)));
}

Tensor min_p(const Tensor& x, double p, int64_t least) {
  const auto [values, order] = sort(softmax(x, 1), 1, /*descending=*/true);
  return without(x, order, logical_and(lt(values, narrow(values, 1, 0, 1) * p), from_place(least, x)));
}

Tensor typical_p(const Tensor& x, double mass, int64_t least) {
  const Tensor logs = log_softmax(x, 1), chances = exp(logs);
  const Tensor entropy = neg(sum(where(gt(chances, number(0, chances)), logs * chances, Scalar(0.0)), {1}, true));
  const auto [values, order] = sort(abs(neg(logs) - entropy), 1);
  const Tensor before = lt(cumsum(gather(chances, 1, order), 1), number(mass, chances));
  const Tensor last = clamp(sum(before.to(DType::i64), {1}, true), {}, Scalar(x.size(1) - 1));
  return without(x, order, logical_and(gt(values, gather(values, 1, last)), from_place(least, x)));
}

}  // namespace

Tensor filtered_scores(const Tensor& scores, const GenerationOptions& o) {
  const int64_t vocab = scores.size(1);
  const int64_t least = std::min(vocab, std::max<int64_t>(2, 1 + static_cast<int64_t>(o.stop_ids.size())));
  Tensor x = scores / o.temperature;
  if (o.top_k > 0) x = top_k(x, std::min(vocab, std::max(o.top_k, least)));
  if (o.top_p < 1) x = top_p(x, o.top_p, least);
  if (o.min_p > 0) x = min_p(x, o.min_p, least);
  if (o.typical_p < 1) x = typical_p(x, o.typical_p, least);
  return x;
}

std::tuple<Tensor, Tensor> drawn(const Tensor& sums, int64_t keep, uint64_t seed, int64_t step) {
  const int64_t n = sums.size(0);
  // Two numbers of 53 bits a block of the stream.
  const RngKey key{seed, static_cast<uint64_t>(step) * static_cast<uint64_t>((n + 1) / 2)};
  const Tensor u = uniform_of({n}, 0, 1, key, DType::f64, sums.device());
  const Tensor places = std::get<1>(topk(sums.to(DType::f64) - log(neg(log(u))), keep));
  const Tensor values = gather(sums, 0, places);
  const auto [sorted, order] = sort(values, 0, /*descending=*/true);
  return {sorted, gather(places, 0, order)};
}

}  // namespace strata::detail
