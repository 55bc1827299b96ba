#include "strata/ops/elementwise/elementwise.h"

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise_kernels.h"

namespace strata {
namespace {

Cost binary_cost(const Tensor& a, const Tensor& b) {
  return {static_cast<double>(a.numel()), static_cast<double>(2 * a.nbytes() + b.nbytes())};
}

void binary_samples(Samples& s) {
  s.add(s.tensor({3, 5}), s.tensor({3, 5}));
  s.add(s.tensor({3, 1}), s.tensor({5}));
  s.add(s.tensor({}), s.tensor({2, 2}));
  s.add(s.tensor({0, 3}), s.tensor({3}));
  s.invalid<ShapeError>("do not broadcast", s.tensor({2, 3}), s.tensor({4}));
}

const Op<Tensor(const Tensor&, const Tensor&, Scalar)> add_op{{
    .schema = "add(Tensor a, Tensor b, Scalar alpha=1) -> Tensor",
    .doc = "a + alpha * b, elementwise.",
    .example = "Tensor y = add(full({2}, 1.0), full({2}, 2.0), 10); assert(y.to_vector<float>() == std::vector<float>({21, 21}));",
    .infer = [](const Tensor& a, const Tensor&, Scalar) { return like(a); },
    .kernels = {.cpu = add_cpu},
    .backward = [](Backward& b, const Tensor&, const Tensor&, Scalar alpha) {
      if (b.needs(0)) b.set(0, b.gy());
      if (b.needs(1)) b.set(1, alpha.to_double() == 1 ? b.gy() : b.gy() * alpha);
    },
    .inplace = true,
    .adapt = Adapt::promote,
    .dtypes = kAllTypes,
    .cost = [](const Tensor& a, const Tensor& b, Scalar) { return binary_cost(a, b); },
    .samples = binary_samples,
}};

const Op<Tensor(const Tensor&, const Tensor&)> mul_op{{
    .schema = "mul(Tensor a, Tensor b) -> Tensor",
    .doc = "a * b, elementwise.",
    .infer = [](const Tensor& a, const Tensor&) { return like(a); },
    .kernels = {.cpu = mul_cpu},
    .saves = "a:b b:a",
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b) {
      if (bw.needs(0)) bw.set(0, bw.gy() * b);
      if (bw.needs(1)) bw.set(1, bw.gy() * a);
    },
    .inplace = true,
    .adapt = Adapt::promote,
    .dtypes = kAllTypes,
    .cost = binary_cost,
    .samples = binary_samples,
}};

const Op<Tensor(const Tensor&)> neg_op{{
    .schema = "neg(Tensor x) -> Tensor",
    .doc = "-x, elementwise.",
    .infer = [](const Tensor& x) { return like(x); },
    .kernels = {.cpu = neg_cpu},
    .backward = [](Backward& b, const Tensor&) { b.set(0, -b.gy()); },
    .inplace = true,
    .dtypes = kFloats | kInts,
    .cost = [](const Tensor& x) { return Cost{static_cast<double>(x.numel()), 2.0 * static_cast<double>(x.nbytes())}; },
    .samples = [](Samples& s) { s.add(s.tensor({3, 5})); },
}};

}  // namespace

Tensor add(const Tensor& a, const Tensor& b, Scalar alpha) { return add_op(a, b, alpha); }
Tensor mul(const Tensor& a, const Tensor& b) { return mul_op(a, b); }
Tensor neg(const Tensor& x) { return neg_op(x); }

Tensor& Tensor::add_(const Tensor& other, Scalar alpha) { return add_op.inplace(*this, other, alpha); }
Tensor& Tensor::mul_(const Tensor& other) { return mul_op.inplace(*this, other); }
Tensor& Tensor::add_(Scalar other) { return add_(wrap_number(other, device())); }
Tensor& Tensor::mul_(Scalar other) { return mul_(wrap_number(other, device())); }

Tensor detail::add_tensors(const Tensor& a, const Tensor& b) { return add(a, b); }

}  // namespace strata
