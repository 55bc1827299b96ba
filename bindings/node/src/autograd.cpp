// Gradients: backward, grad, hooks, and functions with a gradient written in JavaScript.

#include "strata/autograd/autograd.h"

#include <map>

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "bindings/node/src/task.h"
#include "strata/autograd/function.h"
#include "strata/autograd/hooks.h"

namespace strata::node {
namespace {

void bury_list(TensorList& list) {
  for (Tensor& t : list) bury(std::move(t));
  list.clear();
}
// Tensors that are let go of as bury() does.
struct Held {
  TensorList list;
  ~Held() { bury_list(list); }
};
// What a JavaScript function gave for a gradient; undefined for nothing.
Tensor gradient_of(Env& env, napi_value v, std::string_view op) {
  return env.missing(v) ? Tensor() : tensor_of(env, v, op, "what the function returned");
}

// A JavaScript function that is called with a tensor, from whichever thread runs the graph.
struct JsHook final : TensorHook {
  explicit JsHook(std::unique_ptr<JsRef> f) : fn(std::move(f)) {}
  Tensor operator()(const Tensor& grad) override {
    Tensor result;
    fn->mailbox()->call([&](Env& env) {
      const Scope scope(env);
      napi_value returned, arg = wrap(env, grad);
      env.check(napi_call_function(env.env, env.undefined(), fn->get(env), 1, &arg, &returned));
      result = gradient_of(env, returned, "hook");
    });
    return result;
  }
  std::unique_ptr<JsRef> fn;
};

// hook(tensor, function, afterAccumulation) -> handle
napi_value add_hook(Call& c) {
  const Tensor t = tensor_of(c.env, c[0], "registerHook", "the tensor");
  check(c.env.type(c[1]) == napi_function, "registerHook", "needs a function, got ", c.env.kind(c[1]));
  const auto hook = std::make_shared<JsHook>(std::make_unique<JsRef>(c.env, c[1]));
  {
    const TapeGuard guard(c.env.mail.get());
    if (c.env.truth(c[2], "registerHook", "afterAccumulation"))
      add_post_accumulate_hook(t, hook);
    else
      add_tensor_hook(t, hook);
  }
  return c.env.boxed(HookHandle(hook));
}
napi_value remove_hook(Call& c) {
  c.env.handle<HookHandle>(c[0])->remove();
  return c.env.undefined();
}
napi_value retain_grad(Call& c) {
  const Tensor t = tensor_of(c.env, c[0], "retainGrad", "the tensor");
  const TapeGuard guard(c.env.mail.get());
  t.retain_grad();
  return c.env.undefined();
}

// The arguments of backward() and grad(): arrays outputs, inputs (null for backward), gradOutputs or null, retain,
// create, allowUnused.
struct Walk {
  Held outputs, inputs, grads;
  bool retain = false, create = false, allow_unused = false, all_leaves = false;
  Walk(Call& c, size_t from) {
    const char* op = c.env.missing(c[from + 1]) ? "backward" : "grad";
    outputs.list = tensors_of(c.env, c[from], op, "outputs");
    all_leaves = c.env.missing(c[from + 1]);
    if (!all_leaves) inputs.list = tensors_of(c.env, c[from + 1], op, "inputs");
    if (c.has(from + 2)) grads.list = tensors_of(c.env, c[from + 2], op, "the gradients", true);
    retain = c.env.truth(c[from + 3], op, "retainGraph");
    create = c.env.truth(c[from + 4], op, "createGraph");
    allow_unused = c.env.truth(c[from + 5], op, "allowUnused");
  }
  TensorList run() const {
    if (all_leaves) {
      backward(outputs.list, grads.list, retain, create);
      return {};
    }
    return grad(outputs.list, inputs.list, grads.list, create, retain, allow_unused);
  }
};
napi_value walk_now(Call& c) {
  const Walk walk(c, 0);
  TensorList result;
  {
    const TapeGuard guard(c.env.mail.get());
    result = walk.run();
  }
  return walk.all_leaves ? c.env.undefined() : wrap_list(c.env, std::move(result));
}
napi_value walk_async(Call& c) {
  CancelFlag flag = cancel_flag_of(c.env, c[0]);
  auto walk = std::make_shared<Walk>(c, 1);
  auto result = std::make_shared<Held>();
  return start_task(
      c.env, true, std::move(flag), [walk, result] { result->list = walk->run(); },
      [walk, result](Env& env) {
        return walk->all_leaves ? env.undefined() : wrap_list(env, std::move(result->list));
      });
}

napi_value is_grad_enabled(Call& c) {
  return c.env.boolean(grad_enabled());
}
napi_value set_grad_enabled(Call& c) {
  const bool before = grad_enabled();
  t_mode.grad_enabled = c.env.truth(c[0], "setGradEnabled", "the value");
  return c.env.boolean(before);
}

// A function whose backward is a JavaScript function of (gradients, saved tensors).
struct JsFunction final : FunctionNode {
  explicit JsFunction(const std::string* kept) : FunctionNode(*kept) {}
  FunctionCtx context;
  std::unique_ptr<JsRef> backward;

 protected:
  FunctionCtx& ctx() override { return context; }
  TensorList call_backward(const TensorList& gy) override {
    TensorList result;
    backward->mailbox()->call([&](Env& env) {
      const Scope scope(env);
      napi_value returned, args[2] = {wrap_list(env, TensorList(gy)), wrap_list(env, context.saved_tensors())};
      env.check(napi_call_function(env.env, env.undefined(), backward->get(env), 2, args, &returned));
      bool is = false;
      env.check(napi_is_array(env.env, returned, &is));
      if (is)
        result = tensors_of(env, returned, name(), "what backward() returned", true);
      else
        result = {gradient_of(env, returned, name())};
    });
    return result;
  }
};
// The names live as long as the program, as a node's must.
const std::string* kept_name(std::string name) {
  static std::mutex mutex;
  static auto& names = *new std::map<std::string, std::string>();
  const std::lock_guard lock(mutex);
  return &names.emplace(name, name).first->second;
}
// applyFunction(name, inputs, forward, backward): forward() returns [results, saved, materialize]; the results.
napi_value apply_function(Call& c) {
  Env& env = c.env;
  const std::string* name = kept_name(env.text(c[0], "Function", "the name"));
  Held inputs{tensors_of(env, c[1], *name, "inputs")};
  auto* node = new JsFunction(name);
  const Ref<Node> owner(node);
  node->backward = std::make_unique<JsRef>(env, c[3]);
  const TapeGuard guard(env.mail.get());
  node->begin(node->context, inputs.list);
  napi_value returned;
  {
    const NoGrad none;
    env.check(napi_call_function(env.env, env.undefined(), c[2], 0, nullptr, &returned));
  }
  napi_value results = env.made(napi_get_element, returned, 0u), saved = env.made(napi_get_element, returned, 1u),
             materialize = env.made(napi_get_element, returned, 2u);
  Held made{tensors_of(env, results, *name, "what forward() returned")};
  node->context.save_for_backward(tensors_of(env, saved, *name, "saveForBackward()"));
  node->context.set_materialize_grads(env.truth(materialize, *name, "materializeGrads"));
  std::vector<Tensor*> pointers;
  for (Tensor& t : made.list) pointers.push_back(&t);
  node->record(node->context, inputs.list, pointers);
  return wrap_list(env, std::move(made.list));
}

}  // namespace

void add_autograd(Env& env, napi_value exports) {
  env.add(exports, {{"walk", entry<walk_now>},
                    {"walkAsync", entry<walk_async>},
                    {"addHook", entry<add_hook>},
                    {"removeHook", entry<remove_hook>},
                    {"retainGrad", entry<retain_grad>},
                    {"isGradEnabled", entry<is_grad_enabled>},
                    {"setGradEnabled", entry<set_grad_enabled>},
                    {"applyFunction", entry<apply_function>}});
}

}  // namespace strata::node
