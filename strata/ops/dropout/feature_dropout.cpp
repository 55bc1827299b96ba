// Dropout of whole channels, and dropout for SELU.

#include <cmath>
#include <vector>

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/elementwise/mixed_kernel.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr RngKey kSampleKey{42, 7};
constexpr double kFloor = -1.7580993408473766;  // what SELU goes to: its scale times its alpha

using Dropout = Op<Tensor(const Tensor&, double, RngKey)>;

void check_dropout(const Tensor& x, double p, int64_t rank, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x.dtype());
  check(p >= 0 && p <= 1, op, "p must be in [0, 1], got ", p);
  check<ShapeError>(x.dim() >= rank, op, "input is ", x, ", wanted [N, C, ..]");
}
Shape channels_of(const Tensor& x) {
  Shape s = Shape::filled(x.dim(), 1);
  for (int64_t d = 0; d < 2; ++d) s[d] = x.size(d);
  return s;
}
// x where it lies without gaps, else a copy: what is multiplied line by line would be gathered line by line.
Tensor without_gaps(const Tensor& x) {
  return lie_alike(x, x) ? x : contiguous(x);
}
// 1 with probability 1 - p, else 0, of `shape`.
Tensor kept(const Shape& shape, double p, RngKey key, const Tensor& x) {
  const DeviceScope there(x.device());
  const Tensor ones = full(shape, 1.0, DType::f32);
  return (dropout(ones, p, key) != 0).to(statistic_dtype(x.dtype()));
}

// What the numbers, floor included, are multiplied by for a variance of 1.
double scale_with_floor(double p) {
  return 1 / std::sqrt((kFloor * kFloor * p + 1) * (1 - p));
}
// x with `keep` of its numbers, the others at SELU's floor, mean and variance kept.
Tensor with_floor(const Tensor& x, double p, const Tensor& keep) {
  const DType wide = statistic_dtype(x.dtype());
  const double a = scale_with_floor(p);
  return addcmul((keep - 1) * (-kFloor * a) - kFloor * a * p, without_gaps(x).to(wide), keep * a).to(x.dtype());
}
Tensor alpha_composed(const Tensor& x, double p, RngKey key, const Shape& shape) {
  return p == 0 ? x : p == 1 ? x * 0.0 : with_floor(x, p, kept(shape, p, key, x));
}

double drawn(RngKey key, size_t i) {
  return uniform_f32(philox(key, i / 4)[i % 4]);
}
// f(number, whether it is kept) with one draw for each `inner` numbers.
template <class F>
Tensor by_hand(const Tensor& x, double p, RngKey key, size_t inner, F&& f) {
  std::vector<double> v = x.to_vector<double>();
  for (size_t i = 0; i < v.size(); ++i) v[i] = f(v[i], drawn(key, i / inner) >= static_cast<float>(p));
  return from_span<double>(v, x.shape());
}
Tensor alpha_by_hand(const Tensor& x, double p, RngKey key, size_t inner) {
  const double a = p < 1 ? scale_with_floor(p) : 0, b = -a * kFloor * p;
  return by_hand(x, p, key, inner, [&](double v, bool keep) { return a * (keep ? v : kFloor) + b; });
}
// A number for each element, of which whole channels use the first.
uint64_t one_each(const Tensor& x, double, RngKey) {
  return random_blocks(x.numel());
}
size_t inner_of(const Tensor& x) {
  size_t n = 1;
  for (int64_t d = 2; d < x.dim(); ++d) n *= static_cast<size_t>(x.size(d));
  return n;
}

void channel_samples(Samples& s, std::string_view shape_text) {
  s.add(s.tensor({3, 5, 2, 2}), 0.3, kSampleKey);
  s.add(s.tensor({2, 3, 5, 4}).permute({3, 2, 1, 0}), 0.3, kSampleKey).named("lies across");
  s.add(s.tensor({2, 37}), 0.5, kSampleKey);
  s.add(s.tensor({2, 3, 4}), 1.0, kSampleKey).named("everything");
  s.add(s.tensor({2, 3, 4}), 0.0, kSampleKey).named("nothing");
  s.invalid<ValueError>("p must be", s.tensor({3, 2}), 1.5, kSampleKey);
  s.invalid<ShapeError>(shape_text, s.tensor({3}), 0.5, kSampleKey);
}

Tensor rounded_product(const Tensor& x, const Tensor& factors) {
  return (x.to(factors.dtype()) * factors).to(x.dtype());
}
const Op<Tensor(const Tensor&, const Tensor&)> scale_rounded_op{{
    .schema = "scale_rounded(Tensor x, Tensor factors) -> Tensor",
    .shard = "elementwise",
    .internal = true,
    .doc = "x, bf16 or f16, times f32 factors that broadcast to it, rounded once.",
    .infer =
        [](const Tensor& x, const Tensor& factors) {
          constexpr std::string_view op = "scale_rounded";
          check<DTypeError>(is_reduced_floating(x.dtype()) && factors.dtype() == DType::f32, op, "x is ", x,
                            " and factors ", factors, ", wants 16 bits and f32");
          check<ShapeError>(broadcast_shapes(x.shape(), factors.shape(), op) == x.shape(), op, "factors ", factors,
                            " do not broadcast to x, ", x);
          return laid_like(x);
        },
    .kernels = {.cpu = [](Tensor& y, const Tensor& x,
                          const Tensor& factors) { mul_rounded_cpu(y, expand(factors, x.shape()), x); }},
    .composed = rounded_product,
    .saves = "x:factors factors:x",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& factors) {
          if (b.needs(0)) b.set(0, scale_rounded_op(b.gy(), factors));
          if (b.needs(1)) b.set(1, sum_to(b.gy().to(DType::f32) * x, factors.shape()));
        },
    .dtypes = dtype_bit(DType::bf16) | dtype_bit(DType::f16),
    .cost =
        [](const Tensor& x, const Tensor&) {
          return Cost{static_cast<double>(x.numel()), 2.0 * static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 40}), s.tensor({2, 3, 1}, DType::f32));
          s.add(s.tensor({5, 3, 2}).permute({2, 1, 0}), s.tensor({2, 3, 1}, DType::f32)).named("strided");
          s.add(s.tensor({2, 37}), s.tensor({37}, DType::f32)).named("a row of factors");
          s.add(s.tensor({0, 3}), s.tensor({3}, DType::f32)).named("empty");
          s.invalid<DTypeError>("wants 16 bits", s.tensor({3}), s.tensor({3}));
          s.invalid<ShapeError>("do not broadcast", s.tensor({3}), s.tensor({2, 3}, DType::f32));
        },
    .reference = [](const Tensor& x, const Tensor& factors) { return x.to(DType::f64) * factors.to(DType::f64); },
}};

// The factors in the order in which x lies, so that they are read as it is.
Tensor laid_as(const Tensor& factors, const Tensor& x) {
  return x.strides()[0] < x.strides()[1] ? transpose(contiguous(transpose(factors, 0, 1)), 0, 1) : factors;
}

const Dropout feature_dropout_op{{
    .schema = "feature_dropout(Tensor input, float p, RngKey key) -> Tensor",
    .doc =
        "Whole channels of input [N, C, ..] set to 0 with probability p, the others divided by 1 - p (Tompson et al., "
        "arXiv:1411.4280): dropout1d, 2d and 3d. Channel i, in row-major order, is dropped where number i of the key's "
        "stream is below p. ValueError unless 0 <= p <= 1, ShapeError, DTypeError.",
    .example = "assert(feature_dropout(ones({2, 3, 4}), 1.0).sum().item() == 0);",
    .composed =
        [](const Tensor& x, double p, RngKey key) {
          check_dropout(x, p, 2, "feature_dropout");
          if (p == 0) return x;
          if (p == 1) return x * 0.0;
          if (x.dim() == 2) return dropout(x, p, key);  // every number is a channel
          const DeviceScope there(x.device());
          const Tensor factors = dropout(full(channels_of(x), 1.0, statistic_dtype(x.dtype())), p, key);
          const Tensor dense = without_gaps(x);
          if (x.device().is_cuda()) return rounded_product(dense, factors);
          const Tensor laid = laid_as(factors, dense);
          return is_reduced_floating(x.dtype()) ? scale_rounded_op(dense, laid) : dense * laid;
        },
    .draws = one_each,
    .samples = [](Samples& s) { channel_samples(s, "wanted [N, C, ..]"); },
    .reference =
        [](const Tensor& x, double p, RngKey key) {
          return by_hand(x, p, key, inner_of(x), [&](double v, bool keep) { return keep ? v / (1 - p) : 0; });
        },
}};

const Dropout alpha_dropout_op{{
    .schema = "alpha_dropout(Tensor input, float p, RngKey key) -> Tensor",
    .doc =
        "Dropout that suits SELU: elements become SELU's floor with probability p, then all are scaled and shifted so "
        "that mean 0 and variance 1 stay (Klambauer et al., arXiv:1706.02515). Element i is dropped where number i of "
        "the key's stream is below p. ValueError unless 0 <= p <= 1, DTypeError.",
    .example = "assert(alpha_dropout(ones({8}), 1.0).sum().item() == 0);",
    .composed =
        [](const Tensor& x, double p, RngKey key) {
          check_dropout(x, p, 0, "alpha_dropout");
          if (p == 0) return x;
          if (p == 1) return x * 0.0;
          // Of the distance from the floor dropout makes 0, which is the floor, and takes the rest 1 / (1 - p) times.
          const double a = scale_with_floor(p);
          const Tensor above = dropout(x.to(statistic_dtype(x.dtype())) - kFloor, p, key);
          return (above * (a * (1 - p)) + kFloor * a * (1 - p)).to(x.dtype());
        },
    .draws = one_each,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), 0.3, kSampleKey);
          s.add(s.tensor({4}), 1.0, kSampleKey).named("everything");
          s.add(s.tensor({4, 3}), 0.0, kSampleKey).named("nothing");
          s.invalid<ValueError>("p must be", s.tensor({3}), -0.5, kSampleKey);
          s.invalid<DTypeError>("floating", s.tensor({3}, DType::i64), 0.5, kSampleKey);
        },
    .reference = [](const Tensor& x, double p, RngKey key) { return alpha_by_hand(x, p, key, 1); },
}};

const Dropout feature_alpha_dropout_op{{
    .schema = "feature_alpha_dropout(Tensor input, float p, RngKey key) -> Tensor",
    .doc =
        "alpha_dropout of whole channels of input [N, C, ..]. ValueError unless 0 <= p <= 1, ShapeError, DTypeError.",
    .example = "assert(feature_alpha_dropout(ones({2, 3, 4}), 1.0).sum().item() == 0);",
    .composed =
        [](const Tensor& x, double p, RngKey key) {
          check_dropout(x, p, 2, "feature_alpha_dropout");
          return alpha_composed(x, p, key, channels_of(x));
        },
    .draws = one_each,
    .samples = [](Samples& s) { channel_samples(s, "wanted [N, C, ..]"); },
    .reference = [](const Tensor& x, double p, RngKey key) { return alpha_by_hand(x, p, key, inner_of(x)); },
}};

Tensor drawn_for(const Dropout& op, const Tensor& x, double p, bool training) {
  check(p >= 0 && p <= 1, op.name(), "p must be in [0, 1], got ", p);
  if (!training || p == 0) return x;
  return op.drawn(default_generator(), x, p, {});
}

}  // namespace

Tensor feature_dropout(const Tensor& x, double p, bool training) {
  return drawn_for(feature_dropout_op, x, p, training);
}
Tensor alpha_dropout(const Tensor& x, double p, bool training) {
  return drawn_for(alpha_dropout_op, x, p, training);
}
Tensor feature_alpha_dropout(const Tensor& x, double p, bool training) {
  return drawn_for(feature_alpha_dropout_op, x, p, training);
}

}  // namespace strata
