// Records of what looks into numbers: signs, exponents, neighbours, divisors.

#include <cmath>
#include <cstring>
#include <numeric>

#include "strata/ops/elementwise/frexp_kernel.h"
#include "strata/ops/elementwise/records.h"

namespace strata {
namespace {

using Real = long double;
constexpr double kLn2 = 0.69314718055994530942, kPi = 3.14159265358979323846;

// ---- signs ----

const UnaryOp sgn_op{{
    .schema = "sgn(Tensor x) -> Tensor",
    .inplace_by_copy = true,
    .doc = "sign(x): there are no complex numbers, for which the two differ.",
    .example = "assert(sgn(full({1}, -3.0)).item() == -1);",
    .composed = [](const Tensor& x) { return sign(x); },
    .dtypes = kNumbers,
    .samples = samples_kinked,
    .reference = pointwise<([](double x) { return x > 0   ? 1
                                                  : x < 0 ? -1
                                                          : 0; })>,
}};

// Tests of one tensor: bool results. `whole` is what integers and bool get.
template <Map F>
UnaryOp::Record float_test(UnaryOp::Record r) {
  r.infer = [](const Tensor& x) { return laid_like(x).with_dtype(DType::boolean); };
  if (!r.kernels)
    r.kernels = on_each_device([](auto on, Tensor& y, const Tensor& x) {
      if (is_floating(x.dtype()))
        map(on, F, y, {&x});
      else
        y.fill_(false);
    });
  r.dtypes = kAllTypes;
  r.cost = [](const Tensor& x) { return Cost{0, static_cast<double>(x.nbytes() + x.numel())}; };
  r.samples = [](Samples& s) {
    s.add(s.tensor({3, 5})).not_differentiable();
    s.add(s.tensor({2, 37})).not_differentiable();
    s.add(s.tensor({0})).not_differentiable();
    if (!is_floating(s.dtype())) return;
    const Tensor x = s.tensor({6});
    const double values[] = {0.0, -0.0, -1.0, NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 6; ++i) x.select(0, i).fill_(values[i]);
    s.add(x).named("special values").not_differentiable();
  };
  return r;
}

const UnaryOp signbit_op{float_test<Map::signbit>({
    .schema = "signbit(Tensor x) -> Tensor",
    .doc = "Whether the sign bit is set, that of -0 and of a negative NaN too; bool. Integers: whether x < 0.",
    .example = "assert(signbit(full({1}, -0.0)).item<bool>());",
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x) {
      if (x.dtype() == DType::boolean) return void(y.fill_(false));
      map(on, Map::signbit, y, {&x});
    }),
    .reference = pointwise<([](double x) {
      uint64_t bits = 0;
      std::memcpy(&bits, &x, sizeof bits);
      return bits >> 63 != 0;
    })>,
})};
const UnaryOp isposinf_op{float_test<Map::isposinf>({
    .schema = "isposinf(Tensor x) -> Tensor",
    .doc = "Whether x is +inf; bool.",
    .example = "assert(isposinf(full({1}, INFINITY)).item<bool>());",
    .reference = pointwise<([](double x) { return std::isinf(x) && x > 0; })>,
})};
const UnaryOp isneginf_op{float_test<Map::isneginf>({
    .schema = "isneginf(Tensor x) -> Tensor",
    .doc = "Whether x is -inf; bool.",
    .example = "assert(!isneginf(full({1}, INFINITY)).item<bool>());",
    .reference = pointwise<([](double x) { return std::isinf(x) && x < 0; })>,
})};
const UnaryOp isreal_op{float_test<Map::isposinf>({
    .schema = "isreal(Tensor x) -> Tensor",
    .doc = "True everywhere: there are no complex tensors.",
    .example = "assert(isreal(zeros({1})).item<bool>());",
    .kernels = {.everywhere = [](Tensor& y, const Tensor&) { y.fill_(true); }},
    .reference = pointwise<([](double) { return true; })>,
})};

const UnaryOp angle_op{unary<Map::angle>({
    .schema = "angle(Tensor x) -> Tensor",
    .doc = "pi for negative x, NaN for NaN, else 0; integers become default_dtype(). The gradient is 0.",
    .example = "assert(angle(full({1}, 2.0)).item() == 0);",
    .backward = [](Backward& b, const Tensor&) { b.set(0, no_slope(b.gy())); },
    .samples = samples_kinked,
    .reference = pointwise<([](double x) { return std::atan2(0.0, x == 0 ? 1 : x); })>,
})};

const BinaryOp copysign_op{binary<Map::copysign>(
    {
        .schema = "copysign(Tensor a, Tensor b) -> Tensor",
        .doc =
            "|a| with the sign of b, also that of -0 and NaN; integers become default_dtype(). The gradient at a = 0 "
            "is 0.",
        .example = "assert(copysign(full({1}, 2.0), full({1}, -0.0)).item() == -2);",
        .saves = "a b",
        .backward =
            [](Backward& bw, const Tensor& a, const Tensor& b) {
              if (bw.needs(0)) bw.set(0, where(signbit(b), -bw.gy(), bw.gy()) * sign(a));
              if (bw.needs(1)) bw.set(1, no_slope(bw.gy()));
            },
        .samples =
            [](Samples& s) {
              s.add(s.off_grid({3, 5}), s.off_grid({3, 5}));
              s.add(s.off_grid({3, 1}), s.off_grid({37}));
              s.add(s.tensor({0, 3}), s.tensor({3}));
              s.invalid<ShapeError>("do not broadcast", s.tensor({2, 3}), s.tensor({4}));
            },
        .reference = pointwise<([](double a, double b) { return std::signbit(b) ? -std::abs(a) : std::abs(a); })>,
    },
    Adapt::promote_float)};

const BinaryOp heaviside_op{binary<Map::heaviside>({
    .schema = "heaviside(Tensor x, Tensor values) -> Tensor",
    .doc = "0 where x < 0 or is NaN, `values` where x is 0, 1 above. DTypeError for bool.",
    .example = "assert(heaviside(zeros({1}), full({1}, 0.5)).item() == 0.5);",
    .infer = [](const Tensor& x, const Tensor& b) { return like_if(x, kNumbers, "heaviside", b); },
    .saves = "x",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor&) {
          if (b.needs(0)) b.set(0, no_slope(b.gy()));
          if (b.needs(1)) b.set(1, where(x == 0, b.gy(), 0));
        },
    .dtypes = kNumbers,
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}), s.tensor({3, 5}));
          s.add(s.integers({2, 37}, 0, 2, s.dtype()), s.tensor({37})).not_differentiable();
          s.add(s.tensor({0, 3}), s.tensor({3}));
        },
    .reference = pointwise<([](double x, double v) { return x < 0    ? 0
                                                            : x == 0 ? v
                                                                     : 1; })>,
})};

// ---- exponents and neighbours ----

using FrexpOp = Op<std::tuple<Tensor, Tensor>(const Tensor&)>;
const FrexpOp frexp_op{{
    .schema = "frexp(Tensor x) -> (Tensor mantissa, Tensor exponent)",
    .doc =
        "x = mantissa * 2^exponent, the mantissa of size in [1/2, 1), the exponent in i32; 0 has the exponent 0, and "
        "so do infinities and NaN, which are their own mantissa. The gradient of the mantissa is 2^-exponent. "
        "DTypeError for integers.",
    .example = "auto [m, e] = frexp(full({1}, 6.0)); assert(m.item() == 0.75 && e.item<int>() == 3);",
    .infer = [](const Tensor& x) -> std::array<TensorMeta, 2> {
      const TensorMeta m = like_if(x, kFloats, "frexp");
      return {m, m.with_dtype(DType::i32)};
    },
    .kernels = on_each_device([](auto on, Tensor& mantissa, Tensor& exponent, const Tensor& x) {
      if constexpr (on.cuda)
        if (frexp_at_once_cuda(mantissa, exponent, x)) return;
      map(on, Map::frexp_mantissa, mantissa, {&x});
      Tensor e = empty(laid_like(mantissa));
      map(on, Map::frexp_exponent, e, {&x});
      exponent.copy_(e);
    }),
    .saves = "exponent",
    .backward = [](Backward& b, const Tensor&) { b.set(0, ldexp(b.gy(0), -b.y(1))); },
    .cost = [](const Tensor& x) { return map_cost(2, x, x); },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({3, 5}, 1.1, 1.9));
          s.add(s.uniform({2, 37}, -8, 8)).not_differentiable();
          s.add(s.uniform({5, 3}, 1.1, 1.9).t());
          s.add(s.tensor({2, 0}));
          s.invalid<DTypeError>("does not take i64", s.integers({2}, 0, 5));
        },
    .reference = [](const Tensor& x) -> std::tuple<Tensor, Tensor> {
      constexpr auto exponent_of = [](double v) { return v == 0 ? 0 : std::floor(std::log2(std::abs(v))) + 1; };
      return {pointwise<([](double v) { return v == 0 ? 0 : v / std::exp2(std::ilogb(v) + 1); })>(x),
              pointwise<exponent_of>(x)};
    },
}};

const BinaryOp ldexp_op{binary<Map::ldexp>(
    {
        .schema = "ldexp(Tensor a, Tensor b) -> Tensor",
        .doc = "a * 2^b, for whole b without passing through 2^b; integers become default_dtype().",
        .example = "assert(ldexp(full({1}, 3.0), full({1}, 2)).item() == 12);",
        .saves = "b result",
        .backward =
            [](Backward& bw, const Tensor&, const Tensor& b) {
              if (bw.needs(0)) bw.set(0, ldexp(bw.gy(), b));
              if (bw.needs(1)) bw.set(1, bw.gy() * bw.y() * kLn2);
            },
        .reference = pointwise<([](double a, double b) { return a * std::pow(2.0, b); })>,
    },
    Adapt::promote_float)};

const BinaryOp nextafter_op{{
    .schema = "nextafter(Tensor a, Tensor b) -> Tensor",
    .inplace_by_copy = true,
    .doc = "The neighbour of a in the direction of b. DTypeError unless both are f32 or f64. It has no gradient: "
           "AutogradError where one is asked for.",
    .example = "assert(nextafter(ones({1}), full({1}, 2.0)).item() > 1);",
    .infer = [](const Tensor& a,
                const Tensor& b) { return like_if(a, dtype_bit(DType::f32) | dtype_bit(DType::f64), "nextafter", b); },
    .kernels = map_binary<Map::nextafter>,
    .backward = [](Backward&, const Tensor&,
                   const Tensor&) { throw AutogradError("nextafter", "there is no gradient of a neighbour"); },
    .adapt = Adapt::promote,
    .dtypes = dtype_bit(DType::f32) | dtype_bit(DType::f64),
    .cost = [](const Tensor& a, const Tensor& b) { return map_cost(2, a, a, b); },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}), s.integers({3, 5}, -3, 3, s.dtype())).not_differentiable();
          s.add(s.tensor({0, 3}), s.tensor({3})).not_differentiable();
          s.invalid<DTypeError>("does not take f16", s.tensor({2}, DType::f16), s.tensor({2}, DType::f16));
        },
    // In f64 the neighbour differs by less than any f32's: what the reference can say is a itself.
    .reference = pointwise<([](double a, double b) { return a + (b - a) * 1e-30; })>,
    .tolerance = 2,
    .tolerance_reason = "a neighbour in f32 is none in f64; elementwise_test.cpp compares the bits",
}};

// ---- whole numbers ----

const BinaryOp gcd_op{binary<Map::gcd>({
    .schema = "gcd(Tensor a, Tensor b) -> Tensor",
    .doc = "The greatest common divisor, not negative; of 0 and 0 it is 0. DTypeError unless integers.",
    .example = "assert(gcd(full({1}, 12), full({1}, -18)).item<int>() == 6);",
    .infer = [](const Tensor& a, const Tensor& b) { return like_if(a, kInts, "gcd", b); },
    .dtypes = kInts,
    .samples =
        [](Samples& s) {
          samples_pair(s);
          s.invalid<DTypeError>("does not take f32", s.tensor({2}, DType::f32), s.tensor({2}, DType::f32));
        },
    .reference = pointwise<([](double a, double b) {
      const auto x = static_cast<int64_t>(std::abs(a)), y = static_cast<int64_t>(std::abs(b));
      for (int64_t d = std::max(x, y); d > 0; --d)
        if (x % d == 0 && y % d == 0) return d;
      return int64_t{0};
    })>,
})};
const BinaryOp lcm_op{binary<Map::lcm>({
    .schema = "lcm(Tensor a, Tensor b) -> Tensor",
    .doc = "The least common multiple, not negative; 0 where either is 0; it wraps around. DTypeError unless integers.",
    .example = "assert(lcm(full({1}, 4), full({1}, -6)).item<int>() == 12);",
    .infer = [](const Tensor& a, const Tensor& b) { return like_if(a, kInts, "lcm", b); },
    .dtypes = kInts,
    .samples =
        [](Samples& s) {
          samples_pair(s);
          s.invalid<DTypeError>("does not take f32", s.tensor({2}, DType::f32), s.tensor({2}, DType::f32));
        },
    .reference = pointwise<([](double a, double b) {
      const auto x = static_cast<int64_t>(std::abs(a)), y = static_cast<int64_t>(std::abs(b));
      if (x == 0 || y == 0) return int64_t{0};
      int64_t m = x;
      while (m % y != 0) m += x;
      return m;
    })>,
})};

// ---- other forms of functions ----

const BinaryOp logaddexp2_op{binary<Map::logaddexp2>(
    {
        .schema = "logaddexp2(Tensor a, Tensor b) -> Tensor",
        .doc = "log2(2^a + 2^b), without overflow on the way.",
        .example = "assert(logaddexp2(ones({1}), ones({1})).item() == 2);",
        .saves = "a b",
        .backward =
            [](Backward& bw, const Tensor& a, const Tensor& b) {
              const Tensor d = (a - b) * kLn2;
              if (bw.needs(0)) bw.set(0, bw.gy() * sigmoid(d));
              if (bw.needs(1)) bw.set(1, bw.gy() * sigmoid(-d));
            },
        .reference = pointwise<([](double a, double b) {
          return std::log2(std::exp2(static_cast<Real>(a)) + std::exp2(static_cast<Real>(b)));
        })>,
    },
    Adapt::promote_float)};

const BinaryOp float_power_op{{
    .schema = "float_power(Tensor a, Tensor exponent) -> Tensor",
    .inplace_by_copy = true,
    .doc = "a to the power exponent, both as f64.",
    .example = "assert(float_power(full({1}, 2), full({1}, -1)).item() == 0.5);",
    .composed = [](const Tensor& a, const Tensor& b) { return pow(a.to(DType::f64), b.to(DType::f64)); },
    .dtypes = kNumbers,
    .samples =
        [](Samples& s) {
          const auto base = [&](const Shape& shape) {
            return is_floating(s.dtype()) ? s.uniform(shape, 0.3, 3) : s.integers(shape, 1, 4, s.dtype());
          };
          s.add(base({3, 5}), s.tensor({3, 5}));
          s.add(base({37}), s.tensor({}));
          s.invalid<ShapeError>("do not broadcast", base({2, 3}), s.tensor({4}));
        },
    .reference = pointwise<([](double x, double y) { return std::pow(x, y); })>,
}};

const UnaryOp deg2rad_op{{
    .schema = "deg2rad(Tensor x) -> Tensor",
    .inplace_by_copy = true,
    .doc = "Degrees as radians: x * pi / 180; integers become default_dtype().",
    .example = "assert(std::abs(deg2rad(full({1}, 180)).item() - 3.14159265) < 1e-6);",
    .composed = [](const Tensor& x) { return x * (kPi / 180); },
    .dtypes = kNumbers,
    .samples = samples_smooth,
    .reference = pointwise<([](double x) { return x / 180 * M_PIl; })>,
}};
const UnaryOp rad2deg_op{{
    .schema = "rad2deg(Tensor x) -> Tensor",
    .inplace_by_copy = true,
    .doc = "Radians as degrees: x * 180 / pi; integers become default_dtype().",
    .example = "assert(std::abs(rad2deg(full({1}, 3.14159265)).item() - 180) < 1e-4);",
    .composed = [](const Tensor& x) { return x * (180 / kPi); },
    .dtypes = kNumbers,
    .samples = samples_smooth,
    .reference = pointwise<([](double x) { return x / M_PIl * 180; })>,
}};

}  // namespace

Tensor sgn(const Tensor& x) {
  return sgn_op(x);
}
Tensor signbit(const Tensor& x) {
  return signbit_op(x);
}
Tensor isposinf(const Tensor& x) {
  return isposinf_op(x);
}
Tensor isneginf(const Tensor& x) {
  return isneginf_op(x);
}
Tensor isreal(const Tensor& x) {
  return isreal_op(x);
}
Tensor angle(const Tensor& x) {
  return angle_op(x);
}
Tensor copysign(const Tensor& a, const Tensor& b) {
  return copysign_op(a, b);
}
Tensor heaviside(const Tensor& x, const Tensor& values) {
  return heaviside_op(x, values);
}
std::tuple<Tensor, Tensor> frexp(const Tensor& x) {
  return frexp_op(x);
}
Tensor ldexp(const Tensor& a, const Tensor& b) {
  return ldexp_op(a, b);
}
Tensor nextafter(const Tensor& a, const Tensor& b) {
  return nextafter_op(a, b);
}
Tensor gcd(const Tensor& a, const Tensor& b) {
  return gcd_op(a, b);
}
Tensor lcm(const Tensor& a, const Tensor& b) {
  return lcm_op(a, b);
}
Tensor logaddexp2(const Tensor& a, const Tensor& b) {
  return logaddexp2_op(a, b);
}
Tensor float_power(const Tensor& a, const Tensor& b) {
  return float_power_op(a, b);
}
Tensor deg2rad(const Tensor& x) {
  return deg2rad_op(x);
}
Tensor rad2deg(const Tensor& x) {
  return rad2deg_op(x);
}

}  // namespace strata
