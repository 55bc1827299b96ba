#include "strata/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <filesystem>
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include "strata/autograd/anomaly.h"
#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/core/once.h"
#include "strata/core/parallel.h"
#include "strata/cuda/libraries.h"
#include "strata/cuda/runtime.h"
#include "strata/data/loader.h"
#include "strata/io/files.h"
#include "strata/io/read_ahead.h"
#include "strata/lab/peaks.h"
#include "strata/lab/step_costs.h"
#include "strata/lab/trace.h"
#include "strata/memory/allocator.h"
#include "strata/memory/budget.h"
#include "strata/memory/timeline.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/train/conversations_inl.h"
#include "strata/train/feeder.h"
#include "strata/train/fine_tune_inl.h"
#include "strata/train/generate.h"
#include "strata/train/machine.h"
#include "strata/train/model_pipeline_inl.h"
#include "strata/train/plan/auto_layout.h"
#include "strata/train/precision.h"
#include "strata/train/progress.h"
#include "strata/train/ranks.h"
#include "strata/train/report.h"
#include "strata/train/run.h"
#include "strata/train/run_lock.h"
#include "strata/train/run_saver_inl.h"
#include "strata/train/startup.h"
#include "strata/train/step_runner.h"
#include "strata/train/tier_plan.h"
#include "strata/train/tiers.h"
#include "strata/train/train_data.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// Which sign a NaN has is chance.
std::string unsigned_text(double v) {
  return std::isnan(v) ? "nan" : fmt::format("{}", v);
}

// The newest checkpoint was taken to be whole, and is not.
struct NotWhole {};

class Run {
 public:
  // `trusting`: the newest checkpoint is checked as it is read, once; NotWhole where it is damaged. Else all of it is
  // read before, and of those before it where it must be.
  Run(const TrainConfig& config, const TrainOptions& options, bool trusting);
  TrainResult run();

 private:
  // A step that was queued, until its numbers are read.
  struct Launched {
    RngKey rng;                        // before it
    std::vector<data::Batch> batches;  // on the host
    StepMetrics metrics;               // what is known of them
  };

  FoundRun newest() const;
  void resume_from(const FoundRun& found);
  void note(const std::string& text) {
    if (progress_) progress_->note(text);
  }
  void fit();
  void launch();
  void keep_recording(const Recording& step);
  void recall_step();
  StepMetrics settle();
  [[noreturn]] void diverged(const Launched& step, const optim::StepReport& report);
  double validate();
  void save();
  void report(const std::string& status, bool with_sample);
  std::string sample();
  nn::Module& module() const { return model_->as_module(); }
  double elapsed() const { return elapsed_before_ + seconds_since(begin_); }
  // Since the first step of this start.
  double training() const { return seconds_since(training_); }

  TrainConfig config_;
  TrainOptions options_;
  Device device_;
  Clock::time_point begin_ = Clock::now();
  std::vector<std::pair<const char*, double>> once_before_ = detail::once_seconds();
  double elapsed_before_ = 0;
  Clock::time_point training_;
  struct {
    int64_t wanted = 0;                     // steps
    int64_t first_step = 0;                 // the first that counts
    double first_seconds = 0, decided = 0;  // when it was done, and when the number of steps was last thought over
  } fit_;
  std::optional<Ranks> ranks_;
  std::optional<RunLock> lock_;
  TrainData data_;
  std::shared_ptr<TokenDecoder> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<TierPlan> plan_;
  std::optional<Tiers> tiers_;
  std::optional<optim::RunSchedule> schedule_;
  std::optional<data::DataLoader> loader_;
  std::optional<BatchFeeder> feeder_;
  std::optional<StepRunner> steps_;
  std::deque<Launched> launched_;
  std::optional<MetricsWriter> metrics_;
  std::optional<Progress> progress_;
  std::optional<RunSaver> saver_;
  int64_t step_ = 0, tokens_ = 0;
  uint64_t base_ = 0;
  int launches_ = 0;                          // of this start
  std::optional<lab::StepCosts> step_costs_;  // of the step that was recorded
  lab::Trace trace_;                          // of the same, with tiers
  StepMetrics last_;
  double valid_loss_ = NAN;
  int64_t valid_step_ = 0;
};

Run::Run(const TrainConfig& config, const TrainOptions& options, bool trusting)
    : config_(plan::settle_layout(config, options.log)), options_(options) {
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
    options_.log = nullptr;
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
    check<IoError>(most[1] == -most[2], options_.out, "ranks find other newest checkpoints, of steps ", -most[2], " and ",
                   most[1], ": the folder must be on one file system");
  }
  const io::detail::ReadAhead weights = found ? io::detail::read_ahead(found->checkpoint) : io::detail::ReadAhead();
  if (config_.threads > 0) set_num_threads(static_cast<int>(config_.threads));

  std::optional<detail::OnceScope> part(std::in_place, "text");
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
    Tiers::use_disk(*plan_);
    if (options_.memory_check) require_room(*plan_, device_, config_);
  }
  part.emplace("model");
  manual_seed(static_cast<uint64_t>(config_.seed));
  {
    std::optional<nn::init::SkipDraws> from_file;
    if (found) from_file.emplace();
    const DeviceScope there(device_);  // drawn where they stay: the same bits on every device
    const memory::TierScope home(plan_ ? Tiers::weights_tier(*plan_, device_) : Tier());
    model_ = make_tuned_model(config_);
  }
  base_ = base_checksum(module(), config_);
  if (found) check_base(*found, module());
  ranks_->shard(*model_);
  ranks_->take_stages(model_, config_);
  ranks_->share_parameters(module());
  optimizer_ = make_optimizer(config_.optim, ranks_->own_parameters(module()), static_cast<uint64_t>(config_.seed),
                              table_names(*model_));
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
                                                       .part = ranks_->rank(),
                                                       .parts = ranks_->size(),
                                                       .part_sizes = ranks_->rows()});
  steps_.emplace(*model_, *optimizer_, config_, device_, *ranks_, tiers_ ? &*tiers_ : nullptr);
  if (found) {
    const detail::OnceScope checkpoint("checkpoint");
    try {
      resume_from(*found);
    } catch (const IoError&) {
      if (trusting) throw NotWhole();
      throw;
    }
  }
  ranks_->take_gradients(module(), config_);
  feeder_.emplace(*loader_, config_.accumulate, device_);
  mended = data_.notes;
  if (const std::string page = options_.out + "/report.html";
      ranks_->leads() && !found && std::filesystem::exists(page))
    mended.push_back(fmt::format("the report that was there, '{}', is kept as '{}'", page, io::keep_aside(page)));
  if (found) recall_step();
  if (ranks_->leads())
    metrics_.emplace(options_.out + "/metrics.jsonl", step_, found ? found->state.log : LogMark{}, &mended);
  if (!options_.log) return;
  progress_.emplace(config_.steps, options_.log);
  for (const std::string& w : warnings) note("skipping the " + w);
  for (const std::string& m : mended) note(m);
  const int64_t all = module().num_parameters(), trained = module().num_parameters(true);
  note(fmt::format(
      "{}, {} parameters{}; {} training tokens{}; {}", config_.model.family, format_count(static_cast<double>(all)),
      trained == all ? "" : fmt::format(", {} of them trained", format_count(static_cast<double>(trained))),
      format_count(static_cast<double>(data_.train_tokens)),
      data_.valid ? fmt::format(", {} for validation", format_count(static_cast<double>(data_.valid_tokens))) : "",
      device_.is_cuda() ? fmt::format("on {}", cuda::properties(device_.index).name)
                        : fmt::format("{} threads", num_threads())));
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
  load_run(found, module(), optimizer_.get(), distributed::size() > 1 ? &distributed::group("world") : nullptr);
  loader_->set_state(s.sampler);
  default_generator().set_state(s.rng);
  if (steps_->scaler() && !s.loss_scale.empty()) steps_->scaler()->load_state(from_span<double>(s.loss_scale, {2}));
  step_ = s.step, tokens_ = s.tokens, elapsed_before_ = s.elapsed_s;
  saver_->found(found.path, step_);
}

// train.fit_seconds: thinks the number of steps over each time a twentieth of it has passed. What it decides is a
// setting of the run like any other: it stands in the checkpoint, and the same number gives the same weights.
void Run::fit() {
  constexpr int64_t kWarm = 3, kMeasured = 3;  // the first steps load libraries, are recorded and captured
  constexpr double kPart = 0.05;
  const double seconds = ranks_->follow({training()})[0], limit = config_.fit_seconds;  // rank 0's clock
  const int64_t done = last_.step;  // on a card the step after it is under way
  if (fit_.wanted == 0) fit_ = {.wanted = config_.steps, .first_step = step_ + kWarm};
  if (done == fit_.first_step && fit_.first_seconds == 0) fit_.first_seconds = seconds;
  if (done < fit_.first_step + kMeasured || seconds < fit_.decided + kPart * limit) return;
  fit_.decided = seconds;
  const double each = (seconds - fit_.first_seconds) / static_cast<double>(done - fit_.first_step);
  const double more = (limit - seconds) / std::max(each, 1e-9);
  if (more >= static_cast<double>(config_.steps - done)) return;
  const int64_t steps = std::max(step_ + 1, done + static_cast<int64_t>(std::max(more, 0.0)));
  if (steps >= config_.steps) return;
  // Told once, and where it is much less than was told.
  if (config_.steps == fit_.wanted || 10 * steps < 9 * config_.steps)
    note(fmt::format("{} steps fit into train.fit_seconds = {:g}, not {}: the schedule ends there", steps, limit,
                     fit_.wanted));
  config_.steps = steps;
  config_.optim.warmup = std::min(config_.optim.warmup, std::max<int64_t>(steps / 4, 1));
  schedule_ = make_schedule(config_.optim, steps);
  if (progress_) progress_->set_total(steps);
}

void Run::launch() {
  if (memory::is_recording()) memory::mark(fmt::format("step {}", step_ + 1));
  ranks_->seed_step(config_.seed, step_);
  steps_->begin();
  Launched l{.rng = default_generator().state(), .batches = {}, .metrics = {}};
  const std::vector<data::Batch>& batches = feeder_->next();
  l.batches = feeder_->host();
  const double lr = (*schedule_)(step_);
  // The second: libraries are loaded and kernels chosen, and no graph hides the calls yet.
  if (++launches_ == 2) steps_->record_next();
  steps_->launch(batches, lr);
  if (const std::optional<Recording> step = steps_->take_recording()) keep_recording(*step);
  tokens_ += config_.batch * config_.accumulate * data_.row_tokens;
  l.metrics = {.step = ++step_, .lr = lr, .tokens = tokens_};
  launched_.push_back(std::move(l));
  if (step_ < config_.steps) feeder_->prefetch();
  if (const std::string text = steps_->take_note(); !text.empty()) note(text);
}

void Run::keep_recording(const Recording& step) {
  trace_ = steps_->take_trace();
  if (ranks_->pipeline()) trace_ = ranks_->pipeline()->trace();
  step_costs_.emplace();
  step_costs_->add(step);
  if (!ranks_->leads()) return;
  try {
    write_trace(options_.out, trace_);
    write_recorded_step(options_.out, step);
  } catch (const IoError& e) {  // the run can do without
    note(e.what());
  }
}

// What the run recorded before it was stopped, until this start has recorded a step.
void Run::recall_step() {
  try {
    if (const std::optional<Recording> step = read_recorded_step(options_.out)) step_costs_.emplace().add(*step);
    trace_ = read_trace(options_.out);
  } catch (const IoError&) {  // it will be written again
  }
}

// The oldest launched step's numbers, which its end is waited for.
StepMetrics Run::settle() {
  const optim::StepReport r = steps_->read();
  Launched l = std::move(launched_.front());
  launched_.pop_front();
  if (r.outcome == optim::StepReport::diverged) diverged(l, r);
  StepMetrics m = l.metrics;
  m.loss = r.loss;
  m.grad_norm = r.norm;
  m.tokens_per_s = static_cast<double>(config_.batch * config_.accumulate * data_.row_tokens) / steps_->seconds();
  m.elapsed_s = elapsed();
  m.peak_memory = static_cast<double>(memory::stats(device_).peak_total);
  if (r.outcome == optim::StepReport::skipped)
    note(fmt::format("step {}: a gradient is not finite at a loss scale of {:g}; no update, and a smaller scale",
                     m.step, r.scale));
  return m;
}

// Runs the step once more, with the same numbers, looking for the first NaN. Its weights are still there: neither it
// nor a step launched since has changed them.
void Run::diverged(const Launched& l, const optim::StepReport& r) {
  std::string cause = "no op produced a NaN when the step was repeated: a number grew past the largest one";
  default_generator().set_state(l.rng);
  try {
    AnomalyScope watch;
    if (const char* const together = ranks_->together())  // who finds it would leave the others waiting
      cause = fmt::format("the step of {} is not repeated to find the op", together);
    else
      steps_->repeat(l.batches, r.scale);
  } catch (const AutogradError& e) {
    cause = fmt::format("first produced by {}", e.what());
  }
  const int64_t step = l.metrics.step;
  const std::string what = std::isfinite(r.loss) ? "the gradient's norm is " + unsigned_text(r.norm)
                                                 : "the loss is " + unsigned_text(r.loss);
  if (const std::string error = saver_->try_finish(); !error.empty()) note(error);  // the divergence is the greater news
  const std::string saved = saver_->newest().empty() ? "There is no checkpoint yet" : "The newest checkpoint is " + saver_->newest();
  const std::string text = fmt::format("step {}: {}; {}. {}", step, what, cause, saved);
  try {
    report(fmt::format("stopped at step {}: {}; {}", step, what, cause), false);
  } catch (const IoError& e) {
    note(e.what());
  }
  throw DivergedError("train", text + " (a lower train.lr or a longer train.warmup may help)");
}

double Run::validate() {
  NoGrad guard;
  optimizer_->finish();  // a delayed update
  module().eval();
  const auto all = validation_samples(*data_.valid, config_.batch, config_.eval_batches);
  // Each batch's apart: added by their numbers, not by who has them, they have the same bits for any number of ranks.
  std::vector<double> losses(all.size());
  for (size_t turn = 0; turn < all.size(); turn += static_cast<size_t>(ranks_->size())) {
    const size_t mine = turn + static_cast<size_t>(ranks_->rank());
    // Who shares weights computes with the others.
    if (mine >= all.size() && !ranks_->shares_weights()) break;
    const auto& samples = all[std::min(mine, all.size() - 1)];
    const Ranks::Pass parts(*ranks_);
    const double loss = steps_->loss(data_.valid->get_batch(samples)).item();
    if (mine >= all.size()) break;
    losses[mine] = loss * static_cast<double>(samples.size());
  }
  module().train();
  losses = ranks_->sum(std::move(losses));
  double total = 0, count = 0;
  for (size_t i = 0; i < all.size(); ++i) total += losses[i], count += static_cast<double>(all[i].size());
  return total / count;
}

void Run::save() {
  if (saver_->step() == step_ || config_.save_every < 0) return;
  optimizer_->finish();
  RunState s;
  s.config = config_;
  s.tokenizer = data_.tokenizer->to_json();
  s.step = step_;
  s.tokens = tokens_;
  s.text = data_.text;
  s.base = base_;
  s.elapsed_s = elapsed();
  s.rng = default_generator().state();
  if (metrics_) s.log = metrics_->mark();
  s.sampler = feeder_->state();
  if (steps_->scaler()) s.loss_scale = steps_->scaler()->state().to_vector<double>();
  saver_->save(s, module(), *optimizer_);
  if (config_.tune.method != "full" && ranks_->leads()) save_adapter_of(options_.out, *model_, config_);
}

std::string Run::sample() {
  if (config_.sample_tokens == 0) return {};
  if (ranks_->pipeline() || ranks_->shares_experts())  // the model is whole in what they have saved
    return saver_->step() < 0 ? std::string()
                              : sample_text({config_, step_, data_.tokenizer, load_trained_model(saver_->newest()).model});
  const auto answers = std::dynamic_pointer_cast<EncoderDecoder>(model_);
  std::string text = sample_text({config_, step_, data_.tokenizer, std::dynamic_pointer_cast<LanguageModel>(model_),
                                  answers, answers ? find_init(config_.init).start : std::vector<int64_t>()});
  module().train();
  return text;
}

void Run::report(const std::string& status, bool with_sample) {
  // Who has a part of the weights writes with the leader.
  const std::string text = with_sample && (ranks_->leads() || ranks_->shares_weights()) ? sample() : std::string();
  if (!ranks_->leads()) return;
  ReportInput r;
  r.title = last_part(options_.out);
  r.status = status;
  std::vector<std::string> broken;  // somebody else wrote there: no reason to end the run
  r.metrics = read_metrics(options_.out + "/metrics.jsonl", &broken);
  r.config = config_;
  r.machine = machine_info();
  r.parameters = module().num_parameters();
  if (step_costs_) r.costs = *step_costs_;
  r.trace = trace_;
  r.notes.emplace_back("Training tokens", format_count(static_cast<double>(data_.train_tokens)));
  if (data_.valid) r.notes.emplace_back("Validation tokens", format_count(static_cast<double>(data_.valid_tokens)));
  r.notes.emplace_back("Peak memory of tensors", memory::bytes_text(memory::stats(device_).peak_total));
  r.notes.emplace_back("Checkpoint", saver_->newest().empty() ? "none yet" : last_part(saver_->newest()));
  if (with_sample) {
    r.sample_prompt = config_.sample_prompt;
    r.sample = text;
  }
  write_report(options_.out + "/report.html", r);
}

TrainResult Run::run() {
  module().train();
  memory::reset_peak(device_);
  if (config_.save_first && step_ == 0) save();
  std::string status;
  training_ = Clock::now();
  std::optional<detail::OnceScope> first(std::in_place, "step");
  while (step_ < config_.steps && status.empty()) {
    if (config_.fit_seconds > 0) fit();
    launch();
    const bool last = step_ == config_.steps;
    const bool saves = !last && config_.save_every > 0 && step_ % config_.save_every == 0;
    // No rank stops alone.
    const std::vector<double> wants =
        ranks_->vote({options_.stop_requested && options_.stop_requested() ? 1.0 : 0.0,
                      config_.max_seconds > 0 && training() >= config_.max_seconds ? 1.0 : 0.0,
                      saver_->writes() ? 1.0 : 0.0});
    if (wants[2] == 0) saver_->finish();  // every rank has written its part
    const bool interrupted = wants[0] > 0, out_of_time = wants[1] > 0;
    if (!last && interrupted)
      status = fmt::format("stopped at step {}: interrupted", step_);
    else if (!last && out_of_time)
      status = fmt::format("stopped at step {}: train.max_seconds = {:g} has passed", step_, config_.max_seconds);
    // Who interrupts does not wait for a validation.
    const bool validates = data_.valid && config_.eval_every > 0 &&
                           (step_ % config_.eval_every == 0 || last || (out_of_time && !status.empty()));
    // A card computes this step while the one before it is written down, unless more is wanted of this one; the first
    // is told of at once, as the second is queued op by op.
    const bool alone = !device_.is_cuda() || launches_ == 1 || last || validates || saves || !status.empty();
    const size_t ahead = alone ? 0 : 1;
    while (launched_.size() > ahead) {
      last_ = settle();
      if (validates && launched_.empty()) {
        last_.valid_loss = valid_loss_ = validate();
        valid_step_ = last_.step;
        last_.elapsed_s = elapsed();
      }
      if (metrics_) metrics_->write(last_);
      if (progress_) progress_->update(last_);
      if (first) {
        first.reset();
        if (device_.is_cuda()) note(detail::startup_text(seconds_since(begin_), once_before_, detail::once_seconds()));
      }
      if (!std::isnan(last_.valid_loss))
        note(fmt::format("step {}: validation loss {:.4f}", last_.step, last_.valid_loss));
    }
    if (status.empty() && saves) {
      save();
      report("running", false);
    }
  }
  optimizer_->finish();
  const bool finished = status.empty();
  if (finished) status = "finished";
  save();
  saver_->finish();
  if (progress_) progress_->finish();
  if (const std::string text = tiers_ ? tiers_->summary() : std::string(); !text.empty()) note(text);
  const memory::Stats memory = memory::stats(device_);  // of training, not of the sample
  report(status, true);
  return {.step = step_,
          .last = last_,
          .valid_loss = valid_loss_,
          .valid_step = valid_step_,
          .finished = finished,
          .status = status,
          .checkpoint = saver_->newest(),
          .peak_memory = memory.peak_total,
          .peak_reserved = memory.peak_reserved};
}

}  // namespace

TrainResult train(const TrainConfig& config, const TrainOptions& options) try {
  std::optional<Run> run;
  try {
    run.emplace(config, options, true);
  } catch (const NotWhole&) {
    run.emplace(config, options, false);
  }
  return run->run();
} catch (const MemoryError& e) {  // what the run held is free again
  throw_advised(config, e);
}

}  // namespace strata
