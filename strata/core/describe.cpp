#include "strata/core/describe.h"

#include <charconv>
#include <cmath>

#include "strata/core/dtype_limits.h"
#include "strata/core/json_text.h"

namespace strata {
namespace {

// Whole numbers beyond these are texts: a JSON reader may take a number for a double.
constexpr int64_t kExact = int64_t{1} << 53;

// Objects and arrays, written in order.
class Json {
 public:
  Json& begin(char bracket) {
    comma();
    text_ += bracket;
    first_ = true;
    return *this;
  }
  Json& end(char bracket) {
    text_ += bracket;
    first_ = false;
    return *this;
  }
  Json& key(std::string_view name) {
    string(name);
    text_ += ':';
    first_ = true;
    return *this;
  }
  Json& string(std::string_view s) { return plain(detail::json_string(s)); }
  Json& plain(std::string_view s) {
    comma();
    text_ += s;
    return *this;
  }
  Json& boolean(bool b) { return plain(b ? "true" : "false"); }
  Json& integer(int64_t i) {
    const std::string s = std::to_string(i);
    return i > kExact || i < -kExact ? string(s) : plain(s);
  }
  Json& number(double d) {
    if (!std::isfinite(d)) return string(std::isnan(d) ? "nan" : d > 0 ? "inf" : "-inf");
    char s[32];
    return plain({s, std::to_chars(s, s + sizeof s, d).ptr});
  }
  std::string take() { return std::move(text_); }

 private:
  void comma() {
    if (!first_) text_ += ',';
    first_ = false;
  }
  std::string text_;
  bool first_ = true;
};

void write(Json& json, const Value& v) {
  std::visit(
      [&](const auto& x) {
        using T = std::remove_cvref_t<decltype(x)>;
        if constexpr (std::is_same_v<T, bool>) {
          json.boolean(x);
        } else if constexpr (std::is_same_v<T, int64_t>) {
          json.integer(x);
        } else if constexpr (std::is_same_v<T, double>) {
          json.number(x);
        } else if constexpr (std::is_same_v<T, Scalar>) {
          if (x.kind() == DType::boolean) {
            json.boolean(x.to_bool());
          } else if (x.kind() == DType::f64) {
            json.number(x.to_double());
          } else {
            json.integer(x.to_int());
          }
        } else if constexpr (std::is_same_v<T, std::string>) {
          json.string(x);
        } else if constexpr (std::is_same_v<T, Dims>) {
          json.begin('[');
          for (int i = 0; i < x.size(); ++i) json.integer(x[i]);
          json.end(']');
        } else if constexpr (std::is_same_v<T, DType>) {
          json.string(name_of(x));
        } else if constexpr (std::is_same_v<T, Device>) {
          json.string(to_string(x));
        } else {
          json.plain("null");  // None; schemas have no defaults of other types
        }
      },
      v);
}

void write(Json& json, const SchemaArg& a, std::string_view name) {
  json.begin('{').key("name").string(name);
  json.key("type").string(a.type.text());
  json.key("kind").string(SchemaType{a.type.kind}.text());
  json.key("optional").boolean(a.type.optional);
  if (a.default_value) write(json.key("default"), *a.default_value);
  json.end('}');
}

void write(Json& json, const OpBase& op) {
  const Schema& schema = op.schema();
  json.begin('{').key("name").string(op.name());
  json.key("family").string(op.family());
  json.key("schema").string(op.schema_text());
  json.key("doc").string(op.doc());
  json.key("aliases").begin('[');
  for (const std::string_view alias : op.aliases()) json.string(alias);
  json.end(']').key("args").begin('[');
  for (const SchemaArg& a : schema.args) write(json, a, a.name);
  json.end(']').key("results").begin('[');
  for (size_t i = 0; i < schema.results.size(); ++i) {
    const SchemaArg& r = schema.results[i];
    write(json, r, r.name.empty() ? cat("result", static_cast<int64_t>(i)) : r.name);
  }
  json.end(']').key("shown").integer(static_cast<int64_t>(op.shown()));
  const auto flag = [&](std::string_view name, bool is) { json.key(name).boolean(is); };
  flag("internal", op.internal());
  flag("view", op.is_view());
  flag("dynamic", op.is_dynamic());
  flag("composed", op.is_composed());
  flag("inplace", op.has_inplace());
  flag("random", schema.is_random());
  flag("gradient", op.has_backward());
  json.key("autocast").string(name_of(op.autocast()));
  json.key("adapt").string(name_of(op.adapt()));
  json.key("dtypes").begin('[');
  for (const DType t : kAllDTypes)
    if (op.dtypes() & dtype_bit(t)) json.string(name_of(t));
  json.end(']').key("kernels").begin('[');
  if (op.has_kernel(DeviceType::cpu)) json.string("cpu");
  if (op.has_kernel(DeviceType::cuda)) json.string("cuda");
  json.end(']').end('}');
}

// What a dtype can hold.
void write(Json& json, DType t) {
  json.begin('{').key("name").string(name_of(t)).key("bits").integer(8 * size_of(t));
  if (is_floating(t)) {
    const FloatLimits limits = float_limits(t);
    json.key("max").number(limits.max).key("eps").number(limits.eps);
    json.key("smallest_normal").number(limits.smallest_normal).key("resolution").number(limits.resolution);
  } else if (is_integral(t)) {
    const IntLimits limits = int_limits(t);
    json.key("min").integer(limits.min).key("max").integer(limits.max);
  }
  json.end('}');
}

}  // namespace

std::string describe(const OpBase& op) {
  Json json;
  write(json, op);
  return json.take();
}

std::string describe(std::span<const OpBase* const> ops) {
  Json json;
  json.begin('{').key("version").integer(1).key("dtypes").begin('[');
  for (int i = 0; i < kNumDTypes; ++i) write(json, static_cast<DType>(i));
  json.end(']').key("ops").begin('[');
  for (const OpBase* op : ops) write(json, *op);
  return json.end(']').end('}').take() + "\n";
}

std::string_view name_of(Autocast policy) {
  constexpr std::string_view kNames[] = {"keep", "low", "full", "promote"};
  return kNames[static_cast<size_t>(policy)];
}
std::string_view name_of(Adapt adapt) {
  constexpr std::string_view kNames[] = {"none", "broadcast", "promote", "promote_float", "promote_but_first"};
  return kNames[static_cast<size_t>(adapt)];
}

}  // namespace strata
