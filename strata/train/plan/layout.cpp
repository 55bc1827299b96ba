#include "strata/train/plan/layout.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "strata/core/error.h"
#include "strata/dist/pipeline/schedules.h"

namespace strata::plan {
namespace {

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    all.push_back(d);
    if (d != n / d) all.push_back(n / d);
  }
  std::ranges::sort(all);
  return all;
}

// The values of a key: what the settings say where that is no default.
template <class T>
std::vector<T> choices(const T& said, const T& usual, std::vector<T> others) {
  return said == usual ? std::move(others) : std::vector<T>{said};
}

class Candidates {
 public:
  Candidates(const TrainConfig& config, int64_t ranks) : config_(config), p_(config.parallel), ranks_(ranks) {}

  std::vector<ParallelLayout> all() {
    for (const int64_t tp : axis(p_.tp))
      for (const int64_t cp : axis(p_.cp))
        for (const int64_t pp : axis(p_.pp)) {
          if (ranks_ % (tp * cp * pp) != 0) continue;
          // Both together train, but what they take is not forecast well: they are for who asks for them.
          if (tp > 1 && cp > 1 && (p_.tp == 1 || p_.cp == 1)) continue;
          ParallelLayout l{.dp = ranks_ / (tp * cp * pp), .tp = tp, .cp = cp, .pp = pp};
          if (p_.dp > 0 && p_.dp != l.dp) continue;
          shared(l);
        }
    return std::move(found_);
  }

 private:
  std::vector<int64_t> axis(int64_t said) const { return choices<int64_t>(said, 1, divisors(ranks_)); }
  void shared(ParallelLayout l) {
    // Ranks that share weights' parts: those of dp, or of cp alone.
    const bool sharing = l.dp > 1 || l.cp > 1;
    const std::vector<int64_t> experts = config_.model.experts > 0 && config_.init.empty() ? divisors(l.dp * l.cp * l.tp) : std::vector<int64_t>{1};
    for (const int64_t zero : choices<int64_t>(p_.zero, 0, sharing ? std::vector<int64_t>{0, 1, 2, 3} : std::vector<int64_t>{0}))
      for (const int64_t ep : choices<int64_t>(p_.ep, 1, experts))
        for (const bool again : choices<bool>(p_.recompute, false, {false, true}))
          for (const std::string& kind : choices<std::string>(p_.cp_kind, "ring", l.cp > 1 ? std::vector<std::string>{"ring", "ulysses"} : std::vector<std::string>{"ring"})) {
            l.zero = zero, l.ep = ep, l.recompute = again, l.cp_kind = kind;
            l.pp > 1 ? staged(l) : passes(l);
          }
  }
  void passes(ParallelLayout l) {
    const int64_t rows = config_.batch * config_.accumulate;
    const std::vector<int64_t> all = p_.exact > 0 ? std::vector<int64_t>{config_.accumulate} : divisors(rows);
    for (const int64_t n : all) {
      if (n != config_.accumulate && (rows / n < l.dp || rows / n % l.dp != 0)) continue;
      l.accumulate = n;
      found_.push_back(l);
    }
  }
  void staged(ParallelLayout l) {
    l.accumulate = config_.accumulate;  // its batches are micro-batches like others
    const int64_t rows = std::max<int64_t>(config_.batch / l.dp, 1);
    std::vector<int64_t> pieces;
    for (const int64_t m : p_.exact > 0 ? std::vector<int64_t>{std::max<int64_t>(p_.exact / l.dp, 1)} : divisors(rows))
      if (p_.exact > 0 || m * l.accumulate <= 8 * l.pp) pieces.push_back(m);
    std::vector<std::string> names;
    for (const auto& s : distributed::pipeline::schedule_records()) names.emplace_back(s.name);
    for (const std::string& name : choices<std::string>(p_.schedule, "1f1b", names)) {
      const auto& record = distributed::pipeline::schedule_record(name);
      std::vector<int64_t> stages{0};
      if (record.most_stages == 0) stages.push_back(int64_t{2} * record.least_stages);
      for (const int64_t v : choices<int64_t>(p_.stages, 0, stages))
        for (const int64_t m : choices<int64_t>(p_.micro_batches, 0, pieces)) {
          l.schedule = name, l.stages = v, l.micro_batches = m;
          found_.push_back(l);
        }
    }
  }

  const TrainConfig& config_;
  const ParallelConfig& p_;
  int64_t ranks_;
  std::vector<ParallelLayout> found_;
};

}  // namespace

ParallelLayout ParallelLayout::of(const TrainConfig& c) {
  const ParallelConfig& p = c.parallel;
  return {.dp = std::max<int64_t>(p.dp, 1),
          .tp = p.tp,
          .cp = p.cp,
          .pp = p.pp,
          .ep = p.ep,
          .zero = p.zero,
          .accumulate = c.accumulate,
          .recompute = p.recompute,
          .cp_kind = p.cp_kind,
          .schedule = p.schedule,
          .micro_batches = p.micro_batches,
          .stages = p.stages};
}

std::vector<std::string> ParallelLayout::settings(const TrainConfig& config) const {
  std::vector<std::string> s{fmt::format("parallel.dp={}", dp)};
  const auto say = [&](const char* key, const auto& value, const auto& usual) {
    if (value != usual) s.push_back(fmt::format("{}={}", key, value));
  };
  say("parallel.zero", zero, 0);
  say("parallel.tp", tp, 1);
  say("parallel.cp", cp, 1);
  say("parallel.cp_kind", cp_kind, "ring");
  say("parallel.ep", ep, 1);
  say("parallel.pp", pp, 1);
  say("parallel.schedule", schedule, "1f1b");
  say("parallel.micro_batches", micro_batches, 0);
  say("parallel.stages", stages, 0);
  if (recompute) s.emplace_back("parallel.recompute=true");
  if (accumulate != config.accumulate) {
    s.push_back(fmt::format("train.batch={}", config.batch * config.accumulate / accumulate));
    s.push_back(fmt::format("train.accumulate={}", accumulate));
  }
  return s;
}

TrainConfig ParallelLayout::applied(const TrainConfig& config) const {
  TrainConfig c = config;
  const int64_t rows = config.batch * config.accumulate;
  check(accumulate >= 1 && rows % accumulate == 0, "plan", "train.accumulate = ", accumulate, " does not divide the ", rows,
        " rows of a step");
  c.batch = rows / accumulate, c.accumulate = accumulate;
  ParallelConfig& p = c.parallel;
  p.automatic = false;
  p.dp = dp, p.tp = tp, p.cp = cp, p.pp = pp, p.ep = ep, p.zero = zero, p.recompute = recompute;
  p.cp_kind = cp_kind, p.schedule = schedule, p.micro_batches = micro_batches, p.stages = stages;
  return c;
}

std::string ParallelLayout::to_text() const {
  std::string s;
  const auto axis = [&](const char* name, int64_t n) {
    if (n > 1) s += fmt::format("{}{} {}", s.empty() ? "" : " x ", name, n);
  };
  axis("dp", dp), axis("tp", tp), axis("cp", cp), axis("pp", pp);
  if (s.empty()) s = "one rank";
  if (cp > 1) s += " (" + cp_kind + ")";
  if (ep > 1) s += fmt::format(", experts on {}", ep);
  if (zero > 0) s += fmt::format(", zero {}", zero);
  if (pp > 1) s += fmt::format(", {}{}, {} micro-batches", schedule, stages > 0 ? fmt::format(" of {} stages", stages) : "", micro_batches);
  if (accumulate > 1) s += fmt::format(", {} passes", accumulate);
  if (recompute) s += ", blocks run again";
  return s;
}

std::vector<ParallelLayout> candidates(const TrainConfig& config, int64_t ranks) {
  check(ranks >= 1 && ranks <= (int64_t{1} << 20), "plan", "a plan is for 1 to 1048576 ranks, got ", ranks);
  return Candidates(config, ranks).all();
}

}  // namespace strata::plan
