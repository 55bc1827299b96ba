#pragma once
// The schedules of a run, typed. What they compute stands in their records (lr_schedule.h).

#include <cstdint>
#include <string_view>

#include "strata/optim/lr_schedule.h"

namespace strata::optim {

/// A learning rate for each step, counted from 0. After a linear warm-up (step 0 has lr / warmup, never 0) the rate
/// follows `kind`; from step `total` on it stays at its last value.
///
///     Schedule s = Schedule::cosine(3e-4, 1000, 100, 0.1);
///     optimizer.set_lr(s(step));
struct Schedule {
  /// The shape of the curve after the warm-up.
  enum class Kind : uint8_t {
    constant,   ///< lr
    linear,     ///< from lr down to lr * min_ratio at `total`, in a straight line
    cosine,     ///< from lr down to lr * min_ratio at `total`, half a cosine (Loshchilov & Hutter, SGDR, 2017)
    wsd,        ///< warmup-stable-decay: lr, then over the last `decay` steps linearly to lr * min_ratio (Hu et al.,
                ///< MiniCPM, 2024)
    one_cycle,  ///< up from lr / div_factor to lr over pct_start of the steps, down to lr / div_factor /
                ///< final_div_factor at the last one, both half cosines (Smith & Topin, 2018); `warmup` is not used
  };
  Kind kind = Kind::constant;
  double lr = 1e-3;        ///< the largest rate
  int64_t warmup = 0;      ///< steps of linear warm-up
  int64_t total = 0;       ///< steps of the run, warm-up included; not used by constant
  int64_t decay = 0;       ///< wsd: steps of the final decay
  double min_ratio = 0;    ///< the last rate over lr
  double pct_start = 0.3;  ///< one_cycle: part of the steps on the way up
  double div_factor = 25;
  double final_div_factor = 1e4;

  /// The learning rate of step `step` >= 0.
  double operator()(int64_t step) const;
  /// Throws ValueError naming the field that is out of range.
  void validate() const;
  /// The record of its kind, and this one's options of it.
  const ScheduleRecord& record() const;
  ScheduleValues values() const;

  /// @name One of each kind, checked by validate()
  static Schedule constant(double lr, int64_t warmup = 0);
  static Schedule linear(double lr, int64_t total, int64_t warmup = 0, double min_ratio = 0);
  static Schedule cosine(double lr, int64_t total, int64_t warmup = 0, double min_ratio = 0);
  static Schedule wsd(double lr, int64_t total, int64_t warmup, int64_t decay, double min_ratio = 0);
  static Schedule one_cycle(double max_lr, int64_t total, double pct_start = 0.3);
  /// The kind of that name, as in the list above. Throws ValueError listing the names.
  static Kind kind_of(std::string_view name);
};

}  // namespace strata::optim
