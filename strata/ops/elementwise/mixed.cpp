// Sums and products of an f32 tensor and one of another dtype that promotion would copy first: residual connections and
// rotations under autocast, masks, and their gradients.

#include <algorithm>
#include <optional>

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/elementwise/mixed_kernel.h"
#include "strata/ops/elementwise/records.h"
#include "strata/ops/elementwise/reference_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr DTypeSet kAbsorbed = dtype_bit(DType::bf16) | dtype_bit(DType::f16) | kInts | kBool;  // f32 with it is f32

bool absorbs(const Tensor& wide, const Tensor& other) {
  return wide.dtype() == DType::f32 && (kAbsorbed & dtype_bit(other.dtype())) != 0;
}

TensorMeta mixed_infer(std::string_view op, const Tensor& a, const Tensor& b) {
  check<DTypeError>(absorbs(a, b), op, "a is ", a, " and b is ", b, ", wants f32 and a dtype that it absorbs");
  check<ShapeError>(a.shape() == b.shape(), op, "shapes differ: a is ", a, ", b is ", b);
  return laid_like(a, b);
}

void mixed_samples(Samples& s) {
  s.add(s.tensor({3, 5}, DType::f32), s.tensor({3, 5}));
  s.add(s.tensor({70}, DType::f32), s.tensor({70}));
  s.add(s.tensor({5, 3}, DType::f32).t(), s.tensor({3, 5})).named("strided");
  s.add(s.tensor({3, 20}, DType::f32), s.tensor({3, 1}).expand({3, 20})).named("expanded");
  s.add(s.tensor({}, DType::f32), s.tensor({})).named("0-dim");
  s.add(s.tensor({0, 4}, DType::f32), s.tensor({0, 4})).named("empty");
  s.invalid<ShapeError>("shapes differ", s.tensor({3, 5}, DType::f32), s.tensor({5}));
  s.invalid<DTypeError>("wants f32", s.tensor({3}), s.tensor({3}));
  if (s.benchmarking()) s.bench(s.tensor({4096, 4096}, DType::f32), s.tensor({4096, 4096}));
}

const Op<Tensor(const Tensor&, const Tensor&, Scalar)> add_mixed_op{{
    .schema = "add_mixed(Tensor a, Tensor b, Scalar alpha=1) -> Tensor",
    .internal = true,
    .doc = "a + alpha * b for an f32 tensor a and b of its shape that is bf16, f16, an integer or bool: the numbers of "
           "add, which would make an f32 copy of b first.",
    .infer = [](const Tensor& a, const Tensor& b, Scalar) { return mixed_infer("add_mixed", a, b); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& a, const Tensor& b, Scalar alpha) {
      if constexpr (on.cuda)
        add_mixed_cuda(y, a, b, static_cast<float>(alpha.to_double()));
      else
        add_mixed_cpu(y, a, b, static_cast<float>(alpha.to_double()));
    }),
    .backward =
        [](Backward& bw, const Tensor&, const Tensor& b, Scalar alpha) {
          if (bw.needs(0)) bw.set(0, bw.gy());
          // As for the copy that is not made: the gradient is scaled, then rounded.
          if (bw.needs(1)) bw.set(1, (alpha.to_double() == 1 ? bw.gy() : bw.gy() * alpha).to(b.dtype()));
        },
    .inplace = true,
    .dtypes = kAbsorbed,
    .cost = [](const Tensor& a, const Tensor& b, Scalar) { return map_cost(1, a, a, b); },
    .samples =
        [](Samples& s) {
          mixed_samples(s);
          s.add(s.tensor({3, 5}, DType::f32), s.tensor({3, 5}), Scalar(-0.5)).named("scaled");
        },
    .reference = pointwise<([](double a, double b, Scalar alpha) { return a + alpha.to_double() * b; })>,
}};

const Op<Tensor(const Tensor&, const Tensor&, DType)> mul_narrow_op{{
    .schema = "mul_narrow(Tensor a, Tensor b, DType dtype) -> Tensor",
    .internal = true,
    .doc = "a * b for two f32 tensors of one shape, rounded once to bf16 or f16: the gradient of mul_mixed for b.",
    .infer =
        [](const Tensor& a, const Tensor& b, DType dtype) {
          check<DTypeError>(a.dtype() == DType::f32 && b.dtype() == DType::f32 && is_reduced_floating(dtype),
                            "mul_narrow", "a is ", a, " and b is ", b, ", dtype ", dtype,
                            ", wants f32, f32 and a "
                            "dtype of 16 bits");
          check<ShapeError>(a.shape() == b.shape(), "mul_narrow", "shapes differ: a is ", a, ", b is ", b);
          return laid_like(a, b).with_dtype(dtype);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& a, const Tensor& b, DType) {
      if constexpr (on.cuda)
        mul_narrow_cuda(y, a, b);
      else
        mul_narrow_cpu(y, a, b);
    }),
    .saves = "a:b b:a",
    .backward =
        [](Backward& bw, const Tensor& a, const Tensor& b, DType) {
          const Tensor gy = bw.gy().to(DType::f32);
          if (bw.needs(0)) bw.set(0, gy * b);
          if (bw.needs(1)) bw.set(1, gy * a);
        },
    .dtypes = dtype_bit(DType::f32),
    .cost =
        [](const Tensor& a, const Tensor& b, DType dtype) {
          return Cost{static_cast<double>(a.numel()),
                      static_cast<double>(a.nbytes() + b.nbytes() + a.numel() * size_of(dtype))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.tensor({3, 5}), DType::bf16);
          s.add(s.tensor({70}), s.tensor({70}), DType::f16);
          s.add(s.tensor({5, 3}).t(), s.tensor({3, 1}).expand({3, 5}), DType::bf16).named("strided");
          s.add(s.tensor({0}), s.tensor({0}), DType::bf16).named("empty");
          s.invalid<ShapeError>("shapes differ", s.tensor({3, 5}), s.tensor({5}), DType::bf16);
          s.invalid<DTypeError>("16 bits", s.tensor({3}), s.tensor({3}), DType::f64);
        },
    .reference = [](const Tensor& a, const Tensor& b, DType) { return a.to(DType::f64) * b.to(DType::f64); },
}};

const Op<Tensor(const Tensor&, const Tensor&)> mul_mixed_op{{
    .schema = "mul_mixed(Tensor a, Tensor b) -> Tensor",
    .internal = true,
    .doc = "a * b for an f32 tensor a and b of its shape that is bf16, f16, an integer or bool: the numbers of mul, "
           "which would make an f32 copy of b first.",
    .infer = [](const Tensor& a, const Tensor& b) { return mixed_infer("mul_mixed", a, b); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& a, const Tensor& b) {
      if constexpr (on.cuda)
        mul_mixed_cuda(y, a, b);
      else
        mul_mixed_cpu(y, a, b);
    }),
    .saves = "a:b b:a",
    .backward =
        [](Backward& bw, const Tensor& a, const Tensor& b) {
          if (bw.needs(0)) bw.set(0, bw.gy() * b);
          if (bw.needs(1)) bw.set(1, mul_narrow_op(bw.gy(), a, b.dtype()));
        },
    .inplace = true,
    .dtypes = kAbsorbed,
    .cost = [](const Tensor& a, const Tensor& b) { return map_cost(1, a, a, b); },
    .samples = mixed_samples,
    .reference = pointwise<([](double a, double b) { return a * b; })>,
}};

// The two tensors of a call, the f32 one first where its dtype decides the result's, with one shape; nothing where the
// call goes the usual way, which also tells what is wrong with it.
struct Operands {
  Tensor wide, other;
  bool swapped = false;
};
std::optional<Operands> operands(detail::ArgsAt at) {
  const auto& a = *static_cast<const Tensor*>(at[0]);
  const auto& b = *static_cast<const Tensor*>(at[1]);
  if (!a.defined() || !b.defined() || a.impl().wrapped_number || b.impl().wrapped_number) return {};
  const bool swapped = !absorbs(a, b);
  if ((swapped && !absorbs(b, a)) || a.device() != b.device()) return {};
  // A 0-dim tensor yields to the other one's dtype within a kind.
  if ((a.dim() == 0) != (b.dim() == 0)) return {};
  Operands o{swapped ? b : a, swapped ? a : b, swapped};
  if (a.shape() != b.shape()) {
    const int64_t dims = std::max(a.dim(), b.dim());
    for (int64_t d = 1; d <= std::min(a.dim(), b.dim()); ++d) {
      const int64_t m = a.shape()[a.dim() - d], n = b.shape()[b.dim() - d];
      if (m != n && m != 1 && n != 1) return {};
    }
    if (dims > kMaxDims) return {};
    const Shape s = broadcast_shapes(a.shape(), b.shape(), "mul");
    // The sum that its gradient is then is of f32 numbers, rounded once.
    if (o.other.shape() != s && o.other.requires_grad() && grad_enabled()) return {};
    if (o.wide.shape() != s) o.wide = expand(o.wide, s);
    if (o.other.shape() != s) o.other = expand(o.other, s);
  }
  return o;
}

}  // namespace

bool add_mixed_way(detail::ArgsAt at, const detail::Results& into) {
  const auto& alpha = *static_cast<const Scalar*>(at[2]);
  const auto o = operands(at);
  if (!o || (o->swapped && alpha.to_double() != 1)) return false;
  into[0] = add_mixed_op(o->wide, o->other, alpha);
  return true;
}
bool add_mixed_way_inplace(Tensor& self, detail::ArgsAt at) {
  const auto& b = *static_cast<const Tensor*>(at[1]);
  if (!b.defined() || b.impl().wrapped_number || !absorbs(self, b) || self.shape() != b.shape() ||
      self.device() != b.device())
    return false;
  add_mixed_op.inplace(self, b, *static_cast<const Scalar*>(at[2]));
  return true;
}

bool mul_mixed_way(detail::ArgsAt at, const detail::Results& into) {
  const auto o = operands(at);
  if (!o) return false;
  into[0] = mul_mixed_op(o->wide, o->other);
  return true;
}
bool mul_mixed_way_inplace(Tensor& self, detail::ArgsAt at) {
  const auto& b = *static_cast<const Tensor*>(at[1]);
  if (!b.defined() || b.impl().wrapped_number || !absorbs(self, b) || self.shape() != b.shape() ||
      self.device() != b.device())
    return false;
  mul_mixed_op.inplace(self, b);
  return true;
}

}  // namespace strata
