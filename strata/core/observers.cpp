// Who watches the calls of a thread.

#include <vector>

#include "strata/core/boxed_call.h"
#include "strata/core/op_call.h"

namespace strata {

namespace {
thread_local std::vector<CallObserver*> t_observers;
}

ObserverScope::ObserverScope(CallObserver& observer) {
  t_observers.push_back(&observer);
  t_mode.unusual |= kObserved;
}
ObserverScope::~ObserverScope() {
  t_observers.pop_back();
  if (t_observers.empty()) t_mode.unusual &= ~kObserved;
}

namespace detail {

ObservedCall::ObservedCall(const Call& call) : call_(call) {
  for (size_t i = 0; i < t_observers.size(); ++i) {
    try {
      t_observers[i]->before(call);
    } catch (...) {
      while (i-- > 0) t_observers[i]->failed(call);
      throw;
    }
  }
}
void ObservedCall::done(std::span<const Tensor> results) {
  ended_ = true;
  for (size_t i = 0; i < t_observers.size(); ++i) {
    try {
      t_observers[i]->after(call_, results);
    } catch (...) {
      while (++i < t_observers.size()) t_observers[i]->failed(call_);
      throw;
    }
  }
}
ObservedCall::~ObservedCall() {
  if (ended_) return;
  for (CallObserver* o : t_observers) o->failed(call_);
}

const Call::Reader kBoxedReader{
    [](const void* given, std::vector<Value>& into) {
      for (const Value& v : *static_cast<const BoxedArgs*>(given)) into.push_back(v);
    },
    [](const OpBase& op, const void* given) { return op.cost_boxed(*static_cast<const BoxedArgs*>(given)); }};

}  // namespace detail
}  // namespace strata
