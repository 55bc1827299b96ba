#include "bindings/node/src/env.h"

#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "bindings/node/src/errors.h"

namespace strata::node {

struct Mailbox::Job {
  std::function<void(Env&)> run;
  ThreadMode mode;
  bool done = false;
  std::exception_ptr error;
  std::mutex mutex;
  std::condition_variable finished;
};

namespace {
// The waker's own call: on the JavaScript thread, from the event loop.
void on_wake(napi_env env, napi_value, void* context, void*) {
  auto& mail = *static_cast<Mailbox*>(context);
  if (!env) return;  // the environment is ending
  mail.run_waiting();
  mail.run_posted();
  mail.sweep();
}
}  // namespace

void Mailbox::open(Env& env) {
  env_ = &env;
  thread_ = std::this_thread::get_id();
  napi_value name = env.string("strata");
  env.check(
      napi_create_threadsafe_function(env.env, nullptr, nullptr, name, 0, 1, nullptr, nullptr, this, on_wake, &waker_));
  env.check(napi_unref_threadsafe_function(env.env, waker_));
}

void Mailbox::close() {
  std::deque<std::shared_ptr<Job>> jobs;
  {
    const std::lock_guard lock(mutex_);
    env_ = nullptr;
    napi_release_threadsafe_function(waker_, napi_tsfn_abort);
    waker_ = nullptr;
    jobs.swap(jobs_);
    waiting_ = false;
  }
  for (const auto& job : jobs) {
    const std::lock_guard lock(job->mutex);
    job->error = std::make_exception_ptr(Error("strata", "the JavaScript thread of this function has ended"));
    job->done = true;
    job->finished.notify_all();
  }
}

// With the mutex held.
void Mailbox::wake() {
  if (waker_) napi_call_threadsafe_function(waker_, nullptr, napi_tsfn_nonblocking);
}

void Mailbox::call(const std::function<void(Env&)>& job) {
  if (std::this_thread::get_id() == thread_) {
    Env* env;
    {
      const std::lock_guard lock(mutex_);
      env = env_;
    }
    check<Error>(env != nullptr, "strata", "the JavaScript thread of this function has ended");
    job(*env);
    return;
  }
  const auto wanted = std::make_shared<Job>();
  wanted->run = job;
  wanted->mode = t_mode;
  {
    const std::lock_guard lock(mutex_);
    check<Error>(env_ != nullptr, "strata", "the JavaScript thread of this function has ended");
    jobs_.push_back(wanted);
    waiting_ = true;
    wake();
  }
  wake_tape_waiters();
  std::unique_lock lock(wanted->mutex);
  wanted->finished.wait(lock, [&] { return wanted->done; });
  if (wanted->error) std::rethrow_exception(wanted->error);
}

void Mailbox::post(std::function<void(Env&)> job) {
  const std::lock_guard lock(mutex_);
  if (!env_) return;
  posted_.push_back(std::move(job));
  wake();
}

void Mailbox::run_posted() {
  std::deque<std::function<void(Env&)>> jobs;
  Env* env;
  {
    const std::lock_guard lock(mutex_);
    env = env_;
    jobs.swap(posted_);
  }
  if (!env) return;
  for (const auto& job : jobs) {
    try {
      const Scope scope(*env);
      job(*env);
    } catch (...) {
      // As if the callback had been called by the event loop: nobody is there to catch it.
      const Scope scope(*env);
      try {
        napi_fatal_exception(env->env, env->error_value(std::current_exception()));
      } catch (const Ended&) {
        return;
      }
    }
  }
}

void Mailbox::run_waiting() {
  for (;;) {
    std::shared_ptr<Job> job;
    Env* env;
    {
      const std::lock_guard lock(mutex_);
      env = env_;
      if (jobs_.empty() || !env) {
        waiting_ = false;
        return;
      }
      job = std::move(jobs_.front());
      jobs_.pop_front();
      waiting_ = !jobs_.empty();
    }
    std::exception_ptr error;
    const ThreadMode mode = t_mode;
    try {
      const Scope scope(*env);
      const TapeDelegate delegate;  // who waits for this runs a graph
      // The modes of whatever this thread was doing are not the job's.
      const SavedTensorHooksScope no_hooks(nullptr);
      t_mode = {job->mode.grad_enabled, 0};
      job->run(*env);
    } catch (...) {
      error = std::current_exception();
    }
    t_mode = mode;
    const std::lock_guard lock(job->mutex);
    job->error = error;
    job->done = true;
    job->finished.notify_all();
  }
}

void Mailbox::drop(napi_ref ref) {
  const std::lock_guard lock(mutex_);
  if (!env_) return;  // it went with its environment
  dead_.push_back(ref);
  has_dead_ = true;
  if (std::this_thread::get_id() != thread_) wake();
}

void Mailbox::sweep() {
  if (!has_dead_.load(std::memory_order_acquire)) return;
  std::vector<napi_ref> dead;
  napi_env env;
  {
    const std::lock_guard lock(mutex_);
    if (!env_) return;
    env = env_->env;
    dead.swap(dead_);
    has_dead_ = false;
  }
  for (napi_ref ref : dead) napi_delete_reference(env, ref);
}

JsRef::JsRef(Env& env, napi_value value) : mailbox_(env.mail) {
  // In a box: not every value may be referred to.
  napi_value box = env.array(1);
  env.put(box, 0, value);
  env.check(napi_create_reference(env.env, box, 1, &ref_));
}
JsRef::~JsRef() {
  mailbox_->drop(ref_);
}
napi_value JsRef::get(Env& env) const {
  return env.made(napi_get_element, env.value_of(ref_), 0u);
}

Env& env_of(napi_env env) {
  void* data = nullptr;
  napi_get_instance_data(env, &data);
  return *static_cast<Env*>(data);
}

void Env::fail(napi_status status) {
  bool pending = false;
  napi_is_exception_pending(env, &pending);
  if (status == napi_pending_exception && !pending) throw Ended();
  // While JavaScript is being ended, what it threw reads as null, and keeping that fails and comes here again.
  static thread_local bool keeping = false;
  if (keeping) throw Ended();
  if (pending) {
    struct Keeping {
      Keeping() { keeping = true; }
      ~Keeping() { keeping = false; }
    } const guard;
    napi_value thrown;
    napi_get_and_clear_last_exception(env, &thrown);
    if (passing) {
      bool same = false;
      check(napi_strict_equals(env, thrown, passing_as->get(*this), &same));
      if (same) {
        passing_as.reset();
        std::rethrow_exception(std::exchange(passing, nullptr));
      }
    }
    throw JsException(std::make_shared<JsRef>(*this, thrown));
  }
  const napi_extended_error_info* info = nullptr;
  napi_get_last_error_info(env, &info);
  throw Error("strata",
              cat("Node-API refused a call: ", info && info->error_message ? info->error_message : "no message",
                  " (status ", static_cast<int>(status), ")"));
}

napi_value Env::error_value(std::exception_ptr error) {
  const char* cls = "StrataError";
  std::string op, text;
  bool passes = false;
  try {
    std::rethrow_exception(error);
  } catch (const Ended&) {
    throw;
  } catch (const JsException& e) {
    if (e.value->mailbox() == mail) return e.value->get(*this);
    text = "an exception of another thread's JavaScript";
  } catch (const Error& e) {
    cls = class_of(e);
    op = e.op();
    text = e.what();
  } catch (const std::bad_alloc&) {
    cls = "MemoryError";
    text = "strata: not enough memory on the host for what the arguments ask";
  } catch (const std::length_error&) {
    cls = "ValueError";
    text = "strata: an argument asks for a longer list than memory can hold";
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {
    text = "a control exception of the engine; do not catch it";
    passes = true;
  }
  napi_value args[2] = {string(text), string(op)};
  napi_value value = made(napi_new_instance, get(value_of(error_classes), cls), size_t{2}, args);
  if (passes) {
    passing_as = std::make_shared<JsRef>(*this, value);
    passing = error;
  }
  return value;
}

napi_value Env::hand_over(std::exception_ptr error) noexcept {
  try {
    napi_value value = error_value(std::move(error));
    *failed = 1;
    return value;
  } catch (const Ended&) {
  } catch (...) {
    *failed = 2;  // no memory to describe it
  }
  // What is still pending, Node would throw when this returns: in place of the end, and with the danger above.
  bool pending = false;
  napi_is_exception_pending(env, &pending);
  napi_value dropped;
  if (pending) napi_get_and_clear_last_exception(env, &dropped);
  return nullptr;
}

napi_value Env::undefined() {
  return made(napi_get_undefined);
}
napi_value Env::null() {
  return made(napi_get_null);
}
napi_value Env::boolean(bool b) {
  return made(napi_get_boolean, b);
}
napi_value Env::number(double d) {
  return made(napi_create_double, d);
}
napi_value Env::integer(int64_t i) {
  constexpr int64_t kSafe = (int64_t{1} << 53) - 1;
  return i > kSafe || i < -kSafe ? bigint(i) : made(napi_create_int64, i);
}
napi_value Env::bigint(int64_t i) {
  return made(napi_create_bigint_int64, i);
}
napi_value Env::string(std::string_view s) {
  return made(napi_create_string_utf8, s.data(), s.size());
}
napi_value Env::array(size_t n) {
  return made(napi_create_array_with_length, n);
}
napi_value Env::object() {
  return made(napi_create_object);
}
void Env::set(napi_value object, const char* name, napi_value value) {
  check(napi_set_named_property(env, object, name, value));
}
void Env::put(napi_value array, uint32_t i, napi_value value) {
  check(napi_set_element(env, array, i, value));
}
napi_value Env::get(napi_value object, const char* name) {
  return made(napi_get_named_property, object, name);
}
napi_value Env::function(const char* name, napi_callback cb, void* data) {
  return made(napi_create_function, name, size_t{NAPI_AUTO_LENGTH}, cb, data);
}
void Env::add(napi_value object, std::initializer_list<Function> functions) {
  for (const Function& f : functions) set(object, f.name, function(f.name, f.call));
}
napi_value Env::external(void* data, void (*finalize)(FinalEnv, void*, void*)) {
  return made(napi_create_external, data, finalize, nullptr);
}
napi_value Env::dims(const Dims& d) {
  napi_value v = array(static_cast<size_t>(d.size()));
  for (int i = 0; i < d.size(); ++i) put(v, static_cast<uint32_t>(i), integer(d[i]));
  return v;
}
napi_value Env::value_of(napi_ref ref) {
  return made(napi_get_reference_value, ref);
}

napi_valuetype Env::type(napi_value v) {
  napi_valuetype t;
  check(napi_typeof(env, v, &t));
  return t;
}

std::string Env::kind(napi_value v) {
  switch (type(v)) {
    case napi_undefined:
      return "undefined";
    case napi_null:
      return "null";
    case napi_boolean:
      return "a boolean";
    case napi_number: {
      double d = 0;
      napi_get_value_double(env, v, &d);
      return cat("the number ", d);
    }
    case napi_string: {
      char text[33];
      size_t n = 0;
      napi_get_value_string_utf8(env, v, text, sizeof text, &n);
      return cat("the string '", std::string_view(text, n), "'");
    }
    case napi_symbol:
      return "a symbol";
    case napi_bigint:
      return "a BigInt";
    case napi_function:
      return "a function";
    default:
      break;
  }
  bool is = false;
  if (napi_is_array(env, v, &is) == napi_ok && is) return "an array";
  if (napi_is_typedarray(env, v, &is) == napi_ok && is) return "a typed array";
  if (napi_is_promise(env, v, &is) == napi_ok && is) return "a promise (await it first)";
  return "an object";
}

std::string Env::text(napi_value v, std::string_view op, std::string_view what) {
  strata::check(type(v) == napi_string, op, what, " must be a string, got ", kind(v));
  size_t n = 0;
  check(napi_get_value_string_utf8(env, v, nullptr, 0, &n));
  std::string s(n, '\0');
  check(napi_get_value_string_utf8(env, v, s.data(), n + 1, &n));
  return s;
}
bool Env::truth(napi_value v, std::string_view op, std::string_view what) {
  strata::check(type(v) == napi_boolean, op, what, " must be true or false, got ", kind(v));
  bool b;
  check(napi_get_value_bool(env, v, &b));
  return b;
}
double Env::real(napi_value v, std::string_view op, std::string_view what) {
  if (type(v) == napi_bigint) return static_cast<double>(whole(v, op, what));
  strata::check(type(v) == napi_number, op, what, " must be a number, got ", kind(v));
  double d;
  check(napi_get_value_double(env, v, &d));
  return d;
}
int64_t Env::whole(napi_value v, std::string_view op, std::string_view what) {
  const napi_valuetype t = type(v);
  if (t == napi_bigint) {
    int64_t i;
    bool lossless;
    check(napi_get_value_bigint_int64(env, v, &i, &lossless));
    strata::check(lossless, op, what, " must fit into 64 bits");
    return i;
  }
  strata::check(t == napi_number, op, what, " must be an integer, got ", kind(v));
  double d;
  check(napi_get_value_double(env, v, &d));
  if (d == std::numeric_limits<double>::infinity()) return std::numeric_limits<int64_t>::max();
  strata::check(std::trunc(d) == d && std::fabs(d) < 9007199254740992.0, op, what,
                " must be an integer (a BigInt past 2^53), got ", d);
  return static_cast<int64_t>(d);
}
Dims Env::list(napi_value v, std::string_view op, std::string_view what) {
  const napi_valuetype t = type(v);
  if (t == napi_number || t == napi_bigint) return {whole(v, op, what)};
  bool is = false;
  check(napi_is_array(env, v, &is));
  strata::check(is, op, what, " must be an array of integers, got ", kind(v));
  Dims d;
  for_each(v, [&](napi_value e, uint32_t) { d.push_back(whole(e, op, what)); });
  return d;
}
std::vector<std::string> Env::texts(napi_value v, std::string_view op, std::string_view what) {
  std::vector<std::string> texts;
  for_each(v, [&](napi_value e, uint32_t) { texts.push_back(text(e, op, what)); });
  return texts;
}

Call::Call(Env& e, napi_callback_info info) : env(e) {
  napi_value quick[8];
  size_t n = 8;
  env.check(napi_get_cb_info(env.env, info, &n, quick, &self, &data));
  if (n <= 8) {
    args.assign(quick, quick + n);
    return;
  }
  args.resize(n);
  env.check(napi_get_cb_info(env.env, info, &n, args.data(), &self, &data));
}

}  // namespace strata::node
