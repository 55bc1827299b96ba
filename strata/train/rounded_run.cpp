#include "strata/train/rounded_run_inl.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/checkpoint_inl.h"
#include "strata/nn/convert.h"
#include "strata/nn/deferred_inl.h"
#include "strata/nn/init.h"
#include "strata/nn/layers.h"
#include "strata/nn/lora.h"
#include "strata/train/rehearse.h"
#include "strata/train/run.h"

namespace strata {
namespace {

// A run's weights by name, one at a time: what its checkpoint has, with what its adapters add.
class RunWeights {
 public:
  // `shapes`: the model that was trained, on the meta device.
  RunWeights(const FoundRun& run, const TrainConfig& config, const io::detail::TensorReader& reader,
             const nn::Module& shapes)
      : path_(run.path), reader_(reader), state_(kept_state(shapes, config)) {
    for (const nn::AdaptedMap& map : nn::adapted_maps(shapes)) adapters_.emplace(map.path + ".weight", map.lora);
    std::set<std::string> wanted, found;
    for (const auto& [name, t] : state_) wanted.insert(name);
    for (const auto& [name, t] : reader_.tensors()) found.insert(name);
    detail::check_run_names(path_, wanted, found);
  }

  Tensor read(const std::string& name) const {
    const Tensor weight = stored(name);
    const auto adapter = adapters_.find(name);
    return adapter == adapters_.end() ? weight : merged(weight, name, adapter->second);
  }

 private:
  // In the dtype that the run trained it in.
  Tensor stored(const std::string& name) const {
    const Tensor& as = state_.at(name);
    const Tensor t = reader_.read(name, default_device());
    check<ShapeError>(t.shape() == as.shape(), "load_run", path_, ": '", name, "' is ", t.shape(), ", the model's is ",
                      as.shape());
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

  std::string path_;
  const io::detail::TensorReader& reader_;
  nn::StateDict state_;
  std::map<std::string, nn::Lora> adapters_;  // by the weight's name
};

std::shared_ptr<TokenDecoder> make(const TrainConfig& config, const InitModel& init) {
  if (config.init.empty()) return make_model(config.model);
  if (init.answers()) return std::make_shared<EncoderDecoder>(init.spec);
  return std::make_shared<LanguageModel>(init.spec);
}

}  // namespace

std::shared_ptr<TokenDecoder> load_rounded_run(const InitModel& init, DType dtype, std::string_view format,
                                               const nn::PackOptions& options) {
  const FoundRun run = find_run(init.path);
  TrainConfig as = run.state.config;
  if (as.init.empty()) as.param_dtype = "f32";  // as load_trained_model() has it
  const nn::init::SkipDraws from_file;
  std::shared_ptr<TokenDecoder> model;
  {
    const nn::detail::DeferredWeights later(dtype);
    model = make(as, init);
    nn::convert_parameters(model->as_module(), dtype);
  }
  nn::Module& module = model->as_module();
  const io::detail::TensorReader reader(run.checkpoint, "model");
  for (const auto& [name, t] : module.state_dict())
    if (!reader.tensors().contains(name)) return nullptr;
  nn::detail::make_deferred(module, options);
  if (default_device().is_meta()) return model;

  std::shared_ptr<TokenDecoder> shapes;
  {
    const DeviceScope nowhere(Device::meta());
    shapes = make_tuned_model(as);
  }
  const NoGrad guard;
  const RunWeights weights(run, as, reader, shapes->as_module());
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
