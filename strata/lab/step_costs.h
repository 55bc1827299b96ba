#pragma once
// Where the time and the bytes of a recorded step go, beside what the machine can do.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "strata/core/recording.h"
#include "strata/lab/limits.h"

namespace strata::lab {

/// By what the calls of a Recording are put together.
enum class CostBy : uint8_t { op, module, phase };
inline constexpr std::string_view kCostBy[] = {"op", "module", "phase"};

/// The calls of one op, module or phase.
struct CostRow {
  std::string name;
  int64_t calls = 0;
  double flops = 0;
  double bytes = 0;    ///< least that must move
  double seconds = 0;  ///< by the recorder's clock; of a Recording of the meta device what the dry run took
  double limit = 0;    ///< least seconds that the limits allow, call by call; 0 where they are not known
  CostRow& operator+=(const CostRow& other);
};

/// Recordings put together by op, module and phase: as large as the program has such places, however long it runs.
/// Calls that are composed of others count through those, and what an op with a kernel calls inside counts for that op.
///
///     lab::StepCosts costs(lab::measure_limits(Device::cpu()));
///     costs.add(record([&] { train_step(batch); }));
///     std::puts(costs.table(lab::CostBy::module).c_str());
class StepCosts {
 public:
  /// The calls of one op in one module and phase.
  struct Part {
    std::string op, module;  ///< no module where none is known
    Phase phase = Phase::forward;
    CostRow sum;  ///< without a name
  };
  StepCosts() = default;
  explicit StepCosts(const Limits& limits) : limits_(limits) {}
  /// Adds the calls of a recording, `times` times.
  void add(const Recording& recording, int64_t times = 1);
  void add(const Part& part);

  const Limits& limits() const { return limits_; }
  /// In the order in which they were first added.
  const std::vector<Part>& parts() const { return parts_; }
  /// Seconds of no call: the program's own, autograd's, and what composed calls take besides those they are made of.
  double outside = 0;
  /// The sum of the parts, named "all".
  CostRow all() const;
  /// Modules that differ in a number alone become one: blocks.0.norm and blocks.1.norm are blocks.*.norm. A number
  /// stays where no module lies below it, as in a Sequential of layers.
  StepCosts merged() const;
  /// The parts by op, (merged) module or phase. Slowest first where `by_time`; else by `limit` where the limits are
  /// known, and by bytes where they are not.
  std::vector<CostRow> rows(CostBy by, bool by_time = false) const;
  /// rows() as text: a line a row (`most` of them, the rest as one), shares of the whole; the sum last. Times stand in
  /// it only where `timed`.
  std::string table(CostBy by, size_t most = 20, bool timed = false) const;

 private:
  Limits limits_;
  std::vector<Part> parts_;
  std::map<std::tuple<std::string, std::string, Phase>, size_t> places_;
};

/// The least time that the limits allow call `i` of a recording, which is work.
double least_seconds(const Recording& recording, size_t i, const Limits& limits);
/// StepCosts::rows() of one recording.
std::vector<CostRow> step_costs(const Recording& recording, CostBy by, const Limits& limits = {});
/// StepCosts::table() of one recording, with its times unless it is one of the meta device.
std::string step_cost_table(const Recording& recording, CostBy by, const Limits& limits = {}, size_t rows = 20);

}  // namespace strata::lab
