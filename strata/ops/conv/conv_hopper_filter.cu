// The gradient of a convolution's filters on Hopper's tensor cores: a sum over pixels, a share of them for each block;
// the shares are added up in order.

#include "strata/ops/conv/conv_choice_cuda.h"
#include "strata/ops/conv/conv_hopper.cuh"

namespace strata::conv_cuda {
namespace {

// sums[share, group, m, (tap, c)] = the sum over a share's pixels (n, i, j) of y[n, (i, j), group, m]
// x[n, i step_h + a dilation_h - pad_h, j step_w + b dilation_w - pad_w, group, c].
struct FilterSum {
  const void *x, *y;
  float* sums;
  int height, width, rows, cols, total;  // of x, of y, n * rows * cols
  int m, m_padded, channels, groups;     // channels are padded
  int taps, kernel_w, columns;           // columns = taps * channels
  int step_h, step_w, pad_h, pad_w, dilation_h, dilation_w;
  int blocks, shares;  // blocks of 64 pixels
  FastDivisor by_plane, by_col, by_channels, by_kernel_w;
};

template <class T, int Warpgroups>
__global__ void __launch_bounds__(128 * Warpgroups) filter_kernel(const FilterSum g) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kM = 64 * Warpgroups, kPiece = 8, kPixels = 64, kHalf = kPixels * kRowBytes;  // 64 pixels of 64 columns
  constexpr int kPiecesA = kM / kPiece, kStepA = 128 * Warpgroups / kPiecesA;
  constexpr int kPiecesB = kBlockN / kPiece, kStepB = 128 * Warpgroups / kPiecesB;
  extern __shared__ uint8_t raw[];
  const uint32_t base = (shared_address(raw) + 1023) & ~1023u;
  const int tid = static_cast<int>(threadIdx.x);
  const int tiles_m = (g.m + kM - 1) / kM;
  const int m0 = static_cast<int>(blockIdx.y) % tiles_m * kM, group = static_cast<int>(blockIdx.y) / tiles_m;
  const int n0 = static_cast<int>(blockIdx.x) * kBlockN, share = static_cast<int>(blockIdx.z);
  const int begin = static_cast<int>(static_cast<int64_t>(g.blocks) * share / g.shares),
            end = static_cast<int>(static_cast<int64_t>(g.blocks) * (share + 1) / g.shares);

  // The columns of this thread's pieces never change.
  const int piece_a = tid % kPiecesA, piece_b = tid % kPiecesB;
  const bool valid_a = m0 + piece_a * kPiece < g.m_padded;
  const int column = n0 + piece_b * kPiece, y_width = g.groups * g.m_padded, x_width = g.groups * g.channels;
  const bool valid_b = column < g.columns;
  const int tap = static_cast<int>(g.by_channels.divide(static_cast<uint32_t>(column)));
  const int a = static_cast<int>(g.by_kernel_w.divide(static_cast<uint32_t>(tap))), b = tap - a * g.kernel_w;
  const int down = a * g.dilation_h - g.pad_h, right = b * g.dilation_w - g.pad_w;
  const T* const y = static_cast<const T*>(g.y) + group * g.m_padded + m0 + piece_a * kPiece;
  const T* const x = static_cast<const T*>(g.x) + group * g.channels + column - tap * g.channels;
  constexpr int kStage = (kM + kBlockN) * kRowBytes;

  // Where the pixels of a block lie in x, for this block and the next: {pixel, row, column}.
  __shared__ int4 places[2][kPixels];
  const auto locate = [&](int block) {
    if (tid >= kPixels || block >= end) return;
    const int p = block * kPixels + tid;
    const int n = static_cast<int>(g.by_plane.divide(static_cast<uint32_t>(p))), rest = p - n * g.rows * g.cols;
    const int i = static_cast<int>(g.by_col.divide(static_cast<uint32_t>(rest))), j = rest - i * g.cols;
    const int top = i * g.step_h, left = j * g.step_w;
    places[block & 1][tid] = {(n * g.height + top) * g.width + left, p < g.total ? top : -(1 << 30), left, 0};
  };
  const int shift = down * g.width + right;

  const auto load = [&](int block, int stage) {
    const uint32_t a_at = base + static_cast<uint32_t>(stage * kStage), b_at = a_at + kM * kRowBytes;
#pragma unroll
    for (int r = 0; r < kPixels / kStepA; ++r) {
      const int row = tid / kPiecesA + r * kStepA, p = block * kPixels + row;
      copy_async(a_at + static_cast<uint32_t>(piece_a / 8 * kHalf) + swizzled(row, piece_a % 8),
                 y + static_cast<int64_t>(p) * y_width, valid_a && p < g.total);
    }
#pragma unroll
    for (int r = 0; r < kPixels / kStepB; ++r) {
      const int row = tid / kPiecesB + r * kStepB;
      const int4 place = places[block & 1][row];
      const bool inside = static_cast<unsigned>(place.y + down) < static_cast<unsigned>(g.height) &&
                          static_cast<unsigned>(place.z + right) < static_cast<unsigned>(g.width);
      copy_async(b_at + static_cast<uint32_t>(piece_b / 8 * kHalf) + swizzled(row, piece_b % 8),
                 x + static_cast<int64_t>(place.x + shift) * x_width, valid_b && inside);
    }
  };

  float sums[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = 0;
  const int warpgroup = tid / 128;
  static_assert(kStages == 3);
  locate(begin);
  locate(begin + 1);
  __syncthreads();
  for (int s = 0; s < kStages - 1; ++s) {
    if (begin + s < end) load(begin + s, s);
    commit_copies();
  }
  __syncthreads();
  locate(begin + 2);
  for (int block = begin, stage = 0; block < end; ++block) {
    copy_wait<kStages - 2>();
    __syncthreads();
    const uint32_t a_at = base + static_cast<uint32_t>(stage * kStage), b_at = a_at + kM * kRowBytes;
    fence_products();
#pragma unroll
    for (int k = 0; k < 4; ++k)  // 16 pixels each
      multiply<T, true, true>(sums,
                              descriptor_t(a_at + static_cast<uint32_t>(warpgroup * kHalf + k * 16 * kRowBytes), kHalf),
                              descriptor_t(b_at + static_cast<uint32_t>(k * 16 * kRowBytes), kHalf), 1);
    commit_products();
    const int next = block + kStages - 1;
    locate(next + 1);  // read after the next barrier; its place was read before this one
    if (next < end) load(next, stage == 0 ? kStages - 1 : stage - 1);
    commit_copies();
    wait_products<0>();
    pin(sums);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }

  write_sums(sums, g.sums + (static_cast<int64_t>(share) * g.groups + group) * g.m * g.columns, g.m, g.columns,
             m0 + warpgroup * 64, n0);
#endif
}

// sums[share, group, m, c] = the sum over a share's images and pixels of y[n, group, m, pixel] x[n, group, c, pixel]:
// the gradient of filters of 1 x 1 that move by one, whose operands are taken as they lie.
struct PlaneSum {
  const void *x, *y;
  float* sums;
  int plane, m, channels, columns, groups;  // columns: channels, padded
  int blocks, shares;                       // blocks of 128 bytes of a plane, of all images
  FastDivisor by_image;                     // blocks of an image
};

template <class T, int Warpgroups>
__global__ void __launch_bounds__(128 * Warpgroups) plane_kernel(const PlaneSum g) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kM = 64 * Warpgroups, kPiece = 16 / sizeof(T), kRowStep = 16 * Warpgroups;
  constexpr int kRowsA = kM / kRowStep, kRowsB = kBlockN / kRowStep;
  extern __shared__ uint8_t raw[];
  const uint32_t base = (shared_address(raw) + 1023) & ~1023u;
  const int tid = static_cast<int>(threadIdx.x), piece = tid % 8, row0 = tid / 8;
  const int tiles_m = (g.m + kM - 1) / kM;
  const int m0 = static_cast<int>(blockIdx.y) % tiles_m * kM, group = static_cast<int>(blockIdx.y) / tiles_m;
  const int n0 = static_cast<int>(blockIdx.x) * kBlockN, share = static_cast<int>(blockIdx.z);
  const int begin = static_cast<int>(static_cast<int64_t>(g.blocks) * share / g.shares),
            end = static_cast<int>(static_cast<int64_t>(g.blocks) * (share + 1) / g.shares);
  const T* const y = static_cast<const T*>(g.y) + (static_cast<int64_t>(group) * g.m + m0 + row0) * g.plane;
  const T* const x = static_cast<const T*>(g.x) + (static_cast<int64_t>(group) * g.channels + n0 + row0) * g.plane;

  const auto load = [&](int block, int stage) {
    const uint32_t a_at = base + static_cast<uint32_t>(stage * stage_bytes<Warpgroups>()), b_at = a_at + kM * kRowBytes;
    const int n = static_cast<int>(g.by_image.divide(static_cast<uint32_t>(block)));
    const int p = ((block - n * static_cast<int>(g.by_image.d)) * 8 + piece) * kPiece;
    const T* const a = y + static_cast<int64_t>(n) * g.groups * g.m * g.plane + p;
    const T* const b = x + static_cast<int64_t>(n) * g.groups * g.channels * g.plane + p;
#pragma unroll
    for (int r = 0; r < kRowsA; ++r)
      copy_async(a_at + swizzled(row0 + r * kRowStep, piece), a + static_cast<int64_t>(r * kRowStep) * g.plane,
                 p < g.plane && m0 + row0 + r * kRowStep < g.m);
#pragma unroll
    for (int r = 0; r < kRowsB; ++r)
      copy_async(b_at + swizzled(row0 + r * kRowStep, piece), b + static_cast<int64_t>(r * kRowStep) * g.plane,
                 p < g.plane && n0 + row0 + r * kRowStep < g.channels);
  };

  float sums[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = 0;
  const int warpgroup = tid / 128;
  for (int s = 0; s < kStages - 1; ++s) {
    if (begin + s < end) load(begin + s, s);
    commit_copies();
  }
  for (int block = begin, stage = 0; block < end; ++block) {
    copy_wait<kStages - 2>();
    __syncthreads();
    const uint32_t a_at = base + static_cast<uint32_t>(stage * stage_bytes<Warpgroups>()), b_at = a_at + kM * kRowBytes;
    multiply_stage<T>(sums, a_at + static_cast<uint32_t>(warpgroup * 64 * kRowBytes), b_at);
    const int next = block + kStages - 1;
    if (next < end) load(next, stage == 0 ? kStages - 1 : stage - 1);
    commit_copies();
    wait_products<0>();
    pin(sums);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  write_sums(sums, g.sums + (static_cast<int64_t>(share) * g.groups + group) * g.m * g.columns, g.m, g.columns,
             m0 + warpgroup * 64, n0);
#endif
}

// sums[share, group, m, (tap, c)] as filter_kernel's, of f32 operands as they lie, rounded to TF32: the tensor cores
// have no transposed form for these, so that rows are along pixels, and a window's shift by a pixel is one by four
// bytes.
struct WindowSum {
  const float *x, *y;
  float* sums;
  int height, width, plane, cols;            // of x, of y
  int m, channels, padded, columns, groups;  // columns = taps * padded
  int kernel_w, step_h, step_w, pad_h, pad_w, dilation_h, dilation_w;
  int blocks, shares;  // blocks of 32 pixels of an image, of all images
  bool pieces;         // y's planes are whole pieces of 16 bytes
  FastDivisor by_image, by_col, by_padded, by_kernel_w;
};

// One f32 at a time: what is read need not begin at 16 bytes. Zero where `valid` is false.
[[maybe_unused]] __device__ __forceinline__ void copy_one(uint32_t to, const float* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid ? 4 : 0) : "memory");
}

template <int Warpgroups>
__global__ void __launch_bounds__(128 * Warpgroups) window_kernel(const WindowSum g) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kM = 64 * Warpgroups, kWarps = 4 * Warpgroups, kPixels = 32, kRowStep = 16 * Warpgroups;
  constexpr int kNowhere = -(1 << 30);  // added to a row or not, no row of an image
  extern __shared__ uint8_t raw[];
  const uint32_t base = (shared_address(raw) + 1023) & ~1023u;
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32, warp = tid / 32;
  const int tiles_m = (g.m + kM - 1) / kM;
  const int m0 = static_cast<int>(blockIdx.y) % tiles_m * kM, group = static_cast<int>(blockIdx.y) / tiles_m;
  const int n0 = static_cast<int>(blockIdx.x) * kBlockN, share = static_cast<int>(blockIdx.z);
  const int begin = static_cast<int>(static_cast<int64_t>(g.blocks) * share / g.shares),
            end = static_cast<int>(static_cast<int64_t>(g.blocks) * (share + 1) / g.shares);
  const int area = g.height * g.width;
  const float* const y = g.y + (static_cast<int64_t>(group) * g.m + m0) * g.plane;
  const float* const x = g.x + static_cast<int64_t>(group) * g.channels * area;

  // Of each column: elements from an output's place to its input's in its channel, rows down, columns to the right.
  __shared__ int4 windows[kBlockN];
  if (tid < kBlockN) {
    const int column = n0 + tid, tap = static_cast<int>(g.by_padded.divide(static_cast<uint32_t>(column)));
    const int c = column - tap * g.padded, a = static_cast<int>(g.by_kernel_w.divide(static_cast<uint32_t>(tap)));
    const int down = a * g.dilation_h - g.pad_h, right = (tap - a * g.kernel_w) * g.dilation_w - g.pad_w;
    const bool valid = column < g.columns && c < g.channels;
    windows[tid] = {valid ? c * area + down * g.width + right : 0, valid ? down : kNowhere, right, 0};
  }
  __syncthreads();

  const auto load = [&](int block, int stage) {
    const uint32_t a_at = base + static_cast<uint32_t>(stage * stage_bytes<Warpgroups>()), b_at = a_at + kM * kRowBytes;
    const int n = static_cast<int>(g.by_image.divide(static_cast<uint32_t>(block)));
    const int first = (block - n * static_cast<int>(g.by_image.d)) * kPixels, p = first + lane;
    const float* const a = y + static_cast<int64_t>(n) * g.groups * g.m * g.plane;
    const uint32_t place = static_cast<uint32_t>(lane % 4 * 4);
    if (g.pieces) {
      const int piece = tid % 8, row0 = tid / 8, at = first + piece * 4;
#pragma unroll
      for (int r = 0; r < kM / kRowStep; ++r)
        copy_async(a_at + swizzled(row0 + r * kRowStep, piece),
                   a + static_cast<int64_t>(row0 + r * kRowStep) * g.plane + at,
                   at < g.plane && m0 + row0 + r * kRowStep < g.m);
    } else {
#pragma unroll 4
      for (int row = warp; row < kM; row += kWarps)
        copy_one(a_at + swizzled(row, lane / 4) + place, a + static_cast<int64_t>(row) * g.plane + p,
                 p < g.plane && m0 + row < g.m);
    }
    const int i = static_cast<int>(g.by_col.divide(static_cast<uint32_t>(p))), left = (p - i * g.cols) * g.step_w;
    const int top = p < g.plane ? i * g.step_h : kNowhere / 2;
    const float* const b = x + static_cast<int64_t>(n) * g.groups * g.channels * area +
                           static_cast<int64_t>(i * g.step_h) * g.width + left;
#pragma unroll 8
    for (int row = warp; row < kBlockN; row += kWarps) {
      const int4 window = windows[row];
      const bool inside = static_cast<unsigned>(top + window.y) < static_cast<unsigned>(g.height) &&
                          static_cast<unsigned>(left + window.z) < static_cast<unsigned>(g.width);
      copy_one(b_at + swizzled(row, lane / 4) + place, b + window.x, inside);
    }
  };

  float sums[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = 0;
  const int warpgroup = tid / 128;
  for (int s = 0; s < kStages - 1; ++s) {
    if (begin + s < end) load(begin + s, s);
    commit_copies();
  }
  for (int block = begin, stage = 0; block < end; ++block) {
    copy_wait<kStages - 2>();
    __syncthreads();
    const uint32_t a_at = base + static_cast<uint32_t>(stage * stage_bytes<Warpgroups>()), b_at = a_at + kM * kRowBytes;
    multiply_stage<float>(sums, a_at + static_cast<uint32_t>(warpgroup * 64 * kRowBytes), b_at);
    const int next = block + kStages - 1;
    if (next < end) load(next, stage == 0 ? kStages - 1 : stage - 1);
    commit_copies();
    wait_products<0>();
    pin(sums);
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  write_sums(sums, g.sums + (static_cast<int64_t>(share) * g.groups + group) * g.m * g.columns, g.m, g.columns,
             m0 + warpgroup * 64, n0);
#endif
}

// w[o, c, tap] = the shares' sums[share, o, tap, c], in their order. Threads lie as the sums do, which are read more
// often.
template <class T>
__global__ void __launch_bounds__(kThreads)
    filter_shares_kernel(const float* sums, int shares, int64_t filters, int taps, int channels, int padded,
                         FastDivisor by_channels, T* w) {
  const int64_t size = filters * taps * padded, e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= size) return;
  const int64_t o = e / (taps * padded);
  const int rest = static_cast<int>(e - o * taps * padded);
  const int tap = static_cast<int>(by_channels.divide(static_cast<uint32_t>(rest))), c = rest - tap * padded;
  if (c >= channels) return;
  const float* from = sums + e;
  float total = 0;
#pragma unroll 8
  for (int s = 0; s < shares; ++s) total += from[s * size];
  w[(o * channels + c) * taps + tap] = narrow<T>(total);
}

// The same for 64 channels of a filter a block, turned around in shared memory: w is written in whole lines.
constexpr int kMostTurnedTaps = 64;
template <class T>
__global__ void __launch_bounds__(kThreads)
    turned_shares_kernel(const float* sums, int shares, int64_t size, int taps, int channels, int padded, int chunks,
                         FastDivisor by_taps, T* w) {
  constexpr int kChannels = 64, kPitch = kChannels + 1;
  extern __shared__ float turned_sums[];  // [taps][kPitch]
  const int64_t o = blockIdx.x / static_cast<unsigned>(chunks);
  const int c0 = static_cast<int>(blockIdx.x % static_cast<unsigned>(chunks)) * kChannels;
  const int here = min(kChannels, channels - c0);
  const float* const from = sums + o * taps * padded + c0;
  for (int i = static_cast<int>(threadIdx.x); i < taps * kChannels; i += kThreads) {
    const int tap = i / kChannels, c = i % kChannels;
    if (c >= here) continue;
    float total = 0;
#pragma unroll 8
    for (int s = 0; s < shares; ++s) total += from[s * size + tap * padded + c];
    turned_sums[tap * kPitch + c] = total;
  }
  __syncthreads();
  T* const to = w + (o * channels + c0) * taps;
  for (int i = static_cast<int>(threadIdx.x); i < here * taps; i += kThreads) {
    const int c = static_cast<int>(by_taps.divide(static_cast<uint32_t>(i)));
    to[i] = narrow<T>(turned_sums[(i - c * taps) * kPitch + c]);
  }
}

// Kernel: that of filter_kernel or plane_kernel for T and Warpgroups.
template <int Warpgroups, class G>
void launch_sums(void (*kernel)(G), const G& g) {
  constexpr int kBytes = kStages * stage_bytes<Warpgroups>() + 1024;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "convolution_weight",
             "cudaFuncSetAttribute");
  const dim3 grid(blocks_for(g.columns, kBlockN), blocks_for(g.m, 64 * Warpgroups) * static_cast<unsigned>(g.groups),
                  static_cast<unsigned>(g.shares));
  kernel<<<grid, 128 * Warpgroups, kBytes, stream()>>>(g);
}

// Over how many blocks a sum of `steps` is shared. Rounds of blocks on a full card against the reading and writing of
// the shares' sums, of `results` each, which stay within 256 MiB.
int shares_for(Device device, int64_t tiles, int64_t steps, int64_t results, bool tall) {
  constexpr double kStep = 0.5e-6, kSum = 8 / 3e12;  // seconds, about
  const int64_t slots = int64_t{properties(device.index).multiprocessors} * (tall ? 2 : 3);
  const int64_t most = std::clamp<int64_t>(std::min(steps / 4, (int64_t{64} << 20) / results), 1, 1024);
  int64_t best = 1;
  double least = 0;
  for (int64_t n = 1; n <= most; ++n) {
    const auto rounds = static_cast<double>((tiles * n + slots - 1) / slots);
    const double cost =
        rounds * static_cast<double>((steps + n - 1) / n) * kStep + static_cast<double>(n * results) * kSum;
    if (n > 1 && cost >= least) continue;
    best = n, least = cost;
  }
  return static_cast<int>(best);
}

void pointwise_weight(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w) {
  PlaneSum g{};
  g.x = x, g.y = y;
  const int64_t plane = s.ih * s.iw, per_image = (plane * size_of(t) + kRowBytes - 1) / kRowBytes;
  g.plane = static_cast<int>(plane), g.groups = static_cast<int>(s.groups);
  g.m = static_cast<int>(s.oc / s.groups), g.channels = static_cast<int>(s.ic / s.groups);
  g.columns = (g.channels + 1) / 2 * 2;
  g.blocks = static_cast<int>(s.n * per_image);
  g.by_image = FastDivisor(static_cast<uint32_t>(per_image));
  const bool tall = g.m > 64;
  const int64_t tiles = int64_t{blocks_for(g.columns, kBlockN)} * blocks_for(g.m, tall ? 128 : 64) * s.groups;
  g.shares = shares_for(device, tiles, g.blocks, s.oc * g.columns, tall);
  const Tensor sums = workspace(DType::f32, device, g.shares * s.oc * g.columns);
  g.sums = static_cast<float*>(sums.raw_data());
  const auto run = [&]<class T>() {
    tall ? launch_sums<2>(plane_kernel<T, 2>, g) : launch_sums<1>(plane_kernel<T, 1>, g);
  };
  if (t == DType::f32) {
    run.template operator()<float>();
  } else if (t == DType::bf16) {
    run.template operator()<BFloat16>();
  } else {
    run.template operator()<Half>();
  }
  add_filter_shares(s, t, g.sums, g.shares, 1, g.columns, w);
}

// False where a channel's place in an image does not fit 32 bits.
bool window_weight(const ConvSizes& s, Device device, const void* x, const void* y, void* w) {
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups, area = s.ih * s.iw, plane = s.oh * s.ow;
  if (icg * area + s.ph * s.iw >= int64_t{1} << 31) return false;
  const int64_t taps = s.kh * s.kw, per_image = blocks_for(plane, 32);
  WindowSum g{};
  g.x = static_cast<const float*>(x), g.y = static_cast<const float*>(y);
  g.height = static_cast<int>(s.ih), g.width = static_cast<int>(s.iw);
  g.plane = static_cast<int>(plane), g.cols = static_cast<int>(s.ow);
  g.m = static_cast<int>(ocg), g.channels = static_cast<int>(icg), g.groups = static_cast<int>(s.groups);
  g.padded = (g.channels + 1) / 2 * 2, g.columns = static_cast<int>(taps) * g.padded;
  g.kernel_w = static_cast<int>(s.kw);
  g.step_h = static_cast<int>(s.sh), g.step_w = static_cast<int>(s.sw);
  g.pad_h = static_cast<int>(s.ph), g.pad_w = static_cast<int>(s.pw);
  g.dilation_h = static_cast<int>(s.dh), g.dilation_w = static_cast<int>(s.dw);
  g.blocks = static_cast<int>(s.n * per_image);
  g.pieces = plane % 4 == 0 && aligned16(y);
  g.by_image = FastDivisor(static_cast<uint32_t>(per_image)), g.by_col = FastDivisor(static_cast<uint32_t>(g.cols));
  g.by_padded = FastDivisor(static_cast<uint32_t>(g.padded));
  g.by_kernel_w = FastDivisor(static_cast<uint32_t>(g.kernel_w));
  const bool tall = ocg > 64;
  const int64_t tiles = int64_t{blocks_for(g.columns, kBlockN)} * blocks_for(ocg, tall ? 128 : 64) * s.groups;
  g.shares = shares_for(device, tiles, g.blocks, s.oc * g.columns, tall);
  const Tensor sums = workspace(DType::f32, device, g.shares * s.oc * g.columns);
  g.sums = static_cast<float*>(sums.raw_data());
  tall ? launch_sums<2>(window_kernel<2>, g) : launch_sums<1>(window_kernel<1>, g);
  add_filter_shares(s, DType::f32, g.sums, g.shares, static_cast<int>(taps), g.padded, w);
  return true;
}

}  // namespace

void add_filter_shares(const ConvSizes& s, DType t, const float* sums, int shares, int taps, int padded, void* w) {
  const int64_t icg = s.ic / s.groups;
  dispatch_floats(t, "convolution_weight", [&]<class T>() {
    if constexpr (sizeof(T) < 8) {
      const int64_t chunks = (icg + 63) / 64;
      if (taps > 1 && taps <= kMostTurnedTaps && icg >= 32 && s.oc * chunks < (1 << 30) && conv_choice().adding != 0) {
        turned_shares_kernel<T>
            <<<static_cast<unsigned>(s.oc * chunks), kThreads, static_cast<size_t>(taps) * 65 * sizeof(float),
               stream()>>>(sums, shares, s.oc * taps * padded, taps, static_cast<int>(icg), padded,
                           static_cast<int>(chunks), FastDivisor(static_cast<uint32_t>(taps)), static_cast<T*>(w));
        return;
      }
      filter_shares_kernel<T><<<blocks_for(s.oc * taps * padded, kThreads), kThreads, 0, stream()>>>(
          sums, shares, s.oc, taps, static_cast<int>(icg), padded, FastDivisor(static_cast<uint32_t>(padded)),
          static_cast<T*>(w));
    }
  });
}

bool hopper_weight(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w, bool last) {
  if (!fits_hopper(s, t, device)) return false;
  if (!last && is_pointwise(s) && s.ih * s.iw * size_of(t) % 16 == 0 && aligned16(x) && aligned16(y)) {
    pointwise_weight(s, t, device, x, y, w);
    return true;
  }
  if (t == DType::f32 && !last) return window_weight(s, device, x, y, w);
  if (size_of(t) != 2) return false;
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups;
  Tensor wide_x, wide_y;
  FilterSum g{};
  g.x = innermost(t, device, x, s.n, s.groups, icg, s.ih * s.iw, last, wide_x);
  g.y = innermost(t, device, y, s.n, s.groups, ocg, s.oh * s.ow, last, wide_y);
  g.height = static_cast<int>(s.ih), g.width = static_cast<int>(s.iw);
  g.rows = static_cast<int>(s.oh), g.cols = static_cast<int>(s.ow), g.total = static_cast<int>(s.n * s.oh * s.ow);
  g.m = static_cast<int>(ocg), g.m_padded = pad_channels(ocg, t), g.channels = pad_channels(icg, t);
  g.groups = static_cast<int>(s.groups), g.taps = static_cast<int>(s.kh * s.kw), g.kernel_w = static_cast<int>(s.kw);
  g.columns = g.taps * g.channels;
  g.step_h = static_cast<int>(s.sh), g.step_w = static_cast<int>(s.sw);
  g.pad_h = static_cast<int>(s.ph), g.pad_w = static_cast<int>(s.pw);
  g.dilation_h = static_cast<int>(s.dh), g.dilation_w = static_cast<int>(s.dw);
  g.blocks = static_cast<int>(blocks_for(g.total, 64));
  g.by_plane = FastDivisor(static_cast<uint32_t>(g.rows * g.cols)),
  g.by_col = FastDivisor(static_cast<uint32_t>(g.cols));
  g.by_channels = FastDivisor(static_cast<uint32_t>(g.channels));
  g.by_kernel_w = FastDivisor(static_cast<uint32_t>(g.kernel_w));
  const bool tall = ocg > 64;
  const int64_t tiles = int64_t{blocks_for(g.columns, kBlockN)} * blocks_for(ocg, tall ? 128 : 64) * s.groups;
  g.shares = shares_for(device, tiles, g.blocks, s.oc * g.columns, tall);
  const Tensor sums = workspace(DType::f32, device, g.shares * s.oc * g.columns);
  g.sums = static_cast<float*>(sums.raw_data());
  const auto run = [&]<class T>() {
    tall ? launch_sums<2>(filter_kernel<T, 2>, g) : launch_sums<1>(filter_kernel<T, 1>, g);
  };
  t == DType::bf16 ? run.template operator()<BFloat16>() : run.template operator()<Half>();
  add_filter_shares(s, t, g.sums, g.shares, g.taps, g.channels, w);
  return true;
}

}  // namespace strata::conv_cuda
