#pragma once
// Benchmarks of op records: time, achieved arithmetic and bandwidth, and their fraction of the machine's limit.

#include <string>
#include <vector>

#include "strata/core/op.h"
#include "strata/lab/limits.h"

namespace strata::lab {

/// One op on one set of arguments.
struct BenchResult {
  std::string op, family;
  std::string arguments;
  DType dtype = DType::f32;
  bool backward = false;
  double seconds = 0;  ///< median of the repetitions
  int repetitions = 0;
  double gflops = 0;  ///< from the record's cost; 0 where it has none
  double gb_s = 0;
  /// The least time that the limits allow, divided by the time taken. Above 1 where the data stay in a cache.
  double fraction = 0;
  bool memory_bound = false;  ///< which of the two limits is the nearer
  /// On a card: the host took as long to queue the call as the card to run it, so the time says nothing of the kernel.
  bool host_bound = false;
  std::string problem;  ///< why it could not be timed; empty where it was
};

/// What is timed, for how long, and beside which limits.
struct BenchOptions {
  DTypeSet dtypes = dtype_bit(DType::f32);
  double seconds = 0.2;  ///< for each op, direction and set of arguments
  bool backward = true;
  Device device = Device::cpu();
  Limits limits;
};

/// Times the record's benchmark samples, or the first sample enlarged where it has none. An op whose samples cannot be
/// enlarged is timed as they are. Backward: the gradient rule alone, with respect to every floating argument; its cost
/// is a guess: writing what it returns, reading the results' gradients and the arguments (without the latter, or
/// either, where the time taken allows no more), and twice the operations. On a card: samples grow by powers of two to
/// about 2^24 elements; several copies of them take turns, so that no call finds its arguments in the L2 cache; groups
/// of calls are timed between two events.
std::vector<BenchResult> bench(const OpBase& op, const BenchOptions& options);

/// One line per result.
std::string table(const std::vector<BenchResult>& results);
std::string to_json(const std::vector<BenchResult>& results, const Limits& limits);

}  // namespace strata::lab
