#pragma once
// Values whose end may not come at any time.

#include <memory>
#include <string_view>

#include "bindings/node/src/env.h"
#include "strata/core/error.h"

namespace strata::node {

/// Freed at the event loop's next turn, or by dispose(): not during collection, which may happen inside a capture.
template <class T>
struct Late {
  std::shared_ptr<T> value;
  std::shared_ptr<Mailbox> mail;
};
template <class T>
napi_value boxed_late(Env& env, std::shared_ptr<T> value) {
  auto owner = std::make_unique<Late<T>>(Late<T>{std::move(value), env.mail});
  napi_value v = env.external(owner.get(), [](FinalEnv, void* p, void*) {
    const std::unique_ptr<Late<T>> late(static_cast<Late<T>*>(p));
    if (late->value) late->mail->post([last = std::move(late->value)](Env&) {});
  });
  (void)owner.release();
  return v;
}
template <class T>
T& late(Call& c, const char* what) {
  const Late<T>& box = *c.env.handle<Late<T>>(c[0]);
  check(box.value != nullptr, what, "was disposed");
  return *box.value;
}
template <class T>
napi_value dispose_late(Call& c) {
  c.env.handle<Late<T>>(c[0])->value.reset();
  return c.env.undefined();
}

}  // namespace strata::node
