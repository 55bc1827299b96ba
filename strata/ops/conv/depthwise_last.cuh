#pragma once
// depthwise_bands.cuh for images whose channels lie innermost, [n, height, width, channels]: a block has 16 channels of
// 16 rows of results (of one image or of several small ones). Pixels come as they lie and are turned around on their
// way into shared memory, where a row has the columns of one channel after those of the other; results are turned back
// there. A warp has two of the channels, whose band matrices it reads from a table of pairs of neighbouring taps.

#include "strata/cuda/tile/single.cuh"
#include "strata/ops/conv/depthwise_bands.cuh"

namespace strata::conv_cuda {
namespace bands {

inline constexpr int kLastThreads = 256, kLastWarps = kLastThreads / 32, kLastChannels = 16,
                     kChannelsOfWarp = kLastChannels / kLastWarps;
static_assert(kChannelsOfWarp == 2);
inline constexpr int kPairs = 24;  // of taps that a row of a band has at a distance of -8 .. 15 from its diagonal

/// How images are cut: tiles of h x w results of `images` images, h images <= 16.
struct LastTiling {
  int n, channels, ih, iw, oh, ow, ph, pw;
  int h, w, down, across;     // of a tile, w a multiple of 8; tiles of an image
  int images, rows;           // in a tile; rows of inputs of each
  int groups, tiles, shares;  // of 16 channels; tiles of all images; blocks of a group
  FastDivisor by_image, by_tile, by_across, by_h, by_w;

  int forward_bytes(int k) const {
    const int in = images * rows * row_of(w / 8) * 2, out = 16 * out_row(w / 8) * 2;
    return table_bytes(k) + (in > out ? in : out);
  }
  int weight_bytes(int k) const {
    const int tiles = (images * rows + 1 + 16) * row_of(w / 8) * 2, sums = kLastChannels * k * 16 * 8 * 4;
    return tiles > sums ? tiles : sums;
  }
  static constexpr int table_bytes(int k) { return kLastChannels * k * kPairs * 4; }
  // Elements of a channel's columns in a row of inputs (or gradients), where there are so many blocks of 8 results; of
  // a row of all channels. Eight rows are in different banks, and so are 32 columns of the first and the ninth channel.
  static constexpr int channel_of(int blocks) { return 8 * blocks + 8; }
  static constexpr int kGap = 32;  // before the ninth channel
  static constexpr int row_of(int blocks) { return kLastChannels * channel_of(blocks) + kGap + 8; }
  static constexpr int kOutPixel = kLastChannels + 8;  // and of a pixel and a row of results
  static constexpr int out_row(int blocks) { return 8 * blocks * kOutPixel + 8; }
};

inline LastTiling last_tiling(int64_t n, int64_t channels, int64_t ih, int64_t iw, int64_t oh, int64_t ow, int64_t ph,
                              int64_t pw, int k, int multiprocessors) {
  const auto up = [](int a, int b) { return (a + b - 1) / b; };
  const auto low = [](int a, int b) { return a < b ? a : b; };
  LastTiling t{};
  t.n = static_cast<int>(n), t.channels = static_cast<int>(channels);
  t.ih = static_cast<int>(ih), t.iw = static_cast<int>(iw), t.oh = static_cast<int>(oh), t.ow = static_cast<int>(ow);
  t.ph = static_cast<int>(ph), t.pw = static_cast<int>(pw);
  t.down = up(t.oh, 16), t.across = up(t.ow, 56);
  t.h = up(t.oh, t.down), t.w = up(up(t.ow, t.across), 8) * 8;
  for (const int blocks : kBandBlocks) {
    if (8 * blocks < t.w) continue;
    t.w = 8 * blocks;
    break;
  }
  t.across = up(t.ow, t.w);
  t.images = low(t.n, 16 / t.h);
  t.rows = t.h + k - 1;
  t.groups = up(t.channels, kLastChannels), t.tiles = up(t.n, t.images) * t.down * t.across;
  t.shares = low(t.tiles, up(8 * multiprocessors, t.groups));
  const auto divisor = [](int d) { return FastDivisor(static_cast<uint32_t>(d)); };
  t.by_image = divisor(t.rows), t.by_tile = divisor(t.down * t.across), t.by_across = divisor(t.across),
  t.by_h = divisor(t.h), t.by_w = divisor(t.w);
  return t;
}

__device__ __forceinline__ int quotient(const FastDivisor& d, int n) {
  return static_cast<int>(d.divide(static_cast<uint32_t>(n)));
}

/// Where a tile is: its first image, row and column of results.
struct LastTile {
  int n0, y, x;
};
__device__ __forceinline__ LastTile last_tile(const LastTiling& t, int tile) {
  const int group = quotient(t.by_tile, tile), rest = tile - group * t.down * t.across,
            down = quotient(t.by_across, rest);
  return {group * t.images, down * t.h, (rest - down * t.across) * t.w};
}

/// Pixels of `images` images from row `top` and column `left` on (either may be negative), `rows` of each and kColumns
/// columns, turned around: a row has kColumns numbers of each of 16 channels from c0 on, and begins kRow after the
/// last. Zeros for what is outside. `by_image` divides by `rows`.
template <int kColumns, int kChannel, int kRow, int kLines>
__device__ __forceinline__ void load_pixels(uint16_t* to, const uint16_t* from, int channels, int c0, int n0, int n,
                                            int images, int height, int width, int top, int left, int rows,
                                            const FastDivisor& by_image) {
  // A warp has a row: 32 pixels at once, a lane has 8 channels of two. Of so many rows all loads are under way before
  // the first is stored.
  constexpr int kSteps = (kColumns + 31) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, pixel = lane / 2 * 2, half = lane % 2;
  const bool any = c0 + 8 * half < channels;
  for (int first = static_cast<int>(threadIdx.x) / 32; first < images * rows; first += kLines * kLastWarps) {
    uint4 two[kLines][kSteps][2];
#pragma unroll
    for (int k = 0; k < kLines; ++k) {
      const int line = first + k * kLastWarps, image = quotient(by_image, line), y = top + line - image * rows;
      const bool inside = any && line < images * rows && n0 + image < n && y >= 0 && y < height;
      const uint16_t* const row =
          from + ((static_cast<int64_t>(n0 + image) * height + y) * width + left + pixel) * channels + c0 + 8 * half;
#pragma unroll
      for (int u = 0; u < kSteps; ++u)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int x = left + pixel + 32 * u + e;
          two[k][u][e] = uint4{0, 0, 0, 0};
          if (inside && x >= 0 && x < width && pixel + 32 * u < kColumns)
            two[k][u][e] = load_constant(row + (32 * u + e) * channels);
        }
    }
#pragma unroll
    for (int k = 0; k < kLines; ++k) {
      const int line = first + k * kLastWarps;
      if (line >= images * rows) break;
      uint16_t* const at = to + line * kRow + half * (8 * kChannel + LastTiling::kGap) + pixel;
#pragma unroll
      for (int u = 0; u < kSteps; ++u) {
        if (kColumns % 32 != 0 && u + 1 == kSteps && pixel >= kColumns % 32) break;
        const uint32_t a[4] = {two[k][u][0].x, two[k][u][0].y, two[k][u][0].z, two[k][u][0].w},
                       b[4] = {two[k][u][1].x, two[k][u][1].y, two[k][u][1].z, two[k][u][1].w};
#pragma unroll
        for (int e = 0; e < 8; ++e)
          *reinterpret_cast<uint32_t*>(at + 32 * u + e * kChannel) =
              permute_bytes(a[e / 2], b[e / 2], e % 2 == 0 ? 0x5410 : 0x7632);
      }
    }
  }
}
/// Where a channel's columns begin in a row.
template <int kChannel>
__device__ __forceinline__ int channel_at(int c) {
  return c * kChannel + (c >= kLastChannels / 2 ? LastTiling::kGap : 0);
}

/// `turned`: the filter is read from its end. blockIdx.x: share, group of channels.
template <class Of, int K, int kBlocks>
__global__ void __launch_bounds__(kLastThreads, 3)
    last_forward_kernel(const __grid_constant__ LastTiling t, bool turned, const uint16_t* x, const uint16_t* w,
                        const typename Of::T* bias, uint16_t* y) {
  using T = typename Of::T;
  constexpr int kChannel = LastTiling::channel_of(kBlocks), kRow = LastTiling::row_of(kBlocks),
                kOutRow = LastTiling::out_row(kBlocks), kOutPixel = LastTiling::kOutPixel;
  uint32_t* const table = reinterpret_cast<uint32_t*>(shared_memory());  // [channel][row of the filter][kPairs]
  uint16_t* const in = reinterpret_cast<uint16_t*>(shared_memory() + LastTiling::table_bytes(K));
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32, warp = tid / 32;
  const int share = static_cast<int>(blockIdx.x) / t.groups,
            c0 = (static_cast<int>(blockIdx.x) - share * t.groups) * kLastChannels;
  const int begin = static_cast<int>(static_cast<int64_t>(t.tiles) * share / t.shares),
            end = static_cast<int>(static_cast<int64_t>(t.tiles) * (share + 1) / t.shares);
  for (int i = tid; i < kLastChannels * K * kPairs; i += kLastThreads) {
    const int c = i / (K * kPairs), a = i / kPairs % K, b = i % kPairs - 8;
    uint32_t pair = 0;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int tap = a * K + b + e;
      if (c0 + c < t.channels && b + e >= 0 && b + e < K)
        pair |= static_cast<uint32_t>(w[(c0 + c) * K * K + (turned ? K * K - 1 - tap : tap)]) << (16 * e);
    }
    table[i] = pair;
  }

  // This lane's row of a product, and where its inputs begin.
  const int image_of_lane = quotient(t.by_h, lane % 16), inside = image_of_lane < t.images;
  const int row_of_lane = inside ? image_of_lane * t.rows + lane % 16 - image_of_lane * t.h : 0;
  for (int tile = begin; tile < end; ++tile) {
    const LastTile at = last_tile(t, tile);
    __syncthreads();  // the last tile's results have been read, or all is prepared
    load_pixels<8 * kBlocks + 8, kChannel, kRow, 3>(in, x, t.channels, c0, at.n0, t.n, t.images, t.ih, t.iw,
                                                    at.y - t.ph, at.x - t.pw, t.rows, t.by_image);
    __syncthreads();
    float sums[kChannelsOfWarp][kBlocks][4];
#pragma unroll
    for (int u = 0; u < kChannelsOfWarp; ++u) {
      const int c = warp * kChannelsOfWarp + u;
      const float add = bias != nullptr && c0 + c < t.channels ? cuda::widen(bias[c0 + c]) : 0.f;
#pragma unroll
      for (int j = 0; j < kBlocks; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[u][j][e] = add;
      const uint32_t* const pairs = table + c * K * kPairs + 8 + lane % 4 * 2 - lane / 4;
      const uint16_t* const first = in + row_of_lane * kRow + channel_at<kChannel>(c) + lane / 16 * 8;
#pragma unroll
      for (int a = 0; a < K; ++a) {
        const uint16_t* const from = first + a * kRow;
        const uint32_t low = pairs[a * kPairs], high = pairs[a * kPairs + 8];
        uint32_t now[4], next[4];
        load_matrices(now, from);
#pragma unroll
        for (int j = 0; j < kBlocks; j += 2) {
          mma<T>(sums[u][j], now, low, high);
          if (j + 1 == kBlocks) break;
          // Columns 8 j + 16 on; of the last two blocks only the first is within.
          load_matrices(next, from + (j + 2 < kBlocks ? 8 * j + 16 : 8 * j + 16 - lane / 16 * 8));
          const uint32_t between[4] = {now[2], now[3], next[0], next[1]};
          mma<T>(sums[u][j + 1], between, low, high);
#pragma unroll
          for (int e = 0; e < 4; ++e) now[e] = next[e];
        }
      }
    }
    __syncthreads();  // the inputs have been read: results [row][pixel][16 channels] in their place
    // Words of two channels. Of the four words of 16 bytes, word k of a pixel is at k ^ q, q being half its column:
    // then the lanes of a warp, which have one word of four columns and eight rows, are in different banks.
    const int word = warp / 4 * 4 + (warp % 4 ^ lane % 4);
#pragma unroll
    for (int j = 0; j < kBlocks; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        *reinterpret_cast<uint32_t*>(in + (lane / 4 + e / 2 * 8) * kOutRow +
                                     (8 * j + lane % 4 * 2 + e % 2) * kOutPixel + 2 * word) =
            pack2<T>(sums[0][j][e], sums[1][j][e]);
    __syncthreads();
    for (int i = tid; i < t.images * t.h * t.w * 2; i += kLastThreads) {
      const int part = i % 2 * 8, line = quotient(t.by_w, i / 2), column = i / 2 - line * t.w;
      const int image = quotient(t.by_h, line), row = at.y + line - image * t.h;
      if (at.n0 + image >= t.n || row >= t.oh || at.x + column >= t.ow || c0 + part >= t.channels) continue;
      uint4 v = *reinterpret_cast<const uint4*>(in + line * kOutRow + column * kOutPixel + part);
      if (column / 2 % 2 == 1) v = uint4{v.y, v.x, v.w, v.z};
      if (column / 4 % 2 == 1) v = uint4{v.z, v.w, v.x, v.y};
      *reinterpret_cast<uint4*>(
          y + ((static_cast<int64_t>(at.n0 + image) * t.oh + row) * t.ow + at.x + column) * t.channels + c0 + part) = v;
    }
  }
}

/// sums[share, channel, tap]: of each share of the tiles.
template <class Of, int K, int kBlocks>
__global__ void __launch_bounds__(kLastThreads, 2)
    last_weight_kernel(const __grid_constant__ LastTiling t, const uint16_t* x, const uint16_t* y, float* sums) {
  using T = typename Of::T;
  constexpr int kChannel = LastTiling::channel_of(kBlocks), kRow = LastTiling::row_of(kBlocks);
  uint16_t* const in = reinterpret_cast<uint16_t*>(shared_memory());  // a row of zeros is the last
  uint16_t* const grads = in + (t.images * t.rows + 1) * kRow;
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32, warp = tid / 32;
  const int share = static_cast<int>(blockIdx.x) / t.groups,
            c0 = (static_cast<int>(blockIdx.x) - share * t.groups) * kLastChannels;
  const int begin = static_cast<int>(static_cast<int64_t>(t.tiles) * share / t.shares),
            end = static_cast<int>(static_cast<int64_t>(t.tiles) * (share + 1) / t.shares);
  for (int i = tid; i < (t.images * t.rows + 1 + 16) * kRow / 8; i += kLastThreads)
    *reinterpret_cast<uint4*>(in + 8 * i) = uint4{0, 0, 0, 0};
  float c[kChannelsOfWarp][K][4];
#pragma unroll
  for (int u = 0; u < kChannelsOfWarp; ++u)
#pragma unroll
    for (int a = 0; a < K; ++a)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[u][a][e] = 0;

  // Rows of gradients and of inputs of this lane's matrices. Where there is no row the gradients are zeros, and so are
  // the inputs.
  const int row = lane % 8 + lane / 16 * 8, image = quotient(t.by_h, row);
  const bool inside = image < t.images;
  const int input_row = inside ? image * t.rows + row - image * t.h : t.images * t.rows;
  const int step = inside ? kRow : 0;
  for (int tile = begin; tile < end; ++tile) {
    const LastTile at = last_tile(t, tile);
    __syncthreads();  // the last tile has been read, or all is clear
    load_pixels<8 * kBlocks + 8, kChannel, kRow, 2>(in, x, t.channels, c0, at.n0, t.n, t.images, t.ih, t.iw,
                                                    at.y - t.ph, at.x - t.pw, t.rows, t.by_image);
    load_pixels<8 * kBlocks, kChannel, kRow, 2>(grads, y, t.channels, c0, at.n0, t.n, t.images, t.oh, t.ow, at.y, at.x,
                                                t.h, t.by_h);
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kChannelsOfWarp; ++u) {
      const int of = warp * kChannelsOfWarp + u;
      const uint16_t* const grad = grads + lane % 16 * kRow + channel_at<kChannel>(of) + lane / 16 * 8;
      const uint16_t* const from = in + input_row * kRow + channel_at<kChannel>(of) + lane / 8 % 2 * 8;
      uint32_t held[K][2];  // the block of columns that the last product shares with the next
#pragma unroll
      for (int a = 0; a < K; ++a) {
        uint32_t r[4];
        load_transposed(r, from + a * step);
        held[a][0] = r[0], held[a][1] = r[2];
      }
#pragma unroll
      for (int j = 0; j < kBlocks; j += 2) {
        const bool two = j + 1 < kBlocks;
        uint32_t b[4];
        load_transposed(b, grad + 8 * j - (two ? 0 : lane / 16 * 8));
#pragma unroll
        for (int a = 0; a < K; ++a) {
          uint32_t r[4];
          load_transposed(r, from + a * step + 8 * j + (two ? 8 : 8 - lane / 8 % 2 * 8));
          const uint32_t left[4] = {held[a][0], r[0], held[a][1], r[2]};
          mma<T>(c[u][a], left, b[0], b[1]);
          if (two) mma<T>(c[u][a], r, b[2], b[3]);
          held[a][0] = r[1], held[a][1] = r[3];
        }
      }
    }
  }
  __syncthreads();
  float* const parts = reinterpret_cast<float*>(in);  // [channel][a][16][8]
#pragma unroll
  for (int u = 0; u < kChannelsOfWarp; ++u)
#pragma unroll
    for (int a = 0; a < K; ++a)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        parts[(((warp * kChannelsOfWarp + u) * K + a) * 16 + lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] =
            c[u][a][e];
  __syncthreads();
  for (int i = tid; i < kLastChannels * K * K; i += kLastThreads) {
    const int of = i / (K * K), a = i / K % K, b = i % K;
    if (c0 + of >= t.channels) continue;
    float total = 0;
    for (int n = 0; n < 8; ++n) total += parts[((of * K + a) * 16 + n + b) * 8 + n];
    sums[(static_cast<int64_t>(share) * t.channels + c0 + of) * K * K + a * K + b] = total;
  }
}

}  // namespace bands
}  // namespace strata::conv_cuda
