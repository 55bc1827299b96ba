#pragma once
// The check of an index, or of another value, on the device. A kernel cannot throw, and stopping it would lose
// everything on the card: it writes the first index that is out of range into page-locked memory and goes on without
// it. The host throws IndexError or ValueError when it next waits for the device or begins an op there.

#include <cstddef>
#include <cstdint>

namespace strata::cuda {

/// What a device has to tell; in the host's memory, one a device.
struct RangeReport {
  int64_t index = 0, size = 0;
  double value = 0;            ///< where there is a rule
  const char* rule = nullptr;  ///< of the host: what the value breaks; nullptr for an index
  const char* op = nullptr;    ///< of the host, with its length
  size_t op_length = 0;
  unsigned round = 0;  ///< reports that the host has taken: a kernel claims the next one
  int told = 0;        ///< set last
};

__device__ __forceinline__ bool is_in_range(int64_t index, int64_t size) {
  return static_cast<uint64_t>(index) < static_cast<uint64_t>(size);
}

/// A kernel's way to its device's report; range_check() and value_check() make it.
struct RangeCheck {
  RangeReport* report;
  unsigned* claimed;  // on the device: rounds that a kernel has claimed
  const char* op;
  size_t op_length;
  const char* rule;

  /// Whether 0 <= index < size; where not, the host will hear of it. Best asked when the kernel's loads are on their
  /// way.
  __device__ __forceinline__ bool operator()(int64_t index, int64_t size) const {
    if (is_in_range(index, size)) return true;
    tell(index, size);
    return false;
  }
  /// A value breaks the rule that value_check() was given.
  __device__ __forceinline__ void refuse(double value) const { tell(0, 0, value); }
  // Inline: around a call that returns, the caller's registers are few.
  __device__ __forceinline__ void tell(int64_t index, int64_t size, double value = 0) const {
    volatile RangeReport* r = report;
    const unsigned round = r->round;
    if (atomicCAS(claimed, round, round + 1) != round) return;
    r->index = index;
    r->size = size;
    r->value = value;
    r->rule = rule;
    r->op = op;
    r->op_length = op_length;
    __threadfence_system();
    r->told = 1;
  }
};

/// For kernels of the op that is being launched, on the current device.
RangeCheck range_check();
/// The same for values: `rule`, a text that lives as long as the program, says what they must be.
RangeCheck value_check(const char* rule);
/// Throws IndexError or ValueError where a kernel of the device told of an index or a value.
void throw_out_of_range(int device);

}  // namespace strata::cuda
