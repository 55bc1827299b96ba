#include "strata/core/rng.h"

#include "strata/core/error.h"

namespace strata {
namespace {
thread_local const RngKey* t_base = nullptr;
}

RngBaseScope::RngBaseScope(const RngKey* base) {
  t_base = base;
}
RngBaseScope::~RngBaseScope() {
  t_base = nullptr;
}

RngKey Generator::next(uint64_t blocks) {
  check(t_base == nullptr || this == &default_generator(), "Generator",
        "in a captured CUDA graph random numbers come from default_generator() only");
  std::lock_guard lock(mutex_);
  RngKey key = key_;
  key.base = t_base;
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
  key_ = {key.seed, key.offset};
}

Generator& default_generator() {
  static Generator g;
  return g;
}

void manual_seed(uint64_t seed) {
  default_generator().set_seed(seed);
}

}  // namespace strata
