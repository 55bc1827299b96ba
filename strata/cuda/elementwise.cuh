#pragma once
// y[i] = f(a[i], b[i], ...) for tensors of one shape and any strides, on the current stream.
//
// Dense operands go 16 bytes of the widest type at a time. Others are walked by index, in pieces of as many elements of
// the innermost dim, which operands that lie dense there still load whole: dims are merged where every operand steps
// evenly, and divisions by sizes are multiplications (Granlund and Montgomery, "Division by Invariant Integers using
// Multiplication", PLDI '94). Strided tensors past 2^31 pieces are launched in parts.

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "strata/cuda/dense_map.cuh"
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
  int64_t numel = 0, pieces = 0;
  int dims = 0;
  bool dense = true;  ///< no operand has gaps, and all lie in the same order
  int64_t sizes[kMostDims] = {};
  FastDivisor by[kMostDims];
  int64_t strides[N][kMostDims] = {};

  /// Offsets of the first element of piece i of every operand; returns how many elements it has.
  __device__ __forceinline__ int64_t offsets(uint32_t i, int piece, int64_t (&at)[N]) const {
    const uint32_t q0 = by[0].divide(i);
    const int64_t first = static_cast<int64_t>(i - q0 * by[0].d) * piece;
    i = q0;
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] = first * strides[k][0];
#pragma unroll
    for (int d = 1; d < kMostDims; ++d) {
      if (d >= dims) break;
      const uint32_t q = by[d].divide(i), r = i - q * by[d].d;
      i = q;
#pragma unroll
      for (int k = 0; k < N; ++k) at[k] += static_cast<int64_t>(r) * strides[k][d];
    }
    return sizes[0] - first < piece ? sizes[0] - first : piece;
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
    int order[kMaxDims], used = 0;  // innermost first
    for (int d = shape.size() - 1; d >= 0; --d)
      if (shape[d] != 1) order[used++] = d;
    // Small strides of the first operand that has them go inside, as on the CPU (insertion sort: stable).
    const auto belongs_inside = [&](int inner, int outer) {
      for (int k = 0; k < N; ++k) {
        const int64_t a = t[static_cast<size_t>(k)]->strides()[inner], b = t[static_cast<size_t>(k)]->strides()[outer];
        if (a != b && a != 0 && b != 0) return b < a;
      }
      return false;
    };
    for (int i = 1; i < used; ++i)
      for (int j = i; j > 0 && belongs_inside(order[j - 1], order[j]); --j) std::swap(order[j - 1], order[j]);
    for (int i = 0; i < used; ++i) {
      const int d = order[i];
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
    w.dense = w.dims == 1;
    for (int k = 0; k < N; ++k) w.dense = w.dense && w.strides[k][0] == 1;
  }
  return w;
}

/// Calls part(walk, offsets of its first element) for parts of `w` whose pieces of `piece` innermost elements 32-bit
/// indices reach; the walk's divisors are then those of pieces, and `pieces` counts them.
template <int N, class Part>
void for_parts(Walk<N> w, int64_t piece, Part&& part, std::type_identity_t<std::array<int64_t, N>> at = {}) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  w.pieces = (w.sizes[0] + piece - 1) / piece * (w.numel / w.sizes[0]);
  if (w.pieces > kMost) {
    const int d = static_cast<int>(std::max_element(w.sizes, w.sizes + w.dims) - w.sizes);
    const int64_t size = w.sizes[d], other = w.numel / size;
    for (int64_t begin = 0, half = (size / 2 + piece - 1) / piece * piece; begin < size; begin += half) {
      Walk<N> p = w;
      p.sizes[d] = std::min(half, size - begin);
      p.numel = other * p.sizes[d];
      std::array<int64_t, N> from = at;
      for (int k = 0; k < N; ++k) from[static_cast<size_t>(k)] += begin * w.strides[k][d];
      for_parts(p, piece, part, from);
    }
    return;
  }
  w.by[0] = FastDivisor(static_cast<uint32_t>((w.sizes[0] + piece - 1) / piece));
  for (int d = 1; d < w.dims; ++d) w.by[d] = FastDivisor(static_cast<uint32_t>(w.sizes[d]));
  part(w, at);
}

namespace detail {
// V elements `stride` apart, of which `count` are there; `whole`: they lie side by side, aligned.
template <int V, class T>
__device__ __forceinline__ Vec<T, V> load_piece(const T* p, int64_t stride, bool whole, int64_t count) {
  if (whole && count == V) return load_vec<V>(p);
  Vec<T, V> v;
  v.v[0] = *p;
#pragma unroll
  for (int j = 1; j < V; ++j) v.v[j] = stride != 0 && j < count ? p[j * stride] : v.v[0];
  return v;
}

template <int V, class O, class F, class... X>
__device__ __forceinline__ Vec<O, V> map_pieces(const F& f, const Vec<X, V>&... x) {
  Vec<O, V> r;
#pragma unroll
  for (int k = 0; k < V; ++k) r.v[k] = narrow<O>(f(widen(x.v[k])...));
  return r;
}

/// Bit k of `whole`: operand k (0 the result) lies side by side and aligned in every piece.
template <int V, class Out, class F, class... In>
__global__ void __launch_bounds__(kThreads)
    strided_kernel(Walk<1 + sizeof...(In)> w, F f, uint32_t whole, void* to, int64_t first, const In*... in) {
  using O = typename Stored<Out, decltype(f(widen(In{})...))>::type;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= w.pieces) return;
  int64_t at[1 + sizeof...(In)];
  const int64_t count = w.offsets(static_cast<uint32_t>(i), V, at);
  O* y = static_cast<O*>(to) + first + at[0];
  const int64_t step = w.strides[0][0];
  const Vec<O, V> r = [&]<size_t... I>(std::index_sequence<I...>) {
    return map_pieces<V, O>(f,
                            load_piece<V>(in + at[I + 1], w.strides[I + 1][0], (whole >> (I + 1) & 1) != 0, count)...);
  }
  (std::index_sequence_for<In...>());
  if ((whole & 1) != 0 && count == V) {
    store_vec(y, r);
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (k < count) y[k * step] = r.v[k];
  }
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
  constexpr size_t widest = std::max({detail::stored_size<Out>, sizeof(In)...});
  constexpr int V = std::max<int>(1, 16 / static_cast<int>(widest));
  const auto aligned = [](const Tensor& t) {
    return reinterpret_cast<uintptr_t>(t.raw_data()) % static_cast<size_t>(V * size_of(t.dtype())) == 0;
  };
  const int64_t numel = y.numel();
  if (numel == 0) return;
  const bool vectors = aligned(y) && (aligned(in) && ...);
  const auto run_dense = [&] {
    static Launcher launch(reinterpret_cast<const void*>(&detail::dense_kernel<V, Out, F, In...>));
    [&](const auto*... from) {
      int64_t n = numel;
      void* to = y.raw_data();
      void* parameters[] = {&n, &f, &to, &from...};
      launch(detail::dense_blocks<V>(numel), detail::kThreads, parameters);
    }(static_cast<const In*>(in.raw_data())...);
  };
  if (vectors && y.is_contiguous() && (in.is_contiguous() && ...)) return run_dense();  // no walk to make
  const auto w = make_walk<N>(std::array<const Tensor*, N>{&y, &in...}, op);
  if (vectors && w.dense) return run_dense();
  // Whether operand k starts every piece at a multiple of its vectors.
  const auto is_whole = [&](int k, const Tensor& t, const std::array<int64_t, N>& at) {
    bool whole = w.strides[k][0] == 1 && at[static_cast<size_t>(k)] % V == 0 && aligned(t);
    for (int d = 1; d < w.dims; ++d) whole = whole && w.strides[k][d] % V == 0;
    return static_cast<uint32_t>(whole) << k;
  };
  for_parts(w, V, [&](const Walk<N>& part, const std::array<int64_t, N>& at) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      const uint32_t whole = (is_whole(0, y, at) | ... | is_whole(static_cast<int>(I) + 1, in, at));
      detail::strided_kernel<V, Out><<<blocks_for(part.pieces, detail::kThreads), detail::kThreads, 0, stream()>>>(
          part, f, whole, y.raw_data(), at[0], static_cast<const In*>(in.raw_data()) + at[I + 1]...);
    }
    (std::index_sequence_for<In...>());
  });
}

}  // namespace strata::cuda
