// An adapter folder merged into a model's files, a tensor at a time.

#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/files.h"
#include "strata/io/folder_writer.h"
#include "strata/io/sharded_safetensors.h"
#include "strata/io/weight_files.h"
#include "strata/models/average.h"
#include "strata/models/language_model.h"
#include "strata/models/model_folder_inl.h"
#include "strata/models/peft.h"
#include "strata/models/peft_inl.h"
#include "strata/models/pretrained.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/linalg/linalg.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "merge_adapter";
using peft::kPrefix;

class Adapter {
 public:
  explicit Adapter(const std::string& dir)
      : config_(parse_adapter_config(io::read_file(dir + std::string(peft::kConfigFile), peft::kMostConfig),
                                     dir + std::string(peft::kConfigFile))),
        files_(dir + std::string(peft::kTensorFile)) {}

  // Where the base's files have the experts that target_parameters name: a tensor for each.
  void find_experts(const std::string& base) {
    if (config_.target_parameters.empty()) return;
    const auto [family, spec] = read_pretrained_spec(base);
    check<IoError>(family->kind == ModelKind::decoder, kOp, io::quote(files_.path()), ": \"target_parameters\" are of ",
                   "experts, and ", io::quote(base), " holds a ", family->title);
    const DeviceScope nowhere(Device::meta());
    const LanguageModel model(spec);
    const nn::LinearParts parts = adapter_names(model, family->weights(spec)).parts;
    const std::vector<nn::LinearMap> maps = nn::expert_maps(model, parts);
    const auto wrappers =
        peft::wrappers(maps, [&](const std::string& part) { return peft::is_target(config_.target_parameters, part); });
    for (const nn::LinearMap& m : maps) {
      const nn::LinearPart& all = m.parts.front();
      const auto wrapper = wrappers.find(all.name);
      if (wrapper == wrappers.end()) continue;
      Experts of{all.name, {m.shape[0], config_.rank_of(all.name), m.shape[2], m.shape[1]}, {}, {}};
      experts_.emplace(wrapper->second, of);
      for (const nn::LinearPart& p : m.parts)
        for (int64_t e = 0; peft::is_each(p.name) && e < m.shape[0]; ++e)
          places_[peft::of_expert(p.name, e) + ".weight"] = {wrapper->second, e, p.first, p.rows};
    }
  }

  // Holds each of its tensors against the base's weights.
  void check_fits(const io::WeightFiles& base) {
    std::vector<std::string> wrong;
    for (auto& [module, of] : experts_) {
      const std::string down = std::string(kPrefix) + module + std::string(peft::kDown),
                        up = std::string(kPrefix) + module + std::string(peft::kUp);
      for (const std::string& name : {down, up})
        if (!files_.contains(name)) wrong.push_back("no " + name);
      if (!files_.contains(down) || !files_.contains(up)) continue;
      const Shape &a = files_.entry(down).shape, &b = files_.entry(up).shape;
      of.as.swapped = peft::is_swapped(of.as, a, b, config_.peft_version);
      if (a != of.as.down()) wrong.push_back(cat(down, " is ", a, ", wanted ", of.as.down()));
      if (b != of.as.up()) wrong.push_back(cat(up, " is ", b, ", wanted ", of.as.up()));
    }
    for (const io::SafetensorsEntry& e : files_.entries()) {
      if (!e.name.starts_with(kPrefix)) {
        wrong.push_back("no part of an adapter: " + e.name);
        continue;
      }
      const std::string name = e.name.substr(kPrefix.size());
      const auto part = peft::split(name);
      if (!part) {
        const io::WeightEntry* w = base.find(name);
        if (!w || w->shape != e.shape) wrong.push_back("the base has no weight of its shape for " + e.name);
        whole_.insert(name);
        continue;
      }
      if (experts_.contains(part->first) && part->second != peft::kMagnitude) continue;
      const io::WeightEntry* w = base.find(part->first + ".weight");
      if (!w || w->shape.size() != 2) {
        wrong.push_back("the base has no matrix for " + e.name);
        continue;
      }
      adapted_.insert(part->first);
      const int64_t out = w->shape[config_.fan_in_fan_out ? 1 : 0], in = w->shape[config_.fan_in_fan_out ? 0 : 1];
      const int64_t rank = config_.rank_of(part->first);
      const Shape wanted = part->second == peft::kDown ? Shape{rank, in}
                           : part->second == peft::kUp ? Shape{out, rank}
                                                       : Shape{out};
      if (e.shape != wanted) wrong.push_back(cat(e.name, " is ", e.shape, ", wanted ", wanted));
    }
    for (const std::string& module : adapted_)
      for (const std::string_view end : {peft::kDown, peft::kUp, peft::kMagnitude})
        if ((end != peft::kMagnitude || config_.dora) &&
            !files_.contains(std::string(kPrefix) + module + std::string(end)))
          wrong.push_back("no " + module + std::string(end));
    check<IoError>(wrong.empty(), kOp, io::quote(files_.path()), ": ", peft::listed(wrong));
    check<IoError>(!adapted_.empty() || !whole_.empty() || !experts_.empty(), kOp, io::quote(files_.path()),
                   ": holds no adapter");
  }

  bool replaces(const std::string& tensor) const { return whole_.contains(tensor); }
  Tensor whole(const std::string& tensor) const { return read(tensor); }
  bool adapts(const std::string& tensor) const {
    return places_.contains(tensor) ||
           (tensor.ends_with(".weight") && adapted_.contains(tensor.substr(0, tensor.size() - 7)));
  }
  Tensor merged(const std::string& tensor, const Tensor& weight) {
    const NoGrad guard;
    if (const auto place = places_.find(tensor); place != places_.end()) return with_expert(place->second, weight);
    const std::string module = tensor.substr(0, tensor.size() - 7);
    const Tensor down = read(module + std::string(peft::kDown)).to(DType::f32);
    const Tensor up = read(module + std::string(peft::kUp)).to(DType::f32);
    const Tensor w = weight.to(DType::f32);
    Tensor sum = (config_.fan_in_fan_out ? w.t() : w) + matmul(up, down) * config_.scale_of(module);
    if (config_.dora) {
      const Tensor lengths = read(module + std::string(peft::kMagnitude)).to(DType::f32);
      sum = sum * (lengths / linalg_vector_norm(sum, 2, Dims{1})).unsqueeze(1);
    }
    return (config_.fan_in_fan_out ? sum.t() : sum).to(weight.dtype());
  }

 private:
  // The adapter of all experts of a weight, its tensors as long as this weight is merged.
  struct Experts {
    std::string part;
    peft::Stacked as;
    Tensor down, up;
  };
  // Rows of one of them.
  struct Place {
    std::string module;
    int64_t expert, first, rows;
  };
  Tensor with_expert(const Place& at, const Tensor& weight) {
    Experts& of = experts_.at(at.module);
    if (!of.down.defined()) {
      for (auto& [module, other] : experts_)
        if (parent_of(module) != parent_of(at.module)) other.down = other.up = {};
      std::tie(of.down, of.up) = of.as.ours(read(at.module + std::string(peft::kDown)).to(DType::f32),
                                            read(at.module + std::string(peft::kUp)).to(DType::f32));
    }
    const Tensor up = of.up.select(0, at.expert).narrow(0, at.first, at.rows);
    const Tensor more = matmul(up, of.down.select(0, at.expert)) * config_.scale_of(of.part);
    return (weight.to(DType::f32) + more).to(weight.dtype());
  }
  // Of what stands in one another the same.
  static std::string parent_of(const std::string& module) {
    const size_t at = module.find(".base_layer");
    return module.substr(0, at);
  }
  Tensor read(const std::string& name) const { return files_.tensor(std::string(kPrefix) + name); }

  AdapterConfig config_;
  io::SafetensorsFile files_;
  std::set<std::string> adapted_, whole_;
  std::map<std::string, Experts> experts_;  // by the module of the adapter's file
  std::map<std::string, Place> places_;     // by the base's tensor
};

}  // namespace

void merge_adapter(const std::string& base, const std::string& adapter, const std::string& to) {
  const io::WeightFiles files(base);
  Adapter addition(adapter);
  addition.find_experts(base);
  addition.check_fits(files);
  io::FolderWriter folder(to);
  std::vector<io::StoredItem> items;
  for (const io::WeightEntry& e : files.entries()) {
    check<DTypeError>(e.type->dtype.has_value(), kOp, "'", e.name, "' is ", e.type->name, ", which has no numbers");
    items.push_back({e.name, &io::stored_type(*e.type->dtype), e.shape});
  }
  io::ShardedSafetensorsWriter out(folder.path(), std::move(items));
  const std::vector<std::string> order = out.order();
  for (const std::string& name : order) {
    if (addition.replaces(name))
      out.write(addition.whole(name));
    else if (addition.adapts(name))
      out.write(addition.merged(name, files.tensor(name)));
    else
      out.write(files.tensor(name));
  }
  out.commit();
  if (std::filesystem::is_directory(base)) detail::copy_companions(base, folder.path());
  folder.commit();
}

}  // namespace strata
