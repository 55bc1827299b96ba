// Launches of depthwise_last.cuh.

#include "strata/ops/conv/depthwise_last.cuh"

#include "strata/ops/conv/depthwise_dispatch.cuh"

namespace strata::conv_cuda {

using namespace bands;

namespace {

bool fits_last(const ConvSizes& s, DType t, const void* x, const void* y) {
  constexpr int64_t kMost = int64_t{1} << 30;
  return fits_bands(s, t) && s.oc % 8 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(y) % 16 == 0 && s.n * s.oh * s.ow < kMost && s.n * s.ih * s.iw < kMost;
}

template <auto kKernel>
void prepare(int bytes) {
  check_cuda(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "convolution",
             "cudaFuncSetAttribute");
}

void queue_forward(const LastTiling& t, DType dtype, int64_t k, bool turned, const void* x, const void* w,
                   const void* bias, void* y) {
  dispatch_bands(dtype, k, [&]<class E, int K>() {
    by_blocks(t.w, [&](auto blocks) {
      constexpr auto kernel = last_forward_kernel<E, K, decltype(blocks)::value>;
      const int bytes = t.forward_bytes(K);
      prepare<kernel>(bytes);
      kernel<<<static_cast<unsigned>(t.groups * t.shares), kLastThreads, static_cast<size_t>(bytes), stream()>>>(
          t, turned, static_cast<const uint16_t*>(x), static_cast<const uint16_t*>(w),
          static_cast<const typename E::T*>(bias), static_cast<uint16_t*>(y));
    });
  });
}

}  // namespace

bool depthwise_last_forward(const ConvSizes& s, DType t, const void* x, const void* w, const void* bias, void* y) {
  if (!fits_last(s, t, x, y)) return false;
  const int k = static_cast<int>(s.kh);
  queue_forward(last_tiling(s.n, s.oc, s.ih, s.iw, s.oh, s.ow, s.ph, s.pw, k, multiprocessors()), t, k, false, x, w,
                bias, y);
  return true;
}

bool depthwise_last_transpose(const ConvSizes& s, DType t, const void* y, const void* w, const void* bias, void* x) {
  if (!fits_last(s, t, x, y)) return false;
  const int k = static_cast<int>(s.kh);
  queue_forward(last_tiling(s.n, s.oc, s.oh, s.ow, s.ih, s.iw, k - 1 - s.ph, k - 1 - s.pw, k, multiprocessors()), t, k,
                true, y, w, bias, x);
  return true;
}

bool depthwise_last_weight(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w) {
  if (!fits_last(s, t, x, y)) return false;
  const LastTiling tiling = last_tiling(s.n, s.oc, s.ih, s.iw, s.oh, s.ow, s.ph, s.pw, static_cast<int>(s.kh),
                                        properties(device.index).multiprocessors);
  const int64_t size = s.oc * s.kh * s.kw;
  const Tensor sums = workspace(DType::f32, device, tiling.shares * size);
  auto* const parts = static_cast<float*>(sums.raw_data());
  dispatch_bands(t, s.kh, [&]<class E, int K>() {
    by_blocks(tiling.w, [&](auto blocks) {
      constexpr auto kernel = last_weight_kernel<E, K, decltype(blocks)::value>;
      const int bytes = tiling.weight_bytes(K);
      prepare<kernel>(bytes);
      kernel<<<static_cast<unsigned>(tiling.groups * tiling.shares), kLastThreads, static_cast<size_t>(bytes),
               stream()>>>(tiling, static_cast<const uint16_t*>(x), static_cast<const uint16_t*>(y), parts);
    });
  });
  add_depthwise_shares(t, size, tiling.shares, parts, w);
  return true;
}

}  // namespace strata::conv_cuda
