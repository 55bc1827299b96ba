#include "bindings/node/src/env.h"

#include <cmath>
#include <limits>
#include <new>

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
      napi_value error = env->error_value(std::current_exception());
      napi_fatal_exception(env->env, error);
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
      t_mode = job->mode;
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
  napi_value box, value;
  env.check(napi_get_reference_value(env.env, ref_, &box));
  env.check(napi_get_element(env.env, box, 0, &value));
  return value;
}

Env& env_of(napi_env env) {
  void* data = nullptr;
  napi_get_instance_data(env, &data);
  return *static_cast<Env*>(data);
}

void Env::fail(napi_status status) {
  bool pending = false;
  napi_is_exception_pending(env, &pending);
  if (pending) {
    napi_value thrown;
    napi_get_and_clear_last_exception(env, &thrown);
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
  try {
    std::rethrow_exception(std::move(error));
  } catch (const JsException& e) {
    if (e.value->mailbox() == mail) return e.value->get(*this);
    text = "an exception of another thread's JavaScript";
  } catch (const Error& e) {
    cls = class_of(e);
    op = e.op();
    text = e.what();
  } catch (const std::bad_alloc&) {
    cls = "MemoryError";
    text = "out of memory";
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {
    text = "an exception of an unknown kind";
  }
  napi_value made, classes, constructor, args[2] = {string(text), string(op)};
  check(napi_get_reference_value(env, error_classes, &classes));
  check(napi_get_named_property(env, classes, cls, &constructor));
  check(napi_new_instance(env, constructor, 2, args, &made));
  return made;
}

void Env::raise(std::exception_ptr error) {
  try {
    const Scope scope(*this);
    napi_throw(env, error_value(std::move(error)));
  } catch (...) {
    bool pending = false;
    napi_is_exception_pending(env, &pending);
    if (!pending) napi_throw_error(env, nullptr, "strata: an error that could not be described");
  }
}

napi_value Env::undefined() {
  napi_value v;
  check(napi_get_undefined(env, &v));
  return v;
}
napi_value Env::null() {
  napi_value v;
  check(napi_get_null(env, &v));
  return v;
}
napi_value Env::boolean(bool b) {
  napi_value v;
  check(napi_get_boolean(env, b, &v));
  return v;
}
napi_value Env::number(double d) {
  napi_value v;
  check(napi_create_double(env, d, &v));
  return v;
}
napi_value Env::integer(int64_t i) {
  constexpr int64_t kSafe = (int64_t{1} << 53) - 1;
  if (i > kSafe || i < -kSafe) return bigint(i);
  napi_value v;
  check(napi_create_int64(env, i, &v));
  return v;
}
napi_value Env::bigint(int64_t i) {
  napi_value v;
  check(napi_create_bigint_int64(env, i, &v));
  return v;
}
napi_value Env::string(std::string_view s) {
  napi_value v;
  check(napi_create_string_utf8(env, s.data(), s.size(), &v));
  return v;
}
napi_value Env::array(size_t n) {
  napi_value v;
  check(napi_create_array_with_length(env, n, &v));
  return v;
}
napi_value Env::object() {
  napi_value v;
  check(napi_create_object(env, &v));
  return v;
}
void Env::set(napi_value object, const char* name, napi_value value) {
  check(napi_set_named_property(env, object, name, value));
}
void Env::put(napi_value array, uint32_t i, napi_value value) {
  check(napi_set_element(env, array, i, value));
}
napi_value Env::get(napi_value object, const char* name) {
  napi_value v;
  check(napi_get_named_property(env, object, name, &v));
  return v;
}
napi_value Env::function(const char* name, napi_callback cb, void* data) {
  napi_value v;
  check(napi_create_function(env, name, NAPI_AUTO_LENGTH, cb, data, &v));
  return v;
}
napi_value Env::external(void* data, void (*finalize)(FinalEnv, void*, void*)) {
  napi_value v;
  check(napi_create_external(env, data, finalize, nullptr, &v));
  return v;
}
napi_value Env::dims(const Dims& d) {
  napi_value v = array(static_cast<size_t>(d.size()));
  for (int i = 0; i < d.size(); ++i) put(v, static_cast<uint32_t>(i), integer(d[i]));
  return v;
}
napi_value Env::value_of(napi_ref ref) {
  napi_value v = nullptr;
  check(napi_get_reference_value(env, ref, &v));
  return v;
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
  uint32_t n;
  check(napi_get_array_length(env, v, &n));
  Dims d;
  for (uint32_t i = 0; i < n; ++i) {
    napi_value e;
    check(napi_get_element(env, v, i, &e));
    d.push_back(whole(e, op, what));
  }
  return d;
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
