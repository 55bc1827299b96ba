#include "strata/core/tensor.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/core/stand_in.h"
#include "strata/core/strides_inl.h"

namespace strata {
namespace {
std::atomic<DType> g_default_dtype{DType::f32};
thread_local Device t_device;

// Elements of a shape; an error rather than an overflow for absurd sizes.
int64_t checked_numel(const Shape& shape, DType dtype) {
  int64_t n = size_of(dtype);
  bool zero = false;
  for (int64_t s : shape) {
    check<ShapeError>(s >= 0, "Tensor", "sizes must not be negative, got ", shape);
    zero = zero || s == 0;
    // Not all 63 bits: the allocator rounds up. A size of 0 does not make the others' strides fit.
    const bool fits = !__builtin_mul_overflow(n, std::max<int64_t>(s, 1), &n) && n <= int64_t{1} << 62;
    check<ShapeError>(fits, "Tensor", "a tensor of shape ", shape, " does not fit in 64 bits");
  }
  return zero ? 0 : n / size_of(dtype);
}
}  // namespace

bool detail::strides_are_contiguous(const Shape& shape, const Strides& strides) {
  int64_t expected = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1) {
      if (strides[i] != expected) return false;
      expected *= shape[i];
    }
  }
  return true;
}

void ref_dispose(TensorImpl* t) {
  delete t->autograd.get();
  if (detail::is_handle(*t)) [[unlikely]]
    return detail::delete_handle(t);
  delete t;
}

int64_t Tensor::size(int64_t d) const {
  return get().shape[wrap_dim(d, dim(), "size")];
}

void Tensor::throw_undefined() {
  throw ValueError("Tensor", "an undefined tensor was used (an optional argument that was not given?)");
}
void Tensor::throw_no_data() const {
  if (is_placed(*this)) detail::throw_placed(*this);
  const Storage& s = *get().storage;
  if (numel() != 0 && !s.data && !is_meta()) {
    throw DeviceError("data", cat("a tensor ", *this, " in memory of tier '", s.tier(),
                                  "' is not resident: hold a Pin while its elements are read or written"));
  }
  throw DeviceError("data", cat("a tensor on ", device(), " has no bytes on the host: ", *this));
}
void Tensor::throw_dtype(DType wanted) const {
  throw DTypeError(
      "data", cat("asked for ", wanted, " elements of a tensor ", *this, "; convert with .to(DType::", wanted, ")"));
}

std::string describe(const Tensor& t) {
  if (!t.defined()) return "undefined";
  std::string s = cat(t.shape(), " ", t.dtype());
  if (!t.device().is_cpu()) s += cat(" on ", t.device());
  return s;
}

namespace {
// A tensor of that geometry without a storage.
Ref<TensorImpl> shaped(const TensorMeta& meta) {
  const int64_t n = checked_numel(meta.shape, meta.dtype);
  Ref<TensorImpl> t = make_ref<TensorImpl>();
  t->shape = meta.shape;
  t->numel = n;
  t->dtype = meta.dtype;
  t->device = meta.device;
  if (meta.strides) [[unlikely]] {
    t->strides = *meta.strides;
    t->contiguous = detail::strides_are_contiguous(t->shape, t->strides);
  } else {
    t->strides = contiguous_strides(meta.shape);
  }
  return t;
}
size_t bytes_of(const TensorImpl& t) {
  return static_cast<size_t>(t.numel * size_of(t.dtype));
}
}  // namespace

Tensor empty(const TensorMeta& meta) {
  Ref<TensorImpl> t = shaped(meta);
  t->storage = Storage::create(meta.device, bytes_of(*t));
  return Tensor(std::move(t));
}
Tensor empty(const TensorMeta& meta, Tier tier) {
  Ref<TensorImpl> t = shaped(meta);
  t->storage = Storage::create(meta.device, bytes_of(*t), tier);
  return Tensor(std::move(t));
}

Tensor alias(const Tensor& src, const Shape& shape, const Strides& strides, int64_t offset) {
  if (is_placed(src)) [[unlikely]]
    return detail::alias_of_placed(src, shape, strides, offset);
  Ref<TensorImpl> t = make_ref<TensorImpl>();
  t->storage = src.storage();
  t->shape = shape;
  t->strides = strides;
  t->offset = offset;
  t->numel = checked_numel(shape, src.dtype());  // repeated elements can be more than fit in 64 bits
  t->dtype = src.dtype();
  t->device = src.device();
  t->contiguous = detail::strides_are_contiguous(shape, strides);
  t->wrapped_number = src.impl().wrapped_number;
  return Tensor(std::move(t));
}

Tensor from_blob(void* data, const Shape& shape, DType dtype, void (*release)(void*), void* owner) {
  const int64_t n = checked_numel(shape, dtype);
  check(data != nullptr || n == 0, "from_blob", "the pointer is null but the shape is ", shape);
  Ref<TensorImpl> t = make_ref<TensorImpl>();
  t->storage = Storage::borrow(data, static_cast<size_t>(n * size_of(dtype)), release, owner);
  t->shape = shape;
  t->strides = contiguous_strides(shape);
  t->numel = n;
  t->dtype = dtype;
  return Tensor(std::move(t));
}

Tensor stand_in(const Shape& shape, DType dtype) {
  Ref<TensorImpl> t = shaped({shape, dtype, Device::meta(), std::nullopt});
  t->storage = Storage::borrow(nullptr, bytes_of(*t), nullptr, nullptr);
  t->storage->device = Device::meta();
  return Tensor(std::move(t));
}

template <class T>
Tensor from_span(std::span<const T> values, const Shape& shape) {
  check<ShapeError>(static_cast<int64_t>(values.size()) == shape.product(), "from_span", values.size(),
                    " values do not fill a tensor of shape ", shape);
  Tensor t = empty({shape, dtype_of<T>, Device::cpu(), std::nullopt});
  const Pin pin(t);
  if (!values.empty()) std::memcpy(t.raw_data(), values.data(), values.size_bytes());
  return t;
}
template Tensor from_span(std::span<const uint8_t>, const Shape&);
template Tensor from_span(std::span<const int8_t>, const Shape&);
template Tensor from_span(std::span<const int16_t>, const Shape&);
template Tensor from_span(std::span<const int32_t>, const Shape&);
template Tensor from_span(std::span<const int64_t>, const Shape&);
template Tensor from_span(std::span<const Half>, const Shape&);
template Tensor from_span(std::span<const BFloat16>, const Shape&);
template Tensor from_span(std::span<const float>, const Shape&);
template Tensor from_span(std::span<const double>, const Shape&);
template Tensor from_span(std::span<const bool>, const Shape&);

Tensor wrap_number(Scalar value, Device device) {
  Tensor t = empty({{}, value.kind(), device, std::nullopt}, Tier());
  t.impl().wrapped_number = true;
  if (device.is_meta()) return t;
  const auto put = [&](const auto& v) {
    if (device.is_cpu())
      std::memcpy(t.raw_data(), &v, sizeof v);
    else
      t.storage()->backend().copy_in(device, t.raw_data(), &v, sizeof v);
  };
  switch (value.kind()) {
    case DType::f64:
      put(value.to_double());
      break;
    case DType::i64:
      put(value.to_int());
      break;
    default:
      put(value.to_bool());
      break;
  }
  return t;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op) {
  const int n = std::max(a.size(), b.size());
  Shape r = Shape::filled(n, 1);
  for (int i = 0; i < n; ++i) {
    const int ia = a.size() - n + i, ib = b.size() - n + i;
    const int64_t sa = ia < 0 ? 1 : a[ia], sb = ib < 0 ? 1 : b[ib];
    check<ShapeError>(sa == sb || sa == 1 || sb == 1, op, "shapes ", a, " and ", b, " do not broadcast: sizes ", sa,
                      " and ", sb, " differ in dimension ", i, " of the result");
    r[i] = sa == 1 ? sb : sa;
  }
  return r;
}

namespace {
// PyTorch's three ranks: a tensor with dims decides before a 0-dim one, that before a number; a lower rank counts only
// when its category (bool < integer < floating) is higher.
int promotion_rank(const Tensor& t) {
  return t.impl().wrapped_number ? 0 : t.dim() == 0 ? 1 : 2;
}
int category(DType t) {
  return t == DType::boolean ? 0 : is_floating(t) ? 2 : 1;
}
DType promoted_kind(const Tensor& t) {
  if (t.impl().wrapped_number && t.dtype() == DType::f64) return default_dtype();
  return t.dtype();
}
}  // namespace

DType result_type(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype() && !a.impl().wrapped_number && !b.impl().wrapped_number) [[likely]]
    return a.dtype();
  const int ra = promotion_rank(a), rb = promotion_rank(b);
  const DType ta = promoted_kind(a), tb = promoted_kind(b);
  if (ra == rb) return promote_types(ta, tb);
  const DType high = ra > rb ? ta : tb, low = ra > rb ? tb : ta;
  return category(low) > category(high) ? low : high;
}

DType default_dtype() {
  return g_default_dtype.load(std::memory_order_relaxed);
}
void set_default_dtype(DType dtype) {
  check<DTypeError>(is_floating(dtype), "set_default_dtype", "needs a floating dtype, got ", dtype);
  g_default_dtype.store(dtype);
}
Device default_device() {
  return t_device;
}
DeviceScope::DeviceScope(Device device) : previous_(t_device) {
  t_device = device;
}
DeviceScope::~DeviceScope() {
  t_device = previous_;
}

namespace {
template <class T>
Scalar load_scalar(const void* p) {
  return Scalar(*static_cast<const T*>(p));
}
}  // namespace

Scalar Tensor::item_scalar() const {
  check<ShapeError>(numel() == 1, "item", "needs a tensor with one element, got ", *this);
  if (is_placed(*this)) return detail::placement_room().whole(detach()).item_scalar();
  if (device().is_cuda()) return to(Device::cpu()).item_scalar();
  const Pin pin(*this, Access::read);
  const void* p = raw_data();
  switch (dtype()) {
    case DType::u8:
      return load_scalar<uint8_t>(p);
    case DType::i8:
      return load_scalar<int8_t>(p);
    case DType::i16:
      return load_scalar<int16_t>(p);
    case DType::i32:
      return load_scalar<int32_t>(p);
    case DType::i64:
      return load_scalar<int64_t>(p);
    case DType::f16:
      return load_scalar<Half>(p);
    case DType::bf16:
      return load_scalar<BFloat16>(p);
    case DType::f32:
      return load_scalar<float>(p);
    case DType::f64:
      return load_scalar<double>(p);
    case DType::boolean:
      return load_scalar<bool>(p);
  }
  return {};
}

}  // namespace strata
