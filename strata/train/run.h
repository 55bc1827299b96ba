#pragma once
// A run on disk: what its checkpoints hold beside the tensors, and how a trained model comes back.
//
//   OUT/step-00001000/   model.safetensors, optimizer.safetensors, state.json (strata/io/checkpoint.h); of a job of
//                        several ranks model.rank-0.safetensors and so on (strata/io/rank_checkpoint.h)
//   OUT/metrics.jsonl    one line a step
//   OUT/step.recording   the second step since the run was last started, as a Recording
//   OUT/step.trace.json  of a run with tiers: what that step computed and moved when
//   OUT/report.html      the run on one page
//   OUT/data/            the tokenised text

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "strata/core/recording.h"
#include "strata/core/rng.h"
#include "strata/data/sampler.h"
#include "strata/dist/group.h"
#include "strata/io/checkpoint.h"
#include "strata/lab/trace.h"
#include "strata/models/encoder_decoder.h"
#include "strata/models/language_model.h"
#include "strata/optim/lr_schedule.h"
#include "strata/optim/optimizer.h"
#include "strata/text/tokenizer.h"
#include "strata/train/config.h"
#include "strata/train/metrics.h"

namespace strata {

namespace io {
class CheckpointWriter;
}

/// The model of the settings, with weights of train.param_dtype; with model.init that of make_tuned_model(), and
/// ValueError where that reads one text and writes another.
std::shared_ptr<LanguageModel> make_model(const TrainConfig& config);

/// The optimizer that the settings name. Matrices decay, vectors (norms, biases) do not. `seed` is that of stochastic
/// rounding; `tables` names what is no linear map (LanguageModel::table_names()). Throws ValueError for an unknown
/// name.
std::unique_ptr<optim::Optimizer> make_optimizer(const OptimConfig& config, const optim::NamedTensors& parameters,
                                                 uint64_t seed = 0, const std::set<std::string>& tables = {});

/// Whether the optimizer that the settings name adds weight decay to the gradient (L2), where less of it is wanted than
/// apart from it.
bool decays_gradient(const OptimConfig& config);

/// The learning rate at each step of the run. Throws ValueError where train.schedule_options do not fit the schedule.
optim::RunSchedule make_schedule(const OptimConfig& config, int64_t steps);
/// What to tell of a run that went `steps` steps by the settings `then` and goes on by `now`: where learning rates of
/// these steps would have been others, which keys are, and the first such step. Else empty: it will end as one that had
/// `now` from the beginning.
std::string schedule_change(const TrainConfig& then, const TrainConfig& now, int64_t steps);

/// Where a run stands, beside its weights and its optimizer's state.
struct RunState {
  TrainConfig config;
  std::string tokenizer;  ///< Tokenizer::to_json()
  int64_t step = 0;       ///< steps done
  int64_t tokens = 0;     ///< tokens trained on
  uint64_t text = 0;      ///< TrainData::text; 0 where it is not known
  uint64_t base = 0;      ///< checksum of the weights of model.init that are frozen (base_checksum()); 0 for none
  double elapsed_s = 0;
  RngKey rng;                  ///< of default_generator()
  data::SamplerState sampler;  ///< of the training data
  LogMark log;                 ///< of metrics.jsonl at this step; not known of older checkpoints
  /// Of the loss (f16): the scale and the finite steps since it last changed; empty where there is none.
  std::vector<double> loss_scale;
  /// Of parallel.reduce but plain: what the exchange keeps, of this rank and of all, and the number of ranks; else empty
  /// and 0.
  std::map<std::string, Tensor> exchange;
  int64_t ranks = 0;
};

/// Writes OUT/step-XXXXXXXX and deletes old checkpoints. Returns its path. In a job of several ranks all of them call
/// it, and each writes its parts; `state` is rank 0's but for what
/// its exchange keeps. Throws IoError; then what was there is intact.
std::string save_run(const std::string& out, const RunState& state, const nn::Module& model,
                     const optim::Optimizer& optimizer, int keep_last);

/// The same by a writer, which goes on while the run does: CheckpointWriter::finish() makes it the checkpoint.
void save_run(io::CheckpointWriter& writer, const std::string& out, const RunState& state, const nn::Module& model,
              const optim::Optimizer& optimizer, int keep_last);

/// A checkpoint that was found, its state read, its tensors not yet.
struct FoundRun {
  std::string path;  ///< of the checkpoint
  RunState state;
  io::FoundCheckpoint checkpoint;  ///< open: it can be read though a run that goes on deletes it
};

/// The newest whole checkpoint: of a run's folder, or `path` itself where it is a checkpoint. Damaged ones that were
/// passed over are named in `warnings`. Throws IoError where there is none.
FoundRun find_run(const std::string& path, std::vector<std::string>* warnings = nullptr);
/// Whether `out` holds a checkpoint, whole or not.
bool has_run(const std::string& out);
/// Throws IoError where the frozen weights of `model`, which model.init gave, are not those that the run was trained
/// with.
void check_base(const FoundRun& run, const nn::Module& model);
/// Fills the model, and the optimizer where given, from a checkpoint; weights that are frozen since model.init gave
/// them are not in it. Throws IoError, ValueError, ShapeError. With `together` all ranks of it call this, for the same
/// checkpoint: each reads its parts, of sharded tensors and of a pipeline's stage, and all throw where one does.
void load_run(const FoundRun& run, nn::Module& model, optim::Optimizer* optimizer,
              distributed::Group* together = nullptr);

/// Writes OUT/step.recording. Throws IoError.
void write_recorded_step(const std::string& out, const Recording& step);
/// Reads it; nothing where there is none. Throws IoError for a file that is damaged, or holds ops that this program
/// does not have.
std::optional<Recording> read_recorded_step(const std::string& out);
/// Writes OUT/step.trace.json, for chrome://tracing and Perfetto; removes it for a trace without tracks. Throws
/// IoError.
void write_trace(const std::string& out, const lab::Trace& trace);
/// Reads it; empty where there is none. Throws IoError for a file that is damaged.
lab::Trace read_trace(const std::string& out);

/// A trained model, ready to write.
struct TrainedModel {
  TrainConfig config;
  int64_t step = 0;
  std::shared_ptr<text::Tokenizer> tokenizer;
  std::shared_ptr<LanguageModel> model;                  ///< that continues texts, or
  std::shared_ptr<EncoderDecoder> encoder_decoder = {};  ///< that reads one and writes another
  std::vector<int64_t> start = {};                       ///< of the latter: what it begins to write with

  /// Whichever it is.
  std::shared_ptr<TokenDecoder> writer() const;
};
/// Loads the newest checkpoint of a run's folder, or the checkpoint at `path`, from the disk straight to `device`: a
/// model that continues texts. Throws as find_run and load_run, ValueError for another.
TrainedModel load_trained_model(const std::string& path, std::vector<std::string>* warnings = nullptr,
                                Device device = Device::cpu());

}  // namespace strata
