#include "strata/train/tier_plan.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "strata/core/error.h"
#include "strata/lab/peaks.h"
#include "strata/lab/step_costs.h"
#include "strata/memory/bounds.h"
#include "strata/memory/disk.h"
#include "strata/memory/plan.h"
#include "strata/train/estimate.h"

namespace strata {
namespace {

using memory::Away;
using memory::Tag;

constexpr int64_t kLeastLeaving = int64_t{1} << 20;  // smaller tensors stay: a transfer has a price of its own
// Of a budget, that is left to kernels' workspace and to holes: a tenth, and no more than this.
constexpr double kMargin = 0.1;
constexpr int64_t kMostMargin = int64_t{512} << 20;
constexpr int64_t kWindow = int64_t{256} << 20;  // fetched ahead of its use at most
constexpr int64_t kGroup = int64_t{64} << 20;    // of an update in groups: two are near at once, both ways

// A step with some blocks computed again, and all that plans ask of it.
struct Variant {
  int64_t recomputed = 0;
  DryStep dry;
  std::vector<double> step_seconds, pass_seconds;
  std::vector<Away> step_saved, pass_saved;  // what may leave
  int64_t saved = 0;                         // bytes of them in one pass
  int64_t others = 0;  // on the device, not in the recording: batches, workspace, the heap's holes
};

// What is planned for: steps with some blocks computed again.
struct Steps {
  virtual ~Steps() = default;
  virtual int64_t blocks() const = 0;
  virtual int64_t passes() const = 0;  // in one recording
  virtual int64_t least() const { return kLeastLeaving; }
  // All but what may leave.
  virtual Variant variant(int64_t recomputed) const = 0;
};

// Of settings, by dry runs and the limits of a machine.
class DrySteps final : public Steps {
 public:
  DrySteps(const TrainConfig& config, const lab::Limits& limits, double efficiency)
      : config_(config), limits_(limits), efficiency_(efficiency) {}
  int64_t blocks() const override { return config_.model.layers; }
  int64_t passes() const override { return std::min<int64_t>(config_.accumulate, 2); }
  Variant variant(int64_t recomputed) const override {
    Variant v;
    v.dry = record_dry_step(config_, recomputed);
    const MemoryEstimate e = estimate_memory(config_, recomputed);
    v.others = std::max<int64_t>(0, e.peak - v.dry.step.peak_bytes().first);
    v.step_seconds = seconds_of(v.dry.step);
    if (v.dry.further > 0) v.pass_seconds = seconds_of(v.dry.pass);
    return v;
  }

 private:
  std::vector<double> seconds_of(const Recording& r) const {
    std::vector<double> all(r.calls.size(), 0);
    for (size_t i = 0; i < all.size(); ++i)
      if (r.is_work(i)) all[i] = lab::least_seconds(r, i, limits_) / efficiency_;
    return all;
  }
  const TrainConfig& config_;
  const lab::Limits& limits_;
  const double efficiency_;
};

// Of a step that has run.
class RanSteps final : public Steps {
 public:
  explicit RanSteps(const RecordedStep& step) : step_(step) {}
  int64_t blocks() const override {
    size_t most = 0;
    for (const auto& pass : step_.turns) most = std::max(most, pass.size());
    return static_cast<int64_t>(most);
  }
  int64_t passes() const override { return std::max<int64_t>(1, static_cast<int64_t>(step_.turns.size())); }
  int64_t least() const override { return step_.least; }
  Variant variant(int64_t recomputed) const override {
    Variant v;
    v.dry = step_.dry;
    v.others = step_.others;
    v.step_seconds.resize(v.dry.step.calls.size(), 0);
    for (size_t i = 0; i < v.step_seconds.size(); ++i)
      if (v.dry.step.is_work(i)) v.step_seconds[i] = v.dry.step.calls[i].seconds;
    for (const std::vector<int32_t>& pass : step_.turns)
      for (size_t k = 0; k < pass.size() && static_cast<int64_t>(k) < recomputed; ++k) {
        const int32_t end = k + 1 < pass.size() ? pass[k + 1] : memory::end_of_phase(v.dry.step, pass[k]);
        memory::run_again(v.dry.step, v.step_seconds, pass[k], end);
      }
    return v;
  }

 private:
  const RecordedStep& step_;
};

class Planner {
 public:
  Planner(const Steps& steps, const MemoryConfig& keys, bool on_cpu, const TierRates& rates)
      : steps_(steps),
        keys_(keys),
        on_cpu_(on_cpu),
        rates_(rates),
        budget_(keys.budget()),
        planned_(budget_.device -
                 std::min(static_cast<int64_t>(kMargin * static_cast<double>(budget_.device)), kMostMargin)) {}

  TierPlan run() {
    const Variant& plain = variant(0);
    const TierPlan without = with(plain, {});
    std::optional<TierPlan> best;
    const auto consider = [&](TierPlan p) {
      p.budget = budget_;
      p.peak_without = without.peak.device;
      p.seconds_without = without.seconds;
      if (!best || better(p, *best)) best = std::move(p);
    };
    for (const int64_t again : recomputations()) {
      const Variant& v = variant(again);
      for (const Place parameters : places(keys_.parameters)) {
        for (const Place state : places(keys_.state)) {
          // Weights that live elsewhere are updated there, or by groups that stream through.
          if (parameters != Place::device && state == Place::device) continue;
          for (const Updater who : updaters(state)) {
            TierPlan p;
            p.least = steps_.least();
            p.recomputed = again;
            p.parameters = parameters;
            p.state = state;
            p.update = who;
            p.delayed = keys_.delayed_update && who == Updater::cpu;
            for (const Place saved : places(keys_.activations)) {
              p.activations = saved;
              if (saved == Place::device) {
                consider(with(v, p));
                continue;
              }
              for (const int64_t leaving : shares(v.saved)) {
                p.leaving = leaving;
                consider(with(v, p));
              }
              p.leaving = 0;
            }
          }
        }
      }
    }
    return *best;
  }

 private:
  bool on_cpu() const { return on_cpu_; }
  bool bounded() const { return budget_.any(); }

  std::vector<int64_t> recomputations() const {
    const int64_t blocks = steps_.blocks();
    if (keys_.recompute == "none") return {0};
    if (keys_.recompute == "blocks") return {blocks};
    if (!bounded()) return {0};
    std::vector<int64_t> all;
    for (int64_t i = 0; i <= 8; ++i)
      if (const int64_t n = blocks * i / 8; all.empty() || all.back() != n) all.push_back(n);
    return all;
  }
  std::vector<Place> places(const std::string& key) const {
    if (key == "host") return {Place::host};
    if (key == "disk") return {Place::disk};
    std::vector<Place> all{Place::device};
    if (key == "auto" && bounded()) {
      if (!on_cpu()) all.push_back(Place::host);
      if (!budget_.disk.empty()) all.push_back(Place::disk);
    }
    return all;
  }
  std::vector<Updater> updaters(Place state) const {
    const std::string& key = keys_.update;
    if (state == Place::device || on_cpu() || key == "device") return {Updater::device};
    if (key == "cpu") return {Updater::cpu};
    if (key == "split") return {Updater::split};
    return {Updater::device};  // another updater has other bits: only who asks for it gets it
  }
  // Eighths of what is saved.
  static std::vector<int64_t> shares(int64_t bytes) {
    std::vector<int64_t> all;
    for (int64_t i = 1; i <= 8; ++i) all.push_back(bytes * i / 8);
    return all;
  }

  const Variant& variant(int64_t recomputed) {
    auto [at, fresh] = variants_.try_emplace(recomputed);
    Variant& v = at->second;
    if (!fresh) return v;
    v = steps_.variant(recomputed);
    v.recomputed = recomputed;
    v.step_saved = memory::saved_stretches(v.dry.step, steps_.least());
    v.pass_saved = memory::saved_stretches(v.dry.pass, steps_.least());
    for (const Away& a : v.step_saved) v.saved += bytes(v.dry.step, a) / steps_.passes();
    return v;
  }
  static int64_t bytes(const Recording& r, const Away& a) { return r.storages[static_cast<size_t>(a.storage)].nbytes; }
  memory::Link link(Place place) const {
    if (place == Place::host) return {rates_.to_host, rates_.from_host};
    memory::Link disk{rates_.disk_write, rates_.disk_read};
    if (!on_cpu()) disk = {std::min(disk.out, rates_.to_host), std::min(disk.in, rates_.from_host)};
    return disk;
  }
  // The first `leaving` bytes that each pass saves.
  static std::vector<Away> first(const Recording& r, const std::vector<Away>& saved, int64_t leaving) {
    std::vector<Away> all;
    int64_t sum = 0;
    int32_t last = -1;
    for (const Away& a : saved) {
      // The next pass saves after the backward of the one before.
      if (last >= 0 && a.from > last) sum = 0, last = -1;
      if (sum >= leaving) continue;
      sum += bytes(r, a);
      last = std::max(last, a.until);
      all.push_back(a);
    }
    return all;
  }
  // Away all the time; what the update does of them is counted apart.
  static int64_t drop(const Recording& r, Tag tag, std::vector<Away>& away) {
    int64_t sum = 0;
    const auto n = static_cast<int32_t>(r.calls.size());
    for (size_t s = 0; s < r.storages.size(); ++s) {
      const RecordedStorage& st = r.storages[s];
      if (st.tag != tag || st.born >= 0 || st.freed < n) continue;
      sum += st.nbytes;
      away.push_back({static_cast<int32_t>(s), -1, n, false});
    }
    return sum;
  }
  // Near while a forward or backward call uses them, and elsewhere during the update; returns their bytes.
  static int64_t stream(const Recording& r, Tag tag, std::vector<Away>& away) {
    int64_t sum = 0;
    const auto n = static_cast<int32_t>(r.calls.size());
    int32_t update = n;
    for (int32_t i = n; i > 0 && r.calls[static_cast<size_t>(i - 1)].phase == Phase::update; --i) update = i - 1;
    std::set<int32_t> seen;
    for (Away a : memory::home_stretches(r, tag)) {
      if (a.from >= update) continue;
      if (tag == Tag::parameter) a.write = false;
      if (a.until >= update) a.until = n;
      if (seen.insert(a.storage).second) sum += bytes(r, a);
      away.push_back(a);
    }
    return sum;
  }
  // Gradients are near while backward adds to them.
  static void send_gradients(const Recording& r, std::vector<Away>& away) { stream(r, Tag::gradient, away); }

  // On the device when the update begins.
  static int64_t live_in_update(const Recording& r, const std::vector<Away>& away) {
    const auto n = static_cast<int32_t>(r.calls.size());
    int32_t begins = 0;
    while (begins < n && r.calls[static_cast<size_t>(begins)].phase != Phase::update) ++begins;
    int64_t live = 0;
    for (const RecordedStorage& s : r.storages)
      if (s.born < begins && s.freed > begins) live += s.nbytes;
    for (const Away& a : away)
      if (a.from < begins && a.until > begins) live -= bytes(r, a);
    return live;
  }

  TierPlan with(const Variant& v, TierPlan p) const {
    const Recording& step = v.dry.step;
    std::vector<Away> away, pass_away;
    memory::MoveRules rules{.budget = planned_, .others = v.others};
    if (p.activations != Place::device) {
      rules.link = link(p.activations);
      away = first(step, v.step_saved, p.leaving);
      pass_away = first(v.dry.pass, v.pass_saved, p.leaving);
    }
    int64_t state = 0, parameters = 0, gradients = 0;
    if (p.state != Place::device) {
      state = drop(step, Tag::optimizer, away);
      drop(v.dry.pass, Tag::optimizer, pass_away);
      p.group = std::clamp(state / 32, int64_t{1} << 20, kGroup);
    }
    if (p.parameters != Place::device) {
      parameters = stream(step, Tag::parameter, away);
      stream(v.dry.pass, Tag::parameter, pass_away);
    }
    if (p.parameters != Place::device || p.update != Updater::device) {
      send_gradients(step, away);
      send_gradients(v.dry.pass, pass_away);
    }
    int64_t near = 0;
    for (const RecordedStorage& s : step.storages)
      if (s.tag == Tag::gradient) gradients += s.nbytes;
    if (p.state != Place::device) {
      // A group and the next one, or what belongs to the largest weight: that is never divided.
      const double each = static_cast<double>(state) / static_cast<double>(std::max<int64_t>(gradients, 1));
      p.near = std::max(4 * p.group,
                        static_cast<int64_t>((each + 2) * static_cast<double>(v.dry.largest_weight)) + 2 * p.group);
      near = p.update != Updater::cpu || on_cpu() ? p.near : 0;
    }
    // Two parts, and the gradients and low-precision copies of one.
    if (p.parameters != Place::device) p.near += 5 * v.dry.largest_part;
    p.kept = p.activations == Place::device ? 0 : v.saved - p.leaving;
    if (rules.link.in == 0) rules.link = link(p.parameters != Place::device ? p.parameters : p.state);
    if (p.moves() && p.activations == Place::device && p.state == Place::device && p.parameters == Place::device)
      rules.link = {1, 1};  // blocks computed again move nothing
    if ((rules.link.in <= 0 || rules.link.out <= 0) && !away.empty()) {
      p.fits = false;
      p.peak.device = std::numeric_limits<int64_t>::max();
      return p;
    }
    std::vector<double> seconds = v.step_seconds;
    double update = 0;
    for (size_t i = 0; i < seconds.size(); ++i) {
      if (step.calls[i].phase != Phase::update) continue;
      update += seconds[i];
      if (p.state != Place::device) seconds[i] = 0;
    }
    // What is left of the budget while as little as possible is fetched ahead is room to fetch more.
    rules.window = 0;
    memory::Movement m = memory::simulate(step, seconds, away, rules);
    if (planned_ == 0 || m.peak < planned_) {
      rules.window = planned_ == 0 ? kWindow : std::min(kWindow, planned_ - m.peak);
      const memory::Movement ahead = memory::simulate(step, seconds, away, rules);
      if (planned_ == 0 || ahead.peak <= planned_) {
        m = ahead;
      } else {
        rules.window = 0;
      }
    }
    p.window = rules.window;
    p.peak.device = std::max(m.peak, v.others + live_in_update(step, away) + near);
    p.seconds = m.seconds;
    double waited = m.waited;
    if (v.dry.further > 0) {
      const memory::Movement f = memory::simulate(v.dry.pass, v.pass_seconds, pass_away, rules);
      p.seconds += static_cast<double>(v.dry.further) * f.seconds;
      waited += static_cast<double>(v.dry.further) * f.waited;
      p.peak.device = std::max(p.peak.device, f.peak);
    }
    if (waited > 0.02 * p.seconds) {
      p.bound = p.activations == Place::disk || p.parameters == Place::disk ? "the disk" : "the bus";
    }
    if (p.state != Place::device) {
      const auto [took, by] = update_time(p, static_cast<double>(state), static_cast<double>(parameters),
                                          static_cast<double>(gradients), update);
      p.seconds += took;
      if (took > update && took > 0.1 * p.seconds) p.bound = by;
    }
    if (p.bound.empty()) p.bound = "compute";
    // Elsewhere: what is at home there, and the most that was away of the rest.
    const auto add = [&](Place where, int64_t bytes) { (where == Place::disk ? p.peak.disk : p.peak.host) += bytes; };
    if (p.state != Place::device) add(p.state, state);
    if (p.parameters != Place::device) add(p.parameters, parameters + gradients);
    if (p.activations != Place::device) add(p.activations, std::max<int64_t>(0, m.elsewhere - state - parameters));
    const int64_t most = p.moves() ? planned_ : budget_.device;
    p.fits = (most == 0 || p.peak.device <= most) && (budget_.host == 0 || p.peak.host <= budget_.host);
    return p;
  }

  struct Update {
    double seconds;
    const char* by;
  };
  // Of state that lives elsewhere: in groups through the device, both directions at once; or by the host's processor,
  // which reads and writes state, reads gradients and writes weights, that come and go over the bus.
  Update update_time(const TierPlan& p, double state, double parameters, double gradients, double on_device) const {
    const memory::Link l = link(p.state);
    const double streamed = std::max({(state + parameters) / l.in, (state + parameters) / l.out, on_device});
    if (p.update == Updater::device)
      return {streamed, streamed <= on_device ? "compute" : p.state == Place::disk ? "the disk" : "the bus"};
    const double bytes = 2 * state + 2 * gradients;
    double host = std::max(bytes / std::max(rates_.host_memory, 1.0), gradients / rates_.from_host);
    if (p.state == Place::disk) host = std::max({host, state / l.in, state / l.out});
    if (p.update == Updater::cpu) return {host, "the host's update"};
    return {host * streamed / (host + streamed), "the host's update"};
  }

  // The faster of those that fit; of those that do not, the smaller. Less is moved where the time is the same.
  static bool better(const TierPlan& a, const TierPlan& b) {
    if (a.fits != b.fits) return a.fits;
    if (!a.fits) return a.peak.device < b.peak.device;
    if (a.seconds != b.seconds) return a.seconds < b.seconds;
    return a.peak.host + a.peak.disk < b.peak.host + b.peak.disk;
  }

  const Steps& steps_;
  const MemoryConfig& keys_;
  const bool on_cpu_;
  const TierRates& rates_;
  const memory::Budget budget_;
  // Of the device. A run in which nothing moves is as its forecast, so it may take all of it.
  const int64_t planned_;
  std::map<int64_t, Variant> variants_;
};

}  // namespace

std::string_view name_of(Place place) {
  constexpr std::string_view kNames[] = {"device", "host", "disk"};
  return kNames[static_cast<size_t>(place)];
}
std::string_view name_of(Updater who) {
  constexpr std::string_view kNames[] = {"device", "cpu", "split"};
  return kNames[static_cast<size_t>(who)];
}

TierRates measure_rates(Device device, const memory::Budget& budget) {
  TierRates r;
  r.host_memory = 1e9 * lab::measure_peaks(0.1).triad_gb_s;
  if (device.is_cuda()) {
    const lab::CardPeaks card = lab::measure_card(device, 0.1);
    r.to_host = 1e9 * card.from_card_gb_s;
    r.from_host = 1e9 * card.to_card_gb_s;
  }
  // Files are striped: what the slowest does, times as many.
  for (const std::string& folder : budget.disk) {
    // As much as is likely to go there, so that a small disk will do for a small budget.
    const lab::DiskRates d = lab::measure_disk(
        folder, budget.device > 0 ? std::clamp(budget.device / 4, int64_t{16} << 20, int64_t{256} << 20)
                                  : int64_t{256} << 20);
    const auto least = [](double sum, double one) { return sum == 0 ? one : std::min(sum, one); };
    r.disk_write = least(r.disk_write, 1e9 * d.write_gb_s);
    r.disk_read = least(r.disk_read, 1e9 * d.read_gb_s);
  }
  r.disk_write *= static_cast<double>(std::max<size_t>(1, budget.disk.size()));
  r.disk_read *= static_cast<double>(std::max<size_t>(1, budget.disk.size()));
  return r;
}

TierRates rates_of(const lab::KnownCard& card) {
  return {.to_host = 1e9 * card.from_card_gb_s,
          .from_host = 1e9 * card.to_card_gb_s,
          .disk_write = 1e9 * card.disk_write_gb_s,
          .disk_read = 1e9 * card.disk_read_gb_s,
          .host_memory = 1e9 * card.host_gb_s};
}

TierSpeeds measured_speeds(Device device, const memory::Budget& budget) {
  static std::mutex mutex;
  static std::map<std::string, TierSpeeds> all;
  const std::lock_guard lock(mutex);
  std::string key = to_string(device);
  for (const std::string& folder : budget.disk) key += ":" + folder;
  const auto [at, fresh] = all.try_emplace(key);
  if (fresh) {
    try {
      at->second = {lab::measure_limits(device, 0.1), measure_rates(device, budget)};
    } catch (...) {
      all.erase(at);
      throw;
    }
  }
  return at->second;
}

TierPlan plan_tiers(const TrainConfig& config, const lab::Limits& limits, const TierRates& rates) {
  const DrySteps steps(config, limits, rates.efficiency);
  return Planner(steps, config.memory, config.device == "cpu", rates).run();
}

TierPlan plan_recorded(const RecordedStep& step, const MemoryConfig& memory, Device device, const TierRates& rates) {
  return Planner(RanSteps(step), memory, device.is_cpu(), rates).run();
}

std::string budget_advice(const TrainConfig& given, int64_t room) {
  if (given.memory.any() || room <= 0) return {};
  TrainConfig config = given;
  const Device device = parse_device(config.device);
  // Whole tenths of a GiB, or whole MiB, below what there is.
  const int64_t unit = room >= int64_t{4} << 30 ? (int64_t{1} << 30) / 10 : int64_t{1} << 20;
  const int64_t units = room / unit;
  if (units == 0) return {};
  config.memory.device = unit == int64_t{1} << 20 ? fmt::format("{}MiB", units)
                                                  : fmt::format("{:.1f}GiB", static_cast<double>(units) / 10);
  std::string settings = "--set memory.device=" + config.memory.device;
  if (device.is_cpu()) {
    config.memory.disk = std::filesystem::temp_directory_path().string();
    settings += " memory.disk=" + config.memory.disk;
  }
  try {
    const TierRates rates = measure_rates(device, config.memory.budget());
    const TierPlan plan = plan_tiers(config, lab::measure_limits(device, 0.1), rates);
    if (!plan.fits) return {};
    return fmt::format("{} ({:.3g} s a step, {:.1f} times one with room)", settings, plan.seconds,
                       plan.seconds / plan.seconds_without);
  } catch (const Error&) {  // no such card, no room to measure, a disk that takes nothing
    return {};
  }
}

void require_room(const TierPlan& plan, const memory::Bound& device, const memory::Bound& host,
                  const memory::Bound& disk) {
  using memory::bytes_text;
  const auto require = [&](int64_t bytes, const memory::Bound& bound, std::string_view what, std::string_view advice) {
    check<MemoryError>(bytes <= bound.free(), "train", "the plan takes ", bytes_text(bytes), " of ", what,
                       ", of which ", bytes_text(bound.free()), " are free (", bound.name, ": ",
                       bytes_text(bound.limit), ", ", bytes_text(bound.used), " in use); ", advice, ":\n",
                       to_text(plan));
  };
  require(plan.peak.device, device, "the device's memory", "memory.device bounds it");
  require(plan.peak.host, host, "the host's memory", "memory.host bounds it");
  require(plan.peak.disk, disk, "the disk", "memory.disk may name further folders");
}

void require_room(const TierPlan& plan, Device device) {
  const memory::Bound nothing{"nothing", std::numeric_limits<int64_t>::max(), 0};
  require_room(plan, memory::tightest_bound(device),
               plan.peak.host > 0 ? memory::tightest_bound(Device::cpu()) : nothing,
               plan.peak.disk > 0 ? memory::disk()->bound() : nothing);
}

std::string to_text(const TierPlan& p) {
  using memory::bytes_text;
  std::string s;
  const auto line = [&](std::string_view what, const std::string& text) { s += fmt::format("{:<14}{}\n", what, text); };
  const auto tier = [&](std::string_view name, int64_t bytes, int64_t bound) {
    if (bytes == 0 && bound == 0) return;
    line(name, bound > 0 ? fmt::format("{} of {}", bytes_text(bytes), bytes_text(bound)) : bytes_text(bytes));
  };
  line("weights", std::string(p.parameters == Place::device ? "on the device"
                              : p.parameters == Place::host ? "in the host's memory, layer by layer on the device"
                                                            : "on disk, layer by layer in memory"));
  std::string state = p.state == Place::device ? "on the device"
                      : p.state == Place::host ? "in the host's memory"
                                               : "on disk";
  if (p.state != Place::device)
    state += p.update == Updater::device ? ", streamed through the device in groups"
             : p.delayed                 ? ", updated by the host's processor beside the next step"
             : p.update == Updater::cpu  ? ", updated by the host's processor"
                                         : ", updated by the host's processor and the device together";
  line("state", state);
  std::string saved = p.activations == Place::device
                          ? "kept"
                          : fmt::format("the first {} leave for {}", bytes_text(p.leaving),
                                        p.activations == Place::host ? "the host's memory" : "the disk");
  if (p.recomputed > 0) saved += fmt::format("; {} blocks are computed again", p.recomputed);
  line("activations", saved);
  tier("device", p.peak.device, p.budget.device);
  tier("host", p.peak.host, p.budget.host);
  tier("disk", p.peak.disk, 0);
  if (p.peak_without > 0) line("without tiers", bytes_text(p.peak_without) + " of the device's memory");
  if (p.seconds > 0)
    line("step", fmt::format("{:.3g} s, bound by {}; {:.3g} s were everything on the device ({:.2f}x)", p.seconds,
                             p.bound, p.seconds_without, p.seconds / p.seconds_without));
  if (!p.fits) s += "No way was found that keeps to the budget.\n";
  return s;
}

}  // namespace strata
