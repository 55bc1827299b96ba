#include "strata/optim/schedule.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/error.h"

namespace strata::optim {
namespace {

constexpr std::string_view kNames[] = {"constant", "linear", "cosine", "wsd", "one_cycle"};

}  // namespace

const ScheduleRecord& Schedule::record() const {
  return schedule_record(kNames[static_cast<int>(kind)]);
}

ScheduleValues Schedule::values() const {
  const std::pair<std::string_view, double> fields[] = {{"warmup", static_cast<double>(warmup)},
                                                        {"total", static_cast<double>(total)},
                                                        {"decay", static_cast<double>(decay)},
                                                        {"min_ratio", min_ratio},
                                                        {"pct_start", pct_start},
                                                        {"div_factor", div_factor},
                                                        {"final_div_factor", final_div_factor}};
  ScheduleValues values;
  for (const ScheduleOption& o : record().options)
    values.emplace_back(std::ranges::find(fields, o.name, [](const auto& f) { return f.first; })->second);
  return values;
}

double Schedule::operator()(int64_t step) const {
  check(step >= 0, "Schedule", "steps count from 0, got ", step);
  return record().value(values(), step, lr);
}

void Schedule::validate() const {
  check(lr >= 0, "Schedule", "lr must not be negative, got ", lr);
  std::vector<std::pair<std::string, ScheduleValue>> options;
  const ScheduleValues all = values();
  for (size_t i = 0; i < all.size(); ++i) options.emplace_back(record().options[i].name, all[i]);
  const LrSchedule checked(record().name, options);
}

Schedule Schedule::constant(double lr, int64_t warmup) {
  const Schedule s{.lr = lr, .warmup = warmup};
  s.validate();
  return s;
}
Schedule Schedule::linear(double lr, int64_t total, int64_t warmup, double min_ratio) {
  const Schedule s{.kind = Kind::linear, .lr = lr, .warmup = warmup, .total = total, .min_ratio = min_ratio};
  s.validate();
  return s;
}
Schedule Schedule::cosine(double lr, int64_t total, int64_t warmup, double min_ratio) {
  const Schedule s{.kind = Kind::cosine, .lr = lr, .warmup = warmup, .total = total, .min_ratio = min_ratio};
  s.validate();
  return s;
}
Schedule Schedule::wsd(double lr, int64_t total, int64_t warmup, int64_t decay, double min_ratio) {
  const Schedule s{
      .kind = Kind::wsd, .lr = lr, .warmup = warmup, .total = total, .decay = decay, .min_ratio = min_ratio};
  s.validate();
  return s;
}
Schedule Schedule::one_cycle(double max_lr, int64_t total, double pct_start) {
  const Schedule s{.kind = Kind::one_cycle, .lr = max_lr, .total = total, .pct_start = pct_start};
  s.validate();
  return s;
}

Schedule::Kind Schedule::kind_of(std::string_view name) {
  std::string all;
  for (int i = 0; i < 5; ++i) {
    if (kNames[i] == name) return static_cast<Kind>(i);
    all += cat(' ', kNames[i]);
  }
  throw ValueError("Schedule", cat("'", name, "' is not one of:", all));
}

}  // namespace strata::optim
