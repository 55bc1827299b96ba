#include "strata/optim/lr_schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "strata/core/error.h"
#include "strata/core/json_text.h"

namespace strata::optim {
namespace {

using detail::json_list;
using detail::json_string;

double number(const ScheduleValues& o, size_t i) {
  return std::get<double>(o[i]);
}
int64_t whole(const ScheduleValues& o, size_t i) {
  return static_cast<int64_t>(std::clamp(number(o, i), -9e15, 9e15));
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
// From `from` at 0 to `to` at 1, along half a cosine.
double half_cosine(double from, double to, double part) {
  return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * part));
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

// How much of the way from `begin` to `end` lies behind `step`; in [0, 1].
double progress(int64_t step, double begin, double end) {
  if (end <= begin) return real(step) < end ? 0 : 1;
  return std::clamp((real(step) - begin) / (end - begin), 0.0, 1.0);
}
// The schedules that end with the run. Their options: 0 warmup 1 total 2 min_ratio 3 wsd's decay.
void fits_the_run(const ScheduleValues& o, std::string_view name) {
  check(number(o, 0) <= number(o, 1), name, "warmup (", number(o, 0), ") is longer than the run (", number(o, 1),
        " steps)");
  if (o.size() > 3)
    check(number(o, 3) <= number(o, 1) - number(o, 0), name, "decay (", number(o, 3), ") does not fit into the ",
          number(o, 1) - number(o, 0), " steps after the warm-up");
}
template <double (*After)(const ScheduleValues& o, int64_t step, double base)>
double after_warmup(const ScheduleValues& o, int64_t step, double base) {
  return real(step) < number(o, 0) ? base * real(step + 1) / number(o, 0) : After(o, step, base);
}
double constant_run(const ScheduleValues&, int64_t, double base) {
  return base;
}
double linear_run(const ScheduleValues& o, int64_t step, double base) {
  return base + (base * number(o, 2) - base) * progress(step, number(o, 0), number(o, 1));
}
double cosine_run(const ScheduleValues& o, int64_t step, double base) {
  return half_cosine(base, base * number(o, 2), progress(step, number(o, 0), number(o, 1)));
}
double wsd_run(const ScheduleValues& o, int64_t step, double base) {
  return base + (base * number(o, 2) - base) * progress(step, number(o, 1) - number(o, 3), number(o, 1));
}
// Options: 0 total 1 pct_start 2 div_factor 3 final_div_factor.
double one_cycle_run(const ScheduleValues& o, int64_t step, double base) {
  const double end = number(o, 0), first = base / number(o, 2), peak = number(o, 1) * end - 1;
  if (real(step) <= peak) return half_cosine(first, base, progress(step, 0, peak));
  return half_cosine(base, first / number(o, 3), progress(step, peak, end - 1));
}

constexpr double kNone = __builtin_nan("");
constexpr double kInf = __builtin_inf();
const std::vector<ScheduleRecord>& all_records() {
  static const ScheduleOption kWarmup{
      "warmup",     "Steps of linear warm-up; step 0 has the rate / warmup, never 0.", 0.0, false, "", 0, kInf, false,
      OfRun::warmup};
  static const ScheduleOption kTotal{"total",     "Steps of the run, warm-up included.", 0.0, true, "", 1, kInf, false,
                                     OfRun::steps};
  static const ScheduleOption kMinRatio{"min_ratio",     "The last rate over the rate.", 0.0, false, "", 0, 1, false,
                                        OfRun::min_ratio};
  static const std::vector<ScheduleRecord> all = {
      {.name = "ConstantLR",
       .doc = "Times factor for the first total_iters steps.",
       .options = {{"factor", "The factor.", 1.0 / 3, false, "", 0, 1}, {"total_iters", "Steps.", 5.0}},
       .value = by_factor<constant_factor>,
       .next = next_by_factor<constant_factor>},
      {.name = "CosineAnnealingLR",
       .doc = "Half a cosine from the rate to eta_min over T_max steps (Loshchilov and Hutter, SGDR, 2017), and back.",
       .options = {{"T_max", "Steps down.", 0.0, true, "", 0, kInf, true, OfRun::steps},
                   {"eta_min", "Least rate.", 0.0, false, "", -kInf, kInf, false, OfRun::least}},
       .value = [](const ScheduleValues& o, int64_t step,
                   double base) { return number(o, 1) + (base - number(o, 1)) * cosine_part(o, step); },
       .next = cosine_next},
      {.name = "CosineAnnealingWarmRestarts",
       .doc = "Half cosines one after the other, the first of T_0 steps, each T_mult times as long as the one before.",
       .options = {{"T_0", "Steps of the first.", 0.0, true, "", 1},
                   {"T_mult", "Growth of their length.", 1.0, false, "", 1},
                   {"eta_min", "Least rate.", 0.0, false, "", -kInf, kInf, false, OfRun::least}},
       .value = restarts},
      {.name = "CyclicLR",
       .doc = "Up from base_lr to max_lr over step_size_up steps and down again over step_size_down, for ever (Smith, "
              "2017); each cycle half as high as the one before with triangular2, times gamma^step with exp_range. "
              "Momentum goes the other way.",
       .options = {{"base_lr", "Least rate.", 0.0, true, "", -kInf, kInf, false, OfRun::least},
                   {"max_lr", "Largest rate.", 0.0, true, "", -kInf, kInf, false, OfRun::lr},
                   {"step_size_up", "Steps up.", 2000.0, false, "", 0, kInf, true},
                   {"step_size_down", "Steps down; -1: as many.", -1.0},
                   {"mode", "How cycles change.", std::string("triangular"), false, "triangular triangular2 exp_range"},
                   {"gamma", "Of exp_range.", 1.0},
                   {"scale", "Height of this cycle, in place of mode; NaN: mode's.", kNone},
                   {"base_momentum", "Momentum at the largest rate.", 0.8},
                   {"max_momentum", "Momentum at the least rate.", 0.9}},
       .value = [](const ScheduleValues& o, int64_t step,
                   double) { return number(o, 0) + (number(o, 1) - number(o, 0)) * cyclic_height(o, step); },
       .momentum = [](const ScheduleValues& o,
                      int64_t step) { return number(o, 8) - (number(o, 8) - number(o, 7)) * cyclic_height(o, step); },
       .rises = true},
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
       .options = {{"max_lr", "Largest rate.", 0.0, true, "", -kInf, kInf, false, OfRun::lr},
                   {"total_steps", "Steps.", 0.0, true, "", 1, kInf, false, OfRun::steps},
                   {"pct_start", "Part of the steps on the way up.", 0.3, false, "", 0, 1},
                   {"anneal_strategy", "Half cosines or straight lines.", std::string("cos"), false, "cos linear"},
                   {"base_momentum", "Momentum at the largest rate.", 0.85},
                   {"max_momentum", "Momentum at first and in the end.", 0.95},
                   {"div_factor", "The first rate is max_lr over it.", 25.0, false, "", 0, kInf, true},
                   {"final_div_factor", "The last rate is the first over it.", 1e4, false, "", 0, kInf, true},
                   {"three_phase", "1: down to the first rate as it went up, then on down.", 0.0}},
       .value = one_cycle,
       .momentum = one_cycle_momentum,
       .rises = true},
      {.name = "PolynomialLR",
       .doc = "The rate times (1 - step / total_iters)^power.",
       .options = {{"total_iters", "Steps.", 5.0, false, "", 0, kInf, true, OfRun::steps},
                   {"power", "The power.", 1.0}},
       .value = by_factor<polynomial_factor>,
       .next = next_by_factor<polynomial_factor>},
      {.name = "SWALR",
       .doc = "From the rate there is to swa_lr in anneal_epochs steps, by a cosine or a line.",
       .options = {{"swa_lr", "The last rate.", 0.0, true, "", -kInf, kInf, false, OfRun::least},
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
      // What `strata train` knows from the beginning: these end where the run ends.
      {.name = "constant",
       .doc = "A linear warm-up, then the rate.",
       .options = {kWarmup},
       .value = after_warmup<constant_run>},
      {.name = "cosine",
       .doc = "A linear warm-up, then half a cosine from the rate down to min_ratio of it at `total` (Loshchilov and "
              "Hutter, SGDR, 2017); there it stays.",
       .options = {kWarmup, kTotal, kMinRatio},
       .value = after_warmup<cosine_run>,
       .together = [](const ScheduleValues& o) { fits_the_run(o, "cosine"); }},
      {.name = "linear",
       .doc =
           "A linear warm-up, then a straight line from the rate down to min_ratio of it at `total`; there it stays.",
       .options = {kWarmup, kTotal, kMinRatio},
       .value = after_warmup<linear_run>,
       .together = [](const ScheduleValues& o) { fits_the_run(o, "linear"); }},
      {.name = "one_cycle",
       .doc = "Up from the rate / div_factor to the rate over pct_start of the steps, down to that start over "
              "final_div_factor at the last one, both half cosines (Smith and Topin, 2018).",
       .options = {kTotal,
                   {"pct_start", "Part of the steps on the way up.", 0.3, false, "", 0, 1, true},
                   {"div_factor", "The first rate is the rate over it.", 25.0, false, "", 0, kInf, true},
                   {"final_div_factor", "The last rate is the first over it.", 1e4, false, "", 0, kInf, true}},
       .value = one_cycle_run,
       .rises = true},
      {.name = "wsd",
       .doc =
           "Warmup, stable, decay: a linear warm-up, then the rate, over the last `decay` steps a straight line down "
           "to min_ratio of it (Hu et al., MiniCPM, 2024).",
       .options = {kWarmup,
                   kTotal,
                   kMinRatio,
                   {"decay", "Steps of the final decay.", 0.0, false, "", 0, kInf, false, OfRun::decay}},
       .value = after_warmup<wsd_run>,
       .together = [](const ScheduleValues& o) { fits_the_run(o, "wsd"); }},
  };
  return all;
}

std::string shown(const ScheduleValue& v) {
  if (const auto* d = std::get_if<double>(&v)) return std::isnan(*d) ? "null" : cat(*d);
  if (const auto* s = std::get_if<std::string>(&v)) return json_string(*s);
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

std::vector<std::pair<std::string, ScheduleValue>> schedule_options(const ScheduleRecord& record,
                                                                    std::string_view text) {
  const auto numbers = [&](std::string_view list, std::string_view option) {
    std::vector<double> found;
    for (size_t end = 0; end <= list.size(); list.remove_prefix(end + 1)) {
      end = std::min(list.find(','), list.size());
      double value = 0;
      const auto [stop, error] = std::from_chars(list.data(), list.data() + end, value);
      check(error == std::errc() && stop == list.data() + end, record.name, option, " wants numbers, got '",
            list.substr(0, end), "'");
      found.push_back(value);
      if (end == list.size()) break;
    }
    return found;
  };
  std::vector<std::pair<std::string, ScheduleValue>> options;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\n"), text.size()));
    if (text.empty()) return options;
    const std::string_view item = text.substr(0, text.find_first_of(" \t\n"));
    text.remove_prefix(item.size());
    const size_t equals = item.find('=');
    check(equals != std::string_view::npos, record.name, "options are written option=value, got '", item, "'");
    const std::string_view name = item.substr(0, equals), value = item.substr(equals + 1);
    const auto option = std::ranges::find(record.options, name, &ScheduleOption::name);
    check(option != record.options.end(), record.name, "there is no option '", name, "'");
    if (std::holds_alternative<std::string>(option->fallback)) {
      options.emplace_back(name, std::string(value));
      continue;
    }
    std::vector<double> list = numbers(value, name);
    if (std::holds_alternative<std::vector<double>>(option->fallback)) {
      options.emplace_back(name, std::move(list));
    } else {
      check(list.size() == 1, record.name, name, " wants one number, got ", list.size());
      options.emplace_back(name, list[0]);
    }
  }
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

double RunSchedule::operator()(int64_t step) const {
  check(step >= 0, schedule_.record().name, "steps count from 0, got ", step);
  return step < warmup_ ? lr_ * real(step + 1) / real(warmup_) : schedule_(step - warmup_, lr_);
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
  return json_list(all_records(), [](const ScheduleRecord& r) {
    const std::string options = json_list(r.options, [](const ScheduleOption& o) {
      return cat("{\"name\": ", json_string(o.name), ", \"doc\": ", json_string(o.doc),
                 ", \"default\": ", o.required ? "null" : shown(o.fallback),
                 ", \"required\": ", o.required ? "true" : "false", "}");
    });
    return cat("{\"name\": ", json_string(r.name), ", \"doc\": ", json_string(r.doc),
               ", \"momentum\": ", r.momentum ? "true" : "false", ", \"options\": ", options, "}");
  });
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
