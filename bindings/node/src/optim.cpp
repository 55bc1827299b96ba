// The engine's optimizers.

#include "strata/optim/optim.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "bindings/node/src/task.h"
#include "strata/nn/averaging.h"
#include "strata/nn/init.h"
#include "strata/ops/factory/factory.h"

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
  bool has(const char* key) const { return std::ranges::find(left_, key) != left_.end(); }
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
// "weight_decay" is weightDecay in JavaScript.
std::string camel(std::string_view name) {
  std::string made;
  bool upper = false;
  for (const char c : name) {
    if (c != '_') made += upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    upper = c == '_';
  }
  return made;
}

using OptimizerRef = std::shared_ptr<Optimizer>;

optim::OptionValues read_options(Env& env, const optim::OptimizerRecord& record, napi_value object) {
  using Kind = optim::OptimizerOption::Kind;
  Reader read(env, object, record.title);
  optim::OptionValues values;
  for (const optim::OptimizerOption& o : record.options) {
    const std::string key = camel(o.name);
    if (!read.has(key.c_str())) continue;
    double number = 0;
    bool truth = false;
    int64_t whole = 0;
    if (o.kind == Kind::boolean) {
      read(key.c_str(), truth);
      values.emplace(o.name, truth);
    } else if (o.kind == Kind::number) {
      read(key.c_str(), number);
      values.emplace(o.name, number);
    } else {
      read(key.c_str(), whole);
      values.emplace(o.name, whole);
    }
  }
  read.done();
  return values;
}

// groups: [{names, tensors, options}, ...]
OptimizerRef make(Env& env, std::string_view name, napi_value groups) {
  const optim::OptimizerRecord& record = optim::optimizer_record(name);
  std::vector<optim::AnyGroup> made;
  env.for_each(groups, [&](napi_value group, uint32_t) {
    optim::AnyGroup g;
    const std::vector<std::string> names = env.texts(env.get(group, "names"), name, "a parameter's name");
    const TensorList tensors = tensors_of(env, env.get(group, "tensors"), name, "the parameters");
    for (size_t i = 0; i < tensors.size() && i < names.size(); ++i) g.params.emplace_back(names[i], tensors[i]);
    g.options = read_options(env, record, env.get(group, "options"));
    made.push_back(std::move(g));
  });
  return record.make(record, made);
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
      for (auto& [name, t] : (*ref)->params()) params.push_back(t);
    delete ref;
    for (Tensor& t : params) bury(std::move(t));
  });
  (void)made.release();
  return handle;
}
OptimizerRef optimizer(Call& c, size_t i = 0) {
  return *c.env.handle<OptimizerRef>(c[i]);
}
size_t group_of(Call& c) {
  return static_cast<size_t>(c.env.whole(c[1], "optim", "the group"));
}
napi_value get_options(Call& c) {
  const OptimizerRef o = optimizer(c);
  const size_t group = group_of(c);
  check<IndexError>(group < o->num_groups(), o->name(), "there is no group ", group, " of ", o->num_groups());
  napi_value object = c.env.object();
  for (const auto& [name, value] : o->record()->values(o->raw_options(group))) {
    const bool* truth = std::get_if<bool>(&value);
    const int64_t* whole = std::get_if<int64_t>(&value);
    c.env.set(
        object, camel(name).c_str(),
        truth ? c.env.boolean(*truth) : c.env.number(whole ? static_cast<double>(*whole) : std::get<double>(value)));
  }
  return object;
}
napi_value set_options(Call& c) {
  const OptimizerRef o = optimizer(c);
  optim::set_options(*o, group_of(c), read_options(c.env, *o->record(), c[2]));
  return c.env.undefined();
}
napi_value optimizer_records(Call& c) {
  return c.env.string(optim::optimizers_json());
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
// The order of a norm, argument i: 2 when left out.
double order_of(Call& c, size_t i, std::string_view op) {
  return c.has(i) ? c.env.real(c[i], op, "normType") : 2;
}
// clipGradNorm(params, maxNorm, order)
napi_value clip_norm(Call& c) {
  const TensorList params = params_of(c, "clipGradNorm");
  const double max_norm = c.env.real(c[1], "clipGradNorm", "maxNorm"), order = order_of(c, 2, "clipGradNorm");
  const TapeGuard guard(c.env.mail.get());
  return c.env.number(optim::clip_grad_norm(params, max_norm, order));
}
// clipGradsWithNorm(params, maxNorm, the norm)
napi_value clip_with_norm(Call& c) {
  constexpr std::string_view op = "clipGradsWithNorm_";
  const TensorList params = params_of(c, op);
  const double max_norm = c.env.real(c[1], op, "maxNorm"), norm = c.env.real(c[2], op, "totalNorm");
  const TapeGuard guard(c.env.mail.get());
  optim::clip_grads_with_norm(params, max_norm, full({}, norm, DType::f64));
  return c.env.undefined();
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
  const double order = order_of(c, 1, "gradNorm");
  const TapeGuard guard(c.env.mail.get());
  return c.env.number(optim::grad_norm(params, order));
}
// updateAverages(means, values, count, decay or null)
napi_value update_averages(Call& c) {
  constexpr std::string_view op = "updateAverages";
  const TensorList means = tensors_of(c.env, c[0], op, "the means"), values = tensors_of(c.env, c[1], op, "the values");
  const int64_t count = c.env.whole(c[2], op, "count");
  std::optional<double> decay;
  if (c.has(3)) decay = c.env.real(c[3], op, "decay");
  const TapeGuard guard(c.env.mail.get());
  nn::update_averages(means, values, count, decay);
  return c.env.undefined();
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

// ---- L-BFGS ----

using LbfgsRef = std::shared_ptr<optim::LBFGS>;
// newLbfgs(names, tensors)
napi_value new_lbfgs(Call& c) {
  const std::vector<std::string> names = c.env.texts(c[0], "LBFGS", "a parameter's name");
  const TensorList tensors = tensors_of(c.env, c[1], "LBFGS", "the parameters");
  NamedTensors params;
  for (size_t i = 0; i < tensors.size() && i < names.size(); ++i) params.emplace_back(names[i], tensors[i]);
  return c.env.boxed(std::make_shared<optim::LBFGS>(params));
}
const LbfgsRef& lbfgs_of(Call& c) {
  return *c.env.handle<LbfgsRef>(c[0]);
}
// lbfgsOptions(rule, options): checks them and takes them
napi_value lbfgs_options(Call& c) {
  optim::LBFGSOptions o;
  Reader read(c.env, c[1], "LBFGS");
  read("lr", o.lr);
  read("maxIter", o.max_iter);
  read("maxEval", o.max_eval);
  read("toleranceGrad", o.tolerance_grad);
  read("toleranceChange", o.tolerance_change);
  read("historySize", o.history_size);
  read("strongWolfe", o.strong_wolfe);
  read.done();
  o.validate();
  lbfgs_of(c)->options() = o;
  return c.env.undefined();
}
// lbfgsStep(rule, closure that returns a number)
napi_value lbfgs_step(Call& c) {
  const LbfgsRef rule = lbfgs_of(c);
  napi_value closure = c[1];
  Env& env = c.env;
  const double first = rule->step([&] {
    napi_value result = nullptr;
    env.check(napi_call_function(env.env, env.undefined(), closure, 0, nullptr, &result));
    return env.real(result, "LBFGS", "the loss");
  });
  return env.number(first);
}
napi_value lbfgs_state(Call& c) {
  napi_value object = c.env.object();
  for (auto& [name, t] : lbfgs_of(c)->state_dict()) c.env.set(object, name.c_str(), wrap(c.env, t));
  return object;
}
napi_value lbfgs_load(Call& c) {
  const std::vector<std::string> names = c.env.texts(c[1], "loadStateDict", "a name");
  const TensorList tensors = tensors_of(c.env, c[2], "loadStateDict", "the state");
  optim::StateDict state;
  for (size_t i = 0; i < tensors.size(); ++i) state.emplace(names[i], tensors[i]);
  lbfgs_of(c)->load_state_dict(state);
  return c.env.undefined();
}
napi_value lbfgs_bytes(Call& c) {
  return c.env.integer(lbfgs_of(c)->state_bytes());
}

// initial(name, tensor, numbers..): writes first values over the tensor (strata/nn/init.h)
napi_value initial(Call& c) {
  namespace init = nn::init;
  const std::string name = c.env.text(c[0], "init", "the name");
  const Tensor t = tensor_of(c.env, c[1], "init", "the tensor");
  const auto number = [&](int i) {
    return c.env.real(c[i], "init", i == 2 ? "the first number" : "the second number");
  };
  const auto text = [&](int i) { return c.env.text(c[i], "init", i == 3 ? "mode" : "nonlinearity"); };
  if (name == "xavier_uniform") init::xavier_uniform_(t, number(2));
  if (name == "xavier_normal") init::xavier_normal_(t, number(2));
  if (name == "kaiming_uniform") init::kaiming_uniform_(t, number(2), text(3), text(4));
  if (name == "kaiming_normal") init::kaiming_normal_(t, number(2), text(3), text(4));
  if (name == "orthogonal") init::orthogonal_(t, number(2));
  if (name == "eye") init::eye_(t);
  if (name == "dirac") init::dirac_(t, c.env.whole(c[2], "init", "groups"));
  if (name == "sparse") init::sparse_(t, number(2), number(3));
  return c[1];
}
napi_value calculate_gain(Call& c) {
  return c.env.number(
      nn::init::calculate_gain(c.env.text(c[0], "init", "the nonlinearity"), c.env.real(c[1], "init", "param")));
}

// newLrSchedule(name, {option: number, text or list of numbers}) under the record's names
napi_value new_lr_schedule(Call& c) {
  const std::string name = c.env.text(c[0], "schedule", "the name");
  std::vector<std::pair<std::string, optim::ScheduleValue>> options;
  for (const std::string& key : c.env.texts(c.env.made(napi_get_property_names, c[1]), name, "a name")) {
    napi_value value = c.env.get(c[1], key.c_str());
    const auto kind = c.env.type(value);
    if (kind == napi_number) {
      options.emplace_back(key, c.env.real(value, name, key));
    } else if (kind == napi_string) {
      options.emplace_back(key, c.env.text(value, name, key));
    } else {
      std::vector<double> list;
      c.env.for_each(value, [&](napi_value v, uint32_t) { list.push_back(c.env.real(v, name, key)); });
      options.emplace_back(key, std::move(list));
    }
  }
  return c.env.boxed(optim::LrSchedule(name, options));
}
const optim::LrSchedule& lr_schedule_of(Call& c) {
  return *c.env.handle<optim::LrSchedule>(c[0]);
}
napi_value lr_schedule_at(Call& c) {
  return c.env.number(
      lr_schedule_of(c)(c.env.whole(c[1], "schedule", "the step"), c.env.real(c[2], "schedule", "base")));
}
napi_value lr_schedule_momentum(Call& c) {
  return c.env.number(lr_schedule_of(c).momentum(c.env.whole(c[1], "schedule", "the step")));
}
napi_value schedule_records(Call& c) {
  return c.env.string(optim::schedules_json());
}
// plateauStep({largest, factor, ..., best, bad, cooling}, value): [whether rates go down, best, bad, cooling]
napi_value plateau_step(Call& c) {
  optim::Plateau p;
  Reader read(c.env, c[0], "ReduceLROnPlateau");
  read("largest", p.largest);
  read("factor", p.factor);
  read("patience", p.patience);
  read("threshold", p.threshold);
  read("relative", p.relative);
  read("cooldown", p.cooldown);
  read("best", p.best);
  read("bad", p.bad);
  read("cooling", p.cooling);
  read.done();
  p.validate();
  const bool down = p.step(c.env.real(c[1], "ReduceLROnPlateau", "the quantity"));
  napi_value made = c.env.object();
  c.env.set(made, "down", c.env.boolean(down));
  if (!std::isnan(p.best)) c.env.set(made, "best", c.env.number(p.best));
  c.env.set(made, "bad", c.env.integer(p.bad));
  c.env.set(made, "cooling", c.env.integer(p.cooling));
  return made;
}
// plateauLowered(lr, least, factor, eps)
napi_value plateau_lowered(Call& c) {
  optim::Plateau p;
  constexpr std::string_view op = "ReduceLROnPlateau";
  p.factor = c.env.real(c[2], op, "factor");
  p.eps = c.env.real(c[3], op, "eps");
  return c.env.number(p.lowered(c.env.real(c[0], op, "lr"), c.env.real(c[1], op, "minLr")));
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
                    {"clipGradsWithNorm", entry<clip_with_norm>},
                    {"updateAverages", entry<update_averages>},
                    {"gradNorm", entry<norm_of>},
                    {"optimizerRecords", entry<optimizer_records>},
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
                    {"newLbfgs", entry<new_lbfgs>},
                    {"lbfgsOptions", entry<lbfgs_options>},
                    {"lbfgsStep", entry<lbfgs_step>},
                    {"lbfgsState", entry<lbfgs_state>},
                    {"lbfgsLoad", entry<lbfgs_load>},
                    {"lbfgsBytes", entry<lbfgs_bytes>},
                    {"initial", entry<initial>},
                    {"calculateGain", entry<calculate_gain>},
                    {"newLrSchedule", entry<new_lr_schedule>},
                    {"lrScheduleAt", entry<lr_schedule_at>},
                    {"lrScheduleMomentum", entry<lr_schedule_momentum>},
                    {"scheduleRecords", entry<schedule_records>},
                    {"plateauStep", entry<plateau_step>},
                    {"plateauLowered", entry<plateau_lowered>}});
}

}  // namespace strata::node
