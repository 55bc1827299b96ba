#pragma once
#include "strata/core/error.h"

namespace strata::node {

/// The name of the JavaScript class that stands for an engine error's class.
const char* class_of(const Error& e);

/// The work was given up because JavaScript asked for it; the promise is rejected with the signal's reason.
class AbortedError : public Error {
  using Error::Error;
};

}  // namespace strata::node
