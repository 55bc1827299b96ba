#include "strata/train/plan/plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/dist/pipeline/schedules.h"
#include "strata/memory/budget.h"
#include "strata/train/model_pipeline_inl.h"
#include "strata/train/plan/forecast_inl.h"
#include "strata/train/progress.h"
#include "strata/train/ranks.h"

namespace strata::plan {
namespace {

constexpr std::string_view kTooLarge = "does not fit into a rank's memory";

// Why layouts are left out, by the reason without its numbers: those of one key are told as one.
class Reasons {
 public:
  void add(std::string reason, const ParallelLayout& l, int64_t bytes = 0) {
    std::string kind;
    for (const char c : reason)
      if (c < '0' || c > '9') kind += c;
    const auto [at, fresh] = places_.try_emplace(kind, all_.size());
    if (fresh) all_.push_back({std::move(reason), 0, l.to_text(), bytes});
    LeftOut& r = all_[at->second];
    ++r.layouts;
    if (bytes > 0 && bytes < r.least) r.least = bytes, r.example = l.to_text();
  }
  std::vector<LeftOut> take() {
    std::ranges::stable_sort(all_, std::greater(), &LeftOut::layouts);
    return std::move(all_);
  }

 private:
  std::map<std::string, size_t> places_;
  std::vector<LeftOut> all_;
};

// An error without the name of what threw it.
std::string told(const Error& e) {
  const std::string text = e.what();
  return text.starts_with(e.op() + ": ") ? text.substr(e.op().size() + 2) : text;
}

}  // namespace

std::vector<size_t> pareto_front(const std::vector<std::pair<double, double>>& points) {
  std::vector<size_t> order(points.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](size_t i) { return points[i]; });
  std::vector<size_t> front;
  double smallest = std::numeric_limits<double>::infinity();
  for (const size_t i : order) {
    if (points[i].second >= smallest) continue;
    smallest = points[i].second;
    front.push_back(i);
  }
  return front;
}

MemoryEstimate estimate_stages(const TrainConfig& config) {
  ParallelLayout layout = ParallelLayout::of(config);
  check_layout(config, layout.ranks());
  layout.micro_batches = ModelPipeline::pieces(config, layout.dp);
  if (layout.stages == 0) layout.stages = distributed::pipeline::schedule_record(layout.schedule).least_stages;
  const RandomKept random;
  const Profile profile(config, machine_of_card("h200"));  // how fast it is says nothing of memory
  check_layout_of(profile.model(), config.parallel);
  const Forecast f = Forecaster(profile)(layout);
  return {.parameter_count = profile.model().as_module().num_parameters(),
          .parameters = f.parameters,
          .gradients = f.gradients,
          .optimizer = f.optimizer,
          .activations = f.activations,
          .data = f.data,
          .peak = f.peak,
          .ranks = layout.ranks()};
}

Plan plan_layouts(const TrainConfig& config, int64_t ranks, const Machine& machine, const PlanOptions& options) {
  const RandomKept random;
  std::optional<Profile> known(std::in_place, config, machine);
  const Profile& profile = *known;
  Plan plan{.ranks = ranks, .memory = options.memory > 0 ? options.memory : machine.memory};
  const TrainConfig whole = profile.config();
  plan.tokens = static_cast<double>(config.batch * config.accumulate) * profile.tokens;
  Forecaster forecaster(profile);
  Reasons reasons;
  const auto fits = [&](int64_t bytes) { return plan.memory == 0 || bytes <= plan.memory; };
  for (ParallelLayout& l : candidates(whole, ranks)) {
    try {
      const TrainConfig c = l.applied(whole);
      check_layout(c, ranks);
      check_layout_of(profile.model(), c.parallel);
    } catch (const Error& e) {
      reasons.add(told(e), l);
      continue;
    }
    Planned p{.layout = std::move(l)};
    p.forecast = forecaster(p.layout, options.order);
    if (!fits(p.forecast.peak)) {
      reasons.add(std::string(kTooLarge), p.layout, p.forecast.peak);
      continue;
    }
    plan.layouts.push_back(std::move(p));
  }
  const auto faster = [](const Planned& a, const Planned& b) {
    return std::pair(a.forecast.seconds, a.forecast.peak) < std::pair(b.forecast.seconds, b.forecast.peak);
  };
  std::ranges::stable_sort(plan.layouts, faster);
  known.reset();  // its model would count as memory that dry runs need not take
  // What a run would be refused for: the trainer's own estimate has the last word on those that are shown.
  for (size_t i = 0; i < plan.layouts.size() && i < static_cast<size_t>(std::max<int64_t>(options.sure, 0));) {
    Planned& p = plan.layouts[i];
    if (p.layout.pp == 1) {
      const int64_t peak = estimate_memory(p.layout.applied(whole)).peak;
      p.forecast.peak = std::max(p.forecast.peak, peak);
      if (!fits(peak)) {
        reasons.add(std::string(kTooLarge), p.layout, peak);
        plan.layouts.erase(plan.layouts.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
    }
    ++i;
  }
  std::vector<std::pair<double, double>> points;
  for (Planned& p : plan.layouts) {
    p.settings = p.layout.settings(whole);
    p.tokens_per_second = plan.tokens / p.forecast.seconds;
    points.emplace_back(p.forecast.seconds, static_cast<double>(p.forecast.peak));
  }
  for (const size_t i : pareto_front(points)) plan.layouts[i].on_front = true;
  plan.left_out = reasons.take();
  if (options.find_order && !plan.layouts.empty()) plan.order = order_ranks(config, plan.layouts[0].layout, machine);
  return plan;
}

std::string to_text(const Plan& plan, size_t rows) {
  std::string s = fmt::format("{} ranks, {} tokens a step; {} layouts can be trained{}\n\n", plan.ranks,
                              format_count(plan.tokens), plan.layouts.size(),
                              plan.memory > 0 ? " in " + memory::bytes_text(plan.memory) + " a rank" : "");
  size_t width = 6;
  for (size_t i = 0; i < std::min(rows, plan.layouts.size()); ++i)
    width = std::max(width, plan.layouts[i].layout.to_text().size());
  const auto line = [&](const Planned& p) {
    const Forecast& f = p.forecast;
    s += fmt::format("{:<{}} {:>9.4g} {:>10} {:>11} {:>9.4g} {:>11} {:>6.1f}%\n", p.layout.to_text(), width,
                     1e3 * f.seconds, format_count(p.tokens_per_second), memory::bytes_text(f.peak), 1e3 * f.exposed,
                     memory::bytes_text(f.exposed_bytes), 100 * f.bubble);
  };
  s += fmt::format("{:<{}} {:>9} {:>10} {:>11} {:>9} {:>11} {:>7}\n", "layout", width, "ms a step", "tokens/s", "memory",
                   "waits, ms", "uncovered", "bubble");
  for (size_t i = 0; i < std::min(rows, plan.layouts.size()); ++i) line(plan.layouts[i]);
  bool headed = false;
  for (size_t i = rows; i < plan.layouts.size(); ++i) {
    if (!plan.layouts[i].on_front) continue;
    if (!std::exchange(headed, true)) s += "\nslower, in less memory:\n";
    line(plan.layouts[i]);
  }
  if (!plan.layouts.empty()) {
    s += "\nThe first:";
    for (const std::string& setting : plan.layouts[0].settings) s += " --set " + setting;
    s += '\n';
  }
  if (!plan.left_out.empty()) s += "\nleft out:\n";
  for (const LeftOut& r : plan.left_out)
    s += fmt::format("{:>6}  {} ({}{})\n", r.layouts, r.reason, r.example,
                     r.least > 0 ? ": " + memory::bytes_text(r.least) + ", the least" : "");
  if (plan.order)
    s += fmt::format("\norder of ranks for the first: {}; {:.4g} ms a step, {:.4g} as they come\n",
                     fmt::join(plan.order->ranks, " "), 1e3 * plan.order->seconds, 1e3 * plan.order->as_they_come);
  return s;
}

std::string to_json(const Plan& plan) {
  using nlohmann::json;
  json layouts = json::array(), left_out = json::array();
  for (const Planned& p : plan.layouts) {
    const Forecast& f = p.forecast;
    layouts.push_back({{"layout", p.layout.to_text()},
                       {"settings", p.settings},
                       {"seconds", f.seconds},
                       {"tokens_per_second", p.tokens_per_second},
                       {"computes", f.computes},
                       {"exposed", f.exposed},
                       {"bubble", f.bubble},
                       {"sent", f.sent},
                       {"exposed_bytes", f.exposed_bytes},
                       {"parameters", f.parameters},
                       {"gradients", f.gradients},
                       {"optimizer", f.optimizer},
                       {"activations", f.activations},
                       {"peak", f.peak},
                       {"on_front", p.on_front}});
  }
  for (const LeftOut& r : plan.left_out)
    left_out.push_back({{"reason", r.reason}, {"layouts", r.layouts}, {"example", r.example}, {"least", r.least}});
  json all{{"ranks", plan.ranks},
           {"memory", plan.memory},
           {"tokens", plan.tokens},
           {"layouts", std::move(layouts)},
           {"left_out", std::move(left_out)}};
  if (plan.order)
    all["order"] = {{"ranks", plan.order->ranks},
                    {"seconds", plan.order->seconds},
                    {"as_they_come", plan.order->as_they_come}};
  return all.dump(1) + "\n";
}

}  // namespace strata::plan
