// The gradient of filters, and of the bias beside it, from row-major tensors on the processor
// (strata/cuda/tile/emulation.cuh): the kernels' own sources against sums in double precision.

#define STRATA_TILE_EMULATION
#include "strata/ops/conv/conv_filter_shares_kernel.cuh"
#include "strata/ops/conv/conv_rows_filter_kernel.cuh"

#include <gtest/gtest.h>

#include <random>

namespace strata::conv_cuda {
namespace {

namespace emulation = cuda::tile::emulation;

// Kernels with a type of a test are not those of the library.
template <class Element>
struct Own {
  using T = Element;
};

// Multiples of 1 / 8: sums of their products are exact.
template <class T>
std::vector<T> numbers(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> all(static_cast<size_t>(n) + 4);
  for (T& v : all) v = T(static_cast<float>(static_cast<int>(random() % 17) - 8) / 8);
  return all;
}
// The first of them at a multiple of 16 bytes, or four bytes behind one.
template <class T>
const T* placed(const std::vector<T>& all, bool aligned) {
  const T* p = all.data();
  while ((reinterpret_cast<uintptr_t>(p) % 16 == 0) != aligned) ++p;
  return p;
}

ConvSizes with_result(ConvSizes s) {
  s.oh = (s.ih + 2 * s.ph - (s.kh - 1) * s.dh - 1) / s.sh + 1;
  s.ow = (s.iw + 2 * s.pw - (s.kw - 1) * s.dw - 1) / s.sw + 1;
  return s;
}

// Results of a kernel that `launch` runs on g against plain sums.
template <class T, class G, class Launch>
void expect_sums(const ConvSizes& s, G& g, const T* x, const T* y, int padded, bool with_rows, const Launch& launch) {
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups, taps = s.kh * s.kw;
  g.x = x, g.y = y;
  g.work.shares = 3;
  std::vector<float> sums(static_cast<size_t>(3 * s.oc * g.columns), NAN), rows(static_cast<size_t>(3 * s.oc), NAN);
  g.sums = sums.data();
  g.rows = with_rows ? rows.data() : nullptr;
  ASSERT_EQ(launch(), "");
  for (int64_t o = 0; o < s.oc; ++o) {
    double of_row = 0;
    for (int64_t n = 0; n < s.n; ++n)
      for (int64_t p = 0; p < s.oh * s.ow; ++p) of_row += static_cast<float>(y[(n * s.oc + o) * s.oh * s.ow + p]);
    double row = 0;
    for (int64_t share = 0; share < 3; ++share) row += rows[static_cast<size_t>(share * s.oc + o)];
    if (with_rows) {
      EXPECT_EQ(row, of_row) << "row " << o;
    }
    for (int64_t c = 0; c < icg; ++c)
      for (int64_t tap = 0; tap < taps; ++tap) {
        double expected = 0, got = 0;
        for (int64_t n = 0; n < s.n; ++n)
          for (int64_t i = 0; i < s.oh; ++i)
            for (int64_t j = 0; j < s.ow; ++j) {
              const int64_t iy = i * s.sh + tap / s.kw * s.dh - s.ph, ix = j * s.sw + tap % s.kw * s.dw - s.pw;
              if (iy < 0 || iy >= s.ih || ix < 0 || ix >= s.iw) continue;
              expected += static_cast<double>(static_cast<float>(y[((n * s.oc + o) * s.oh + i) * s.ow + j])) *
                          static_cast<float>(x[((n * s.ic + o / ocg * icg + c) * s.ih + iy) * s.iw + ix]);
            }
        for (int64_t share = 0; share < 3; ++share)
          got += sums[static_cast<size_t>((share * s.oc + o) * g.columns + tap * padded + c)];
        ASSERT_EQ(got, expected) << "filter " << o << ", channel " << c << ", tap " << tap;
      }
  }
}

void check_windows(const ConvSizes& sizes, bool pieces, bool aligned, uint64_t seed, bool with_rows = true) {
  const ConvSizes s = with_result(sizes);
  SCOPED_TRACE(cat(s.n, " images ", s.ih, " x ", s.iw, ", ", s.ic, " to ", s.oc, ", seed ", seed));
  const auto x = numbers<float>(s.n * s.ic * s.ih * s.iw, 1), y = numbers<float>(s.n * s.oc * s.oh * s.ow, 2);
  WindowSum g = window_sum(s, aligned, aligned);
  ASSERT_EQ(g.x_pieces, pieces);
  expect_sums(s, g, placed(x, aligned), placed(y, aligned), g.padded, with_rows, [&] {
    const auto blocks = static_cast<unsigned>(g.work.tiles_n * g.work.tiles_m * g.work.shares);
    return g.m > 64 ? emulation::launch(window_kernel<Own<float>, 2>, blocks, 256, window_bytes<2>(), seed, g)
                    : emulation::launch(window_kernel<Own<float>, 1>, blocks, 128, window_bytes<1>(), seed, g);
  });
}

TEST(ConvRowsFilter, WindowsAreTheSumsOfAllPixels) {
  if (!emulation::kRuns) GTEST_SKIP() << "fibers do not run under the thread sanitizer";
  // n, ic, oc, groups, ih, iw, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw
  check_windows({3, 5, 9, 1, 1, 40, 0, 0, 1, 7, 1, 1, 0, 24, 1, 4}, true, true, 0);
  check_windows({3, 5, 9, 1, 1, 40, 0, 0, 1, 7, 1, 1, 0, 24, 1, 4}, false, false, 1);
  check_windows({2, 66, 70, 1, 1, 36, 0, 0, 1, 3, 1, 1, 0, 8, 1, 8}, true, true, 2);
  check_windows({2, 6, 70, 1, 1, 37, 0, 0, 1, 3, 1, 1, 0, 2, 1, 2}, false, true, 0);
  check_windows({2, 8, 12, 2, 7, 12, 0, 0, 3, 1, 2, 1, 1, 0, 2, 1}, true, true, 3);
  check_windows({2, 4, 10, 1, 9, 11, 0, 0, 3, 2, 2, 2, 1, 1, 1, 1}, false, true, 4);
  check_windows({2, 4, 10, 1, 8, 8, 0, 0, 3, 3, 1, 1, 1, 1, 1, 1}, false, true, 5, false);
}

template <class T>
void check_planes(const ConvSizes& sizes, uint64_t seed) {
  const ConvSizes s = with_result(sizes);
  SCOPED_TRACE(cat(s.n, " images ", s.ih, " x ", s.iw, ", ", s.ic, " to ", s.oc, ", ", sizeof(T), " bytes"));
  const auto x = numbers<T>(s.n * s.ic * s.ih * s.iw, 1), y = numbers<T>(s.n * s.oc * s.oh * s.ow, 2);
  PlaneSum g = plane_sum(s, sizeof(T));
  expect_sums(s, g, placed(x, true), placed(y, true), g.columns, true, [&] {
    const auto blocks = static_cast<unsigned>(g.work.tiles_n * g.work.tiles_m * g.work.shares);
    return g.m > 64 ? emulation::launch(plane_kernel<Own<T>, 2>, blocks, 256, kStages * stage_bytes<2>(), seed, g)
                    : emulation::launch(plane_kernel<Own<T>, 1>, blocks, 128, kStages * stage_bytes<1>(), seed, g);
  });
}

TEST(ConvRowsFilter, PlanesAreTheSumsOfAllPixels) {
  if (!emulation::kRuns) GTEST_SKIP() << "fibers do not run under the thread sanitizer";
  check_planes<float>({3, 10, 70, 1, 4, 13, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1}, 0);
  check_planes<float>({2, 132, 12, 2, 4, 10, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1}, 1);
  check_planes<BFloat16>({2, 7, 11, 1, 8, 11, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1}, 2);
  check_planes<Half>({2, 140, 66, 1, 1, 72, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1}, 3);
}

// Shares whose taps lie outside of channels, of whole chunks and not, as pieces and one by one.
template <class T, int V>
void check_shares(int shares, int filters, int taps, int channels, int padded) {
  SCOPED_TRACE(cat(shares, " of ", filters, " x ", taps, " x ", channels));
  std::mt19937_64 random(5);
  std::vector<float> sums(static_cast<size_t>(int64_t{shares} * filters * taps * padded) + 4, NAN);
  float* p = sums.data();
  while (reinterpret_cast<uintptr_t>(p) % 16 != 0) ++p;
  for (int64_t row = 0; row < int64_t{shares} * filters * taps; ++row)
    for (int c = 0; c < channels; ++c) p[row * padded + c] = static_cast<float>(static_cast<int>(random() % 65) - 32);
  std::vector<T> made(static_cast<size_t>(filters * channels * taps) + 8, T(-99.0f));
  T* w = made.data();
  while (reinterpret_cast<uintptr_t>(w) % 16 != 0) ++w;
  const TurnedShares t = turned_shares(p, shares, filters, taps, channels, padded);
  ASSERT_EQ(emulation::launch(turned_shares_kernel<Own<T>, V>, static_cast<unsigned>(filters * t.chunks), kTurnThreads,
                              static_cast<size_t>(t.bytes()), 0, t, w),
            "");
  for (int o = 0; o < filters; ++o)
    for (int c = 0; c < channels; ++c)
      for (int tap = 0; tap < taps; ++tap) {
        float want = 0;
        for (int share = 0; share < shares; ++share)
          want += p[((int64_t{share} * filters + o) * taps + tap) * padded + c];
        ASSERT_EQ(static_cast<float>(w[(o * channels + c) * taps + tap]), static_cast<float>(T(want)))
            << o << ", " << c << ", " << tap;
      }
}

TEST(ConvFilterShares, AreAddedUpAndTurned) {
  if (!emulation::kRuns) GTEST_SKIP() << "fibers do not run under the thread sanitizer";
  check_shares<BFloat16, 8>(1, 3, 9, 512, 512);
  check_shares<BFloat16, 8>(3, 2, 9, 328, 328);
  check_shares<Half, 1>(2, 3, 25, 37, 40);
  check_shares<float, 4>(8, 2, 49, 68, 68);
  check_shares<float, 1>(2, 2, 2, 33, 36);
}

}  // namespace
}  // namespace strata::conv_cuda
