// Where the maps of a model stand in files, from the rows that loading goes by.

#include <algorithm>
#include <optional>

#include "strata/core/device.h"
#include "strata/models/peft.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr std::string_view kWeight = ".weight";

std::string without_end(const std::string& name) {
  return name.substr(0, name.size() - kWeight.size());
}

// One tensor of a file as rows of one of ours, and how they lie there.
struct FileRows {
  std::vector<int64_t> ours;  // in the file's order
  bool transposed = false;    // the file has them as columns
};

// Rows of each expert's matrix that an expert's tensor of a file is.
nn::LinearPart expert_part(const WeightRow& row, const Shape& shape) {
  const DeviceScope host(Device::cpu());
  const Tensor table = arange(shape[1], DType::i64).unsqueeze(1).expand(shape);
  const std::vector<int64_t> rows = row.view.of(table).narrow(1, 0, 1).contiguous().to_vector<int64_t>();
  std::string name = without_end(row.name);
  const std::string number = cat('.', row.expert, '.');
  name.replace(name.rfind(number), number.size(), ".*.");
  return {name, rows.front(), static_cast<int64_t>(rows.size())};
}

// By the view of a table in which every number of a row is the row's index, without memory for more than one column.
FileRows rows_of(const WeightRow& row, const Shape& shape) {
  const DeviceScope host(Device::cpu());  // its numbers are read, also of a model that has none
  const Tensor table = arange(shape[0], DType::i64).unsqueeze(1).expand(shape);
  Tensor seen = row.view.of(table);
  FileRows rows;
  bool column_seen = false;
  for (int d = 0; d < seen.dim(); ++d) {
    if (seen.size(d) == 1) continue;
    if (seen.strides()[d] != 0) {
      rows.transposed = column_seen;
      continue;
    }
    column_seen = true;
    seen = seen.narrow(d, 0, 1);
  }
  rows.ours = seen.contiguous().to_vector<int64_t>();
  return rows;
}

}  // namespace

AdapterNames adapter_names(const nn::Module& model, const std::vector<WeightRow>& rows) {
  AdapterNames names;
  std::map<std::string, Shape> maps, parameters;
  for (const nn::LinearMap& m : nn::linear_maps(model)) maps[m.path + std::string(kWeight)] = m.shape;
  for (const auto& [name, t] : model.named_parameters()) parameters[name] = t.shape();
  for (const WeightRow& row : rows) {
    if (row.name.empty()) continue;  // in GGUF alone
    if (row.expert >= 0) {
      const auto stacked = parameters.find(row.parameter);
      if (row.expert > 0 || stacked == parameters.end()) continue;
      std::vector<nn::LinearPart>& parts = names.parts[row.parameter];
      if (parts.empty()) parts.push_back({row.stacked, 0, stacked->second[1]});
      parts.push_back(expert_part(row, stacked->second));
      continue;
    }
    const auto map = maps.find(row.parameter);
    const bool whole = parameters.contains(row.parameter) && parameters[row.parameter] == row.shape;
    if (map == maps.end()) {
      if (whole) names.tensors.emplace(row.parameter, row.name);  // of tied ones the first
      continue;
    }
    if (!row.name.ends_with(kWeight)) continue;
    const FileRows file = rows_of(row, map->second);
    if (file.ours.empty()) continue;
    const auto [least, most] = std::ranges::minmax(file.ours);
    const auto count = static_cast<int64_t>(file.ours.size());
    if (most - least + 1 != count) continue;
    const std::string name = without_end(row.name);
    names.parts[without_end(row.parameter)].push_back({name, least, count});
    names.fan_in_fan_out |= file.transposed;
    const bool in_order = std::ranges::is_sorted(file.ours);
    if (!in_order) {
      std::vector<int64_t>& order = names.rows[name];
      order.resize(file.ours.size());
      for (size_t i = 0; i < file.ours.size(); ++i)
        order[static_cast<size_t>(file.ours[i] - least)] = static_cast<int64_t>(i);
    }
    if (whole && in_order && !file.transposed)
      names.tensors.emplace(row.parameter, row.name);  // of tied ones the first
  }
  return names;
}

AdapterNames own_adapter_names(const LanguageModel& model) {
  AdapterNames names;
  for (const auto& [name, t] : model.named_parameters()) names.tensors[name] = name;
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    const std::string block = cat("blocks.", i, '.');
    const nn::AttentionSpec& a = model.blocks[i].attn.spec();
    const int64_t q = a.heads * a.head_size, k = a.kv_heads * a.head_size, v = a.kv_heads * a.value_size;
    const std::string attn = block + "attn.", mlp = block + "mlp.";
    names.parts[attn + "qkv"] = {{attn + "q", 0, q}, {attn + "k", q, k}, {attn + "v", q + k, v}};
    const int64_t width = model.blocks[i].mlp.spec().width;
    if (model.blocks[i].mlp.gate_up)
      names.parts[mlp + "gate_up"] = {{mlp + "gate", 0, width}, {mlp + "up", width, width}};
  }
  return names;
}

}  // namespace strata
