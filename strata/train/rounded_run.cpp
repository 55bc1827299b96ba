#include "strata/train/rounded_run_inl.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/checkpoint_inl.h"
#include "strata/io/weight_files.h"
#include "strata/models/rounded_weights_inl.h"
#include "strata/nn/convert.h"
#include "strata/nn/deferred_inl.h"
#include "strata/nn/init.h"
#include "strata/nn/layers.h"
#include "strata/nn/lora.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/train/rehearse.h"
#include "strata/train/run.h"

namespace strata {
namespace {

// A run as load_trained_model() makes it.
TrainConfig config_of(const FoundRun& run) {
  TrainConfig config = run.state.config;
  if (config.init.empty()) config.param_dtype = "f32";
  return config;
}

// A trained model's weights by name, one at a time: what its checkpoint has, else what it began from, with what its
// adapters add.
class RunWeights {
 public:
  explicit RunWeights(const FoundRun& run) : run_(run), config_(config_of(run)), reader_(run.checkpoint, "model") {
    {
      const DeviceScope nowhere(Device::meta());
      shapes_ = make_tuned_model(config_);
    }
    const nn::Module& module = shapes_->as_module();
    state_ = module.state_dict();
    for (const nn::AdaptedMap& map : nn::adapted_maps(module)) adapters_.emplace(map.weight_name(), map);
    std::set<std::string> wanted, found;
    for (const auto& [name, t] : kept_state(module, config_)) wanted.insert(name);
    for (const auto& [name, t] : reader_.tensors()) found.insert(name);
    detail::check_run_names(run_.path, wanted, found);
    const std::set<std::string> base = left_out(module, config_);
    if (base.empty()) return;
    const InitModel init = find_init(config_.init);
    if (init.is_run) {
      base_run_ = std::make_unique<RunWeights>(find_run(init.path));
    } else {
      files_.emplace(init.path);
      folder_.emplace(*init.family, init.spec, *files_);
    }
    detail::check_base(run_,
                       [&] { return base_checksum(base, [&](const std::string& name) { return stored(name); }); });
  }

  // With what adapters add, in the dtype that the run had it in.
  Tensor read(const std::string& name) const {
    const Tensor weight = stored(name);
    const auto adapter = adapters_.find(name);
    return adapter == adapters_.end() ? weight : merged(weight, adapter->second);
  }

 private:
  Tensor stored(const std::string& name) const {
    const Tensor& as = state_.at(name);
    if (!reader_.tensors().contains(name))
      return base_run_ ? base_run_->read(name).to(as.dtype()) : folder_->read(name, as.dtype());
    const Tensor t = reader_.read(name, default_device());
    check<ShapeError>(t.shape() == as.shape(), "load_run", run_.path, ": '", name, "' is ", t.shape(),
                      ", the model's is ", as.shape());
    return t.to(as.dtype());
  }
  // As the whole model would merge it: in a map of its own, or of experts one after the other.
  Tensor merged(const Tensor& weight, const nn::AdaptedMap& of) const {
    const nn::Lora& as = of.lora;
    if (!of.weight.empty()) {
      const Tensor sum = weight.clone();
      for (const nn::LoraPart& p : as.parts()) {
        const std::string prefix = cat(of.lora_path, '.', p.of.name.substr(p.of.name.rfind('.') + 1), '.');
        const Tensor down = stored(prefix + "A"), up = stored(prefix + "B");
        for (int64_t e = 0; e < sum.size(0); ++e) {
          Tensor rows = sum.select(0, e).narrow(0, p.of.first, p.of.rows);
          rows.copy_(rows.to(down.dtype()) + matmul(up.select(0, e), down.select(0, e)) * p.scale);
        }
      }
      return sum;
    }
    const nn::Linear map(weight.size(1), weight.size(0), false);
    nn::convert_parameters(map, weight.dtype());
    map.weight.detach().copy_(weight);
    const nn::Lora lora(map, as.parts(),
                        {.dropout = as.form().dropout, .rslora = as.form().rslora, .dora = as.form().dora});
    for (const auto& [own, p] : lora.named_parameters()) p.detach().copy_(stored(cat(of.lora_path, '.', own)));
    lora.merge();
    return map.weight.detach();
  }

  FoundRun run_;
  TrainConfig config_;
  io::detail::TensorReader reader_;
  std::shared_ptr<TokenDecoder> shapes_;            // the model that was trained, on the meta device
  nn::StateDict state_;                             // its tensors
  std::map<std::string, nn::AdaptedMap> adapters_;  // by the weight's name
  // What it began from, where its checkpoint has a part of it alone: one of these.
  std::unique_ptr<RunWeights> base_run_;
  std::optional<io::WeightFiles> files_;
  std::optional<FolderWeights> folder_;
};

// Whether it was trained on weights of few bits, which no adapter can be merged into.
bool is_on_few_bits(const FoundRun& run) {
  return run.state.config.tune.quantize != "none";
}

std::shared_ptr<TokenDecoder> make(const TrainConfig& config, const InitModel& init) {
  if (config.init.empty()) return make_model(config.model);
  if (init.answers()) return std::make_shared<EncoderDecoder>(init.spec);
  return std::make_shared<LanguageModel>(init.spec);
}

}  // namespace

std::shared_ptr<TokenDecoder> load_rounded_run(const InitModel& init, DType dtype, std::string_view format,
                                               const nn::PackOptions& options) {
  const FoundRun run = find_run(init.path);
  if (is_on_few_bits(run)) return nullptr;
  const nn::init::SkipDraws from_file;
  std::shared_ptr<TokenDecoder> model;
  {
    const nn::detail::DeferredWeights later(dtype);
    model = make(run.state.config, init);
    nn::convert_parameters(model->as_module(), dtype);
  }
  nn::Module& module = model->as_module();
  nn::detail::make_deferred(module, options);
  if (default_device().is_meta()) return model;

  const NoGrad guard;
  const RunWeights weights(run);
  std::set<std::string> later;
  for (const std::string& layer : nn::packable_layers(module, options.skip)) later.insert(layer + ".weight");
  for (const auto& [name, t] : module.state_dict())
    if (!later.contains(name)) t.detach().copy_(weights.read(name));
  const memory::TierScope own{Tier()};  // packed parts are in the device's own memory
  for (const auto& [name, layer] : module.named_modules()) {
    if (!later.contains(name + ".weight")) continue;
    const Tensor dense = weights.read(name + ".weight").to(dtype);
    nn::pack_linear(layer, moved(nn::detail::rounded_weight(name, dense, format, options.rounding), dense.device()));
  }
  return model;
}

}  // namespace strata
