#include "strata/lab/profile.h"

#include <fmt/format.h>

#include "strata/lab/device_clock.h"

namespace strata::lab {

OpProfile::OpProfile(Device device, const Limits& limits) : clock_(clock_of(device)), costs_(limits) {
  RecordOptions options;
  options.clock = clock_.get();
  options.sink = this;
  recorder_.emplace(options);
}

void OpProfile::reset() {
  (void)recorder_->cut();
  costs_ = StepCosts(costs_.limits());
}

const StepCosts& OpProfile::costs() {
  costs_.add(recorder_->cut());
  return costs_;
}

double OpProfile::elapsed() {
  return costs().all().seconds + costs_.outside;
}

std::vector<OpProfile::Row> OpProfile::rows() {
  std::vector<Row> found;
  for (const CostRow& r : costs().rows(CostBy::op, /*by_time=*/true)) {
    const OpBase* op = OpBase::find(r.name);
    found.push_back({op ? op : OpBase::find_unlisted(r.name), r.calls, r.seconds});
  }
  return found;
}

std::string OpProfile::table(CostBy by, size_t most) {
  const double total = elapsed();
  const bool limited = costs_.all().limit > 0;
  std::vector<CostRow> shown = costs_.rows(by, /*by_time=*/true);
  if (shown.size() > most) {
    CostRow rest;
    rest.name = fmt::format("({} more)", shown.size() - most);
    for (size_t i = most; i < shown.size(); ++i) rest += shown[i];
    shown.resize(most);
    shown.push_back(rest);
  }
  std::string text = fmt::format("{:<36} {:>9} {:>11} {:>7} {:>11} {:>11} {:>11}", kCostBy[static_cast<int>(by)],
                                 "calls", "ms", "share", "us/call", "GFLOP", "MB");
  text += limited ? fmt::format(" {:>9}\n", "of limit") : "\n";
  for (const CostRow& r : shown) {
    text += fmt::format("{:<36} {:>9} {:>11.2f} {:>6.1f}% {:>11.2f} {:>11.4g} {:>11.4g}", r.name, r.calls,
                        r.seconds * 1e3, 100 * r.seconds / total, r.seconds * 1e6 / static_cast<double>(r.calls),
                        r.flops * 1e-9, r.bytes * 1e-6);
    text += limited && r.seconds > 0 ? fmt::format(" {:>8.0f}%\n", 100 * r.limit / r.seconds) : "\n";
  }
  text += fmt::format("{:<36} {:>9} {:>11.2f} {:>6.1f}%\n", "outside", "", costs_.outside * 1e3,
                      100 * costs_.outside / total);
  return text;
}

}  // namespace strata::lab
