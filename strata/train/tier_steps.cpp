#include "strata/train/tier_steps_inl.h"

#include <algorithm>

#include "strata/lab/step_costs.h"
#include "strata/ops/vec/level.h"
#include "strata/optim/record.h"
#include "strata/train/layered_inl.h"

namespace strata::planning {
namespace {

// What a plan of single calls may cost: the budget comes first, and the simulated time decides.
constexpr double kAnySlowdown = 100;
// Passes that a dry run takes together unasked, and blocks that they go through at once, at most.
constexpr int64_t kMostTogether = 16, kMostLayers = 8;

// Of settings, by dry runs and the limits of a machine.
class DrySteps final : public Steps {
 public:
  DrySteps(const TrainConfig& config, const lab::Limits& limits, double efficiency)
      : config_(config), limits_(limits), efficiency_(efficiency) {}
  // Those of an encoder-decoder do not run again.
  int64_t blocks() const override { return config_.data.format == "seq2seq" ? 0 : config_.model.layers; }
  int64_t passes() const override { return std::min<int64_t>(config_.accumulate, 2); }
  std::vector<int64_t> layers() const override {
    if (!LayeredAccumulation::refuses(config_).empty()) return {};
    if (config_.accumulate > kMostTogether && config_.memory.accumulation == "auto") return {};
    std::vector<int64_t> all{1};
    for (int64_t n = 2; n <= kMostLayers && n < config_.model.layers; n *= 2) all.push_back(n);
    return all;
  }
  bool single_calls() const override { return true; }
  bool fused_update() const override {
    return static_cast<bool>(optim::optimizer_record(config_.optim.optimizer).rule);
  }
  bool same_bits() const override {
    const bool plain = config_.param_dtype == "f32" || config_.optim.param_update == "master";
    return fused_update() && optim::optimizer_record(config_.optim.optimizer).same_bits && plain &&
           !config_.optim.state_8bit && vec_level() > 0;
  }
  std::optional<Variant> variant(const Again& again) override {
    Variant v;
    v.recomputed = again.layers > 0 ? blocks() : again.blocks;
    v.layers = again.layers;
    const OffloadPlan* calls = nullptr;
    if (again.parts > 0) {
      v.calls = calls_again(again.parts);
      if (v.calls.choices.empty()) return {};
      calls = &v.calls;
    }
    v.dry = record_dry_step(config_, v.recomputed, calls, v.layers);
    const MemoryEstimate e = estimate_memory(config_, v.recomputed, calls, v.layers);
    v.step_seconds = seconds_of(v.dry.step);
    if (v.dry.further > 0) v.pass_seconds = seconds_of(v.dry.pass);
    // A card's fused updates renew low-precision copies.
    const bool renewed = config_.device != "cpu";
    v.weights = find_weights(v.dry.step, renewed);
    v.pass_weights = find_weights(v.dry.pass, renewed);
    v.others = std::max<int64_t>(0, e.peak - v.dry.step.peak_bytes().first);
    if (renewed)
      for (const int32_t cast : v.weights.casts) v.step_seconds[static_cast<size_t>(cast)] = 0;
    return v;
  }

 private:
  // Which calls make so much of what is saved again, the fastest first; empty where there are none that do.
  OffloadPlan calls_again(int parts) {
    if (!saved_) saved_ = dry_saved(config_);
    OffloadMeasured& m = *saved_;
    const double flops = config_.dtype == "f32" ? limits_.matmul_f32 : limits_.matmul_bf16;
    m.seconds_per_flop = flops > 0 ? 1 / (1e9 * flops * efficiency_) : 0;
    m.seconds_per_byte = limits_.gb_s > 0 ? 1 / (1e9 * limits_.gb_s * efficiency_) : 0;
    m.forward_seconds = m.backward_seconds = 1;
    int64_t all = 0;
    for (const SavedRecord& r : m.saved) all += r.bytes;
    OffloadPlan plan = plan_offload(m, {.slowdown = kAnySlowdown,
                                        .keep_bytes = std::max<int64_t>(all - all * parts / kParts, 1),
                                        .recompute = true,
                                        .away = SavedPlace::keep});
    if (plan.recomputed_bytes <= all * (parts - 1) / kParts) return {};
    return plan;
  }
  std::vector<double> seconds_of(const Recording& r) const {
    std::vector<double> all(r.calls.size(), 0);
    for (size_t i = 0; i < all.size(); ++i)
      if (r.is_work(i)) all[i] = lab::least_seconds(r, i, limits_) / efficiency_;
    return all;
  }

  const TrainConfig& config_;
  const lab::Limits& limits_;
  const double efficiency_;
  std::optional<OffloadMeasured> saved_;  // of the step with all of it kept
};

// Of a step that has run.
class RanSteps final : public Steps {
 public:
  RanSteps(const RecordedStep& step, bool renewed) : step_(step), renewed_(renewed) {}
  int64_t blocks() const override {
    size_t most = 0;
    for (const auto& pass : step_.turns) most = std::max(most, pass.size());
    return static_cast<int64_t>(most);
  }
  int64_t passes() const override { return std::max<int64_t>(1, static_cast<int64_t>(step_.turns.size())); }
  int64_t least() const override { return step_.least; }
  bool single_calls() const override { return false; }
  bool fused_update() const override { return step_.fused_update; }
  bool same_bits() const override { return false; }  // how a program's optimizer rounds is not known here
  std::optional<Variant> variant(const Again& again) override {
    if (again.parts > 0 || again.layers > 0) return {};
    Variant v;
    v.recomputed = again.blocks;
    v.dry = step_.dry;
    v.others = step_.others;
    v.step_seconds.resize(v.dry.step.calls.size(), 0);
    for (size_t i = 0; i < v.step_seconds.size(); ++i)
      if (v.dry.step.is_work(i)) v.step_seconds[i] = v.dry.step.calls[i].seconds;
    for (const std::vector<int32_t>& pass : step_.turns)
      for (size_t k = 0; k < pass.size() && static_cast<int64_t>(k) < again.blocks; ++k) {
        const int32_t end = k + 1 < pass.size() ? pass[k + 1] : memory::end_of_phase(v.dry.step, pass[k]);
        memory::run_again(v.dry.step, v.step_seconds, pass[k], end);
      }
    v.weights = find_weights(v.dry.step, renewed_);
    v.step_seconds.resize(v.dry.step.calls.size(), 0);
    return v;
  }

 private:
  const RecordedStep& step_;
  const bool renewed_;  // low-precision copies, by the updates
};

}  // namespace

std::unique_ptr<Steps> dry_steps(const TrainConfig& config, const lab::Limits& limits, double efficiency) {
  return std::make_unique<DrySteps>(config, limits, efficiency);
}
std::unique_ptr<Steps> ran_steps(const RecordedStep& step, bool renewed) {
  return std::make_unique<RanSteps>(step, renewed);
}

}  // namespace strata::planning
