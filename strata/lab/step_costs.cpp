#include "strata/lab/step_costs.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace strata::lab {
namespace {

// Of the first floating tensor argument.
DType dtype_of_call(const Recording& r, const RecordedCall& c) {
  for (const RecordedArg& a : c.args) {
    const auto* v = std::get_if<ValueIndex>(&a);
    if (!v || v->at < 0) continue;
    const DType dtype = r.values[static_cast<size_t>(v->at)].dtype;
    if (is_floating(dtype)) return dtype;
  }
  return DType::f32;
}

void add(CostRow& to, const CostRow& row) {
  to.calls += row.calls;
  to.flops += row.flops;
  to.bytes += row.bytes;
  to.seconds += row.seconds;
  to.limit += row.limit;
}

}  // namespace

std::vector<CostRow> step_costs(const Recording& recording, CostBy by, const Limits& limits) {
  std::map<std::string, CostRow, std::less<>> rows;
  for (size_t i = 0; i < recording.calls.size(); ++i) {
    if (!recording.is_work(i)) continue;
    const RecordedCall& c = recording.calls[i];
    const std::string name = by == CostBy::op       ? std::string(c.op->name())
                             : by == CostBy::module ? c.module ? *c.module : std::string("(none)")
                                                    : std::string(strata::name_of(c.phase));
    CostRow& row = rows[name];
    row.name = name;
    add(row, {{},
              1,
              c.cost.flops,
              c.cost.bytes,
              c.seconds,
              least_seconds(*c.op, dtype_of_call(recording, c), c.cost, limits)});
  }
  std::vector<CostRow> sorted;
  for (auto& [name, row] : rows) sorted.push_back(std::move(row));
  std::stable_sort(sorted.begin(), sorted.end(), [](const CostRow& a, const CostRow& b) {
    return a.limit != b.limit ? a.limit > b.limit : a.bytes > b.bytes;
  });
  return sorted;
}

std::string step_cost_table(const Recording& recording, CostBy by, const Limits& limits, size_t rows) {
  std::vector<CostRow> all = step_costs(recording, by, limits);
  CostRow sum, rest;
  for (const CostRow& r : all) add(sum, r);
  for (size_t i = rows; i < all.size(); ++i) add(rest, all[i]);
  if (all.size() > rows) {
    rest.name = fmt::format("({} more)", all.size() - rows);
    all.resize(rows);
    all.push_back(rest);
  }
  sum.name = "all";
  all.push_back(sum);
  constexpr std::string_view kHead[] = {"op", "module", "phase"};
  const bool timed = sum.seconds > 0, limited = sum.limit > 0;
  std::string text = fmt::format("{:<28} {:>7} {:>11} {:>11}", kHead[static_cast<int>(by)], "calls", "GFLOP", "MB");
  if (limited) text += fmt::format(" {:>11} {:>7}", "least ms", "share");
  if (timed) text += fmt::format(" {:>11} {:>7}", "ms", "share");
  if (timed && limited) text += fmt::format(" {:>9}", "of limit");
  text += '\n';
  for (const CostRow& r : all) {
    text += fmt::format("{:<28} {:>7} {:>11.4g} {:>11.4g}", r.name, r.calls, r.flops * 1e-9, r.bytes * 1e-6);
    if (limited) text += fmt::format(" {:>11.4g} {:>6.1f}%", r.limit * 1e3, 100 * r.limit / sum.limit);
    if (timed) text += fmt::format(" {:>11.4g} {:>6.1f}%", r.seconds * 1e3, 100 * r.seconds / sum.seconds);
    if (timed && limited) text += fmt::format(" {:>8.0f}%", r.seconds > 0 ? 100 * r.limit / r.seconds : 0);
    text += '\n';
  }
  return text;
}

}  // namespace strata::lab
