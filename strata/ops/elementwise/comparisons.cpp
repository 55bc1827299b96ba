// Records of comparisons, logic, bits, tests and where.

#include <cmath>

#include "strata/ops/elementwise/isclose_kernel.h"
#include "strata/ops/elementwise/records.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

const BinaryOp eq_op{comparison<Map::eq>({
    .schema = "eq(Tensor a, Tensor b) -> Tensor",
    .doc = "Whether a equals b; bool.",
    .reference = pointwise<([](double a, double b) { return a == b; })>,
})};
const BinaryOp ne_op{comparison<Map::ne>({
    .schema = "ne(Tensor a, Tensor b) -> Tensor",
    .aliases = "not_equal",
    .doc = "Whether a differs from b; bool.",
    .reference = pointwise<([](double a, double b) { return a != b; })>,
})};
const BinaryOp lt_op{comparison<Map::lt>({
    .schema = "lt(Tensor a, Tensor b) -> Tensor",
    .aliases = "less",
    .doc = "Whether a < b; bool.",
    .reference = pointwise<([](double a, double b) { return a < b; })>,
})};
const BinaryOp le_op{comparison<Map::le>({
    .schema = "le(Tensor a, Tensor b) -> Tensor",
    .aliases = "less_equal",
    .doc = "Whether a <= b; bool.",
    .reference = pointwise<([](double a, double b) { return a <= b; })>,
})};
const BinaryOp gt_op{comparison<Map::gt>({
    .schema = "gt(Tensor a, Tensor b) -> Tensor",
    .aliases = "greater",
    .doc = "Whether a > b; bool.",
    .reference = pointwise<([](double a, double b) { return a > b; })>,
})};
const BinaryOp ge_op{comparison<Map::ge>({
    .schema = "ge(Tensor a, Tensor b) -> Tensor",
    .aliases = "greater_equal",
    .doc = "Whether a >= b; bool.",
    .reference = pointwise<([](double a, double b) { return a >= b; })>,
})};
const BinaryOp logical_and_op{comparison<Map::logical_and>({
    .schema = "logical_and(Tensor a, Tensor b) -> Tensor",
    .doc = "Whether a and b are both other than 0; bool.",
    .reference = pointwise<([](double a, double b) { return a != 0 && b != 0; })>,
})};
const BinaryOp logical_or_op{comparison<Map::logical_or>({
    .schema = "logical_or(Tensor a, Tensor b) -> Tensor",
    .doc = "Whether a or b is other than 0; bool.",
    .reference = pointwise<([](double a, double b) { return a != 0 || b != 0; })>,
})};
const BinaryOp logical_xor_op{comparison<Map::logical_xor>({
    .schema = "logical_xor(Tensor a, Tensor b) -> Tensor",
    .doc = "Whether exactly one of a and b is other than 0; bool.",
    .reference = pointwise<([](double a, double b) { return (a != 0) != (b != 0); })>,
})};

// Tests of one tensor.
template <Map F>
UnaryOp::Record test(UnaryOp::Record r) {
  r.infer = [](const Tensor& x) { return laid_like(x).with_dtype(DType::boolean); };
  if (!r.kernels) r.kernels = map_unary<F>;
  r.dtypes = kAllTypes;
  r.cost = [](const Tensor& x) { return Cost{0, static_cast<double>(x.nbytes() + x.numel())}; };
  r.samples = [](Samples& s) {
    s.add(s.integers({3, 5}, 0, 2, s.dtype())).not_differentiable();
    s.add(s.tensor({2, 37})).not_differentiable();
    s.add(s.tensor({0})).not_differentiable();
    if (!is_floating(s.dtype())) return;
    const Tensor x = s.tensor({5});
    const double values[] = {0.0, -1.0, __builtin_nan(""), __builtin_inf(), -__builtin_inf()};
    for (int i = 0; i < 5; ++i) x.select(0, i).fill_(values[i]);
    s.add(x).named("special values").not_differentiable();
  };
  return r;
}

// Integers are never NaN nor infinite.
template <Map F, bool ForIntegers>
constexpr auto test_floating = on_each_device([](auto on, Tensor& y, const Tensor& x) {
  if (is_floating(x.dtype()))
    map(on, F, y, {&x});
  else
    y.fill_(ForIntegers);
});

const UnaryOp logical_not_op{test<Map::logical_not>({
    .schema = "logical_not(Tensor x) -> Tensor",
    .inplace_by_copy = true,
    .doc = "Whether x is 0; bool.",
    .reference = pointwise<([](double x) { return x == 0; })>,
})};
const UnaryOp isnan_op{test<Map::isnan>({
    .schema = "isnan(Tensor x) -> Tensor",
    .doc = "Whether x is not a number; bool.",
    .kernels = test_floating<Map::isnan, false>,
    .reference = pointwise<([](double x) { return std::isnan(x); })>,
})};
const UnaryOp isinf_op{test<Map::isinf>({
    .schema = "isinf(Tensor x) -> Tensor",
    .doc = "Whether x is infinite; bool.",
    .kernels = test_floating<Map::isinf, false>,
    .reference = pointwise<([](double x) { return std::isinf(x); })>,
})};
const UnaryOp isfinite_op{test<Map::isfinite>({
    .schema = "isfinite(Tensor x) -> Tensor",
    .doc = "Whether x is neither NaN nor infinite; bool.",
    .kernels = test_floating<Map::isfinite, true>,
    .reference = pointwise<([](double x) { return std::isfinite(x); })>,
})};

using IscloseOp = Op<Tensor(const Tensor&, const Tensor&, double, double, bool)>;
const IscloseOp isclose_op{{
    .schema = "isclose(Tensor a, Tensor b, float rtol=1e-05, float atol=1e-08, bool equal_nan=false) -> Tensor",
    .doc = "Whether |a - b| <= atol + rtol * |b|; equal infinities are close, two NaN only with equal_nan. Integers "
           "are compared "
           "in f64.",
    .infer =
        [](const Tensor& a, const Tensor& b, double rtol, double atol, bool) {
          check(rtol >= 0 && atol >= 0, "isclose", "rtol ", rtol, " and atol ", atol, " must not be negative");
          return laid_like(a, b).with_dtype(DType::boolean);
        },
    .kernels = on_each_device(
        [](auto on, Tensor& y, const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
          const MapParams p{{rtol, atol, equal_nan}};
          if (is_floating(a.dtype())) return map(on, Map::isclose, y, {&a, &b}, p);
          if constexpr (!on.cuda)
            if (isclose_ints_cpu(y, a, b, rtol, atol)) return;
          const Tensor wide_a = a.to(DType::f64), wide_b = b.to(DType::f64);
          map(on, Map::isclose, y, {&wide_a, &wide_b}, p);
        }),
    .adapt = Adapt::promote,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& a, const Tensor& b, double, double, bool) {
          return Cost{4.0 * static_cast<double>(a.numel()), static_cast<double>(a.nbytes() + b.nbytes() + a.numel())};
        },
    .samples =
        [](Samples& s) {
          const Tensor x = s.integers({3, 5}, 0, 3, s.dtype());
          s.add(x, s.integers({3, 5}, 0, 3, s.dtype())).not_differentiable();
          s.add(x, s.integers({5}, 0, 3, s.dtype()), 0.0, 1.5, true).not_differentiable();
          s.add(s.integers({2, 41}, 0, 100, s.dtype()), s.integers({2, 41}, 0, 100, s.dtype()), 0.1, 2.0)
              .not_differentiable();
          s.invalid<ValueError>("must not be negative", x, x, -1.0);
        },
    .reference = pointwise<([](double a, double b, double rtol, double atol, bool equal_nan) {
      if (std::isnan(a) && std::isnan(b)) return equal_nan;
      return a == b || (std::isfinite(a) && std::isfinite(b) && std::abs(a - b) <= atol + rtol * std::abs(b));
    })>,
}};

// ---- bits ----

constexpr DTypeSet kBits = kInts | kBool;

void samples_bits(Samples& s) {
  samples_compare(s);
  s.add(s.tensor({2, 37}), s.tensor({2, 37}));
  s.invalid<DTypeError>("does not take f32", s.tensor({2}, DType::f32), s.tensor({2}, DType::f32));
}

const BinaryOp bitwise_and_op{binary<Map::bitwise_and>({
    .schema = "bitwise_and(Tensor a, Tensor b) -> Tensor",
    .doc = "The bits set in both a and b. DTypeError for floating tensors.",
    .infer = [](const Tensor& a, const Tensor& b) { return like_if(a, kBits, "bitwise_and", b); },
    .dtypes = kBits,
    .samples = samples_bits,
    .reference = pointwise<([](double a, double b) { return static_cast<int64_t>(a) & static_cast<int64_t>(b); })>,
})};
const BinaryOp bitwise_or_op{binary<Map::bitwise_or>({
    .schema = "bitwise_or(Tensor a, Tensor b) -> Tensor",
    .doc = "The bits set in a or b. DTypeError for floating tensors.",
    .infer = [](const Tensor& a, const Tensor& b) { return like_if(a, kBits, "bitwise_or", b); },
    .dtypes = kBits,
    .samples = samples_bits,
    .reference = pointwise<([](double a, double b) { return static_cast<int64_t>(a) | static_cast<int64_t>(b); })>,
})};
const BinaryOp bitwise_xor_op{binary<Map::bitwise_xor>({
    .schema = "bitwise_xor(Tensor a, Tensor b) -> Tensor",
    .doc = "The bits set in exactly one of a and b. DTypeError for floating tensors.",
    .infer = [](const Tensor& a, const Tensor& b) { return like_if(a, kBits, "bitwise_xor", b); },
    .dtypes = kBits,
    .samples = samples_bits,
    .reference = pointwise<([](double a, double b) { return static_cast<int64_t>(a) ^ static_cast<int64_t>(b); })>,
})};
const UnaryOp bitwise_not_op{unary<Map::bitwise_not>(
    {
        .schema = "bitwise_not(Tensor x) -> Tensor",
        .aliases = "bitwise_invert",
        .doc = "Every bit of x flipped; logical_not for bool. DTypeError for floating tensors.",
        .infer = [](const Tensor& x) { return like_if(x, kBits, "bitwise_not"); },
        .dtypes = kBits,
        .samples =
            [](Samples& s) {
              s.add(s.tensor({3, 5}));
              s.invalid<DTypeError>("does not take f32", s.tensor({2}, DType::f32));
            },
        .reference =
            [](const Tensor& x) {
              return x.dtype() == DType::boolean ? pointwise<([](double v) { return v == 0; })>(x)
                                                 : pointwise<([](double v) { return -v - 1; })>(x);
            },
    },
    Adapt::none)};

void samples_shift(Samples& s) {
  s.add(s.tensor({3, 5}), s.integers({3, 5}, 0, 8, s.dtype()));
  s.add(s.tensor({2, 37}), s.integers({}, 0, 3, s.dtype()));
  s.invalid<DTypeError>("does not take f32", s.tensor({2}, DType::f32), s.tensor({2}, DType::f32));
}
const BinaryOp left_shift_op{binary<Map::left_shift>({
    .schema = "bitwise_left_shift(Tensor a, Tensor b) -> Tensor",
    .doc = "a * 2^b without the bits that leave the dtype; 0 for b outside [0, bits). DTypeError unless integers.",
    .infer = [](const Tensor& a, const Tensor& b) { return like_if(a, kInts, "bitwise_left_shift", b); },
    .dtypes = kInts,
    .samples = samples_shift,
    .reference = pointwise<([](double a, double b) { return a * std::exp2(b); })>,
})};
const BinaryOp right_shift_op{binary<Map::right_shift>({
    .schema = "bitwise_right_shift(Tensor a, Tensor b) -> Tensor",
    .doc = "a / 2^b rounded down; 0, or -1 for negative a, for b outside [0, bits). DTypeError unless integers.",
    .infer = [](const Tensor& a, const Tensor& b) { return like_if(a, kInts, "bitwise_right_shift", b); },
    .dtypes = kInts,
    .samples = samples_shift,
    .reference = pointwise<([](double a, double b) { return std::floor(a / std::exp2(b)); })>,
})};

// ---- where ----

using WhereOp = Op<Tensor(const Tensor&, const Tensor&, const Tensor&)>;
const WhereOp where_op{{
    .schema = "where(Tensor condition, Tensor a, Tensor b) -> Tensor",
    .doc = "a where condition, else b; the three broadcast. DTypeError unless condition is bool.",
    .example = "Tensor x = full({2}, -1.0); assert(where(x < 0, 5, x).sum().item() == 10);",
    .infer =
        [](const Tensor& condition, const Tensor& a, const Tensor& b) {
          check<DTypeError>(condition.dtype() == DType::boolean, "where", "the condition must be bool, got ",
                            condition);
          return laid_like(a, b, condition);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& c, const Tensor& a, const Tensor& b) {
      // Nothing is computed, so 16-bit floats need no conversion.
      if (!is_reduced_floating(a.dtype())) return map(on, Map::where, y, {&c, &a, &b});
      const auto bits = [](const Tensor& t) {
        Tensor r = alias(t, t.shape(), t.strides(), t.storage_offset());
        r.impl().dtype = DType::i16;
        return r;
      };
      Tensor out = bits(y);
      const Tensor a_bits = bits(a), b_bits = bits(b);
      map(on, Map::where, out, {&c, &a_bits, &b_bits});
    }),
    .saves = "condition",
    .backward =
        [](Backward& bw, const Tensor& condition, const Tensor&, const Tensor&) {
          if (bw.needs(1)) bw.set(1, where(condition, bw.gy(), 0));
          if (bw.needs(2)) bw.set(2, where(condition, 0, bw.gy()));
        },
    .adapt = Adapt::promote_but_first,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& c, const Tensor& a, const Tensor& b) {
          return Cost{0, static_cast<double>(c.nbytes() + 2 * a.nbytes() + b.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.boolean({3, 5}), s.tensor({3, 5}), s.tensor({3, 5}));
          s.add(s.boolean({3, 1}), s.tensor({37}), s.tensor({}));
          s.add(s.boolean({0}), s.tensor({0}), s.tensor({1}));
          s.invalid<DTypeError>("must be bool", s.integers({2}, 0, 2), s.tensor({2}), s.tensor({2}));
          s.invalid<ShapeError>("do not broadcast", s.boolean({2}), s.tensor({3}), s.tensor({3}));
          if (s.benchmarking()) s.bench(s.boolean({4096, 4096}), s.tensor({4096, 4096}), s.tensor({4096, 4096}));
        },
    .reference = pointwise<([](double c, double a, double b) { return c != 0 ? a : b; })>,
}};

}  // namespace

Tensor eq(const Tensor& a, const Tensor& b) {
  return eq_op(a, b);
}
Tensor ne(const Tensor& a, const Tensor& b) {
  return ne_op(a, b);
}
Tensor lt(const Tensor& a, const Tensor& b) {
  return lt_op(a, b);
}
Tensor le(const Tensor& a, const Tensor& b) {
  return le_op(a, b);
}
Tensor gt(const Tensor& a, const Tensor& b) {
  return gt_op(a, b);
}
Tensor ge(const Tensor& a, const Tensor& b) {
  return ge_op(a, b);
}
Tensor logical_and(const Tensor& a, const Tensor& b) {
  return logical_and_op(a, b);
}
Tensor logical_or(const Tensor& a, const Tensor& b) {
  return logical_or_op(a, b);
}
Tensor logical_xor(const Tensor& a, const Tensor& b) {
  return logical_xor_op(a, b);
}
Tensor logical_not(const Tensor& x) {
  return logical_not_op(x);
}
Tensor isnan(const Tensor& x) {
  return isnan_op(x);
}
Tensor Tensor::isnan() const {
  return strata::isnan(*this);
}
Tensor isinf(const Tensor& x) {
  return isinf_op(x);
}
Tensor isfinite(const Tensor& x) {
  return isfinite_op(x);
}
Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  return isclose_op(a, b, rtol, atol, equal_nan);
}
bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  return isclose(a, b, rtol, atol, equal_nan).all().item<bool>();
}
bool equal(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && eq(a, b).all().item<bool>();
}
Tensor bitwise_and(const Tensor& a, const Tensor& b) {
  return bitwise_and_op(a, b);
}
Tensor bitwise_or(const Tensor& a, const Tensor& b) {
  return bitwise_or_op(a, b);
}
Tensor bitwise_xor(const Tensor& a, const Tensor& b) {
  return bitwise_xor_op(a, b);
}
Tensor bitwise_not(const Tensor& x) {
  return bitwise_not_op(x);
}
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b) {
  return left_shift_op(a, b);
}
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b) {
  return right_shift_op(a, b);
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return where_op(condition, a, b);
}
Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  return where_op(condition, a, number(b, a));
}
Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  return where_op(condition, number(a, b), b);
}
Tensor where(const Tensor& condition, Scalar a, Scalar b) {
  return where_op(condition, number(a, condition), number(b, condition));
}

}  // namespace strata
