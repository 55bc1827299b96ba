// The Tensor class: handle, properties, methods that are no records.

#include <algorithm>

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "strata/autograd/autograd.h"
#include "strata/memory/tiers.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/indexing.h"
#include "strata/ops/view/view.h"

namespace strata::node {
namespace {

constexpr napi_type_tag kTensorTag{0x5f3c1d7ea2b94c10, 0x9e2b64d07f11c3a8};

void account(napi_env env, TensorBox& box, int64_t bytes) {
  int64_t total;
  napi_adjust_external_memory(env, bytes - box.accounted, &total);
  box.accounted = bytes;
}
// During garbage collection: only calls that do not touch JavaScript.
void finalize_box(FinalEnv env, void* data, void*) {
  auto* box = static_cast<TensorBox*>(data);
  int64_t total;
  if (box->accounted) napi_adjust_external_memory(env, -box->accounted, &total);
  bury(std::move(box->tensor));
  delete box;
}

// wrap() fills what it makes; nobody else calls this (lib/native.js has a Tensor of its own, which throws).
napi_value construct(napi_env env, napi_callback_info info) {
  napi_value self = nullptr;
  napi_get_cb_info(env, info, nullptr, nullptr, &self, nullptr);
  return self;
}

TensorBox& self_box(Call& c) {
  TensorBox* box = box_of(c.env, c.self);
  check(box != nullptr, "Tensor", "a method of Tensor was called on ", c.env.kind(c.self));
  return *box;
}
Tensor self(Call& c) {
  TensorBox& box = self_box(c);
  check(!box.disposed, "Tensor", "the tensor was disposed");
  return box.tensor;
}

napi_value get_shape(Call& c) {
  return c.env.dims(self(c).shape());
}
napi_value get_strides(Call& c) {
  return c.env.dims(self(c).strides());
}
napi_value get_dtype(Call& c) {
  return c.env.string(name_of(self(c).dtype()));
}
napi_value get_device(Call& c) {
  return c.env.string(to_string(self(c).device()));
}
napi_value get_tier(Call& c) {
  return c.env.string(self(c).tier().name());
}
napi_value get_ndim(Call& c) {
  return c.env.integer(self(c).dim());
}
napi_value get_numel(Call& c) {
  return c.env.integer(self(c).numel());
}
napi_value get_nbytes(Call& c) {
  return c.env.integer(self(c).nbytes());
}
napi_value get_contiguous(Call& c) {
  return c.env.boolean(self(c).is_contiguous());
}
napi_value get_version(Call& c) {
  return c.env.integer(self(c).version());
}
napi_value get_disposed(Call& c) {
  return c.env.boolean(self_box(c).disposed);
}
napi_value get_requires_grad(Call& c) {
  return c.env.boolean(self(c).requires_grad());
}
napi_value set_requires_grad(Call& c) {
  const bool value = c.env.truth(c[0], "requiresGrad", "the value");
  Tensor t = self(c);
  const TapeGuard guard(c.env.mail.get());
  t.set_requires_grad(value);
  return c.env.undefined();
}
napi_value get_is_leaf(Call& c) {
  const Tensor t = self(c);
  const TapeGuard guard(c.env.mail.get());
  return c.env.boolean(t.is_leaf());
}
napi_value get_grad_fn(Call& c) {
  const Tensor t = self(c);
  const TapeGuard guard(c.env.mail.get());
  const Ref<Node> fn = t.grad_fn();
  return fn ? c.env.string(fn->name()) : c.env.null();
}
napi_value get_grad(Call& c) {
  Tensor grad;
  {
    const Tensor t = self(c);
    const TapeGuard guard(c.env.mail.get());
    grad = t.grad();
  }
  return wrap_or_null(c.env, std::move(grad));
}
napi_value set_grad(Call& c) {
  Tensor t = self(c);
  const Tensor grad = c.has(0) ? tensor_of(c.env, c[0], "grad", "the value") : Tensor();
  const TapeGuard guard(c.env.mail.get());
  t.set_grad(grad);
  return c.env.undefined();
}

napi_value dispose(Call& c) {
  TensorBox& box = self_box(c);
  if (box.disposed) return c.env.undefined();
  box.disposed = true;
  account(c.env.env, box, 0);
  bury(std::move(box.tensor));
  return c.env.undefined();
}

napi_value item(Call& c) {
  const Scalar s = self(c).item_scalar();
  if (s.kind() == DType::boolean) return c.env.boolean(s.to_bool());
  if (s.kind() == DType::f64) return c.env.number(s.to_double());
  return self(c).dtype() == DType::i64 ? c.env.bigint(s.to_int()) : c.env.integer(s.to_int());
}
napi_value to_string_method(Call& c) {
  return c.env.string(self(c).to_string());
}

// A function of tensor methods that are on the tape when `t` is.
template <class F>
napi_value view_of(Call& c, F f) {
  Tensor result;
  {
    const Tensor t = self(c);
    const Value v = t;
    if (records({&v, 1})) {
      const TapeGuard guard(c.env.mail.get());
      result = f(t);
    } else {
      result = f(t);
    }
  }
  return wrap(c.env, std::move(result));
}
napi_value detach(Call& c) {
  return view_of(c, [](const Tensor& t) { return t.detach(); });
}
napi_value contiguous(Call& c) {
  return view_of(c, [](const Tensor& t) { return t.contiguous(); });
}
napi_value reshape_method(Call& c) {
  Dims shape;
  if (c.args.size() == 1) {
    shape = c.env.list(c[0], "reshape", "shape");
  } else {
    for (napi_value v : c.args) shape.push_back(c.env.whole(v, "reshape", "shape"));
  }
  return view_of(c, [&](const Tensor& t) { return t.reshape(shape); });
}
napi_value flatten_method(Call& c) {
  const int64_t start = c.has(0) ? c.env.whole(c[0], "flatten", "start") : 0;
  const int64_t end = c.has(1) ? c.env.whole(c[1], "flatten", "end") : -1;
  return view_of(c, [&](const Tensor& t) { return t.flatten(start, end); });
}
napi_value unflatten_method(Call& c) {
  const int64_t dim = c.env.whole(c[0], "unflatten", "dim");
  const Dims sizes = c.env.list(c[1], "unflatten", "sizes");
  return view_of(c, [&](const Tensor& t) { return unflatten(t, dim, sizes); });
}
napi_value squeeze_method(Call& c) {
  if (!c.has(0)) return view_of(c, [](const Tensor& t) { return t.squeeze(); });
  const int64_t dim = c.env.whole(c[0], "squeeze", "dim");
  return view_of(c, [&](const Tensor& t) { return t.squeeze(dim); });
}
napi_value unsqueeze_method(Call& c) {
  const int64_t dim = c.env.whole(c[0], "unsqueeze", "dim");
  return view_of(c, [&](const Tensor& t) { return t.unsqueeze(dim); });
}
napi_value narrow_method(Call& c) {
  const int64_t dim = c.env.whole(c[0], "narrow", "dim"), start = c.env.whole(c[1], "narrow", "start"),
                length = c.env.whole(c[2], "narrow", "length");
  return view_of(c, [&](const Tensor& t) { return t.narrow(dim, start, length); });
}
napi_value t_method(Call& c) {
  return view_of(c, [](const Tensor& t) { return t.t(); });
}
// to("bf16"), to("cuda:0"), to({dtype, device, tier})
napi_value to_method(Call& c) {
  Env& env = c.env;
  std::optional<DType> dtype;
  std::optional<Device> device;
  std::optional<Tier> tier;
  for (napi_value v : c.args) {
    if (env.missing(v)) continue;
    if (env.type(v) == napi_object) {
      napi_value d = env.get(v, "dtype");
      if (!env.missing(d)) dtype = parse_dtype(env.text(d, "to", "dtype"));
      d = env.get(v, "device");
      if (!env.missing(d)) device = parse_device(env.text(d, "to", "device"));
      d = env.get(v, "tier");
      if (!env.missing(d)) tier = memory::parse_tier(env.text(d, "to", "tier"));
      continue;
    }
    const std::string text = env.text(v, "to", "the argument");
    if (text == "cpu" || text == "meta" || text.starts_with("cuda"))
      device = parse_device(text);
    else
      dtype = parse_dtype(text);
  }
  return view_of(c, [&](const Tensor& t) {
    Tensor r = dtype ? t.to(*dtype) : t;
    if (device) r = r.to(*device);
    return tier ? r.to(*tier) : r;
  });
}

// lib/index.js gives each entry as a number, null, "...", a Tensor, or an array [start, stop, step] with nulls.
std::vector<TensorIndex> indices_of(Env& env, napi_value list) {
  std::vector<TensorIndex> indices;
  env.for_each(list, [&](napi_value v, uint32_t) {
    const napi_valuetype type = env.type(v);
    if (type == napi_null) {
      indices.emplace_back(None);
    } else if (type == napi_number || type == napi_bigint) {
      indices.emplace_back(env.whole(v, "at", "an index"));
    } else if (type == napi_string) {
      check(env.text(v, "at", "an index") == "...", "at", "a text among the indices must be '...', got ", env.kind(v));
      indices.emplace_back(Ellipsis);
    } else if (TensorBox* box = box_of(env, v)) {
      check(!box->disposed, "at", "an index was disposed");
      indices.emplace_back(box->tensor);
    } else {
      bool is = false;
      env.check(napi_is_array(env.env, v, &is));
      check(is, "at", "an index must be a number, a slice [start, stop, step], null, '...' or a Tensor, got ",
            env.kind(v));
      Slice s;
      env.for_each(v, [&](napi_value e, uint32_t k) {
        check(k < 3, "at", "a slice is [start, stop, step], got more numbers");
        if (env.missing(e)) return;
        const int64_t number = env.whole(e, "at", "a slice's number");
        if (k == 0) s.start = number;
        if (k == 1) s.stop = number;
        if (k == 2) s.step = number;
      });
      indices.emplace_back(s);
    }
  });
  return indices;
}
napi_value at(Call& c) {
  napi_value list = c.env.array(c.args.size());
  for (size_t i = 0; i < c.args.size(); ++i) c.env.put(list, static_cast<uint32_t>(i), c.args[i]);
  const std::vector<TensorIndex> indices = indices_of(c.env, list);
  return view_of(c, [&](const Tensor& t) { return t.index(indices); });
}
napi_value set_at(Call& c) {
  bool is = false;
  c.env.check(napi_is_array(c.env.env, c[0], &is));
  check(is, "setAt", "the indices must be an array, got ", c.env.kind(c[0]));
  const std::vector<TensorIndex> indices = indices_of(c.env, c[0]);
  Tensor t = self(c);
  const TensorBox* box = box_of(c.env, c[1]);
  const Tensor value = box ? tensor_of(c.env, c[1], "setAt", "value")
                           : wrap_number(scalar_of(c.env, c[1], "setAt", "value"), t.device());
  const TapeGuard guard(c.env.mail.get());
  t.index_put_(indices, value);
  return c.self;
}

// full(shape, value, dtype, device)
napi_value full_function(Call& c) {
  const Dims shape = c.env.list(c[0], "full", "shape");
  const Scalar value = scalar_of(c.env, c[1], "full", "value");
  const DType dtype = c.has(2) ? parse_dtype(c.env.text(c[2], "full", "dtype")) : default_dtype();
  const DeviceScope scope(c.has(3) ? parse_device(c.env.text(c[3], "full", "device")) : default_device());
  return wrap(c.env, full(shape, value, dtype));
}
napi_value empty_function(Call& c) {
  const Dims shape = c.env.list(c[0], "empty", "shape");
  const DType dtype = c.has(1) ? parse_dtype(c.env.text(c[1], "empty", "dtype")) : default_dtype();
  const DeviceScope scope(c.has(2) ? parse_device(c.env.text(c[2], "empty", "device")) : default_device());
  return wrap(c.env, empty(shape, dtype));
}

struct Property {
  const char* name;
  napi_callback get;
  napi_callback set;
};
constexpr Property kProperties[] = {
    {"shape", entry<get_shape>, nullptr},
    {"strides", entry<get_strides>, nullptr},
    {"dtype", entry<get_dtype>, nullptr},
    {"device", entry<get_device>, nullptr},
    {"tier", entry<get_tier>, nullptr},
    {"ndim", entry<get_ndim>, nullptr},
    {"numel", entry<get_numel>, nullptr},
    {"nbytes", entry<get_nbytes>, nullptr},
    {"isContiguous", entry<get_contiguous>, nullptr},
    {"version", entry<get_version>, nullptr},
    {"disposed", entry<get_disposed>, nullptr},
    {"requiresGrad", entry<get_requires_grad>, entry<set_requires_grad>},
    {"isLeaf", entry<get_is_leaf>, nullptr},
    {"gradFn", entry<get_grad_fn>, nullptr},
    {"grad", entry<get_grad>, entry<set_grad>},
};
struct Method {
  const char* name;
  napi_callback call;
};
constexpr Method kMethods[] = {
    {"dispose", entry<dispose>},
    {"item", entry<item>},
    {"toString", entry<to_string_method>},
    {"detach", entry<detach>},
    {"contiguous", entry<contiguous>},
    {"reshape", entry<reshape_method>},
    {"flatten", entry<flatten_method>},
    {"unflatten", entry<unflatten_method>},
    {"squeeze", entry<squeeze_method>},
    {"unsqueeze", entry<unsqueeze_method>},
    {"narrow", entry<narrow_method>},
    {"t", entry<t_method>},
    {"to", entry<to_method>},
    {"at", entry<at>},
    {"setAt", entry<set_at>},
};

}  // namespace

napi_value wrap(Env& env, Tensor tensor) {
  napi_value made = env.made(napi_new_instance, env.value_of(env.tensor_class), size_t{0}, nullptr);
  auto owner = std::make_unique<TensorBox>();
  const int64_t bytes = tensor.nbytes();
  owner->tensor = std::move(tensor);
  env.check(napi_wrap(env.env, made, owner.get(), finalize_box, nullptr, nullptr));
  TensorBox* const box = owner.release();
  env.check(napi_type_tag_object(env.env, made, &kTensorTag));
  account(env.env, *box, bytes);
  env.handed += bytes;
  return made;
}
napi_value wrap_or_null(Env& env, Tensor tensor) {
  return tensor.defined() ? wrap(env, std::move(tensor)) : env.null();
}

napi_value wrap_list(Env& env, TensorList&& list) {
  napi_value array = env.array(list.size());
  for (size_t i = 0; i < list.size(); ++i)
    env.put(array, static_cast<uint32_t>(i), wrap_or_null(env, std::move(list[i])));
  return array;
}

TensorBox* box_of(Env& env, napi_value value) {
  if (env.type(value) != napi_object) return nullptr;
  bool is = false;
  if (napi_check_object_type_tag(env.env, value, &kTensorTag, &is) != napi_ok || !is) return nullptr;
  void* box = nullptr;
  env.check(napi_unwrap(env.env, value, &box));
  return static_cast<TensorBox*>(box);
}
Tensor tensor_of(Env& env, napi_value value, std::string_view op, std::string_view what) {
  TensorBox* box = box_of(env, value);
  check(box != nullptr, op, what, " must be a Tensor, got ", env.kind(value));
  check(!box->disposed, op, what, " was disposed");
  return box->tensor;
}
TensorList tensors_of(Env& env, napi_value value, std::string_view op, std::string_view what, bool allow_null) {
  bool is = false;
  env.check(napi_is_array(env.env, value, &is));
  check(is, op, what, " must be an array of Tensors, got ", env.kind(value));
  TensorList list;
  env.for_each(value, [&](napi_value e, uint32_t i) {
    if (allow_null && env.missing(e))
      list.emplace_back();
    else
      list.push_back(tensor_of(env, e, op, cat(what, "[", static_cast<int>(i), "]")));
  });
  return list;
}

napi_value define_tensor_class(Env& env) {
  std::vector<napi_property_descriptor> properties;
  const auto attributes = static_cast<napi_property_attributes>(napi_writable | napi_configurable);
  for (const Property& p : kProperties)
    properties.push_back({p.name, nullptr, nullptr, p.get, p.set, nullptr, napi_configurable, nullptr});
  for (const Method& m : kMethods)
    properties.push_back({m.name, nullptr, m.call, nullptr, nullptr, nullptr, attributes, nullptr});
  napi_value cls;
  env.check(napi_define_class(env.env, "Tensor", NAPI_AUTO_LENGTH, construct, nullptr, properties.size(),
                              properties.data(), &cls));
  return cls;
}

void add_memory(Env& env, napi_value exports);
void add_tensors(Env& env, napi_value exports) {
  env.add(exports, {{"full", entry<full_function>}, {"empty", entry<empty_function>}});
  add_memory(env, exports);
}

}  // namespace strata::node
