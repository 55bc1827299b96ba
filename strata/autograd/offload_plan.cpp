#include "strata/autograd/offload_plan.h"

#include <algorithm>
#include <map>

#include "strata/core/error.h"

namespace strata {
namespace {

// Results of one call that would be made again together.
struct Again {
  std::vector<size_t> members;
  int64_t bytes = 0;
  double seconds = 0;
  double rate() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 1e300; }
};

std::vector<Again> calls_again(const OffloadMeasured& m) {
  std::map<int32_t, Again> by_call;
  for (size_t i = 0; i < m.saved.size(); ++i) {
    const SavedRecord& s = m.saved[i];
    if (s.call < 0) continue;
    Again& a = by_call[s.call];
    a.members.push_back(i);
    a.bytes += s.bytes;
    a.seconds = std::max(a.seconds, s.cost.flops * m.seconds_per_flop + s.cost.bytes * m.seconds_per_byte);
  }
  std::vector<Again> all;
  // Of equals the later ones first: the earlier have more time to leave in.
  for (auto at = by_call.rbegin(); at != by_call.rend(); ++at) all.push_back(std::move(at->second));
  std::stable_sort(all.begin(), all.end(), [](const Again& a, const Again& b) { return a.rate() > b.rate(); });
  return all;
}

// How many storages, one made from the other, are made again for one of `m`.
constexpr int kMostLinks = 3;
int links(const OffloadMeasured& m, const OffloadPlan& plan, size_t i, std::vector<int>& known) {
  if (plan.choices[i].place != SavedPlace::recompute) return 0;
  if (known[i] > 0) return known[i];
  int most = 0;
  for (const int32_t r : m.saved[i].reads)
    if (static_cast<size_t>(r) < i) most = std::max(most, links(m, plan, static_cast<size_t>(r), known));
  return known[i] = most + 1;
}
bool chains_fit(const OffloadMeasured& m, const OffloadPlan& plan) {
  std::vector<int> known(m.saved.size());
  for (size_t i = 0; i < m.saved.size(); ++i)
    if (links(m, plan, i, known) > kMostLinks) return false;
  return true;
}

// Sends what is not computed again, first saved first. Copies may end `wait` seconds after forward. Returns by how much
// they do.
double send(const OffloadMeasured& m, const OffloadLimits& limits, double wait, OffloadPlan& plan) {
  for (auto& c : plan.choices)
    if (c.place != SavedPlace::recompute) c = {};
  plan.away_bytes = 0;
  if (m.out_rate <= 0) return 0;
  double link = 0;
  const double until = (m.forward_seconds + wait) * (1 + 1e-9);  // rounding decides nothing
  const auto most_back = static_cast<int64_t>(0.95 * m.in_rate * (m.backward_seconds + wait));
  int64_t left = 0;
  for (size_t i = 0; i < m.saved.size(); ++i)
    if (plan.choices[i].place != SavedPlace::recompute) left += m.saved[i].bytes;
  for (size_t i = 0; i < m.saved.size(); ++i) {
    if (plan.choices[i].place == SavedPlace::recompute) continue;
    if (limits.keep_bytes > 0 && left <= limits.keep_bytes) break;
    const int64_t bytes = m.saved[i].bytes;
    const double done = std::max(link, m.saved[i].seconds) + static_cast<double>(bytes) / m.out_rate;
    if (done > until || (m.in_rate > 0 && plan.away_bytes + bytes > most_back)) continue;
    link = done;
    plan.away_bytes += bytes;
    left -= bytes;
    plan.choices[i].place = limits.away;
    // The first save after the copy is done.
    const auto after = std::lower_bound(m.saved.begin() + static_cast<ptrdiff_t>(i), m.saved.end(), done,
                                        [](const SavedRecord& s, double t) { return s.seconds < t; });
    plan.choices[i].release_at =
        std::min(static_cast<int32_t>(after - m.saved.begin()) + 1, static_cast<int32_t>(m.saved.size()));
  }
  return std::max(link - m.forward_seconds, 0.0);
}

}  // namespace

std::string_view name_of(SavedPlace place) {
  constexpr std::string_view names[] = {"keep", "host", "disk", "recompute"};
  return names[static_cast<int>(place)];
}

OffloadPlan OffloadPlan::of(const std::vector<SavedPlace>& places) {
  OffloadPlan p;
  for (const SavedPlace place : places) p.choices.push_back({place, kNever});
  return p;
}

OffloadPlan plan_offload(const OffloadMeasured& m, const OffloadLimits& limits) {
  check(limits.slowdown >= 1, "plan_offload", "slowdown is ", limits.slowdown, ", wants at least 1");
  check(limits.away == SavedPlace::host || limits.away == SavedPlace::disk, "plan_offload",
        "tensors go to host or disk, not to ", name_of(limits.away));
  const double step = m.forward_seconds + m.backward_seconds;
  const double allowed = (limits.slowdown - 1) * step;
  int64_t total = 0;
  for (const SavedRecord& s : m.saved) total += s.bytes;

  OffloadPlan plan;
  plan.choices.resize(m.saved.size());
  const auto enough = [&] {
    return limits.keep_bytes > 0 && total - plan.recomputed_bytes - plan.away_bytes <= limits.keep_bytes;
  };
  double spent = 0;
  (void)send(m, limits, 0, plan);
  if (limits.recompute && !enough()) {
    for (const Again& a : calls_again(m)) {
      if (a.rate() <= m.out_rate) break;  // waiting for the link frees more
      if (spent + a.seconds > allowed) continue;
      for (const size_t i : a.members) plan.choices[i] = {SavedPlace::recompute, OffloadPlan::kNever};
      if (!chains_fit(m, plan)) {
        for (const size_t i : a.members) plan.choices[i] = {};
        continue;
      }
      plan.recomputed_bytes += a.bytes;
      spent += a.seconds;
      (void)send(m, limits, 0, plan);
      if (enough()) break;
    }
  }
  const double wait = enough() ? 0 : send(m, limits, allowed - spent, plan);
  plan.kept_bytes = total - plan.away_bytes - plan.recomputed_bytes;
  plan.seconds = step + spent + wait;
  return plan;
}

}  // namespace strata
