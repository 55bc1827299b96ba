#include "bindings/node/src/task.h"

#include <optional>

#include "bindings/node/src/errors.h"

namespace strata::node {

struct Task::State {
  std::unique_ptr<Task> task;
  napi_async_work work = nullptr;
  napi_deferred promise = nullptr;
  ThreadMode mode;
  std::vector<std::shared_ptr<Mode>> modes;
  std::exception_ptr error;

  // On a pool thread.
  static void execute(napi_env, void* data) {
    State& s = *static_cast<State*>(data);
    const ThreadMode before = t_mode;
    std::vector<std::shared_ptr<void>> entered;
    try {
      for (const std::shared_ptr<Mode>& mode : s.modes) entered.push_back(mode->enter());
      t_mode.grad_enabled = s.mode.grad_enabled;
      check<AbortedError>(!s.task->cancelled || !s.task->cancelled->load(), "strata", "aborted before it began");
      std::optional<TapeGuard> guard;
      if (s.task->tape) guard.emplace();
      s.task->run();
    } catch (const Ended&) {
      s.error = std::make_exception_ptr(AbortedError("strata", "the script that was to run a hook was ended"));
    } catch (...) {
      s.error = std::current_exception();
    }
    while (!entered.empty()) entered.pop_back();
    t_mode = before;
  }

  // On the JavaScript thread.
  static void complete(napi_env raw, napi_status status, void* data) {
    const std::unique_ptr<State> s(static_cast<State*>(data));
    Env& env = env_of(raw);
    try {
      const Scope scope(env);
      if (status != napi_ok && !s->error)
        s->error = std::make_exception_ptr(AbortedError("strata", "the thread is ending"));
      napi_value value = nullptr;
      if (!s->error) {
        try {
          value = s->task->finish(env);
        } catch (...) {
          s->error = std::current_exception();
        }
      }
      if (s->error)
        napi_reject_deferred(raw, s->promise, env.error_value(s->error));
      else
        napi_resolve_deferred(raw, s->promise, value);
    } catch (...) {
      // The environment takes no more calls: nobody waits for the promise.
    }
    napi_delete_async_work(raw, s->work);
  }
};

napi_value Task::start(Env& env, std::unique_ptr<Task> task) {
  auto s = std::make_unique<State>();
  s->task = std::move(task);
  s->mode = t_mode;
  s->modes = env.modes;
  napi_value promise, name = env.string("strata");
  env.check(napi_create_async_work(env.env, nullptr, name, State::execute, State::complete, s.get(), &s->work));
  env.check(napi_create_promise(env.env, &s->promise, &promise));
  env.check(napi_queue_async_work(env.env, s->work));
  (void)s.release();
  return promise;
}

CancelFlag cancel_flag_of(Env& env, napi_value v) {
  if (env.missing(v)) return nullptr;
  return *env.handle<CancelFlag>(v);
}
napi_value new_cancel_flag(Call& c) {
  return c.env.boxed<CancelFlag>(std::make_shared<std::atomic<bool>>(false));
}
napi_value cancel(Call& c) {
  if (const CancelFlag flag = cancel_flag_of(c.env, c[0])) *flag = true;
  return c.env.undefined();
}

void bury(std::vector<Value>& values) {
  for (Value& v : values) {
    if (Tensor* t = std::get_if<Tensor>(&v)) bury(std::move(*t));
    if (TensorList* l = std::get_if<TensorList>(&v))
      for (Tensor& t : *l) bury(std::move(t));
  }
  values.clear();
}

}  // namespace strata::node
