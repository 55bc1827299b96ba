#pragma once
// Learning-rate schedules as functions of a step: docs/design/optimizers.md. Each has a record, from which the command,
// Python's and Node's schedulers take options, checks and numbers; those hold the optimizer and count its steps.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace strata::optim {

/// An option of a schedule: a number, a text (one of the option's choices), or a list of steps.
using ScheduleValue = std::variant<double, std::string, std::vector<double>>;

/// What a training run says of an option that it is not given.
enum class OfRun : uint8_t {
  nothing,    ///< the option's default
  steps,      ///< its steps, without those of a warm-up that stands before the schedule
  warmup,     ///< its steps of warm-up
  decay,      ///< its steps of decay
  min_ratio,  ///< its last rate over its largest
  lr,         ///< its largest rate
  least,      ///< its last rate
};

/// What an option of a schedule may be.
struct ScheduleOption {
  std::string_view name;  ///< PyTorch's: "step_size"
  std::string_view doc;
  ScheduleValue fallback = {};    ///< its default
  bool required = false;          ///< has none
  std::string_view choices = {};  ///< of a text, separated by spaces
  double min = -__builtin_inf();  ///< of a number
  double max = __builtin_inf();
  bool above = false;  ///< min itself is not allowed
  OfRun of_run = OfRun::nothing;
};

/// The options of one schedule, in the order of its record.
using ScheduleValues = std::vector<ScheduleValue>;

/// A schedule: numbers from a step, counted from 0. `base` is the rate that the group had at first.
struct ScheduleRecord {
  std::string_view name;  ///< "StepLR"
  std::string_view doc;
  std::vector<ScheduleOption> options;
  /// The rate of a step.
  double (*value)(const ScheduleValues& o, int64_t step, double base);
  /// The rate of `step`, made of the one before it, `now`, as PyTorch does: several schedules work on one rate then,
  /// and a rate that was set by hand stays one's own. nullptr: that of value().
  double (*next)(const ScheduleValues& o, int64_t step, double now, double base) = nullptr;
  /// The momentum (or beta1) of a step; nullptr where it stays.
  double (*momentum)(const ScheduleValues& o, int64_t step) = nullptr;
  void (*together)(const ScheduleValues& o) = nullptr;  ///< throws for options that do not fit
  bool rises = false;                                   ///< goes up by itself: a run puts no warm-up before it
};

/// Every record, sorted by name.
std::span<const ScheduleRecord> schedule_records();
/// The record of that name. Throws ValueError listing the names.
const ScheduleRecord& schedule_record(std::string_view name);
/// Options written as text, "gamma=0.5 milestones=30,60". Throws ValueError for what is no option, or no number.
std::vector<std::pair<std::string, ScheduleValue>> schedule_options(const ScheduleRecord& record,
                                                                    std::string_view text);
/// The records as JSON, and as the reference page, in Markdown.
std::string schedules_json();
std::string schedules_markdown();

/// A schedule with its options.
///
///     LrSchedule s("StepLR", {{"step_size", 30.0}, {"gamma", 0.1}});
///     optimizer.set_lr(s(epoch, 0.1));
class LrSchedule {
 public:
  /// Options that are not named have their defaults. Throws ValueError for a name or a value that is not allowed.
  LrSchedule(std::string_view name, const std::vector<std::pair<std::string, ScheduleValue>>& options);
  const ScheduleRecord& record() const { return *record_; }
  /// The rate of `step` >= 0 for a group that began with `base`. Throws ValueError for a step past the schedule's end.
  double operator()(int64_t step, double base) const;
  /// The rate of `step` after `now`, the one of the step before.
  double next(int64_t step, double now, double base) const;
  /// The momentum of a step; NaN where the schedule leaves it.
  double momentum(int64_t step) const;

 private:
  const ScheduleRecord* record_;
  ScheduleValues values_;
};

/// A schedule of a whole run: `warmup` steps of linear warm-up (step 0 has lr / warmup, never 0), then the schedule
/// from its step 0.
///
///     RunSchedule s(LrSchedule("StepLR", {{"step_size", 100.0}}), 3e-4, 20);
///     optimizer.set_lr(s(step));
class RunSchedule {
 public:
  RunSchedule(LrSchedule schedule, double lr, int64_t warmup = 0)
      : schedule_(std::move(schedule)), lr_(lr), warmup_(warmup) {}
  /// The learning rate of step `step` >= 0.
  double operator()(int64_t step) const;

 private:
  LrSchedule schedule_;
  double lr_;
  int64_t warmup_;
};

/// Schedules one after the other: the next one starts from its step 0 at each milestone.
double sequential(std::span<const LrSchedule> parts, std::span<const int64_t> milestones, int64_t step, double base);
/// Schedules at the same time: each changes the rate that the one before it makes.
double chained(std::span<const LrSchedule> parts, int64_t step, double base);

/// Lowers a rate where a quantity has not become better for a while: PyTorch's ReduceLROnPlateau.
struct Plateau {
  bool largest = false;  ///< better is larger
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  bool relative = true;  ///< the threshold is a part of the best value, else an amount
  int64_t cooldown = 0;
  double eps = 1e-8;  ///< least change of a rate that is made
  // What it knows.
  double best = __builtin_nan("");  ///< NaN: nothing yet
  int64_t bad = 0;                  ///< steps without a better value
  int64_t cooling = 0;              ///< steps that are not counted yet

  /// Takes the quantity's newest value; whether rates go down now.
  bool step(double value);
  /// A rate lowered, to `least` at most.
  double lowered(double lr, double least) const;
  /// Throws ValueError naming the field that is out of range.
  void validate() const;
};

}  // namespace strata::optim
