// The engine's optimizers.

#include "strata/optim/optim.h"

#include <cmath>

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "bindings/node/src/task.h"

namespace strata::node {
namespace {

using optim::NamedTensors;
using optim::Optimizer;

// Reads an object's members into options and says which key is not known.
class Reader {
 public:
  Reader(Env& env, napi_value object, std::string_view op) : env_(env), object_(object), op_(op) {
    if (env.missing(object)) return;
    left_ = env.texts(env.made(napi_get_property_names, object), op, "a name");
  }
  void operator()(const char* key, double& field) {
    if (take(key)) field = env_.real(env_.get(object_, key), op_, key);
  }
  void operator()(const char* key, bool& field) {
    if (take(key)) field = env_.truth(env_.get(object_, key), op_, key);
  }
  void operator()(const char* key, int& field) {
    if (take(key)) field = static_cast<int>(env_.whole(env_.get(object_, key), op_, key));
  }
  void operator()(const char* key, int64_t& field) {
    if (take(key)) field = env_.whole(env_.get(object_, key), op_, key);
  }
  void operator()(const char* key, uint64_t& field) {
    if (take(key)) field = static_cast<uint64_t>(env_.whole(env_.get(object_, key), op_, key));
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
// Makes an object of options.
struct Writer {
  Env& env;
  napi_value object;
  void operator()(const char* key, double field) { env.set(object, key, env.number(field)); }
  void operator()(const char* key, bool field) { env.set(object, key, env.boolean(field)); }
  void operator()(const char* key, int field) { env.set(object, key, env.integer(field)); }
  void operator()(const char* key, uint64_t field) { env.set(object, key, env.number(static_cast<double>(field))); }
};

// The names that options have in JavaScript.
template <class V>
void visit(V& v, optim::SGDOptions& o) {
  v("lr", o.lr);
  v("momentum", o.momentum);
  v("dampening", o.dampening);
  v("weightDecay", o.weight_decay);
  v("nesterov", o.nesterov);
}
template <class V, class Options>
void visit_betas(V& v, Options& o) {
  v("lr", o.lr);
  v("beta1", o.beta1);
  v("beta2", o.beta2);
  v("weightDecay", o.weight_decay);
}
template <class V>
void visit(V& v, optim::AdamOptions& o) {
  visit_betas(v, o);
  v("eps", o.eps);
  v("amsgrad", o.amsgrad);
}
template <class V>
void visit(V& v, optim::AdamWOptions& o) {
  visit_betas(v, o);
  v("eps", o.eps);
  v("amsgrad", o.amsgrad);
}
template <class V>
void visit(V& v, optim::LionOptions& o) {
  visit_betas(v, o);
}
template <class V>
void visit(V& v, optim::AdafactorOptions& o) {
  v("lr", o.lr);
  v("beta2Decay", o.beta2_decay);
  v("eps1", o.eps1);
  v("eps2", o.eps2);
  v("clipThreshold", o.clip_threshold);
  v("weightDecay", o.weight_decay);
}
template <class V>
void visit(V& v, optim::MuonOptions& o) {
  visit_betas(v, o);
  v("momentum", o.momentum);
  v("nesterov", o.nesterov);
  v("nsSteps", o.ns_steps);
  v("eps", o.eps);
  v("matchRmsAdamw", o.match_rms_adamw);
  v("useAdamw", o.use_adamw);
  v("adamwEps", o.adamw_eps);
}

template <class V>
void visit(V& v, optim::RMSpropOptions& o) {
  v("lr", o.lr);
  v("alpha", o.alpha);
  v("eps", o.eps);
  v("weightDecay", o.weight_decay);
  v("momentum", o.momentum);
  v("centered", o.centered);
}
template <class V>
void visit(V& v, optim::AdagradOptions& o) {
  v("lr", o.lr);
  v("lrDecay", o.lr_decay);
  v("eps", o.eps);
  v("weightDecay", o.weight_decay);
  v("initialAccumulatorValue", o.initial_accumulator_value);
}
template <class V>
void visit(V& v, optim::AdadeltaOptions& o) {
  v("lr", o.lr);
  v("rho", o.rho);
  v("eps", o.eps);
  v("weightDecay", o.weight_decay);
}
template <class V>
void visit(V& v, optim::AdamaxOptions& o) {
  visit_betas(v, o);
  v("eps", o.eps);
}
template <class V>
void visit(V& v, optim::NAdamOptions& o) {
  visit_betas(v, o);
  v("eps", o.eps);
  v("momentumDecay", o.momentum_decay);
  v("decoupledWeightDecay", o.decoupled_weight_decay);
}
template <class V>
void visit(V& v, optim::RAdamOptions& o) {
  visit_betas(v, o);
  v("eps", o.eps);
  v("decoupledWeightDecay", o.decoupled_weight_decay);
}
template <class V>
void visit(V& v, optim::RpropOptions& o) {
  v("lr", o.lr);
  v("etaMinus", o.etaminus);
  v("etaPlus", o.etaplus);
  v("stepSizeMin", o.step_size_min);
  v("stepSizeMax", o.step_size_max);
}
template <class V>
void visit(V& v, optim::ASGDOptions& o) {
  v("lr", o.lr);
  v("lambd", o.lambd);
  v("alpha", o.alpha);
  v("t0", o.t0);
  v("weightDecay", o.weight_decay);
}
// And those that all of them have.
template <class V, class Options>
void visit_all(V& v, Options& o) {
  visit(v, o);
  v("masterWeights", o.low.master_weights);
  v("stochasticRounding", o.low.stochastic_rounding);
  v("lowState", o.low.low_state);
  v("roundingSeed", o.low.seed);
}

// An optimizer of any kind, with its options by name.
struct AnyOptimizer {
  virtual ~AnyOptimizer() = default;
  virtual Optimizer& get() = 0;
  virtual void set_options(Env& env, size_t group, napi_value object) = 0;
  virtual napi_value options(Env& env, size_t group) = 0;
  void check_group(size_t group) {
    check<IndexError>(group < get().num_groups(), get().name(), "there is no group ", group, " of ",
                      get().num_groups());
  }
};
using OptimizerRef = std::shared_ptr<AnyOptimizer>;

template <class Rule, class Options>
struct OptimizerOf final : AnyOptimizer {
  OptimizerOf(Env& env, std::string_view kind, napi_value groups) : rule(of(env, kind, groups)) {}
  // [{names, tensors, options}, ...]
  static std::vector<optim::ParamGroup<Options>> of(Env& env, std::string_view kind, napi_value groups) {
    std::vector<optim::ParamGroup<Options>> made;
    env.for_each(groups, [&](napi_value group, uint32_t) {
      optim::ParamGroup<Options> g;
      const std::vector<std::string> names = env.texts(env.get(group, "names"), kind, "a parameter's name");
      const TensorList tensors = tensors_of(env, env.get(group, "tensors"), kind, "the parameters");
      for (size_t i = 0; i < tensors.size() && i < names.size(); ++i) g.params.emplace_back(names[i], tensors[i]);
      Reader reader(env, env.get(group, "options"), kind);
      visit_all(reader, g.options);
      reader.done();
      made.push_back(std::move(g));
    });
    return made;
  }
  Optimizer& get() override { return rule; }
  void set_options(Env& env, size_t group, napi_value object) override {
    check_group(group);
    Options o = rule.options(group);
    Reader reader(env, object, rule.name());
    visit_all(reader, o);
    reader.done();
    o.validate();
    rule.options(group) = o;
  }
  napi_value options(Env& env, size_t group) override {
    check_group(group);
    Writer writer{env, env.object()};
    visit_all(writer, rule.options(group));
    return writer.object;
  }
  Rule rule;
};

template <class Rule, class Options>
OptimizerRef make(Env& env, std::string_view kind, napi_value groups) {
  return std::make_shared<OptimizerOf<Rule, Options>>(env, kind, groups);
}
struct Kind {
  std::string_view name;
  OptimizerRef (*make)(Env&, std::string_view, napi_value);
};
constexpr Kind kKinds[] = {{"SGD", make<optim::SGD, optim::SGDOptions>},
                           {"Adam", make<optim::Adam, optim::AdamOptions>},
                           {"AdamW", make<optim::AdamW, optim::AdamWOptions>},
                           {"Lion", make<optim::Lion, optim::LionOptions>},
                           {"Adafactor", make<optim::Adafactor, optim::AdafactorOptions>},
                           {"Muon", make<optim::Muon, optim::MuonOptions>},
                           {"RMSprop", make<optim::RMSprop, optim::RMSpropOptions>},
                           {"Adagrad", make<optim::Adagrad, optim::AdagradOptions>},
                           {"Adadelta", make<optim::Adadelta, optim::AdadeltaOptions>},
                           {"Adamax", make<optim::Adamax, optim::AdamaxOptions>},
                           {"NAdam", make<optim::NAdam, optim::NAdamOptions>},
                           {"RAdam", make<optim::RAdam, optim::RAdamOptions>},
                           {"Rprop", make<optim::Rprop, optim::RpropOptions>},
                           {"ASGD", make<optim::ASGD, optim::ASGDOptions>}};

OptimizerRef make(Env& env, std::string_view name, napi_value groups) {
  for (const Kind& k : kKinds)
    if (k.name == name) return k.make(env, name, groups);
  throw ValueError("optim", cat("there is no optimizer '", name, "'"));
}

// newOptimizer(kind, groups)
napi_value new_optimizer(Call& c) {
  const std::string kind = c.env.text(c[0], "optim", "the kind");
  const TapeGuard guard(c.env.mail.get());
  auto made = std::make_unique<OptimizerRef>(make(c.env, kind, c[1]));
  napi_value handle = c.env.external(made.get(), [](FinalEnv, void* p, void*) {
    auto* ref = static_cast<OptimizerRef*>(p);
    TensorList params;
    if (ref->use_count() == 1)
      for (auto& [name, t] : (*ref)->get().params()) params.push_back(t);
    delete ref;
    for (Tensor& t : params) bury(std::move(t));
  });
  (void)made.release();
  return handle;
}
OptimizerRef& any(Call& c, size_t i = 0) {
  return *c.env.handle<OptimizerRef>(c[i]);
}
// Shares the ownership of the whole.
std::shared_ptr<Optimizer> optimizer(Call& c, size_t i = 0) {
  const OptimizerRef& ref = any(c, i);
  return {ref, &ref->get()};
}
size_t group_of(Call& c) {
  return static_cast<size_t>(c.env.whole(c[1], "optim", "the group"));
}
napi_value get_options(Call& c) {
  return any(c)->options(c.env, group_of(c));
}
napi_value set_options(Call& c) {
  any(c)->set_options(c.env, group_of(c), c[2]);
  return c.env.undefined();
}

// How one step is done, and the norm before clipping.
struct Step {
  bool clip = false;
  double max_norm = 0;
  bool maximize = false;
  double norm = 0;

  // Arguments i and i + 1: maxNorm or null, and whether to climb.
  Step(Call& c, size_t i) : clip(c.has(i)), maximize(c.has(i + 1) && c.env.truth(c[i + 1], "step", "maximize")) {
    if (clip) max_norm = c.env.real(c[i], "step", "maxNorm");
  }
  void run(Optimizer& o) {
    if (!clip) {
      o.step(maximize ? -1 : 1);
    } else if (!maximize) {
      norm = o.step_clipped(max_norm);
    } else {
      TensorList params;
      for (auto& [name, t] : o.params()) params.push_back(t);
      norm = optim::clip_grad_norm(params, max_norm);
      if (std::isfinite(norm)) o.step(-1);
    }
  }
  napi_value result(Env& env) const { return clip ? env.number(norm) : env.null(); }
};
// step(optimizer, maxNorm or null, maximize): the norm before clipping, or null.
napi_value step(Call& c) {
  const std::shared_ptr<Optimizer> o = optimizer(c);
  Step how(c, 1);
  {
    const TapeGuard guard(c.env.mail.get());
    how.run(*o);
  }
  return how.result(c.env);
}
napi_value step_async(Call& c) {
  CancelFlag flag = cancel_flag_of(c.env, c[0]);
  std::shared_ptr<Optimizer> o = optimizer(c, 1);
  auto how = std::make_shared<Step>(c, 2);
  return start_task(
      c.env, true, std::move(flag), [o, how] { how->run(*o); }, [how](Env& env) { return how->result(env); });
}
napi_value zero_grad(Call& c) {
  const std::shared_ptr<Optimizer> o = optimizer(c);
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
napi_value reset_guard(Call& c) {
  optimizer(c)->reset_guard();
  return c.env.undefined();
}
napi_value state_bytes(Call& c) {
  return c.env.integer(optimizer(c)->state_bytes());
}

// ---- gradients ----

TensorList params_of(Call& c, std::string_view op) {
  return tensors_of(c.env, c[0], op, "the parameters");
}
napi_value clip_norm(Call& c) {
  const TensorList params = params_of(c, "clipGradNorm");
  const double max_norm = c.env.real(c[1], "clipGradNorm", "maxNorm");
  const TapeGuard guard(c.env.mail.get());
  return c.env.number(optim::clip_grad_norm(params, max_norm));
}
napi_value clip_value(Call& c) {
  const TensorList params = params_of(c, "clipGradValue");
  const double max = c.env.real(c[1], "clipGradValue", "max");
  const TapeGuard guard(c.env.mail.get());
  optim::clip_grad_value(params, max);
  return c.env.undefined();
}
napi_value norm_of(Call& c) {
  const TensorList params = params_of(c, "gradNorm");
  const TapeGuard guard(c.env.mail.get());
  return c.env.number(optim::grad_norm(params));
}

// ---- loss scaling ----

using ScalerRef = std::shared_ptr<optim::LossScaler>;
const ScalerRef& scaler_of(Call& c, size_t i) {
  return *c.env.handle<ScalerRef>(c[i]);
}
// newScaler(device or null, options)
napi_value new_scaler(Call& c) {
  const Device device = c.has(0) ? parse_device(c.env.text(c[0], "LossScaler", "device")) : Device::cpu();
  optim::LossScalerOptions o;
  Reader read(c.env, c[1], "LossScaler");
  read("init", o.init);
  read("growth", o.growth);
  read("backoff", o.backoff);
  read("growthInterval", o.growth_interval);
  read.done();
  return c.env.boxed(std::make_shared<optim::LossScaler>(device, o));
}
napi_value scale_loss(Call& c) {
  const Tensor loss = tensor_of(c.env, c[1], "LossScaler", "the loss");
  Tensor scaled;
  {
    const TapeGuard guard(c.env.mail.get());
    scaled = scaler_of(c, 0)->scale(loss);
  }
  return wrap(c.env, std::move(scaled));
}
napi_value scale_value(Call& c) {
  return c.env.number(scaler_of(c, 0)->value());
}
napi_value scaler_state(Call& c) {
  return wrap(c.env, scaler_of(c, 0)->state());
}
napi_value scaler_load(Call& c) {
  scaler_of(c, 0)->load_state(tensor_of(c.env, c[1], "LossScaler", "the state"));
  return c.env.undefined();
}
// stepGuarded(optimizer, maxNorm or null, loss or null, scaler or null): {loss, norm, scale, outcome}
napi_value step_guarded(Call& c) {
  const std::shared_ptr<Optimizer> o = optimizer(c);
  optim::StepGuard guard;
  if (c.has(1)) guard.max_norm = c.env.real(c[1], "stepGuarded", "maxNorm");
  if (c.has(2)) guard.loss = tensor_of(c.env, c[2], "stepGuarded", "the loss").detach();
  ScalerRef scaler;
  if (c.has(3)) scaler = scaler_of(c, 3);
  guard.scaler = scaler.get();
  Tensor numbers;
  {
    const TapeGuard tape(c.env.mail.get());
    numbers = o->step_guarded(guard).to(Device::cpu());
  }
  const optim::StepReport r = optim::StepReport::of(numbers.data<double>());
  constexpr const char* kOutcomes[] = {"updated", "skipped", "diverged"};
  napi_value report = c.env.object();
  c.env.set(report, "loss", c.env.number(r.loss));
  c.env.set(report, "norm", c.env.number(r.norm));
  c.env.set(report, "scale", c.env.number(r.scale));
  c.env.set(report, "outcome", c.env.string(kOutcomes[r.outcome]));
  return report;
}

// ---- schedules ----

// newSchedule(kind, options)
napi_value new_schedule(Call& c) {
  optim::Schedule s;
  s.kind = optim::Schedule::kind_of(c.env.text(c[0], "schedule", "the kind"));
  Reader read(c.env, c[1], "schedule");
  read("lr", s.lr);
  read("warmup", s.warmup);
  read("total", s.total);
  read("decay", s.decay);
  read("minRatio", s.min_ratio);
  read("pctStart", s.pct_start);
  read("divFactor", s.div_factor);
  read("finalDivFactor", s.final_div_factor);
  read.done();
  s.validate();
  return c.env.boxed(s);
}
napi_value schedule_at(Call& c) {
  const int64_t step = c.env.whole(c[1], "schedule", "the step");
  check(step >= 0, "schedule", "the step must not be negative, got ", step);
  return c.env.number((*c.env.handle<optim::Schedule>(c[0]))(step));
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
                    {"clipGradNorm", entry<clip_norm>},
                    {"clipGradValue", entry<clip_value>},
                    {"gradNorm", entry<norm_of>},
                    {"optimizerOptions", entry<get_options>},
                    {"optimizerSetOptions", entry<set_options>},
                    {"optimizerResetGuard", entry<reset_guard>},
                    {"optimizerStateBytes", entry<state_bytes>},
                    {"optimizerStepGuarded", entry<step_guarded>},
                    {"newScaler", entry<new_scaler>},
                    {"scaleLoss", entry<scale_loss>},
                    {"scaleValue", entry<scale_value>},
                    {"scalerState", entry<scaler_state>},
                    {"scalerLoad", entry<scaler_load>},
                    {"newSchedule", entry<new_schedule>},
                    {"scheduleAt", entry<schedule_at>}});
}

}  // namespace strata::node
