// Elements in and out without copies: the buffer protocol, NumPy, DLPack; and tensors from nested sequences.

#include <cstring>
#include <memory>

#include "dlpack.h"
#include "py.h"
#include "strata/core/dispatch.h"
#include "strata/core/error.h"
#include "strata/cuda/runtime.h"

namespace strata::python {
namespace {

bool bytes_move(const Tensor& t) {
  return t.storage()->backend().bytes == memory::Bytes::movable;
}

// ---- out: the buffer protocol ---------------------------------------------------------------------------------------

const char* format_of(DType t) {
  constexpr const char* formats[kNumDTypes] = {"B", "b", "h", "i", "q", "e", nullptr, "f", "d", "?"};
  return formats[static_cast<int>(t)];
}

struct View {
  Ref<Storage> storage;  // the tensor object itself may get other elements meanwhile
  Py_ssize_t shape[kMaxDims], strides[kMaxDims];
};

// ---- in: borrowed memory --------------------------------------------------------------------------------------------

// A tensor over foreign memory at `data`; release(owner) runs when the last view is gone.
Tensor borrow(void* data, const Shape& shape, const Strides& strides, DType dtype, Device device, void (*release)(void*),
              void* owner, std::string_view who) {
  int64_t last = 0, count = 1;
  for (int i = 0; i < shape.size(); ++i) {
    count *= shape[i];
    if (strides[i] < 0 && shape[i] > 1)
      throw ValueError(who, "negative strides are not taken; copy the array first");
    last += (shape[i] - 1) * strides[i];
  }
  if (count == 0 && !data) {
    static char nothing;
    data = &nothing;
  }
  Tensor flat = from_blob(data, {count == 0 ? 0 : last + 1}, dtype, release, owner);
  flat.impl().device = device;
  flat.impl().storage->device = device;
  return alias(flat, shape, strides, 0);
}

struct BufferOwner {
  Py_buffer view;
};
void release_buffer_owner(void* p) {
  auto* owner = static_cast<BufferOwner*>(p);
  if (!python_is_ending()) {
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyBuffer_Release(&owner->view);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(state);
  }
  delete owner;
}

DType dtype_of_format(const char* format, Py_ssize_t itemsize, std::string_view who) {
  std::string_view f = format ? format : "B";
  if (!f.empty() && (f[0] == '@' || f[0] == '=' || f[0] == '<' || f[0] == '|')) f.remove_prefix(1);
  if (f.size() == 1) {
    const char c = f[0];
    const auto sized = [&](bool is_signed) -> std::optional<DType> {
      if (itemsize == 1) return is_signed ? DType::i8 : DType::u8;
      if (!is_signed) return std::nullopt;
      if (itemsize == 2) return DType::i16;
      if (itemsize == 4) return DType::i32;
      if (itemsize == 8) return DType::i64;
      return std::nullopt;
    };
    if (c == '?') return DType::boolean;
    if (c == 'e') return DType::f16;
    if (c == 'f') return DType::f32;
    if (c == 'd') return DType::f64;
    std::optional<DType> t;
    if (std::string_view("bhilq").find(c) != std::string_view::npos) t = sized(true);
    if (std::string_view("BHILQ").find(c) != std::string_view::npos) t = sized(false);
    if (t) return *t;
  }
  throw DTypeError(who, cat("an array of format '", format ? format : "", "' has no element type here"));
}

bool is_numpy_bfloat16(nb::handle a) {
  return nb::hasattr(a, "dtype") && nb::hasattr(a, "view") && nb::hasattr(a.attr("dtype"), "name") &&
         nb::str(a.attr("dtype").attr("name")).equal(nb::str("bfloat16"));
}

Tensor from_buffer(nb::handle o, std::string_view who, bool warn) {
  if (is_numpy_bfloat16(o)) {
    const Tensor bits = from_buffer(o.attr("view")("int16"), who, warn);
    Tensor t = bits;
    t = alias(bits, bits.shape(), bits.strides(), bits.storage_offset());
    t.impl().dtype = DType::bf16;
    return t;
  }
  auto owner = std::make_unique<BufferOwner>();
  if (PyObject_GetBuffer(o.ptr(), &owner->view, PyBUF_STRIDES | PyBUF_FORMAT | PyBUF_WRITABLE) != 0) {
    PyErr_Clear();
    if (PyObject_GetBuffer(o.ptr(), &owner->view, PyBUF_STRIDES | PyBUF_FORMAT) != 0) throw nb::python_error();
    if (warn && PyErr_WarnEx(PyExc_UserWarning,
                             "from_numpy: the array is read-only; writing to the tensor writes to it all the same", 1)) {
      PyBuffer_Release(&owner->view);
      throw nb::python_error();
    }
  }
  const Py_buffer& v = owner->view;
  try {
    const DType dtype = dtype_of_format(v.format, v.itemsize, who);
    Shape shape;
    Strides strides;
    for (int i = 0; i < v.ndim; ++i) {
      shape.push_back(v.shape[i]);
      if (v.strides[i] % v.itemsize != 0) throw ValueError(who, "strides must be multiples of the element size");
      strides.push_back(v.strides[i] / v.itemsize);
    }
    BufferOwner* raw = owner.get();
    Tensor t = borrow(v.buf, shape, strides, dtype, Device::cpu(), release_buffer_owner, raw, who);
    (void)owner.release();
    return t;
  } catch (...) {
    if (owner) PyBuffer_Release(&owner->view);
    throw;
  }
}

// ---- DLPack ---------------------------------------------------------------------------------------------------------

dl::DataType dl_dtype(DType t) {
  const auto bits = static_cast<uint8_t>(size_of(t) * 8);
  if (t == DType::boolean) return {dl::kBool, bits, 1};
  if (t == DType::bf16) return {dl::kBfloat, bits, 1};
  if (is_floating(t)) return {dl::kFloat, bits, 1};
  return {t == DType::u8 ? dl::kUInt : dl::kInt, bits, 1};
}
DType dtype_of_dl(dl::DataType t) {
  for (const DType mine : kAllDTypes) {
    const dl::DataType d = dl_dtype(mine);
    if (d.code == t.code && d.bits == t.bits && t.lanes == 1) return mine;
  }
  throw DTypeError("from_dlpack", cat("code ", static_cast<int>(t.code), " of ", static_cast<int>(t.bits), " bits and ",
                                      static_cast<int>(t.lanes), " lanes has no element type here"));
}

struct Lent {
  Tensor tensor;
  int64_t shape[kMaxDims], strides[kMaxDims];
};
void fill(dl::Tensor& out, Lent& lent) {
  const Tensor& t = lent.tensor;
  for (int i = 0; i < t.shape().size(); ++i) {
    lent.shape[i] = t.shape()[i];
    lent.strides[i] = t.strides()[i];
  }
  out.data = t.numel() == 0 ? nullptr : t.raw_data();
  out.device = {t.device().is_cuda() ? dl::kCUDA : dl::kCPU, t.device().index};
  out.ndim = t.shape().size();
  out.dtype = dl_dtype(t.dtype());
  out.shape = lent.shape;
  out.strides = lent.strides;
  out.byte_offset = 0;
}
template <class M>
void delete_lent(M* m) {
  delete static_cast<Lent*>(m->context);
  delete m;
}
template <class M>
void capsule_end(PyObject* capsule) {
  constexpr const char* name = std::is_same_v<M, dl::Managed> ? "dltensor" : "dltensor_versioned";
  if (!PyCapsule_IsValid(capsule, name)) return;  // taken over by someone
  auto* m = static_cast<M*>(PyCapsule_GetPointer(capsule, name));
  if (m && m->deleter) m->deleter(m);
}

nb::object lend(const Tensor& x, nb::object stream, nb::object max_version, nb::object dl_device,
                std::optional<bool> copy) {
  if (x.is_meta()) throw nb::buffer_error("a meta tensor has no elements to lend");
  if (bytes_move(x))
    throw nb::buffer_error("__dlpack__: the tensor is at home on another tier; use .to(tier=\"own\")");
  if (x.requires_grad())
    throw nb::buffer_error("__dlpack__: a tensor that requires a gradient cannot be lent; use detach()");
  Device wanted = x.device();
  if (!dl_device.is_none()) {
    const auto [type, id] = cast_argument<std::pair<int, int>>(dl_device, "__dlpack__", "dl_device", "a pair of ints");
    if (type == dl::kCPU) {
      wanted = Device::cpu();
    } else if (type == dl::kCUDA) {
      wanted = Device::cuda(id);
    } else {
      throw nb::buffer_error("__dlpack__: only CPU (1) and CUDA (2) devices");
    }
  }
  const bool moves = !(wanted == x.device());
  if (moves && copy == false) throw nb::value_error("__dlpack__: another device needs a copy, copy=False forbids it");
  auto lent = std::make_unique<Lent>();
  lent->tensor = moves ? x.to(wanted) : copy == true ? x.clone() : x.detach();
  if (lent->tensor.device().is_cuda()) {
    // The consumer's stream is a bare handle: what is queued here is waited for, unless it asks for none of that.
    const cuda::Stream mine = cuda::current_stream(lent->tensor.device().index);
    const intptr_t theirs = stream.is_none() ? 0 : cast_argument<intptr_t>(stream, "__dlpack__", "stream", "an int or None");
    const bool same = !stream.is_none() && theirs == reinterpret_cast<intptr_t>(mine.handle());
    const bool none = !stream.is_none() && theirs == -1;
    if (!same && !none) {
      MaybeRelease release(true);
      mine.synchronize();
    }
  } else if (!stream.is_none() && !moves) {
    throw nb::value_error("__dlpack__: a CPU tensor has no stream");
  }
  bool versioned = false;
  if (!max_version.is_none()) versioned = cast_argument<std::pair<int, int>>(max_version, "__dlpack__", "max_version", "a pair of ints").first >= 1;
  PyObject* capsule;
  if (versioned) {
    auto* m = new dl::ManagedVersioned{{1, 0}, nullptr, delete_lent<dl::ManagedVersioned>, 0, {}};
    if (moves || copy == true) m->flags |= dl::kIsCopied;
    fill(m->tensor, *lent);
    m->context = lent.release();
    capsule = PyCapsule_New(m, "dltensor_versioned", capsule_end<dl::ManagedVersioned>);
    if (!capsule) m->deleter(m);
  } else {
    auto* m = new dl::Managed{{}, nullptr, delete_lent<dl::Managed>};
    fill(m->tensor, *lent);
    m->context = lent.release();
    capsule = PyCapsule_New(m, "dltensor", capsule_end<dl::Managed>);
    if (!capsule) m->deleter(m);
  }
  if (!capsule) throw nb::python_error();
  return nb::steal(capsule);
}

template <class M>
void release_managed(void* p) {
  auto* m = static_cast<M*>(p);
  if (m->tensor.device.type == dl::kCUDA || m->tensor.device.type == dl::kCUDAManaged) {
    try {
      cuda::current_stream(m->tensor.device.id).synchronize();  // queued work may still read the memory
    } catch (...) {
    }
  }
  if (!m->deleter) return;
  if (python_is_ending()) return;  // the deleter may be Python's: left to the end of the process
  const PyGILState_STATE state = PyGILState_Ensure();
  m->deleter(m);
  PyGILState_Release(state);
}

template <class M>
Tensor take(nb::handle capsule, const char* name, const char* used) {
  auto* m = static_cast<M*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (!m) throw nb::python_error();
  const dl::Tensor& d = m->tensor;
  if (d.ndim < 0 || d.ndim > kMaxDims)
    throw ShapeError("from_dlpack", cat("an array of ", d.ndim, " dimensions; at most ", kMaxDims, " are possible"));
  const DType dtype = dtype_of_dl(d.dtype);
  Device device = Device::cpu();
  if (d.device.type == dl::kCUDA || d.device.type == dl::kCUDAManaged) {
    if (d.device.id >= cuda::device_count())
      throw DeviceError("from_dlpack", cat("an array of CUDA device ", d.device.id, ", which cannot be used: ",
                                           cuda::unavailable_reason()));
    device = Device::cuda(d.device.id);
  } else if (d.device.type != dl::kCPU && d.device.type != dl::kCUDAHost) {
    throw DeviceError("from_dlpack", cat("an array of DLPack device type ", d.device.type, "; CPU (1) or CUDA (2) is wanted"));
  }
  const std::span<const int64_t> sizes(d.shape, static_cast<size_t>(d.ndim));
  const Shape shape(sizes);
  const Strides strides =
      d.strides ? Strides(std::span<const int64_t>(d.strides, static_cast<size_t>(d.ndim))) : contiguous_strides(shape);
  // Whoever reads the capsule after this finds it used; on an error above it stays as it was.
  Tensor t = borrow(static_cast<std::byte*>(d.data) + d.byte_offset, shape, strides, dtype, device, release_managed<M>, m,
                    "from_dlpack");
  if (PyCapsule_SetName(capsule.ptr(), used) != 0) throw nb::python_error();
  return t;
}

Tensor take_capsule(nb::handle capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    const auto* m =
        static_cast<dl::ManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (m->version.major != 1) throw ValueError("from_dlpack", cat("DLPack version ", m->version.major, "; 1 is wanted"));
    return take<dl::ManagedVersioned>(capsule, "dltensor_versioned", "used_dltensor_versioned");
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) return take<dl::Managed>(capsule, "dltensor", "used_dltensor");
  const char* name = PyCapsule_GetName(capsule.ptr());
  PyErr_Clear();
  throw ValueError("from_dlpack", cat("the capsule is '", name ? name : "", "': it was used already, or holds no tensor"));
}

Tensor from_dlpack(nb::object o, std::optional<Device> device, std::optional<bool> copy) {
  if (is_tensor(o.ptr())) {
    Tensor t = tensor_of(o.ptr()).detach();
    if (device && !(*device == t.device())) {
      if (copy == false) throw nb::value_error("from_dlpack: another device needs a copy, copy=False forbids it");
      return t.to(*device);
    }
    return copy == true ? t.clone() : t;
  }
  nb::object capsule = o;
  if (!PyCapsule_CheckExact(o.ptr())) {
    if (!nb::hasattr(o, "__dlpack__")) throw nb::type_error("from_dlpack: an object with __dlpack__, or a DLPack capsule, is wanted");
    nb::dict options;
    bool cuda_source = false;
    if (nb::hasattr(o, "__dlpack_device__")) {
      const auto [type, id] = cast_argument<std::pair<int, int>>(o.attr("__dlpack_device__")(), "from_dlpack",
                                                                 "what __dlpack_device__() gives", "a pair of ints");
      cuda_source = type == dl::kCUDA || type == dl::kCUDAManaged;
      if (cuda_source && id < cuda::device_count())
        options["stream"] = nb::int_(reinterpret_cast<intptr_t>(cuda::current_stream(id).handle()));
    }
    nb::dict newer;
    newer.update(options);
    newer["max_version"] = nb::make_tuple(1, 0);
    if (copy.has_value()) newer["copy"] = *copy;
    try {
      capsule = o.attr("__dlpack__")(**newer);
    } catch (nb::python_error& e) {
      if (!e.matches(PyExc_TypeError)) throw;  // an exporter of before DLPack 1.0
      capsule = o.attr("__dlpack__")(**options);
      Tensor t = take_capsule(capsule);
      return copy == true ? t.clone() : t;
    }
  }
  Tensor t = take_capsule(capsule);
  if (device && !(*device == t.device())) {
    if (copy == false) throw nb::value_error("from_dlpack: another device needs a copy, copy=False forbids it");
    t = t.to(*device);
  }
  return t;
}

// ---- nested sequences -----------------------------------------------------------------------------------------------

struct Flat {
  std::vector<Scalar> values;
  DType kind = DType::boolean;
  Shape shape;
};

[[noreturn]] void too_deep() {
  throw ValueError("tensor", cat("the sequence is nested more than ", kMaxDims, " deep: more dimensions than a tensor has, "
                                 "or a list that holds itself"));
}

void flatten(PyObject* o, int depth, Flat& out) {
  if (PyList_Check(o) || PyTuple_Check(o)) {
    if (depth >= kMaxDims) too_deep();
    // What a number of another library says of itself may change the list.
    const nb::object items = PyList_Check(o) ? nb::steal(PyList_AsTuple(o)) : nb::borrow(o);
    if (!items.is_valid()) throw nb::python_error();
    const Py_ssize_t n = PyTuple_Size(items.ptr());
    const bool first = depth == out.shape.size();
    if (first) {
      if (!out.values.empty()) throw ValueError("tensor", "a sequence stands where a number stood before");
      out.shape.push_back(n);
    } else if (out.shape[depth] != n) {
      throw ValueError("tensor", cat("expected a sequence of length ", out.shape[depth], " at dimension ", depth, ", got ", n));
    }
    for (Py_ssize_t i = 0; i < n; ++i) flatten(PyTuple_GetItem(items.ptr(), i), depth + 1, out);
    return;
  }
  if (depth != out.shape.size()) throw ValueError("tensor", cat("a number stands at dimension ", depth, ", a sequence is expected"));
  Scalar s;
  if (is_tensor(o) && tensor_of(o).numel() == 1) {
    s = tensor_of(o).item_scalar();
  } else if (!to_scalar(o, s)) {
    if (PyErr_Occurred()) throw nb::python_error();
    throw nb::type_error((std::string("tensor: a number is wanted, got ") +
                          nb::cast<std::string>(nb::str(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(o)))))).c_str());
  }
  const auto rank = [](DType t) { return t == DType::f64 ? 2 : t == DType::i64 ? 1 : 0; };
  if (rank(s.kind()) > rank(out.kind)) out.kind = s.kind();
  out.values.push_back(s);
}

}  // namespace

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  const Tensor& t = tensor_of(self);
  const char* reason = nullptr;
  if (!t.device().is_cpu()) reason = "the tensor is not in host memory; use .cpu()";
  else if (t.requires_grad()) reason = "the tensor requires a gradient; use .detach()";
  else if (bytes_move(t)) reason = "the tensor is at home on another tier, where its bytes have no address; use .to(tier=\"own\")";
  else if (!format_of(t.dtype())) reason = "the buffer protocol has no bfloat16";
  else if (!(flags & PyBUF_STRIDES) && !t.is_contiguous()) reason = "the tensor is not row-major";
  if (reason) {
    PyErr_SetString(PyExc_BufferError, reason);
    return -1;
  }
  auto* v = new View{t.storage(), {}, {}};
  const int64_t itemsize = size_of(t.dtype());
  for (int i = 0; i < t.shape().size(); ++i) {
    v->shape[i] = t.shape()[i];
    v->strides[i] = t.strides()[i] * itemsize;
  }
  static char nothing;
  view->buf = t.numel() == 0 ? &nothing : t.raw_data();
  view->len = t.nbytes();
  view->itemsize = itemsize;
  view->readonly = 0;
  view->ndim = t.shape().size();
  view->format = (flags & PyBUF_FORMAT) ? const_cast<char*>(format_of(t.dtype())) : nullptr;
  if (!(flags & PyBUF_ND)) {  // bytes in a row: a memoryview reads `shape` of whatever has two dimensions or more
    view->ndim = 1;
    if (!view->format) view->itemsize = 1;
  }
  view->shape = (flags & PyBUF_ND) ? v->shape : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? v->strides : nullptr;
  view->suboffsets = nullptr;
  view->internal = v;
  Py_INCREF(self);
  view->obj = self;
  return 0;
}
void release_buffer(PyObject*, Py_buffer* view) {
  delete static_cast<View*>(view->internal);
}

Tensor tensor_from(nb::handle data, std::optional<DType> dtype, std::optional<Device> device) {
  Tensor t;
  if (is_tensor(data.ptr())) {
    t = tensor_of(data.ptr()).detach();
    t = device && !(*device == t.device()) ? t.to(*device) : t.clone();
    return dtype ? t.to(*dtype) : t;
  }
  const Device to = device.value_or(default_device());
  const bool sequence = PyList_Check(data.ptr()) || PyTuple_Check(data.ptr());
  Scalar one;
  if (!sequence && nb::hasattr(data, "__array_interface__")) {
    // NumPy's arrays and numbers; byte order and other oddities are NumPy's to put right.
    nb::object np = nb::module_::import_("numpy");
    nb::object a = np.attr("array")(data);
    if (!nb::cast<bool>(a.attr("dtype").attr("isnative"))) a = a.attr("astype")(a.attr("dtype").attr("newbyteorder")("="));
    t = from_buffer(a, "tensor", false);
    if (to == t.device() && (!dtype || *dtype == t.dtype())) return t;  // the copy is ours alone
  } else if (!sequence && nb::hasattr(data, "__dlpack__")) {
    t = from_dlpack(nb::borrow(data), std::nullopt, std::nullopt);
    t = device && !(*device == t.device()) ? t.to(*device) : t.clone();
    return dtype ? t.to(*dtype) : t;
  } else if (!sequence && PyObject_CheckBuffer(data.ptr())) {
    t = from_buffer(data, "tensor", false).clone();
  } else {
    nb::object list;
    PyObject* o = data.ptr();
    if (!sequence && !to_scalar(o, one)) {
      if (PyErr_Occurred()) throw nb::python_error();
      list = nb::steal(PySequence_Check(o) && !PyUnicode_Check(o) ? PySequence_List(o) : nullptr);
      if (!list.is_valid()) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "tensor: numbers, sequences of numbers or an array are wanted, got %R", Py_TYPE(o));
        throw nb::python_error();
      }
      o = list.ptr();
    } else if (sequence) {
      // A list of arrays: NumPy joins them.
      PyObject* first = o;
      for (int depth = 0; (PyList_Check(first) || PyTuple_Check(first)) && PySequence_Size(first) > 0; ++depth) {
        if (depth > kMaxDims) too_deep();
        first = PyList_Check(first) ? PyList_GetItem(first, 0) : PyTuple_GetItem(first, 0);
      }
      if (!PyLong_Check(first) && !PyFloat_Check(first) && !is_tensor(first) && nb::hasattr(nb::handle(first), "__array_interface__"))
        return tensor_from(nb::module_::import_("numpy").attr("array")(data), dtype, device);
      if (is_tensor(first) && tensor_of(first).dim() > 0) {
        nb::list parts;
        for (nb::handle item : data) parts.append(is_tensor(item.ptr()) ? item.attr("tolist")() : nb::borrow(item));
        return tensor_from(parts, dtype, device);
      }
    }
    Flat flat;
    flatten(o, 0, flat);
    if (flat.values.empty() && flat.shape.size() > 0) flat.kind = DType::f64;
    const DType stored = flat.kind == DType::f64 && !dtype ? default_dtype() : dtype.value_or(flat.kind);
    t = empty({flat.shape, stored, Device::cpu(), std::nullopt});
    dispatch_all(stored, "tensor", [&]<class T>() {
      T* p = t.numel() ? t.data<T>() : nullptr;
      for (size_t i = 0; i < flat.values.size(); ++i) {
        if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
          p[i] = T(static_cast<float>(flat.values[i].to_double()));
        } else {
          p[i] = flat.values[i].to<T>();
        }
      }
    });
  }
  if (!(to == t.device())) t = t.to(to);
  return dtype ? t.to(*dtype) : t;
}

void bind_exchange(nb::module_& m) {
  m.def("from_numpy", [](nb::object a) { return from_buffer(a, "from_numpy", true); }, nb::arg("array"),
        "A tensor over the array's own memory, which lives as long as the tensor.");
  m.def("frombuffer", [](nb::object o, DType dtype, int64_t count, int64_t offset) {
          Tensor bytes = from_buffer(nb::module_::import_("builtins").attr("memoryview")(o).attr("cast")("B"), "frombuffer", false);
          const int64_t item = size_of(dtype);
          const int64_t n = count < 0 ? (bytes.numel() - offset) / item : count;
          if (offset < 0 || offset % item || offset + n * item > bytes.numel())
            throw ValueError("frombuffer", cat("offset ", offset, " and count ", n, " of ", item, " bytes do not fit into ",
                                               bytes.numel(), " bytes"));
          Tensor t = alias(bytes, {n}, {1}, offset / item);
          t.impl().dtype = dtype;
          return t;
        },
        nb::arg("buffer"), nb::arg("dtype"), nb::arg("count") = -1, nb::arg("offset") = 0,
        "A 1-D tensor over the memory of an object with the buffer protocol.");
  m.def("from_dlpack", from_dlpack, nb::arg("x"), nb::kw_only(), nb::arg("device") = nb::none(), nb::arg("copy") = nb::none(),
        "A tensor over the memory of another library's array (an object with __dlpack__, or a capsule).");
  m.def("_bytes_move", &bytes_move, nb::arg("t"), "Whether it is at home on a tier where its bytes have no address of their own.");
  m.def("_tensor", [](nb::object data, std::optional<DType> dtype, std::optional<Device> device) {
    return tensor_from(data, dtype, device);
  }, nb::arg("data").none(), nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none());
  def_method("__dlpack__", lend, nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(),
             nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none());
  def_method("__dlpack_device__", [](const Tensor& x) {
    if (x.is_meta()) throw nb::buffer_error("a meta tensor has no elements to lend");
    return nb::make_tuple(static_cast<int>(x.device().is_cuda() ? dl::kCUDA : dl::kCPU), static_cast<int>(x.device().index));
  });
}

}  // namespace strata::python
