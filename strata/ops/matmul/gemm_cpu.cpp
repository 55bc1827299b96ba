// Brings a product into the form that a kernel takes, and picks the kernel.

#include "strata/ops/matmul/gemm_cpu.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/matmul/gemm_shape.h"
#include "strata/ops/vec/level.h"
#include "strata/ops/vec/scratch.h"

namespace strata::cpu {
namespace {

// Strides of dims of size 1 are free: choose those of a row-major matrix, or column-major where that fits.
void tidy(int64_t rows, int64_t cols, int64_t& row, int64_t& col) {
  if (cols == 1 && row != 1) col = 1;
  if (rows == 1 && col != 1) row = 1;
  if (rows == 1 && col == 1) row = cols;
  if (cols == 1 && row == 1) col = rows;
}

// Row- or column-major without overlap: what oneDNN reads in place.
bool is_plain(int64_t rows, int64_t cols, int64_t row, int64_t col) {
  return (col == 1 && row >= cols) || (row == 1 && col >= rows);
}

template <class T>
void copy_rows(const T* from, int64_t row, int64_t col, T* to, int64_t cols, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    if (col == 2)
      gather_second(sizeof(T), to + i * cols, reinterpret_cast<const char*>(from + i * row), cols);
    else
      for (int64_t j = 0; j < cols; ++j) to[i * cols + j] = from[i * row + j * col];
  }
}

// A dense copy of an operand that is not plain, over all batches that differ, in its place; updates its strides.
void make_plain(ScratchFrame& frame, int64_t batches, int64_t rows, int64_t cols, DType t, const void*& data,
                int64_t& row, int64_t& col, int64_t* batch_stride) {
  const bool shared = batch_stride == nullptr || *batch_stride == 0, by_columns = std::abs(row) < std::abs(col);
  if (by_columns) std::swap(rows, cols), std::swap(row, col);  // as it lies: no line is read for one element
  const int64_t copies = shared ? 1 : batches, size = size_of(t), step = shared ? 0 : *batch_stride;
  const auto* from = static_cast<const char*>(data);
  auto* to = frame.take<char>(copies * rows * cols * size);
  parallel_for(
      0, copies * rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(cols, 1)), [&](int64_t begin, int64_t end) {
        while (begin < end) {
          const int64_t b = begin / rows, i = begin % rows, stop = std::min(rows, i + end - begin);
          const char* f = from + b * step * size;
          char* o = to + b * rows * cols * size;
          if (size == 2)
            copy_rows(reinterpret_cast<const uint16_t*>(f), row, col, reinterpret_cast<uint16_t*>(o), cols, i, stop);
          if (size == 4)
            copy_rows(reinterpret_cast<const uint32_t*>(f), row, col, reinterpret_cast<uint32_t*>(o), cols, i, stop);
          begin += stop - i;
        }
      });
  data = to;
  row = cols, col = 1;
  if (by_columns) std::swap(row, col);
  if (!shared) *batch_stride = rows * cols;
}

// Part of C: rows and columns from (i, j) of the products from `batch` on.
Gemm part_of(const Gemm& g, int64_t batch, int64_t batches, int64_t i, int64_t rows, int64_t j, int64_t cols) {
  Gemm p = g;
  int64_t a = i * g.a_row, b = j * g.b_col, c = i * g.c_row + j;
  if (!g.batch.empty()) {
    a += batch * g.a_batch[0], b += batch * g.b_batch[0], c += batch * g.c_batch[0];
    p.batch[0] = batches;
  }
  p.m = rows, p.n = cols;
  p.a = static_cast<const char*>(g.a) + a * size_of(g.in);
  p.b = static_cast<const char*>(g.b) + b * size_of(g.in);
  p.c = static_cast<char*>(g.c) + c * size_of(g.out);
  if (g.bias != nullptr) p.bias = static_cast<const char*>(g.bias) + j * size_of(g.bias_dtype);
  return p;
}

// oneDNN on one thread for each part of the result, the parts side by side. They depend on the sizes alone, so that
// the order of summation, and with it every bit, is the same for any number of threads.
bool multiply_onednn(const Gemm& g) {
  if (!detail::gemm_onednn(g, true)) return false;
  // Each part packs its operands again: no more parts than threads commonly want, unless they are large.
  const int64_t batch = g.batch.product(), work = batch * g.m * g.n * g.k;
  const int64_t wanted = std::max(std::min<int64_t>(16, work >> 21), std::min<int64_t>(64, work >> 25));
  const auto ceil_div = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t batches = ceil_div(batch, std::clamp<int64_t>(wanted, 1, batch));
  int64_t rows = g.m, cols = g.n;
  // Blocks near a square read the least; whole multiples of the kernels' blocks of 64 waste nothing at the edges.
  while (ceil_div(batch, batches) * ceil_div(g.m, rows) * ceil_div(g.n, cols) < wanted && std::max(rows, cols) > 64) {
    int64_t& side = rows >= cols ? rows : cols;
    side = ceil_div(ceil_div(side, 2), 64) * 64;
  }
  const int64_t in_m = ceil_div(g.m, rows), in_n = ceil_div(g.n, cols), parts = ceil_div(batch, batches) * in_m * in_n;
  parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t i = p % in_m * rows, j = p / in_m % in_n * cols, b = p / (in_m * in_n) * batches;
      const Gemm part =
          part_of(g, b, std::min(batches, batch - b), i, std::min(rows, g.m - i), j, std::min(cols, g.n - j));
      if (!detail::gemm_onednn(part)) detail::gemm_blocked(part);
    }
  });
  return true;
}

// Large enough for the packing of our own bf16 kernel.
bool is_large(const Gemm& g) {
  return g.m >= 32 && g.n >= 32 && g.k >= 32 && g.m * g.n * g.k >= (1 << 20);
}

// Our bf16 kernel on each product of a batch, the products side by side. False where it has none.
bool multiply_each(const Gemm& g) {
  if (g.in != DType::bf16 || g.batch.size() != 1 || g.aux != nullptr) return false;
  const auto product = [&](int64_t i) {
    Gemm one = part_of(g, i, 1, 0, g.m, 0, g.n);
    one.batch = one.a_batch = one.b_batch = one.c_batch = {};
    return detail::gemm_bf16(one, true) || detail::gemm_bf16(one, false);
  };
  // Decided by dtypes: the first product tells for all.
  if (g.batch[0] == 0 || !product(0)) return g.batch[0] == 0;
  parallel_for(1, g.batch[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) product(i);
  });
  return true;
}

// Columns [j, j + cols) of B, which lies by columns, as rows one behind another, from row `begin` to `end`.
void turn(const Gemm& g, int64_t batch, int64_t begin, int64_t end, int64_t j, int64_t cols, float* to) {
  constexpr int64_t kFloat = sizeof(float);
  const int64_t step = g.batch.empty() ? 0 : g.b_batch[0];
  const float* const from = static_cast<const float*>(g.b) + batch * step + j * g.b_col + begin;
  // Few columns at once: they may be a page each.
  for (int64_t c = 0; c < cols; c += 16)
    transpose_elements(kFloat, reinterpret_cast<const char*>(from + c * g.b_col), kFloat * g.b_col,
                       reinterpret_cast<char*>(to + begin * cols + c), kFloat * cols, end - begin,
                       std::min<int64_t>(16, cols - c));
}

// oneDNN's f32 kernels take up to twice as long where B lies by columns: it is turned first. Of few rows of A by parts
// of columns, which a cache holds; else all of it, where A lies by columns too (gemm_rows() has the other case).
bool multiply_turned(const Gemm& g) {
  constexpr int64_t kLeastRows = 16, kFewRows = 256, kLeastDepth = 192, kLeastColumns = 32, kTile = 64;
  constexpr int64_t kMostTurned = int64_t{16} << 20;
  if (g.in != DType::f32 || g.b_col == 1 || g.b_row != 1 || g.batch.size() > 1) return false;
  if (g.m < kLeastRows || g.n < kLeastColumns || g.k < kLeastDepth || !detail::gemm_onednn(g, true)) return false;
  const int64_t batch = g.batch.product();
  ScratchFrame frame;
  if (g.m < kFewRows) {
    const int64_t cols = std::clamp<int64_t>((int64_t{1} << 21) / (g.m * g.k) / kTile, 1, 8) * kTile;
    const int64_t in_n = (g.n + cols - 1) / cols;
    parallel_for(0, batch * in_n, 1, [&](int64_t begin, int64_t end) {
      ScratchFrame own;
      auto* const turned = own.take<float>(g.k * std::min(cols, g.n));
      for (int64_t p = begin; p < end; ++p) {
        const int64_t b = p / in_n, j = p % in_n * cols, n = std::min(cols, g.n - j);
        turn(g, b, 0, g.k, j, n, turned);
        Gemm part = part_of(g, b, 1, 0, g.m, j, n);
        part.batch = part.a_batch = part.b_batch = part.c_batch = {};
        part.b = turned, part.b_row = n, part.b_col = 1;
        if (!detail::gemm_onednn(part)) detail::gemm_blocked(part);
      }
    });
    return true;
  }
  const bool shared = g.batch.empty() || g.b_batch[0] == 0;
  const int64_t copies = shared ? 1 : batch, tiles = (g.k + kTile - 1) / kTile;
  if (copies * g.k * g.n > kMostTurned) return false;
  auto* const turned = frame.take<float>(copies * g.k * g.n);
  parallel_for(0, copies * tiles, std::max<int64_t>(1, 32768 / (kTile * g.n)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % tiles * kTile;
      turn(g, i / tiles, row, std::min(row + kTile, g.k), 0, g.n, turned + i / tiles * g.k * g.n);
    }
  });
  Gemm plain = g;
  plain.b = turned, plain.b_row = g.n, plain.b_col = 1;
  if (!shared) plain.b_batch[0] = g.k * g.n;
  return multiply_onednn(plain);
}

bool multiply(const Gemm& g, GemmBackend backend) {
  switch (backend) {
    case GemmBackend::onednn:
      return multiply_onednn(g);
    case GemmBackend::avx512_bf16:
      return detail::gemm_bf16(g, false);
    case GemmBackend::amx:
      return detail::gemm_bf16(g, true);
    default:
      break;
  }
  if (is_large(g) && (detail::gemm_bf16(g, true) || detail::gemm_bf16(g, false))) return true;
  return detail::gemm_rows(g) || multiply_turned(g) || multiply_onednn(g) || multiply_each(g);
}

// oneDNN, or our bf16 kernel, on the innermost batch dim, a loop over the others. False where it has no kernel.
bool run_library(Gemm g, GemmBackend backend) {
  if (g.in != DType::f32 && !is_reduced_floating(g.in)) return false;
  if (g.bias != nullptr && g.alpha != 1) return false;
  if (g.bias != nullptr && g.beta != 0 && g.epilogue == Epilogue::none && g.bias_dtype == DType::f16) return false;
  if (g.c_col != 1 && g.n != 1) {
    if (g.aux != nullptr) return false;
    if (g.bias != nullptr || (g.c_row != 1 && g.m != 1)) return false;
    transpose(g);
  }
  // A matrix times a vector is oneDNN's as a vector times a matrix.
  if (g.n == 1 && g.m > 1 && g.c_row == 1 && g.bias == nullptr && g.aux == nullptr) {
    g.c_col = g.m;
    transpose(g);
  }
  if (g.m > 1 && g.c_row < g.n) return false;
  g.c_col = 1;
  if (g.m == 1) g.c_row = g.n;
  tidy(g.m, g.k, g.a_row, g.a_col);
  tidy(g.k, g.n, g.b_row, g.b_col);
  const int inner = g.batch.size() - 1;
  int64_t outer = 1;
  for (int d = 0; d < inner; ++d) outer *= g.batch[d];
  Gemm one = g;
  if (inner >= 0) {
    one.batch = {g.batch[inner]};
    one.a_batch = {g.a_batch[inner]};
    one.b_batch = {g.b_batch[inner]};
    one.c_batch = {g.c_batch[inner]};
  }
  const int64_t in = size_of(g.in), out = size_of(g.out), batches = one.batch.product();
  for (int64_t o = 0; o < outer; ++o) {
    int64_t index = o, ao = 0, bo = 0, co = 0;
    for (int d = inner - 1; d >= 0; --d) {
      const int64_t i = index % g.batch[d];
      index /= g.batch[d];
      ao += i * g.a_batch[d];
      bo += i * g.b_batch[d];
      co += i * g.c_batch[d];
    }
    Gemm step = one;
    step.a = static_cast<const char*>(g.a) + ao * in;
    step.b = static_cast<const char*>(g.b) + bo * in;
    step.c = static_cast<char*>(g.c) + co * out;
    ScratchFrame frame;
    int64_t* a_batch = inner >= 0 ? &step.a_batch[0] : nullptr;
    int64_t* b_batch = inner >= 0 ? &step.b_batch[0] : nullptr;
    if (!is_plain(g.m, g.k, step.a_row, step.a_col))
      make_plain(frame, batches, g.m, g.k, g.in, step.a, step.a_row, step.a_col, a_batch);
    if (!is_plain(g.k, g.n, step.b_row, step.b_col))
      make_plain(frame, batches, g.k, g.n, g.in, step.b, step.b_row, step.b_col, b_batch);
    // Decided by sizes and dtypes: false for the first product or for none.
    if (!multiply(step, backend)) return false;
  }
  return true;
}

// The sum of products of two rows: many partial sums side by side.
float dot(const float* a, const float* b, int64_t n) {
  constexpr int64_t kSums = 32;
  float sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int64_t j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  for (int64_t width = kSums / 2; width > 0; width /= 2)
    for (int64_t j = 0; j < width; ++j) sums[j] += sums[j + width];
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return sums[0];
}

// A long sum with few results would run on one thread: split K into fixed pieces and add them up in order.
bool run_split_k(const Gemm& g) {
  constexpr int64_t kPiece = 16384;
  if (!g.batch.empty() || g.k < 4 * kPiece || g.m * g.n > 1024) return false;
  const DType acc = g.in == DType::f64 ? DType::f64 : DType::f32;
  if (!is_floating(g.in)) return false;
  const int64_t pieces = (g.k + kPiece - 1) / kPiece, mn = g.m * g.n;
  ScratchFrame frame;
  auto* base = frame.take<char>((pieces + 1) * mn * size_of(acc));
  parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      Gemm piece = g;
      piece.k = std::min(kPiece, g.k - p * kPiece);
      piece.a = static_cast<const char*>(g.a) + p * kPiece * g.a_col * size_of(g.in);
      piece.b = static_cast<const char*>(g.b) + p * kPiece * g.b_row * size_of(g.in);
      piece.c = base + p * mn * size_of(acc);
      if (mn == 1 && g.in == DType::f32 && g.a_col == 1 && g.b_row == 1) {
        *static_cast<float*>(piece.c) =
            dot(static_cast<const float*>(piece.a), static_cast<const float*>(piece.b), piece.k);
        continue;
      }
      piece.c_row = g.n, piece.c_col = 1, piece.out = acc;
      piece.alpha = 1, piece.beta = 0, piece.bias = nullptr, piece.epilogue = Epilogue::none;
      detail::gemm_blocked(piece);
    }
  });
  const auto finish = [&](auto* part) {
    auto* sum = part + pieces * mn;
    std::fill_n(sum, mn, 0);
    for (int64_t p = 0; p < pieces; ++p) {
      for (int64_t i = 0; i < mn; ++i) sum[i] += part[p * mn + i];
    }
    return static_cast<const void*>(sum);
  };
  const void* sum =
      acc == DType::f64 ? finish(reinterpret_cast<double*>(base)) : finish(reinterpret_cast<float*>(base));
  detail::gemm_finish(g, sum);
  return true;
}

// The dots of products [begin, end) of a batch whose rows of A and column of B lie side by side.
template <class T>
void run_dots(const Gemm& g, int64_t begin, int64_t end) {
  constexpr int64_t kSums = 8;
  for (int64_t p = begin; p < end; ++p) {
    const T* const b = static_cast<const T*>(g.b) + p * g.b_batch[0];
    for (int64_t i = 0; i < g.m; ++i) {
      const T* const a = static_cast<const T*>(g.a) + p * g.a_batch[0] + i * g.a_row;
      T sums[kSums] = {};
      int64_t l = 0;
      for (; l + kSums <= g.k; l += kSums)
        for (int64_t j = 0; j < kSums; ++j) sums[j] += a[l + j] * b[l + j];
      T sum = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
      for (; l < g.k; ++l) sum += a[l] * b[l];
      static_cast<T*>(g.c)[p * g.c_batch[0] + i * g.c_row] = sum;
    }
  }
}

// Products [begin, end) of a batch, one after another, of `columns` columns, or where that is 0 of at most 16.
template <class T, int columns>
void run_each(const Gemm& g, int64_t begin, int64_t end) {
  const int64_t n = columns > 0 ? columns : g.n;
  for (int64_t p = begin; p < end; ++p) {
    const T* const a = static_cast<const T*>(g.a) + p * g.a_batch[0];
    const T* const b = static_cast<const T*>(g.b) + p * g.b_batch[0];
    T* const c = static_cast<T*>(g.c) + p * g.c_batch[0];
    for (int64_t i = 0; i < g.m; ++i) {
      T sums[columns > 0 ? columns : 16] = {};
      for (int64_t l = 0; l < g.k; ++l) {
        const T v = a[i * g.a_row + l * g.a_col];
        for (int64_t j = 0; j < n; ++j) sums[j] += v * b[l * g.b_row + j * g.b_col];
      }
      for (int64_t j = 0; j < n; ++j) c[i * g.c_row + j * g.c_col] = sums[j];
    }
  }
}

// A vector's product with a matrix is loops of dots or of multiples of columns, of a batch too; oneDNN takes each
// vector for a matrix.
bool is_vector_product(const Gemm& g) {
  if (g.n != 1 && g.m != 1) return false;
  const bool columns = g.batch.empty() &&
                       ((g.n == 1 && g.a_row == 1 && g.m >= 32) || (g.m == 1 && g.b_col == 1 && g.n >= 32)) &&
                       g.in == DType::f32;
  return (g.a_col == 1 && g.b_row == 1) || columns;
}

// The same with a bias, one row of a layer: those loops know no bias along their rows, so it is added to their sums.
bool run_vector_with_bias(const Gemm& g) {
  if (g.bias == nullptr || g.k <= 1 || !g.batch.empty() || !is_floating(g.in) || !is_vector_product(g)) return false;
  ScratchFrame frame;
  Gemm product = g;
  product.out = g.in == DType::f64 ? DType::f64 : DType::f32;
  product.c = frame.take<char>(g.m * g.n * size_of(product.out));
  product.c_row = g.n, product.c_col = 1;
  product.alpha = 1, product.beta = 0, product.bias = nullptr, product.epilogue = Epilogue::none;
  detail::gemm_blocked(product);
  detail::gemm_finish(g, product.c);
  return true;
}

// Products of so little that any call costs more than they do.
bool run_small(const Gemm& g) {
  constexpr int64_t kMostWork = 128, kMostColumns = 16;
  if (g.batch.size() != 1 || g.m * g.n * g.k > kMostWork || g.n > kMostColumns || g.in != g.out) return false;
  if (g.alpha != 1 || g.beta != 0 || g.bias != nullptr || g.epilogue != Epilogue::none) return false;
  if (g.in != DType::f32 && g.in != DType::f64) return false;
  const bool wide = g.in == DType::f64, dots = g.n == 1 && g.k >= 8 && g.a_col == 1 && g.b_row == 1;
  parallel_for(0, g.batch[0], 1024, [&](int64_t begin, int64_t end) {
    if (dots) return wide ? run_dots<double>(g, begin, end) : run_dots<float>(g, begin, end);
    const auto run = [&]<int columns>() {
      wide ? run_each<double, columns>(g, begin, end) : run_each<float, columns>(g, begin, end);
    };
    switch (g.n) {
      case 2:
        return run.template operator()<2>();
      case 3:
        return run.template operator()<3>();
      case 4:
        return run.template operator()<4>();
      default:
        return run.template operator()<0>();
    }
  });
  return true;
}

// The product first, then GELU or its derivative over the elements: for kernels that cannot do both at once.
void run_with_aux(const Gemm& g, GemmBackend backend) {
  const bool slope = g.epilogue == Epilogue::gelu_tanh_grad;
  Gemm p = g;
  p.epilogue = Epilogue::none;
  p.aux = nullptr;
  if (!slope) p.c = g.aux;
  gemm(p, backend);
  const int64_t size = size_of(g.out);
  if (g.c_col == 1) {
    parallel_for(0, g.m, std::max<int64_t>(1, 8192 / std::max<int64_t>(g.n, 1)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = i * g.c_row * size;
        detail::gelu_tanh_run(g.out, slope, static_cast<char*>(g.aux) + at, static_cast<char*>(g.c) + at, g.n);
      }
    });
    return;
  }
  for (int64_t i = 0; i < g.m; ++i) {
    for (int64_t j = 0; j < g.n; ++j) {
      const int64_t at = (i * g.c_row + j * g.c_col) * size;
      detail::gelu_tanh_run(g.out, slope, static_cast<char*>(g.aux) + at, static_cast<char*>(g.c) + at, 1);
    }
  }
}

void check_dtypes(const Gemm& g) {
  const bool reduced = is_reduced_floating(g.in);
  check<DTypeError>(g.in != DType::boolean && (g.out == g.in || (reduced && g.out == DType::f32)), "gemm",
                    "no product of ", g.in, " into ", g.out);
  check<DTypeError>(g.bias == nullptr || g.bias_dtype == g.in || g.bias_dtype == g.out, "gemm", "bias is ",
                    g.bias_dtype, ", wants ", g.in, " or ", g.out);
  check<DTypeError>(g.epilogue == Epilogue::none || is_floating(g.in), "gemm",
                    "an epilogue wants a floating dtype, got ", g.in);
}

}  // namespace

void gemm(const Gemm& given, GemmBackend backend) {
  check_dtypes(given);
  if (given.m == 0 || given.n == 0 || given.batch.product() == 0) return;
  check((given.epilogue != Epilogue::gelu_tanh_grad && given.aux == nullptr) ||
            (given.aux != nullptr && given.batch.empty() && given.beta == 0),
        "gemm", "this epilogue needs aux, no batch and beta 0");
  Gemm g = given;
  merge_batch(g);
  const bool blocked_only = g.k <= 1 || g.in == DType::f64 || is_integral(g.in);
  if (g.aux != nullptr) {
    const bool own = g.in == DType::bf16 && (backend == GemmBackend::amx || backend == GemmBackend::avx512_bf16 ||
                                             (backend == GemmBackend::best && is_large(g) && vec_level() >= 3));
    if (!own || !run_library(g, backend)) run_with_aux(g, backend);
    return;
  }
  switch (backend) {
    case GemmBackend::blocked:
      return detail::gemm_blocked(g);
    case GemmBackend::best:
      break;
    default:
      check((!blocked_only || (g.k == 1 && is_floating(g.in) && g.in != DType::f64)) && run_library(g, backend), "gemm",
            "the backend asked for has no kernel for this product of ", g.in, " here");
      return;
  }
  if (run_split_k(g)) return;
  if (run_small(g) || run_vector_with_bias(g)) return;
  // Below this much work oneDNN's call, one for a whole batch, costs more than the product; packing costs more where A
  // or B is nearly a vector.
  const int64_t work = g.m * g.n * g.k;
  const bool dots = g.bias == nullptr && is_vector_product(g);
  const bool tiny = dots || (g.batch.empty() && (work <= 4096 || (work <= 100000 && g.m >= 4 && g.n >= 4)));
  if (blocked_only || tiny || !run_library(g, backend)) detail::gemm_blocked(g);
}

}  // namespace strata::cpu
