// The fused record of an update of running statistics: as ops it is seven of a few hundred numbers each, a launch
// apiece.

#include "strata/ops/norm/running_statistics_kernel.h"

#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"

namespace strata {
namespace {

using Pair = std::tuple<Tensor, Tensor>;

template <class T>
void by_channels(Tensor& new_mean, Tensor& new_var, const Tensor& running_mean, const Tensor& running_var,
                 const Tensor& mean, const Tensor& rstd, const RunningUpdate& u) {
  const auto keep = static_cast<T>(1 - u.momentum), share = static_cast<T>(u.momentum);
  for (int64_t c = 0; c < mean.numel(); ++c) {
    const T r = rstd.data<T>()[c], var = (1 / (r * r) - static_cast<T>(u.eps)) * static_cast<T>(u.unbiased);
    new_mean.data<T>()[c] = running_mean.data<T>()[c] * keep + mean.data<T>()[c] * share;
    new_var.data<T>()[c] = running_var.data<T>()[c] * keep + var * share;
  }
}

using Signature = Pair(const Tensor&, const Tensor&, const Tensor&, const Tensor&, double, double, double);

const Op<Signature> running_statistics_op{{
    .schema = "running_statistics(Tensor running_mean, Tensor running_var, Tensor mean, Tensor rstd, float momentum, "
              "float eps, float unbiased) -> (Tensor new_mean, Tensor new_var)",
    .shard = "elementwise",
    .internal = true,
    .doc =
        "What running statistics [C] become after a batch of mean and rstd = 1 / sqrt(var + eps): they keep the share "
        "1 - momentum and take momentum of the batch's, its variance times unbiased = n / (n - 1).",
    .infer =
        [](const Tensor& running_mean, const Tensor& running_var, const Tensor& mean, const Tensor& rstd, double,
           double, double) {
          constexpr std::string_view op = "running_statistics";
          check<DTypeError>(mean.dtype() == DType::f32 || mean.dtype() == DType::f64, op, "mean is ", mean,
                            ", wants f32 or f64");
          for (const Tensor* t : {&running_mean, &running_var, &rstd}) {
            check<DTypeError>(t->dtype() == mean.dtype(), op, "mean is ", mean, ", beside ", *t);
            check<ShapeError>(mean.dim() == 1 && t->shape() == mean.shape(), op, "mean is ", mean, ", beside ", *t,
                              ", wants one number a channel");
          }
          return std::array<TensorMeta, 2>{like(mean), like(mean)};
        },
    .kernels = on_each_device([](auto on, Tensor& new_mean, Tensor& new_var, const Tensor& running_mean,
                                 const Tensor& running_var, const Tensor& mean, const Tensor& rstd, double momentum,
                                 double eps, double unbiased) {
      const RunningUpdate u{momentum, eps, unbiased};
      const Tensor a = running_mean.contiguous(), b = running_var.contiguous(), m = mean.contiguous(),
                   r = rstd.contiguous();
      if constexpr (on.cuda)
        running_statistics_cuda(new_mean, new_var, a, b, m, r, u);
      else if (m.dtype() == DType::f64)
        by_channels<double>(new_mean, new_var, a, b, m, r, u);
      else
        by_channels<float>(new_mean, new_var, a, b, m, r, u);
    }),
    .composed =
        [](const Tensor& running_mean, const Tensor& running_var, const Tensor& mean, const Tensor& rstd,
           double momentum, double eps, double unbiased) {
          const Tensor var = (rstd.pow(-2.0) + -eps) * unbiased;
          return Pair(add(running_mean * (1 - momentum), mean, momentum),
                      add(running_var * (1 - momentum), var, momentum));
        },
    .dtypes = dtype_bit(DType::f32) | dtype_bit(DType::f64),
    .cost =
        [](const Tensor&, const Tensor&, const Tensor& mean, const Tensor&, double, double, double) {
          return Cost{9.0 * static_cast<double>(mean.numel()), 6.0 * static_cast<double>(mean.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({5}), s.uniform({5}, 0.5, 2), s.tensor({5}), s.uniform({5}, 0.5, 2), 0.1, 1e-5, 1.25);
          s.add(s.tensor({300}), s.uniform({300}, 0.5, 2), s.tensor({300}), s.uniform({300}, 0.5, 2), 0.5, 1e-3, 1.0)
              .named("more than a block");
          s.add(s.tensor({0}), s.tensor({0}), s.tensor({0}), s.tensor({0}), 0.1, 1e-5, 1.0).named("no channels");
          s.invalid<ShapeError>("one number a channel", s.tensor({5}), s.tensor({4}), s.tensor({5}), s.tensor({5}), 0.1,
                                1e-5, 1.0);
        },
    .reference =
        [](const Tensor& running_mean, const Tensor& running_var, const Tensor& mean, const Tensor& rstd,
           double momentum, double eps, double unbiased) {
          std::vector<double> m = running_mean.to_vector<double>(), v = running_var.to_vector<double>();
          const std::vector<double> own = mean.to_vector<double>(), r = rstd.to_vector<double>();
          for (size_t c = 0; c < m.size(); ++c) {
            m[c] += momentum * (own[c] - m[c]);
            v[c] += momentum * ((1 / (r[c] * r[c]) - eps) * unbiased - v[c]);
          }
          return Pair(from_span<double>(m, mean.shape()), from_span<double>(v, mean.shape()));
        },
}};

}  // namespace

std::tuple<Tensor, Tensor> detail::running_statistics(const Tensor& running_mean, const Tensor& running_var,
                                                      const Tensor& mean, const Tensor& rstd,
                                                      const RunningUpdate& update) {
  return running_statistics_op(running_mean, running_var, mean, rstd, update.momentum, update.eps, update.unbiased);
}

}  // namespace strata
