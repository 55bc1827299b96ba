// Gathering convolutions of images and volumes, forward and transposed, on the processor
// (strata/cuda/tile/emulation.cuh): the kernels' own sources, by the library's plan, against sums in double precision.

#define STRATA_TILE_EMULATION
#include "strata/ops/conv/conv_gather_kernel.cuh"

#include <gtest/gtest.h>

#include <random>

namespace strata::conv_cuda {
namespace {

namespace emulation = cuda::tile::emulation;

// Kernels with a type of a test are not those of the library.
template <class Of>
struct Own : Of {};

// Multiples of 1 / 8: sums of their products are exact.
template <class T>
std::vector<T> numbers(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> all(static_cast<size_t>(n));
  for (T& v : all) v = T(static_cast<float>(static_cast<int>(random() % 17) - 8) / 8);
  return all;
}

// An array at a multiple of 16 bytes, a few elements longer.
template <class T>
struct Aligned {
  std::vector<T> all;
  T* p;
  Aligned(int64_t n, T value) : all(static_cast<size_t>(n) + 32, value), p(all.data()) {
    while (reinterpret_cast<uintptr_t>(p) % 16 != 0) ++p;
  }
};

VolumeSizes with_result(VolumeSizes s) {
  for (size_t i = 0; i < 3; ++i)
    s.out[i] = (s.in[i] + 2 * s.padding[i] - s.dilation[i] * (s.kernel[i] - 1) - 1) / s.stride[i] + 1;
  return s;
}

template <class Of, int Warpgroups, int Stages>
std::string run(const Gather& g, uint64_t seed) {
  using T = typename Of::T;
  const auto blocks = static_cast<unsigned>(g.columns / kBlockN * tiles_m(g) * g.groups * g.splits);
  std::string failure = emulation::launch(gather_kernel<Own<Of>, Warpgroups, Stages>, blocks, 128 * Warpgroups,
                                          gather_bytes<T, Warpgroups, Stages>(), seed, g);
  if (g.splits > 1 && failure.empty())
    failure = emulation::launch(gather_shares_kernel<Own<Of>>, 3, kShareThreads, 0, seed, g);
  return failure;
}
template <class Of>
std::string run(const Gather& g, uint64_t seed) {
  if constexpr (Of::kVolume) {
    if (g.rows == 256) return run<Of, 4, kTallStages>(g, seed);
  }
  if (g.rows == 64) return seed % 2 == 0 ? run<Of, 1, kStages>(g, seed) : run<Of, 1, kDeepStages>(g, seed);
  return seed % 2 == 0 ? run<Of, 2, kStages>(g, seed) : run<Of, 2, kDeepStages>(g, seed);
}

// f(image, group, channel of x, channel of y, place in x, tap, place in y) for every product.
template <class F>
void for_products(const VolumeSizes& s, F&& f) {
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups;
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t o = 0; o < s.oc; ++o)
      for (int64_t c = 0; c < icg; ++c)
        for (int64_t place = 0; place < VolumeSizes::product(s.out); ++place)
          for (int64_t tap = 0; tap < VolumeSizes::product(s.kernel); ++tap) {
            const int64_t to[3] = {place / (s.out[1] * s.out[2]), place / s.out[2] % s.out[1], place % s.out[2]},
                          of[3] = {tap / (s.kernel[1] * s.kernel[2]), tap / s.kernel[2] % s.kernel[1],
                                   tap % s.kernel[2]};
            int64_t from = 0;
            bool inside = true;
            for (size_t i = 0; i < 3; ++i) {
              const int64_t at = to[i] * s.stride[i] + of[i] * s.dilation[i] - s.padding[i];
              inside = inside && at >= 0 && at < s.in[i];
              from = from * s.in[i] + at;
            }
            if (inside) f(n, o / ocg, o / ocg * icg + c, o, from, tap, place);
          }
}

struct Options {
  bool last = false, bias = true;
  size_t launches = 1;
  int multiprocessors = 132;
  int splits = 1;
  uint64_t seed = 0;
};

template <class T>
void check(const VolumeSizes& sizes, bool transposed, const Options& o = {}) {
  const VolumeSizes s = with_result(sizes);
  SCOPED_TRACE(cat(transposed ? "transposed, " : "", s.n, " of ", s.ic, " to ", s.oc, ", ", s.in[0], " x ", s.in[1],
                   " x ", s.in[2], o.last ? ", last" : "", ", in ", o.splits, ", seed ", o.seed));
  constexpr int kPiece = 16 / sizeof(T);
  const auto padded = [](int64_t channels) { return static_cast<int>((channels + kPiece - 1) / kPiece * kPiece); };
  const int64_t taps = VolumeSizes::product(s.kernel), x_plane = VolumeSizes::product(s.in),
                y_plane = VolumeSizes::product(s.out), icg = s.ic / s.groups, ocg = s.oc / s.groups;
  // Of the transpose y is the source and x the result.
  const int64_t source_channels = transposed ? s.oc : s.ic, source_plane = transposed ? y_plane : x_plane,
                channels = transposed ? s.ic : s.oc, plane = transposed ? x_plane : y_plane;
  const int64_t of_group = source_channels / s.groups, each = channels / s.groups;
  const int width = padded(of_group);
  const auto given = numbers<T>(s.n * source_channels * source_plane, 1), w = numbers<T>(s.oc * icg * taps, 2),
             bias = numbers<T>(channels, 3);
  Aligned<T> source(s.n * source_plane * s.groups * width, T(0.0f)), filters(channels * taps * width, T(0.0f)),
      result(s.n * channels * plane, T(static_cast<float>(NAN)));
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t c = 0; c < source_channels; ++c)
      for (int64_t p = 0; p < source_plane; ++p)
        source.p[((n * source_plane + p) * s.groups + c / of_group) * width + c % of_group] =
            given[static_cast<size_t>((n * source_channels + c) * source_plane + p)];
  for (int64_t out = 0; out < s.oc; ++out)
    for (int64_t in = 0; in < icg; ++in)
      for (int64_t tap = 0; tap < taps; ++tap) {
        const T v = w[static_cast<size_t>((out * icg + in) * taps + tap)];
        if (transposed)
          filters.p[((out / ocg * icg + in) * taps + tap) * width + out % ocg] = v;
        else
          filters.p[(out * taps + tap) * width + in] = v;
      }
  std::vector<double> expected(static_cast<size_t>(s.n * channels * plane));
  for (size_t i = 0; o.bias && i < expected.size(); ++i)
    expected[i] = static_cast<float>(bias[i / static_cast<size_t>(plane) % static_cast<size_t>(channels)]);
  for_products(s, [&](int64_t n, int64_t group, int64_t c, int64_t out, int64_t from, int64_t tap, int64_t to) {
    const double of_x = static_cast<float>(transposed ? given[static_cast<size_t>((n * s.oc + out) * y_plane + to)]
                                                      : given[static_cast<size_t>((n * s.ic + c) * x_plane + from)]),
                 of_w = static_cast<float>(w[static_cast<size_t>((out * icg + c - group * icg) * taps + tap)]);
    const int64_t at = transposed ? (n * s.ic + c) * x_plane + from : (n * s.oc + out) * y_plane + to;
    expected[static_cast<size_t>(at)] += of_x * of_w;
  });
  if (transposed && has_bare_places(s)) {  // as the caller fills them
    for (int64_t n = 0; n < s.n; ++n)
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t p = 0; p < plane; ++p)
          result.p[o.last ? (n * plane + p) * channels + c : (n * channels + c) * plane + p] =
              o.bias ? bias[static_cast<size_t>(c)] : T(0.0f);
  }
  std::vector<Gather> all = transposed ? transpose_gathers(s, width) : std::vector<Gather>{forward_gather(s, width)};
  ASSERT_EQ(all.size(), o.launches);
  for (Gather& g : all) {
    g.source = source.p, g.filters = filters.p, g.bias = o.bias ? bias.data() : nullptr, g.dst = result.p;
    g.last = o.last;
    const bool flat = g.d.size == 1 && g.d.dst_size == 1 && g.d.taps == 1 && !has_phases(g);
    finish(g, s.n, kPiece, o.multiprocessors, !flat);
    EXPECT_EQ(g.rows == 256, o.multiprocessors == 1);
    g.splits = std::min(o.splits, g.blocks);
    std::vector<float> shares(static_cast<size_t>(int64_t{g.splits} * g.groups * g.m * g.columns), NAN);
    g.shares = shares.data();
    const std::string failure = has_phases(g) ? run<GatherOf<T, true, true>>(g, o.seed)
                                : flat        ? run<GatherOf<T, false, false>>(g, o.seed)
                                              : run<GatherOf<T, true, false>>(g, o.seed);
    ASSERT_EQ(failure, "");
  }
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t p = 0; p < plane; ++p) {
        const T got = result.p[o.last ? (n * plane + p) * channels + c : (n * channels + c) * plane + p];
        const double want = expected[static_cast<size_t>((n * channels + c) * plane + p)];
        ASSERT_EQ(static_cast<float>(got), static_cast<float>(T(static_cast<float>(want))))
            << "image " << n << ", channel " << c << ", place " << p << " of channels of " << each;
      }
}

class ConvGather : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulation::kRuns) GTEST_SKIP() << "fibers do not run under the thread sanitizer";
  }
};

constexpr std::array<int64_t, 3> kNone{};

TEST_F(ConvGather, ForwardIsTheSumsOfAllTaps) {
  // n, ic, oc, groups, in, out, kernel, stride, padding, dilation
  const VolumeSizes image{2, 6, 70, 1, {1, 7, 9}, kNone, {1, 3, 2}, {1, 2, 1}, {0, 1, 1}, {1, 1, 2}};
  check<float>(image, false);
  check<BFloat16>(image, false, {.last = true, .seed = 1});
  const VolumeSizes volume{2, 5, 9, 1, {4, 5, 6}, kNone, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
  check<float>(volume, false);
  check<float>(volume, false, {.bias = false, .splits = 3, .seed = 1});
  check<Half>(volume, false, {.last = true, .seed = 2});
  check<float>({1, 8, 132, 2, {5, 6, 4}, kNone, {2, 3, 2}, {2, 1, 3}, {1, 2, 0}, {2, 1, 1}}, false, {.seed = 3});
  check<BFloat16>({1, 64, 66, 1, {3, 4, 8}, kNone, {3, 1, 2}, {1, 1, 1}, {1, 0, 0}, {1, 1, 1}}, false, {.seed = 1});
}

TEST_F(ConvGather, TilesOf256RowsForward) {
  const VolumeSizes s{2, 9, 200, 1, {4, 5, 8}, kNone, {3, 3, 2}, {1, 1, 1}, {1, 1, 0}, {1, 1, 1}};
  check<float>(s, false, {.multiprocessors = 1});
  check<Half>(s, false, {.last = true, .multiprocessors = 1, .seed = 2});
}

TEST_F(ConvGather, TransposedIsTheSumsOfAllTaps) {
  // Phases together: whole kernels of strides, one to three dimensions, a dilation, rows that end within a tile.
  const VolumeSizes halves{2, 9, 5, 1, {6, 8, 10}, kNone, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}};
  check<float>(halves, true);
  check<float>(halves, true, {.last = true, .seed = 1});
  check<float>(halves, true, {.bias = false, .splits = 2, .seed = 2});
  check<BFloat16>({1, 16, 6, 2, {5, 8, 6}, kNone, {4, 4, 4}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}}, true, {.seed = 1});
  check<Half>({1, 16, 6, 1, {5, 8, 6}, kNone, {4, 4, 4}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}}, true, {.last = true});
  check<float>({2, 3, 7, 1, {1, 9, 13}, kNone, {1, 6, 4}, {1, 3, 4}, {0, 2, 1}, {1, 1, 1}}, true);
  check<float>({1, 4, 8, 1, {1, 17, 21}, kNone, {1, 4, 4}, {1, 2, 2}, {0, 3, 0}, {1, 3, 1}}, true, {.seed = 3});
  // Together though a part of what they multiply lies outside: a card does more at a time.
  check<float>({2, 9, 5, 1, {6, 6, 8}, kNone, {2, 2, 2}, {2, 2, 2}, {1, 1, 0}, {1, 1, 1}}, true);
  // Kernels smaller than strides, whose places no tap reaches are the bias.
  check<float>({2, 3, 5, 1, {5, 8, 8}, kNone, {2, 2, 2}, {3, 3, 3}, {0, 0, 0}, {1, 1, 1}}, true, {.seed = 1});
  // Tiles of 256 rows.
  check<float>({1, 25, 12, 1, {8, 8, 24}, kNone, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}}, true,
               {.multiprocessors = 1});
  check<BFloat16>({1, 25, 12, 1, {8, 8, 24}, kNone, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}}, true,
                  {.last = true, .multiprocessors = 1, .seed = 1});
  // Apart: kernels that are not, images and volumes; results without a tap.
  check<float>({1, 5, 6, 1, {1, 9, 8}, kNone, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}}, true, {.launches = 4});
  check<float>({1, 5, 6, 1, {5, 6, 8}, kNone, {3, 3, 2}, {2, 2, 2}, {1, 1, 0}, {1, 1, 1}}, true,
               {.launches = 4, .seed = 1});
  check<float>({2, 3, 5, 1, {4, 7, 9}, kNone, {1, 2, 1}, {2, 3, 2}, {0, 0, 0}, {1, 1, 1}}, true);
  check<float>({1, 32, 16, 1, {1, 1, 41}, kNone, {1, 1, 12}, {1, 1, 2}, {0, 0, 1}, {1, 1, 2}}, true, {.splits = 3});
  // A stride of one.
  check<float>({1, 70, 4, 1, {3, 5, 6}, kNone, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}, true, {.seed = 2});
  check<BFloat16>({1, 6, 8, 2, {1, 6, 6}, kNone, {1, 3, 2}, {1, 1, 1}, {0, 1, 0}, {1, 2, 1}}, true, {.last = true});
}

// What a plan promises, of sizes in the hundreds of thousands.
TEST(ConvGatherPlan, SplitsSumsOfFewTiles) {
  EXPECT_EQ(splits_of(1, 128, 132), 32);  // a result of one tile, 64 taps of 64 channels
  EXPECT_EQ(splits_of(8, 64, 132), 16);
  EXPECT_EQ(splits_of(64, 27, 132), 1);
  EXPECT_EQ(splits_of(66, 128, 132), 2);
  EXPECT_EQ(splits_of(67, 128, 132), 1);
  EXPECT_EQ(splits_of(1, 7, 132), 1);
  const VolumeSizes s = with_result({8, 128, 256, 1, {34, 34, 34}, kNone, {4, 4, 4}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}});
  std::vector<Gather> all = transpose_gathers(s, 256);
  ASSERT_EQ(all.size(), 1u);
  finish(all[0], s.n, 4, 132, true);
  EXPECT_EQ(all[0].rows, 256);
  EXPECT_EQ(all[0].m, 1024);
  EXPECT_EQ(all[0].total, 8 * 17 * 17 * 17);
  EXPECT_EQ(all[0].blocks, 8 * 8);
}

}  // namespace
}  // namespace strata::conv_cuda
