// Methods of Tensor that are no op records: what it is, its elements, conversions, views, gradients, in-place fills.

#include <algorithm>
#include <cstring>

#include "py.h"
#include "strata/core/dispatch.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/tiers.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/index/index.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata::python {
namespace {

nb::object number_at(const Tensor& t, const void* p) {
  return dispatch_all(t.dtype(), "tolist", [&]<class T>() -> nb::object {
    const T v = *static_cast<const T*>(p);
    PyObject* o;
    if constexpr (std::is_same_v<T, bool>) {
      o = PyBool_FromLong(v);
    } else if constexpr (std::is_integral_v<T>) {
      o = PyLong_FromLongLong(static_cast<long long>(v));
    } else {
      o = PyFloat_FromDouble(static_cast<double>(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(v)));
    }
    return nb::steal(o);
  });
}
nb::object nested(const Tensor& t, int64_t dim, const std::byte* p) {
  if (dim == t.dim()) return number_at(t, p);
  nb::list out;
  const int64_t step = t.strides()[dim] * size_of(t.dtype());
  for (int64_t i = 0; i < t.shape()[dim]; ++i) out.append(nested(t, dim + 1, p + i * step));
  return std::move(out);
}

// Where elements can be read by address.
Tensor on_host(const Tensor& t) {
  if (t.device().is_cpu() && t.storage()->backend().bytes == memory::Bytes::fixed) return t.detach();
  MaybeRelease release(true);
  const Tensor here = t.detach().to(Device::cpu());
  return here.storage()->backend().bytes == memory::Bytes::fixed ? here : here.to(Tier());
}

// x.to(dtype), x.to(device), x.to(device, dtype), x.to(other), by name too; x.to(tier="disk").
Tensor to_anything(const Tensor& x, nb::args args, nb::kwargs options) {
  std::optional<DType> dtype;
  std::optional<Device> device;
  std::optional<Tier> tier;
  bool copy = false;
  MemoryFormat format;
  const auto see = [&](nb::handle o) {
    DType t;
    Device d;
    if (o.is_none()) return;
    if (is_tensor(o.ptr())) {
      dtype = tensor_of(o.ptr()).dtype();
      device = tensor_of(o.ptr()).device();
    } else if (PyBool_Check(o.ptr())) {
      // non_blocking, then copy: copies from pinned memory do not block anyway
    } else if (PyUnicode_Check(o.ptr())) {
      if (to_dtype(o.ptr(), t)) {
        dtype = t;
      } else if (to_device(o.ptr(), d)) {
        device = d;
      }
    } else if (to_device(o.ptr(), d)) {
      device = d;
    } else if (to_dtype(o.ptr(), t)) {
      dtype = t;
    } else {
      if (PyErr_Occurred()) throw nb::python_error();
      throw nb::type_error("to: a dtype, a device or a tensor is wanted");
    }
  };
  for (nb::handle o : args) see(o);
  for (auto [key, o] : options) {
    const std::string name = nb::cast<std::string>(key);
    if (name == "dtype" || name == "device" || name == "other") {
      see(o);
    } else if (name == "tier") {
      if (!o.is_none()) tier = memory::parse_tier(cast_argument<std::string>(o, "to", "tier", "a str"));
    } else if (name == "copy") {
      copy = cast_argument<bool>(o, "to", "copy", "a bool");
    } else if (name == "memory_format") {
      format = memory_format_of(o);
    } else if (name != "non_blocking") {
      throw nb::type_error(("to: there is no argument '" + name + "'").c_str());
    }
  }
  MaybeRelease release(is_heavy(x));
  Tensor y = x;
  if (device && !(*device == x.device())) y = y.to(*device);
  if (dtype && *dtype != x.dtype()) y = y.to(*dtype);
  if (tier) y = y.to(*tier);
  return in_memory_format(y, format, copy && y.same_as(x));
}

template <Tensor (*f)(const Tensor&, const Shape&)>
Tensor with_shape(const Tensor& x, nb::args sizes) {
  return f(x, shape_of(sizes));
}

Tensor view_as_dtype(const Tensor& x, DType dtype) {
  if (size_of(dtype) != size_of(x.dtype()))
    throw ShapeError("view", cat("elements of ", size_of(x.dtype()), " bytes seen as elements of ", size_of(dtype)));
  Tensor t = alias(x.detach(), x.shape(), x.strides(), x.storage_offset());
  t.impl().dtype = dtype;
  return t;
}

std::string print(const Tensor& t) {
  std::string s;
  {
    MaybeRelease release(t.device().is_cuda());
    s = t.to_string();
  }
  // Names as Python spells them.
  const size_t at = s.rfind("dtype=");
  if (at != std::string::npos) {
    const size_t end = s.find_first_of(",)", at);
    constexpr const char* names[kNumDTypes] = {"uint8",   "int8",     "int16",   "int32",   "int64",
                                               "float16", "bfloat16", "float32", "float64", "bool"};
    s.replace(at, end - at, "dtype=" + shown_as() + "." + names[static_cast<int>(t.dtype())]);
  }
  const size_t device = s.rfind("device=cuda");
  if (device != std::string::npos) {
    const size_t end = s.find_first_of(",)", device);
    s.replace(device, end - device, "device='" + to_string(t.device()) + "'");
  }
  return s;
}

struct PyHook final : TensorHook {
  explicit PyHook(nb::object f, bool post) : fn(std::move(f)), post(post) {}
  Tensor operator()(const Tensor& grad) override {
    nb::gil_scoped_acquire gil;
    nb::object result = fn.get()(wrapped(grad));
    if (post || result.is_none()) return {};
    if (!is_tensor(result.ptr())) {
      PyErr_Format(PyExc_TypeError, "a gradient hook returns a Tensor or None, not %R", Py_TYPE(result.ptr()));
      throw nb::python_error();
    }
    return tensor_of(result.ptr());
  }
  Held fn;
  bool post;
};

struct HookHandle {
  std::weak_ptr<TensorHook> hook;
  void remove() {
    if (const auto h = hook.lock()) h->removed = true;
  }
};

// What a method was called of, which `Tensor.fill_(None, 1)` says may be anything.
Tensor& own(nb::handle self) {
  return own_tensor(self, "a method of Tensor");
}

nb::object same(nb::handle self) {
  return nb::borrow(self);
}

}  // namespace

void bind_tensor_methods(nb::module_& m) {
  nb::class_<HookHandle>(m, "RemovableHandle", "What register_hook returns.")
      .def("remove", &HookHandle::remove, "The hook is not called any more.")
      .def("__enter__", same)
      .def("__exit__", [](HookHandle& h, nb::args) { h.remove(); });

  def_method("size", [](const Tensor& x, std::optional<int64_t> dim) -> nb::object {
    if (dim) return nb::int_(x.size(*dim));
    return nb::steal(from_shape(x.shape()));
  }, nb::arg("dim") = nb::none(), "All sizes, or the size of one dimension.");
  def_method("dim", [](const Tensor& x) { return x.dim(); }, "The number of dimensions.");
  def_method("ndimension", [](const Tensor& x) { return x.dim(); });
  def_method("numel", [](const Tensor& x) { return x.numel(); }, "The number of elements.");
  def_method("nelement", [](const Tensor& x) { return x.numel(); });
  def_method("element_size", [](const Tensor& x) { return size_of(x.dtype()); });
  def_method("stride", [](const Tensor& x, std::optional<int64_t> dim) -> nb::object {
    if (dim) return nb::int_(x.strides()[wrap_dim(*dim, x.dim(), "stride")]);
    return nb::steal(from_dims(x.strides()));
  }, nb::arg("dim") = nb::none(), "Elements from one index to the next.");
  def_method("storage_offset", [](const Tensor& x) { return x.storage_offset(); });
  def_method("_whole_storage", [](const Tensor& x) {
    const Storage* s = x.impl().storage.get();
    return alias(x.detach(), {s ? static_cast<int64_t>(s->nbytes) / size_of(x.dtype()) : 0}, {1}, 0);
  }, "All elements of the memory that the tensor is a view of, in one dimension.");
  def_method("data_ptr", [](const Tensor& x) { return x.numel() ? reinterpret_cast<uintptr_t>(x.raw_data()) : 0; });
  def_method(
      "is_contiguous",
      [](const Tensor& x, nb::handle format) {
        const MemoryFormat f = memory_format_of(format);
        return f.channels_last() ? x.dim() == f.rank && x.permute(f.innermost).is_contiguous() : x.is_contiguous();
      },
      nb::arg("memory_format") = nb::none(), "Whether the elements lie without gaps in the format's order.");
  def_method("is_floating_point", [](const Tensor& x) { return is_floating(x.dtype()); });
  def_method("is_complex", [](const Tensor&) { return false; });
  def_method("get_device", [](const Tensor& x) { return x.device().is_cuda() ? x.device().index : -1; });

  def_method("item", [](const Tensor& x) {
    if (x.numel() != 1)
      throw ValueError("item", cat("a tensor of ", to_string(x.shape()), " has more than one element (or none)"));
    MaybeRelease release(x.device().is_cuda());
    return x.item_scalar();
  }, "The only element as a Python number.");
  def_method("tolist", [](const Tensor& x) {
    const Tensor t = on_host(x);
    return nested(t, 0, t.numel() ? static_cast<const std::byte*>(t.raw_data()) : nullptr);
  }, "The elements as nested lists of Python numbers.");
  def_method("__repr__", print);
  def_method("__str__", print);
  def_method("__format__", [](const Tensor& x, nb::str spec) -> nb::object {
    if (nb::len(spec) == 0) return nb::str(print(x).c_str());
    nb::object number = nb::cast(x.item_scalar());
    nb::object out = nb::steal(PyObject_Format(number.ptr(), spec.ptr()));
    if (!out.is_valid()) throw nb::python_error();
    return out;
  });

  def_method("to", to_anything, "Another dtype or device, or both; itself where it is so already.");
  def_method(
      "type",
      [](const Tensor& x, const std::optional<DType>& t, bool) -> nb::object {
        if (t) return nb::cast(x.to(*t));
        return nb::str(nb::repr(nb::cast(x.dtype())));
      },
      nb::arg("dtype") = nb::none(), nb::arg("non_blocking") = false, "Another dtype; without one, the dtype's name.");
  def_method("cpu", [](const Tensor& x) {
    MaybeRelease release(x.device().is_cuda());
    return x.to(Device::cpu());
  });
  def_method(
      "cuda",
      [](const Tensor& x, nb::handle device, bool, nb::handle format) {
        Device d = Device::cuda(0);
        if (PyLong_Check(device.ptr())) {
          const int index = cast_argument<int>(device, "cuda", "device", "the number of a card");
          check<DeviceError>(index >= 0 && index < 128, "cuda", "there is no card ", index);
          d = Device::cuda(index);
        } else if (!device.is_none() && !to_device(device.ptr(), d)) {
          throw nb::type_error("cuda: device is a number or a CUDA device");
        }
        const MemoryFormat order = memory_format_of(format);
        MaybeRelease release(true);
        return in_memory_format(x.to(d), order);
      },
      nb::arg("device") = nb::none(), nb::arg("non_blocking") = false, nb::arg("memory_format") = nb::none());
  constexpr std::pair<const char*, DType> casts[] = {
      {"float", DType::f32}, {"double", DType::f64}, {"half", DType::f16}, {"bfloat16", DType::bf16},
      {"long", DType::i64},  {"int", DType::i32},    {"short", DType::i16}, {"char", DType::i8},
      {"byte", DType::u8},   {"bool", DType::boolean}};
  for (const auto& [name, t] : casts)
    def_method(name, [t = t](const Tensor& x) { return x.to(t); });

  def_method("view", [](const Tensor& x, nb::args sizes) {
    DType t;
    if (sizes.size() == 1 && !PyLong_Check(sizes[0].ptr()) && !PyTuple_Check(sizes[0].ptr()) &&
        !PyList_Check(sizes[0].ptr()) && to_dtype(sizes[0].ptr(), t))
      return view_as_dtype(x, t);
    return x.view(shape_of(sizes));
  }, "The same elements under another shape (one size may be -1), or as another dtype of the same size.");
  def_method("reshape", with_shape<reshape>, "A view where possible, else a copy.");
  def_method("expand", with_shape<expand>, "Dimensions of size 1 repeated without copying; -1 keeps a size.");
  def_method("view_as", [](const Tensor& x, const Tensor& other) { return x.view(other.shape()); });
  def_method("reshape_as", [](const Tensor& x, const Tensor& other) { return x.reshape(other.shape()); });
  def_method("expand_as", [](const Tensor& x, const Tensor& other) { return x.expand(other.shape()); });
  def_method("flatten", [](const Tensor& x, int64_t start, int64_t end) { return x.flatten(start, end); },
             nb::arg("start_dim") = 0, nb::arg("end_dim") = -1);
  def_method("unflatten", [](const Tensor& x, int64_t dim, const Dims& sizes) { return unflatten(x, dim, sizes); },
             nb::arg("dim"), nb::arg("sizes"));
  def_method("ravel", [](const Tensor& x) { return x.reshape({-1}); });
  def_method("squeeze", [](const Tensor& x, nb::handle dim) {
    if (dim.is_none()) return x.squeeze();
    Dims dims;
    if (!to_dims(dim.ptr(), dims)) throw nb::type_error("squeeze: dim must be an int or a tuple of ints");
    Tensor y = x;
    std::vector<int64_t> order;
    for (const int64_t d : dims) order.push_back(wrap_dim(d, x.dim(), "squeeze"));
    std::sort(order.rbegin(), order.rend());
    for (const int64_t d : order) y = y.squeeze(d);
    return y;
  }, nb::arg("dim") = nb::none());
  def_method("unsqueeze", [](const Tensor& x, int64_t dim) { return x.unsqueeze(dim); }, nb::arg("dim"));
  def_method("narrow", [](const Tensor& x, int64_t dim, int64_t start, int64_t length) { return x.narrow(dim, start, length); },
             nb::arg("dim"), nb::arg("start"), nb::arg("length"));
  def_method("t", [](const Tensor& x) { return x.dim() < 2 ? x : x.t(); });
  def_method(
      "contiguous",
      [](const Tensor& x, nb::handle format) {
        const MemoryFormat order = memory_format_of(format);
        MaybeRelease release(is_heavy(x));
        return order.channels_last() ? in_memory_format(x, order) : x.contiguous();
      },
      nb::arg("memory_format") = nb::none());

  // ---- gradients
  def_method("detach", [](const Tensor& x) { return x.detach(); }, "The same elements without history.");
  def_method("detach_", [](nb::handle self) {
    Tensor& x = own(self);
    if (x.impl().view_base) throw AutogradError("detach_", "a view cannot be detached in place; use detach()");
    if (x.requires_grad()) {
      TensorImpl& t = x.impl();
      if (t.autograd) {
        t.autograd->grad_fn.reset();
        t.autograd->result_index = 0;
      }
      t.requires_grad = false;
    }
    return same(self);
  });
  def_method("backward", [](const Tensor& x, std::optional<Tensor> gradient, std::optional<bool> retain_graph, bool create_graph) {
    Released release;
    x.backward(gradient.value_or(Tensor()), retain_graph.value_or(create_graph), create_graph);
  }, nb::arg("gradient") = nb::none(), nb::arg("retain_graph") = nb::none(), nb::arg("create_graph") = false,
     "Adds the gradient of every leaf to its grad.");
  def_method("requires_grad_", [](nb::handle self, bool on) {
    own(self).set_requires_grad(on);
    return same(self);
  }, nb::arg("requires_grad") = true);
  def_method("retain_grad", [](const Tensor& x) { x.retain_grad(); });
  def_method("register_hook", [](const Tensor& x, nb::object hook) {
    if (!PyCallable_Check(hook.ptr())) throw nb::type_error("register_hook: a callable is wanted");
    const std::shared_ptr<TensorHook> h = std::make_shared<PyHook>(std::move(hook), false);
    add_tensor_hook(x, h);
    return HookHandle{h};
  }, nb::arg("hook"), "Calls hook(gradient) in every backward pass; what it returns takes the gradient's place.");
  def_method("register_post_accumulate_grad_hook", [](const Tensor& x, nb::object hook) {
    const std::shared_ptr<TensorHook> h = std::make_shared<PyHook>(std::move(hook), true);
    add_post_accumulate_hook(x, h);
    return HookHandle{h};
  }, nb::arg("hook"), "Calls hook(tensor) after backward added to its grad.");

  // ---- in place
  def_method("zero_", [](nb::handle self) {
    own(self).zero_();
    return same(self);
  });
  def_method("fill_", [](nb::handle self, Scalar value) {
    own(self).fill_(value);
    return same(self);
  }, nb::arg("value"));
  def_method("copy_", [](nb::handle self, nb::handle src, bool) {
    Tensor& x = own(self);
    const Tensor from = is_tensor(src.ptr()) ? tensor_of(src.ptr()) : tensor_from(src, x.dtype(), x.device());
    {
      MaybeRelease release(is_heavy(x));
      x.copy_(from);
    }
    return same(self);
  }, nb::arg("src"), nb::arg("non_blocking") = false);
  def_method("uniform_", [](nb::handle self, double low, double high) {
    uniform_(own(self), low, high);
    return same(self);
  }, nb::arg("from_") = 0.0, nb::arg("to") = 1.0);
  def_method("normal_", [](nb::handle self, double mean, double std) {
    normal_(own(self), mean, std);
    return same(self);
  }, nb::arg("mean") = 0.0, nb::arg("std") = 1.0);
  def_method("trunc_normal_", [](nb::handle self, double mean, double std, double a, double b) {
    trunc_normal_(own(self), mean, std, a, b);
    return same(self);
  }, nb::arg("mean") = 0.0, nb::arg("std") = 1.0, nb::arg("a") = -2.0, nb::arg("b") = 2.0);
  def_method("bernoulli_", [](nb::handle self, double p) {
    bernoulli_(own(self), p);
    return same(self);
  }, nb::arg("p") = 0.5);

  def_method("is_pinned", [](const Tensor& x) { return x.tier() == Tier::pinned; });
  def_method("pin_memory", [](const Tensor& x) { return strata::pin_memory(x); });
  def_method("record_stream_", [](const Tensor& x) { cuda::record_stream(x, cuda::current_stream(x.device().index)); });
  def_method("_written", [](const Tensor& x) { bump_version(x, "numpy"); },
             "Says that the elements were written from outside: saved tensors of the tape then notice.");
  def_method("_as_subclass", [](const Tensor& x, nb::handle cls) {
    if (!PyType_Check(cls.ptr()) || !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls.ptr()), g_tensor_type))
      throw nb::type_error("_as_subclass: a subclass of Tensor is wanted");
    PyObject* o = PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(cls.ptr()), 0);
    if (!o) throw nb::python_error();
    new (&reinterpret_cast<PyTensor*>(o)->value) Tensor(x);
    return nb::steal(o);
  }, "The same tensor as an object of a subclass.");
  def_method("_same_tensor", [](const Tensor& x, const Tensor& y) { return x.same_as(y); });
}

}  // namespace strata::python
