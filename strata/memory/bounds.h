#pragma once
// What bounds the memory that this process can still take: the machine, its control groups, ulimit; on a card what
// others hold of it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/backend.h"
#include "strata/core/device.h"

namespace strata::memory {

/// What the bound of RLIMIT_AS is named.
inline constexpr std::string_view kAddressSpace = "ulimit -v";

/// Every bound on the host's memory that is known here, the machine first: MemTotal and MemAvailable of /proc/meminfo;
/// memory.max, memory.high and memory.current (control groups, version 2) or memory.limit_in_bytes and
/// memory.usage_in_bytes (version 1) of this process's group and of each above it; RLIMIT_AS. Swap does not count:
/// training that swaps stands still. `root` stands before each path that is read, e.g. a container's root seen from
/// outside. What cannot be read bounds nothing.
std::vector<Bound> host_bounds(const std::string& root = {});

/// The bound that leaves the least on this device, set_limit()'s included, what this process's allocator keeps for reuse
/// counted as free. Nothing bounds the meta device. Throws DeviceError where there is no such card.
Bound tightest_bound(Device device);

}  // namespace strata::memory
