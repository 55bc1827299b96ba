// Convolutions whose groups have one input channel each: every result is a short sum of its own.

#include "strata/ops/conv/conv_cuda.cuh"

namespace strata::conv_cuda {
namespace {

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
    forward_kernel(ConvSizes s, Divisor by_row, const T* x, const T* w, const T* bias, T* y) {
  using C = compute_t<T>;
  const int64_t kh = K > 0 ? K : s.kh, kw = K > 0 ? K : s.kw, per = s.oc / s.groups, plane = s.oh * s.ow;
  for (int64_t q = blockIdx.x; q < s.n * s.oc; q += gridDim.x) {
    const int64_t n = q / s.oc, o = q - n * s.oc;
    const T* from = x + (n * s.ic + o / per) * s.ih * s.iw;
    const T* filter = w + o * kh * kw;
    const C start = bias != nullptr ? widen(bias[o]) : C(0);
    for (int64_t p = blockIdx.y * static_cast<int64_t>(blockDim.x) + threadIdx.x; p < plane;
         p += static_cast<int64_t>(gridDim.y) * blockDim.x) {
      int64_t j;
      const int64_t i = by_row.split(p, j), y0 = i * s.sh - s.ph, x0 = j * s.sw - s.pw;
      C sum = start;
#pragma unroll
      for (int64_t a = 0; a < kh; ++a) {
        const int64_t iy = y0 + a * s.dh;
        if (iy < 0 || iy >= s.ih) continue;
#pragma unroll
        for (int64_t b = 0; b < kw; ++b) {
          const int64_t ix = x0 + b * s.dw;
          if (ix >= 0 && ix < s.iw) sum += widen(filter[a * kw + b]) * widen(from[iy * s.iw + ix]);
        }
      }
      y[q * plane + p] = narrow<T>(sum);
    }
  }
}

template <class T, int K>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(ConvSizes s, Divisor by_row, Divisor stride_h, Divisor stride_w, const T* y, const T* w,
                     const T* bias, T* x) {
  using C = compute_t<T>;
  const int64_t kh = K > 0 ? K : s.kh, kw = K > 0 ? K : s.kw, per = s.oc / s.groups, plane = s.ih * s.iw;
  for (int64_t q = blockIdx.x; q < s.n * s.ic; q += gridDim.x) {
    const int64_t n = q / s.ic, c = q - n * s.ic;
    const C start = bias != nullptr ? widen(bias[c]) : C(0);
    for (int64_t p = blockIdx.y * static_cast<int64_t>(blockDim.x) + threadIdx.x; p < plane;
         p += static_cast<int64_t>(gridDim.y) * blockDim.x) {
      int64_t column;
      const int64_t row = by_row.split(p, column);
      C sum = start;
      for (int64_t m = 0; m < per; ++m) {
        const T* from = y + (n * s.oc + c * per + m) * s.oh * s.ow;
        const T* filter = w + (c * per + m) * kh * kw;
#pragma unroll
        for (int64_t a = 0; a < kh; ++a) {
          const int64_t up = row + s.ph - a * s.dh;
          if (up < 0) break;
          int64_t rest;
          const int64_t i = stride_h.split(up, rest);
          if (rest != 0 || i >= s.oh) continue;
#pragma unroll
          for (int64_t b = 0; b < kw; ++b) {
            const int64_t left = column + s.pw - b * s.dw;
            if (left < 0) break;
            const int64_t j = stride_w.split(left, rest);
            if (rest == 0 && j < s.ow) sum += widen(filter[a * kw + b]) * widen(from[i * s.ow + j]);
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
    weight_kernel(ConvSizes s, Divisor by_row, const T* x, const T* y, compute_t<T>* sums) {
  using C = compute_t<T>;
  __shared__ C shared[kThreads / kWarp];
  const int64_t o = blockIdx.x, share = blockIdx.y, shares = gridDim.y, plane = s.oh * s.ow, taps = s.kh * s.kw;
  const int64_t begin = s.n * share / shares, end = s.n * (share + 1) / shares, per = s.oc / s.groups;
  for (int64_t t0 = 0; t0 < taps; t0 += kTapsAtOnce) {
    C sum[kTapsAtOnce] = {};
    int64_t down[kTapsAtOnce], right[kTapsAtOnce];
#pragma unroll
    for (int t = 0; t < kTapsAtOnce; ++t) {
      const int64_t a = (t0 + t) / s.kw, b = (t0 + t) - a * s.kw;
      down[t] = t0 + t < taps ? a * s.dh - s.ph : s.ih;  // outside x
      right[t] = b * s.dw - s.pw;
    }
    for (int64_t n = begin; n < end; ++n) {
      const T* from = x + (n * s.ic + o / per) * s.ih * s.iw;
      const T* g = y + (n * s.oc + o) * plane;
      for (int64_t p = threadIdx.x; p < plane; p += kThreads) {
        int64_t j;
        const int64_t i = by_row.split(p, j);
        const C v = widen(g[p]);
#pragma unroll
        for (int t = 0; t < kTapsAtOnce; ++t) {
          const int64_t iy = i * s.sh + down[t], ix = j * s.sw + right[t];
          if (iy >= 0 && iy < s.ih && ix >= 0 && ix < s.iw) sum[t] += v * widen(from[iy * s.iw + ix]);
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
  const int64_t plane = s.oh * s.ow;
  const int threads = threads_of(plane);
  dispatch_floats(t, "convolution", [&]<class T>() {
    by_size(s, [&](auto k) {
      forward_kernel<T, decltype(k)::value><<<plane_grid(s.n * s.oc, plane, threads), threads, 0, stream()>>>(
          s, Divisor(s.ow), static_cast<const T*>(x), static_cast<const T*>(w), static_cast<const T*>(bias),
          static_cast<T*>(y));
    });
  });
}

void depthwise_transpose(const ConvSizes& s, DType t, const void* y, const void* w, const void* bias, void* x) {
  const int64_t plane = s.ih * s.iw;
  const int threads = threads_of(plane);
  dispatch_floats(t, "convolution_transpose", [&]<class T>() {
    by_size(s, [&](auto k) {
      transpose_kernel<T, decltype(k)::value><<<plane_grid(s.n * s.ic, plane, threads), threads, 0, stream()>>>(
          s, Divisor(s.iw), Divisor(s.sh), Divisor(s.sw), static_cast<const T*>(y), static_cast<const T*>(w),
          static_cast<const T*>(bias), static_cast<T*>(x));
    });
  });
}

void depthwise_weight(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w) {
  // About four blocks for each of a large card's multiprocessors.
  const int64_t shares = std::clamp<int64_t>(528 / s.oc, 1, std::min<int64_t>(s.n, 1024)), size = s.oc * s.kh * s.kw;
  const Tensor sums = workspace(sum_dtype(t), device, shares * size);
  dispatch_floats(t, "convolution_weight", [&]<class T>() {
    auto* parts = static_cast<compute_t<T>*>(sums.raw_data());
    weight_kernel<T><<<dim3(static_cast<unsigned>(s.oc), static_cast<unsigned>(shares)), kThreads, 0, stream()>>>(
        s, Divisor(s.ow), static_cast<const T*>(x), static_cast<const T*>(y), parts);
    shares_kernel<T><<<blocks_for(size, kThreads), kThreads, 0, stream()>>>(size, shares, parts, static_cast<T*>(w));
  });
}

}  // namespace strata::conv_cuda
