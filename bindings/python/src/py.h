#pragma once
// What the parts of strata._core share: the Tensor object, values in and out of Python, errors both ways, the GIL.

#include <Python.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/op_base.h"
#include "strata/core/tensor.h"

namespace nb = nanobind;

namespace strata::python {

// ---- the Tensor object ----------------------------------------------------------------------------------------------

/// A Python tensor: one handle of the engine's. Subclasses (Parameter) may add attributes.
struct PyTensor {
  PyObject_HEAD
  Tensor value;
  PyObject* weak;
};
extern PyTypeObject* g_tensor_type;

inline bool is_tensor(PyObject* o) {
  return Py_TYPE(o) == g_tensor_type || PyType_IsSubtype(Py_TYPE(o), g_tensor_type);
}
inline Tensor& tensor_of(PyObject* o) {
  return reinterpret_cast<PyTensor*>(o)->value;
}
/// The tensor that `o` is, itself and not a copy. Throws TypeError naming `who` for any other object.
inline Tensor& own_tensor(nb::handle o, const char* who) {
  if (!is_tensor(o.ptr())) throw nb::type_error((std::string(who) + ": the first argument is a Tensor").c_str());
  return tensor_of(o.ptr());
}
/// A new reference: a Python tensor, or None for an undefined one.
PyObject* wrap(Tensor t);
/// The same, for nanobind.
inline nb::object wrapped(Tensor t) {
  return nb::steal(wrap(std::move(t)));
}

// ---- errors ---------------------------------------------------------------------------------------------------------

/// Turns the exception being handled into Python's. Returns nullptr, so that a slot can `return raise_current();`.
PyObject* raise_current();
/// Throws what Python has set as a C++ exception, which comes out again as it was.
[[noreturn]] void throw_python();
/// Runs f; whatever it throws becomes Python's error and the result `failure`.
template <class F, class R>
R guarded(F&& f, R failure) {
  try {
    return f();
  } catch (...) {
    raise_current();
    return failure;
  }
}

// ---- the GIL --------------------------------------------------------------------------------------------------------

/// Gives the GIL up, and takes it again. At the end of Python, threads other than the main one wait in either for the end of
/// the process: taking the GIL would end them with an unwinding that C++ cannot survive, and the engine is being taken down.
PyThreadState* give_gil();
void take_gil(PyThreadState* state);
/// Whether Python is ending, so that this thread must not call it any more.
bool python_is_ending();

/// Releases the GIL while one lives, if there is so much work that another thread may as well run.
class MaybeRelease {
 public:
  explicit MaybeRelease(bool release) : state_(release ? give_gil() : nullptr) {}
  ~MaybeRelease() {
    if (state_) take_gil(state_);
  }
  MaybeRelease(const MaybeRelease&) = delete;

 private:
  PyThreadState* state_;
};
/// The same, always: for nb::call_guard too.
struct Released : MaybeRelease {
  Released() : MaybeRelease(true) {}
};
/// Handing the GIL over costs about as much as a kernel over this many elements.
inline constexpr int64_t kReleaseAbove = 2048;
inline bool is_heavy(const Tensor& t) {
  return t.defined() && (t.numel() > kReleaseAbove || t.device().is_cuda());
}

/// A Python object that C++ holds: dropped with the GIL, whichever thread that happens on; leaked after the end of Python.
class Held {
 public:
  Held() = default;
  explicit Held(nb::object o) : o_(o.release().ptr()) {}
  Held(Held&& other) noexcept : o_(std::exchange(other.o_, nullptr)) {}
  Held(const Held&) = delete;
  ~Held();
  nb::handle get() const { return o_; }

 private:
  PyObject* o_ = nullptr;
};

/// A Python object as a T: an argument whose type a signature leaves open. Raises TypeError that names function and argument,
/// where nb::cast would say "std::bad_cast".
template <class T>
T cast_argument(nb::handle o, const char* function, const char* argument, const char* wanted) {
  try {
    return nb::cast<T>(o);
  } catch (const nb::cast_error&) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s: %s must be %s, got %R", function, argument, wanted, o.ptr());
    throw nb::python_error();
  }
}

// ---- values ---------------------------------------------------------------------------------------------------------

// Each returns false where `o` is not of that kind; a Python error is set then only where the value itself is bad
// (an int past 64 bits).
bool to_scalar(PyObject* o, Scalar& out);
/// What stands beside a tensor of `device`: a tensor as it is, a number as one of its own, a NumPy array as a tensor over its
/// memory.
bool to_operand(PyObject* o, Device device, Tensor& out);
/// Whether it is one of NumPy's arrays, or takes part in its operators as they do.
bool is_array(PyObject* o);
bool to_int(PyObject* o, int64_t& out);
bool to_double(PyObject* o, double& out);
bool to_dims(PyObject* o, Dims& out);
/// st.float32, "float32", float, numpy.float32 ...
bool to_dtype(PyObject* o, DType& out);
/// st.device("cuda"), "cuda:0", an int.
bool to_device(PyObject* o, Device& out);
/// A list or tuple of tensors; None stands for an undefined one.
bool to_tensors(PyObject* o, TensorList& out);
bool to_key(PyObject* o, RngKey& out);
/// What texts of dtypes and sizes begin with: "strata", or the name that a program knows it by (_show_as()).
std::string& shown_as();
/// New references.
PyObject* from_dtype(DType t);
PyObject* from_device(Device d);
PyObject* from_dims(const Dims& d);
/// The same as a Size, which is what a shape is.
PyObject* from_shape(const Shape& shape);
/// Whether it is a Size.
bool is_size(PyObject* o);
PyObject* from_scalar(Scalar s);
PyObject* from_value(const Value& v);
/// A tensor from nested sequences, numbers, arrays (copies). `device` defaults to default_device().
Tensor tensor_from(nb::handle data, std::optional<DType> dtype, std::optional<Device> device);
/// Says once what a memory format other than row-major means here.
/// What a memory format of PyTorch's says of the order of the dimensions.
struct MemoryFormat {
  int64_t rank = 0;       // of the tensors that can lie so; 0: any
  Dims innermost, back;   // the permutation to channels innermost, and back
  bool row_major = false;
  bool channels_last() const { return rank != 0; }
};
MemoryFormat memory_format_of(nb::handle format);
/// x with its elements in the format's order: x itself where they are and no copy is asked for. Gradients flow through.
Tensor in_memory_format(const Tensor& x, const MemoryFormat& format, bool copy = false);
/// Arguments as functions with a shape take them: f(2, 3) or f((2, 3)).
Shape shape_of(nb::args sizes);

/// x[key] and x[key] = value.
Tensor get_item(const Tensor& x, PyObject* key);
void set_item(Tensor& x, PyObject* key, PyObject* value, bool accumulate = false);

/// The buffer protocol's slots.
int get_buffer(PyObject* self, Py_buffer* view, int flags);
void release_buffer(PyObject* self, Py_buffer* view);

// ---- the parts ------------------------------------------------------------------------------------------------------

void bind_errors(nb::module_& m);
void bind_types(nb::module_& m);
void bind_size(nb::module_& m);
void bind_tensor(nb::module_& m);
void bind_tensor_methods(nb::module_& m);
void bind_named(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_functions(nb::module_& m);
void bind_exchange(nb::module_& m);
void bind_autograd(nb::module_& m);
void bind_cuda(nb::module_& m);
void bind_graphed(nb::module_& m);
void bind_optim(nb::module_& m);
void bind_profile(nb::module_& m);
void bind_data(nb::module_& m);
void bind_io(nb::module_& m);
void bind_text(nb::module_& m);
void bind_train(nb::module_& m);
void bind_recording(nb::module_& m);
void bind_pretrained(nb::module_& m);

/// Adds a method to the Tensor type: a nanobind function whose first argument is the tensor.
template <class F, class... Extra>
void def_method(const char* name, F&& f, const Extra&... extra) {
  nb::handle type(reinterpret_cast<PyObject*>(g_tensor_type));
  nb::object fn = nb::cpp_function(std::forward<F>(f), nb::name(name), nb::is_method(), extra...);
  if (PyObject_SetAttrString(type.ptr(), name, fn.ptr()) != 0) throw nb::python_error();
}

}  // namespace strata::python

namespace nanobind::detail {

template <>
struct type_caster<strata::Tensor> {
  NB_TYPE_CASTER(strata::Tensor, const_name("Tensor"))
  bool from_python(handle src, uint8_t, cleanup_list*) noexcept {
    if (!strata::python::is_tensor(src.ptr())) return false;
    value = strata::python::tensor_of(src.ptr());
    return true;
  }
  static handle from_cpp(const strata::Tensor& t, rv_policy, cleanup_list*) noexcept { return strata::python::wrap(t); }
};

template <>
struct type_caster<strata::DType> {
  NB_TYPE_CASTER(strata::DType, const_name("dtype"))
  bool from_python(handle src, uint8_t, cleanup_list*) noexcept {
    if (strata::python::to_dtype(src.ptr(), value)) return true;
    PyErr_Clear();
    return false;
  }
  static handle from_cpp(strata::DType t, rv_policy, cleanup_list*) noexcept { return strata::python::from_dtype(t); }
};

template <>
struct type_caster<strata::Dims> {
  NB_TYPE_CASTER(strata::Dims, const_name("Sequence[int]"))
  bool from_python(handle src, uint8_t, cleanup_list*) noexcept {
    try {
      if (strata::python::to_dims(src.ptr(), value)) return true;
    } catch (...) {
    }
    PyErr_Clear();
    return false;
  }
  static handle from_cpp(const strata::Dims& d, rv_policy, cleanup_list*) noexcept {
    return strata::python::from_dims(d);
  }
};

template <>
struct type_caster<strata::Scalar> {
  NB_TYPE_CASTER(strata::Scalar, const_name("int | float | bool"))
  bool from_python(handle src, uint8_t, cleanup_list*) noexcept {
    if (strata::python::to_scalar(src.ptr(), value)) return true;
    PyErr_Clear();
    return false;
  }
  static handle from_cpp(strata::Scalar s, rv_policy, cleanup_list*) noexcept { return strata::python::from_scalar(s); }
};

template <>
struct type_caster<strata::Device> {
  NB_TYPE_CASTER(strata::Device, const_name("device"))
  bool from_python(handle src, uint8_t, cleanup_list*) noexcept {
    try {
      if (strata::python::to_device(src.ptr(), value)) return true;
    } catch (...) {
    }
    PyErr_Clear();
    return false;
  }
  static handle from_cpp(strata::Device d, rv_policy, cleanup_list*) noexcept {
    return strata::python::from_device(d);
  }
};

template <>
struct type_caster<strata::RngKey> {
  NB_TYPE_CASTER(strata::RngKey, const_name("tuple[int, int]"))
  bool from_python(handle src, uint8_t, cleanup_list*) noexcept {
    if (strata::python::to_key(src.ptr(), value)) return true;
    PyErr_Clear();
    return false;
  }
  static handle from_cpp(const strata::RngKey& k, rv_policy, cleanup_list*) noexcept {
    return Py_BuildValue("(KK)", static_cast<unsigned long long>(k.seed), static_cast<unsigned long long>(k.offset));
  }
};

}  // namespace nanobind::detail
