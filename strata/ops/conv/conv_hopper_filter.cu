// The gradient of a convolution's filters on Hopper's tensor cores: a sum over pixels, a share of them for each block;
// the shares are added up in order.

#include "strata/ops/conv/conv_filter_shares_kernel.cuh"
#include "strata/ops/conv/conv_gradients_cuda.h"
#include "strata/ops/conv/conv_hopper.cuh"
#include "strata/ops/conv/conv_rows_filter_kernel.cuh"

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

// The same where the shares are many: a block has 32 neighbours, whose shares eight warps add up, an eighth each in
// order, and then the eighths in order. One thread alone would wait for as many loads, one after the other.
constexpr int kManyShares = 32;
template <class T>
__global__ void __launch_bounds__(kThreads)
    split_shares_kernel(const float* sums, int shares, int64_t filters, int taps, int channels, int padded,
                        FastDivisor by_channels, T* w) {
  constexpr int kParts = kThreads / kWarp;
  __shared__ float parts[kParts][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, part = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t size = filters * taps * padded, e = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  float total = 0;
  if (e < size) {
    const int end = shares * (part + 1) / kParts;
#pragma unroll 8
    for (int s = shares * part / kParts; s < end; ++s) total += sums[s * size + e];
  }
  parts[part][lane] = total;
  __syncthreads();
  if (part != 0 || e >= size) return;
#pragma unroll
  for (int p = 1; p < kParts; ++p) total += parts[p][lane];
  const int64_t o = e / (taps * padded);
  const int rest = static_cast<int>(e - o * taps * padded);
  const int tap = static_cast<int>(by_channels.divide(static_cast<uint32_t>(rest))), c = rest - tap * padded;
  if (c < channels) w[(o * channels + c) * taps + tap] = narrow<T>(total);
}

// Where there are more shares, the blocks that turn them around are too few for them.
constexpr int kFewShares = 8;
template <class E>
struct Turned {
  using T = E;
};

// bias[o] = the shares' rows[share, o], of a warp: each lane every 32nd share in order, then the lanes.
template <class T>
__global__ void __launch_bounds__(kThreads) row_shares_kernel(const float* rows, int shares, int64_t m, T* bias) {
  const int64_t o = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  if (o >= m) return;
  float total = 0;
  for (int s = static_cast<int>(threadIdx.x) % kWarp; s < shares; s += kWarp) total += rows[s * m + o];
  total = warp_reduce(total, Sum());
  if (threadIdx.x % kWarp == 0) bias[o] = narrow<T>(total);
}

template <int Warpgroups>
void launch_filter(void (*kernel)(FilterSum), const FilterSum& g) {
  constexpr int kBytes = kStages * stage_bytes<Warpgroups>() + 1024;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "convolution_weight",
             "cudaFuncSetAttribute");
  const dim3 grid(blocks_for(g.columns, kBlockN), blocks_for(g.m, 64 * Warpgroups) * static_cast<unsigned>(g.groups),
                  static_cast<unsigned>(g.shares));
  kernel<<<grid, 128 * Warpgroups, kBytes, stream()>>>(g);
}

template <class Element>
struct Elements {
  using T = Element;
};
// Kernel: that of plane_kernel or window_kernel for so many threads and bytes of shared memory.
template <class G>
void launch_rows(void (*kernel)(G), const G& g, unsigned threads, int bytes) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "convolution_weight",
             "cudaFuncSetAttribute");
  const SharedOut& w = g.work;
  kernel<<<static_cast<unsigned>(w.tiles_n * w.tiles_m * w.shares), threads, static_cast<size_t>(bytes), stream()>>>(g);
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

// The gradients of filters, and of a bias unless it is null, by the sum g, whose kernel `run` launches.
template <class G, class Run>
void rows_weight(const ConvSizes& s, DType t, Device device, G& g, int taps, int padded, void* w, void* bias,
                 const Run& run) {
  const bool tall = g.m > 64;
  g.work.shares = shares_for(device, int64_t{g.work.tiles_n} * g.work.tiles_m, g.work.blocks, s.oc * g.columns, tall);
  const Tensor sums = workspace(DType::f32, device, g.work.shares * s.oc * g.columns);
  g.sums = static_cast<float*>(sums.raw_data());
  Tensor rows;
  if (bias != nullptr) {
    rows = workspace(DType::f32, device, g.work.shares * s.oc);
    g.rows = static_cast<float*>(rows.raw_data());
  }
  run(tall);
  add_filter_shares(s, t, g.sums, g.work.shares, taps, padded, w);
  if (bias == nullptr) return;
  dispatch_floats(t, "convolution_gradients", [&]<class T>() {
    row_shares_kernel<T><<<blocks_for(s.oc, kThreads / kWarp), kThreads, 0, stream()>>>(g.rows, g.work.shares, s.oc,
                                                                                        static_cast<T*>(bias));
  });
}

void pointwise_weight(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w, void* bias) {
  PlaneSum g = plane_sum(s, size_of(t));
  g.x = x, g.y = y;
  rows_weight(s, t, device, g, 1, g.columns, w, bias, [&](bool tall) {
    const auto run = [&]<class T>() {
      tall ? launch_rows(plane_kernel<Elements<T>, 2>, g, 256, kStages * stage_bytes<2>())
           : launch_rows(plane_kernel<Elements<T>, 1>, g, 128, kStages * stage_bytes<1>());
    };
    if (t == DType::f32) {
      run.template operator()<float>();
    } else if (t == DType::bf16) {
      run.template operator()<BFloat16>();
    } else {
      run.template operator()<Half>();
    }
  });
}

// False where a channel's place in an image does not fit 32 bits.
bool window_weight(const ConvSizes& s, Device device, const void* x, const void* y, void* w, void* bias) {
  if (s.ic / s.groups * s.ih * s.iw + s.ph * s.iw >= int64_t{1} << 31) return false;
  WindowSum g = window_sum(s, aligned16(x), aligned16(y));
  g.x = static_cast<const float*>(x), g.y = static_cast<const float*>(y);
  rows_weight(s, DType::f32, device, g, static_cast<int>(s.kh * s.kw), g.padded, w, bias, [&](bool tall) {
    tall ? launch_rows(window_kernel<Elements<float>, 2>, g, 256, window_bytes<2>())
         : launch_rows(window_kernel<Elements<float>, 1>, g, 128, window_bytes<1>());
  });
  return true;
}

}  // namespace

void add_filter_shares(const ConvSizes& s, DType t, const float* sums, int shares, int taps, int padded, void* w) {
  const int64_t icg = s.ic / s.groups;
  dispatch_floats(t, "convolution_weight", [&]<class T>() {
    if constexpr (sizeof(T) < 8) {
      if (taps > 1 && taps <= kMostTurnedTaps && icg >= 32 && shares <= kFewShares && padded % 4 == 0) {
        const TurnedShares turned = turned_shares(sums, shares, s.oc, taps, static_cast<int>(icg), padded);
        const auto run = [&](auto width) {
          turned_shares_kernel<Turned<T>, decltype(width)::value>
              <<<static_cast<unsigned>(s.oc * turned.chunks), kTurnThreads, static_cast<size_t>(turned.bytes()),
                 stream()>>>(turned, static_cast<T*>(w));
        };
        constexpr int kPiece = 16 / sizeof(T);
        icg* taps % kPiece == 0 && aligned16(w) ? run(std::integral_constant<int, kPiece>())
                                                : run(std::integral_constant<int, 1>());
        return;
      }
      if (shares >= kManyShares) {
        split_shares_kernel<T><<<blocks_for(s.oc * taps * padded, kWarp), kThreads, 0, stream()>>>(
            sums, shares, s.oc, taps, static_cast<int>(icg), padded, FastDivisor(static_cast<uint32_t>(padded)),
            static_cast<T*>(w));
        return;
      }
      filter_shares_kernel<T><<<blocks_for(s.oc * taps * padded, kThreads), kThreads, 0, stream()>>>(
          sums, shares, s.oc, taps, static_cast<int>(icg), padded, FastDivisor(static_cast<uint32_t>(padded)),
          static_cast<T*>(w));
    }
  });
}

bool hopper_gradients(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w, void* bias) {
  if (!fits_hopper(s, t, device)) return false;
  if (is_pointwise(s) && s.ih * s.iw * size_of(t) % 16 == 0 && aligned16(x) && aligned16(y)) {
    pointwise_weight(s, t, device, x, y, w, bias);
    return true;
  }
  return t == DType::f32 && window_weight(s, device, x, y, w, bias);
}

bool hopper_weight(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w, bool last) {
  if (!last && hopper_gradients(s, t, device, x, y, w, nullptr)) return true;
  if (!fits_hopper(s, t, device) || size_of(t) != 2) return false;
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
    tall ? launch_filter<2>(filter_kernel<T, 2>, g) : launch_filter<1>(filter_kernel<T, 1>, g);
  };
  t == DType::bf16 ? run.template operator()<BFloat16>() : run.template operator()<Half>();
  add_filter_shares(s, t, g.sums, g.shares, g.taps, g.channels, w);
  return true;
}

}  // namespace strata::conv_cuda
