// The engine's training loop, its log, report and progress line, and the language models that it trains.

#include <cstdio>

#include "py.h"
#include "strata/core/node.h"
#include "strata/io/files.h"
#include "strata/generate/sampling.h"
#include "strata/memory/budget.h"
#include "strata/train/metrics.h"
#include "strata/train/plan/plan.h"
#include "strata/train/progress.h"
#include "strata/train/report.h"
#include "strata/train/run.h"
#include "strata/train/trainer.h"
#include "text.h"

namespace strata::python {
namespace {

// ---- settings -------------------------------------------------------------------------------------------------------

const ConfigKey& key_of(std::string_view name) {
  for (const ConfigKey& key : config_keys())
    if (key.name == name) return key;
  check(false, "TrainConfig", "there is no setting '", name, "' (TrainConfig.help() lists all)");
  __builtin_unreachable();
}

nb::object get(TrainConfig& config, const std::string& name) {
  const ConfigKey& key = key_of(name);
  void* field = key.field(config);
  switch (key.type) {
    case ConfigType::integer:
      return nb::int_(*static_cast<int64_t*>(field));
    case ConfigType::number:
      return nb::float_(*static_cast<double*>(field));
    case ConfigType::boolean:
      return nb::bool_(*static_cast<bool*>(field));
    case ConfigType::text:
      break;
  }
  const std::string& text = *static_cast<std::string*>(field);
  return nb::str(text.data(), text.size());
}

template <class T>
void assign(const ConfigKey& key, TrainConfig& config, nb::handle value, const char* wanted) {
  T v{};
  if (!nb::try_cast(value, v)) {
    const std::string text = std::string(key.name) + " is " + wanted + ", not " + nb::inst_name(value).c_str();
    throw nb::type_error(text.c_str());
  }
  *static_cast<T*>(key.field(config)) = std::move(v);
}

void set(TrainConfig& config, const std::string& name, nb::handle value) {
  const ConfigKey& key = key_of(name);
  TrainConfig changed = config;
  switch (key.type) {
    case ConfigType::integer:
      assign<int64_t>(key, changed, value, "an int");
      break;
    case ConfigType::number:
      assign<double>(key, changed, value, "a float");
      break;
    case ConfigType::boolean:
      assign<bool>(key, changed, value, "a bool");
      break;
    case ConfigType::text:
      assign<std::string>(key, changed, value, "a str");
      break;
  }
  config = changed;
}

// ---- steps ----------------------------------------------------------------------------------------------------------

struct Field {
  const char* name;
  double StepMetrics::*value;
};
constexpr Field kFields[] = {{"loss", &StepMetrics::loss},
                             {"lr", &StepMetrics::lr},
                             {"grad_norm", &StepMetrics::grad_norm},
                             {"tokens_per_s", &StepMetrics::tokens_per_s},
                             {"elapsed_s", &StepMetrics::elapsed_s},
                             {"valid_loss", &StepMetrics::valid_loss},
                             {"peak_memory", &StepMetrics::peak_memory}};

nb::dict to_dict(const StepMetrics& m) {
  nb::dict d;
  d["step"] = m.step;
  d["tokens"] = m.tokens;
  for (const Field& f : kFields)
    if (m.*f.value == m.*f.value) d[f.name] = m.*f.value;
  return d;
}

StepMetrics to_metrics(const nb::dict& d) {
  StepMetrics m;
  for (auto [key, value] : d) {
    const auto name = cast_argument<std::string>(key, "metrics", "a quantity's name", "a str");
    if (name == "step") {
      m.step = cast_argument<int64_t>(value, "metrics", "step", "an int");
    } else if (name == "tokens") {
      m.tokens = cast_argument<int64_t>(value, "metrics", "tokens", "an int");
    } else {
      const Field* found = nullptr;
      for (const Field& f : kFields)
        if (name == f.name) found = &f;
      check(found != nullptr, "metrics", "there is no quantity '", name, "'");
      m.*(found->value) = cast_argument<double>(value, "metrics", found->name, "a number");
    }
  }
  return m;
}

// ---- training -------------------------------------------------------------------------------------------------------

// What the loop asks after each step, on the thread that trains.
struct Asked {
  PyObject* should_stop = nullptr;
  bool raised = false;
};
thread_local Asked* t_asked = nullptr;

bool stop_requested() {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) return t_asked->raised = true;
  if (!t_asked->should_stop) return false;
  PyObject* answer = PyObject_CallNoArgs(t_asked->should_stop);
  const int stop = answer ? PyObject_IsTrue(answer) : -1;
  Py_XDECREF(answer);
  if (stop < 0) t_asked->raised = true;
  return stop != 0;
}

nb::dict run_training(const TrainConfig& config, const std::string& out, bool resume, bool progress,
                      nb::object should_stop) {
  Asked asked{should_stop.is_none() ? nullptr : should_stop.ptr(), false};
  Asked* outer = std::exchange(t_asked, &asked);
  TrainResult r;
  try {
    PyThreadState* state = PyEval_SaveThread();
    try {
      r = train(config,
                {.out = out, .resume = resume, .stop_requested = &stop_requested, .log = progress ? stderr : nullptr});
    } catch (...) {
      PyEval_RestoreThread(state);
      throw;
    }
    PyEval_RestoreThread(state);
  } catch (...) {
    t_asked = outer;
    throw;
  }
  t_asked = outer;
  // The run was saved; now what stopped it goes on its way: KeyboardInterrupt, or what should_stop() raised.
  if (asked.raised) throw nb::python_error();
  nb::dict d;
  d["step"] = r.step;
  d["last"] = to_dict(r.last);
  d["valid_loss"] = r.valid_loss;
  d["status"] = r.status;
  d["checkpoint"] = r.checkpoint;
  d["peak_memory"] = r.peak_memory;
  d["peak_reserved"] = r.peak_reserved;
  return d;
}

// ---- plans ----------------------------------------------------------------------------------------------------------

// As JSON, for the objects of strata/planning.py, and as the command's table.
std::pair<std::string, std::string> plan_of(const TrainConfig& config, int64_t ranks, const std::string& links,
                                            const std::string& card, int64_t hosts, const std::string& memory,
                                            int64_t rows, bool order) {
  const Released release;
  check(rows >= 1 && rows <= 1000, "plan", "rows are ", rows, ", wanted 1 to 1000");
  const int64_t bytes = memory.empty() ? 0 : memory::parse_bytes(memory, "plan: memory");
  const plan::Machine m = plan::machine_for(config, ranks, {.links = links, .card = card, .hosts = hosts});
  const plan::Plan p =
      plan::plan_layouts(config, ranks, m, {.memory = bytes, .sure = rows, .find_order = order});
  return {plan::to_json(p), m.name + '\n' + plan::to_text(p, static_cast<size_t>(rows))};
}

// ---- models ---------------------------------------------------------------------------------------------------------

struct PyModel {
  std::shared_ptr<LanguageModel> model;
  std::shared_ptr<text::Tokenizer> tokenizer;  // null where there is none yet
  // The ids for which a token stands, 0 for all.
  int64_t known() const { return tokenizer ? tokenizer->vocab_size() : 0; }
};

std::vector<int32_t> generate(const PyModel& m, const std::vector<int32_t>& prompt, int64_t tokens,
                              const SampleOptions& options) {
  const bool training = m.model->is_training();
  std::vector<int32_t> written;
  {
    Released release;
    TokenSampler sampler(m.model, prompt, options);
    for (int64_t i = 0; i < tokens; ++i) {
      written.push_back(sampler.next());
      const nb::gil_scoped_acquire gil;
      if (PyErr_CheckSignals() != 0) break;
    }
  }
  if (training) m.model->train();
  if (PyErr_Occurred()) throw nb::python_error();
  return written;
}

// One generation in progress, token by token.
struct Stream {
  std::shared_ptr<LanguageModel> model;
  TokenSampler sampler;
  int32_t next() {
    Released release;
    return sampler.next();
  }
};

}  // namespace

void bind_train(nb::module_& m) {
  using Release = nb::call_guard<Released>;
  nb::class_<TrainConfig>(m, "TrainConfig", "Everything that a run of `strata train` is determined by.")
      .def(
          "__init__",
          [](TrainConfig* self, const std::string& toml, const std::vector<std::string>& overrides) {
            new (self) TrainConfig(parse_config(toml, "config", overrides));
          },
          nb::arg("toml") = "", nb::arg("overrides") = std::vector<std::string>(),
          "The settings of a TOML text, then `overrides` (\"model.layers=6\") on top.")
      .def_static("load", &load_config, nb::arg("path"), nb::arg("overrides") = std::vector<std::string>(),
                  "The settings of a TOML file.")
      .def_static("help", &config_help, nb::arg("width") = 100, "All settings with their types, defaults and meanings.")
      .def("keys",
           [](const TrainConfig&) {
             std::vector<std::string> names;
             for (const ConfigKey& key : config_keys()) names.emplace_back(key.name);
             return names;
           })
      .def("__getitem__", &get)
      .def("__setitem__", &set)
      .def(
          "validate", [](const TrainConfig& c) { validate(c); }, "Throws ValueError for settings that do not fit.")
      .def("to_toml", [](const TrainConfig& c) { return to_toml(c); })
      .def("copy", [](const TrainConfig& c) { return c; })
      .def("__eq__", [](const TrainConfig& a, const TrainConfig& b) { return a == b; });

  m.def("train", &run_training, nb::arg("config"), nb::arg("out"), nb::arg("resume") = false,
        nb::arg("progress") = true, nb::arg("should_stop") = nb::none(),
        "What `strata train` runs. Ctrl-C saves, then raises KeyboardInterrupt.");

  m.def("plan", &plan_of, nb::arg("config"), nb::arg("ranks"), nb::arg("links"), nb::arg("card"), nb::arg("hosts"),
        nb::arg("memory"), nb::arg("rows"), nb::arg("order"), "What `strata plan` says: as JSON, and as its table.");

  nb::class_<MetricsWriter>(m, "MetricsWriter", "Appends steps to a metrics.jsonl.")
      .def(
          "__init__",
          [](MetricsWriter* self, const std::string& path, int64_t resume_step, const std::string& mark) {
            io::remove_leftovers(io::parent_directory(path));  // of a run that was killed
            std::vector<std::string> notes;
            new (self) MetricsWriter(path, resume_step, parse_log_mark(mark), &notes);
            for (const std::string& n : notes) std::fprintf(stderr, "%s\n", n.c_str());
          },
          nb::arg("path"), nb::arg("resume_step") = 0, nb::arg("mark") = "",
          "Goes on after a step; `mark` is what mark() said then. What it mends it says on the standard error.")
      .def(
          "mark", [](MetricsWriter& w) { return to_string(w.mark()); }, "What the file holds now, for a checkpoint.")
      .def(
          "write", [](MetricsWriter& w, const nb::dict& d) { w.write(to_metrics(d)); }, nb::arg("metrics"));
  m.def(
      "read_metrics",
      [](const std::string& path, bool lenient) {
        nb::list all;
        std::vector<std::string> broken;
        for (const StepMetrics& s : read_metrics(path, lenient ? &broken : nullptr)) all.append(to_dict(s));
        return all;
      },
      nb::arg("path"), nb::arg("lenient") = false,
      "The steps in a metrics.jsonl, each a dictionary; with `lenient` broken lines are left out.");

  nb::class_<Progress>(m, "Progress", "The line that shows how a run is going.")
      .def(
          "__init__",
          [](Progress* self, int64_t steps, double interval, const std::string& unit) {
            new (self) Progress(steps, stderr, interval, unit);
          },
          nb::arg("total_steps"), nb::arg("plain_interval_s") = 10.0, nb::arg("unit") = "tok")
      .def("resume", &Progress::resume, nb::arg("step"), nb::arg("elapsed_s"))
      .def(
          "update", [](Progress& p, const nb::dict& d) { p.update(to_metrics(d)); }, nb::arg("metrics"))
      .def(
          "note", [](Progress& p, const std::string& text) { p.note(text); }, nb::arg("text"))
      .def("finish", &Progress::finish);

  m.def(
      "write_report",
      [](const std::string& path, const std::string& title, const std::string& status, const nb::list& metrics,
         int64_t total_steps, int64_t parameters, const std::string& network,
         const std::vector<std::pair<std::string, std::string>>& settings,
         const std::vector<std::pair<std::string, std::string>>& notes, const std::string& unit) {
        ReportInput in;
        in.title = title;
        in.status = status;
        for (nb::handle step : metrics)
          in.metrics.push_back(to_metrics(cast_argument<nb::dict>(step, "report", "each step of metrics", "a dict")));
        in.config.steps = total_steps;
        in.machine = machine_info();
        in.parameters = parameters;
        in.network = network;
        in.settings = settings;
        in.notes = notes;
        in.unit = unit;
        write_report(path, in);
      },
      nb::arg("path"), nb::arg("title"), nb::arg("status"), nb::arg("metrics"), nb::arg("total_steps"),
      nb::arg("parameters"), nb::arg("network"), nb::arg("settings"), nb::arg("notes"), nb::arg("unit") = "samples",
      "report.html of a network of one's own.");

  nb::class_<Stream>(m, "TokenStream", "A text that is being written, token by token.").def("next", &Stream::next);

  nb::class_<PyModel>(m, "LanguageModel", "A decoder-only language model of the engine's.")
      .def(
          "__init__",
          [](PyModel* self, const TrainConfig& config) {
            new (self) PyModel{make_model(config.model), nullptr};
          },
          nb::arg("config"))
      .def_static(
          "load",
          [](const std::string& path) {
            TrainedModel t;
            {
              Released release;
              t = load_trained_model(path);
            }
            return nb::make_tuple(PyModel{t.model, t.tokenizer}, t.config, t.step);
          },
          nb::arg("path"),
          "The newest checkpoint of a run's folder, or the checkpoint at `path`: (model, config, step).")
      .def_prop_ro("tokenizer",
                   [](const PyModel& p) -> std::optional<PyTokenizer> {
                     if (!p.tokenizer) return std::nullopt;
                     return PyTokenizer{p.tokenizer};
                   })
      .def_prop_ro("context", [](const PyModel& p) { return p.model->context(); })
      .def_prop_ro("vocab", [](const PyModel& p) { return p.model->vocab(); })
      .def("named_parameters", [](const PyModel& p) { return p.model->named_parameters(); })
      .def("named_buffers", [](const PyModel& p) { return p.model->named_buffers(); })
      .def("__str__", [](const PyModel& p) { return p.model->to_string(); })
      .def(
          "forward", [](const PyModel& p, const Tensor& tokens) { return p.model->forward(tokens); }, Release())
      .def(
          "loss", [](const PyModel& p, const Tensor& x, const Tensor& y) { return p.model->loss(x, y); }, Release())
      .def(
          "train", [](const PyModel& p, bool on) { p.model->train(on); }, nb::arg("mode") = true)
      .def(
          "to_device", [](const PyModel& p, Device d) { p.model->to(d); }, Release())
      .def(
          "generate",
          [](const PyModel& p, const std::vector<int32_t>& prompt, int64_t tokens, double temperature, int64_t top_k,
             double top_p, uint64_t seed) {
            return generate(p, prompt, tokens, {temperature, top_k, top_p, seed, p.known()});
          },
          nb::arg("prompt"), nb::arg("tokens") = 200, nb::arg("temperature") = 0.8, nb::arg("top_k") = 0,
          nb::arg("top_p") = 1.0, nb::arg("seed") = 0, "Ids that continue `prompt`.")
      .def(
          "stream",
          [](const PyModel& p, const std::vector<int32_t>& prompt, double temperature, int64_t top_k, double top_p,
             uint64_t seed) {
            return Stream{p.model, TokenSampler(p.model, prompt, {temperature, top_k, top_p, seed, p.known()})};
          },
          nb::arg("prompt"), nb::arg("temperature") = 0.8, nb::arg("top_k") = 0, nb::arg("top_p") = 1.0,
          nb::arg("seed") = 0, "A TokenStream that continues `prompt`.");
}

}  // namespace strata::python
