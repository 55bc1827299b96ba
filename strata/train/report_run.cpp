// A report's input, read back from a run's folder.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "strata/core/device.h"
#include "strata/core/tensor.h"
#include "strata/train/generate.h"
#include "strata/train/progress.h"
#include "strata/train/report.h"
#include "strata/train/run.h"

namespace strata {

ReportInput read_run(const std::string& folder, bool with_sample) {
  ReportInput in;
  in.title = folder;
  while (in.title.size() > 1 && in.title.back() == '/') in.title.pop_back();
  in.title = in.title.substr(in.title.rfind('/') + 1);
  in.metrics = read_metrics(folder + "/metrics.jsonl");
  in.machine = machine_info();
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
    in.parameters = make_model(in.config.model)->num_parameters();
  }
  if (!in.metrics.empty() && std::isfinite(in.metrics.back().peak_memory))
    in.notes.emplace_back("Peak memory of tensors", format_bytes(static_cast<int64_t>(in.metrics.back().peak_memory)));
  in.notes.emplace_back("Checkpoint", found.path.substr(found.path.rfind('/') + 1));
  if (with_sample && in.config.sample_tokens > 0) {
    const TrainedModel trained = load_trained_model(folder);
    in.sample_prompt = in.config.sample_prompt;
    TextWriter writer(trained, in.sample_prompt.empty() ? "\n" : in.sample_prompt,
                      {.temperature = 0.8, .top_p = 0.95, .seed = static_cast<uint64_t>(in.config.seed)});
    for (int64_t i = 0; i < in.config.sample_tokens; ++i) in.sample += writer.next();
  }
  return in;
}

}  // namespace strata
