// The gradient of filters of channels-last convolutions on the processor (strata/cuda/tile/emulation.cuh): the kernel's
// own source, its blocks alone and in clusters, against sums in double precision.

#define STRATA_TILE_EMULATION
#include "strata/ops/conv/conv_boxes_filter_kernel.cuh"

#include <gtest/gtest.h>

#include "strata/ops/conv/conv_boxes_test_util.h"

namespace strata::conv_cuda {
namespace {

namespace emulation = cuda::tile::emulation;

template <int Tall>
std::string run_filter(const FilterBoxes& g, const FilterPlan& p, uint64_t seed) {
  const auto blocks = static_cast<unsigned>(g.work.rows * g.work.tiles * g.work.shares);
  const auto bytes = static_cast<size_t>(p.bytes);
  constexpr unsigned kThreads = 128 * (Tall + 1);
  if (p.shared == Shared::nothing)
    return emulation::launch(filter_boxes_kernel<Own, Tall, Shared::nothing>, blocks, kThreads, bytes, seed, g);
  if constexpr (Tall == 1) return "a cluster of low blocks";
  if (p.shared == Shared::x)
    return emulation::launch_clusters(filter_boxes_kernel<Own, Tall, Shared::x>, 2, blocks, kThreads, bytes, seed, g);
  return emulation::launch_clusters(filter_boxes_kernel<Own, Tall, Shared::y>, 2, blocks, kThreads, bytes, seed, g);
}

// What blocks shared.
Shared check(const ConvSizes& sizes, int clusters, uint64_t seed) {
  const ConvSizes s = with_result(sizes);
  SCOPED_TRACE(
      cat(s.n, " images ", s.ih, " x ", s.iw, ", ", s.ic, " to ", s.oc, ", clusters ", clusters, ", seed ", seed));
  ConvChoice choice;
  choice.clusters = clusters;
  const FilterPlan p = plan_filter(s, false, 5, choice);
  EXPECT_GT(p.tall, 0);
  const int64_t taps = s.kh * s.kw;
  const Numbers x = numbers(s.n * s.ih * s.iw * s.ic, 1), y = numbers(s.n * s.oh * s.ow * s.oc, 2);
  std::vector<float> sums(static_cast<size_t>(p.work.shares * p.results), NAN);
  FilterBoxes g{};
  g.work = p.work, g.sums = sums.data();
  g.x = box_map(x.data(), p.x), g.y = box_map(y.data(), p.y);
  EXPECT_EQ(p.tall == 1   ? run_filter<1>(g, p, seed)
            : p.tall == 2 ? run_filter<2>(g, p, seed)
                          : run_filter<3>(g, p, seed),
            "");
  std::vector<double> expected(static_cast<size_t>(p.results)), total(expected.size());
  each_pair(s, [&](int64_t of_x, int64_t of_y, int64_t tap) {
    for (int64_t o = 0; o < s.oc; ++o)
      for (int64_t c = 0; c < s.ic; ++c)
        expected[static_cast<size_t>((o * taps + tap) * s.ic + c)] +=
            static_cast<float>(x[static_cast<size_t>(of_x * s.ic + c)]) *
            static_cast<float>(y[static_cast<size_t>(of_y * s.oc + o)]);
  });
  for (size_t i = 0; i < sums.size(); ++i) total[i % total.size()] += sums[i];
  EXPECT_EQ(total, expected);
  return p.shared;
}

TEST(ConvFilterBoxes, AreTheSumsOfAllPixels) {
  if (!emulation::kRuns) GTEST_SKIP() << "fibers do not run under the thread sanitizer";
  // n, ic, oc, groups, ih, iw, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw
  const ConvSizes low{3, 72, 64, 1, 9, 13, 0, 0, 3, 3, 1, 1, 1, 1, 1, 1},
      middle{4, 72, 256, 1, 9, 7, 0, 0, 3, 3, 1, 1, 1, 1, 1, 1}, odd{5, 8, 72, 1, 10, 17, 0, 0, 5, 3, 1, 1, 2, 0, 1, 2},
      high{5, 128, 192, 1, 7, 7, 0, 0, 3, 2, 1, 1, 1, 1, 1, 1},
      dilated{2, 16, 136, 1, 12, 9, 0, 0, 3, 3, 1, 1, 2, 1, 2, 1};
  EXPECT_EQ(check(low, -1, 0), Shared::nothing);
  EXPECT_EQ(check(middle, 1, 0), Shared::x);
  EXPECT_EQ(check(middle, 1, 3), Shared::x);
  EXPECT_EQ(check(middle, 0, 1), Shared::nothing);
  EXPECT_EQ(check(odd, 1, 2), Shared::y);
  EXPECT_EQ(check(high, 1, 0), Shared::y);
  EXPECT_EQ(check(high, 1, 4), Shared::y);
  EXPECT_EQ(check(dilated, 1, 5), Shared::nothing);
}

// A layer of ResNet-50 on 132 multiprocessors fits a card, with and without clusters.
TEST(ConvFilterBoxes, FitACard) {
  const ConvSizes s{64, 256, 256, 1, 14, 14, 14, 14, 3, 3, 1, 1, 1, 1, 1, 1};
  for (const int clusters : {0, 1}) {
    ConvChoice choice;
    choice.clusters = clusters;
    const FilterPlan p = plan_filter(s, true, 132, choice);
    EXPECT_EQ(p.shared, clusters == 1 ? Shared::x : Shared::nothing);
    EXPECT_GE(p.work.stages, 3);
    EXPECT_LE(p.bytes, kMostShared);
    EXPECT_LE(p.work.rows * p.work.tiles * p.work.shares, 132);
  }
}

}  // namespace
}  // namespace strata::conv_cuda
