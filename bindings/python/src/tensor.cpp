// The Tensor type: lifetime, len/iter/index/bool. Its operators are in tensor_operators.cpp, its attributes in
// tensor_attributes.cpp; its methods come from the op records and from tensor_methods.cpp.

#include <cstddef>
#include <vector>

#include "py.h"
#include <structmember.h>
#include "strata/core/error.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/index/indexing.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "tensor_type.h"

namespace strata::python {

PyTypeObject* g_tensor_type;

PyObject* wrap(Tensor t) {
  if (!t.defined()) {
    Py_INCREF(Py_None);
    return Py_None;
  }
  PyObject* o = PyType_GenericAlloc(g_tensor_type, 0);
  if (!o) return nullptr;
  new (&reinterpret_cast<PyTensor*>(o)->value) Tensor(std::move(t));
  return o;
}

namespace {

// ---- lifetime -------------------------------------------------------------------------------------------------------

// Tensor(data) makes a subclass's object over the same handle (Parameter); Tensor() is an empty tensor.
PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject*) {
  return guarded(
      [&]() -> PyObject* {
        Tensor t;
        const Py_ssize_t n = PyTuple_Size(args);
        bool sizes = n > 0;  // Tensor(2, 3) is PyTorch's old empty(2, 3)
        for (Py_ssize_t i = 0; i < n; ++i) sizes &= PyLong_CheckExact(PyTuple_GetItem(args, i)) != 0;
        if (n == 0 || sizes) {
          Shape shape;
          for (Py_ssize_t i = 0; i < n; ++i) {
            const long long size = PyLong_AsLongLong(PyTuple_GetItem(args, i));
            if (size == -1 && PyErr_Occurred()) throw nb::python_error();
            shape.push_back(size);
          }
          if (n == 0) shape.push_back(0);
          t = empty({shape, default_dtype(), default_device(), std::nullopt});
        } else if (n > 1) {
          throw nb::type_error("Tensor(): sizes, or one sequence of numbers are wanted; use tensor()");
        } else {
          PyObject* data = PyTuple_GetItem(args, 0);
          Dims shape;
          if (is_tensor(data)) {
            t = tensor_of(data);
          } else if (is_size(data) && to_dims(data, shape)) {
            t = empty({shape, default_dtype(), default_device(), std::nullopt});
          } else {
            t = tensor_from(data, default_dtype(), std::nullopt);  // as FloatTensor, whatever the data are
          }
        }
        PyObject* o = PyType_GenericAlloc(type, 0);
        if (o) new (&reinterpret_cast<PyTensor*>(o)->value) Tensor(std::move(t));
        return o;
      },
      static_cast<PyObject*>(nullptr));
}

void tensor_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  auto* t = reinterpret_cast<PyTensor*>(self);
  if (t->weak) PyObject_ClearWeakRefs(self);
  t->value.~Tensor();
  if (type == g_tensor_type) {
    PyObject_Free(self);
  } else {
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  }
  Py_DECREF(type);
}

Py_hash_t tensor_hash(PyObject* self) {
  const auto h = static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(self) >> 4);
  return h == -1 ? -2 : h;
}

// ---- numbers, sequences ---------------------------------------------------------------------------------------------

Scalar only_element(const Tensor& t, const char* what) {
  if (t.numel() != 1)
    throw ValueError(what, cat("a tensor of ", to_string(t.shape()), " is no number; one element is wanted"));
  MaybeRelease release(t.device().is_cuda());
  return t.item_scalar();
}
int tensor_bool(PyObject* self) {
  return guarded(
      [&] {
        const Tensor& t = tensor_of(self);
        if (t.numel() != 1)
          throw ValueError("bool",
                           cat("the truth of a tensor of ", to_string(t.shape()), " is ambiguous; use any() or all()"));
        return static_cast<int>(only_element(t, "bool").to_bool());
      },
      -1);
}
PyObject* tensor_int(PyObject* self) {
  return guarded(
      [&]() -> PyObject* {
        const Scalar s = only_element(tensor_of(self), "int");
        if (s.kind() == DType::f64) return PyLong_FromDouble(s.to_double());
        return PyLong_FromLongLong(s.to_int());
      },
      static_cast<PyObject*>(nullptr));
}
PyObject* tensor_float(PyObject* self) {
  return guarded([&] { return PyFloat_FromDouble(only_element(tensor_of(self), "float").to_double()); },
                 static_cast<PyObject*>(nullptr));
}
PyObject* tensor_index(PyObject* self) {
  return guarded(
      [&]() -> PyObject* {
        const Tensor& t = tensor_of(self);
        if (!is_integral(t.dtype(), true) || t.numel() != 1) {
          PyErr_Format(PyExc_TypeError, "only integer tensors of one element can be an index, got %s",
                       describe(t).c_str());
          return nullptr;
        }
        return PyLong_FromLongLong(only_element(t, "index").to_int());
      },
      static_cast<PyObject*>(nullptr));
}

Py_ssize_t tensor_length(PyObject* self) {
  const Tensor& t = tensor_of(self);
  if (t.dim() == 0) {
    PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
    return -1;
  }
  return static_cast<Py_ssize_t>(t.shape()[0]);
}
PyObject* tensor_iter(PyObject* self) {
  return guarded(
      [&]() -> PyObject* {
        const Tensor& t = tensor_of(self);
        if (t.dim() == 0) {
          PyErr_SetString(PyExc_TypeError, "iteration over a 0-d tensor");
          return nullptr;
        }
        PyObject* parts = from_value(unbind(t));
        if (!parts) return nullptr;
        PyObject* iterator = PyObject_GetIter(parts);
        Py_DECREF(parts);
        return iterator;
      },
      static_cast<PyObject*>(nullptr));
}
PyObject* tensor_subscript(PyObject* self, PyObject* key) {
  return guarded([&] { return wrap(get_item(tensor_of(self), key)); }, static_cast<PyObject*>(nullptr));
}
PyObject* tensor_item(PyObject* self, Py_ssize_t i) {
  return guarded([&] { return wrap(tensor_of(self).select(0, i)); }, static_cast<PyObject*>(nullptr));
}
int tensor_assign(PyObject* self, PyObject* key, PyObject* value) {
  if (!value) {
    PyErr_SetString(PyExc_TypeError, "elements of a tensor cannot be deleted");
    return -1;
  }
  return guarded(
      [&] {
        set_item(tensor_of(self), key, value);
        return 0;
      },
      -1);
}
int tensor_contains(PyObject* self, PyObject* element) {
  return guarded(
      [&] {
        const Tensor& x = tensor_of(self);
        Tensor y;
        if (!to_operand(element, x.device(), y)) {
          if (PyErr_Occurred()) return -1;
          PyErr_Format(PyExc_TypeError, "a tensor contains numbers, not %R", Py_TYPE(element));
          return -1;
        }
        return static_cast<int>(any(eq(x, y)).item<bool>());
      },
      -1);
}

PyMemberDef g_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(PyTensor, weak), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot g_slots[] = {
    STRATA_SLOT(Py_tp_new, tensor_new),
    STRATA_SLOT(Py_tp_dealloc, tensor_dealloc),
    STRATA_SLOT(Py_tp_hash, tensor_hash),
    STRATA_SLOT(Py_tp_iter, tensor_iter),
    STRATA_SLOT(Py_tp_members, g_members),
    {Py_tp_doc, const_cast<char*>("An n-dimensional array of one element type on one device, with gradients.")},
    STRATA_SLOT(Py_nb_bool, tensor_bool),
    STRATA_SLOT(Py_nb_int, tensor_int),
    STRATA_SLOT(Py_nb_float, tensor_float),
    STRATA_SLOT(Py_nb_index, tensor_index),
    STRATA_SLOT(Py_mp_length, tensor_length),
    STRATA_SLOT(Py_mp_subscript, tensor_subscript),
    STRATA_SLOT(Py_mp_ass_subscript, tensor_assign),
    STRATA_SLOT(Py_sq_item, tensor_item),
    STRATA_SLOT(Py_sq_contains, tensor_contains),
    STRATA_SLOT(Py_bf_getbuffer, get_buffer),
    STRATA_SLOT(Py_bf_releasebuffer, release_buffer),
};

}  // namespace

void bind_tensor(nb::module_& m) {
  std::vector<PyType_Slot> slots(std::begin(g_slots), std::end(g_slots));
  for (const PyType_Slot& s : operator_slots()) slots.push_back(s);
  slots.push_back({Py_tp_getset, tensor_attributes()});
  slots.push_back({0, nullptr});
  PyType_Spec spec = {"strata.Tensor", sizeof(PyTensor), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots.data()};
  PyObject* type = PyType_FromSpec(&spec);
  if (!type) throw nb::python_error();
  g_tensor_type = reinterpret_cast<PyTypeObject*>(type);
  m.attr("Tensor") = nb::handle(type);
}

}  // namespace strata::python
