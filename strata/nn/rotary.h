#pragma once
// The cosines and sines of rotary positions, for every kind of scaling (RotarySpec).

#include <memory>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/nn/layer_spec.h"

namespace strata::nn {

/// Cosines and sines of some positions, [positions, dims / 2] each, as rotary() and packed_rotary() take them.
struct Turns {
  Tensor cos, sin;
  bool interleaved = false;  ///< pairs of neighbours
};

/// The tables of one RotarySpec. They are made when first needed and kept; copies share them, and threads may.
///
///     const RotaryTables tables({.dims = 64, .base = 1e6});
///     const Turns turns = tables.rows(0, x.size(1), x.size(1), x);
class RotaryTables {
 public:
  /// Throws ValueError unless spec.dims is even and positive, and the numbers of its scaling are in range.
  explicit RotaryTables(const RotarySpec& spec);
  /// Rows first .. first + count - 1, on the device of `like` and in the dtype of its statistics. `length` is the
  /// length of the longest text that is meant: dynamic and longrope scalings choose their frequencies by it.
  Turns rows(int64_t first, int64_t count, int64_t length, const Tensor& like) const;
  /// The rows of `positions`, i64 of any shape, each below `length`: [positions.numel(), dims / 2].
  Turns at(const Tensor& positions, int64_t length, const Tensor& like) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// The frequencies of a spec for texts of `length` positions, dims / 2 of them: position p turns pair i by p times
/// frequency i.
std::vector<double> rotary_frequencies(const RotarySpec& spec, int64_t length);

}  // namespace strata::nn
