#include <algorithm>

#include "strata/text/jinja/render_inl.h"

namespace strata::text::jinja {

const Value* Take::get(const char* name) {
  taken_.push_back(name);
  for (const auto& [key, value] : args_.named)
    if (key == name) return &value;
  if (place_ < args_.positional.size()) return &args_.positional[place_++];
  return nullptr;
}
const Value& Take::need(const char* name) {
  const Value* v = get(name);
  if (!v) fail(what_ + " needs '" + name + "'");
  return *v;
}
int64_t Take::integer(const char* name, int64_t otherwise) {
  const Value* v = get(name);
  return v && !v->none() ? as_integer(*v, what_ + "'s " + name) : otherwise;
}
bool Take::flag(const char* name, bool otherwise) {
  const Value* v = get(name);
  return v ? truth(*v) : otherwise;
}
const Text* Take::text(const char* name) {
  const Value* v = get(name);
  return v && !v->none() ? &as_text(*v, what_ + "'s " + name) : nullptr;
}
std::string Take::text(const char* name, std::string otherwise) {
  const Text* t = text(name);
  return t ? t->bytes : otherwise;
}
void Take::done() {
  if (place_ < args_.positional.size())
    fail(what_ + " takes " + std::to_string(place_) + " arguments, got " + std::to_string(args_.positional.size()));
  for (const auto& [key, value] : args_.named)
    if (std::find(taken_.begin(), taken_.end(), key) == taken_.end()) fail(what_ + " has no argument '" + key + "'");
}

int64_t as_integer(const Value& v, const std::string& what) {
  if (!v.integral()) fail(what + " is an int, got a " + type_name(v));
  return v.integer();
}
const Text& as_text(const Value& v, const std::string& what) {
  if (v.undefined()) fail(v.as<Undefined>()->why);
  if (!v.text()) fail(what + " is a str, got a " + type_name(v));
  return *v.text();
}

}  // namespace strata::text::jinja
