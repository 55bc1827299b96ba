// Convolutions on Hopper's tensor cores, without unrolled windows in memory. Operands are first written with their
// channels innermost; then 16-byte pieces of channels are gathered straight into shared memory, zeros where a window
// leaves the input, and multiplied by warpgroups. Sums are in f32 and rounded once.
//
// A transposed convolution is a gathering one over the elements of the result that share their place within the strides
// ("phases"): each phase has its own taps. The gradient of a filter sums over pixels, a share of them for each block;
// the shares are added up in order.

#include <numeric>

#include "strata/ops/conv/conv_cuda.cuh"
#include "strata/ops/conv/warpgroup.cuh"

namespace strata::conv_cuda {
namespace {

constexpr int kBlockN = 128;    // columns of a block's tile
constexpr int kStages = 3;      // several blocks share a multiprocessor
constexpr int kDeepStages = 6;  // a block has one for itself
constexpr int kRowBytes = 128;

// ---- channels innermost ----

__device__ __forceinline__ uint16_t prepared(uint16_t v) {
  return v;
}
// The tensor cores would cut the lower bits off.
__device__ __forceinline__ float prepared(float v) {
  uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
  return __uint_as_float(r);
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

int pad_channels(int64_t channels, DType t) {
  const int64_t piece = 16 / size_of(t);
  return static_cast<int>((channels + piece - 1) / piece * piece);
}

template <class B, int V>
void launch_turn(const void* from, void* to, int64_t images, int groups, int channels, int padded, int64_t pixels) {
  const dim3 grid(blocks_for(pixels, kTurn), blocks_for(int64_t{groups} * padded, kTurn),
                  static_cast<unsigned>(std::min<int64_t>(images, 65535)));
  turn_kernel<B, V><<<grid, kThreads, 0, stream()>>>(static_cast<const B*>(from), static_cast<B*>(to), pixels, channels,
                                                     padded, groups, FastDivisor(static_cast<uint32_t>(padded)),
                                                     images);
}

// [images, groups, channels, pixels] with channels innermost and padded to 16 bytes.
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

// Filters [oc, channels, taps] with channels innermost; `given` itself where they are already.
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

// ---- shared memory ----

[[maybe_unused]] __device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// 16 bytes to shared memory, zeros unless `valid`; past L1, whose traffic is that of shared memory.
[[maybe_unused]] __device__ __forceinline__ void copy_piece(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// All but the last `Left` groups of copies are there, for the tensor cores too.
template <int Left>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;\nfence.proxy.async.shared::cta;" ::"n"(Left) : "memory");
}
[[maybe_unused]] __device__ __forceinline__ uint32_t swizzled(int row, int piece) {
  return static_cast<uint32_t>(row * kRowBytes + ((piece ^ (row & 7)) << 4));
}

// Queues sums += a b for a stage whose rows are along the sum.
template <class T>
__device__ __forceinline__ void multiply_stage(float (&sums)[64], uint32_t a, uint32_t b) {
  warpgroup_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    warpgroup_product<T, false>(sums, rows_along_k(a + static_cast<uint32_t>(k * 32)),
                                rows_along_k(b + static_cast<uint32_t>(k * 32)), 1);
  warpgroup_commit();
}

// A warpgroup's sums into [m, columns] from (row, column) on; `columns` is even.
[[maybe_unused]] __device__ __forceinline__ void write_sums(const float (&sums)[64], float* to, int m, int columns,
                                                            int row0, int column0) {
  const int lane = static_cast<int>(threadIdx.x) % 32,
            row = row0 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (row + h * 8 >= m) continue;
    float* const line = to + static_cast<int64_t>(row + h * 8) * columns;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const int c = column0 + j * 8 + lane % 4 * 2;
      if (c < columns) store_vec(line + c, Vec<float, 2>{sums[j * 4 + h * 2], sums[j * 4 + h * 2 + 1]});
    }
  }
}

// ---- forward and transposed ----

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
  int vector;                                        // elements of the result written at once
  FastDivisor by_plane, by_col, by_tap_w, by_inner;  // by_inner: taps where by_taps, else pieces of a tap
};

template <int Warpgroups>
constexpr int stage_bytes() {
  return (64 * Warpgroups + kBlockN) * kRowBytes;
}

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
      copy_piece(a_at + swizzled(row0 + r * kRowStep, piece), a + static_cast<int64_t>(r * kRowStep) * filter,
                 valid && m0 + row0 + r * kRowStep < g.m);
    }
    const int down = g.first_y + u * g.step_y, right = g.first_x + v * g.step_x;
    const int64_t shift = (static_cast<int64_t>(down) * g.width + right) * g.pixel + c;
#pragma unroll
    for (int r = 0; r < kRowsB; ++r) {
      const bool inside = static_cast<unsigned>(top[r] + down) < static_cast<unsigned>(g.height) &&
                          static_cast<unsigned>(left[r] + right) < static_cast<unsigned>(g.width);
      copy_piece(b_at + swizzled(row0 + r * kRowStep, piece), from[r] + shift, valid && inside);
    }
  };

  float sums[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = 0;
  const int warpgroup = tid / 128;
  for (int b = 0; b < Stages - 1; ++b) {
    if (b < g.blocks) load(b, b);
    copy_commit();
  }
  for (int b = 0, stage = 0; b < g.blocks; ++b) {
    copy_wait<Stages - 2>();
    __syncthreads();  // this stage is there, and everyone is done with the one before
    const uint32_t a_at = base + static_cast<uint32_t>(stage * stage_bytes<Warpgroups>()), b_at = a_at + kM * kRowBytes;
    multiply_stage<T>(sums, a_at + static_cast<uint32_t>(warpgroup * 64 * kRowBytes), b_at);
    const int next = b + Stages - 1;
    if (next < g.blocks) load(next, stage == 0 ? Stages - 1 : stage - 1);
    copy_commit();
    warpgroup_wait(sums);
    stage = stage + 1 == Stages ? 0 : stage + 1;
  }
  __syncthreads();

  // Rounded into shared memory, from there to the result in runs of pixels.
  constexpr int kPitch = kBlockN + 8;
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
      store_vec(tile + (row + h * 8) * kPitch + j * 8 + lane % 4 * 2, v);
    }
  }
  __syncthreads();
  if (g.vector == kVec<T>) {
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
  constexpr int kPitch = kBlockN + 8;
  constexpr int kBytes =
      std::max<int>(Stages * stage_bytes<Warpgroups>(), 64 * Warpgroups * kPitch * static_cast<int>(sizeof(T))) + 1024;
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
  for (const int v : {static_cast<int>(16 / size_of(t)), 4})
    if (g.vector == 1 && dense && plane % v == 0 && reinterpret_cast<uintptr_t>(g.dst) % 16 == 0) g.vector = v;
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

// ---- the gradient of filters ----

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
      copy_piece(a_at + static_cast<uint32_t>(piece_a / 8 * kHalf) + swizzled(row, piece_a % 8),
                 y + static_cast<int64_t>(p) * y_width, valid_a && p < g.total);
    }
#pragma unroll
    for (int r = 0; r < kPixels / kStepB; ++r) {
      const int row = tid / kPiecesB + r * kStepB;
      const int4 place = places[block & 1][row];
      const bool inside = static_cast<unsigned>(place.y + down) < static_cast<unsigned>(g.height) &&
                          static_cast<unsigned>(place.z + right) < static_cast<unsigned>(g.width);
      copy_piece(b_at + static_cast<uint32_t>(piece_b / 8 * kHalf) + swizzled(row, piece_b % 8),
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
    copy_commit();
  }
  __syncthreads();
  locate(begin + 2);
  for (int block = begin, stage = 0; block < end; ++block) {
    copy_wait<kStages - 2>();
    __syncthreads();
    const uint32_t a_at = base + static_cast<uint32_t>(stage * kStage), b_at = a_at + kM * kRowBytes;
    warpgroup_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)  // 16 pixels each
      warpgroup_product<T, true>(
          sums, rows_across_k(a_at + static_cast<uint32_t>(warpgroup * kHalf + k * 16 * kRowBytes), kHalf),
          rows_across_k(b_at + static_cast<uint32_t>(k * 16 * kRowBytes), kHalf), 1);
    warpgroup_commit();
    const int next = block + kStages - 1;
    locate(next + 1);  // read after the next barrier; its place was read before this one
    if (next < end) load(next, stage == 0 ? kStages - 1 : stage - 1);
    copy_commit();
    warpgroup_wait(sums);
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
      copy_piece(a_at + swizzled(row0 + r * kRowStep, piece), a + static_cast<int64_t>(r * kRowStep) * g.plane,
                 p < g.plane && m0 + row0 + r * kRowStep < g.m);
#pragma unroll
    for (int r = 0; r < kRowsB; ++r)
      copy_piece(b_at + swizzled(row0 + r * kRowStep, piece), b + static_cast<int64_t>(r * kRowStep) * g.plane,
                 p < g.plane && n0 + row0 + r * kRowStep < g.channels);
  };

  float sums[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = 0;
  const int warpgroup = tid / 128;
  for (int s = 0; s < kStages - 1; ++s) {
    if (begin + s < end) load(begin + s, s);
    copy_commit();
  }
  for (int block = begin, stage = 0; block < end; ++block) {
    copy_wait<kStages - 2>();
    __syncthreads();
    const uint32_t a_at = base + static_cast<uint32_t>(stage * stage_bytes<Warpgroups>()), b_at = a_at + kM * kRowBytes;
    multiply_stage<T>(sums, a_at + static_cast<uint32_t>(warpgroup * 64 * kRowBytes), b_at);
    const int next = block + kStages - 1;
    if (next < end) load(next, stage == 0 ? kStages - 1 : stage - 1);
    copy_commit();
    warpgroup_wait(sums);
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

// ---- what can be done here ----

// Sizes that the kernels' 32-bit numbers hold.
bool fits(const ConvSizes& s, DType t, Device device) {
  constexpr int64_t kMost = int64_t{1} << 30;
  if (t == DType::f64 || (t == DType::f32 && !allow_tf32()) || properties(device.index).major != 9) return false;
  const int64_t icg = pad_channels(s.ic / s.groups, t), ocg = pad_channels(s.oc / s.groups, t);
  const int64_t taps = s.kh * s.kw;
  const int64_t widest = std::max(icg, ocg);
  if (icg == 0 || ocg == 0 || s.n * s.ih * s.iw * s.oh * s.ow == 0) return false;
  return s.n * s.ih * s.iw < kMost && s.n * s.oh * s.ow < kMost && s.groups < 65536 && taps < 65536 &&
         taps * widest < kMost && s.groups * widest < (int64_t{1} << 22) && s.groups * ((widest + 63) / 64) < 65536 &&
         s.ph + s.ih < kMost / 4 && s.pw + s.iw < kMost / 4 && s.kh * s.dh < kMost / 4 && s.kw * s.dw < kMost / 4;
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

bool hopper_forward(const ConvSizes& s, DType t, Device device, const void* x, const void* w, const void* bias,
                    void* y) {
  if (!fits(s, t, device)) return false;
  const int64_t icg = s.ic / s.groups;
  const Tensor source = turn(t, device, x, s.n, s.groups, icg, s.ih * s.iw);
  Tensor filters;
  Gather g{};
  g.source = source.raw_data(), g.filters = turn_filters(t, device, w, s.oc, icg, s.kh * s.kw, filters);
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
                      void* x) {
  // A launch for each phase.
  if (!fits(s, t, device) || s.sh * s.sw > 64) return false;
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups, taps = s.kh * s.kw;
  const Tensor source = turn(t, device, y, s.n, s.groups, ocg, s.oh * s.ow);
  // [groups, icg, taps, ocg]: of each group a matrix turned around.
  const Tensor filters = turn(t, device, w, s.groups, 1, ocg, icg * taps);
  Gather g{};
  g.source = source.raw_data(), g.filters = filters.raw_data(), g.bias = bias, g.dst = x;
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
  if (filled) fill(t, bias, s.n, s.ic, s.ih * s.iw, x);
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

namespace {

template <class G>
void finish_filters(const ConvSizes& s, DType t, const G& g, int taps, int padded, void* w) {
  const int64_t icg = s.ic / s.groups;
  dispatch_floats(t, "convolution_weight", [&]<class T>() {
    if constexpr (sizeof(T) < 8)
      filter_shares_kernel<T><<<blocks_for(s.oc * taps * padded, kThreads), kThreads, 0, stream()>>>(
          g.sums, g.shares, s.oc, taps, static_cast<int>(icg), padded, FastDivisor(static_cast<uint32_t>(padded)),
          static_cast<T*>(w));
  });
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
  finish_filters(s, t, g, 1, g.columns, w);
}

}  // namespace

bool hopper_weight(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w) {
  if (!fits(s, t, device)) return false;
  if (is_pointwise(s) && s.ih * s.iw * size_of(t) % 16 == 0 && aligned16(x) && aligned16(y)) {
    pointwise_weight(s, t, device, x, y, w);
    return true;
  }
  if (size_of(t) != 2) return false;
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups;
  const Tensor wide_x = turn(t, device, x, s.n, s.groups, icg, s.ih * s.iw);
  const Tensor wide_y = turn(t, device, y, s.n, s.groups, ocg, s.oh * s.ow);
  FilterSum g{};
  g.x = wide_x.raw_data(), g.y = wide_y.raw_data();
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
  finish_filters(s, t, g, g.taps, g.channels, w);
  return true;
}

}  // namespace strata::conv_cuda
