#pragma once
// The shares of a sum for the gradient of filters, added up in their order and turned around: taps lie outside of
// channels in the sums and inside in the result.

#include <algorithm>

#include "strata/ops/conv/conv_divisor.cuh"
#include "strata/ops/conv/conv_stage.cuh"

namespace strata::conv_cuda {
using cuda::FastDivisor;

inline constexpr int kTurnThreads = 256, kMostTurnedTaps = 64;

/// How blocks share the channels of a filter: `chunk` of them each, a multiple of 64.
struct TurnedShares {
  const float* sums;  ///< [shares, filters, taps, padded]
  int64_t size;       ///< of a share
  int shares, taps, channels, padded;
  int chunk, chunks, pitch;  ///< pitch: floats from a tap's channels to the next's in shared memory
  FastDivisor by_pieces, by_taps;
  int bytes() const { return taps * pitch * static_cast<int>(sizeof(float)); }
};
/// For at most kMostTurnedTaps taps. A thread has two or three pieces of 16 bytes under way at once: with one element
/// each blocks would mostly wait, in several waves.
inline TurnedShares turned_shares(const float* sums, int shares, int64_t filters, int taps, int channels, int padded) {
  constexpr int kMostElements = 9 * 256;
  const int most = std::max(1, kMostElements / taps / 64) * 64, chunk = std::min(most, (channels + 63) / 64 * 64);
  TurnedShares t{};
  t.sums = sums, t.size = filters * taps * padded;
  t.shares = shares, t.taps = taps, t.channels = channels, t.padded = padded;
  t.chunk = chunk, t.chunks = (channels + chunk - 1) / chunk, t.pitch = chunk + 4;
  t.by_pieces = FastDivisor(static_cast<uint32_t>(chunk / 4)), t.by_taps = FastDivisor(static_cast<uint32_t>(taps));
  return t;
}

/// w[o, c, tap] of T (of Of), V elements written at once: rows of `channels taps` are whole such pieces, and w begins
/// at one. A block has a filter's chunk; `padded` is a multiple of four.
template <class Of, int V>
__global__ void __launch_bounds__(kTurnThreads) turned_shares_kernel(const TurnedShares t, typename Of::T* w) {
  using T = typename Of::T;
  float* const turned = reinterpret_cast<float*>(shared_memory());  // [taps][pitch]
  const int tid = static_cast<int>(threadIdx.x);
  const int64_t o = blockIdx.x / static_cast<unsigned>(t.chunks);
  const int c0 = static_cast<int>(blockIdx.x % static_cast<unsigned>(t.chunks)) * t.chunk;
  const int here = min(t.chunk, t.channels - c0), pieces = t.chunk / 4;
  const float* const from = t.sums + o * t.taps * t.padded + c0;
  for (int i = tid; i < t.taps * pieces; i += kTurnThreads) {
    const int tap = static_cast<int>(t.by_pieces.divide(static_cast<uint32_t>(i))), c = (i - tap * pieces) * 4;
    if (c >= here) continue;
    cuda::Vec<float, 4> total{};
#pragma unroll 4
    for (int s = 0; s < t.shares; ++s) {
      const auto part = cuda::load_vec<4>(from + s * t.size + tap * t.padded + c);
#pragma unroll
      for (int e = 0; e < 4; ++e) total.v[e] += part.v[e];
    }
    cuda::store_vec(turned + tap * t.pitch + c, total);
  }
  __syncthreads();
  T* const to = w + (o * t.channels + c0) * t.taps;
  for (int i = tid * V; i < here * t.taps; i += kTurnThreads * V) {
    cuda::Vec<T, V> v;
#pragma unroll
    for (int e = 0; e < V; ++e) {
      const int c = static_cast<int>(t.by_taps.divide(static_cast<uint32_t>(i + e))), tap = i + e - c * t.taps;
      v.v[e] = cuda::narrow<T>(turned[tap * t.pitch + c]);
    }
    cuda::store_vec(to + i, v);
  }
}

}  // namespace strata::conv_cuda
