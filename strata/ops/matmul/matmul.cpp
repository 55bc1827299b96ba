#include "strata/ops/matmul/matmul.h"

#include "strata/core/autocast_fp8.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/matmul/linear_fp8_way.h"
#include "strata/ops/matmul/matmul_inl.h"
#include "strata/ops/matmul/matmul_kernels.h"
#include "strata/ops/matmul/outer_batch_inl.h"
#include "strata/ops/matmul/records.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace products {

void check_dtypes(std::string_view op, const Tensor& a, const Tensor& b) {
  check<DTypeError>(a.dtype() == b.dtype(), op, "operands have different dtypes: ", a, " and ", b);
  check<DTypeError>(a.dtype() != DType::boolean, op, "does not take bool, got ", a);
}

void check_rank(std::string_view op, const Tensor& t, std::string_view name, int64_t rank) {
  check<ShapeError>(t.dim() == rank, op, name, " needs ", rank, rank == 1 ? " dimension, is " : " dimensions, is ", t);
}

void check_factors(std::string_view op, const Tensor& a, Scalar beta, Scalar alpha) {
  if (is_floating(a.dtype())) return;
  check<DTypeError>(beta.kind() != DType::f64, op, "beta is ", beta.to_double(), " for operands of ", a.dtype(),
                    ", wants an integer");
  check<DTypeError>(alpha.kind() != DType::f64, op, "alpha is ", alpha.to_double(), " for operands of ", a.dtype(),
                    ", wants an integer");
}

}  // namespace products

namespace {

using namespace products;
constexpr DTypeSet kNumbers = kFloats | kInts;

Shape leading(const Tensor& t) {
  Shape s;
  for (int64_t d = 0; d + 2 < t.dim(); ++d) s.push_back(t.shape()[d]);
  return s;
}

Tensor swap_last(const Tensor& t) {
  return transpose(t, -2, -1);
}

TensorMeta matmul_infer(const Tensor& a, const Tensor& b) {
  check<ShapeError>(a.dim() > 0 && b.dim() > 0, "matmul", "operands need at least one dimension, got ", a, " and ", b);
  check_dtypes("matmul", a, b);
  const int64_t k = a.shape().back(), kb = b.shape()[b.dim() == 1 ? 0 : b.dim() - 2];
  const bool swapped = k != kb && b.dim() >= 2 && b.shape().back() == k;
  check<ShapeError>(k == kb, "matmul", "inner sizes differ: a is ", a.shape(), ", b is ", b.shape(),
                    swapped ? " (did you mean b.transpose(-2, -1)?)" : "");
  Shape s = broadcast_shapes(leading(a), leading(b), "matmul");
  if (a.dim() > 1) s.push_back(a.shape()[a.dim() - 2]);
  if (b.dim() > 1) s.push_back(b.shape().back());
  return like(a).with_shape(s);
}

// [rows, last] from [.., last].
Tensor as_rows(const Tensor& t) {
  const int64_t last = t.shape().back();
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < t.dim(); ++d) rows *= t.shape()[d];
  return reshape(t, {rows, last});
}

// The sums over what is broadcast are part of the products.
void outer_backward(Backward& bw, const OuterBatch& o, const Tensor& g, const Tensor& a, const Tensor& b) {
  const Tensor flat = reshape(o.apart(g), {o.sizes_a.product() * o.m, o.sizes_b.product() * o.n});
  if (bw.needs(0)) bw.set(0, reshape(matmul(flat, o.columns(b).t()), a.shape()));
  if (!bw.needs(1)) return;
  const Tensor columns = reshape(matmul(o.rows(a).t(), flat), {o.k, o.sizes_b.product(), o.n});
  bw.set(1, reshape(permute(columns, {1, 0, 2}), b.shape()));
}

// From the gradient `g` of a b.
void product_backward(Backward& bw, Tensor g, const Tensor& a, const Tensor& b) {
  if (a.dim() == 1 && b.dim() == 1) {
    if (bw.needs(0)) bw.set(0, b * g);
    if (bw.needs(1)) bw.set(1, a * g);
    return;
  }
  if (const auto outer = outer_batch(a, b)) return outer_backward(bw, *outer, g, a, b);
  const Tensor ma = a.dim() == 1 ? unsqueeze(a, 0) : a, mb = b.dim() == 1 ? unsqueeze(b, 1) : b;
  if (b.dim() == 1) g = unsqueeze(g, -1);
  if (a.dim() == 1) g = unsqueeze(g, -2);
  const Shape batch = leading(g);
  if (bw.needs(0)) {
    if (mb.dim() == 2 && ma.dim() > 2 && batch == leading(ma))
      set_product_gradient(bw, 0, bw.needs(1) || g.is_contiguous() ? as_rows(g) : g, mb.t(), a.shape());
    else if (batch == leading(ma) && batch == leading(mb))
      set_product_gradient(bw, 0, g, swap_last(mb), a.shape());
    else
      bw.set(0, reshape(sum_to(matmul(g, swap_last(mb)), ma.shape()), a.shape()));
  }
  if (!bw.needs(1)) return;
  if (mb.dim() == 2 && ma.dim() > 2) {
    // The sum over the batch is part of one product.
    set_product_gradient(bw, 1, as_rows(ma).t(), as_rows(g), b.shape());
  } else if (batch == leading(ma) && batch == leading(mb)) {
    set_product_gradient(bw, 1, swap_last(ma), g, b.shape());
  } else {
    bw.set(1, reshape(sum_to(matmul(swap_last(ma), g), mb.shape()), b.shape()));
  }
}

double product_flops(const Tensor& a, const Shape& result) {
  return 2.0 * static_cast<double>(result.product()) * static_cast<double>(a.shape().back());
}

}  // namespace

namespace products {

Tensor scaled(const Tensor& t, Scalar by) {
  return by.to_double() == 1 ? t : t * by;
}

Cost matmul_cost(const Tensor& a, const Tensor& b) {
  const TensorMeta y = matmul_infer(a, b);
  return {product_flops(a, y.shape),
          static_cast<double>(a.nbytes() + b.nbytes() + y.shape.product() * size_of(y.dtype))};
}

// Dense row-major copies and three loops.
Tensor matmul_reference(const Tensor& a, const Tensor& b) {
  const TensorMeta meta = matmul_infer(a, b);
  const Tensor ma = a.dim() == 1 ? a.unsqueeze(0) : a, mb = b.dim() == 1 ? b.unsqueeze(1) : b;
  const Shape batch = broadcast_shapes(leading(ma), leading(mb), "matmul");
  const int64_t m = ma.shape()[ma.dim() - 2], k = ma.shape().back(), n = mb.shape().back();
  const auto dense = [&](const Tensor& t, int64_t rows, int64_t cols) {
    Shape s = batch;
    s.push_back(rows);
    s.push_back(cols);
    return t.expand(s).contiguous();
  };
  const Tensor da = dense(ma, m, k), db = dense(mb, k, n), y = empty(meta);
  const auto* pa = da.data<double>();
  const auto* pb = db.data<double>();
  auto* py = y.data<double>();
  for (int64_t t = 0; t < batch.product(); ++t) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l) sum += pa[(t * m + i) * k + l] * pb[(t * k + l) * n + j];
        py[(t * m + i) * n + j] = sum;
      }
    }
  }
  return y;
}

Tensor combined_reference(const Tensor& input, const Tensor& product, Scalar beta, Scalar alpha) {
  const Tensor y = product.clone(), base = input.expand(y.shape()).contiguous();
  for (int64_t i = 0; i < y.numel(); ++i) {
    double& v = y.data<double>()[i];
    v = alpha.to_double() * v + (beta.to_double() == 0 ? 0 : beta.to_double() * base.data<double>()[i]);
  }
  return y;
}

}  // namespace products

namespace {

const Op<Tensor(const Tensor&, const Tensor&)> matmul_op{{
    .schema = "matmul(Tensor a, Tensor b) -> Tensor",
    .shard = "... m k, ... k n -> ... m n | ... m k, k -> ... m | k, ... k n -> ... n | k, k ->",
    .doc = "The product of the matrices in the last two dimensions: [.., m, k] x [.., k, n] -> [.., m, n], with the "
           "leading dimensions broadcast. A 1-dim operand is a row (left) or a column (right), whose dimension the "
           "result lacks; two vectors give a 0-dim result. Strided and transposed views are read in place. ShapeError "
           "when the inner sizes differ or the leading ones do not broadcast, DTypeError when the dtypes differ.",
    .example = "Tensor a = ones({2, 3}), b = ones({5, 3, 4}); assert(matmul(a, b).shape() == Shape({5, 2, 4}));",
    .infer = matmul_infer,
    .kernels = on_each_device([](auto on, auto&&... all) { matmul_kernel(on, all...); }),
    .saves = "a:b b:a",
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b) { product_backward(bw, bw.gy(), a, b); },
    .autocast = Autocast::low,
    .dtypes = kNumbers,
    .cost = matmul_cost,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.tensor({3, 5}));
          s.add(s.tensor({3}), s.tensor({3})).named("vectors");
          s.add(s.tensor({3}), s.tensor({3, 5})).named("row");
          s.add(s.tensor({4, 3}), s.tensor({3})).named("column");
          s.add(s.tensor({2, 4, 3}), s.tensor({3, 5})).named("shared right");
          s.add(s.tensor({4, 3}), s.tensor({2, 3, 5})).named("shared left");
          s.add(s.tensor({3, 1, 4, 3}), s.tensor({2, 3, 2})).named("broadcast batch");
          s.add(s.tensor({3}), s.tensor({2, 2, 3, 4})).named("row and batch");
          s.add(s.tensor({2, 2, 4, 3}), s.tensor({3})).named("batch and column");
          s.add(transpose(s.tensor({2, 3, 4}), 1, 2), transpose(s.tensor({2, 5, 3}), 1, 2)).named("transposed");
          s.add(permute(s.tensor({2, 4, 3, 5}), {0, 2, 1, 3}), permute(s.tensor({2, 6, 3, 5}), {0, 2, 3, 1}))
              .named("heads");
          s.add(expand(s.tensor({1, 3}), {4, 3}), slice(s.tensor({3, 10}), 1, 1, 10, 2)).named("expanded and stepped");
          s.add(s.tensor({4, 0}), s.tensor({0, 5})).named("empty sum");
          s.add(s.tensor({2, 0, 3}), s.tensor({3, 5})).named("no rows");
          s.add(s.tensor({40, 70}), s.tensor({70, 50})).named("medium");
          s.invalid<ShapeError>("did you mean", s.tensor({2, 3}), s.tensor({4, 3}));
          s.invalid<ShapeError>("inner sizes", s.tensor({2, 3}), s.tensor({4, 5}));
          s.invalid<ShapeError>("broadcast", s.tensor({2, 4, 3}), s.tensor({3, 3, 5}));
          s.invalid<ShapeError>("at least one dimension", s.tensor({}), s.tensor({3}));
          s.invalid<DTypeError>("different dtypes", s.tensor({2, 2}),
                                s.tensor({2, 2}, s.dtype() == DType::f32 ? DType::f64 : DType::f32));
          if (s.benchmarking()) {
            s.bench(s.tensor({2048, 256}), s.tensor({256, 1024}));
            s.bench(s.tensor({64, 256, 32}), s.tensor({64, 32, 256}));
          }
        },
    .reference = matmul_reference,
}};

const Op<Tensor(const Tensor&, const Tensor&)> matmul_f32_op{{
    .schema = "matmul_f32(Tensor a, Tensor b) -> Tensor",
    .shard = "... m k, ... k n -> ... m n",
    .doc = "matmul whose result is f32 where the operands are bf16 or f16: the sums are not rounded to their dtype.",
    .example = "Tensor a = ones({2, 3}, DType::bf16); assert(matmul_f32(a, a.t()).dtype() == DType::f32);",
    .infer =
        [](const Tensor& a, const Tensor& b) {
          check<DTypeError>(is_floating(a.dtype()), "matmul_f32", "needs floating operands, got ", a, " and ", b);
          const TensorMeta y = matmul_infer(a, b);
          return y.with_dtype(statistic_dtype(y.dtype));
        },
    .kernels = on_each_device([](auto on, auto&&... all) { matmul_kernel(on, all...); }),
    .saves = "a:b b:a",
    .backward = [](Backward& bw, const Tensor& a,
                   const Tensor& b) { product_backward(bw, bw.gy().to(a.dtype()), a, b); },
    .autocast = Autocast::low,
    .cost =
        [](const Tensor& a, const Tensor& b) {
          const TensorMeta y = matmul_infer(a, b);
          return Cost{
              product_flops(a, y.shape),
              static_cast<double>(a.nbytes() + b.nbytes() + y.shape.product() * size_of(statistic_dtype(y.dtype)))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.tensor({3, 5}));
          s.add(s.tensor({4, 3}).t(), s.tensor({4, 5})).named("transposed");
          s.add(s.tensor({3}), s.tensor({3, 5})).named("row");
          s.add(s.tensor({2, 4, 3}), s.tensor({3, 5})).named("shared right");
          s.add(s.tensor({0, 3}), s.tensor({3, 5})).named("no rows");
          s.add(s.tensor({4, 0}), s.tensor({0, 5})).named("empty sum");
          s.add(s.tensor({70, 40}).t(), s.tensor({70, 50})).named("medium");
          s.invalid<ShapeError>("inner sizes", s.tensor({2, 3}), s.tensor({4, 5}));
          s.invalid<DTypeError>("different dtypes", s.tensor({2, 2}),
                                s.tensor({2, 2}, s.dtype() == DType::f32 ? DType::f64 : DType::f32));
          s.invalid<DTypeError>("floating", s.tensor({2, 2}, DType::i32), s.tensor({2, 2}, DType::i32));
          if (s.benchmarking()) s.bench(s.tensor({2048, 1024}).t(), s.tensor({2048, 256}));
        },
    .reference = matmul_reference,
}};

const Op<Tensor(const Tensor&, const Tensor&)> mm_op{{
    .schema = "mm(Tensor a, Tensor b) -> Tensor",
    .doc = "The product of two matrices: [m, k] x [k, n] -> [m, n]. matmul without vectors, batches and broadcasting.",
    .composed =
        [](const Tensor& a, const Tensor& b) {
          check_rank("mm", a, "a", 2);
          check_rank("mm", b, "b", 2);
          return matmul(a, b);
        },
    .autocast = Autocast::low,
    .dtypes = kNumbers,
    .cost = matmul_cost,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.tensor({3, 5}));
          s.add(s.tensor({4, 3}), s.tensor({5, 3}).t());
          s.invalid<ShapeError>("needs 2 dimensions", s.tensor({3}), s.tensor({3, 5}));
          s.invalid<ShapeError>("inner sizes", s.tensor({4, 3}), s.tensor({2, 5}));
        },
    .reference = matmul_reference,
}};

const Op<Tensor(const Tensor&, const Tensor&)> bmm_op{{
    .schema = "bmm(Tensor a, Tensor b) -> Tensor",
    .doc = "The products of two equally long rows of matrices: [batch, m, k] x [batch, k, n] -> [batch, m, n]. "
           "Unlike matmul it does not broadcast.",
    .composed =
        [](const Tensor& a, const Tensor& b) {
          check_rank("bmm", a, "a", 3);
          check_rank("bmm", b, "b", 3);
          check<ShapeError>(a.shape()[0] == b.shape()[0], "bmm", "batch sizes differ: a is ", a, ", b is ", b);
          return matmul(a, b);
        },
    .autocast = Autocast::low,
    .dtypes = kNumbers,
    .cost = matmul_cost,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 4, 3}), s.tensor({2, 3, 5}));
          s.add(s.tensor({2, 4, 3}), transpose(s.tensor({2, 5, 3}), 1, 2));
          s.add(s.tensor({0, 4, 3}), s.tensor({0, 3, 5}));
          s.invalid<ShapeError>("batch sizes", s.tensor({1, 4, 3}), s.tensor({2, 3, 5}));
          s.invalid<ShapeError>("needs 3 dimensions", s.tensor({4, 3}), s.tensor({2, 3, 5}));
        },
    .reference = matmul_reference,
}};

const Op<Tensor(const Tensor&, const Tensor&)> mv_op{{
    .schema = "mv(Tensor a, Tensor x) -> Tensor",
    .doc = "A matrix times a vector: [m, k] x [k] -> [m].",
    .composed =
        [](const Tensor& a, const Tensor& x) {
          check_rank("mv", a, "a", 2);
          check_rank("mv", x, "x", 1);
          return matmul(a, x);
        },
    .autocast = Autocast::low,
    .dtypes = kNumbers,
    .cost = matmul_cost,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.tensor({3}));
          s.invalid<ShapeError>("needs 1 dimension", s.tensor({4, 3}), s.tensor({3, 1}));
        },
    .reference = matmul_reference,
}};

const Op<Tensor(const Tensor&, const Tensor&)> dot_op{{
    .schema = "dot(Tensor a, Tensor b) -> Tensor",
    .doc = "The sum of the products of two vectors of one length, a 0-dim tensor.",
    .composed =
        [](const Tensor& a, const Tensor& b) {
          check_rank("dot", a, "a", 1);
          check_rank("dot", b, "b", 1);
          return matmul(a, b);
        },
    .autocast = Autocast::low,
    .dtypes = kNumbers,
    .cost = matmul_cost,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({7}), s.tensor({7}));
          s.add(s.tensor({0}), s.tensor({0}));
          s.invalid<ShapeError>("inner sizes", s.tensor({3}), s.tensor({4}));
          s.invalid<ShapeError>("needs 1 dimension", s.tensor({3}), s.tensor({3, 1}));
        },
    .reference = matmul_reference,
}};

const Op<Tensor(const Tensor&, const Tensor&)> outer_op{{
    .schema = "outer(Tensor a, Tensor b) -> Tensor",
    .doc = "All products of the elements of two vectors: y[i, j] = a[i] * b[j]; dtypes are promoted.",
    .composed =
        [](const Tensor& a, const Tensor& b) {
          check_rank("outer", a, "a", 1);
          check_rank("outer", b, "b", 1);
          return unsqueeze(a, 1) * unsqueeze(b, 0);
        },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& a, const Tensor& b) {
          const auto elements = static_cast<double>(a.numel() * b.numel());
          return Cost{elements, elements * static_cast<double>(size_of(a.dtype())) +
                                    static_cast<double>(a.nbytes() + b.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4}), s.tensor({3}));
          s.add(s.tensor({0}), s.tensor({3}));
          s.invalid<ShapeError>("needs 1 dimension", s.tensor({2, 2}), s.tensor({3}));
        },
    .reference = [](const Tensor& a, const Tensor& b) { return matmul_reference(a.unsqueeze(1), b.unsqueeze(0)); },
}};

// ---- addmm ---------------------------------------------------------------------------------------------------------

TensorMeta addmm_infer(const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  check_rank("addmm", a, "a", 2);
  check_rank("addmm", b, "b", 2);
  check_dtypes("addmm", a, b);
  check_dtypes("addmm", input, a);
  check_factors("addmm", a, beta, alpha);
  check<ShapeError>(a.shape()[1] == b.shape()[0], "addmm", "inner sizes differ: a is ", a, ", b is ", b);
  const Shape s{a.shape()[0], b.shape()[1]};
  check<ShapeError>(input.dim() <= 2 && broadcast_shapes(input.shape(), s, "addmm") == s, "addmm", "input ", input,
                    " does not broadcast to the product's ", s);
  return like(a).with_shape(s);
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, Scalar, Scalar)> addmm_op{{
    .schema = "addmm(Tensor input, Tensor a, Tensor b, Scalar beta=1, Scalar alpha=1) -> Tensor",
    .shard = "+ ~ m n, m k, k n -> m n",
    .inplace_by_copy = true,
    .doc =
        "beta * input + alpha * a b for a [m, k] and b [k, n]; input broadcasts to [m, n]. With beta = 0 input is not "
        "read, so that its NaNs do not spread.",
    .infer = addmm_infer,
    .kernels = on_each_device([](auto on, auto&&... all) { addmm_kernel(on, all...); }),
    .saves = "a:b b:a",
    .backward =
        [](Backward& bw, const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
          if (bw.needs(0)) bw.set(0, scaled(sum_to(bw.gy(), input.shape()), beta));
          const auto set_product = [&](int i, const Tensor& left, const Tensor& right, const Shape& shape) {
            if (alpha.to_double() == 1) return set_product_gradient(bw, i, left, right, shape);
            bw.set(i, matmul(left, right) * alpha);
          };
          if (bw.needs(1)) set_product(1, bw.gy(), b.t(), a.shape());
          if (bw.needs(2)) set_product(2, a.t(), bw.gy(), b.shape());
        },
    .autocast = Autocast::low,
    .dtypes = kNumbers,
    .cost =
        [](const Tensor& input, const Tensor& a, const Tensor& b, Scalar, Scalar) {
          Cost c = matmul_cost(a, b);
          c.bytes += static_cast<double>(input.nbytes());
          return c;
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 5}), s.tensor({4, 3}), s.tensor({3, 5}));
          s.add(s.tensor({5}), s.tensor({4, 3}), s.tensor({3, 5})).named("row");
          s.add(s.tensor({4, 1}), s.tensor({4, 3}), s.tensor({5, 3}).t(), 2, -3).named("column, scaled");
          s.add(s.tensor({}), s.tensor({4, 3}), s.tensor({3, 5}), 0, 1).named("beta 0");
          s.add(s.tensor({4, 5}), s.tensor({4, 0}), s.tensor({0, 5})).named("empty sum");
          s.invalid<ShapeError>("inner sizes", s.tensor({4, 5}), s.tensor({4, 3}), s.tensor({2, 5}));
          s.invalid<ShapeError>("broadcast", s.tensor({3}), s.tensor({4, 3}), s.tensor({3, 5}));
          s.invalid<ShapeError>("needs 2 dimensions", s.tensor({4, 5}), s.tensor({3}), s.tensor({3, 5}));
          if (!is_floating(s.dtype()))
            s.invalid<DTypeError>("beta is 0.5", s.tensor({2, 2}), s.tensor({2, 2}), s.tensor({2, 2}), 0.5);
        },
    .reference = [](const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta,
                    Scalar alpha) { return combined_reference(input, matmul_reference(a, b), beta, alpha); },
}};

// ---- linear --------------------------------------------------------------------------------------------------------

TensorMeta linear_infer(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check<ShapeError>(x.dim() > 0, "linear", "x needs at least one dimension");
  check_rank("linear", weight, "weight", 2);
  check_dtypes("linear", x, weight);
  check<ShapeError>(x.shape().back() == weight.shape()[1], "linear", "x is ", x, " and weight is ", weight,
                    ", wants x [.., ", weight.shape()[1], "] (weight is [out, in])");
  if (bias.defined()) {
    check_dtypes("linear", weight, bias);
    check<ShapeError>(bias.dim() == 1 && bias.shape()[0] == weight.shape()[0], "linear", "bias is ", bias, ", wants [",
                      weight.shape()[0], "]");
  }
  Shape s = x.shape();
  s[s.size() - 1] = weight.shape()[0];
  return like(x).with_shape(s);
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&)> linear_op{{
    .schema = "linear(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor",
    .shard = "... k, n k, + n -> ... n",
    .doc = "x weight^T + bias along the last dimension: x [.., in], weight [out, in], bias [out] -> [.., out]. The "
           "bias is "
           "added inside the product.",
    .example = "Tensor y = linear(ones({2, 5, 3}), ones({4, 3}), ones({4})); assert(y.shape() == Shape({2, 5, 4}));",
    .infer = linear_infer,
    .kernels = on_each_device([](auto on, auto&&... all) { linear_kernel(on, all...); }),
    .saves = "x:weight weight:x",
    .backward =
        [](Backward& bw, const Tensor& x, const Tensor& weight, const Tensor& bias) {
          const bool rest = bw.needs(1) || bw.needs(2);
          // Rows that lie apart are copied for the others alone.
          const Tensor rows = rest || bw.gy().is_contiguous() ? as_rows(bw.gy()) : bw.gy();
          if (bw.needs(0)) set_product_gradient(bw, 0, rows, weight, x.shape());
          if (!rest) return;
          set_layer_gradients(bw, rows, bw.needs(1) ? as_rows(x) : x);
        },
    .autocast = Autocast::low,
    .dtypes = kNumbers,
    .cost =
        [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
          const TensorMeta y = linear_infer(x, weight, bias);
          const auto out = static_cast<double>(y.shape.product());
          const double bias_bytes = bias.defined() ? static_cast<double>(bias.nbytes()) : 0;
          return Cost{product_flops(x, y.shape) + (bias.defined() ? out : 0),
                      static_cast<double>(x.nbytes() + weight.nbytes()) + out * static_cast<double>(size_of(y.dtype)) +
                          bias_bytes};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.tensor({5, 3}), s.tensor({5}));
          s.add(s.tensor({2, 4, 3}), s.tensor({5, 3})).named("no bias");
          s.add(s.tensor({3}), s.tensor({5, 3}), s.tensor({5})).named("vector");
          s.add(transpose(s.tensor({3, 2, 3}), 0, 1), s.tensor({3, 5}).t(), slice(s.tensor({10}), 0, 0, 10, 2))
              .named("strided");
          s.add(s.tensor({0, 3}), s.tensor({5, 3}), s.tensor({5})).named("no rows");
          s.add(s.tensor({4, 0}), s.tensor({5, 0}), s.tensor({5})).named("empty sum");
          s.add(s.tensor({64, 96}), s.tensor({128, 96}), s.tensor({128})).named("medium");
          s.invalid<ShapeError>("weight is [out, in]", s.tensor({4, 3}), s.tensor({3, 5}));
          s.invalid<ShapeError>("bias is", s.tensor({4, 3}), s.tensor({5, 3}), s.tensor({4}));
          s.invalid<ShapeError>("needs 2 dimensions", s.tensor({4, 3}), s.tensor({3}));
          if (s.benchmarking()) {
            s.bench(s.tensor({2048, 256}), s.tensor({1024, 256}), s.tensor({1024}));
            s.bench(s.tensor({4096, 512}), s.tensor({2048, 512}), s.tensor({2048}));
          }
        },
    .reference =
        [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
          Tensor y = matmul_reference(x, weight.t());
          if (!bias.defined()) return y;
          const Tensor dense = bias.contiguous();
          for (int64_t i = 0; i < y.numel(); ++i) y.data<double>()[i] += dense.data<double>()[i % dense.numel()];
          return y;
        },
}};

const detail::Fp8Way linear_way(linear_op, detail::linear_fp8_way);

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  return matmul_op(a, b);
}
Tensor matmul_f32(const Tensor& a, const Tensor& b) {
  return matmul_f32_op(a, b);
}
Tensor mm(const Tensor& a, const Tensor& b) {
  return mm_op(a, b);
}
Tensor bmm(const Tensor& a, const Tensor& b) {
  return bmm_op(a, b);
}
Tensor mv(const Tensor& a, const Tensor& x) {
  return mv_op(a, x);
}
Tensor dot(const Tensor& a, const Tensor& b) {
  return dot_op(a, b);
}
Tensor outer(const Tensor& a, const Tensor& b) {
  return outer_op(a, b);
}
Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) {
  return addmm_op(input, a, b, beta, alpha);
}
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return linear_op(x, weight, bias);
}

Tensor Tensor::matmul(const Tensor& other) const {
  return strata::matmul(*this, other);
}

}  // namespace strata
