#include "strata/train/run.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <sys/stat.h>

#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/cuda/libraries.h"
#include "strata/dist/collectives/placed.h"
#include "strata/io/checkpoint.h"
#include "strata/io/files.h"
#include "strata/io/hash.h"
#include "strata/io/read_ahead.h"
#include "strata/memory/allocator.h"
#include "strata/nn/init.h"
#include "strata/ops/factory/factory.h"
#include "strata/optim/home.h"
#include "strata/optim/record.h"
#include "strata/train/fine_tune_inl.h"
#include "strata/train/model_pipeline_inl.h"
#include "strata/train/rehearse.h"

namespace strata {
namespace {

constexpr const char* kModelFile = "model";
constexpr const char* kOptimizerFile = "optimizer";
constexpr const char* kRecordedStep = "/step.recording";
constexpr const char* kTrace = "/step.trace.json";

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

// The rule's options that the configuration has a key for.
optim::OptionValues options_of(const OptimConfig& c, const optim::OptimizerRecord& record) {
  optim::OptionValues options{{"lr", c.lr}};
  if (record.option("weight_decay")) options["weight_decay"] = c.weight_decay;
  for (const optim::OptimizerOption& o : record.options) {
    const std::string key(o.key.empty() ? o.name : o.key);
    if (key != "-") options.emplace(o.name, c.rule.at(key));
  }
  options["master_weights"] = c.param_update == "master";
  options["stochastic_rounding"] = c.param_update == "stochastic";
  options["low_state"] = c.low_state;
  options["compensated_weights"] = c.param_update == "compensated";
  options["state_8bit"] = c.state_8bit;
  return options;
}

bool is_checkpoint(const std::string& path) {
  struct stat s {};
  return ::stat((path + "/state.json").c_str(), &s) == 0;
}

}  // namespace

std::shared_ptr<LanguageModel> make_model(const TrainConfig& config) {
  return decoder_of(make_tuned_model(config), "model.init");
}

std::unique_ptr<optim::Optimizer> make_optimizer(const OptimConfig& c, const optim::NamedTensors& parameters,
                                                 uint64_t seed, const std::set<std::string>& tables) {
  const optim::OptimizerRecord& record = optim::optimizer_record(c.optimizer);
  optim::OptionValues options = options_of(c, record);
  options["rounding_seed"] = static_cast<int64_t>(seed);
  return record.make(record, optim::training_groups(record, parameters, options, tables));
}

bool decays_gradient(const OptimConfig& c) {
  const optim::OptimizerRecord& record = optim::optimizer_record(c.optimizer);
  if (!record.option("weight_decay")) return false;
  if (!record.decoupled) return true;
  const auto optimizer = record.make(record, {{{}, options_of(c, record)}});  // which has a struct of these options
  return !record.decoupled(optimizer->raw_options(0));
}

optim::RunSchedule make_schedule(const OptimConfig& c, int64_t steps) {
  using optim::OfRun;
  const optim::ScheduleRecord& record = optim::schedule_record(c.schedule);
  const bool warms =
      std::ranges::find(record.options, OfRun::warmup, &optim::ScheduleOption::of_run) != record.options.end();
  const int64_t warmup = std::min(c.warmup, steps), before = warms || record.rises ? 0 : warmup;
  const int64_t decay =
      std::min(steps - warmup, static_cast<int64_t>(std::llround(c.decay_fraction * static_cast<double>(steps))));
  auto options = optim::schedule_options(record, c.schedule_options);
  for (const optim::ScheduleOption& o : record.options) {
    const auto is_o = [&](const auto& given) { return given.first == o.name; };
    if (o.of_run == OfRun::nothing || std::ranges::any_of(options, is_o)) continue;
    const double value = o.of_run == OfRun::steps       ? static_cast<double>(std::max<int64_t>(steps - before, 1))
                         : o.of_run == OfRun::warmup    ? static_cast<double>(warmup)
                         : o.of_run == OfRun::decay     ? static_cast<double>(decay)
                         : o.of_run == OfRun::min_ratio ? c.min_lr
                         : o.of_run == OfRun::lr        ? c.lr
                                                        : c.lr * c.min_lr;
    options.emplace_back(o.name, value);
  }
  return {optim::LrSchedule(record.name, options), c.lr, before};
}

namespace {
// All of what lies in parts, where it is `kept`. Every rank that has a part calls it.
nn::StateDict gathered(nn::StateDict tensors, bool kept) {
  const NoGrad guard;
  for (auto& [name, t] : tensors) {
    t = distributed::full_tensor(t);
    if (!kept) t = Tensor();
  }
  return tensors;
}
}  // namespace

std::string save_run(const std::string& out, const RunState& state, const nn::Module& model,
                     const optim::Optimizer& optimizer, int keep_last, const ModelPipeline* stages, bool writes) {
  nn::StateDict weights = kept_state(model, state.config), states = optimizer.state_dict();
  if (stages) {
    weights = stages->gathered(weights);
    states = stages->gathered(states);
    if (weights.empty()) return {};
  } else {
    weights = gathered(std::move(weights), writes);
    states = gathered(std::move(states), writes);
    if (!writes) return {};
  }
  std::map<std::string, std::string> texts{{"config", to_toml(state.config)},
                                           {"tokenizer", state.tokenizer},
                                           {"tokens", std::to_string(state.tokens)},
                                           {"elapsed_s", fmt::format("{:.3f}", state.elapsed_s)},
                                           {"rng_seed", std::to_string(state.rng.seed)},
                                           {"rng_offset", std::to_string(state.rng.offset)},
                                           {"sampler", data::to_string(state.sampler)}};
  if (state.log.lines >= 0) texts["log"] = to_string(state.log);
  if (state.text != 0) texts["text"] = std::to_string(state.text);
  if (state.base != 0) texts["base"] = io::to_hex(state.base);
  if (state.loss_scale.size() == 2) {
    texts["loss_scale"] = fmt::format("{}", state.loss_scale[0]);
    texts["loss_scale_steps"] = fmt::format("{}", state.loss_scale[1]);
  }
  return io::save_checkpoint(out, state.step, {{kModelFile, weights}, {kOptimizerFile, states}}, texts, keep_last);
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
  if (c.state.contains("base"))
    check<IoError>(io::parse_hex(entry(c, run.path, "base"), s.base), run.path, "'base' is no checksum");
  if (c.state.contains("text")) s.text = number<uint64_t>(entry(c, run.path, "text"), run.path, "text");
  if (c.state.contains("loss_scale"))
    s.loss_scale = {number<double>(entry(c, run.path, "loss_scale"), run.path, "loss_scale"),
                    number<double>(entry(c, run.path, "loss_scale_steps"), run.path, "loss_scale_steps")};
  return run;
}

void check_base(const FoundRun& run, const nn::Module& model) {
  if (run.state.base == 0) return;
  const uint64_t now = base_checksum(model, run.state.config);
  check<IoError>(now == run.state.base, run.path, "it was trained on other weights than '", run.state.config.init,
                 "' holds now (their checksum is ", io::to_hex(now), ", it was ", io::to_hex(run.state.base), ")");
}

void load_run(const FoundRun& run, nn::Module& model, optim::Optimizer* optimizer) {
  const TensorList parameters = model.parameters();
  const auto away = [](const Tensor& t) { return t.device().is_meta(); };  // in another rank's stage
  const auto here = std::ranges::find_if_not(parameters, away);
  const bool stages = std::ranges::any_of(parameters, away) && here != parameters.end();
  const Device device = stages ? here->device() : parameters.front().device();
  const auto read = [&](const char* file, const io::TensorMap& into, Device where) {
    io::Checkpoint c = io::load_checkpoint(run.checkpoint, {file}, {{file, into}}, where);
    return std::move(c.files.at(file));
  };
  // Straight into its parameters; those that come from model.init are there already.
  const nn::StateDict kept = kept_state(model, run.state.config);
  nn::StateDict into = kept;  // what lies in parts is read as a whole, then cut
  std::erase_if(into, [&](const auto& entry) { return is_placed(entry.second) || (stages && away(entry.second)); });
  io::TensorMap found = read(kModelFile, into, device);
  for (const auto& [name, t] : kept)
    check<IoError>(found.contains(name), run.path, "the model's file has no '", name, "'");
  for (const auto& [name, t] : found)
    check<IoError>(kept.contains(name), run.path, "the model has no place for '", name, "'");
  if (stages) std::erase_if(found, [&](const auto& entry) { return away(kept.at(entry.first)); });
  model.load_state_dict(found, false);
  if (!optimizer) return;
  const memory::TagScope tag(memory::Tag::optimizer);
  // Straight to where it lives.
  const optim::StateHome home = optimizer->home();
  const Device where = home.who == optim::StateHome::Who::device ? device : Device::cpu();
  const Tier tier = home.where == Tier::host ? (where.is_cuda() ? Tier(Tier::pinned) : Tier()) : home.where;
  const memory::TierScope there(tier);
  io::TensorMap states = read(kOptimizerFile, {}, where);
  const optim::NamedTensors updated = optimizer->params();
  if (stages)
    std::erase_if(states, [&](const auto& entry) {
      return std::ranges::none_of(updated, [&](const auto& p) { return entry.first.starts_with(p.first + '.'); });
    });
  optimizer->take_state_dict(std::move(states));
}

void write_recorded_step(const std::string& out, const Recording& step) {
  io::write_file(out + kRecordedStep, step.to_text());
}

std::optional<Recording> read_recorded_step(const std::string& out) {
  struct stat s {};
  if (::stat((out + kRecordedStep).c_str(), &s) != 0) return std::nullopt;
  return Recording::from_text(io::read_file(out + kRecordedStep));
}

void write_trace(const std::string& out, const lab::Trace& trace) {
  const std::string path = out + kTrace;
  std::error_code none;
  if (trace.tracks.empty()) {
    std::filesystem::remove(path, none);
  } else {
    io::write_file(path, trace.to_chrome_json());
  }
}

lab::Trace read_trace(const std::string& out) {
  std::error_code none;
  if (!std::filesystem::exists(out + kTrace, none)) return {};
  return lab::Trace::from_chrome_json(io::read_file(out + kTrace));
}

namespace {
// A text of the prompt's length and a token after it, through weights that are not there yet: libraries and kernels are
// loaded while the disk reads.
void rehearse(const LanguageModel& model, size_t prompt) {
  const int64_t most = model.context() - 1;
  if (prompt == 0 || most < 1) return;
  ModelCache cache = model.make_cache(1);
  for (const int64_t n : {std::min(static_cast<int64_t>(prompt), most), int64_t{1}})
    model.next_logits(zeros({1, n}, DType::i64).to(model.device()), cache).to_vector<float>();
}

TrainedModel load_trained(const FoundRun& run, Device device, const std::string& prompt) {
  const io::detail::ReadAhead weights = io::detail::read_ahead(run.checkpoint, {kModelFile});
  TrainedModel trained{.config = run.state.config, .step = run.state.step, .tokenizer = {}, .model = {}};
  trained.tokenizer = text::parse_tokenizer(run.state.tokenizer, run.path + ": tokenizer");
  const nn::init::SkipDraws from_file;
  const DeviceScope there(device);
  TrainConfig as = trained.config;
  if (as.init.empty()) as.param_dtype = "f32";  // else the frozen weights are those that were trained with
  const std::shared_ptr<TokenDecoder> made = make_tuned_model(as);
  trained.model = std::dynamic_pointer_cast<LanguageModel>(made);
  trained.encoder_decoder = std::dynamic_pointer_cast<EncoderDecoder>(made);
  if (trained.encoder_decoder) trained.start = find_init(as.init).start;
  nn::Module& module = made->as_module();
  check_base(run, module);
  module.eval();
  if (device.is_cuda() && trained.model) rehearse(*trained.model, trained.tokenizer->encode(prompt).size());
  load_run(run, module, nullptr);
  return trained;
}
}  // namespace

TrainedModel load_trained_model(const std::string& path, std::vector<std::string>* warnings, Device device) {
  TrainedModel trained = detail::load_trained_model_for({}, path, warnings, device);
  check(trained.model != nullptr, "load_trained_model", "the run in '", path,
        "' trained a model that reads one text and writes another: strata generate has it answer");
  return trained;
}

std::shared_ptr<TokenDecoder> TrainedModel::writer() const {
  if (encoder_decoder) return encoder_decoder;
  return model;
}

TrainedModel detail::load_trained_model_for(const std::string& prompt, const std::string& path,
                                            std::vector<std::string>* warnings, Device device) {
  const std::jthread libraries = cuda::detail::load_libraries(device);
  // The newest is nearly always whole, and read as it is checked, without what training alone wants. Where it is not,
  // find_run looks at all of it and at the ones before.
  if (const std::vector<std::string> all = io::list_checkpoints(path); !is_checkpoint(path) && !all.empty()) {
    try {
      return load_trained(find_run(all.back()), device, prompt);
    } catch (const IoError&) {
    }
  }
  return load_trained(find_run(path, warnings), device, prompt);
}

}  // namespace strata
