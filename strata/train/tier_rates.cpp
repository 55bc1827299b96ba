// What plans weigh of a machine, and what they say.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "strata/core/error.h"
#include "strata/lab/peaks.h"
#include "strata/memory/bounds.h"
#include "strata/memory/disk.h"
#include "strata/train/tier_plan.h"

namespace strata {

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
  r.host_memory = 1e9 * lab::measure_peaks(0.1, device.is_cpu() ? budget.device : budget.host).triad_gb_s;
  if (device.is_cuda()) {
    const lab::CardPeaks card = lab::measure_card(device, 0.1);
    r.to_host = 1e9 * card.from_card_gb_s;
    r.from_host = 1e9 * card.to_card_gb_s;
  }
  // Files are striped: what the slowest does, times as many.
  for (const std::string& folder : budget.disk) {
    // As much as is likely to go there, so that a small disk will do for a small budget.
    const lab::DiskRates d = lab::measure_disk(
        folder,
        budget.device > 0 ? std::clamp(budget.device / 4, int64_t{16} << 20, int64_t{256} << 20) : int64_t{256} << 20);
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
      at->second = {lab::measure_limits(device, 0.1, budget.device), measure_rates(device, budget)};
    } catch (...) {
      all.erase(at);
      throw;
    }
  }
  return at->second;
}

std::string budget_advice(const TrainConfig& given, int64_t room) {
  const int64_t own = given.memory.budget().device;
  if ((own > 0 && own <= room) || room <= 0) return {};
  TrainConfig config = given;
  const Device device = parse_device(config.device);
  // Whole tenths of a GiB, or whole MiB, below what there is.
  const int64_t unit = room >= int64_t{4} << 30 ? (int64_t{1} << 30) / 10 : int64_t{1} << 20;
  const int64_t units = room / unit;
  if (units == 0) return {};
  config.memory.device = unit == int64_t{1} << 20 ? fmt::format("{}MiB", units)
                                                  : fmt::format("{:.1f}GiB", static_cast<double>(units) / 10);
  std::string settings = "--set memory.device=" + config.memory.device;
  if (device.is_cpu() && config.memory.disk.empty()) {
    config.memory.disk = std::filesystem::temp_directory_path().string();
    settings += " memory.disk=" + config.memory.disk;
  }
  try {
    const TierRates rates = measure_rates(device, config.memory.budget());
    const TierPlan plan = plan_tiers(config, lab::measure_limits(device, 0.1, room), rates);
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

void require_room(const TierPlan& plan, Device device, const TrainConfig& config) {
  const memory::Bound nothing{"nothing", std::numeric_limits<int64_t>::max(), 0}, own = memory::tightest_bound(device);
  try {
    require_room(plan, own, plan.peak.host > 0 ? memory::tightest_bound(Device::cpu()) : nothing,
                 plan.peak.disk > 0 ? memory::disk()->bound() : nothing);
  } catch (const MemoryError& e) {
    const std::string advice =
        plan.peak.device > own.free() ? budget_advice(config, own.free() / 4 * 3) : std::string();
    if (advice.empty()) throw;
    throw MemoryError("", cat(e.what(), "It would fit with ", advice));
  }
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
  if (p.layers_at_once > 0)
    line("accumulation", fmt::format("all batches of a step go through {} block{} before the next come",
                                     p.layers_at_once, p.layers_at_once == 1 ? "" : "s"));
  std::string saved = p.activations == Place::device
                          ? "kept"
                          : fmt::format("the first {} leave for {}", bytes_text(p.leaving),
                                        p.activations == Place::host ? "the host's memory" : "the disk");
  if (p.recomputed > 0) saved += fmt::format("; {} blocks are computed again", p.recomputed);
  if (!p.calls.choices.empty())
    saved += fmt::format(" but for {}, which single calls make again", bytes_text(p.calls.recomputed_bytes));
  if (p.again > 0) saved += fmt::format("; single calls make {} again", bytes_text(p.again));
  line("activations", saved);
  tier("device", p.peak.device, p.budget.device);
  tier("host", p.peak.host, p.budget.host);
  tier("disk", p.peak.disk, 0);
  if (p.peak_without > 0) line("without tiers", bytes_text(p.peak_without) + " of the device's memory");
  if (p.seconds > 0)
    line("step", fmt::format("{:.3g} s, bound by {}; {:.3g} s were everything on the device ({:.2f}x)", p.seconds,
                             p.bound, p.seconds_without, p.seconds / p.seconds_without));
  if (!p.fits) {
    s += "No way was found that keeps to the budget.";
    if (p.least_budget > 0) s += fmt::format(" The smallest that would do: memory.device={}MiB", p.least_budget >> 20);
    s += '\n';
  }
  return s;
}

}  // namespace strata
