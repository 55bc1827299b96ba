#pragma once
// The machine that a run or a measurement was made on: what it is, and what it can do at most.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/device.h"

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

/// The most that this machine was seen to do, over all threads: the limits that speed-of-light figures divide by.
struct Peaks {
  double read_gb_s = 0;           ///< reading memory, GB/s (1e9 bytes)
  double triad_gb_s = 0;          ///< a = b + s c over arrays far larger than the caches, counting the three arrays
  double fma_gflops = 0;          ///< f32 multiply-adds in registers, two operations each
  double matmul_f32_gflops = 0;   ///< products of [512, 512] matrices, one on each thread
  double matmul_bf16_gflops = 0;  ///< the same from bf16
};

/// Measures the peaks, best of several repetitions, each quantity for about `seconds`. Takes about 0.8 GB of memory
/// (less where less is free). Other load on the machine lowers the result.
Peaks measure_peaks(double seconds = 0.4);

/// The most that a CUDA card was seen to do.
struct CardPeaks {
  double copy_gb_s = 0;  ///< copying within its memory, GB/s read plus GB/s written
  /// Products of [8192, 8192] matrices of normal random numbers (f32: [4096, 4096]).
  double matmul_bf16_gflops = 0;
  double matmul_tf32_gflops = 0;  ///< f32 operands rounded to TF32
  double matmul_f32_gflops = 0;
  double to_card_gb_s = 0;  ///< from pinned host memory
  double from_card_gb_s = 0;
};

/// Measures them, best of several repetitions, each quantity for about `seconds`. Takes about 1.2 GB of the card's
/// memory and 0.26 GB of the host's. Throws DeviceError where `card` is no CUDA device that is there.
CardPeaks measure_card(Device card, double seconds = 0.3);

/// How fast a folder's disk takes and gives a new file, past the system's cache where the disk allows that.
struct DiskRates {
  double write_gb_s = 0, read_gb_s = 0;
};
/// Writes and reads `bytes` (rounded up to MiB) in a file without a name in `folder`. Throws IoError.
DiskRates measure_disk(const std::string& folder, int64_t bytes = int64_t{1} << 28);

}  // namespace strata
