#include "strata/models/peft.h"

#include <algorithm>
#include <cmath>
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

struct Found {
  nn::LinearMap map;
  std::vector<nn::LoraPart> parts;
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
  check<IoError>(!found.empty() || !whole.empty(), kLoad, io::quote(path), ": holds no adapter");

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

// Last words where these name just the adapted modules among all; else the modules' whole names.
std::vector<std::string> targets_of(const std::set<std::string>& adapted, const std::set<std::string>& others) {
  const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
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
  std::map<std::string, const nn::LoraPart*> parts;
  const std::vector<nn::AdaptedMap> maps = nn::adapted_maps(model);
  check(!maps.empty(), kSave, "the ", model.kind(), " has no adapters");
  const auto put = [&](const std::string& name, const Tensor& t) {
    tensors.emplace(std::string(kPrefix) + name, t.detach().contiguous());
  };
  for (const nn::AdaptedMap& m : maps) {
    check(!m.lora.is_merged(), kSave, "the adapters of '", m.path, "' are merged into its weight");
    for (const nn::LoraPart& p : m.lora.parts()) {
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
  c["target_modules"] = targets_of(adapted, others);
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
