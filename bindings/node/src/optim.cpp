// The engine's optimizers.

#include "strata/optim/optim.h"

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "bindings/node/src/task.h"

namespace strata::node {
namespace {

using optim::NamedTensors;
using optim::Optimizer;
using OptimizerRef = std::shared_ptr<Optimizer>;

// Reads an object's members into options and says which key is not known.
class Options {
 public:
  Options(Env& env, napi_value object, std::string_view op) : env_(env), object_(object), op_(op) {
    if (env.missing(object)) return;
    left_ = env.texts(env.made(napi_get_property_names, object), op, "a name");
  }
  void read(const char* key, double& field) {
    if (take(key)) field = env_.real(env_.get(object_, key), op_, key);
  }
  void read(const char* key, bool& field) {
    if (take(key)) field = env_.truth(env_.get(object_, key), op_, key);
  }
  void read(const char* key, int& field) {
    if (take(key)) field = static_cast<int>(env_.whole(env_.get(object_, key), op_, key));
  }
  void read(const char* key, std::optional<double>& field) {
    if (take(key)) field = env_.real(env_.get(object_, key), op_, key);
  }
  void done() const {
    check(left_.empty(), op_, "there is no option '", left_.empty() ? std::string() : left_[0], "'");
  }

 private:
  bool take(const char* key) { return std::erase(left_, key) > 0; }
  Env& env_;
  napi_value object_;
  std::string_view op_;
  std::vector<std::string> left_;
};

OptimizerRef make(Env& env, const std::string& kind, const NamedTensors& params, napi_value object) {
  Options o(env, object, kind);
  const auto adam = [&](auto options) {
    o.read("lr", options.lr);
    o.read("beta1", options.beta1);
    o.read("beta2", options.beta2);
    o.read("eps", options.eps);
    o.read("weightDecay", options.weight_decay);
    o.done();
    return options;
  };
  if (kind == "SGD") {
    optim::SGDOptions s;
    o.read("lr", s.lr);
    o.read("momentum", s.momentum);
    o.read("dampening", s.dampening);
    o.read("weightDecay", s.weight_decay);
    o.read("nesterov", s.nesterov);
    o.done();
    return std::make_shared<optim::SGD>(params, s);
  }
  if (kind == "Adam") return std::make_shared<optim::Adam>(params, adam(optim::AdamOptions{}));
  if (kind == "AdamW") return std::make_shared<optim::AdamW>(params, adam(optim::AdamWOptions{}));
  if (kind == "Lion") {
    optim::LionOptions s;
    o.read("lr", s.lr);
    o.read("beta1", s.beta1);
    o.read("beta2", s.beta2);
    o.read("weightDecay", s.weight_decay);
    o.done();
    return std::make_shared<optim::Lion>(params, s);
  }
  throw ValueError("optim", cat("there is no optimizer '", kind, "'"));
}

// newOptimizer(kind, names, tensors, options)
napi_value new_optimizer(Call& c) {
  const std::string kind = c.env.text(c[0], "optim", "the kind");
  TensorList tensors = tensors_of(c.env, c[2], kind, "the parameters");
  NamedTensors params;
  for (size_t i = 0; i < tensors.size(); ++i) {
    napi_value name;
    c.env.check(napi_get_element(c.env.env, c[1], static_cast<uint32_t>(i), &name));
    params.emplace_back(c.env.text(name, kind, "a parameter's name"), tensors[i]);
  }
  const TapeGuard guard(c.env.mail.get());
  auto* made = new OptimizerRef(make(c.env, kind, params, c[3]));
  return c.env.external(made, [](FinalEnv, void* p, void*) {
    auto* ref = static_cast<OptimizerRef*>(p);
    TensorList params;
    if (ref->use_count() == 1)
      for (auto& [name, t] : (*ref)->params()) params.push_back(t);
    delete ref;
    for (Tensor& t : params) bury(std::move(t));
  });
}
OptimizerRef& optimizer(Call& c, size_t i = 0) {
  return *c.env.handle<OptimizerRef>(c[i]);
}

// step(optimizer, maxNorm or null): the norm before clipping, or null.
napi_value step(Call& c) {
  const OptimizerRef o = optimizer(c);
  const TapeGuard guard(c.env.mail.get());
  if (c.has(1)) return c.env.number(o->step_clipped(c.env.real(c[1], "step", "maxNorm")));
  o->step();
  return c.env.null();
}
napi_value step_async(Call& c) {
  CancelFlag flag = cancel_flag_of(c.env, c[0]);
  OptimizerRef o = optimizer(c, 1);
  const bool clip = c.has(2);
  const double max_norm = clip ? c.env.real(c[2], "step", "maxNorm") : 0;
  auto norm = std::make_shared<double>(0);
  return start_task(
      c.env, true, std::move(flag),
      [o, clip, max_norm, norm] {
        if (clip)
          *norm = o->step_clipped(max_norm);
        else
          o->step();
      },
      [clip, norm](Env& env) { return clip ? env.number(*norm) : env.null(); });
}
napi_value zero_grad(Call& c) {
  const OptimizerRef o = optimizer(c);
  const TapeGuard guard(c.env.mail.get());
  o->zero_grad(!c.has(1) || c.env.truth(c[1], "zeroGrad", "setToNone"));
  return c.env.undefined();
}
napi_value get_lr(Call& c) {
  return c.env.number(optimizer(c)->lr());
}
napi_value set_lr(Call& c) {
  const double lr = c.env.real(c[1], "lr", "the learning rate");
  check(lr >= 0, "lr", "the learning rate must not be negative, got ", lr);
  optimizer(c)->set_lr(lr);
  return c.env.undefined();
}
napi_value state_dict(Call& c) {
  napi_value object = c.env.object();
  for (auto& [name, t] : optimizer(c)->state_dict()) c.env.set(object, name.c_str(), wrap(c.env, t));
  return object;
}
// loadState(optimizer, names, tensors)
napi_value load_state(Call& c) {
  TensorList tensors = tensors_of(c.env, c[2], "loadStateDict", "the state");
  optim::StateDict state;
  for (size_t i = 0; i < tensors.size(); ++i) {
    napi_value name;
    c.env.check(napi_get_element(c.env.env, c[1], static_cast<uint32_t>(i), &name));
    state.emplace(c.env.text(name, "loadStateDict", "a name"), tensors[i]);
  }
  const TapeGuard guard(c.env.mail.get());
  optimizer(c)->load_state_dict(state);
  return c.env.undefined();
}
napi_value clip_norm(Call& c) {
  const TensorList params = tensors_of(c.env, c[0], "clipGradNorm", "the parameters");
  const double max_norm = c.env.real(c[1], "clipGradNorm", "maxNorm");
  const TapeGuard guard(c.env.mail.get());
  return c.env.number(optim::clip_grad_norm(params, max_norm));
}

}  // namespace

void add_optim(Env& env, napi_value exports) {
  env.add(exports, {{"newOptimizer", entry<new_optimizer>},
                    {"optimizerStep", entry<step>},
                    {"optimizerStepAsync", entry<step_async>},
                    {"optimizerZeroGrad", entry<zero_grad>},
                    {"optimizerLr", entry<get_lr>},
                    {"optimizerSetLr", entry<set_lr>},
                    {"optimizerState", entry<state_dict>},
                    {"optimizerLoadState", entry<load_state>},
                    {"clipGradNorm", entry<clip_norm>}});
}

}  // namespace strata::node
