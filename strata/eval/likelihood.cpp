#include "strata/eval/likelihood.h"

#include <algorithm>
#include <numeric>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::eval {
namespace {

constexpr const char* kOp = "log_likelihoods";

// What of a request the model reads, and where the continuation's logits begin.
struct Row {
  size_t request = 0;
  std::vector<int64_t> input, targets;
  int64_t first = 0;  // position whose logits are of targets[0]
};

Row row_of(const LikelihoodRequest& r, size_t index, int64_t context) {
  check(!r.context.empty() && !r.continuation.empty(), kOp, "request ", static_cast<int64_t>(index), " has ",
        r.context.empty() ? "no context" : "no continuation");
  const auto length = static_cast<int64_t>(r.continuation.size());
  check(length <= context, kOp, "request ", static_cast<int64_t>(index), "'s continuation of ", length,
        " tokens is longer than the model's context of ", context);
  Row row{.request = index, .input = {}, .targets = {r.continuation.begin(), r.continuation.end()}, .first = 0};
  std::vector<int64_t> all(r.context.begin(), r.context.end());
  all.insert(all.end(), r.continuation.begin(), r.continuation.end());
  const auto size = static_cast<int64_t>(all.size());
  const int64_t from = std::max<int64_t>(0, size - (context + 1));
  row.input.assign(all.begin() + from, all.end() - 1);
  row.first = static_cast<int64_t>(row.input.size()) - length;
  return row;
}

}  // namespace

std::vector<Likelihood> log_likelihoods(const Subject& subject, const std::vector<LikelihoodRequest>& requests,
                                        int64_t batch) {
  check(batch > 0, kOp, "a batch is at least 1, got ", batch);
  check(subject.context > 0, kOp, "the model has a context of ", subject.context);
  std::vector<Row> rows;
  for (size_t i = 0; i < requests.size(); ++i) rows.push_back(row_of(requests[i], i, subject.context));
  // The longest first: what does not fit into memory shows at once.
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.input.size() > b.input.size(); });

  std::vector<Likelihood> results(requests.size());
  const NoGrad guard;
  for (size_t begin = 0; begin < rows.size(); begin += static_cast<size_t>(batch)) {
    const size_t end = std::min(rows.size(), begin + static_cast<size_t>(batch));
    const auto time = static_cast<int64_t>(rows[begin].input.size());
    std::vector<int64_t> tokens, places, targets;
    for (size_t i = begin; i < end; ++i) {
      const Row& row = rows[i];
      const int64_t start = static_cast<int64_t>(i - begin) * time;
      tokens.insert(tokens.end(), row.input.begin(), row.input.end());
      tokens.resize(static_cast<size_t>(start + time), subject.prefix);
      for (size_t k = 0; k < row.targets.size(); ++k) places.push_back(start + row.first + static_cast<int64_t>(k));
      targets.insert(targets.end(), row.targets.begin(), row.targets.end());
    }
    const auto to_device = [&](const std::vector<int64_t>& v, const Shape& shape) {
      return from_span<int64_t>(v, shape).to(subject.device);
    };
    const auto count = static_cast<int64_t>(targets.size());
    const Tensor logits = subject.logits(to_device(tokens, {static_cast<int64_t>(end - begin), time}));
    check<ShapeError>(
        logits.dim() == 3 && logits.size(0) == static_cast<int64_t>(end - begin) && logits.size(1) == time, kOp,
        "the model's logits are ", logits, " for ", static_cast<int64_t>(end - begin), " rows of ", time);
    for (const int64_t t : targets)
      check<IndexError>(t >= 0 && t < logits.size(2), kOp, "token ", t, " is not among the ", logits.size(2),
                        " logits");
    const Tensor asked =
        index_select(logits.reshape({-1, logits.size(2)}), 0, to_device(places, {count})).to(DType::f32);
    const Tensor wanted = to_device(targets, {count});
    const std::vector<float> losses = cross_entropy(asked, wanted, {.reduction = "none"}).to_vector<float>();
    const std::vector<int64_t> likeliest = argmax(asked, 1).to_vector<int64_t>();
    size_t at = 0;
    for (size_t i = begin; i < end; ++i) {
      Likelihood& result = results[rows[i].request];
      for (const int64_t target : rows[i].targets) {
        result.log_probability -= static_cast<double>(losses[at]);
        result.greedy &= likeliest[at] == target;
        ++at;
      }
    }
  }
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
  const size_t last = context.find_last_not_of(" \t\n\v\f\r");
  const size_t kept = last == std::string::npos ? 0 : last + 1;
  if (kept == 0) return encode_pair(subject, {}, context + continuation);
  continuation.insert(0, context, kept);
  context.resize(kept);
  const std::vector<int32_t> whole = subject.encode(context + continuation);
  std::vector<int32_t> before = subject.encode(context);
  check(whole.size() > before.size(), "encode_pair", "'", continuation, "' has no token of its own after its context");
  return {before, {whole.begin() + static_cast<int64_t>(before.size()), whole.end()}};
}

}  // namespace strata::eval
