#include "strata/train/memory_plan.h"

#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "strata/core/device.h"
#include "strata/core/error.h"
#include "strata/memory/budget.h"

namespace strata {
namespace {

using Settings = std::vector<std::string>;

// Pages of the program and its libraries, threads' stacks, blocks below the allocator's accounting.
constexpr int64_t kProgram = int64_t{64} << 20;

Settings joined(Settings a, const Settings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class Search {
 public:
  Search(const TrainConfig& config, int64_t room) : config_(config), toml_(to_toml(config)), room_(room) {}

  std::vector<MemoryFix> run() {
    const std::vector<Settings> precisions = lower_precisions();
    Settings all;
    for (const Settings& more : precisions) all = joined(all, more);
    all = joined(all, parts(config_.batch));
    // Dry runs of large models take a while: where everything together does not help, its parts are not asked.
    const std::optional<int64_t> least = peak(all);
    if (least && *least > room_) return fewer_layers(all);

    std::vector<MemoryFix> found;
    int64_t least_parts = config_.batch + 1;
    Settings lower;
    for (const Settings& more : precisions) {
      lower = joined(lower, more);
      // As few parts as possible; less precision is told where it saves some of them.
      if (auto fix = fewest_parts(lower, least_parts)) found.push_back(std::move(*fix));
      if (least_parts == 1) break;
    }
    return found;
  }

 private:
  // What lowers the precision further, step by step; the first changes nothing.
  std::vector<Settings> lower_precisions() const {
    std::vector<Settings> all{{}};
    if (config_.dtype == "f32") all.push_back({"train.dtype=bf16"});
    if (config_.param_dtype == "f32")
      all.push_back(config_.dtype == "f16" ? Settings{"train.dtype=bf16", "train.param_dtype=bf16"}
                                           : Settings{"train.param_dtype=bf16"});
    const OptimConfig& o = config_.optim;
    const bool weights_in_f32 = o.param_update == "master" || o.param_update == "compensated";
    if (!o.low_state && !o.state_8bit)
      all.push_back({weights_in_f32 ? "train.state_8bit=true" : "train.low_state=true"});
    return all;
  }
  // A step's batch in `n` equal parts, one after the other: the same step.
  Settings parts(int64_t n) const {
    if (n == 1) return {};
    if (config_.parallel.exact > 0) return {fmt::format("parallel.exact={}", config_.parallel.exact * n)};
    return {fmt::format("train.batch={}", config_.batch / n),
            fmt::format("train.accumulate={}", config_.accumulate * n)};
  }
  // Nothing where the settings do not go together.
  std::optional<int64_t> peak(const Settings& settings) const {
    try {
      return estimate_memory(parse_config(toml_, "plan", settings, Unread::dropped)).peak;
    } catch (const ValueError&) {
      return std::nullopt;
    }
  }
  // The peak where these settings fit.
  std::optional<int64_t> peak_within(const Settings& settings) const {
    const std::optional<int64_t> bytes = peak(settings);
    return bytes && *bytes <= room_ ? bytes : std::nullopt;
  }
  // The fewest parts, below `least`, with which these settings fit; `least` becomes their number.
  std::optional<MemoryFix> fewest_parts(const Settings& settings, int64_t& least) const {
    std::vector<int64_t> divisors;
    const int64_t rows = config_.batch / std::max<int64_t>(config_.parallel.exact, 1);  // of a pass
    for (int64_t n = 1; n < least && n <= rows; ++n)
      if (rows % n == 0) divisors.push_back(n);
    std::optional<MemoryFix> best;
    for (size_t lo = 0, hi = divisors.size(); lo < hi;) {
      const size_t mid = (lo + hi) / 2;
      Settings all = joined(settings, parts(divisors[mid]));
      const std::optional<int64_t> peak = peak_within(all);
      if (!peak) {
        lo = mid + 1;
        continue;
      }
      least = divisors[mid];
      best = MemoryFix{std::move(all), *peak};
      hi = mid;
    }
    return best;
  }
  std::vector<MemoryFix> fewer_layers(const Settings& settings) const {
    std::vector<MemoryFix> best;
    for (int64_t lo = 1, hi = config_.model.layers - 1; lo <= hi;) {
      const int64_t mid = best.empty() ? 1 : (lo + hi + 1) / 2;  // one layer has to fit
      Settings all = joined(settings, {fmt::format("model.layers={}", mid)});
      const std::optional<int64_t> bytes = peak_within(all);
      if (!bytes) {
        hi = mid - 1;
        continue;
      }
      best = {MemoryFix{std::move(all), *bytes}};
      lo = mid + 1;
    }
    return best;
  }

  const TrainConfig& config_;
  std::string toml_;
  int64_t room_;
};

}  // namespace

MemoryPlan plan_memory(const TrainConfig& config, const memory::Bound& bound) {
  MemoryPlan plan{.need = estimate_memory(config), .bound = bound};
  if (parse_device(config.device).is_cpu()) plan.program = kProgram;
  const int64_t room = bound.free() - plan.program;
  plan.fits = plan.need.peak <= room;
  if (!plan.fits) plan.fixes = Search(config, room).run();
  return plan;
}

std::string to_text(const MemoryPlan& plan) {
  const MemoryEstimate& e = plan.need;
  const std::pair<const char*, int64_t> rows[] = {
      {"parameters", e.parameters},   {"gradients", e.gradients}, {"optimizer", e.optimizer},
      {"activations", e.activations}, {"data", e.data},           {"peak", e.peak}};
  const auto row = [](const char* label, int64_t bytes) {
    return fmt::format("{:<14}{:>16}", label, memory::bytes_text(bytes));
  };
  std::string s;
  for (const auto& [label, bytes] : rows) {
    s += row(label, bytes) + '\n';
    if (e.sums > 0 && label == std::string_view("gradients"))
      s += row("sums", e.sums) + "  (in f32, of parallel.exact's micro-batches, until the gradients are there)\n";
  }
  if (e.exchange > 0) s += row("exchange", e.exchange) + "  (kept by parallel.reduce, a part of the peak)\n";
  if (e.copies > 0) s += row("copies", e.copies) + "  (of what a checkpoint holds, in the host's memory: train.save_async)\n";
  if (plan.program > 0) s += row("program", plan.program) + '\n';
  if (e.sends_gradients > 0)
    s += row("sent", e.sends_parameters + e.sends_gradients + e.sends_activations) +
         fmt::format("  (by one of {} ranks in a step: parameters {}, gradients {}{}; what is above is one rank's)\n",
                     e.ranks, memory::bytes_text(e.sends_parameters), memory::bytes_text(e.sends_gradients),
                     e.sends_activations > 0 ? ", attention " + memory::bytes_text(e.sends_activations) : "");
  if (e.sends_tokens > 0)
    s += row("sent", e.sends_tokens) + "  (the same of rows that go to experts on other ranks and back)\n";
  const int64_t wanted = e.peak + plan.program, free = plan.bound.free();
  if (free == std::numeric_limits<int64_t>::max()) return s;  // nothing bounds it
  s += row("free", free) + fmt::format("  ({}: {}, {} in use)\n\n", plan.bound.name,
                                       memory::bytes_text(plan.bound.limit), memory::bytes_text(plan.bound.used));
  s += plan.fits
           ? fmt::format("It fits: {} of {} that are free.\n", memory::bytes_text(wanted), memory::bytes_text(free))
           : fmt::format("It does not fit: {} are missing.\n", memory::bytes_text(wanted - free));
  return s;
}

std::string to_options(const MemoryFix& fix) {
  constexpr std::string_view kDtype = "train.dtype=";
  std::string options, set;
  for (const std::string& s : fix.settings) {
    if (s.starts_with(kDtype)) {
      options = "--dtype " + s.substr(kDtype.size());
    } else {
      set += " " + s;
    }
  }
  if (!set.empty()) options += (options.empty() ? "--set" : " --set") + set;
  return options;
}

}  // namespace strata
