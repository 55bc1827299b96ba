#include "strata/ops/random/samplers.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/random/random.h"
#include "strata/ops/random/random_kernels.h"
#include "strata/ops/random/random_reference_inl.h"

namespace strata {
namespace {

using by_loops::Array;

constexpr RngKey kSampleKey{42, 7};

void check_floating(DType dtype, std::string_view op) {
  check<DTypeError>(is_floating(dtype), op, "needs a floating dtype, got ", dtype);
}
// In (0, 1]: the logarithm is finite. In f64, whose tails reach furthest, for any dtype of the result.
Tensor above_zero(const Shape& shape, RngKey key, Device device) {
  return 1 - detail::uniform_of(shape, 0, 1, key, DType::f64, device);
}
// For a number of f64 each; a shape that is none yet is left to the call.
uint64_t wide_blocks(const Shape& shape) {
  return random_blocks(shape, DType::f64);
}
// f(a number in (0, 1]) for each element.
template <class F>
Tensor by_hand(const Shape& shape, RngKey key, F f) {
  Array y(shape);
  for (int64_t i = 0; i < y.size(); ++i) y.flat(i) = f(1 - by_loops::unit(key, i));
  return y;
}

const Op<Tensor(const Shape&, double, RngKey, DType, Device)> exponential_op{{
    .schema = "exponential(int[] shape, float lambd=1.0, RngKey key, DType dtype=f32, Device device=cpu) -> Tensor",
    .doc = "Numbers with the density lambd exp(-lambd x): the logarithm of a uniform number of f64 each. ValueError "
           "unless lambd > 0.",
    .example = "for (float v : exponential({100}, 2).to_vector<float>()) assert(v >= 0);",
    .composed =
        [](const Shape& shape, double lambd, RngKey key, DType dtype, Device device) {
          check_floating(dtype, "exponential");
          check(lambd > 0, "exponential", "lambd must be positive, got ", lambd);
          return (-log(above_zero(shape, key, device)) / lambd).to(dtype);
        },
    .draws = [](const Shape& shape, double, RngKey, DType, Device) { return wide_blocks(shape); },
    .samples =
        [](Samples& s) {
          s.add(Shape{3, 5}, 1.0, kSampleKey, s.dtype(), Device::cpu());
          s.add(Shape{2049}, 2.5, kSampleKey, s.dtype(), Device::cpu());
          s.add(Shape{0}, 1.0, kSampleKey, s.dtype(), Device::cpu());
          s.invalid<ValueError>("must be positive", Shape{3}, 0.0, kSampleKey, s.dtype(), Device::cpu());
          s.invalid<DTypeError>("floating", Shape{3}, 1.0, kSampleKey, DType::i32, Device::cpu());
        },
    .reference = [](const Shape& shape, double lambd, RngKey key, DType,
                    Device) { return by_hand(shape, key, [&](double u) { return std::log(1 / u) / lambd; }); },
}};

const Op<Tensor(const Shape&, double, double, RngKey, DType, Device)> cauchy_op{{
    .schema = "cauchy(int[] shape, float median=0.0, float sigma=1.0, RngKey key, DType dtype=f32, Device device=cpu) "
              "-> Tensor",
    .doc = "Numbers of Cauchy's law about median, half of them within sigma of it: the tangent of a uniform angle of "
           "f64 each. ValueError unless sigma > 0.",
    .example = "assert(cauchy({2, 3}).shape() == Shape({2, 3}));",
    .composed =
        [](const Shape& shape, double median, double sigma, RngKey key, DType dtype, Device device) {
          check_floating(dtype, "cauchy");
          check(sigma > 0, "cauchy", "sigma must be positive, got ", sigma);
          return (median + sigma * tan((above_zero(shape, key, device) - 0.5) * std::numbers::pi)).to(dtype);
        },
    .draws = [](const Shape& shape, double, double, RngKey, DType, Device) { return wide_blocks(shape); },
    .samples =
        [](Samples& s) {
          s.add(Shape{3, 5}, 0.0, 1.0, kSampleKey, s.dtype(), Device::cpu());
          s.add(Shape{2049}, -2.0, 0.5, kSampleKey, s.dtype(), Device::cpu());
          s.invalid<ValueError>("must be positive", Shape{3}, 0.0, -1.0, kSampleKey, s.dtype(), Device::cpu());
          s.invalid<DTypeError>("floating", Shape{3}, 0.0, 1.0, kSampleKey, DType::i32, Device::cpu());
        },
    .reference =
        [](const Shape& shape, double median, double sigma, RngKey key, DType, Device) {
          return by_hand(shape, key, [&](double u) {
            const double angle = std::numbers::pi * (u - 0.5);
            return median + sigma * std::sin(angle) / std::cos(angle);
          });
        },
}};

const Op<Tensor(const Shape&, double, RngKey, DType, Device)> geometric_op{{
    .schema = "geometric(int[] shape, float p, RngKey key, DType dtype=f32, Device device=cpu) -> Tensor",
    .doc =
        "Numbers of trials until the first success of probability p, 1 or more: the logarithm of a uniform number of "
        "f64 each, over that of 1 - p, rounded down. ValueError unless 0 < p <= 1.",
    .example = "for (float v : geometric({100}, 0.5).to_vector<float>()) assert(v >= 1);",
    .composed =
        [](const Shape& shape, double p, RngKey key, DType dtype, Device device) {
          check(p > 0 && p <= 1, "geometric", "p must lie in (0, 1], got ", p);
          // Of probability 1 the division by -inf gives 0.
          return (floor(log(above_zero(shape, key, device)) / std::log(1 - p)) + 1).to(dtype);
        },
    .draws = [](const Shape& shape, double, RngKey, DType, Device) { return wide_blocks(shape); },
    .dtypes = kFloats | kInts,
    .samples =
        [](Samples& s) {
          s.add(Shape{3, 5}, 0.25, kSampleKey, s.dtype(), Device::cpu());
          s.add(Shape{2049}, 0.8, kSampleKey, s.dtype(), Device::cpu());
          s.add(Shape{7}, 1.0, kSampleKey, s.dtype(), Device::cpu()).named("certain");
          s.invalid<ValueError>("lie in (0, 1]", Shape{3}, 0.0, kSampleKey, s.dtype(), Device::cpu());
        },
    .reference =
        [](const Shape& shape, double p, RngKey key, DType, Device) {
          return by_hand(shape, key, [&](double u) {
            double trials = 1;
            for (double left = 1 - p; u <= left && left > 0; left *= 1 - p) ++trials;
            return trials;
          });
        },
}};

const Op<Tensor(const Shape&, double, double, RngKey, DType, Device)> log_normal_op{{
    .schema = "log_normal(int[] shape, float mean=1.0, float std=2.0, RngKey key, DType dtype=f32, Device device=cpu) "
              "-> Tensor",
    .doc = "exp of the numbers that normal gives for mean and std. ValueError for a negative std.",
    .example =
        "manual_seed(1); Tensor x = log_normal({4}, 0, 1); manual_seed(1); assert(allclose(x, exp(randn({4}))));",
    .composed =
        [](const Shape& shape, double mean, double std, RngKey key, DType dtype, Device device) {
          check_floating(dtype, "log_normal");
          check(std >= 0, "log_normal", "the standard deviation must not be negative, got ", std);
          return exp(detail::normal_of(shape, mean, std, key, dtype, device));
        },
    .draws = [](const Shape& shape, double, double, RngKey, DType dtype,
                Device) { return random_blocks(shape, dtype); },
    .dtypes = dtype_bit(DType::f32) | dtype_bit(DType::f64),
    .samples =
        [](Samples& s) {
          s.add(Shape{3, 5}, 1.0, 2.0, kSampleKey, s.dtype(), Device::cpu());
          s.add(Shape{2049}, 0.0, 0.5, kSampleKey, s.dtype(), Device::cpu());
          s.invalid<ValueError>("negative", Shape{3}, 0.0, -1.0, kSampleKey, s.dtype(), Device::cpu());
          s.invalid<DTypeError>("floating", Shape{3}, 0.0, 1.0, kSampleKey, DType::i32, Device::cpu());
        },
    .reference =
        [](const Shape& shape, double mean, double std, RngKey key, DType dtype, Device device) {
          Array y(by_loops::normal_numbers(shape, mean, std, key, dtype, device));
          for (int64_t i = 0; i < y.size(); ++i) y.flat(i) = std::exp(y.flat(i));
          return Tensor(y);
        },
}};

}  // namespace

Tensor exponential(const Shape& shape, double lambd, std::optional<DType> dtype, Generator& g) {
  return exponential_op.drawn(g, shape, lambd, {}, dtype.value_or(default_dtype()), default_device());
}
Tensor cauchy(const Shape& shape, double median, double sigma, std::optional<DType> dtype, Generator& g) {
  return cauchy_op.drawn(g, shape, median, sigma, {}, dtype.value_or(default_dtype()), default_device());
}
Tensor geometric(const Shape& shape, double p, std::optional<DType> dtype, Generator& g) {
  return geometric_op.drawn(g, shape, p, {}, dtype.value_or(default_dtype()), default_device());
}
Tensor log_normal(const Shape& shape, double mean, double std, std::optional<DType> dtype, Generator& g) {
  return log_normal_op.drawn(g, shape, mean, std, {}, dtype.value_or(default_dtype()), default_device());
}

}  // namespace strata
