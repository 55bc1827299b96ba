// Convolutions on Hopper's tensor cores, without unrolled windows in memory. Operands are first written with their
// channels innermost; then 16-byte pieces of channels are gathered straight into shared memory, zeros where a window
// leaves the input, and multiplied by warpgroups. Sums are in f32 and rounded once.
//
// A transposed convolution is a gathering one over the elements of the result that share their place within the strides
// ("phases"): each phase has its own taps.

#include <numeric>

#include "strata/ops/conv/conv_hopper.cuh"

namespace strata::conv_cuda {
namespace {

// dst[n, group M + m, (i, j)] = bias + the sum over taps (u, v) and channels c of
// filters[group, m, tap, c] source[n, i step_h + down(u), j step_w + right(v), group, c].
struct Gather {
  const void *source, *filters, *bias;
  void* dst;
  int height, width;  // of the source
  int pixel;          // elements from one of its pixels to the next
  int channels;       // of a group, padded
  int rows, cols;     // i, j
  int total;          // images * rows * cols
  int m, groups;
  int taps_h, taps_w;                    // u, v
  int first_a, step_a, first_b, step_b;  // the filter's tap of u and v
  int first_y, step_y, first_x, step_x;  // down(u), right(v)
  int step_h, step_w;
  int kernel_w, taps;  // of the filter
  int dst_rows, dst_cols, dst_step_h, dst_step_w, dst_first_h, dst_first_w;
  int blocks;                                        // of 128 bytes of the sum
  bool by_taps;                                      // such a block lies within one tap
  bool last;                                         // the result's channels lie innermost
  int vector;                                        // elements of the result written at once
  FastDivisor by_plane, by_col, by_tap_w, by_inner;  // by_inner: taps where by_taps, else pieces of a tap
};

template <class T, int V>
__device__ __forceinline__ void write_tile(const Gather& g, const T* tile, int pitch, int height, int m0, int p0,
                                           int group) {
  constexpr int kPerRow = kBlockN / V;
  const int column = static_cast<int>(threadIdx.x) % kPerRow * V, p = p0 + column;
  if (p >= g.total) return;
  const int plane = g.rows * g.cols;
  const int n = static_cast<int>(g.by_plane.divide(static_cast<uint32_t>(p))), rest = p - n * plane;
  const int i = static_cast<int>(g.by_col.divide(static_cast<uint32_t>(rest))), j = rest - i * g.cols;
  const int64_t dst_plane = static_cast<int64_t>(g.dst_rows) * g.dst_cols;
  T* to = static_cast<T*>(g.dst) + (static_cast<int64_t>(n) * g.groups * g.m + group * g.m + m0) * dst_plane +
          static_cast<int64_t>(i * g.dst_step_h + g.dst_first_h) * g.dst_cols + j * g.dst_step_w + g.dst_first_w;
  for (int row = static_cast<int>(threadIdx.x) / kPerRow; row < height && m0 + row < g.m;
       row += static_cast<int>(blockDim.x) / kPerRow)
    store_vec(to + row * dst_plane, load_vec<V>(tile + row * pitch + column));
}

// The same of a tile [pixels][channels], V channels at a time, into a result with its channels innermost.
template <class T, int V>
__device__ __forceinline__ void write_last(const Gather& g, const T* tile, int pitch, int height, int m0, int p0,
                                           int group) {
  const int per_pixel = height / V, column = static_cast<int>(threadIdx.x) % per_pixel * V;
  if (m0 + column >= g.m) return;
  T* const to = static_cast<T*>(g.dst) + group * g.m + m0 + column;
  for (int pixel = static_cast<int>(threadIdx.x) / per_pixel; pixel < kBlockN && p0 + pixel < g.total;
       pixel += static_cast<int>(blockDim.x) / per_pixel) {
    const int p = p0 + pixel, plane = g.rows * g.cols;
    const int n = static_cast<int>(g.by_plane.divide(static_cast<uint32_t>(p))), rest = p - n * plane;
    const int i = static_cast<int>(g.by_col.divide(static_cast<uint32_t>(rest))), j = rest - i * g.cols;
    const int64_t at = (static_cast<int64_t>(n) * g.dst_rows + i * g.dst_step_h + g.dst_first_h) * g.dst_cols +
                       j * g.dst_step_w + g.dst_first_w;
    store_vec(to + at * g.groups * g.m, load_vec<V>(tile + pixel * pitch + column));
  }
}

template <class T, int Warpgroups, int Stages>
__global__ void __launch_bounds__(128 * Warpgroups) gather_kernel(const Gather g) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kM = 64 * Warpgroups, kPiece = 16 / sizeof(T), kRowStep = 16 * Warpgroups;
  constexpr int kRowsA = kM / kRowStep, kRowsB = kBlockN / kRowStep;
  extern __shared__ uint8_t raw[];
  uint8_t* const shared = raw + ((1024 - (shared_address(raw) & 1023)) & 1023);
  const uint32_t base = shared_address(shared);
  const int tid = static_cast<int>(threadIdx.x), piece = tid % 8, row0 = tid / 8;
  const int p0 = static_cast<int>(blockIdx.x) * kBlockN, m0 = static_cast<int>(blockIdx.y) * kM,
            group = static_cast<int>(blockIdx.z);

  // The pixels that this thread copies.
  const T* from[kRowsB];
  int top[kRowsB], left[kRowsB];
#pragma unroll
  for (int r = 0; r < kRowsB; ++r) {
    const int p = p0 + row0 + r * kRowStep, plane = g.rows * g.cols;
    const int n = static_cast<int>(g.by_plane.divide(static_cast<uint32_t>(p))), rest = p - n * plane;
    const int i = static_cast<int>(g.by_col.divide(static_cast<uint32_t>(rest))), j = rest - i * g.cols;
    top[r] = p < g.total ? i * g.step_h : -(1 << 30);  // outside whatever the tap
    left[r] = j * g.step_w;
    from[r] = static_cast<const T*>(g.source) + static_cast<int64_t>(group) * g.channels +
              (static_cast<int64_t>(n) * g.height * g.width + static_cast<int64_t>(i * g.step_h) * g.width + left[r]) *
                  g.pixel;
  }
  const int filter = g.taps * g.channels;
  const T* const filters = static_cast<const T*>(g.filters) + (static_cast<int64_t>(group) * g.m + m0 + row0) * filter;
  const int pieces = g.channels / kPiece, taps = g.taps_h * g.taps_w;

  const auto load = [&](int block, int stage) {
    int tap, c;
    if (g.by_taps) {
      const int of = static_cast<int>(g.by_inner.divide(static_cast<uint32_t>(block)));
      tap = block - of * taps;
      c = (of * 8 + piece) * kPiece;
    } else {
      const int q = block * 8 + piece;
      tap = static_cast<int>(g.by_inner.divide(static_cast<uint32_t>(q)));
      c = (q - tap * pieces) * kPiece;
    }
    const bool valid = tap < taps;
    const int u = static_cast<int>(g.by_tap_w.divide(static_cast<uint32_t>(tap))), v = tap - u * g.taps_w;
    const T* a = filters + ((g.first_a + u * g.step_a) * g.kernel_w + g.first_b + v * g.step_b) * g.channels + c;
    const uint32_t a_at = base + static_cast<uint32_t>(stage * stage_bytes<Warpgroups>()), b_at = a_at + kM * kRowBytes;
#pragma unroll
    for (int r = 0; r < kRowsA; ++r) {
      copy_async(a_at + swizzled(row0 + r * kRowStep, piece), a + static_cast<int64_t>(r * kRowStep) * filter,
                 valid && m0 + row0 + r * kRowStep < g.m);
    }
    const int down = g.first_y + u * g.step_y, right = g.first_x + v * g.step_x;
    const int64_t shift = (static_cast<int64_t>(down) * g.width + right) * g.pixel + c;
#pragma unroll
    for (int r = 0; r < kRowsB; ++r) {
      const bool inside = static_cast<unsigned>(top[r] + down) < static_cast<unsigned>(g.height) &&
                          static_cast<unsigned>(left[r] + right) < static_cast<unsigned>(g.width);
      copy_async(b_at + swizzled(row0 + r * kRowStep, piece), from[r] + shift, valid && inside);
    }
  };

  float sums[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = 0;
  const int warpgroup = tid / 128;
  for (int b = 0; b < Stages - 1; ++b) {
    if (b < g.blocks) load(b, b);
    commit_copies();
  }
  for (int b = 0, stage = 0; b < g.blocks; ++b) {
    copy_wait<Stages - 2>();
    __syncthreads();  // this stage is there, and everyone is done with the one before
    const uint32_t a_at = base + static_cast<uint32_t>(stage * stage_bytes<Warpgroups>()), b_at = a_at + kM * kRowBytes;
    multiply_stage<T>(sums, a_at + static_cast<uint32_t>(warpgroup * 64 * kRowBytes), b_at);
    const int next = b + Stages - 1;
    if (next < g.blocks) load(next, stage == 0 ? Stages - 1 : stage - 1);
    commit_copies();
    wait_products<0>();
    pin(sums);
    stage = stage + 1 == Stages ? 0 : stage + 1;
  }
  __syncthreads();

  // Rounded into shared memory, from there to the result in runs of pixels, or of channels.
  constexpr int kPitch = kBlockN + 8, kLastPitch = kM + 8;
  T* const tile = reinterpret_cast<T*>(shared);
  const int lane = tid % 32, row = warpgroup * 64 + tid % 128 / 32 * 16 + lane / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int m = m0 + row + h * 8;
    const float add = g.bias != nullptr && m < g.m ? widen(static_cast<const T*>(g.bias)[group * g.m + m]) : 0.0f;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      Vec<T, 2> v;
      v.v[0] = narrow<T>(sums[j * 4 + h * 2] + add);
      v.v[1] = narrow<T>(sums[j * 4 + h * 2 + 1] + add);
      const int pixel = j * 8 + lane % 4 * 2;
      if (g.last) {
        tile[pixel * kLastPitch + row + h * 8] = v.v[0];
        tile[(pixel + 1) * kLastPitch + row + h * 8] = v.v[1];
      } else {
        store_vec(tile + (row + h * 8) * kPitch + pixel, v);
      }
    }
  }
  __syncthreads();
  if (g.last) {
    g.vector == kVec<T> ? write_last<T, kVec<T>>(g, tile, kLastPitch, kM, m0, p0, group)
                        : write_last<T, 1>(g, tile, kLastPitch, kM, m0, p0, group);
  } else if (g.vector == kVec<T>) {
    write_tile<T, kVec<T>>(g, tile, kPitch, kM, m0, p0, group);
  } else if (g.vector == 4) {
    write_tile<T, 4>(g, tile, kPitch, kM, m0, p0, group);
  } else {
    write_tile<T, 1>(g, tile, kPitch, kM, m0, p0, group);
  }
#endif
}

template <class T, int Warpgroups, int Stages>
void launch_gather(const Gather& g) {
  constexpr int kTile = std::max(64 * Warpgroups * (kBlockN + 8), kBlockN * (64 * Warpgroups + 8));
  constexpr int kBytes = std::max<int>(Stages * stage_bytes<Warpgroups>(), kTile * static_cast<int>(sizeof(T))) + 1024;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(gather_kernel<T, Warpgroups, Stages>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  check_cuda(allowed, "convolution", "cudaFuncSetAttribute");
  const dim3 grid(blocks_for(g.total, kBlockN), blocks_for(g.m, 64 * Warpgroups), static_cast<unsigned>(g.groups));
  gather_kernel<T, Warpgroups, Stages><<<grid, 128 * Warpgroups, kBytes, stream()>>>(g);
}

void run_gather(DType t, Device device, Gather& g) {
  const int piece = static_cast<int>(16 / size_of(t)), pieces = g.channels / piece, taps = g.taps_h * g.taps_w;
  g.by_taps = pieces % 8 == 0;
  g.blocks = (taps * pieces + 7) / 8;
  g.by_plane = FastDivisor(static_cast<uint32_t>(g.rows * g.cols));
  g.by_col = FastDivisor(static_cast<uint32_t>(g.cols));
  g.by_tap_w = FastDivisor(static_cast<uint32_t>(std::max(1, g.taps_w)));
  g.by_inner = FastDivisor(static_cast<uint32_t>(g.by_taps ? std::max(1, taps) : pieces));
  const int plane = g.rows * g.cols;
  const bool dense = g.dst_step_h == 1 && g.dst_step_w == 1;
  g.vector = 1;
  for (const int v : {static_cast<int>(16 / size_of(t)), 4}) {
    const bool whole = g.last ? g.m % v == 0 : dense && plane % v == 0;
    if (g.vector == 1 && whole && reinterpret_cast<uintptr_t>(g.dst) % 16 == 0) g.vector = v;
  }
  const auto run = [&]<class T>() {
    if (g.m <= 64) return launch_gather<T, 1, kStages>(g);
    const int64_t tiles = int64_t{blocks_for(g.total, kBlockN)} * blocks_for(g.m, 128) * g.groups;
    if (tiles <= properties(device.index).multiprocessors) return launch_gather<T, 2, kDeepStages>(g);
    launch_gather<T, 2, kStages>(g);
  };
  if (t == DType::f32) return run.template operator()<float>();
  if (t == DType::bf16) return run.template operator()<BFloat16>();
  run.template operator()<Half>();
}

// Of one dimension of a transposed convolution: which taps reach the elements first, first + stride, .., and where they
// find them: tap first_tap + u step_tap at i + down + u step.
struct Phase {
  int count, first_tap, step_tap, down, step;
};
Phase phase_of(int64_t first, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  const int64_t every = stride / std::gcd(stride, dilation);
  for (int64_t a = 0; a < std::min(kernel, every); ++a) {
    const int64_t up = first + padding - a * dilation;
    if (up % stride != 0) continue;
    return {static_cast<int>((kernel - a - 1) / every + 1), static_cast<int>(a), static_cast<int>(every),
            static_cast<int>(up / stride), static_cast<int>(-every * dilation / stride)};
  }
  return {0, 0, 1, 0, 0};
}

}  // namespace

bool hopper_forward(const ConvSizes& s, DType t, Device device, const void* x, const void* w, const void* bias, void* y,
                    bool last) {
  if (!fits_hopper(s, t, device)) return false;
  const int64_t icg = s.ic / s.groups;
  Tensor source, filters;
  Gather g{};
  g.last = last;
  g.source = innermost(t, device, x, s.n, s.groups, icg, s.ih * s.iw, last, source),
  g.filters = turn_filters(t, device, w, s.oc, icg, s.kh * s.kw, filters);
  g.bias = bias, g.dst = y;
  g.height = static_cast<int>(s.ih), g.width = static_cast<int>(s.iw);
  g.channels = pad_channels(icg, t), g.pixel = static_cast<int>(s.groups) * g.channels;
  g.rows = static_cast<int>(s.oh), g.cols = static_cast<int>(s.ow), g.total = static_cast<int>(s.n * s.oh * s.ow);
  g.m = static_cast<int>(s.oc / s.groups), g.groups = static_cast<int>(s.groups);
  g.taps_h = static_cast<int>(s.kh), g.taps_w = static_cast<int>(s.kw);
  g.step_a = g.step_b = 1;
  g.first_y = static_cast<int>(-s.ph), g.step_y = static_cast<int>(s.dh);
  g.first_x = static_cast<int>(-s.pw), g.step_x = static_cast<int>(s.dw);
  g.step_h = static_cast<int>(s.sh), g.step_w = static_cast<int>(s.sw);
  g.kernel_w = static_cast<int>(s.kw), g.taps = static_cast<int>(s.kh * s.kw);
  g.dst_rows = g.rows, g.dst_cols = g.cols, g.dst_step_h = g.dst_step_w = 1;
  run_gather(t, device, g);
  return true;
}

bool hopper_transpose(const ConvSizes& s, DType t, Device device, const void* y, const void* w, const void* bias,
                      void* x, bool last) {
  // A launch for each phase.
  if (!fits_hopper(s, t, device) || s.sh * s.sw > 64) return false;
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups, taps = s.kh * s.kw;
  Tensor source;
  // [groups, icg, taps, ocg]: of each group a matrix turned around.
  const Tensor filters = turn(t, device, w, s.groups, 1, ocg, icg * taps);
  Gather g{};
  g.last = last;
  g.source = innermost(t, device, y, s.n, s.groups, ocg, s.oh * s.ow, last, source);
  g.filters = filters.raw_data(), g.bias = bias, g.dst = x;
  g.height = static_cast<int>(s.oh), g.width = static_cast<int>(s.ow);
  g.channels = pad_channels(ocg, t), g.pixel = static_cast<int>(s.groups) * g.channels;
  g.m = static_cast<int>(icg), g.groups = static_cast<int>(s.groups);
  g.step_h = g.step_w = 1;
  g.kernel_w = static_cast<int>(s.kw), g.taps = static_cast<int>(taps);
  g.dst_rows = static_cast<int>(s.ih), g.dst_cols = static_cast<int>(s.iw);
  g.dst_step_h = static_cast<int>(s.sh), g.dst_step_w = static_cast<int>(s.sw);
  // Phases without a tap are filled beforehand, in runs.
  bool filled = false;
  for (int64_t top = 0; top < std::min(s.sh, s.ih) && !filled; ++top)
    for (int64_t left = 0; left < std::min(s.sw, s.iw) && !filled; ++left)
      filled = phase_of(top, s.kh, s.sh, s.ph, s.dh).count == 0 || phase_of(left, s.kw, s.sw, s.pw, s.dw).count == 0;
  if (filled && last) fill(t, bias, s.n * s.ih * s.iw, s.ic, 1, x);
  if (filled && !last) fill(t, bias, s.n, s.ic, s.ih * s.iw, x);
  for (int64_t top = 0; top < std::min(s.sh, s.ih); ++top) {
    for (int64_t left = 0; left < std::min(s.sw, s.iw); ++left) {
      const Phase v = phase_of(top, s.kh, s.sh, s.ph, s.dh), h = phase_of(left, s.kw, s.sw, s.pw, s.dw);
      if (v.count == 0 || h.count == 0) continue;
      g.rows = static_cast<int>((s.ih - top - 1) / s.sh + 1), g.cols = static_cast<int>((s.iw - left - 1) / s.sw + 1);
      g.total = static_cast<int>(s.n) * g.rows * g.cols;
      g.taps_h = v.count, g.first_a = v.first_tap, g.step_a = v.step_tap, g.first_y = v.down, g.step_y = v.step;
      g.taps_w = h.count, g.first_b = h.first_tap, g.step_b = h.step_tap, g.first_x = h.down, g.step_x = h.step;
      g.dst_first_h = static_cast<int>(top), g.dst_first_w = static_cast<int>(left);
      run_gather(t, device, g);
    }
  }
  return true;
}

}  // namespace strata::conv_cuda
