// The operators of Tensor, with tensors and numbers, in place and not, and its comparisons.

#include "py.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/saves.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/matmul/matmul.h"
#include "tensor_type.h"

namespace strata::python {
namespace {

PyObject* self_ref(PyObject* self) {
  Py_INCREF(self);
  return self;
}
PyObject* not_implemented() {
  Py_INCREF(Py_NotImplemented);
  return Py_NotImplemented;
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
        const Tensor& x = tensor_of(left ? a : b);
        Tensor z;
        if (!to_scalar(left ? b : a, s)) {
          if (PyErr_Occurred()) return nullptr;
          if (!is_array(left ? b : a)) return not_implemented();
          const Tensor y = tensor_from(left ? b : a, std::nullopt, x.device());
          return wrap(left ? tt(x, y) : tt(y, x));
        }
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

#define STRATA_BINARY(name)                                                                                          \
  PyObject* nb_##name(PyObject* a, PyObject* b) {                                                                    \
    return binary<static_cast<TT>(name), with_number<static_cast<TT>(name)>, number_with<static_cast<TT>(name)>>(a,  \
                                                                                                                 b); \
  }
#define STRATA_BINARY_WITH_SCALAR(name)                                                                    \
  PyObject* nb_##name(PyObject* a, PyObject* b) {                                                          \
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

// Computed and copied: for ops without an in-place form, and where backward reads what would be written over.
template <TT tt>
Tensor& through_copy(Tensor& x, const Tensor& y) {
  const bool recorded = grad_enabled() && (x.requires_grad() || y.requires_grad());
  return x.copy_(tt(recorded ? x.clone() : x, y));
}
// `number`: the form for a floating tensor and a number, where there is one.
template <Tensor& (*f)(Tensor&, const Tensor&), Tensor& (*number)(Tensor&, Scalar) = nullptr>
PyObject* inplace(PyObject* self, PyObject* other) {
  return guarded(
      [&]() -> PyObject* {
        Tensor& x = tensor_of(self);
        if constexpr (number != nullptr) {
          Scalar s;
          if (!is_tensor(other) && is_floating(x.dtype()) && to_scalar(other, s)) {
            MaybeRelease release(is_heavy(x));
            number(x, s);
            return self_ref(self);
          }
          if (PyErr_Occurred()) return nullptr;
        }
        Tensor y;
        if (!to_operand(other, x.device(), y)) return PyErr_Occurred() ? nullptr : not_implemented();
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
// x *= y: in place, unless the record's backward reads x.
template <TT tt, Tensor& (Tensor::*method)(const Tensor&)>
Tensor& in_place(const OpBase* op, Tensor& x, const Tensor& y) {
  const uint64_t wanting = grad_enabled() ? (x.requires_grad() ? 1 : 0) | (y.requires_grad() ? 2 : 0) : 0;
  return wanting && saves_argument(*op, 0, wanting) ? through_copy<tt>(x, y) : (x.*method)(y);
}
Tensor& imul(Tensor& x, const Tensor& y) {
  static const OpBase* const op = OpBase::find("mul");
  return in_place<static_cast<TT>(mul), static_cast<Tensor& (Tensor::*)(const Tensor&)>(&Tensor::mul_)>(op, x, y);
}
Tensor& idiv(Tensor& x, const Tensor& y) {
  static const OpBase* const op = OpBase::find("div");
  return in_place<static_cast<TT>(div), static_cast<Tensor& (Tensor::*)(const Tensor&)>(&Tensor::div_)>(op, x, y);
}

Tensor& iadd_number(Tensor& x, Scalar v) {
  return x.add_(v);
}
Tensor& isub_number(Tensor& x, Scalar v) {
  return sub_(x, v);
}
Tensor& imul_number(Tensor& x, Scalar v) {
  return x.mul_(v);
}
Tensor& idiv_number(Tensor& x, Scalar v) {
  return div_(x, v);
}

PyObject* nb_iadd(PyObject* a, PyObject* b) {
  return inplace<iadd, iadd_number>(a, b);
}
PyObject* nb_isub(PyObject* a, PyObject* b) {
  return inplace<isub, isub_number>(a, b);
}
PyObject* nb_imul(PyObject* a, PyObject* b) {
  return inplace<imul, imul_number>(a, b);
}
PyObject* nb_idiv(PyObject* a, PyObject* b) {
  return inplace<idiv, idiv_number>(a, b);
}

template <TT f>
PyObject* compared(const Tensor& a, PyObject* b) {
  Tensor y;
  if (!to_operand(b, a.device(), y)) return PyErr_Occurred() ? nullptr : not_implemented();
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

PyType_Slot g_slots[] = {
    STRATA_SLOT(Py_tp_richcompare, tensor_compare),
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
    STRATA_SLOT(Py_nb_inplace_add, nb_iadd),
    STRATA_SLOT(Py_nb_inplace_subtract, nb_isub),
    STRATA_SLOT(Py_nb_inplace_multiply, nb_imul),
    STRATA_SLOT(Py_nb_inplace_true_divide, nb_idiv),
    STRATA_SLOT(Py_nb_inplace_floor_divide, inplace<through_copy<static_cast<TT>(floor_divide)>>),
    STRATA_SLOT(Py_nb_inplace_remainder, inplace<through_copy<static_cast<TT>(remainder)>>),
    STRATA_SLOT(Py_nb_inplace_and, inplace<through_copy<bitwise_and>>),
    STRATA_SLOT(Py_nb_inplace_or, inplace<through_copy<bitwise_or>>),
    STRATA_SLOT(Py_nb_inplace_xor, inplace<through_copy<bitwise_xor>>),
    STRATA_SLOT(Py_nb_inplace_lshift, inplace<through_copy<bitwise_left_shift>>),
    STRATA_SLOT(Py_nb_inplace_rshift, inplace<through_copy<bitwise_right_shift>>),
};

}  // namespace

std::span<const PyType_Slot> operator_slots() {
  return g_slots;
}

}  // namespace strata::python
