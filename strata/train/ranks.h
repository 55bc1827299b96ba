#pragma once
// What a run over several ranks does beside the run of one: who writes, how ranks decide together, whose rows are
// whose.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/row_share.h"
#include "strata/dist/context_parallel.h"
#include "strata/dist/data_parallel.h"
#include "strata/models/language_model.h"
#include "strata/nn/fully_sharded.h"
#include "strata/nn/sharded_costs.h"
#include "strata/optim/optimizer.h"
#include "strata/optim/whole_squares_inl.h"
#include "strata/train/config.h"

namespace strata::detail {
class PositionShareScope;
}

namespace strata {

namespace distributed::pipeline {
struct Action;
}
class ExactStep;
class ExchangeRun;
struct FoundRun;
class ModelPipeline;

/// Which ranks share experts. parallel.ep has a mapping of its own over the ranks of parallel.dp, parallel.cp and
/// parallel.tp: neighbours, those along "tp" first, then along "cp", then so many along "dp". Of dp = 2 and tp = 2 all
/// four ranks may share them, or those along "tp".
struct ExpertRanks {
  int64_t of_dp = 1;    ///< of the ranks of parallel.dp, those that are an axis "ep"
  std::string group;    ///< those that have parts of one set of experts: "ep", "tp", "ep+cp+tp"
  std::string sharers;  ///< those that have the same experts: "dp", "dp+cp"
};
/// Throws ValueError naming the key where parallel.ep cannot be carried out by `dp` ranks of parallel.dp.
ExpertRanks expert_ranks(const TrainConfig& config, int64_t dp);
/// Whether a parameter is of experts, which those ranks share: gate_up and down of nn::Experts.
bool is_of_experts(std::string_view parameter);

/// What [parallel] says of parts of the model among `ranks`: those of parallel.dp, or, of one, of parallel.cp. Throws
/// ValueError naming parallel.reshard where it is neither a word nor a number that divides them.
nn::FullyShardedOptions sharded_options(const ParallelConfig& parallel, int64_t ranks);
/// The tables of which ranks of ZeRO 3 may look rows up, with what a rank reads of them in a pass; `config.batch` is a
/// rank's.
std::map<std::string, nn::TableReads> tables_read(const TrainConfig& config, const TokenDecoder& model);
/// Says which tables are read by their rows: those, but on cards none, where steps that do so have not been run.
void look_up_rows(nn::FullyShardedOptions& options, const TrainConfig& config, const TokenDecoder& model);

/// Rows that each of `dp` ranks has of a batch as parallel.shares says: whole ones, in proportion as near as can be.
/// Empty where it says nothing. Throws ValueError for what is no list of `dp` positive numbers, a rank without a row,
/// and settings that want the same from every rank.
std::vector<int64_t> shared_rows(const TrainConfig& config, int64_t dp);

/// What a job of so many ranks cannot train, found without a job: the one check of Ranks and of plan::plan_layouts().
/// Gives the ranks of parallel.dp. Throws ValueError naming the key, ShapeError where model.context cannot be shared
/// out.
int64_t check_layout(const TrainConfig& config, int64_t ranks);
/// The same of what depends on the model: heads that do not divide, fewer layers than stages, and what is for decoders.
void check_layout_of(const TokenDecoder& model, const ParallelConfig& parallel);
/// Whether ranks keep parts of weights, and not all of each.
bool keeps_parts(const ParallelConfig& parallel);
/// Whether such ranks can begin with their parts of the model and one whole weight, and not with all of it: weights are
/// drawn, or read from a folder in Hugging Face's form, and all of them are trained.
bool may_begin_in_parts(const TrainConfig& config);

/// This process's part in a run. Ranks along the mesh's axis "dp" compute their rows of each global batch, those along
/// "pp" are the stages of a pipeline, those along "tp" share the model's weights, those along "cp" the positions of
/// each row; where ranks of parallel.dp share experts, neighbours among them are an axis "ep" beside "dp". Rank 0 alone
/// writes into the run's folder. Without a job (distributed::init) all of it costs nothing.
class Ranks {
 public:
  /// Checks that the settings can be carried out by the job's ranks. Throws ValueError naming the key.
  explicit Ranks(const TrainConfig& config);
  ~Ranks();

  /// Where this process computes: train.device, or, of several ranks on cards, this rank's card. Throws ValueError
  /// where train.device names one card for all of them, DeviceError where there are fewer cards than ranks.
  static Device device(const TrainConfig& config);

  /// Whose rows of a batch this process computes, and how many share them: the place on "dp" and its size.
  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  /// What shared_rows() says.
  const std::vector<int64_t>& rows() const { return rows_; }
  /// Whether this process is to have the rows of all ranks, of which it computes other ones than its own in turn:
  /// micro-batches of parallel.exact whose gradients lie in parts.
  bool has_all_rows() const { return sharing_.micro_batches > 0; }
  /// The rows of each batch that this process computes, which random numbers belong to; all of them where they belong
  /// to micro-batches (parallel.exact, parallel.pp, whose stages share rows by themselves).
  RowShare own_rows() const;
  /// The weight of this process's rows in the ranks' average: 1 where all have as many.
  double row_weight() const;
  /// Over what cards exchange gradients, for the report; empty for one rank, and on the host.
  std::string way_of_cards() const { return group_ ? group_->way_of_cards() : std::string(); }
  /// Whether this process writes checkpoints, metrics and reports.
  bool leads() const { return leads_; }
  /// Whether tensors lie in parts: then every rank takes part where one is read as a whole.
  bool shares_weights() const { return tp_ > 1 || ep_ > 1 || sharded_ != nullptr; }
  /// Whether this rank's model has a part of the experts, and is no model without the others.
  bool shares_experts() const { return ep_ > 1; }
  /// Leaves this rank its parts of the model's weights, as parallel.tp says, has the model take own_positions() from
  /// now on, as parallel.cp says, and its blocks run again for backward, as parallel.recompute says. Throws ValueError
  /// naming what does not divide.
  void shard(TokenDecoder& model) const;
  /// What of a batch's tensors [B, T] this rank computes: its positions; all without parallel.cp.
  Tensor own_positions(const Tensor& rows) const;
  /// Who waits for others within a pass: "a pipeline" or the like; nullptr where nobody does.
  const char* together() const;
  /// Leaves this rank its stages of the model, where parallel.pp says so. Throws ValueError naming what cannot be cut.
  void take_stages(const std::shared_ptr<TokenDecoder>& model, const TrainConfig& config);
  /// The stages of this rank; nullptr without a pipeline.
  ModelPipeline* pipeline() const { return pipeline_.get(); }
  /// Makes the parameters of the ranks along "dp" those of the first and leaves this rank its parts, where
  /// parallel.zero says so.
  void share_parameters(TokenDecoder& model, const TrainConfig& config);
  /// The parameters that are trained, and that this rank updates: with parallel.zero its parts of them.
  nn::NamedTensors own_parameters(const nn::Module& model) const;
  /// Returns when every rank is here.
  void meet() const;
  /// Without parallel.zero makes the parameters of the ranks along "dp" those of the first; takes their gradients.
  void take_gradients(const nn::Module& model, const TrainConfig& config);
  /// What exchange() keeps goes on from a checkpoint, and `notes` are told what does not. All ranks call it.
  void resume_exchange(const FoundRun& found, optim::Optimizer& optimizer, std::vector<std::string>& notes) const;
  /// Says whose gradients its norms are of, where that is not the parameters' that it has.
  void set_norm(optim::Optimizer& optimizer, const nn::Module& model);
  /// What parallel.reduce says that ranks send, once take_gradients() was called; nullptr for plain.
  ExchangeRun* exchange() const { return exchange_.get(); }
  /// What computes a step where parallel.exact says so; nullptr elsewhere.
  ExactStep* exact() const { return exact_.get(); }
  /// Around forward and backward of one batch, and around forwards alone: parameters in parts come ahead of their use.
  class Pass {
   public:
    explicit Pass(const Ranks& ranks) : pass_(ranks.sharded_.get()) {}

   private:
    nn::FullySharded::Pass pass_;
  };

  /// Before the first step of a pipeline: connects what its passes use between cards. Connecting waits for the whole
  /// card, and a stage's card may wait for messages that come of what the host has yet to queue.
  void connect(Device device) const;
  /// The backward pass that follows is the last of its step: its gradients travel.
  void last_pass(bool yes) const;
  /// The same of a pipeline, before an action that adds to gradients: `last` that it is of its stage's last
  /// micro-batch.
  void before_gradients(const distributed::pipeline::Action& action, bool last) const;
  /// Waits for the gradients, and makes `loss` (f64) the ranks' average, a plain tensor; of exact() that of its run().
  /// The largest norm that the update is to have: `max_norm`, unless exchange() has seen to it.
  double finish_step(Tensor& loss, double max_norm) const;
  /// Behind finish_step(): the sum of the squares of the gradients, whose bits parallel.exact promises, where this rank
  /// has parts of them alone; undefined where the optimizer finds it.
  Tensor squares() const;
  /// Behind the update: what several ranks have is the same again.
  void finish_update() const;
  /// The random numbers of a step: other ones for every part of a batch, the same in every run. All ranks have one
  /// state of them, since numbers belong to elements.
  void seed_step(int64_t seed, int64_t step) const;

  /// The largest of the ranks' values, for each: what one wants happens on all.
  std::vector<double> vote(std::vector<double> values) const;
  /// Rank 0's values.
  std::vector<double> follow(std::vector<double> values) const;
  /// The sums of the ranks along "dp", in their order, of values of which ranks along "cp" have a part's mean each.
  std::vector<double> sum(std::vector<double> values) const;

 private:
  void share_positions(TokenDecoder& model) const;
  std::string loads_group() const;
  void part_weights(LanguageModel& model) const;
  std::vector<optim::WholeSquares::Gradient> gradients_of_stages(const nn::Module& model) const;
  std::vector<optim::WholeSquares::Gradient> gradients_in_parts(const nn::NamedTensors& parameters) const;

  // Along "dp", "ep" and "cp", of several ranks: those whose gradients are averaged.
  distributed::Group* group_ = nullptr;
  distributed::Group* world_ = nullptr;  // of several ranks
  int64_t rank_ = 0, size_ = 1, tp_ = 1, ep_ = 1;
  ExpertRanks experts_;
  bool exactly_ = false;  // parallel.exact
  std::vector<int64_t> rows_;
  int64_t batch_ = 1;  // rows of all
  bool leads_ = true, sequence_ = true;
  ParallelConfig parallel_;
  /// The whole parameters that this rank has to train: of a pipeline those of its stages.
  nn::NamedTensors whole_parameters(const nn::Module& model) const;
  void finish_stages() const;
  void finish_gradients() const;

  std::optional<distributed::ContextParallel> context_;    // of parallel.cp
  nn::FullyShardedOptions sharing_{.zero = 0};             // as parallel.zero says
  std::unique_ptr<detail::PositionShareScope> positions_;  // of it: numbers belong to elements of whole sequences
  std::unique_ptr<ModelPipeline> pipeline_;
  std::unique_ptr<distributed::DataParallel> gradients_, expert_gradients_;
  std::unique_ptr<ExactStep> exact_;
  std::unique_ptr<ExchangeRun> exchange_;
  std::unique_ptr<nn::FullySharded> sharded_;  // of parallel.zero
  std::vector<int> stages_;                    // of a pipeline that zero 2 and 3 share, as `sharded_` counts them
  std::optional<optim::WholeSquares> squares_;
};

}  // namespace strata
