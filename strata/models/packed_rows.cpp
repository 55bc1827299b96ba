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
      packable_.insert(cat(name, kWeight));
      shapes[cat(name, kWeight)] = nn::dense_shape(nn::packed_weights(part));
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
  // Of GGUF a layer of which some rows have no format is the reader's; of a scheme its parts are decoded.
  for (auto it = of_parameter_.begin(); it != of_parameter_.end();) {
    bool whole = it->second.size() == count[it->first];
    if (gguf)
      for (const Part& p : it->second)
        whole = whole && shown_rows(p.row.gguf_view, shapes.at(it->first)).has_value();
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

// The parts as the matrix that the parameter is, or, where they are of several formats, as matrices below one another;
// nothing where they cannot be either.
std::vector<PackedWeight> PackedRows::joined(const std::vector<PackedWeight>& parts, const std::vector<Part>& rows,
                                             const Shape& shape) const {
  std::vector<std::vector<int64_t>> ours;  // of each part
  std::vector<int64_t> from(static_cast<size_t>(shape[0]), -1);
  int64_t count = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto shown = shown_rows(scheme_ ? rows[i].row.view : rows[i].row.gguf_view, shape);
    if (!shown || count + static_cast<int64_t>(shown->size()) > shape[0]) return {};
    for (const int64_t r : *shown) from[static_cast<size_t>(r)] = count++;
    ours.push_back(*shown);
  }
  if (count != shape[0] || std::ranges::find(from, -1) != from.end()) return {};
  bool alike = true;
  for (const PackedWeight& p : parts) {
    if (p.columns != shape[1] || p.order.defined() != parts[0].order.defined() ||
        (p.order.defined() && p.order.to_vector<int32_t>() != parts[0].order.to_vector<int32_t>()))
      return {};
    alike = alike && p.format == parts[0].format && p.block_columns == parts[0].block_columns;
  }
  const auto in_order = [](const PackedWeight& w, const std::vector<int64_t>& order) -> std::optional<PackedWeight> {
    if (std::ranges::is_sorted(order)) return w;
    if (w.format->scaled && w.block_rows > 1) return {};
    return take_rows(w, from_span<int64_t>(order, {static_cast<int64_t>(order.size())}));
  };
  if (alike) {
    const std::optional<PackedWeight> one = in_order(concat_rows(parts), from);
    return one ? std::vector{*one} : std::vector<PackedWeight>();
  }
  if (scheme_) return {};  // folders have one kind of low-bit layer
  // Each part's rows side by side, in any order among themselves.
  std::map<int64_t, PackedWeight> by_first;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto [least, most] = std::ranges::minmax(ours[i]);
    if (most - least + 1 != static_cast<int64_t>(ours[i].size())) return {};
    std::vector<int64_t> order(ours[i].size());
    for (size_t j = 0; j < order.size(); ++j) order[static_cast<size_t>(ours[i][j] - least)] = static_cast<int64_t>(j);
    const std::optional<PackedWeight> w = in_order(parts[i], order);
    if (!w) return {};
    by_first.emplace(least, *w);
  }
  std::vector<PackedWeight> all;
  for (const auto& [first, w] : by_first) all.push_back(w);
  return all;
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
    std::vector<PackedWeight> whole;
    if (packable_.contains(name)) whole = joined(parts, rows, parameter.shape());
    if (!whole.empty()) {
      for (PackedWeight& w : whole) w = moved(w, device);
      nn::pack_linear(modules.at(name.substr(0, name.size() - kWeight.size())), whole);
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
    const std::vector<PackedWeight> now = nn::packed_weights(part);
    const std::vector<PackedWeight> whole = joined(read_all(rows, files), rows, nn::dense_shape(now));
    return std::ranges::equal(whole, now, [](const PackedWeight& a, const PackedWeight& b) { return same_bits(a, b); });
  }
  for (const auto& [own, parameter] : module.named_parameters()) {
    if (own != name) continue;
    const Tensor view = (scheme_ ? row.view : row.gguf_view).of(parameter.detach());
    return same_bits(view, dequantize_weight(read(rows[place], files)).view(view.shape()).to(view.dtype()));
  }
  return false;
}

}  // namespace strata
