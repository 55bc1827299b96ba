// Records of sums, products and quotients.

#include <cmath>

#include "strata/core/mixed_way.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/mixed_kernel.h"
#include "strata/ops/elementwise/records.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using ScaledOp = Op<Tensor(const Tensor&, const Tensor&, Scalar)>;

// ---- sums and products ----

const ScaledOp add_op{{
    .schema = "add(Tensor a, Tensor b, Scalar alpha=1) -> Tensor",
    .shard = "elementwise linear",
    .doc = "a + alpha * b. Integers wrap around; bool adds as \"or\".",
    .example = "Tensor y = add(full({2}, 1.0), full({2}, 2.0), 10); assert(y.to_vector<float>() == "
               "std::vector<float>({21, 21}));",
    .infer = [](const Tensor& a, const Tensor& b, Scalar) { return laid_like(a, b); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& a, const Tensor& b, Scalar alpha) {
      map(on, Map::add, y, {&a, &b}, {{alpha}});
    }),
    .backward =
        [](Backward& b, const Tensor&, const Tensor&, Scalar alpha) {
          if (b.needs(0)) b.set(0, b.gy());
          if (b.needs(1)) b.set(1, scaled(b.gy(), alpha));
        },
    .inplace = true,
    .adapt = Adapt::promote,
    .dtypes = kAllTypes,
    .cost = [](const Tensor& a, const Tensor& b, Scalar) { return map_cost(1, a, a, b); },
    .samples =
        [](Samples& s) {
          samples_pair(s);
          s.add(s.tensor({3, 5}), s.tensor({3, 5}), 3);
        },
    .reference = pointwise<([](double a, double b, Scalar alpha) { return a + alpha.to_double() * b; })>,
}};
const detail::MixedWay add_way(add_op, add_mixed_way, add_mixed_way_inplace);

const ScaledOp sub_op{{
    .schema = "sub(Tensor a, Tensor b, Scalar alpha=1) -> Tensor",
    .shard = "elementwise linear",
    .aliases = "subtract",
    .doc = "a - alpha * b. Integers wrap around; DTypeError for two bool tensors (use logical_xor).",
    .infer = [](const Tensor& a, const Tensor& b, Scalar) { return like_if(a, kNumbers, "sub", b); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& a, const Tensor& b, Scalar alpha) {
      map(on, Map::sub, y, {&a, &b}, {{alpha}});
    }),
    .backward =
        [](Backward& b, const Tensor&, const Tensor&, Scalar alpha) {
          if (b.needs(0)) b.set(0, b.gy());
          if (b.needs(1)) b.set(1, -scaled(b.gy(), alpha));
        },
    .inplace = true,
    .adapt = Adapt::promote,
    .dtypes = kNumbers,
    .cost = [](const Tensor& a, const Tensor& b, Scalar) { return map_cost(1, a, a, b); },
    .samples =
        [](Samples& s) {
          samples_pair(s);
          s.add(s.tensor({3, 5}), s.tensor({3, 5}), 2);
          s.invalid<DTypeError>("does not take bool", s.boolean({2}), s.boolean({2}));
        },
    .reference = pointwise<([](double a, double b, Scalar alpha) { return a - alpha.to_double() * b; })>,
}};

const BinaryOp mul_op{binary<Map::mul>({
    .schema = "mul(Tensor a, Tensor b) -> Tensor",
    .aliases = "multiply",
    .doc = "a * b. Integers wrap around; bool multiplies as \"and\".",
    .saves = "a:b b:a",
    .backward =
        [](Backward& bw, const Tensor& a, const Tensor& b) {
          if (bw.needs(0)) bw.set(0, bw.gy() * b);
          if (bw.needs(1)) bw.set(1, bw.gy() * a);
        },
    .dtypes = kAllTypes,
    .reference = pointwise<([](double a, double b) { return a * b; })>,
})};
const detail::MixedWay mul_way(mul_op, mul_mixed_way, mul_mixed_way_inplace);

// ---- a floating tensor and a number ----
// The number is used as it is: a bf16 tensor times 0.1 is not first rounded to bf16(0.1), and no tensor is made for it.
// Integers take the way through promotion, as do numbers that would change the dtype.

using NumberOp = Op<Tensor(const Tensor&, Scalar)>;

template <Map F>
NumberOp::Record with_number(NumberOp::Record r) {
  r.infer = [](const Tensor& x, Scalar) { return like_if(x, kFloats, "arithmetic with a number"); };
  r.kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, Scalar v) { map(on, F, y, {&x}, {{v}}); });
  r.inplace = true;
  r.cost = [](const Tensor& x, Scalar) { return map_cost(1, x, x); };
  r.samples = [](Samples& s) {
    s.add(s.tensor({3, 5}), Scalar(1.7));
    s.add(s.tensor({2, 37}), Scalar(-3));
    s.add(s.tensor({0}), Scalar(2));
    if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), Scalar(1.7));
  };
  return r;
}

const NumberOp add_scalar_op{with_number<Map::add_scalar>({
    .schema = "add_scalar(Tensor x, Scalar value) -> Tensor",
    .doc = "x + value for a floating tensor; add(x, value).",
    .backward = [](Backward& b, const Tensor&, Scalar) { b.set(0, b.gy()); },
    .reference = pointwise<([](double x, Scalar v) { return x + v.to_double(); })>,
})};
const NumberOp rsub_scalar_op{with_number<Map::rsub_scalar>({
    .schema = "rsub_scalar(Tensor x, Scalar value) -> Tensor",
    .doc = "value - x for a floating tensor; rsub(x, value).",
    .backward = [](Backward& b, const Tensor&, Scalar) { b.set(0, -b.gy()); },
    .reference = pointwise<([](double x, Scalar v) { return v.to_double() - x; })>,
})};
const NumberOp mul_scalar_op{with_number<Map::mul_scalar>({
    .schema = "mul_scalar(Tensor x, Scalar value) -> Tensor",
    .shard = "elementwise linear",
    .doc = "x * value for a floating tensor; mul(x, value).",
    // A factor of one, as a ratio that happens to be one, leaves the gradient what it is.
    .backward = [](Backward& b, const Tensor&, Scalar v) { b.set(0, v.to_double() == 1 ? b.gy() : b.gy() * v); },
    .reference = pointwise<([](double x, Scalar v) { return x * v.to_double(); })>,
})};
const NumberOp div_scalar_op{with_number<Map::div_scalar>({
    .schema = "div_scalar(Tensor x, Scalar value) -> Tensor",
    .shard = "elementwise linear",
    .doc = "x / value for a floating tensor; div(x, value).",
    .backward = [](Backward& b, const Tensor&, Scalar v) { b.set(0, v.to_double() == 1 ? b.gy() : b.gy() / v); },
    .reference = pointwise<([](double x, Scalar v) { return x / v.to_double(); })>,
})};

// ---- division ----

const BinaryOp div_op{binary<Map::div>(
    {
        .schema = "div(Tensor a, Tensor b) -> Tensor",
        .doc = "a / b; integers become default_dtype(). floor_divide and trunc_divide round.",
        .saves = "a:b b",
        .backward =
            [](Backward& bw, const Tensor& a, const Tensor& b) {
              const Tensor ga = bw.gy() / b;
              if (bw.needs(0)) bw.set(0, ga);
              if (bw.needs(1)) bw.set(1, -(ga * (a / b)));
            },
        .samples = samples_quotient,
        .reference = pointwise<([](double a, double b) { return a / b; })>,
    },
    Adapt::promote_float)};

// Quotients off the whole numbers, where the rounded ones jump; no zero among the integers.
void samples_rounded_quotient(Samples& s) {
  if (is_floating(s.dtype())) {
    s.add(s.off_grid({3, 5}), s.integers({3, 5}, 0, 2, s.dtype()) * 2 - 1);
    s.add(s.off_grid({2, 37}), full({}, -1, s.dtype()));
    s.add(s.uniform({2, 37}, -9, 9), s.off_grid({2, 37})).not_differentiable();
  } else {
    s.add(s.tensor({3, 5}), s.integers({3, 5}, 1, 4, s.dtype()));
    s.add(s.tensor({2, 37}), s.integers({}, 1, 4, s.dtype()));
    if (s.dtype() != DType::u8) s.add(s.tensor({2, 37}), s.integers({2, 37}, -3, 0, s.dtype()));
    s.invalid<ValueError>("division by zero", s.tensor({3}), full({3}, 0, s.dtype()));
  }
  s.add(s.tensor({0, 3}), s.tensor({3}));
}

const BinaryOp floor_divide_op{binary<Map::floor_divide>({
    .schema = "floor_divide(Tensor a, Tensor b) -> Tensor",
    .doc = "floor(a / b), keeping integer dtypes. ValueError for an integer division by zero. Its gradient is 0.",
    .example = "assert(floor_divide(full({1}, -7), 2).item<int>() == -4);",
    .infer = [](const Tensor& a, const Tensor& b) { return like_if(a, kNumbers, "floor_divide", b); },
    .backward =
        [](Backward& b, const Tensor&, const Tensor&) {
          for (int i = 0; i < 2; ++i)
            if (b.needs(i)) b.set(i, no_slope(b.gy()));
        },
    .dtypes = kNumbers,
    .samples = samples_rounded_quotient,
    .reference = pointwise<([](double a, double b) { return std::floor(a / b); })>,
})};

const BinaryOp trunc_divide_op{binary<Map::trunc_divide>({
    .schema = "trunc_divide(Tensor a, Tensor b) -> Tensor",
    .doc = "a / b without its fraction, keeping integer dtypes. ValueError for an integer division by zero. Its "
           "gradient is 0.",
    .infer = [](const Tensor& a, const Tensor& b) { return like_if(a, kNumbers, "trunc_divide", b); },
    .backward =
        [](Backward& b, const Tensor&, const Tensor&) {
          for (int i = 0; i < 2; ++i)
            if (b.needs(i)) b.set(i, no_slope(b.gy()));
        },
    .dtypes = kNumbers,
    .samples = samples_rounded_quotient,
    .reference = pointwise<([](double a, double b) { return std::trunc(a / b); })>,
})};

const BinaryOp remainder_op{binary<Map::remainder>({
    .schema = "remainder(Tensor a, Tensor b) -> Tensor",
    .doc = "a - b * floor(a / b): it has the sign of b, as Python's %. ValueError for an integer division by zero.",
    .infer = [](const Tensor& a, const Tensor& b) { return like_if(a, kNumbers, "remainder", b); },
    .saves = "a:b b:b",
    .backward =
        [](Backward& bw, const Tensor& a, const Tensor& b) {
          if (bw.needs(0)) bw.set(0, bw.gy());
          if (bw.needs(1)) bw.set(1, -(bw.gy() * floor_divide(a, b)));
        },
    .dtypes = kNumbers,
    .samples = samples_rounded_quotient,
    .reference = pointwise<([](double a, double b) { return a - b * std::floor(a / b); })>,
})};

const BinaryOp fmod_op{binary<Map::fmod>({
    .schema = "fmod(Tensor a, Tensor b) -> Tensor",
    .doc = "a - b * trunc(a / b): it has the sign of a, as C's fmod. ValueError for an integer division by zero.",
    .infer = [](const Tensor& a, const Tensor& b) { return like_if(a, kNumbers, "fmod", b); },
    .saves = "a:b b:b",
    .backward =
        [](Backward& bw, const Tensor& a, const Tensor& b) {
          if (bw.needs(0)) bw.set(0, bw.gy());
          if (bw.needs(1)) bw.set(1, -(bw.gy() * trunc_divide(a, b)));
        },
    .dtypes = kNumbers,
    .samples = samples_rounded_quotient,
    .reference = pointwise<([](double a, double b) { return a - b * std::trunc(a / b); })>,
})};

// The value of alpha * b, where it can be used without promotion.
std::optional<Scalar> as_number(const Tensor& a, Scalar b, Scalar alpha = 1) {
  if (!a.defined() || !is_floating(a.dtype()) || a.impl().wrapped_number) return std::nullopt;
  return alpha.to_double() == 1 ? b : Scalar(b.to_double() * alpha.to_double());
}

// Integers that meet a floating number become default_dtype(). As a tensor of one element the number would cost a card
// two launches more.
Tensor beside(const Tensor& a, Scalar b) {
  const bool widens = a.defined() && !is_floating(a.dtype()) && !a.impl().wrapped_number && b.kind() == DType::f64;
  return widens ? to(a, default_dtype()) : a;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b, Scalar alpha) {
  return add_op(a, b, alpha);
}
Tensor Tensor::add(const Tensor& other, Scalar alpha) const {
  return strata::add(*this, other, alpha);
}
Tensor add(const Tensor& a, Scalar b, Scalar alpha) {
  const auto v = as_number(a, b, alpha);
  return v ? add_scalar_op(a, *v) : add_op(a, number(b, a), alpha);
}
Tensor sub(const Tensor& a, const Tensor& b, Scalar alpha) {
  return sub_op(a, b, alpha);
}
Tensor sub(const Tensor& a, Scalar b, Scalar alpha) {
  const auto v = as_number(a, b, alpha);
  return v ? add_scalar_op(a, -v->to_double()) : sub_op(a, number(b, a), alpha);
}
Tensor rsub(const Tensor& a, Scalar b, Scalar alpha) {
  const bool plain = alpha.to_double() == 1 && as_number(a, b);
  return plain ? rsub_scalar_op(a, b) : sub_op(number(b, a), a, alpha);
}
Tensor mul(const Tensor& a, const Tensor& b) {
  return mul_op(a, b);
}
Tensor mul(const Tensor& whole, Scalar b) {
  const Tensor a = beside(whole, b);
  return as_number(a, b) ? mul_scalar_op(a, b) : mul_op(a, number(b, a));
}
Tensor div(const Tensor& a, const Tensor& b) {
  return div_op(a, b);
}
Tensor div(const Tensor& a, Scalar b) {
  return as_number(a, b) ? div_scalar_op(a, b) : div_op(a, number(b, a));
}
Tensor div(const Tensor& a, const Tensor& b, std::string_view rounding_mode) {
  if (rounding_mode.empty()) return div_op(a, b);
  check(rounding_mode == "floor" || rounding_mode == "trunc", "div", "rounding_mode is \"", rounding_mode,
        "\", it can be \"floor\", \"trunc\" or empty");
  return rounding_mode == "floor" ? floor_divide_op(a, b) : trunc_divide_op(a, b);
}
Tensor floor_divide(const Tensor& a, const Tensor& b) {
  return floor_divide_op(a, b);
}
Tensor floor_divide(const Tensor& a, Scalar b) {
  return floor_divide_op(a, number(b, a));
}
Tensor trunc_divide(const Tensor& a, const Tensor& b) {
  return trunc_divide_op(a, b);
}
Tensor remainder(const Tensor& a, const Tensor& b) {
  return remainder_op(a, b);
}
Tensor remainder(const Tensor& a, Scalar b) {
  return remainder_op(a, number(b, a));
}
Tensor fmod(const Tensor& a, const Tensor& b) {
  return fmod_op(a, b);
}
Tensor fmod(const Tensor& a, Scalar b) {
  return fmod_op(a, number(b, a));
}
Tensor& Tensor::add_(const Tensor& other, Scalar alpha) {
  return add_op.inplace(*this, other, alpha);
}
Tensor& Tensor::sub_(const Tensor& other, Scalar alpha) {
  return sub_op.inplace(*this, other, alpha);
}
Tensor& Tensor::mul_(const Tensor& other) {
  return mul_op.inplace(*this, other);
}
Tensor& Tensor::div_(const Tensor& other) {
  return div_op.inplace(*this, other);
}
Tensor& Tensor::add_(Scalar other) {
  return as_number(*this, other) ? add_scalar_op.inplace(*this, other) : add_(number(other, *this));
}
Tensor& Tensor::mul_(Scalar other) {
  return as_number(*this, other) ? mul_scalar_op.inplace(*this, other) : mul_(number(other, *this));
}
Tensor& sub_(Tensor& x, const Tensor& other, Scalar alpha) {
  return sub_op.inplace(x, other, alpha);
}
Tensor& sub_(Tensor& x, Scalar other) {
  return as_number(x, other) ? add_scalar_op.inplace(x, Scalar(-other.to_double()))
                             : sub_op.inplace(x, number(other, x), Scalar(1));
}
Tensor& div_(Tensor& x, const Tensor& other) {
  return div_op.inplace(x, other);
}
Tensor& div_(Tensor& x, Scalar other) {
  return as_number(x, other) ? div_scalar_op.inplace(x, other) : div_op.inplace(x, number(other, x));
}
Tensor& div_(Tensor& x, const Tensor& other, std::string_view rounding_mode) {
  if (rounding_mode.empty()) return div_op.inplace(x, other);
  check(rounding_mode == "floor" || rounding_mode == "trunc", "div_", "rounding_mode is \"", rounding_mode,
        "\", it can be \"floor\", \"trunc\" or empty");
  return rounding_mode == "floor" ? floor_divide_op.inplace(x, other) : trunc_divide_op.inplace(x, other);
}

}  // namespace strata
