// Modes that are one thread's own: autocast, anomaly detection, hooks on saved tensors, a CUDA stream. And what looks
// at what ops keep for backward: checkpoint, and the check of gradients by differences.

#include "bindings/node/src/modes.h"

#include <algorithm>

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "strata/autograd/anomaly.h"
#include "strata/autograd/checkpoint.h"
#include "strata/autograd/gradcheck.h"
#include "strata/core/autocast.h"

namespace strata::node {

napi_value enter_mode(Env& env, std::function<std::shared_ptr<void>()> enter) {
  auto mode = std::make_shared<Mode>();
  mode->enter = std::move(enter);
  mode->entered = mode->enter();
  napi_value handle = env.boxed(mode);
  env.modes.push_back(std::move(mode));
  return handle;
}

namespace {

// exitMode(handle): whether it was the innermost. Where it was not, those inside it end too.
napi_value exit_mode(Call& c) {
  const std::shared_ptr<Mode> mode = *c.env.handle<std::shared_ptr<Mode>>(c[0]);
  auto& modes = c.env.modes;
  const auto found = std::find(modes.begin(), modes.end(), mode);
  if (found == modes.end()) return c.env.boolean(true);  // ended before
  const bool innermost = found + 1 == modes.end();
  for (bool more = true; more; modes.pop_back()) {
    modes.back()->entered.reset();
    more = modes.back() != mode;
  }
  return c.env.boolean(innermost);
}

// enterAutocast(dtype, enabled, lowGradients, fp8 or null, excluded weights)
napi_value enter_autocast(Call& c) {
  const DType dtype = c.has(0) ? parse_dtype(c.env.text(c[0], "autocast", "dtype")) : DType::bf16;
  const bool enabled = c.env.truth(c[1], "autocast", "enabled");
  const bool low = c.env.truth(c[2], "autocast", "lowGradients");
  if (c.has(3)) {
    check(dtype == DType::bf16, "autocast", "with fp8 all else runs in bf16, not ", dtype);
    const Fp8Options fp8{.scaling = c.env.text(c[3], "autocast", "fp8"),
                         .exclude = tensors_of(c.env, c[4], "autocast", "fp8Exclude")};
    return enter_mode(c.env, [=] { return std::make_shared<AutocastScope>(fp8, enabled, low); });
  }
  return enter_mode(c.env, [=] { return std::make_shared<AutocastScope>(dtype, enabled, low); });
}
napi_value is_autocast_enabled(Call& c) {
  return c.env.boolean(autocast_enabled());
}
napi_value get_autocast_dtype(Call& c) {
  return c.env.string(name_of(autocast_dtype()));
}
napi_value enter_grad_mode(Call& c) {
  const bool enabled = c.env.truth(c[0], "noGrad", "the value");
  return enter_mode(c.env, [=] { return std::make_shared<GradMode>(enabled); });
}
napi_value enter_anomaly(Call& c) {
  return enter_mode(c.env, [] { return std::make_shared<AnomalyScope>(); });
}
napi_value call(Env& env, const JsRef& fn, const TensorList& inputs) {
  napi_value arg = wrap_list(env, TensorList(inputs));
  return env.made(napi_call_function, env.undefined(), fn.get(env), size_t{1}, &arg);
}

// A checkpointed function of JavaScript's. What it saved is computed again on its own thread, whichever thread runs
// backward: the modes that the second run sets are a thread's own.
struct JsCheckpoint final : strata::detail::CheckpointFrame {
  JsCheckpoint(std::unique_ptr<JsRef> f, const TensorList& in) : fn(std::move(f)), inputs(in) {}
  std::unique_ptr<JsRef> fn;
  strata::detail::CheckpointInput<TensorList> inputs;

 protected:
  void run_again() override {
    fn->mailbox()->call([&](Env& env) {
      const Scope scope(env);
      call(env, *fn, inputs.get());
    });
  }
  void list_inputs(std::vector<PackedTensor>& all) const override { inputs.list_packed(all); }
};
struct OnItsThread final : SavedTensorHooks {
  explicit OnItsThread(std::shared_ptr<JsCheckpoint> f) : frame(std::move(f)) {}
  std::shared_ptr<void> pack(const Tensor& t) override { return frame->pack(t); }
  Tensor unpack(const std::shared_ptr<void>& packed) override {
    Tensor t;
    frame->fn->mailbox()->call([&](Env&) { t = frame->unpack(packed); });
    return t;
  }
  void list_within(const std::shared_ptr<void>& packed, std::vector<PackedTensor>& all) const override {
    frame->list_within(packed, all);
  }
  std::shared_ptr<JsCheckpoint> frame;
};
// checkpoint(fn, tensors): calls fn(tensors); lib/autograd.js keeps what it returns.
napi_value run_checkpoint(Call& c) {
  Env& env = c.env;
  auto fn = std::make_unique<JsRef>(env, c[0]);
  TensorList inputs = tensors_of(env, c[1], "checkpoint", "the inputs");
  if (!grad_enabled()) {
    call(env, *fn, inputs);
    return env.undefined();
  }
  struct Kept {
    Env& env;
    TensorList inputs;
    std::shared_ptr<OnItsThread> hooks;
    ~Kept() {
      const TapeGuard guard(env.mail.get());
      hooks.reset();
      inputs.clear();
    }
  } kept{env, std::move(inputs), nullptr};
  {
    const TapeGuard guard(env.mail.get());
    kept.hooks = std::make_shared<OnItsThread>(std::make_shared<JsCheckpoint>(std::move(fn), kept.inputs));
  }
  const SavedTensorHooksScope scope(kept.hooks);
  call(env, *kept.hooks->frame->fn, kept.inputs);
  return env.undefined();
}

// What ops save goes through two functions of JavaScript's, on their own thread.
struct JsSavedHooks final : SavedTensorHooks {
  std::shared_ptr<void> pack(const Tensor& t) override {
    std::shared_ptr<JsRef> kept;
    pack_fn->mailbox()->call([&](Env& env) {
      const Scope scope(env);
      napi_value arg = wrap(env, t);
      kept = std::make_shared<JsRef>(env,
                                     env.made(napi_call_function, env.undefined(), pack_fn->get(env), size_t{1}, &arg));
    });
    return kept;
  }
  Tensor unpack(const std::shared_ptr<void>& packed) override {
    Tensor t;
    unpack_fn->mailbox()->call([&](Env& env) {
      const Scope scope(env);
      napi_value arg = static_cast<JsRef*>(packed.get())->get(env);
      t = tensor_of(env, env.made(napi_call_function, env.undefined(), unpack_fn->get(env), size_t{1}, &arg),
                    "savedTensorsHooks", "what unpack() returned");
    });
    return t;
  }
  std::unique_ptr<JsRef> pack_fn, unpack_fn;
};
napi_value enter_saved_hooks(Call& c) {
  const auto hooks = std::make_shared<JsSavedHooks>();
  hooks->pack_fn = std::make_unique<JsRef>(c.env, c[0]);
  hooks->unpack_fn = std::make_unique<JsRef>(c.env, c[1]);
  return enter_mode(c.env, [hooks] { return std::make_shared<SavedTensorHooksScope>(hooks); });
}

// gradcheck(fn, inputs, second, eps, atol, rtol): the report, empty where all is well.
napi_value run_gradcheck(Call& c) {
  Env& env = c.env;
  const JsRef fn(env, c[0]);
  const TensorList inputs = tensors_of(env, c[1], "gradcheck", "the inputs");
  const bool second = env.truth(c[2], "gradcheck", "second");
  const GradcheckOptions options{env.real(c[3], "gradcheck", "eps"), env.real(c[4], "gradcheck", "atol"),
                                 env.real(c[5], "gradcheck", "rtol")};
  const auto run = [&](const TensorList& in) {
    const Scope scope(env);
    return tensors_of(env, call(env, fn, in), "gradcheck", "what the function returned");
  };
  const TapeGuard guard(env.mail.get());
  const GradcheckResult result = second ? gradgradcheck(run, inputs, options) : gradcheck(run, inputs, options);
  return env.string(result.ok ? "" : result.report);
}

}  // namespace

void add_modes(Env& env, napi_value exports) {
  env.add(exports, {{"exitMode", entry<exit_mode>},
                    {"enterAutocast", entry<enter_autocast>},
                    {"isAutocastEnabled", entry<is_autocast_enabled>},
                    {"autocastDtype", entry<get_autocast_dtype>},
                    {"enterGradMode", entry<enter_grad_mode>},
                    {"enterSavedHooks", entry<enter_saved_hooks>},
                    {"enterAnomaly", entry<enter_anomaly>},
                    {"checkpoint", entry<run_checkpoint>},
                    {"gradcheck", entry<run_gradcheck>}});
}

}  // namespace strata::node
