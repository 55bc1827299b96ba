// The record of linear_swiglu.

#include "strata/ops/matmul/gated.h"

#include "strata/core/by_device.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/matmul/gemm_gated.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

TensorMeta infer(const Tensor& x, const Tensor& weight) {
  constexpr std::string_view op = "linear_swiglu";
  check<ShapeError>(x.dim() > 0, op, "x needs at least one dimension");
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x);
  check<ShapeError>(weight.dim() == 2 && weight.shape()[1] == x.shape().back(), op, "weight is ", weight,
                    ", wants [.., ", x.shape().back(), "]");
  check<ShapeError>(weight.shape()[0] % 2 == 0, op, "weight is ", weight, ", wants an even number of rows");
  check<DTypeError>(weight.dtype() == x.dtype(), op, "weight is ", weight, ", wants the dtype of x ", x);
  Shape s = x.shape();
  s[s.size() - 1] = weight.shape()[0] / 2;
  return like(x).with_shape(s);
}

Tensor composed(const Tensor& x, const Tensor& weight) {
  return swiglu(linear(x, weight));
}

#ifdef STRATA_WITH_CUDA
void on_card(Tensor& y, const Tensor& x, const Tensor& weight) {
  if (y.numel() == 0) return;
  if (!cuda::gated_tiles(y, x, weight)) y.copy_(composed(x, weight));
}
#endif

const Op<Tensor(const Tensor&, const Tensor&)> linear_swiglu_op{{
    .schema = "linear_swiglu(Tensor x, Tensor weight) -> Tensor",
    .shard = "... k!, n! k! -> ... m!",
    .internal = true,
    .doc = "swiglu of the two halves of linear(x, weight): silu(x gate^T) * (x up^T), the gate being the first half of "
           "the "
           "rows of weight [2 N, in] (Shazeer, arXiv:2002.05202), x [.., in] -> [.., N].",
    .example = "assert(linear_swiglu(zeros({2, 3}), ones({4, 3})).shape() == Shape({2, 2}));",
    .infer = infer,
    .kernels = {.cuda = STRATA_CUDA_KERNEL(on_card)},
    .composed = composed,
    .autocast = Autocast::low,
    .cost =
        [](const Tensor& x, const Tensor& weight) {
          const auto y = static_cast<double>(infer(x, weight).shape.product());
          return Cost{4.0 * y * static_cast<double>(x.shape().back()) + 9 * y,
                      static_cast<double>(x.nbytes() + weight.nbytes()) + y * static_cast<double>(size_of(x.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({4, 3}, -1, 1), s.uniform({10, 3}, -1, 1));
          s.add(s.uniform({2, 4, 8}, -1, 1), s.uniform({6, 8}, -1, 1)).named("batch");
          s.add(s.uniform({3}, -1, 1), s.uniform({4, 3}, -1, 1)).named("one row");
          s.add(transpose(s.uniform({3, 4}, -1, 1), 0, 1), transpose(s.uniform({3, 6}, -1, 1), 0, 1))
              .named("transposed");
          s.add(s.uniform({0, 3}, -1, 1), s.uniform({4, 3}, -1, 1)).named("no rows");
          s.add(s.uniform({150, 64}, -0.5, 0.5), s.uniform({2 * 136, 64}, -0.5, 0.5)).named("several tiles");
          s.invalid<ShapeError>("weight is", s.tensor({4, 3}), s.tensor({4, 5}));
          s.invalid<ShapeError>("even", s.tensor({4, 3}), s.tensor({5, 3}));
          s.invalid<DTypeError>("floating", s.tensor({4, 3}, DType::i64), s.tensor({4, 3}, DType::i64));
          if (s.benchmarking()) s.bench(s.tensor({8192, 2048}), s.tensor({16384, 2048}));
        },
    .tolerance = 2,
    .tolerance_reason = "the composed form rounds the product to its dtype before the activation",
}};

}  // namespace

Tensor linear_swiglu(const Tensor& x, const Tensor& weight) {
  return linear_swiglu_op(x, weight);
}

}  // namespace strata
