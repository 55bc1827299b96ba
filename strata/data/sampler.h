#pragma once
// The order in which samples are drawn, resumable to the exact sample.

#include <cstdint>
#include <string>
#include <string_view>

#include "strata/data/permutation.h"

namespace strata::data {

/// One sample to be drawn: which, and in which pass over the data.
struct Sample {
  int64_t index = 0;
  int64_t epoch = 0;
  friend bool operator==(const Sample&, const Sample&) = default;
};

/// Where a sampler stands: all that a checkpoint has to keep.
struct SamplerState {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t position = 0;  ///< samples drawn in this epoch, 0 to size - 1
  int64_t size = 0;      ///< samples in the data set, to refuse another one
  friend bool operator==(const SamplerState&, const SamplerState&) = default;
};

/// "seed=1 epoch=0 position=32 size=1000".
std::string to_string(const SamplerState& state);
/// Inverse of to_string. Throws ValueError.
SamplerState parse_sampler_state(std::string_view text);

/// Every index of [0, size) once an epoch, in an order that (seed, epoch) decides, or in rising order.
class Sampler {
 public:
  /// Throws ValueError for size < 1.
  Sampler(int64_t size, uint64_t seed, bool shuffle);
  /// The next sample; after the last of an epoch, the first of the next one.
  Sample next();
  /// Samples left in this epoch; size() at the start of one, never 0.
  int64_t left() const { return state_.size - state_.position; }
  int64_t size() const { return state_.size; }
  const SamplerState& state() const { return state_; }
  /// Goes to a saved place; the order comes from the saved seed. Throws ValueError for another size, or a bad position.
  void set_state(const SamplerState& state);
  /// Drops what is left of this epoch.
  void start_next_epoch();

 private:
  SamplerState state_;
  bool shuffle_;
  KeyedPermutation order_;
};

}  // namespace strata::data
