// The record of add_rms_norm_linear.

#include "strata/ops/matmul/norm_linear.h"

#include "strata/core/by_device.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/matmul/gemm_few.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/norm/norm.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "add_rms_norm_linear";
using Pair = std::tuple<Tensor, Tensor>;

std::array<TensorMeta, 2> infer(const Tensor& x, const Tensor& residual, const Tensor& norm_weight,
                                const Tensor& weight, const Tensor& bias, double, bool gated) {
  check<ShapeError>(x.dim() > 0 && residual.shape() == x.shape(), kOp,
                    "x and residual have one shape of at least one dimension, got ", x, " and ", residual);
  check<DTypeError>(is_floating(x.dtype()), kOp, "needs a floating dtype, got ", x);
  const int64_t in = x.shape().back();
  check<ShapeError>(norm_weight.shape() == Shape{in}, kOp, "norm_weight is ", norm_weight, ", wants [", in, "]");
  check<ShapeError>(weight.dim() == 2 && weight.shape()[1] == in, kOp, "weight is ", weight, ", wants [.., ", in, "]");
  const int64_t out = weight.shape()[0];
  check<ShapeError>(!bias.defined() || bias.shape() == Shape{out}, kOp, "bias is ", bias, ", wants [", out, "]");
  for (const Tensor* t : {&residual, &norm_weight, &weight, &bias}) {
    if (!t->defined()) continue;
    check<DTypeError>(t->dtype() == x.dtype(), kOp, "all have the dtype of x ", x, ", got ", *t);
    check<DeviceError>(t->device() == x.device(), kOp, "x is on ", x.device(), ", got ", *t);
  }
  check<ShapeError>(!gated || out % 2 == 0, kOp, "weight is ", weight, ", wants an even number of rows to gate");
  check(!gated || !bias.defined(), kOp, "what is gated has no bias");
  Shape shape = x.shape();
  shape[shape.size() - 1] = gated ? out / 2 : out;
  return {like(x).with_shape(shape), like(x)};
}

Pair composed(const Tensor& x, const Tensor& residual, const Tensor& norm_weight, const Tensor& weight,
              const Tensor& bias, double eps, bool gated) {
  const auto [normed, sum] = add_rms_norm(x, residual, norm_weight, eps);
  const Tensor y = linear(normed, weight, bias);
  return {gated ? swiglu(y) : y, sum};
}

#ifdef STRATA_WITH_CUDA
void on_card(Tensor& y, Tensor& sum, const Tensor& x, const Tensor& residual, const Tensor& norm_weight,
             const Tensor& weight, const Tensor& bias, double eps, bool gated) {
  const bool whole = x.is_contiguous() && residual.is_contiguous() && norm_weight.is_contiguous() &&
                     weight.strides()[1] == 1 && (!bias.defined() || bias.is_contiguous());
  if (whole && x.numel() == x.shape().back()) {
    cuda::RowLayer c;
    c.dtype = x.dtype(), c.x = x.raw_data(), c.residual = residual.raw_data(), c.norm = norm_weight.raw_data();
    c.weight = weight.raw_data(), c.bias = bias.defined() ? bias.raw_data() : nullptr;
    c.y = y.raw_data(), c.sum = sum.raw_data();
    c.n = y.numel(), c.k = x.numel(), c.row = weight.strides()[0], c.eps = eps, c.gate = gated;
    if (cuda::row_layer(c, x.device())) return;
  }
  const auto [made, total] = composed(x, residual, norm_weight, weight, bias, eps, gated);
  y.copy_(made);
  sum.copy_(total);
}
#endif

const Op<Pair(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, double, bool)>
    add_rms_norm_linear_op{{
        .schema = "add_rms_norm_linear(Tensor x, Tensor residual, Tensor norm_weight, Tensor weight, Tensor? "
                  "bias=None, float eps=1e-06, bool gated=false) -> (Tensor y, Tensor sum)",
        .shard = "whole",
        .internal = true,
        .doc = "sum = x + residual and y = linear(rms_norm(sum), weight, bias), with gated swiglu of that: what stands "
               "between two products of a decoder's step, together with the second one. What is normalised is the sum "
               "before it is rounded. x and residual [.., in], norm_weight [in], weight [out, in] -> [.., out] (gated: "
               "[.., out / 2], without a bias) and [.., in]. ShapeError, DTypeError; ValueError for a bias that is "
               "gated.",
        .example = "auto [y, sum] = add_rms_norm_linear(ones({1, 4}), ones({1, 4}), ones({4}), ones({3, 4}), {}, 0); "
                   "assert(y.shape() == Shape({1, 3}) && sum.to_vector<float>()[0] == 2);",
        .infer = infer,
        .kernels = {.cuda = STRATA_CUDA_KERNEL(on_card)},
        .composed = composed,
        .cost =
            [](const Tensor& x, const Tensor&, const Tensor&, const Tensor& weight, const Tensor&, double, bool) {
              const double rows =
                  static_cast<double>(x.numel()) / static_cast<double>(std::max<int64_t>(1, x.shape().back()));
              return Cost{2 * rows * static_cast<double>(weight.numel()) + 6 * static_cast<double>(x.numel()),
                          static_cast<double>(4 * x.nbytes() + weight.nbytes())};
            },
        .samples =
            [](Samples& s) {
              const auto u = [&](const Shape& shape) { return s.uniform(shape, -1, 1); };
              s.add(u({4, 3}), u({4, 3}), u({3}), u({5, 3}), u({5}), 1e-3);
              s.add(u({2, 1, 8}), u({2, 1, 8}), u({8}), u({6, 8}), std::nullopt, 1e-6, true).named("gated");
              s.add(u({1, 1, 512}), u({1, 1, 512}), u({512}), u({300, 512}), u({300}), 1e-5).named("one row");
              s.add(u({1, 264}), u({1, 264}), u({264}), u({600, 264}), std::nullopt, 1e-5, true)
                  .named("one row, gated");
              s.add(u({0, 3}), u({0, 3}), u({3}), u({4, 3})).named("no rows");
              s.invalid<ShapeError>("one shape", u({4, 3}), u({4, 2}), u({3}), u({5, 3}));
              s.invalid<ShapeError>("norm_weight is", u({4, 3}), u({4, 3}), u({4}), u({5, 3}));
              s.invalid<ShapeError>("weight is", u({4, 3}), u({4, 3}), u({3}), u({5, 4}));
              s.invalid<ShapeError>("even", u({4, 3}), u({4, 3}), u({3}), u({5, 3}), std::nullopt, 1e-6, true);
              s.invalid<ShapeError>("bias is", u({4, 3}), u({4, 3}), u({3}), u({5, 3}), u({4}));
              s.invalid<ValueError>("no bias", u({4, 3}), u({4, 3}), u({3}), u({4, 3}), u({4}), 1e-6, true);
              if (s.benchmarking())
                s.bench(u({1, 4096}), u({1, 4096}), u({4096}), u({28672, 4096}), std::nullopt, 1e-5, true);
            },
        .tolerance = 16,
        .tolerance_reason = "the norm is rounded to its dtype before the product, and the product before the gate",
    }};

}  // namespace

std::pair<Tensor, Tensor> add_rms_norm_linear(const Tensor& x, const Tensor& residual, const Tensor& norm_weight,
                                              const Tensor& weight, const Tensor& bias, double eps, bool gated) {
  auto [y, sum] = add_rms_norm_linear_op(x, residual, norm_weight, weight, bias, eps, gated);
  return {std::move(y), std::move(sum)};
}

}  // namespace strata
