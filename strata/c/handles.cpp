#include "strata/c/handles.h"

#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

#include "strata/c/plugin.h"
#include "strata/core/error.h"
#include "strata/cuda/runtime.h"

namespace strata::c {

static_assert(STRATA_MAX_DIMS == kMaxDims);
static_assert(static_cast<int>(DType::u8) == STRATA_U8 && static_cast<int>(DType::i8) == STRATA_I8 &&
              static_cast<int>(DType::i16) == STRATA_I16 && static_cast<int>(DType::i32) == STRATA_I32 &&
              static_cast<int>(DType::i64) == STRATA_I64 && static_cast<int>(DType::f16) == STRATA_F16 &&
              static_cast<int>(DType::bf16) == STRATA_BF16 && static_cast<int>(DType::f32) == STRATA_F32 &&
              static_cast<int>(DType::f64) == STRATA_F64 && static_cast<int>(DType::boolean) == STRATA_BOOL);
static_assert(static_cast<int>(DeviceType::cpu) == STRATA_CPU && static_cast<int>(DeviceType::cuda) == STRATA_CUDA &&
              static_cast<int>(DeviceType::meta) == STRATA_META);

// ---- errors

Failure& last_failure() {
  thread_local Failure failure;
  return failure;
}

void record_failure(strata_status status, const char* text) noexcept {
  Failure& f = last_failure();
  ++f.count;
  f.status = status;
  f.exception = nullptr;
  try {
    f.text = text && *text ? text : "no reason was given";
  } catch (...) {
    f.text.clear();  // out of memory: the status alone tells
  }
}

strata_status record_exception() noexcept {
  const auto record = [](strata_status status, const char* text) {
    record_failure(status, text);
    if (last_failure().plugin_calls > 0) last_failure().exception = std::current_exception();
    return status;
  };
  try {
    throw;
  } catch (const ShapeError& e) {
    return record(STRATA_SHAPE_ERROR, e.what());
  } catch (const DTypeError& e) {
    return record(STRATA_DTYPE_ERROR, e.what());
  } catch (const IndexError& e) {
    return record(STRATA_INDEX_ERROR, e.what());
  } catch (const ValueError& e) {
    return record(STRATA_VALUE_ERROR, e.what());
  } catch (const DeviceError& e) {
    return record(STRATA_DEVICE_ERROR, e.what());
  } catch (const AutogradError& e) {
    return record(STRATA_AUTOGRAD_ERROR, e.what());
  } catch (const MemoryError& e) {
    return record(STRATA_MEMORY_ERROR, e.what());
  } catch (const IoError& e) {
    return record(STRATA_IO_ERROR, e.what());
  } catch (const PluginError& e) {
    return record(STRATA_PLUGIN_ERROR, e.what());
  } catch (const std::bad_alloc&) {
    return record(STRATA_MEMORY_ERROR, "not enough memory on the host for what the arguments ask");
  } catch (const std::length_error&) {
    return record(STRATA_VALUE_ERROR, "an argument asks for a longer list than memory can hold");
  } catch (const std::exception& e) {
    return record(STRATA_OTHER_ERROR, e.what());
  } catch (...) {
    return record(STRATA_OTHER_ERROR, "a C++ exception of an unknown type");
  }
}

void throw_status(strata_status status, std::string_view op, std::string_view text) {
  switch (status) {
    case STRATA_VALUE_ERROR:
      throw ValueError(op, text);
    case STRATA_SHAPE_ERROR:
      throw ShapeError(op, text);
    case STRATA_DTYPE_ERROR:
      throw DTypeError(op, text);
    case STRATA_INDEX_ERROR:
      throw IndexError(op, text);
    case STRATA_DEVICE_ERROR:
      throw DeviceError(op, text);
    case STRATA_AUTOGRAD_ERROR:
      throw AutogradError(op, text);
    case STRATA_MEMORY_ERROR:
      throw MemoryError(op, text);
    case STRATA_IO_ERROR:
      throw IoError(op, text);
    case STRATA_PLUGIN_ERROR:
      throw PluginError(op, text);
    case STRATA_OTHER_ERROR:
      throw Error(op, text);
    case STRATA_OK:
      break;
  }
  throw PluginError(op, cat("status ", static_cast<int>(status), ", which is no strata_status: ", text));
}

void need(const void* pointer, std::string_view function, std::string_view what) {
  check(pointer != nullptr, function, what, " is NULL");
}

Tensor need_tensor(const strata_tensor* t, std::string_view function) {
  need(t, function, "the tensor");
  return tensor_of(t);
}

// ---- plain types

DType dtype_from(int32_t dtype, std::string_view function) {
  check(dtype >= 0 && dtype < kNumDTypes, function, "there is no strata_dtype ", dtype);
  return static_cast<DType>(dtype);
}

Device device_from(strata_device device, std::string_view function) {
  check(device.type >= 0 && device.type < kNumDeviceTypes, function, "there is no strata_device_type ", device.type);
  check(device.index >= 0 && device.index <= std::numeric_limits<int8_t>::max() &&
            (device.index == 0 || device.type == STRATA_CUDA),
        function, "there is no device with index ", device.index);
  return {static_cast<DeviceType>(device.type), static_cast<int8_t>(device.index)};
}

Shape shape_from(const int64_t* shape, int32_t ndim, std::string_view function) {
  check<ShapeError>(ndim >= 0 && ndim <= kMaxDims, function, "a tensor has 0 to ", kMaxDims, " dimensions, got ", ndim);
  if (ndim > 0) need(shape, function, "the shape");
  const Shape s(std::span<const int64_t>(shape, static_cast<size_t>(ndim)));
  for (const int64_t n : s) check<ShapeError>(n >= 0, function, "sizes must not be negative, got ", s);
  return s;
}

Tensor borrow(void* data, const Shape& shape, const std::optional<Strides>& strides, DType dtype, Device device,
              void (*release)(void*), void* owner, std::string_view function) {
  check<DeviceError>(!device.is_meta(), function, "a meta tensor has no memory to borrow");
  if (device.is_cuda()) {
    check<DeviceError>(device.index < cuda::device_count(), function, "there is no ", device, ": ",
                       cuda::unavailable_reason());
  }
  // The last element's position, and the memory that this needs.
  int64_t last = 0, numel = 1;
  bool fits = true;
  const Strides steps = strides ? *strides : contiguous_strides(shape);
  for (int i = 0; i < shape.size(); ++i) {
    numel = shape[i] == 0 ? 0 : numel;
    check(steps[i] >= 0 || shape[i] <= 1, function, "strides must not be negative, got ", steps,
          "; copy the array first");
  }
  for (int i = 0; i < shape.size() && numel != 0; ++i) {
    int64_t reach = 0;
    fits = fits && !__builtin_mul_overflow(numel, shape[i], &numel) &&
           !__builtin_mul_overflow(shape[i] - 1, steps[i], &reach) && !__builtin_add_overflow(last, reach, &last);
  }
  int64_t bytes = 0;
  fits = fits && !__builtin_add_overflow(last, 1, &last) && !__builtin_mul_overflow(last, size_of(dtype), &bytes);
  check<ShapeError>(fits, function, "shape ", shape, " with strides ", steps, " does not fit in 64 bits");
  if (numel == 0) last = bytes = 0;
  check(data != nullptr || numel == 0, function, "the pointer is null but the shape is ", shape);
  check(reinterpret_cast<uintptr_t>(data) % static_cast<size_t>(size_of(dtype)) == 0, function,
        "the address is not a multiple of ", size_of(dtype), " bytes, the size of ", dtype, "; copy the array first");
  Ref<TensorImpl> all = make_ref<TensorImpl>();
  all->storage = Storage::borrow(data, static_cast<size_t>(bytes), nullptr, nullptr);
  all->storage->device = device;
  all->shape = {last};
  all->strides = {1};
  all->numel = last;
  all->dtype = dtype;
  all->device = device;
  Tensor t = alias(Tensor(std::move(all)), shape, steps, 0);
  // Last, so that an error on the way leaves the memory with the caller.
  if (release) {
    t.storage()->release = release;
    t.storage()->owner = owner;
  }
  return t;
}

// ---- values

namespace {
// A number that no program means: what an uninitialised size often is.
void check_length(size_t n, std::string_view function, std::string_view what) {
  constexpr size_t kMost = size_t{1} << 28;
  check(n <= kMost, function, "a list of ", n, " ", what, " was given");
}
}  // namespace

Value value_of(const strata_value& v, std::string_view function) {
  switch (v.kind) {
    case STRATA_NONE:
      return std::monostate();
    case STRATA_TENSOR:
      return tensor_of(v.as.tensor);
    case STRATA_TENSORS: {
      if (v.size > 0) need(v.as.tensors, function, "the list of tensors");
      check_length(v.size, function, "tensors");
      TensorList list;
      list.reserve(v.size);
      for (size_t i = 0; i < v.size; ++i) list.push_back(tensor_of(v.as.tensors[i]));
      return list;
    }
    case STRATA_BOOLEAN:
      return v.as.boolean != 0;
    case STRATA_INT:
      return v.as.integer;
    case STRATA_FLOAT:
      return v.as.number;
    case STRATA_STRING: {
      need(v.as.text, function, "the text");
      return std::string(v.as.text, v.size);
    }
    case STRATA_INTS: {
      check(v.size <= STRATA_MAX_DIMS, function, "a list holds at most ", STRATA_MAX_DIMS, " integers, got ", v.size);
      if (v.size > 0) need(v.as.integers, function, "the list of integers");
      return Dims(std::span<const int64_t>(v.as.integers, v.size));
    }
    case STRATA_DTYPE_VALUE:
      return dtype_from(v.as.dtype, function);
    case STRATA_DEVICE_VALUE:
      return device_from(v.as.device, function);
    case STRATA_RNG_KEY:
      return RngKey{v.as.key.seed, v.as.key.offset};
    default:
      throw ValueError(function, cat("there is no strata_kind ", v.kind));
  }
}

std::vector<Value> values_of(const strata_value* values, size_t n, std::string_view function) {
  if (n > 0) need(values, function, "the list of arguments");
  check_length(n, function, "arguments");
  std::vector<Value> all;
  all.reserve(n);
  for (size_t i = 0; i < n; ++i) all.push_back(value_of(values[i], function));
  return all;
}

namespace {

strata_value of_kind(strata_kind kind) {
  strata_value v = {};
  v.kind = kind;
  return v;
}

// What is the same for values that are given and borrowed.
struct PlainValue {
  strata_value operator()(std::monostate) const { return of_kind(STRATA_NONE); }
  strata_value operator()(const Scalar& s) const {
    if (s.kind() == DType::boolean) return (*this)(s.to_bool());
    if (s.kind() == DType::i64) return (*this)(s.to_int());
    return (*this)(s.to_double());
  }
  strata_value operator()(int64_t x) const {
    strata_value v = of_kind(STRATA_INT);
    v.as.integer = x;
    return v;
  }
  strata_value operator()(double x) const {
    strata_value v = of_kind(STRATA_FLOAT);
    v.as.number = x;
    return v;
  }
  strata_value operator()(bool x) const {
    strata_value v = of_kind(STRATA_BOOLEAN);
    v.as.boolean = x;
    return v;
  }
  strata_value operator()(DType x) const {
    strata_value v = of_kind(STRATA_DTYPE_VALUE);
    v.as.dtype = c_dtype(x);
    return v;
  }
  strata_value operator()(Device x) const {
    strata_value v = of_kind(STRATA_DEVICE_VALUE);
    v.as.device = c_device(x);
    return v;
  }
  strata_value operator()(const RngKey& x) const {
    strata_value v = of_kind(STRATA_RNG_KEY);
    v.as.key = {x.seed, x.offset};
    return v;
  }
};

struct GivenValue : PlainValue {
  using PlainValue::operator();
  strata_value operator()(const Tensor& t) const {
    strata_value v = of_kind(STRATA_TENSOR);
    v.as.tensor = give(t);
    return v;
  }
  strata_value operator()(const TensorList& list) const {
    strata_value v = of_kind(STRATA_TENSORS);
    auto* handles = new strata_tensor*[list.size()];
    for (size_t i = 0; i < list.size(); ++i) handles[i] = give(list[i]);
    v.as.tensors = handles;
    v.size = list.size();
    return v;
  }
  strata_value operator()(const std::string& s) const {
    strata_value v = of_kind(STRATA_STRING);
    char* text = new char[s.size() + 1];
    std::memcpy(text, s.c_str(), s.size() + 1);
    v.as.text = text;
    v.size = s.size();
    return v;
  }
  strata_value operator()(const Dims& d) const {
    strata_value v = of_kind(STRATA_INTS);
    auto* integers = new int64_t[static_cast<size_t>(d.size())];
    std::copy(d.begin(), d.end(), integers);
    v.as.integers = integers;
    v.size = static_cast<size_t>(d.size());
    return v;
  }
};

}  // namespace

strata_value give(const Value& v) {
  return std::visit(GivenValue(), v);
}

void clear(strata_value& v) noexcept {
  switch (v.kind) {
    case STRATA_TENSOR:
      adopt(v.as.tensor);
      break;
    case STRATA_TENSORS:
      for (size_t i = 0; i < v.size; ++i) adopt(v.as.tensors[i]);
      delete[] v.as.tensors;
      break;
    case STRATA_STRING:
      delete[] v.as.text;
      break;
    case STRATA_INTS:
      delete[] v.as.integers;
      break;
    default:
      break;
  }
  v = {};
}

Borrowed::Borrowed(std::span<const Value> values) {
  values_.reserve(values.size());
  for (const Value& value : values) {
    strata_value v = {};
    if (const Tensor* t = std::get_if<Tensor>(&value)) {
      v.kind = STRATA_TENSOR;
      v.as.tensor = handle_of(*t);
    } else if (const TensorList* list = std::get_if<TensorList>(&value)) {
      auto handles = std::make_unique<strata_tensor*[]>(list->size());
      for (size_t i = 0; i < list->size(); ++i) handles[i] = handle_of((*list)[i]);
      v.kind = STRATA_TENSORS;
      v.as.tensors = handles.get();
      v.size = list->size();
      lists_.push_back(std::move(handles));
    } else if (const std::string* s = std::get_if<std::string>(&value)) {
      v.kind = STRATA_STRING;
      v.as.text = s->c_str();
      v.size = s->size();
    } else if (const Dims* d = std::get_if<Dims>(&value)) {
      v.kind = STRATA_INTS;
      v.as.integers = d->data();
      v.size = static_cast<size_t>(d->size());
    } else {
      v = std::visit(
          [](const auto& plain) -> strata_value {
            if constexpr (std::is_invocable_v<PlainValue, decltype(plain)>)
              return PlainValue()(plain);
            else
              return {};
          },
          value);
    }
    values_.push_back(v);
  }
}

}  // namespace strata::c
