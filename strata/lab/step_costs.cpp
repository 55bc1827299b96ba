#include "strata/lab/step_costs.h"

#include <algorithm>
#include <cctype>
#include <set>

#include <fmt/format.h>

namespace strata::lab {
namespace {

// Of the first floating tensor argument.
DType dtype_of_call(const Recording& r, const RecordedCall& c) {
  const auto floating = [&](ValueIndex v) {
    return v.at >= 0 && is_floating(r.values[static_cast<size_t>(v.at)].dtype);
  };
  for (const RecordedArg& a : c.args) {
    if (const auto* v = std::get_if<ValueIndex>(&a); v && floating(*v))
      return r.values[static_cast<size_t>(v->at)].dtype;
  }
  return DType::f32;
}

bool is_number(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Calls visit(begin, end) for each part of a path between dots that is a number.
template <class Visit>
void for_each_number(std::string_view path, Visit&& visit) {
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    if (is_number(path.substr(begin, end - begin))) visit(begin, end);
    begin = end + 1;
  }
}

bool is_dry(const Recording& r) {
  return std::any_of(r.storages.begin(), r.storages.end(), [](const RecordedStorage& s) { return s.device.is_meta(); });
}

}  // namespace

CostRow& CostRow::operator+=(const CostRow& other) {
  calls += other.calls;
  flops += other.flops;
  bytes += other.bytes;
  seconds += other.seconds;
  limit += other.limit;
  return *this;
}

void StepCosts::add(const Part& part) {
  const auto [at, fresh] = places_.try_emplace({part.op, part.module, part.phase}, parts_.size());
  if (fresh) parts_.push_back({part.op, part.module, part.phase, {}});
  parts_[at->second].sum += part.sum;
}

void StepCosts::add(const Recording& r, int64_t times) {
  const auto n = static_cast<double>(times);
  outside += n * r.outside;
  // For whose work each call's time is: its own, that of the call with a kernel around it, or nobody's.
  std::vector<int32_t> owner(r.calls.size(), -1);
  std::vector<double> seconds(r.calls.size(), 0);
  for (size_t i = 0; i < r.calls.size(); ++i) {
    const RecordedCall& c = r.calls[i];
    if (c.parent >= 0) owner[i] = owner[static_cast<size_t>(c.parent)];
    if (owner[i] < 0 && !c.composed) owner[i] = static_cast<int32_t>(i);
    (owner[i] < 0 ? outside : seconds[static_cast<size_t>(owner[i])]) += n * c.seconds;
  }
  for (size_t i = 0; i < r.calls.size(); ++i) {
    if (owner[i] != static_cast<int32_t>(i)) continue;
    const RecordedCall& c = r.calls[i];
    add(Part{std::string(c.op->name()),
             c.module ? *c.module : std::string(),
             c.phase,
             {{}, times, n * c.cost.flops, n * c.cost.bytes, seconds[i], n * least_seconds(r, i, limits_)}});
  }
}

CostRow StepCosts::all() const {
  CostRow sum;
  sum.name = "all";
  for (const Part& p : parts_) sum += p.sum;
  return sum;
}

StepCosts StepCosts::merged() const {
  std::set<std::string, std::less<>> above;  // paths that end in a number and have modules below them
  for (const Part& p : parts_)
    for_each_number(p.module, [&](size_t, size_t end) {
      if (end < p.module.size()) above.insert(p.module.substr(0, end));
    });
  StepCosts merged(limits_);
  merged.outside = outside;
  for (Part p : parts_) {
    std::string name;
    size_t written = 0;
    for_each_number(p.module, [&](size_t begin, size_t end) {
      if (!above.contains(std::string_view(p.module).substr(0, end))) return;
      name += p.module.substr(written, begin - written) + '*';
      written = end;
    });
    p.module = name + p.module.substr(written);
    merged.add(p);
  }
  return merged;
}

std::vector<CostRow> StepCosts::rows(CostBy by, bool by_time) const {
  std::map<std::string, CostRow, std::less<>> named;
  const std::vector<Part> parts = by == CostBy::module ? merged().parts_ : parts_;
  for (const Part& p : parts) {
    const std::string name = by == CostBy::op      ? p.op
                             : by == CostBy::phase ? std::string(name_of(p.phase))
                             : p.module.empty()    ? std::string("(none)")
                                                   : p.module;
    CostRow& row = named[name];
    row.name = name;
    row += p.sum;
  }
  std::vector<CostRow> sorted;
  for (auto& [name, row] : named) sorted.push_back(std::move(row));
  std::stable_sort(sorted.begin(), sorted.end(), [&](const CostRow& a, const CostRow& b) {
    if (by_time) return a.seconds > b.seconds;
    return a.limit != b.limit ? a.limit > b.limit : a.bytes > b.bytes;
  });
  return sorted;
}

std::string StepCosts::table(CostBy by, size_t most, bool timed) const {
  std::vector<CostRow> shown = rows(by);
  const CostRow sum = all();
  if (shown.size() > most) {
    CostRow rest;
    rest.name = fmt::format("({} more)", shown.size() - most);
    for (size_t i = most; i < shown.size(); ++i) rest += shown[i];
    shown.resize(most);
    shown.push_back(rest);
  }
  shown.push_back(sum);
  timed = timed && sum.seconds > 0;
  const bool limited = sum.limit > 0;
  size_t width = 28;
  for (const CostRow& r : shown) width = std::max(width, r.name.size());
  std::string text =
      fmt::format("{:<{}} {:>7} {:>11} {:>11}", kCostBy[static_cast<int>(by)], width, "calls", "GFLOP", "MB");
  if (limited) text += fmt::format(" {:>11} {:>7}", "least ms", "share");
  if (timed) text += fmt::format(" {:>11} {:>7}", "ms", "share");
  if (timed && limited) text += fmt::format(" {:>9}", "of limit");
  text += '\n';
  for (const CostRow& r : shown) {
    text += fmt::format("{:<{}} {:>7} {:>11.4g} {:>11.4g}", r.name, width, r.calls, r.flops * 1e-9, r.bytes * 1e-6);
    if (limited) text += fmt::format(" {:>11.4g} {:>6.1f}%", r.limit * 1e3, 100 * r.limit / sum.limit);
    if (timed) text += fmt::format(" {:>11.4g} {:>6.1f}%", r.seconds * 1e3, 100 * r.seconds / sum.seconds);
    if (timed && limited) text += fmt::format(" {:>8.0f}%", r.seconds > 0 ? 100 * r.limit / r.seconds : 0);
    text += '\n';
  }
  return text;
}

double least_seconds(const Recording& recording, size_t i, const Limits& limits) {
  const RecordedCall& c = recording.calls[i];
  return least_seconds(*c.op, dtype_of_call(recording, c), c.cost, limits);
}

std::vector<CostRow> step_costs(const Recording& recording, CostBy by, const Limits& limits) {
  StepCosts costs(limits);
  costs.add(recording);
  return costs.rows(by);
}

std::string step_cost_table(const Recording& recording, CostBy by, const Limits& limits, size_t rows) {
  StepCosts costs(limits);
  costs.add(recording);
  return costs.table(by, rows, !is_dry(recording));
}

}  // namespace strata::lab
