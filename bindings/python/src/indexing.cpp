// x[...] as NumPy and PyTorch read it.

#include <algorithm>

#include "py.h"
#include "strata/core/error.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/indexing.h"
#include "strata/ops/shape/shape.h"

namespace strata::python {
namespace {

std::optional<int64_t> bound(PyObject* slice, const char* name) {
  nb::object o = nb::steal(PyObject_GetAttrString(slice, name));
  if (!o.is_valid()) throw nb::python_error();
  if (o.is_none()) return std::nullopt;
  int64_t v;
  if (!to_int(o.ptr(), v)) {
    if (PyErr_Occurred()) {
      // Past 64 bits: as far as it goes.
      PyErr_Clear();
      nb::object zero = nb::int_(0);
      return PyObject_RichCompareBool(o.ptr(), zero.ptr(), Py_LT) == 1 ? INT64_MIN / 2 : INT64_MAX / 2;
    }
    throw nb::type_error("slice indices must be integers or None");
  }
  return v;
}

TensorIndex entry(PyObject* o, Device device) {
  int64_t v;
  if (o == Py_None) return None;
  if (o == Py_Ellipsis) return Ellipsis;
  if (PySlice_Check(o)) {
    const auto start = bound(o, "start"), stop = bound(o, "stop"), step = bound(o, "step");
    return Slice(start, stop, step.value_or(1));
  }
  if (is_tensor(o)) {
    const Tensor& t = tensor_of(o);
    if (t.dim() == 0 && is_integral(t.dtype())) return t.item<int64_t>();
    return t;
  }
  if (PyBool_Check(o)) return full({}, o == Py_True, DType::boolean).to(device);
  if (to_int(o, v)) return v;
  if (PyErr_Occurred()) throw nb::python_error();
  if (PyFloat_Check(o)) throw nb::type_error("indices are ints, slices, None, ..., lists, or tensors of ints or bools");
  Tensor t = tensor_from(o, std::nullopt, device);
  if (is_floating(t.dtype()) && t.numel() == 0) t = t.to(DType::i64);
  return t;
}

// The common and cheap cases are a number, a slice and a tuple of them.
std::vector<TensorIndex> entries(PyObject* key, Device device) {
  std::vector<TensorIndex> all;
  if (PyTuple_Check(key)) {
    const Py_ssize_t n = PyTuple_Size(key);
    all.reserve(static_cast<size_t>(n));
    for (Py_ssize_t i = 0; i < n; ++i) all.push_back(entry(PyTuple_GetItem(key, i), device));
  } else {
    all.push_back(entry(key, device));
  }
  return all;
}

// Slices with a negative step, which the engine does not take: they become forward slices of x with those dimensions
// flipped, which are returned.
Dims reverse_slices(std::vector<TensorIndex>& all, const Tensor& x) {
  using Kind = TensorIndex::Kind;
  const auto takes = [](const TensorIndex& i) -> int64_t {
    if (i.kind == Kind::none || i.kind == Kind::ellipsis) return 0;
    return i.kind == Kind::tensor && i.tensor.dtype() == DType::boolean ? i.tensor.dim() : 1;
  };
  int64_t named = 0, at = 0;
  bool any = false;
  for (const TensorIndex& i : all) {
    named += takes(i);
    any |= i.kind == Kind::slice && i.slice.step < 0;
  }
  Dims flipped;
  if (!any) return flipped;
  for (TensorIndex& i : all) {
    if (i.kind == Kind::ellipsis) at += x.dim() - named;
    if (i.kind == Kind::slice && i.slice.step < 0 && at >= 0 && at < x.dim()) {
      const int64_t n = x.size(at);
      const auto place = [n](std::optional<int64_t> v, int64_t otherwise) {
        if (!v) return otherwise;
        return std::clamp<int64_t>(*v < 0 ? *v + n : *v, -1, n - 1);
      };
      i.slice = Slice(n - 1 - place(i.slice.start, n - 1), n - 1 - place(i.slice.stop, -1), -i.slice.step);
      flipped.push_back(at);
    }
    at += takes(i);
  }
  return flipped;
}

}  // namespace

Tensor get_item(const Tensor& x, PyObject* key) {
  if (PyLong_Check(key) && !PyBool_Check(key)) {
    int64_t i;
    if (!to_int(key, i)) throw nb::python_error();
    return x.select(0, i);
  }
  std::vector<TensorIndex> all = entries(key, x.device());
  const Dims flipped = reverse_slices(all, x);
  MaybeRelease release(is_heavy(x));
  return flipped.empty() ? x.index(all) : flip(x, flipped).index(all);
}

void set_item(Tensor& x, PyObject* key, PyObject* value, bool accumulate) {
  std::vector<TensorIndex> all = entries(key, x.device());
  const Dims flipped = reverse_slices(all, x);
  Tensor v;
  if (!to_operand(value, x.device(), v)) {
    if (PyErr_Occurred()) throw nb::python_error();
    v = tensor_from(value, x.dtype(), x.device());
  }
  if (!(v.device() == x.device()) && v.numel() == 1) v = v.to(x.device());
  MaybeRelease release(is_heavy(x));
  if (flipped.empty()) {
    x.index_put_(all, v, accumulate);
  } else {
    Tensor y = flip(x, flipped);
    y.index_put_(all, v, accumulate);
    x.copy_(flip(y, flipped));
  }
}

}  // namespace strata::python
