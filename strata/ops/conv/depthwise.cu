// Convolutions whose groups have one input channel each: every result is a short sum of its own.

#include "strata/ops/conv/depthwise.cuh"

namespace strata::conv_cuda {
namespace {

// A ConvSizes in 32-bit numbers; n and the channels stay wide where they are multiplied.
struct Sizes {
  int64_t n, ic, oc;
  int per, ih, iw, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw;
  explicit Sizes(const ConvSizes& s)
      : n(s.n),
        ic(s.ic),
        oc(s.oc),
        per(static_cast<int>(s.oc / s.groups)),
        ih(static_cast<int>(s.ih)),
        iw(static_cast<int>(s.iw)),
        oh(static_cast<int>(s.oh)),
        ow(static_cast<int>(s.ow)),
        kh(static_cast<int>(s.kh)),
        kw(static_cast<int>(s.kw)),
        sh(static_cast<int>(s.sh)),
        sw(static_cast<int>(s.sw)),
        ph(static_cast<int>(s.ph)),
        pw(static_cast<int>(s.pw)),
        dh(static_cast<int>(s.dh)),
        dw(static_cast<int>(s.dw)) {}
};
__device__ __forceinline__ int divide(const FastDivisor& d, int n) {
  return static_cast<int>(d.divide(static_cast<uint32_t>(n)));
}
FastDivisor divisor(int64_t d) {
  return FastDivisor(static_cast<uint32_t>(d));
}
__device__ __forceinline__ bool within(int i, int size) {
  return static_cast<unsigned>(i) < static_cast<unsigned>(size);
}

// Blocks of one plane each: enough threads for a small one, no more than kThreads.
int threads_of(int64_t plane) {
  return static_cast<int>(std::min<int64_t>(kThreads, (plane + kWarp - 1) / kWarp * kWarp));
}
dim3 plane_grid(int64_t planes, int64_t plane, int threads) {
  return dim3(static_cast<unsigned>(std::min<int64_t>(planes, int64_t{1} << 30)),
              static_cast<unsigned>(std::clamp<int64_t>(plane / (threads * 8), 1, 1024)));
}

// K is the kernel's size where it is square and known, else 0.
template <class T, int K>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Sizes s, FastDivisor by_row, const T* x, const T* w, const T* bias, T* y) {
  using C = compute_t<T>;
  const int kh = K > 0 ? K : s.kh, kw = K > 0 ? K : s.kw, plane = s.oh * s.ow;
  for (int64_t q = blockIdx.x; q < s.n * s.oc; q += gridDim.x) {
    const int64_t n = q / s.oc, o = q - n * s.oc;
    const T* from = x + (n * s.ic + o / s.per) * s.ih * s.iw;
    const T* filter = w + o * kh * kw;
    const C start = bias != nullptr ? widen(bias[o]) : C(0);
    C weights[K > 0 ? K * K : 1];
    if constexpr (K > 0) {
#pragma unroll
      for (int t = 0; t < K * K; ++t) weights[t] = widen(filter[t]);
    }
    for (int p = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x); p < plane;
         p += static_cast<int>(gridDim.y * blockDim.x)) {
      const int i = divide(by_row, p), j = p - i * s.ow, y0 = i * s.sh - s.ph, x0 = j * s.sw - s.pw;
      C sum = start;
#pragma unroll
      for (int a = 0; a < kh; ++a) {
        const int iy = y0 + a * s.dh;
        const T* line = from + iy * s.iw;
#pragma unroll
        for (int b = 0; b < kw; ++b) {
          const int ix = x0 + b * s.dw;
          if (within(iy, s.ih) && within(ix, s.iw)) {
            if constexpr (K > 0) {
              sum += weights[a * K + b] * widen(line[ix]);
            } else {
              sum += widen(filter[a * kw + b]) * widen(line[ix]);
            }
          }
        }
      }
      y[q * plane + p] = narrow<T>(sum);
    }
  }
}

template <class T, int K>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(Sizes s, FastDivisor by_row, FastDivisor stride_h, FastDivisor stride_w, const T* y, const T* w,
                     const T* bias, T* x) {
  using C = compute_t<T>;
  const int kh = K > 0 ? K : s.kh, kw = K > 0 ? K : s.kw, plane = s.ih * s.iw;
  const bool strided = s.sh != 1 || s.sw != 1;
  for (int64_t q = blockIdx.x; q < s.n * s.ic; q += gridDim.x) {
    const int64_t n = q / s.ic, c = q - n * s.ic;
    const C start = bias != nullptr ? widen(bias[c]) : C(0);
    for (int p = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x); p < plane;
         p += static_cast<int>(gridDim.y * blockDim.x)) {
      const int row = divide(by_row, p), column = p - row * s.iw;
      C sum = start;
      for (int m = 0; m < s.per; ++m) {
        const T* from = y + (n * s.oc + c * s.per + m) * s.oh * s.ow;
        const T* filter = w + (c * s.per + m) * kh * kw;
#pragma unroll
        for (int a = 0; a < kh; ++a) {
          const int up = row + s.ph - a * s.dh;
          int i = up;
          if (strided) i = up < 0 ? -1 : divide(stride_h, up);
          if (!within(i, s.oh) || (strided && i * s.sh != up)) continue;
#pragma unroll
          for (int b = 0; b < kw; ++b) {
            const int left = column + s.pw - b * s.dw;
            int j = left;
            if (strided) j = left < 0 ? -1 : divide(stride_w, left);
            if (within(j, s.ow) && (!strided || j * s.sw == left))
              sum += widen(filter[a * kw + b]) * widen(from[i * s.ow + j]);
          }
        }
      }
      x[q * plane + p] = narrow<T>(sum);
    }
  }
}

// Sums over a share of the images, for one output channel: sums[share, channel, tap].
constexpr int kTapsAtOnce = 9;
template <class T>
__global__ void __launch_bounds__(kThreads)
    weight_kernel(Sizes s, FastDivisor by_row, const T* x, const T* y, compute_t<T>* sums) {
  using C = compute_t<T>;
  __shared__ C shared[kThreads / kWarp];
  const int64_t o = blockIdx.x, share = blockIdx.y, shares = gridDim.y;
  const int plane = s.oh * s.ow, taps = s.kh * s.kw;
  const int64_t begin = s.n * share / shares, end = s.n * (share + 1) / shares;
  for (int t0 = 0; t0 < taps; t0 += kTapsAtOnce) {
    C sum[kTapsAtOnce] = {};
    int down[kTapsAtOnce], right[kTapsAtOnce];
#pragma unroll
    for (int t = 0; t < kTapsAtOnce; ++t) {
      const int a = (t0 + t) / s.kw, b = (t0 + t) - a * s.kw;
      down[t] = t0 + t < taps ? a * s.dh - s.ph : s.ih;  // outside x
      right[t] = b * s.dw - s.pw;
    }
    for (int64_t n = begin; n < end; ++n) {
      const T* from = x + (n * s.ic + o / s.per) * s.ih * s.iw;
      const T* g = y + (n * s.oc + o) * plane;
      for (int p = static_cast<int>(threadIdx.x); p < plane; p += kThreads) {
        const int i = divide(by_row, p), j = p - i * s.ow;
        const C v = widen(g[p]);
#pragma unroll
        for (int t = 0; t < kTapsAtOnce; ++t) {
          const int iy = i * s.sh + down[t], ix = j * s.sw + right[t];
          if (within(iy, s.ih) && within(ix, s.iw)) sum[t] += v * widen(from[iy * s.iw + ix]);
        }
      }
    }
#pragma unroll
    for (int t = 0; t < kTapsAtOnce; ++t) {
      const C total = block_reduce<kThreads>(sum[t], Sum(), shared);
      if (threadIdx.x == 0 && t0 + t < taps) sums[(share * s.oc + o) * taps + t0 + t] = total;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) shares_kernel(int64_t n, int64_t shares, const compute_t<T>* sums, T* w) {
  const int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= n) return;
  compute_t<T> total = 0;
  for (int64_t share = 0; share < shares; ++share) total += sums[share * n + e];
  w[e] = narrow<T>(total);
}

// Calls f(integral constant) with the kernel's size where there is code of its own for it.
template <class F>
void by_size(const ConvSizes& s, F&& f) {
  if (s.kh == 3 && s.kw == 3) return f(std::integral_constant<int, 3>());
  f(std::integral_constant<int, 0>());
}

}  // namespace

void depthwise_forward(const ConvSizes& s, DType t, const void* x, const void* w, const void* bias, void* y) {
  if (fits_bands(s, t)) return depthwise_bands_forward(s, t, x, w, bias, y);
  if (fits_tiles(s, t)) return depthwise_tiles_forward(s, t, x, w, bias, y);
  const int64_t plane = s.oh * s.ow;
  const int threads = threads_of(plane);
  dispatch_floats(t, "convolution", [&]<class T>() {
    by_size(s, [&](auto k) {
      forward_kernel<T, decltype(k)::value><<<plane_grid(s.n * s.oc, plane, threads), threads, 0, stream()>>>(
          Sizes(s), divisor(s.ow), static_cast<const T*>(x), static_cast<const T*>(w), static_cast<const T*>(bias),
          static_cast<T*>(y));
    });
  });
}

void depthwise_transpose(const ConvSizes& s, DType t, const void* y, const void* w, const void* bias, void* x) {
  if (fits_bands(s, t)) return depthwise_bands_transpose(s, t, y, w, bias, x);
  if (fits_tiles(s, t)) return depthwise_tiles_transpose(s, t, y, w, bias, x);
  const int64_t plane = s.ih * s.iw;
  const int threads = threads_of(plane);
  dispatch_floats(t, "convolution_transpose", [&]<class T>() {
    by_size(s, [&](auto k) {
      transpose_kernel<T, decltype(k)::value><<<plane_grid(s.n * s.ic, plane, threads), threads, 0, stream()>>>(
          Sizes(s), divisor(s.iw), divisor(s.sh), divisor(s.sw), static_cast<const T*>(y), static_cast<const T*>(w),
          static_cast<const T*>(bias), static_cast<T*>(x));
    });
  });
}

void add_depthwise_shares(DType t, int64_t size, int64_t shares, const float* sums, void* w) {
  dispatch_floats(t, "convolution_weight", [&]<class T>() {
    if constexpr (sizeof(T) == 2)
      shares_kernel<T><<<blocks_for(size, kThreads), kThreads, 0, stream()>>>(size, shares, sums, static_cast<T*>(w));
  });
}

void depthwise_weight(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w) {
  const bool bands = fits_bands(s, t);
  // Without bands about four blocks for each of a large card's multiprocessors.
  const int64_t shares =
      bands ? depthwise_bands_shares(s) : std::clamp<int64_t>(528 / s.oc, 1, std::min<int64_t>(s.n, 1024));
  const int64_t size = s.oc * s.kh * s.kw;
  const Tensor sums = workspace(sum_dtype(t), device, shares * size);
  dispatch_floats(t, "convolution_weight", [&]<class T>() {
    auto* parts = static_cast<compute_t<T>*>(sums.raw_data());
    if (bands) {
      depthwise_bands_weight(s, t, x, y, static_cast<float*>(sums.raw_data()));
    } else if (fits_tiles(s, t)) {
      depthwise_tiles_weight(s, t, x, y, shares, static_cast<float*>(sums.raw_data()));
    } else {
      weight_kernel<T><<<dim3(static_cast<unsigned>(s.oc), static_cast<unsigned>(shares)), kThreads, 0, stream()>>>(
          Sizes(s), divisor(s.ow), static_cast<const T*>(x), static_cast<const T*>(y), parts);
    }
    shares_kernel<T><<<blocks_for(size, kThreads), kThreads, 0, stream()>>>(size, shares, parts, static_cast<T*>(w));
  });
}

}  // namespace strata::conv_cuda
