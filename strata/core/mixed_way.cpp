#include "strata/core/mixed_way.h"

#include <utility>

namespace strata::detail {
namespace {
constinit const MixedWay* g_ways = nullptr;  // static objects made before main()

const MixedWay* way_of(const OpBase& op) {
  const MixedWay* w = g_ways;
  while (w != nullptr && &w->op != &op) w = w->next;
  return w;
}
}  // namespace

MixedWay::MixedWay(const OpBase& op, Go go, GoInplace go_inplace)
    : op(op), go(go), go_inplace(go_inplace), next(std::exchange(g_ways, this)) {}

bool go_mixed(const OpBase& op, ArgsAt at, const Results& into) {
  const MixedWay* const w = way_of(op);
  return w != nullptr && w->go(at, into);
}

bool go_mixed_inplace(const OpBase& op, Tensor& self, ArgsAt at) {
  const MixedWay* const w = way_of(op);
  return w != nullptr && w->go_inplace(self, at);
}

}  // namespace strata::detail
