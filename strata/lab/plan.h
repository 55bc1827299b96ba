#pragma once
// What to time beside another library: every public op at the sizes, dtypes, layouts and options that its record tells.

#include <string>
#include <utility>
#include <vector>

#include "strata/core/op_base.h"
#include "strata/lab/compare.h"
#include "strata/lab/plan_values.h"

namespace strata::lab {

/// How a tensor lies in memory.
enum class Layout : uint8_t { contiguous, transposed, every_second, channels_last };
std::string_view name_of(Layout layout);

/// One set of arguments. Tensors are on the meta device: shapes and dtypes; `contents` has an entry for each of them
/// that is defined.
struct Case {
  std::string size;    ///< "small", "middle", "large", "odd", or "sample" where the sizes cannot change
  std::string varied;  ///< what is not as in the op's first case: "dtype=bf16", "reduction=sum", "sample 3"; or empty
  std::string label;   ///< the sample's
  DType dtype = DType::f32;
  Layout layout = Layout::contiguous;
  bool gradient = false;  ///< worth timing with a backward pass
  std::vector<Value> args;
  std::vector<Contents> contents;
};

/// What is timed of one op.
struct Plan {
  std::vector<Case> cases;
  std::vector<std::pair<std::string, std::string>> not_varied;  ///< option -> why no case changes it
  std::string problem;                                          ///< why there are no cases
};

/// How large, in elements of the largest tensor, and what a call may take.
struct PlanOptions {
  double small = 1 << 10, middle = 1 << 18, large = 1 << 22;
  CallLimit limit{2e10, 2e9, 2.6e8};
  /// For a card.
  static PlanOptions card();
};

Plan plan(const OpBase& op, const PlanOptions& options);
/// Host tensors as a case wants them, row-major whatever its layout: for tests.
std::vector<Value> made(const Case& c);
/// A line for each case, as docs/design/compare.md says.
std::string to_json_lines(const OpBase& op, const Plan& plan);

}  // namespace strata::lab
