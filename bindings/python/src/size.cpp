// Size, the type of x.shape: a tuple of ints that knows its product.

#include <array>

#include "py.h"

namespace strata::python {
namespace {

PyTypeObject* g_size_type;

PyObject* new_size(const Dims& d) {
  PyObject* size = PyType_GenericAlloc(g_size_type, d.size());
  for (int i = 0; size && i < d.size(); ++i) PyTuple_SetItem(size, i, PyLong_FromLongLong(d[i]));
  return size;
}

// What tuple's own slot returns, as a Size.
template <class Slot>
Slot of_tuple(int slot) {
  return reinterpret_cast<Slot>(PyType_GetSlot(&PyTuple_Type, slot));
}
PyObject* as_size(PyObject* tuple) {
  if (!tuple || !PyTuple_Check(tuple)) return tuple;
  PyObject* size = PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(g_size_type), tuple, nullptr);
  Py_DECREF(tuple);
  return size;
}

PyObject* size_new(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  static const auto make = of_tuple<newfunc>(Py_tp_new);
  PyObject* made = make(type, args, keywords);
  for (Py_ssize_t i = 0; made && i < PyTuple_Size(made); ++i) {
    PyObject* size = PyTuple_GetItem(made, i);
    int64_t value;
    if (PyLong_CheckExact(size)) continue;
    if (!to_int(size, value)) {
      if (!PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "Size() takes an iterable of ints, item %zd is %R", i, Py_TYPE(size));
      Py_DECREF(made);
      return nullptr;
    }
    PyTuple_SetItem(made, i, PyLong_FromLongLong(value));
  }
  return made;
}

PyObject* size_repr(PyObject* self) {
  nb::object list = nb::steal(PySequence_List(self));
  return list.is_valid() ? PyUnicode_FromFormat("%s.Size(%R)", shown_as().c_str(), list.ptr()) : nullptr;
}

PyObject* size_subscript(PyObject* self, PyObject* key) {
  static const auto get = of_tuple<binaryfunc>(Py_mp_subscript);
  PyObject* part = get(self, key);
  return PySlice_Check(key) ? as_size(part) : part;
}
PyObject* size_add(PyObject* a, PyObject* b) {  // in either order: beside a plain tuple too
  static const auto join = of_tuple<binaryfunc>(Py_sq_concat);
  if (PyTuple_Check(a) && PyTuple_Check(b)) return as_size(join(a, b));
  Py_INCREF(Py_NotImplemented);
  return Py_NotImplemented;
}
PyObject* size_repeat(PyObject* self, Py_ssize_t times) {
  static const auto repeat = of_tuple<ssizeargfunc>(Py_sq_repeat);
  return as_size(repeat(self, times));
}

PyObject* size_numel(PyObject* self, PyObject*) {
  nb::object count = nb::int_(1);
  for (Py_ssize_t i = 0; count.is_valid() && i < PyTuple_Size(self); ++i)
    count = nb::steal(PyNumber_Multiply(count.ptr(), PyTuple_GetItem(self, i)));
  return count.release().ptr();
}
PyObject* size_reduce(PyObject* self, PyObject*) {
  nb::object list = nb::steal(PySequence_List(self));
  nb::object tuple = nb::steal(list.is_valid() ? PyList_AsTuple(list.ptr()) : nullptr);
  return tuple.is_valid() ? Py_BuildValue("(O(O))", Py_TYPE(self), tuple.ptr()) : nullptr;
}

PyMethodDef g_methods[] = {{"numel", size_numel, METH_NOARGS, "The product of the sizes."},
                           {"__reduce__", size_reduce, METH_NOARGS, nullptr},
                           {nullptr, nullptr, 0, nullptr}};

// Shapes come again and again, and a Size never changes: the one of each place was given out last.
struct Kept {
  Dims dims;
  PyObject* size = nullptr;
};
std::array<Kept, 64> g_kept;

}  // namespace

bool is_size(PyObject* o) {
  return PyObject_TypeCheck(o, g_size_type) != 0;
}

PyObject* from_shape(const Shape& shape) {
  uint64_t hash = static_cast<uint64_t>(shape.size());
  for (const int64_t n : shape) hash = (hash ^ static_cast<uint64_t>(n)) * 0x9E3779B97F4A7C15;
  Kept& kept = g_kept[hash >> 58];
  if (kept.size && kept.dims == shape) {
    Py_INCREF(kept.size);
    return kept.size;
  }
  PyObject* size = new_size(shape);
  if (!size) return nullptr;
  PyObject* before = kept.size;
  kept = {shape, size};
  Py_INCREF(size);
  Py_XDECREF(before);
  return size;
}

void bind_size(nb::module_& m) {
  PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("A shape: a tuple of ints.")},
      {Py_tp_new, reinterpret_cast<void*>(size_new)},
      {Py_tp_repr, reinterpret_cast<void*>(size_repr)},
      {Py_tp_methods, g_methods},
      {Py_mp_subscript, reinterpret_cast<void*>(size_subscript)},
      {Py_nb_add, reinterpret_cast<void*>(size_add)},
      {Py_sq_repeat, reinterpret_cast<void*>(size_repeat)},
      {0, nullptr},
  };
  // Sizes 0: tuple's own.
  PyType_Spec spec = {"strata.Size", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  nb::object bases = nb::make_tuple(nb::handle(reinterpret_cast<PyObject*>(&PyTuple_Type)));
  PyObject* type = PyType_FromSpecWithBases(&spec, bases.ptr());
  if (!type) throw nb::python_error();
  g_size_type = reinterpret_cast<PyTypeObject*>(type);
  m.attr("Size") = nb::handle(type);
}

}  // namespace strata::python
