#pragma once
// Tensor: a handle to a strided view of a storage. Copying a Tensor copies the handle, not the bytes.
// Any number of threads may read a tensor at a time, that is call ops on it, record them, run backward to it, read or
// set its gradient and add hooks; a thread that writes its elements, or changes what it is (set_requires_grad, an
// in-place op, Module::to), must be alone with it. docs/library/autograd.md says more.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strata/core/device.h"
#include "strata/core/dims.h"
#include "strata/core/dtype.h"
#include "strata/core/error.h"
#include "strata/core/ref.h"
#include "strata/core/scalar.h"
#include "strata/core/storage.h"

namespace strata {

class Tensor;
class Node;
struct AutogradMeta;
struct TensorIndex;

/// What `infer` says of a result, and all that a meta tensor has.
struct TensorMeta {
  Shape shape;
  DType dtype = DType::f32;
  Device device;
  /// Strides in elements when the result should not be row-major; else empty.
  std::optional<Strides> strides;

  /// The same with another shape (row-major), or another dtype.
  TensorMeta with_shape(const Shape& s) const { return {s, dtype, device, std::nullopt}; }
  TensorMeta with_dtype(DType t) const { return {shape, t, device, strides}; }
};

struct TensorImpl;
void ref_dispose(TensorImpl* t);  ///< what the last Ref calls

/// What a Tensor points to. For the engine: programs use Tensor.
struct TensorImpl : RefCounted {
  Ref<Storage> storage;
  Shape shape;
  Strides strides;     // in elements
  int64_t offset = 0;  // in elements, into the storage
  int64_t numel = 0;
  DType dtype = DType::f32;
  Device device;
  bool contiguous = true;
  bool requires_grad = false;   // a leaf that wants a gradient, or a result with a grad_fn
  bool wrapped_number = false;  // made from a Scalar: yields in type promotion
  // For a view made while gradients were on: the tensor whose storage it shows, which a write through it reaches.
  Ref<TensorImpl> view_base;
  OncePtr<AutogradMeta> autograd;  // owned; none while nothing needs it
};

/// A handle to elements of one dtype on one device, under a shape and strides. See docs/guide/tensor.md.
class Tensor {
 public:
  /// An undefined tensor: what optional arguments that were not given are.
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}

  /// @name What it is
  /// @{
  bool defined() const { return static_cast<bool>(impl_); }
  explicit operator bool() const = delete;
  const Shape& shape() const { return get().shape; }
  const Strides& strides() const { return get().strides; }  ///< in elements
  int64_t dim() const { return get().shape.size(); }
  /// Length of dimension `d`; negative counts from the end. Throws IndexError.
  int64_t size(int64_t d) const;
  int64_t numel() const { return get().numel; }
  int64_t nbytes() const { return get().numel * size_of(get().dtype); }
  DType dtype() const { return get().dtype; }
  Device device() const { return get().device; }
  bool is_meta() const { return get().device.is_meta(); }
  /// Where the bytes live.
  Tier tier() const { return get().storage->tier(); }
  bool is_contiguous() const { return get().contiguous; }
  int64_t storage_offset() const { return get().offset; }
  const Ref<Storage>& storage() const { return get().storage; }
  TensorMeta meta() const { return {get().shape, get().dtype, get().device, std::nullopt}; }
  bool same_as(const Tensor& o) const { return impl_ == o.impl_; }
  /// Writes by in-place ops to the storage so far.
  uint32_t version() const { return get().storage->version.load(std::memory_order_relaxed); }
  /// @}

  /// @name Reading and writing elements on the host
  /// @{
  /// First element. Throws DTypeError when T is not the dtype, DeviceError when the bytes are not on the host.
  template <class T>
  T* data() const {
    if (get().dtype != dtype_of<T>) throw_dtype(dtype_of<T>);
    if (!get().device.is_cpu()) [[unlikely]]
      throw_no_data();
    return static_cast<T*>(raw_data());
  }
  /// First element, untyped: an address of the tensor's device. Throws DeviceError for a meta tensor, and for one whose
  /// bytes are not resident: in a tier that lets them move they have an address only while a Pin holds them.
  void* raw_data() const {
    const TensorImpl& t = get();
    if (!t.storage->data && t.numel != 0) [[unlikely]]
      throw_no_data();
    return t.storage->data + t.offset * size_of(t.dtype);
  }
  /// The only element, converted to T. Throws ShapeError unless numel() is 1.
  template <class T = double>
  T item() const {
    return item_scalar().to<T>();
  }
  Scalar item_scalar() const;
  /// All elements in row-major order, converted to T.
  template <class T>
  std::vector<T> to_vector() const;
  /// As PyTorch prints it: values in brackets, 4 digits, large tensors summarised, dtype when it is not the default.
  std::string to_string() const;
  /// @}

  /// @name Autograd (strata/autograd/autograd.h has the rest)
  /// @{
  bool requires_grad() const { return get().requires_grad || (get().view_base && base_has_history()); }
  /// Marks a leaf. Throws AutogradError for a non-leaf, DTypeError for an integer tensor.
  Tensor& set_requires_grad(bool value = true);
  bool is_leaf() const;
  /// The accumulated gradient; undefined before backward().
  Tensor grad() const;
  void set_grad(const Tensor& g);
  /// The node that made this tensor; nullptr for a leaf.
  Ref<Node> grad_fn() const;
  /// Accumulates d(this)/d(leaf) into every leaf's grad. `grad` defaults to 1 for a one-element tensor.
  /// Throws AutogradError.
  void backward(const Tensor& grad = {}, bool retain_graph = false, bool create_graph = false) const;
  /// The same bytes without history.
  Tensor detach() const;
  /// Keeps the gradient of a non-leaf in grad().
  void retain_grad() const;
  /// @}

  /// @name Views (no bytes move)
  /// @{
  Tensor view(const Shape& shape) const;     ///< throws ShapeError if the strides do not allow it
  Tensor reshape(const Shape& shape) const;  ///< a view where possible, else a copy; one size may be -1
  Tensor flatten(int64_t start = 0, int64_t end = -1) const;
  Tensor transpose(int64_t a, int64_t b) const;
  Tensor t() const;  ///< transpose of a matrix
  Tensor permute(const Dims& dims) const;
  Tensor expand(const Shape& shape) const;  ///< -1 keeps a size
  Tensor slice(int64_t dim, int64_t start, int64_t end, int64_t step = 1) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor select(int64_t dim, int64_t index) const;
  Tensor squeeze() const;
  Tensor squeeze(int64_t dim) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor diagonal(int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1) const;
  Tensor unfold(int64_t dim, int64_t size, int64_t step) const;
  Tensor as_strided(const Shape& shape, const Strides& strides, int64_t offset) const;
  Tensor operator[](int64_t index) const { return select(0, index); }
  /// Basic and advanced indexing; strata/ops/index/indexing.h has TensorIndex, Slice, None and Ellipsis.
  Tensor index(const std::vector<TensorIndex>& indices) const;
  Tensor& index_put_(const std::vector<TensorIndex>& indices, const Tensor& value, bool accumulate = false);
  /// @}

  /// @name Copies and conversions
  /// @{
  Tensor contiguous() const;  ///< itself when already row-major
  Tensor clone() const;
  /// A tensor of `shape` full of `value`, with this one's device, and its dtype unless another is given.
  Tensor new_full(const Shape& shape, Scalar value, std::optional<DType> dtype = {}) const;
  Tensor to(DType dtype) const;    ///< itself when already of that type
  Tensor to(Device device) const;  ///< itself when already there
  /// With its bytes in memory of that tier, row-major; itself when they are there already, or there are none. Throws
  /// DeviceError where the tensor's device has no such memory.
  Tensor to(Tier tier) const;
  /// @}

  /// @name In place
  /// @{
  Tensor& copy_(const Tensor& src);  ///< broadcasts and converts
  Tensor& fill_(Scalar value);
  Tensor& zero_() { return fill_(0); }
  Tensor& add_(const Tensor& other, Scalar alpha = 1);
  Tensor& sub_(const Tensor& other, Scalar alpha = 1);
  Tensor& mul_(const Tensor& other);
  Tensor& div_(const Tensor& other);
  Tensor& add_(Scalar other);
  Tensor& mul_(Scalar other);
  /// @}

  /// @name Common functions as methods; every op is also a free function
  /// @{
  Tensor add(const Tensor& other, Scalar alpha = 1) const;
  Tensor neg() const;
  Tensor isnan() const;
  Tensor any() const;
  Tensor all() const;
  Tensor sum() const;
  Tensor sum(const Dims& dims, bool keepdim = false) const;
  Tensor mean() const;
  Tensor mean(const Dims& dims, bool keepdim = false) const;
  Tensor matmul(const Tensor& other) const;
  Tensor exp() const;
  Tensor log() const;
  Tensor sqrt() const;
  Tensor abs() const;
  Tensor tanh() const;
  Tensor sigmoid() const;
  Tensor relu() const;
  Tensor pow(Scalar exponent) const;
  Tensor clamp(std::optional<Scalar> min, std::optional<Scalar> max) const;
  Tensor softmax(int64_t dim) const;
  Tensor argmax(int64_t dim, bool keepdim = false) const;
  Tensor max() const;
  Tensor min() const;
  /// @}

  TensorImpl& impl() const { return *impl_; }
  const Ref<TensorImpl>& ref() const { return impl_; }

 private:
  const TensorImpl& get() const {
    if (!impl_) [[unlikely]]
      throw_undefined();
    return *impl_;
  }
  bool base_has_history() const;  // a write through another view of the base made it a non-leaf
  [[noreturn]] static void throw_undefined();
  [[noreturn]] void throw_no_data() const;
  [[noreturn]] void throw_dtype(DType wanted) const;

  Ref<TensorImpl> impl_;
};

/// Holds a tensor's bytes where its device reads them while it lives: raw_data() and data() then give an address that
/// stays. The call path pins what an op reads and writes; whoever reads elements on his own does it with this. Does
/// nothing where bytes do not move.
class Pin {
 public:
  explicit Pin(const Tensor& t, Access access = Access::write) {
    if (!memory::detail::any_movable()) return;
    storage_ = t.storage();
    storage_->pin(access);
  }
  ~Pin() {
    if (storage_) storage_->unpin();
  }
  Pin(Pin&&) noexcept = default;
  Pin& operator=(Pin&&) = delete;

 private:
  Ref<Storage> storage_;
};

/// Several tensors: an argument or result of some ops.
using TensorList = std::vector<Tensor>;

/// "[2, 3] f32", for error texts.
std::string describe(const Tensor& t);
inline void append_text(std::string& s, const Tensor& t) {
  s += describe(t);
}

/// Same shape, dtype and device as `x`, row-major: the commonest `infer`.
inline TensorMeta like(const Tensor& x) {
  return x.meta();
}

/// An uninitialised tensor with its own storage.
Tensor empty(const TensorMeta& meta);
/// The same in memory of a tier. Throws DeviceError where the device has no such memory.
Tensor empty(const TensorMeta& meta, Tier tier);
/// A view of `t`'s storage with another geometry; no checks, no autograd. `dtype` may reinterpret the bytes.
Tensor alias(const Tensor& t, const Shape& shape, const Strides& strides, int64_t offset);
/// A tensor over memory that the caller keeps alive; `release(owner)`, if given, runs when the last view goes.
Tensor from_blob(void* data, const Shape& shape, DType dtype, void (*release)(void*) = nullptr, void* owner = nullptr);
/// A new tensor holding a copy of `values`. Throws ShapeError unless the sizes agree.
template <class T>
Tensor from_span(std::span<const T> values, const Shape& shape);
/// A 0-dim tensor of the scalar's kind that yields in type promotion, as PyTorch's Python numbers do.
Tensor wrap_number(Scalar value, Device device);

/// The shape that `a` and `b` broadcast to. Throws ShapeError naming `op`.
Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op);
/// The dtype of a result of `a` and `b` (PyTorch's rule: tensors with dims before 0-dim before numbers).
DType result_type(const Tensor& a, const Tensor& b);
/// f32 unless set otherwise: what integer inputs become in floating ops, and the factories' default.
DType default_dtype();
void set_default_dtype(DType dtype);

/// The device on which factories make tensors on this thread; cpu unless a DeviceScope says otherwise.
Device default_device();
/// Sets it for a scope: `DeviceScope dry(Device::meta());` makes any model-building code allocate nothing.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;

 private:
  Device previous_;
};

}  // namespace strata
