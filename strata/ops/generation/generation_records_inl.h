#pragma once
// What the records of generation's ops check, and read of their arguments.

#include <string_view>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/generation/generation_kernels.h"

namespace strata::generation {

// [B] on x's device.
inline void check_rows(const Tensor& t, const char* name, int64_t rows, DType dtype, const Tensor& x,
                       std::string_view op) {
  check<DTypeError>(t.dtype() == dtype, op, name, " must be ", dtype, ", got ", t);
  check<ShapeError>(t.shape() == Shape{rows}, op, name, " is ", t, ", wanted [", rows, "]");
  check<DeviceError>(t.device() == x.device(), op, name, " is on ", t.device(), ", the first argument on ", x.device());
}
// Undefined, [] or [B].
inline void check_parameter(const Tensor& t, const char* name, int64_t rows, DType dtype, const Tensor& x,
                            std::string_view op) {
  if (!t.defined()) return;
  check<DTypeError>(t.dtype() == dtype, op, name, " must be ", dtype, ", got ", t);
  check<ShapeError>(t.dim() == 0 || t.shape() == Shape{rows}, op, name, " is ", t, ", wanted [] or [", rows, "]");
  check<DeviceError>(t.device() == x.device(), op, name, " is on ", t.device(), ", the first argument on ", x.device());
}
inline void check_logits(const Tensor& x, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()) && x.dtype() != DType::f64, op, "needs logits of f16, bf16 or f32, got ", x);
  check<ShapeError>(x.dim() == 2 && x.size(1) > 0 && x.size(1) < INT32_MAX, op,
                    "needs logits [B, V] with V from 1 to 2^31, got ", x);
  check<ShapeError>(x.size(0) < 65536, op, "takes at most 65535 rows, got ", x);
}
// Where the elements lie on the tensor's own device: Tensor::data() is for hosts only.
template <class T>
T* elements(const Tensor& t) {
  check<DTypeError>(t.dtype() == dtype_of<T>, "generation", "wanted ", dtype_of<T>, ", got ", t);
  return static_cast<T*>(t.raw_data());
}
// `held` keeps a row-major copy alive where one is needed.
template <class T>
PerRow<T> per_row(const Tensor& t, Tensor& held) {
  if (!t.defined()) return {};
  held = t.contiguous();
  return {elements<T>(held), t.dim() == 0 ? 0 : 1};
}

inline constexpr DTypeSet kLogits = dtype_bit(DType::f16) | dtype_bit(DType::bf16) | dtype_bit(DType::f32);

// For samples: [B] of one dtype.
inline Tensor ids(std::initializer_list<int64_t> v) {
  return from_span<int64_t>(std::vector<int64_t>(v), {static_cast<int64_t>(v.size())});
}
inline Tensor numbers(std::initializer_list<float> v) {
  return from_span<float>(std::vector<float>(v), {static_cast<int64_t>(v.size())});
}
inline Tensor number(float v) {
  return from_span<float>(std::vector<float>{v}, {});
}

}  // namespace strata::generation
