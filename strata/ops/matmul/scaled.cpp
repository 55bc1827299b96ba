#include "strata/ops/matmul/scaled.h"

#include <cmath>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/matmul/scaled_inl.h"

namespace strata {
namespace {

using products::decode;
using products::make;

constexpr DTypeSet kResults = dtype_bit(DType::f32) | dtype_bit(DType::bf16) | dtype_bit(DType::f16);

Fp8 format_of(const std::string& name, std::string_view op) {
  check(name == "e4m3" || name == "e5m2", op, "a format is \"e4m3\" or \"e5m2\", got \"", name, "\"");
  return name == "e4m3" ? kE4m3 : kE5m2;
}

void check_scale(std::string_view op, const Tensor& scale, std::string_view name) {
  check<DTypeError>(scale.dtype() == DType::f32, op, name, " must be f32, got ", scale);
}

// ---- fp8_quantize and fp8_dequantize ----

const Op<Tensor(const Tensor&, const Tensor&, const std::string&)> fp8_quantize_op{{
    .schema = "fp8_quantize(Tensor x, Tensor scale, str format=\"e4m3\") -> Tensor",
    .shard = "whole",
    .doc =
        "The fp8 codes (u8) of x / scale, divided in f32 and rounded to nearest even. What is too large, infinity too, "
        "becomes the largest number (448 for e4m3, 57344 for e5m2), NaN stays NaN. scale (f32) has one element or "
        "broadcasts to x. Formats: https://arxiv.org/abs/2209.05433. Not differentiable.",
    .example = "assert(fp8_quantize(full({1}, 1.0), full({}, 1.0)).item() == 0x38);",
    .infer =
        [](const Tensor& x, const Tensor& scale, const std::string& format) {
          format_of(format, "fp8_quantize");
          check<DTypeError>(is_floating(x.dtype()), "fp8_quantize", "needs a floating dtype, got ", x);
          check_scale("fp8_quantize", scale, "scale");
          check<ShapeError>(
              scale.numel() == 1 || broadcast_shapes(scale.shape(), x.shape(), "fp8_quantize") == x.shape(),
              "fp8_quantize", "scale ", scale, " does not broadcast to x ", x);
          return TensorMeta{x.shape(), DType::u8, x.device(), std::nullopt};
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Tensor& scale, const std::string& format) {
      const Tensor one = scale.numel() == 1 ? reshape(scale, {}) : scale;
      const Tensor in = contiguous(div(to(x, DType::f32), one));
      const Tensor out = y.is_contiguous() ? y : make(y.shape(), DType::u8, y);
      const Fp8 as = format_of(format, "fp8_quantize");
      if constexpr (on.cuda)
        fp8_encode_cuda(out, in, as);
      else
        fp8_encode_cpu(out, in, as);
      if (!out.same_as(y)) copy_elements(y, out);
    }),
    .cost =
        [](const Tensor& x, const Tensor&, const std::string&) {
          return Cost{2.0 * x.numel(), static_cast<double>(x.nbytes() + x.numel())};
        },
    .samples =
        [](Samples& s) {
          const auto scale = [&](const Shape& shape, double v) { return full(shape, v); };
          s.add(s.tensor({3, 40}), scale({}, 0.25)).not_differentiable();
          s.add(s.uniform({500}, -0.02, 0.02), scale({1}, 0.5), "e5m2").not_differentiable();
          s.add(s.uniform({4, 70}, -600, 600), scale({4, 1}, 1), "e4m3").named("saturates").not_differentiable();
          s.add(s.tensor({0, 3}), scale({}, 1.0)).not_differentiable();
          s.invalid<ValueError>("a format is", s.tensor({3}), scale({}, 1.0), "e3m4");
          s.invalid<ShapeError>("does not broadcast", s.tensor({3}), scale({2, 3}, 1));
          s.invalid<DTypeError>("must be f32", s.tensor({3}), full({}, 1, DType::i32));
        },
    .reference =
        [](const Tensor& x, const Tensor& scale, const std::string& format) {
          const Tensor by =
              (scale.numel() == 1 ? reshape(scale, {}) : scale).to(DType::f64).expand(x.shape()).contiguous();
          const std::vector<double> v = x.to_vector<double>(), d = by.to_vector<double>();
          const Fp8 f = format_of(format, "fp8_quantize");
          std::vector<uint8_t> codes(v.size());
          for (size_t i = 0; i < v.size(); ++i) {
            // The nearest of all positive numbers; of two that are equally near, the one whose last bit is 0.
            const double a = std::fabs(v[i] / d[i]);
            int best = 0;
            for (int c = 0; c <= f.largest; ++c) {
              const double now = std::fabs(fp8_value(static_cast<uint8_t>(c), f) - a),
                           then = std::fabs(fp8_value(static_cast<uint8_t>(best), f) - a);
              if (now < then || (now == then && c % 2 == 0)) best = c;
            }
            codes[i] = static_cast<uint8_t>(best | (std::signbit(v[i] / d[i]) ? 0x80 : 0));
          }
          return from_span<uint8_t>(codes, x.shape());
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, const std::string&, DType)> fp8_dequantize_op{{
    .schema = "fp8_dequantize(Tensor codes, Tensor scale, str format=\"e4m3\", DType dtype=f32) -> Tensor",
    .shard = "whole",
    .doc =
        "The numbers that fp8 codes (u8) stand for, times scale (f32, of one element or broadcasting to codes), in the "
        "floating dtype. Not differentiable.",
    .example =
        "Tensor x = full({2}, 3.0); assert(equal(fp8_dequantize(fp8_quantize(x, full({}, 1.0)), full({}, 1.0)), x));",
    .infer =
        [](const Tensor& codes, const Tensor& scale, const std::string& format, DType dtype) {
          constexpr std::string_view op = "fp8_dequantize";
          format_of(format, op);
          check<DTypeError>(codes.dtype() == DType::u8, op, "codes must be u8, got ", codes);
          check<DTypeError>(is_floating(dtype), op, "needs a floating dtype, got ", dtype);
          check_scale(op, scale, "scale");
          check<ShapeError>(scale.numel() == 1 || broadcast_shapes(scale.shape(), codes.shape(), op) == codes.shape(),
                            op, "scale ", scale, " does not broadcast to codes ", codes);
          return TensorMeta{codes.shape(), dtype, codes.device(), std::nullopt};
        },
    .kernels = on_each_device(
        [](auto on, Tensor& y, const Tensor& codes, const Tensor& scale, const std::string& format, DType) {
          const Tensor one = scale.numel() == 1 ? reshape(scale, {}) : scale;
          copy_elements(y, decode(on, codes, format_of(format, "fp8_dequantize")) * one);
        }),
    .dtypes = kResults,
    .cost =
        [](const Tensor& codes, const Tensor&, const std::string&, DType t) {
          return Cost{2.0 * codes.numel(), static_cast<double>(codes.numel() * (1 + size_of(t)))};
        },
    .samples =
        [](Samples& s) {
          const Tensor all = s.integers({256}, 0, 256, DType::u8);
          s.add(all, full({}, 0.5), "e4m3", s.dtype()).not_differentiable();
          s.add(s.integers({3, 40}, 0, 0x78, DType::u8), s.uniform({3, 1}, 0.5, 2, DType::f32), "e5m2", DType::f32)
              .not_differentiable();
          s.invalid<DTypeError>("must be u8", s.tensor({3}), full({}, 1.0));
          s.invalid<ValueError>("a format is", all, full({}, 1.0), "fp8");
        },
    .reference =
        [](const Tensor& codes, const Tensor& scale, const std::string& format, DType) {
          const Tensor by = (scale.numel() == 1 ? reshape(scale, {}) : scale).to(DType::f64).expand(codes.shape());
          const std::vector<uint8_t> c = codes.to_vector<uint8_t>();
          const std::vector<double> d = by.contiguous().to_vector<double>();
          const Fp8 f = format_of(format, "fp8_dequantize");
          std::vector<double> v(c.size());
          for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(fp8_value(c[i], f)) * d[i];
          return from_span<double>(v, codes.shape());
        },
}};

// ---- products ----

void check_operands(std::string_view op, const Tensor& a, const Tensor& b) {
  check<ShapeError>(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), op, "wants a [m, k] and b [k, n], got ", a,
                    " and ", b);
}

// The sums of products of i8, i32.
template <class On>
void integer_product(On on, Tensor& y, const Tensor& a, const Tensor& b) {
  if constexpr (on.cuda) {
    if (y.strides()[1] == 1 && y.numel() > 0 && a.size(1) > 0) {
      products::Operands o = products::operands(on, a, b);
      o.g.a_type = o.g.b_type = cuda::EightBit::i8;
      o.g.out = DType::i32;
      o.g.c = y.raw_data();
      o.g.ldc = y.strides()[0];
      if (cuda::scaled_gemm(o.g, y.device())) return;
    }
  }
  copy_elements(y, matmul(to(a, DType::i32), to(b, DType::i32)));
}

const Op<Tensor(const Tensor&, const Tensor&)> int8_matmul_op{{
    .schema = "int8_matmul(Tensor a, Tensor b) -> Tensor",
    .shard = "m k, k n -> m n",
    .doc = "The product of i8 matrices, summed in i32: [m, k] x [k, n] -> [m, n]. Exact while k is below 131072. Not "
           "differentiable.",
    .example = "Tensor x = full({2, 3}, 100, DType::i8); assert(equal(int8_matmul(x, x.t()), full({2, 2}, 30000, "
               "DType::i32)));",
    .infer =
        [](const Tensor& a, const Tensor& b) {
          check_operands("int8_matmul", a, b);
          check<DTypeError>(a.dtype() == DType::i8 && b.dtype() == DType::i8, "int8_matmul",
                            "operands must be i8, got ", a, " and ", b);
          return TensorMeta{{a.size(0), b.size(1)}, DType::i32, a.device(), std::nullopt};
        },
    .kernels = on_each_device([](auto on, auto&&... all) { integer_product(on, all...); }),
    .dtypes = dtype_bit(DType::i8),
    .cost =
        [](const Tensor& a, const Tensor& b) {
          return Cost{2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(1)),
                      static_cast<double>(a.nbytes() + b.nbytes() + 4 * a.size(0) * b.size(1))};
        },
    .samples =
        [](Samples& s) {
          const auto any = [&](const Shape& shape) { return s.integers(shape, -128, 128, DType::i8); };
          s.add(any({5, 7}), any({7, 3})).not_differentiable();
          s.add(any({33, 64}), any({48, 64}).t()).named("aligned").not_differentiable();
          s.add(any({64, 33}).t(), any({64, 48})).named("transposed").not_differentiable();
          s.add(any({0, 4}), any({4, 3})).not_differentiable();
          s.add(any({2, 0}), any({0, 3})).not_differentiable();
          s.invalid<ShapeError>("wants a [m, k]", any({2, 3}), any({2, 3}));
          s.invalid<DTypeError>("must be i8", any({2, 3}), s.integers({3, 2}, 0, 5, DType::u8));
        },
    .reference =
        [](const Tensor& a, const Tensor& b) {
          const std::vector<int64_t> va = a.to(DType::i64).contiguous().to_vector<int64_t>(),
                                     vb = b.to(DType::i64).contiguous().to_vector<int64_t>();
          const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
          std::vector<int32_t> y(static_cast<size_t>(m * n));
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j)
              for (int64_t l = 0; l < k; ++l)
                y[static_cast<size_t>(i * n + j)] +=
                    static_cast<int32_t>(va[static_cast<size_t>(i * k + l)] * vb[static_cast<size_t>(l * n + j)]);
          return from_span<int32_t>(y, {m, n});
        },
}};

using ScaledSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                               const std::string&, const std::string&, DType);

TensorMeta scaled_infer(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
                        const Tensor& bias, const std::string& a_format, const std::string& b_format, DType dtype) {
  constexpr std::string_view op = "scaled_matmul";
  check_operands(op, a, b);
  check<DTypeError>(a.dtype() == b.dtype() && (a.dtype() == DType::u8 || a.dtype() == DType::i8), op,
                    "operands must both be u8 (fp8 codes) or both i8, got ", a, " and ", b);
  format_of(a_format, op);
  format_of(b_format, op);
  check_scale(op, scale_a, "scale_a");
  check_scale(op, scale_b, "scale_b");
  const int64_t m = a.size(0), n = b.size(1);
  check<ShapeError>(scale_a.numel() == 1 || scale_a.shape() == Shape{m, 1}, op, "scale_a is ", scale_a,
                    ", wants one element or [", m, ", 1]");
  check<ShapeError>(scale_b.numel() == 1 || scale_b.shape() == Shape{1, n}, op, "scale_b is ", scale_b,
                    ", wants one element or [1, ", n, "]");
  check<DTypeError>((kResults & dtype_bit(dtype)) != 0, op, "the result is bf16, f16 or f32, not ", dtype);
  if (bias.defined()) {
    check<ShapeError>(bias.shape() == Shape{n}, op, "bias is ", bias, ", wants [", n, "]");
    check<DTypeError>(bias.dtype() == dtype, op, "bias is ", bias, ", wants the result's dtype ", dtype);
  }
  return TensorMeta{{m, n}, dtype, a.device(), std::nullopt};
}

template <class On>
void scaled_kernel(On on, Tensor& y, const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
                   const Tensor& bias, const std::string& a_format, const std::string& b_format, DType) {
  if (y.numel() == 0) return;
  if (a.dtype() == DType::u8)
    return products::fp8_product(
        on, y, {a, b, scale_a, scale_b, format_of(a_format, "scaled_matmul"), format_of(b_format, "scaled_matmul")},
        bias);
  Tensor sums = make(y.shape(), DType::i32, y);
  integer_product(on, sums, a, b);
  const auto factor = [](const Tensor& scale) { return scale.numel() == 1 ? reshape(scale, {}) : scale; };
  Tensor v = to(sums, DType::f32) * factor(scale_a) * factor(scale_b);
  if (bias.defined()) v = v + to(bias, DType::f32);
  copy_elements(y, v);
}

const Op<ScaledSignature> scaled_matmul_op{{
    .schema =
        "scaled_matmul(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias=None, str a_format=\"e4m3\", "
        "str b_format=\"e4m3\", DType dtype=bf16) -> Tensor",
    .shard = "whole",
    .doc = "(a b) * scale_a * scale_b + bias for eight-bit matrices a [m, k] and b [k, n]: fp8 codes (u8) of the given "
           "formats, or i8 (the formats count for nothing then). Scales (f32) have one element or the shapes [m, 1] "
           "and [1, "
           "n]; bias [n] has the result's dtype, bf16, f16 or f32. Sums run in f32 (of fp8 on a Hopper card with about "
           "14 bits in between), for i8 in i32, and are rounded once. Not "
           "differentiable.",
    .example = "Tensor one = full({}, 1.0), x = fp8_quantize(full({2, 16}, 3.0), one); "
               "assert(equal(scaled_matmul(x, x.t(), one, one), full({2, 2}, 144, DType::bf16)));",
    .infer = scaled_infer,
    .kernels = on_each_device([](auto on, auto&&... all) { scaled_kernel(on, all...); }),
    .dtypes = kResults,
    .cost =
        [](const Tensor& a, const Tensor& b, const Tensor&, const Tensor&, const Tensor&, const std::string&,
           const std::string&, DType t) {
          return Cost{2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(1)),
                      static_cast<double>(a.nbytes() + b.nbytes() + size_of(t) * a.size(0) * b.size(1))};
        },
    .samples =
        [](Samples& s) {
          const Tensor half = full({}, 0.5), two = full({1}, 2.0);
          const auto codes = [&](const Shape& shape, const char* format) {
            return fp8_quantize(s.uniform(shape, -4, 4, DType::f32), full({}, 1.0), format);
          };
          const auto bytes = [&](const Shape& shape) { return s.integers(shape, -128, 128, DType::i8); };
          const DType t = s.dtype();
          s.add(codes({5, 7}, "e4m3"), codes({7, 3}, "e4m3"), half, two, std::nullopt, "e4m3", "e4m3", t)
              .not_differentiable();
          s.add(codes({33, 64}, "e4m3"), codes({48, 64}, "e4m3").t(), half, two, s.tensor({48}), "e4m3", "e4m3", t)
              .named("aligned")
              .not_differentiable();
          s.add(codes({64, 32}, "e5m2").t(), codes({64, 48}, "e4m3"), half, two, std::nullopt, "e5m2", "e4m3", t)
              .named("rows and columns wrong")
              .not_differentiable();
          s.add(codes({32, 32}, "e5m2"), codes({32, 32}, "e5m2").t(), half, two, std::nullopt, "e5m2", "e5m2", t)
              .not_differentiable();
          s.add(codes({33, 64}, "e4m3"), codes({48, 64}, "e4m3").t(), s.uniform({33, 1}, 0.5, 2, DType::f32),
                s.uniform({1, 48}, 0.5, 2, DType::f32), s.tensor({48}), "e4m3", "e4m3", t)
              .named("a scale for each row and column")
              .not_differentiable();
          s.add(bytes({33, 64}), bytes({48, 64}).t(), full({}, 1.0 / 1024), s.uniform({1, 48}, 0.5, 2, DType::f32),
                s.tensor({48}), "e4m3", "e4m3", t)
              .named("i8")
              .not_differentiable();
          s.add(codes({0, 7}, "e4m3"), codes({7, 3}, "e4m3"), half, two, std::nullopt, "e4m3", "e4m3", t)
              .not_differentiable();
          s.invalid<ShapeError>("scale_b is", codes({5, 7}, "e4m3"), codes({7, 3}, "e4m3"), half, full({3}, 1.0));
          s.invalid<DTypeError>("must both be", codes({5, 7}, "e4m3"), bytes({7, 3}), half, half);
          s.invalid<ValueError>("a format is", codes({5, 7}, "e4m3"), codes({7, 3}, "e4m3"), half, half, std::nullopt,
                                "e4m3", "int8");
          s.invalid<DTypeError>("the result is", codes({5, 7}, "e4m3"), codes({7, 3}, "e4m3"), half, half, std::nullopt,
                                "e4m3", "e4m3", DType::i32);
        },
    .reference =
        [](const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b, const Tensor& bias,
           const std::string& a_format, const std::string& b_format, DType) {
          const auto numbers = [](const Tensor& t, const std::string& format) {
            std::vector<double> v = t.to(DType::f64).contiguous().to_vector<double>();
            if (t.dtype() == DType::u8)
              for (double& e : v) e = fp8_value(static_cast<uint8_t>(e), format_of(format, "scaled_matmul"));
            return v;
          };
          const auto scales = [](const Tensor& t) { return t.to(DType::f64).contiguous().to_vector<double>(); };
          const std::vector<double> va = numbers(a, a_format), vb = numbers(b, b_format), sa = scales(scale_a),
                                    sb = scales(scale_b), vc = bias.defined() ? scales(bias) : std::vector<double>();
          const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
          std::vector<double> y(static_cast<size_t>(m * n));
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              double sum = 0;
              for (int64_t l = 0; l < k; ++l)
                sum += va[static_cast<size_t>(i * k + l)] * vb[static_cast<size_t>(l * n + j)];
              sum *= sa[sa.size() == 1 ? 0 : static_cast<size_t>(i)] * sb[sb.size() == 1 ? 0 : static_cast<size_t>(j)];
              y[static_cast<size_t>(i * n + j)] = sum + (vc.empty() ? 0 : vc[static_cast<size_t>(j)]);
            }
          }
          return from_span<double>(y, {m, n});
        },
    .tolerance = 16,
    .tolerance_reason =
        "Hopper's tensor cores add products of fp8 with about 14 bits, and hand the sums on to f32 by and by",
}};

}  // namespace

Tensor fp8_quantize(const Tensor& x, const Tensor& scale, const std::string& format) {
  return fp8_quantize_op(x, scale, format);
}
Tensor fp8_dequantize(const Tensor& codes, const Tensor& scale, const std::string& format, DType dtype) {
  return fp8_dequantize_op(codes, scale, format, dtype);
}
Tensor int8_matmul(const Tensor& a, const Tensor& b) {
  return int8_matmul_op(a, b);
}
Tensor scaled_matmul(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b, const Tensor& bias,
                     const ScaledMatmulOptions& options) {
  return scaled_matmul_op(a, b, scale_a, scale_b, bias, options.a_format, options.b_format, options.dtype);
}

}  // namespace strata
