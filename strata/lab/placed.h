#pragma once
// Placement never changes meaning: every op on sharded arguments against the op on whole ones.

#include <string>
#include <vector>

#include "strata/core/op_base.h"

namespace strata::lab {

/// What verify_placed() tries.
struct PlacedOptions {
  int ranks = 4;  ///< threads that are ranks; from 2 on. An even number of 4 or more is also a mesh of two axes
  int most = 24;  ///< placements of the arguments of one sample; where there are more, as many of them by chance
  int max_failures = 5;
};

/// All that was found out about one record.
struct PlacedReport {
  std::string op, family;
  std::string rule;  ///< as the record has it; "function" for one
  int samples = 0;
  int calls = 0;      ///< results compared: samples times placements
  int gradients = 0;  ///< of them with gradients
  double seconds = 0;
  std::vector<std::string> failures;  ///< sample, placements, and what was expected and came
  bool ok() const { return failures.empty(); }
};

/// Calls the op with the arguments of its samples placed in every way (whole, sharded along each dimension, partial
/// sums, plain; along one axis and along two), on ranks that are threads of this process, and compares results,
/// gradients and the in-place form with those of whole arguments: in f64 where the record has it. Never throws for what
/// the op does wrong.
PlacedReport verify_placed(const OpBase& op, const PlacedOptions& options = {});

/// One line per op, failures below it.
std::string table(const std::vector<PlacedReport>& reports);
/// The same as JSON: a list with one object per op.
std::string to_json(const std::vector<PlacedReport>& reports);

}  // namespace strata::lab
