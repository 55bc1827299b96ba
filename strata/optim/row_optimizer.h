#pragma once
// Updates of the rows of a table that lives off the card, where they live: docs/design/tiers.md.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "strata/nn/feature_table.h"
#include "strata/optim/record.h"

namespace strata::optim {

/// Updates the rows of a FeatureTable that have a gradient, with the fused rule of an optimizer: "adamw", "adam",
/// "adagrad", "sgd", "rmsprop" and every other whose state is like the parameter. Each row's state stands beside the
/// rows, on the same tier, in f32 (f64 beside f64). Lazy, as SparseAdam is: rows without a gradient stay as they are,
/// their state and weight decay too, while the count of updates, which is the table's, goes on for all. A first step
/// gives the rows that have a gradient the bits that the dense optimizer gives them.
///
/// Rows in the reach of a card are read, updated and written back by the card; others by the processor on all threads,
/// those of a disk while it reads the next ones.
///
///     table.set_requires_grad(true);
///     optim::RowOptimizer rows(table, "adagrad", {{"lr", 0.01}});
///     loss.backward();
///     rows.step();       // and the gradients are dropped
class RowOptimizer {
 public:
  /// The table must outlive it. Makes the state, a pass over a disk. Throws ValueError for an optimizer that does not
  /// exist or keeps other state, or for options that it does not have or that are for parameters of 16 bits; DTypeError
  /// for a table that is not floating; MemoryError, IoError.
  RowOptimizer(nn::FeatureTable& table, std::string_view name, const OptionValues& options = {});
  ~RowOptimizer();
  RowOptimizer(const RowOptimizer&) = delete;

  /// Updates by the table's gradient() times `grad_scale`, and drops it. Throws IoError: rows that were written before
  /// stay updated.
  void step(double grad_scale = 1);
  void set_lr(double lr);
  double lr() const;
  /// Steps so far.
  int64_t updates() const;

  /// @name What a checkpoint keeps beside the table's rows
  /// @{
  /// "exp_avg", "exp_avg_sq".
  std::vector<std::string> states() const;
  /// Rows [first, first + count) of a state, on the host; and back. Throws ValueError for a state that there is none
  /// of, IndexError, ShapeError, DTypeError.
  Tensor read_state(std::string_view state, int64_t first, int64_t count) const;
  void write_state(std::string_view state, int64_t first, const Tensor& values);
  void set_updates(int64_t updates);
  /// @}

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::optim
