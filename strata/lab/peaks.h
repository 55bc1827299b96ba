#pragma once
// What this machine, its cards and its disks were measured to do at most.

#include <cstdint>
#include <string>

#include "strata/core/device.h"
#include "strata/lab/limits.h"

namespace strata::lab {

/// The most that this machine was seen to do, over all threads: the limits that speed-of-light figures divide by.
struct Peaks {
  double read_gb_s = 0;           ///< reading memory, GB/s (1e9 bytes)
  double triad_gb_s = 0;          ///< a = b + s c over arrays far larger than the caches, counting the three arrays
  double fma_gflops = 0;          ///< f32 multiply-adds in registers, two operations each
  double matmul_f32_gflops = 0;   ///< products of [512, 512] matrices, one on each thread
  double matmul_bf16_gflops = 0;  ///< the same from bf16
};

/// Measures the peaks, best of several repetitions, each quantity for about `seconds`. Takes about 0.8 GB of memory
/// (less where less is free), but for arrays no more than `room` bytes unless that is 0 (12 MiB at least). Computing is
/// measured by the threads' own time, which other programs do not lengthen; what they move lowers bytes a second.
Peaks measure_peaks(double seconds = 0.4, int64_t room = 0);

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

/// What bounds ops on `device`, from the same measurements, each for about `seconds`: of the host the better of reading
/// and triad, multiply-adds and products; of a card copies and products, in f32 as cuda::allow_tf32() has it. What was
/// taken for it is given back. `room` is measure_peaks()'s, of the host. Throws DeviceError for a card that is not
/// there, MemoryError where too little is free.
Limits measure_limits(Device device, double seconds = 0.3, int64_t room = 0);

/// How fast a folder's disk takes and gives a new file, past the system's cache where the disk allows that.
struct DiskRates {
  double write_gb_s = 0, read_gb_s = 0;
};
/// Writes and reads `bytes` (rounded up to MiB) in a file without a name in `folder`; of a disk with little room a
/// quarter of what is free. Throws IoError, also where that is less than 1 MiB.
DiskRates measure_disk(const std::string& folder, int64_t bytes = int64_t{1} << 28);

}  // namespace strata::lab
