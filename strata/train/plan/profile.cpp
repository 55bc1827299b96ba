#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "strata/autograd/split_backward.h"
#include "strata/core/autocast.h"
#include "strata/core/dry_run.h"
#include "strata/core/error.h"
#include "strata/core/recording.h"
#include "strata/lab/step_costs.h"
#include "strata/train/conversations_inl.h"
#include "strata/train/fine_tune_inl.h"
#include "strata/train/model_pipeline_inl.h"
#include "strata/train/plan/profile_inl.h"
#include "strata/train/precision.h"

namespace strata::plan {
namespace {

// Two sizes of a pass, of which everything between and beyond follows. One row alone may go other ways.
constexpr int64_t kLowRows = 2, kHighRows = 4;

TrainConfig alone_in(TrainConfig c, int64_t rows, int64_t accumulate) {
  c.parallel = {};
  c.memory = {};
  c.batch = rows;
  c.accumulate = accumulate;
  c.save_async = false;
  return c;
}

// What a recording says of each layer.
struct Layer {
  std::vector<std::pair<double, double>> forward, backward;  // seconds of operations, of bytes
  double saved = 0, takes = 0;
};
struct Recorded {
  std::vector<Layer> layers;
  std::vector<std::pair<double, double>> update;
};

Recorded read(const Recording& r, const lab::Limits& limits, int64_t blocks) {
  const lab::Limits only_moves{.gb_s = limits.gb_s};
  lab::Limits only_computes = limits;
  only_computes.gb_s = 0;
  const auto calls = static_cast<int32_t>(r.calls.size());
  int32_t backward = calls;
  for (int32_t i = calls; i-- > 0;)
    if (r.calls[static_cast<size_t>(i)].phase == Phase::backward) backward = i;
  Recorded all;
  all.layers.resize(static_cast<size_t>(blocks < 0 ? 1 : blocks + 2));
  // What no module is known of belongs where the call before it does.
  std::vector<size_t> layer_of(r.calls.size(), 0);
  for (size_t i = 0, last = 0; i < r.calls.size(); ++i) {
    const RecordedCall& c = r.calls[i];
    if (blocks >= 0 && c.module && !c.module->empty())
      last = static_cast<size_t>(ModelPipeline::layer_of(*c.module, blocks));
    layer_of[i] = last;
    if (!r.is_work(i)) continue;
    const std::pair<double, double> seconds{lab::least_seconds(r, i, only_computes), lab::least_seconds(r, i, only_moves)};
    if (seconds.first == 0 && seconds.second == 0) continue;
    if (c.phase == Phase::update) {
      all.update.push_back(seconds);
      continue;
    }
    Layer& l = all.layers[last];
    (static_cast<int32_t>(i) < backward ? l.forward : l.backward).push_back(seconds);
  }
  // Bytes that forward leaves, and beside them at most at once.
  std::vector<double> others(r.calls.size() + 1, 0);
  for (const RecordedStorage& s : r.storages) {
    if (s.born < 0 || (s.tag != memory::Tag::activation && s.tag != memory::Tag::workspace)) continue;
    if (s.born < backward && s.freed > backward) {
      all.layers[layer_of[static_cast<size_t>(s.born)]].saved += static_cast<double>(s.nbytes);
    } else {
      others[static_cast<size_t>(s.born)] += static_cast<double>(s.nbytes);
      others[static_cast<size_t>(std::min(s.freed, calls))] -= static_cast<double>(s.nbytes);
    }
  }
  double live = 0;
  for (size_t i = 0; i < r.calls.size(); ++i) {
    live += others[i];
    Layer& l = all.layers[layer_of[i]];
    l.takes = std::max(l.takes, live);
  }
  return all;
}

// The two halves of a pass as pipelines have them, which the engine cuts: no list of ops here could say what waits, nor
// what runs twice.
std::pair<Recording, Recording> record_halves(TokenDecoder& model, const TrainConfig& config) {
  const DeviceScope dry(Device::meta());
  const DryRunAs way(config.device.starts_with("cuda") ? DeviceType::cuda : DeviceType::cpu);
  model.as_module().train();
  const auto without_gradients = [&] {
    for (Tensor& p : model.as_module().parameters()) p.set_grad({});
  };
  without_gradients();
  Recorder recorder;
  Tensor loss;
  {
    std::optional<AutocastScope> autocast;
    if (const auto settings = autocast_of(config, model)) autocast.emplace(*settings);
    loss = batch_loss(model, empty_batch(config, row_tokens(config)), config);
  }
  SplitBackward rest({std::exchange(loss, {})});
  Recording first = recorder.cut();
  rest.finish();
  std::pair halves{std::move(first), recorder.finish()};
  without_gradients();
  return halves;
}

using Seconds = std::vector<std::pair<double, double>>;
std::vector<CallCost> through(const Seconds& low, const Seconds& high) {
  std::vector<CallCost> costs;
  for (size_t i = 0; i < std::max(low.size(), high.size()); ++i) {
    // A step that takes other calls for other rows: those of the larger one, in proportion.
    const auto h = i < high.size() ? high[i] : std::pair<double, double>{};
    const auto l = low.size() == high.size() ? low[i] : std::pair{h.first / 2, h.second / 2};
    costs.push_back({Affine::through(kLowRows, l.first, kHighRows, h.first),
                     Affine::through(kLowRows, l.second, kHighRows, h.second)});
  }
  return costs;
}

bool alike(const LayerKind& a, const LayerKind& b) {
  return a.forward == b.forward && a.backward == b.backward && a.again == b.again && a.saved.by_row == b.saved.by_row &&
         a.weights == b.weights && a.trained == b.trained && a.experts == b.experts;
}

MemoryEstimate between(const MemoryEstimate& low, const MemoryEstimate& high, double rows) {
  MemoryEstimate e = high;
  for (int64_t MemoryEstimate::*field :
       {&MemoryEstimate::parameters, &MemoryEstimate::gradients, &MemoryEstimate::optimizer, &MemoryEstimate::activations,
        &MemoryEstimate::data, &MemoryEstimate::peak})
    e.*field = static_cast<int64_t>(Affine::through(kLowRows, static_cast<double>(low.*field), kHighRows,
                                                    static_cast<double>(high.*field)).at(rows));
  return e;
}

}  // namespace

Profile::Profile(const TrainConfig& config, const Machine& machine) : config_(config), machine_(machine) {
  check(machine.limits.gb_s > 0 && machine.limits.matmul_f32 > 0 && machine.limits.gflops > 0, "plan",
        "what the machine computes is not known: gb_s, gflops and matmul_f32 of its limits are wanted");
  measure_memory();
  decoder_ = dynamic_cast<const LanguageModel*>(model_.get());
  config_.model = memory_.begin()->second.low.config.model;  // with what a model that is there says of itself
  const int64_t blocks = decoder_ ? static_cast<int64_t>(decoder_->blocks.size()) : -1;
  tokens = static_cast<double>(row_tokens(config_).read + row_tokens(config_).written);
  const bool low_bits = config_.dtype != "f32";
  activation_size = static_cast<double>(size_of(activation_dtype(config_)));
  gathered_size = low_bits ? 2 : static_cast<double>(size_of(parse_dtype(config_.param_dtype)));
  gradient_size = static_cast<double>(
      size_of(parse_dtype(config_.grad_dtype == "bf16" ? "bf16" : config_.param_dtype)));
  tied = decoder_ && decoder_->spec().tied;

  Recorded recorded[2][2], inputs[2][2], weights[2][2];  // recompute, rows
  for (const bool again : {false, true}) {
    if (again && !decoder_) continue;
    for (const int64_t rows : {kLowRows, kHighRows}) {
      const TrainConfig c = alone_in(config_, rows, 1);
      const size_t at = rows == kHighRows;
      recorded[again][at] = read(record_dry_step(c, again ? blocks : 0).step, machine_.limits, blocks);
      if (!decoder_) continue;  // pipelines are of decoders
      auto& model = dynamic_cast<LanguageModel&>(*model_);
      model.set_recomputed_blocks(again ? blocks : 0);
      const auto [first, second] = record_halves(model, c);
      inputs[again][at] = read(first, machine_.limits, blocks);
      weights[again][at] = read(second, machine_.limits, blocks);
      model.set_recomputed_blocks(0);
    }
  }
  update_ = through(recorded[0][0].update, recorded[0][1].update);
  std::vector<LayerKind> all(recorded[0][0].layers.size());
  for (size_t i = 0; i < all.size(); ++i) {
    LayerKind& k = all[i];
    const auto [low, high] = std::tie(recorded[0][0].layers[i], recorded[0][1].layers[i]);
    k.forward = through(low.forward, high.forward);
    k.backward.whole = through(low.backward, high.backward);
    k.saved = Affine::through(kLowRows, low.saved, kHighRows, high.saved);
    k.takes = Affine::through(kLowRows, low.takes, kHighRows, high.takes);
    if (decoder_) {
      const auto halves = [&](LayerKind::Back& back, bool again) {
        back.input = through(inputs[again][0].layers[i].backward, inputs[again][1].layers[i].backward);
        back.weight = through(weights[again][0].layers[i].backward, weights[again][1].layers[i].backward);
      };
      const auto [low2, high2] = std::tie(recorded[1][0].layers[i], recorded[1][1].layers[i]);
      k.again.whole = through(low2.backward, high2.backward);
      k.saved_again = Affine::through(kLowRows, low2.saved, kHighRows, high2.saved);
      halves(k.backward, false);
      halves(k.again, true);
    } else {
      k.again = k.backward, k.saved_again = k.saved;
    }
  }
  double trained = 0;
  for (const auto& [name, t] : model_->as_module().named_parameters()) {
    LayerKind& k = all[static_cast<size_t>(decoder_ ? ModelPipeline::layer_of(name, blocks) : 0)];
    const auto bytes = static_cast<double>(t.nbytes());
    k.weights += bytes;
    if (t.requires_grad()) k.trained += static_cast<double>(t.numel()), trained += static_cast<double>(t.numel());
    if (name.ends_with("experts.gate_up") || name.ends_with("experts.down")) k.experts += bytes;
  }
  const AloneEstimate& one = memory_.at({false, false}).low;
  state = static_cast<double>(one.alone.optimizer) / std::max(trained, 1.0);
  for (const LayerKind& k : all) {
    size_t at = 0;
    while (at < kinds_.size() && !alike(kinds_[at], k)) ++at;
    if (at == kinds_.size()) kinds_.push_back(k);
    layers_.push_back(at);
  }
  if (decoder_) cut_by_ = ModelPipeline::layers(config_);
}

void Profile::measure_memory() {
  for (const bool several : {false, true})
    for (const bool again : {false, true}) {
      const auto of = [&](int64_t rows) {
        TrainConfig c = alone_in(config_, rows, several ? 3 : 1);
        if (several) c.grad_dtype = "f32";
        c.parallel.recompute = again;
        return estimate_alone(c);
      };
      Memory& m = memory_[{several, again}];
      // Each by itself: what is kept of one would be memory that the next need not take.
      m.low = of(kLowRows), m.low.model = nullptr;
      m.high = of(kHighRows), m.high.model = nullptr;
    }
  const DeviceScope dry(Device::meta());
  model_ = make_tuned_model(memory_.begin()->second.low.config);
}

LayerTimes Profile::times(size_t layer, double rows, double parts, double cut, bool recompute) const {
  const auto [at, fresh] = known_.try_emplace({layers_[layer], rows, parts, cut, recompute});
  if (!fresh) return at->second;
  const LayerKind& k = kind(layer);
  const auto seconds = [&](const CallCost& c) {
    const double moves = std::max(c.moves.fixed, 0.0) / cut + std::max(c.moves.by_row, 0.0) * rows / parts;
    return seconds_of(std::max(c.operations.at(rows) / parts, moves));
  };
  const auto sum = [&](const std::vector<CallCost>& calls) {
    double all = 0;
    for (const CallCost& c : calls) all += seconds(c);
    return all;
  };
  const LayerKind::Back& back = recompute ? k.again : k.backward;
  return at->second = {sum(k.forward), sum(back.whole), sum(back.input), sum(back.weight)};
}

double Profile::update(double share) const {
  double all = 0;
  for (const CallCost& c : update_)
    all += seconds_of(share * std::max(c.operations.at(kLowRows), c.moves.at(kLowRows)));
  return all;
}

AloneEstimate Profile::alone(double rows, int64_t accumulate, bool recompute) const {
  const Memory& m = memory_.at({accumulate > 1, recompute});
  AloneEstimate e = m.low;
  e.alone = between(m.low.alone, m.high.alone, rows);
  e.activations = static_cast<int64_t>(Affine::through(kLowRows, static_cast<double>(m.low.activations), kHighRows,
                                                       static_cast<double>(m.high.activations)).at(rows));
  return e;
}

}  // namespace strata::plan
