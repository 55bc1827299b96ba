// Depthwise convolutions by band matrices on the processor (strata/cuda/tile/emulation.cuh), from the kernels' own
// source, against sums in double precision.

#define STRATA_TILE_EMULATION
#include "strata/ops/conv/depthwise_last.cuh"

#include <random>

#include <gtest/gtest.h>

namespace strata::conv_cuda::bands {
namespace {

namespace emulation = cuda::tile::emulation;

// Kernels with a type of this file are not those of the library.
template <class Element>
struct Own {
  using T = Element;
};

// Multiples of 1 / 8: sums of their products are exact.
template <class T>
std::vector<T> numbers(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> all(static_cast<size_t>(n));
  for (T& v : all) v = T(static_cast<float>(static_cast<int>(random() % 17) - 8) / 8);
  return all;
}
template <class T>
const uint16_t* bits(const std::vector<T>& v) {
  return reinterpret_cast<const uint16_t*>(v.data());
}

struct Case {
  int64_t n, channels, height, width;
  int k;
  int64_t ph, pw;
  uint64_t seed;
};
const Case kCases[] = {
    {3, 2, 56, 56, 7, 3, 3, 0},  // one plane a tile, seven blocks of columns
    {5, 2, 14, 14, 7, 3, 3, 1},  // several planes, pairs of columns
    {21, 1, 7, 7, 7, 3, 3, 2},   // many planes, single columns, a last group that is not full
    {3, 2, 28, 28, 5, 2, 2, 0},
    {2, 1, 131, 67, 5, 0, 2, 3},  // tiles of planes
    {2, 2, 10, 13, 7, 6, 0, 0},
    {3, 1, 5, 200, 3, 1, 2, 4},
    {1, 3, 9, 8, 3, 1, 1, 5},
    {1, 1, 1, 1, 3, 1, 1, 0},
    {2, 1, 70, 58, 7, 3, 3, 0},
    // Channels in eights, for images that have them innermost.
    {2, 24, 56, 56, 7, 3, 3, 1},
    {5, 16, 7, 7, 7, 3, 3, 0},
    {3, 8, 14, 13, 7, 3, 3, 2},
    {1, 40, 20, 61, 5, 0, 2, 0},
    {3, 16, 5, 9, 3, 2, 0, 3},
};

template <class T, int K, int kBlocks>
std::string run_forward(const BandTiling& t, bool turned, const std::vector<T>& x, const std::vector<T>& w,
                        const std::vector<T>& bias, std::vector<T>& y, uint64_t seed) {
  if (t.w == 8 * kBlocks)
    return emulation::launch(band_forward_kernel<Own<T>, K, kBlocks>, static_cast<unsigned>(t.channels * t.shares),
                             kBandThreads, static_cast<size_t>(t.forward_bytes()), seed, t, turned, bits(x), bits(w),
                             static_cast<const T*>(bias.data()), reinterpret_cast<uint16_t*>(y.data()));
  if constexpr (kBlocks == 7) return "no such width";
  constexpr int kNext = kBlocks == 1 ? 2 : kBlocks == 2 ? 4 : 7;
  return run_forward<T, K, kNext>(t, turned, x, w, bias, y, seed);
}

template <class T, int K, int kBlocks>
std::string run_last(const LastTiling& t, bool turned, const std::vector<T>& x, const std::vector<T>& w,
                     const std::vector<T>& bias, std::vector<T>& y, uint64_t seed) {
  if (t.w == 8 * kBlocks)
    return emulation::launch(last_forward_kernel<Own<T>, K, kBlocks>, static_cast<unsigned>(t.groups * t.shares),
                             kLastThreads, static_cast<size_t>(t.forward_bytes(K)), seed, t, turned, bits(x), bits(w),
                             static_cast<const T*>(bias.data()), reinterpret_cast<uint16_t*>(y.data()));
  if constexpr (kBlocks == 7) return "no such width";
  constexpr int kNext = kBlocks == 1 ? 2 : kBlocks == 2 ? 4 : 7;
  return run_last<T, K, kNext>(t, turned, x, w, bias, y, seed);
}

template <class T, int K, int kBlocks>
std::string run_last_weight(const LastTiling& t, const std::vector<T>& x, const std::vector<T>& y,
                            std::vector<float>& sums, uint64_t seed) {
  if (t.w == 8 * kBlocks)
    return emulation::launch(last_weight_kernel<Own<T>, K, kBlocks>, static_cast<unsigned>(t.groups * t.shares),
                             kLastThreads, static_cast<size_t>(t.weight_bytes(K)), seed, t, bits(x), bits(y),
                             sums.data());
  if constexpr (kBlocks == 7) return "no such width";
  constexpr int kNext = kBlocks == 1 ? 2 : kBlocks == 2 ? 4 : 7;
  return run_last_weight<T, K, kNext>(t, x, y, sums, seed);
}

// [n, channels, pixels] from or to [n, pixels, channels].
template <class T>
std::vector<T> turned_around(const std::vector<T>& from, int64_t n, int64_t channels, bool back) {
  std::vector<T> to(from.size());
  const int64_t pixels = static_cast<int64_t>(from.size()) / (n * channels);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t p = 0; p < pixels; ++p) {
        const auto rows = static_cast<size_t>((i * channels + c) * pixels + p),
                   last = static_cast<size_t>((i * pixels + p) * channels + c);
        back ? to[rows] = from[last] : to[last] = from[rows];
      }
  return to;
}

template <class T, int K>
void check(const Case& c) {
  SCOPED_TRACE(cat(c.n, " x ", c.channels, " x ", c.height, " x ", c.width, ", filter of ", c.k, ", zeros ", c.ph, ", ",
                   c.pw, ", seed ", c.seed));
  const int64_t oh = c.height + 2 * c.ph - K + 1, ow = c.width + 2 * c.pw - K + 1;
  const int64_t in = c.n * c.channels * c.height * c.width, out = c.n * c.channels * oh * ow;
  const auto x = numbers<T>(in, 1), w = numbers<T>(c.channels * K * K, 2), bias = numbers<T>(c.channels, 3),
             gy = numbers<T>(out, 4);
  std::vector<double> y(static_cast<size_t>(out)), gx(static_cast<size_t>(in)), gw(w.size());
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  for (int64_t q = 0; q < c.n * c.channels; ++q) {
    const int64_t channel = q % c.channels;
    for (int64_t i = 0; i < c.height * c.width; ++i)
      gx[at(q * c.height * c.width + i)] = static_cast<float>(bias[at(channel)]);
    for (int64_t i = 0; i < oh; ++i)
      for (int64_t j = 0; j < ow; ++j) {
        const size_t to = at((q * oh + i) * ow + j);
        y[to] = static_cast<float>(bias[at(channel)]);
        for (int64_t a = 0; a < K; ++a)
          for (int64_t b = 0; b < K; ++b) {
            const int64_t iy = i + a - c.ph, ix = j + b - c.pw;
            if (iy < 0 || iy >= c.height || ix < 0 || ix >= c.width) continue;
            const size_t from = at((q * c.height + iy) * c.width + ix), tap = at((channel * K + a) * K + b);
            y[to] += static_cast<float>(w[tap]) * static_cast<float>(x[from]);
            gx[from] += static_cast<float>(w[tap]) * static_cast<float>(gy[to]);
            gw[tap] += static_cast<float>(gy[to]) * static_cast<float>(x[from]);
          }
      }
  }
  const auto compare = [](const auto& got, const std::vector<double>& want, const char* what) {
    size_t wrong = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const auto rounded = std::remove_cvref_t<decltype(got[0])>(static_cast<float>(want[i]));
      if (static_cast<float>(got[i]) != static_cast<float>(rounded) && wrong++ == 0)
        ADD_FAILURE() << what << " " << i << " is " << static_cast<float>(got[i]) << ", not " << want[i];
    }
    EXPECT_EQ(wrong, 0U);
  };

  // Two multiprocessors: shares of several images.
  std::vector<T> result(static_cast<size_t>(out), T(NAN));
  const BandTiling forward =
      band_tiling(c.n, c.channels, c.height, c.width, oh, ow, c.ph, c.pw, K, x.data(), gy.data(), 1);
  ASSERT_EQ((run_forward<T, K, 1>(forward, false, x, w, bias, result, c.seed)), "");
  compare(result, y, "result");

  std::vector<T> gradient(static_cast<size_t>(in), T(NAN));
  const BandTiling turned =
      band_tiling(c.n, c.channels, oh, ow, c.height, c.width, K - 1 - c.ph, K - 1 - c.pw, K, gy.data(), x.data(), 1);
  ASSERT_EQ((run_forward<T, K, 1>(turned, true, gy, w, bias, gradient, c.seed)), "");
  compare(gradient, gx, "gradient");

  std::vector<float> sums(static_cast<size_t>(forward.shares) * w.size(), NAN), total(w.size());
  ASSERT_EQ(emulation::launch(band_weight_kernel<Own<T>, K>, static_cast<unsigned>(forward.channels * forward.shares),
                              kBandThreads, static_cast<size_t>(forward.weight_bytes(K)), c.seed, forward, bits(x),
                              bits(gy), sums.data()),
            "");
  for (size_t i = 0; i < sums.size(); ++i) total[i % w.size()] += sums[i];
  compare(total, gw, "filter's gradient");

  // The same with channels innermost.
  if (c.channels % 8 != 0) return;
  const auto last_x = turned_around(x, c.n, c.channels, false), last_gy = turned_around(gy, c.n, c.channels, false);
  const LastTiling last = last_tiling(c.n, c.channels, c.height, c.width, oh, ow, c.ph, c.pw, K, 1);
  result.assign(result.size(), T(NAN));
  ASSERT_EQ((run_last<T, K, 1>(last, false, last_x, w, bias, result, c.seed)), "");
  compare(turned_around(result, c.n, c.channels, true), y, "result with channels innermost");
  gradient.assign(gradient.size(), T(NAN));
  ASSERT_EQ(
      (run_last<T, K, 1>(last_tiling(c.n, c.channels, oh, ow, c.height, c.width, K - 1 - c.ph, K - 1 - c.pw, K, 1),
                         true, last_gy, w, bias, gradient, c.seed)),
      "");
  compare(turned_around(gradient, c.n, c.channels, true), gx, "gradient with channels innermost");
  sums.assign(static_cast<size_t>(last.shares) * w.size(), NAN), total.assign(w.size(), 0);
  ASSERT_EQ((run_last_weight<T, K, 1>(last, last_x, last_gy, sums, c.seed)), "");
  for (size_t i = 0; i < sums.size(); ++i) total[i % w.size()] += sums[i];
  compare(total, gw, "filter's gradient with channels innermost");
}

TEST(DepthwiseBands, AreTheSumsOfEachTap) {
  if (!emulation::kRuns) GTEST_SKIP() << "fibers do not run under the thread sanitizer";
  for (const Case& c : kCases) {
    if (c.k == 3) check<BFloat16, 3>(c), check<Half, 3>(c);
    if (c.k == 5) check<BFloat16, 5>(c);
    if (c.k == 7) check<BFloat16, 7>(c);
  }
}

TEST(DepthwiseBands, FitTheMemoryOfABlock) {
  for (const int k : {3, 5, 7})
    for (int64_t size = 1; size < 300; size = size * 5 / 4 + 1)
      for (const int64_t padding : {int64_t{0}, static_cast<int64_t>(k - 1)}) {
        const int64_t out = size + 2 * padding - k + 1;
        if (out <= 0) continue;
        const BandTiling t = band_tiling(64, 96, size, size, out, out, padding, padding, k, nullptr, nullptr, 132);
        EXPECT_LE(t.forward_bytes(), 48 * 1024) << size;
        EXPECT_LE(t.weight_bytes(k), 48 * 1024) << size;
        EXPECT_GE(t.down * t.h, out);
        EXPECT_GE(t.across * t.w, out);
        const LastTiling last = last_tiling(64, 96, size, size, out, out, padding, padding, k, 132);
        EXPECT_LE(last.forward_bytes(k), 74 * 1024) << size;  // three blocks a multiprocessor
        EXPECT_LE(last.weight_bytes(k), 112 * 1024) << size;  // two
        EXPECT_LE(last.images * last.h, 16);
        EXPECT_GE(last.down * last.h, out);
        EXPECT_GE(last.across * last.w, out);
      }
}

}  // namespace
}  // namespace strata::conv_cuda::bands
