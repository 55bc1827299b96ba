#include "strata/models/packed_rows_inl.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/weight_files.h"
#include "strata/nn/deferred_inl.h"
#include "strata/nn/packed.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/lowbit/lowbit.h"

namespace strata {
namespace {

constexpr std::string_view kName = "load_weights", kWeight = ".weight";

std::string key_of(const WeightRow& row) {
  return cat(row.parameter, '\n', row.name, '\n', row.gguf);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  const Tensor x = a.detach().to(Device::cpu()).contiguous(), y = b.detach().to(Device::cpu()).contiguous();
  return x.numel() == 0 || std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}
bool same_bits(const PackedWeight& a, const PackedWeight& b) {
  return a.format == b.format && a.rows == b.rows && a.columns == b.columns && a.block_rows == b.block_rows &&
         a.block_columns == b.block_columns && same_bits(a.codes, b.codes) && same_bits(a.scales, b.scales) &&
         same_bits(a.zeros, b.zeros) && same_bits(a.order, b.order) && same_bits(a.nested, b.nested);
}

}  // namespace

std::string_view left_out_prefix(const Family& family, const io::WeightFiles& files) {
  if (files.format() == io::WeightsFormat::gguf) return {};
  for (const io::WeightEntry& e : files.entries())
    if (e.name.starts_with(family.base_prefix)) return {};
  return family.base_prefix;
}

std::optional<std::vector<int64_t>> shown_rows(const WeightView& view, const Shape& shape) {
  if (shape.size() != 2 || shape[1] == 0) return {};
  const Tensor v = view.of(empty({shape, DType::u8, Device::meta(), std::nullopt}));
  const int64_t columns = shape[1], last = v.dim() - 1;
  if (last < 0 || v.size(last) != columns || (columns > 1 && v.strides()[last] != 1) ||
      v.storage_offset() % columns != 0)
    return {};
  std::vector<int64_t> rows{v.storage_offset() / columns};
  for (int64_t d = 0; d < last; ++d) {
    if (v.strides()[d] % columns != 0) return {};
    std::vector<int64_t> more;
    for (const int64_t r : rows)
      for (int64_t i = 0; i < v.size(d); ++i) more.push_back(r + i * (v.strides()[d] / columns));
    rows = std::move(more);
  }
  return rows;
}

PackedRows::PackedRows(const nn::Module& module, const std::vector<WeightRow>& rows, std::string_view prefix,
                       const io::WeightFiles& files, const std::optional<PackedScheme>& scheme, bool keep_packed)
    : scheme_(scheme) {
  const bool gguf = files.format() == io::WeightsFormat::gguf;
  if (gguf ? !keep_packed : !scheme) return;
  if (keep_packed)
    for (const std::string& layer : nn::packable_layers(module, {"head"})) packable_.insert(cat(layer, kWeight));
  std::map<std::string, Shape> shapes;
  for (const auto& [name, t] : module.named_parameters()) shapes.emplace(name, t.shape());
  for (const auto& [name, part] : module.named_modules())  // those that are packed already
    if (nn::is_packed(part)) {
      const PackedWeight w = nn::packed_weight(part);
      packable_.insert(cat(name, kWeight));
      shapes[cat(name, kWeight)] = {w.rows, w.columns};
    }
  std::map<std::string, size_t> count;  // rows of each parameter
  for (const WeightRow& row : rows) {
    ++count[row.parameter];
    Part part{row, gguf ? row.gguf : row.name, {}};
    if (!gguf && !prefix.empty() && part.layer.starts_with(prefix)) part.layer.erase(0, prefix.size());
    if (!part.layer.ends_with(kWeight)) continue;
    if (gguf) {
      const io::WeightEntry* entry = files.find(part.layer);
      if (!entry || !packable_.contains(row.parameter) || row.gguf_plus != 0 || !packed_gguf_format(entry->type->name))
        continue;
      part.entries.push_back(part.layer);
    } else {
      const std::string name = part.layer;
      part.layer.resize(name.size() - kWeight.size());
      PackedPieces there;
      for (const PackedPiece& p : scheme->file->pieces)
        if (std::string own = cat(part.layer, ".", p.suffix); files.contains(own)) {
          there.emplace(p.suffix, Tensor());
          part.entries.push_back(std::move(own));
        }
      if (!is_packed_layer(*scheme, there)) continue;
    }
    std::vector<Part>& all = of_parameter_[row.parameter];
    places_[key_of(row)] = {row.parameter, all.size()};
    all.push_back(std::move(part));
  }
  // Of GGUF a layer whose rows are of several formats is the reader's; of a scheme its parts are decoded.
  for (auto it = of_parameter_.begin(); it != of_parameter_.end();) {
    bool whole = it->second.size() == count[it->first];
    if (gguf)
      for (const Part& p : it->second)
        whole = whole &&
                packed_gguf_format(files.entry(p.layer).type->name) ==
                    packed_gguf_format(files.entry(it->second[0].layer).type->name) &&
                shown_rows(p.row.gguf_view, shapes.at(it->first)).has_value();
    if (gguf && !whole) {
      for (const Part& p : it->second) places_.erase(key_of(p.row));
      it = of_parameter_.erase(it);
      continue;
    }
    if (!whole) packable_.erase(it->first);
    ++it;
  }
}

const std::vector<std::string>* PackedRows::entries(const WeightRow& row) const {
  const auto found = places_.find(key_of(row));
  if (found == places_.end()) return nullptr;
  return &of_parameter_.at(found->second.first)[found->second.second].entries;
}

std::set<std::string> PackedRows::to_pack() const {
  std::set<std::string> names;
  for (const auto& [name, parts] : of_parameter_)
    if (packable_.contains(name)) names.insert(name);
  return names;
}

PackedWeight PackedRows::read(const Part& part, const io::WeightFiles& files) const {
  if (files.format() == io::WeightsFormat::gguf) {
    const io::WeightEntry& entry = files.entry(part.layer);
    check<ShapeError>(entry.shape == part.row.shape, kName, files.path(), ": ", part.layer, " is ", entry.shape,
                      ", is to be ", part.row.shape);
    return packed_gguf(entry.type->name, files.bytes(part.layer), entry.shape[0], entry.shape[1]);
  }
  PackedPieces pieces;
  for (const std::string& name : part.entries) {
    const io::WeightEntry& entry = files.entry(name);
    const bool bytes = !entry.type->dtype.has_value() && entry.type->name == "F8_E4M3";
    pieces.emplace(name.substr(part.layer.size() + 1),
                   bytes ? files.bytes(name).view(entry.shape) : files.tensor(name));
  }
  PackedWeight w = read_packed(*scheme_, pieces, cat(files.path(), ": ", part.layer));
  check<ShapeError>(Shape({w.rows, w.columns}) == part.row.shape, kName, files.path(), ": ", part.layer, " is [",
                    w.rows, ", ", w.columns, "], is to be ", part.row.shape);
  return w;
}

std::vector<PackedWeight> PackedRows::read_all(const std::vector<Part>& rows, const io::WeightFiles& files) const {
  std::vector<PackedWeight> parts;
  for (const Part& p : rows) parts.push_back(read(p, files));
  return parts;
}

// The parts as the one matrix that the parameter is; nothing where they cannot be.
std::optional<PackedWeight> PackedRows::joined(const std::vector<PackedWeight>& parts, const std::vector<Part>& rows,
                                               const Shape& shape) const {
  std::vector<int64_t> ours;
  for (const Part& p : rows) {
    const auto shown = shown_rows(scheme_ ? p.row.view : p.row.gguf_view, shape);
    if (!shown) return {};
    ours.insert(ours.end(), shown->begin(), shown->end());
  }
  std::vector<int64_t> from(ours.size(), -1);
  if (static_cast<int64_t>(ours.size()) != shape[0]) return {};
  for (size_t j = 0; j < ours.size(); ++j) from[static_cast<size_t>(ours[j])] = static_cast<int64_t>(j);
  if (std::ranges::find(from, -1) != from.end()) return {};
  for (const PackedWeight& p : parts)
    if (p.format != parts[0].format || p.block_columns != parts[0].block_columns || p.columns != shape[1] ||
        p.order.defined() != parts[0].order.defined() ||
        (p.order.defined() && p.order.to_vector<int32_t>() != parts[0].order.to_vector<int32_t>()))
      return {};
  const PackedWeight w = concat_rows(parts);
  if (std::ranges::is_sorted(from)) return w;
  if (w.format->scaled && w.block_rows > 1) return {};
  return take_rows(w, from_span<int64_t>(from, {shape[0]}));
}

void PackedRows::load(const nn::Module& module, const io::WeightFiles& files) const {
  const NoGrad guard;
  std::map<std::string, nn::Module> modules;
  for (const auto& [name, part] : module.named_modules()) modules.emplace(name, part);
  std::map<std::string, Tensor> parameters;
  for (const auto& [name, t] : module.named_parameters()) parameters.emplace(name, t);
  std::set<std::string> later = to_pack();
  for (const auto& [name, rows] : of_parameter_) {
    const Tensor parameter = parameters.at(name);
    const Device device = parameter.is_meta() ? default_device() : parameter.device();
    const std::vector<PackedWeight> parts = read_all(rows, files);
    const std::optional<PackedWeight> whole =
        packable_.contains(name) ? joined(parts, rows, parameter.shape()) : std::nullopt;
    if (whole) {
      nn::pack_linear(modules.at(name.substr(0, name.size() - kWeight.size())), moved(*whole, device));
      continue;
    }
    later.erase(name);
    nn::detail::make_deferred(module, later);
    for (size_t i = 0; i < rows.size(); ++i) {
      const Tensor view = (scheme_ ? rows[i].row.view : rows[i].row.gguf_view).of(parameter.detach());
      Tensor(view).copy_(dequantize_weight(parts[i]).view(view.shape()));
    }
  }
}

bool PackedRows::holds(const nn::Module& module, const WeightRow& row, const io::WeightFiles& files) const {
  const NoGrad guard;
  const auto found = places_.find(key_of(row));
  if (found == places_.end()) return false;
  const auto& [name, place] = found->second;
  const std::vector<Part>& rows = of_parameter_.at(name);
  for (const auto& [layer, part] : module.named_modules()) {
    if (cat(layer, kWeight) != name || !nn::is_packed(part)) continue;
    const PackedWeight now = nn::packed_weight(part);
    const std::optional<PackedWeight> whole = joined(read_all(rows, files), rows, {now.rows, now.columns});
    return whole && same_bits(*whole, now);
  }
  for (const auto& [own, parameter] : module.named_parameters()) {
    if (own != name) continue;
    const Tensor view = (scheme_ ? row.view : row.gguf_view).of(parameter.detach());
    return same_bits(view, dequantize_weight(read(rows[place], files)).view(view.shape()).to(view.dtype()));
  }
  return false;
}

}  // namespace strata
