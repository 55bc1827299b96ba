#include "strata/train/exact_step_inl.h"

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/dist/collectives/placed.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/join/join.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {

std::string ExactStep::refuses(const TrainConfig& c) {
  const int64_t n = c.parallel.exact;
  if (n == 0) return {};
  std::string what;
  const auto refuse = [&](bool yes, const std::string& text) {
    if (yes && what.empty()) what = cat("parallel.exact = ", n, " is not for ", text);
  };
  refuse(c.parallel.cp > 1,
         cat("parallel.cp = ", c.parallel.cp,
             ": a rank has the gradients of its positions alone, "
             "and their sum over ranks is not to the last bit what one product over all positions gives"));
  refuse(c.parallel.zero > 1 && !c.parallel.every_pass,
         "parallel.every_pass = false: of parts every micro-batch's gradients travel");
  refuse(c.memory.any(), "[memory]: what it moves is planned for other passes");
  refuse(c.data.format != "text",
         cat("data.format = ", c.data.format, ": its rows have different numbers of learned tokens"));
  refuse(c.dtype == "fp8", "train.dtype = fp8: scales are those of the rows that are computed together");
  refuse(c.grad_dtype != "f32", cat("train.grad_dtype = ", c.grad_dtype, ": gradients are added in f32"));
  if (what.empty() && c.batch % n != 0)
    what = cat("parallel.exact is ", n, ", which does not divide the ", c.batch, " rows of train.batch");
  if (const int64_t dp = c.parallel.dp; what.empty() && dp > 0 && n % dp != 0)
    what = cat("parallel.exact is ", n, ", which ", dp, " ranks do not share evenly: take a multiple of the ranks");
  return what;
}

ExactStep::ExactStep(const nn::NamedTensors& parameters, distributed::Group* group, const TrainConfig& config,
                     nn::FullySharded* sharded)
    : group_(group),
      sharded_(sharded),
      count_(config.parallel.exact * config.accumulate),
      accumulate_(config.accumulate),
      columns_(config.parallel.exact) {
  if (sharded_) {
    apart_ = group_->size();
    first_ = group_->rank();
    own_ = count_ / apart_;
    return;
  }
  gradients_.emplace(parameters, group, count_);
  own_ = gradients_->count();
  first_ = gradients_->first();
  columns_ = own_ / accumulate_;
  first_column_ = first_ / accumulate_;
}

void ExactStep::run(const std::vector<data::Batch>& batches, const std::function<Tensor(const data::Batch&)>& loss,
                    const std::function<void(const Tensor&)>& backward, bool travels) {
  if (gradients_) gradients_->begin();
  losses_.clear();
  Generator& random = default_generator();
  const RngKey start = random.state();
  for (int64_t i = 0; i < own_; ++i) {
    const int64_t number = first_ + i * apart_;
    random.set_state(
        {start.seed, start.offset + static_cast<uint64_t>(number) * (kStepDraws / static_cast<uint64_t>(count_))});
    data::Batch micro;
    for (const Tensor& t : batches[static_cast<size_t>(number % accumulate_)]) {
      const int64_t rows = t.size(0) / columns_;
      micro.push_back(t.narrow(0, (number / accumulate_ - first_column_) * rows, rows));
    }
    const nn::FullySharded::Pass parts(sharded_);
    if (sharded_) sharded_->reduce_next(i + 1 == own_);
    const Tensor l = loss(micro);
    {
      const NoGrad guard;
      losses_.push_back(to(distributed::full_tensor(l.detach()), DType::f64).view({1}));
    }
    if (gradients_ && travels && i + 1 == own_) gradients_->reduce_next();
    backward(count_ == 1 ? l : l * (1.0 / static_cast<double>(count_)));
    if (gradients_) gradients_->add();
  }
  random.set_state({start.seed, start.offset + kStepDraws});
}

Tensor ExactStep::finish() {
  if (gradients_) gradients_->finish();
  const NoGrad guard;
  Tensor own = cat(losses_, 0), all = own;
  losses_.clear();
  if (group_) {
    all = empty(TensorMeta{{count_}, DType::f64, own.device(), std::nullopt});
    group_->run(own.device(), "losses of micro-batches", [&](distributed::Collectives& c) {
      c.all_gather(all.raw_data(), own.raw_data(), static_cast<size_t>(own.nbytes()));
    });
    // By their numbers.
    if (apart_ > 1) all = contiguous(all.view({apart_, own_}).t()).view({count_});
  }
  return sum(all) * (1.0 / static_cast<double>(count_));
}

}  // namespace strata
