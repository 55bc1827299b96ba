#pragma once
// What the functions of strata.h are made of: handles to tensors and back, values and back, errors kept for a thread.

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/c/strata.h"
#include "strata/core/op_base.h"
#include "strata/core/value.h"

namespace strata::c {

// ---- errors

/// What is kept of a thread's last failure.
struct Failure {
  strata_status status = STRATA_OK;
  std::string text;
  std::exception_ptr
      exception;         ///< kept within calls of plugins only: it may be a language's, which must not outlive it
  uint64_t count = 0;    ///< failures of this thread so far
  int plugin_calls = 0;  ///< calls of plugins' functions that this thread is in
};
Failure& last_failure();
/// Keeps a text; an empty or null one is replaced.
void record_failure(strata_status status, const char* text) noexcept;
/// Keeps the exception that is being handled and returns its status.
strata_status record_exception() noexcept;
/// Throws the error class of `status`, "op: text".
[[noreturn]] void throw_status(strata_status status, std::string_view op, std::string_view text);

/// Runs body(); an exception becomes a status.
template <class F>
strata_status guarded(F&& body) noexcept {
  try {
    body();
    return STRATA_OK;
  } catch (...) {
    return record_exception();
  }
}
/// The same for functions that have no status: `otherwise` where body() throws.
template <class T, class F>
T guarded_or(T otherwise, F&& body) noexcept {
  try {
    return body();
  } catch (...) {
    record_exception();
    return otherwise;
  }
}
/// Throws ValueError where a pointer that is needed is null.
void need(const void* pointer, std::string_view function, std::string_view what);

// ---- handles

/// A tensor handle is a counted TensorImpl.
inline TensorImpl* impl_of(const strata_tensor* t) {
  return reinterpret_cast<TensorImpl*>(const_cast<strata_tensor*>(t));
}
/// Undefined for null.
inline Tensor tensor_of(const strata_tensor* t) {
  return Tensor(Ref<TensorImpl>(impl_of(t)));
}
/// A borrowed handle; null for an undefined tensor.
inline strata_tensor* handle_of(const Tensor& t) {
  return reinterpret_cast<strata_tensor*>(t.ref().get());
}
/// A handle with a reference of its own.
inline strata_tensor* give(const Tensor& t) {
  Ref<TensorImpl> r = t.ref();
  return reinterpret_cast<strata_tensor*>(r.release());
}
/// Takes a handle's reference over.
inline Tensor adopt(strata_tensor* t) {
  Tensor taken = tensor_of(t);
  if (t) impl_of(t)->refs.fetch_sub(1, std::memory_order_relaxed);
  return taken;
}
inline const strata_op* handle_of(const OpBase* op) {
  return reinterpret_cast<const strata_op*>(op);
}
inline const OpBase* op_of(const strata_op* op) {
  return reinterpret_cast<const OpBase*>(op);
}
/// The tensor of a handle that must not be null.
Tensor need_tensor(const strata_tensor* t, std::string_view function);

/// One more reference, and one less, of a handle that is a struct with `refs`; null is allowed.
template <class Handle>
Handle* retain(Handle* h) {
  if (h) h->refs.fetch_add(1, std::memory_order_relaxed);
  return h;
}
template <class Handle>
void release(Handle* h) {
  guarded([&] {
    if (h && h->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete h;
  });
}

// ---- plain types. All throw ValueError naming `function` for what does not exist.

DType dtype_from(int32_t dtype, std::string_view function);
inline strata_dtype c_dtype(DType dtype) {
  return static_cast<strata_dtype>(dtype);
}
Device device_from(strata_device device, std::string_view function);
inline strata_device c_device(Device d) {
  return {static_cast<int32_t>(d.type), d.index};
}
Shape shape_from(const int64_t* shape, int32_t ndim, std::string_view function);
/// A tensor over memory that stays someone else's; strides in elements. release(owner), if not null, runs when the last
/// tensor over it goes; not if this throws.
Tensor borrow(void* data, const Shape& shape, const std::optional<Strides>& strides, DType dtype, Device device,
              void (*release)(void*), void* owner, std::string_view function);

// ---- values

/// The engine's value; tensors gain a reference.
Value value_of(const strata_value& v, std::string_view function);
std::vector<Value> values_of(const strata_value* values, size_t n, std::string_view function);
/// A value that its receiver clears.
strata_value give(const Value& v);
void clear(strata_value& v) noexcept;

/// C values over engine values, which must outlive them: nothing is counted or copied but lists of handles.
class Borrowed {
 public:
  explicit Borrowed(std::span<const Value> values);
  Borrowed(const Borrowed&) = delete;
  const strata_value* data() const { return values_.data(); }
  size_t size() const { return values_.size(); }

 private:
  std::vector<strata_value> values_;
  std::vector<std::unique_ptr<strata_tensor*[]>> lists_;
};

}  // namespace strata::c
