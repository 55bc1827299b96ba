#include "strata/nn/expert_exchange_inl.h"

#include <vector>

#include "strata/core/node.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/experts/experts.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"
#include "strata/ops/sort/sort.h"
#include "strata/ops/view/view.h"

namespace strata::nn {
ExpertExchange::ExpertExchange(const Tensor& offsets, const std::string& axis, int64_t ranks) : axis_(axis) {
  const NoGrad guard;
  const int64_t count = offsets.size(0) - 1, own = count / ranks;
  const Tensor going = offsets.narrow(0, 1, count) - offsets.narrow(0, 0, count);
  // The device is waited for once; expert e of rank r is at r own + e.
  const std::vector<int64_t> both =
      strata::cat({going, distributed::all_to_all(going, 0, 0, axis)}, 0).to_vector<int64_t>();
  const int64_t* const goes = both.data();
  const int64_t* const comes = goes + count;
  gives_.assign(static_cast<size_t>(ranks), 0), gets_ = gives_;
  // Where each expert's rows begin, where those of each rank and expert begin as they come, and how far from there they
  // go: they come by rank, then by expert.
  std::vector<int64_t> all(static_cast<size_t>(own + 1 + count + count));
  int64_t *const begins = all.data(), *const starts = begins + own + 1, *const shifts = starts + count;
  for (int64_t i = 0; i < count; ++i) {
    gives_[static_cast<size_t>(i / own)] += goes[i], gets_[static_cast<size_t>(i / own)] += comes[i];
    begins[i % own + 1] += comes[i];
    if (i > 0) starts[i] = starts[i - 1] + comes[i - 1];
  }
  for (int64_t e = 0; e < own; ++e) begins[e + 1] += begins[e];
  std::vector<int64_t> next(begins, begins + own);
  for (int64_t i = 0; i < count; ++i) {
    shifts[i] = next[static_cast<size_t>(i % own)] - starts[i];
    next[static_cast<size_t>(i % own)] += comes[i];
  }
  const int64_t rows = begins[own];
  const Tensor there = from_span<int64_t>(all, {static_cast<int64_t>(all.size())}).to(offsets.device());
  offsets_ = there.narrow(0, 0, own + 1);
  const DeviceScope here(offsets.device());
  const Tensor row = arange(rows, DType::i64);
  const Tensor from = searchsorted(there.narrow(0, own + 1, count), row, true) - 1;
  place_ = (row + index_select(there.narrow(0, own + 1 + count, count), 0, from)).unsqueeze(1);
}

Tensor ExpertExchange::there(const Tensor& rows) const {
  return dispatch_rows(distributed::exchange_rows(rows, gives_, gets_, axis_), place_, place_.size(0));
}
Tensor ExpertExchange::back(const Tensor& rows) const {
  return distributed::exchange_rows(combine_rows(rows, place_), gets_, gives_, axis_);
}

}  // namespace strata::nn
