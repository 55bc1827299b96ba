#pragma once
// The hosts of a job, as Open MPI's hostfiles name them.

#include <string>
#include <string_view>
#include <vector>

namespace strata::cli {

/// A host and how many ranks it takes.
struct Host {
  std::string name;
  int slots = 1;
};

/// Lines "HOST [slots=N]"; `#` begins a comment, a host that comes again adds its slots. Throws UsageError naming
/// `file` and the line.
std::vector<Host> parse_hosts(std::string_view text, const std::string& file);
/// The rank of each of so many slots, from the slot that each rank has: "2,0,1" has rank 0 in slot 2, rank 1 in slot 0,
/// rank 2 in slot 1. Empty text: slot by slot. Throws UsageError naming --order for a word that is no number, a slot
/// that is not there or comes again, and fewer or more of them than slots.
std::vector<int> ranks_of_slots(std::string_view order, int slots);
/// Whether `host` is this machine: localhost, a loopback number or what it calls itself.
bool is_here(std::string_view host);
/// What this machine calls itself.
std::string own_name();

}  // namespace strata::cli
