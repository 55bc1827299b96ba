#pragma once
// What stands behind "|".

#include <map>
#include <string>

#include "strata/text/jinja/render_inl.h"

namespace strata::text::jinja {

using Filter = Value (*)(Renderer&, const Value&, Arguments&);
using FilterTable = std::map<std::string, Filter>;

inline const Value& defined(const Value& v) {
  if (v.undefined()) fail(v.as<Undefined>()->why);
  return v;
}

/// Filters of one text; those of lists, dicts and numbers stand in filters.cpp with the table of all.
FilterTable text_filters();

}  // namespace strata::text::jinja
