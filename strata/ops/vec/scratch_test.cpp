// Threads' working memory: kept between calls, given back where memory is short.

#include "strata/ops/vec/scratch.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/loop_width_inl.h"
#include "strata/core/parallel.h"
#include "strata/memory/allocator.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/vec/scratch_kept.h"

namespace strata {
namespace {

constexpr int64_t kEach = int64_t{2} << 20;

// Each of four threads has taken so much, and keeps it.
void fill_stacks() {
  std::atomic<int> here{0};
  parallel_for(0, 4, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      ScratchFrame frame;
      frame.take<std::byte>(kEach)[0] = std::byte{1};
      // Four threads, and not one four times.
      ++here;
      for (int turn = 0; here < 4 && turn < 2000; ++turn) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
}

class Scratch : public ::testing::Test {
 protected:
  Scratch() { set_num_threads(4); }
  ~Scratch() override {
    memory::set_limit(0);
    set_num_threads(threads_);
  }
  static int64_t live() { return memory::stats(Device::cpu()).live_total; }

 private:
  int threads_ = num_threads();
};

TEST_F(Scratch, IsGivenBackWhereMemoryIsShort) {
  fill_stacks();
  const int64_t kept = live();
  ASSERT_GE(memory::stats(Device::cpu()).live[static_cast<size_t>(memory::Tag::workspace)], 4 * kEach);
  memory::set_limit(kept + (1 << 20));
  {
    const Tensor large = zeros({3 * kEach}, DType::u8);
    EXPECT_EQ(large.numel(), 3 * kEach);
    EXPECT_LE(live(), kept + (1 << 20));
  }
  fill_stacks();
  EXPECT_LE(live(), kept + (1 << 20));
}

// Whoever did the work: a loop of three chunks has three threads at most, of which one may have done it all.
TEST_F(Scratch, SaysHowManyThreadsMayTakeAsMuch) {
  release_scratch();
  const auto take = [](int64_t, int64_t) { ScratchFrame().take<std::byte>(100)[0] = std::byte{1}; };
  for (const auto& [chunks, width] : {std::pair(3, 3), std::pair(9, 4), std::pair(1, 1)}) {
    parallel_for(0, chunks, 1, take);
    const KeptScratch kept = release_scratch();
    EXPECT_EQ(kept.width, width);
    EXPECT_GE(kept.threads, 1);
    EXPECT_LE(kept.threads, width);
    EXPECT_EQ(kept.bytes, kept.threads * kept.least);
  }
  take(0, 1);
  EXPECT_EQ(release_scratch().width, 1);
  EXPECT_EQ(loop_width(), 1);
}

TEST_F(Scratch, AnOpenFrameKeepsWhatItTook) {
  fill_stacks();
  ScratchFrame frame;
  auto* const mine = frame.take<uint8_t>(kEach);
  for (int64_t i = 0; i < kEach; i += 4096) mine[i] = static_cast<uint8_t>(i >> 12);
  memory::set_limit(live() + (1 << 20));
  EXPECT_THROW(zeros({16 * kEach}, DType::u8), MemoryError);  // more than all stacks keep
  for (int64_t i = 0; i < kEach; i += 4096) ASSERT_EQ(mine[i], static_cast<uint8_t>(i >> 12));
}

}  // namespace
}  // namespace strata
