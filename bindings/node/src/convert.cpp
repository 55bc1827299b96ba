#include "bindings/node/src/convert.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "strata/core/autocast.h"

namespace strata::node {
namespace {

std::unique_ptr<OpInfo> make_info(const OpBase& op) {
  auto info = std::make_unique<OpInfo>();
  info->op = &op;
  info->name = op.name();
  info->inplace_name = info->name + "_";
  const std::vector<SchemaArg>& results = op.schema().results;
  for (size_t i = 0; i < results.size(); ++i)
    info->results.push_back(results[i].name.empty() ? cat("result", static_cast<int>(i)) : results[i].name);
  return info;
}

bool is_plain_object(Env& env, napi_value v) {
  if (env.type(v) != napi_object || box_of(env, v)) return false;
  bool is = false;
  env.check(napi_is_array(env.env, v, &is));
  if (is) return false;
  env.check(napi_is_typedarray(env.env, v, &is));
  if (is) return false;
  env.check(napi_is_promise(env.env, v, &is));
  return !is;
}
bool has(Env& env, napi_value object, const char* name) {
  bool is = false;
  env.check(napi_has_named_property(env.env, object, name, &is));
  return is;
}

uint64_t unsigned_of(Env& env, napi_value v, std::string_view op, std::string_view what) {
  if (env.type(v) == napi_bigint) {
    uint64_t u;
    bool lossless;
    env.check(napi_get_value_bigint_uint64(env.env, v, &u, &lossless));
    check(lossless, op, what, " must fit into 64 bits without a sign");
    return u;
  }
  const int64_t i = env.whole(v, op, what);
  check(i >= 0, op, what, " must not be negative, got ", i);
  return static_cast<uint64_t>(i);
}

Value to_value(Env& env, const OpInfo& op, const SchemaArg& arg, napi_value v) {
  const std::string_view name = op.name;
  if (env.missing(v)) {
    check(arg.type.optional, name, arg.name, " must not be ", env.kind(v));
    return std::monostate();
  }
  switch (arg.type.kind) {
    case SchemaType::tensor: {
      if (TensorBox* box = box_of(env, v)) {
        check(!box->disposed, name, arg.name, " was disposed");
        return box->tensor;
      }
      const napi_valuetype t = env.type(v);
      if (t == napi_number || t == napi_bigint || t == napi_boolean)
        return wrap_number(scalar_of(env, v, name, arg.name), Device::cpu());
      throw ValueError(name, cat(arg.name, " must be a Tensor or a number, got ", env.kind(v)));
    }
    case SchemaType::tensors:
      return tensors_of(env, v, name, arg.name, true);
    case SchemaType::scalar:
      return scalar_of(env, v, name, arg.name);
    case SchemaType::integer:
      return env.whole(v, name, arg.name);
    case SchemaType::number:
      return env.real(v, name, arg.name);
    case SchemaType::boolean:
      return env.truth(v, name, arg.name);
    case SchemaType::string:
      return env.text(v, name, arg.name);
    case SchemaType::integers:
      return env.list(v, name, arg.name);
    case SchemaType::dtype:
      return parse_dtype(env.text(v, name, arg.name));
    case SchemaType::device:
      return parse_device(env.text(v, name, arg.name));
    case SchemaType::key: {
      check(is_plain_object(env, v) && has(env, v, "seed"), name, arg.name, " must be {seed, offset}, got ",
            env.kind(v));
      RngKey key;
      key.seed = unsigned_of(env, env.get(v, "seed"), name, "seed");
      napi_value offset = env.get(v, "offset");
      key.offset = env.missing(offset) ? 0 : unsigned_of(env, offset, name, "offset");
      return key;
    }
  }
  return std::monostate();
}

}  // namespace

std::vector<const OpInfo*> op_infos() {
  static std::mutex mutex;
  static auto& made = *new std::map<std::string, std::unique_ptr<OpInfo>, std::less<>>();
  const std::lock_guard lock(mutex);
  std::vector<const OpInfo*> list;
  for (const OpBase* op : OpBase::all()) {
    auto found = made.find(op->name());
    if (found == made.end()) found = made.emplace(std::string(op->name()), make_info(*op)).first;
    list.push_back(found->second.get());
  }
  return list;
}

Scalar scalar_of(Env& env, napi_value v, std::string_view op, std::string_view what) {
  switch (env.type(v)) {
    case napi_boolean:
      return env.truth(v, op, what);
    case napi_bigint:
      return env.whole(v, op, what);
    case napi_number: {
      const double d = env.real(v, op, what);
      if (std::trunc(d) == d && std::fabs(d) < 9007199254740992.0 && !(d == 0 && std::signbit(d)))
        return static_cast<int64_t>(d);
      return d;
    }
    case napi_object:
      // lib/index.js: class Scalar {value, kind}.
      if (is_plain_object(env, v) && has(env, v, "value") && has(env, v, "kind")) {
        const std::string kind = env.text(env.get(v, "kind"), op, "kind");
        napi_value value = env.get(v, "value");
        if (kind == "f64") return env.real(value, op, what);
        if (kind == "i64") return env.whole(value, op, what);
        return env.truth(value, op, what);
      }
      break;
    default:
      break;
  }
  throw ValueError(op, cat(what, " must be a number, a BigInt or a boolean, got ", env.kind(v)));
}

std::vector<Value> to_values(Env& env, const OpInfo& op, std::span<napi_value> args) {
  const std::vector<SchemaArg>& wanted = op.args();
  napi_value named = nullptr;
  size_t given = args.size();
  if (given > 0 && is_plain_object(env, args[given - 1])) {
    const size_t at = given - 1;
    const bool positional =
        at < wanted.size() &&
        ((wanted[at].type.kind == SchemaType::key && has(env, args[at], "seed")) ||
         (wanted[at].type.kind == SchemaType::scalar && has(env, args[at], "value") && has(env, args[at], "kind")));
    if (!positional) {
      named = args[at];
      --given;
    }
  }
  check(given <= wanted.size(), op.name, "takes at most ", static_cast<int>(wanted.size()), " arguments, got ",
        static_cast<int>(given));
  std::vector<bool> set(wanted.size(), false);
  std::vector<Value> values(wanted.size());
  for (size_t i = 0; i < given; ++i) {
    // undefined stands for the default, as in JavaScript's own functions.
    if (env.type(args[i]) == napi_undefined) continue;
    values[i] = to_value(env, op, wanted[i], args[i]);
    set[i] = true;
  }
  if (named) {
    env.for_each(env.made(napi_get_property_names, named), [&](napi_value key, uint32_t) {
      const std::string name = env.text(key, op.name, "a name");
      const auto found = std::find_if(wanted.begin(), wanted.end(), [&](const SchemaArg& a) { return a.name == name; });
      check(found != wanted.end(), op.name, "has no argument '", name, "'; its schema is ", op.op->schema_text());
      const size_t i = static_cast<size_t>(found - wanted.begin());
      check(!set[i], op.name, name, " was given twice");
      napi_value value = env.made(napi_get_property, named, key);
      if (env.type(value) == napi_undefined) return;
      values[i] = to_value(env, op, *found, value);
      set[i] = true;
    });
  }
  bool draws = false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (set[i]) continue;
    const SchemaArg& a = wanted[i];
    if (a.default_value) {
      values[i] = *a.default_value;
    } else if (a.type == SchemaType{SchemaType::key}) {
      draws = true;
    } else if (!a.type.optional) {
      throw ValueError(op.name, cat("needs ", a.name, " (", a.type.text(), "); its schema is ", op.op->schema_text()));
    }
  }
  if (draws) draw_missing_keys(*op.op, values);
  // Numbers that stand for tensors go where the tensors are.
  Device device = Device::cpu();
  bool numbers = false;
  for (const Value& v : values) {
    const Tensor* t = std::get_if<Tensor>(&v);
    if (!t || !t->defined()) continue;
    if (t->impl().wrapped_number)
      numbers = true;
    else if (!t->device().is_cpu())
      device = t->device();
  }
  if (numbers && !device.is_cpu()) {
    for (Value& v : values)
      if (Tensor* t = std::get_if<Tensor>(&v); t && t->defined() && t->impl().wrapped_number)
        *t = wrap_number(t->item_scalar(), device);
  }
  return values;
}

napi_value from_value(Env& env, Value&& value) {
  return std::visit(
      [&](auto&& v) -> napi_value {
        using T = std::remove_cvref_t<decltype(v)>;
        if constexpr (std::is_same_v<T, Tensor>) {
          return wrap_or_null(env, std::move(v));
        } else if constexpr (std::is_same_v<T, TensorList>) {
          return wrap_list(env, std::move(v));
        } else if constexpr (std::is_same_v<T, Scalar>) {
          if (v.kind() == DType::f64) return env.number(v.to_double());
          return v.kind() == DType::boolean ? env.boolean(v.to_bool()) : env.integer(v.to_int());
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return env.integer(v);
        } else if constexpr (std::is_same_v<T, double>) {
          return env.number(v);
        } else if constexpr (std::is_same_v<T, bool>) {
          return env.boolean(v);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return env.string(v);
        } else if constexpr (std::is_same_v<T, Dims>) {
          return env.dims(v);
        } else if constexpr (std::is_same_v<T, DType>) {
          return env.string(name_of(v));
        } else if constexpr (std::is_same_v<T, Device>) {
          return env.string(to_string(v));
        } else {
          return env.null();
        }
      },
      std::move(value));
}

napi_value from_values(Env& env, const OpInfo& op, std::vector<Value>&& results) {
  if (results.size() == 1) return from_value(env, std::move(results[0]));
  napi_value object = env.object();
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string name = i < op.results.size() ? op.results[i] : cat("result", static_cast<int>(i));
    env.set(object, name.c_str(), from_value(env, std::move(results[i])));
  }
  return object;
}

bool records(std::span<const Value> args) {
  // Autocast keeps its copies with the parameters, whether a gradient is recorded or not.
  if (!grad_enabled() && !autocast_enabled()) return false;
  const auto wants = [](const Tensor& t) {
    return t.defined() && (t.impl().requires_grad || t.impl().autograd || t.impl().view_base);
  };
  for (const Value& v : args) {
    if (const Tensor* t = std::get_if<Tensor>(&v); t && wants(*t)) return true;
    if (const TensorList* l = std::get_if<TensorList>(&v))
      for (const Tensor& t : *l)
        if (wants(t)) return true;
  }
  return false;
}

}  // namespace strata::node
