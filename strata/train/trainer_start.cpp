// How a run begins: its data, model and optimizer, and where it goes on.

#include <filesystem>
#include <sstream>

#include <fmt/format.h>

#include "strata/core/parallel.h"
#include "strata/cuda/libraries.h"
#include "strata/cuda/runtime.h"
#include "strata/io/files.h"
#include "strata/io/read_ahead.h"
#include "strata/memory/allocator.h"
#include "strata/memory/bounds.h"
#include "strata/memory/budget.h"
#include "strata/nn/late_weights_inl.h"
#include "strata/train/conversations_inl.h"
#include "strata/train/exchange_run_inl.h"
#include "strata/train/fine_tune_inl.h"
#include "strata/train/model_pipeline_inl.h"
#include "strata/train/plan/auto_layout.h"
#include "strata/train/precision.h"
#include "strata/train/startup.h"
#include "strata/train/trainer_inl.h"

namespace strata::detail {

namespace {

// Whether every rank has the same state.
bool alike(const ParallelConfig& p) {
  return p.zero == 0 && p.tp == 1 && p.pp == 1 && p.ep == 1 && p.cp == 1;
}

// Whether the run's model comes weight by weight. Files are read faster at once, where there is room.
bool comes_in_parts(const TrainConfig& config, Device device) {
  if (!keeps_parts(config.parallel) || !may_begin_in_parts(config)) return false;
  if (config.init.empty()) return true;
  const DeviceScope dry(Device::meta());
  int64_t bytes = 0;
  for (const auto& [name, t] : make_tuned_model(config)->as_module().named_parameters()) bytes += t.nbytes();
  return bytes > memory::tightest_bound(device).free() / 2;
}

}  // namespace

Run::Run(const TrainConfig& config, const TrainOptions& options, bool trusting, Mirrors* mirrors)
    : config_(plan::settle_layout(config, distributed::rank() == 0 ? options.log : nullptr)),
      options_(options),
      mirrors_(mirrors) {
  strata::validate(config_);
  apply_init(config_);
  device_ = Ranks::device(config_);
  if (device_.is_cuda()) cuda::properties(device_.index);  // says why where there is no such card
  const std::jthread libraries = cuda::detail::load_libraries(device_);
  check(!options_.out.empty(), "train", "no folder for the run was given");
  io::make_directories(options_.out);
  ranks_.emplace(config_);
  saver_.emplace(config_, options_.out);
  if (ranks_->leads()) {
    lock_.emplace(options_.out);
    io::remove_leftovers(options_.out);
  } else {
    options_.log = options_.warnings = nullptr;
  }
  ranks_->meet();  // nobody reads what is being cleared
  std::optional<FoundRun> found;
  std::vector<std::string> warnings, mended;
  if (has_run(options_.out)) {
    check(options_.resume, "train", "'", options_.out,
          "' holds a run already: --resume goes on with it, another --out starts a new one");
    try {
      found = trusting ? newest() : find_run(options_.out, &warnings);
    } catch (const NotWhole&) {  // told to the others
    }
    const double step = found ? static_cast<double>(found->state.step) : -1;
    const std::vector<double> most = ranks_->vote({found ? 0.0 : 1.0, step, -step});
    if (most[0] > 0) throw NotWhole();
    check<IoError>(most[1] == -most[2], options_.out, "ranks find other newest checkpoints, of steps ", -most[2],
                   " and ", most[1], ": the folder must be on one file system");
  }
  if (found) saver_->found(found->path, found->state.step);
  if (mirrors_) mirrored_ = mirrors_->recover(alike(config_.parallel));
  if (mirrored_) {
    RunState state = decoded_state(*mirrored_);
    if (found && found->state.step > state.step)
      mirrored_ = nullptr;
    else
      found = FoundRun{.path = "the ranks' memory", .state = std::move(state), .checkpoint = {}};
  }
  const io::detail::ReadAhead weights =
      found && !mirrored_ ? io::detail::read_ahead(found->checkpoint) : io::detail::ReadAhead();
  if (config_.threads > 0) set_num_threads(static_cast<int>(config_.threads));

  std::optional<OnceScope> part(std::in_place, "text");
  const auto open_data = [&] {
    data_ = open_train_data(config_, options_.out, found ? found->state.tokenizer : std::string());
  };
  // Rank 0 writes the tokens, the others find them.
  if (ranks_->leads()) open_data();
  ranks_->meet();
  if (!ranks_->leads()) open_data();
  check(!found || found->state.text == 0 || found->state.text == data_.text, "train", "'", config_.data.path,
        "' is not the text that the run in '", options_.out,
        "' was trained on: it was changed since, or is another one (another --out starts a new run)");
  if (config_.model.vocab == 0) config_.model.vocab = data_.tokenizer->vocab_size();
  check(data_.tokenizer->vocab_size() <= config_.model.vocab, "train", "the tokenizer has ",
        data_.tokenizer->vocab_size(), " tokens, model.vocab is ", config_.model.vocab);

  if (config_.memory.any()) {
    part.emplace("plan");
    const TierSpeeds speeds = measured_speeds(device_, config_.memory.budget());
    plan_ = plan_tiers(config_, speeds.limits, speeds.rates);
    // Forecasts are good to some percent: what is that near is tried, under the same bound.
    const auto most = static_cast<int64_t>(1.05 * static_cast<double>(plan_->budget.device));
    check<MemoryError>(plan_->fits || (plan_->budget.device > 0 && plan_->peak.device <= most), "train",
                       "no way was found that keeps to the budget:\n", to_text(*plan_));
    Tiers::use_disk(*plan_, device_);
    if (options_.memory_check) require_room(*plan_, device_, config_);
  }
  part.emplace("model");
  const bool parted = comes_in_parts(config_, device_);
  manual_seed(static_cast<uint64_t>(config_.seed));
  std::optional<nn::detail::LateWeights> late;
  {
    std::optional<nn::init::SkipDraws> from_file;
    if (found) from_file.emplace();
    const DeviceScope there(device_);  // drawn where they stay: the same bits on every device
    const memory::TierScope home(plan_ ? Tiers::weights_tier(*plan_, device_) : Tier());
    if (parted) late.emplace();
    model_ = make_tuned_model(config_);
  }
  if (late) late->made();
  base_ = base_checksum(module(), config_);
  if (found) check_base(*found, module());
  ranks_->shard(*model_);
  ranks_->take_stages(model_, config_);
  ranks_->share_parameters(*model_, config_);
  if (late) late->come(module());
  late.reset();
  optimizer_ = make_optimizer(ExchangeRun::update(config_, distributed::size()), ranks_->own_parameters(module()),
                              static_cast<uint64_t>(config_.seed), table_names(*model_));
  ranks_->set_norm(*optimizer_, module());
  if (plan_) {
    if (auto* decoder = dynamic_cast<LanguageModel*>(model_.get())) decoder->set_recomputed_blocks(plan_->recomputed);
    tiers_.emplace(*plan_, module(), &*optimizer_, device_);
  }
  if (config_.data.format == "preferences") {
    part.emplace("reference");
    std::optional<AutocastScope> autocast;
    if (const auto settings = autocast_of(config_, *model_)) autocast.emplace(*settings);
    const auto with_reference = [&](std::shared_ptr<const data::Dataset>& pairs, const char* name) {
      if (pairs)
        pairs =
            reference_answers(pairs, *decoder_of(model_, "data.format"), config_,
                              fmt::format("{}/data/{}.safetensors", options_.out, name), data_.text, found.has_value());
    };
    with_reference(data_.train, "train.reference");
    with_reference(data_.valid, "valid.reference");
  }
  part.reset();
  schedule_ = make_schedule(config_.optim, config_.steps);
  loader_.emplace(data_.train, data::DataLoaderOptions{.batch_size = config_.batch,
                                                       .shuffle = config_.data.shuffle,
                                                       .seed = static_cast<uint64_t>(config_.seed),
                                                       .repeat = true,
                                                       .pin_memory = device_.is_cuda(),
                                                       .part = ranks_->has_all_rows() ? 0 : ranks_->rank(),
                                                       .parts = ranks_->has_all_rows() ? 1 : ranks_->size(),
                                                       .part_sizes = ranks_->rows()});
  steps_.emplace(*model_, *optimizer_, config_, device_, *ranks_, tiers_ ? &*tiers_ : nullptr);
  if (found) {
    const OnceScope checkpoint("checkpoint");
    try {
      resume_from(*found);
    } catch (const IoError&) {
      if (trusting) throw NotWhole();
      throw;
    }
  }
  ranks_->take_gradients(module(), config_);
  feeder_.emplace(*loader_, config_.accumulate, device_);
  if (mirrors_) mirror_at_ = step_ / config_.parallel.mirror * config_.parallel.mirror + config_.parallel.mirror;
  mended = data_.notes;
  if (found) ranks_->resume_exchange(*found, *optimizer_, mended);
  if (const std::string page = options_.out + "/report.html";
      ranks_->leads() && !found && std::filesystem::exists(page))
    mended.push_back(fmt::format("the report that was there, '{}', is kept as '{}'", page, io::keep_aside(page)));
  if (found) recall_step();
  if (ranks_->leads())
    metrics_.emplace(options_.out + "/metrics.jsonl", step_, found ? found->state.log : LogMark{}, &mended);
  if (!options_.log) {
    if (!options_.warnings) return;
    for (const std::string& w : warnings) std::fputs(fmt::format("skipping the {}\n", w).c_str(), options_.warnings);
    for (const std::string& m : mended) std::fputs(fmt::format("{}\n", m).c_str(), options_.warnings);
    return;
  }
  progress_.emplace(config_.steps, options_.log);
  for (const std::string& w : warnings) note("skipping the " + w);
  for (const std::string& m : mended) note(m);
  note(run_text(config_, module(), data_, device_));
  if (ranks_->pipeline()) note(ranks_->pipeline()->to_text());
  if (plan_) {
    std::istringstream lines(to_text(*plan_));
    for (std::string line; std::getline(lines, line);) note(line);
  }
  if (decays_gradient(config_.optim) && config_.optim.weight_decay > 0.01)
    note(fmt::format("train.weight_decay = {} is added to the gradient by {}, where 0 to 0.001 is usual",
                     config_.optim.weight_decay, config_.optim.optimizer));
  if (found) {
    note(fmt::format("going on after step {} from {}", step_, found->path));
    if (const std::string text = schedule_change(found->state.config, config_, step_); !text.empty()) note(text);
    progress_->resume(step_, elapsed_before_);
  } else if (options_.resume) {
    note("no checkpoint yet: starting from the beginning");
  }
}

FoundRun Run::newest() const {
  try {
    const std::vector<std::string> all = io::list_checkpoints(options_.out);
    if (!all.empty()) return find_run(all.back());
  } catch (const IoError&) {
  }
  throw NotWhole();
}

void Run::resume_from(const FoundRun& found) {
  const RunState& s = found.state;
  for (const ConfigKey& key : config_keys()) {
    const bool decides = key.name.starts_with("model.") || key.name.starts_with("tune.") || key.name == "data.format";
    if (!decides && key.name != "train.optimizer") continue;
    const std::string now = value_text(config_, key), then = value_text(s.config, key);
    check(now == then, "train", key.name, " is ", now, ", but the run in '", options_.out, "' has ", then,
          " (strata train --resume --out ", options_.out, " goes on with the run's own settings)");
  }
  ExchangeRun::check_same_update(s, config_, distributed::size());
  if (mirrored_)
    restore_run(*mirrored_, module(), *optimizer_);
  else
    load_run(found, module(), optimizer_.get(), distributed::size() > 1 ? &distributed::group("world") : nullptr);
  loader_->set_state(s.sampler);
  default_generator().set_state(s.rng);
  if (steps_->scaler() && !s.loss_scale.empty()) steps_->scaler()->load_state(from_span<double>(s.loss_scale, {2}));
  step_ = s.step;
  tokens_ = s.tokens;
  elapsed_before_ = s.elapsed_s;
}

}  // namespace strata::detail
