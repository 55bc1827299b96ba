#include <mutex>
#include <utility>

#include "strata/core/position_share_inl.h"

namespace strata::detail {
namespace {

std::mutex& share_mutex() {
  static std::mutex m;
  return m;
}
PositionShare g_share;  // under share_mutex()

PositionShare exchange_share(const PositionShare& share) {
  const std::lock_guard lock(share_mutex());
  return std::exchange(g_share, share);
}

}  // namespace

PositionShareScope::PositionShareScope(const PositionShare& share) : outer_(exchange_share(share)) {}
PositionShareScope::~PositionShareScope() {
  exchange_share(outer_);
}

PositionShare position_share() {
  const std::lock_guard lock(share_mutex());
  return g_share;
}

}  // namespace strata::detail
