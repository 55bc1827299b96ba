#include "strata/ops/factory/factory.h"

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/factory/factory_reference_inl.h"

namespace strata {
namespace {

const Op<Tensor(const Shape&, Scalar, DType, Device)> full_op{{
    .schema = "full(int[] shape, Scalar value, DType dtype=f32, Device device=cpu) -> Tensor",
    .doc = "A new tensor with every element equal to value.",
    .example = "Tensor x = full({2, 3}, 7); assert(x.dtype() == DType::i64 && sum(x).item() == 42);",
    .infer =
        [](const Shape& shape, Scalar, DType dtype, Device device) {
          return TensorMeta{shape, dtype, device, std::nullopt};
        },
    .kernels = on_each_device(
        [](auto on, Tensor& y, const Shape&, Scalar value, DType, Device) { fill_elements(on, y, value); }),
    .dtypes = kAllTypes,
    .cost =
        [](const Shape& shape, Scalar, DType dtype, Device) {
          return Cost{0, static_cast<double>(shape.product() * size_of(dtype))};
        },
    .samples =
        [](Samples& s) {
          s.add(Shape{2, 3}, Scalar(3), s.dtype(), Device::cpu());
          s.add(Shape{0}, Scalar(1.5), s.dtype(), Device::cpu());
          s.invalid<ShapeError>("negative", Shape{-2}, Scalar(1), s.dtype(), Device::cpu());
        },
    .reference = by_loops::filled,
}};

DType kind_of(Scalar v) {
  return v.kind() == DType::f64 ? default_dtype() : v.kind();
}

}  // namespace

Tensor full(const Shape& shape, Scalar value, std::optional<DType> dtype) {
  return full_op(shape, value, dtype.value_or(kind_of(value)), default_device());
}
Tensor zeros(const Shape& shape, std::optional<DType> dtype) {
  return full(shape, 0, dtype.value_or(default_dtype()));
}
Tensor ones(const Shape& shape, std::optional<DType> dtype) {
  return full(shape, 1, dtype.value_or(default_dtype()));
}
Tensor empty(const Shape& shape, std::optional<DType> dtype) {
  return empty(TensorMeta{shape, dtype.value_or(default_dtype()), default_device(), std::nullopt});
}
Tensor full_like(const Tensor& x, Scalar value, std::optional<DType> dtype) {
  return full_op(x.shape(), value, dtype.value_or(x.dtype()), x.device());
}
Tensor Tensor::new_full(const Shape& shape, Scalar value, std::optional<DType> dtype) const {
  return full_op(shape, value, dtype.value_or(this->dtype()), device());
}
Tensor zeros_like(const Tensor& x, std::optional<DType> dtype) {
  return full_like(x, 0, dtype);
}
Tensor ones_like(const Tensor& x, std::optional<DType> dtype) {
  return full_like(x, 1, dtype);
}
Tensor empty_like(const Tensor& x, std::optional<DType> dtype) {
  return empty(TensorMeta{x.shape(), dtype.value_or(x.dtype()), x.device(), std::nullopt});
}

}  // namespace strata
