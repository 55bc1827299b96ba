// Who watches the calls of a thread.

#include <vector>

#include "strata/core/boxed_call.h"
#include "strata/core/op_call.h"

namespace strata {

namespace {
struct Installed {
  CallObserver* observer;
  const ObserverScope* by;
};
thread_local std::vector<Installed> t_observers;
}  // namespace

ObserverScope::ObserverScope(CallObserver& observer) {
  t_observers.push_back({&observer, this});
  t_mode.unusual |= kObserved;
}
// Not always the innermost: a scope over steps of a loop and one within a step may end in any order.
ObserverScope::~ObserverScope() {
  std::erase_if(t_observers, [this](const Installed& i) { return i.by == this; });
  if (t_observers.empty()) t_mode.unusual &= ~kObserved;
}

namespace detail {

ObservedCall::ObservedCall(const Call& call) : call_(call) {
  for (size_t i = 0; i < t_observers.size(); ++i) {
    try {
      t_observers[i].observer->before(call);
    } catch (...) {
      while (i-- > 0) t_observers[i].observer->failed(call);
      throw;
    }
  }
}
void ObservedCall::done(std::span<const Tensor> results) {
  ended_ = true;
  for (size_t i = 0; i < t_observers.size(); ++i) {
    try {
      t_observers[i].observer->after(call_, results);
    } catch (...) {
      while (++i < t_observers.size()) t_observers[i].observer->failed(call_);
      throw;
    }
  }
}
ObservedCall::~ObservedCall() {
  if (ended_) return;
  for (const Installed& i : t_observers) i.observer->failed(call_);
}

const Call::Reader kBoxedReader{
    [](const void* given, std::vector<Value>& into) {
      for (const Value& v : *static_cast<const BoxedArgs*>(given)) into.push_back(v);
    },
    [](const OpBase& op, const void* given) { return op.cost_boxed(*static_cast<const BoxedArgs*>(given)); }};

}  // namespace detail
}  // namespace strata
