#pragma once
// What the addon keeps for each JavaScript environment (the main thread's, a worker's), and N-API with exceptions: a
// call that fails throws, and what leaves a native function becomes a JavaScript exception of the matching class.

// Finalizers then run during garbage collection, as they must: a training loop that never returns to the event loop
// would otherwise free nothing.
#define NAPI_EXPERIMENTAL
#include <node_api.h>

#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "bindings/node/src/tape_lock.h"
#include "strata/core/node.h"
#include "strata/core/tensor.h"

namespace strata::node {

struct Env;

namespace detail {
template <class R, class E, class... A>
E first_argument(R (*)(E, A...));
}  // namespace detail
/// What a finalizer gets; its type differs between releases of Node.
using FinalEnv = decltype(detail::first_argument(&napi_get_version));

/// What other threads leave for an environment: jobs for its thread, and references that are not wanted any more.
/// Outlives the environment.
class Mailbox final : public Jobs, public std::enable_shared_from_this<Mailbox> {
 public:
  /// Runs `job` on the JavaScript thread and waits; at once when this is it. What it throws is thrown here. Throws
  /// StrataError when the environment has ended.
  void call(const std::function<void(Env&)>& job);
  /// Runs `job` there some time later; not at all when the environment has ended first.
  void post(std::function<void(Env&)> job);
  /// Deletes a reference there.
  void drop(napi_ref ref);

  bool waiting() const override { return waiting_.load(std::memory_order_acquire); }
  void run_waiting() override;
  /// What post() got. On the JavaScript thread, from the event loop.
  void run_posted();
  /// Deletes what drop() got. On the JavaScript thread.
  void sweep();

  void open(Env& env);
  void close();
  std::thread::id thread() const { return thread_; }

 private:
  struct Job;
  void wake();

  std::mutex mutex_;
  Env* env_ = nullptr;  // nullptr once it ended
  std::thread::id thread_;
  napi_threadsafe_function waker_ = nullptr;
  std::deque<std::shared_ptr<Job>> jobs_;
  std::deque<std::function<void(Env&)>> posted_;
  std::vector<napi_ref> dead_;
  std::atomic<bool> waiting_{false}, has_dead_{false};
};

/// A strong reference to a JavaScript value that any thread may drop.
class JsRef {
 public:
  JsRef(Env& env, napi_value value);
  ~JsRef();
  JsRef(const JsRef&) = delete;
  napi_value get(Env& env) const;
  const std::shared_ptr<Mailbox>& mailbox() const { return mailbox_; }

 private:
  std::shared_ptr<Mailbox> mailbox_;
  napi_ref ref_ = nullptr;
};

/// A JavaScript exception on its way through C++.
struct JsException : std::exception {
  explicit JsException(std::shared_ptr<JsRef> v) : value(std::move(v)) {}
  const char* what() const noexcept override { return "a JavaScript exception"; }
  std::shared_ptr<JsRef> value;
};

/// A mode of the engine's that is one thread's own, and the object whose life it is there.
struct Mode {
  std::function<std::shared_ptr<void>()> enter;
  std::shared_ptr<void> entered;  // on the JavaScript thread
};

/// JavaScript is being ended (vm's breakOnSigint, a worker's terminate()): C++ unwinds and returns to it without an
/// exception of its own, which would let the script go on. No std::exception, so that nothing on the way takes it for
/// an error.
struct Ended {};

/// Of one JavaScript environment; its thread alone uses it.
struct Env {
  napi_env env = nullptr;
  std::shared_ptr<Mailbox> mail = std::make_shared<Mailbox>();
  napi_ref tensor_class = nullptr;
  napi_ref error_classes = nullptr;  // an object: name -> class
  struct Buffer {
    napi_ref ref;  // weak
    uint64_t id;
  };
  std::unordered_map<const Storage*, Buffer> buffers;  // ArrayBuffers over storages
  uint64_t next_buffer = 0;
  int64_t handed = 0;  ///< bytes of all tensors that JavaScript was given
  /// Modes that are on (autocast, a CUDA stream, ...), the innermost last; see modes.cpp.
  std::vector<std::shared_ptr<Mode>> modes;
  /// A C++ exception that is no error passes through JavaScript as this object, and is itself again in C++.
  std::exception_ptr passing;
  std::shared_ptr<JsRef> passing_as;

  /// Throws what N-API says, the pending JavaScript exception, or Ended, unless `status` is napi_ok.
  void check(napi_status status) {
    if (status != napi_ok) [[unlikely]]
      fail(status);
  }
  [[noreturn]] void fail(napi_status status);
  /// Returns `error` to JavaScript, for lib/native.js to throw: it looks at *failed after each call. Nothing is thrown
  /// from here: while Node hands an exception over, a collection may run, and where a finalizer runs in it, Node ends
  /// the process.
  napi_value hand_over(std::exception_ptr error) noexcept;
  int32_t* failed = nullptr;
  /// The JavaScript value of an exception.
  napi_value error_value(std::exception_ptr error);

  /// What a call of N-API that makes a value makes: made(napi_create_object).
  template <class F, class... A>
  napi_value made(F create, A... args) {
    napi_value v = nullptr;
    check(create(env, args..., &v));
    return v;
  }
  napi_value undefined();
  napi_value null();
  napi_value boolean(bool v);
  napi_value number(double v);
  /// A number, or a BigInt where a number would not hold it.
  napi_value integer(int64_t v);
  napi_value bigint(int64_t v);
  napi_value string(std::string_view v);
  napi_value array(size_t n);
  napi_value object();
  void set(napi_value object, const char* name, napi_value value);
  void put(napi_value array, uint32_t i, napi_value value);
  napi_value get(napi_value object, const char* name);
  napi_value function(const char* name, napi_callback cb, void* data = nullptr);
  /// Adds functions to `object` under their names.
  struct Function {
    const char* name;
    napi_callback call;
  };
  void add(napi_value object, std::initializer_list<Function> functions);
  napi_value external(void* data, void (*finalize)(FinalEnv, void*, void*));
  /// A value that JavaScript holds and hands back, handle<T>() gives it; the collector deletes it.
  template <class T>
  napi_value boxed(T value) {
    auto owner = std::make_unique<T>(std::move(value));
    napi_value v = external(owner.get(), [](FinalEnv, void* p, void*) { delete static_cast<T*>(p); });
    (void)owner.release();
    return v;
  }
  napi_value dims(const Dims& d);
  napi_value value_of(napi_ref ref);

  napi_valuetype type(napi_value v);
  bool missing(napi_value v) {
    const napi_valuetype t = type(v);
    return t == napi_undefined || t == napi_null;
  }
  std::string text(napi_value v, std::string_view op, std::string_view what);
  bool truth(napi_value v, std::string_view op, std::string_view what);
  double real(napi_value v, std::string_view op, std::string_view what);
  int64_t whole(napi_value v, std::string_view op, std::string_view what);
  Dims list(napi_value v, std::string_view op, std::string_view what);
  /// Calls each(element, index) for the elements of an array.
  template <class F>
  void for_each(napi_value array, F each) {
    uint32_t n = 0;
    check(napi_get_array_length(env, array, &n));
    for (uint32_t i = 0; i < n; ++i) each(made(napi_get_element, array, i), i);
  }
  /// An array of strings.
  std::vector<std::string> texts(napi_value v, std::string_view op, std::string_view what);
  /// "a string", "an array", for error texts.
  std::string kind(napi_value v);
  template <class T>
  T* handle(napi_value v) {
    void* p = nullptr;
    check(napi_get_value_external(env, v, &p));
    return static_cast<T*>(p);
  }
};

/// One call from JavaScript.
struct Call {
  Call(Env& env, napi_callback_info info);
  Env& env;
  napi_value self = nullptr;
  void* data = nullptr;
  std::vector<napi_value> args;
  /// The i-th argument; undefined where there is none.
  napi_value operator[](size_t i) { return i < args.size() ? args[i] : env.undefined(); }
  bool has(size_t i) { return i < args.size() && !env.missing(args[i]); }
};

Env& env_of(napi_env env);

/// F as N-API calls it.
template <napi_value (*F)(Call&)>
napi_value entry(napi_env raw, napi_callback_info info) {
  Env& env = env_of(raw);
  *env.failed = 0;  // still set where JavaScript was ended before it looked (vm's breakOnSigint)
  try {
    env.mail->sweep();
    Call call(env, info);
    return F(call);
  } catch (...) {
    return env.hand_over(std::current_exception());
  }
}

/// Handles made while one lives go with it.
class Scope {
 public:
  explicit Scope(Env& env) : env_(env) { napi_open_handle_scope(env.env, &scope_); }
  ~Scope() { napi_close_handle_scope(env_.env, scope_); }
  Scope(const Scope&) = delete;

 private:
  Env& env_;
  napi_handle_scope scope_ = nullptr;
};

}  // namespace strata::node
