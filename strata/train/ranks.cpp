#include "strata/train/ranks.h"

#include <algorithm>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/dist/collectives/placed.h"
#include "strata/models/tensor_parallel.h"
#include "strata/train/fine_tune_inl.h"

namespace strata {

namespace {

// The group's values, reduced; the same ones without a group.
std::vector<double> reduced(distributed::Group* group, std::vector<double> v, const char* what,
                            distributed::Reduction r) {
  if (!group) return v;
  group->run(cat(what, " [", v.size(), "]"), [&](distributed::Communicator& c) {
    c.all_reduce(v.data(), static_cast<int64_t>(v.size()), DType::f64, r);
  });
  return v;
}

}  // namespace

Ranks::Ranks(const TrainConfig& config) : tp_(config.parallel.tp), sequence_(config.parallel.sequence) {
  using namespace distributed;
  const int64_t ranks = distributed::size(), dp = config.parallel.dp > 0 ? config.parallel.dp : ranks / tp_;
  const std::string wanted = config.parallel.dp == 0 ? std::string() : cat("parallel.dp is ", dp);
  const std::string both = tp_ == 1 ? wanted : cat(wanted, wanted.empty() ? "" : " and ", "parallel.tp is ", tp_);
  check(dp > 0 && dp * tp_ == ranks, "train", both, ", and the job has ", ranks,
        ranks == 1 ? " rank: start it with strata launch -n " : " ranks: start it with strata launch -n ",
        std::max<int64_t>(dp, 1) * tp_, ", mpirun, srun or torchrun");
  if (ranks == 1) return;
  check(config.batch % dp == 0, "train", "train.batch is ", config.batch, ", which ", dp,
        " ranks do not share evenly: it counts the rows of all of them");
  check(config.data.format == "text", "train", "data.format = ", config.data.format, " is for one rank: its ",
        "rows have different numbers of learned tokens, so the ranks' losses cannot be averaged");
  check(!config.memory.any(), "train", "[memory] is for one rank: leave it out, or train on one");
  check(tp_ == 1 || config.tune.method == "full", "train", "parallel.tp is for tune.method = full, not ",
        config.tune.method);
  set_mesh(Mesh(cat("dp=", dp, tp_ > 1 ? cat(" tp=", tp_) : std::string())));
  world_ = &group("world");
  leads_ = world_->rank() == 0;
  size_ = dp;
  if (dp == 1) return;
  group_ = &group("dp");
  rank_ = group_->rank();
}
Ranks::~Ranks() = default;

void Ranks::meet() const {
  if (world_) world_->barrier();
}

void Ranks::shard(TokenDecoder& model) const {
  if (!shares_weights()) return;
  const auto* decoder = dynamic_cast<const LanguageModel*>(&model);
  check(decoder != nullptr, "train", "parallel.tp is for decoders");
  distributed::shard_module(*decoder, shard_plan(*decoder, tp_), "tp", {.sequence = sequence_});
}

void Ranks::take_gradients(const nn::Module& model) {
  if (group_) gradients_ = std::make_unique<distributed::DataParallel>(trained_parameters(model), *group_);
}

void Ranks::last_pass(bool yes) const {
  if (gradients_) gradients_->reduce_next(yes);
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
  if (shares_weights()) loss = distributed::full_tensor(loss);
  if (!gradients_) return;
  gradients_->finish();
  NoGrad guard;
  loss = loss.clone();
  group_->run(loss.device(), "loss", [&](distributed::Collectives& c) {
    c.all_reduce(loss.raw_data(), loss.numel(), loss.dtype(), distributed::Reduction::avg);
  });
}

void Ranks::seed_step(int64_t seed, int64_t step) const {
  if (world_) distributed::recorder().set_step(step);
  if (!group_) return;
  // A stream for each part of a batch, a stretch of it for each step: nothing of it has to be saved.
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;
  default_generator().set_state(
      {static_cast<uint64_t>(seed) + kOdd * static_cast<uint64_t>(rank_ + 1), static_cast<uint64_t>(step) << 40});
}

std::vector<double> Ranks::vote(std::vector<double> v) const {
  return reduced(world_, std::move(v), "vote", distributed::Reduction::max);
}
std::vector<double> Ranks::sum(std::vector<double> v) const {
  return reduced(group_, std::move(v), "sum", distributed::Reduction::sum);
}
std::vector<double> Ranks::follow(std::vector<double> v) const {
  if (!world_) return v;
  world_->run(cat("decision [", v.size(), "]"),
              [&](distributed::Communicator& c) { c.broadcast(v.data(), v.size() * sizeof(double), 0); });
  return v;
}

}  // namespace strata
