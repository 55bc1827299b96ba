#pragma once
// What the host's processors are: what the module strata_hwloc.so (hwloc.cpp) tells. The launcher runs without it.

#include <string>
#include <vector>

namespace strata::cli {

/// A processor as the system counts them: a hardware thread.
struct Processor {
  int number;  ///< the system's
  int core;    ///< hardware threads of one core have the same number
  int node;    ///< of memory (NUMA)
};

/// The name of the module's function.
constexpr const char* kTopologySymbol = "strata_topology";
/// Those of `allowed` that the machine has, neighbours in it beside each other; `error` says why there are none.
using ReadTopology = void (*)(const std::vector<int>& allowed, std::vector<Processor>& found, std::string& error);

}  // namespace strata::cli
