#include "strata/core/rng.h"

namespace strata {

RngKey Generator::next(uint64_t blocks) {
  std::lock_guard lock(mutex_);
  const RngKey key = key_;
  key_.offset += blocks;
  return key;
}

void Generator::set_seed(uint64_t seed) {
  set_state({seed, 0});
}

RngKey Generator::state() const {
  std::lock_guard lock(mutex_);
  return key_;
}

void Generator::set_state(RngKey key) {
  std::lock_guard lock(mutex_);
  key_ = key;
}

Generator& default_generator() {
  static Generator g;
  return g;
}

void manual_seed(uint64_t seed) {
  default_generator().set_seed(seed);
}

}  // namespace strata
