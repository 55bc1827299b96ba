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
#include "strata/train/exchange_run_inl.h"
#include "strata/train/feeder.h"
#include "strata/train/fine_tune_inl.h"
#include "strata/train/generate.h"
#include "strata/train/machine.h"
#include "strata/train/model_pipeline_inl.h"
#include "strata/train/precision.h"
#include "strata/train/progress.h"
#include "strata/train/ranks.h"
#include "strata/train/replicas_inl.h"
#include "strata/train/report.h"
#include "strata/train/run.h"
#include "strata/train/run_lock.h"
#include "strata/train/run_saver_inl.h"
#include "strata/train/startup.h"
#include "strata/train/step_runner.h"
#include "strata/train/tier_plan.h"
#include "strata/train/tiers.h"
#include "strata/train/train_data.h"
#include "strata/train/trainer_inl.h"

namespace strata {
namespace detail {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

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
  if (ranks_->exchange()) ranks_->exchange()->tell(m);
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
  if (const std::string error = saver_->try_finish(); !error.empty())
    note(error);  // the divergence is the greater news
  const std::string saved =
      saver_->newest().empty() ? "There is no checkpoint yet" : "The newest checkpoint is " + saver_->newest();
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
  const RanksMean mean(ranks_->exchange());
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

RunState Run::state() {
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
  s.sampler = feeder_->state();
  if (steps_->scaler()) s.loss_scale = steps_->scaler()->state().to_vector<double>();
  return s;
}

void Run::save() {
  if (saver_->step() == step_ || config_.save_every < 0) return;
  RunState s = state();
  if (metrics_) s.log = metrics_->mark();
  const RanksMean mean(ranks_->exchange());
  if (ranks_->exchange()) ranks_->exchange()->save(s, *optimizer_);
  saver_->save(s, module(), *optimizer_);
  if (config_.tune.method != "full" && ranks_->leads()) save_adapter_of(options_.out, *model_, config_);
}

std::string Run::sample() {
  if (config_.sample_tokens == 0) return {};
  if (ranks_->pipeline() || ranks_->shares_experts())  // the model is whole in what they have saved
    return saver_->step() < 0
               ? std::string()
               : sample_text({config_, step_, data_.tokenizer, load_trained_model(saver_->newest()).model});
  const auto answers = std::dynamic_pointer_cast<EncoderDecoder>(model_);
  std::string text = sample_text({config_, step_, data_.tokenizer, std::dynamic_pointer_cast<LanguageModel>(model_),
                                  answers, answers ? find_init(config_.init).start : std::vector<int64_t>()});
  module().train();
  return text;
}

void Run::report(const std::string& status, bool with_sample) {
  const RanksMean mean(with_sample ? ranks_->exchange() : nullptr);
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
  if (const std::string way = ranks_->way_of_cards(); !way.empty()) r.notes.emplace_back("Between cards", way);
  if (ranks_->exchange()) r.notes.emplace_back("Gradients sent", ranks_->exchange()->summary());
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
  std::optional<OnceScope> first(std::in_place, "step");
  while (step_ < config_.steps && status.empty()) {
    if (config_.fit_seconds > 0) fit();
    launch();
    const bool last = step_ == config_.steps;
    const bool saves = !last && config_.save_every > 0 && step_ % config_.save_every == 0;
    // No rank stops alone.
    const std::vector<double> wants =
        ranks_->vote({options_.stop_requested && options_.stop_requested() ? 1.0 : 0.0,
                      config_.max_seconds > 0 && training() >= config_.max_seconds ? 1.0 : 0.0,
                      saver_->writes() ? 1.0 : 0.0, mirrors_ && mirrors_->under_way() ? 1.0 : 0.0});
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
    const int64_t compared = config_.parallel.check_replicas;
    // The copies of the step before are there: the older ones may go.
    const bool mirrors = mirrors_ && !last && status.empty() && step_ >= mirror_at_ && wants[3] == 0;
    const bool compares = compared > 0 && step_ % compared == 0;
    const bool alone = !device_.is_cuda() || launches_ == 1 || last || validates || saves || compares || mirrors ||
                       options_.after_step || !status.empty();
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
        if (device_.is_cuda()) note(startup_text(seconds_since(begin_), once_before_, once_seconds()));
      }
      if (!std::isnan(last_.valid_loss))
        note(fmt::format("step {}: validation loss {:.4f}", last_.step, last_.valid_loss));
    }
    if (options_.after_step) options_.after_step(step_, module());
    if (compares) {  // before what is wrong is saved
      optimizer_->finish();
      check_replicas(step_, module().state_dict(), optimizer_->state_dict());
    }
    if (mirrors) {
      mirror_at_ = step_ / config_.parallel.mirror * config_.parallel.mirror + config_.parallel.mirror;
      mirrors_->begin(step_, encode_run(state(), module(), *optimizer_));
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
  if (ranks_->exchange()) note(ranks_->exchange()->summary());
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

}  // namespace detail

namespace {

// The settings for the ranks that are left: the same batch, shared out among them.
TrainConfig for_fewer(TrainConfig c) {
  if (c.parallel.automatic) return c;
  c.parallel.dp = 0;
  c.parallel.shares.clear();
  const int64_t dp = distributed::size() / (c.parallel.tp * c.parallel.pp * c.parallel.cp);
  if (dp > 0 && c.batch % dp != 0 && c.parallel.exact == 0)
    for (int64_t r = 0; r < dp; ++r) c.parallel.shares += r == 0 ? "1" : " 1";
  return c;
}

TrainResult train_once(const TrainConfig& config, const TrainOptions& options, detail::Mirrors* mirrors) {
  std::optional<detail::Run> run;
  try {
    run.emplace(config, options, true, mirrors);
  } catch (const detail::NotWhole&) {
    run.emplace(config, options, false, mirrors);
  }
  return run->run();
}

}  // namespace

TrainResult train(const TrainConfig& config, const TrainOptions& options) try {
  TrainConfig c = config;
  TrainOptions o = options;
  std::optional<detail::Mirrors> mirrors;
  check(c.parallel.mirror == 0 || !c.parallel.automatic, "train",
        "parallel.mirror is not for parallel.auto, which may "
        "find another layout when a run goes on: give the one that strata plan names");
  if (c.parallel.mirror > 0) mirrors.emplace();
  // Who takes another's place finds a run.
  if (distributed::job().joins >= 0) o.resume = true;
  const int ranks = distributed::size();
  while (true) {
    try {
      return train_once(ranks == distributed::size() ? c : for_fewer(c), o, mirrors ? &*mirrors : nullptr);
    } catch (const Error& e) {
      if (!distributed::can_rejoin()) throw;
      const std::string what = e.what();
      if (o.log && distributed::rank() == 0)
        std::fputs(fmt::format("\n{}\nthe run goes on when the others are there\n", what).c_str(), o.log);
    }
    distributed::rejoin();
    o.resume = true;
  }
} catch (const MemoryError& e) {  // what the run held is free again
  throw_advised(config, e);
}

}  // namespace strata
