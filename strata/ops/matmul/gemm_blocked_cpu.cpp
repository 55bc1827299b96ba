// The cache-blocked matrix product for every dtype. A and B are packed, converted to the accumulator's type, into
// panels that a register-tiled kernel reads in order (the scheme of Goto and van de Geijn, "Anatomy of High-Performance
// Matrix Multiplication", ACM TOMS 34(3), 2008).

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/ops/matmul/gemm_blocked_cpu.cpp"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>

#include <hwy/base.h>
#include <hwy/detect_targets.h>
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_BASELINE_TARGETS | HWY_AVX2 | HWY_AVX3))
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/matmul/gemm_cpu.h"
#include "strata/ops/matmul/gemm_shape.h"
#include "strata/ops/vec/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a register tile; with two vectors a row it fills the registers that the target has.
constexpr int64_t kRows = HWY_TARGET == HWY_AVX3 ? 12 : 6;
constexpr int64_t kBlockK = 256;

// Sums that lie in vectors; 64-bit integers, where a target does not multiply them in vectors, are left to the
// compiler.
template <class T>
constexpr bool kInVectors = std::is_floating_point_v<T> || std::is_same_v<T, uint32_t> || std::is_same_v<T, uint16_t> ||
                            (HWY_TARGET == HWY_AVX3 && std::is_same_v<T, uint64_t>);

// a * b; 16-bit numbers would be multiplied as int, whose range their product may leave.
template <class T>
HWY_INLINE T product(T a, T b) {
  if constexpr (std::is_same_v<T, uint16_t>)
    return static_cast<T>(uint32_t{a} * b);
  else
    return a * b;
}

template <class T>
constexpr int64_t tile_cols() {
  if constexpr (kInVectors<T>) return 2 * HWY_MAX_BYTES / sizeof(T);
  return 64 / sizeof(T);
}
// Rows and columns of a task: multiples of every target's tile.
constexpr int64_t kBlockM = 96;
template <class T>
constexpr int64_t kBlockN = 1024 / sizeof(T);

// dst[i] = src[i * stride] for i < n, converted to the accumulator's type.
template <class In, class T>
HWY_INLINE void load_run(const In* HWY_RESTRICT src, int64_t stride, int64_t n, T* HWY_RESTRICT dst) {
  if (stride != 1) {
    for (int64_t i = 0; i < n; ++i) dst[i] = static_cast<T>(src[i * stride]);
    return;
  }
  int64_t i = 0;
  if constexpr (std::is_same_v<In, Half>) {
    const hn::ScalableTag<float> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> dh;
    const int64_t lanes = hn::Lanes(d);
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(src + i))), d, dst + i);
    }
  } else if constexpr (std::is_same_v<In, BFloat16>) {
    const hn::ScalableTag<float> d;
    const hn::Rebind<hwy::bfloat16_t, decltype(d)> dh;
    const int64_t lanes = hn::Lanes(d);
    for (; i + lanes <= n; i += lanes) {
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::bfloat16_t*>(src + i))), d, dst + i);
    }
  }
  for (; i < n; ++i) dst[i] = static_cast<T>(src[i]);
}

// Packs an [outer, k] block into panels of R outer indices: dst[(o / R) * R * k + l * R + o % R], zeros past `outer`.
template <class In, class T, int64_t R>
void pack(const In* src, int64_t outer, int64_t outer_stride, int64_t k, int64_t k_stride, T* HWY_RESTRICT dst) {
  alignas(64) T run[std::max(kBlockK, kBlockN<T>)];
  const int64_t rest = outer % R;
  if (rest != 0) std::memset(dst + (outer - rest) * k, 0, static_cast<size_t>(R * k) * sizeof(T));
  if (outer_stride == 1 && k_stride != 1) {
    for (int64_t l = 0; l < k; ++l) {
      load_run(src + l * k_stride, 1, outer, run);
      T* to = dst + l * R;
      int64_t o = 0;
      for (; o + R <= outer; o += R, to += R * k) std::memcpy(to, run + o, R * sizeof(T));
      for (int64_t r = 0; o + r < outer; ++r) to[r] = run[o + r];
    }
  } else if (sizeof(In) == sizeof(T) && k_stride == 1) {
    constexpr auto kSize = static_cast<int64_t>(sizeof(T));
    for (int64_t o = 0; o < outer; o += R)
      transpose_elements(kSize, reinterpret_cast<const char*>(src + o * outer_stride), kSize * outer_stride,
                         reinterpret_cast<char*>(dst + o * k), kSize * R, k, std::min(R, outer - o));
  } else {
    for (int64_t o = 0; o < outer; ++o) {
      load_run(src + o * outer_stride, k_stride, k, run);
      T* to = dst + (o - o % R) * k + o % R;
      for (int64_t l = 0; l < k; ++l) to[l * R] = run[l];
    }
  }
}

template <class V>
HWY_INLINE V mul_add(V a, V b, V c) {
  if constexpr (std::is_floating_point_v<hn::TFromV<V>>)
    return hn::MulAdd(a, b, c);
  else
    return hn::Add(hn::Mul(a, b), c);
}

// acc[kRows, tile_cols] (+)= panel of A times panel of B.
template <class T>
HWY_INLINE void tile(int64_t k, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, T* HWY_RESTRICT acc, int64_t ld,
                     bool first) {
  constexpr int64_t kCols = tile_cols<T>();
  if constexpr (kInVectors<T>) {
    const hn::ScalableTag<T> d;
    const int64_t lanes = hn::Lanes(d);
    hn::Vec<decltype(d)> c0[kRows], c1[kRows];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kRows; ++i) c0[i] = c1[i] = hn::Zero(d);
    for (int64_t l = 0; l < k; ++l) {
      const auto b0 = hn::Load(d, b), b1 = hn::Load(d, b + lanes);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kRows; ++i) {
        const auto x = hn::Set(d, a[i]);
        c0[i] = mul_add(x, b0, c0[i]);
        c1[i] = mul_add(x, b1, c1[i]);
      }
      a += kRows;
      b += kCols;
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < kRows; ++i) {
      T* row = acc + i * ld;
      if (!first) {
        c0[i] = hn::Add(c0[i], hn::LoadU(d, row));
        c1[i] = hn::Add(c1[i], hn::LoadU(d, row + lanes));
      }
      hn::StoreU(c0[i], d, row);
      hn::StoreU(c1[i], d, row + lanes);
    }
  } else {
    constexpr int64_t kTogether = 6;  // rows, whose sums do not wait for each other
    for (int64_t i = 0; i < kRows; i += kTogether) {
      T sum[kTogether][kCols] = {};
      for (int64_t l = 0; l < k; ++l)
#pragma GCC unroll 6
        for (int64_t r = 0; r < kTogether; ++r) {
          const T x = a[l * kRows + i + r];
          for (int64_t j = 0; j < kCols; ++j) sum[r][j] += x * b[l * kCols + j];
        }
      for (int64_t r = 0; r < kTogether; ++r) {
        T* row = acc + (i + r) * ld;
        for (int64_t j = 0; j < kCols; ++j) row[j] = first ? sum[r][j] : row[j] + sum[r][j];
      }
    }
  }
}

inline double apply(Epilogue e, double x) {
  switch (e) {
    case Epilogue::none:
      return x;
    case Epilogue::relu:
      return x > 0 || x != x ? x : 0;
    case Epilogue::gelu:
      return 0.5 * x * (1 + std::erf(x * 0.70710678118654752));
    case Epilogue::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    case Epilogue::silu:
      return x / (1 + std::exp(-x));
    case Epilogue::gelu_tanh_grad:
      break;  // has aux, which is not taken here
  }
  return x;
}

template <class T>
void add_bias(DType t, const void* bias, int64_t offset, int64_t n, T* HWY_RESTRICT row) {
  const auto add = [&](auto* p) {
    for (int64_t j = 0; j < n; ++j) row[j] += static_cast<T>(p[j]);
  };
  switch (t) {
    case DType::f32:
      return add(static_cast<const float*>(bias) + offset);
    case DType::f64:
      return add(static_cast<const double*>(bias) + offset);
    case DType::bf16:
      return add(static_cast<const BFloat16*>(bias) + offset);
    case DType::f16:
      return add(static_cast<const Half*>(bias) + offset);
    case DType::u8:
      return add(static_cast<const uint8_t*>(bias) + offset);
    case DType::i8:
      return add(static_cast<const int8_t*>(bias) + offset);
    case DType::i16:
      return add(static_cast<const int16_t*>(bias) + offset);
    case DType::i32:
      return add(static_cast<const int32_t*>(bias) + offset);
    case DType::i64:
      return add(static_cast<const int64_t*>(bias) + offset);
    case DType::boolean:
      return;
  }
}

// Stores one row of finished sums into C.
template <class Out, class T>
void store_row(const Gemm& g, T* HWY_RESTRICT row, int64_t n, int64_t j0, Out* HWY_RESTRICT c) {
  const T alpha =
      static_cast<T>(static_cast<std::conditional_t<std::is_floating_point_v<T>, double, int64_t>>(g.alpha));
  const T beta = static_cast<T>(static_cast<std::conditional_t<std::is_floating_point_v<T>, double, int64_t>>(g.beta));
  if (alpha != T(1)) {
    for (int64_t j = 0; j < n; ++j) row[j] = product(row[j], alpha);
  }
  if (beta != T(0)) {
    for (int64_t j = 0; j < n; ++j) row[j] += product(beta, static_cast<T>(c[j * g.c_col]));
  }
  if (g.bias != nullptr) add_bias(g.bias_dtype, g.bias, j0, n, row);
  if constexpr (std::is_floating_point_v<T>) {
    if (g.epilogue != Epilogue::none) {
      for (int64_t j = 0; j < n; ++j) row[j] = static_cast<T>(apply(g.epilogue, row[j]));
    }
  }
  if (g.c_col == 1) {
    int64_t j = 0;
    if constexpr (std::is_same_v<Out, Half>) {
      const hn::ScalableTag<float> d;
      const hn::Rebind<hwy::float16_t, decltype(d)> dh;
      const int64_t lanes = hn::Lanes(d);
      for (; j + lanes <= n; j += lanes)
        hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, row + j)), dh, reinterpret_cast<hwy::float16_t*>(c + j));
    }
    for (; j < n; ++j) c[j] = static_cast<Out>(row[j]);
  } else {
    for (int64_t j = 0; j < n; ++j) c[j * g.c_col] = static_cast<Out>(row[j]);
  }
}

// Panels and sums of one task. Small products live on the stack.
template <class T>
struct Buffers {
  T* a;
  T* b;
  T* acc;
};

// One [mb, nb] block of C. `c` points to it, `a` to its first row of A, `b` to its first column of B.
template <class In, class T, class Out>
void block(const Gemm& g, const In* a, const In* b, Out* c, int64_t mb, int64_t nb, int64_t j0, const Buffers<T>& buf) {
  constexpr int64_t kCols = tile_cols<T>();
  const int64_t ld = (nb + kCols - 1) / kCols * kCols;
  for (int64_t l0 = 0; l0 < g.k; l0 += kBlockK) {
    const int64_t kb = std::min(kBlockK, g.k - l0);
    pack<In, T, kRows>(a + l0 * g.a_col, mb, g.a_row, kb, g.a_col, buf.a);
    pack<In, T, kCols>(b + l0 * g.b_row, nb, g.b_col, kb, g.b_row, buf.b);
    for (int64_t j = 0; j < nb; j += kCols) {
      for (int64_t i = 0; i < mb; i += kRows) {
        tile<T>(kb, buf.a + i * kb, buf.b + j * kb, buf.acc + i * ld + j, ld, l0 == 0);
      }
    }
  }
  if (g.k == 0) std::fill_n(buf.acc, mb * ld, T(0));
  for (int64_t i = 0; i < mb; ++i) store_row<Out, T>(g, buf.acc + i * ld, nb, j0, c + i * g.c_row);
}

// The sum of the products of two vectors, which packing would only slow down.
template <class In, class T>
T dot(const In* a, int64_t a_stride, const In* b, int64_t b_stride, int64_t k) {
  constexpr int64_t kRun = 256;
  alignas(64) T ra[kRun], rb[kRun], sums[64] = {};
  for (int64_t l = 0; l < k; l += kRun) {
    const int64_t n = std::min(kRun, k - l);
    load_run(a + l * a_stride, a_stride, n, ra);
    load_run(b + l * b_stride, b_stride, n, rb);
    std::fill(ra + n, ra + kRun, T(0));
    std::fill(rb + n, rb + kRun, T(0));
    for (int64_t i = 0; i < kRun; i += 64) {
      for (int64_t j = 0; j < 64; ++j) sums[j] += product(ra[i + j], rb[i + j]);
    }
  }
  T total = 0;
  for (T v : sums) total += v;
  return total;
}

// Where the operands and the result of product t of the batch begin.
struct Begin {
  int64_t a = 0, b = 0, c = 0;
  Begin(const Gemm& g, int64_t t) {
    for (int d = g.batch.size() - 1; d >= 0; --d) {
      const int64_t i = t % g.batch[d];
      t /= g.batch[d];
      a += i * g.a_batch[d];
      b += i * g.b_batch[d];
      c += i * g.c_batch[d];
    }
  }
};

// A column times a row: every product by itself.
template <class In, class T, class Out>
void outer(const Gemm& g) {
  constexpr int64_t kRun = 512;
  const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, g.n));
  parallel_for(0, g.batch.product() * g.m, grain, [&](int64_t begin, int64_t end) {
    alignas(64) T from[kRun], row[kRun];
    while (begin < end) {
      const int64_t t = begin / g.m, i0 = begin % g.m, i1 = std::min(g.m, i0 + end - begin);
      const Begin at(g, t);
      const In *a = static_cast<const In*>(g.a) + at.a, *b = static_cast<const In*>(g.b) + at.b;
      Out* c = static_cast<Out*>(g.c) + at.c;
      for (int64_t j0 = 0; j0 < g.n; j0 += kRun) {
        const int64_t n = std::min(kRun, g.n - j0);
        load_run(b + j0 * g.b_col, g.b_col, n, from);
        for (int64_t i = i0; i < i1; ++i) {
          const T x = static_cast<T>(a[i * g.a_row]);
          for (int64_t j = 0; j < n; ++j) row[j] = product(x, from[j]);
          store_row<Out, T>(g, row, n, j0, c + i * g.c_row + j0 * g.c_col);
        }
      }
      begin += i1 - i0;
    }
  });
}

template <class In, class D>
HWY_INLINE hn::Vec<D> load_lanes(D d, const In* p) {
  if constexpr (std::is_same_v<In, Half>)
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), reinterpret_cast<const hwy::float16_t*>(p)));
  else if constexpr (std::is_same_v<In, BFloat16>)
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::bfloat16_t, D>(), reinterpret_cast<const hwy::bfloat16_t*>(p)));
  else
    return hn::LoadU(d, p);
}

// The sum of the products of two runs.
template <class In, class T>
HWY_INLINE T dot_of_runs(const In* HWY_RESTRICT a, const In* HWY_RESTRICT b, int64_t k) {
  T sum = 0;
  int64_t l = 0;
  if constexpr (std::is_floating_point_v<T>) {
    const hn::ScalableTag<T> d;
    const int64_t lanes = hn::Lanes(d);
    auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    for (; l + 4 * lanes <= k; l += 4 * lanes) {
      s0 = hn::MulAdd(load_lanes(d, a + l), load_lanes(d, b + l), s0);
      s1 = hn::MulAdd(load_lanes(d, a + l + lanes), load_lanes(d, b + l + lanes), s1);
      s2 = hn::MulAdd(load_lanes(d, a + l + 2 * lanes), load_lanes(d, b + l + 2 * lanes), s2);
      s3 = hn::MulAdd(load_lanes(d, a + l + 3 * lanes), load_lanes(d, b + l + 3 * lanes), s3);
    }
    for (; l + lanes <= k; l += lanes) s0 = hn::MulAdd(load_lanes(d, a + l), load_lanes(d, b + l), s0);
    sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  } else {
    T sums[64] = {};
    for (; l + 64 <= k; l += 64)
      for (int64_t j = 0; j < 64; ++j) sums[j] += product(static_cast<T>(a[l + j]), static_cast<T>(b[l + j]));
    for (const T v : sums) sum += v;
  }
  for (; l < k; ++l) sum += product(static_cast<T>(a[l]), static_cast<T>(b[l]));
  return sum;
}

// Matrices with dense rows times vectors: row by row.
template <class In, class T, class Out>
void by_rows(const Gemm& g) {
  parallel_for(0, g.batch.product() * g.m, std::max<int64_t>(1, 32768 / g.k), [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t t = begin / g.m, i0 = begin % g.m, i1 = std::min(g.m, i0 + end - begin);
      const Begin at(g, t);
      const In *a = static_cast<const In*>(g.a) + at.a, *b = static_cast<const In*>(g.b) + at.b;
      Out* c = static_cast<Out*>(g.c) + at.c;
      for (int64_t i = i0; i < i1; ++i) {
        T sum = dot_of_runs<In, T>(a + i * g.a_row, b, g.k);
        store_row<Out, T>(g, &sum, 1, 0, c + i * g.c_row);
      }
      begin += i1 - i0;
    }
  });
}

// sums += columns [begin, end) of A times their factors; four in one pass over the sums.
template <class In, class T>
void add_columns(const Gemm& g, int64_t begin, int64_t end, T* HWY_RESTRICT sums) {
  constexpr int64_t kRun = 4096;  // rows at once, whose sums stay in the nearest cache
  const In* const x = static_cast<const In*>(g.b);
  for (int64_t i = 0; i < g.m; i += kRun) {
    const In* const first = static_cast<const In*>(g.a) + i;
    const int64_t n = std::min(kRun, g.m - i);
    T* const to = sums + i;
    int64_t l = begin;
    for (; l + 4 <= end; l += 4) {
      const T x0 = static_cast<T>(x[l * g.b_row]), x1 = static_cast<T>(x[(l + 1) * g.b_row]),
              x2 = static_cast<T>(x[(l + 2) * g.b_row]), x3 = static_cast<T>(x[(l + 3) * g.b_row]);
      const In *const c0 = first + l * g.a_col, *const c1 = c0 + g.a_col, *const c2 = c1 + g.a_col,
                      *const c3 = c2 + g.a_col;
      int64_t j = 0;
      if constexpr (kInVectors<T> && std::is_floating_point_v<T>) {
        const hn::ScalableTag<T> d;
        const int64_t lanes = hn::Lanes(d);
        const auto v0 = hn::Set(d, x0), v1 = hn::Set(d, x1), v2 = hn::Set(d, x2), v3 = hn::Set(d, x3);
        for (; j + lanes <= n; j += lanes) {
          const auto low = hn::MulAdd(v0, load_lanes(d, c0 + j), hn::LoadU(d, to + j));
          const auto high = hn::MulAdd(v2, load_lanes(d, c2 + j), hn::Mul(v3, load_lanes(d, c3 + j)));
          hn::StoreU(hn::Add(hn::MulAdd(v1, load_lanes(d, c1 + j), low), high), d, to + j);
        }
      }
      for (; j < n; ++j)
        to[j] += (product(x0, static_cast<T>(c0[j])) + product(x1, static_cast<T>(c1[j]))) +
                 (product(x2, static_cast<T>(c2[j])) + product(x3, static_cast<T>(c3[j])));
    }
    for (; l < end; ++l) {
      const T factor = static_cast<T>(x[l * g.b_row]);
      const In* const column = first + l * g.a_col;
      for (int64_t j = 0; j < n; ++j) to[j] += product(factor, static_cast<T>(column[j]));
    }
  }
}

// A matrix with dense columns times a vector: multiples of the columns, added up. Parts of the columns run side by
// side, and are added in order.
template <class In, class T, class Out>
void by_columns(const Gemm& g) {
  const int64_t parts = std::clamp<int64_t>(g.m * g.k >> 17, 1, 16), each = (g.k + 4 * parts - 1) / (4 * parts) * 4;
  ScratchFrame frame;
  T* const sums = frame.take<T>(parts * g.m);
  parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      std::fill_n(sums + p * g.m, g.m, T(0));
      add_columns<In, T>(g, std::min(g.k, p * each), std::min(g.k, (p + 1) * each), sums + p * g.m);
    }
  });
  parallel_for(0, g.m, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t p = 1; p < parts; ++p)
      for (int64_t i = begin; i < end; ++i) sums[i] += sums[p * g.m + i];
    for (int64_t i = begin; i < end; ++i) store_row<Out, T>(g, sums + i, 1, 0, static_cast<Out*>(g.c) + i * g.c_row);
  });
}

template <class In, class T, class Out>
void run(const Gemm& g) {
  if (g.m == 1 && g.n == 1 && g.batch.empty() && g.k > 32) {
    const In *a = static_cast<const In*>(g.a), *b = static_cast<const In*>(g.b);
    T sum = g.a_col == 1 && g.b_row == 1 ? dot_of_runs<In, T>(a, b, g.k) : dot<In, T>(a, g.a_col, b, g.b_row, g.k);
    return store_row<Out, T>(g, &sum, 1, 0, static_cast<Out*>(g.c));
  }
  if (g.k == 1) return outer<In, T, Out>(g);
  if (g.m == 1 && g.n > 1 && g.bias == nullptr) {  // a vector times a matrix: the transposed matrix times it
    Gemm turned = g;
    transpose(turned);
    return run<In, T, Out>(turned);
  }
  if (g.n == 1 && g.bias == nullptr && g.k > 1) {
    if (g.a_col == 1 && g.b_row == 1) return by_rows<In, T, Out>(g);
    if (g.a_row == 1 && g.m >= 32 && g.batch.empty()) return by_columns<In, T, Out>(g);
  }
  constexpr int64_t kCols = tile_cols<T>();
  const int64_t batches = g.batch.product();
  const auto round_up = [](int64_t x, int64_t to) { return (x + to - 1) / to * to; };
  const int64_t blocks_m = (g.m + kBlockM - 1) / kBlockM, blocks_n = (g.n + kBlockN<T> - 1) / kBlockN<T>;
  const int64_t per_batch = blocks_m * blocks_n;
  const int64_t rows = round_up(std::min(g.m, kBlockM), kRows), cols = round_up(std::min(g.n, kBlockN<T>), kCols);
  const int64_t depth = std::min(g.k, kBlockK);
  constexpr int64_t kLine = 64 / sizeof(T) > 16 ? 64 / sizeof(T) : 16;
  const int64_t need_a = round_up(rows * depth, kLine), need_b = round_up(cols * depth, kLine), need_acc = rows * cols;
  // About 20 us of work a chunk at least: less is not worth waking a thread for.
  const int64_t task_work =
      std::max<int64_t>(1, std::min(g.m, kBlockM) * std::min(g.n, kBlockN<T>) * std::max<int64_t>(g.k, 8));
  const int64_t grain = std::max<int64_t>(1, 1000000 / task_work);
  parallel_for(0, batches * per_batch, grain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kStack = 16384 / sizeof(T);
    alignas(64) T stack[kStack];
    const int64_t need = need_a + need_b + need_acc;
    std::optional<ScratchFrame> frame;
    T* base = need > kStack ? frame.emplace().take<T>(need) : stack;
    const Buffers<T> buf{base, base + need_a, base + need_a + need_b};
    for (int64_t t = begin; t < end; ++t) {
      const Begin at(g, t / per_batch);
      const int64_t i0 = t % per_batch / blocks_n * kBlockM, j0 = t % per_batch % blocks_n * kBlockN<T>;
      block<In, T, Out>(g, static_cast<const In*>(g.a) + at.a + i0 * g.a_row,
                        static_cast<const In*>(g.b) + at.b + j0 * g.b_col,
                        static_cast<Out*>(g.c) + at.c + i0 * g.c_row + j0 * g.c_col, std::min(kBlockM, g.m - i0),
                        std::min(kBlockN<T>, g.n - j0), j0, buf);
    }
  });
}

void gemm_blocked(const Gemm& g) {
  switch (g.in) {
    case DType::f32:
      return run<float, float, float>(g);
    case DType::f64:
      return run<double, double, double>(g);
    case DType::bf16:
      return g.out == DType::f32 ? run<BFloat16, float, float>(g) : run<BFloat16, float, BFloat16>(g);
    case DType::f16:
      return g.out == DType::f32 ? run<Half, float, float>(g) : run<Half, float, Half>(g);
    case DType::u8:  // what is stored is the sums' low bits
      return run<uint8_t, uint16_t, uint8_t>(g);
    case DType::i8:
      return run<int8_t, uint16_t, int8_t>(g);
    case DType::i16:
      return run<int16_t, uint16_t, int16_t>(g);
    case DType::i32:
      return run<int32_t, uint32_t, int32_t>(g);
    case DType::i64:
      return run<int64_t, uint64_t, int64_t>(g);
    case DType::boolean:
      return;
  }
}

template <class Out, class T>
void finish_rows(const Gemm& g, const T* sum) {
  auto row = std::make_unique<T[]>(static_cast<size_t>(g.n));
  for (int64_t i = 0; i < g.m; ++i) {
    std::copy_n(sum + i * g.n, g.n, row.get());
    store_row<Out, T>(g, row.get(), g.n, 0, static_cast<Out*>(g.c) + i * g.c_row);
  }
}

void gemm_finish(const Gemm& g, const void* sum) {
  switch (g.out) {
    case DType::f32:
      return finish_rows<float>(g, static_cast<const float*>(sum));
    case DType::f64:
      return finish_rows<double>(g, static_cast<const double*>(sum));
    case DType::bf16:
      return finish_rows<BFloat16>(g, static_cast<const float*>(sum));
    case DType::f16:
      return finish_rows<Half>(g, static_cast<const float*>(sum));
    default:
      return;
  }
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {
HWY_EXPORT(gemm_blocked);
HWY_EXPORT(gemm_finish);

void detail::gemm_blocked(const Gemm& g) {
  HWY_DYNAMIC_DISPATCH(gemm_blocked)(g);
}
void detail::gemm_finish(const Gemm& g, const void* sum) {
  HWY_DYNAMIC_DISPATCH(gemm_finish)(g, sum);
}
}  // namespace strata::cpu
#endif
