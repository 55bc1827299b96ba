#include <algorithm>
#include <span>

#include "strata/core/error.h"
#include "strata/eval/batches_inl.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"

namespace strata::eval {
namespace {

constexpr size_t kStretch = 256;  // places whose logits are in memory at a time

// What of a request the model reads, and where the continuation's logits begin.
struct Row {
  size_t request = 0;
  std::vector<int64_t> input, targets;
  int64_t first = 0;  // position whose logits are of targets[0]
};

Row row_of(const char* op, const LikelihoodRequest& r, size_t index, int64_t context) {
  check(!r.context.empty() && !r.continuation.empty(), op, "request ", static_cast<int64_t>(index), " has ",
        r.context.empty() ? "no context" : "no continuation");
  const auto length = static_cast<int64_t>(r.continuation.size());
  check(length <= context, op, "request ", static_cast<int64_t>(index), "'s continuation of ", length,
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

void for_each_pass(const char* op, const std::vector<LikelihoodRequest>& requests, int64_t context, int32_t filler,
                   int64_t batch, const Watch& watch, const std::function<void(const Pass&)>& f) {
  check(batch > 0, op, "a batch is at least 1, got ", batch);
  check(context > 0, op, "the model has a context of ", context);
  std::vector<Row> rows;
  for (size_t i = 0; i < requests.size(); ++i) rows.push_back(row_of(op, requests[i], i, context));
  // The longest first: what does not fit into memory shows at once.
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.input.size() != b.input.size() ? a.input.size() > b.input.size() : a.input < b.input;
  });
  const auto repeats = [&](size_t i) { return i > 0 && rows[i].input == rows[i - 1].input; };
  int64_t all = 0, done = 0;
  for (size_t i = 0; i < rows.size(); ++i) all += repeats(i) ? 0 : static_cast<int64_t>(rows[i].input.size());

  for (size_t i = 0; i < rows.size();) {
    check(!watch || watch(done, all), "", "stopped after ", done, " of ", all, " tokens");
    const auto time = static_cast<int64_t>(rows[i].input.size());
    Pass pass;
    std::vector<int64_t> tokens;
    int64_t height = 0;
    for (const size_t begin = i; i < rows.size(); ++i) {
      const Row& row = rows[i];
      if (i == begin || !repeats(i)) {
        if (height == batch) break;
        tokens.insert(tokens.end(), row.input.begin(), row.input.end());
        tokens.resize(static_cast<size_t>(++height * time), filler);
        done += static_cast<int64_t>(row.input.size());
      }
      for (size_t k = 0; k < row.targets.size(); ++k) {
        pass.places.push_back((height - 1) * time + row.first + static_cast<int64_t>(k));
        pass.requests.push_back(row.request);
      }
      pass.targets.insert(pass.targets.end(), row.targets.begin(), row.targets.end());
    }
    pass.tokens = from_span<int64_t>(tokens, {height, time});
    f(pass);
  }
  if (watch) watch(done, all);
}

std::vector<Stretch> stretches(const Pass& pass, Device device) {
  std::vector<Stretch> parts;
  for (size_t begin = 0; begin < pass.places.size(); begin += kStretch) {
    const size_t n = std::min(kStretch, pass.places.size() - begin);
    const auto part = [&](const std::vector<int64_t>& v) {
      return from_span<int64_t>(std::span(v).subspan(begin, n), {static_cast<int64_t>(n)}).to(device);
    };
    parts.push_back({begin, part(pass.places), part(pass.targets)});
  }
  return parts;
}

Tensor logits_at(const char* op, const Subject& subject, const Tensor& hidden, const Pass& pass,
                 const Stretch& stretch) {
  check<ShapeError>(hidden.dim() == 3 && hidden.size(0) == pass.tokens.size(0) && hidden.size(1) == pass.tokens.size(1),
                    op, "the model gives ", hidden, " for ", pass.tokens.size(0), " rows of ", pass.tokens.size(1));
  const Tensor logits =
      subject.logits(index_select(hidden.reshape({-1, hidden.size(2)}), 0, stretch.places)).to(DType::f32);
  const int64_t n = stretch.places.numel();
  check<ShapeError>(logits.dim() == 2 && logits.size(0) == n, op, "the model's logits are ", logits, " for ", n,
                    " places");
  for (size_t i = stretch.first; i < stretch.first + static_cast<size_t>(n); ++i)
    check<IndexError>(pass.targets[i] >= 0 && pass.targets[i] < logits.size(1), op, "token ", pass.targets[i],
                      " is not among the ", logits.size(1), " logits");
  return logits;
}

}  // namespace strata::eval
