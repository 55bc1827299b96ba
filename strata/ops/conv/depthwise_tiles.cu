// Depthwise convolutions of stride and dilation 1 with square filters of 3, 5 or 7: a thread has a patch of 4 x 4
// results, and reads the inputs below it from a tile in shared memory, 4 at a time. So each value that it reads serves
// up to 4 rows of results, and arithmetic, not shared memory, bounds the kernels.

#include "strata/ops/conv/depthwise.cuh"

namespace strata::conv_cuda {
namespace {

constexpr int kPatch = 4, kMostThreads = 256, kMostTile = 64;

// How planes are cut into tiles of results, and how many planes a block has at once.
struct Tiling {
  int ih, iw, oh, ow, ph, pw;  // of a plane's inputs and results; zeros around the inputs
  int h, w, down, across;      // of a tile, multiples of 4; tiles of a plane
  int rows, columns, pitch;    // its inputs in shared memory
  int patches, planes, threads;
  bool vectors;  // 4 results can be read and written at once
  FastDivisor by_plane, by_row;

  Tiling(int64_t in_h, int64_t in_w, int64_t out_h, int64_t out_w, int64_t pad_h, int64_t pad_w, int k, bool aligned)
      : ih(static_cast<int>(in_h)),
        iw(static_cast<int>(in_w)),
        oh(static_cast<int>(out_h)),
        ow(static_cast<int>(out_w)),
        ph(static_cast<int>(pad_h)),
        pw(static_cast<int>(pad_w)),
        by_plane(1),
        by_row(1) {
    const auto ceil_div = [](int a, int b) { return (a + b - 1) / b; };
    const auto fours = [](int n) { return (n + kPatch - 1) / kPatch * kPatch; };
    down = ceil_div(oh, kMostTile), across = ceil_div(ow, kMostTile);
    h = fours(ceil_div(oh, down)), w = fours(ceil_div(ow, across));
    rows = h + k - 1, columns = w + k - 1;
    pitch = fours(columns);
    if (pitch / 4 % 2 == 0) pitch += 4;  // rows of patches begin in different banks
    patches = (h / kPatch) * (w / kPatch);
    planes = std::clamp(192 / patches, 1, 32);
    while (planes > 1 && shared_bytes() > 40 * 1024) --planes;
    threads = (planes * patches + kWarp - 1) / kWarp * kWarp;
    vectors = aligned && ow % kPatch == 0;
    by_plane = FastDivisor(static_cast<uint32_t>(rows * columns));
    by_row = FastDivisor(static_cast<uint32_t>(columns));
  }
  int shared_bytes() const { return planes * rows * pitch * 4; }
};

// Inputs of the tile at (ty, tx) of some planes to shared memory; plane_of(g) is the place of the first element of
// plane g of the block's, or null.
template <class T, class F>
__device__ __forceinline__ void load_tile(const Tiling& t, int ty, int tx, float* in, F&& plane_of) {
  const int each = t.rows * t.columns;
  for (int i = static_cast<int>(threadIdx.x); i < t.planes * each; i += static_cast<int>(blockDim.x)) {
    const int g = static_cast<int>(t.by_plane.divide(static_cast<uint32_t>(i))), at = i - g * each;
    const int r = static_cast<int>(t.by_row.divide(static_cast<uint32_t>(at))), c = at - r * t.columns;
    const int iy = ty + r - t.ph, ix = tx + c - t.pw;
    const T* const plane = plane_of(g);
    const bool there = plane != nullptr && iy >= 0 && iy < t.ih && ix >= 0 && ix < t.iw;
    in[(g * t.rows + r) * t.pitch + c] = there ? widen(plane[iy * t.iw + ix]) : 0.f;
  }
}

// A row of inputs below a patch and its filter.
template <int K>
struct PatchRow {
  static constexpr int kCount = (K + kPatch - 1 + 3) / 4 * 4;
  float v[kCount];
  __device__ __forceinline__ explicit PatchRow(const float* from) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
    }
  }
};

// Calls f(a, b, m, j, v) for each tap (a, b) and result (m, j) of a patch, v being the input between them.
template <int K, class F>
__device__ __forceinline__ void for_patch(const float* from, int pitch, F&& f) {
#pragma unroll
  for (int r = 0; r < K + kPatch - 1; ++r) {
    const PatchRow<K> row(from + r * pitch);
#pragma unroll
    for (int m = 0; m < kPatch; ++m) {
      const int a = r - m;
      if (a < 0 || a >= K) continue;
#pragma unroll
      for (int b = 0; b < K; ++b)
#pragma unroll
        for (int j = 0; j < kPatch; ++j) f(a, b, m, j, row.v[j + b]);
    }
  }
}

// `turned`: the filter is read from its end, which makes this the transpose of itself.
template <class T, int K>
__global__ void __launch_bounds__(kMostThreads)
    tile_forward_kernel(const Tiling t, int64_t all, int64_t channels, bool turned, const T* x, const T* w,
                        const T* bias, T* y) {
  extern __shared__ float4 shared[];
  float* const in = reinterpret_cast<float*>(shared);
  const int tiles = t.down * t.across, tile = static_cast<int>(blockIdx.x % static_cast<unsigned>(tiles));
  const int64_t q0 = static_cast<int64_t>(blockIdx.x / static_cast<unsigned>(tiles)) * t.planes;
  const int ty = tile / t.across * t.h, tx = tile % t.across * t.w;
  const int64_t in_plane = static_cast<int64_t>(t.ih) * t.iw;
  load_tile<T>(t, ty, tx, in, [&](int g) { return q0 + g < all ? x + (q0 + g) * in_plane : nullptr; });
  __syncthreads();

  const int g = static_cast<int>(threadIdx.x) / t.patches, patch = static_cast<int>(threadIdx.x) % t.patches;
  const int64_t q = q0 + g;
  if (g >= t.planes || q >= all) return;
  const int py = patch / (t.w / kPatch) * kPatch, px = patch % (t.w / kPatch) * kPatch;
  const int64_t channel = q % channels;
  float weights[K * K];
#pragma unroll
  for (int i = 0; i < K * K; ++i) weights[i] = widen(w[channel * K * K + (turned ? K * K - 1 - i : i)]);
  const float start = bias != nullptr ? widen(bias[channel]) : 0.f;
  float sum[kPatch][kPatch];
#pragma unroll
  for (int m = 0; m < kPatch; ++m)
#pragma unroll
    for (int j = 0; j < kPatch; ++j) sum[m][j] = start;
  const float* const from = in + (g * t.rows + py) * t.pitch + px;
  for_patch<K>(from, t.pitch, [&](int a, int b, int m, int j, float v) { sum[m][j] += weights[a * K + b] * v; });
  T* const to = y + q * t.oh * t.ow;
#pragma unroll
  for (int m = 0; m < kPatch; ++m) {
    const int i = ty + py + m, j0 = tx + px;
    if (i >= t.oh) break;
    if (t.vectors && j0 < t.ow) {
      Vec<T, kPatch> v;
#pragma unroll
      for (int j = 0; j < kPatch; ++j) v.v[j] = narrow<T>(sum[m][j]);
      store_vec(to + i * t.ow + j0, v);
    } else {
#pragma unroll
      for (int j = 0; j < kPatch; ++j)
        if (j0 + j < t.ow) to[i * t.ow + j0 + j] = narrow<T>(sum[m][j]);
    }
  }
}

// Sums over a share of the images for one channel, as weight_kernel's: sums[share, channel, tap].
template <class T, int K>
__global__ void __launch_bounds__(kMostThreads)
    tile_weight_kernel(const Tiling t, int64_t images, int64_t channels, const T* x, const T* y, float* sums) {
  extern __shared__ float4 shared[];
  __shared__ float parts[kMostThreads / kWarp][K * K];
  float* const in = reinterpret_cast<float*>(shared);
  const int64_t channel = blockIdx.x, share = blockIdx.y, shares = gridDim.y;
  const int64_t begin = images * share / shares, end = images * (share + 1) / shares;
  const int64_t in_plane = static_cast<int64_t>(t.ih) * t.iw, out_plane = static_cast<int64_t>(t.oh) * t.ow;
  const int g = static_cast<int>(threadIdx.x) / t.patches, patch = static_cast<int>(threadIdx.x) % t.patches;
  const int py = patch / (t.w / kPatch) * kPatch, px = patch % (t.w / kPatch) * kPatch;
  const float* const from = in + ((g < t.planes ? g : 0) * t.rows + py) * t.pitch + px;
  float sum[K * K] = {};
  for (int64_t n0 = begin; n0 < end; n0 += t.planes) {
    const bool mine = g < t.planes && n0 + g < end;
    const T* const grads = y + ((mine ? n0 + g : begin) * channels + channel) * out_plane;
    for (int tile = 0; tile < t.down * t.across; ++tile) {
      const int ty = tile / t.across * t.h, tx = tile % t.across * t.w;
      __syncthreads();  // the last tile has been read
      load_tile<T>(t, ty, tx, in,
                   [&](int k) { return n0 + k < end ? x + ((n0 + k) * channels + channel) * in_plane : nullptr; });
      __syncthreads();
      if (!mine) continue;
      float grad[kPatch][kPatch];
#pragma unroll
      for (int m = 0; m < kPatch; ++m) {
        const int i = ty + py + m, j0 = tx + px;
        const bool row_there = i < t.oh;
        if (t.vectors && row_there && j0 < t.ow) {
          const auto v = load_vec<kPatch>(grads + i * t.ow + j0);
#pragma unroll
          for (int j = 0; j < kPatch; ++j) grad[m][j] = widen(v.v[j]);
        } else {
#pragma unroll
          for (int j = 0; j < kPatch; ++j)
            grad[m][j] = row_there && j0 + j < t.ow ? widen(grads[i * t.ow + j0 + j]) : 0.f;
        }
      }
      for_patch<K>(from, t.pitch, [&](int a, int b, int m, int j, float v) { sum[a * K + b] += grad[m][j] * v; });
    }
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
  for (int i = 0; i < K * K; ++i) {
    const float total = warp_reduce(sum[i], Sum());
    if (lane == 0) parts[warp][i] = total;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < K * K; i += static_cast<int>(blockDim.x)) {
    float total = 0;
    for (int k = 0; k < static_cast<int>(blockDim.x) / kWarp; ++k) total += parts[k][i];
    sums[(share * channels + channel) * (K * K) + i] = total;
  }
}

template <class F>
void dispatch_tiles(DType t, int64_t k, std::string_view op, F&& f) {
  dispatch_floats(t, op, [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>) {
      if (k == 3) return f.template operator()<T, 3>();
      if (k == 5) return f.template operator()<T, 5>();
      f.template operator()<T, 7>();
    }
  });
}

bool aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

// Results [planes, oh, ow] of inputs [planes, ih, iw].
void queue_forward(const Tiling& tiling, const ConvSizes& s, DType t, bool turned, const void* x, const void* w,
                   const void* bias, void* y, std::string_view op) {
  const int64_t all = s.n * s.oc, groups = (all + tiling.planes - 1) / tiling.planes;
  dispatch_tiles(t, s.kh, op, [&]<class T, int K>() {
    tile_forward_kernel<T, K>
        <<<blocks_for(groups * tiling.down * tiling.across, 1), tiling.threads, tiling.shared_bytes(), stream()>>>(
            tiling, all, s.oc, turned, static_cast<const T*>(x), static_cast<const T*>(w), static_cast<const T*>(bias),
            static_cast<T*>(y));
  });
}

}  // namespace

bool fits_tiles(const ConvSizes& s, DType t) {
  return t != DType::f64 && s.oc == s.groups && s.ic == s.groups && s.kh == s.kw &&
         (s.kh == 3 || s.kh == 5 || s.kh == 7) && s.sh == 1 && s.sw == 1 && s.dh == 1 && s.dw == 1 && s.ph < s.kh &&
         s.pw < s.kw && s.ih < (1 << 20) && s.iw < (1 << 20) && s.ih * s.iw < (1 << 30) && s.oh * s.ow < (1 << 30) &&
         s.n * s.oc < (1 << 24);
}

void depthwise_tiles_forward(const ConvSizes& s, DType t, const void* x, const void* w, const void* bias, void* y) {
  const Tiling tiling(s.ih, s.iw, s.oh, s.ow, s.ph, s.pw, static_cast<int>(s.kh), aligned(y));
  queue_forward(tiling, s, t, false, x, w, bias, y, "convolution");
}

void depthwise_tiles_transpose(const ConvSizes& s, DType t, const void* y, const void* w, const void* bias, void* x) {
  const Tiling tiling(s.oh, s.ow, s.ih, s.iw, s.kh - 1 - s.ph, s.kw - 1 - s.pw, static_cast<int>(s.kh), aligned(x));
  queue_forward(tiling, s, t, true, y, w, bias, x, "convolution_transpose");
}

void depthwise_tiles_weight(const ConvSizes& s, DType t, const void* x, const void* y, int64_t shares, float* sums) {
  const Tiling tiling(s.ih, s.iw, s.oh, s.ow, s.ph, s.pw, static_cast<int>(s.kh), aligned(y));
  dispatch_tiles(t, s.kh, "convolution_weight", [&]<class T, int K>() {
    tile_weight_kernel<T, K>
        <<<dim3(static_cast<unsigned>(s.oc), static_cast<unsigned>(shares)), tiling.threads, tiling.shared_bytes(),
           stream()>>>(tiling, s.n, s.oc, static_cast<const T*>(x), static_cast<const T*>(y), sums);
  });
}

}  // namespace strata::conv_cuda
