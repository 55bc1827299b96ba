// The kernel of forward and transposed convolutions of channels-last images on the processor
// (strata/cuda/tile/emulation.cuh): its own source, every shape and way that pixels come but runs, against sums in
// double precision.

#pragma GCC diagnostic ignored "-Warray-bounds"  // GCC takes the two sums of a kernel, which one lambda stores, for one
#define STRATA_TILE_EMULATION
#include "strata/ops/conv/conv_boxes_plan.cuh"

#include <gtest/gtest.h>

#include "strata/ops/conv/conv_boxes_test_util.h"

namespace strata::conv_cuda {
namespace {

namespace emulation = cuda::tile::emulation;

struct Case {
  const char* name;
  ConvSizes s;  // oh and ow are counted
  bool transposed;
};
// n, ic, oc, groups, ih, iw, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw
const Case kCases[] = {
    {"small images", {5, 72, 136, 1, 7, 7, 0, 0, 3, 3, 1, 1, 1, 1, 1, 1}, false},
    {"small images", {5, 72, 136, 1, 7, 7, 0, 0, 3, 3, 1, 1, 1, 1, 1, 1}, true},
    {"no zeros around", {4, 64, 8, 1, 7, 9, 0, 0, 3, 3, 1, 1, 0, 0, 1, 1}, false},
    {"no zeros around", {4, 64, 8, 1, 7, 9, 0, 0, 3, 3, 1, 1, 0, 0, 1, 1}, true},
    {"dilated, high", {3, 8, 16, 1, 11, 6, 0, 0, 3, 2, 1, 1, 3, 1, 2, 3}, false},
    {"dilated, high", {3, 8, 16, 1, 11, 6, 0, 0, 3, 2, 1, 1, 3, 1, 2, 3}, true},
    {"large image", {1, 8, 72, 1, 37, 13, 0, 0, 3, 3, 1, 1, 1, 1, 1, 1}, false},
    {"strides", {3, 72, 64, 1, 14, 13, 0, 0, 3, 3, 2, 2, 1, 1, 1, 1}, false},
    {"strides", {3, 72, 64, 1, 14, 13, 0, 0, 3, 3, 2, 2, 1, 1, 1, 1}, true},
    {"even filter, strides", {2, 16, 8, 1, 9, 10, 0, 0, 4, 4, 2, 2, 1, 1, 1, 1}, false},
    {"even filter, strides", {2, 16, 8, 1, 9, 10, 0, 0, 4, 4, 2, 2, 1, 1, 1, 1}, true},
    {"strides of rows", {4, 8, 8, 1, 9, 7, 0, 0, 5, 3, 2, 1, 2, 2, 1, 2}, false},
    {"strides of rows", {4, 8, 8, 1, 9, 7, 0, 0, 5, 3, 2, 1, 2, 2, 1, 2}, true},
    {"strides of columns", {2, 8, 8, 1, 6, 11, 0, 0, 3, 3, 1, 2, 0, 1, 2, 1}, false},
    {"strides of columns", {2, 8, 8, 1, 6, 11, 0, 0, 3, 3, 1, 2, 0, 1, 2, 1}, true},
    {"one tap, strides", {3, 64, 64, 1, 8, 8, 0, 0, 1, 1, 2, 2, 0, 0, 1, 1}, false},
    {"patches", {2, 8, 24, 1, 8, 12, 0, 0, 2, 2, 2, 2, 0, 0, 1, 1}, false},
    {"patches", {2, 8, 24, 1, 8, 12, 0, 0, 2, 2, 2, 2, 0, 0, 1, 1}, true},
    {"strides, all zeros on one side", {3, 8, 8, 1, 5, 6, 0, 0, 3, 3, 2, 2, 2, 2, 1, 1}, false},
    {"strides, all zeros on one side", {3, 8, 8, 1, 5, 6, 0, 0, 3, 3, 2, 2, 2, 2, 1, 1}, true},
};

// Runs shape `I` if it is the plan's.
template <bool Across, size_t... I>
std::string run_shape(const Boxes& g, const BoxPlan& p, unsigned blocks, uint64_t seed, std::index_sequence<I...>) {
  std::string failure = "no such shape";
  ((p.shape == static_cast<int>(I)
        ? void(failure = emulation::launch(
                   boxes_kernel<Own, kBoxShapes[I].tall, kBoxShapes[I].wide, kBoxShapes[I].columns, Across>, blocks,
                   static_cast<unsigned>(128 * (kBoxShapes[I].tall * kBoxShapes[I].wide + 1)),
                   static_cast<size_t>(p.bytes), seed, g))
        : void()),
   ...);
  return failure;
}

// Whether the plan exists; checks what comes of it.
bool check_plan(const Case& c, int shape, BoxWay way, uint64_t seed) {
  const ConvSizes s = with_result(c.s);
  const Windows w = c.transposed ? transposed_windows(s) : forward_windows(s);
  const BoxPlan p = plan_boxes(w, shape, way, false, 3);
  if (p.shape < 0) return false;
  SCOPED_TRACE(cat(c.name, c.transposed ? ", transposed" : "", ", shape ", shape, ", way ", static_cast<int>(way),
                   ", seed ", seed));
  const int64_t taps = s.kh * s.kw;
  const Numbers x = numbers(s.n * s.ih * s.iw * s.ic, 1), y = numbers(s.n * s.oh * s.ow * s.oc, 2),
                filters = numbers(s.oc * taps * s.ic, 3), bias = numbers(w.results, 4);
  const Numbers& source = c.transposed ? y : x;
  Numbers result((c.transposed ? x : y).size(), BFloat16(NAN));
  Boxes g{};
  g.work = work_of(w, p);
  const std::vector<BoxMap> sources = source_maps(w, p), results = result_maps(w, p);
  for (size_t i = 0; i < sources.size(); ++i) g.sources[i] = box_map(source.data(), sources[i]);
  for (size_t i = 0; i < results.size(); ++i) g.results[i] = box_map(result.data(), results[i]);
  // Filters [oc, taps, ic]: the result's channels are innermost where it is transposed.
  g.filters = c.transposed ? box_map(filters.data(), {w.results, taps, w.channels, 1, s.ic, taps * s.ic, 1, 1, 64})
                           : box_map(filters.data(), {w.channels, taps, w.results, 1, s.ic, taps * s.ic, 1, 1,
                                                      64 * kBoxShapes[shape].tall});
  g.bias = bias.data();
  const unsigned blocks = static_cast<unsigned>(std::min(g.work.tiles, 3));
  constexpr auto kAll = std::make_index_sequence<std::size(kBoxShapes)>();
  EXPECT_EQ(c.transposed ? run_shape<true>(g, p, blocks, seed, kAll) : run_shape<false>(g, p, blocks, seed, kAll), "");

  std::vector<double> expected(result.size());
  for (size_t i = 0; i < expected.size(); ++i)
    expected[i] = static_cast<float>(bias[i % static_cast<size_t>(w.results)]);
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  each_pair(s, [&](int64_t of_x, int64_t of_y, int64_t tap) {
    for (int64_t o = 0; o < s.oc; ++o) {
      const BFloat16* const f = filters.data() + (o * taps + tap) * s.ic;
      for (int64_t k = 0; k < s.ic; ++k) {
        if (c.transposed) {
          expected[at(of_x * s.ic + k)] += static_cast<float>(f[k]) * static_cast<float>(y[at(of_y * s.oc + o)]);
        } else {
          expected[at(of_y * s.oc + o)] += static_cast<float>(f[k]) * static_cast<float>(x[at(of_x * s.ic + k)]);
        }
      }
    }
  });
  size_t wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    if (static_cast<float>(result[i]) != static_cast<float>(BFloat16(static_cast<float>(expected[i]))) && wrong++ == 0)
      ADD_FAILURE() << "element " << i << " is " << static_cast<float>(result[i]) << ", not " << expected[i];
  EXPECT_EQ(wrong, 0U);
  return true;
}

TEST(ConvBoxes, AreTheSumsOfEveryShapeAndWay) {
  if (!emulation::kRuns) GTEST_SKIP() << "fibers do not run under the thread sanitizer";
  int images = 0, rows = 0;
  // Every shape of one case, and two shapes of every case.
  constexpr int kShapes = static_cast<int>(std::size(kBoxShapes));
  for (int shape = 0; shape < kShapes; ++shape) {
    EXPECT_TRUE(check_plan(kCases[shape % 2], shape, BoxWay::rows, 0));
    images += check_plan(kCases[shape % 2], shape, BoxWay::images, 0);
  }
  EXPECT_EQ(images, kShapes);
  images = 0;
  for (const Case& c : kCases) {
    rows += check_plan(c, 6, BoxWay::rows, 5);
    images += check_plan(c, 3, BoxWay::images, 9);
  }
  EXPECT_EQ(rows, static_cast<int>(std::size(kCases)));
  EXPECT_GE(images, 15);
}

TEST(ConvBoxes, HaveTapsInEveryPhase) {
  ConvSizes s{1, 8, 8, 1, 8, 8, 4, 4, 1, 1, 2, 2, 0, 0, 1, 1};
  EXPECT_TRUE(transposed_windows(s).phases.empty());  // three quarters of the result are zeros
  s.kh = s.kw = 3, s.ph = s.pw = 1;
  const Windows w = transposed_windows(s);
  ASSERT_EQ(w.phases.size(), 4U);
  int taps = 0;
  for (const PhasePlan& p : w.phases) taps += p.phase.kernel_h * p.phase.kernel_w;
  EXPECT_EQ(taps, 9);  // each tap once: nothing is multiplied by zeros between the strides
  EXPECT_EQ(w.phases.front().phase.kernel_h * w.phases.front().phase.kernel_w, 4);
  s.sh = s.sw = 3;  // nine phases
  EXPECT_TRUE(transposed_windows(s).phases.empty());
}

// Layers of ResNet-50 with 64 images on 132 multiprocessors: which way is cheapest, and that it fits a card.
TEST(ConvBoxes, ArePlannedByWhatTheyCost) {
  const auto plan = [](int64_t channels, int64_t size, int64_t stride, bool transposed) {
    ConvSizes s{64, channels, channels, 1, size, size, size / stride, size / stride, 3, 3, stride, stride, 1, 1, 1, 1};
    const BoxPlan p = plan_boxes(transposed ? transposed_windows(s) : forward_windows(s), true, 132, {});
    EXPECT_GE(p.shape, 0);
    EXPECT_LE(p.bytes, kMostShared);
    EXPECT_GE(p.pixel_stages, 2);
    EXPECT_GE(p.filter_stages, 2);
    return p;
  };
  EXPECT_EQ(plan(512, 7, 1, false).way, BoxWay::images);
  EXPECT_EQ(plan(512, 7, 1, false).tiles_of_phase, 128);
  EXPECT_EQ(plan(64, 56, 1, false).way, BoxWay::rows);
  EXPECT_NE(plan(128, 56, 2, true).way, BoxWay::runs);
  // What is chosen for a test or a bench is all there is.
  const ConvSizes s{64, 64, 64, 1, 56, 56, 56, 56, 3, 3, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(plan_boxes(forward_windows(s), true, 132, {6, static_cast<int>(BoxWay::runs)}).way, BoxWay::runs);
  EXPECT_EQ(plan_boxes(forward_windows(s), true, 132, {6, static_cast<int>(BoxWay::images)}).shape, -1);
}

}  // namespace
}  // namespace strata::conv_cuda
