// Records of rounding, and of limits to a range.

#include <cmath>
#include <limits>

#include "strata/ops/elementwise/records.h"

namespace strata {
namespace {

// Integers are their own floor: the public functions return them as they are, the records copy them.
template <Map F>
UnaryOp::Record rounding(UnaryOp::Record r) {
  r.infer = [](const Tensor& x) { return laid_like(x); };
  r.backward = [](Backward& b, const Tensor&) { b.set(0, no_slope(b.gy())); };
  r.dtypes = kNumbers;
  r.samples = samples_kinked;
  r = unary<F>(r, Adapt::none);
  r.kernels = on_each_device([](auto on, Tensor& y, const Tensor& x) {
    if (is_floating(x.dtype())) return map(on, F, y, {&x});
    y.copy_(x);
  });
  return r;
}

const UnaryOp floor_op{rounding<Map::floor>({
    .schema = "floor(Tensor x) -> Tensor",
    .doc = "The largest integer not above x, in x's dtype; integers stay.",
    .reference = pointwise<([](double x) { return std::floor(x); })>,
})};

const UnaryOp ceil_op{rounding<Map::ceil>({
    .schema = "ceil(Tensor x) -> Tensor",
    .doc = "The smallest integer not below x, in x's dtype; integers stay.",
    .reference = pointwise<([](double x) { return std::ceil(x); })>,
})};

const UnaryOp trunc_op{rounding<Map::trunc>({
    .schema = "trunc(Tensor x) -> Tensor",
    .aliases = "fix",
    .doc = "x without its fraction, in x's dtype; integers stay.",
    .reference = pointwise<([](double x) { return std::trunc(x); })>,
})};

// For the reference: halves to even by hand.
double nearest_even(double v) {
  const double low = std::floor(v), left = v - low;
  return left < 0.5 ? low : left > 0.5 ? low + 1 : std::fmod(low, 2) == 0 ? low : low + 1;
}

using RoundOp = Op<Tensor(const Tensor&, int64_t)>;
const RoundOp round_op{{
    .schema = "round(Tensor x, int decimals=0) -> Tensor",
    .doc = "The nearest number of so many decimals, halves to even, in x's dtype: x * 10^decimals rounded and divided "
           "again, so what the product loses is lost. Negative: the nearest multiple of 10^-decimals. Integers stay.",
    .example =
        "assert(round(full({1}, 2.5)).item() == 2 && std::abs(round(full({1}, 1.267), 2).item() - 1.27) < 1e-6);",
    .infer = [](const Tensor& x, int64_t) { return laid_like(x); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, int64_t decimals) {
      if (!is_floating(x.dtype())) return void(y.copy_(x));
      if (decimals == 0) return map(on, Map::round, y, {&x});
      const double scale = std::pow(10.0, std::abs(static_cast<double>(decimals)));
      map(on, Map::round_decimals, y, {&x}, {{scale, decimals < 0}});
    }),
    .backward = [](Backward& b, const Tensor&, int64_t) { b.set(0, no_slope(b.gy())); },
    .inplace = true,
    .dtypes = kNumbers,
    .cost = [](const Tensor& x, int64_t) { return map_cost(2, x, x); },
    .samples =
        [](Samples& s) {
          // off_grid stays away from multiples of 2 and of 1; halves are the kinks here.
          s.add(s.uniform({3, 5}, 0.6, 1.4));
          s.add(s.uniform({3, 5}, -1.4, -0.6));
          s.add(s.uniform({2, 37}, -8, 8)).not_differentiable();
          s.add(s.tensor({2, 0}));
          s.add(s.integers({3, 5}, -40, 40, DType::f32).to(s.dtype()) *
                    (is_floating(s.dtype()) ? Scalar(0.25) : Scalar(1)),
                1)
              .not_differentiable();
          s.add(s.integers({3, 5}, 0, 99, DType::f32).to(s.dtype()), -1).not_differentiable();
          bench_unary(s);
        },
    .reference =
        [](const Tensor& x, int64_t decimals) {
          if (!is_floating(x.dtype())) return x.clone();
          return pointwise<([](double v, int64_t n) {
            const double scale = std::pow(10.0, static_cast<double>(std::abs(n)));
            return n >= 0 ? nearest_even(v * scale) / scale : nearest_even(v / scale) * scale;
          })>(x, decimals);
        },
}};

const UnaryOp frac_op{unary<Map::frac>(
    {
        .schema = "frac(Tensor x) -> Tensor",
        .doc = "x - trunc(x). DTypeError for integers.",
        .infer = [](const Tensor& x) { return like_if(x, kFloats, "frac"); },
        .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy()); },
        .samples =
            [](Samples& s) {
              samples_kinked(s);
              s.invalid<DTypeError>("does not take i32", s.integers({2}, 0, 5, DType::i32));
            },
        .reference = pointwise<([](double x) { return x < 0 ? x - std::ceil(x) : x - std::floor(x); })>,
    },
    Adapt::none)};

using ClampOp = Op<Tensor(const Tensor&, std::optional<Scalar>, std::optional<Scalar>)>;
using ClampBackwardOp = Op<Tensor(const Tensor&, const Tensor&, std::optional<Scalar>, std::optional<Scalar>)>;

// Open sides become bounds that no element passes.
MapParams bounds(std::optional<Scalar> min, std::optional<Scalar> max, DType t) {
  const double inf = HUGE_VAL;
  Scalar low = -inf, high = inf;
  if (!is_floating(t)) {
    const int bits = static_cast<int>(8 * size_of(t));
    low = t == DType::u8 ? int64_t{0} : INT64_MIN >> (64 - bits);
    high = t == DType::u8 ? int64_t{255} : INT64_MAX >> (64 - bits);
  }
  // Bounds outside the dtype's range do not bind.
  const auto fit = [&](Scalar v) {
    if (is_floating(t)) return v;
    return Scalar(std::min(std::max(v.to_int(), low.to_int()), high.to_int()));
  };
  return {{min ? fit(*min) : low, max ? fit(*max) : high, 0}};
}

extern const ClampBackwardOp clamp_backward_op;

const ClampOp clamp_op{{
    .schema = "clamp(Tensor x, Scalar? min=None, Scalar? max=None) -> Tensor",
    .doc = "x limited to [min, max]; max wins where min is above it, NaN stays. The gradient passes where min <= x <= "
           "max. "
           "ValueError when neither bound is given.",
    .infer =
        [](const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
          check(min.has_value() || max.has_value(), "clamp", "at least one of min and max must be given");
          return like_if(x, kFloats | kInts, "clamp");
        },
    .kernels =
        on_each_device([](auto on, Tensor& y, const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
          map(on, Map::clamp, y, {&x}, bounds(min, max, x.dtype()));
        }),
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x, std::optional<Scalar> min,
                   std::optional<Scalar> max) { b.set(0, clamp_backward_op(b.gy(), x, min, max)); },
    .inplace = true,
    .dtypes = kFloats | kInts,
    .cost = [](const Tensor& x, std::optional<Scalar>, std::optional<Scalar>) { return map_cost(2, x, x); },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}), -1, 1);
          s.add(s.off_grid({3, 5}), 0, std::nullopt);
          s.add(s.off_grid({2, 37}), std::nullopt, 1);
          s.add(s.tensor({0}), 0, 1);
          s.invalid<ValueError>("at least one", s.tensor({2}), std::nullopt, std::nullopt);
        },
    .reference = pointwise<([](double x, std::optional<Scalar> min, std::optional<Scalar> max) {
      const double low = min && x < min->to_double() ? min->to_double() : x;
      return max && low > max->to_double() ? max->to_double() : low;
    })>,
}};

const ClampBackwardOp clamp_backward_op{{
    .schema = "clamp_backward(Tensor g, Tensor x, Scalar? min=None, Scalar? max=None) -> Tensor",
    .internal = true,
    .doc = "g where min <= x <= max, else 0: the gradient of clamp.",
    .infer = [](const Tensor& g, const Tensor& x, std::optional<Scalar>,
                std::optional<Scalar>) { return like_if(g, kNumbers, "clamp_backward", x); },
    .kernels = on_each_device(
        [](auto on, Tensor& y, const Tensor& g, const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
          map(on, Map::clamp_backward, y, {&g, &x}, bounds(min, max, x.dtype()));
        }),
    .saves = "x",
    .backward =
        [](Backward& b, const Tensor&, const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
          if (b.needs(0)) b.set(0, clamp_backward_op(b.gy(), x, min, max));
          if (b.needs(1)) b.set(1, no_slope(b.gy()));
        },
    .adapt = Adapt::promote,
    .cost = [](const Tensor& g, const Tensor& x, std::optional<Scalar>,
               std::optional<Scalar>) { return map_cost(2, g, g, x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.off_grid({3, 5}), -1, 1);
          s.add(s.tensor({3, 5}), s.off_grid({3, 5}), 0, std::nullopt);
        },
    .reference = pointwise<([](double g, double x, std::optional<Scalar> min, std::optional<Scalar> max) {
      return (min && x < min->to_double()) || (max && x > max->to_double()) ? 0 : g;
    })>,
}};

// Bounds that are tensors: the gradients are PyTorch's, with which at min <= x <= max x has all of it, also at a tie.
const Op<Tensor(const Tensor&, const Tensor&, const Tensor&)> clamp_between_op{{
    .schema = "clamp_between(Tensor x, Tensor? min=None, Tensor? max=None) -> Tensor",
    .internal = true,
    .doc =
        "clamp whose bounds are tensors. The gradient goes to x where min <= x <= max, to min where x < min < max, to "
        "max where x > max or max < min.",
    .infer =
        [](const Tensor& x, const Tensor& min, const Tensor& max) {
          return like_if(x, kNumbers, "clamp", min.defined() ? min : x, max.defined() ? max : x);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Tensor& min, const Tensor& max) {
      if (min.defined()) map(on, Map::maximum, y, {&x, &min});
      if (max.defined()) map(on, Map::minimum, y, {min.defined() ? &y : &x, &max});
    }),
    .saves = "x min max",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& min, const Tensor& max) {
          const Tensor g = b.gy();
          if (b.needs(0)) {
            Tensor own = g;
            if (min.defined()) own = where(x >= min, own, 0);
            if (max.defined()) own = where(x <= max, own, 0);
            b.set(0, own);
          }
          if (b.needs(1)) {
            const Tensor below = where(x < min, g, 0);
            b.set(1, max.defined() ? where(min < max, below, 0) : below);
          }
          if (b.needs(2)) {
            const Tensor above = x > max;
            b.set(2, where(min.defined() ? logical_or(above, max < min) : above, g, 0));
          }
        },
    .adapt = Adapt::promote,
    .dtypes = kNumbers,
    .cost =
        [](const Tensor& x, const Tensor& min, const Tensor& max) {
          Cost c = map_cost(1, x, x);
          for (const Tensor* t : {&min, &max})
            if (t->defined()) c.bytes += static_cast<double>(t->nbytes());
          return c;
        },
    .samples =
        [](Samples& s) {
          const auto all = [&](const Shape& shape, int64_t v) { return s.integers(shape, v, v + 1, s.dtype()); };
          s.add(s.off_grid({3, 5}), all({3, 5}, -1), all({3, 5}, 1));
          s.add(s.off_grid({3, 37}), all({37}, 0), Tensor());
          s.add(s.off_grid({3, 1}), Tensor(), all({5}, 1));
          s.add(s.off_grid({2, 5}), all({5}, 1), all({2, 1}, -1)).named("min above max");
          s.add(s.tensor({0, 3}), s.tensor({3}), s.tensor({}));
          s.invalid<ShapeError>("do not broadcast", s.tensor({2, 3}), s.tensor({4}), s.tensor({3}));
        },
    .reference =
        [](const Tensor& x, const Tensor& min, const Tensor& max) {
          const auto open = [](const Tensor& t, double v) { return t.defined() ? t : full({}, v, DType::f64); };
          constexpr auto limited = [](double v, double low, double high) {
            const double above = v < low ? low : v;
            return above > high ? high : above;
          };
          return pointwise<limited>(x, open(min, -HUGE_VAL), open(max, HUGE_VAL));
        },
}};

using NanToNumOp = Op<Tensor(const Tensor&, double, std::optional<double>, std::optional<double>)>;
const NanToNumOp nan_to_num_op{{
    .schema = "nan_to_num(Tensor x, float nan=0, float? posinf=None, float? neginf=None) -> Tensor",
    .doc =
        "NaN replaced by nan, infinities by posinf and neginf, or by the dtype's largest finite numbers. The gradient "
        "passes where x is finite. Integers and bool stay.",
    .infer = [](const Tensor& x, double, std::optional<double>, std::optional<double>) { return laid_like(x); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, double nan, std::optional<double> posinf,
                                 std::optional<double> neginf) {
      if (!is_floating(x.dtype())) return void(y.copy_(x));
      const double most = x.dtype() == DType::f64    ? 1.7976931348623157e308
                          : x.dtype() == DType::f16  ? 65504.0
                          : x.dtype() == DType::bf16 ? 3.3895313892515355e38
                                                     : 3.4028234663852886e38;
      map(on, Map::nan_to_num, y, {&x}, {{nan, posinf.value_or(most), neginf.value_or(-most)}});
    }),
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x, double, std::optional<double>,
                   std::optional<double>) { b.set(0, where(isfinite(x), b.gy(), 0)); },
    .inplace = true,
    .dtypes = kAllTypes,
    .cost = [](const Tensor& x, double, std::optional<double>, std::optional<double>) { return map_cost(3, x, x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          if (!is_floating(s.dtype())) return;
          const Tensor x = s.tensor({4});
          const double values[] = {NAN, INFINITY, -INFINITY, 1};
          for (int i = 0; i < 4; ++i) x.select(0, i).fill_(values[i]);
          s.add(x, 1.5, 7.0, -7.0).not_differentiable();
        },
    .reference = pointwise<([](double x, double nan, std::optional<double> posinf, std::optional<double> neginf) {
      if (std::isnan(x)) return nan;
      if (!std::isinf(x)) return x;
      return x > 0 ? posinf.value_or(std::numeric_limits<double>::max())
                   : neginf.value_or(std::numeric_limits<double>::lowest());
    })>,
}};

// Integers are their own floor: no copy, and no change of dtype as in the floating functions.
bool whole(const Tensor& x) {
  return !is_floating(x.dtype());
}

}  // namespace

Tensor floor(const Tensor& x) {
  return whole(x) ? x : floor_op(x);
}
Tensor ceil(const Tensor& x) {
  return whole(x) ? x : ceil_op(x);
}
Tensor round(const Tensor& x) {
  return round(x, 0);
}
Tensor round(const Tensor& x, int64_t decimals) {
  return whole(x) ? x : round_op(x, decimals);
}
Tensor trunc(const Tensor& x) {
  return whole(x) ? x : trunc_op(x);
}
Tensor frac(const Tensor& x) {
  return frac_op(x);
}

Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
  const bool floating = (min && min->kind() == DType::f64) || (max && max->kind() == DType::f64);
  return clamp_op(floating && whole(x) ? x.to(default_dtype()) : x, min, max);
}
Tensor clamp_min(const Tensor& x, Scalar min) {
  return clamp(x, min);
}
Tensor clamp_max(const Tensor& x, Scalar max) {
  return clamp(x, std::nullopt, max);
}
Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max) {
  check(min.defined() || max.defined(), "clamp", "at least one of min and max must be given");
  return clamp_between_op(x, min, max);
}
Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> posinf, std::optional<double> neginf) {
  return whole(x) ? x : nan_to_num_op(x, nan, posinf, neginf);
}

Tensor& floor_(Tensor& x) {
  return whole(x) ? x : floor_op.inplace(x);
}
Tensor& round_(Tensor& x, int64_t decimals) {
  return whole(x) ? x : round_op.inplace(x, decimals);
}
Tensor& ceil_(Tensor& x) {
  return whole(x) ? x : ceil_op.inplace(x);
}
Tensor& trunc_(Tensor& x) {
  return whole(x) ? x : trunc_op.inplace(x);
}
Tensor& clamp_(Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
  return clamp_op.inplace(x, min, max);
}

Tensor Tensor::clamp(std::optional<Scalar> min, std::optional<Scalar> max) const {
  return strata::clamp(*this, min, max);
}

}  // namespace strata
