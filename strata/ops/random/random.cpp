#include "strata/ops/random/random.h"

#include <functional>
#include <numeric>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/random/random_kernels.h"
#include "strata/ops/random/random_reference_inl.h"

namespace strata {
namespace {

constexpr RngKey kSampleKey{42, 7};

// Two 32-bit numbers for each element, whatever the dtype.
uint64_t wide_blocks(const Shape& shape) {
  return random_blocks(shape, DType::i64);
}
void check_floating(DType dtype, std::string_view op) {
  check<DTypeError>(is_floating(dtype), op, "needs a floating dtype, got ", dtype);
}
Cost draw_cost(const Shape& shape, DType dtype, double flops) {
  const double n = std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
  return {n * flops, n * static_cast<double>(size_of(dtype))};
}

const Op<Tensor(const Shape&, double, double, RngKey, DType, Device)> uniform_op{{
    .schema = "uniform(int[] shape, float low, float high, RngKey key, DType dtype=f32, Device device=cpu) -> Tensor",
    .doc =
        "Uniform in [low, high). Element i depends on key and i only. Numbers come from Philox4x32-10 (Salmon et al., "
        "2011): one 32-bit number an element, two for f64.",
    .example = "Tensor x = rand({1000}); for (float v : x.to_vector<float>()) assert(v >= 0 && v < 1);",
    .infer =
        [](const Shape& shape, double low, double high, RngKey, DType dtype, Device device) {
          check_floating(dtype, "uniform");
          check(low <= high, "uniform", "low must not exceed high, got ", low, " and ", high);
          return TensorMeta{shape, dtype, device, std::nullopt};
        },
    .kernels = {.cpu = uniform_cpu, .cuda = STRATA_CUDA_KERNEL(uniform_cuda)},
    .draws = [](const Shape& shape, double, double, RngKey, DType dtype,
                Device) { return random_blocks(shape, dtype); },
    .cost = [](const Shape& shape, double, double, RngKey, DType dtype, Device) { return draw_cost(shape, dtype, 25); },
    .samples =
        [](Samples& s) {
          s.add(Shape{3, 5}, 0.0, 1.0, kSampleKey, s.dtype(), Device::cpu());
          s.add(Shape{2049}, -2.0, 3.0, kSampleKey, s.dtype(), Device::cpu());
          s.add(Shape{0}, 0.0, 1.0, kSampleKey, s.dtype(), Device::cpu());
          s.invalid<ValueError>("must not exceed", Shape{3}, 1.0, 0.0, kSampleKey, s.dtype(), Device::cpu());
          s.invalid<DTypeError>("floating", Shape{3}, 0.0, 1.0, kSampleKey, DType::i32, Device::cpu());
          if (s.benchmarking()) s.bench(Shape{4096, 1024}, 0.0, 1.0, kSampleKey, s.dtype(), Device::cpu());
        },
    .reference = by_loops::uniform_numbers,
}};

const Op<Tensor(const Shape&, double, double, RngKey, DType, Device)> normal_op{{
    .schema = "normal(int[] shape, float mean, float std, RngKey key, DType dtype=f32, Device device=cpu) -> Tensor",
    .doc =
        "Normal with the given mean and standard deviation, by Box and Muller's transform: elements 2j and 2j + 1 come "
        "from one pair of uniform numbers.",
    .example = "manual_seed(1); Tensor x = randn({4}); manual_seed(1); assert(randn({4}).to_vector<float>() == "
               "x.to_vector<float>());",
    .infer =
        [](const Shape& shape, double, double std, RngKey, DType dtype, Device device) {
          check_floating(dtype, "normal");
          check(std >= 0, "normal", "the standard deviation must not be negative, got ", std);
          return TensorMeta{shape, dtype, device, std::nullopt};
        },
    .kernels = {.cpu = normal_cpu, .cuda = STRATA_CUDA_KERNEL(normal_cuda)},
    .draws = [](const Shape& shape, double, double, RngKey, DType dtype,
                Device) { return random_blocks(shape, dtype); },
    .cost = [](const Shape& shape, double, double, RngKey, DType dtype, Device) { return draw_cost(shape, dtype, 60); },
    .samples =
        [](Samples& s) {
          s.add(Shape{3, 5}, 0.0, 1.0, kSampleKey, s.dtype(), Device::cpu());
          s.add(Shape{2049}, 1.0, 0.5, kSampleKey, s.dtype(), Device::cpu());
          s.add(Shape{0, 2}, 0.0, 1.0, kSampleKey, s.dtype(), Device::cpu());
          s.invalid<ValueError>("negative", Shape{3}, 0.0, -1.0, kSampleKey, s.dtype(), Device::cpu());
          s.invalid<DTypeError>("floating", Shape{3}, 0.0, 1.0, kSampleKey, DType::u8, Device::cpu());
          if (s.benchmarking()) s.bench(Shape{4096, 1024}, 0.0, 1.0, kSampleKey, s.dtype(), Device::cpu());
        },
    .reference = by_loops::normal_numbers,
}};

const Op<Tensor(const Shape&, double, double, double, double, RngKey, DType, Device)> trunc_normal_op{{
    .schema =
        "trunc_normal(int[] shape, float mean, float std, float low, float high, RngKey key, DType dtype=f32, Device "
        "device=cpu) -> Tensor",
    .doc = "Normal restricted to [low, high], by the inverse of its distribution function.",
    .infer =
        [](const Shape& shape, double, double std, double low, double high, RngKey, DType dtype, Device device) {
          check_floating(dtype, "trunc_normal");
          check(std > 0, "trunc_normal", "the standard deviation must be positive, got ", std);
          check(low < high, "trunc_normal", "low must be below high, got ", low, " and ", high);
          return TensorMeta{shape, dtype, device, std::nullopt};
        },
    .kernels = {.cpu = trunc_normal_cpu, .cuda = STRATA_CUDA_KERNEL(trunc_normal_cuda)},
    .draws = [](const Shape& shape, double, double, double, double, RngKey, DType,
                Device) { return wide_blocks(shape); },
    .cost = [](const Shape& shape, double, double, double, double, RngKey, DType dtype,
               Device) { return draw_cost(shape, dtype, 150); },
    .samples =
        [](Samples& s) {
          s.add(Shape{3, 5}, 0.0, 1.0, -2.0, 2.0, kSampleKey, s.dtype(), Device::cpu());
          s.add(Shape{100}, 1.0, 0.5, 2.0, 2.75, kSampleKey, s.dtype(), Device::cpu());
          s.invalid<ValueError>("below high", Shape{3}, 0.0, 1.0, 2.0, 2.0, kSampleKey, s.dtype(), Device::cpu());
        },
    .reference = by_loops::truncated_normal_numbers,
}};

const Op<Tensor(int64_t, int64_t, const Shape&, RngKey, DType, Device)> randint_op{{
    .schema = "randint(int low, int high, int[] shape, RngKey key, DType dtype=i64, Device device=cpu) -> Tensor",
    .doc = "Integers uniform in [low, high), from 64 random bits each.",
    .example = "for (int64_t v : randint(3, 5, {100}).to_vector<int64_t>()) assert(v == 3 || v == 4);",
    .infer =
        [](int64_t low, int64_t high, const Shape& shape, RngKey, DType dtype, Device device) {
          check(low < high, "randint", "low must be below high, got ", low, " and ", high);
          return TensorMeta{shape, dtype, device, std::nullopt};
        },
    .kernels = {.cpu = randint_cpu, .cuda = STRATA_CUDA_KERNEL(randint_cuda)},
    .draws = [](int64_t, int64_t, const Shape& shape, RngKey, DType, Device) { return wide_blocks(shape); },
    .dtypes = kAllTypes,
    .cost = [](int64_t, int64_t, const Shape& shape, RngKey, DType dtype,
               Device) { return draw_cost(shape, dtype, 50); },
    .samples =
        [](Samples& s) {
          s.add(0, 2, Shape{3, 5}, kSampleKey, s.dtype(), Device::cpu());
          s.add(1, 100, Shape{2049}, kSampleKey, s.dtype(), Device::cpu());
          s.invalid<ValueError>("below high", 2, 2, Shape{3}, kSampleKey, s.dtype(), Device::cpu());
        },
    .reference = by_loops::integers,
}};

const Op<Tensor(const Tensor&, RngKey)> bernoulli_op{{
    .schema = "bernoulli(Tensor p, RngKey key) -> Tensor",
    .shard = "elementwise random",
    .doc =
        "1 with probability p, elementwise, else 0. Its gradient with respect to p is taken as 0. On a CUDA device the "
        "values of p are not checked.",
    .infer =
        [](const Tensor& p, RngKey) {
          check_floating(p.dtype(), "bernoulli");
          return like(p);
        },
    .kernels = {.cpu = bernoulli_cpu, .cuda = STRATA_CUDA_KERNEL(bernoulli_cuda)},
    .draws = [](const Tensor& p, RngKey) { return random_blocks(p.numel(), DType::f32); },
    .cost =
        [](const Tensor& p, RngKey) {
          return Cost{25.0 * static_cast<double>(p.numel()), 2.0 * static_cast<double>(p.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({3, 5}, 0, 1), kSampleKey).not_differentiable();
          s.add(s.uniform({42}, 0, 1).narrow(0, 1, 41), kSampleKey).not_differentiable().named("unaligned");
          s.add(s.integers({3, 7}, 0, 2, s.dtype()), kSampleKey).not_differentiable().named("certain");
          s.add(s.tensor({0}), kSampleKey).not_differentiable();
          s.invalid<ValueError>("lie in [0, 1]", s.uniform({3}, 2, 3), kSampleKey);
          s.invalid<DTypeError>("floating", s.boolean({3}), kSampleKey);
        },
    .reference = by_loops::trials,
}};

const Op<Tensor(const Tensor&, int64_t, bool, RngKey)> multinomial_op{{
    .schema = "multinomial(Tensor weights, int num_samples, bool replacement=false, RngKey key) -> Tensor",
    .shard = "whole",
    .doc = "Indices drawn with probabilities proportional to weights ([n] or [rows, n]): [num_samples] or [rows, "
           "num_samples] i64. ValueError for negative, infinite or all-zero weights, and when without replacement more "
           "are "
           "asked for than have a positive weight; on a CUDA device the values of weights are not checked.",
    .example = "Tensor w = from_span<float>(std::vector<float>{0, 1, 0}, {3}); assert(multinomial(w, 1).item() == 1);",
    .infer =
        [](const Tensor& weights, int64_t num_samples, bool replacement, RngKey) {
          check_floating(weights.dtype(), "multinomial");
          check<ShapeError>(weights.dim() == 1 || weights.dim() == 2, "multinomial",
                            "weights must be [n] or [rows, n], got ", weights);
          check(num_samples >= 1, "multinomial", "num_samples must be at least 1, got ", num_samples);
          const int64_t n = weights.shape().back();
          check<ShapeError>(n > 0, "multinomial", "there are no categories in ", weights);
          check(replacement || num_samples <= n, "multinomial", num_samples, " samples without replacement from ", n,
                " categories");
          Shape shape = weights.shape();
          shape[shape.size() - 1] = num_samples;
          return TensorMeta{shape, DType::i64, weights.device(), std::nullopt};
        },
    .kernels = {.cpu = multinomial_cpu, .cuda = STRATA_CUDA_KERNEL(multinomial_cuda)},
    .draws =
        [](const Tensor& weights, int64_t num_samples, bool replacement, RngKey) {
          const int64_t rows = weights.dim() == 2 ? weights.shape()[0] : 1;
          int64_t n = weights.numel();
          // A result that cannot be is left to infer().
          if (replacement && (num_samples < 0 || __builtin_mul_overflow(rows, num_samples, &n))) n = 0;
          return static_cast<uint64_t>(n);
        },
    .cost =
        [](const Tensor& weights, int64_t, bool, RngKey) {
          return Cost{30.0 * static_cast<double>(weights.numel()), static_cast<double>(weights.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({6}, 0.1, 1), 3, false, kSampleKey).not_differentiable();
          s.add(s.uniform({4, 5}, 0.1, 1), 20, true, kSampleKey).not_differentiable();
          s.invalid<ValueError>("without replacement", s.uniform({3}, 0.1, 1), 4, false, kSampleKey);
          s.invalid<ValueError>("not negative", s.uniform({3}, -2, -1), 1, true, kSampleKey);
          s.invalid<ShapeError>("[rows, n]", s.uniform({2, 2, 3}, 0, 1), 1, true, kSampleKey);
        },
    .reference = by_loops::categories,
}};

const Op<Tensor(int64_t, RngKey, Device)> randperm_op{{
    .schema = "randperm(int n, RngKey key, Device device=cpu) -> Tensor",
    .doc = "A random order of 0 .. n-1, i64.",
    .infer =
        [](int64_t n, RngKey, Device device) {
          check(n >= 0, "randperm", "n must not be negative, got ", n);
          return TensorMeta{{n}, DType::i64, device, std::nullopt};
        },
    .kernels = {.cpu = randperm_cpu, .cuda = STRATA_CUDA_KERNEL(randperm_cuda)},
    .draws = [](int64_t n, RngKey, Device) { return wide_blocks({n}); },
    .dtypes = dtype_bit(DType::i64),
    .cost =
        [](int64_t n, RngKey, Device) {
          return Cost{50.0 * static_cast<double>(n), 8.0 * static_cast<double>(n)};
        },
    .samples =
        [](Samples& s) {
          s.add(10, kSampleKey, Device::cpu());
          s.add(0, kSampleKey, Device::cpu());
          s.invalid<ValueError>("negative", -1, kSampleKey, Device::cpu());
        },
    .reference = by_loops::order,
}};

}  // namespace

Tensor detail::uniform_of(const Shape& shape, double low, double high, RngKey key, DType dtype, Device device) {
  return uniform_op(shape, low, high, key, dtype, device);
}
Tensor detail::normal_of(const Shape& shape, double mean, double std, RngKey key, DType dtype, Device device) {
  return normal_op(shape, mean, std, key, dtype, device);
}
Tensor uniform(const Shape& shape, double low, double high, std::optional<DType> dtype, Generator& g) {
  const DType t = dtype.value_or(default_dtype());
  return uniform_op.drawn(g, shape, low, high, {}, t, default_device());
}
Tensor rand(const Shape& shape, std::optional<DType> dtype, Generator& g) {
  return uniform(shape, 0, 1, dtype, g);
}
Tensor normal(const Shape& shape, double mean, double std, std::optional<DType> dtype, Generator& g) {
  const DType t = dtype.value_or(default_dtype());
  return normal_op.drawn(g, shape, mean, std, {}, t, default_device());
}
Tensor randn(const Shape& shape, std::optional<DType> dtype, Generator& g) {
  return normal(shape, 0, 1, dtype, g);
}
Tensor randint(int64_t low, int64_t high, const Shape& shape, DType dtype, Generator& g) {
  return randint_op.drawn(g, low, high, shape, {}, dtype, default_device());
}
Tensor bernoulli(const Tensor& p, Generator& g) {
  return bernoulli_op.drawn(g, p, {});
}
Tensor multinomial(const Tensor& weights, int64_t num_samples, bool replacement, Generator& g) {
  return multinomial_op.drawn(g, weights, num_samples, replacement, {});
}
Tensor randperm(int64_t n, Generator& g) {
  return randperm_op.drawn(g, n, {}, default_device());
}

Tensor rand_like(const Tensor& x, std::optional<DType> dtype, Generator& g) {
  const DType t = dtype.value_or(x.dtype());
  return uniform_op.drawn(g, x.shape(), 0, 1, {}, t, x.device());
}
Tensor randn_like(const Tensor& x, std::optional<DType> dtype, Generator& g) {
  const DType t = dtype.value_or(x.dtype());
  return normal_op.drawn(g, x.shape(), 0, 1, {}, t, x.device());
}
Tensor randint_like(const Tensor& x, int64_t low, int64_t high, std::optional<DType> dtype, Generator& g) {
  return randint_op.drawn(g, low, high, x.shape(), {}, dtype.value_or(x.dtype()), x.device());
}

void uniform_(const Tensor& x, double low, double high, Generator& g) {
  NoGrad guard;
  Tensor y = x;
  uniform_op.out(y, x.shape(), low, high, g.next(random_blocks(x.numel(), x.dtype())), x.dtype(), x.device());
}
void normal_(const Tensor& x, double mean, double std, Generator& g) {
  NoGrad guard;
  Tensor y = x;
  normal_op.out(y, x.shape(), mean, std, g.next(random_blocks(x.numel(), x.dtype())), x.dtype(), x.device());
}
void trunc_normal_(const Tensor& x, double mean, double std, double low, double high, Generator& g) {
  NoGrad guard;
  Tensor y = x;
  trunc_normal_op.out(y, x.shape(), mean, std, low, high, g.next(random_blocks(x.numel(), DType::i64)), x.dtype(),
                      x.device());
}
void bernoulli_(const Tensor& x, double p, Generator& g) {
  NoGrad guard;
  check(p >= 0 && p <= 1, "bernoulli_", "p must lie in [0, 1], got ", p);
  Tensor probabilities = empty(like(x)), y = x;
  probabilities.fill_(p);
  y.copy_(bernoulli(probabilities, g));
}

}  // namespace strata
