// The module that asks hwloc (apps/strata/topology/topology.h).

#include <algorithm>

#include <hwloc.h>

#include "apps/strata/topology/topology.h"

using strata::cli::Processor;

namespace {

void read(hwloc_topology_t machine, const std::vector<int>& allowed, std::vector<Processor>& found) {
  // In hwloc's own order threads of a core, cores of a cache and caches of a node follow each other.
  for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_PU, pu)) != nullptr;) {
    const int number = static_cast<int>(pu->os_index);
    if (std::find(allowed.begin(), allowed.end(), number) == allowed.end()) continue;
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(machine, HWLOC_OBJ_CORE, pu);
    const int node = pu->nodeset != nullptr ? hwloc_bitmap_first(pu->nodeset) : 0;
    found.push_back({number, static_cast<int>((core != nullptr ? core : pu)->logical_index), std::max(node, 0)});
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void strata_topology(const std::vector<int>& allowed,
                                                                       std::vector<Processor>& found,
                                                                       std::string& error) {
  hwloc_topology_t machine = nullptr;
  if (hwloc_topology_init(&machine) != 0) {
    error = "hwloc does not begin";
    return;
  }
  if (hwloc_topology_load(machine) != 0)
    error = "hwloc cannot read this machine";
  else
    read(machine, allowed, found);
  hwloc_topology_destroy(machine);
  if (error.empty() && found.empty()) error = "hwloc knows none of the processors that this process may use";
}
