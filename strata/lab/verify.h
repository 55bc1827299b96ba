#pragma once
// Verification of op records: every record's samples, through every claim that the record makes.

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/op.h"

namespace strata::lab {

/// What is checked, in the order of the table's columns.
enum class Check : uint8_t {
  samples,   ///< the record has samples, and they can be made for its dtypes
  forward,   ///< results agree with the reference; no argument is written to
  memory,    ///< every element is written and nothing beyond: the same results in memory with other contents
  strided,   ///< arguments in other layouts give the same results
  empty,     ///< arguments with a size of 0 give a result as inferred, or an error
  meta,      ///< the dry run gives the shapes and dtypes of the real one
  boxed,     ///< as many results as the schema says; defaults and type checks of the boxed path
  view,      ///< a view op's result shares its first argument's storage
  inplace,   ///< the in-place form gives the plain one's result and gradient, and counts a write
  gradient,  ///< central differences in f64; the same with only one input wanting a gradient; each floating dtype
  second,    ///< central differences of the gradient
  device,    ///< where the tensors are decides: the same bits, gradients too, whatever device new tensors are made on
  threads,   ///< the same bits on one thread and on three; on a card, each time
  invalid,   ///< refused samples raise their error; absurd arguments and other dtypes raise some error
};
inline constexpr int kNumChecks = 14;
/// "forward".
std::string_view name_of(Check c);

/// A sample that did not pass.
struct Failure {
  Check check;
  DType dtype;
  std::string sample;   ///< label and arguments
  std::string message;  ///< what was expected and what came
};

/// All that was found out about one record.
struct OpReport {
  std::string op, family;
  std::string reference;  ///< what the forward results were compared with: "record", "composed", or "none", which is a
                          ///< failure
  std::array<int, kNumChecks> passed{}, failed{};
  int samples = 0;   ///< summed over the dtypes
  double worst = 0;  ///< largest forward error in units of its bound
  double seconds = 0;
  std::vector<Failure> failures;
  bool ok() const { return failures.empty(); }
};

/// What verify() tries.
struct VerifyOptions {
  DTypeSet dtypes = static_cast<DTypeSet>(~0u);  ///< only these of the record's dtypes
  int max_failures = 20;                         ///< details kept for one op
  /// Where the op is called. On another device than the CPU: forward, memory, strided, empty, in place, gradients and
  /// repetition, against the same references, which are computed on the CPU.
  Device device = Device::cpu();
};

/// Runs every check on one record. Never throws for what the op does wrong.
OpReport verify(const OpBase& op, const VerifyOptions& options = {});

/// The reports as a text table with one line per op, failures below it.
std::string table(const std::vector<OpReport>& reports);
/// The same as JSON: a list with one object per op.
std::string to_json(const std::vector<OpReport>& reports);
/// What to_json() wrote. ValueError for any other text.
std::vector<OpReport> reports_from_json(const std::string& text);

}  // namespace strata::lab
