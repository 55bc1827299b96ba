// The attributes of Tensor: what it is, its gradient, its data.

#include "py.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/rebind.h"
#include "strata/ops/shape/shape.h"
#include "tensor_type.h"

namespace strata::python {
namespace {

template <class F>
PyObject* get(PyObject* self, F f) {
  return guarded([&] { return f(tensor_of(self)); }, static_cast<PyObject*>(nullptr));
}
template <class F>
int set(PyObject* self, F f) {
  return guarded(
      [&] {
        f(tensor_of(self));
        return 0;
      },
      -1);
}
void refuse_delete(PyObject* value, const char* name) {
  if (value) return;
  PyErr_Format(PyExc_AttributeError, "cannot delete %s", name);
  throw nb::python_error();
}

PyObject* get_shape(PyObject* self, void*) {
  return get(self, [](const Tensor& t) { return from_shape(t.shape()); });
}
PyObject* get_dtype(PyObject* self, void*) {
  return get(self, [](const Tensor& t) { return from_dtype(t.dtype()); });
}
PyObject* get_device(PyObject* self, void*) {
  return get(self, [](const Tensor& t) { return from_device(t.device()); });
}
PyObject* get_ndim(PyObject* self, void*) {
  return get(self, [](const Tensor& t) { return PyLong_FromLongLong(t.dim()); });
}
PyObject* get_tier(PyObject* self, void*) {
  return get(self, [](const Tensor& t) {
    const std::string_view name = t.tier().name();
    return PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
  });
}
PyObject* get_itemsize(PyObject* self, void*) {
  return get(self, [](const Tensor& t) { return PyLong_FromLongLong(size_of(t.dtype())); });
}
PyObject* get_nbytes(PyObject* self, void*) {
  return get(self, [](const Tensor& t) { return PyLong_FromLongLong(t.nbytes()); });
}
PyObject* get_t(PyObject* self, void*) {
  return get(self, [](const Tensor& t) {
    Dims order;
    for (int64_t i = t.dim() - 1; i >= 0; --i) order.push_back(i);
    return wrap(t.permute(order));
  });
}
PyObject* get_mt(PyObject* self, void*) {
  return get(self, [](const Tensor& t) {
    if (t.dim() < 2) throw ShapeError("mT", cat("a tensor of ", to_string(t.shape()), " is no matrix"));
    return wrap(t.transpose(-2, -1));
  });
}
PyObject* get_requires_grad(PyObject* self, void*) {
  return get(self, [](const Tensor& t) { return PyBool_FromLong(t.requires_grad()); });
}
int set_requires_grad(PyObject* self, PyObject* value, void*) {
  return set(self, [&](Tensor& t) {
    refuse_delete(value, "requires_grad");
    const int on = PyObject_IsTrue(value);
    if (on < 0) throw nb::python_error();
    t.set_requires_grad(on == 1);
  });
}
PyObject* get_is_leaf(PyObject* self, void*) {
  return get(self, [](const Tensor& t) { return PyBool_FromLong(t.is_leaf()); });
}
PyObject* get_grad(PyObject* self, void*) {
  return get(self, [](const Tensor& t) { return wrap(t.grad()); });
}
int set_grad(PyObject* self, PyObject* value, void*) {
  return set(self, [&](Tensor& t) {
    if (!value || value == Py_None) {
      t.set_grad({});
    } else if (is_tensor(value)) {
      const Tensor& g = tensor_of(value);
      if (!(g.shape() == t.shape()))
        throw ShapeError("grad",
                         cat("a gradient of ", to_string(g.shape()), " for a tensor of ", to_string(t.shape())));
      if (!(g.device() == t.device())) throw DeviceError("grad", "gradient and tensor are on different devices");
      t.set_grad(g);
    } else {
      throw nb::type_error("grad: a Tensor or None is wanted");
    }
  });
}
PyObject* get_data(PyObject* self, void*) {
  return get(self, [](const Tensor& t) { return wrap(t.detach()); });
}
int set_data(PyObject* self, PyObject* value, void*) {
  return set(self, [&](Tensor& t) {
    if (!value || !is_tensor(value)) throw nb::type_error("data: a Tensor is wanted");
    // The same elements under the tensor that optimizers and modules already hold.
    rebind(t, tensor_of(value).detach());
    if (AutogradMeta* tape = t.impl().autograd.get()) tape->low = {};  // what autocast kept of the elements before
  });
}
PyObject* get_is_cuda(PyObject* self, void*) {
  return get(self, [](const Tensor& t) { return PyBool_FromLong(t.device().is_cuda()); });
}
PyObject* get_is_meta(PyObject* self, void*) {
  return get(self, [](const Tensor& t) { return PyBool_FromLong(t.is_meta()); });
}
PyObject* get_version(PyObject* self, void*) {
  return get(self, [](const Tensor& t) { return PyLong_FromUnsignedLong(t.version()); });
}

PyGetSetDef g_getset[] = {
    {"shape", get_shape, nullptr, "The sizes, a tuple of ints with numel().", nullptr},
    {"dtype", get_dtype, nullptr, "The element type.", nullptr},
    {"device", get_device, nullptr, "Where the elements live.", nullptr},
    {"ndim", get_ndim, nullptr, "The number of dimensions.", nullptr},
    {"tier", get_tier, nullptr,
     "The kind of memory that its bytes live in: \"host\", \"device\", \"pinned\", \"disk\".", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of one element.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of all elements.", nullptr},
    {"T", get_t, nullptr, "All dimensions reversed, a view.", nullptr},
    {"mT", get_mt, nullptr, "The last two dimensions exchanged, a view.", nullptr},
    {"requires_grad", get_requires_grad, set_requires_grad, "Whether gradients are wanted.", nullptr},
    {"is_leaf", get_is_leaf, nullptr, "Whether no recorded op made it.", nullptr},
    {"grad", get_grad, set_grad, "The accumulated gradient, or None.", nullptr},
    {"data", get_data, set_data, "The same elements without history.", nullptr},
    {"is_cuda", get_is_cuda, nullptr, "Whether the elements are on a CUDA device.", nullptr},
    {"is_meta", get_is_meta, nullptr, "Whether there are no elements, only a shape and a dtype.", nullptr},
    {"_version", get_version, nullptr, "In-place writes to the storage so far.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace

PyGetSetDef* tensor_attributes() {
  return g_getset;
}

}  // namespace strata::python
