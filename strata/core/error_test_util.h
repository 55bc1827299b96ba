#pragma once
// For tests of error texts.

#include <string>

#include "strata/core/error.h"

namespace strata {

/// The text of the E that f() throws.
template <class E = Error, class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace strata
