// Steps of models of random weights with the shape that a config.json says, on one device, as a JSON line each:
// bench/pretrained_cuda.py runs it beside transformers.
//     pretrained_bench DEVICE decode CONFIG bf16|e4m3|int4 ROWS PROMPT STEPS
//     pretrained_bench DEVICE prefill CONFIG bf16|e4m3|int4 TOKENS ROUNDS
//     pretrained_bench DEVICE lora CONFIG bf16|nf4 ROWS TOKENS STEPS
// Low-bit weights are random codes: e4m3 with a scale for 128 x 128 numbers, int4 in groups of 128, nf4 in blocks of
// 64, double quantised. The embedding and the output layer stay bf16.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/cuda/runtime.h"
#include "strata/generate/sequences.h"
#include "strata/io/files.h"
#include "strata/memory/allocator.h"
#include "strata/models/config_reader.h"
#include "strata/models/family.h"
#include "strata/models/language_model.h"
#include "strata/models/peft.h"
#include "strata/nn/lora.h"
#include "strata/nn/packed.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/train/ranks.h"
#include "strata/train/run.h"
#include "strata/train/step_runner.h"

namespace {

using namespace strata;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double middle(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}
void wait_for(Device device) {
  if (device.is_cuda()) cuda::synchronize(device.index);
}

// Random codes on the current device.
PackedWeight random_weight(std::string_view format, int64_t rows, int64_t columns) {
  PackedWeight w;
  w.format = &weight_format(format), w.rows = rows, w.columns = columns;
  const bool nested = format == "nf4", fp8 = format == "e4m3";
  w.block_rows = fp8 ? 128 : 1, w.block_columns = nested ? 64 : 128;
  w.codes = randint(0, fp8 ? 127 : 256, {rows, w.format->row_bytes(columns)}, DType::u8);
  w.scales = nested ? randint(0, 256, w.grid(), DType::u8) : full(w.grid(), 0.001, fp8 ? DType::f32 : DType::f16);
  if (nested) w.nested = full({257 + (w.grid().product() + 255) / 256}, 0.01, DType::f32);
  return w;
}

std::shared_ptr<LanguageModel> make(const std::string& path, const std::string& format, Device device) {
  const Family& family = family_named("llama");
  const ModelSpec spec = read_spec(family, ConfigReader(io::read_file(path), path));
  const DeviceScope there(device);
  set_default_dtype(DType::bf16);
  auto model = std::make_shared<LanguageModel>(spec);
  set_default_dtype(DType::f32);
  if (format == "bf16") return model;
  const std::vector<std::string> layers = nn::packable_layers(*model, {"head"});
  for (const auto& [name, module] : model->named_modules()) {
    if (std::find(layers.begin(), layers.end(), name) == layers.end()) continue;
    Shape shape{0, 0};
    for (const auto& [n, p] : module.named_parameters())
      if (n == "weight") shape = p.shape();
    nn::pack_linear(module, random_weight(format, shape[0], shape[1]));
  }
  return model;
}

// Bytes of weights that a step reads: all but the rows of the embedding that it does not look up.
double weight_bytes(const LanguageModel& model) {
  double bytes = 0;
  for (const auto& [name, t] : model.state_dict())
    if (model.spec().tied || name != "token_embedding.weight") bytes += static_cast<double>(t.nbytes());
  return bytes;
}

double peak_gib(Device device) {
  return static_cast<double>(memory::stats(device).peak_total) / static_cast<double>(int64_t{1} << 30);
}

int decode(Device device, const std::shared_ptr<LanguageModel>& model, int64_t rows, int64_t prompt, int64_t steps) {
  const int64_t warm = 4, room = prompt + 2 * steps + 2 * warm + 2;
  Sequences texts(model, rows, {.capacity = (room + 127) / 128 * 128, .prefill_chunk = 4096});
  const std::vector<int64_t> tokens(static_cast<size_t>(prompt), 1);
  texts.start(0, tokens, {.temperature = 0});
  for (int64_t r = 1; r < rows; ++r) texts.copy(0, r, static_cast<uint64_t>(r));
  const auto step = [&] { texts.step(); };
  for (int64_t i = 0; i < warm; ++i) step();
  // Each step's tokens are read before the next is queued, as who stops at a word does.
  std::vector<double> read;
  for (int64_t i = 0; i < steps; ++i) {
    const double from = seconds();
    step();
    static_cast<void>(texts.ids().to_vector<int64_t>());
    read.push_back(seconds() - from);
  }
  wait_for(device);
  const int64_t before = memory::stats(device).allocations;
  const double from = seconds();
  for (int64_t i = 0; i < steps; ++i) step();
  wait_for(device);
  const double queued = (seconds() - from) / static_cast<double>(steps);
  const int64_t requests = memory::stats(device).allocations - before;
  const nn::KvCache cache = model->make_cache(1, 1).layers[0];
  const double keys = static_cast<double>(cache.k.nbytes() + cache.v.nbytes()) *
                      static_cast<double>(model->blocks.size() * static_cast<size_t>(rows)) *
                      static_cast<double>(prompt + warm + steps);
  std::printf(
      "{\"step_ms\": %.4f, \"queued_ms\": %.4f, \"weight_gb\": %.4f, \"cache_gb\": %.4f, \"requests\": %lld, "
      "\"peak_gib\": %.2f}\n",
      middle(read) * 1e3, queued * 1e3, weight_bytes(*model) / 1e9, keys / 1e9,
      static_cast<long long>(requests), peak_gib(device));
  return 0;
}

int prefill(Device device, const std::shared_ptr<LanguageModel>& model, int64_t tokens, int64_t rounds) {
  Sequences texts(model, 1, {.capacity = tokens + 1, .prefill_chunk = tokens});
  const std::vector<int64_t> text(static_cast<size_t>(tokens + 1), 1);  // the last is left to the first step
  std::vector<double> times;
  for (int64_t i = 0; i < rounds + 2; ++i) {
    wait_for(device);
    const double from = seconds();
    texts.start(0, text, {.temperature = 0});
    wait_for(device);
    if (i >= 2) times.push_back(seconds() - from);
  }
  std::printf("{\"ms\": %.3f, \"peak_gib\": %.2f}\n", middle(times) * 1e3, peak_gib(device));
  return 0;
}

int lora(Device device, const std::shared_ptr<LanguageModel>& model, int64_t rows, int64_t tokens, int64_t steps) {
  TrainConfig config;
  config.device = to_string(device);
  config.dtype = "bf16", config.param_dtype = "bf16";
  config.batch = rows;
  config.optim.lr = 1e-4;
  const nn::LinearParts parts = adapter_names(*model, family_named("llama").weights(model->spec())).parts;
  nn::add_lora(*model, {.rank = 16, .alpha = 32, .targets = {"blocks"}}, parts);
  optim::NamedTensors trained;
  for (const auto& [name, t] : nn::lora_parameters(*model)) trained.emplace_back(name, t);
  const auto optimizer = make_optimizer(config.optim, trained);
  const Ranks ranks(config);
  StepRunner runner(*model, *optimizer, config, device, ranks);
  const DeviceScope there(device);
  const std::vector<data::Batch> batches = {
      {randint(0, model->vocab(), {rows, tokens}, DType::i64), randint(0, model->vocab(), {rows, tokens}, DType::i64)}};
  std::vector<double> times;
  double loss = 0;
  for (int64_t i = 0; i < steps + 3; ++i) {
    const double from = seconds();
    runner.begin();
    runner.launch(batches, 1e-4);
    loss = runner.read().loss;
    if (i >= 3) times.push_back(seconds() - from);
  }
  double frozen = 0, numbers = 0;
  for (const auto& [name, t] : model->state_dict())
    if (name.find(".lora.") == std::string::npos && name.starts_with("blocks."))
      frozen += static_cast<double>(t.nbytes());
  for (const auto& layer : model->spec().layers) {
    const auto& a = layer.attention;
    numbers +=
        static_cast<double>(model->spec().dim) *
        static_cast<double>((a.heads + a.kv_heads) * (a.head_size + a.value_size) + 3 * layer.feed_forward.width);
  }
  std::printf(
      "{\"step_ms\": %.3f, \"loss\": %.4f, \"captured\": %s, \"bits\": %.3f, \"trained\": %zu, \"peak_gib\": %.2f}\n",
      middle(times) * 1e3, loss, runner.captured() ? "true" : "false", 8 * frozen / numbers, trained.size(),
      peak_gib(device));
  return 0;
}

int run(int argc, char** argv) {
  const std::vector<std::string> a(argv + 1, argv + argc);
  const auto number = [&](size_t i) { return std::atoll(a.at(i).c_str()); };
  if (a.size() < 6) {
    std::fputs("pretrained_bench DEVICE decode|prefill|lora CONFIG FORMAT ...: see the source's first lines\n", stderr);
    return 2;
  }
  const Device device = parse_device(a[0]);
  manual_seed(1);
  const std::shared_ptr<LanguageModel> model = make(a[2], a[3], device);
  if (a[1] == "prefill") return prefill(device, model, number(4), number(5));
  if (a[1] == "decode") return decode(device, model, number(4), number(5), number(6));
  if (a[1] == "lora") return lora(device, model, number(4), number(5), number(6));
  throw ValueError("pretrained_bench", cat("there is no ", a[1], "; there are decode, prefill and lora"));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "pretrained_bench: %s\n", e.what());
    return 1;
  }
}
