#include "strata/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "strata/core/error.h"

namespace strata::optim {
namespace {

constexpr std::string_view kNames[] = {"constant", "linear", "cosine", "wsd", "one_cycle"};

// From `from` at 0 to `to` at 1, along half a cosine.
double half_cosine(double from, double to, double part) {
  return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * part));
}

// How much of the way from `begin` to `end` lies behind `step`; in [0, 1].
double progress(int64_t step, double begin, double end) {
  if (end <= begin) return static_cast<double>(step) < end ? 0 : 1;
  return std::clamp((static_cast<double>(step) - begin) / (end - begin), 0.0, 1.0);
}

}  // namespace

double Schedule::operator()(int64_t step) const {
  check(step >= 0, "Schedule", "steps count from 0, got ", step);
  const double last = lr * min_ratio;
  const double begin = static_cast<double>(warmup), end = static_cast<double>(total);
  if (kind != Kind::one_cycle && step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  switch (kind) {
    case Kind::constant:
      return lr;
    case Kind::linear:
      return lr + (last - lr) * progress(step, begin, end);
    case Kind::cosine:
      return half_cosine(lr, last, progress(step, begin, end));
    case Kind::wsd:
      return lr + (last - lr) * progress(step, end - static_cast<double>(decay), end);
    case Kind::one_cycle: {
      const double first = lr / div_factor, peak = pct_start * end - 1;
      if (static_cast<double>(step) <= peak) return half_cosine(first, lr, progress(step, 0, peak));
      return half_cosine(lr, first / final_div_factor, progress(step, peak, end - 1));
    }
  }
  return lr;
}

void Schedule::validate() const {
  check(lr >= 0, "Schedule", "lr must not be negative, got ", lr);
  check(warmup >= 0, "Schedule", "warmup must not be negative, got ", warmup);
  check(min_ratio >= 0 && min_ratio <= 1, "Schedule", "min_ratio lies between 0 and 1, got ", min_ratio);
  if (kind == Kind::constant) return;
  check(total >= 1, "Schedule", "total must be at least 1 step, got ", total);
  if (kind == Kind::one_cycle) {
    check(pct_start > 0 && pct_start <= 1, "Schedule", "pct_start lies above 0 and at most at 1, got ", pct_start);
    check(div_factor > 0 && final_div_factor > 0, "Schedule", "div_factor and final_div_factor must be positive, got ",
          div_factor, " and ", final_div_factor);
    return;
  }
  check(warmup <= total, "Schedule", "warmup (", warmup, ") is longer than the run (", total, " steps)");
  check(kind != Kind::wsd || (decay >= 0 && decay <= total - warmup), "Schedule", "decay (", decay,
        ") does not fit into the ", total - warmup, " steps after the warm-up");
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
