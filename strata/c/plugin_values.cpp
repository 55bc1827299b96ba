#include "strata/c/plugin_values_inl.h"

#include <algorithm>

#include "strata/core/node.h"
#include "strata/core/placement.h"

namespace strata::c {

std::optional<Value> fit(SchemaType type, const Value& v) {
  const auto as_is = [&]<class T>() { return std::holds_alternative<T>(v) ? std::optional(v) : std::nullopt; };
  if (std::holds_alternative<std::monostate>(v)) {
    if (!type.optional) return std::nullopt;
    return type.kind == SchemaType::tensor ? Value(Tensor()) : v;
  }
  const Scalar* scalar = std::get_if<Scalar>(&v);
  const int64_t* integer = std::get_if<int64_t>(&v);
  const double* number = std::get_if<double>(&v);
  const bool* boolean = std::get_if<bool>(&v);
  switch (type.kind) {
    case SchemaType::tensor: {
      const Tensor* t = std::get_if<Tensor>(&v);
      return t && (t->defined() || type.optional) ? std::optional(v) : std::nullopt;
    }
    case SchemaType::tensors: {
      const TensorList* list = std::get_if<TensorList>(&v);
      const auto defined = [](const Tensor& t) { return t.defined(); };
      return list && std::all_of(list->begin(), list->end(), defined) ? std::optional(v) : std::nullopt;
    }
    case SchemaType::scalar:
      if (scalar) return v;
      if (integer) return Value(Scalar(*integer));
      if (number) return Value(Scalar(*number));
      if (boolean) return Value(Scalar(*boolean));
      return std::nullopt;
    case SchemaType::number:
      if (number) return v;
      if (integer) return Value(static_cast<double>(*integer));
      if (scalar) return Value(scalar->to_double());
      return std::nullopt;
    case SchemaType::integer:
      return as_is.operator()<int64_t>();
    case SchemaType::boolean:
      return as_is.operator()<bool>();
    case SchemaType::string:
      return as_is.operator()<std::string>();
    case SchemaType::integers:
      return as_is.operator()<Dims>();
    case SchemaType::dtype:
      return as_is.operator()<DType>();
    case SchemaType::device:
      return as_is.operator()<Device>();
    case SchemaType::key:
      return as_is.operator()<RngKey>();
  }
  return std::nullopt;
}

bool wants_grad(std::span<const Value> args) {
  bool any = false;
  if (grad_enabled()) visit(args, [&](const Tensor& t) { any = any || (t.defined() && t.requires_grad()); });
  return any;
}

std::optional<Device> device_of(std::span<const Value> args, std::string_view op) {
  std::optional<Device> device;
  visit(args, [&](const Tensor& t) {
    if (!t.defined() || t.impl().wrapped_number) return;
    if (!device) {
      device = t.device();
    } else if (!(t.device() == *device)) {
      detail::throw_mixed_devices(op, *device, t.device());
    }
  });
  return device;
}

bool is_alike(Adapt adapt, std::span<const Value> args) {
  detail::AlreadyAlike check{adapt};
  visit(args, [&](const Tensor& t) { check.see(t); });
  return check.ok;
}

void adapt_all(detail::Adapter& adapter, std::vector<Value>& args) {
  visit(args, [&](const Tensor& t) { adapter.see(t); });
  for (Value& v : args)
    if (Tensor* t = std::get_if<Tensor>(&v)) *t = adapter.apply(*t);
}

void autocast_all(Autocast policy, std::vector<Value>& args) {
  DType widest = DType::boolean;
  visit(args, [&](const Tensor& t) {
    if (t.defined() && is_floating(t.dtype())) widest = promote_types(widest, t.dtype());
  });
  for (Value& v : args) {
    if (Tensor* t = std::get_if<Tensor>(&v)) {
      *t = detail::autocast_tensor(*t, policy, widest);
    } else if (TensorList* list = std::get_if<TensorList>(&v)) {
      for (Tensor& t : *list) t = detail::autocast_tensor(t, policy, widest);
    }
  }
}

void gather_all(std::vector<Value>& args) {
  const auto gather = [](Tensor& t) {
    if (is_placed(t)) t = detail::placement_room().whole(t);
  };
  for (Value& v : args) {
    if (Tensor* t = std::get_if<Tensor>(&v)) gather(*t);
    if (TensorList* list = std::get_if<TensorList>(&v)) std::for_each(list->begin(), list->end(), gather);
  }
}

}  // namespace strata::c
