// Operands of convolutions on Hopper's tensor cores: written once more with their channels innermost.

#include "strata/cuda/tile/fragment.cuh"
#include "strata/ops/conv/conv.h"
#include "strata/ops/conv/conv_hopper.cuh"

namespace strata::conv_cuda {
namespace {

__device__ __forceinline__ uint16_t prepared(uint16_t v) {
  return v;
}
// The tensor cores would cut the lower bits off.
__device__ __forceinline__ float prepared(float v) {
  return tile::round_tf32(v);
}

// to [n, pixels, groups, padded] from [n, groups, channels, pixels]; zeros in what is padded. A block turns 64 channels
// of 64 pixels around. V: pixels read at once.
constexpr int kTurn = 64;
template <class B, int V>
__global__ void __launch_bounds__(kThreads) turn_kernel(const B* from, B* to, int64_t pixels, int channels, int padded,
                                                        int groups, FastDivisor by_padded, int64_t images) {
  constexpr int kPitch = kTurn + 2;  // rows start in different banks, eight rows a quarter of them apart
  constexpr int kPiece = 16 / sizeof(B);
  __shared__ B tile[kTurn * kPitch];
  const int width = groups * padded, c0 = static_cast<int>(blockIdx.y) * kTurn;
  const int64_t p0 = static_cast<int64_t>(blockIdx.x) * kTurn;
  for (int64_t n = blockIdx.z; n < images; n += gridDim.z) {
    constexpr int kPerRow = kTurn / V;
#pragma unroll
    for (int e = static_cast<int>(threadIdx.x); e < kTurn * kPerRow; e += kThreads) {
      const int c = e / kPerRow, p = e % kPerRow * V;
      const int group = static_cast<int>(by_padded.divide(static_cast<uint32_t>(c0 + c))),
                channel = c0 + c - group * padded;
      Vec<B, V> v;
#pragma unroll
      for (int i = 0; i < V; ++i) v.v[i] = B(0);
      if (c0 + c < width && channel < channels && p0 + p < pixels)
        v = load_vec<V>(from + ((n * groups + group) * channels + channel) * pixels + p0 + p);
#pragma unroll
      for (int i = 0; i < V; ++i) tile[c * kPitch + p + i] = prepared(v.v[i]);
    }
    __syncthreads();
    constexpr int kPieces = kTurn / kPiece;
#pragma unroll
    for (int e = static_cast<int>(threadIdx.x); e < kTurn * kPieces; e += kThreads) {
      // Of a warp four pieces each of eight pixels.
      const int low = e % 32, high = e / 32;
      const int piece = low % 4 + high % (kPieces / 4) * 4, p = low / 4 + high / (kPieces / 4) * 8;
      if (p0 + p >= pixels || c0 + piece * kPiece >= width) continue;
      Vec<B, kPiece> v;
#pragma unroll
      for (int i = 0; i < kPiece; ++i) v.v[i] = tile[(piece * kPiece + i) * kPitch + p];
      store_vec(to + (n * pixels + p0 + p) * width + c0 + piece * kPiece, v);
    }
    __syncthreads();
  }
}

}  // namespace

int pad_channels(int64_t channels, DType t) {
  const int64_t piece = 16 / size_of(t);
  return static_cast<int>((channels + piece - 1) / piece * piece);
}

namespace {
template <class B, int V>
void launch_turn(const void* from, void* to, int64_t images, int groups, int channels, int padded, int64_t pixels) {
  const dim3 grid(blocks_for(pixels, kTurn), blocks_for(int64_t{groups} * padded, kTurn),
                  static_cast<unsigned>(std::min<int64_t>(images, 65535)));
  turn_kernel<B, V><<<grid, kThreads, 0, stream()>>>(static_cast<const B*>(from), static_cast<B*>(to), pixels, channels,
                                                     padded, groups, FastDivisor(static_cast<uint32_t>(padded)),
                                                     images);
}

}  // namespace

Tensor turn(DType t, Device device, const void* from, int64_t images, int64_t groups, int64_t channels,
            int64_t pixels) {
  const int padded = pad_channels(channels, t);
  const Tensor to = workspace(t, device, images * pixels * groups * padded);
  const bool aligned = aligned16(from);
  const auto run = [&](auto launch) {
    launch(from, to.raw_data(), images, static_cast<int>(groups), static_cast<int>(channels), padded, pixels);
  };
  if (t == DType::f32) {
    run(aligned && pixels % 4 == 0 ? launch_turn<float, 4> : launch_turn<float, 1>);
  } else {
    run(aligned && pixels % 8 == 0   ? launch_turn<uint16_t, 8>
        : aligned && pixels % 4 == 0 ? launch_turn<uint16_t, 4>
                                     : launch_turn<uint16_t, 1>);
  }
  return to;
}

namespace {
// to [rows, padded] from [rows, channels]; zeros in what is padded. A thread writes a piece of 16 bytes.
template <class B>
__global__ void __launch_bounds__(kThreads)
    pad_kernel(const B* from, B* to, int64_t total, int channels, int pieces, Divisor by_row) {
  constexpr int kPiece = 16 / sizeof(B);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; e < total; e += step) {
    int64_t piece;
    const int64_t row = by_row.split(e, piece);
    const int first = static_cast<int>(piece) * kPiece;
    const B* const at = from + row * channels + first;
    Vec<B, kPiece> v;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) v.v[i] = first + i < channels ? prepared(at[i]) : B(0);
    store_vec(to + e * kPiece, v);
  }
}

}  // namespace

const void* innermost(DType t, Device device, const void* given, int64_t images, int64_t groups, int64_t channels,
                      int64_t pixels, bool last, Tensor& keep) {
  if (!last) {
    keep = turn(t, device, given, images, groups, channels, pixels);
    return keep.raw_data();
  }
  const int padded = pad_channels(channels, t), pieces = padded / static_cast<int>(16 / size_of(t));
  if (padded == channels && aligned16(given)) return given;
  const int64_t rows = images * pixels * groups;
  keep = workspace(t, device, rows * padded);
  const auto run = [&]<class B>() {
    pad_kernel<B><<<blocks_of(rows * pieces), kThreads, 0, stream()>>>(
        static_cast<const B*>(given), static_cast<B*>(keep.raw_data()), rows * pieces, static_cast<int>(channels),
        pieces, Divisor(pieces));
  };
  t == DType::f32 ? run.template operator()<float>() : run.template operator()<uint16_t>();
  return keep.raw_data();
}

namespace {
// to [filters, taps, padded] from [filters, channels, taps]. A thread writes a piece of 16 bytes; of a warp they lie
// close together in both.
template <class B>
__global__ void __launch_bounds__(kThreads)
    turn_filters_kernel(const B* from, B* to, int64_t pieces, int taps, int channels, int padded, FastDivisor by_tap) {
  constexpr int kPiece = 16 / sizeof(B);
  const int per_tap = padded / kPiece;
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= pieces) return;
  const int64_t o = e / (per_tap * taps);
  const auto rest = static_cast<uint32_t>(e - o * per_tap * taps);
  const int piece = static_cast<int>(by_tap.divide(rest)), tap = static_cast<int>(rest) - piece * taps;
  const B* at = from + (o * channels + piece * kPiece) * taps + tap;
  Vec<B, kPiece> v;
#pragma unroll
  for (int i = 0; i < kPiece; ++i) v.v[i] = piece * kPiece + i < channels ? prepared(at[i * taps]) : B(0);
  store_vec(to + (o * taps + tap) * padded + piece * kPiece, v);
}

}  // namespace

const void* turn_filters(DType t, Device device, const void* given, int64_t oc, int64_t channels, int64_t taps,
                         Tensor& keep) {
  const int padded = pad_channels(channels, t), piece = static_cast<int>(16 / size_of(t));
  if (taps == 1 && padded == channels && t != DType::f32 && aligned16(given)) return given;
  keep = workspace(t, device, oc * taps * padded);
  const int64_t pieces = oc * taps * (padded / piece);
  const FastDivisor by_tap(static_cast<uint32_t>(taps));
  const auto run = [&]<class B>() {
    turn_filters_kernel<B><<<blocks_for(pieces, kThreads), kThreads, 0, stream()>>>(
        static_cast<const B*>(given), static_cast<B*>(keep.raw_data()), pieces, static_cast<int>(taps),
        static_cast<int>(channels), padded, by_tap);
  };
  t == DType::f32 ? run.template operator()<float>() : run.template operator()<uint16_t>();
  return keep.raw_data();
}

bool fits_hopper(const ConvSizes& s, DType t, Device device) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (t == DType::f64 || (t == DType::f32 && !allow_tf32_convolutions())) return false;
  if (properties(device.index).major != 9) return false;
  const int64_t icg = pad_channels(s.ic / s.groups, t), ocg = pad_channels(s.oc / s.groups, t);
  const int64_t taps = s.kh * s.kw;
  const int64_t widest = std::max(icg, ocg);
  if (icg == 0 || ocg == 0 || s.n * s.ih * s.iw * s.oh * s.ow == 0) return false;
  return s.n * s.ih * s.iw < kMost && s.n * s.oh * s.ow < kMost && s.groups < 65536 && taps < 65536 &&
         taps * widest < kMost && s.groups * widest < (int64_t{1} << 22) && s.groups * ((widest + 63) / 64) < 65536 &&
         s.ph + s.ih < kMost / 4 && s.pw + s.iw < kMost / 4 && s.kh * s.dh < kMost / 4 && s.kw * s.dw < kMost / 4;
}

}  // namespace strata::conv_cuda
