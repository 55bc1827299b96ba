#include "strata/nn/expert_exchange_inl.h"

#include <vector>

#include "strata/core/node.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/experts/experts.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/view/view.h"

namespace strata::nn {
ExpertExchange::ExpertExchange(const Tensor& offsets, const std::string& axis, int64_t ranks) : axis_(axis) {
  const NoGrad guard;
  const int64_t count = offsets.size(0) - 1, own = count / ranks;
  const Tensor going = offsets.narrow(0, 1, count) - offsets.narrow(0, 0, count);
  const std::vector<int64_t> comes = distributed::all_to_all(going, 0, 0, axis).to_vector<int64_t>(),
                             goes = going.to_vector<int64_t>();
  std::vector<int64_t> gives(static_cast<size_t>(ranks)), gets(gives), begins(static_cast<size_t>(own + 1)), place;
  for (size_t i = 0; i < goes.size(); ++i) {
    gives[i / static_cast<size_t>(own)] += goes[i];
    gets[i / static_cast<size_t>(own)] += comes[i];
    begins[i % static_cast<size_t>(own) + 1] += comes[i];
  }
  for (size_t e = 1; e < begins.size(); ++e) begins[e] += begins[e - 1];
  // By rank, then by expert, is how they come.
  std::vector<int64_t> next(begins);
  for (size_t i = 0; i < comes.size(); ++i)
    for (int64_t n = 0; n < comes[i]; ++n) place.push_back(next[i % static_cast<size_t>(own)]++);
  const auto there = [&](const std::vector<int64_t>& v, const Shape& shape) {
    return from_span<int64_t>(v, shape).to(offsets.device());
  };
  gives_ = there(gives, {ranks});
  gets_ = there(gets, {ranks});
  place_ = there(place, {static_cast<int64_t>(place.size()), 1});
  offsets_ = there(begins, {own + 1});
}

Tensor ExpertExchange::there(const Tensor& rows) const {
  return dispatch_rows(distributed::all_to_all_rows(rows, gives_, gets_, axis_), place_, place_.size(0));
}
Tensor ExpertExchange::back(const Tensor& rows) const {
  return distributed::all_to_all_rows(combine_rows(rows, place_), gets_, gives_, axis_);
}

}  // namespace strata::nn
