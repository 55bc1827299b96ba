#include <limits>

#include "strata/core/node.h"
#include "strata/generate/timestamp_scores_inl.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata::detail {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr int64_t kAny = std::numeric_limits<int32_t>::max();

}  // namespace

TimestampRows::TimestampRows(int64_t rows) {
  const auto column = [&] { return zeros({rows, 1}, DType::i64); };
  on_ = column(), begin_ = column(), end_ = column(), most_ = column();
  last_ = column(), before_ = column(), newest_ = column();
}

std::vector<Tensor> TimestampRows::columns() const {
  return {on_, begin_, end_, most_, last_, before_, newest_};
}

void TimestampRows::start(int64_t row, const std::optional<TimestampRules>& rules) {
  const TimestampRules r = rules.value_or(TimestampRules{});
  const auto set = [&](const Tensor& column, int64_t value) {
    narrow(column, 0, row, 1).fill_(static_cast<double>(value));
  };
  set(on_, rules.has_value()), set(begin_, r.begin), set(end_, r.end);
  set(most_, r.most_initial < 0 ? kAny : r.begin + r.most_initial);
  set(last_, -1), set(before_, -1), set(newest_, -1);
}

void TimestampRows::draw(const Tensor& ids, const Tensor& running) {
  const Tensor drawn = ids.view({ids.size(0), 1}), runs = running.view({ids.size(0), 1}) != 0;
  before_.copy_(where(runs, last_, before_));
  last_.copy_(where(runs, drawn, last_));
  newest_.copy_(where(logical_and(runs, ge(drawn, begin_)), drawn, newest_));
}

Tensor TimestampRows::restrict(const Tensor& scores, const Tensor& drawn) const {
  const int64_t rows = scores.size(0);
  const DeviceScope there(scores.device());
  const Tensor id = arange(scores.size(1), DType::i64).view({1, scores.size(1)});
  const Tensor count = drawn.view({rows, 1}), first = count == 0;
  const Tensor last = logical_and(count >= 1, ge(last_, begin_));     // the last was a time
  const Tensor before = logical_or(count < 2, ge(before_, begin_));  // and the one before it
  const Tensor is_time = ge(id, begin_), single = logical_and(last, logical_not(before));
  // Times before it are over. A time that ends a text may begin the next.
  const Tensor least = where(single, newest_, newest_ + 1);
  Tensor never = eq(id, begin_ - 1);
  never = logical_or(never, logical_and(logical_and(last, before), is_time));
  never = logical_or(never, logical_and(single, lt(id, end_)));
  never = logical_or(never, logical_and(is_time, lt(id, least)));
  never = logical_or(never, logical_and(first, logical_or(logical_not(is_time), gt(id, most_))));
  const Tensor on = on_ != 0;
  const Tensor x = where(logical_and(on, never), kNever, scores.to(DType::f32));
  // The probability of all times together against that of each text.
  const Tensor times = logsumexp(where(is_time, x, kNever), {-1}, true);
  const Tensor texts = amax(where(is_time, kNever, x), {-1}, true);
  const Tensor sure = logical_and(on, gt(times, texts));
  return where(logical_and(sure, logical_not(is_time)), kNever, x);
}

}  // namespace strata::detail
