// Typed arrays and tensors over the same bytes, both ways.

#include <cstring>

#include "bindings/node/src/convert.h"

namespace strata::node {
namespace {

// What keeps a borrowed ArrayBuffer alive.
struct Borrowed {
  std::unique_ptr<JsRef> buffer;
  std::byte* base;  // its first byte
};
void release_borrowed(void* owner) {
  delete static_cast<Borrowed*>(owner);
}

struct TypedArray {
  napi_typedarray_type type;
  size_t length;
  void* data;
  napi_value buffer;
  size_t offset;
};
TypedArray typed_array_of(Env& env, napi_value v, std::string_view op) {
  bool is = false;
  env.check(napi_is_typedarray(env.env, v, &is));
  check(is, op, "needs a typed array, got ", env.kind(v));
  TypedArray a;
  env.check(napi_get_typedarray_info(env.env, v, &a.type, &a.length, &a.data, &a.buffer, &a.offset));
  return a;
}
size_t element_size(napi_typedarray_type t) {
  switch (t) {
    case napi_int16_array:
    case napi_uint16_array:
      return 2;
    case napi_int32_array:
    case napi_uint32_array:
    case napi_float32_array:
      return 4;
    case napi_float64_array:
    case napi_bigint64_array:
    case napi_biguint64_array:
      return 8;
    default:
      return 1;
  }
}
// Checks that the array holds what shape and dtype take.
void check_fits(const TypedArray& a, const Shape& shape, DType dtype, std::string_view op) {
  for (const int64_t n : shape) check<ShapeError>(n >= 0, op, "a size must not be negative, got ", shape);
  check<DTypeError>(element_size(a.type) == static_cast<size_t>(size_of(dtype)), op, "an array with elements of ",
                    static_cast<int>(element_size(a.type)), " bytes cannot hold ", dtype);
  check<ShapeError>(static_cast<uint64_t>(shape.product()) == a.length, op, "an array of ",
                    static_cast<int64_t>(a.length), " elements does not have the shape ", shape);
  if (dtype != DType::boolean) return;
  const auto* bytes = static_cast<const uint8_t*>(a.data);
  for (size_t i = 0; i < a.length; ++i)
    check(bytes[i] <= 1, op, "a bool tensor's elements are 0 or 1, got ", static_cast<int>(bytes[i]), " at ",
          static_cast<int64_t>(i));
}
napi_typedarray_type array_type(DType t) {
  switch (t) {
    case DType::u8:
    case DType::boolean:
      return napi_uint8_array;
    case DType::i8:
      return napi_int8_array;
    case DType::i16:
      return napi_int16_array;
    case DType::i32:
      return napi_int32_array;
    case DType::i64:
      return napi_bigint64_array;
    case DType::f16:
    case DType::bf16:
      return napi_uint16_array;
    case DType::f32:
      return napi_float32_array;
    case DType::f64:
      return napi_float64_array;
  }
  return napi_uint8_array;
}

// copyFrom(typedArray, shape, dtype)
napi_value copy_from(Call& c) {
  const TypedArray a = typed_array_of(c.env, c[0], "tensor");
  const Dims shape = c.env.list(c[1], "tensor", "shape");
  const DType dtype = parse_dtype(c.env.text(c[2], "tensor", "dtype"));
  check_fits(a, shape, dtype, "tensor");
  Tensor t = empty(TensorMeta{shape, dtype, Device::cpu(), std::nullopt});
  if (a.length) std::memcpy(t.raw_data(), a.data, static_cast<size_t>(t.nbytes()));
  return wrap(c.env, std::move(t));
}

// borrow(typedArray, shape, dtype): over the array's memory.
napi_value borrow(Call& c) {
  const TypedArray a = typed_array_of(c.env, c[0], "fromTypedArray");
  const Dims shape = c.env.list(c[1], "fromTypedArray", "shape");
  const DType dtype = parse_dtype(c.env.text(c[2], "fromTypedArray", "dtype"));
  check_fits(a, shape, dtype, "fromTypedArray");
  if (a.length == 0) return wrap(c.env, empty(TensorMeta{shape, dtype, Device::cpu(), std::nullopt}));
  auto owner = std::make_unique<Borrowed>();
  owner->buffer = std::make_unique<JsRef>(c.env, a.buffer);
  owner->base = static_cast<std::byte*>(a.data) - a.offset;
  Tensor t = from_blob(a.data, shape, dtype, release_borrowed, owner.get());
  (void)owner.release();
  return wrap(c.env, std::move(t));
}

// Holds a storage for an ArrayBuffer over it.
struct Lent {
  Ref<Storage> storage;
  std::shared_ptr<Mailbox> mail;
  uint64_t id;
};
void release_lent(FinalEnv, void*, void* hint) {
  const std::unique_ptr<Lent> lent(static_cast<Lent*>(hint));
  // The table of buffers is the JavaScript thread's; the finalizer may run anywhere.
  const Storage* key = lent->storage.get();
  const uint64_t id = lent->id;
  lent->mail->post([key, id](Env& env) {
    const auto found = env.buffers.find(key);
    if (found == env.buffers.end() || found->second.id != id) return;
    napi_delete_reference(env.env, found->second.ref);
    env.buffers.erase(found);
  });
}

// The ArrayBuffer over all of a storage, made when there is none, and where in it the storage begins.
napi_value buffer_of(Env& env, const Ref<Storage>& storage, size_t& begin) {
  begin = 0;
  if (storage->release == release_borrowed) {
    const auto& owner = *static_cast<const Borrowed*>(storage->owner);
    if (owner.buffer->mailbox() == env.mail) {
      begin = static_cast<size_t>(storage->data - owner.base);
      return owner.buffer->get(env);
    }
  }
  if (const auto found = env.buffers.find(storage.get()); found != env.buffers.end()) {
    napi_value buffer = nullptr;
    env.check(napi_get_reference_value(env.env, found->second.ref, &buffer));
    if (buffer) return buffer;
    napi_delete_reference(env.env, found->second.ref);
    env.buffers.erase(found);
  }
  auto lent = std::make_unique<Lent>(Lent{storage, env.mail, ++env.next_buffer});
  napi_value buffer;
  env.check(
      napi_create_external_arraybuffer(env.env, storage->data, storage->nbytes, release_lent, lent.get(), &buffer));
  const uint64_t id = lent->id;
  (void)lent.release();
  Env::Buffer entry{nullptr, id};
  env.check(napi_create_reference(env.env, buffer, 0, &entry.ref));
  env.buffers[storage.get()] = entry;
  return buffer;
}

const char* array_class(napi_typedarray_type t) {
  switch (t) {
    case napi_int8_array:
      return "Int8Array";
    case napi_int16_array:
      return "Int16Array";
    case napi_uint16_array:
      return "Uint16Array";
    case napi_int32_array:
      return "Int32Array";
    case napi_bigint64_array:
      return "BigInt64Array";
    case napi_float32_array:
      return "Float32Array";
    case napi_float64_array:
      return "Float64Array";
    default:
      return "Uint8Array";
  }
}
napi_value new_typed_array(Env& env, DType dtype, size_t length, napi_value buffer, size_t offset) {
  const napi_typedarray_type type = array_type(dtype);
  bool is = false;
  env.check(napi_is_arraybuffer(env.env, buffer, &is));
  if (is) return env.made(napi_create_typedarray, type, length, buffer, offset);
  // Node-API makes none over a SharedArrayBuffer; JavaScript does.
  napi_value args[3] = {buffer, env.number(static_cast<double>(offset)), env.number(static_cast<double>(length))};
  return env.made(napi_new_instance, env.get(env.made(napi_get_global), array_class(type)), size_t{3}, args);
}

// data(tensor): a typed array over the tensor's elements.
napi_value data(Call& c) {
  const Tensor t = tensor_of(c.env, c[0], "data", "the tensor");
  check<DeviceError>(t.device().is_cpu(), "data", "the tensor is on ", t.device(), ", use .to('cpu') first");
  check(t.storage()->backend().bytes == memory::Bytes::fixed, "data", "the tensor's elements move (tier '", t.tier(),
        "'), use .to({tier: 'own'}) first");
  check(t.is_contiguous(), "data", "the tensor's elements are not in one piece, use .contiguous() first");
  if (t.numel() == 0) {
    napi_value buffer;
    void* bytes;
    c.env.check(napi_create_arraybuffer(c.env.env, 0, &bytes, &buffer));
    return new_typed_array(c.env, t.dtype(), 0, buffer, 0);
  }
  size_t begin = 0;
  napi_value buffer = buffer_of(c.env, t.storage(), begin);
  const size_t offset = begin + static_cast<size_t>(t.storage_offset() * size_of(t.dtype()));
  check(offset % static_cast<size_t>(size_of(t.dtype())) == 0, "data",
        "the elements are not aligned, use .clone() first");
  return new_typed_array(c.env, t.dtype(), static_cast<size_t>(t.numel()), buffer, offset);
}

// copyTo(tensor): a typed array with a copy, row-major.
napi_value copy_to(Call& c) {
  Tensor t;
  {
    const Tensor given = tensor_of(c.env, c[0], "toTypedArray", "the tensor");
    const NoGrad guard;
    t = given.detach().to(Device::cpu()).contiguous();
  }
  napi_value buffer;
  void* bytes;
  c.env.check(napi_create_arraybuffer(c.env.env, static_cast<size_t>(t.nbytes()), &bytes, &buffer));
  const Pin pin(t, Access::read);
  if (t.nbytes()) std::memcpy(bytes, t.raw_data(), static_cast<size_t>(t.nbytes()));
  return new_typed_array(c.env, t.dtype(), static_cast<size_t>(t.numel()), buffer, 0);
}

// written(tensor): the elements were written from outside.
napi_value written(Call& c) {
  bump_version(tensor_of(c.env, c[0], "markWritten", "the tensor"), "JavaScript");
  return c.env.undefined();
}

// Tensors on their way from one JavaScript thread to another, by ticket.
struct Shared {
  std::mutex mutex;
  uint64_t next = 1;
  std::unordered_map<uint64_t, Tensor> tensors;
};
Shared& shared() {
  static Shared& s = *new Shared();
  return s;
}
napi_value share(Call& c) {
  Tensor t = tensor_of(c.env, c[0], "share", "the tensor").detach();
  // A borrowed ArrayBuffer goes with the thread that made it.
  if (t.storage()->release) t = t.clone();
  Shared& s = shared();
  const std::lock_guard lock(s.mutex);
  const uint64_t ticket = s.next++;
  s.tensors.emplace(ticket, std::move(t));
  return c.env.bigint(static_cast<int64_t>(ticket));
}
napi_value take_shared(Call& c) {
  const int64_t ticket = c.env.whole(c[0], "fromShared", "ticket");
  Tensor t;
  {
    Shared& s = shared();
    const std::lock_guard lock(s.mutex);
    const auto found = s.tensors.find(static_cast<uint64_t>(ticket));
    check(found != s.tensors.end(), "fromShared", "there is no shared tensor ", ticket, "; a ticket is good for once");
    t = std::move(found->second);
    s.tensors.erase(found);
  }
  return wrap(c.env, std::move(t));
}

}  // namespace

void add_memory(Env& env, napi_value exports) {
  env.add(exports, {{"copyFrom", entry<copy_from>},
                    {"borrow", entry<borrow>},
                    {"data", entry<data>},
                    {"copyTo", entry<copy_to>},
                    {"written", entry<written>},
                    {"share", entry<share>},
                    {"takeShared", entry<take_shared>}});
}

}  // namespace strata::node
