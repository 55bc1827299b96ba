// Values from Python and to Python; the types dtype, device and Key.

#include <array>
#include <climits>

#include "py.h"
#include "strata/core/dtype_limits.h"
#include "strata/core/error.h"
#include "strata/core/rng.h"

namespace strata::python {
namespace {

struct PyDType {
  DType value;
};
struct PyDevice {
  Device value;
};

constexpr const char* kNames[kNumDTypes] = {"uint8",   "int8",     "int16",   "int32",   "int64",
                                            "float16", "bfloat16", "float32", "float64", "bool"};
std::array<PyObject*, kNumDTypes> g_dtypes;
PyTypeObject* g_device_type;
PyObject* g_bool;
PyObject* g_int;
PyObject* g_float;

bool is_sequence(PyObject* o) {
  return PyList_Check(o) || PyTuple_Check(o);
}

bool has_attr(PyObject* o, const char* name) {
  const int found = PyObject_HasAttrString(o, name);
  return found == 1;
}

}  // namespace

bool is_array(PyObject* o) {
  return has_attr(o, "__array_interface__") && has_attr(o, "__array_ufunc__") && !PyType_Check(o);
}

bool to_scalar(PyObject* o, Scalar& out) {
  if (PyFloat_Check(o)) {
    out = PyFloat_AsDouble(o);
    return true;
  }
  if (PyBool_Check(o)) {
    out = o == Py_True;
    return true;
  }
  if (PyLong_Check(o)) {
    const long long v = PyLong_AsLongLong(o);
    if (v == -1 && PyErr_Occurred()) return false;
    out = static_cast<int64_t>(v);
    return true;
  }
  if (is_tensor(o)) {
    const Tensor& t = tensor_of(o);
    if (t.numel() != 1 || t.requires_grad()) return false;
    out = t.item_scalar();
    return true;
  }
  // NumPy's numbers: no arrays, and no tensors of others.
  if (has_attr(o, "dtype") && has_attr(o, "item") && has_attr(o, "shape") && !has_attr(o, "__setitem__")) {
    nb::object item = nb::steal(PyObject_CallMethod(o, "item", nullptr));
    if (!item.is_valid() || is_tensor(item.ptr()) || has_attr(item.ptr(), "dtype")) {
      PyErr_Clear();
      return false;
    }
    return to_scalar(item.ptr(), out);
  }
  return false;
}

bool to_operand(PyObject* o, Device device, Tensor& out) {
  Scalar s;
  if (is_tensor(o)) {
    out = tensor_of(o);
  } else if (to_scalar(o, s)) {
    out = wrap_number(s, device);
  } else if (!PyErr_Occurred() && is_array(o)) {
    out = tensor_from(o, std::nullopt, device);
  } else {
    return false;
  }
  return true;
}
bool to_int(PyObject* o, int64_t& out) {
  if (PyFloat_Check(o)) return false;
  if (!PyLong_Check(o) && !PyIndex_Check(o)) return false;
  nb::object index;
  if (!PyLong_Check(o)) {
    index = nb::steal(PyNumber_Index(o));
    if (!index.is_valid()) {
      if (PyErr_ExceptionMatches(PyExc_TypeError)) PyErr_Clear();  // an array of several: no number
      return false;
    }
    o = index.ptr();
  }
  const long long v = PyLong_AsLongLong(o);
  if (v == -1 && PyErr_Occurred()) return false;
  out = v;
  return true;
}

bool to_double(PyObject* o, double& out) {
  if (PyFloat_Check(o)) {
    out = PyFloat_AsDouble(o);
    return true;
  }
  Scalar s;
  if (!to_scalar(o, s)) return false;
  out = s.to_double();
  return true;
}

bool to_dims(PyObject* o, Dims& out) {
  int64_t one;
  if (PyTuple_Check(o) || PyList_Check(o)) {
    const bool tuple = PyTuple_Check(o);
    const Py_ssize_t n = tuple ? PyTuple_Size(o) : PyList_Size(o);
    Dims d;
    for (Py_ssize_t i = 0; i < n; ++i) {
      // __index__ of an item may run anything, a change of the list too.
      const nb::object item = nb::borrow(tuple ? PyTuple_GetItem(o, i) : PyList_GetItem(o, i));
      if (!item.is_valid() || !to_int(item.ptr(), one)) return false;
      d.push_back(one);
    }
    out = d;
    return true;
  }
  if (to_int(o, one)) {
    out = {one};
    return true;
  }
  return false;
}

bool to_dtype(PyObject* o, DType& out) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (o == g_dtypes[static_cast<size_t>(i)]) {
      out = static_cast<DType>(i);
      return true;
    }
  }
  if (o == g_bool) return out = DType::boolean, true;
  if (o == g_int) return out = DType::i64, true;
  if (o == g_float) return out = DType::f64, true;
  nb::object text;
  if (!PyUnicode_Check(o)) {
    // numpy.float32 (a class), numpy.dtype("float32"), ml_dtypes.bfloat16.
    text = nb::steal(PyObject_GetAttrString(o, PyType_Check(o) ? "__name__" : "name"));
    if (!text.is_valid()) {
      PyErr_Clear();
      return false;
    }
    o = text.ptr();
    if (!PyUnicode_Check(o)) return false;
  }
  const char* s = PyUnicode_AsUTF8AndSize(o, nullptr);
  if (!s) return false;
  try {
    out = parse_dtype(std::string_view(s) == "bool_" ? "bool" : s);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool to_device(PyObject* o, Device& out) {
  if (PyUnicode_Check(o)) {
    const char* s = PyUnicode_AsUTF8AndSize(o, nullptr);
    if (!s) return false;
    out = parse_device(s);
    return true;
  }
  if (Py_TYPE(o) == g_device_type && nb::inst_ready(nb::handle(o))) {
    out = nb::inst_ptr<PyDevice>(nb::handle(o))->value;
    return true;
  }
  if (PyLong_Check(o) && !PyBool_Check(o)) {
    int64_t index;
    if (!to_int(o, index)) return false;
    out = Device::cuda(static_cast<int>(index));
    return true;
  }
  return false;
}

bool to_tensors(PyObject* o, TensorList& out) {
  if (!is_sequence(o)) return false;
  const bool tuple = PyTuple_Check(o);
  const Py_ssize_t n = tuple ? PyTuple_Size(o) : PyList_Size(o);
  out.clear();
  out.reserve(static_cast<size_t>(n));
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = tuple ? PyTuple_GetItem(o, i) : PyList_GetItem(o, i);
    if (item == Py_None) {
      out.emplace_back();
    } else if (is_tensor(item)) {
      out.push_back(tensor_of(item));
    } else {
      return false;
    }
  }
  return true;
}

bool to_key(PyObject* o, RngKey& out) {
  if (!PyTuple_Check(o) || PyTuple_Size(o) != 2) return false;
  const unsigned long long seed = PyLong_AsUnsignedLongLong(PyTuple_GetItem(o, 0));
  if (PyErr_Occurred()) return PyErr_Clear(), false;
  const unsigned long long offset = PyLong_AsUnsignedLongLong(PyTuple_GetItem(o, 1));
  if (PyErr_Occurred()) return PyErr_Clear(), false;
  out = {seed, offset};
  return true;
}

PyObject* from_dtype(DType t) {
  PyObject* o = g_dtypes[static_cast<size_t>(t)];
  Py_INCREF(o);
  return o;
}

PyObject* from_dims(const Dims& d) {
  PyObject* tuple = PyTuple_New(d.size());
  for (int i = 0; tuple && i < d.size(); ++i) PyTuple_SetItem(tuple, i, PyLong_FromLongLong(d[i]));
  return tuple;
}

PyObject* from_scalar(Scalar s) {
  if (s.kind() == DType::f64) return PyFloat_FromDouble(s.to_double());
  if (s.kind() == DType::boolean) return PyBool_FromLong(s.to_bool());
  return PyLong_FromLongLong(s.to_int());
}

PyObject* from_value(const Value& v) {
  return std::visit(
      [](const auto& x) -> PyObject* {
        using T = std::remove_cvref_t<decltype(x)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          Py_INCREF(Py_None);
          return Py_None;
        } else if constexpr (std::is_same_v<T, Tensor>) {
          return wrap(x);
        } else if constexpr (std::is_same_v<T, TensorList>) {
          PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(x.size()));
          for (size_t i = 0; tuple && i < x.size(); ++i) PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(i), wrap(x[i]));
          return tuple;
        } else if constexpr (std::is_same_v<T, Scalar>) {
          return from_scalar(x);
        } else if constexpr (std::is_same_v<T, bool>) {
          return PyBool_FromLong(x);
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return PyLong_FromLongLong(x);
        } else if constexpr (std::is_same_v<T, double>) {
          return PyFloat_FromDouble(x);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return PyUnicode_FromStringAndSize(x.data(), static_cast<Py_ssize_t>(x.size()));
        } else if constexpr (std::is_same_v<T, Dims>) {
          return from_dims(x);
        } else if constexpr (std::is_same_v<T, DType>) {
          return from_dtype(x);
        } else {
          return nb::cast(x).release().ptr();
        }
      },
      v);
}

MemoryFormat memory_format_of(nb::handle format) {
  if (!format.is_valid() || format.is_none()) return {};
  const std::string name = nb::cast<std::string>(nb::getattr(format, "_name", nb::str("")));
  if (name == "channels_last") return {4, {0, 2, 3, 1}, {0, 3, 1, 2}};
  if (name == "channels_last_3d") return {5, {0, 2, 3, 4, 1}, {0, 4, 1, 2, 3}};
  if (name == "contiguous_format") return {.row_major = true};
  if (name == "preserve_format") return {};
  throw nb::type_error(
      "memory_format: one of contiguous_format, preserve_format, channels_last and channels_last_3d is wanted");
}

Tensor in_memory_format(const Tensor& x, const MemoryFormat& f, bool copy) {
  if (!f.channels_last()) return copy ? (f.row_major ? x.contiguous() : x).clone() : f.row_major ? x.contiguous() : x;
  if (x.dim() != f.rank) throw ShapeError("memory_format", cat("needs a tensor of ", f.rank, " dimensions, got ", x));
  const Tensor turned = x.permute(f.innermost);
  if (turned.is_contiguous() && !copy) return x;
  return (copy ? turned.contiguous().clone() : turned.contiguous()).permute(f.back);
}

Shape shape_of(nb::args sizes) {
  Dims d;
  if (sizes.size() == 1 && to_dims(sizes[0].ptr(), d)) return d;
  if (!PyErr_Occurred() && to_dims(sizes.ptr(), d)) return d;
  if (PyErr_Occurred()) throw_python();
  throw nb::type_error("a shape is wanted: ints, or one tuple or list of ints");
}

std::string& shown_as() {
  static std::string name = "strata";
  return name;
}

void bind_types(nb::module_& m) {
  m.def("_show_as", [](std::string name) { shown_as() = std::move(name); }, nb::arg("name"));
  m.def("_shown_as", [] { return shown_as(); });
  nb::object builtins = nb::module_::import_("builtins");
  g_bool = nb::object(builtins.attr("bool")).release().ptr();
  g_int = nb::object(builtins.attr("int")).release().ptr();
  g_float = nb::object(builtins.attr("float")).release().ptr();
  nb::class_<PyDType>(m, "dtype", "An element type: strata.float32, strata.int64 ...")
      .def_prop_ro(
          "itemsize", [](const PyDType& t) { return size_of(t.value); }, "Bytes of one element.")
      .def_prop_ro("is_floating_point", [](const PyDType& t) { return is_floating(t.value); })
      .def_prop_ro("is_complex", [](const PyDType&) { return false; })
      .def_prop_ro("is_signed", [](const PyDType& t) { return t.value != DType::u8 && t.value != DType::boolean; })
      .def_prop_ro(
          "name", [](const PyDType& t) { return kNames[static_cast<int>(t.value)]; }, "\"float32\"")
      .def_prop_ro(
          "short_name", [](const PyDType& t) { return std::string(name_of(t.value)); }, "\"f32\"")
      .def_prop_ro(
          "_limits",
          [](const PyDType& t) {
            nb::dict d;
            if (is_floating(t.value)) {
              const FloatLimits limits = float_limits(t.value);
              d["eps"] = limits.eps;
              d["max"] = limits.max;
              d["min"] = -limits.max;
              d["smallest_normal"] = limits.smallest_normal;
              d["tiny"] = limits.smallest_normal;
              d["resolution"] = limits.resolution;
            } else {
              const IntLimits limits = int_limits(t.value);
              d["max"] = limits.max;
              d["min"] = limits.min;
            }
            d["bits"] = 8 * size_of(t.value);
            return d;
          },
          "What it can hold: strata/core/dtype_limits.h.")
      .def("__repr__", [](const PyDType& t) { return shown_as() + "." + kNames[static_cast<int>(t.value)]; })
      .def("__reduce__", [](const PyDType& t) { return std::string(kNames[static_cast<int>(t.value)]); })
      .def("__copy__", [](nb::handle self) { return nb::borrow(self); })
      .def(
          "__deepcopy__", [](nb::handle self, nb::handle) { return nb::borrow(self); }, nb::arg("memo"));
  for (int i = 0; i < kNumDTypes; ++i) {
    nb::object o = nb::cast(PyDType{static_cast<DType>(i)});
    m.attr(kNames[i]) = o;
    g_dtypes[static_cast<size_t>(i)] = o.release().ptr();
  }
  nb::class_<PyDevice> device(m, "device", "Where a tensor's bytes live: strata.device(\"cuda:0\").");
  g_device_type = reinterpret_cast<PyTypeObject*>(device.ptr());
  device
      .def(
          "__init__",
          [](PyDevice* self, nb::handle type, std::optional<int> index) {
            Device d;
            if (!to_device(type.ptr(), d)) {
              if (PyErr_Occurred()) throw_python();
              throw nb::type_error("device: a text such as \"cpu\" or \"cuda:0\" is wanted");
            }
            if (index) d.index = static_cast<int8_t>(*index);
            new (self) PyDevice{d};
          },
          nb::arg("type"), nb::arg("index") = nb::none())
      .def_prop_ro("type",
                   [](const PyDevice& d) { return d.value.is_cpu()    ? "cpu"
                                                  : d.value.is_cuda() ? "cuda"
                                                                      : "meta"; })
      .def_prop_ro(
          "index",
          [](const PyDevice& d) { return d.value.is_cuda() ? std::optional<int>(d.value.index) : std::nullopt; })
      .def(
          "__eq__",
          [](const PyDevice& a, nb::handle b) {
            Device other;
            try {
              if (to_device(b.ptr(), other)) return a.value == other;
            } catch (const Error&) {
            }
            PyErr_Clear();
            return false;
          },
          nb::arg("other").none())
      .def("__hash__", [](const PyDevice& d) { return static_cast<int64_t>(d.value.type) * 131 + d.value.index; })
      .def("__str__", [](const PyDevice& d) { return to_string(d.value); })
      .def("__repr__",
           [](const PyDevice& d) {
             if (!d.value.is_cuda()) return "device(type='" + to_string(d.value) + "')";
             return "device(type='cuda', index=" + std::to_string(d.value.index) + ")";
           })
      .def("__reduce__", [](nb::handle self) { return nb::make_tuple(self.type(), nb::make_tuple(nb::str(self))); });
}

PyObject* from_device(Device d) {
  return nb::cast(PyDevice{d}).release().ptr();
}

}  // namespace strata::python
