// What a training loop of JavaScript's shares with `strata train`: its log, its progress line, its report, its order of
// samples, the state of the random numbers.

#include <cstdio>

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "strata/core/rng.h"
#include "strata/data/sampler.h"
#include "strata/io/files.h"
#include "strata/train/machine.h"
#include "strata/train/metrics.h"
#include "strata/train/progress.h"
#include "strata/train/report.h"

namespace strata::node {
namespace {

// As in metrics.jsonl.
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
napi_value from_metrics(Env& env, const StepMetrics& m) {
  napi_value o = env.object();
  env.set(o, "step", env.integer(m.step));
  env.set(o, "tokens", env.integer(m.tokens));
  for (const Field& f : kFields)
    if (m.*f.value == m.*f.value) env.set(o, f.name, env.number(m.*f.value));
  return o;
}
StepMetrics to_metrics(Env& env, napi_value o) {
  StepMetrics m;
  m.step = env.whole(env.get(o, "step"), "metrics", "step");
  if (napi_value tokens = env.get(o, "tokens"); !env.missing(tokens)) m.tokens = env.whole(tokens, "metrics", "tokens");
  for (const Field& f : kFields)
    if (napi_value v = env.get(o, f.name); !env.missing(v)) m.*f.value = env.real(v, "metrics", f.name);
  return m;
}

// newMetrics(path, resumeStep, mark): what it mends it says on the standard error
napi_value new_metrics(Call& c) {
  const LogMark mark = c.env.missing(c[2]) ? LogMark{} : parse_log_mark(c.env.text(c[2], "metrics", "the mark"));
  const std::string path = c.env.text(c[0], "metrics", "the path");
  io::remove_leftovers(io::parent_directory(path));  // of a run that was killed
  std::vector<std::string> notes;
  auto log = std::make_shared<MetricsWriter>(path, c.env.whole(c[1], "metrics", "the step"), mark, &notes);
  for (const std::string& n : notes) std::fprintf(stderr, "%s\n", n.c_str());
  return c.env.boxed(log);
}
// metricsMark(metrics): what the log holds now, for a checkpoint
napi_value mark_metrics(Call& c) {
  return c.env.string(to_string((*c.env.handle<std::shared_ptr<MetricsWriter>>(c[0]))->mark()));
}
napi_value write_metrics(Call& c) {
  (*c.env.handle<std::shared_ptr<MetricsWriter>>(c[0]))->write(to_metrics(c.env, c[1]));
  return c.env.undefined();
}
napi_value metrics_of(Call& c) {
  const std::vector<StepMetrics> steps = read_metrics(c.env.text(c[0], "readMetrics", "the path"));
  napi_value list = c.env.array(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) c.env.put(list, static_cast<uint32_t>(i), from_metrics(c.env, steps[i]));
  return list;
}

// newProgress(steps, step, elapsed)
napi_value new_progress(Call& c) {
  auto progress =
      std::make_shared<Progress>(c.env.whole(c[0], "progress", "the number of steps"), stderr, 10.0, "samples");
  const int64_t step = c.env.whole(c[1], "progress", "the step");
  if (step > 0) progress->resume(step, c.env.real(c[2], "progress", "the time"));
  return c.env.boxed(progress);
}
Progress& progress_of(Call& c) {
  return **c.env.handle<std::shared_ptr<Progress>>(c[0]);
}
napi_value progress_update(Call& c) {
  progress_of(c).update(to_metrics(c.env, c[1]));
  return c.env.undefined();
}
napi_value progress_note(Call& c) {
  progress_of(c).note(c.env.text(c[1], "progress", "the text"));
  return c.env.undefined();
}
napi_value progress_finish(Call& c) {
  progress_of(c).finish();
  return c.env.undefined();
}

// writeReport(path, {title, status, metrics: path, steps, parameters, network, settings, notes}), the last two as lists
// of pairs.
napi_value report(Call& c) {
  Env& env = c.env;
  const auto text = [&](const char* key) { return env.text(env.get(c[1], key), "report", key); };
  const auto pairs = [&](const char* key) {
    std::vector<std::pair<std::string, std::string>> list;
    env.for_each(env.get(c[1], key), [&](napi_value pair, uint32_t) {
      std::vector<std::string> both = env.texts(pair, "report", key);
      check(both.size() == 2, "report", key, " must hold pairs");
      list.emplace_back(std::move(both[0]), std::move(both[1]));
    });
    return list;
  };
  ReportInput in;
  in.title = text("title");
  in.status = text("status");
  std::vector<std::string> broken;  // somebody else wrote there: no reason to lose the report
  in.metrics = read_metrics(text("metrics"), &broken);
  in.config.steps = env.whole(env.get(c[1], "steps"), "report", "steps");
  in.machine = machine_info();
  in.parameters = env.whole(env.get(c[1], "parameters"), "report", "parameters");
  in.network = text("network");
  in.settings = pairs("settings");
  in.notes = pairs("notes");
  in.unit = "samples";
  write_report(env.text(c[0], "report", "the path"), in);
  return env.undefined();
}

// sampleOrder(size, seed, epoch): the numbers below size in an order that the others decide, as a tensor.
napi_value sample_order(Call& c) {
  const int64_t size = c.env.whole(c[0], "sampleOrder", "size");
  data::Sampler sampler(size, static_cast<uint64_t>(c.env.whole(c[1], "sampleOrder", "seed")), true);
  sampler.set_state({static_cast<uint64_t>(c.env.whole(c[1], "sampleOrder", "seed")),
                     c.env.whole(c[2], "sampleOrder", "epoch"), 0, size});
  Tensor order = empty(TensorMeta{{size}, DType::i64, Device::cpu(), std::nullopt});
  for (int64_t i = 0; i < size; ++i) order.data<int64_t>()[i] = sampler.next().index;
  return wrap(c.env, std::move(order));
}

napi_value get_random_state(Call& c) {
  const RngKey key = default_generator().state();
  napi_value o = c.env.object();
  c.env.set(o, "seed", c.env.made(napi_create_bigint_uint64, key.seed));
  c.env.set(o, "offset", c.env.made(napi_create_bigint_uint64, key.offset));
  return o;
}
napi_value set_random_state(Call& c) {
  const auto part = [&](const char* name) {
    uint64_t u = 0;
    bool lossless = false;
    c.env.check(napi_get_value_bigint_uint64(c.env.env, c.env.get(c[0], name), &u, &lossless));
    check(lossless, "setRandomState", name, " must fit into 64 bits without a sign");
    return u;
  };
  RngKey key;
  key.seed = part("seed");
  key.offset = part("offset");
  default_generator().set_state(key);
  return c.env.undefined();
}

}  // namespace

void add_runs(Env& env, napi_value exports) {
  env.add(exports, {{"newMetrics", entry<new_metrics>},
                    {"metricsMark", entry<mark_metrics>},
                    {"writeMetrics", entry<write_metrics>},
                    {"readMetrics", entry<metrics_of>},
                    {"newProgress", entry<new_progress>},
                    {"progressUpdate", entry<progress_update>},
                    {"progressNote", entry<progress_note>},
                    {"progressFinish", entry<progress_finish>},
                    {"writeReport", entry<report>},
                    {"sampleOrder", entry<sample_order>},
                    {"randomState", entry<get_random_state>},
                    {"setRandomState", entry<set_random_state>}});
}

}  // namespace strata::node
