#pragma once
// Depthwise convolutions of 16 bits as products of matrices (mma.sync), for square filters of 3, 5 or 7 that move by
// one. Of a channel's images, a row a of the filter is a band matrix: the results' columns 8 j .. 8 j + 7 take the
// inputs' columns 8 j .. 8 j + 15 (from the padding on), so that
//
//   y[16 rows][8] += x[16 rows, a further][16] times band[16][8],   band[k][n] = w[a][k - n],
//
// sums over the filter's rows in f32 registers. Half of the products are by zeros; the cores make them so fast that
// what the memory brings is waited for. The gradient of the filter sums over rows instead,
//
//   C[16][8] += x[16 rows, a further][16]^T times gy[16 rows][8],   dw[a][b] = the sum of C[n + b][n] over n,
//
// with one C for each a, of all columns, rows and images. The rows of a product are those of several images where these
// are small: matrices in shared memory are read by rows, wherever each lies.

#include "strata/cuda/tile/fragment.cuh"
#include "strata/ops/conv/conv_divisor.cuh"
#include "strata/ops/conv/conv_kernels.h"

namespace strata::conv_cuda {
namespace bands {

using namespace cuda::tile;
using cuda::FastDivisor;

inline constexpr int kBandThreads = 128, kBandWarps = kBandThreads / 32;

/// How a channel's planes are cut into tiles of results, of `images` planes at once.
struct BandTiling {
  int n, channels, ih, iw, oh, ow, ph, pw;
  int h, w, down, across;          // of a tile; tiles of a plane. w is a multiple of 8
  int rows, pitch;                 // of a tile's inputs in shared memory; elements from a row to the next
  int grad_rows, grad_pitch;       // of the results' gradients of all images: a multiple of 16
  int images, shares;              // at once; blocks of a channel
  int load_rows, vector, vectors;  // rows of inputs that are read; elements of a vector, vectors of a row
  int grad_vector, grad_vectors;   // the same of gradients
  FastDivisor by_image, by_row, by_vector, by_grad_image, by_grad_vector;

  __host__ __device__ int input_elements() const { return (images * rows + 1) * pitch; }  // a row of zeros is the last
  __host__ __device__ int forward_bytes() const { return 2 * input_elements(); }
  __host__ __device__ int weight_bytes(int k) const {
    const int tiles = 2 * (input_elements() + grad_rows * grad_pitch), sums = kBandWarps * k * 16 * 8 * 4;
    return tiles > sums ? tiles : sums;
  }
};

/// Elements that can be read at once of rows of `width` elements from `p` on.
inline int vector_of(int64_t width, const void* p) {
  for (const int v : {4, 2})
    if (width % v == 0 && reinterpret_cast<uintptr_t>(p) % (2 * static_cast<uintptr_t>(v)) == 0) return v;
  return 1;
}

/// Columns of a tile, in blocks of 8, that a kernel is built for.
inline constexpr int kBandBlocks[] = {1, 2, 4, 7};

/// For results [n, channels, oh, ow] of inputs `x` [n, channels, ih, iw] with zeros around, gradients `y` (or null), on
/// so many multiprocessors.
inline BandTiling band_tiling(int64_t n, int64_t channels, int64_t ih, int64_t iw, int64_t oh, int64_t ow, int64_t ph,
                              int64_t pw, int k, const void* x, const void* y, int multiprocessors) {
  const auto up = [](int a, int b) { return (a + b - 1) / b; };
  const auto low = [](int a, int b) { return a < b ? a : b; };
  const auto odd = [](int pitch) { return pitch / 8 % 2 == 0 ? pitch + 8 : pitch; };  // rows in different banks
  BandTiling t{};
  t.n = static_cast<int>(n), t.channels = static_cast<int>(channels);
  t.ih = static_cast<int>(ih), t.iw = static_cast<int>(iw), t.oh = static_cast<int>(oh), t.ow = static_cast<int>(ow);
  t.ph = static_cast<int>(ph), t.pw = static_cast<int>(pw);
  t.down = up(t.oh, 64), t.across = up(t.ow, 56);
  t.h = up(t.oh, t.down), t.w = up(up(t.ow, t.across), 8) * 8;
  for (const int blocks : kBandBlocks) {
    if (8 * blocks < t.w) continue;
    t.w = 8 * blocks;
    break;
  }
  t.across = up(t.ow, t.w);
  t.rows = t.h + k - 1, t.pitch = odd(t.w + 8);
  t.images = low(t.n, t.h < 64 ? 64 / t.h : 1);
  t.grad_rows = up(t.images * t.h, 16) * 16, t.grad_pitch = odd(t.w + 8);
  t.shares = low(up(t.n, t.images), up(8 * multiprocessors, t.channels));
  t.load_rows = low(t.ih, t.rows);
  t.vector = vector_of(iw, x), t.grad_vector = vector_of(ow, y);
  t.vectors = low(up(t.iw, t.vector), (t.w + k - 1) / t.vector + 2);
  t.grad_vectors = low(up(t.ow, t.grad_vector), t.w / t.grad_vector + 1);
  t.by_image = FastDivisor(static_cast<uint32_t>(t.load_rows * t.vectors));
  t.by_vector = FastDivisor(static_cast<uint32_t>(t.vectors));
  t.by_row = FastDivisor(static_cast<uint32_t>(t.h));
  t.by_grad_image = FastDivisor(static_cast<uint32_t>(t.h * t.grad_vectors));
  t.by_grad_vector = FastDivisor(static_cast<uint32_t>(t.grad_vectors));
  return t;
}

template <int V>
struct alignas(2 * V) Raw {
  uint16_t v[V];
};

__device__ __forceinline__ void clear(uint16_t* to, int bytes) {
  for (int i = static_cast<int>(threadIdx.x) * 16; i < bytes; i += kBandThreads * 16)
    *reinterpret_cast<uint4*>(reinterpret_cast<uint8_t*>(to) + i) = uint4{0, 0, 0, 0};
}

/// Columns from `left` on and rows from `top` on (either may be negative) of `images` planes, `step` elements apart, of
/// height x width to rows of `pitch` in shared memory, `rows` of them an image; those outside of a plane stay as they
/// are, planes from `there` on are zeros.
template <int V>
__device__ __forceinline__ void load_planes(uint16_t* to, const uint16_t* from, int64_t step, int images, int there,
                                            int height, int width, int top, int left, int rows, int pitch, int columns,
                                            int load_rows, int vectors, const FastDivisor& by_image,
                                            const FastDivisor& by_vector) {
  constexpr int kAhead = 4;  // loads under way before the first is stored; with 8, 1.1 to 1.9 times as long
  const int first = top > 0 ? top : 0, column0 = left > 0 ? left / V * V : 0, all = images * load_rows * vectors;
  for (int begin = static_cast<int>(threadIdx.x); begin < all; begin += kAhead * kBandThreads) {
    Raw<V> raw[kAhead];
    int line[kAhead], shift[kAhead];  // a row's place in shared memory, or none; the first element's column there
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int i = begin + u * kBandThreads;
      const int g = static_cast<int>(by_image.divide(static_cast<uint32_t>(i))), at = i - g * load_rows * vectors;
      const int r = static_cast<int>(by_vector.divide(static_cast<uint32_t>(at)));
      const int y = first + r, x = column0 + (at - r * vectors) * V;
      const bool inside = i < all && y < height && y - top < rows && x < width;
      line[u] = inside ? (g * rows + y - top) * pitch : -1, shift[u] = x - left;
      raw[u] = Raw<V>{};
      if (inside && g < there)
        raw[u] = *reinterpret_cast<const Raw<V>*>(from + g * step + static_cast<int64_t>(y) * width + x);
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (line[u] < 0) continue;
#pragma unroll
      for (int e = 0; e < V; ++e)
        if (shift[u] + e >= 0 && shift[u] + e < columns) to[line[u] + shift[u] + e] = raw[u].v[e];
    }
  }
}
/// The same with as many at once as `vector` says.
template <class... A>
__device__ __forceinline__ void load_by(int vector, const A&... a) {
  if (vector == 4) return load_planes<4>(a...);
  if (vector == 2) return load_planes<2>(a...);
  load_planes<1>(a...);
}

/// Inputs of the tile at (y, x) of images n0 on.
__device__ __forceinline__ void load_inputs(const BandTiling& t, uint16_t* to, const uint16_t* x, int channel, int n0,
                                            int end, int ty, int tx) {
  const int64_t plane = static_cast<int64_t>(t.ih) * t.iw;
  load_by(t.vector, to, x + (static_cast<int64_t>(n0) * t.channels + channel) * plane, t.channels * plane, t.images,
          end - n0, t.ih, t.iw, ty - t.ph, tx - t.pw, t.rows, t.pitch, t.pitch, t.load_rows, t.vectors, t.by_image,
          t.by_vector);
}

/// `turned`: the filter is read from its end, which makes this the transpose of itself. blockIdx.x: channel.
template <class Of, int K, int kBlocks>
__global__ void __launch_bounds__(kBandThreads)
    band_forward_kernel(const __grid_constant__ BandTiling t, bool turned, const uint16_t* x, const uint16_t* w,
                        const typename Of::T* bias, uint16_t* y) {
  using T = typename Of::T;
  uint16_t* const in = reinterpret_cast<uint16_t*>(shared_memory());
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int channel = static_cast<int>(blockIdx.x) % t.channels, share = static_cast<int>(blockIdx.x) / t.channels;
  const int begin = static_cast<int>(static_cast<int64_t>(t.n) * share / t.shares),
            end = static_cast<int>(static_cast<int64_t>(t.n) * (share + 1) / t.shares);

  uint32_t band[K][2];  // of each row of the filter, as mma's second operand
#pragma unroll
  for (int a = 0; a < K; ++a) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t pair = 0;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int b = lane % 4 * 2 + e + 8 * half - lane / 4, tap = a * K + b;
        if (b >= 0 && b < K)
          pair |= static_cast<uint32_t>(w[channel * K * K + (turned ? K * K - 1 - tap : tap)]) << (16 * e);
      }
      band[a][half] = pair;
    }
  }
  const float add = bias != nullptr ? cuda::widen(bias[channel]) : 0.f;
  const bool whole = t.down * t.across == 1, pairs = t.ow % 2 == 0 && reinterpret_cast<uintptr_t>(y) % 4 == 0;
  const int64_t plane = static_cast<int64_t>(t.oh) * t.ow;
  clear(in, t.forward_bytes());
  for (int n0 = begin; n0 < end; n0 += t.images) {
    for (int tile = 0; tile < t.down * t.across; ++tile) {
      const int ty = tile / t.across * t.h, tx = tile % t.across * t.w;
      __syncthreads();  // the last tile has been read, or all is clear
      if (!whole && (tile > 0 || n0 > begin)) {
        clear(in, t.forward_bytes());
        __syncthreads();
      }
      load_inputs(t, in, x, channel, n0, end, ty, tx);
      __syncthreads();
      for (int m = warp * 16; m < t.images * t.h; m += kBandWarps * 16) {
        // The row of inputs of this lane's row of the product.
        const int row = m + lane % 16, g = static_cast<int>(t.by_row.divide(static_cast<uint32_t>(row)));
        const bool inside = g < t.images;
        const uint16_t* from = in + (inside ? g * t.rows + row - g * t.h : 0) * t.pitch + lane / 16 * 8;
        float sums[kBlocks][4];
#pragma unroll
        for (int j = 0; j < kBlocks; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[j][e] = add;
#pragma unroll
        for (int a = 0; a < K; ++a, from += t.pitch) {
          uint32_t now[4], next[4];
          load_matrices(now, from);
#pragma unroll
          for (int j = 0; j < kBlocks; j += 2) {
            mma<T>(sums[j], now, band[a][0], band[a][1]);
            if (j + 1 == kBlocks) break;
            // Columns 8 j + 16 on; of the last two blocks only the first is within.
            load_matrices(next, from + (j + 2 < kBlocks ? 8 * j + 16 : 8 * j + 16 - lane / 16 * 8));
            const uint32_t between[4] = {now[2], now[3], next[0], next[1]};
            mma<T>(sums[j + 1], between, band[a][0], band[a][1]);
#pragma unroll
            for (int e = 0; e < 4; ++e) now[e] = next[e];
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = m + lane / 4 + 8 * half, image = static_cast<int>(t.by_row.divide(static_cast<uint32_t>(at)));
          const int i = ty + at - image * t.h;
          if (image >= t.images || n0 + image >= end || i >= t.oh) continue;
          uint16_t* const line = y + (static_cast<int64_t>(n0 + image) * t.channels + channel) * plane + i * t.ow;
#pragma unroll
          for (int j = 0; j < kBlocks; ++j) {
            const int c = tx + 8 * j + lane % 4 * 2;
            const uint32_t two = pack2<T>(sums[j][2 * half], sums[j][2 * half + 1]);
            if (pairs && c < t.ow) {
              *reinterpret_cast<uint32_t*>(line + c) = two;
            } else {
              if (c < t.ow) line[c] = static_cast<uint16_t>(two);
              if (c + 1 < t.ow) line[c + 1] = static_cast<uint16_t>(two >> 16);
            }
          }
        }
      }
    }
  }
}

/// sums[share, channel, tap]: of each share of the images.
template <class Of, int K>
__global__ void __launch_bounds__(kBandThreads)
    band_weight_kernel(const __grid_constant__ BandTiling t, const uint16_t* x, const uint16_t* y, float* sums) {
  using T = typename Of::T;
  uint16_t* const in = reinterpret_cast<uint16_t*>(shared_memory());
  uint16_t* const grads = in + t.input_elements();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int channel = static_cast<int>(blockIdx.x) % t.channels, share = static_cast<int>(blockIdx.x) / t.channels;
  const int begin = static_cast<int>(static_cast<int64_t>(t.n) * share / t.shares),
            end = static_cast<int>(static_cast<int64_t>(t.n) * (share + 1) / t.shares);
  const int64_t plane = static_cast<int64_t>(t.oh) * t.ow;
  const int all_bytes = 2 * (t.input_elements() + t.grad_rows * t.grad_pitch);
  const bool whole = t.down * t.across == 1;
  float c[K][4];
#pragma unroll
  for (int a = 0; a < K; ++a)
#pragma unroll
    for (int e = 0; e < 4; ++e) c[a][e] = 0;
  clear(in, all_bytes);
  for (int n0 = begin; n0 < end; n0 += t.images) {
    for (int tile = 0; tile < t.down * t.across; ++tile) {
      const int ty = tile / t.across * t.h, tx = tile % t.across * t.w;
      __syncthreads();  // the last tile has been read, or all is clear
      if (!whole && (tile > 0 || n0 > begin)) {
        clear(in, all_bytes);
        __syncthreads();
      }
      load_inputs(t, in, x, channel, n0, end, ty, tx);
      load_by(t.grad_vector, grads, y + (static_cast<int64_t>(n0) * t.channels + channel) * plane, t.channels * plane,
              t.images, end - n0, t.oh, t.ow, ty, tx, t.h, t.grad_pitch, t.w, t.h, t.grad_vectors, t.by_grad_image,
              t.by_grad_vector);
      __syncthreads();
      for (int m = warp * 16; m < t.grad_rows; m += kBandWarps * 16) {
        // Rows of gradients and of inputs of this lane's matrices: rows 0 .. 7 and 8 .. 15, two blocks of columns each.
        const int grad_row = m + lane % 16;
        const uint16_t* grad = grads + grad_row * t.grad_pitch + lane / 16 * 8;
        const int row = m + lane % 8 + lane / 16 * 8, g = static_cast<int>(t.by_row.divide(static_cast<uint32_t>(row)));
        // Where there is no image the gradients are zeros, and so are inputs.
        const bool inside = g < t.images;
        const uint16_t* const from =
            in + (inside ? g * t.rows + row - g * t.h : t.images * t.rows) * t.pitch + lane / 8 % 2 * 8;
        const int step = inside ? t.pitch : 0;
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
            mma<T>(c[a], left, b[0], b[1]);
            if (two) mma<T>(c[a], r, b[2], b[3]);
            held[a][0] = r[1], held[a][1] = r[3];
          }
        }
      }
    }
  }
  __syncthreads();
  float* const parts = reinterpret_cast<float*>(in);  // [warp][a][16][8]
#pragma unroll
  for (int a = 0; a < K; ++a)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      parts[((warp * K + a) * 16 + lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] = c[a][e];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < K * K; i += kBandThreads) {
    const int a = i / K, b = i % K;
    float total = 0;
    for (int k = 0; k < kBandWarps; ++k)
      for (int n = 0; n < 8; ++n) total += parts[((k * K + a) * 16 + n + b) * 8 + n];
    sums[(static_cast<int64_t>(share) * t.channels + channel) * K * K + i] = total;
  }
}

}  // namespace bands
}  // namespace strata::conv_cuda
