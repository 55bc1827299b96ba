#include <algorithm>
#include <cmath>

#include "strata/core/error.h"
#include "strata/text/jinja/render_inl.h"

namespace strata::text::jinja {
namespace {

int64_t checked(const char* op, int64_t a, int64_t b) {
  int64_t c = 0;
  const bool over = *op == '+'   ? __builtin_add_overflow(a, b, &c)
                    : *op == '-' ? __builtin_sub_overflow(a, b, &c)
                                 : __builtin_mul_overflow(a, b, &c);
  if (over) fail("the result of " + std::to_string(a) + " " + op + " " + std::to_string(b) + " is too large");
  return c;
}

Value power(const Value& a, const Value& b) {
  if (!a.integral() || !b.integral() || b.integer() < 0) return std::pow(a.real(), b.real());
  int64_t result = 1;
  for (int64_t i = 0; i < b.integer(); ++i) {
    result = checked("*", result, a.integer());
    if (result == 0 || a.integer() == 1) break;
    if (a.integer() == -1) return b.integer() % 2 ? int64_t{-1} : int64_t{1};
  }
  return result;
}

}  // namespace

bool Renderer::contains(const Value& of, const Value& what) {
  if (of.undefined()) return false;
  if (const Text* t = of.text()) {
    if (!what.text()) fail("'in' a str wants a str, got a " + type_name(what));
    pay(t->bytes.size());
    return t->bytes.find(what.text()->bytes) != std::string::npos;
  }
  if (const List* l = of.list()) {
    pay(l->items.size() * 64);
    return std::any_of(l->items.begin(), l->items.end(), [&](const Value& v) { return equal(v, what); });
  }
  if (const Dict* d = of.dict()) {
    pay(d->items.size() * 64);
    return find(*d, what) != nullptr;
  }
  fail("a " + type_name(of) + " does not contain anything");
}

Value Renderer::binary(const std::string& op, const Value& a, const Value& b) {
  if (op == "~") {
    Text t = to_text(a);
    t.append(to_text(b));
    pay(t.bytes.size());
    return t;
  }
  for (const Value* v : {&a, &b})
    if (v->undefined()) fail(v->as<Undefined>()->why);
  if (a.number() && b.number()) {
    const bool whole = a.integral() && b.integral();
    if (op == "+" || op == "-" || op == "*") {
      if (whole) return checked(op.c_str(), a.integer(), b.integer());
      const double x = a.real(), y = b.real();
      return op == "+" ? x + y : op == "-" ? x - y : x * y;
    }
    if (op == "**") return power(a, b);
    if (b.real() == 0) fail("division by zero");
    if (op == "/") return a.real() / b.real();
    if (whole) {
      const int64_t x = a.integer(), y = b.integer();
      if (y == -1) return op == "//" ? checked("-", 0, x) : int64_t{0};
      const int64_t q = x / y - (x % y != 0 && (x % y < 0) != (y < 0));
      return op == "//" ? q : x - q * y;
    }
    const double q = std::floor(a.real() / b.real());
    if (op == "//") return q;
    const double rest = std::fmod(a.real(), b.real());
    return rest != 0 && (rest < 0) != (b.real() < 0) ? rest + b.real() : rest;
  }
  if (op == "+" && a.text() && b.text()) {
    Text t = *a.text();
    t.append(*b.text());
    pay(t.bytes.size());
    return t;
  }
  if (op == "+" && a.list() && b.list() && a.list()->tuple == b.list()->tuple) {
    std::vector<Value> all = a.list()->items;
    all.insert(all.end(), b.list()->items.begin(), b.list()->items.end());
    pay(all.size() * 64);
    return make_list(std::move(all), a.list()->tuple);
  }
  if (op == "*" && (a.integral() || b.integral()) && (a.text() || b.text() || a.list() || b.list())) {
    const Value& of = a.integral() ? b : a;
    const int64_t n = std::max<int64_t>((a.integral() ? a : b).integer(), 0);
    const size_t size = of.text() ? of.text()->bytes.size() : of.list()->items.size() * 64;
    if (size > 0 && n > options.limits.output_bytes / static_cast<int64_t>(size))
      fail("a text grows past " + std::to_string(options.limits.output_bytes) + " bytes");
    pay(size * static_cast<size_t>(n));
    if (const Text* t = of.text()) {
      Text all;
      for (int64_t i = 0; size > 0 && i < n; ++i) all.append(*t);
      return all;
    }
    std::vector<Value> all;
    for (int64_t i = 0; size > 0 && i < n; ++i) all.insert(all.end(), of.list()->items.begin(), of.list()->items.end());
    return make_list(std::move(all), of.list()->tuple);
  }
  if (op == "%" && a.text()) fail("texts are formatted by the filter 'format', not by '%'");
  fail("'" + op + "' between " + type_name(a) + " and " + type_name(b));
}

bool Renderer::compare(const std::string& op, const Value& a, const Value& b) {
  if (a.text() && b.text()) pay(std::min(a.text()->bytes.size(), b.text()->bytes.size()));
  if (op == "==") return equal(a, b);
  if (op == "!=") return !equal(a, b);
  if (op == "in") return contains(b, a);
  if (op == "not in") return !contains(b, a);
  const bool nan = (a.as<double>() && std::isnan(*a.as<double>())) || (b.as<double>() && std::isnan(*b.as<double>()));
  if (nan) return false;
  if (op == "<") return less(a, b);
  if (op == ">") return less(b, a);
  return op == "<=" ? !less(b, a) : !less(a, b);
}

Arguments Renderer::arguments(const Node& n, size_t from) {
  Arguments args;
  for (size_t i = from; i < n.kids.size(); ++i) args.positional.push_back(eval(*n.kids[i]));
  for (const auto& [name, node] : n.named) {
    const Value v = eval(*node);
    if (name == "*") {
      for (Value& x : items(v)) args.positional.push_back(std::move(x));
    } else if (name == "**") {
      if (!v.dict()) fail("** wants a dict, got a " + type_name(v));
      for (const auto& [key, x] : v.dict()->items) args.named.emplace_back(as_text(key, "a name behind **").bytes, x);
    } else {
      args.named.emplace_back(name, v);
    }
  }
  return args;
}

Value Renderer::call(const Value& callee, Arguments& args) {
  pay();
  if (callee.undefined()) fail(callee.as<Undefined>()->why);
  if (!callee.object() || !callee.object()->callable()) fail("a " + type_name(callee) + " cannot be called");
  return callee.object()->call(*this, args);
}

Value Renderer::attribute(const Value& of, const std::string& name) {
  if (of.undefined()) fail(of.as<Undefined>()->why);
  if (Object* o = of.object()) {
    Value out;
    if (o->attribute(name, out)) return out;
  }
  Value m = method(of, name);
  if (!m.undefined()) return m;
  if (const Dict* d = of.dict()) {
    pay(d->items.size());
    if (const Value* v = find(*d, Text(name))) return *v;
  }
  return Undefined{"'" + type_name(of) + "' has no attribute '" + name + "'"};
}

Value Renderer::item(const Value& of, const Value& key) {
  if (of.undefined()) fail(of.as<Undefined>()->why);
  if (const Dict* d = of.dict()) {
    pay(d->items.size());
    if (const Value* v = find(*d, key)) return *v;
  } else if (key.integral()) {
    int64_t i = key.integer();
    if (const List* l = of.list()) {
      const auto n = static_cast<int64_t>(l->items.size());
      if (i < 0) i += n;
      if (i >= 0 && i < n) return l->items[static_cast<size_t>(i)];
      return Undefined{"a " + type_name(of) + " of " + std::to_string(n) + " has no item " +
                       std::to_string(key.integer())};
    }
    if (const Text* t = of.text()) {
      pay(t->bytes.size());
      const auto at = offsets(*t);
      const auto n = static_cast<int64_t>(at.size()) - 1;
      if (i < 0) i += n;
      if (i >= 0 && i < n) return t->slice(at[static_cast<size_t>(i)], at[static_cast<size_t>(i) + 1]);
      return Undefined{"a str of " + std::to_string(n) + " has no item " + std::to_string(key.integer())};
    }
  }
  if (const Text* t = key.text()) return attribute(of, t->bytes);
  return Undefined{"'" + type_name(of) + "' has no item " + to_repr(key).bytes};
}

Value Renderer::slice(const Value& of, const Node& n) {
  if (of.undefined()) fail(of.as<Undefined>()->why);
  if (!of.text() && !of.list()) fail("a " + type_name(of) + " cannot be sliced");
  const std::vector<size_t> at = of.text() ? offsets(*of.text()) : std::vector<size_t>();
  const auto size = of.text() ? static_cast<int64_t>(at.size()) - 1 : static_cast<int64_t>(of.list()->items.size());
  pay(of.text() ? of.text()->bytes.size() : static_cast<size_t>(size) * 64);
  const auto bound = [&](size_t k, int64_t otherwise) {
    if (!n.kids[k]) return otherwise;
    const Value v = eval(*n.kids[k]);
    return v.none() ? otherwise : as_integer(v, "a slice's bound");
  };
  const int64_t step = bound(3, 1);
  if (step == 0) fail("a slice's step is 0");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const auto clamp = [&](int64_t i) { return std::clamp(i < 0 ? i + size : i, low, high); };
  const bool has_begin = n.kids[1] != nullptr, has_end = n.kids[2] != nullptr;
  const int64_t none = INT64_MIN;
  const int64_t b = has_begin ? bound(1, none) : none, e = has_end ? bound(2, none) : none;
  const int64_t begin = b == none ? (step > 0 ? 0 : size - 1) : clamp(b),
                end = e == none ? (step > 0 ? size : -1) : clamp(e);
  Text text;
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    const auto k = static_cast<size_t>(i);
    if (of.text()) {
      text.append(of.text()->slice(at[k], at[k + 1]));
    } else {
      items.push_back(of.list()->items[k]);
    }
    if (step > 0 ? end - i <= step : i - end <= -step) break;
  }
  if (of.text()) return text;
  return make_list(std::move(items), of.list()->tuple);
}

Value Renderer::eval(const Node& n) {
  line = n.line;
  const Deeper deeper(nested_, 5 * options.limits.depth);
  pay();
  switch (n.what) {
    case What::constant:
      return n.value;
    case What::name:
      return lookup(n.text);
    case What::list:
    case What::tuple: {
      std::vector<Value> items;
      for (const NodePtr& kid : n.kids) items.push_back(eval(*kid));
      return make_list(std::move(items), n.what == What::tuple);
    }
    case What::dict: {
      std::vector<std::pair<Value, Value>> all;
      for (size_t i = 0; i < n.kids.size(); i += 2) {
        Value key = eval(*n.kids[i]);
        if (key.dict() || (key.list() && !key.list()->tuple)) fail("a " + type_name(key) + " cannot be a dict's key");
        Value value = eval(*n.kids[i + 1]);
        const auto at = std::find_if(all.begin(), all.end(), [&](const auto& item) { return equal(item.first, key); });
        if (at != all.end()) {
          at->second = std::move(value);
        } else {
          all.emplace_back(std::move(key), std::move(value));
        }
      }
      return make_dict(std::move(all));
    }
    case What::unary: {
      const Value v = eval(*n.kids[0]);
      if (v.undefined()) fail(v.as<Undefined>()->why);
      if (!v.number()) fail("'" + n.text + "' of a " + type_name(v));
      if (v.integral()) return n.text == "-" ? checked("-", 0, v.integer()) : v.integer();
      return n.text == "-" ? -v.real() : v.real();
    }
    case What::binary: {
      const Value a = eval(*n.kids[0]);
      const Value b = eval(*n.kids[1]);
      line = n.line;
      return binary(n.text, a, b);
    }
    case What::compare: {
      Value left = eval(*n.kids[0]);
      for (size_t i = 0; i < n.params.size(); ++i) {
        Value right = eval(*n.kids[i + 1]);
        if (!compare(n.params[i], left, right)) return false;
        left = std::move(right);
      }
      return true;
    }
    case What::logic_and: {
      Value a = eval(*n.kids[0]);
      return truth(a) ? eval(*n.kids[1]) : a;
    }
    case What::logic_or: {
      Value a = eval(*n.kids[0]);
      return truth(a) ? a : eval(*n.kids[1]);
    }
    case What::logic_not:
      return !truth(eval(*n.kids[0]));
    case What::condition:
      if (truth(eval(*n.kids[0]))) return eval(*n.kids[1]);
      return n.kids[2]
                 ? eval(*n.kids[2])
                 : Value(Undefined{"the condition at line " + std::to_string(n.line) + " is false and has no else"});
    case What::attribute: {
      const Value of = eval(*n.kids[0]);
      line = n.line;
      return attribute(of, n.text);
    }
    case What::item: {
      const Value of = eval(*n.kids[0]);
      const Value key = eval(*n.kids[1]);
      line = n.line;
      return item(of, key);
    }
    case What::slice:
      return slice(eval(*n.kids[0]), n);
    case What::call: {
      const Value callee = eval(*n.kids[0]);
      Arguments args = arguments(n, 1);
      line = n.line;
      return call(callee, args);
    }
    case What::filter:
    case What::test: {
      const Value value = n.kids[0] ? eval(*n.kids[0]) : lookup("");
      Arguments args = arguments(n, 1);
      line = n.line;
      return n.what == What::filter ? filter(n.text, value, args) : Value(test(n.text, value, args));
    }
    default:
      fail("a statement where a value is wanted");
  }
}

}  // namespace strata::text::jinja
