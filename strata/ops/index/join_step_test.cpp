// Steps along lines (join_step.cuh) on the processor: the kernel's own source, against joining one element after the
// other, bit for bit.

#define STRATA_TILE_EMULATION
#include "strata/cuda/tile/emulation_stored.cuh"

#include "strata/ops/index/join_step.cuh"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace strata {
namespace {

namespace emulation = cuda::tile::emulation;

// A warp goes along n elements.
template <bool kCounted>
void walk(Join join, const int32_t* place, const float* value, int n, float* total, int32_t* count, uint8_t* tag) {
  for (int e = static_cast<int>(threadIdx.x); e - static_cast<int>(threadIdx.x) < n; e += 32)
    join_step<kCounted>(kCounted ? join : Join::sum, e < n ? place[e] : -1, e < n ? value[e] : 0.f, total, count, tag);
}

// Elements of which some name no place and some a place that a neighbour names too; `places` few or many.
template <bool kCounted>
void expect_in_order(Join join, int places, int n, bool tags, uint64_t seed, bool include_self = true) {
  SCOPED_TRACE(cat(places, " places, ", n, " elements, tags ", tags, ", join ", static_cast<int>(join), ", seed ", seed));
  std::mt19937 random(static_cast<unsigned>(seed) + 7);
  std::vector<int32_t> place(static_cast<size_t>(n)), count(static_cast<size_t>(places), include_self ? 1 : 0);
  std::vector<float> value(place.size()), total(count.size());
  for (size_t i = 0; i < place.size(); ++i) {
    place[i] = random() % 9 == 0 ? -1 : static_cast<int32_t>(random() % static_cast<unsigned>(places));
    value[i] = std::ldexp(static_cast<float>(random() % 2000) - 1000, static_cast<int>(random() % 9) - 14);
  }
  for (float& t : total) t = static_cast<float>(random() % 100) / 64;
  std::vector<float> want = total;
  std::vector<int32_t> want_count = count;
  for (size_t i = 0; i < place.size(); ++i) {
    if (place[i] < 0) continue;
    const auto to = static_cast<size_t>(place[i]);
    want[to] = kCounted && want_count[to] == 0 ? value[i] : joined(join, want[to], value[i]);
    if (kCounted) ++want_count[to];
  }
  std::vector<uint8_t> tag(tags ? count.size() : 0, 5);
  ASSERT_EQ(emulation::launch(walk<kCounted>, 1, 32, 0, seed, join, static_cast<const int32_t*>(place.data()),
                              static_cast<const float*>(value.data()), n, total.data(), count.data(),
                              tags ? tag.data() : static_cast<uint8_t*>(nullptr)),
            "");
  EXPECT_EQ(total, want);
  EXPECT_EQ(count, want_count);
}

TEST(JoinStep, IsInTheOrderOfTheElements) {
  if (!emulation::kRuns) GTEST_SKIP() << "no fibers under the thread sanitizer";
  for (const bool tags : {false, true})
    for (const uint64_t seed : {0, 1, 2})
      for (const int places : {1, 2, 40, 700, 100000}) {
        expect_in_order<false>(Join::sum, places, 333, tags, seed);
        for (const Join join : {Join::sum, Join::prod, Join::amax, Join::amin})
          expect_in_order<true>(join, places, 97, tags, seed, seed == 1);
      }
}

}  // namespace
}  // namespace strata
