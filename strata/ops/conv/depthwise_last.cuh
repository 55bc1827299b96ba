#pragma once
// depthwise_bands.cuh for images whose channels lie innermost, [n, height, width, channels]: a block has 16 channels of
// 16 rows of results (of one image or of several small ones). Pixels come as they lie and are turned around on their way
// into shared memory, where each channel has a plane of its own; results are turned back there. A warp has two of the
// channels, whose band matrices it reads from a table of pairs of neighbouring taps.

#include "strata/cuda/tile/single.cuh"
#include "strata/ops/conv/depthwise_bands.cuh"

namespace strata::conv_cuda {
namespace bands {

inline constexpr int kLastThreads = 256, kLastWarps = kLastThreads / 32, kLastChannels = 16,
                     kChannelsOfWarp = kLastChannels / kLastWarps;
inline constexpr int kPairs = 24;  // of taps that a row of a band has at a distance of -8 .. 15 from its diagonal

/// How images are cut: tiles of h x w results of `images` images, h images <= 16.
struct LastTiling {
  int n, channels, ih, iw, oh, ow, ph, pw;
  int h, w, down, across;  // of a tile, w a multiple of 8; tiles of an image
  int images, rows;        // in a tile; rows of inputs of each
  int pitch, plane;        // elements from a row of inputs to the next, from a channel to the next
  int grad_pitch, grad_plane;
  int out_pitch;  // elements from a row of results to the next; a pixel has kOutPixel
  int groups, tiles, shares;  // of 16 channels; tiles of all images; blocks of a group
  FastDivisor by_image, by_row, by_tile, by_across, by_grad_row, by_h, by_w;

  static constexpr int kOutPixel = kLastChannels + 8;
  __host__ __device__ int table_bytes(int k) const { return kLastChannels * k * kPairs * 4; }
  __host__ __device__ int input_bytes() const { return kLastChannels * plane * 2; }
  int forward_bytes(int k) const {
    const int out = 16 * out_pitch * 2;
    return table_bytes(k) + (input_bytes() > out ? input_bytes() : out);
  }
  int weight_bytes(int k) const {
    const int tiles = input_bytes() + kLastChannels * grad_plane * 2, sums = kLastChannels * k * 16 * 8 * 4;
    return tiles > sums ? tiles : sums;
  }
};

inline LastTiling last_tiling(int64_t n, int64_t channels, int64_t ih, int64_t iw, int64_t oh, int64_t ow, int64_t ph,
                              int64_t pw, int k, int multiprocessors) {
  const auto up = [](int a, int b) { return (a + b - 1) / b; };
  const auto low = [](int a, int b) { return a < b ? a : b; };
  const auto odd = [](int pitch) { return pitch / 8 % 2 == 0 ? pitch + 8 : pitch; };  // rows in different banks
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
  t.pitch = odd(t.w + 8);
  t.plane = (t.images * t.rows + 1) * t.pitch;  // a row of zeros is the last
  t.grad_pitch = t.pitch, t.grad_plane = 16 * t.grad_pitch + 8;
  t.out_pitch = t.w * LastTiling::kOutPixel + 8;
  t.groups = up(t.channels, kLastChannels), t.tiles = up(t.n, t.images) * t.down * t.across;
  t.shares = low(t.tiles, up(3 * multiprocessors, t.groups));
  const auto divisor = [](int d) { return FastDivisor(static_cast<uint32_t>(d)); };
  t.by_image = divisor(t.rows), t.by_row = divisor(t.w + 8), t.by_grad_row = divisor(t.w);
  t.by_tile = divisor(t.down * t.across), t.by_across = divisor(t.across), t.by_h = divisor(t.h), t.by_w = divisor(t.w);
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

/// Pixels of `images` images from row `top` and column `left` on (either may be negative), `rows` x `columns` of each,
/// 16 channels from c0 on, turned around to planes; zeros for what is outside. `by_row` divides by `columns`,
/// `by_image` by `rows`.
__device__ __forceinline__ void load_pixels(uint16_t* to, const uint16_t* from, int channels, int c0, int n0, int n,
                                            int images, int height, int width, int top, int left, int rows, int columns,
                                            int pitch, int plane, const FastDivisor& by_row,
                                            const FastDivisor& by_image) {
  constexpr int kAhead = 4;  // loads under way before the first is stored
  const int all = images * rows * columns * 2;
  for (int begin = static_cast<int>(threadIdx.x); begin < all; begin += kAhead * kLastThreads) {
    uint4 four[kAhead];
    int at[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int i = begin + u * kLastThreads;
      const int half = i % 2 * 8, line = quotient(by_row, i / 2), column = i / 2 - line * columns;
      const int image = quotient(by_image, line), y = top + line - image * rows, x = left + column;
      at[u] = half * plane + line * pitch + column;
      four[u] = uint4{0, 0, 0, 0};
      if (i < all && n0 + image < n && y >= 0 && y < height && x >= 0 && x < width && c0 + half < channels)
        four[u] =
            load_constant(from + ((static_cast<int64_t>(n0 + image) * height + y) * width + x) * channels + c0 + half);
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (begin + u * kLastThreads >= all) break;
      const uint32_t pairs[4] = {four[u].x, four[u].y, four[u].z, four[u].w};
#pragma unroll
      for (int e = 0; e < 8; ++e) to[at[u] + e * plane] = static_cast<uint16_t>(pairs[e / 2] >> (e % 2 * 16));
    }
  }
}

/// `turned`: the filter is read from its end. blockIdx.x: share, group of channels.
template <class Of, int K, int kBlocks>
__global__ void __launch_bounds__(kLastThreads)
    last_forward_kernel(const __grid_constant__ LastTiling t, bool turned, const uint16_t* x, const uint16_t* w,
                        const typename Of::T* bias, uint16_t* y) {
  using T = typename Of::T;
  uint32_t* const table = reinterpret_cast<uint32_t*>(shared_memory());  // [channel][row of the filter][kPairs]
  uint16_t* const in = reinterpret_cast<uint16_t*>(shared_memory() + t.table_bytes(K));
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
  for (int i = tid; i < t.input_bytes() / 16; i += kLastThreads)
    *reinterpret_cast<uint4*>(reinterpret_cast<uint8_t*>(in) + 16 * i) = uint4{0, 0, 0, 0};

  // This lane's row of a product, and where its inputs begin.
  const int image_of_lane = quotient(t.by_h, lane % 16), inside = image_of_lane < t.images;
  const int row_of_lane = inside ? image_of_lane * t.rows + lane % 16 - image_of_lane * t.h : 0;
  for (int tile = begin; tile < end; ++tile) {
    const LastTile at = last_tile(t, tile);
    __syncthreads();  // the last tile's results have been read, or all is prepared
    load_pixels(in, x, t.channels, c0, at.n0, t.n, t.images, t.ih, t.iw, at.y - t.ph, at.x - t.pw, t.rows, t.w + 8,
                t.pitch, t.plane, t.by_row, t.by_image);
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
      const uint32_t* pairs = table + c * K * kPairs + 8 + lane % 4 * 2 - lane / 4;
      const uint16_t* from = in + c * t.plane + row_of_lane * t.pitch + lane / 16 * 8;
#pragma unroll
      for (int a = 0; a < K; ++a, from += t.pitch, pairs += kPairs) {
        const uint32_t low = pairs[0], high = pairs[8];
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
#pragma unroll
    for (int u = 0; u < kChannelsOfWarp; ++u)
#pragma unroll
      for (int j = 0; j < kBlocks; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const uint32_t two = pack2<T>(sums[u][j][2 * half], sums[u][j][2 * half + 1]);
          uint16_t* const to = in + (lane / 4 + 8 * half) * t.out_pitch +
                               (8 * j + lane % 4 * 2) * LastTiling::kOutPixel + warp * kChannelsOfWarp + u;
          to[0] = static_cast<uint16_t>(two), to[LastTiling::kOutPixel] = static_cast<uint16_t>(two >> 16);
        }
    __syncthreads();
    for (int i = tid; i < t.images * t.h * t.w * 2; i += kLastThreads) {
      const int part = i % 2 * 8, line = quotient(t.by_w, i / 2), column = i / 2 - line * t.w;
      const int image = quotient(t.by_h, line), row = at.y + line - image * t.h;
      if (at.n0 + image >= t.n || row >= t.oh || at.x + column >= t.ow || c0 + part >= t.channels) continue;
      *reinterpret_cast<uint4*>(
          y + ((static_cast<int64_t>(at.n0 + image) * t.oh + row) * t.ow + at.x + column) * t.channels + c0 + part) =
          *reinterpret_cast<const uint4*>(in + line * t.out_pitch + column * LastTiling::kOutPixel + part);
    }
  }
}

/// sums[share, channel, tap]: of each share of the tiles.
template <class Of, int K>
__global__ void __launch_bounds__(kLastThreads)
    last_weight_kernel(const __grid_constant__ LastTiling t, const uint16_t* x, const uint16_t* y, float* sums) {
  using T = typename Of::T;
  uint16_t* const in = reinterpret_cast<uint16_t*>(shared_memory());
  uint16_t* const grads = in + kLastChannels * t.plane;
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32, warp = tid / 32;
  const int share = static_cast<int>(blockIdx.x) / t.groups,
            c0 = (static_cast<int>(blockIdx.x) - share * t.groups) * kLastChannels;
  const int begin = static_cast<int>(static_cast<int64_t>(t.tiles) * share / t.shares),
            end = static_cast<int>(static_cast<int64_t>(t.tiles) * (share + 1) / t.shares);
  for (int i = tid; i < kLastChannels * (t.plane + t.grad_plane) / 8; i += kLastThreads)
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
  const int step = inside ? t.pitch : 0;
  for (int tile = begin; tile < end; ++tile) {
    const LastTile at = last_tile(t, tile);
    __syncthreads();  // the last tile has been read, or all is clear
    load_pixels(in, x, t.channels, c0, at.n0, t.n, t.images, t.ih, t.iw, at.y - t.ph, at.x - t.pw, t.rows, t.w + 8,
                t.pitch, t.plane, t.by_row, t.by_image);
    load_pixels(grads, y, t.channels, c0, at.n0, t.n, t.images, t.oh, t.ow, at.y, at.x, t.h, t.w, t.grad_pitch,
                t.grad_plane, t.by_grad_row, t.by_h);
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kChannelsOfWarp; ++u) {
      const int of = warp * kChannelsOfWarp + u;
      const uint16_t* grad = grads + of * t.grad_plane + lane % 16 * t.grad_pitch + lane / 16 * 8;
      const uint16_t* const from = in + of * t.plane + input_row * t.pitch + lane / 8 % 2 * 8;
      uint32_t held[K][2];  // the block of columns that the last product shares with the next
#pragma unroll
      for (int a = 0; a < K; ++a) {
        uint32_t r[4];
        load_transposed(r, from + a * step);
        held[a][0] = r[0], held[a][1] = r[2];
      }
      for (int j = 0; j < t.w / 8; j += 2, grad += 16) {
        const bool two = j + 1 < t.w / 8;
        uint32_t b[4];
        load_transposed(b, two ? grad : grad - lane / 16 * 8);
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
