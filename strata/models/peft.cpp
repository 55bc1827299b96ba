#include "strata/models/peft.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/files.h"
#include "strata/io/safetensors.h"
#include "strata/models/peft_inl.h"
#include "strata/nn/init.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/index/index.h"
#include "strata/ops/join/join.h"

namespace strata {

std::string peft::listed(const std::vector<std::string>& lines) {
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = 0; i < std::min(lines.size(), kShown); ++i) text += (i ? "; " : "") + lines[i];
  if (lines.size() > kShown) text += cat(" and ", lines.size() - kShown, " more");
  return text;
}

namespace {

constexpr std::string_view kLoad = "load_adapter", kSave = "save_adapter";
// The first PEFT whose adapters of experts lie as here.
constexpr std::string_view kStackedVersion = "0.19.0";
using peft::kConfigFile, peft::kDown, peft::kMagnitude, peft::kMostConfig, peft::kPrefix, peft::kTensorFile, peft::kUp,
    peft::listed;

std::string module_of(std::string_view tensor) {
  return std::string(tensor.substr(0, tensor.rfind('.')));
}
bool ends_with_name(std::string_view module, std::string_view name) {
  return module == name || (module.ends_with(name) && module[module.size() - name.size() - 1] == '.');
}

// Rows in our order, of a file's tensor; or with `back` in the file's, of ours.
Tensor reordered(const Tensor& t, const AdapterNames& names, const std::string& part, bool back) {
  const auto order = names.rows.find(part);
  if (order == names.rows.end()) return t;
  const std::vector<int64_t>& rows = order->second;
  check(static_cast<int64_t>(rows.size()) == t.size(0), "AdapterNames", "'", part, "' has ", t.size(0),
        " rows, its order ", rows.size());
  std::vector<int64_t> from(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (back)
      from.at(static_cast<size_t>(rows[i])) = static_cast<int64_t>(i);
    else
      from[i] = rows[i];
  }
  return index_select(t, 0, from_span<int64_t>(from, {t.size(0)}).to(t.device()));
}

// What a file is found to hold, held against what the model has places for.
struct Contents {
  const io::SafetensorsFile& file;
  std::vector<std::string> wrong;
  std::set<std::string> used;

  bool has(const std::string& name) const { return file.contains(std::string(kPrefix) + name); }
  const Shape& shape(const std::string& name) const { return file.entry(std::string(kPrefix) + name).shape; }
  void want(const std::string& name, const Shape& shape) {
    const std::string full = std::string(kPrefix) + name;
    used.insert(full);
    if (!file.contains(full)) {
      wrong.push_back("no " + full);
      return;
    }
    const io::SafetensorsEntry& e = file.entry(full);
    if (e.shape != shape || !is_floating(e.dtype))
      wrong.push_back(cat(full, " is ", e.dtype, " ", e.shape, ", wanted ", shape));
  }
};

// What a map gets; of experts also where each part's tensors are.
struct Found {
  nn::LinearMap map;
  std::vector<nn::LoraPart> parts;
};

// The parts of experts that a file has. What does not fit is said in `in`.
class FoundExperts {
 public:
  FoundExperts(const nn::Module& model, const AdapterNames& names, const AdapterConfig& config, Contents& in)
      : config_(config), in_(in) {
    const std::vector<nn::LinearMap> maps = nn::expert_maps(model, names.parts);
    wrappers_ =
        peft::wrappers(maps, [&](const std::string& part) { return peft::is_target(config.target_parameters, part); });
    for (const nn::LinearMap& m : maps) {
      std::vector<nn::LoraPart> own;
      for (const nn::LinearPart& p : m.parts) {
        const auto part = peft::is_each(p.name) ? each(m, p) : all(m, p);
        if (part) own.push_back(*part);
      }
      const bool both = own.size() > 1 && !peft::is_each(own[0].of.name);
      if (both) in.wrong.push_back(cat("adapters of all of ", own[0].of.name, " and of ", own[1].of.name));
      if (!own.empty()) found_.push_back({m, std::move(own)});
    }
  }
  const std::vector<Found>& found() const { return found_; }

  // A and B [count, ..] of a part; read(name) gives a tensor of the file.
  template <class Read>
  std::pair<Tensor, Tensor> tensors(const Found& f, const nn::LoraPart& p, const Read& read) const {
    const auto wrapper = wrappers_.find(p.of.name);
    if (!peft::is_each(p.of.name)) {
      const std::string down = wrapper->second + std::string(kDown), up = wrapper->second + std::string(kUp);
      return form(f.map, p, down, up).ours(read(down), read(up));
    }
    TensorList down, up;
    for (int64_t e = 0; e < f.map.shape[0]; ++e) {
      down.push_back(read(peft::of_expert(p.of.name, e) + std::string(kDown)));
      up.push_back(read(peft::of_expert(p.of.name, e) + std::string(kUp)));
    }
    return {stack(down), stack(up)};
  }

 private:
  nn::LoraPart sized(const nn::LinearPart& p, const std::string& module) const {
    nn::LoraPart part{.of = p, .A = {}, .B = {}, .magnitude = {}};
    part.rank = config_.rank_of(module);
    part.alpha = config_.alpha_of(module);
    return part;
  }
  // As transformers 4 has them, a module for each expert.
  std::optional<nn::LoraPart> each(const nn::LinearMap& m, const nn::LinearPart& p) {
    bool any = false;
    for (int64_t e = 0; e < m.shape[0]; ++e)
      for (const std::string_view end : {kDown, kUp}) any |= in_.has(peft::of_expert(p.name, e) + std::string(end));
    if (!any) return std::nullopt;
    const nn::LoraPart part = sized(p, peft::of_expert(p.name, 0));
    for (int64_t e = 0; e < m.shape[0]; ++e) {
      const std::string module = peft::of_expert(p.name, e);
      in_.want(module + std::string(kDown), {config_.rank_of(module), m.shape[2]});
      in_.want(module + std::string(kUp), {p.rows, config_.rank_of(module)});
      const nn::LoraPart own = sized(p, module);
      if (own.rank != part.rank || own.alpha != part.alpha)
        in_.wrong.push_back(cat(kPrefix, module, kDown, " has rank ", own.rank, " and alpha ", own.alpha,
                                ", and expert 0 ", part.rank, " and ", part.alpha, ": experts have the same here"));
    }
    return part;
  }
  // As transformers 5 has them, one module for all experts.
  std::optional<nn::LoraPart> all(const nn::LinearMap& m, const nn::LinearPart& p) {
    const auto wrapper = wrappers_.find(p.name);
    if (wrapper == wrappers_.end()) return std::nullopt;
    const std::string down = wrapper->second + std::string(kDown), up = wrapper->second + std::string(kUp);
    const nn::LoraPart part = sized(p, p.name);
    const peft::Stacked as = form(m, part, down, up);
    in_.want(down, as.down());
    in_.want(up, as.up());
    return part;
  }
  peft::Stacked form(const nn::LinearMap& m, const nn::LoraPart& p, const std::string& down,
                     const std::string& up) const {
    peft::Stacked as{m.shape[0], p.rank, m.shape[2], p.of.rows};
    as.swapped =
        in_.has(down) && in_.has(up) && peft::is_swapped(as, in_.shape(down), in_.shape(up), config_.peft_version);
    return as;
  }

  const AdapterConfig& config_;
  Contents& in_;
  std::map<std::string, std::string> wrappers_;  // of what target_parameters name
  std::vector<Found> found_;
};

}  // namespace

AdapterConfig load_adapter(const std::string& dir, const nn::Module& model, const AdapterNames& names) {
  const std::string config_path = dir + std::string(kConfigFile), path = dir + std::string(kTensorFile);
  const AdapterConfig c = parse_adapter_config(io::read_file(config_path, kMostConfig), config_path);
  const io::SafetensorsFile file(path);
  check(nn::adapted_maps(model).empty(), kLoad, "the ", model.kind(), " has adapters already");

  Contents in{file, {}, {}};
  std::vector<Found> found;
  for (nn::LinearMap& m : nn::linear_maps(model, names.parts)) {
    const int64_t width = m.shape[1];
    std::vector<nn::LoraPart> own;
    for (const nn::LinearPart& p : m.parts) {
      if (!in.has(p.name + std::string(kDown)) && !in.has(p.name + std::string(kUp))) continue;
      nn::LoraPart part{.of = p, .A = {}, .B = {}, .magnitude = {}};
      part.rank = c.rank_of(p.name);
      part.alpha = c.alpha_of(p.name);
      in.want(p.name + std::string(kDown), {part.rank, width});
      in.want(p.name + std::string(kUp), {p.rows, part.rank});
      if (c.dora) in.want(p.name + std::string(kMagnitude), {p.rows});
      own.push_back(std::move(part));
    }
    if (!own.empty()) found.push_back({std::move(m), std::move(own)});
  }
  const FoundExperts experts(model, names, c, in);
  std::vector<std::pair<Tensor, std::string>> whole;
  for (const auto& [name, t] : model.named_parameters()) {
    const auto theirs = names.tensors.find(name);
    if (theirs == names.tensors.end()) continue;
    const std::string module = module_of(theirs->second);
    const bool saved =
        std::ranges::any_of(c.modules_to_save, [&](const std::string& m) { return ends_with_name(module, m); });
    if (!saved) continue;
    in.want(theirs->second, t.shape());
    whole.emplace_back(t, theirs->second);
  }
  for (const io::SafetensorsEntry& e : file.entries())
    if (!in.used.contains(e.name)) in.wrong.push_back("the model has no place for " + e.name);
  check<IoError>(in.wrong.empty(), kLoad, io::quote(path), ": ", listed(in.wrong));
  check<IoError>(!found.empty() || !experts.found().empty() || !whole.empty(), kLoad, io::quote(path),
                 ": holds no adapter");

  const io::TensorMap tensors = file.tensors();  // before anything is changed
  const auto read = [&](const std::string& name) { return tensors.at(std::string(kPrefix) + name); };
  const NoGrad guard;
  const nn::init::SkipDraws from_file;
  nn::Module(model).requires_grad(false);
  nn::LoraOptions how;
  how.dropout = c.dropout;
  how.rslora = c.rslora;
  how.dora = c.dora;
  for (const Found& f : found) {
    const nn::Lora lora(f.map.module, f.parts, how);
    for (const nn::LoraPart& p : lora.parts()) {
      Tensor(p.A).copy_(read(p.of.name + std::string(kDown)));
      Tensor(p.B).copy_(reordered(read(p.of.name + std::string(kUp)), names, p.of.name, false));
      if (c.dora)
        Tensor(p.magnitude).copy_(reordered(read(p.of.name + std::string(kMagnitude)), names, p.of.name, false));
    }
  }
  for (const Found& f : experts.found()) {
    const nn::Lora lora(f.map.module, f.parts, how, f.map.weight);
    for (const nn::LoraPart& p : lora.parts()) {
      const auto [down, up] = experts.tensors(f, p, read);
      Tensor(p.A).copy_(down);
      Tensor(p.B).copy_(up);
    }
  }
  for (auto& [t, name] : whole) {
    t.copy_(read(name));
    t.set_requires_grad();
  }
  return c;
}

namespace {

// The value that most have.
template <class T>
T usual(const std::vector<T>& values) {
  std::map<T, int64_t> count;
  for (const T& v : values) ++count[v];
  return std::ranges::max_element(count, {}, [](const auto& e) { return e.second; })->first;
}

// The last words where these name just the adapted modules among all; else the modules' whole names.
std::vector<std::string> targets_of(const std::set<std::string>& adapted, const std::set<std::string>& others,
                                    int words_of_each) {
  const auto last = [&](const std::string& name) {
    size_t at = name.size();
    for (int i = 0; i < words_of_each && at != std::string::npos && at > 0; ++i) at = name.rfind('.', at - 1);
    return at == std::string::npos ? name : name.substr(at + 1);
  };
  std::set<std::string> words;
  for (const std::string& name : adapted) words.insert(last(name));
  const bool ambiguous =
      std::ranges::any_of(others, [&](const std::string& name) { return words.contains(last(name)); });
  const std::set<std::string>& chosen = ambiguous ? adapted : words;
  return {chosen.begin(), chosen.end()};
}

}  // namespace

void save_adapter(const std::string& dir, const nn::Module& model, const AdapterNames& names, const AdapterNote& note) {
  io::TensorMap tensors;
  std::set<std::string> adapted, others, whole;
  std::vector<int64_t> ranks;
  std::vector<double> alphas;
  std::map<std::string, const nn::LoraPart*> parts;  // by the module in the file, or the parameter
  std::set<std::string> parameters, other_parameters;
  const std::vector<nn::AdaptedMap> maps = nn::adapted_maps(model);
  check(!maps.empty(), kSave, "the ", model.kind(), " has no adapters");
  const auto put = [&](const std::string& name, const Tensor& t) {
    tensors.emplace(std::string(kPrefix) + name, t.detach().contiguous());
  };
  // Of experts: where parts that are all of a weight stand.
  const std::vector<nn::LinearMap> experts = nn::expert_maps(model, names.parts);
  std::set<std::string> of_experts;
  for (const nn::AdaptedMap& m : maps)
    for (const nn::LoraPart& p : m.lora.parts())
      if (!m.weight.empty()) of_experts.insert(p.of.name);
  const std::map<std::string, std::string> wrappers =
      peft::wrappers(experts, [&](const std::string& part) { return of_experts.contains(part); });
  const auto put_experts = [&](const nn::AdaptedMap& m, const nn::LoraPart& p) {
    const bool each = peft::is_each(p.of.name);
    check(each || m.lora.form().dropout == 0, kSave, "'", p.of.name, "' has a dropout of ", m.lora.form().dropout,
          ", which PEFT has not where experts share a tensor");
    if (each) {
      for (int64_t e = 0; e < p.A.size(0); ++e) {
        const std::string module = peft::of_expert(p.of.name, e);
        put(module + std::string(kDown), p.A.select(0, e));
        put(module + std::string(kUp), p.B.select(0, e));
        adapted.insert(module);
        parts[module] = &p;
      }
    } else {
      const auto [down, up] = peft::stacked(p.A.detach(), p.B.detach());
      put(wrappers.at(p.of.name) + std::string(kDown), down);
      put(wrappers.at(p.of.name) + std::string(kUp), up);
      parameters.insert(p.of.name);
      parts[p.of.name] = &p;
    }
    ranks.push_back(p.rank);
    alphas.push_back(p.alpha);
  };
  for (const nn::AdaptedMap& m : maps) {
    check(!m.lora.is_merged(), kSave, "the adapters of '", m.path, "' are merged into its weight");
    for (const nn::LoraPart& p : m.lora.parts()) {
      if (!m.weight.empty()) {
        put_experts(m, p);
        continue;
      }
      put(p.of.name + std::string(kDown), p.A);
      put(p.of.name + std::string(kUp), reordered(p.B, names, p.of.name, true));
      if (p.magnitude.defined())
        put(p.of.name + std::string(kMagnitude), reordered(p.magnitude, names, p.of.name, true));
      adapted.insert(p.of.name);
      ranks.push_back(p.rank);
      alphas.push_back(p.alpha);
      parts[p.of.name] = &p;
    }
  }
  for (const nn::LinearMap& m : nn::linear_maps(model, names.parts))
    for (const nn::LinearPart& p : m.parts)
      if (!adapted.contains(p.name)) others.insert(p.name);
  for (const nn::LinearMap& m : experts)
    for (const nn::LinearPart& p : m.parts) {
      if (!peft::is_each(p.name)) {
        if (!parameters.contains(p.name)) other_parameters.insert(p.name);
        continue;
      }
      for (int64_t e = 0; e < m.shape[0]; ++e)
        if (const std::string module = peft::of_expert(p.name, e); !adapted.contains(module)) others.insert(module);
    }

  // A module is saved whole: with what of it is frozen, too.
  std::set<std::string> own;
  for (const auto& [name, t] : nn::lora_parameters(model)) own.insert(name);
  for (const auto& [name, t] : model.named_parameters()) {
    if (!t.requires_grad() || own.contains(name)) continue;
    const auto theirs = names.tensors.find(name);
    check(theirs != names.tensors.end(), kSave, "'", name,
          "' is trained beside the adapters and cannot stand in their folder: save a whole checkpoint");
    whole.insert(module_of(theirs->second));
  }
  for (const auto& [name, t] : model.named_parameters())
    if (const auto theirs = names.tensors.find(name);
        theirs != names.tensors.end() && whole.contains(module_of(theirs->second)))
      put(theirs->second, t);

  const nn::Lora::Form form = maps[0].lora.form();
  nlohmann::ordered_json c;
  c["peft_type"] = "LORA";
  c["task_type"] = note.task_type.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(note.task_type);
  c["base_model_name_or_path"] = note.base.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(note.base);
  c["r"] = usual(ranks);
  c["lora_alpha"] = usual(alphas);
  c["lora_dropout"] = form.dropout;
  c["use_rslora"] = form.rslora;
  c["use_dora"] = form.dora;
  c["target_modules"] = targets_of(adapted, others, 1);
  if (!parameters.empty()) {
    c["target_parameters"] = targets_of(parameters, other_parameters, 2);
    c["peft_version"] = kStackedVersion;
  }
  c["rank_pattern"] = c["alpha_pattern"] = nlohmann::ordered_json::object();
  for (const auto& [name, p] : parts) {
    if (p->rank != usual(ranks)) c["rank_pattern"]["^" + name] = p->rank;
    if (p->alpha != usual(alphas)) c["alpha_pattern"]["^" + name] = p->alpha;
  }
  c["modules_to_save"] = whole.empty() ? nlohmann::ordered_json()
                                       : nlohmann::ordered_json(std::vector<std::string>(whole.begin(), whole.end()));
  c["bias"] = "none";
  c["fan_in_fan_out"] = names.fan_in_fan_out;
  c["init_lora_weights"] = true;
  c["inference_mode"] = true;

  io::make_directories(dir);
  io::save_safetensors(dir + std::string(kTensorFile), tensors, {{"format", "pt"}});
  std::string text;
  try {
    text = c.dump(2) + "\n";
  } catch (const nlohmann::json::exception&) {
    throw ValueError(kSave, "a name is not UTF-8");
  }
  io::write_file(dir + std::string(kConfigFile), text);
}

}  // namespace strata
