#pragma once
#include <functional>
#include <memory>

#include "bindings/node/src/env.h"

namespace strata::node {

/// Turns a mode on for the JavaScript thread, and for what it starts on pool threads: what `enter` returns is the mode
/// while it lives. The value for exitMode(), which turns it off.
napi_value enter_mode(Env& env, std::function<std::shared_ptr<void>()> enter);

}  // namespace strata::node
