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
/// Whether `host` is this machine: localhost, a loopback number or what it calls itself.
bool is_here(std::string_view host);
/// What this machine calls itself.
std::string own_name();

}  // namespace strata::cli
