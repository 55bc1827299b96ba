#include "strata/train/fine_tune_inl.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/generate/decoder_start.h"
#include "strata/io/files.h"
#include "strata/io/hash.h"
#include "strata/io/weight_files.h"
#include "strata/models/pretrained.h"
#include "strata/models/rounded_weights_inl.h"
#include "strata/nn/convert.h"
#include "strata/nn/deferred_inl.h"
#include "strata/nn/init.h"
#include "strata/nn/lora.h"
#include "strata/nn/name_pattern.h"
#include "strata/nn/packed.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/train/rehearse.h"
#include "strata/train/rounded_run_inl.h"
#include "strata/train/run.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostText = uint64_t{256} << 20;

std::string read_text(const std::string& path) {
  return io::read_file(path, kMostText);
}

// "mlp=8 blocks.0=4".
std::vector<std::pair<std::string, double>> values_of(const std::string& text, std::string_view key) {
  std::vector<std::pair<std::string, double>> all;
  for (const std::string& word : nn::words_of(text)) {
    const size_t at = word.find('=');
    double value = 0;
    const char* end = word.data() + word.size();
    const bool number = at != std::string::npos && at > 0 &&
                        std::from_chars(word.data() + at + 1, end, value) == std::from_chars_result{end, std::errc()};
    check(number && value >= 0, key, "wants name=number, got '", word, "'");
    all.emplace_back(word.substr(0, at), value);
  }
  return all;
}

// The words between dots that names of weights are made of, without numbers: "attn, bias, blocks".
std::string parts_of_names(const nn::Module& model) {
  std::set<std::string> words;
  for (const auto& [name, p] : model.named_parameters())
    for (size_t at = 0, end = 0; at < name.size(); at = end + 1) {
      end = std::min(name.find('.', at), name.size());
      if (end > at && (name[at] < '0' || name[at] > '9')) words.insert(name.substr(at, end - at));
    }
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : ", ") + w;
  return text;
}

// The parameters that one of the patterns names; each must name some.
std::set<std::string> named(const nn::Module& model, const std::string& patterns, std::string_view key) {
  std::set<std::string> names;
  for (const std::string& pattern : nn::words_of(patterns)) {
    bool found = false;
    for (const auto& [name, p] : model.named_parameters()) {
      if (!nn::is_named(name, pattern)) continue;
      found = true;
      names.insert(name);
    }
    check(found, key, "the model has no weight named '", pattern, "'; names have the parts ",
          found ? std::string() : parts_of_names(model));
  }
  return names;
}

void add_adapters(const nn::Module& model, const TuneConfig& tune, const AdapterNames& names) {
  nn::LoraOptions o;
  o.rank = tune.rank;
  o.alpha = tune.alpha;
  o.dropout = tune.dropout;
  o.rslora = tune.rslora;
  o.dora = tune.method == "dora";
  o.targets = nn::words_of(tune.targets);
  // Whose blocks have other names.
  const bool two = std::ranges::any_of(model.named_modules(), [](const auto& m) { return m.first == "encoder"; });
  if (two && tune.targets == TuneConfig().targets) o.targets = {"encoder", "decoder"};
  for (const auto& [name, value] : values_of(tune.ranks, "tune.ranks")) {
    check(value >= 1 && value == static_cast<double>(static_cast<int64_t>(value)), "tune.ranks",
          "a rank is a whole number of at least 1, got ", value);
    o.rank_pattern.emplace_back(name, static_cast<int64_t>(value));
  }
  o.alpha_pattern = values_of(tune.alphas, "tune.alphas");
  nn::add_lora(model, o, names.parts);
  if (o.dropout == 0) return;
  for (const nn::AdaptedMap& m : nn::adapted_maps(model))
    for (const nn::LoraPart& p : m.lora.parts())
      check(m.weight.empty() || p.of.name.find(".*.") != std::string::npos, "tune.dropout", "'", p.of.name,
            "' is of experts that share a tensor, whose adapters PEFT has without dropout: 0, or targets of single "
            "experts");
}

// Blocks of 64, their scales in 8 bits: 4.13 bits a number (QLoRA, arXiv:2305.14314).
nn::PackOptions four_bits() {
  nn::PackOptions o;
  o.rounding = {.block_columns = 64, .nested = true};
  return o;
}

// On the meta device only the parts are made.
void pack(const nn::Module& model, const std::string& format) {
  const nn::PackOptions o = four_bits();
  if (!model.parameters().front().device().is_meta()) {
    nn::quantize(model, format, o);
    return;
  }
  const DeviceScope dry(Device::meta());
  const std::vector<std::string> layers = nn::packable_layers(model, o.skip);
  for (const auto& [name, layer] : model.named_modules()) {
    if (std::ranges::find(layers, name) == layers.end()) continue;
    const Shape shape = layer.parameter("weight").shape();
    PackedWeight w{.format = &weight_format(format), .rows = shape[0], .columns = shape[1]};
    w.block_columns = o.rounding.block_columns;
    w.codes = empty({w.rows, w.format->row_bytes(w.columns)}, w.format->dtype);
    w.scales = empty(w.grid(), DType::u8);
    w.nested = empty({257 + (w.scales.numel() + 255) / 256}, DType::f32);
    nn::pack_linear(layer, w);
  }
}

// Runs may begin from runs that began from runs; not for ever.
struct Depth {
  Depth() {
    check(t_depth < kMost, "model.init", "models begin from one another more than ", kMost, " times");
    ++t_depth;
  }
  ~Depth() { --t_depth; }
  static constexpr int kMost = 8;
  static thread_local int t_depth;
};
thread_local int Depth::t_depth = 0;

// The module of an init, with its weights unless it is on the meta device. Of a folder those that settings want in few
// bits are so.
std::shared_ptr<TokenDecoder> load_init(const TrainConfig& config, const InitModel& init, DType dtype) {
  const Depth in;
  const bool dry = default_device().is_meta(), rounds = config.tune.quantize != "none";
  if (init.is_run) {
    // Of a run that was tuned itself, all of it: base and what was learned.
    std::shared_ptr<TokenDecoder> model;
    if (rounds) model = load_rounded_run(init, dtype, config.tune.quantize, four_bits());
    if (model) {
      model->as_module().requires_grad(true);
      return model;
    }
    if (dry) {
      model = make_tuned_model(find_run(init.path).state.config);
    } else {
      model = detail::load_trained_model_for({}, init.path, nullptr, default_device()).writer();
      nn::merge_lora(model->as_module());
    }
    nn::Module& module = model->as_module();
    nn::remove_lora(module);
    module.requires_grad(true);
    module.train();
    nn::convert_parameters(module, dtype);
    return model;
  }
  std::shared_ptr<TokenDecoder> model;
  {
    const nn::init::SkipDraws from_file;
    std::optional<nn::detail::DeferredWeights> later;
    if (rounds) later.emplace(dtype);
    if (init.answers())
      model = std::make_shared<EncoderDecoder>(init.spec);
    else
      model = std::make_shared<LanguageModel>(init.spec);
    nn::convert_parameters(model->as_module(), dtype);
  }
  nn::Module& module = model->as_module();
  if (dry) {
    nn::detail::make_deferred(module, four_bits());
    return model;
  }
  const auto files = std::make_shared<const io::WeightFiles>(init.path);
  if (rounds)
    load_rounded_weights(module, *init.family, init.spec, *files, config.tune.quantize, four_bits());
  else
    load_late_weights(module, *init.family, init.spec, files);
  return model;
}

}  // namespace

InitModel find_init(const std::string& path) {
  const Depth in;
  InitModel init;
  init.path = path;
  check<IoError>(fs::exists(path), "model.init", io::quote(path), ": no such folder");
  if (fs::is_regular_file(path + "/state.json") || has_run(path)) {
    const FoundRun run = find_run(path);
    init.path = run.path;
    init.is_run = true;
    if (run.state.config.init.empty()) {
      init.spec = model_spec(run.state.config.model);
    } else {
      const InitModel first = find_init(run.state.config.init);
      init.spec = first.spec, init.start = first.start, init.folder = first.folder;
    }
    return init;
  }
  init.folder = path;
  std::tie(init.family, init.spec) = read_pretrained_spec(path);
  check(init.family->kind == ModelKind::decoder || init.answers(), "model.init", io::quote(path), " holds a ",
        init.family->title, ", which continues no text");
  check(!init.answers() || !init.spec.parts[0].audio, "model.init", io::quote(path), " holds a ", init.family->title,
        ", which reads sound: there is no such data for a run");
  init.network = read_pretrained_config(path);
  if (init.answers()) {
    const std::string more = path + "/generation_config.json";
    init.start = parse_decoder_start(fs::exists(more) ? read_text(more) : std::string(), init.network, path).tokens();
  }
  return init;
}

void apply_init(TrainConfig& config) {
  if (config.init.empty()) return;
  const InitModel init = find_init(config.init);
  config.init = fs::absolute(init.path).lexically_normal().string();  // of a run its newest checkpoint, from now on
  check(init.answers() == (config.data.format == "seq2seq"), "data.format", "is ", config.data.format, ", and the ",
        "model of model.init ", init.answers() ? "reads one text and writes another: seq2seq" : "continues texts");
  check(!init.answers() || config.memory.recompute != "blocks", "memory.recompute",
        "is blocks, and a model of two parts has none that can run again: auto, none or calls");
  const ModelSpec& s = init.answers() ? init.spec.parts[1] : init.spec;
  ModelConfig& m = config.model;
  const int64_t context = std::min(m.context, s.context);
  if (init.is_run) m = find_run(init.path).state.config.model;
  if (!init.is_run || m.family == "init") {
    m = ModelConfig{};
    m.family = "init";
    m.layers = static_cast<int64_t>(s.layers.size());
    m.dim = s.dim;
    m.heads = s.layers.empty() ? 1 : s.layers[0].attention.heads;
    m.kv_heads = s.layers.empty() ? 0 : s.layers[0].attention.kv_heads;
    m.ffn_dim = s.layers.empty() ? 0 : s.layers[0].feed_forward.width;
    m.vocab = s.vocab;
    m.tied_embeddings = s.tied;
  }
  m.context = context;
}

text::TokenizerFolder init_tokenizer(const InitModel& init) {
  if (!init.is_run) return text::load_tokenizer_folder(init.path);
  text::TokenizerFolder own;
  own.tokenizer = text::parse_tokenizer(find_run(init.path).state.tokenizer, init.path + ": tokenizer");
  return own;
}

// Of a model that began so.
static AdapterNames own_names(TokenDecoder& model) {
  const auto* decoder = dynamic_cast<const LanguageModel*>(&model);
  check(decoder != nullptr, "tune.method",
        "adapters of a model that reads one text and writes another begin with its folder, and not with a run");
  return own_adapter_names(*decoder);
}

AdapterNames adapter_names(TokenDecoder& model, const InitModel& init) {
  return init.family ? adapter_names(model.as_module(), init.family->weights(init.spec)) : own_names(model);
}

std::shared_ptr<LanguageModel> decoder_of(const std::shared_ptr<TokenDecoder>& model, std::string_view what) {
  auto decoder = std::dynamic_pointer_cast<LanguageModel>(model);
  check(decoder != nullptr, what, "is for models that continue texts, and this one reads one and writes another");
  return decoder;
}

std::set<std::string> table_names(const TokenDecoder& model) {
  if (const auto* decoder = dynamic_cast<const LanguageModel*>(&model)) return decoder->table_names();
  std::set<std::string> names;
  for (const auto& [name, p] : dynamic_cast<const EncoderDecoder&>(model).named_parameters())
    for (const char* table :
         {"token_embedding.", "position_embedding.", "encoder_relative.", "decoder_relative.", "head."})
      if (name.starts_with(table)) names.insert(name);
  return names;
}

void apply_tuning(const nn::Module& model, const TuneConfig& tune, const AdapterNames& names) {
  const std::set<std::string> train = named(model, tune.train, "tune.train"),
                              freeze = named(model, tune.freeze, "tune.freeze");
  if (tune.method != "full") add_adapters(model, tune, names);  // and freezes all there is
  if (tune.method == "full" && !train.empty()) nn::Module(model).requires_grad(false);
  for (auto& [name, p] : model.named_parameters()) {
    if (train.contains(name)) p.set_requires_grad(true);
    check(tune.method == "full" || !train.contains(name) || names.tensors.contains(name), "tune.train", "'", name,
          "' cannot stand in an adapter's folder: it is a part of several of the file's tensors");
    if (freeze.contains(name)) p.set_requires_grad(false);
  }
  check(!trained_parameters(model).empty(), "tune.freeze", "nothing is left to train");
}

std::shared_ptr<TokenDecoder> make_tuned_model(const TrainConfig& config) {
  const DType dtype = parse_dtype(config.param_dtype);
  if (config.init.empty()) {
    auto model = make_model(config.model);
    nn::convert_parameters(*model, dtype);
    apply_tuning(*model, config.tune, own_adapter_names(*model));
    model->set_tile(config.tile);
    model->set_gate_again(config.recompute == "cheap");
    return model;
  }
  const InitModel init = find_init(config.init);
  auto model = load_init(config, init, dtype);
  if (config.tune.quantize != "none") pack(model->as_module(), config.tune.quantize);
  const AdapterNames names = config.tune.method == "full" ? AdapterNames() : adapter_names(*model, init);
  apply_tuning(model->as_module(), config.tune, names);
  auto* const decoder = dynamic_cast<LanguageModel*>(model.get());
  check(decoder != nullptr || config.tile == 0, "train", "train.tile is for decoders");
  check(decoder != nullptr || config.recompute == "none", "train", "train.recompute is for decoders");
  if (decoder != nullptr) {
    decoder->set_tile(config.tile);
    decoder->set_gate_again(config.recompute == "cheap");
  }
  return model;
}

void save_adapter_of(const std::string& out, TokenDecoder& model, const TrainConfig& config) {
  const InitModel init = config.init.empty() ? InitModel() : find_init(config.init);
  save_adapter(out + "/adapter", model.as_module(), adapter_names(model, init),
               {.base = config.init, .task_type = init.answers() ? "SEQ_2_SEQ_LM" : "CAUSAL_LM"});
}

nn::NamedTensors trained_parameters(const nn::Module& model) {
  nn::NamedTensors trained;
  for (auto& [name, p] : model.named_parameters())
    if (p.requires_grad()) trained.emplace_back(name, p);
  return trained;
}

double held_out_loss(const std::string& model, const std::string& text, Device device) {
  const InitModel init = find_init(model);
  TrainConfig config;
  config.init = model;
  const DeviceScope there(device);
  check(!init.answers(), "held_out_loss", io::quote(model), " reads one text and writes another");
  const std::shared_ptr<LanguageModel> loaded = decoder_of(make_tuned_model(config), "held_out_loss");
  loaded->eval();
  const std::vector<int32_t> ids = init_tokenizer(init).tokenizer->encode(read_text(text));
  const int64_t all = static_cast<int64_t>(ids.size()) - 1, most = std::min<int64_t>(loaded->context(), 1024);
  check(all >= 1, "held_out_loss", io::quote(text), " has less than two tokens");
  const NoGrad guard;
  double total = 0;
  for (int64_t begin = 0; begin < all; begin += most) {
    const int64_t n = std::min(most, all - begin);
    const std::vector<int64_t> part(ids.begin() + begin, ids.begin() + begin + n + 1);
    const Tensor row = from_span<int64_t>(part, {1, n + 1});
    const Tensor x = row.narrow(1, 0, n).contiguous().to(device), y = row.narrow(1, 1, n).contiguous().to(device);
    total += loaded->loss(x, y).item() * static_cast<double>(n);
  }
  return total / static_cast<double>(all);
}

// Of a model that began as another: all that is not trained, packed weights too.
std::set<std::string> left_out(const nn::Module& model, const TrainConfig& config) {
  std::set<std::string> names;
  if (config.init.empty()) return names;
  for (const auto& [name, t] : model.state_dict()) names.insert(name);
  for (const auto& [name, p] : trained_parameters(model)) names.erase(name);
  return names;
}

nn::StateDict kept_state(const nn::Module& model, const TrainConfig& config) {
  nn::StateDict state = model.state_dict();
  const std::set<std::string> out = left_out(model, config);
  std::erase_if(state, [&](const auto& entry) { return out.contains(entry.first); });
  return state;
}

uint64_t base_checksum(const nn::Module& model, const TrainConfig& config) {
  const nn::StateDict state = model.state_dict();
  return base_checksum(left_out(model, config), [&](const std::string& name) { return state.at(name); });
}

uint64_t base_checksum(const std::set<std::string>& names, const std::function<Tensor(const std::string&)>& tensor) {
  if (names.empty()) return 0;
  const NoGrad guard;
  io::Hasher hasher;
  for (const std::string& name : names) {
    const Tensor t = tensor(name).to(Device::cpu()).contiguous();
    if (t.numel() == 0) continue;
    const Pin pin(t, Access::read);
    hasher.update(name.data(), name.size());
    hasher.update(t.raw_data(), static_cast<size_t>(t.nbytes()));
  }
  return hasher.digest();
}

}  // namespace strata
