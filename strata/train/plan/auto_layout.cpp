#include "strata/train/plan/auto_layout.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/dist/group.h"
#include "strata/io/files.h"
#include "strata/memory/bounds.h"
#include "strata/memory/budget.h"
#include "strata/train/plan/plan.h"
#include "strata/train/progress.h"
#include "strata/train/ranks.h"

namespace strata::plan {
namespace {

// Rank 0's text, of a line for each setting; what went wrong there begins with a '!'.
std::string follow(std::string text) {
  if (distributed::size() == 1) return text;
  auto bytes = static_cast<int64_t>(text.size());
  distributed::Group& world = distributed::group("world");
  world.run("length of a plan", [&](distributed::Communicator& c) { c.broadcast(&bytes, sizeof(bytes), 0); });
  text.resize(static_cast<size_t>(bytes));
  world.run(cat("plan [", bytes, "]"), [&](distributed::Communicator& c) { c.broadcast(text.data(), text.size(), 0); });
  return text;
}

std::string planned(const TrainConfig& config, const Machine& machine, std::FILE* log) {
  const Plan plan = plan_layouts(config, distributed::size(), machine, {.sure = 1});
  if (plan.layouts.empty()) {
    std::string why;
    for (const LeftOut& r : plan.left_out)
      why += cat(why.empty() ? "" : "; ", r.reason, " (", r.example, r.least > 0 ? ": " + memory::bytes_text(r.least) : "", ")");
    throw ValueError("train", cat("parallel.auto finds no layout of ", distributed::size(), " ranks that can be trained: ", why));
  }
  const Planned& best = plan.layouts[0];
  std::string settings;
  for (const std::string& s : best.settings) settings += s + '\n';
  if (log)
    std::fputs(fmt::format("parallel.auto: {} of {} layouts: {}; forecast {:.4g} ms a step, {} tokens/s, {} a rank{}\n",
                           best.layout.to_text(), plan.layouts.size(),
                           fmt::join(best.settings, " "), 1e3 * best.forecast.seconds, format_count(best.tokens_per_second),
                           memory::bytes_text(best.forecast.peak),
                           plan.layouts.size() > 1
                               ? fmt::format("; next {}, {:.4g} ms", plan.layouts[1].layout.to_text(),
                                             1e3 * plan.layouts[1].forecast.seconds)
                               : "")
                   .c_str(),
               log);
  return settings;
}

}  // namespace

TrainConfig settle_layout(const TrainConfig& config, std::FILE* log) {
  if (!config.parallel.automatic) return config;
  validate(config);
  const bool leads = distributed::rank() == 0;
  std::string text;
  const auto attempt = [&](const auto& f) {
    try {
      text = f();
    } catch (const Error& e) {
      text = cat("!", e.what());
    }
  };
  if (config.parallel.links.empty()) {
    if (config.threads > 0) set_num_threads(static_cast<int>(config.threads));  // as the run will have
    Machine machine = measure_machine(Ranks::device(config), config.dtype);
    machine.memory -= int64_t{64} << 20;  // the program itself
    if (leads) attempt([&] { return planned(config, machine, log); });
  } else if (leads) {
    attempt([&] {
      return planned(config, machine_from_json(io::read_file(config.parallel.links), config.parallel.links), log);
    });
  }
  text = follow(std::move(text));
  if (text.starts_with('!')) {
    const std::string_view why = std::string_view(text).substr(1);
    throw ValueError("train", why.starts_with("train: ") ? std::string(why.substr(7)) : std::string(why));
  }
  std::vector<std::string> settings;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) settings.push_back(line);
  TrainConfig settled = parse_config(to_toml(config), "parallel.auto", settings, Unread::dropped);
  settled.parallel.automatic = false;
  return settled;
}

}  // namespace strata::plan
