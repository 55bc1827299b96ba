#pragma once
// TimestampRules for the rows of a batch, on their device.

#include <cstdint>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/generate/options.h"

namespace strata::detail {

/// What rows drew, as far as the rules ask, and the rules of each. All of it stays where it is, so that a graph can
/// replay a step.
class TimestampRows {
 public:
  /// On the current device.
  explicit TimestampRows(int64_t rows);
  /// A row begins a text by these rules, or by none.
  void start(int64_t row, const std::optional<TimestampRules>& rules);
  /// `ids` [rows] were drawn by the rows for which `running` [rows] is 1.
  void draw(const Tensor& ids, const Tensor& running);
  /// Scores [rows, vocabulary] in f32 with minus infinity where the rules forbid an id; `drawn` [rows]: tokens so far.
  Tensor restrict(const Tensor& scores, const Tensor& drawn) const;
  /// All that has a row for each text.
  std::vector<Tensor> columns() const;

 private:
  Tensor on_, begin_, end_, most_;  // [rows, 1] i64; on_ is 1 where there are rules
  Tensor last_, before_, newest_;   // [rows, 1] i64: the last two tokens, and the last time (-1: none)
};

}  // namespace strata::detail
