#include "strata/dist/recorder.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>

#include "strata/core/backend.h"
#include "strata/core/error.h"

namespace strata::distributed {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Takes what stands before `until` off the text; all of it where that is not found.
std::string_view taken(std::string_view& text, std::string_view until) {
  const size_t at = text.find(until);
  const std::string_view part = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + until.size());
  return part;
}

std::string numbers(const std::vector<int>& ranks) {
  std::string s = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) s += cat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return s;
}

std::string place(const CollectiveEntry& e) {
  if (e.group.empty()) return "no collective yet";
  std::string s = cat(e.ended != 0 ? "after " : "in ", e.what, " (", e.group, " #", e.sequence, ")");
  if (!e.holder.empty()) s += cat(", ", e.holder);
  if (e.step >= 0) s += cat(", step ", e.step);
  return s;
}

}  // namespace

std::string line_of(const CollectiveEntry& e) {
  if (e.group.empty()) return "no collective yet";
  // One that failed is where its rank still is, for those that ask why.
  std::string s = cat(e.ended != 0 && e.error.empty() ? "after " : "in ", e.group, " #", e.sequence, ": ", e.what, " | ", e.holder);
  if (e.step >= 0) s += cat(" | step ", e.step);
  return s;
}

CollectiveEntry entry_of(std::string_view line) {
  CollectiveEntry e;
  const bool after = line.starts_with("after "), inside = line.starts_with("in ");
  if (!after && !inside) return e;
  line.remove_prefix(after ? 6 : 3);
  const std::string_view group = taken(line, " #"), number = taken(line, ": ");
  if (group.empty() || std::from_chars(number.data(), number.data() + number.size(), e.sequence).ec != std::errc())
    return e;
  e.group = group;
  e.what = taken(line, " | ");
  e.holder = taken(line, " | ");
  if (line.starts_with("step ")) std::from_chars(line.data() + 5, line.data() + line.size(), e.step);
  e.ended = after ? 1 : 0;
  return e;
}

uint64_t FlightRecorder::begin(std::string_view group, uint64_t sequence, std::string what) {
  const std::string* const holder = memory::holder();
  return begin(group, sequence, std::move(what), holder != nullptr ? *holder : "", step());
}

uint64_t FlightRecorder::begin(std::string_view group, uint64_t sequence, std::string what, std::string holder,
                               int64_t step) {
  const std::lock_guard lock(mutex_);
  if (entries_.size() == kept_) {
    if (entries_.front().ended == 0) end_one(seconds_now());
    entries_.pop_front();
    ++first_;
  }
  const double now = seconds_now();
  if (running_++ == 0) since_ = now;
  entries_.push_back({std::string(group), sequence, std::move(what), std::move(holder), step, now, 0, {}});
  return first_ + entries_.size() - 1;
}

void FlightRecorder::end(uint64_t number, std::string_view error) {
  const std::lock_guard lock(mutex_);
  if (number < first_) return;
  CollectiveEntry& e = entries_[number - first_];
  if (e.ended == 0) end_one(seconds_now());
  e.ended = seconds_now();
  e.error = error;
}

void FlightRecorder::end_all(std::string_view error) {
  const std::lock_guard lock(mutex_);
  for (CollectiveEntry& e : entries_) {
    if (e.ended != 0) continue;
    end_one(seconds_now());
    e.ended = seconds_now();
    e.error = error;
  }
}

void FlightRecorder::end_one(double now) {
  if (--running_ == 0) waited_ += std::max(now - since_, 0.0);  // clocks are set
}

double FlightRecorder::waited() const {
  const std::lock_guard lock(mutex_);
  return waited_ + (running_ > 0 ? std::max(seconds_now() - since_, 0.0) : 0.0);
}

void FlightRecorder::set_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}
int64_t FlightRecorder::step() const {
  const std::lock_guard lock(mutex_);
  return step_;
}

CollectiveEntry FlightRecorder::now() const {
  const std::lock_guard lock(mutex_);
  for (const CollectiveEntry& e : entries_) {
    if (e.ended == 0) return e;
  }
  return entries_.empty() ? CollectiveEntry() : entries_.back();
}

std::vector<CollectiveEntry> FlightRecorder::entries() const {
  const std::lock_guard lock(mutex_);
  return {entries_.begin(), entries_.end()};
}

std::string explain(std::string_view group, const std::vector<int>& ranks, const std::vector<RankView>& views) {
  std::string blame;
  const auto add = [&](const std::string& text) { blame += cat(blame.empty() ? "" : "; ", text); };
  // Of each collective of the group's newest number those that are in it.
  uint64_t newest = 0;
  std::map<std::string, std::vector<int>> inside;
  std::vector<int> absent;
  const auto member = [&](int rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); };
  for (const RankView& v : views) {
    if (!v.failure.empty()) add(cat("rank ", v.rank, " (", v.host, ", pid ", v.pid, "): ", v.failure));
    if (member(v.rank) && v.last.group == group && v.last.ended == 0) newest = std::max(newest, v.last.sequence);
  }
  for (const RankView& v : views) {
    if (!member(v.rank) || !v.failure.empty()) continue;
    if (v.last.group == group && v.last.ended == 0 && v.last.sequence == newest) {
      inside[v.last.what].push_back(v.rank);
    } else {
      absent.push_back(v.rank);
    }
  }
  if (inside.size() > 1) {
    const auto most = std::max_element(inside.begin(), inside.end(), [](const auto& a, const auto& b) {
      // As many of each: the one that the lower ranks are in counts as what is meant.
      return a.second.size() != b.second.size() ? a.second.size() < b.second.size() : a.second[0] > b.second[0];
    });
    for (const auto& [what, who] : inside) {
      if (what == most->first) continue;
      add(cat(numbers(who), " called ", what, " where ", numbers(most->second), " called ", most->first));
    }
  }
  // Behind a dead rank some are further than others: that is not to blame.
  if (!inside.empty() && !absent.empty() && blame.empty()) {
    std::vector<int> waiting;
    for (const auto& [what, who] : inside) waiting.insert(waiting.end(), who.begin(), who.end());
    std::sort(waiting.begin(), waiting.end());
    add(cat(numbers(waiting), waiting.size() == 1 ? " waits for " : " wait for ", numbers(absent)));
  }
  std::string text = blame.empty() ? cat("group ", group, " does not go on") : blame;
  for (const RankView& v : views) {
    text += cat("\n  rank ", v.rank, " (", v.host, ", pid ", v.pid, "): ",
                !v.failure.empty() ? v.failure + "; last seen " : std::string(v.left ? "has ended; " : ""),
                place(v.last));
    if (v.failure.empty() && v.waiting >= 1) text += cat(", waiting for ", static_cast<int64_t>(v.waiting), " s");
  }
  return text;
}

}  // namespace strata::distributed
