#pragma once
// Text as HTML and SVG show it.

#include <string>
#include <string_view>

namespace strata::detail {

/// `s` with what HTML and SVG read as more than text (&, <, >, both quotes) written out, for elements and attributes;
/// control characters, which they do not allow, become their Unicode pictures. Other bytes are left as they are.
std::string html_text(std::string_view s);

}  // namespace strata::detail
