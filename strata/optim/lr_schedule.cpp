#include "strata/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "strata/core/error.h"

namespace strata::optim {
namespace {

double number(const ScheduleValues& o, size_t i) {
  return std::get<double>(o[i]);
}
int64_t whole(const ScheduleValues& o, size_t i) {
  return static_cast<int64_t>(number(o, i));
}
const std::string& text(const ScheduleValues& o, size_t i) {
  return std::get<std::string>(o[i]);
}
double real(int64_t n) {
  return static_cast<double>(n);
}
// 1 at 0, 0 at 1, along half a cosine.
double half_cosine(double part) {
  return (1 + std::cos(std::numbers::pi * part)) / 2;
}
double between(double start, double end, double part, const std::string& strategy) {
  if (strategy == "linear") return start + (end - start) * part;
  return end + (start - end) / 2 * (1 + std::cos(std::numbers::pi * part));
}

// Rates that are the base times a factor of the step: each step multiplies by the factor's change.
template <double (*Factor)(const ScheduleValues&, int64_t)>
double by_factor(const ScheduleValues& o, int64_t step, double base) {
  return base * Factor(o, step);
}
template <double (*Factor)(const ScheduleValues&, int64_t)>
double next_by_factor(const ScheduleValues& o, int64_t step, double now, double base) {
  const double before = step > 0 ? Factor(o, step - 1) : 1, factor = Factor(o, step);
  return factor == before ? now : before != 0 ? now * (factor / before) : base * factor;
}

double constant_factor(const ScheduleValues& o, int64_t step) {
  return step < whole(o, 1) ? number(o, 0) : 1;
}
double linear_factor(const ScheduleValues& o, int64_t step) {
  const double total = number(o, 2), part = std::min(real(step), total) / total;
  return number(o, 0) + (number(o, 1) - number(o, 0)) * part;
}
double polynomial_factor(const ScheduleValues& o, int64_t step) {
  return std::pow(1 - std::min(real(step), number(o, 0)) / number(o, 0), number(o, 1));
}

const std::vector<double>& milestones(const ScheduleValues& o) {
  return std::get<std::vector<double>>(o[0]);
}
double cosine_part(const ScheduleValues& o, int64_t step) {
  return (1 + std::cos(std::numbers::pi * real(step) / number(o, 0))) / 2;
}
double cosine_next(const ScheduleValues& o, int64_t step, double now, double base) {
  const int64_t top = whole(o, 0);
  const double least = number(o, 1);
  if (step == 0) return now;
  if ((step - 1) % (2 * top) == top) return now + (base - least) * cosine_part(o, top + 1);  // up again from nothing
  return least + (now - least) * (cosine_part(o, step) / cosine_part(o, step - 1));
}
double restarts(const ScheduleValues& o, int64_t step, double base) {
  int64_t at = step, period = whole(o, 0);
  for (; at >= period; period *= whole(o, 1)) at -= period;
  const double least = number(o, 2);
  return least + (base - least) * half_cosine(real(at) / real(period));
}

// CyclicLR's options: 0 base_lr 1 max_lr 2 step_size_up 3 step_size_down 4 mode 5 gamma 6 scale 7 base_momentum
// 8 max_momentum.
double cyclic_height(const ScheduleValues& o, int64_t step) {
  const double up = number(o, 2), down = number(o, 3) < 0 ? up : number(o, 3), length = up + down;
  const double at = std::fmod(real(step), length);
  const double part = at <= up ? at / up : (length - at) / down;
  if (!std::isnan(number(o, 6))) return part * number(o, 6);
  if (text(o, 4) == "triangular") return part;
  if (text(o, 4) == "exp_range") return part * std::pow(number(o, 5), real(step));
  return part * std::pow(2.0, -std::floor(real(step) / length));
}

// OneCycleLR's options: 0 max_lr 1 total_steps 2 pct_start 3 anneal_strategy 4 base_momentum 5 max_momentum 6
// div_factor 7 final_div_factor 8 three_phase. Which phase a step is in, and how far.
struct Phase {
  size_t i;
  double part;
};
Phase phase_of(const ScheduleValues& o, int64_t step) {
  const double total = number(o, 1), top = number(o, 2) * total - 1;
  check(real(step) <= total, "OneCycleLR", "Tried to step ", step, " times. The specified number of total steps is ",
        total, ": step ", step, " is past the ", total, " that it has");
  const std::vector<double> ends = number(o, 8) != 0 ? std::vector<double>{top, 2 * number(o, 2) * total - 2, total - 1}
                                                     : std::vector<double>{top, total - 1};
  double begin = 0;
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    if (real(step) <= ends[i]) return {i, ends[i] > begin ? (real(step) - begin) / (ends[i] - begin) : 1};
    begin = ends[i];
  }
  return {ends.size() - 1, ends.back() > begin ? (real(step) - begin) / (ends.back() - begin) : 1};
}
double one_cycle(const ScheduleValues& o, int64_t step, double) {
  const Phase at = phase_of(o, step);
  const double peak = number(o, 0), first = peak / number(o, 6), least = first / number(o, 7);
  const bool three = number(o, 8) != 0;
  const double from[] = {first, peak, first}, to[] = {peak, three ? first : least, least};
  return between(from[at.i], to[at.i], at.part, text(o, 3));
}
double one_cycle_momentum(const ScheduleValues& o, int64_t step) {
  const Phase at = phase_of(o, step);
  const double low = number(o, 4), high = number(o, 5), from[] = {high, low, high}, to[] = {low, high, high};
  return between(from[at.i], to[at.i], at.part, text(o, 3));
}

// SWALR's options: 0 swa_lr 1 anneal_epochs 2 anneal_strategy.
double swa_share(const ScheduleValues& o, int64_t step) {
  const double t = std::clamp(real(step) / std::max(1.0, number(o, 1)), 0.0, 1.0);
  return text(o, 2) == "cos" ? (1 - std::cos(std::numbers::pi * t)) / 2 : t;
}
double swa_next(const ScheduleValues& o, int64_t step, double now, double) {
  if (number(o, 1) == 0) step = std::max<int64_t>(1, step);
  const double before = swa_share(o, std::max<int64_t>(0, step - 1)), share = swa_share(o, step), wanted = number(o, 0);
  const double start = before == 1 ? now : (now - before * wanted) / (1 - before);
  return wanted * share + start * (1 - share);
}

constexpr double kNone = __builtin_nan("");

const std::vector<ScheduleRecord>& all_records() {
  static const std::vector<ScheduleRecord> all = {
      {.name = "ConstantLR",
       .doc = "Times factor for the first total_iters steps.",
       .options = {{"factor", "The factor.", 1.0 / 3, false, "", 0, 1}, {"total_iters", "Steps.", 5.0}},
       .value = by_factor<constant_factor>,
       .next = next_by_factor<constant_factor>},
      {.name = "CosineAnnealingLR",
       .doc = "Half a cosine from the rate to eta_min over T_max steps (Loshchilov and Hutter, SGDR, 2017), and back.",
       .options = {{"T_max", "Steps down.", 0.0, true, "", 0, __builtin_inf(), true}, {"eta_min", "Least rate.", 0.0}},
       .value = [](const ScheduleValues& o, int64_t step,
                   double base) { return number(o, 1) + (base - number(o, 1)) * cosine_part(o, step); },
       .next = cosine_next},
      {.name = "CosineAnnealingWarmRestarts",
       .doc = "Half cosines one after the other, the first of T_0 steps, each T_mult times as long as the one before.",
       .options = {{"T_0", "Steps of the first.", 0.0, true, "", 1},
                   {"T_mult", "Growth of their length.", 1.0, false, "", 1},
                   {"eta_min", "Least rate.", 0.0}},
       .value = restarts},
      {.name = "CyclicLR",
       .doc = "Up from base_lr to max_lr over step_size_up steps and down again over step_size_down, for ever (Smith, "
              "2017); each cycle half as high as the one before with triangular2, times gamma^step with exp_range. "
              "Momentum goes the other way.",
       .options = {{"base_lr", "Least rate.", 0.0, true},
                   {"max_lr", "Largest rate.", 0.0, true},
                   {"step_size_up", "Steps up.", 2000.0, false, "", 0, __builtin_inf(), true},
                   {"step_size_down", "Steps down; -1: as many.", -1.0},
                   {"mode", "How cycles change.", std::string("triangular"), false, "triangular triangular2 exp_range"},
                   {"gamma", "Of exp_range.", 1.0},
                   {"scale", "Height of this cycle, in place of mode; NaN: mode's.", kNone},
                   {"base_momentum", "Momentum at the largest rate.", 0.8},
                   {"max_momentum", "Momentum at the least rate.", 0.9}},
       .value = [](const ScheduleValues& o, int64_t step,
                   double) { return number(o, 0) + (number(o, 1) - number(o, 0)) * cyclic_height(o, step); },
       .momentum = [](const ScheduleValues& o,
                      int64_t step) { return number(o, 8) - (number(o, 8) - number(o, 7)) * cyclic_height(o, step); }},
      {.name = "ExponentialLR",
       .doc = "Times gamma every step.",
       .options = {{"gamma", "The factor.", 0.0, true}},
       .value = [](const ScheduleValues& o, int64_t step,
                   double base) { return base * std::pow(number(o, 0), real(step)); },
       .next = [](const ScheduleValues& o, int64_t step, double now,
                  double) { return step == 0 ? now : now * number(o, 0); }},
      {.name = "LinearLR",
       .doc = "From start_factor to end_factor of the rate in a straight line over total_iters steps.",
       .options = {{"start_factor", "Factor at first.", 1.0 / 3, false, "", 0, 1, true},
                   {"end_factor", "Factor in the end.", 1.0, false, "", 0, 1},
                   {"total_iters", "Steps.", 5.0}},
       .value = by_factor<linear_factor>,
       .next = next_by_factor<linear_factor>},
      {.name = "MultiStepLR",
       .doc = "Times gamma at each of the milestones.",
       .options = {{"milestones", "Steps.", std::vector<double>{}, true}, {"gamma", "The factor.", 0.1}},
       .value =
           [](const ScheduleValues& o, int64_t step, double base) {
             const auto passed = std::ranges::count_if(milestones(o), [&](double m) { return m <= real(step); });
             return base * std::pow(number(o, 1), real(passed));
           },
       .next =
           [](const ScheduleValues& o, int64_t step, double now, double) {
             return now * std::pow(number(o, 1), real(std::ranges::count(milestones(o), real(step))));
           }},
      {.name = "OneCycleLR",
       .doc = "Up from max_lr / div_factor to max_lr over pct_start of the steps, then down to that start over "
              "final_div_factor (Smith and Topin, 2018), the momentum the other way.",
       .options = {{"max_lr", "Largest rate.", 0.0, true},
                   {"total_steps", "Steps.", 0.0, true, "", 1},
                   {"pct_start", "Part of the steps on the way up.", 0.3, false, "", 0, 1},
                   {"anneal_strategy", "Half cosines or straight lines.", std::string("cos"), false, "cos linear"},
                   {"base_momentum", "Momentum at the largest rate.", 0.85},
                   {"max_momentum", "Momentum at first and in the end.", 0.95},
                   {"div_factor", "The first rate is max_lr over it.", 25.0, false, "", 0, __builtin_inf(), true},
                   {"final_div_factor", "The last rate is the first over it.", 1e4, false, "", 0, __builtin_inf(),
                    true},
                   {"three_phase", "1: down to the first rate as it went up, then on down.", 0.0}},
       .value = one_cycle,
       .momentum = one_cycle_momentum},
      {.name = "PolynomialLR",
       .doc = "The rate times (1 - step / total_iters)^power.",
       .options = {{"total_iters", "Steps.", 5.0, false, "", 0, __builtin_inf(), true}, {"power", "The power.", 1.0}},
       .value = by_factor<polynomial_factor>,
       .next = next_by_factor<polynomial_factor>},
      {.name = "SWALR",
       .doc = "From the rate there is to swa_lr in anneal_epochs steps, by a cosine or a line.",
       .options = {{"swa_lr", "The last rate.", 0.0, true},
                   {"anneal_epochs", "Steps.", 10.0, false, "", 0},
                   {"anneal_strategy", "A cosine or a line.", std::string("cos"), false, "cos linear"}},
       .value =
           [](const ScheduleValues& o, int64_t step, double base) {
             const double share = number(o, 1) == 0 ? 1 : swa_share(o, step);
             return number(o, 0) * share + base * (1 - share);
           },
       .next = swa_next},
      {.name = "StepLR",
       .doc = "Times gamma every step_size steps.",
       .options = {{"step_size", "Steps.", 0.0, true, "", 1}, {"gamma", "The factor.", 0.1}},
       .value = [](const ScheduleValues& o, int64_t step,
                   double base) { return base * std::pow(number(o, 1), real(step / whole(o, 0))); },
       .next = [](const ScheduleValues& o, int64_t step, double now,
                  double) { return step == 0 || step % whole(o, 0) != 0 ? now : now * number(o, 1); }},
  };
  return all;
}

std::string quoted(std::string_view s) {
  return cat('"', s, '"');
}
std::string shown(const ScheduleValue& v) {
  if (const auto* d = std::get_if<double>(&v)) return std::isnan(*d) ? "null" : cat(*d);
  if (const auto* s = std::get_if<std::string>(&v)) return quoted(*s);
  return "[]";
}

}  // namespace

std::span<const ScheduleRecord> schedule_records() {
  return all_records();
}

const ScheduleRecord& schedule_record(std::string_view name) {
  std::string names;
  for (const ScheduleRecord& r : all_records()) {
    if (r.name == name) return r;
    names += cat(' ', r.name);
  }
  throw ValueError("LrSchedule", cat("there is no schedule '", name, "'; there are:", names));
}

LrSchedule::LrSchedule(std::string_view name, const std::vector<std::pair<std::string, ScheduleValue>>& options)
    : record_(&schedule_record(name)) {
  for (const auto& [key, value] : options)
    check(std::ranges::any_of(record_->options, [&](const ScheduleOption& o) { return o.name == key; }), name,
          "there is no option '", key, "'");
  for (const ScheduleOption& o : record_->options) {
    const auto given = std::ranges::find(options, o.name, [](const auto& pair) { return pair.first; });
    check(given != options.end() || !o.required, name, "needs ", o.name);
    values_.push_back(given == options.end() ? o.fallback : given->second);
    const ScheduleValue& v = values_.back();
    check(v.index() == o.fallback.index(), name, o.name, " wants a ",
          o.fallback.index() == 0   ? "number"
          : o.fallback.index() == 1 ? "text"
                                    : "list of steps");
    if (const auto* d = std::get_if<double>(&v); d && given != options.end())
      check(std::isnan(*d) ? std::isnan(std::get<double>(o.fallback))
                           : (o.above ? *d > o.min : *d >= o.min) && *d <= o.max,
            name, o.name, " is out of range: ", *d);
    if (const auto* s = std::get_if<std::string>(&v))
      check(cat(' ', o.choices, ' ').find(cat(' ', *s, ' ')) != std::string::npos, name, o.name,
            " must be one of: ", o.choices, "; got '", *s, "'");
  }
  if (record_->together) record_->together(values_);
}

double LrSchedule::operator()(int64_t step, double base) const {
  check(step >= 0, record_->name, "steps count from 0, got ", step);
  return record_->value(values_, step, base);
}
double LrSchedule::next(int64_t step, double now, double base) const {
  check(step >= 0, record_->name, "steps count from 0, got ", step);
  return record_->next ? record_->next(values_, step, now, base) : record_->value(values_, step, base);
}
double LrSchedule::momentum(int64_t step) const {
  return record_->momentum ? record_->momentum(values_, step) : kNone;
}

double sequential(std::span<const LrSchedule> parts, std::span<const int64_t> milestones, int64_t step, double base) {
  check(milestones.size() + 1 == parts.size(), "sequential", "needs one milestone less than schedules, got ",
        milestones.size(), " and ", parts.size());
  const auto i = static_cast<size_t>(std::ranges::count_if(milestones, [&](int64_t m) { return m <= step; }));
  return parts[i](i > 0 ? step - milestones[i - 1] : step, base);
}
double chained(std::span<const LrSchedule> parts, int64_t step, double base) {
  for (const LrSchedule& part : parts) base = part(step, base);
  return base;
}

void Plateau::validate() const {
  check(factor < 1, "ReduceLROnPlateau", "factor must be less than 1, got ", factor);
}
bool Plateau::step(double value) {
  const double sign = largest ? -1 : 1;
  const double wanted = relative ? best * (1 - sign * threshold) : best - sign * threshold;
  if (std::isnan(best) ? !std::isnan(value) : sign * value < sign * wanted) {
    best = value;
    bad = 0;
  } else {
    ++bad;
  }
  if (cooling > 0) {
    --cooling;
    bad = 0;
  }
  if (bad <= patience) return false;
  cooling = cooldown;
  bad = 0;
  return true;
}
double Plateau::lowered(double lr, double least) const {
  const double now = std::max(lr * factor, least);
  return lr - now > eps ? now : lr;
}

std::string schedules_json() {
  std::string s = "[";
  for (const ScheduleRecord& r : all_records()) {
    s += cat(s.size() > 1 ? ", " : "", "{\"name\": ", quoted(r.name), ", \"doc\": ", quoted(r.doc),
             ", \"momentum\": ", r.momentum ? "true" : "false", ", \"options\": [");
    for (const ScheduleOption& o : r.options)
      s += cat(&o == r.options.data() ? "" : ", ", "{\"name\": ", quoted(o.name), ", \"doc\": ", quoted(o.doc),
               ", \"default\": ", o.required ? "null" : shown(o.fallback),
               ", \"required\": ", o.required ? "true" : "false", "}");
    s += "]}";
  }
  return s + "]";
}
std::string schedules_markdown() {
  std::string s =
      "# Schedules\n\nWritten from the records in `strata/optim/lr_schedule.cpp`: functions of a step, counted from 0, "
      "and of the "
      "rate that a\ngroup had at first. Node writes the options in camelCase.\n";
  for (const ScheduleRecord& r : all_records()) {
    s += cat("\n## ", r.name, "\n\n", r.doc, "\n\n| option | default | |\n|---|---|---|\n");
    for (const ScheduleOption& o : r.options)
      s += cat("| `", o.name, "` | ", o.required ? "" : shown(o.fallback), " | ", o.doc, " |\n");
  }
  return s;
}

}  // namespace strata::optim
