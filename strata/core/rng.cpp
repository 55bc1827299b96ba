#include "strata/core/rng.h"

#include <utility>

#include "strata/core/error.h"
#include "strata/core/row_share.h"

namespace strata {
namespace {
thread_local const RngKey* t_base = nullptr;

std::mutex& share_mutex() {
  static std::mutex m;
  return m;
}
RowShare g_share;  // under share_mutex()

RowShare exchange_share(const RowShare& share) {
  const std::lock_guard lock(share_mutex());
  return std::exchange(g_share, share);
}

// Blocks of `rows` of `own` rows that take `blocks`; up to the next whole one.
uint64_t blocks_of(uint64_t blocks, int64_t rows, int64_t own) {
  const auto n = static_cast<uint64_t>(rows), each = static_cast<uint64_t>(own);
  return blocks / each * n + (blocks % each * n + each - 1) / each;
}
}  // namespace

RowShareScope::RowShareScope(const RowShare& share) {
  check(share.first >= 0 && share.own > 0 && share.all > 0 && share.first <= share.all - share.own, "RowShareScope",
        "rows ", share.first, " and ", share.own, " from there are no part of ", share.all);
  outer_ = exchange_share(share);
}
RowShareScope::~RowShareScope() {
  exchange_share(outer_);
}

RowShare row_share() {
  const std::lock_guard lock(share_mutex());
  return g_share;
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
  const RowShare share = this == &default_generator() ? row_share() : RowShare{};
  std::lock_guard lock(mutex_);
  RngKey key = key_;
  key.base = t_base;
  key_.offset += blocks_of(blocks, share.all, share.own);
  key.offset += blocks_of(blocks, share.first, share.own);
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
