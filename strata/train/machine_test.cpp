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

}  // namespace
}  // namespace strata
