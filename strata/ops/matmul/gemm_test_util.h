// What tests of products share: buffers of every dtype, layouts, and a product compared with sums in double.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/ops/matmul/gemm_cpu.h"

namespace strata::cpu::testing {

// A strided buffer of any dtype with values that all dtypes hold exactly.
struct Buffer {
  DType t;
  std::vector<char> bytes;
  Buffer(DType t, int64_t n) : t(t), bytes(static_cast<size_t>(n * size_of(t))) {}
  double get(int64_t i) const {
    const void* p = bytes.data() + i * size_of(t);
    switch (t) {
      case DType::u8:
        return *static_cast<const uint8_t*>(p);
      case DType::i8:
        return *static_cast<const int8_t*>(p);
      case DType::i16:
        return *static_cast<const int16_t*>(p);
      case DType::i32:
        return *static_cast<const int32_t*>(p);
      case DType::i64:
        return static_cast<double>(*static_cast<const int64_t*>(p));
      case DType::f16:
        return *static_cast<const Half*>(p);
      case DType::bf16:
        return *static_cast<const BFloat16*>(p);
      case DType::f32:
        return *static_cast<const float*>(p);
      case DType::f64:
        return *static_cast<const double*>(p);
      case DType::boolean:
        return 0;
    }
    return 0;
  }
  void set(int64_t i, double v) {
    void* p = bytes.data() + i * size_of(t);
    switch (t) {
      case DType::u8:
        *static_cast<uint8_t*>(p) = static_cast<uint8_t>(static_cast<int64_t>(v));
        break;
      case DType::i8:
        *static_cast<int8_t*>(p) = static_cast<int8_t>(static_cast<int64_t>(v));
        break;
      case DType::i16:
        *static_cast<int16_t*>(p) = static_cast<int16_t>(static_cast<int64_t>(v));
        break;
      case DType::i32:
        *static_cast<int32_t*>(p) = static_cast<int32_t>(static_cast<int64_t>(v));
        break;
      case DType::i64:
        *static_cast<int64_t*>(p) = static_cast<int64_t>(v);
        break;
      case DType::f16:
        *static_cast<Half*>(p) = Half(static_cast<float>(v));
        break;
      case DType::bf16:
        *static_cast<BFloat16*>(p) = BFloat16(static_cast<float>(v));
        break;
      case DType::f32:
        *static_cast<float*>(p) = static_cast<float>(v);
        break;
      case DType::f64:
        *static_cast<double*>(p) = v;
        break;
      case DType::boolean:
        break;
    }
  }
};

inline double apply(Epilogue e, double x) {
  switch (e) {
    case Epilogue::none:
      return x;
    case Epilogue::relu:
      return x > 0 ? x : 0;
    case Epilogue::gelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Epilogue::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Epilogue::silu:
      return x / (1 + std::exp(-x));
    case Epilogue::gelu_tanh_grad: {
      const double h = 1e-5;
      return (apply(Epilogue::gelu_tanh, x + h) - apply(Epilogue::gelu_tanh, x - h)) / (2 * h);
    }
  }
  return x;
}

enum class Layout { rows, cols, padded_rows, padded_cols, spread, broadcast_row };

// Row and column strides; returns the elements one matrix spans.
inline int64_t lay_out(Layout l, int64_t rows, int64_t cols, int64_t& row, int64_t& col) {
  switch (l) {
    case Layout::rows:
      row = cols, col = 1;
      break;
    case Layout::cols:
      row = 1, col = rows;
      break;
    case Layout::padded_rows:
      row = cols + 3, col = 1;
      break;
    case Layout::padded_cols:
      row = 1, col = rows + 5;
      break;
    case Layout::spread:
      row = 2 * cols + 1, col = 2;
      break;
    case Layout::broadcast_row:
      row = 0, col = 1;
      break;
  }
  return (rows - 1) * row + (cols - 1) * col + 1;
}

struct Spec {
  DType in, out;
  int64_t m, n, k;
  Layout a = Layout::rows, b = Layout::rows, c = Layout::rows;
  Shape batch = {};
  bool a_shared = false, b_shared = false, bias = false;
  double alpha = 1, beta = 0;
  Epilogue epilogue = Epilogue::none;
};

// Runs one product and compares every element. False where the backend has no kernel for it.
inline bool verify(const Spec& s, GemmBackend backend) {
  Gemm g;
  g.in = s.in, g.out = s.out, g.m = s.m, g.n = s.n, g.k = s.k, g.alpha = s.alpha, g.beta = s.beta,
  g.epilogue = s.epilogue;
  const int64_t a_span = lay_out(s.a, s.m, s.k, g.a_row, g.a_col), b_span = lay_out(s.b, s.k, s.n, g.b_row, g.b_col);
  const int64_t c_span = lay_out(s.c, s.m, s.n, g.c_row, g.c_col), count = s.batch.product();
  g.batch = s.batch;
  int64_t step = 1;
  g.a_batch = g.b_batch = g.c_batch = Dims::filled(s.batch.size(), 0);
  for (int d = s.batch.size() - 1; d >= 0; --d) {
    // A shared operand is broadcast along the last batch dim.
    const bool last = d == s.batch.size() - 1;
    g.a_batch[d] = s.a_shared && last ? 0 : step * a_span;
    g.b_batch[d] = s.b_shared && last ? 0 : step * b_span;
    g.c_batch[d] = step * c_span;
    step *= s.batch[d];
  }
  std::minstd_rand rng(static_cast<uint32_t>(s.m * 31 + s.n * 7 + s.k));
  const bool whole = is_integral(s.in);
  const auto fill = [&](Buffer& x, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      x.set(i, whole ? static_cast<double>(rng() % 5) : static_cast<double>(static_cast<int>(rng() % 33) - 16) / 16);
  };
  Buffer a(s.in, count * a_span), b(s.in, count * b_span), c(s.out, count * c_span), bias(s.in, s.n);
  fill(a, count * a_span), fill(b, count * b_span), fill(c, count * c_span), fill(bias, s.n);
  const Buffer before = c;
  g.a = a.bytes.data(), g.b = b.bytes.data(), g.c = c.bytes.data();
  if (s.bias) g.bias = bias.bytes.data(), g.bias_dtype = s.in;
  try {
    gemm(g, backend);
  } catch (const ValueError&) {
    return false;
  }
  const double eps = s.out == DType::f64    ? 1e-14
                     : s.out == DType::f32  ? 2e-6
                     : s.out == DType::bf16 ? 8e-3
                     : s.out == DType::f16  ? 1e-3
                                            : 0;
  const double modulus = whole && size_of(s.out) < 4 ? std::ldexp(1, static_cast<int>(8 * size_of(s.out))) : 0;
  for (int64_t t = 0; t < count; ++t) {
    int64_t index = t, ao = 0, bo = 0, co = 0;
    for (int d = s.batch.size() - 1; d >= 0; --d) {
      ao += index % s.batch[d] * g.a_batch[d], bo += index % s.batch[d] * g.b_batch[d],
          co += index % s.batch[d] * g.c_batch[d];
      index /= s.batch[d];
    }
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t j = 0; j < s.n; ++j) {
        double sum = 0, size = 0;
        for (int64_t l = 0; l < s.k; ++l) {
          const double x = a.get(ao + i * g.a_row + l * g.a_col) * b.get(bo + l * g.b_row + j * g.b_col);
          sum += x, size += std::abs(x);
        }
        const int64_t at = co + i * g.c_row + j * g.c_col;
        double want = s.alpha * sum + (s.bias ? bias.get(j) : 0) + (s.beta != 0 ? s.beta * before.get(at) : 0);
        want = apply(s.epilogue, want);
        double error = std::abs(c.get(at) - want);
        if (modulus > 0) error = std::fmod(error, modulus);
        // Library and own activations differ from the exact ones by a few units of f32.
        const double slack = s.epilogue == Epilogue::none || s.in == DType::f64 ? 0 : 1e-5;
        if (!(error <= eps * std::abs(want) + (whole ? 0 : eps < 1e-10 ? 1e-15 : 3e-7) * size + slack)) {
          ADD_FAILURE() << name_of(s.in) << "->" << name_of(s.out) << " m=" << s.m << " n=" << s.n << " k=" << s.k
                        << " layouts " << static_cast<int>(s.a) << static_cast<int>(s.b) << static_cast<int>(s.c)
                        << " batch " << to_string(s.batch) << " alpha=" << s.alpha << " beta=" << s.beta
                        << " bias=" << s.bias << " epilogue=" << static_cast<int>(s.epilogue)
                        << " backend=" << static_cast<int>(backend) << ": [" << t << "][" << i << ", " << j << "] is "
                        << c.get(at) << ", not " << want;
          return true;
        }
      }
    }
  }
  return true;
}

constexpr GemmBackend kBackends[] = {GemmBackend::best, GemmBackend::blocked, GemmBackend::onednn,
                                     GemmBackend::avx512_bf16, GemmBackend::amx};

}  // namespace strata::cpu::testing
