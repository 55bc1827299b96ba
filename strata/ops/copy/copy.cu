// Copies, conversions and fills on a CUDA device.

#include "strata/ops/copy/copy.h"
#include "strata/ops/copy/copy_kernels.h"

#include "strata/core/layout.h"

#include "strata/cuda/elementwise.cuh"
#include "strata/cuda/memory.h"

namespace strata {
namespace {
using cuda::elementwise;

// As the CPU's: floating to integer through double and int64, with saturation; any number but 0 is true.
template <class D, class S>
struct Convert {
  __device__ compute_t<D> operator()(compute_t<S> v) const {
    if constexpr (std::is_same_v<D, bool>) {
      return v != 0;
    } else if constexpr (std::is_integral_v<D> && !std::is_integral_v<S>) {
      const double d = static_cast<double>(v);
      if (!(d == d)) return 0;
      if (d >= 9.2233720368547758e18) return static_cast<D>(INT64_MAX);
      if (d <= -9.2233720368547758e18) return static_cast<D>(INT64_MIN);
      return static_cast<D>(static_cast<int64_t>(d));
    } else {
      return static_cast<compute_t<D>>(v);
    }
  }
};
struct Same {
  template <class T>
  __device__ T operator()(T v) const {
    return v;
  }
};

// ---- transposition ----

constexpr int kTile = 64, kTileThreads = 256;

// dst(i, j, b) = src(i, j, b): dst lies side by side in i, src in j. A block takes a square of i and j, which it turns
// in shared memory, and loads and stores V elements at a time.
struct Transposition {
  int64_t size_i = 0, size_j = 0, src_i = 0, dst_j = 0;
  int64_t tiles_i = 0, tiles_j = 0;
  int dims = 0;  // of b
  int64_t sizes[cuda::kMostDims] = {}, src[cuda::kMostDims] = {}, dst[cuda::kMostDims] = {};
};

template <class T, int V>
__global__ void __launch_bounds__(kTileThreads) transpose_kernel(const Transposition t, const T* src, T* dst) {
  __shared__ T tile[kTile][kTile + 1];
  constexpr int kAcross = kTile / V, kSteps = kTile * kAcross / kTileThreads;
  int64_t block = blockIdx.x;
  const int64_t j0 = block % t.tiles_j * kTile;
  block /= t.tiles_j;
  const int64_t i0 = block % t.tiles_i * kTile;
  block /= t.tiles_i;
  for (int d = 0; d < t.dims; ++d) {
    const int64_t at = block % t.sizes[d];
    block /= t.sizes[d];
    src += at * t.src[d];
    dst += at * t.dst[d];
  }
  const int line = static_cast<int>(threadIdx.x) / kAcross, across = static_cast<int>(threadIdx.x) % kAcross * V;
  constexpr int kLines = kTileThreads / kAcross;
  cuda::Vec<T, V> v[kSteps];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int64_t i = i0 + line + s * kLines, j = j0 + across;
    if (i < t.size_i && j < t.size_j) v[s] = cuda::load_vec<V>(src + i * t.src_i + j);
  }
#pragma unroll
  for (int s = 0; s < kSteps; ++s)
#pragma unroll
    for (int k = 0; k < V; ++k) tile[line + s * kLines][across + k] = v[s].v[k];
  __syncthreads();
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int64_t j = j0 + line + s * kLines, i = i0 + across;
#pragma unroll
    for (int k = 0; k < V; ++k) v[s].v[k] = tile[across + k][line + s * kLines];
    if (i < t.size_i && j < t.size_j) cuda::store_vec(dst + j * t.dst_j + i, v[s]);
  }
}

// False, with nothing queued, where the copy is no transposition.
template <class T>
bool transpose(const Tensor& dst, const Tensor& src) {
  const auto w = cuda::make_walk<2>(std::array<const Tensor*, 2>{&dst, &src}, "copy");
  if (w.numel == 0 || w.dense || w.strides[0][0] != 1 || w.strides[1][0] <= 1) return false;
  int other = 0;
  for (int d = 1; d < w.dims && other == 0; ++d)
    if (w.strides[1][d] == 1 && w.sizes[d] >= 8) other = d;
  if (other == 0 || w.sizes[0] < 8) return false;
  Transposition t;
  t.size_i = w.sizes[0], t.size_j = w.sizes[other], t.src_i = w.strides[1][0], t.dst_j = w.strides[0][other];
  t.tiles_i = (t.size_i + kTile - 1) / kTile, t.tiles_j = (t.size_j + kTile - 1) / kTile;
  constexpr int V = cuda::kVec<T>;
  bool vectors = cuda::aligned16(dst.raw_data()) && cuda::aligned16(src.raw_data()) && t.size_i % V == 0 &&
                 t.size_j % V == 0 && t.src_i % V == 0 && t.dst_j % V == 0;
  int64_t blocks = t.tiles_i * t.tiles_j;
  for (int d = 1; d < w.dims; ++d) {
    if (d == other) continue;
    t.sizes[t.dims] = w.sizes[d], t.src[t.dims] = w.strides[1][d], t.dst[t.dims] = w.strides[0][d];
    vectors = vectors && w.strides[0][d] % V == 0 && w.strides[1][d] % V == 0;
    blocks *= w.sizes[d];
    ++t.dims;
  }
  if (blocks > INT32_MAX) return false;
  const auto launch = [&]<int N>(std::integral_constant<int, N>) {
    transpose_kernel<T, N><<<static_cast<unsigned>(blocks), kTileThreads, 0, cuda::stream()>>>(
        t, static_cast<const T*>(src.raw_data()), static_cast<T*>(dst.raw_data()));
  };
  if (vectors)
    launch(std::integral_constant<int, V>());
  else
    launch(std::integral_constant<int, 1>());
  return true;
}

void copy_within(const Tensor& dst, const Tensor& src) {
  if (dst.dtype() == src.dtype()) {
    if (lie_alike(dst, src))
      return cuda::copy_bytes(dst.raw_data(), dst.device(), src.raw_data(), src.device(),
                              static_cast<size_t>(dst.nbytes()));
    return dispatch_bytes(dst.dtype(), [&]<class T>() {
      if (!transpose<T>(dst, src)) elementwise<T, T>("copy", dst, Same{}, src);
    });
  }
  dispatch_all(dst.dtype(), "copy", [&]<class D>() {
    dispatch_all(src.dtype(), "copy", [&]<class S>() { elementwise<D, S>("copy", dst, Convert<D, S>{}, src); });
  });
}

template <class T>
struct Constant {
  compute_t<T> value;
  __device__ compute_t<T> operator()() const { return value; }
};
}  // namespace

void copy_elements_cuda(const Tensor& dst, const Tensor& src) {
  if (dst.numel() == 0) return;
  if (dst.device() == src.device()) return copy_within(dst, src);
  // Across devices whole blocks of bytes move: what is strided or of another dtype is brought in line on its own side.
  const Tensor same = src.dtype() == dst.dtype() ? src : src.to(dst.dtype());
  const Tensor from = lie_alike(dst, same) ? same : same.contiguous();
  if (lie_alike(dst, from)) {
    cuda::copy_bytes(dst.raw_data(), dst.device(), from.raw_data(), from.device(), static_cast<size_t>(dst.nbytes()));
    return;
  }
  const Tensor landed = empty({dst.shape(), dst.dtype(), dst.device(), std::nullopt});
  cuda::copy_bytes(landed.raw_data(), dst.device(), from.raw_data(), from.device(), static_cast<size_t>(dst.nbytes()));
  copy_elements(dst, landed);
}

void fill_elements_cuda(const Tensor& dst, Scalar value) {
  dispatch_all(dst.dtype(), "fill", [&]<class T>() {
    elementwise<T>("fill", dst, Constant<T>{static_cast<compute_t<T>>(value.to<compute_t<T>>())});
  });
}

}  // namespace strata
