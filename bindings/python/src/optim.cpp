// The engine's optimizers, its clipping and its loss scaler. strata/optim/optimizer.py builds torch's surface on these.

#include <memory>

#include "options.h"
#include "py.h"
#include "strata/nn/averaging.h"
#include "strata/nn/init.h"
#include "strata/optim/clip.h"
#include "strata/optim/lbfgs.h"
#include "strata/optim/loss_scaler.h"
#include "strata/optim/lr_schedule.h"
#include "strata/optim/record.h"

namespace strata::python {
namespace {

using optim::NamedTensors;

using Groups = std::vector<std::pair<std::vector<std::pair<std::string, Tensor>>, nb::dict>>;

struct PyOptimizer {
  PyOptimizer(const std::string& kind, const Groups& groups) {
    const optim::OptimizerRecord& record = optim::optimizer_record(kind);
    std::vector<optim::AnyGroup> made;
    for (const auto& [params, options] : groups) made.push_back({params, options_of(record, options)});
    optimizer = record.make(record, made);
  }
  optim::Optimizer* operator->() const { return optimizer.get(); }
  std::unique_ptr<optim::Optimizer> optimizer;
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

optim::OptionValues options_of(const optim::OptimizerRecord& record, const nb::dict& d) {
  using Kind = optim::OptimizerOption::Kind;
  optim::OptionValues values;
  for (const auto& [key, value] : d) {
    const auto name = nb::cast<std::string>(key);
    const optim::OptimizerOption* option = record.option(name);
    double number = 0;
    int64_t whole = 0;
    bool truth = false;
    if (option && option->kind == Kind::boolean ? nb::try_cast(value, truth) : false) {
      values[name] = truth;
    } else if (option && option->kind != Kind::number && option->kind != Kind::boolean ? nb::try_cast(value, whole)
                                                                                       : false) {
      values[name] = whole;
    } else if ((!option || option->kind == Kind::number) && nb::try_cast(value, number)) {
      values[name] = number;
    } else {
      throw nb::type_error(("option '" + name + "' of an optimizer has a value of the wrong type").c_str());
    }
  }
  return values;
}

optim::Optimizer& optimizer_of(nb::handle o) {
  return *cast_argument<PyOptimizer&>(o, "optimizer", "optimizer", "one of the engine's optimizers").optimizer;
}

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
          "set_options",
          [](PyOptimizer& o, size_t group, const nb::dict& options) {
            optim::set_options(*o.optimizer, group, options_of(*o->record(), options));
          },
          "Changes the options of a group that the dictionary names.")
      .def(
          "step", [](PyOptimizer& o, double grad_scale) { o->step(grad_scale); }, nb::arg("grad_scale") = 1.0,
          Release(), "Updates every parameter that has a gradient.")
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
      .def(
          "derived_state",
          [](PyOptimizer& o, size_t group, int64_t updates) {
            nb::dict values;
            for (const optim::DerivedState& d : o->record()->derived)
              values[nb::cast(std::string(d.name))] = d.value(o->raw_options(group), o->lr(group), updates);
            return values;
          },
          "Numbers that PyTorch keeps as state and that follow from the count of a parameter's updates.")
      .def(
          "reset_guard", [](PyOptimizer& o) { o->reset_guard(); }, "Lets step_guarded() update again.")
      .def(
          "capturable", [](PyOptimizer& o) { return o->capturable(); }, "Whether a CUDA graph can capture a step.")
      .def(
          "zero_grad", [](PyOptimizer& o, bool set_to_none) { o->zero_grad(set_to_none); },
          nb::arg("set_to_none") = true)
      .def(
          "state_dict", [](PyOptimizer& o) { return to_dict(o->state_dict()); },
          "State by \"<parameter>.<state>\"; tensors that share the optimizer's storage.")
      .def(
          "load_state_dict",
          [](PyOptimizer& o, const std::vector<std::pair<std::string, Tensor>>& state) {
            o->load_state_dict(optim::StateDict(state.begin(), state.end()));
          },
          "Copies the state of an optimizer of the same kind over parameters of the same names, as (name, tensor).")
      .def(
          "state_bytes", [](PyOptimizer& o) { return o->state_bytes(); }, "Bytes of the state, once all of it exists.");

  using optim::LBFGS;
  nb::class_<LBFGS>(m, "LBFGS", "L-BFGS over named parameters.")
      .def(
          "__init__",
          [](LBFGS* self, const std::vector<std::pair<std::string, Tensor>>& params) { new (self) LBFGS(params); },
          nb::arg("params"))
      .def(
          "set_options",
          [](LBFGS& o, double lr, int max_iter, int max_eval, double tolerance_grad, double tolerance_change,
             int history_size, bool strong_wolfe) {
            const optim::LBFGSOptions options{lr,           max_iter,    max_eval, tolerance_grad, tolerance_change,
                                              history_size, strong_wolfe};
            options.validate();
            o.options() = options;
          },
          nb::arg("lr"), nb::arg("max_iter"), nb::arg("max_eval"), nb::arg("tolerance_grad"),
          nb::arg("tolerance_change"), nb::arg("history_size"), nb::arg("strong_wolfe"))
      .def(
          "step",
          [](LBFGS& o, const nb::callable& closure) { return o.step([&] { return nb::cast<double>(closure()); }); },
          nb::arg("closure"), nb::sig("def step(self, closure: typing.Callable[[], float]) -> float"),
          "Iterations, each of calls of a function that gives the loss; that of the first call.")
      .def(
          "state_dict", [](LBFGS& o) { return to_dict(o.state_dict()); }, "The history, as tensors by name.")
      .def(
          "load_state_dict",
          [](LBFGS& o, const std::vector<std::pair<std::string, Tensor>>& state) {
            o.load_state_dict(optim::StateDict(state.begin(), state.end()));
          },
          "Copies a state_dict(), as (name, tensor).");
  using optim::LrSchedule;
  using optim::Plateau;
  nb::class_<LrSchedule>(m, "LrSchedule", "One of PyTorch's learning-rate schedules, as a function of a step.")
      .def(
          "__init__",
          [](LrSchedule* self, const std::string& name, const nb::dict& options) {
            std::vector<std::pair<std::string, optim::ScheduleValue>> values;
            for (const auto& [key, value] : options) {
              double number = 0;
              std::string text;
              std::vector<double> list;
              if (nb::isinstance<nb::str>(value)) {
                values.emplace_back(nb::cast<std::string>(key), nb::cast<std::string>(value));
              } else if (nb::try_cast(value, number)) {
                values.emplace_back(nb::cast<std::string>(key), number);
              } else if (nb::try_cast(value, list)) {
                values.emplace_back(nb::cast<std::string>(key), list);
              } else {
                throw nb::type_error(
                    (name + ": " + nb::cast<std::string>(key) + " has a value of the wrong type").c_str());
              }
            }
            new (self) LrSchedule(name, values);
          },
          nb::arg("name"), nb::arg("options"))
      .def("__call__", &LrSchedule::operator(), nb::arg("step"), nb::arg("base"), "The rate of a step.")
      .def("next", &LrSchedule::next, nb::arg("step"), nb::arg("now"), nb::arg("base"),
           "The rate of a step after that of the one before.")
      .def("momentum", &LrSchedule::momentum, nb::arg("step"), "The momentum of a step.");
  nb::class_<Plateau>(m, "Plateau", "Says when a quantity has not become better for a while.")
      .def(
          "__init__",
          [](Plateau* self, bool largest, double factor, int64_t patience, double threshold, bool relative,
             int64_t cooldown, double eps, double best, int64_t bad, int64_t cooling) {
            new (self) Plateau{largest, factor, patience, threshold, relative, cooldown, eps, best, bad, cooling};
            self->validate();
          },
          nb::arg("largest"), nb::arg("factor"), nb::arg("patience"), nb::arg("threshold"), nb::arg("relative"),
          nb::arg("cooldown"), nb::arg("eps"), nb::arg("best"), nb::arg("bad"), nb::arg("cooling"))
      .def("step", &Plateau::step, nb::arg("value"), "Takes the newest value; whether rates go down now.")
      .def("lowered", &Plateau::lowered, nb::arg("lr"), nb::arg("least"), "A rate lowered.")
      .def_ro("best", &Plateau::best)
      .def_ro("bad", &Plateau::bad)
      .def_ro("cooling", &Plateau::cooling);
  m.def("_schedule_records", &optim::schedules_json, "The schedules' records, as JSON.");
  m.def("_optimizer_records", &optim::optimizers_json, "The optimizers' records, as JSON.");
  // First values (strata/nn/init.h); each writes over its tensor.
  namespace init = nn::init;
  m.def("_calculate_gain", &init::calculate_gain, nb::arg("nonlinearity"), nb::arg("param"));
  m.def("_fans", &init::fans, nb::arg("tensor"));
  m.def("_xavier_uniform_", [](const Tensor& t, double gain) { init::xavier_uniform_(t, gain); });
  m.def("_xavier_normal_", [](const Tensor& t, double gain) { init::xavier_normal_(t, gain); });
  m.def("_kaiming_uniform_", [](const Tensor& t, double a, const std::string& mode, const std::string& nonlinearity) {
    init::kaiming_uniform_(t, a, mode, nonlinearity);
  });
  m.def("_kaiming_normal_", [](const Tensor& t, double a, const std::string& mode, const std::string& nonlinearity) {
    init::kaiming_normal_(t, a, mode, nonlinearity);
  });
  m.def("_orthogonal_", [](const Tensor& t, double gain) { init::orthogonal_(t, gain); });
  m.def("_eye_", [](const Tensor& t) { init::eye_(t); });
  m.def("_dirac_", [](const Tensor& t, int64_t groups) { init::dirac_(t, groups); });
  m.def("_sparse_", [](const Tensor& t, double sparsity, double std) { init::sparse_(t, sparsity, std); });
  m.def(
      "grad_norm", [](const TensorList& params, double p) { return optim::grad_norm(params, p); }, Release(),
      nb::arg("params"), nb::arg("p") = 2.0, "The norm of all gradients together.");
  m.def(
      "clip_grad_norm",
      [](const TensorList& params, double max_norm, double p) { return optim::clip_grad_norm(params, max_norm, p); },
      Release(), nb::arg("params"), nb::arg("max_norm"), nb::arg("p") = 2.0,
      "Scales the gradients in place so that their joint norm is at most max_norm; the norm before.");
  m.def("clip_grads_with_norm", &optim::clip_grads_with_norm, Release(), nb::arg("params"), nb::arg("max_norm"),
        nb::arg("total_norm"), "Scales the gradients in place by max_norm / total_norm, where that is below 1.");
  m.def("update_averages", &nn::update_averages, Release(), nb::arg("means"), nb::arg("values"), nb::arg("count"),
        nb::arg("decay") = nb::none(),
        "Takes values into means of `count` values (or with `decay` exponential ones), in place.");
  m.def("clip_grad_value", &optim::clip_grad_value, Release(), nb::arg("params"), nb::arg("max"),
        "Clamps every element of the gradients to [-max, max], in place.");
}

}  // namespace strata::python
