#include "strata/ops/copy/copy.h"

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Cost move_cost(const Tensor& x) {
  return {0, 2.0 * static_cast<double>(x.nbytes())};
}

const Op<Tensor(const Tensor&, DType)> to_op{{
    .schema = "to(Tensor x, DType dtype) -> Tensor",
    .doc = "x converted to another dtype, row-major. Floating to integer truncates towards zero; any number but 0 is "
           "true. The gradient is converted back.",
    .infer = [](const Tensor& x, DType dtype) { return like(x).with_dtype(dtype); },
    .kernels = {.cpu = [](Tensor& y, const Tensor& x, DType) { copy_elements(y, x); }},
    .backward = [](Backward& b, const Tensor& x, DType) { b.set(0, to(b.gy(), x.dtype())); },
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, DType dtype) {
          return Cost{0, static_cast<double>(x.numel() * (size_of(x.dtype()) + size_of(dtype)))};
        },
    .samples =
        [](Samples& s) {
          for (DType t : {DType::f32, DType::f64, DType::bf16}) s.add(s.tensor({3, 5}), t);
          s.add(s.tensor({2, 3}), DType::i32).not_differentiable();
          s.add(s.tensor({2, 3}), DType::boolean).not_differentiable();
          s.add(s.tensor({0, 3}), DType::f32);
          if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), DType::bf16);
        },
}};

const Op<Tensor(const Tensor&)> clone_op{{
    .schema = "clone(Tensor x) -> Tensor",
    .doc = "A row-major copy of x with its own storage.",
    .infer = [](const Tensor& x) { return like(x); },
    .kernels = {.cpu = [](Tensor& y, const Tensor& x) { copy_elements(y, x); }},
    .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy()); },
    .dtypes = kAllTypes,
    .cost = move_cost,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          s.add(s.tensor({}));
          s.add(s.tensor({0, 2}));
          if (s.benchmarking()) s.bench(s.tensor({4096, 4096}));
        },
}};

// In place only: overwrites dst with src (same shape), converting. dst's old history ends here.
const Op<Tensor(const Tensor&, const Tensor&)> copy_op{{
    .schema = "copy(Tensor x, Tensor src) -> Tensor",
    .doc = "src broadcast to x's shape and converted to x's dtype; x.copy_(src) writes it over x.",
    .infer =
        [](const Tensor& x, const Tensor& src) {
          check<ShapeError>(x.shape() == src.shape(), "copy", "cannot copy ", src, " into ", x);
          return like(x);
        },
    .kernels = {.cpu = [](Tensor& y, const Tensor&, const Tensor& src) { copy_elements(y, src); }},
    .backward =
        [](Backward& b, const Tensor&, const Tensor& src) {
          if (b.needs(1)) b.set(1, to(b.gy(), src.dtype()));
        },
    .inplace = true,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, const Tensor& src) {
          return Cost{0, static_cast<double>(x.nbytes() + src.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.tensor({3, 5}));
          s.invalid<ShapeError>("cannot copy", s.tensor({3}), s.tensor({4}));
        },
}};

const Op<Tensor(const Tensor&, Scalar)> fill_op{{
    .schema = "fill(Tensor x, Scalar value) -> Tensor",
    .doc = "A tensor like x with every element equal to value; x.fill_(value) writes it over x.",
    .infer = [](const Tensor& x, Scalar) { return like(x); },
    .kernels = {.cpu = [](Tensor& y, const Tensor&, Scalar v) { fill_elements(y, v); }},
    .backward = [](Backward&, const Tensor&, Scalar) {},
    .inplace = true,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& x, Scalar) {
          return Cost{0, static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), Scalar(1));
          s.add(s.tensor({0}), Scalar(2.5));
        },
}};

}  // namespace

Tensor to(const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : to_op(x, dtype);
}

Tensor to(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  if (device.is_meta()) return empty({x.shape(), x.dtype(), device, std::nullopt});
  throw DeviceError("to", cat("cannot move a tensor from ", x.device(), " to ", device,
                              x.is_meta() ? ": a meta tensor has no elements" : ": this build has no such device"));
}

Tensor contiguous(const Tensor& x) {
  return x.is_contiguous() ? x : clone_op(x);
}
Tensor clone(const Tensor& x) {
  return clone_op(x);
}

Tensor Tensor::to(DType dtype) const {
  return strata::to(*this, dtype);
}
Tensor Tensor::to(Device device) const {
  return strata::to(*this, device);
}
Tensor Tensor::contiguous() const {
  return strata::contiguous(*this);
}
Tensor Tensor::clone() const {
  return strata::clone(*this);
}

Tensor& Tensor::copy_(const Tensor& src) {
  if (!t_mode.grad_enabled && shape() == src.shape() && device().is_cpu() && src.device().is_cpu()) {
    copy_elements(*this, src);  // inside kernels and updates: no record to make
    bump_version(*this, "copy_");
    return *this;
  }
  return copy_op.inplace(*this, src.shape() == shape() ? src : strata::expand(src, shape()));
}

Tensor& Tensor::fill_(Scalar value) {
  return fill_op.inplace(*this, value);
}

}  // namespace strata
