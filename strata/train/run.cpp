#include "strata/train/run.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include <fmt/format.h>
#include <sys/stat.h>

#include "strata/io/checkpoint.h"
#include "strata/io/files.h"
#include "strata/nn/convert.h"
#include "strata/optim/adafactor.h"
#include "strata/optim/adam.h"
#include "strata/optim/adaptive.h"
#include "strata/optim/composed.h"
#include "strata/optim/lion.h"
#include "strata/optim/muon.h"
#include "strata/optim/sgd.h"

namespace strata {
namespace {

constexpr const char* kModelFile = "model";
constexpr const char* kOptimizerFile = "optimizer";
constexpr const char* kRecordedStep = "/step.recording";

const std::string& entry(const io::Checkpoint& c, const std::string& path, const std::string& key) {
  const auto it = c.state.find(key);
  check<IoError>(it != c.state.end(), path, "the checkpoint has no '", key, "': it was not written by strata train");
  return it->second;
}

template <class T>
T number(const std::string& text, const std::string& path, const char* key) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check<IoError>(error == std::errc() && end == text.data() + text.size(), path, "'", key, "' is '", text,
                 "', which is no number");
  return value;
}

// Every setting of the rule that the configuration has a key of the same name for.
template <class Options>
Options options_of(const OptimConfig& c, const optim::LowPrecision& low) {
  Options o;
  o.low = low;
  o.lr = c.lr;
#define STRATA_TAKE(name) \
  if constexpr (requires { o.name; }) o.name = c.name
  STRATA_TAKE(weight_decay);
  STRATA_TAKE(beta1);
  STRATA_TAKE(beta2);
  STRATA_TAKE(eps);
  STRATA_TAKE(amsgrad);
  STRATA_TAKE(momentum);
  STRATA_TAKE(nesterov);
  STRATA_TAKE(alpha);
  STRATA_TAKE(centered);
  STRATA_TAKE(rho);
  STRATA_TAKE(lr_decay);
  STRATA_TAKE(initial_accumulator_value);
  STRATA_TAKE(momentum_decay);
  STRATA_TAKE(decoupled_weight_decay);
  STRATA_TAKE(etaminus);
  STRATA_TAKE(etaplus);
  STRATA_TAKE(step_size_min);
  STRATA_TAKE(step_size_max);
  STRATA_TAKE(lambd);
  STRATA_TAKE(t0);
#undef STRATA_TAKE
  if constexpr (std::is_same_v<Options, optim::ASGDOptions>) o.alpha = c.asgd_alpha;  // RMSprop's is another thing
  return o;
}

// Matrices with their options, and vectors with the same but for weight decay.
template <class O, class Options>
std::unique_ptr<optim::Optimizer> two_groups(const OptimConfig& c, const optim::NamedTensors& parameters,
                                             const optim::LowPrecision& low) {
  const auto options = options_of<Options>(c, low);
  auto [matrices, vectors] = optim::split_by_rank(parameters);
  Options undecayed = options;
  if constexpr (requires { undecayed.weight_decay; }) undecayed.weight_decay = 0;
  return std::make_unique<O>(std::vector<optim::ParamGroup<Options>>{{matrices, options}, {vectors, undecayed}});
}

std::unique_ptr<optim::Optimizer> make_muon(const OptimConfig& c, const optim::NamedTensors& parameters,
                                            const optim::LowPrecision& low) {
  auto o = options_of<optim::MuonOptions>(c, low);
  const optim::MuonOptions defaults;
  o.nesterov = defaults.nesterov;
  o.match_rms_adamw = true;  // one learning rate for what is AdamW's too
  o.eps = defaults.eps;      // of the iteration; train.eps is AdamW's
  o.adamw_eps = c.eps;
  optim::MuonOptions undecayed = o;
  undecayed.weight_decay = 0;
  // Tables of vectors are no linear maps: AdamW moves them.
  optim::MuonOptions table = o;
  table.use_adamw = true;
  optim::NamedTensors maps, tables, vectors;
  for (const auto& p : parameters) {
    const bool is_table = p.first.find("embedding") != std::string::npos || p.first == "head.weight";
    (p.second.dim() < 2 ? vectors : is_table ? tables : maps).push_back(p);
  }
  return std::make_unique<optim::Muon>(
      std::vector<optim::ParamGroup<optim::MuonOptions>>{{maps, o}, {tables, table}, {vectors, undecayed}});
}

// By the name in train.optimizer.
constexpr struct {
  std::string_view name;
  std::unique_ptr<optim::Optimizer> (*make)(const OptimConfig&, const optim::NamedTensors&, const optim::LowPrecision&);
} kOptimizers[] = {
    {"sgd", two_groups<optim::SGD, optim::SGDOptions>},
    {"adam", two_groups<optim::Adam, optim::AdamOptions>},
    {"adamw", two_groups<optim::AdamW, optim::AdamWOptions>},
    {"lion", two_groups<optim::Lion, optim::LionOptions>},
    {"adafactor", two_groups<optim::Adafactor, optim::AdafactorOptions>},
    {"muon", make_muon},
    {"rmsprop", two_groups<optim::RMSprop, optim::RMSpropOptions>},
    {"adagrad", two_groups<optim::Adagrad, optim::AdagradOptions>},
    {"adadelta", two_groups<optim::Adadelta, optim::AdadeltaOptions>},
    {"adamax", two_groups<optim::Adamax, optim::AdamaxOptions>},
    {"nadam", two_groups<optim::NAdam, optim::NAdamOptions>},
    {"radam", two_groups<optim::RAdam, optim::RAdamOptions>},
    {"rprop", two_groups<optim::Rprop, optim::RpropOptions>},
    {"asgd", two_groups<optim::ASGD, optim::ASGDOptions>},
};

bool is_checkpoint(const std::string& path) {
  struct stat s {};
  return ::stat((path + "/state.json").c_str(), &s) == 0;
}

}  // namespace

std::shared_ptr<LanguageModel> make_model(const TrainConfig& config) {
  auto model = make_model(config.model);
  nn::convert_parameters(*model, parse_dtype(config.param_dtype));
  return model;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const OptimConfig& c, const optim::NamedTensors& parameters,
                                                 uint64_t seed) {
  const optim::LowPrecision low{.master_weights = c.param_update == "master",
                                .stochastic_rounding = c.param_update == "stochastic",
                                .low_state = c.low_state,
                                .seed = seed};
  for (const auto& [name, make] : kOptimizers)
    if (c.optimizer == name) return make(c, parameters, low);
  throw ValueError("make_optimizer", "unknown optimizer '" + c.optimizer + "'");
}

bool decays_gradient(const OptimConfig& c) {
  if (c.optimizer == "nadam" || c.optimizer == "radam") return !c.decoupled_weight_decay;
  for (const std::string_view apart : {"adamw", "lion", "adafactor", "muon", "rprop"})
    if (c.optimizer == apart) return false;
  return true;
}

optim::Schedule make_schedule(const OptimConfig& c, int64_t steps) {
  optim::Schedule s;
  s.kind = optim::Schedule::kind_of(c.schedule);
  s.lr = c.lr;
  s.total = steps;
  s.warmup = std::min(c.warmup, steps);
  s.decay =
      std::min(steps - s.warmup, static_cast<int64_t>(std::llround(c.decay_fraction * static_cast<double>(steps))));
  s.min_ratio = c.min_lr;
  s.validate();
  return s;
}

std::string save_run(const std::string& out, const RunState& state, const LanguageModel& model,
                     const optim::Optimizer& optimizer, int keep_last) {
  std::map<std::string, std::string> texts{{"config", to_toml(state.config)},
                                           {"tokenizer", state.tokenizer},
                                           {"tokens", std::to_string(state.tokens)},
                                           {"elapsed_s", fmt::format("{:.3f}", state.elapsed_s)},
                                           {"rng_seed", std::to_string(state.rng.seed)},
                                           {"rng_offset", std::to_string(state.rng.offset)},
                                           {"sampler", data::to_string(state.sampler)}};
  if (state.log.lines >= 0) texts["log"] = to_string(state.log);
  if (state.text != 0) texts["text"] = std::to_string(state.text);
  if (state.loss_scale.size() == 2) {
    texts["loss_scale"] = fmt::format("{}", state.loss_scale[0]);
    texts["loss_scale_steps"] = fmt::format("{}", state.loss_scale[1]);
  }
  return io::save_checkpoint(
      out, state.step, {{kModelFile, model.state_dict()}, {kOptimizerFile, optimizer.state_dict()}}, texts, keep_last);
}

bool has_run(const std::string& out) {
  return !io::list_checkpoints(out).empty();
}

FoundRun find_run(const std::string& path, std::vector<std::string>* warnings) {
  FoundRun run{.path = path, .state = {}, .checkpoint = {}};
  if (!is_checkpoint(path)) {
    struct stat s {};
    check<IoError>(::stat(path.c_str(), &s) == 0, path, "no such folder");
    check<IoError>(S_ISDIR(s.st_mode), path, "a file; wanted the folder of a run or of a checkpoint");
    std::vector<std::string> bad;
    auto found = io::find_latest_checkpoint(path, &bad);
    check<IoError>(found.has_value(), path,
                   bad.empty() ? "it holds no checkpoint" : "no checkpoint is whole: the " + bad.front());
    if (warnings) warnings->insert(warnings->end(), bad.begin(), bad.end());
    run.path = found->path;
    run.checkpoint = std::move(*found);
  } else {
    run.checkpoint = io::open_checkpoint(path);
  }
  const io::Checkpoint c = io::load_checkpoint_state(run.checkpoint);
  RunState& s = run.state;
  s.config = parse_config(entry(c, run.path, "config"), run.path + ": config", {}, Unread::dropped);
  s.tokenizer = entry(c, run.path, "tokenizer");
  s.step = c.step;
  s.tokens = number<int64_t>(entry(c, run.path, "tokens"), run.path, "tokens");
  s.elapsed_s = number<double>(entry(c, run.path, "elapsed_s"), run.path, "elapsed_s");
  s.rng.seed = number<uint64_t>(entry(c, run.path, "rng_seed"), run.path, "rng_seed");
  s.rng.offset = number<uint64_t>(entry(c, run.path, "rng_offset"), run.path, "rng_offset");
  s.sampler = data::parse_sampler_state(entry(c, run.path, "sampler"));
  if (c.state.contains("log")) s.log = parse_log_mark(entry(c, run.path, "log"));
  if (c.state.contains("text")) s.text = number<uint64_t>(entry(c, run.path, "text"), run.path, "text");
  if (c.state.contains("loss_scale"))
    s.loss_scale = {number<double>(entry(c, run.path, "loss_scale"), run.path, "loss_scale"),
                    number<double>(entry(c, run.path, "loss_scale_steps"), run.path, "loss_scale_steps")};
  return run;
}

void load_run(const FoundRun& run, LanguageModel& model, optim::Optimizer* optimizer) {
  std::vector<std::string> files{kModelFile};
  if (optimizer) files.push_back(kOptimizerFile);
  const io::Checkpoint c = io::load_checkpoint(run.checkpoint, files);
  const auto tensors = [&](const char* file) -> const io::TensorMap& {
    const auto it = c.files.find(file);
    check<IoError>(it != c.files.end(), run.path, "the checkpoint has no ", file, ".safetensors");
    return it->second;
  };
  model.load_state_dict(tensors(kModelFile));
  if (optimizer) optimizer->load_state_dict(tensors(kOptimizerFile));
}

void write_recorded_step(const std::string& out, const Recording& step) {
  io::write_file(out + kRecordedStep, step.to_text());
}

std::optional<Recording> read_recorded_step(const std::string& out) {
  struct stat s {};
  if (::stat((out + kRecordedStep).c_str(), &s) != 0) return std::nullopt;
  return Recording::from_text(io::read_file(out + kRecordedStep));
}

TrainedModel load_trained_model(const std::string& path, std::vector<std::string>* warnings) {
  const FoundRun run = find_run(path, warnings);
  TrainedModel trained{.config = run.state.config, .step = run.state.step, .tokenizer = {}, .model = {}};
  trained.tokenizer = text::parse_tokenizer(run.state.tokenizer, run.path + ": tokenizer");
  trained.model = make_model(trained.config.model);
  load_run(run, *trained.model, nullptr);
  trained.model->eval();
  return trained;
}

}  // namespace strata
