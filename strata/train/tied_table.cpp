// The tied table of a pipeline: its gradient goes from the last stage's rank to the first one's, and it comes back.

#include <utility>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/memory/allocator.h"
#include "strata/nn/fully_sharded.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/train/model_pipeline_inl.h"

namespace strata {

namespace {

// What the ranks send each other beside the pipeline's own messages: to the tied table's owner, and back.
constexpr uint64_t kToOwner = uint64_t{1} << 32, kToCopy = kToOwner + 1;

std::string table_text(int micro) {
  return cat("message(gradient of a tied table of micro-batch ", micro, ')');
}

// All of `t` on a way from or to this rank.
void hand_over(distributed::Group& group, const std::string& what, const distributed::Group::Way& way,
               const Tensor& t) {
  const std::string text = cat("message(", what, ") ", t.dtype(), ' ', t.shape());
  (group.rank() == way.from ? group.send(t, way, text) : group.receive(t, way, text)).wait();
}

}  // namespace

distributed::Group::Way ModelPipeline::to_owner() const {
  const std::vector<int>& ranks = train_->table().rank_of;
  return {ranks.back(), ranks.front(), kToOwner};
}
distributed::Group::Way ModelPipeline::to_copy() const {
  const std::vector<int>& ranks = train_->table().rank_of;
  return {ranks.front(), ranks.back(), kToCopy};
}

void ModelPipeline::send_table(int micro, const Tensor& gradient) {
  // What the owner has taken before it began this micro-batch is there.
  while (!sent_.empty() && sent_.front().micro < taken_before_[static_cast<size_t>(micro)]) {
    sent_.front().work.wait();
    sent_.pop_front();
  }
  const Tensor whole = gradient.to(model_->token_embedding.weight.dtype()).contiguous();
  sent_.push_back({micro, group_.send(whole, to_owner(), table_text(micro))});
}

Tensor ModelPipeline::take_table(int micro) {
  if (has_last_) {
    auto part = tables_.extract(micro);
    return std::move(part.mapped());
  }
  const memory::TagScope tag(memory::Tag::gradient);
  const Tensor& weight = model_->token_embedding.weight;
  const Tensor g = empty(TensorMeta{weight.shape(), weight.dtype(), weight.device(), std::nullopt});
  group_.receive(g, to_owner(), table_text(micro)).wait();
  return g;
}

void ModelPipeline::join_tied(const Tensor& table) {
  const std::vector<int>& ranks = train_->table().rank_of;
  if (!tied_ || ranks.front() == ranks.back() || !(has_first_ || has_last_)) return;
  const NoGrad guard;
  const memory::TagScope tag(memory::Tag::gradient);
  Tensor handle = table;
  const Tensor own = handle.grad(), here = own.defined() ? strata::detail::here(own) : own;
  const TensorMeta meta = strata::detail::here(table).meta();
  if (meta.shape.product() == 0) return;
  const Tensor sent = has_last_ ? here.to(meta.dtype).contiguous()
                                : empty(TensorMeta{meta.shape, meta.dtype, meta.device, std::nullopt});
  hand_over(group_, "gradient of a tied table", to_owner(), sent);
  if (has_last_) return handle.set_grad({});
  const Tensor sum = here.defined() ? here + sent : sent;
  handle.set_grad(
      is_placed(table)
          ? strata::detail::place(sum, {table.shape(), sum.dtype(), sum.device(), std::nullopt}, layout_of(table))
          : sum);
}

void ModelPipeline::renew_tied() {
  const std::vector<int>& ranks = train_->table().rank_of;
  if (!tied_ || ranks.front() == ranks.back() || !(has_first_ || has_last_)) return;
  const NoGrad guard;
  // Where the table lies in parts both ends have the same rows.
  const Tensor weight = model_->token_embedding.weight, own = strata::detail::here(nn::as_it_lies(weight));
  if (own.numel() == 0) return;
  const Tensor table =
      has_first_ ? own.detach().contiguous() : empty(TensorMeta{own.shape(), own.dtype(), own.device(), std::nullopt});
  hand_over(group_, "tied table", to_copy(), table);
  if (!has_last_) return;
  copy_elements(own, table);
  bump_version(nn::lies_in_parts(weight) ? own : weight, "renew_tied");  // what was made of it is old now
}

}  // namespace strata
