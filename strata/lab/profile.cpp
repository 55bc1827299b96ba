#include "strata/lab/profile.h"

#include <algorithm>

#include <fmt/format.h>

namespace strata::lab {

void OpProfile::before(const OpBase& op) {
  open_.push_back({&op, Clock::now()});
}

void OpProfile::after(const OpBase& op, std::span<const Tensor>) {
  const Clock::time_point now = Clock::now();
  // A call that threw has no end of its own.
  while (!open_.empty() && open_.back().op != &op) open_.pop_back();
  if (open_.empty()) return;
  const Open call = open_.back();
  open_.pop_back();
  const double seconds = std::chrono::duration<double>(now - call.begin).count();
  if (!open_.empty()) open_.back().inner += seconds;
  auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.op == &op; });
  if (row == rows_.end()) row = rows_.insert(rows_.end(), Row{&op});
  ++row->calls;
  row->seconds += seconds - call.inner;
}

std::vector<OpProfile::Row> OpProfile::rows() const {
  std::vector<Row> sorted = rows_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return sorted;
}

std::string OpProfile::table() const {
  const double total = elapsed();
  std::string text = fmt::format("{:<36} {:>9} {:>11} {:>7} {:>11}\n", "op", "calls", "ms", "share", "us/call");
  double inside = 0;
  for (const Row& r : rows()) {
    inside += r.seconds;
    text += fmt::format("{:<36} {:>9} {:>11.2f} {:>6.1f}% {:>11.2f}\n", r.op->name(), r.calls, r.seconds * 1e3,
                        100 * r.seconds / total, r.seconds * 1e6 / static_cast<double>(r.calls));
  }
  text += fmt::format("{:<36} {:>9} {:>11.2f} {:>6.1f}%\n", "outside", "", (total - inside) * 1e3,
                      100 * (total - inside) / total);
  return text;
}

}  // namespace strata::lab
