#include "strata/train/ranks.h"

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/train/fine_tune_inl.h"

namespace strata {

Ranks::Ranks(const TrainConfig& config) : zero_(config.parallel.zero) {
  using namespace distributed;
  const int64_t ranks = distributed::size(), dp = config.parallel.dp;
  check(dp == 0 || dp == ranks, "train", "parallel.dp is ", dp, ", and the job has ", ranks,
        ranks == 1 ? " rank: start it with strata launch -n " : " ranks: start it with strata launch -n ", dp,
        ", mpirun, srun or torchrun");
  if (ranks == 1) return;
  check(config.batch % ranks == 0, "train", "train.batch is ", config.batch, ", which ", ranks,
        " ranks do not share evenly: it counts the rows of all of them");
  check(config.data.format == "text", "train", "data.format = ", config.data.format, " is for one rank: its ",
        "rows have different numbers of learned tokens, so the ranks' losses cannot be averaged");
  check(!config.memory.any(), "train", "[memory] is for one rank: leave it out, or train on one");
  check(zero_ == 0 || config.tune.method == "full", "train", "parallel.zero is for tune.method = full, not ",
        config.tune.method);
  set_mesh(Mesh(cat("dp=", ranks)));
  group_ = &group("dp");
  rank_ = group_->rank();
  size_ = group_->size();
}
Ranks::~Ranks() = default;

void Ranks::meet() const {
  if (group_) group_->barrier();
}

nn::NamedTensors Ranks::share_parameters(const nn::Module& model) {
  if (!group_ || zero_ == 0) return trained_parameters(model);
  sharded_ = std::make_unique<nn::FullySharded>(model, nn::FullyShardedOptions{.zero = static_cast<int>(zero_)});
  return sharded_->parameters();
}

void Ranks::take_gradients(const nn::Module& model) {
  if (group_ && !sharded_)
    gradients_ = std::make_unique<distributed::DataParallel>(trained_parameters(model), *group_);
}

void Ranks::last_pass(bool yes) const {
  if (gradients_) gradients_->reduce_next(yes);
  if (sharded_) sharded_->reduce_next(yes);
}

Device Ranks::device(const TrainConfig& config) {
  const Device wanted = parse_device(config.device);
  if (distributed::size() == 1 || wanted.is_cpu()) return wanted;
  const Device own = distributed::card();
  check(wanted.index == 0 || wanted == own, "train", "train.device = ", config.device, " is one card, and the job has ",
        distributed::size(), " ranks: cuda gives each its own, here ", own);
  return own;
}

void Ranks::finish_step(Tensor& loss) const {
  if (!group_) return;
  gradients_ ? gradients_->finish() : sharded_->finish();
  NoGrad guard;
  loss = loss.clone();
  group_->run(loss.device(), "loss", [&](distributed::Collectives& c) {
    c.all_reduce(loss.raw_data(), loss.numel(), loss.dtype(), distributed::Reduction::avg);
  });
}

void Ranks::finish_update() const {
  if (sharded_) sharded_->gather_updated();
}

void Ranks::seed_step(int64_t seed, int64_t step) const {
  if (!group_) return;
  // A stream for each rank, a stretch of it for each step: nothing of it has to be saved.
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;
  default_generator().set_state(
      {static_cast<uint64_t>(seed) + kOdd * static_cast<uint64_t>(rank_ + 1), static_cast<uint64_t>(step) << 40});
  distributed::recorder().set_step(step);
}

std::vector<double> Ranks::reduced(std::vector<double> v, const char* what, distributed::Reduction r) const {
  if (!group_) return v;
  group_->run(cat(what, " [", v.size(), "]"), [&](distributed::Communicator& c) {
    c.all_reduce(v.data(), static_cast<int64_t>(v.size()), DType::f64, r);
  });
  return v;
}
std::vector<double> Ranks::vote(std::vector<double> v) const {
  return reduced(std::move(v), "vote", distributed::Reduction::max);
}
std::vector<double> Ranks::sum(std::vector<double> v) const {
  return reduced(std::move(v), "sum", distributed::Reduction::sum);
}
std::vector<double> Ranks::follow(std::vector<double> v) const {
  if (!group_) return v;
  group_->run(cat("decision [", v.size(), "]"),
              [&](distributed::Communicator& c) { c.broadcast(v.data(), v.size() * sizeof(double), 0); });
  return v;
}

}  // namespace strata
