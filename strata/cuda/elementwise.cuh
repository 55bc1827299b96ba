#pragma once
// y[i] = f(a[i], b[i], ...) for tensors of one shape and any strides, on the current stream.
//
// Dense operands go 16 bytes of the widest type at a time. Others are walked by index: dims are merged where every
// operand steps evenly, and divisions by sizes are multiplications (Granlund and Montgomery, "Division by Invariant
// Integers using Multiplication", PLDI '94). Strided tensors past 2^31 elements are launched in parts.

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "strata/cuda/kernel.cuh"

namespace strata::cuda {

/// Quotient and remainder by a divisor known before the launch, for dividends below 2^31.
struct FastDivisor {
  uint32_t d = 1, multiplier = 0, shift = 0;
  FastDivisor() = default;
  explicit FastDivisor(uint32_t divisor) : d(divisor) {
    while (shift < 32 && (uint32_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }
  __device__ __forceinline__ uint32_t divide(uint32_t n) const { return (__umulhi(n, multiplier) + n) >> shift; }
};

inline constexpr int kMostDims = 8;

/// How N operands of one shape are walked: dims innermost first, strides in elements.
template <int N>
struct Walk {
  int64_t numel = 0;
  int dims = 0;
  bool dense = true;  ///< all operands row-major without gaps
  int64_t sizes[kMostDims] = {};
  FastDivisor by[kMostDims];
  int64_t strides[N][kMostDims] = {};

  /// Offsets of element i of every operand.
  __device__ __forceinline__ void offsets(uint32_t i, int64_t (&at)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] = 0;
#pragma unroll
    for (int d = 0; d < kMostDims; ++d) {
      if (d == dims) break;
      const uint32_t q = by[d].divide(i), r = i - q * by[d].d;
      i = q;
#pragma unroll
      for (int k = 0; k < N; ++k) at[k] += static_cast<int64_t>(r) * strides[k][d];
    }
  }
};

/// All tensors have the first one's shape. Throws ShapeError for more than 8 dims that cannot be merged.
template <int N>
Walk<N> make_walk(const std::array<const Tensor*, N>& t, std::string_view op) {
  Walk<N> w;
  const Shape& shape = t[0]->shape();
  w.numel = t[0]->numel();
  for (const Tensor* x : t) w.dense = w.dense && x->is_contiguous();
  if (w.numel == 0) return w;
  if (w.dense) {
    w.dims = 1, w.sizes[0] = w.numel;
    for (int k = 0; k < N; ++k) w.strides[k][0] = 1;
  } else {
    for (int d = shape.size() - 1; d >= 0; --d) {
      if (shape[d] == 1) continue;
      bool merges = w.dims > 0;
      for (int k = 0; k < N && merges; ++k)
        merges = t[static_cast<size_t>(k)]->strides()[d] == w.strides[k][w.dims - 1] * w.sizes[w.dims - 1];
      if (merges) {
        w.sizes[w.dims - 1] *= shape[d];
        continue;
      }
      check<ShapeError>(w.dims < kMostDims, op, "more than ", kMostDims, " dims with uneven strides: ", shape);
      w.sizes[w.dims] = shape[d];
      for (int k = 0; k < N; ++k) w.strides[k][w.dims] = t[static_cast<size_t>(k)]->strides()[d];
      ++w.dims;
    }
    if (w.dims == 0) w.dims = 1, w.sizes[0] = 1;
  }
  return w;
}

/// Calls part(walk, offsets of its first element) for parts of `w` that 32-bit indices reach.
template <int N, class Part>
void for_parts(Walk<N> w, Part&& part, std::type_identity_t<std::array<int64_t, N>> at = {}) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  if (w.numel > kMost) {
    const int d = static_cast<int>(std::max_element(w.sizes, w.sizes + w.dims) - w.sizes);
    const int64_t size = w.sizes[d], other = w.numel / size;
    for (int64_t begin = 0, half = (size + 1) / 2; begin < size; begin += half) {
      Walk<N> p = w;
      p.sizes[d] = std::min(half, size - begin);
      p.numel = other * p.sizes[d];
      std::array<int64_t, N> from = at;
      for (int k = 0; k < N; ++k) from[static_cast<size_t>(k)] += begin * w.strides[k][d];
      for_parts(p, part, from);
    }
    return;
  }
  for (int d = 0; d < w.dims; ++d) w.by[d] = FastDivisor(static_cast<uint32_t>(w.sizes[d]));
  part(w, at);
}

/// Stands for an element type that only the device compiler knows: bool where the function returns bool, else T.
template <class T>
struct BoolOr {};

namespace detail {
inline constexpr int kThreads = 256;

template <class Out, class Result>
struct Stored {
  using type = Out;
};
template <class T, class Result>
struct Stored<BoolOr<T>, Result> {
  using type = std::conditional_t<std::is_same_v<Result, bool>, bool, T>;
};

template <int V, class Out, class F, class... In>
__global__ void __launch_bounds__(kThreads) dense_kernel(int64_t n, F f, void* to, const In*... in) {
  using O = typename Stored<Out, decltype(f(widen(In{})...))>::type;
  O* y = static_cast<O*>(to);
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (i + V <= n) {
    [&](const Vec<In, V>&... x) {
      Vec<O, V> r;
#pragma unroll
      for (int k = 0; k < V; ++k) r.v[k] = narrow<O>(f(widen(x.v[k])...));
      store_vec(y + i, r);
    }(load_vec<V>(in + i)...);
  } else {
    for (int64_t k = i; k < n; ++k) y[k] = narrow<O>(f(widen(in[k])...));
  }
}

template <class Out, class F, class... In>
__global__ void __launch_bounds__(kThreads)
    strided_kernel(Walk<1 + sizeof...(In)> w, F f, void* to, int64_t first, const In*... in) {
  using O = typename Stored<Out, decltype(f(widen(In{})...))>::type;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= w.numel) return;
  int64_t at[1 + sizeof...(In)];
  w.offsets(static_cast<uint32_t>(i), at);
  int k = 1;
  const std::tuple<compute_t<In>...> x{widen(in[at[k++]])...};  // braces: from left to right
  static_cast<O*>(to)[first + at[0]] = narrow<O>(std::apply(f, x));
}

template <class Out>
inline constexpr size_t stored_size = sizeof(Out);
template <class T>
inline constexpr size_t stored_size<BoolOr<T>> = sizeof(T);
}  // namespace detail

/// Writes f(in...) to y. `Out` and `In` are the element types; f takes and returns compute_t of them. Inputs have y's
/// shape. y may be one of the inputs, element for element.
template <class Out, class... In, class F>
void elementwise(std::string_view op, const Tensor& y, F f, const TensorOf<In>&... in) {
  constexpr int N = 1 + sizeof...(In);
  const auto w = make_walk<N>(std::array<const Tensor*, N>{&y, &in...}, op);
  if (w.numel == 0) return;
  constexpr size_t widest = std::max({detail::stored_size<Out>, sizeof(In)...});
  constexpr int V = std::max<int>(1, 16 / static_cast<int>(widest));
  const auto aligned = [](const Tensor& t) {
    return reinterpret_cast<uintptr_t>(t.raw_data()) % static_cast<size_t>(V * size_of(t.dtype())) == 0;
  };
  if (w.dense && aligned(y) && (aligned(in) && ...)) {
    detail::dense_kernel<V, Out><<<blocks_for(w.numel, int64_t{detail::kThreads} * V), detail::kThreads, 0, stream()>>>(
        w.numel, f, y.raw_data(), static_cast<const In*>(in.raw_data())...);
    return;
  }
  for_parts(w, [&](const Walk<N>& part, const std::array<int64_t, N>& at) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      detail::strided_kernel<Out><<<blocks_for(part.numel, detail::kThreads), detail::kThreads, 0, stream()>>>(
          part, f, y.raw_data(), at[0], static_cast<const In*>(in.raw_data()) + at[I + 1]...);
    }
    (std::index_sequence_for<In...>());
  });
}

}  // namespace strata::cuda
