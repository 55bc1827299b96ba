// What stands behind "is".
#include <map>

#include "strata/text/jinja/render_inl.h"

namespace strata::text::jinja {
namespace {

using Test = bool (*)(Renderer&, const Value&, Arguments&);

const Value& other(Arguments& args) {
  if (args.positional.size() != 1) fail("a test with one argument got " + std::to_string(args.positional.size()));
  return args.positional[0];
}
template <char op, bool equal_too>
bool ordered(Renderer& r, const Value& v, Arguments& args) {
  return r.compare(std::string(1, op) + (equal_too ? "=" : ""), v, other(args));
}
bool same(Renderer& r, const Value& v, Arguments& args) {
  return r.compare("==", v, other(args));
}
bool differs(Renderer& r, const Value& v, Arguments& args) {
  return r.compare("!=", v, other(args));
}
bool divisible(const Value& v, int64_t by, int64_t rest) {
  if (by == 0) fail("division by zero");
  return by == -1 ? rest == 0 : std::abs(as_integer(v, "a divisible number") % by) == rest;
}
bool sequence(const Value& v) {
  return v.text() || v.list() || v.dict();
}

const std::map<std::string, Test>& table() {
  static const std::map<std::string, Test> tests = {
      {"==", same},
      {"eq", same},
      {"equalto", same},
      {"!=", differs},
      {"ne", differs},
      {"<", ordered<'<', false>},
      {"lt", ordered<'<', false>},
      {"lessthan", ordered<'<', false>},
      {"<=", ordered<'<', true>},
      {"le", ordered<'<', true>},
      {">", ordered<'>', false>},
      {"gt", ordered<'>', false>},
      {"greaterthan", ordered<'>', false>},
      {">=", ordered<'>', true>},
      {"ge", ordered<'>', true>},
      {"in", [](Renderer& r, const Value& v, Arguments& a) { return r.contains(other(a), v); }},
      {"boolean", [](Renderer&, const Value& v, Arguments&) { return v.as<bool>() != nullptr; }},
      {"callable", [](Renderer&, const Value& v, Arguments&) { return v.object() && v.object()->callable(); }},
      {"defined", [](Renderer&, const Value& v, Arguments&) { return !v.undefined(); }},
      {"divisibleby",
       [](Renderer&, const Value& v, Arguments& a) { return divisible(v, as_integer(other(a), "divisibleby"), 0); }},
      {"escaped", [](Renderer&, const Value&, Arguments&) { return false; }},
      {"even", [](Renderer&, const Value& v, Arguments&) { return divisible(v, 2, 0); }},
      {"odd", [](Renderer&, const Value& v, Arguments&) { return divisible(v, 2, 1); }},
      {"false", [](Renderer&, const Value& v, Arguments&) { return v.as<bool>() && !*v.as<bool>(); }},
      {"true", [](Renderer&, const Value& v, Arguments&) { return v.as<bool>() && *v.as<bool>(); }},
      {"filter", [](Renderer&, const Value& v, Arguments&) { return v.text() && filter_exists(v.text()->bytes); }},
      {"test", [](Renderer&, const Value& v, Arguments&) { return v.text() && test_exists(v.text()->bytes); }},
      {"float", [](Renderer&, const Value& v, Arguments&) { return v.as<double>() != nullptr; }},
      {"integer", [](Renderer&, const Value& v, Arguments&) { return v.as<int64_t>() != nullptr; }},
      {"iterable", [](Renderer&, const Value& v, Arguments&) { return sequence(v) || v.undefined(); }},
      {"lower",
       [](Renderer& r, const Value& v, Arguments&) {
         Arguments none;
         return truth(r.call(method(to_text(v), "islower"), none));
       }},
      {"upper",
       [](Renderer& r, const Value& v, Arguments&) {
         Arguments none;
         return truth(r.call(method(to_text(v), "isupper"), none));
       }},
      {"mapping", [](Renderer&, const Value& v, Arguments&) { return v.dict() != nullptr; }},
      {"none", [](Renderer&, const Value& v, Arguments&) { return v.none(); }},
      {"number", [](Renderer&, const Value& v, Arguments&) { return v.number(); }},
      {"sameas",
       [](Renderer&, const Value& v, Arguments& a) { return v.v.index() == other(a).v.index() && equal(v, other(a)); }},
      {"sequence", [](Renderer&, const Value& v, Arguments&) { return sequence(v) || v.undefined(); }},
      {"string", [](Renderer&, const Value& v, Arguments&) { return v.text() != nullptr; }},
      {"undefined", [](Renderer&, const Value& v, Arguments&) { return v.undefined(); }},
  };
  return tests;
}

}  // namespace

bool test_exists(const std::string& name) {
  return table().contains(name);
}

bool Renderer::test(const std::string& name, const Value& value, Arguments& args) {
  pay();
  return table().at(name)(*this, value, args);
}

}  // namespace strata::text::jinja
