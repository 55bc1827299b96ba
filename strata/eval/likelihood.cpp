#include "strata/eval/likelihood.h"

#include <algorithm>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/eval/batches_inl.h"
#include "strata/eval/blanks_inl.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::eval {

std::vector<Likelihood> log_likelihoods(const Subject& subject, const std::vector<LikelihoodRequest>& requests,
                                        int64_t batch, const Watch& watch) {
  constexpr const char* kOp = "log_likelihoods";
  std::vector<Likelihood> results(requests.size());
  const NoGrad guard;
  for_each_pass(kOp, requests, subject.context, subject.prefix, batch, watch, [&](const Pass& pass) {
    const Tensor hidden = subject.hidden(pass.tokens.to(subject.device));
    for (const Stretch& stretch : stretches(pass, subject.device)) {
      const Tensor logits = logits_at(kOp, subject, hidden, pass, stretch);
      const std::vector<float> losses =
          cross_entropy(logits, stretch.targets, {.reduction = "none"}).to_vector<float>();
      const std::vector<int64_t> likeliest = argmax(logits, 1).to_vector<int64_t>();
      for (size_t i = 0; i < losses.size(); ++i) {
        Likelihood& result = results[pass.requests[stretch.first + i]];
        result.log_probability -= static_cast<double>(losses[i]);
        result.greedy &= likeliest[i] == pass.targets[stretch.first + i];
      }
    }
  });
  return results;
}

std::vector<LikelihoodRequest> rolling_windows(const std::vector<int32_t>& tokens, const Subject& subject,
                                               int64_t overlap) {
  const int64_t most = subject.context;
  check(overlap >= 1 && overlap <= most, "rolling_windows", "an overlap of ", overlap, " tokens does not go with a ",
        "context of ", most);
  std::vector<LikelihoodRequest> windows;
  const auto size = static_cast<int64_t>(tokens.size());
  const auto part = [&](int64_t from, int64_t to) {
    return std::vector<int32_t>(tokens.begin() + from, tokens.begin() + to);
  };
  for (int64_t done = 0; done < size;) {
    if (done == 0) {
      done = std::min(most, size);
      windows.push_back({{subject.prefix}, part(0, done)});
      continue;
    }
    const int64_t end = std::min(size, done + most - overlap + 1);
    const int64_t from = end - most - 1;
    // Of what a window reads only what is before its own tokens is context.
    windows.push_back({part(std::max<int64_t>(from, 0), done), part(done, end)});
    done = end;
  }
  return windows;
}

LikelihoodRequest encode_pair(const Subject& subject, std::string context, std::string continuation) {
  check(!continuation.empty(), "encode_pair", "the continuation is empty");
  if (context.empty()) {
    std::vector<int32_t> ids = subject.encode_plain(continuation);
    check(!ids.empty(), "encode_pair", "the continuation has no tokens");
    if (ids.front() == subject.prefix && ids.size() > 1) return {{ids.front()}, {ids.begin() + 1, ids.end()}};
    return {{subject.prefix}, std::move(ids)};
  }
  const size_t kept = without_blanks(context);
  if (kept == 0) return encode_pair(subject, {}, context + continuation);
  continuation.insert(0, context, kept);
  context.resize(kept);
  const std::vector<int32_t> whole = subject.encode(context + continuation);
  std::vector<int32_t> before = subject.encode(context);
  check(whole.size() > before.size(), "encode_pair", "'", continuation, "' has no token of its own after its context");
  return {before, {whole.begin() + static_cast<int64_t>(before.size()), whole.end()}};
}

}  // namespace strata::eval
