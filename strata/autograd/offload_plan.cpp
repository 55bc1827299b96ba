#include "strata/autograd/offload_plan.h"

#include <algorithm>
#include <deque>
#include <limits>
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

// Chooses what is sent of what is not computed again, first saved first, as far as copies end with `until` and come
// back within `back`.
void choose(const OffloadMeasured& m, const OffloadLimits& limits, double until, double back, OffloadPlan& plan) {
  int64_t left = 0;
  for (size_t i = 0; i < m.saved.size(); ++i) {
    if (plan.choices[i].place == SavedPlace::recompute) continue;
    plan.choices[i] = {};
    left += m.saved[i].bytes;
  }
  plan.away_bytes = 0;
  if (m.out_rate <= 0 || limits.away == SavedPlace::keep) return;
  double link = 0;
  until *= 1 + 1e-9;  // rounding decides nothing
  const auto most_back = static_cast<int64_t>(0.95 * m.in_rate * back);
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
  }
}

// The most that is held at once of what is saved, where copies are given back when they are done, and when that is:
// after so many saves.
struct Peak {
  int64_t bytes = 0, largest = 0;  ///< largest of those sent
  size_t at = 0;
};
Peak peak_of(const OffloadMeasured& m, const OffloadPlan& plan) {
  Peak peak;
  std::deque<std::pair<double, int64_t>> under_way;  // when it is done, and bytes
  double link = 0;
  int64_t held = 0;
  for (size_t i = 0; i < m.saved.size(); ++i) {
    const SavedRecord& s = m.saved[i];
    if (plan.choices[i].place == SavedPlace::recompute) continue;
    held += s.bytes;
    if (plan.choices[i].place != SavedPlace::keep) {
      link = std::max(link, s.seconds) + static_cast<double>(s.bytes) / m.out_rate;
      under_way.emplace_back(link, s.bytes);
      peak.largest = std::max(peak.largest, s.bytes);
    }
    for (; !under_way.empty() && under_way.front().first <= s.seconds; under_way.pop_front())
      held -= under_way.front().second;
    if (held > peak.bytes) {
      peak.bytes = held;
      peak.at = i + 1;
    }
  }
  return peak;
}

// The most that backward holds at once of what was saved: what stays until it was used, and what has come back, or was
// made again, until it is used itself. Nodes want what they saved in the reverse of the order of saving.
class BackwardPeak {
 public:
  BackwardPeak(const OffloadMeasured& m, const OffloadPlan& plan) : m_(m), plan_(plan), here_(m.saved.size()) {
    for (size_t i = 0; i < m.saved.size(); ++i)
      if (place(i) == SavedPlace::keep) come(i);
    for (size_t i = m.saved.size(); i-- > 0;) {
      bring(i);
      held_ -= m.saved[i].bytes;
    }
  }
  int64_t bytes() const { return peak_; }

 private:
  SavedPlace place(size_t i) const { return plan_.choices[i].place; }
  void come(size_t i) {
    here_[i] = true;
    held_ += m_.saved[i].bytes;
    peak_ = std::max(peak_, held_);
  }
  void bring(size_t i) {
    if (here_[i]) return;
    if (place(i) == SavedPlace::recompute) {
      for (const int32_t r : m_.saved[i].reads)
        if (static_cast<size_t>(r) < i) bring(static_cast<size_t>(r));
      peak_ = std::max(peak_, held_ + m_.saved[i].bytes + m_.saved[i].beside);
    }
    come(i);
  }

  const OffloadMeasured& m_;
  const OffloadPlan& plan_;
  std::vector<bool> here_;
  int64_t held_ = 0, peak_ = 0;
};

// Says when each that is sent is given back: when its copy is done, but no later than what stays would be passed, by
// more than the largest of them. So what is waited for is waited for before the memory is wanted. Returns how long.
double release(const OffloadMeasured& m, OffloadPlan& plan) {
  int64_t most = 0, largest = 0;
  for (size_t i = 0; i < m.saved.size(); ++i) {
    if (plan.choices[i].place == SavedPlace::keep)
      most += m.saved[i].bytes;
    else if (plan.choices[i].place != SavedPlace::recompute)
      largest = std::max(largest, m.saved[i].bytes);
  }
  most += largest;
  struct Copy {
    size_t at;
    double done;
  };
  std::deque<Copy> under_way;
  double link = 0, waited = 0;
  int64_t held = 0;
  const auto give_back = [&](size_t saved_by_then) {
    held -= m.saved[under_way.front().at].bytes;
    plan.choices[under_way.front().at].release_at = static_cast<int32_t>(saved_by_then);
    under_way.pop_front();
  };
  for (size_t i = 0; i < m.saved.size(); ++i) {
    if (plan.choices[i].place == SavedPlace::recompute) continue;
    double now = m.saved[i].seconds + waited;
    held += m.saved[i].bytes;
    if (plan.choices[i].place != SavedPlace::keep) {
      link = std::max(link, now) + static_cast<double>(m.saved[i].bytes) / m.out_rate;
      under_way.push_back({i, link});
    }
    while (!under_way.empty() && (under_way.front().done <= now || held > most)) {
      const double late = std::max(under_way.front().done - now, 0.0);
      waited += late;
      now += late;
      give_back(i + 1);
    }
  }
  while (!under_way.empty()) give_back(m.saved.size());
  return waited + std::max(link - m.forward_seconds - waited, 0.0);
}

}  // namespace

double seconds_again(const OffloadMeasured& m) {
  double all = 0;
  for (const Again& a : calls_again(m))
    if (std::any_of(a.members.begin(), a.members.end(),
                    [&](size_t i) { return m.saved[i].place == SavedPlace::recompute; }))
      all += a.seconds;
  return all;
}

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
  check(limits.away != SavedPlace::recompute, "plan_offload", "tensors go to host or disk, or stay, not to ",
        name_of(limits.away));
  const double link = limits.away == SavedPlace::keep ? 0 : m.out_rate;
  const double step = m.forward_seconds + m.backward_seconds;
  const double allowed = (limits.slowdown - 1) * step;
  int64_t total = 0, largest = 0;
  for (const SavedRecord& s : m.saved) {
    total += s.bytes;
    largest = std::max(largest, s.bytes);
  }

  OffloadPlan plan;
  plan.choices.resize(m.saved.size());
  double spent = 0;
  const auto within = [&](double wait) {
    choose(m, limits, m.forward_seconds + wait, m.backward_seconds + wait, plan);
  };
  within(0);
  Peak peak = peak_of(m, plan);
  const auto enough = [&] {
    return limits.keep_bytes > 0 && total - plan.recomputed_bytes - plan.away_bytes <= limits.keep_bytes &&
           peak.bytes <= limits.keep_bytes + peak.largest;
  };
  std::vector<Again> again;
  if (limits.recompute) again = calls_again(m);
  // What backward may hold: what stays by the bound and one more, or what it holds where no call runs again.
  int64_t in_backward = std::numeric_limits<int64_t>::max();
  if (limits.keep_bytes > 0 && !again.empty()) {
    within(allowed);
    in_backward = std::max(limits.keep_bytes + largest, BackwardPeak(m, plan).bytes());
    within(0);
  }
  const auto backward_fits = [&](double seconds) {
    if (limits.keep_bytes == 0) return true;
    within(allowed - spent - seconds);  // as much leaves as can
    return BackwardPeak(m, plan).bytes() <= in_backward;
  };
  while (!enough()) {
    // Of those that are there at the peak, the one that frees most a second.
    const auto next = std::find_if(again.begin(), again.end(), [&](const Again& a) {
      return a.members.front() < peak.at && a.rate() > link && spent + a.seconds <= allowed;
    });
    if (next == again.end()) break;  // waiting for the link frees more
    const Again a = std::move(*next);
    again.erase(next);
    for (const size_t i : a.members) plan.choices[i] = {SavedPlace::recompute, OffloadPlan::kNever};
    if (!chains_fit(m, plan) || !backward_fits(a.seconds)) {
      for (const size_t i : a.members) plan.choices[i] = {};
    } else {
      plan.recomputed_bytes += a.bytes;
      spent += a.seconds;
    }
    within(0);
    peak = peak_of(m, plan);
  }
  if (!enough()) within(allowed - spent);
  const double wait = release(m, plan);
  plan.kept_bytes = total - plan.away_bytes - plan.recomputed_bytes;
  plan.seconds = step + spent + wait;
  return plan;
}

}  // namespace strata
