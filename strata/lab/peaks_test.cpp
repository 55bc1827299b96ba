#include "strata/lab/peaks.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "strata/core/error.h"
#include "strata/cuda/runtime.h"
#include "strata/io/temp_dir.h"

namespace strata::lab {
namespace {

// Of the bounds; a sanitizer's checks stand in each loop.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kLeast = 0.1;
#else
constexpr double kLeast = 1;
#endif

// Loose enough for any machine and load; each catches a unit or a loop that went wrong.
TEST(Peaks, ArePlausible) {
  const Peaks p = measure_peaks(0.02);
  EXPECT_GT(p.read_gb_s, 0.2 * kLeast);
  EXPECT_LT(p.read_gb_s, 20000);
  EXPECT_GT(p.triad_gb_s, 0.1 * kLeast);
  EXPECT_LT(p.triad_gb_s, 20000);
  EXPECT_GT(p.fma_gflops, 0.5 * kLeast);
  EXPECT_LT(p.fma_gflops, 1e6);
  EXPECT_GT(p.matmul_f32_gflops, 0.1 * kLeast);
  EXPECT_LT(p.matmul_f32_gflops, 1e6);
}

TEST(Peaks, OfADiskArePlausible) {
  const io::TempDir dir;
  const DiskRates r = measure_disk(dir.path(), 5 << 20);
  EXPECT_GT(r.write_gb_s, 1e-4);
  EXPECT_LT(r.write_gb_s, 1000);
  EXPECT_GT(r.read_gb_s, 1e-4);
  EXPECT_LT(r.read_gb_s, 1000);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_THROW(measure_disk(dir / "nowhere"), IoError);
  EXPECT_THROW(measure_disk(dir.path(), 0), ValueError);
}

// Under a limit of file sizes, as on a small disk: with what fits.
TEST(Peaks, OfASmallDiskAreMeasuredWithWhatFits) {
  const io::TempDir dir;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto limited = [&](rlim_t bytes, auto&& f) {
    const rlimit now{bytes, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
    f();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  };
  limited(10 << 20, [&] { EXPECT_GT(measure_disk(dir.path()).write_gb_s, 1e-4); });
  limited(3 << 20, [&] { EXPECT_THROW(measure_disk(dir.path()), IoError); });
}

TEST(Peaks, BoundOps) {
  const Limits l = measure_limits(Device::cpu(), 0.005);
  EXPECT_GT(l.gb_s, 0.1 * kLeast);
  EXPECT_GT(l.gflops, 0.5 * kLeast);
  EXPECT_GT(l.matmul_f32, 0.1 * kLeast);
  EXPECT_GT(l.matmul_bf16, 0.1 * kLeast);
  EXPECT_THROW(measure_limits(Device::cuda(cuda::device_count())), DeviceError);
  EXPECT_THROW(measure_limits(Device::meta()), DeviceError);
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  const Limits card = measure_limits(Device::cuda(), 0.005);
  EXPECT_GT(card.gb_s, 10);
  EXPECT_GT(card.matmul_bf16, card.matmul_f32);
  EXPECT_GE(card.matmul_f32, card.gflops);
}

TEST(Peaks, OfACardArePlausible) {
  EXPECT_THROW(measure_card(Device::cpu()), DeviceError);
  EXPECT_THROW(measure_card(Device::cuda(cuda::device_count())), DeviceError);
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  const CardPeaks p = measure_card(Device::cuda(), 0.02);
  for (const double gb_s : {p.copy_gb_s, p.to_card_gb_s, p.from_card_gb_s}) {
    EXPECT_GT(gb_s, 0.5);
    EXPECT_LT(gb_s, 1e5);
  }
  EXPECT_GT(p.copy_gb_s, p.to_card_gb_s);
  EXPECT_GT(p.matmul_f32_gflops, 100);
  EXPECT_GT(p.matmul_tf32_gflops, 0.8 * p.matmul_f32_gflops);
  EXPECT_GT(p.matmul_bf16_gflops, p.matmul_f32_gflops);
  EXPECT_LT(p.matmul_bf16_gflops, 1e8);
}

}  // namespace
}  // namespace strata::lab
