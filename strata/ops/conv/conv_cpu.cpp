// Convolutions as matrix products over unrolled windows, for what oneDNN lacks: f64, and f32 where it has no kernel.
// f16 (and bf16 without AVX-512) is computed in f32 and rounded once.

#include "strata/ops/conv/conv_kernels.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/ops/matmul/gemm_cpu.h"

namespace strata::cpu {
namespace {
using detail::ConvKind;

int64_t input_size(const ConvSizes& s) {
  return s.n * s.ic * s.ih * s.iw;
}
int64_t output_size(const ConvSizes& s) {
  return s.n * s.oc * s.oh * s.ow;
}
int64_t weight_size(const ConvSizes& s) {
  return s.oc * (s.ic / s.groups) * s.kh * s.kw;
}

// Calls f(row of windows, its first column, input offset or -1) for each row of [channels * kh * kw, oh * ow]: `f`
// gets one output row at a time with the range of its columns that lie inside x.
template <class F>
void for_windows(const ConvSizes& s, int64_t channels, F&& f) {
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t a = 0; a < s.kh; ++a) {
      for (int64_t b = 0; b < s.kw; ++b) {
        const int64_t row = (c * s.kh + a) * s.kw + b;
        const int64_t shift = b * s.dw - s.pw;  // of the input column from stride * output column
        const int64_t first = std::clamp<int64_t>(shift < 0 ? (-shift + s.sw - 1) / s.sw : 0, 0, s.ow);
        const int64_t last = std::clamp<int64_t>(s.iw - 1 - shift < 0 ? 0 : (s.iw - 1 - shift) / s.sw + 1, first, s.ow);
        for (int64_t y = 0; y < s.oh; ++y) {
          const int64_t iy = y * s.sh + a * s.dh - s.ph;
          const bool inside = iy >= 0 && iy < s.ih;
          f((row * s.oh + y) * s.ow, (c * s.ih + iy) * s.iw + shift, inside ? first : s.ow, inside ? last : s.ow);
        }
      }
    }
  }
}

template <class T>
void unroll(const ConvSizes& s, int64_t channels, const T* x, T* windows) {
  for_windows(s, channels, [&](int64_t to, int64_t from, int64_t first, int64_t last) {
    std::fill(windows + to, windows + to + first, T(0));
    for (int64_t i = first; i < last; ++i) windows[to + i] = x[from + i * s.sw];
    std::fill(windows + to + last, windows + to + s.ow, T(0));
  });
}

template <class T>
void fold(const ConvSizes& s, int64_t channels, const T* windows, T* x) {
  for_windows(s, channels, [&](int64_t from, int64_t to, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) x[to + i * s.sw] += windows[from + i];
  });
}

// Images (or groups of them) that are worth a thread, given the multiplications of one.
int64_t grain(const ConvSizes& s, int64_t images) {
  const int64_t work = images * s.oc * s.oh * s.ow * (s.ic / s.groups) * s.kh * s.kw;
  return std::max<int64_t>(1, 400000 / std::max<int64_t>(work, 1));
}

template <class T>
Gemm product(int64_t m, int64_t n, int64_t k, const T* a, bool a_transposed, const T* b, bool b_transposed, T* c) {
  Gemm g;
  g.in = g.out = dtype_of<T>;
  g.m = m, g.n = n, g.k = k, g.a = a, g.b = b, g.c = c, g.c_row = n;
  g.a_row = a_transposed ? 1 : k, g.a_col = a_transposed ? m : 1;
  g.b_row = b_transposed ? 1 : n, g.b_col = b_transposed ? k : 1;
  return g;
}

// Adds bias[c] to plane c of [n, channels, plane].
template <class T>
void add_bias(int64_t n, int64_t channels, int64_t plane, const T* bias, T* to) {
  parallel_for(0, n * channels, std::max<int64_t>(1, 16384 / std::max<int64_t>(plane, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   for (int64_t j = 0; j < plane; ++j) to[i * plane + j] += bias[i % channels];
                 }
               });
}

// forward: first = x, second = w. transpose: first = y, second = w. weight: first = x, second = y.
template <class T>
void by_products(ConvKind kind, const ConvSizes& s, const T* first, const T* second, T* out) {
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups, in_plane = s.ih * s.iw, out_plane = s.oh * s.ow;
  const int64_t depth = icg * s.kh * s.kw;
  const auto x_at = [&](int64_t n, int64_t g) { return (n * s.ic + g * icg) * in_plane; };
  const auto y_at = [&](int64_t n, int64_t g) { return (n * s.oc + g * ocg) * out_plane; };
  const auto w_at = [&](int64_t g) { return g * ocg * depth; };
  const auto buffer = [&] { return std::make_unique_for_overwrite<T[]>(static_cast<size_t>(depth * out_plane)); };
  if (kind == ConvKind::weight) {
    std::fill_n(out, weight_size(s), T(0));
    const auto windows = buffer();
    for (int64_t i = 0; i < s.groups * s.n; ++i) {
      const int64_t g = i / s.n, n = i % s.n;
      unroll(s, icg, first + x_at(n, g), windows.get());
      Gemm p = product(ocg, depth, out_plane, second + y_at(n, g), false, static_cast<const T*>(windows.get()), true,
                       out + w_at(g));
      p.beta = 1;
      gemm(p);
    }
    return;
  }
  if (kind == ConvKind::transpose) std::fill_n(out, input_size(s), T(0));
  parallel_for(0, s.n * s.groups, grain(s, 1) * s.groups, [&](int64_t begin, int64_t end) {
    const auto windows = buffer();
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / s.groups, g = i % s.groups;
      if (kind == ConvKind::forward) {
        unroll(s, icg, first + x_at(n, g), windows.get());
        gemm(product(ocg, out_plane, depth, second + w_at(g), false, static_cast<const T*>(windows.get()), false,
                     out + y_at(n, g)));
      } else {
        gemm(product(depth, out_plane, ocg, second + w_at(g), true, first + y_at(n, g), false, windows.get()));
        fold(s, icg, windows.get(), out + x_at(n, g));
      }
    }
  });
}

template <class From, class To>
void convert(const From* from, To* to, int64_t n) {
  parallel_for(0, n, 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = static_cast<To>(static_cast<float>(from[i]));
  });
}

// The gradient of a weight sums over the batch. Parts of the batch, which depend on the sizes alone, are summed side by
// side and added up in order: the same bits on any number of threads.
template <class T>
void weight_by_parts(const ConvSizes& s, const T* x, const T* y, T* w) {
  constexpr int64_t kMostParts = 16, kMostElements = int64_t{1} << 24;
  const int64_t size = weight_size(s);
  const int64_t parts =
      std::clamp<int64_t>(kMostElements / std::max<int64_t>(size, 1), 1, std::clamp<int64_t>(s.n, 1, kMostParts));
  const auto sums = std::make_unique_for_overwrite<T[]>(static_cast<size_t>(parts * size));
  parallel_for(0, parts, grain(s, s.n / parts), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t from = s.n * p / parts, to = s.n * (p + 1) / parts;
      ConvSizes part = s;
      part.n = to - from;
      by_products(ConvKind::weight, part, x + from * s.ic * s.ih * s.iw, y + from * s.oc * s.oh * s.ow,
                  sums.get() + p * size);
    }
  });
  detail::add_parts(static_cast<const T*>(sums.get()), parts, size, w);
}

// For a weight's gradient oneDNN is as fast as products over unrolled windows up to some ten columns, and takes 1.5
// times as long for 15, twice for 31 and 64 (docs/design/cpu-convs.md). A part's unrolled image has a bound.
bool long_windows(const ConvSizes& s) {
  constexpr int64_t kLong = 15, kFew = 8, kMostUnrolled = int64_t{1} << 23;
  return s.kw >= kLong && s.groups == 1 && std::min(s.ic, s.oc) >= kFew &&
         s.ic * s.kh * s.kw <= kMostUnrolled / std::max<int64_t>(s.oh * s.ow, 1);
}

void weight_f32(const ConvSizes& s, const float* x, const float* y, float* w) {
  if (long_windows(s) || !detail::conv_onednn(ConvKind::weight, s, DType::f32, DType::f32, x, y, nullptr, w))
    weight_by_parts(s, x, y, w);
}

// Through f32, in which oneDNN also gives the sums of bf16 products.
template <class T>
void weight_reduced(const ConvSizes& s, const T* x, const T* y, T* w) {
  const auto sums = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(weight_size(s)));
  if (dtype_of<T> != DType::bf16 || long_windows(s) ||
      !detail::conv_onednn(ConvKind::weight, s, DType::bf16, DType::f32, x, y, nullptr, sums.get())) {
    const auto wide_x = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(input_size(s)));
    const auto wide_y = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(output_size(s)));
    convert(x, wide_x.get(), input_size(s));
    convert(y, wide_y.get(), output_size(s));
    weight_f32(s, wide_x.get(), wide_y.get(), sums.get());
  }
  convert(sums.get(), w, weight_size(s));
}

void run_f32(ConvKind kind, const ConvSizes& s, const float* first, const float* second, const float* bias,
             float* out) {
  const float* given = kind == ConvKind::forward ? bias : nullptr;
  if (!detail::conv_onednn(kind, s, DType::f32, DType::f32, first, second, given, out)) {
    by_products(kind, s, first, second, out);
    if (given != nullptr) add_bias(s.n, s.oc, s.oh * s.ow, given, out);
  }
  if (kind == ConvKind::transpose && bias != nullptr) add_bias(s.n, s.ic, s.ih * s.iw, bias, out);
}

// forward or transpose through f32 copies.
template <class T>
void run_reduced(ConvKind kind, const ConvSizes& s, const T* first, const T* second, const T* bias, T* out) {
  const int64_t first_size = kind == ConvKind::forward ? input_size(s) : output_size(s);
  const int64_t out_size = kind == ConvKind::forward ? output_size(s) : input_size(s);
  const int64_t channels = kind == ConvKind::forward ? s.oc : s.ic;
  const auto copy = [](int64_t n) { return std::make_unique_for_overwrite<float[]>(static_cast<size_t>(n)); };
  const auto result = copy(out_size);
  const auto wide_bias = copy(bias != nullptr ? channels : 0);
  if (bias != nullptr) convert(bias, wide_bias.get(), channels);
  const float* b = bias != nullptr ? wide_bias.get() : nullptr;
  // bf16 sums go straight to f32 where oneDNN can, so that the bias is added before the one rounding.
  if (dtype_of<T> == DType::bf16 && kind == ConvKind::transpose &&
      detail::conv_onednn(kind, s, DType::bf16, DType::f32, first, second, nullptr, result.get())) {
    if (b != nullptr) add_bias(s.n, s.ic, s.ih * s.iw, b, result.get());
  } else {
    const auto wide_first = copy(first_size), wide_second = copy(weight_size(s));
    convert(first, wide_first.get(), first_size);
    convert(second, wide_second.get(), weight_size(s));
    run_f32(kind, s, wide_first.get(), wide_second.get(), b, result.get());
  }
  convert(result.get(), out, out_size);
}

// forward and transpose.
void run(ConvKind kind, const ConvSizes& s, DType t, const void* first, const void* second, const void* bias,
         void* out) {
  const auto typed = [&]<class T>(auto&& f) {
    f(static_cast<const T*>(first), static_cast<const T*>(second), static_cast<const T*>(bias), static_cast<T*>(out));
  };
  switch (t) {
    case DType::f32:
      return typed.operator()<float>([&](auto... p) { run_f32(kind, s, p...); });
    case DType::f64:
      return typed.operator()<double>([&](const double* a, const double* b, const double* add, double* to) {
        by_products(kind, s, a, b, to);
        if (add != nullptr && kind == ConvKind::forward) add_bias(s.n, s.oc, s.oh * s.ow, add, to);
        if (add != nullptr && kind == ConvKind::transpose) add_bias(s.n, s.ic, s.ih * s.iw, add, to);
      });
    case DType::bf16: {
      const bool bias_later = bias != nullptr && kind == ConvKind::transpose;
      if (!bias_later && detail::conv_onednn(kind, s, t, t, first, second, bias, out)) return;
      return typed.operator()<BFloat16>([&](auto... p) { run_reduced(kind, s, p...); });
    }
    case DType::f16:
      return typed.operator()<Half>([&](auto... p) { run_reduced(kind, s, p...); });
    default:
      throw DTypeError("convolution", cat("needs a floating dtype, got ", t));
  }
}
}  // namespace

void conv_forward(const ConvSizes& s, DType t, const void* x, const void* w, const void* bias, void* y) {
  run(ConvKind::forward, s, t, x, w, bias, y);
}
void conv_transpose(const ConvSizes& s, DType t, const void* y, const void* w, const void* bias, void* x) {
  run(ConvKind::transpose, s, t, y, w, bias, x);
}
void conv_weight(const ConvSizes& s, DType t, const void* x, const void* y, void* w) {
  if (input_size(s) == 0 || output_size(s) == 0) {  // the padded images may be beyond all memory
    if (w != nullptr) std::memset(w, 0, static_cast<size_t>(weight_size(s) * size_of(t)));
    return;
  }
  const auto typed = [&]<class T>(auto&& f) {
    f(s, static_cast<const T*>(x), static_cast<const T*>(y), static_cast<T*>(w));
  };
  switch (t) {
    case DType::f32:
      return typed.operator()<float>(weight_f32);
    case DType::f64:
      return typed.operator()<double>(weight_by_parts<double>);
    case DType::bf16:
      return typed.operator()<BFloat16>(weight_reduced<BFloat16>);
    case DType::f16:
      return typed.operator()<Half>(weight_reduced<Half>);
    default:
      throw DTypeError("convolution_weight", cat("needs a floating dtype, got ", t));
  }
}

}  // namespace strata::cpu
