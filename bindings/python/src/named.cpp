// PyTorch's argument names and `out=` for every function and method. A call without keywords, or with such as the
// function is known to take, costs one jump more; any other goes to strata/_signatures.py, which knows what PyTorch
// calls the arguments, and there remembers what the function takes.

#include "named.h"

#include <structmember.h>

#include <cstddef>

namespace strata::python {
namespace {

struct PyNamed {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;
  PyObject* known;  // keywords that the function takes as they are
  PyObject* dict;
};

PyNamed* of(PyObject* o) {
  return reinterpret_cast<PyNamed*>(o);
}

PyObject* named_call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) {
  const PyNamed* n = of(self);
  const Py_ssize_t keywords = names ? PyTuple_Size(names) : 0;
  for (Py_ssize_t i = 0; i < keywords; ++i) {
    const int known = PySet_Contains(n->known, PyTuple_GetItem(names, i));
    if (known < 0) return nullptr;
    if (!known) return call_by_names(self, args, static_cast<size_t>(PyVectorcall_NARGS(nargsf)), names);
  }
  return PyObject_Vectorcall(n->function, args, nargsf, names);
}

PyObject* named_new(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  PyObject* function;
  if ((keywords && PyDict_Size(keywords) > 0) || !PyArg_ParseTuple(args, "O:Named", &function)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "Named() takes one function");
    return nullptr;
  }
  if (!PyCallable_Check(function)) {
    PyErr_Format(PyExc_TypeError, "Named() takes a function, got %R", Py_TYPE(function));
    return nullptr;
  }
  PyObject* o = PyType_GenericAlloc(type, 0);
  if (!o) return nullptr;
  of(o)->vectorcall = named_call;
  Py_INCREF(function);
  of(o)->function = function;
  of(o)->known = PySet_New(nullptr);
  of(o)->dict = PyDict_New();
  if (!of(o)->known || !of(o)->dict) {
    Py_DECREF(o);
    return nullptr;
  }
  return o;
}
int named_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(of(self)->function);
  Py_VISIT(of(self)->known);
  Py_VISIT(of(self)->dict);
  return 0;
}
int named_clear(PyObject* self) {
  Py_CLEAR(of(self)->function);
  Py_CLEAR(of(self)->known);
  Py_CLEAR(of(self)->dict);
  return 0;
}
void named_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  named_clear(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}
PyObject* named_bind(PyObject* self, PyObject* instance, PyObject*) {
  if (!instance || instance == Py_None) {
    Py_INCREF(self);
    return self;
  }
  return bound_method(self, instance);
}
// What is asked of it is asked of the function: its name, its text, its signature.
PyObject* named_getattr(PyObject* self, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(self, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return PyObject_GetAttr(of(self)->function, name);
}
PyObject* named_of_function(PyObject* self, void* name) {
  return PyObject_GetAttrString(of(self)->function, static_cast<const char*>(name));
}
PyObject* named_repr(PyObject* self) {
  return PyObject_Repr(of(self)->function);
}
PyObject* named_reduce(PyObject* self, PyObject*) {
  return PyObject_GetAttrString(of(self)->function, "__name__");
}

PyGetSetDef g_getset[] = {{"__name__", named_of_function, nullptr, nullptr, const_cast<char*>("__name__")},
                          {"__qualname__", named_of_function, nullptr, nullptr, const_cast<char*>("__qualname__")},
                          {"__doc__", named_of_function, nullptr, nullptr, const_cast<char*>("__doc__")},
                          {"__module__", named_of_function, nullptr, nullptr, const_cast<char*>("__module__")},
                          {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef g_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(PyNamed, vectorcall), READONLY, nullptr},
                           {"__dictoffset__", T_PYSSIZET, offsetof(PyNamed, dict), READONLY, nullptr},
                           {"__wrapped__", T_OBJECT, offsetof(PyNamed, function), READONLY, "The function itself."},
                           {"_known", T_OBJECT, offsetof(PyNamed, known), READONLY, nullptr},
                           {nullptr, 0, 0, 0, nullptr}};
PyMethodDef g_methods[] = {{"__reduce__", named_reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyObject* bound_method(PyObject* function, PyObject* instance) {
  static PyObject* const bound = [] {
    nb::object types = nb::module_::import_("types");
    return nb::object(types.attr("MethodType")).release().ptr();
  }();
  return PyObject_CallFunctionObjArgs(bound, function, instance, nullptr);
}

PyObject* call_by_names(PyObject* function, PyObject* const* args, size_t count, PyObject* names) {
  return guarded(
      [&]() -> PyObject* {
        static PyObject* const call = [] {
          nb::object module = nb::module_::import_("strata._signatures");
          return nb::object(module.attr("call")).release().ptr();
        }();
        nb::list given;
        for (size_t i = 0; i < count; ++i) given.append(nb::handle(args[i]));
        nb::dict named;
        for (Py_ssize_t k = 0; names && k < PyTuple_Size(names); ++k)
          named[nb::handle(PyTuple_GetItem(names, k))] = nb::handle(args[count + static_cast<size_t>(k)]);
        return PyObject_CallFunctionObjArgs(call, function, given.ptr(), named.ptr(), nullptr);
      },
      static_cast<PyObject*>(nullptr));
}

void bind_named(nb::module_& m) {
  PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(named_new)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(named_dealloc)},
                         {Py_tp_traverse, reinterpret_cast<void*>(named_traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(named_clear)},
                         {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                         {Py_tp_repr, reinterpret_cast<void*>(named_repr)},
                         {Py_tp_getattro, reinterpret_cast<void*>(named_getattr)},
                         {Py_tp_descr_get, reinterpret_cast<void*>(named_bind)},
                         {Py_tp_getset, g_getset},
                         {Py_tp_members, g_members},
                         {Py_tp_methods, g_methods},
                         {0, nullptr}};
  const unsigned flags =
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
  PyType_Spec spec = {"strata.Named", sizeof(PyNamed), 0, flags, slots};
  PyObject* type = PyType_FromSpec(&spec);
  if (!type) throw nb::python_error();
  m.attr("Named") = nb::steal(type);
}

}  // namespace strata::python
