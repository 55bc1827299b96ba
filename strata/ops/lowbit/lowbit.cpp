// The records of products with low-bit matrices.

#include "strata/ops/lowbit/lowbit.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "strata/core/autocast.h"
#include "strata/core/op.h"
#include "strata/core/parallel.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/lowbit/lowbit_kernels.h"
#include "strata/ops/lowbit/lowbit_samples_inl.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/matmul/matmul_inl.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

// How a packed weight stands in a schema.
#define STRATA_LOWBIT_PARTS "Tensor codes, Tensor? scales, Tensor? zeros, Tensor? order, Tensor? nested"
#define STRATA_LOWBIT_FORMAT "str format, int block_rows=1, int block_columns=0"
using Part = const Tensor&;

PackedWeight packed(int64_t columns, Part codes, Part scales, Part zeros, Part order, Part nested,
                    const std::string& format, int64_t block_rows, int64_t block_columns) {
  PackedWeight w;
  w.format = &weight_format(format);
  w.rows = codes.dim() > 0 ? codes.size(0) : 0, w.columns = columns;
  w.block_rows = block_rows, w.block_columns = block_columns;
  w.codes = codes, w.scales = scales, w.zeros = zeros, w.order = order, w.nested = nested;
  return w;
}

// Dense parts, kept while their view is used.
struct Laid {
  PackedWeight w;
  PackedView view;

  explicit Laid(PackedWeight given) : w(std::move(given)) {
    const auto dense = [](Tensor& t) {
      if (t.defined()) t = t.contiguous();
    };
    dense(w.codes), dense(w.scales), dense(w.zeros), dense(w.order);
    if (w.nested.defined()) w.nested = w.nested.to(DType::f32).contiguous();
    const auto at = [](const Tensor& t) { return t.defined() && t.numel() > 0 ? t.raw_data() : nullptr; };
    const Shape grid = w.format->scaled ? w.grid() : Shape{0, 0};
    view = {.kind = w.format->codes,
            .scale_dtype = w.scales.defined() ? w.scales.dtype() : DType::f32,
            .rows = w.rows,
            .columns = w.columns,
            .row_bytes = w.format->row_bytes(w.columns),
            .block_rows = w.block_rows == 0 ? std::max<int64_t>(1, w.rows) : w.block_rows,
            .block_columns = w.block_columns == 0 ? std::max<int64_t>(1, w.columns) : w.block_columns,
            .grid_columns = grid[1],
            .codes = static_cast<const uint8_t*>(at(w.codes)),
            .scales = at(w.scales),
            .zeros = static_cast<const uint8_t*>(at(w.zeros)),
            .order = static_cast<const int32_t*>(at(w.order)),
            .nested = static_cast<const float*>(at(w.nested))};
  }
};

// The same in double, by the reference decode.
void decode_wide(const Laid& l, int64_t begin, const Tensor& y) {
  const int64_t columns = l.w.columns;
  parallel_for(0, y.size(0), 1, [&](int64_t b, int64_t e) {
    std::vector<double> row(static_cast<size_t>(columns));
    for (int64_t n = b; n < e; ++n) {
      l.w.format->decode(l.w, begin + n, row.data());
      double* const to = y.data<double>() + n * columns;
      for (int64_t k = 0; k < columns; ++k) to[l.view.order ? l.view.order[k] : k] = row[static_cast<size_t>(k)];
    }
  });
}

// Rows [begin, begin + y.size(0)) of W into y, which is dense.
template <class On>
void decode_rows(On on, const Laid& l, int64_t begin, const Tensor& y) {
  if (y.numel() == 0) return;
  if constexpr (on.cuda) {
    lowbit_decode_cuda(l.view, begin, y);
  } else {
    const int64_t columns = l.w.columns, bytes = columns * size_of(y.dtype());
    if (y.dtype() == DType::f64) return decode_wide(l, begin, y);
    auto* const to = static_cast<std::byte*>(y.raw_data());
    parallel_for(0, y.size(0), std::max<int64_t>(1, 65536 / columns), [&](int64_t b, int64_t e) {
      cpu::lowbit_decode(l.view, begin + b, begin + e, y.dtype(), to + b * bytes, columns);
    });
  }
}

double bytes_of(Part codes, Part scales, Part zeros, Part order, Part nested) {
  double sum = 0;
  for (const Tensor* t : {&codes, &scales, &zeros, &order, &nested})
    if (t->defined()) sum += static_cast<double>(t->nbytes());
  return sum;
}

// ---- dequantize_weight ----

using DecodeSignature = Tensor(Part, Part, Part, Part, Part, int64_t, const std::string&, int64_t, int64_t, DType);

const Op<DecodeSignature> dequantize_weight_op{{
    .schema =
        "dequantize_weight(" STRATA_LOWBIT_PARTS ", int columns, " STRATA_LOWBIT_FORMAT ", DType dtype=f32) -> Tensor",
    .shard = "whole",
    .doc =
        "The matrix W [rows, columns] that codes [rows, ..] of a low-bit format stand for, as a floating dtype. Each "
        "number is decoded in f32 (f64 in double) and rounded once. format: int8, e4m3, int4, nf4, q8_0, q4_0, q4_k, "
        "q5_k or q6_k; the "
        "parts of each are those of PackedWeight (docs/design/low_bit.md): scales [rows / block_rows, columns / "
        "block_columns], zeros like scales, order i32 [columns], nested f32. A block of 0 is the whole side. Not "
        "differentiable.",
    .example = "PackedWeight w = quantize_weight(full({4, 32}, 2.0), \"q8_0\"); assert(dequantize_weight(w).shape() == "
               "Shape({4, 32}));",
    .infer =
        [](Part codes, Part scales, Part zeros, Part order, Part nested, int64_t columns, const std::string& format,
           int64_t block_rows, int64_t block_columns, DType dtype) {
          constexpr std::string_view op = "dequantize_weight";
          const PackedWeight w =
              packed(columns, codes, scales, zeros, order, nested, format, block_rows, block_columns);
          w.check(op, codes.device() == Device::cpu());
          check<DTypeError>(is_floating(dtype), op, "gives floating dtypes, got ", dtype);
          return TensorMeta{{w.rows, w.columns}, dtype, codes.device(), std::nullopt};
        },
    .kernels = on_each_device([](auto on, Tensor& y, Part codes, Part scales, Part zeros, Part order, Part nested,
                                 int64_t columns, const std::string& format, int64_t block_rows, int64_t block_columns,
                                 DType) {
      decode_rows(on, Laid(packed(columns, codes, scales, zeros, order, nested, format, block_rows, block_columns)), 0,
                  y);
    }),
    .dtypes = kFloats,
    .cost =
        [](Part codes, Part scales, Part zeros, Part order, Part nested, int64_t columns, const std::string&, int64_t,
           int64_t, DType dtype) {
          const double n = static_cast<double>(codes.size(0) * columns);
          return Cost{2 * n, bytes_of(codes, scales, zeros, order, nested) + n * static_cast<double>(size_of(dtype))};
        },
    .samples =
        [](Samples& s) {
          const auto add = [&](const PackedWeight& w, DType dtype) {
            s.add(w.codes, w.scales, w.zeros, w.order, w.nested, w.columns, std::string(w.format->name), w.block_rows,
                  w.block_columns, dtype)
                .not_differentiable()
                .named(std::string(w.format->name));
          };
          for (const PackedWeight& w : lowbit::random_formats(s)) add(w, s.dtype());
          add(lowbit::random_packed(s, "int4", 0, 64), s.dtype());
          const PackedWeight w = lowbit::random_packed(s, "int4", 4, 64, {.block_columns = 32});
          const Tensor none;
          const auto refuse = [&]<class E>(E*, std::string_view text, Part codes, Part scales, Part zeros, Part order,
                                           int64_t columns, const char* format, int64_t block_columns) {
            s.invalid<E>(text, codes, scales, zeros, order, std::nullopt, columns, format, 1, block_columns);
          };
          constexpr ShapeError* shape = nullptr;
          constexpr ValueError* value = nullptr;
          constexpr DTypeError* dtype = nullptr;
          constexpr IndexError* index = nullptr;
          const Tensor bytes = s.integers({4, 68}, 0, 200, DType::u8), block = s.integers({4, 144}, 0, 200, DType::u8);
          refuse(value, "there is no \"int3\"", w.codes, w.scales, none, none, 64, "int3", 32);
          refuse(shape, "codes of int4 for", w.codes, w.scales, none, none, 96, "int4", 32);
          refuse(dtype, "codes of int8 are i8", w.codes, w.scales, none, none, 32, "int8", 0);
          refuse(shape, "scales of", w.codes, none, none, none, 64, "int4", 32);
          refuse(shape, "scales of", w.codes, w.scales, none, none, 64, "int4", 0);
          refuse(value, "a multiple of 32", w.codes, w.scales, none, none, 64, "int4", 20);
          refuse(value, "nf4 has no zeros", w.codes, w.scales, w.codes, none, 64, "nf4", 32);
          refuse(value, "q8_0 has no scales", bytes, w.scales, none, none, 64, "q8_0", 0);
          refuse(shape, "multiples of 256", block, none, none, none, 128, "q4_k", 0);
          refuse(index, "every one of 64 columns", w.codes, w.scales, none, full({64}, 3, DType::i32), 64, "int4", 32);
          if (s.benchmarking())
            for (const char* format : {"int8", "int4", "nf4", "q8_0", "q4_k"}) {
              const PackedWeight big = lowbit::random_packed(s, format, 2048, 2048, {.block_columns = 128});
              s.bench(big.codes, big.scales, std::nullopt, std::nullopt, std::nullopt, big.columns, format,
                      big.block_rows, big.block_columns, s.dtype());
            }
        },
    .reference =
        [](Part codes, Part scales, Part zeros, Part order, Part nested, int64_t columns, const std::string& format,
           int64_t block_rows, int64_t block_columns, DType) {
          return packed(columns, codes, scales, zeros, order, nested, format, block_rows, block_columns).decode();
        },
}};

// ---- products ----

int64_t rows_of(const Tensor& t) {
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < t.dim(); ++d) rows *= t.size(d);
  return rows;
}
Shape with_last(const Tensor& t, int64_t last) {
  Shape s = t.shape();
  s[t.dim() - 1] = last;
  return s;
}

// body(first row, panel) for panels of W's rows as `dtype`, one after the other.
template <class On, class Body>
void each_panel(On on, const Laid& l, DType dtype, Body&& body) {
  const int64_t columns = std::max<int64_t>(1, l.w.columns);
  const int64_t most = std::clamp<int64_t>((on.cuda ? kPanelBytesCuda : kPanelBytesCpu) / (columns * size_of(dtype)), 1,
                                           std::max<int64_t>(1, l.w.rows));
  const Tensor room = empty({{most, l.w.columns}, dtype, l.w.codes.device(), std::nullopt});
  for (int64_t row = 0; row < l.w.rows; row += most) {
    const Tensor panel = room.narrow(0, 0, std::min(most, l.w.rows - row));
    decode_rows(on, l, row, panel);
    body(row, panel);
  }
}

template <class On>
void linear_kernel(On on, Tensor& y, const Tensor& x, const PackedWeight& w, const Tensor& bias) {
  if (y.numel() == 0) return;
  const Laid l(w);
  const int64_t m = rows_of(x);
  const Tensor dense = x.contiguous(), add = bias.defined() ? bias.contiguous() : bias;
  const int64_t most = on.cuda ? kMostFusedRows : cpu::lowbit_most_rows(x.dtype());
  if (m <= most && x.dtype() != DType::f64 && w.columns > 0) {
    if constexpr (on.cuda)
      lowbit_product_cuda(l.view, dense, add, y);
    else
      cpu::lowbit_product(l.view, x.dtype(), dense.raw_data(), m, add.defined() ? add.raw_data() : nullptr,
                          y.raw_data());
    return;
  }
  const int64_t size = size_of(x.dtype());
  each_panel(on, l, x.dtype(), [&](int64_t row, const Tensor& panel) {
    Gemm g;
    g.in = g.out = x.dtype();
    g.m = m, g.n = panel.size(0), g.k = w.columns;
    g.a = dense.raw_data(), g.a_row = w.columns, g.a_col = 1;
    g.b = panel.raw_data(), g.b_row = 1, g.b_col = w.columns;
    g.c = static_cast<std::byte*>(y.raw_data()) + row * size, g.c_row = w.rows;
    if (add.defined()) g.bias = static_cast<const std::byte*>(add.raw_data()) + row * size, g.bias_dtype = add.dtype();
    products::run(on, g, y);
  });
}

template <class On>
void matmul_kernel(On on, Tensor& y, const Tensor& x, const PackedWeight& w) {
  if (y.numel() == 0) return;
  if (w.rows == 0) return fill_elements(y, 0);
  const Laid l(w);
  const Tensor dense = x.contiguous();
  const bool many = w.rows * w.columns * size_of(x.dtype()) > (on.cuda ? kPanelBytesCuda : kPanelBytesCpu),
             reduced = is_reduced_floating(x.dtype());
  // Sums over several panels are rounded once, too.
  const Tensor sums = many && reduced ? empty({y.shape(), DType::f32, y.device(), std::nullopt}) : y;
  each_panel(on, l, x.dtype(), [&](int64_t row, const Tensor& panel) {
    Gemm g;
    g.in = x.dtype(), g.out = sums.dtype();
    g.m = rows_of(x), g.n = w.columns, g.k = panel.size(0);
    g.a = static_cast<const std::byte*>(dense.raw_data()) + row * size_of(x.dtype()), g.a_row = w.rows, g.a_col = 1;
    g.b = panel.raw_data(), g.b_row = w.columns, g.b_col = 1;
    g.c = sums.raw_data(), g.c_row = w.columns;
    g.beta = row == 0 ? 0 : 1;
    products::run(on, g, sums);
  });
  if (many && reduced) copy_elements(y, sums);
}

void check_operand(std::string_view op, const Tensor& x, const PackedWeight& w, int64_t last) {
  check<DTypeError>(is_floating(x.dtype()), op, "takes floating dtypes, got ", x);
  check<ShapeError>(x.dim() > 0 && x.shape().back() == last, op, "x is ", x, " for a weight of ", w.format->name, " [",
                    w.rows, ", ", w.columns, "], wants [.., ", last, "]");
  check<DeviceError>(x.device() == w.codes.device(), op, "x is ", x, ", codes are ", w.codes);
}
Cost product_cost(const Tensor& x, int64_t rows, int64_t columns, double parts) {
  const double m = static_cast<double>(rows_of(x)), n = static_cast<double>(rows), k = static_cast<double>(columns);
  return {2 * m * n * k, m * (n + k) * static_cast<double>(size_of(x.dtype())) + parts};
}

using MatmulSignature = Tensor(const Tensor&, Part, Part, Part, Part, Part, int64_t, const std::string&, int64_t,
                               int64_t);
using LinearSignature = Tensor(const Tensor&, Part, Part, Part, Part, Part, const Tensor&, const std::string&, int64_t,
                               int64_t);

Tensor matmul_call(const Tensor& g, const PackedWeight& w);
Tensor linear_call(const Tensor& x, const PackedWeight& w, const Tensor& bias);

const Op<MatmulSignature> packed_matmul_op{{
    .schema = "packed_matmul(Tensor g, " STRATA_LOWBIT_PARTS ", int columns, " STRATA_LOWBIT_FORMAT ") -> Tensor",
    .shard = "... n!, _, _, _, _, _ -> ... k!",
    .doc =
        "g W for a low-bit matrix W [rows, columns], whose parts and formats are those of dequantize_weight: g [.., "
        "rows] -> [.., columns]. W's numbers are rounded to g's dtype; sums in f32 (f64 for f64). It is the gradient "
        "of packed_linear for x. Differentiable for g alone.",
    .infer =
        [](const Tensor& g, Part codes, Part scales, Part zeros, Part order, Part nested, int64_t columns,
           const std::string& format, int64_t block_rows, int64_t block_columns) {
          constexpr std::string_view op = "packed_matmul";
          const PackedWeight w =
              packed(columns, codes, scales, zeros, order, nested, format, block_rows, block_columns);
          w.check(op, codes.device() == Device::cpu());
          check_operand(op, g, w, w.rows);
          return like(g).with_shape(with_last(g, columns));
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& g, Part codes, Part scales, Part zeros, Part order,
                                 Part nested, int64_t columns, const std::string& format, int64_t block_rows,
                                 int64_t block_columns) {
      matmul_kernel(on, y, g, packed(columns, codes, scales, zeros, order, nested, format, block_rows, block_columns));
    }),
    .saves = "codes:g scales:g zeros:g order:g nested:g",
    .backward =
        [](Backward& bw, const Tensor&, Part codes, Part scales, Part zeros, Part order, Part nested, int64_t columns,
           const std::string& format, int64_t block_rows, int64_t block_columns) {
          if (bw.needs(0))
            bw.set(0, linear_call(
                          bw.gy(),
                          packed(columns, codes, scales, zeros, order, nested, format, block_rows, block_columns), {}));
        },
    .dtypes = kFloats,
    .cost =
        [](const Tensor& g, Part codes, Part scales, Part zeros, Part order, Part nested, int64_t columns,
           const std::string&, int64_t,
           int64_t) { return product_cost(g, codes.size(0), columns, bytes_of(codes, scales, zeros, order, nested)); },
    .samples =
        [](Samples& s) {
          const auto add = [&](const Tensor& g, const PackedWeight& w) -> Sample& {
            Sample& sample = s.add(g, w.codes, w.scales, w.zeros, w.order, w.nested, w.columns,
                                   std::string(w.format->name), w.block_rows, w.block_columns);
            sample.differentiable = !w.format->scaled;  // floating parts are given, not varied
            return sample.named(std::string(w.format->name));
          };
          for (const PackedWeight& w : lowbit::random_formats(s)) add(s.tensor({3, w.rows}), w);
          const PackedWeight w = lowbit::random_packed(s, "q4_0", 6, 64);
          add(s.tensor({2, 3, 6}), w).named("three dimensions");
          add(s.tensor({6}), w).named("a row");
          add(s.tensor({0, 6}), w).named("no rows");
          s.invalid<ShapeError>("wants [.., 6]", s.tensor({3, 7}), w.codes, std::nullopt, std::nullopt, std::nullopt,
                                std::nullopt, 64, "q4_0");
          s.invalid<ShapeError>("codes of q4_0 for", s.tensor({3, 6}), w.codes, std::nullopt, std::nullopt,
                                std::nullopt, std::nullopt, 96, "q4_0");
          if (s.benchmarking()) {
            const PackedWeight big = lowbit::random_packed(s, "nf4", 2048, 2048, {.block_columns = 64});
            s.bench(s.tensor({512, 2048}), big.codes, big.scales, std::nullopt, std::nullopt, std::nullopt, 2048, "nf4",
                    1, 64);
          }
        },
    .reference =
        [](const Tensor& g, Part codes, Part scales, Part zeros, Part order, Part nested, int64_t columns,
           const std::string& format, int64_t block_rows, int64_t block_columns) {
          const PackedWeight w =
              packed(columns, codes, scales, zeros, order, nested, format, block_rows, block_columns);
          const std::vector<double> v = w.decode().to_vector<double>(), x = g.contiguous().to_vector<double>();
          std::vector<double> y;
          for (int64_t i = 0; i < rows_of(g); ++i)
            for (int64_t k = 0; k < columns; ++k) {
              double sum = 0;
              for (int64_t n = 0; n < w.rows; ++n)
                sum += x[static_cast<size_t>(i * w.rows + n)] * v[static_cast<size_t>(n * columns + k)];
              y.push_back(sum);
            }
          return from_span<double>(y, with_last(g, columns));
        },
    .tolerance = 4,
    .tolerance_reason = "numbers of W are rounded to the dtype of g before they are multiplied",
}};

const Op<LinearSignature> packed_linear_op{{
    .schema = "packed_linear(Tensor x, " STRATA_LOWBIT_PARTS ", Tensor? bias, " STRATA_LOWBIT_FORMAT ") -> Tensor",
    .shard = "... k!, _, _, _, _, _, _ -> ... n!",
    .doc = "x W^T + bias for a low-bit matrix W [rows, columns], whose parts and formats are those of "
           "dequantize_weight: x [.., columns] -> [.., rows]. Sums in f32 (f64 for f64) of x and the decoded numbers, "
           "which may be rounded to x's dtype where x has more than 32 rows. Differentiable for x and bias.",
    .example = "Tensor y = packed_linear(full({1, 32}, 1.0), quantize_weight(full({4, 32}, 2.0), \"q8_0\")); "
               "assert(std::abs(y.to_vector<float>()[0] - 64) < 0.1);",
    .infer =
        [](const Tensor& x, Part codes, Part scales, Part zeros, Part order, Part nested, const Tensor& bias,
           const std::string& format, int64_t block_rows, int64_t block_columns) {
          constexpr std::string_view op = "packed_linear";
          check<ShapeError>(x.dim() > 0, op, "wants x [.., columns], got ", x);
          const PackedWeight w =
              packed(x.shape().back(), codes, scales, zeros, order, nested, format, block_rows, block_columns);
          w.check(op, codes.device() == Device::cpu());
          check_operand(op, x, w, w.columns);
          if (bias.defined()) {
            check<DTypeError>(bias.dtype() == x.dtype(), op, "bias is ", bias, ", x is ", x);
            check<ShapeError>(bias.shape() == Shape{w.rows}, op, "bias is ", bias, ", wants [", w.rows, "]");
          }
          return like(x).with_shape(with_last(x, w.rows));
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, Part codes, Part scales, Part zeros, Part order,
                                 Part nested, const Tensor& bias, const std::string& format, int64_t block_rows,
                                 int64_t block_columns) {
      linear_kernel(on, y, x,
                    packed(x.shape().back(), codes, scales, zeros, order, nested, format, block_rows, block_columns),
                    bias);
    }),
    .saves = "codes:x scales:x zeros:x order:x nested:x",
    .backward =
        [](Backward& bw, const Tensor& x, Part codes, Part scales, Part zeros, Part order, Part nested,
           const Tensor& bias, const std::string& format, int64_t block_rows, int64_t block_columns) {
          if (bw.needs(0))
            bw.set(0, matmul_call(bw.gy(), packed(x.shape().back(), codes, scales, zeros, order, nested, format,
                                                  block_rows, block_columns)));
          if (bias.defined() && bw.needs(6)) bw.set(6, sum_to(bw.gy(), bias.shape()));
        },
    .dtypes = kFloats,
    .cost =
        [](const Tensor& x, Part codes, Part scales, Part zeros, Part order, Part nested, const Tensor& bias,
           const std::string&, int64_t, int64_t) {
          return product_cost(x, codes.size(0), x.shape().back(),
                              bytes_of(codes, scales, zeros, order, nested) +
                                  (bias.defined() ? static_cast<double>(bias.nbytes()) : 0));
        },
    .samples =
        [](Samples& s) {
          const auto add = [&](const Tensor& x, const PackedWeight& w, const Tensor& bias) -> Sample& {
            Sample& sample = s.add(x, w.codes, w.scales, w.zeros, w.order, w.nested, bias, std::string(w.format->name),
                                   w.block_rows, w.block_columns);
            sample.differentiable = !w.format->scaled;  // floating parts are given, not varied
            return sample.named(std::string(w.format->name));
          };
          const Tensor none;
          for (const int64_t m : {1, 7, 35})
            for (const PackedWeight& w : lowbit::random_formats(s))
              add(s.tensor({m, w.columns}), w, m == 7 ? none : s.tensor({w.rows}));
          const PackedWeight w = lowbit::random_packed(s, "q8_0", 6, 64);
          add(s.tensor({2, 3, 64}), w, none).named("three dimensions");
          add(s.tensor({64}), w, s.tensor({6})).named("a row");
          add(s.tensor({0, 64}), w, none).named("no rows");
          add(s.tensor({2, 64}), lowbit::random_packed(s, "q8_0", 0, 64), none).named("no columns");
          s.invalid<ShapeError>("codes of q8_0 for", s.tensor({3, 32}), w.codes, std::nullopt, std::nullopt,
                                std::nullopt, std::nullopt, std::nullopt, "q8_0");
          s.invalid<ShapeError>("wants [6]", s.tensor({3, 64}), w.codes, std::nullopt, std::nullopt, std::nullopt,
                                std::nullopt, s.tensor({5}), "q8_0");
          s.invalid<DTypeError>("takes floating", full({3, 64}, 1, DType::i64), w.codes, std::nullopt, std::nullopt,
                                std::nullopt, std::nullopt, std::nullopt, "q8_0");
          if (s.benchmarking())
            for (const char* format : {"int8", "e4m3", "int4", "nf4", "q8_0", "q4_k", "q6_k"})
              for (const int64_t m : {1, 8, 32}) {
                const PackedWeight big = lowbit::random_packed(s, format, 4096, 4096, {.block_columns = 128});
                s.bench(s.tensor({m, 4096}), big.codes, big.scales, std::nullopt, std::nullopt, std::nullopt,
                        std::nullopt, format, big.block_rows, big.block_columns);
              }
        },
    .reference =
        [](const Tensor& x, Part codes, Part scales, Part zeros, Part order, Part nested, const Tensor& bias,
           const std::string& format, int64_t block_rows, int64_t block_columns) {
          const int64_t k = x.shape().back();
          const PackedWeight w = packed(k, codes, scales, zeros, order, nested, format, block_rows, block_columns);
          const std::vector<double> v = w.decode().to_vector<double>(), from = x.contiguous().to_vector<double>();
          const std::vector<double> add =
              bias.defined() ? bias.to_vector<double>() : std::vector<double>(static_cast<size_t>(w.rows));
          std::vector<double> y;
          for (int64_t i = 0; i < rows_of(x); ++i)
            for (int64_t n = 0; n < w.rows; ++n) {
              double sum = add[static_cast<size_t>(n)];
              for (int64_t j = 0; j < k; ++j)
                sum += from[static_cast<size_t>(i * k + j)] * v[static_cast<size_t>(n * k + j)];
              y.push_back(sum);
            }
          return from_span<double>(y, with_last(x, w.rows));
        },
    .tolerance = 4,
    .tolerance_reason = "numbers of W may be rounded to the dtype of x before they are multiplied, past 32 rows of x",
}};

Tensor matmul_call(const Tensor& g, const PackedWeight& w) {
  return packed_matmul_op(g, w.codes, w.scales, w.zeros, w.order, w.nested, w.columns, std::string(w.format->name),
                          w.block_rows, w.block_columns);
}
Tensor linear_call(const Tensor& x, const PackedWeight& w, const Tensor& bias) {
  return packed_linear_op(x, w.codes, w.scales, w.zeros, w.order, w.nested, bias, std::string(w.format->name),
                          w.block_rows, w.block_columns);
}
// What a product's operand becomes under autocast. The record's own policy would round the scales as well.
Tensor low(const Tensor& x) {
  return autocast_enabled() && x.dtype() == DType::f32 ? x.to(autocast_dtype()) : x;
}
void check_given(std::string_view op, const PackedWeight& w) {
  check(w.format != nullptr && w.codes.defined(), op, "the packed weight is empty");
}

}  // namespace

Tensor dequantize_weight(const PackedWeight& w, DType dtype) {
  check_given("dequantize_weight", w);
  return dequantize_weight_op(w.codes, w.scales, w.zeros, w.order, w.nested, w.columns, std::string(w.format->name),
                              w.block_rows, w.block_columns, dtype);
}
Tensor packed_linear(const Tensor& x, const PackedWeight& w, const Tensor& bias) {
  check_given("packed_linear", w);
  const Tensor operand = low(x);
  return linear_call(operand, w, bias.defined() ? bias.to(operand.dtype()) : bias);
}
Tensor packed_matmul(const Tensor& g, const PackedWeight& w) {
  check_given("packed_matmul", w);
  return matmul_call(low(g), w);
}

}  // namespace strata
