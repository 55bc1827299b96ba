#pragma once
// What the records of elementwise functions share. A record gives its schema, doc and gradient; unary<> and binary<>
// fill in the rest.

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/elementwise/reference_inl.h"
#include "strata/ops/factory/factory.h"

namespace strata {

using UnaryOp = Op<Tensor(const Tensor&)>;
using BinaryOp = Op<Tensor(const Tensor&, const Tensor&)>;

/// elu with all its numbers, x where positive, else alpha (exp(input_scale x) - 1), times scale: what elu, selu and
/// celu are.
Tensor elu_of(const Tensor& x, double alpha, double scale, double input_scale);
/// g times the derivative of logit at x, limited to [eps, 1 - eps] unless eps is negative.
Tensor logit_backward(const Tensor& g, const Tensor& x, double eps);

inline constexpr DTypeSet kNumbers = kFloats | kInts;

/// laid_like() of operands; refuses dtypes outside `set` from infer, so that a dry run refuses them too.
template <class... T>
TensorMeta like_if(const Tensor& x, DTypeSet set, std::string_view op, const T&... more) {
  check<DTypeError>((set & dtype_bit(x.dtype())) != 0, op, "does not take ", x.dtype(), " tensors, got ", x);
  return laid_like(x, more...);
}

/// Least bytes for tensors each moved once, and a few operations an element.
template <class... T>
Cost map_cost(double flops, const Tensor& y, const T&... in) {
  return {flops * static_cast<double>(y.numel()), static_cast<double>((y.nbytes() + ... + in.nbytes()))};
}

// ---- samples, by domain ----

inline void bench_unary(Samples& s) {
  if (s.benchmarking()) s.bench(s.tensor({4096, 4096}));
}
inline void samples_smooth(Samples& s) {
  s.add(s.tensor({3, 5}));
  s.add(s.tensor({}));
  s.add(s.tensor({2, 0}));
  s.add(s.uniform({2, 37}, -6, 6)).named("wide");
  bench_unary(s);
}
inline void samples_kinked(Samples& s) {
  s.add(s.off_grid({3, 5}));
  s.add(s.off_grid({}));
  s.add(s.tensor({2, 0}));
  s.add(s.uniform({2, 37}, -8, 8)).named("wide").not_differentiable();
  bench_unary(s);
}
template <int Low100, int High100>
void samples_between(Samples& s) {
  constexpr double low = Low100 / 100.0, high = High100 / 100.0;
  s.add(s.uniform({3, 5}, low, high));
  s.add(s.uniform({}, low, high));
  s.add(s.tensor({2, 0}));
  s.add(s.uniform({2, 37}, low, high));
  if (s.benchmarking()) s.bench(s.uniform({4096, 4096}, low, high));
}
inline void samples_positive(Samples& s) {
  samples_between<30, 400>(s);
  s.add(s.uniform({40}, 1, 1000)).named("large");
}

inline void samples_pair(Samples& s) {
  s.add(s.tensor({3, 5}), s.tensor({3, 5}));
  s.add(s.tensor({3, 1}), s.tensor({5}));
  s.add(s.tensor({}), s.tensor({2, 2}));
  s.add(s.tensor({2, 37}), s.tensor({2, 1}));
  s.add(s.tensor({0, 3}), s.tensor({3}));
  s.invalid<ShapeError>("do not broadcast", s.tensor({2, 3}), s.tensor({4}));
  if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), s.tensor({4096, 4096}));
}
/// Pairs with no element near 0 in the second, for division.
inline void samples_quotient(Samples& s) {
  s.add(s.tensor({3, 5}), s.off_grid({3, 5}));
  s.add(s.tensor({3, 1}), s.off_grid({5}));
  s.add(s.tensor({2, 37}), s.off_grid({}));
  s.add(s.tensor({0, 3}), s.off_grid({3}));
  s.invalid<ShapeError>("do not broadcast", s.tensor({2, 3}), s.off_grid({4}));
  if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), s.off_grid({4096, 4096}));
}
/// Pairs in which a and b differ everywhere: for maximum and comparisons.
inline void samples_distinct(Samples& s) {
  s.add(s.off_grid({3, 5}), s.integers({3, 5}, -1, 2, s.dtype()));
  s.add(s.off_grid({3, 1}), s.integers({5}, 0, 2, s.dtype()));
  s.add(s.tensor({0, 3}), s.tensor({3}));
  s.invalid<ShapeError>("do not broadcast", s.tensor({2, 3}), s.tensor({4}));
}
inline void samples_compare(Samples& s) {
  s.add(s.integers({3, 5}, 0, 3, s.dtype()), s.integers({3, 5}, 0, 3, s.dtype())).not_differentiable();
  s.add(s.integers({3, 1}, 0, 3, s.dtype()), s.integers({37}, 0, 3, s.dtype())).not_differentiable();
  s.add(s.tensor({0, 3}), s.tensor({3})).not_differentiable();
  s.invalid<ShapeError>("do not broadcast", s.tensor({2, 3}), s.tensor({4}));
}

// ---- records ----

/// The kernels of a function without parameters.
template <Map F>
inline constexpr auto map_unary = on_each_device([](auto on, Tensor& y, const Tensor& x) { map(on, F, y, {&x}); });
template <Map F>
inline constexpr auto map_binary = on_each_device([](auto on, Tensor& y, const Tensor& a, const Tensor& b) {
  map(on, F, y, {&a, &b});
});

/// A function of one argument: of floats (integers become default_dtype()) unless `adapt` says otherwise.
template <Map F>
UnaryOp::Record unary(UnaryOp::Record r, Adapt adapt = Adapt::promote_float) {
  if (!r.infer) r.infer = [](const Tensor& x) { return laid_like(x); };
  r.kernels = map_unary<F>;
  r.inplace = true;
  r.adapt = adapt;
  if (!r.cost) r.cost = [](const Tensor& x) { return map_cost(1, x, x); };
  if (!r.samples) r.samples = samples_smooth;
  return r;
}

template <Map F>
BinaryOp::Record binary(BinaryOp::Record r, Adapt adapt = Adapt::promote) {
  if (!r.infer) r.infer = [](const Tensor& a, const Tensor& b) { return laid_like(a, b); };
  r.kernels = map_binary<F>;
  r.inplace = true;
  r.adapt = adapt;
  if (!r.cost) r.cost = [](const Tensor& a, const Tensor& b) { return map_cost(1, a, a, b); };
  if (!r.samples) r.samples = samples_pair;
  return r;
}

/// A test of one tensor, or of two broadcast tensors, with bool results and no gradient.
template <Map F>
BinaryOp::Record comparison(BinaryOp::Record r) {
  r.infer = [](const Tensor& a, const Tensor& b) { return laid_like(a, b).with_dtype(DType::boolean); };
  r.kernels = map_binary<F>;
  r.inplace_by_copy = true;
  r.adapt = Adapt::promote;
  r.dtypes = kAllTypes;
  r.cost = [](const Tensor& a, const Tensor& b) {
    return Cost{static_cast<double>(a.numel()), static_cast<double>(a.nbytes() + b.nbytes() + a.numel())};
  };
  r.samples = samples_compare;
  return r;
}

/// The number as a tensor that yields to `x` in promotion.
inline Tensor number(Scalar v, const Tensor& x) {
  return wrap_number(v, x.device());
}
/// g times a constant of the op.
inline Tensor scaled(const Tensor& g, Scalar by) {
  return by.to_double() == 1 ? g : g * by;
}
/// 0 with the shape of g, for functions that are flat almost everywhere.
inline Tensor no_slope(const Tensor& g) {
  return zeros_like(g);
}

}  // namespace strata
