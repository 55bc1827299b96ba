#include <algorithm>
#include <cstring>

#include "strata/core/dispatch.h"
#include "strata/core/error.h"
#include "strata/core/loops.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/elementwise/kernels.h"

namespace strata {
namespace {

constexpr int64_t kBlock = 512;  // elements of a buffer: 4 buffers of 8 bytes an element fit in any L1 cache
constexpr int kMostInputs = 3;
constexpr int64_t kStreamBytes = int64_t{32} << 20;

DType compute_type(DType t) {
  return is_reduced_floating(t) ? DType::f32 : t;
}

// Rows of n elements, `stride` bytes apart and `row_stride` from one row to the next, to a dense buffer, and back.
struct Rows {
  int64_t stride, row_stride, n, rows;
};
template <class T>
void gather_rows(void* to, const char* from, const Rows& r) {
  T* out = static_cast<T*>(to);
  for (int64_t row = 0; row < r.rows; ++row, out += r.n) {
    const char* at = from + row * r.row_stride;
    if (r.stride == 0) {
      T v;
      std::memcpy(&v, at, sizeof(T));
      for (int64_t i = 0; i < r.n; ++i) out[i] = v;
    } else if (r.stride == sizeof(T)) {
      std::memcpy(out, at, static_cast<size_t>(r.n) * sizeof(T));
    } else if (r.stride == 2 * static_cast<int64_t>(sizeof(T))) {
      gather_second(sizeof(T), out, at, r.n);
    } else {
      for (int64_t i = 0; i < r.n; ++i) std::memcpy(out + i, at + i * r.stride, sizeof(T));
    }
  }
}
template <class T>
void scatter_rows(char* to, const void* from, const Rows& r) {
  const T* in = static_cast<const T*>(from);
  for (int64_t row = 0; row < r.rows; ++row, in += r.n)
    for (int64_t i = 0; i < r.n; ++i) std::memcpy(to + row * r.row_stride + i * r.stride, in + i, sizeof(T));
}
void gather(DType t, void* to, const char* from, const Rows& r) {
  dispatch_bytes(t, [&]<class T>() { gather_rows<T>(to, from, r); });
}
void scatter(DType t, char* to, const void* from, const Rows& r) {
  dispatch_bytes(t, [&]<class T>() { scatter_rows<T>(to, from, r); });
}

// Reads n elements of dtype t, `stride` bytes apart, into a dense buffer of its compute type.
void load(void* to, DType t, const char* from, int64_t stride, int64_t n) {
  const int64_t size = size_of(t);
  alignas(64) uint16_t half[kBlock];
  const void* dense = from;
  if (stride != size) {
    void* into = is_reduced_floating(t) ? half : to;
    gather(t, into, from, {stride, 0, n, 1});
    dense = into;
  }
  if (t == DType::bf16)
    converters().bf16_to_f32(static_cast<float*>(to), dense, n);
  else if (t == DType::f16)
    converters().f16_to_f32(static_cast<float*>(to), dense, n);
}

void store(char* to, DType t, int64_t stride, const void* from, int64_t n) {
  const int64_t size = size_of(t);
  alignas(64) uint16_t half[kBlock];
  if (is_reduced_floating(t)) {
    void* into = stride == size ? static_cast<void*>(to) : half;
    if (t == DType::bf16)
      converters().f32_to_bf16(into, static_cast<const float*>(from), n);
    else
      converters().f32_to_f16(into, static_cast<const float*>(from), n);
    if (stride == size) return;
    from = half;
  }
  scatter(t, to, from, {stride, 0, n, 1});
}

struct Run {
  DenseMap f;
  RowsMap rows;  // for many rows at once, where there is one
  const MapParams* params;
  int inputs;
  bool simd;                     // f takes repeated operands, and bf16 where the types say so
  DType types[kMostInputs + 1];  // the result's, then the inputs'
  bool native[kMostInputs + 1];  // f reads (writes) this type itself

  void operator()(char** p, const int64_t* strides, int64_t n) const {
    bool direct[kMostInputs + 1], repeated[kMostInputs + 1] = {};
    bool all = true, repeats = false;
    for (int k = 0; k <= inputs; ++k) {
      direct[k] = native[k] && strides[k] == size_of(types[k]);
      repeated[k] = simd && k > 0 && strides[k] == 0;
      repeats = repeats || repeated[k];
      all = all && (direct[k] || repeated[k]);
    }
    const void* in[kMostInputs] = {};
    if (all && !repeats) {
      for (int k = 0; k < inputs; ++k) in[k] = p[k + 1];
      f(p[0], in, n, *params);
      return;
    }
    alignas(64) char buffer[kMostInputs + 1][kBlock * 8];
    if (all) {
      MapParams constants = *params;
      for (int k = 0; k < inputs; ++k) {
        in[k] = p[k + 1];
        if (!repeated[k + 1]) continue;
        constants.step[k] = 0;
        in[k] = buffer[k + 1];
        if (native[k + 1])
          gather(types[k + 1], buffer[k + 1], p[k + 1], {0, 0, 64 / size_of(types[k + 1]), 1});
        else
          load(buffer[k + 1], types[k + 1], p[k + 1], 0, 16);
      }
      f(p[0], in, n, constants);
      return;
    }
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = std::min(kBlock, n - i);
      for (int k = 0; k < inputs; ++k) {
        const char* from = p[k + 1] + i * strides[k + 1];
        if (direct[k + 1]) {
          in[k] = from;
          continue;
        }
        in[k] = buffer[k + 1];
        if (strides[k + 1] == 0 && i > 0) continue;
        if (native[k + 1])
          gather(types[k + 1], buffer[k + 1], from, {strides[k + 1], 0, m, 1});
        else
          load(buffer[k + 1], types[k + 1], from, strides[k + 1], m);
      }
      char* to = p[0] + i * strides[0];
      f(direct[0] ? static_cast<void*>(to) : buffer[0], in, m, *params);
      if (direct[0]) continue;
      if (native[0])
        scatter(types[0], to, buffer[0], {strides[0], 0, m, 1});
      else
        store(to, types[0], strides[0], buffer[0], m);
    }
  }
};

// Runs shorter than this are computed many at a time, through buffers: what a call of the kernel costs is shared.
constexpr int64_t kShortRow = 64;
// Rows that kernels for many of them take: a vector and more.
constexpr int64_t kVectorRow = 16;

void short_rows(const Run& r, char** p, const int64_t* strides, const int64_t* row_strides, int64_t n, int64_t rows) {
  alignas(64) char buffer[kMostInputs + 1][kBlock * 8];
  alignas(64) uint16_t half[kBlock];
  const int64_t most = kBlock / n;
  const auto dense = [&](int k) {
    return r.native[k] && strides[k] == size_of(r.types[k]) && row_strides[k] == n * strides[k];
  };
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t count = std::min(most, rows - first), m = count * n;
    const void* in[kMostInputs] = {};
    for (int k = 1; k <= r.inputs; ++k) {
      const char* from = p[k] + first * row_strides[k];
      in[k - 1] = buffer[k];
      if (dense(k)) {
        in[k - 1] = from;
      } else if (row_strides[k] != 0 || first == 0) {  // else the rows of before
        gather(r.types[k], r.native[k] ? static_cast<void*>(buffer[k]) : half, from,
               {strides[k], row_strides[k], n, count});
        if (!r.native[k]) load(buffer[k], r.types[k], reinterpret_cast<const char*>(half), sizeof(uint16_t), m);
      }
    }
    char* to = p[0] + first * row_strides[0];
    if (dense(0)) {
      r.f(to, in, m, *r.params);
      continue;
    }
    r.f(buffer[0], in, m, *r.params);
    const void* result = buffer[0];
    if (!r.native[0]) {
      store(reinterpret_cast<char*>(half), r.types[0], sizeof(uint16_t), buffer[0], m);
      result = half;
    }
    scatter(r.types[0], to, result, {strides[0], row_strides[0], n, count});
  }
}

// Rows whose operands lie side by side or are one number each: what there is to prepare is prepared once for all.
bool lies_in_rows(const Run& r, const int64_t* strides) {
  for (int k = 0; k <= r.inputs; ++k) {
    const bool one = r.simd && k > 0 && strides[k] == 0;
    if (!r.native[k] || (!one && strides[k] != size_of(r.types[k]))) return false;
  }
  return true;
}
bool has_repeated(const Run& r, const int64_t* strides) {
  return lies_in_rows(r, strides) && std::find(strides + 1, strides + r.inputs + 1, 0) != strides + r.inputs + 1;
}
void repeated_rows(const Run& r, char** p, const int64_t* strides, const int64_t* row_strides, int64_t n,
                   int64_t rows) {
  alignas(64) char numbers[kMostInputs][64];
  MapParams constants = *r.params;
  for (int k = 1; k <= r.inputs; ++k)
    if (strides[k] == 0) constants.step[k - 1] = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const void* in[kMostInputs] = {};
    for (int k = 1; k <= r.inputs; ++k) {
      const char* from = p[k] + row * row_strides[k];
      in[k - 1] = strides[k] == 0 ? numbers[k - 1] : from;
      if (strides[k] != 0 || (row > 0 && row_strides[k] == 0)) continue;
      dispatch_bytes(r.types[k], [&]<class T>() {
        T v, all[64 / sizeof(T)];
        std::memcpy(&v, from, sizeof(T));
        std::fill_n(all, 64 / sizeof(T), v);
        std::memcpy(numbers[k - 1], all, sizeof all);
      });
    }
    r.f(p[0] + row * row_strides[0], in, n, constants);
  }
}

// Whether operand k, as the result lies, is a matrix that lies transposed.
bool lies_across(const Run& r, int k, const int64_t* strides, const int64_t* row_strides) {
  const int64_t size = size_of(r.types[k]);
  return row_strides[k] == size && strides[k] != size && strides[k] != 0;
}

// Rows of which all operands lie across (or are numbers): computed as they lie, and the results turned.
void turned_rows(const Run& r, char** p, const int64_t* strides, const int64_t* row_strides, int64_t n, int64_t rows) {
  constexpr int64_t kHeight = 128, kWidth = 16;
  alignas(64) char buffer[kHeight * kWidth * 8];
  const int64_t size = size_of(r.types[0]);
  MapParams params = *r.params;
  params.stream = false;  // what is written is read at once
  Run run = r;
  run.params = &params;
  int64_t steps[kMostInputs + 1];
  std::copy(row_strides, row_strides + r.inputs + 1, steps);
  steps[0] = size;
  for (int64_t row = 0; row < rows; row += kHeight) {
    const int64_t height = std::min(kHeight, rows - row);
    for (int64_t col = 0; col < n; col += kWidth) {
      const int64_t width = std::min(kWidth, n - col);
      for (int64_t i = 0; i < width; ++i) {
        char* at[kMostInputs + 1];
        for (int k = 1; k <= r.inputs; ++k) at[k] = p[k] + row * row_strides[k] + (col + i) * strides[k];
        at[0] = buffer + i * height * size;
        run(at, steps, height);
      }
      transpose_elements(size, buffer, height * size, p[0] + row * row_strides[0] + col * size, row_strides[0], height,
                         width);
    }
  }
}

// Rows of which an operand lies across: turned block by block, so that a line of memory is read once.
void across_rows(const Run& r, char** p, const int64_t* strides, const int64_t* row_strides, int64_t n, int64_t rows) {
  constexpr int64_t kHeight = 16, kWidth = 128;
  alignas(64) char buffer[kMostInputs][kHeight * kWidth * 8];
  bool across[kMostInputs + 1] = {};
  int64_t steps[kMostInputs + 1];
  for (int k = 0; k <= r.inputs; ++k) {
    across[k] = k > 0 && lies_across(r, k, strides, row_strides);
    steps[k] = across[k] ? size_of(r.types[k]) : strides[k];
  }
  for (int64_t row = 0; row < rows; row += kHeight) {
    const int64_t height = std::min(kHeight, rows - row);
    for (int64_t col = 0; col < n; col += kWidth) {
      const int64_t width = std::min(kWidth, n - col);
      char* at[kMostInputs + 1];
      int64_t next[kMostInputs + 1];
      for (int k = 0; k <= r.inputs; ++k) {
        at[k] = p[k] + row * row_strides[k] + col * strides[k];
        next[k] = row_strides[k];
        if (!across[k]) continue;
        next[k] = width * steps[k];
        transpose_elements(steps[k], at[k], strides[k], buffer[k - 1], next[k], height, width);
        at[k] = buffer[k - 1];
      }
      for (int64_t i = 0; i < height; ++i) {
        r(at, steps, width);
        for (int k = 0; k <= r.inputs; ++k) at[k] += next[k];
      }
    }
  }
}

template <size_t N>
void run(const Run& r, const std::array<const Tensor*, N>& ts) {
  for_each_strided_rows(ts[0]->shape(), ts, kGrain,
                        [&r](char** p, const int64_t* strides, const int64_t* row_strides, int64_t n, int64_t rows) {
                          int across = 0, numbers = 0;
                          for (int k = 1; k < static_cast<int>(N); ++k) {
                            across += lies_across(r, k, strides, row_strides);
                            numbers += strides[k] == 0 && row_strides[k] == 0;
                          }
                          if (across > 0 && rows >= 8 && n >= 8) {
                            const bool all = across > 1 && across + numbers == static_cast<int>(N) - 1 &&
                                             strides[0] == size_of(r.types[0]);
                            return (all ? turned_rows : across_rows)(r, p, strides, row_strides, n, rows);
                          }
                          if (r.rows && rows > 1 && n >= kVectorRow && lies_in_rows(r, strides))
                            return r.rows(p, strides, row_strides, n, rows, *r.params);
                          if (rows > 1 && n < kShortRow) return short_rows(r, p, strides, row_strides, n, rows);
                          if (rows > 1 && has_repeated(r, strides))
                            return repeated_rows(r, p, strides, row_strides, n, rows);
                          for (int64_t row = 0; row < rows; ++row) {
                            char* at[N];
                            for (size_t k = 0; k < N; ++k) at[k] = p[k] + row * row_strides[k];
                            r(at, strides, n);
                          }
                        });
}

// Reading elements after they were written would give nonsense: x.add_(x.t()).
bool clashes(const Tensor& y, const Tensor& x) {
  return x.storage() == y.storage() &&
         !(x.strides() == y.strides() && x.storage_offset() == y.storage_offset() && x.dtype() == y.dtype());
}

}  // namespace

void map_cpu(Map f, Tensor& y, std::initializer_list<const Tensor*> in, const MapParams& params) {
  const int n = static_cast<int>(in.size());
  const DType type = in.begin()[n - 1]->dtype();
  // 16-bit floats throughout may have a kernel of their own; else they compute in f32, through buffers.
  DenseMap dense = nullptr;
  if (is_reduced_floating(type) && y.dtype() == type) {
    dense = simd_map(f, type);
    for (const Tensor* x : in)
      if (x->dtype() != type) dense = nullptr;
  }
  const DType compute = dense ? type : compute_type(type);
  if (!dense) dense = simd_map(f, compute);
  const bool simd = dense != nullptr;
  if (!dense) dense = scalar_map(f, compute);
  if (!dense) throw DTypeError("map", cat("no elementwise kernel ", static_cast<int>(f), " for ", type));

  const auto is_native = [&](DType t) { return !is_reduced_floating(t) || t == compute; };
  bool plain = y.is_contiguous() && y.numel() <= kGrain && is_native(y.dtype()), clash = false;
  const void* at[kMostInputs] = {};
  for (int k = 0; k < n; ++k) {
    const Tensor& x = *in.begin()[k];
    plain = plain && x.is_contiguous() && is_native(x.dtype());
    clash = clash || clashes(y, x);
    at[k] = x.raw_data();
  }
  if (plain && !clash) {
    if (y.numel() > 0) dense(y.raw_data(), at, y.numel(), params);
    return;
  }

  MapParams constants = params;
  // Past the caches, reading the lines that will be overwritten would cost a third of the traffic.
  constants.stream = y.is_contiguous() && y.nbytes() >= kStreamBytes;
  const RowsMap rows = simd && dense == simd_map(f, compute) ? simd_rows_map(f, compute) : nullptr;
  Run r{dense, rows, &constants, n, simd, {y.dtype()}, {is_native(y.dtype())}};
  Tensor copies[kMostInputs];
  for (int k = 0; k < n; ++k) {
    const Tensor& x = *in.begin()[k];
    r.types[k + 1] = x.dtype();
    r.native[k + 1] = is_native(x.dtype());
    copies[k] = clash && clashes(y, x) ? clone(x) : x;
  }
  if (n == 1)
    run(r, std::array<const Tensor*, 2>{&y, &copies[0]});
  else if (n == 2)
    run(r, std::array<const Tensor*, 3>{&y, &copies[0], &copies[1]});
  else
    run(r, std::array<const Tensor*, 4>{&y, &copies[0], &copies[1], &copies[2]});
}

}  // namespace strata
