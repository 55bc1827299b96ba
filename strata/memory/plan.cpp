#include "strata/memory/plan.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "strata/core/error.h"

namespace strata::memory {
namespace {

constexpr std::string_view kWho = "simulate";

// Where each storage is read or written by calls, in order.
struct Uses {
  std::vector<std::vector<int32_t>> calls;   // by storage
  std::vector<std::vector<int32_t>> writes;  // those of them that write
};

Uses uses_of(const Recording& r) {
  Uses u;
  u.calls.resize(r.storages.size());
  u.writes.resize(r.storages.size());
  for (size_t i = 0; i < r.calls.size(); ++i) {
    if (!r.is_work(i)) continue;
    const RecordedCall& c = r.calls[i];
    const auto at = static_cast<int32_t>(i);
    const auto use = [&](ValueIndex v, bool writes) {
      if (v.at < 0) return;
      const auto s = static_cast<size_t>(r.values[static_cast<size_t>(v.at)].storage);
      if (u.calls[s].empty() || u.calls[s].back() != at) u.calls[s].push_back(at);
      if (writes && (u.writes[s].empty() || u.writes[s].back() != at)) u.writes[s].push_back(at);
    };
    for (const RecordedArg& a : c.args) {
      if (const auto* v = std::get_if<ValueIndex>(&a)) use(*v, false);
      if (const auto* l = std::get_if<std::vector<ValueIndex>>(&a))
        for (const ValueIndex v : *l) use(v, false);
    }
    for (const ValueIndex v : c.targets) use(v, true);
    for (const ValueIndex v : c.results) use(v, true);
  }
  return u;
}

// A stretch while the step runs.
struct Moving {
  Away away;
  int64_t bytes = 0;
  // idle: nobody uses what is near, and it is given up where another that is counted apart wants the room.
  enum { waiting, leaving, idle, gone, coming, back } state = waiting;
  double begins = 0, ends = 0;  // of the transfer that is or was under way
};

class Simulation {
 public:
  Simulation(const Recording& step, std::span<const double> seconds, std::span<const Away> away, const MoveRules& rules)
      : step_(step), seconds_(seconds), rules_(rules), live_(rules.others) {
    const auto n = static_cast<int32_t>(step.calls.size());
    check(seconds.size() == step.calls.size(), kWho, seconds.size(), " times for ", step.calls.size(), " calls");
    check((rules.link.in > 0 && rules.link.out > 0) || away.empty(), kWho, "a link has no speed");
    std::vector<Away> sorted(away.begin(), away.end());
    std::sort(sorted.begin(), sorted.end(), [](const Away& a, const Away& b) {
      return a.storage != b.storage ? a.storage < b.storage : a.from < b.from;
    });
    for (size_t i = 0; i < sorted.size(); ++i) {
      const Away& a = sorted[i];
      check(a.storage >= 0 && static_cast<size_t>(a.storage) < step.storages.size(), kWho, "there is no storage ",
            a.storage);
      check(a.from >= -1 && a.from < a.until && a.until <= n, kWho, "storage ", a.storage, " cannot be away from call ",
            a.from, " to ", a.until, " of ", n);
      check(a.until == n || a.until <= step.storages[static_cast<size_t>(a.storage)].freed, kWho, "storage ", a.storage,
            " ends before call ", a.until, ", where it is to be back");
      check(i == 0 || sorted[i - 1].storage != a.storage || sorted[i - 1].until <= a.from, kWho, "storage ", a.storage,
            " is away twice at call ", a.from);
      moving_.push_back({a, step.storages[static_cast<size_t>(a.storage)].nbytes});
    }
    for (size_t i = 0; i < moving_.size(); ++i) {
      by_from_.push_back(i);
      if (moving_[i].away.until < n) by_until_.push_back(i);
    }
    const auto order = [&](std::vector<size_t>& v, int32_t Away::*at) {
      std::stable_sort(v.begin(), v.end(),
                       [&](size_t a, size_t b) { return moving_[a].away.*at < moving_[b].away.*at; });
    };
    order(by_from_, &Away::from);
    order(by_until_, &Away::until);
    born_.resize(step.calls.size() + 1);
    freed_.resize(step.calls.size() + 1);
    for (size_t s = 0; s < step.storages.size(); ++s) {
      const RecordedStorage& r = step.storages[s];
      born_[static_cast<size_t>(std::max(r.born, 0))].push_back(static_cast<int32_t>(s));
      if (r.freed <= n) freed_[static_cast<size_t>(r.freed)].push_back(static_cast<int32_t>(s));
    }
    find_live();
    away_now_.assign(step.storages.size(), false);
    apart_.assign(step.storages.size(), false);
    for (const Moving& m : moving_) apart_[static_cast<size_t>(m.away.storage)] = m.away.apart;
    for (const Moving& m : moving_)
      check(apart_[static_cast<size_t>(m.away.storage)] == m.away.apart, kWho, "storage ", m.away.storage,
            " is counted apart in some of its stretches");
  }

  Movement run() {
    leave_after(-1);
    const auto n = static_cast<int32_t>(step_.calls.size());
    bool in_backward = false;
    for (int32_t i = 0; i < n; ++i) {
      if (!in_backward && phase(i) == Phase::backward) {
        in_backward = true;
        result_.forward = now_;
        result_.forward_in = result_.in;
      }
      settle();
      // What ended with the call before is gone before this one's results come.
      for (const int32_t s : freed_[static_cast<size_t>(i)]) end(s);
      int64_t needed = 0;
      for (const int32_t s : born_[static_cast<size_t>(i)])
        if (!away_now_[static_cast<size_t>(s)]) (apart_[static_cast<size_t>(s)] ? apart_near_ : needed) += bytes_of(s);
      arrive(i, needed);
      take(needed);
      ahead(i);
      now_ += seconds_[static_cast<size_t>(i)];
      leave_after(i);
    }
    result_.seconds = now_;
    result_.left = out_free_;
    return result_;
  }

 private:
  // What is there during each call where nothing comes before its use.
  void find_live() {
    live_at_.assign(step_.calls.size() + 1, 0);
    const auto add = [&](int32_t from, int32_t until, int64_t bytes) {
      live_at_[static_cast<size_t>(std::max(from, 0))] += bytes;
      if (static_cast<size_t>(until) < live_at_.size()) live_at_[static_cast<size_t>(until)] -= bytes;
    };
    std::vector<bool> apart(step_.storages.size());
    for (const Moving& m : moving_) apart[static_cast<size_t>(m.away.storage)] = m.away.apart;
    for (size_t s = 0; s < step_.storages.size(); ++s)
      if (!apart[s]) add(step_.storages[s].born, step_.storages[s].freed, step_.storages[s].nbytes);
    for (const Moving& m : moving_)
      if (!m.away.apart) add(m.away.from + 1, m.away.until, -m.bytes);
    int64_t live = rules_.others;
    for (int64_t& at : live_at_) at = live += at;
  }
  // Whether it may be there from `call` on without a new peak.
  bool below_peak(const Moving& m, int32_t call) const {
    if (live_ + m.bytes > result_.peak) return false;
    return std::all_of(live_at_.begin() + call, live_at_.begin() + m.away.until,
                       [&](int64_t live) { return live + m.bytes <= result_.peak; });
  }
  int64_t bytes_of(int32_t s) const { return step_.storages[static_cast<size_t>(s)].nbytes; }
  void take(int64_t bytes) {
    make_room(bytes);
    live_ += bytes;
    result_.peak = std::max(result_.peak, live_);
  }
  // Waits until what leaves has left so much room.
  void make_room(int64_t bytes) {
    while (rules_.budget > 0 && live_ + bytes > rules_.budget && !leaving_.empty()) {
      const Moving& m = moving_[leaving_.front()];
      if (m.state == Moving::leaving) wait_until(m.ends);
      settle();
      if (!leaving_.empty() && moving_[leaving_.front()].state != Moving::leaving) leaving_.pop_front();
    }
  }
  void wait_until(double t) {
    if (t <= now_) return;
    result_.waited += t - now_;
    now_ = t;
  }
  void end(int32_t s) {
    if (away_now_[static_cast<size_t>(s)]) {  // it ends where it is
      away_now_[static_cast<size_t>(s)] = false;
      other_ -= bytes_of(s);
      return;
    }
    (apart_[static_cast<size_t>(s)] ? apart_near_ : live_) -= bytes_of(s);
  }
  // What has left by now leaves its room.
  void settle() {
    while (!leaving_.empty() && moving_[leaving_.front()].ends <= now_) {
      Moving& m = moving_[leaving_.front()];
      leaving_.pop_front();
      if (m.state != Moving::leaving) continue;  // it stayed after all
      m.state = Moving::gone;
      gone(m);
    }
  }
  void gone(Moving& m) {
    away_now_[static_cast<size_t>(m.away.storage)] = true;
    (m.away.apart ? apart_near_ : live_) -= m.bytes;
    other_ += m.bytes;
    result_.elsewhere = std::max(result_.elsewhere, other_);
  }
  void leave_after(int32_t call) {
    for (; next_from_ < by_from_.size() && moving_[by_from_[next_from_]].away.from <= call; ++next_from_) {
      Moving& m = moving_[by_from_[next_from_]];
      if (call < 0) {  // it begins there: its room was never taken
        m.state = Moving::gone;
        away_now_[static_cast<size_t>(m.away.storage)] = true;
        other_ += m.bytes;
        result_.elsewhere = std::max(result_.elsewhere, other_);
      } else if (!m.away.write && m.away.apart) {
        m.state = Moving::idle;
        idle_.push_back(by_from_[next_from_]);
        idle_bytes_ += m.bytes;
      } else if (!m.away.write) {
        m.state = Moving::gone;
        gone(m);
      } else {
        m.state = Moving::leaving;
        m.begins = std::max(now_, out_free_);
        m.ends = out_free_ = m.begins + static_cast<double>(m.bytes) / rules_.link.out;
        result_.out += m.bytes;
        leaving_.push_back(by_from_[next_from_]);
      }
    }
  }
  // Is used again, where it still is.
  void stay(Moving& m) {
    m.state = Moving::back;
    idle_bytes_ -= m.bytes;
  }
  // Those that were used longest ago give their room to one of so many bytes.
  void give_up(int64_t bytes) {
    for (; !idle_.empty() && apart_near_ + bytes > rules_.near; idle_.pop_front()) {
      Moving& m = moving_[idle_.front()];
      if (m.state != Moving::idle) continue;
      m.state = Moving::gone;
      idle_bytes_ -= m.bytes;
      gone(m);
    }
  }
  void fetch(Moving& m) {
    if (m.away.apart) give_up(m.bytes);
    m.state = Moving::coming;
    away_now_[static_cast<size_t>(m.away.storage)] = false;
    other_ -= m.bytes;
    if (m.away.apart) {
      apart_near_ += m.bytes;
      result_.near = std::max(result_.near, apart_near_);
    } else {
      live_ += m.bytes;
      near_ += m.bytes;
      result_.peak = std::max(result_.peak, live_);
    }
    m.begins = std::max(now_, in_free_);
    m.ends = in_free_ = m.begins + static_cast<double>(m.bytes) / rules_.link.in;
    result_.in += m.bytes;
  }
  // Those that call `i` reads are there, or waited for.
  void arrive(int32_t i, int64_t needed) {
    for (size_t k = next_until_; k < by_until_.size() && moving_[by_until_[k]].away.until <= i; ++k) {
      Moving& m = moving_[by_until_[k]];
      settle();
      if (m.state == Moving::leaving) {
        if (m.begins > now_) {  // it had not begun to leave: it stays
          result_.out -= m.bytes;
          result_.forwarded += m.bytes;
          m.state = Moving::back;
          continue;
        }
        wait_until(m.ends);
        settle();
      }
      if (m.state == Moving::idle) stay(m);
      if (m.state == Moving::gone) {
        if (!m.away.apart) make_room(m.bytes + needed);
        fetch(m);
      }
      if (m.state == Moving::coming) {
        wait_until(m.ends);
        if (!m.away.apart) near_ -= m.bytes;
        m.state = Moving::back;
      }
    }
    while (next_until_ < by_until_.size() && moving_[by_until_[next_until_]].away.until <= i) ++next_until_;
  }
  // In order of use, each kind by its own bound. What is not apart only in the phase that wants it: a tensor fetched in
  // forward for backward would only be in the way.
  void ahead(int32_t call) {
    bool more = true, more_apart = true;
    for (size_t k = next_until_; k < by_until_.size() && (more || more_apart); ++k) {
      Moving& m = moving_[by_until_[k]];
      if (m.state == Moving::coming || m.state == Moving::back) continue;
      bool& goes_on = m.away.apart ? more_apart : more;
      if (!goes_on) continue;
      if (m.state == Moving::idle) {
        stay(m);
        continue;
      }
      goes_on = m.state == Moving::gone;
      if (m.away.apart) {
        goes_on = goes_on && apart_near_ - idle_bytes_ + m.bytes <= rules_.near;
      } else {
        const bool early = m.away.early && goes_on && near_ > 0 && below_peak(m, call);
        goes_on = goes_on && phase(m.away.until) == phase(call) &&
                  (near_ == 0 || near_ + m.bytes <= rules_.window || early) &&
                  (rules_.budget == 0 || live_ + m.bytes <= rules_.budget);
        // It is there for the calls until its use: for others that would come early too.
        if (goes_on && m.away.early)
          for (int32_t i = call; i < m.away.until; ++i) live_at_[static_cast<size_t>(i)] += m.bytes;
      }
      if (goes_on) fetch(m);
    }
  }

  Phase phase(int32_t call) const { return step_.calls[static_cast<size_t>(call)].phase; }

  const Recording& step_;
  std::span<const double> seconds_;
  const MoveRules& rules_;
  std::vector<Moving> moving_;
  std::vector<size_t> by_from_, by_until_;
  size_t next_from_ = 0, next_until_ = 0;
  std::deque<size_t> leaving_, idle_;
  std::vector<std::vector<int32_t>> born_, freed_;  // storages, by call
  std::vector<int64_t> live_at_;                    // by call
  std::vector<bool> away_now_, apart_;              // by storage
  double now_ = 0, out_free_ = 0, in_free_ = 0;
  int64_t live_ = 0, other_ = 0, near_ = 0, apart_near_ = 0, idle_bytes_ = 0;
  Movement result_;
};

}  // namespace

Movement simulate(const Recording& step, std::span<const double> seconds, std::span<const Away> away,
                  const MoveRules& rules) {
  return Simulation(step, seconds, away, rules).run();
}

std::vector<Away> saved_stretches(const Recording& step, int64_t at_least) {
  const Uses uses = uses_of(step);
  std::vector<Away> found;
  for (size_t s = 0; s < step.storages.size(); ++s) {
    const RecordedStorage& r = step.storages[s];
    if (r.tag != Tag::activation || r.born < 0 || r.nbytes < at_least) continue;
    if (step.calls[static_cast<size_t>(r.born)].phase != Phase::forward) continue;
    int32_t last = -1, first = -1;
    for (const int32_t c : uses.calls[s]) {
      const Phase phase = step.calls[static_cast<size_t>(c)].phase;
      if (phase == Phase::forward && first < 0) last = c;
      if (phase == Phase::backward && first < 0) first = c;
    }
    if (last >= 0 && first > last) found.push_back({static_cast<int32_t>(s), last, first, true});
  }
  std::stable_sort(found.begin(), found.end(), [](const Away& a, const Away& b) { return a.from < b.from; });
  return found;
}

int32_t end_of_phase(const Recording& step, int32_t call) {
  const auto n = static_cast<int32_t>(step.calls.size());
  const Phase phase = step.calls[static_cast<size_t>(call)].phase;
  while (call < n && step.calls[static_cast<size_t>(call)].phase == phase) ++call;
  return call;
}

namespace {
std::vector<ValueIndex> tensors_of(const RecordedCall& c) {
  std::vector<ValueIndex> all;
  for (const RecordedArg& a : c.args) {
    if (const auto* v = std::get_if<ValueIndex>(&a)) all.push_back(*v);
    if (const auto* l = std::get_if<std::vector<ValueIndex>>(&a)) all.insert(all.end(), l->begin(), l->end());
  }
  std::erase_if(all, [](const ValueIndex& v) { return v.at < 0; });
  return all;
}

// Of storages that calls from `begin` on did not make: what the calls before `end` read of them that make `wanted`.
std::vector<ValueIndex> inputs_of(const Recording& step, int32_t begin, int32_t end, std::set<int32_t> wanted) {
  const auto storage = [&](const ValueIndex& v) { return step.values[static_cast<size_t>(v.at)].storage; };
  std::map<int32_t, ValueIndex> inputs;
  for (int32_t i = end; i-- > begin;) {
    const RecordedCall& c = step.calls[static_cast<size_t>(i)];
    if (std::none_of(c.results.begin(), c.results.end(),
                     [&](const ValueIndex& v) { return v.at >= 0 && wanted.count(storage(v)) > 0; }))
      continue;
    for (const ValueIndex& v : tensors_of(c)) {
      const int32_t born = step.storages[static_cast<size_t>(storage(v))].born;
      if (born >= begin && born < end)
        wanted.insert(storage(v));
      else
        inputs.emplace(storage(v), v);
    }
  }
  std::vector<ValueIndex> all;
  for (const auto& [s, v] : inputs) all.push_back(v);
  return all;
}
}  // namespace

void run_again(Recording& step, std::span<double> seconds, int32_t begin, int32_t end) {
  const Uses uses = uses_of(step);
  const auto n = static_cast<int32_t>(step.calls.size());
  std::vector<int32_t> again(step.storages.size(), -1);  // the storage that takes its place in backward
  int32_t back = n;                                      // the first call that reads any of them
  std::vector<std::pair<size_t, int32_t>> dropped;       // with the last use in forward
  for (size_t s = 0; s < again.size(); ++s) {
    const RecordedStorage& r = step.storages[s];
    if (r.tag != Tag::activation || r.born < begin || r.born >= end) continue;
    int32_t last = r.born, first = n;
    for (const int32_t c : uses.calls[s]) {
      if (step.calls[static_cast<size_t>(c)].phase == Phase::forward) last = std::max(last, c);
      if (step.calls[static_cast<size_t>(c)].phase == Phase::backward) first = std::min(first, c);
    }
    if (first == n || last >= end) continue;
    dropped.emplace_back(s, last);
    back = std::min(back, first);
  }
  if (dropped.empty()) return;
  // What they are made from is there until then, and brought by then.
  std::set<int32_t> made_again;
  for (const auto& [s, last] : dropped) made_again.insert(static_cast<int32_t>(s));
  const std::vector<ValueIndex> inputs = inputs_of(step, begin, end, std::move(made_again));
  for (const ValueIndex& v : inputs) {
    RecordedStorage& s = step.storages[static_cast<size_t>(step.values[static_cast<size_t>(v.at)].storage)];
    s.freed = std::max(s.freed, back + 1);
  }
  for (const auto& [s, last] : dropped) {
    RecordedStorage made = step.storages[s];
    made.born = back;
    again[s] = static_cast<int32_t>(step.storages.size());
    step.storages[s].freed = last + 1;
    step.storages.push_back(made);
  }
  std::vector<int32_t> moved(step.values.size(), -1);
  const auto move = [&](ValueIndex& v) {
    if (v.at < 0) return;
    const int32_t storage = step.values[static_cast<size_t>(v.at)].storage;
    if (static_cast<size_t>(storage) >= again.size() || again[static_cast<size_t>(storage)] < 0) return;
    int32_t& to = moved[static_cast<size_t>(v.at)];
    if (to < 0) {
      to = static_cast<int32_t>(step.values.size());
      step.values.push_back(step.values[static_cast<size_t>(v.at)]);
      step.values.back().storage = again[static_cast<size_t>(storage)];
    }
    v.at = to;
  };
  for (int32_t i = back; i < n; ++i) {
    RecordedCall& c = step.calls[static_cast<size_t>(i)];
    for (RecordedArg& a : c.args) {
      if (auto* v = std::get_if<ValueIndex>(&a)) move(*v);
      if (auto* l = std::get_if<std::vector<ValueIndex>>(&a))
        for (ValueIndex& v : *l) move(v);
    }
    for (ValueIndex& v : c.targets) move(v);
    for (ValueIndex& v : c.results) move(v);
  }
  if (!inputs.empty()) step.calls[static_cast<size_t>(back)].args.emplace_back(inputs);
  // What these calls take for themselves, one after the other, they take once more.
  int64_t own = 0;
  for (const RecordedStorage& s : step.storages)
    if (s.tag == Tag::workspace && s.born >= begin && s.born < end && s.freed == s.born + 1)
      own = std::max(own, s.nbytes);
  if (own > 0)
    step.storages.push_back({own, step.storages[dropped[0].first].device, Tag::workspace, back, back + 1, {}});
  for (int32_t i = begin; i < end; ++i) seconds[static_cast<size_t>(back)] += seconds[static_cast<size_t>(i)];
}

std::vector<int32_t> last_use_before(const Recording& step, Phase phase) {
  const Uses uses = uses_of(step);
  int32_t begins = 0;
  const auto n = static_cast<int32_t>(step.calls.size());
  while (begins < n && step.calls[static_cast<size_t>(begins)].phase != phase) ++begins;
  std::vector<int32_t> last(step.storages.size(), -1);
  for (size_t s = 0; s < last.size(); ++s)
    for (const int32_t c : uses.calls[s])
      if (c < begins) last[s] = c;
  return last;
}

std::vector<Away> home_stretches(const Recording& step, Tag tag, int32_t gap) {
  const Uses uses = uses_of(step);
  const auto n = static_cast<int32_t>(step.calls.size());
  std::vector<int32_t> storages;
  for (size_t s = 0; s < step.storages.size(); ++s) {
    const RecordedStorage& r = step.storages[s];
    if (r.tag == tag && r.freed >= n && r.nbytes > 0 && !uses.calls[s].empty())
      storages.push_back(static_cast<int32_t>(s));
  }
  return home_stretches(step, storages, gap);
}

std::vector<Away> home_stretches(const Recording& step, std::span<const int32_t> storages, int32_t gap) {
  const Uses uses = uses_of(step);
  const auto n = static_cast<int32_t>(step.calls.size());
  std::vector<Away> found;
  for (const int32_t at : storages) {
    const auto s = static_cast<size_t>(at);
    const std::vector<int32_t>& calls = uses.calls[s];
    const auto written_in = [&](int32_t from, int32_t to) {
      return std::any_of(uses.writes[s].begin(), uses.writes[s].end(), [&](int32_t c) { return c >= from && c <= to; });
    };
    const auto phase = [&](size_t i) { return step.calls[static_cast<size_t>(calls[i])].phase; };
    if (calls.empty()) {
      found.push_back({at, -1, n, false});
      continue;
    }
    if (step.storages[s].born < 0 && calls.front() > 0) found.push_back({at, -1, calls.front(), false});
    int32_t since = calls.front();
    for (size_t i = 1; i < calls.size(); ++i) {
      const int32_t between = calls[i] - calls[i - 1];
      if (between > 1 && (phase(i - 1) != phase(i) || between > gap)) {
        found.push_back({at, calls[i - 1], calls[i], written_in(since, calls[i - 1])});
        since = calls[i];
      }
    }
    found.push_back({at, calls.back(), n, written_in(since, calls.back())});
  }
  std::stable_sort(found.begin(), found.end(), [](const Away& a, const Away& b) { return a.from < b.from; });
  return found;
}

}  // namespace strata::memory
