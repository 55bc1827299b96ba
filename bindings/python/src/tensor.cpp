// The Tensor type: lifetime, operators, len/iter/index/bool, attributes. Its other methods come from the op records and
// from tensor_methods.cpp.

#include <cstddef>

#include "py.h"
#include <structmember.h>
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/index/indexing.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"

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

PyObject* self_ref(PyObject* self) {
  Py_INCREF(self);
  return self;
}
PyObject* not_implemented() {
  Py_INCREF(Py_NotImplemented);
  return Py_NotImplemented;
}

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
          t = is_tensor(data) ? tensor_of(data) : tensor_from(data, std::nullopt, std::nullopt);
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

// ---- operators ------------------------------------------------------------------------------------------------------

// A number beside a tensor: false with no error set where it is none, so that Python asks the other operand.
bool number(PyObject* o, Scalar& s) {
  if (to_scalar(o, s)) return true;
  return false;
}

using TT = Tensor (*)(const Tensor&, const Tensor&);
using TS = Tensor (*)(const Tensor&, Scalar);
using ST = Tensor (*)(Scalar, const Tensor&);

template <TT tt>
Tensor with_number(const Tensor& a, Scalar b) {
  return tt(a, wrap_number(b, a.device()));
}
template <TT tt>
Tensor number_with(Scalar a, const Tensor& b) {
  return tt(wrap_number(a, b.device()), b);
}

template <TT tt, TS ts, ST st>
PyObject* binary(PyObject* a, PyObject* b) {
  return guarded(
      [&]() -> PyObject* {
        const bool left = is_tensor(a), right = is_tensor(b);
        if (left && right) {
          const Tensor &x = tensor_of(a), &y = tensor_of(b);
          Tensor z;
          {
            MaybeRelease release(is_heavy(x) || is_heavy(y));
            z = tt(x, y);
          }
          return wrap(std::move(z));
        }
        Scalar s;
        if (!number(left ? b : a, s)) return PyErr_Occurred() ? nullptr : not_implemented();
        const Tensor& x = tensor_of(left ? a : b);
        Tensor z;
        {
          MaybeRelease release(is_heavy(x));
          z = left ? ts(x, s) : st(s, x);
        }
        return wrap(std::move(z));
      },
      static_cast<PyObject*>(nullptr));
}

Tensor add_tt(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
Tensor add_ts(const Tensor& a, Scalar b) {
  return add(a, b);
}
Tensor add_st(Scalar a, const Tensor& b) {
  return add(b, a);
}
Tensor sub_tt(const Tensor& a, const Tensor& b) {
  return sub(a, b);
}
Tensor sub_ts(const Tensor& a, Scalar b) {
  return sub(a, b);
}
Tensor sub_st(Scalar a, const Tensor& b) {
  return rsub(b, a);
}
Tensor mul_st(Scalar a, const Tensor& b) {
  return mul(b, a);
}

#define STRATA_BINARY(name)                                                                             \
  PyObject* nb_##name(PyObject* a, PyObject* b) {                                                       \
    return binary<static_cast<TT>(name), with_number<static_cast<TT>(name)>, number_with<static_cast<TT>(name)>>(a, b); \
  }
#define STRATA_BINARY_WITH_SCALAR(name)                                                                          \
  PyObject* nb_##name(PyObject* a, PyObject* b) {                                                                \
    return binary<static_cast<TT>(name), static_cast<TS>(name), number_with<static_cast<TT>(name)>>(a, b); \
  }
PyObject* nb_add(PyObject* a, PyObject* b) {
  return binary<add_tt, add_ts, add_st>(a, b);
}
PyObject* nb_sub(PyObject* a, PyObject* b) {
  return binary<sub_tt, sub_ts, sub_st>(a, b);
}
PyObject* nb_mul(PyObject* a, PyObject* b) {
  return binary<static_cast<TT>(mul), static_cast<TS>(mul), mul_st>(a, b);
}
STRATA_BINARY_WITH_SCALAR(div)
STRATA_BINARY_WITH_SCALAR(floor_divide)
STRATA_BINARY_WITH_SCALAR(remainder)
STRATA_BINARY(bitwise_and)
STRATA_BINARY(bitwise_or)
STRATA_BINARY(bitwise_xor)
STRATA_BINARY(bitwise_left_shift)
STRATA_BINARY(bitwise_right_shift)
PyObject* nb_matmul(PyObject* a, PyObject* b) {
  if (!is_tensor(a) || !is_tensor(b)) return not_implemented();
  return binary<matmul, with_number<matmul>, number_with<matmul>>(a, b);
}
PyObject* nb_pow(PyObject* a, PyObject* b, PyObject*) {
  return binary<static_cast<TT>(pow), static_cast<TS>(pow), static_cast<ST>(pow)>(a, b);
}

template <Tensor (*f)(const Tensor&)>
PyObject* unary(PyObject* self) {
  return guarded(
      [&] {
        Tensor z;
        {
          MaybeRelease release(is_heavy(tensor_of(self)));
          z = f(tensor_of(self));
        }
        return wrap(std::move(z));
      },
      static_cast<PyObject*>(nullptr));
}
PyObject* nb_positive(PyObject* self) {
  return self_ref(self);
}

// x += y: the op's in-place form where it has one, else computed and copied.
template <TT tt>
Tensor& through_copy(Tensor& x, const Tensor& y) {
  // The gradient may read what is written over: it gets a copy of its own.
  const bool recorded = grad_enabled() && (x.requires_grad() || y.requires_grad());
  return x.copy_(tt(recorded ? x.clone() : x, y));
}
template <Tensor& (*f)(Tensor&, const Tensor&)>
PyObject* inplace(PyObject* self, PyObject* other) {
  return guarded(
      [&]() -> PyObject* {
        Tensor& x = tensor_of(self);
        Scalar s;
        Tensor y;
        if (is_tensor(other)) {
          y = tensor_of(other);
        } else if (number(other, s)) {
          y = wrap_number(s, x.device());
        } else {
          return PyErr_Occurred() ? nullptr : not_implemented();
        }
        MaybeRelease release(is_heavy(x));
        f(x, y);
        return self_ref(self);
      },
      static_cast<PyObject*>(nullptr));
}
Tensor& iadd(Tensor& x, const Tensor& y) {
  return x.add_(y);
}
Tensor& isub(Tensor& x, const Tensor& y) {
  return x.sub_(y);
}
Tensor& imul(Tensor& x, const Tensor& y) {
  return grad_enabled() && y.requires_grad() ? through_copy<static_cast<TT>(mul)>(x, y) : x.mul_(y);
}
Tensor& idiv(Tensor& x, const Tensor& y) {
  return grad_enabled() && y.requires_grad() ? through_copy<static_cast<TT>(div)>(x, y) : x.div_(y);
}

template <TT f>
PyObject* compared(const Tensor& a, PyObject* b) {
  Tensor y;
  Scalar s;
  if (is_tensor(b)) {
    y = tensor_of(b);
  } else if (number(b, s)) {
    y = wrap_number(s, a.device());
  } else {
    return PyErr_Occurred() ? nullptr : not_implemented();
  }
  Tensor z;
  {
    MaybeRelease release(is_heavy(a) || is_heavy(y));
    z = f(a, y);
  }
  return wrap(std::move(z));
}
PyObject* tensor_compare(PyObject* self, PyObject* other, int op) {
  return guarded(
      [&]() -> PyObject* {
        const Tensor& x = tensor_of(self);
        switch (op) {
          case Py_EQ:
            return compared<static_cast<TT>(eq)>(x, other);
          case Py_NE:
            return compared<static_cast<TT>(ne)>(x, other);
          case Py_LT:
            return compared<static_cast<TT>(lt)>(x, other);
          case Py_LE:
            return compared<static_cast<TT>(le)>(x, other);
          case Py_GT:
            return compared<static_cast<TT>(gt)>(x, other);
          default:
            return compared<static_cast<TT>(ge)>(x, other);
        }
      },
      static_cast<PyObject*>(nullptr));
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
          throw ValueError("bool", cat("the truth of a tensor of ", to_string(t.shape()), " is ambiguous; use any() or all()"));
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
        Scalar s;
        Tensor y;
        if (is_tensor(element)) {
          y = tensor_of(element);
        } else if (number(element, s)) {
          y = wrap_number(s, x.device());
        } else {
          if (PyErr_Occurred()) return -1;
          PyErr_Format(PyExc_TypeError, "a tensor contains numbers, not %R", Py_TYPE(element));
          return -1;
        }
        return static_cast<int>(any(eq(x, y)).item<bool>());
      },
      -1);
}

// ---- attributes -----------------------------------------------------------------------------------------------------

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
  return get(self, [](const Tensor& t) { return from_dims(t.shape()); });
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
        throw ShapeError("grad", cat("a gradient of ", to_string(g.shape()), " for a tensor of ", to_string(t.shape())));
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
    const Tensor source = tensor_of(value).detach();
    TensorImpl& to = t.impl();
    const TensorImpl& from = source.impl();
    to.storage = from.storage;
    to.shape = from.shape;
    to.strides = from.strides;
    to.offset = from.offset;
    to.numel = from.numel;
    to.dtype = from.dtype;
    to.device = from.device;
    to.contiguous = from.contiguous;
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
    {"shape", get_shape, nullptr, "The sizes, a tuple of ints.", nullptr},
    {"dtype", get_dtype, nullptr, "The element type.", nullptr},
    {"device", get_device, nullptr, "Where the elements live.", nullptr},
    {"ndim", get_ndim, nullptr, "The number of dimensions.", nullptr},
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

PyMemberDef g_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(PyTensor, weak), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

#define STRATA_SLOT(id, f) \
  { id, reinterpret_cast<void*>(f) }
PyType_Slot g_slots[] = {
    STRATA_SLOT(Py_tp_new, tensor_new),
    STRATA_SLOT(Py_tp_dealloc, tensor_dealloc),
    STRATA_SLOT(Py_tp_hash, tensor_hash),
    STRATA_SLOT(Py_tp_richcompare, tensor_compare),
    STRATA_SLOT(Py_tp_iter, tensor_iter),
    STRATA_SLOT(Py_tp_getset, g_getset),
    STRATA_SLOT(Py_tp_members, g_members),
    {Py_tp_doc, const_cast<char*>("An n-dimensional array of one element type on one device, with gradients.")},
    STRATA_SLOT(Py_nb_add, nb_add),
    STRATA_SLOT(Py_nb_subtract, nb_sub),
    STRATA_SLOT(Py_nb_multiply, nb_mul),
    STRATA_SLOT(Py_nb_true_divide, nb_div),
    STRATA_SLOT(Py_nb_floor_divide, nb_floor_divide),
    STRATA_SLOT(Py_nb_remainder, nb_remainder),
    STRATA_SLOT(Py_nb_power, nb_pow),
    STRATA_SLOT(Py_nb_matrix_multiply, nb_matmul),
    STRATA_SLOT(Py_nb_and, nb_bitwise_and),
    STRATA_SLOT(Py_nb_or, nb_bitwise_or),
    STRATA_SLOT(Py_nb_xor, nb_bitwise_xor),
    STRATA_SLOT(Py_nb_lshift, nb_bitwise_left_shift),
    STRATA_SLOT(Py_nb_rshift, nb_bitwise_right_shift),
    STRATA_SLOT(Py_nb_negative, unary<neg>),
    STRATA_SLOT(Py_nb_positive, nb_positive),
    STRATA_SLOT(Py_nb_absolute, unary<abs>),
    STRATA_SLOT(Py_nb_invert, unary<bitwise_not>),
    STRATA_SLOT(Py_nb_inplace_add, inplace<iadd>),
    STRATA_SLOT(Py_nb_inplace_subtract, inplace<isub>),
    STRATA_SLOT(Py_nb_inplace_multiply, inplace<imul>),
    STRATA_SLOT(Py_nb_inplace_true_divide, inplace<idiv>),
    STRATA_SLOT(Py_nb_inplace_floor_divide, inplace<through_copy<static_cast<TT>(floor_divide)>>),
    STRATA_SLOT(Py_nb_inplace_remainder, inplace<through_copy<static_cast<TT>(remainder)>>),
    STRATA_SLOT(Py_nb_inplace_and, inplace<through_copy<bitwise_and>>),
    STRATA_SLOT(Py_nb_inplace_or, inplace<through_copy<bitwise_or>>),
    STRATA_SLOT(Py_nb_inplace_xor, inplace<through_copy<bitwise_xor>>),
    STRATA_SLOT(Py_nb_inplace_lshift, inplace<through_copy<bitwise_left_shift>>),
    STRATA_SLOT(Py_nb_inplace_rshift, inplace<through_copy<bitwise_right_shift>>),
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
    {0, nullptr},
};
PyType_Spec g_spec = {"strata.Tensor", sizeof(PyTensor), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, g_slots};

}  // namespace

void bind_tensor(nb::module_& m) {
  PyObject* type = PyType_FromSpec(&g_spec);
  if (!type) throw nb::python_error();
  g_tensor_type = reinterpret_cast<PyTypeObject*>(type);
  // NumPy leaves operators between its arrays and tensors to the tensor, which refuses them.
  if (PyObject_SetAttrString(type, "__array_ufunc__", Py_None) != 0) throw nb::python_error();
  m.attr("Tensor") = nb::handle(type);
}

}  // namespace strata::python
