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
    for (const nn::AdaptedMap& map : nn::adapted_maps(module)) adapters_.emplace(map.path + ".weight", map.lora);
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
    return adapter == adapters_.end() ? weight : merged(weight, name, adapter->second);
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
  // In a map of its own, as the whole model would merge it.
  Tensor merged(const Tensor& weight, const std::string& name, const nn::Lora& as) const {
    const nn::Linear map(weight.size(1), weight.size(0), false);
    nn::convert_parameters(map, weight.dtype());
    map.weight.detach().copy_(weight);
    const nn::Lora lora(map, as.parts(),
                        {.dropout = as.form().dropout, .rslora = as.form().rslora, .dora = as.form().dora});
    const std::string prefix = name.substr(0, name.rfind('.')) + ".lora.";
    for (const auto& [own, p] : lora.named_parameters()) p.detach().copy_(stored(prefix + own));
    lora.merge();
    return map.weight.detach();
  }

  FoundRun run_;
  TrainConfig config_;
  io::detail::TensorReader reader_;
  std::shared_ptr<TokenDecoder> shapes_;      // the model that was trained, on the meta device
  nn::StateDict state_;                       // its tensors
  std::map<std::string, nn::Lora> adapters_;  // by the weight's name
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
