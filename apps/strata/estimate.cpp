#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/strata/command.h"
#include "strata/core/error.h"
#include "strata/train/estimate.h"
#include "strata/train/progress.h"

namespace strata::cli {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> set;
};

void row(const char* label, int64_t bytes) {
  std::fputs(fmt::format("{:<14}{:>12.1f} MiB\n", label, static_cast<double>(bytes) / (1 << 20)).c_str(), stdout);
}

int run(const Arguments& a) {
  TrainConfig config;
  try {
    config = load_config(a.config, a.set);
  } catch (const ValueError& e) {
    throw UsageError(e.what());
  }
  const MemoryEstimate e = estimate_memory(config);
  std::fputs(fmt::format("{} of {} layers, dim {}: {} parameters; batch {} of {} tokens, {}\n\n", config.model.family,
                         config.model.layers, config.model.dim, format_count(static_cast<double>(e.parameter_count)),
                         config.batch, config.model.context, config.dtype)
                 .c_str(),
             stdout);
  row("parameters", e.parameters);
  row("gradients", e.gradients);
  row("optimizer", e.optimizer);
  row("activations", e.activations);
  row("data", e.data);
  row("peak", e.peak);
  return kOk;
}

}  // namespace

void add_estimate(CLI::App& app, Body& body) {
  CLI::App* estimate = app.add_subcommand("estimate", "The memory that training will take, from a dry run");
  auto a = std::make_shared<Arguments>();
  estimate->add_option("config", a->config, "Settings (TOML), as for strata train");
  estimate->add_option("--set", a->set, "Any setting, e.g. --set train.batch=64")
      ->type_name("KEY=VALUE")
      ->expected(1, -1);
  estimate->footer(
      "Runs one step with shapes only: nothing is allocated and nothing computed, so that a model of any size is "
      "answered at once. Activations are gone when all gradients are there: the peak is less than the sum of the "
      "lines.");
  estimate->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
