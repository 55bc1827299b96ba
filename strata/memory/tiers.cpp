#include "strata/memory/tiers.h"

#include <algorithm>
#include <string>

#include "strata/core/error.h"
#include "strata/memory/homed.h"

namespace strata::memory {
namespace {
HomedMemory& homed(std::string_view what, Device device, Tier tier) {
  auto* m = dynamic_cast<HomedMemory*>(&backend(device, tier));
  check(m != nullptr, what, "tensors of ", device, " in memory '", tier, "' do not move");
  return *m;
}
}  // namespace

Tier parse_tier(std::string_view name) {
  if (name == Tier().name()) return {};
  std::string there(Tier().name());
  std::vector<Tier> named;
  for (const Backend* b : backends()) {
    if (b->tier.name() == name) return b->tier;
    if (std::find(named.begin(), named.end(), b->tier) != named.end()) continue;
    named.push_back(b->tier);
    there += cat(", ", b->tier);
  }
  throw ValueError("tier", cat("there is no memory '", name, "' in this program; there are ", there));
}

NearStats near_stats(Device device, Tier tier) {
  return homed("near_stats", device, tier).near_stats(device);
}
int64_t set_near_limit(int64_t bytes, Device device, Tier tier) {
  return homed("set_near_limit", device, tier).set_near_limit(device, bytes);
}

}  // namespace strata::memory
