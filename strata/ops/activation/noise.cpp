// Activations that draw random numbers: functions of a key, like every random op.

#include <cmath>
#include <vector>

#include "strata/core/layout.h"
#include "strata/core/node.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/activation/rrelu_kernels.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"

namespace strata {
namespace {

constexpr RngKey kSampleKey{42, 7};
// Keeps the logarithm finite where the drawn number is 0.
constexpr double kLeast = 1e-20;

// Number i of the key's stream.
double drawn(RngKey key, size_t i) {
  return uniform_f32(philox(key, i / 4)[i % 4]);
}
void check_floating(const Tensor& x, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x.dtype());
}

// rrelu's numbers times g: what rrelu does to x, and its gradient to g.
using RreluApply = Op<Tensor(const Tensor&, const Tensor&, double, double, RngKey)>;
extern const RreluApply rrelu_apply_op;
const RreluApply rrelu_apply_op{{
    .schema = "rrelu_apply(Tensor g, Tensor x, float lower, float upper, RngKey key) -> Tensor",
    .shard = "elementwise random",
    .internal = true,
    .doc = "g where x is positive, else g times a slope, uniform in [lower, upper): number i of the key's stream is "
           "that of element i. The gradient of rrelu.",
    .infer =
        [](const Tensor& g, const Tensor& x, double, double, RngKey) {
          check<ShapeError>(g.shape() == x.shape(), "rrelu_apply", "g is ", g, ", x is ", x,
                            ": they must have one shape");
          check<DTypeError>(is_floating(x.dtype()) && g.dtype() == x.dtype(), "rrelu_apply",
                            "needs one floating dtype, got ", g, " and ", x);
          return laid_like(x);
        },
    .kernels = on_each_device(
        [](auto on, Tensor& y, const Tensor& g, const Tensor& x, double lower, double upper, RngKey key) {
          if constexpr (on.cuda)
            rrelu_apply_cuda(y, g, x, lower, upper, key);
          else
            rrelu_apply_cpu(y, g, x, lower, upper, key);
        }),
    .saves = "x",
    .backward =
        [](Backward& b, const Tensor&, const Tensor& x, double lower, double upper, RngKey key) {
          if (b.needs(0)) b.set(0, rrelu_apply_op(b.gy(), x, lower, upper, key));
        },
    .draws = [](const Tensor& g, const Tensor&, double, double, RngKey) { return random_blocks(g.numel()); },
    .cost =
        [](const Tensor& g, const Tensor&, double, double, RngKey) {
          return Cost{2.0 * static_cast<double>(g.numel()), 3.0 * static_cast<double>(g.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.off_grid({3, 5}), 0.125, 0.5, kSampleKey);
          s.add(s.tensor({1030}), s.off_grid({1030}), -1.0, 1.0, kSampleKey).named("longer than a block");
          s.add(s.tensor({4, 6}).t(), s.off_grid({6, 4}), 0.25, 0.25, kSampleKey).named("strided");
          s.add(s.tensor({0}), s.tensor({0}), 0.0, 1.0, kSampleKey).named("empty");
          s.invalid<ShapeError>("one shape", s.tensor({3}), s.tensor({4}), 0.0, 1.0, kSampleKey);
          s.invalid<DTypeError>("floating", s.tensor({3}, DType::i64), s.tensor({3}, DType::i64), 0.0, 1.0, kSampleKey);
        },
    .reference =
        [](const Tensor& g, const Tensor& x, double lower, double upper, RngKey key) {
          std::vector<double> v = g.to_vector<double>();
          const std::vector<double> at = x.to_vector<double>();
          for (size_t i = 0; i < v.size(); ++i)
            if (!(at[i] > 0)) v[i] *= lower + (upper - lower) * drawn(key, i);
          return from_span<double>(v, x.shape());
        },
}};

const Op<Tensor(const Tensor&, double, double, RngKey)> rrelu_op{{
    .schema = "rrelu(Tensor input, float lower, float upper, RngKey key) -> Tensor",
    .shard = "elementwise random",
    .doc = "input where positive, else input times a slope, uniform in [lower, upper): number i of the key's stream is "
           "that "
           "of element i (Xu et al., arXiv:1505.00853). ValueError where lower is above upper.",
    .example = "assert(rrelu(full({1}, -1.0), 0.25, 0.25, true).item() == -0.25);",
    .infer =
        [](const Tensor& x, double lower, double upper, RngKey) {
          check_floating(x, "rrelu");
          check(lower <= upper, "rrelu", "lower ", lower, " is above upper ", upper);
          return laid_like(x);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, double lower, double upper, RngKey key) {
      if constexpr (on.cuda)
        rrelu_apply_cuda(y, x, x, lower, upper, key);
      else
        rrelu_apply_cpu(y, x, x, lower, upper, key);
    }),
    .saves = "input",
    .backward = [](Backward& b, const Tensor& x, double lower, double upper,
                   RngKey key) { b.set(0, rrelu_apply_op(b.gy(), x, lower, upper, key)); },
    .draws = [](const Tensor& x, double, double, RngKey) { return random_blocks(x.numel()); },
    .cost =
        [](const Tensor& x, double, double, RngKey) {
          return Cost{2.0 * static_cast<double>(x.numel()), 2.0 * static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}), 0.125, 0.5, kSampleKey);
          s.add(s.off_grid({2, 37}), -1.0, 1.0, kSampleKey);
          s.add(s.off_grid({1031}), 0.0, 1.0, kSampleKey).named("longer than a block");
          s.add(s.off_grid({6, 4}).t(), 0.125, 0.5, kSampleKey).named("strided");
          s.add(s.tensor({0}), 0.125, 0.5, kSampleKey).named("empty");
          s.invalid<DTypeError>("floating", s.tensor({3}, DType::i64), 0.0, 1.0, kSampleKey);
          s.invalid<ValueError>("above upper", s.tensor({3}), 1.0, 0.0, kSampleKey);
        },
    .reference =
        [](const Tensor& x, double lower, double upper, RngKey key) {
          std::vector<double> v = x.to_vector<double>();
          for (size_t i = 0; i < v.size(); ++i)
            if (!(v[i] > 0)) v[i] *= lower + (upper - lower) * drawn(key, i);
          return from_span<double>(v, x.shape());
        },
}};

const Op<Tensor(const Tensor&, double, bool, int64_t, RngKey)> gumbel_softmax_op{{
    .schema = "gumbel_softmax(Tensor logits, float tau, bool hard, int dim, RngKey key) -> Tensor",
    .doc =
        "softmax((logits + g) / tau) along `dim` with g = -log(-log(1 - u)), u being uniform: a sample that is nearly "
        "one-hot for small tau (Jang et al., arXiv:1611.01144). With hard it is 1 at the largest and 0 elsewhere, with "
        "the gradient of the soft one. ValueError unless tau > 0, IndexError.",
    .example = "assert(std::abs(gumbel_softmax(zeros({3}), 0.5).sum().item() - 1) < 1e-5);",
    .composed =
        [](const Tensor& logits, double tau, bool hard, int64_t dim, RngKey key) {
          check_floating(logits, "gumbel_softmax");
          check(tau > 0, "gumbel_softmax", "tau must be positive, got ", tau);
          const int64_t at = wrap_dim(dim, logits.dim(), "gumbel_softmax");
          const Tensor u = detail::uniform_of(logits.shape(), 0, 1, key, DType::f32, logits.device());
          const DType wide = statistic_dtype(logits.dtype());
          // g = -log(-log(1 - u)), as few passes as it takes.
          const Tensor noisy = logits.to(wide) - log(kLeast - log1p(-u.to(wide)));
          const Tensor soft = softmax(tau == 1 ? noisy : noisy / tau, at);
          if (!hard) return soft.to(logits.dtype());
          const Tensor fixed = soft.detach(), top = argmax(fixed, at, true);
          return (scatter(zeros_like(fixed), at, top, Scalar(1.0)) - fixed + soft).to(logits.dtype());
        },
    .draws = [](const Tensor& x, double, bool, int64_t, RngKey) { return random_blocks(x.numel()); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), 1.0, false, -1, kSampleKey);
          s.add(s.tensor({3, 5}), 0.5, false, 0, kSampleKey);
          s.add(s.distinct({3, 5}), 1.0, true, 1, kSampleKey).not_differentiable().named("one-hot");
          s.invalid<ValueError>("tau", s.tensor({3}), 0.0, false, 0, kSampleKey);
          s.invalid<IndexError>("", s.tensor({3}), 1.0, false, 2, kSampleKey);
        },
    .reference =
        [](const Tensor& logits, double tau, bool hard, int64_t dim, RngKey key) {
          std::vector<double> v = logits.to_vector<double>();
          for (size_t i = 0; i < v.size(); ++i) v[i] = (v[i] - std::log(-std::log1p(-drawn(key, i)) + kLeast)) / tau;
          const int64_t at = dim < 0 ? dim + logits.dim() : dim, n = logits.size(at);
          int64_t inner = 1;
          for (int64_t d = at + 1; d < logits.dim(); ++d) inner *= logits.size(d);
          std::vector<double> r(v.size());
          for (size_t i = 0; i < r.size(); ++i) {
            const auto k = static_cast<int64_t>(i), first = k / (n * inner) * n * inner + k % inner;
            double mass = 0, most = -INFINITY;
            for (int64_t j = 0; j < n; ++j) {
              const double other = v[static_cast<size_t>(first + j * inner)];
              mass += std::exp(other - v[i]);
              most = std::max(most, other);
            }
            r[i] = hard ? (v[i] == most ? 1 : 0) : 1 / mass;
          }
          return from_span<double>(r, logits.shape());
        },
}};

}  // namespace

Tensor rrelu(const Tensor& x, double lower, double upper, bool training) {
  check(lower <= upper, "rrelu", "lower ", lower, " is above upper ", upper);
  return training ? rrelu_op.drawn(default_generator(), x, lower, upper, {}) : leaky_relu(x, (lower + upper) / 2);
}

Tensor gumbel_softmax(const Tensor& logits, double tau, bool hard, int64_t dim) {
  return gumbel_softmax_op.drawn(default_generator(), logits, tau, hard, dim, {});
}

}  // namespace strata
