#include "strata/train/machine.h"

#include <gtest/gtest.h>

#include "strata/core/parallel.h"

namespace strata {
namespace {

TEST(Machine, SaysWhatItRunsOn) {
  const MachineInfo info = machine_info();
  EXPECT_GE(info.cores, 1);
  EXPECT_GE(info.cpus, 1);
  EXPECT_EQ(info.threads, num_threads());
  EXPECT_GT(info.memory_bytes, int64_t{1} << 28);
  EXPECT_FALSE(info.version.empty());
  EXPECT_FALSE(info.kernels.empty());
  EXPECT_FALSE(info.compiler.empty());
  EXPECT_EQ(info.libraries.front().first, "oneDNN");
  EXPECT_GE(machine_rows(info).size(), 8u);
}

// Loose enough for any machine and load; each catches a unit or a loop that went wrong.
TEST(Machine, PeaksArePlausible) {
  const Peaks p = measure_peaks(0.02);
  EXPECT_GT(p.read_gb_s, 0.2);
  EXPECT_LT(p.read_gb_s, 20000);
  EXPECT_GT(p.triad_gb_s, 0.1);
  EXPECT_LT(p.triad_gb_s, 20000);
  EXPECT_GT(p.fma_gflops, 0.5);
  EXPECT_LT(p.fma_gflops, 1e6);
  EXPECT_GT(p.matmul_f32_gflops, 0.1);
  EXPECT_LT(p.matmul_f32_gflops, 1e6);
}

}  // namespace
}  // namespace strata
