#pragma once
// The machine that a run or a measurement was made on. What it can do at most: lab/peaks.h.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace strata {

/// What `strata info` prints and every report states. A field that cannot be found out is empty or 0.
struct MachineInfo {
  std::string cpu;                    ///< model name
  int cores = 0;                      ///< physical cores
  int cpus = 0;                       ///< hardware threads that this process may use
  int threads = 0;                    ///< threads that Strata uses
  std::vector<std::string> features;  ///< vector and matrix extensions of the processor, e.g. "avx2"
  std::string kernels;                ///< best instruction set that Strata's own kernels run with, e.g. "AVX3"
  int64_t memory_bytes = 0;           ///< installed, or the container's limit where that is less
  std::string os;                     ///< distribution and kernel
  std::string version;                ///< Strata's
  std::string revision;               ///< git commit of the sources at configuration, "+" when modified; may be empty
  std::string compiler;               ///< name and version
  std::string build;                  ///< build type, sanitizers
  std::vector<std::pair<std::string, std::string>> libraries;  ///< name and version in use
  std::string cuda;                                            ///< the cards, or why there is none
};

/// Looks at this machine, build and process.
MachineInfo machine_info();

/// The machine as (label, text) rows, for a table.
std::vector<std::pair<std::string, std::string>> machine_rows(const MachineInfo& info);

}  // namespace strata
