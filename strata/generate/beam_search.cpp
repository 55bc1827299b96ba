#include "strata/generate/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "strata/core/node.h"
#include "strata/generate/beam_draws_inl.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

// What stands for a text that there is not: far below any score, and no infinity, which sums would not come back from.
constexpr float kNone = -1e9F;

struct Candidate {
  std::vector<int64_t> tokens;
  float score = kNone;
  bool is_whole = false, stopped = false;
  int64_t row = 0;  // that it continues
  std::vector<double> logprobs = {};
};

// The first n by their scores, of equal ones the earlier.
std::vector<Candidate> best(std::vector<Candidate> all, size_t n) {
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  all.resize(std::min(n, all.size()));
  return all;
}

float over_length(float score, int64_t length, double penalty) {
  return score / static_cast<float>(std::pow(static_cast<double>(length), penalty));
}

// `keep` continuations of all rows together, likeliest first: the likeliest, or what is drawn.
std::vector<Candidate> continuations(const Sequences& rows, const std::vector<Candidate>& running, int64_t keep,
                                     const GenerationOptions& o, int64_t written) {
  // Penalties are of logprobs here, as in transformers.
  Tensor scores = narrow(rows.adjusted(log_softmax(rows.logits().to(DType::f32), -1)), 1, 0, rows.vocab());
  const Tensor adjusted = o.adjusted_logprobs ? log_softmax(scores, -1).view({scores.numel()}) : Tensor();
  if (o.draw_beams) scores = detail::filtered_scores(scores, o);
  std::vector<float> so_far;
  for (const Candidate& c : running) so_far.push_back(c.score);
  const auto n = static_cast<int64_t>(running.size());
  const Tensor sums = (scores + from_span<float>(so_far, {n, 1}).to(scores.device())).view({scores.numel()});
  keep = std::min(keep, sums.numel());
  const auto [values, places] = o.draw_beams ? detail::drawn(sums, keep, o.seed, written) : topk(sums, keep);
  const std::vector<float> score = values.to_vector<float>();
  const std::vector<int64_t> place = places.to_vector<int64_t>();
  const std::vector<float> own =
      adjusted.defined() ? gather(adjusted, 0, places).to_vector<float>() : std::vector<float>();
  std::vector<Candidate> all;
  for (size_t i = 0; i < place.size(); ++i) {
    const int64_t row = place[i] / rows.vocab();
    const Candidate& before = running[static_cast<size_t>(row)];
    Candidate c{before.tokens, score[i], false, false, row, before.logprobs};
    if (!own.empty()) c.logprobs.push_back(static_cast<double>(own[i]));
    c.tokens.push_back(place[i] % rows.vocab());
    all.push_back(std::move(c));
  }
  return all;
}

}  // namespace

std::vector<Beam> beam_search(Sequences& rows, const std::vector<int64_t>& prompt, const GenerationOptions& o,
                              int64_t most, Tensor* hidden, const Tensor& source) {
  const auto beams = static_cast<size_t>(o.beams);
  check(rows.rows() == o.beams, "beam_search", o.beams, " beams want as many rows, there are ", rows.rows());
  check(rows.vocab() > static_cast<int64_t>(o.stop_ids.size()) && rows.vocab() > 1, "beam_search", "a vocabulary of ",
        rows.vocab(), " with ", o.stop_ids.size(), " stop ids leaves nothing to continue with");
  const NoGrad guard;
  rows.start(0, prompt, o, 0, 0, hidden, source);
  for (int64_t r = 1; r < o.beams; ++r) rows.copy(0, r, o.seed);
  const auto keep = static_cast<int64_t>(std::max<size_t>(2, 1 + o.stop_ids.size()) * beams);
  // All begin alike: only the first one's continuations count.
  std::vector<Candidate> running(beams), whole(beams);
  running[0].score = 0;
  bool may_improve = true;
  for (int64_t written = 0; written < most;) {
    rows.read();
    std::vector<Candidate> next = continuations(rows, running, keep, o, written);
    const bool full = std::ranges::all_of(whole, &Candidate::is_whole);
    std::vector<Candidate> ended = whole;
    bool all_stop = true;
    for (size_t i = 0; i < next.size(); ++i) {
      Candidate& c = next[i];
      c.stopped = std::ranges::find(o.stop_ids, c.tokens.back()) != o.stop_ids.end();
      const bool stops = c.stopped || written + 1 >= most;
      all_stop = all_stop && stops;
      Candidate end = c;
      end.score = over_length(c.score, written + 1, o.length_penalty);
      end.is_whole = stops && i < beams;
      if ((full && o.early_stopping == EarlyStopping::at_once) || !may_improve) end.score += kNone;
      if (!end.is_whole) end.score += kNone;
      ended.push_back(std::move(end));
      if (stops) c.score += kNone;
    }
    running = best(std::move(next), beams);
    whole = best(std::move(ended), beams);
    ++written;

    // Whether a text that runs may still become better than a whole one.
    const bool longest = o.early_stopping == EarlyStopping::never && o.length_penalty > 0;
    const float hope = over_length(running[0].score, longest ? most : written, o.length_penalty);
    float least = std::numeric_limits<float>::infinity();
    for (const Candidate& c : whole) least = std::min(least, c.score);
    may_improve = may_improve &&
                  std::ranges::any_of(whole, [&](const Candidate& c) { return hope > (c.is_whole ? least : kNone); });
    const bool done = std::ranges::all_of(whole, &Candidate::is_whole) && o.early_stopping == EarlyStopping::at_once;
    if (!may_improve || done || all_stop) break;

    std::vector<int64_t> from(beams), ids(beams);
    for (size_t i = 0; i < beams; ++i) from[i] = running[i].row, ids[i] = running[i].tokens.back();
    rows.reorder(from);
    rows.append(from_span<int64_t>(ids, {o.beams}).to(rows.logits().device()));
  }
  for (int64_t r = 0; r < o.beams; ++r) rows.stop(r);
  std::vector<Beam> found;
  for (Candidate& c : whole)
    if (c.is_whole)
      found.push_back({std::move(c.tokens), static_cast<double>(c.score), c.stopped, std::move(c.logprobs)});
  return found;
}

}  // namespace strata
