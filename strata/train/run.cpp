#include "strata/train/run.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <sys/stat.h>

#include "strata/core/placement.h"
#include "strata/cuda/libraries.h"
#include "strata/io/checkpoint.h"
#include "strata/io/checkpoint_writer.h"
#include "strata/io/files.h"
#include "strata/io/hash.h"
#include "strata/io/rank_checkpoint.h"
#include "strata/io/read_ahead.h"
#include "strata/memory/allocator.h"
#include "strata/nn/fully_sharded.h"
#include "strata/nn/init.h"
#include "strata/ops/factory/factory.h"
#include "strata/optim/home.h"
#include "strata/optim/record.h"
#include "strata/train/fine_tune_inl.h"
#include "strata/train/rehearse.h"
#include "strata/train/run_files_inl.h"

namespace strata {
namespace {

constexpr const char* kRecordedStep = "/step.recording";
constexpr const char* kTrace = "/step.trace.json";

using detail::kExchangeFile;
using detail::kModelFile;
using detail::kOptimizerFile;

const std::string& entry(const std::map<std::string, std::string>& texts, const std::string& path,
                         const std::string& key) {
  const auto it = texts.find(key);
  check<IoError>(it != texts.end(), path, "the checkpoint has no '", key, "': it was not written by strata train");
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

// Without what is on the meta device, in another rank's stage; what lies in parts as it lies.
nn::StateDict present(nn::StateDict tensors) {
  std::erase_if(tensors, [](const auto& entry) { return entry.second.is_meta(); });
  for (auto& [name, t] : tensors) t = nn::as_it_lies(t);
  return tensors;
}

// What of a run a rank reads: its model's tensors, and of its parameters the optimizer's states, which lie as they.
io::RankPlaces places_of(const nn::StateDict& kept, const optim::Optimizer* optimizer) {
  std::map<std::string, Tensor, std::less<>> params;
  bool placed = false;
  for (const auto& [name, t] : optimizer ? optimizer->params() : optim::NamedTensors()) {
    placed = placed || is_placed(t);
    params.emplace(name, t);
  }
  const auto owner = [params = std::move(params)](const std::string& state) {
    const auto found = params.find(std::string_view(state).substr(0, state.rfind('.')));
    return found == params.end() ? Tensor() : found->second;
  };
  io::RankPlaces places;
  places.has = [&kept, owner](const std::string& file, const std::string& name) {
    return file == kModelFile ? kept.contains(name) : owner(name).defined();
  };
  if (placed)
    places.layout = [owner](const std::string& file, const std::string& name, const Shape& shape) -> LayoutRef {
      const Tensor p = file == kOptimizerFile ? owner(name) : Tensor();
      return is_placed(p) && p.dim() > 0 && p.shape() == shape ? layout_of(p) : nullptr;
    };
  return places;
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

std::string schedule_change(const TrainConfig& then, const TrainConfig& now, int64_t steps) {
  const optim::RunSchedule before = make_schedule(then.optim, then.steps), after = make_schedule(now.optim, now.steps);
  int64_t first = 0;
  while (first < steps && before(first) == after(first)) ++first;
  if (first == steps) return {};
  static constexpr std::string_view kSchedules[] = {"train.steps",         "train.lr",       "train.min_lr",
                                                    "train.warmup",        "train.schedule", "train.schedule_options",
                                                    "train.decay_fraction"};
  std::string keys;
  for (const ConfigKey& key : config_keys()) {
    if (std::ranges::find(kSchedules, key.name) == std::end(kSchedules)) continue;
    const std::string was = value_text(then, key), is = value_text(now, key);
    if (was != is) keys += fmt::format("{}{} was {} and is {}", keys.empty() ? "" : ", ", key.name, was, is);
  }
  return fmt::format(
      "{}: the schedule is another one, by which step {} would have had a learning rate of {:.6g}, not {:.6g}; the "
      "weights will not be those of a run with these settings from the beginning",
      keys, first + 1, after(first), before(first));
}

std::map<std::string, std::string> detail::run_texts(const RunState& state) {
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
  if (state.ranks != 0) texts["exchange_ranks"] = std::to_string(state.ranks);
  if (state.loss_scale.size() == 2) {
    texts["loss_scale"] = fmt::format("{}", state.loss_scale[0]);
    texts["loss_scale_steps"] = fmt::format("{}", state.loss_scale[1]);
  }
  return texts;
}

io::TensorFiles detail::run_files(const RunState& state, const nn::Module& model, const optim::Optimizer& optimizer) {
  io::TensorFiles files{{kModelFile, kept_state(model, state.config)}, {kOptimizerFile, optimizer.state_dict()}};
  if (distributed::size() > 1) files[kModelFile] = present(std::move(files[kModelFile]));
  if (state.ranks != 0) files[kExchangeFile] = state.exchange;
  return files;
}

RunState detail::run_state(const std::map<std::string, std::string>& texts, int64_t step, const std::string& source) {
  RunState s;
  s.config = parse_config(entry(texts, source, "config"), source + ": config", {}, Unread::dropped);
  s.tokenizer = entry(texts, source, "tokenizer");
  s.step = step;
  s.tokens = number<int64_t>(entry(texts, source, "tokens"), source, "tokens");
  s.elapsed_s = number<double>(entry(texts, source, "elapsed_s"), source, "elapsed_s");
  s.rng.seed = number<uint64_t>(entry(texts, source, "rng_seed"), source, "rng_seed");
  s.rng.offset = number<uint64_t>(entry(texts, source, "rng_offset"), source, "rng_offset");
  s.sampler = data::parse_sampler_state(entry(texts, source, "sampler"));
  if (texts.contains("log")) s.log = parse_log_mark(entry(texts, source, "log"));
  if (texts.contains("base"))
    check<IoError>(io::parse_hex(entry(texts, source, "base"), s.base), source, "'base' is no checksum");
  if (texts.contains("text")) s.text = number<uint64_t>(entry(texts, source, "text"), source, "text");
  if (texts.contains("exchange_ranks"))
    s.ranks = number<int64_t>(entry(texts, source, "exchange_ranks"), source, "exchange_ranks");
  if (texts.contains("loss_scale"))
    s.loss_scale = {number<double>(entry(texts, source, "loss_scale"), source, "loss_scale"),
                    number<double>(entry(texts, source, "loss_scale_steps"), source, "loss_scale_steps")};
  return s;
}

std::string save_run(const std::string& out, const RunState& state, const nn::Module& model,
                     const optim::Optimizer& optimizer, int keep_last) {
  const io::TensorFiles files = detail::run_files(state, model, optimizer);
  if (distributed::size() == 1) return io::save_checkpoint(out, state.step, files, detail::run_texts(state), keep_last);
  return io::save_rank_checkpoint(distributed::group("world"), out, state.step, files, detail::run_texts(state),
                                  keep_last);
}

void save_run(io::CheckpointWriter& writer, const std::string& out, const RunState& state, const nn::Module& model,
              const optim::Optimizer& optimizer, int keep_last) {
  writer.begin(out, state.step, detail::run_files(state, model, optimizer), detail::run_texts(state), keep_last);
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
  run.state = detail::run_state(c.state, c.step, run.path);
  return run;
}

void check_base(const FoundRun& run, const nn::Module& model) {
  detail::check_base(run, [&] { return base_checksum(model, run.state.config); });
}

void detail::check_base(const FoundRun& run, const std::function<uint64_t()>& checksum) {
  if (run.state.base == 0) return;
  const uint64_t now = checksum();
  check<IoError>(now == run.state.base, run.path, "it was trained on other weights than '", run.state.config.init,
                 "' holds now (their checksum is ", io::to_hex(now), ", it was ", io::to_hex(run.state.base), ")");
}

void detail::check_run_names(const std::string& path, const std::set<std::string>& wanted,
                             const std::set<std::string>& found) {
  for (const std::string& name : wanted)
    check<IoError>(found.contains(name), path, "the model's file has no '", name, "'");
  for (const std::string& name : found)
    check<IoError>(wanted.contains(name), path, "the model has no place for '", name, "'");
}

void load_run(const FoundRun& run, nn::Module& model, optim::Optimizer* optimizer, distributed::Group* together) {
  // Straight into its parameters; those that come from model.init are there already.
  const nn::StateDict all = kept_state(model, run.state.config), kept = together ? present(all) : all;
  const Device device = together && !kept.empty() ? kept.begin()->second.device() : model.parameters().front().device();
  const io::RankPlaces places = places_of(kept, optimizer);
  const auto read = [&](const char* file, const io::TensorMap& into, Device where) {
    io::Checkpoint c = together
                           ? io::load_rank_checkpoint(*together, run.checkpoint, {file}, {{file, into}}, where, places)
                           : io::load_checkpoint(run.checkpoint, {file}, {{file, into}}, where);
    return std::move(c.files.at(file));
  };
  io::TensorMap found = read(kModelFile, kept, device);
  const auto names = [](const io::TensorMap& tensors) {
    std::set<std::string> all;
    for (const auto& [name, t] : tensors) all.insert(name);
    return all;
  };
  detail::check_run_names(run.path, names(kept), names(found));
  for (const auto& [name, t] : all)  // what was read into parts is there
    if (nn::lies_in_parts(t)) found.erase(name);
  model.load_state_dict(found, false);
  if (!optimizer) return;
  const memory::TagScope tag(memory::Tag::optimizer);
  // Straight to where it lives.
  const optim::StateHome home = optimizer->home();
  const Device where = home.who == optim::StateHome::Who::device ? device : Device::cpu();
  const Tier tier = home.where == Tier::host ? (where.is_cuda() ? Tier(Tier::pinned) : Tier()) : home.where;
  const memory::TierScope there(tier);
  // Of several ranks a file that would hold nothing is not written.
  const bool stateless = optimizer->state_bytes() == 0;
  optimizer->take_state_dict(stateless ? io::TensorMap() : read(kOptimizerFile, {}, where));
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
