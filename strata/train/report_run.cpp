// A report's input, read back from a run's folder.

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "strata/core/device.h"
#include "strata/core/recording.h"
#include "strata/core/tensor.h"
#include "strata/cuda/runtime.h"
#include "strata/lab/peaks.h"
#include "strata/memory/budget.h"
#include "strata/train/fine_tune_inl.h"
#include "strata/train/generate.h"
#include "strata/train/progress.h"
#include "strata/train/rehearse.h"
#include "strata/train/report.h"
#include "strata/train/run.h"

namespace strata {

namespace {

// What its machine can do; nothing known where that is elsewhere, or has no room to be measured.
lab::Limits limits_of(const Recording& step) {
  Device device = Device::cpu();
  for (const RecordedStorage& s : step.storages)
    if (s.device.is_cuda()) device = s.device;
  if (device.is_cuda() && device.index >= cuda::device_count()) return {};
  try {
    return lab::measure_limits(device, /*seconds=*/0.1);
  } catch (const Error&) {
    return {};
  }
}

void read_step(ReportInput& in, const std::string& folder, bool with_limits) {
  try {
    const std::optional<Recording> step = read_recorded_step(folder);
    if (!step) return;
    in.costs = lab::StepCosts(with_limits ? limits_of(*step) : lab::Limits());
    in.costs.add(*step);
    in.trace = read_trace(folder);
  } catch (const IoError& e) {
    in.notes.emplace_back("Recorded step", fmt::format("not shown: {}", e.what()));
  }
}

}  // namespace

ReportInput read_run(const std::string& folder, bool with_sample, bool with_limits) {
  ReportInput in;
  in.title = folder;
  while (in.title.size() > 1 && in.title.back() == '/') in.title.pop_back();
  in.title = in.title.substr(in.title.rfind('/') + 1);
  in.metrics = read_metrics(folder + "/metrics.jsonl");
  in.machine = machine_info();
  read_step(in, folder, with_limits);
  const int64_t step = in.metrics.empty() ? 0 : in.metrics.back().step;
  if (!has_run(folder)) {
    in.network = "not known: the folder holds no checkpoint";
    in.config.steps = step;
    in.status = fmt::format("step {}", step);
    return in;
  }
  const FoundRun found = find_run(folder);
  in.config = found.state.config;
  in.status = step >= in.config.steps ? std::string("finished") : fmt::format("step {} of {}", step, in.config.steps);
  {
    DeviceScope dry(Device::meta());
    in.parameters = make_tuned_model(in.config)->as_module().num_parameters();
  }
  if (!in.metrics.empty() && std::isfinite(in.metrics.back().peak_memory))
    in.notes.emplace_back("Peak memory of tensors",
                          memory::bytes_text(static_cast<int64_t>(in.metrics.back().peak_memory)));
  in.notes.emplace_back("Checkpoint", found.path.substr(found.path.rfind('/') + 1));
  if (with_sample && in.config.sample_tokens > 0) {
    const TrainedModel trained = detail::load_trained_model_for({}, folder, nullptr, Device::cpu());
    in.sample_prompt = in.config.sample_prompt;
    in.sample = sample_text(trained);
  }
  return in;
}

}  // namespace strata
