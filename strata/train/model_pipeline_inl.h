#pragma once
// A run's model as stages of a pipeline: which rank has which blocks, what a step of them does, where their state is.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/rng.h"
#include "strata/data/dataset.h"
#include "strata/dist/pipeline/partition.h"
#include "strata/dist/pipeline/pipeline.h"
#include "strata/lab/trace.h"
#include "strata/models/language_model.h"
#include "strata/optim/loss_scaler.h"
#include "strata/train/config.h"
#include "strata/train/stage_sums_inl.h"

namespace strata {

/// The part of a decoder that this rank of the group "pp" has. Embeddings are in the first stage, the last norm and the
/// output layer in the last; weights of other ranks' stages are on the meta device. Where the output layer is the
/// table of tokens, the last stage's rank has a copy of it: its gradient goes to the first stage's, whose optimizer
/// alone knows the table, and the updated table comes back.
class ModelPipeline final : distributed::pipeline::StageWork {
 public:
  /// Throws ValueError naming the key of a setting that no pipeline of parallel.pp times `dp` ranks can carry out.
  static void check_settings(const TrainConfig& config, int64_t dp);
  /// Throws ValueError where a model of so many blocks has fewer layers than stages.
  static void check_stages(const ParallelConfig& parallel, int64_t blocks);
  /// Micro-batches that each of `dp` ranks makes of its rows of a batch.
  static int64_t pieces(const TrainConfig& config, int64_t dp);
  /// The layer that a module or parameter lies in: 0 for embeddings, from 1 on blocks, blocks + 1 for what is behind.
  static int64_t layer_of(std::string_view name, int64_t blocks);
  /// What embeddings, each block and the head cost, in the order in which stages have them; on every machine the same.
  static std::vector<distributed::pipeline::LayerCost> layers(const TrainConfig& config);
  /// The first block of each of so many stages, and behind them the number of blocks.
  static std::vector<int64_t> cuts(const std::vector<distributed::pipeline::LayerCost>& layers, int stages);
  /// Cuts the blocks by what the records say they cost, and lets go of others' weights. `model` must outlive it, and is
  /// the same in all ranks of the group.
  ModelPipeline(const std::shared_ptr<TokenDecoder>& model, const TrainConfig& config, distributed::Group& group);

  /// Those of the parameters that this rank's optimizer updates.
  nn::NamedTensors own(const nn::NamedTensors& parameters) const;
  /// The parameter whose gradient comes in two parts, the table of a tied model, where this rank updates it; undefined
  /// elsewhere.
  Tensor tied() const { return tied_ && has_first_ ? model_->token_embedding.weight : Tensor(); }
  /// The table's name.
  static constexpr std::string_view kTied = "token_embedding.weight";
  /// Of a tied table the copy that another rank updates; undefined elsewhere.
  Tensor tied_copy() const { return tied_ && has_last_ && !has_first_ ? model_->token_embedding.weight : Tensor(); }
  /// This rank's stages, in their order, and of each the names of `parameters` that it reads and has to itself: the
  /// tied table is the first stage's, where that is here, and its copy the last one's.
  std::map<int, std::vector<std::string>> names_by_stage(const nn::NamedTensors& parameters) const;

  /// Where random numbers of the next step begin, of which each micro-batch has those of its rows among all, whatever
  /// the schedule: `part` of parallel.dp has these. Behind the step default_generator() is where one rank's would be.
  void seed(RngKey base, int64_t part);
  /// The same with add_exactly(), where each micro-batch has a stretch of its own.
  void seed(RngKey base);
  /// Forward and backward passes of a step, the loss scaled where there is a scaler: gradients of the mean over all
  /// rows. `before` is called before each action that adds to gradients, with whether it is its stage's last
  /// micro-batch of the step. Returns the mean loss, f64, on every rank.
  using BeforeGradients = std::function<void(const distributed::pipeline::Action& action, bool last)>;
  Tensor step(const std::vector<data::Batch>& batches, optim::LossScaler* scaler, const BeforeGradients& before = {});
  /// Behind step(): the tied table's gradient is all of it, at its owner. `table` is what has the gradient: the table,
  /// or this rank's part of it, where the same rows of it are its copy's part at the last stage. Not with
  /// add_exactly().
  void join_tied(const Tensor& table);
  void join_tied() { join_tied(model_->token_embedding.weight); }
  /// From now on, as parallel.exact says, gradients are the sums of the micro-batches of all ranks of `group` (nullptr:
  /// of this one) in one tree, their numbers those of ExactStep: the bits of one process. `own` are own(). The tied
  /// table's two parts of each micro-batch are added first, as one process has them.
  void add_exactly(const nn::NamedTensors& own, distributed::Group* group, const TrainConfig& config);
  bool adds_exactly() const { return sums_.has_value(); }
  /// Behind step(), with add_exactly(): gradients are the sums of all ranks.
  void finish_sums();
  /// The place in the group of the rank that updates a parameter.
  int owner_of(const std::string& parameter) const;
  /// Behind the update: the copy of the tied table, or this rank's part of it, is what its owner has.
  void renew_tied();
  /// The mean loss of a batch, on every rank; nothing is recorded.
  Tensor loss(const data::Batch& batch);

  /// On cards the next step is timed, for trace(); on the host each is.
  void time_next() { train_->time_next(); }
  /// The last timed step's time line, a track for each rank. Every rank of the group calls it.
  lab::Trace trace() const;
  /// "a pipeline of 4 stages on 4 ranks (1f1b, 8 micro-batches), blocks 0-2 | 3-5 | ..", and its table's bubble.
  std::string to_text() const;

 private:
  Tensor forward(int stage, int micro, const Tensor& x) override;
  Tensor add_loss(const Tensor& loss);
  void before_gradients(const distributed::pipeline::Action& action) override;
  void after_gradients(const distributed::pipeline::Action& action) override;
  TensorList never_late(int stage) override;
  void send_table(int micro, const Tensor& gradient);
  Tensor take_table(int micro);
  // Of the tied table between the first stage's rank and the last one's.
  distributed::Group::Way to_owner() const;
  distributed::Group::Way to_copy() const;
  void let_go();
  // Both by a model of the settings on the meta device, in training.
  static std::vector<distributed::pipeline::LayerCost> layers(const TrainConfig& config, LanguageModel& model);
  void count_draws(const TrainConfig& config, LanguageModel& model);
  int stage_of(const std::string& parameter) const;
  bool is_here(int stage) const;
  void run(distributed::pipeline::Pipeline& pipeline, const std::vector<data::Batch>& micro_batches);
  Shape between(const Shape& rows) const;
  Tensor nothing(const Shape& shape) const;
  Tensor total_loss();
  Tensor exact_loss();

  std::shared_ptr<LanguageModel> model_;
  distributed::Group& group_;
  DType between_;
  bool halves_ = false;  // of the residual stream go from stage to stage, not their sum: for the bits of one process
  int64_t tp_ = 1;
  bool sequence_ = true;  // parallel.sequence
  std::string lies_;      // how what goes between stages lies along "tp"; empty: it is plain
  int64_t pieces_ = 1;    // of each batch
  std::vector<int64_t> begins_;  // each stage's first block, and the number of blocks
  bool tied_ = false, has_first_ = false, has_last_ = false;
  std::optional<distributed::pipeline::Pipeline> train_, forward_;
  RngKey random_;
  std::optional<int64_t> part_;   // of the rows, where numbers belong to them
  int64_t rows_ = 1, batch_ = 1;  // of a micro-batch, and of all ranks' batch
  std::vector<uint64_t> draws_;   // of the stages before each, for a whole batch; behind them of all
  // Of add_exactly().
  std::optional<StageSums> sums_;
  distributed::Group* sharing_ = nullptr;  // the step's micro-batches
  int64_t count_ = 1;                      // of them all
  TensorList losses_;
  struct SentTable {
    int micro;
    distributed::Work work;
  };
  std::map<int, Tensor> tables_;   // its gradients by the last stage, where the first is here, too; by micro-batch
  std::deque<SentTable> sent_;     // the table's gradients that the owner may not have taken yet
  std::vector<int> taken_before_;  // how many it has taken when it begins each micro-batch
  // Of the step that runs.
  std::vector<data::Batch> micro_batches_;
  optim::LossScaler* scaler_ = nullptr;
  BeforeGradients before_;
  Tensor total_;
  Device device_;
};

}  // namespace strata
