// Normalisation by given statistics, and slices scaled down to a norm, on a CUDA device: one launch each, with the
// numbers of channels and slices broadcast.

#include "strata/cuda/divisor.cuh"
#include "strata/cuda/row_loops.cuh"
#include "strata/ops/norm/scale_shift_kernel.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {
using namespace cuda;

template <class C>
struct ByRunning {
  C eps;
  bool scaled, shifted;
  __device__ C operator()(C x, C mean, C var, C weight, C bias) const {
    const C y = (x - mean) / sqrt(var + eps);
    return (scaled ? y * weight : y) + (shifted ? bias : C(0));
  }
};
template <class C>
struct LimitedTo {
  C most;
  __device__ C operator()(C x, C length) const { return length > most ? x * (most / (length + C(1e-7))) : x; }
};

constexpr int kThreads = 256;

// What a channel's numbers come to, once for the V elements of a piece.
template <class C>
struct Channels {
  const C *mean, *var, *weight, *bias;  // the last two may be null
  C eps;
  Divisor by_row, by_count;  // pieces of a channel's row, channels

  template <int V>
  __device__ __forceinline__ Vec<C, V> normalized(int64_t piece, Vec<C, V> x) const {
    int64_t rest, c;
    by_count.split(by_row.split(piece, rest), c);
    const C root = C(1) / sqrt(var[c] + eps), scale = weight != nullptr ? weight[c] * root : root, middle = mean[c];
    const C shift = bias != nullptr ? bias[c] : C(0);
#pragma unroll
    for (int k = 0; k < V; ++k) x.v[k] = (x.v[k] - middle) * scale + shift;
    return x;
  }
};

// Two pieces a thread, half the tensor apart, both on their way before the first is worked on.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    channel_rows_kernel(Channels<compute_t<T>> channels, int64_t pieces, const T* x, T* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t second = i + static_cast<int64_t>(gridDim.x) * kThreads;
  if (i >= pieces) return;
  const auto a = load_vec<V>(x + i * V), b = load_vec<V>(x + (second < pieces ? second : i) * V);
  store_vec(y + i * V, narrow_all<T>(channels.normalized(i, widen_all(a))));
  if (second < pieces) store_vec(y + second * V, narrow_all<T>(channels.normalized(second, widen_all(b))));
}

// Row-major tensors whose channels have whole vectors side by side; false, with nothing done, of others.
template <class T>
bool by_channel_rows(Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                     const Tensor& bias, double eps) {
  using C = compute_t<T>;
  constexpr int V = kVec<T>;
  const int64_t rows = x.size(0) * x.size(1), inner = rows == 0 ? 0 : x.numel() / rows;
  if (inner == 0 || inner % V != 0 || !x.is_contiguous() || !y.is_contiguous() || !aligned16(x.raw_data()) ||
      !aligned16(y.raw_data()))
    return false;
  const auto wide = [](const Tensor& t) { return t.defined() ? t.to(dtype_of<C>).contiguous() : t; };
  const auto at = [](const Tensor& t) { return t.defined() ? static_cast<const C*>(t.raw_data()) : nullptr; };
  const Tensor m = wide(mean), v = wide(var), w = wide(weight), b = wide(bias);
  const int64_t pieces = x.numel() / V, blocks = blocks_for(pieces, kThreads);
  constexpr int64_t kManyBlocks = 8192;  // from which on a thread has two pieces
  channel_rows_kernel<T, V>
      <<<static_cast<unsigned>(blocks < kManyBlocks ? blocks : (blocks + 1) / 2), kThreads, 0, stream()>>>(
          {at(m), at(v), at(w), at(b), static_cast<C>(eps), Divisor(inner / V), Divisor(x.size(1))}, pieces,
          static_cast<const T*>(x.raw_data()), static_cast<T*>(y.raw_data()));
  return true;
}

}  // namespace

void by_running_cuda(Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                     const Tensor& bias, double eps) {
  dispatch_floats(x.dtype(), "batch_norm", [&]<class T>() {
    using C = compute_t<T>;
    if (by_channel_rows<T>(y, x, mean, var, weight, bias, eps)) return;
    Shape shape = Shape::filled(static_cast<int>(x.dim()), 1);
    shape[1] = x.size(1);
    const auto beside = [&](const Tensor& t) {
      return expand(reshape(t.defined() ? t.to(dtype_of<C>) : mean.to(dtype_of<C>), shape), x.shape());
    };
    const Tensor m = beside(mean), v = beside(var), w = beside(weight), b = beside(bias);
    const ByRunning<C> f{static_cast<C>(eps), weight.defined(), bias.defined()};
    cuda::elementwise<T, T, C, C, C, C>("batch_norm", y, f, x, m, v, w, b);
  });
}

void limit_lengths_cuda(Tensor& y, const Tensor& x, const Tensor& lengths, double most) {
  dispatch_floats(x.dtype(), "renorm", [&]<class T>() {
    using C = compute_t<T>;
    cuda::elementwise<T, T, C>("renorm", y, LimitedTo<C>{static_cast<C>(most)}, x, expand(lengths, x.shape()));
  });
}

}  // namespace strata
