// The engine's optimizers, its clipping and its loss scaler. strata/optim/optimizer.py builds torch's surface on these.

#include <memory>

#include "py.h"
#include "strata/optim/adafactor.h"
#include "strata/optim/adam.h"
#include "strata/optim/adaptive.h"
#include "strata/optim/lion.h"
#include "strata/optim/loss_scaler.h"
#include "strata/optim/muon.h"
#include "strata/optim/sgd.h"

namespace strata::python {
namespace {

using optim::NamedTensors;

// Reads what a group's dictionary says of one option; what it does not name stays as it is.
template <class T>
void take(const nb::dict& d, const char* key, T& field) {
  if (!d.contains(key)) return;
  if (!nb::try_cast(d[key], field))
    throw nb::type_error((std::string("option '") + key + "' of an optimizer has a value of the wrong type").c_str());
}

// An option has the name of its field, whichever optimizer it belongs to.
template <class Options>
void read(const nb::dict& d, Options& o) {
  take(d, "lr", o.lr);
  take(d, "weight_decay", o.weight_decay);
  if constexpr (requires { o.beta1; }) take(d, "beta1", o.beta1);
  if constexpr (requires { o.beta2; }) take(d, "beta2", o.beta2);
  if constexpr (requires { o.eps; }) take(d, "eps", o.eps);
  if constexpr (requires { o.momentum; }) take(d, "momentum", o.momentum);
  if constexpr (requires { o.dampening; }) take(d, "dampening", o.dampening);
  if constexpr (requires { o.nesterov; }) take(d, "nesterov", o.nesterov);
  if constexpr (requires { o.beta2_decay; }) take(d, "beta2_decay", o.beta2_decay);
  if constexpr (requires { o.eps1; }) take(d, "eps1", o.eps1);
  if constexpr (requires { o.eps2; }) take(d, "eps2", o.eps2);
  if constexpr (requires { o.clip_threshold; }) take(d, "clip_threshold", o.clip_threshold);
  if constexpr (requires { o.ns_steps; }) take(d, "ns_steps", o.ns_steps);
  if constexpr (requires { o.match_rms_adamw; }) take(d, "match_rms_adamw", o.match_rms_adamw);
  if constexpr (requires { o.use_adamw; }) take(d, "use_adamw", o.use_adamw);
  if constexpr (requires { o.adamw_eps; }) take(d, "adamw_eps", o.adamw_eps);
  if constexpr (requires { o.amsgrad; }) take(d, "amsgrad", o.amsgrad);
  if constexpr (requires { o.alpha; }) take(d, "alpha", o.alpha);
  if constexpr (requires { o.centered; }) take(d, "centered", o.centered);
  if constexpr (requires { o.lr_decay; }) take(d, "lr_decay", o.lr_decay);
  if constexpr (requires { o.initial_accumulator_value; })
    take(d, "initial_accumulator_value", o.initial_accumulator_value);
  if constexpr (requires { o.rho; }) take(d, "rho", o.rho);
  if constexpr (requires { o.momentum_decay; }) take(d, "momentum_decay", o.momentum_decay);
  if constexpr (requires { o.decoupled_weight_decay; }) take(d, "decoupled_weight_decay", o.decoupled_weight_decay);
  take(d, "master_weights", o.low.master_weights);
  take(d, "stochastic_rounding", o.low.stochastic_rounding);
  take(d, "low_state", o.low.low_state);
  take(d, "rounding_seed", o.low.seed);
}

using Groups = std::vector<std::pair<std::vector<std::pair<std::string, Tensor>>, nb::dict>>;

// An optimizer of any kind, with its options by name.
struct AnyOptimizer {
  virtual ~AnyOptimizer() = default;
  virtual optim::Optimizer& get() = 0;
  virtual void set_options(size_t group, const nb::dict& options) = 0;
};

template <class Rule, class Options>
struct OptimizerFor final : AnyOptimizer {
  explicit OptimizerFor(const Groups& groups) : rule(of(groups)) {}
  static std::vector<optim::ParamGroup<Options>> of(const Groups& groups) {
    std::vector<optim::ParamGroup<Options>> made;
    for (const auto& [params, dict] : groups) {
      optim::ParamGroup<Options> g;
      g.params = params;
      read(dict, g.options);
      made.push_back(std::move(g));
    }
    return made;
  }
  optim::Optimizer& get() override { return rule; }
  void set_options(size_t group, const nb::dict& dict) override {
    check<IndexError>(group < rule.num_groups(), rule.name(), "group ", group, " of ", rule.num_groups());
    Options o = rule.options(group);
    read(dict, o);
    o.validate();
    rule.options(group) = o;
  }
  Rule rule;
};

template <class Rule, class Options>
std::unique_ptr<AnyOptimizer> make(const Groups& groups) {
  return std::make_unique<OptimizerFor<Rule, Options>>(groups);
}
struct Kind {
  std::string_view name;
  std::unique_ptr<AnyOptimizer> (*make)(const Groups&);
};
constexpr Kind kKinds[] = {{"sgd", make<optim::SGD, optim::SGDOptions>},
                           {"adam", make<optim::Adam, optim::AdamOptions>},
                           {"adamw", make<optim::AdamW, optim::AdamWOptions>},
                           {"lion", make<optim::Lion, optim::LionOptions>},
                           {"adafactor", make<optim::Adafactor, optim::AdafactorOptions>},
                           {"muon", make<optim::Muon, optim::MuonOptions>},
                           {"rmsprop", make<optim::RMSprop, optim::RMSpropOptions>},
                           {"adagrad", make<optim::Adagrad, optim::AdagradOptions>},
                           {"adadelta", make<optim::Adadelta, optim::AdadeltaOptions>},
                           {"adamax", make<optim::Adamax, optim::AdamaxOptions>},
                           {"nadam", make<optim::NAdam, optim::NAdamOptions>},
                           {"radam", make<optim::RAdam, optim::RAdamOptions>}};

std::unique_ptr<AnyOptimizer> make(std::string_view name, const Groups& groups) {
  std::string names;
  for (const Kind& k : kKinds) {
    if (k.name == name) return k.make(groups);
    names += cat(' ', k.name);
  }
  throw ValueError("Optimizer", cat("'", name, "' is none of:", names));
}

struct PyOptimizer {
  PyOptimizer(const std::string& kind, const Groups& groups) : any(make(kind, groups)) {}
  optim::Optimizer* operator->() const { return &any->get(); }
  std::unique_ptr<AnyOptimizer> any;
};

nb::dict to_dict(const optim::StateDict& state) {
  nb::dict d;
  for (const auto& [name, t] : state) d[nb::cast(name)] = wrapped(t);
  return d;
}

nb::tuple report_of(const Tensor& numbers) {
  const Tensor host = numbers.to(Device::cpu());
  const optim::StepReport r = optim::StepReport::of(host.data<double>());
  const char* outcomes[] = {"updated", "skipped", "diverged"};
  return nb::make_tuple(r.loss, r.norm, r.scale, outcomes[r.outcome]);
}

}  // namespace

void bind_optim(nb::module_& m) {
  using Release = nb::call_guard<Released>;
  nb::class_<optim::LossScaler>(m, "LossScaler", "The scale that keeps gradients of f16 from vanishing.")
      .def(
          "__init__",
          [](optim::LossScaler* self, Device device, double init, double growth, double backoff, int64_t interval) {
            new (self) optim::LossScaler(device, {init, growth, backoff, interval});
          },
          nb::arg("device"), nb::arg("init") = 65536.0, nb::arg("growth") = 2.0, nb::arg("backoff") = 0.5,
          nb::arg("growth_interval") = 2000)
      .def("scale", &optim::LossScaler::scale, Release(), "loss * scale, in f32.")
      .def("value", &optim::LossScaler::value, Release(), "The scale; waits for the device.")
      .def("state", &optim::LossScaler::state, "f64 [2]: the scale, and the finite steps since it last changed.")
      .def("load_state", &optim::LossScaler::load_state, "Goes on from a state().");

  nb::class_<PyOptimizer>(m, "Optimizer", "One of the engine's optimizers over groups of named parameters.")
      .def(nb::init<const std::string&, const Groups&>(), nb::arg("kind"), nb::arg("groups"))
      .def(
          "set_options", [](PyOptimizer& o, size_t group, const nb::dict& options) { o.any->set_options(group, options); },
          "Changes the options of a group that the dictionary names.")
      .def(
          "step", [](PyOptimizer& o, double grad_scale) { o->step(grad_scale); }, nb::arg("grad_scale") = 1.0, Release(),
          "Updates every parameter that has a gradient.")
      .def(
          "step_clipped", [](PyOptimizer& o, double max_norm) { return o->step_clipped(max_norm); }, Release(),
          "Clips the gradients' joint norm and steps, in one pass; the norm before.")
      .def(
          "step_guarded",
          [](PyOptimizer& o, double max_norm, const std::optional<Tensor>& loss, optim::LossScaler* scaler) {
            Tensor report;
            {
              Released release;
              report = o->step_guarded({.max_norm = max_norm, .loss = loss.value_or(Tensor()), .scaler = scaler});
            }
            return report_of(report);
          },
          nb::arg("max_norm") = __builtin_inf(), nb::arg("loss") = nb::none(), nb::arg("scaler") = nb::none(),
          "A step that is left out where the loss or a gradient is not finite: (loss, norm, scale, outcome).")
      .def("reset_guard", [](PyOptimizer& o) { o->reset_guard(); }, "Lets step_guarded() update again.")
      .def("capturable", [](PyOptimizer& o) { return o->capturable(); }, "Whether a CUDA graph can capture a step.")
      .def("zero_grad", [](PyOptimizer& o, bool set_to_none) { o->zero_grad(set_to_none); },
           nb::arg("set_to_none") = true)
      .def("state_dict", [](PyOptimizer& o) { return to_dict(o->state_dict()); },
           "State by \"<parameter>.<state>\"; tensors that share the optimizer's storage.")
      .def(
          "load_state_dict",
          [](PyOptimizer& o, const std::vector<std::pair<std::string, Tensor>>& state) {
            o->load_state_dict(optim::StateDict(state.begin(), state.end()));
          },
          "Copies the state of an optimizer of the same kind over parameters of the same names, as (name, tensor).")
      .def("state_bytes", [](PyOptimizer& o) { return o->state_bytes(); }, "Bytes of the state, once all of it exists.");

  m.def("grad_norm", &optim::grad_norm, Release(), nb::arg("params"), "The 2-norm of all gradients together.");
  m.def("clip_grad_norm", &optim::clip_grad_norm, Release(), nb::arg("params"), nb::arg("max_norm"),
        "Scales the gradients in place so that their joint 2-norm is at most max_norm; the norm before.");
  m.def("clip_grad_value", &optim::clip_grad_value, Release(), nb::arg("params"), nb::arg("max"),
        "Clamps every element of the gradients to [-max, max], in place.");
}

}  // namespace strata::python
