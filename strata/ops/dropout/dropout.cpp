#include "strata/ops/dropout/dropout.h"

#include <vector>

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/dropout/dropout_kernel.h"

namespace strata {
namespace {

double scale_for(double p) {
  return p < 1 ? 1 / (1 - p) : 0;
}

const Op<Tensor(const Tensor&, double, RngKey)> dropout_op{{
    .schema = "dropout(Tensor x, float p, RngKey key) -> Tensor",
    .shard = "elementwise random",
    .doc = "Each element set to 0 with probability p, the others divided by 1 - p (Srivastava et al., JMLR 15, 2014). "
           "Element i, in "
           "row-major order, is dropped where number i of the key's stream is below p: the same elements for equal "
           "keys, on any "
           "device and any number of threads. ValueError unless 0 <= p <= 1, DTypeError unless x is floating.",
    .example = "Tensor y = dropout(ones({8}), 1.0, RngKey{1, 0}); assert(y.sum().item() == 0);",
    .infer =
        [](const Tensor& x, double p, RngKey) {
          check<DTypeError>(is_floating(x.dtype()), "dropout", "needs a floating dtype, got ", x.dtype());
          check(p >= 0 && p <= 1, "dropout", "p must be in [0, 1], got ", p);
          return laid_like(x);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, double p, RngKey key) {
      if (p == 0) return copy_elements(on, y, x);  // nothing is drawn for nothing
      if (p == 1) return fill_elements(on, y, 0);
      const auto chance = static_cast<float>(p);
      if constexpr (on.cuda) {
        if (!x.is_contiguous() || !y.is_contiguous()) return dropout_cuda(x, y, chance, scale_for(p), key);
        dropout_cuda(x.dtype(), x.raw_data(), y.raw_data(), x.numel(), chance, scale_for(p), key);
      } else {
        const Tensor xc = x.contiguous(), rows = y.is_contiguous() ? y : empty(like(y));
        dropout_cpu(x.dtype(), xc.raw_data(), rows.raw_data(), x.numel(), chance, scale_for(p), key);
        if (!rows.same_as(y)) copy_elements(on, y, rows);
      }
    }),
    .backward = [](Backward& b, const Tensor&, double p,
                   RngKey key) { b.set(0, p == 0 ? b.gy() : dropout(b.gy(), p, key)); },
    .draws = [](const Tensor& x, double, RngKey) { return random_blocks(x.numel()); },
    .cost =
        [](const Tensor& x, double, RngKey) {
          return Cost{1.0 * x.numel(), 2.0 * x.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), 0.3, RngKey{1, 0});
          s.add(s.tensor({1030}), 0.5, RngKey{2, 7}).named("longer than a block");
          s.add(s.tensor({4}), 0.0, RngKey{3, 0}).named("nothing");
          s.add(s.tensor({4}), 1.0, RngKey{3, 0}).named("everything");
          s.add(s.tensor({0}), 0.3, RngKey{3, 0}).named("empty");
          s.invalid<ValueError>("p must be", s.tensor({3}), 1.5, RngKey{1, 0});
          s.invalid<DTypeError>("floating", s.tensor({3}, DType::i64), 0.5, RngKey{1, 0});
          if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), 0.1, RngKey{1, 0});
        },
    .reference =
        [](const Tensor& x, double p, RngKey key) {
          std::vector<double> v = x.to_vector<double>();
          for (size_t i = 0; i < v.size(); ++i)
            v[i] = uniform_f32(philox(key, i / 4)[i % 4]) < static_cast<float>(p) ? 0 : v[i] * scale_for(p);
          return from_span<double>(v, x.shape());
        },
}};

}  // namespace

Tensor dropout(const Tensor& x, double p, RngKey key) {
  return dropout_op(x, p, key);
}

Tensor dropout(const Tensor& x, double p, bool training) {
  check(p >= 0 && p <= 1, "dropout", "p must be in [0, 1], got ", p);
  if (!training || p == 0) return x;
  return dropout_op.drawn(default_generator(), x, p, {});
}

}  // namespace strata
