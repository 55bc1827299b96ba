// The kernel of dense maps (dense_map.cuh) on the processor: each element is computed once, whatever is left over.

#define STRATA_TILE_EMULATION
#include "strata/cuda/dense_map.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
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
  ASSERT_EQ(tile::emulation::launch(detail::dense_kernel<V, float, TwiceAndMore, float, float>, blocks,
                                    detail::kThreads, 0, 1, n, TwiceAndMore(), static_cast<void*>(y.data()),
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

// Elements come as numbers here, words as they are.
struct BitsOf {
  static constexpr bool kOfBits = true;
  uint32_t operator()(uint32_t a, uint32_t b) const { return a ^ ~b; }
  float operator()(float a, float b) const {
    return static_cast<float>((static_cast<uint32_t>(a) ^ ~static_cast<uint32_t>(b)) & 255);
  }
};
struct Differs {
  bool operator()(float a, float b) const { return a != b; }
};
struct Between {
  float operator()(float a, float b) const { return std::trunc((a + b) / 2); }
};

// f of pairs of bytes, by pieces of 16: as words where f is of bits, else each byte out of its word.
template <class T, class Out, class F>
void expect_bytes(int64_t n) {
  SCOPED_TRACE(cat(n, " bytes"));
  struct alignas(16) Bytes {
    T v[8192 + 64];
  };
  using O = typename detail::Stored<Out, decltype(F()(1.0F, 1.0F))>::type;
  struct alignas(16) Results {
    O v[8192 + 64];
  };
  ASSERT_LE(n, 8192);
  const auto a = std::make_unique<Bytes>(), b = std::make_unique<Bytes>();
  const auto y = std::make_unique<Results>();
  for (int i = 0; i < 8192; ++i) a->v[i] = static_cast<T>(i * 7 + i / 256), b->v[i] = static_cast<T>(i * 3);
  ASSERT_EQ(tile::emulation::launch(detail::dense_kernel<16, Out, F, T, T>, 2, detail::kThreads, 0, 1, n, F(),
                                    static_cast<void*>(y->v), static_cast<const T*>(a->v), static_cast<const T*>(b->v)),
            "");
  for (int64_t i = 0; i < n; ++i)
    ASSERT_EQ(y->v[i], static_cast<O>(F()(static_cast<float>(a->v[i]), static_cast<float>(b->v[i])))) << i;
  for (int64_t i = n; i < n + 32; ++i) ASSERT_EQ(y->v[i], O()) << "written behind the end";
}

TEST(DenseMap, BytesAreTakenOutOfWords) {
  if (!tile::emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  for (const int64_t n : {1, 15, 16, 4096, 4099, 8192}) {
    expect_bytes<uint8_t, uint8_t, BitsOf>(n);
    expect_bytes<int8_t, int8_t, Between>(n);
    expect_bytes<uint8_t, BoolOr<uint8_t>, Differs>(n);
  }
}

TEST(DenseMap, BlocksReachAllElements) {
  const int64_t piece = detail::kThreads * 4;
  for (const int64_t n :
       {int64_t{1}, piece, piece + 1, piece * 8191, piece * 8191 + 1, piece * 8192 + 1, piece * 8193}) {
    const int64_t blocks = detail::dense_blocks<4>(n), pieces = (n + piece - 1) / piece;
    EXPECT_GE(blocks * (pieces < detail::kManyBlocks ? 1 : 2), pieces) << n;
    EXPECT_LE(blocks, pieces) << n;
  }
}

}  // namespace
}  // namespace strata::cuda
