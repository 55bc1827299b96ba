#include "strata/train/step_runner.h"

#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast_fp8.h"
#include "strata/core/node.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/lab/device_clock.h"
#include "strata/lab/tracer.h"
#include "strata/memory/allocator.h"
#include "strata/memory/timeline.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/optim/gradient_notes_inl.h"
#include "strata/train/conversations_inl.h"
#include "strata/train/exact_step_inl.h"
#include "strata/train/exchange_run_inl.h"
#include "strata/train/model_pipeline_inl.h"
#include "strata/train/precision.h"

namespace strata {

struct StepRunner::Cuda {
  explicit Cuda(Device d) : device(d) { graph.emplace(cuda::GraphPool(d.index)); }
  ~Cuda() {
    try {
      cuda::synchronize(device.index);  // a report may still be on its way to a slot
    } catch (const Error&) {            // a failed device: told by whoever asks next
    }
  }

  struct Slot {
    explicit Slot(int device) : begun(true, device), arrived(true, device) {}
    Tensor pinned;
    cuda::Event begun, arrived;
    bool follows = false;  // it began before the step before it was read
  };
  Slot& slot(size_t step) { return *slots[step % slots.size()]; }

  Device device;
  bool wanted = true;  // a graph, once a step has run
  std::optional<cuda::Graph> graph;
  Tensor report;                               // what a replay writes
  std::array<std::unique_ptr<Slot>, 3> slots;  // two unread steps, and the one before them for its end
};

StepRunner::StepRunner(TokenDecoder& model, optim::Optimizer& optimizer, const TrainConfig& config, Device device,
                       const Ranks& ranks, const Tiers* tiers)
    : model_(model),
      optimizer_(optimizer),
      device_(device),
      ranks_(ranks),
      tiers_(tiers),
      config_(config),
      autocast_(autocast_of(config, model)),
      max_norm_(config.optim.grad_clip > 0 ? config.optim.grad_clip : INFINITY),
      must_capture_(config.graph == "on") {
  if (autocast_ && autocast_->dtype == DType::f16) scaler_.emplace(device);
  check(!must_capture_ || device.is_cuda(), "train", "train.graph is on, but train.device is ", device,
        ": only CUDA devices have graphs");
  // All that make_optimizer() makes can, their numbers reach the device before each replay.
  const std::string refused = tiers_ ? tiers_->refuses_capture() : ExchangeRun::refuses_capture(config);
  check(!must_capture_ || refused.empty(), "train", "train.graph is on, but ", refused);
  check(!must_capture_ || optimizer.capturable(), "train", "train.graph is on, but the optimizer ", optimizer.name(),
        " computes on the host with each step's numbers, which no graph holds");
  if (const LayeredOptions o = tiers_ ? tiers_->layered() : LayeredOptions{.blocks = 0}; o.blocks > 0)
    layered_.emplace(dynamic_cast<LanguageModel&>(model), o, [tiers, &optimizer] {
      tiers->send_gradients();
      optim::GradientNotes::take(optimizer);
    });
  if (!device.is_cuda()) return;
  cuda_ = std::make_unique<Cuda>(device);
  for (auto& s : cuda_->slots) s = std::make_unique<Cuda::Slot>(device.index);
  cuda_->wanted = config.graph != "off" && refused.empty() && optimizer.capturable();
  if (config.graph != "off" && !cuda_->wanted)
    note_ = "no CUDA graph, each op is launched by itself: " +
            (refused.empty() ? fmt::format("the optimizer {} computes on the host", optimizer.name()) : refused);
}
StepRunner::~StepRunner() = default;

bool StepRunner::captured() const {
  return cuda_ && !cuda_->graph->empty();
}

Tensor StepRunner::loss(const data::Batch& batch) const {
  std::optional<AutocastScope> autocast;
  if (autocast_) autocast.emplace(*autocast_);
  data::Batch here;
  for (const Tensor& t : batch) here.push_back(ranks_.own_positions(t.to(device_)));
  if (ModelPipeline* const stages = ranks_.pipeline()) return stages->loss(here);
  return batch_loss(model_, here, config_);
}

Tensor StepRunner::compute_stages(const std::vector<data::Batch>& batches) {
  if (!std::exchange(connected_, true)) ranks_.connect(device_);
  optimizer_.zero_grad();
  Tensor total;
  {
    std::optional<AutocastScope> autocast;
    if (autocast_) autocast.emplace(*autocast_);
    std::vector<data::Batch> here(batches.size());
    for (size_t i = 0; i < batches.size(); ++i)
      for (const Tensor& t : batches[i]) here[i].push_back(ranks_.own_positions(t));
    const Ranks::Pass parts(ranks_);  // stages' turns are the same in every step
    total = ranks_.pipeline()->step(here, scaler(),
                                    [this](const auto& action, bool last) { ranks_.before_gradients(action, last); });
  }
  const double max_norm = ranks_.finish_step(total, max_norm_);
  Tensor report =
      optimizer_.step_guarded({.max_norm = max_norm, .loss = total, .scaler = scaler(), .squares = ranks_.squares()});
  ranks_.finish_update();
  return report;
}

Tensor StepRunner::compute(const std::vector<data::Batch>& batches) {
  if (ranks_.pipeline()) return compute_stages(batches);
  optimizer_.zero_grad();
  std::optional<Fp8WeightsScope> weights(std::in_place);  // their codes are the same for all batches
  const detail::Fp8RenewedScope renewed;                  // by the optimizer, below
  Tensor total;
  if (layered_) {
    const Tiers::Pass step(tiers_);
    const Tiers::HeldGradients held(tiers_);
    total = layered_->run(batches, autocast_, scaler());
  } else if (ExactStep* const exact = ranks_.exact()) {
    exact->run(
        batches, [this](const data::Batch& b) { return loss(b); },
        [this](const Tensor& l) { (scaler_ ? scaler_->scale(l) : l).backward(); });
  } else {
    total = pass_after_pass(batches);
  }
  weights.reset();
  const double max_norm = ranks_.finish_step(total, max_norm_);
  Tensor report =
      optimizer_.step_guarded({.max_norm = max_norm, .loss = total, .scaler = scaler(), .squares = ranks_.squares()});
  ranks_.finish_update();
  return report;
}

// The sum of the losses over their number.
Tensor StepRunner::pass_after_pass(const std::vector<data::Batch>& batches) {
  const double share = ranks_.row_weight() / static_cast<double>(batches.size());
  const RowShareScope rows(ranks_.own_rows());
  Tensor total;
  for (const data::Batch& batch : batches) {
    const Tiers::Pass pass(tiers_);
    const Ranks::Pass parts(ranks_);
    ranks_.last_pass(&batch == &batches.back());
    Tensor l;
    {
      const Tiers::Forward forward(tiers_);
      l = loss(batch);
    }
    {
      NoGrad guard;
      const Tensor part = to(l.detach(), DType::f64) * share;
      total = total.defined() ? total + part : part;
    }
    const Tensor shared = share == 1 ? l : l * share;
    (scaler_ ? scaler_->scale(shared) : shared).backward();
  }
  return total;
}

Tensor StepRunner::compute_recorded(const std::vector<data::Batch>& batches) {
  if (ranks_.pipeline()) ranks_.pipeline()->time_next();
  if (tiers_) {
    lab::Tracer tracer(device_);
    Tensor report = compute(batches);
    trace_ = tracer.finish();
    tiers_->add_activations(trace_, tracer.begun());
    recorded_ = tracer.recording();
    return report;
  }
  const std::unique_ptr<RecordClock> clock = lab::clock_of(device_);
  Recorder recorder({.clock = clock.get()});
  Tensor report = compute(batches);
  recorded_ = recorder.finish();
  return report;
}

void StepRunner::repeat(const std::vector<data::Batch>& batches, double scale) {
  if (cuda_) cuda_ = nullptr;  // the graph's memory is wanted
  optimizer_.zero_grad();
  if (ExactStep* const exact = ranks_.exact())
    return exact->run(
        batches, [this](const data::Batch& b) { return loss(b); },
        [scale](const Tensor& l) { (l * Scalar(scale)).backward(); }, false);
  const RowShareScope rows(ranks_.own_rows());
  for (const data::Batch& batch : batches) {
    const Ranks::Pass parts(ranks_);
    ranks_.last_pass(&batch == &batches.back());
    (loss(batch) * Scalar(ranks_.row_weight() * scale / static_cast<double>(batches.size()))).backward();
  }
}

void StepRunner::try_capture(const std::vector<data::Batch>& batches) {
  Cuda& c = *cuda_;
  c.wanted = false;
  bool failed = false;
  try {
    check(!(t_mode.unusual & kObserved), "train", "something watches each op (--profile)");
    optimizer_.zero_grad();
    memory::release_cached();  // of the steps before: the graph has memory of its own
    if (tiers_) tiers_->before_capture();
    c.graph->capture([&] { c.report = compute(batches); });
    if (memory::is_recording()) memory::mark("CUDA graph");
    note_ = fmt::format("the step is one CUDA graph of {} nodes, with {:.0f} MiB of its own", c.graph->nodes(),
                        static_cast<double>(c.graph->pool().reserved_bytes()) / (1 << 20));
  } catch (const Error& e) {
    if (must_capture_) throw;
    failed = true;
    optimizer_.zero_grad();
    note_ = fmt::format("no CUDA graph, each op is launched by itself: {}", e.what());
  }
  // No rank replays alone: its collectives would come in another order than the others'.
  if (ranks_.vote({failed ? 1.0 : 0.0})[0] == 0) return;
  c.report = Tensor();
  // What it has of the device's memory, all of a step's where that was too little, the steps that follow want.
  c.graph.emplace(cuda::GraphPool(device_.index));
  if (failed) return;
  optimizer_.zero_grad();
  note_ = "no CUDA graph, each op is launched by itself: another rank could not capture the step";
}

void StepRunner::begin() {
  begun_ = std::chrono::steady_clock::now();
  if (!cuda_) return;
  Cuda::Slot& s = cuda_->slot(queued_);
  s.follows = unread() > 0;
  s.begun.record(cuda::current_stream(device_.index));
}

void StepRunner::launch(const std::vector<data::Batch>& batches, double lr) {
  check(unread() < 2, "StepRunner", "two steps are queued whose reports were not read");
  optimizer_.set_lr(lr);
  const bool recorded = std::exchange(record_next_, false);
  if (!cuda_) {
    const Tensor report = recorded ? compute_recorded(batches) : compute(batches);
    report_ = optim::StepReport::of(report.to(Device::cpu()).data<double>());
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
    ++queued_;
    return;
  }
  Cuda& c = *cuda_;
  Cuda::Slot& s = c.slot(queued_);
  if (c.wanted && queued_ > 0 && !recorded) try_capture(batches);
  Tensor report;
  if (recorded) {
    report = compute_recorded(batches);
  } else if (c.graph->empty()) {
    report = compute(batches);
  } else {
    c.graph->replay();
    report = c.report;
  }
  if (report.device().is_cpu()) {  // the optimizer has waited
    s.pinned = report.clone();
  } else {
    if (!s.pinned.defined()) {
      const DeviceScope host(Device::cpu());  // whatever a caller's scope says
      s.pinned = pin_memory(zeros(report.shape(), report.dtype()));
    }
    cuda::copy_to_pinned(s.pinned, report);
  }
  s.arrived.record(cuda::current_stream(device_.index));
  ++queued_;
}

optim::StepReport StepRunner::read() {
  check(unread() > 0, "StepRunner", "no step is queued");
  const size_t step = read_++;
  if (!cuda_) return report_;
  Cuda::Slot& s = cuda_->slot(step);
  s.arrived.synchronize();
  seconds_ = s.arrived.elapsed_ms(s.follows ? cuda_->slot(step - 1).arrived : s.begun) / 1e3;
  return optim::StepReport::of(s.pinned.data<double>());
}

}  // namespace strata
