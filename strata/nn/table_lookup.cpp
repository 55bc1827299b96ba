#include "strata/nn/table_lookup_inl.h"

#include <algorithm>
#include <utility>

#include "strata/autograd/function.h"
#include "strata/core/placement.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/embedding/embedding.h"
#include "strata/ops/embedding/table_gradient_inl.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/view/view.h"

namespace strata::nn::detail {
namespace {

using distributed::TableRows;

Tensor shaped(const Tensor& rows, const Tensor& indices) {
  Shape shape = indices.shape();
  shape.push_back(rows.size(1));
  return rows.view(shape);
}

// Rows of a table, and its whole gradient. The table is an argument for its leaf alone: no kernel reads it, so that it
// does not come.
struct RowsForward : Function<RowsForward> {
  struct Ctx : FunctionCtx {
    int64_t rows = 0;
    std::optional<int64_t> padding;
  };
  static Tensor forward(Ctx& ctx, const Tensor& weight, const Tensor& indices, std::optional<int64_t> padding,
                        const TableRows& rows, const TableRows::Asked& asked) {
    ctx.rows = weight.size(0);
    ctx.padding = padding;
    ctx.save_for_backward({indices});
    return shaped(rows.look_up(asked), indices);
  }
  static TensorList backward(Ctx& ctx, const TensorList& gy) {
    return {strata::detail::table_gradient(gy[0], ctx.saved_tensors()[0], ctx.rows, ctx.padding), Tensor()};
  }
};

// Rows of a table whose gradient is kept for settle().
struct RowsBothWays : Function<RowsBothWays> {
  struct Ctx : FunctionCtx {
    std::shared_ptr<TableLookup::Call> call;
  };
  static Tensor forward(Ctx& ctx, const Tensor&, const Tensor& indices, const TableRows& rows,
                        const std::shared_ptr<TableLookup::Call>& call) {
    ctx.call = call;
    return shaped(rows.look_up(call->asked), indices);
  }
  static TensorList backward(Ctx& ctx, const TensorList& gy) {
    check<AutogradError>(!grad_enabled(), "embedding",
                         "rows of a table that lies in parts have no second derivative: set rows_from of FullySharded "
                         "so that it is read whole");
    const Tensor rows = gy[0].contiguous().view({-1, gy[0].shape().back()});
    Tensor& sum = ctx.call->gradient;
    sum = sum.defined() ? sum + rows : rows;
    return {Tensor(), Tensor()};
  }
};

// Whether somebody wants to see the gradient of all of it.
bool is_watched(const Tensor& leaf) {
  const Edge edge = gradient_edge(leaf);
  const TensorHooks* const hooks = edge.node ? edge.node->leaf_hooks() : nullptr;
  if (hooks == nullptr) return false;
  return std::ranges::any_of(hooks->list(), [](const TensorHooks::Entry& e) { return !e.hook->removed; });
}

}  // namespace

TableLookup::TableLookup(std::string name, TableRows rows, Gradient gradient)
    : name_(std::move(name)), rows_(std::move(rows)), gradient_(gradient) {}

void TableLookup::begin_pass() {
  in_pass_ = true;
  number_ = 0;
}

Tensor TableLookup::forward(const Tensor& indices, const Tensor& weight, std::optional<int64_t> padding) {
  const bool learns = grad_enabled() && weight.requires_grad();
  const bool knows_how =
      !learns || gradient_ == Gradient::whole || (gradient_ == Gradient::rows && !is_watched(weight));
  const bool are_ids = indices.dtype() == DType::i64 || indices.dtype() == DType::i32;
  if (!in_pass_ || !knows_how || !are_ids || is_placed(indices) || indices.device() != weight.device())
    return embedding(indices, weight, padding);
  std::vector<int64_t> counts = rows_.agree(indices.numel(), number_++);
  if (!rows_.pays(counts)) return embedding(indices, weight, padding);
  TableRows::Asked asked = rows_.ask(indices, std::move(counts));
  if (!learns) {
    const NoGrad guard;
    return shaped(rows_.look_up(asked), indices);
  }
  if (gradient_ == Gradient::whole) return RowsForward::apply(weight, indices, padding, rows_, asked);
  if (!leaf_.defined()) {
    leaf_ = zeros({1}, weight.dtype()).to(weight.device());
    leaf_.set_requires_grad();
  }
  if (padding && *padding < 0) padding = *padding + weight.size(0);
  calls_.push_back(std::make_shared<Call>(Call{std::move(asked), padding, {}}));
  return RowsBothWays::apply(leaf_, indices, rows_, calls_.back());
}

distributed::RowGradients::Settled TableLookup::settle(bool whole) {
  const std::vector<std::shared_ptr<Call>> calls = std::exchange(calls_, {});
  const bool here = std::ranges::any_of(calls, [](const auto& c) { return c->gradient.defined(); });
  const std::vector<uint8_t> anywhere = rows_.largest({static_cast<uint8_t>(here), static_cast<uint8_t>(whole)});
  Settled settled{.part = {}, .whole = anywhere[1] != 0};
  if (!anywhere[0]) return settled;
  std::vector<TableRows::Given> given;
  for (size_t i = calls.size(); i-- > 0;)  // as backward goes
    given.push_back({&calls[i]->asked, calls[i]->gradient, calls[i]->padding});
  settled.part = rows_.gradient(given);
  return settled;
}

}  // namespace strata::nn::detail
