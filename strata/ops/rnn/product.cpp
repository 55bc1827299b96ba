// Products of recurrent networks in f32 on a card, as records: backends.cudnn.allow_tf32 speaks of these too.

#include "strata/core/autocast.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/matmul/matmul_inl.h"
#include "strata/ops/matmul/records.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/rnn/records.h"

namespace strata::recurrent {
namespace {

const Op<Tensor(const Tensor&, const Tensor&)> product_op{{
    .schema = "recurrent_product(Tensor a, Tensor b) -> Tensor",
    .shard = "whole",
    .internal = true,
    .doc = "a b of matrices. Where set_allow_tf32_convolutions() says so, f32 operands on a card are rounded to TF32.",
    .infer =
        [](const Tensor& a, const Tensor& b) {
          products::check_rank("recurrent_product", a, "a", 2);
          products::check_rank("recurrent_product", b, "b", 2);
          products::check_dtypes("recurrent_product", a, b);
          check<ShapeError>(a.size(1) == b.size(0), "recurrent_product", "inner sizes differ: a is ", a, ", b is ", b);
          return like(a).with_shape({a.size(0), b.size(1)});
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& a, const Tensor& b) {
      Gemm g = products::product(y, a, b);
      g.tf32 = allow_tf32_convolutions();
      products::run(on, g, y);
    }),
    .saves = "a:b b:a",
    .backward =
        [](Backward& bw, const Tensor& a, const Tensor& b) {
          if (bw.needs(0)) bw.set(0, product(bw.gy(), b.t()));
          if (bw.needs(1)) bw.set(1, product(a.t(), bw.gy()));
        },
    .autocast = Autocast::low,
    .dtypes = kFloats,
    .cost = [](const Tensor& a, const Tensor& b) { return products::matmul_cost(a, b); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.tensor({3, 5}));
          s.add(s.tensor({3, 4}).t(), s.tensor({5, 3}).t()).named("both transposed");
          s.add(s.tensor({0, 3}), s.tensor({3, 5})).named("no rows");
          s.add(s.tensor({4, 0}), s.tensor({0, 5})).named("empty sum");
          s.add(s.tensor({65, 96}), s.tensor({96, 129})).named("medium");
          s.invalid<ShapeError>("inner sizes", s.tensor({4, 3}), s.tensor({4, 3}));
          s.invalid<ShapeError>("needs 2 dimensions", s.tensor({3}), s.tensor({3, 4}));
        },
    .reference = [](const Tensor& a, const Tensor& b) { return products::matmul_reference(a, b); },
}};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&)> linear_op{{
    .schema = "recurrent_linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
    .shard = "... k!, n! k!, n! -> ... n!",
    .internal = true,
    .doc = "x weight^T + bias of rows x [n, in], weight [out, in], bias [out], as recurrent_product computes it.",
    .infer =
        [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
          products::check_rank("recurrent_linear", x, "x", 2);
          products::check_rank("recurrent_linear", weight, "weight", 2);
          products::check_dtypes("recurrent_linear", x, weight);
          check<ShapeError>(x.size(1) == weight.size(1), "recurrent_linear", "x is ", x, " and weight is ", weight,
                            " (weight is [out, in])");
          if (bias.defined()) {
            products::check_dtypes("recurrent_linear", x, bias);
            check<ShapeError>(bias.shape() == Shape{weight.size(0)}, "recurrent_linear", "bias is ", bias, ", wants [",
                              weight.size(0), "]");
          }
          return like(x).with_shape({x.size(0), weight.size(0)});
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias) {
      linear_kernel(on, y, x, weight, bias, allow_tf32_convolutions());
    }),
    .saves = "x:weight weight:x",
    .backward =
        [](Backward& bw, const Tensor& x, const Tensor& weight, const Tensor& bias) {
          if (bw.needs(0)) bw.set(0, product(bw.gy(), weight));
          if (bw.needs(1)) bw.set(1, product(bw.gy().t(), x));
          if (bias.defined() && bw.needs(2)) bw.set(2, sum(bw.gy(), {0}));
        },
    .autocast = Autocast::low,
    .dtypes = kFloats,
    .cost =
        [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
          Cost c = products::matmul_cost(x, weight.transpose(0, 1));
          if (bias.defined()) c.flops += static_cast<double>(x.size(0)) * static_cast<double>(weight.size(0));
          return c;
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 3}), s.tensor({5, 3}), s.tensor({5}));
          s.add(s.tensor({3, 4}).t(), s.tensor({3, 5}).t(), std::nullopt).named("strided, no bias");
          s.add(s.tensor({0, 3}), s.tensor({5, 3}), s.tensor({5})).named("no rows");
          s.add(s.tensor({4, 0}), s.tensor({5, 0}), s.tensor({5})).named("empty sum");
          s.invalid<ShapeError>("weight is [out, in]", s.tensor({4, 3}), s.tensor({3, 5}), s.tensor({3}));
          s.invalid<ShapeError>("bias is", s.tensor({4, 3}), s.tensor({5, 3}), s.tensor({4}));
        },
    .reference =
        [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
          Tensor y = products::matmul_reference(x, weight.t());
          if (!bias.defined()) return y;
          const Tensor dense = bias.contiguous();
          for (int64_t i = 0; i < y.numel(); ++i) y.data<double>()[i] += dense.data<double>()[i % dense.numel()];
          return y;
        },
}};

// Elsewhere products are what they always are: fp8 by autocast, whole f32 operands on a processor.
bool rounds(const Tensor& x) {
  return x.dtype() == DType::f32 && x.device().is_cuda() && !autocast_enabled();
}

}  // namespace

Tensor product(const Tensor& a, const Tensor& b) {
  return rounds(a) ? product_op(a, b) : matmul(a, b);
}

Tensor input_product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!rounds(x)) return linear(x, weight, bias);
  if (x.dim() == 2) return linear_op(x, weight, bias);
  Shape shape = x.shape();
  shape[shape.size() - 1] = weight.size(0);
  return linear_op(x.reshape({-1, x.size(-1)}), weight, bias).reshape(shape);
}

}  // namespace strata::recurrent
