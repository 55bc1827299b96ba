// Slices whose norm is limited.

#include <cmath>
#include <vector>

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/norm/scale_shift_kernel.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using naive::Array;

using LimitOp = Op<Tensor(const Tensor&, const Tensor&, double)>;
const LimitOp limit_lengths_op{{
    .schema = "limit_lengths(Tensor x, Tensor lengths, float most) -> Tensor",
    .shard = "whole",
    .internal = true,
    .doc = "x times most / (length + 1e-7) where its length, which broadcasts to x, is above most.",
    .infer =
        [](const Tensor& x, const Tensor& lengths, double) {
          constexpr std::string_view op = "limit_lengths";
          check<DTypeError>(is_floating(x.dtype()) && lengths.dtype() == statistic_dtype(x.dtype()), op, "got ", x,
                            " and lengths ", lengths);
          check<ShapeError>(broadcast_shapes(lengths.shape(), x.shape(), op) == x.shape(), op, "lengths ", lengths,
                            " do not broadcast to x ", x);
          return laid_like(x);
        },
    .kernels = {.cuda = STRATA_CUDA_KERNEL(limit_lengths_cuda)},
    .composed =
        [](const Tensor& x, const Tensor& lengths, double most) {
          return (x * where(lengths > most, most / (lengths + 1e-7), Scalar(1))).to(x.dtype());
        },
    .cost =
        [](const Tensor& x, const Tensor&, double) {
          return Cost{3.0 * static_cast<double>(x.numel()), 2.0 * static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          const auto lengths = [&](const Shape& shape) {
            return s.uniform(shape, 0.5, 3.0).to(statistic_dtype(s.dtype()));
          };
          s.add(s.tensor({4, 5}), lengths({4, 1}), 1.0);
          s.add(s.tensor({3, 16}), lengths({1, 16}), 2.0);
          s.add(s.tensor({5, 3}).t(), lengths({3, 1}), 1.0).named("strided");
          s.add(s.tensor({0, 3}), lengths({1, 3}), 1.0).named("none");
          s.invalid<ShapeError>("broadcast", s.tensor({2, 3}), lengths({2, 3, 1}), 1.0);
        },
    .reference =
        [](const Tensor& x, const Tensor& lengths, double most) {
          const Array values(x), own(expand(lengths, x.shape()));
          return Tensor(naive::made(x.shape(), [&](const Dims& at) {
            return own[at] > most ? values[at] * (most / (own[at] + 1e-7)) : values[at];
          }));
        },
}};

const Op<Tensor(const Tensor&, double, int64_t, double)> renorm_op{{
    .schema = "renorm(Tensor x, float p, int dim, float maxnorm) -> Tensor",
    .inplace_by_copy = true,
    .doc = "x whose slices along dim that have a p-norm above maxnorm are scaled down to it (times maxnorm / (norm + "
           "1e-7), as in PyTorch). ShapeError below two dimensions, ValueError unless p and maxnorm are positive.",
    .example =
        "Tensor y = renorm(full({2, 4}, 3.0), 2, 0, 1.0); assert(std::abs(norm(y, 2, {1}).to_vector<float>()[0] - "
        "1) < 1e-4);",
    .composed =
        [](const Tensor& x, double p, int64_t dim, double most) {
          check<ShapeError>(x.dim() >= 2, "renorm", "wants at least 2 dimensions, got ", x);
          check<DTypeError>(is_floating(x.dtype()), "renorm", "needs a floating dtype, got ", x);
          dim = wrap_dim(dim, x.dim(), "renorm");
          check(p > 0, "renorm", "p must be positive, got ", p);
          check(most >= 0, "renorm", "maxnorm must not be negative, got ", most);
          Dims others;
          for (int64_t d = 0; d < x.dim(); ++d)
            if (d != dim) others.push_back(d);
          const Tensor w = to(x, is_reduced_floating(x.dtype()) ? DType::f32 : x.dtype());
          const Tensor length = norm(w, p, others, true);
          if (w.device().is_cuda()) return limit_lengths_op(w, length, most).to(x.dtype());
          return to(w * where(length > most, most / (length + 1e-7), Scalar(1)), x.dtype());
        },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({4, 5}), 2.0, 0, 2.0);
          s.add(s.tensor({3, 2, 4}), 1.0, -2, 0.75);
          s.add(s.tensor({5, 3}).t(), 3.0, 1, 100.0).named("strided, within the limit");
          s.invalid<ShapeError>("2 dimensions", s.tensor({3}), 2.0, 0, 1.0);
          s.invalid<IndexError>("out of range", s.tensor({3, 2}), 2.0, 2, 1.0);
          s.invalid<ValueError>("p must be positive", s.tensor({3, 2}), 0.0, 0, 1.0);
          s.invalid<ValueError>("negative", s.tensor({3, 2}), 2.0, 0, -1.0);
        },
    .reference =
        [](const Tensor& x, double p, int64_t dim, double most) {
          const Array values(x);
          dim = naive::from_front(dim, x.dim());
          std::vector<double> sums(static_cast<size_t>(x.shape()[dim]));
          naive::each(x.shape(),
                      [&](const Dims& at) { sums[static_cast<size_t>(at[dim])] += std::pow(std::abs(values[at]), p); });
          return Tensor(naive::made(x.shape(), [&](const Dims& at) {
            const double length = std::pow(sums[static_cast<size_t>(at[dim])], 1 / p);
            return length > most ? values[at] * (most / (length + 1e-7)) : values[at];
          }));
        },
}};

}  // namespace

Tensor renorm(const Tensor& x, double p, int64_t dim, double max_norm) {
  return renorm_op(x, p, dim, max_norm);
}

}  // namespace strata
