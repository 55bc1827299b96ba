// The kernel of dense maps (dense_map.cuh) on the processor: each element is computed once, whatever is left over.

#define STRATA_TILE_EMULATION
#include "strata/cuda/dense_map.cuh"

#include <gtest/gtest.h>

#include <vector>

namespace strata::cuda {
namespace {

struct TwiceAndMore {  // a type of this file, so that the kernel is this program's own
  float operator()(float a, float b) const { return 2 * a + b; }
};

template <int V>
void expect_map(int64_t n, unsigned blocks, bool in_place) {
  SCOPED_TRACE(cat(n, " elements by ", V, ", ", blocks, " blocks, in place ", in_place));
  std::vector<float> a(static_cast<size_t>(n)), b(a.size()), own(a.size() + 8, -1);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i), b[i] = static_cast<float>(i % 7);
  const std::vector<float> before = a;
  std::vector<float>& y = in_place ? a : own;
  ASSERT_EQ(tile::emulation::launch(detail::dense_kernel<V, float, TwiceAndMore, float, float>, blocks, detail::kThreads,
                                    0, 1, n, TwiceAndMore(), static_cast<void*>(y.data()),
                                    static_cast<const float*>(a.data()), static_cast<const float*>(b.data())),
            "");
  for (size_t i = 0; i < before.size(); ++i) ASSERT_EQ(y[i], 2 * before[i] + b[i]) << i;
  for (size_t i = before.size(); i < y.size(); ++i) ASSERT_EQ(y[i], -1) << "written behind the end";
}

TEST(DenseMap, EachElementOnce) {
  if (!tile::emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  constexpr int64_t kBlock = detail::kThreads * 4;
  for (const bool in_place : {false, true}) {
    // A piece for each thread; the last one is not whole, or there are none for some.
    for (const int64_t n : {1, 3, 4, 1021, 1024}) expect_map<4>(n, 1, in_place);
    // Two pieces for some threads: none, a part of one, some, all, all but one.
    for (const int64_t n : {2 * kBlock, 2 * kBlock + 1, 3 * kBlock + 5, 4 * kBlock, 4 * kBlock - 3, 4 * kBlock - 4})
      expect_map<4>(n, 2, in_place);
    expect_map<1>(700, 2, in_place);
  }
}

TEST(DenseMap, BlocksReachAllElements) {
  const int64_t piece = detail::kThreads * 4;
  for (const int64_t n : {int64_t{1}, piece, piece + 1, piece * 8191, piece * 8191 + 1, piece * 8192 + 1, piece * 8193}) {
    const int64_t blocks = detail::dense_blocks<4>(n), pieces = (n + piece - 1) / piece;
    EXPECT_GE(blocks * (pieces < detail::kManyBlocks ? 1 : 2), pieces) << n;
    EXPECT_LE(blocks, pieces) << n;
  }
}

}  // namespace
}  // namespace strata::cuda
