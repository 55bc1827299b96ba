#include "strata/models/packed_export_inl.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <utility>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/weight_files.h"
#include "strata/nn/packed.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"

namespace strata {
namespace {

constexpr std::string_view kOp = "save_pretrained", kWeight = ".weight";

const PackedFile& file_named(std::string_view name) {
  return *std::ranges::find(packed_files(), name, &PackedFile::name);
}

// What stores weights as `w` is, by itself.
PackedScheme scheme_for(const PackedWeight& w, std::string_view layer, DType dense) {
  PackedScheme s;
  s.group_size = w.block_columns, s.block_rows = w.block_rows;
  s.symmetric = !w.zeros.defined(), s.act_order = w.order.defined();
  switch (w.format->codes) {
    case WeightCodes::int4:
      s.file = &file_named("compressed-tensors pack-quantized");
      return s;
    case WeightCodes::int8: {
      const bool words = w.zeros.defined() || w.order.defined() || w.block_columns > 0;
      s.file = &file_named(words ? "compressed-tensors pack-quantized" : "compressed-tensors int-quantized");
      s.bits = 8;
      return s;
    }
    case WeightCodes::e4m3:
      s.file = &file_named("compressed-tensors float-quantized");
      s.bits = 8;
      return s;
    case WeightCodes::nf4:
      s.file = &file_named("bitsandbytes nf4");
      s.symmetric = false;
      s.storage_dtype = io::stored_type(dense).torch;
      return s;
    default:
      break;
  }
  throw ValueError(kOp, cat("\"", layer, "\" is of ", w.format->name,
                            ", which only GGUF files store: save_gguf(), or nn::unpack_linear() first"));
}

// [first, first + count) of the rows of a matrix whose scales are for blocks of rows.
PackedWeight narrowed(PackedWeight w, int64_t first, int64_t count) {
  w.codes = w.codes.narrow(0, first, count).contiguous();
  const int64_t begin = first / w.block_rows, blocks = (count + w.block_rows - 1) / w.block_rows;
  w.scales = w.scales.narrow(0, begin, blocks).contiguous();
  if (w.zeros.defined()) w.zeros = w.zeros.narrow(0, begin, blocks).contiguous();
  w.rows = count;
  return w;
}

// The rows that a row of the family shows of a layer; nothing where it does not show whole ones.
std::optional<PackedWeight> shown(const PackedWeight& w, const WeightView& view) {
  const std::optional<std::vector<int64_t>> rows = shown_rows(view, {w.rows, w.columns});
  if (!rows) return {};
  std::vector<int64_t> all(static_cast<size_t>(w.rows));
  std::iota(all.begin(), all.end(), 0);
  if (*rows == all) return w;
  const auto count = static_cast<int64_t>(rows->size());
  if (w.format->scaled && w.block_rows > 1) {
    const int64_t first = rows->front();
    for (int64_t i = 0; i < count; ++i)
      if ((*rows)[static_cast<size_t>(i)] != first + i) return {};
    if (first % w.block_rows != 0 || (count % w.block_rows != 0 && first + count != w.rows)) return {};
    return narrowed(w, first, count);
  }
  return take_rows(w, from_span<int64_t>(*rows, {count}));
}

// The same with a scale for each `block_rows` rows where it has one for each row and those of a block are equal: what
// became of matrices that were joined.
PackedWeight with_blocks(const PackedWeight& w, int64_t block_rows) {
  if (w.block_rows == block_rows || w.block_rows != 1 || w.rows == 0 || w.nested.defined()) return w;
  PackedWeight y = w;
  y.block_rows = block_rows;
  std::vector<int64_t> first, of;
  const int64_t step = block_rows == 0 ? w.rows : block_rows;
  for (int64_t r = 0; r < w.rows; ++r) {
    of.push_back(r / step * step);
    if (r % step == 0) first.push_back(r);
  }
  const auto rows_at = [](const Tensor& t, const std::vector<int64_t>& rows) {
    return index_select(t, 0, from_span<int64_t>(rows, {static_cast<int64_t>(rows.size())}).to(t.device()));
  };
  for (Tensor* t : {&y.scales, &y.zeros}) {
    if (!t->defined()) continue;
    if (!equal(rows_at(*t, of), *t)) return w;
    *t = rows_at(*t, first);
  }
  return y;
}

}  // namespace

PackedExport::~PackedExport() = default;

PackedExport::PackedExport(const nn::Module& module, const Family& family, const std::vector<WeightRow>& rows,
                           std::optional<PackedScheme> scheme, const std::string& source)
    : scheme_(std::move(scheme)) {
  const NoGrad guard;
  std::map<std::string, PackedWeight> packed;
  for (const auto& [name, p] : module.named_parameters()) parameters_.insert(name);
  for (const auto& [name, part] : module.named_modules())
    if (nn::is_packed(part)) {
      const std::vector<PackedWeight> all = nn::packed_weights(part);
      check(all.size() == 1, kOp, "\"", name, "\" is of matrices of several formats, ", all.front().format->name, " and ",
            all.back().format->name, ": a folder has one kind of low-bit layer; nn::unpack_linear() first");
      packed.emplace(cat(name, kWeight), all[0]);
    }
  if (packed.empty() && !scheme_) return;
  if (scheme_ && !source.empty() && std::filesystem::exists(source)) {
    source_ = std::make_unique<io::WeightFiles>(source);
    prefix_ = left_out_prefix(family, *source_);
    there_ = std::make_unique<PackedRows>(module, rows, prefix_, *source_, scheme_);
  }
  if (!scheme_) {
    const auto parameters = module.named_parameters();
    const auto& [layer, first] = *packed.begin();
    scheme_ = scheme_for(first, layer, parameters.empty() ? DType::f32 : parameters.front().second.dtype());
    for (const auto& [name, w] : packed) {
      check(w.format == first.format && w.block_rows == first.block_rows && w.block_columns == first.block_columns &&
                w.zeros.defined() == first.zeros.defined(),
            kOp, "\"", layer, "\" is of ", first.format->name, " and \"", name, "\" of ", w.format->name,
            w.format == first.format ? " in other blocks" : "", ": a folder has one kind of low-bit layer");
      scheme_->act_order = scheme_->act_order || w.order.defined();
    }
  }
  for (const WeightRow& row : rows) {
    if (row.repeats || row.name.empty() || !row.name.ends_with(kWeight)) continue;
    Layer layer{.row = row, .name = row.name.substr(0, row.name.size() - kWeight.size())};
    const auto found = packed.find(row.parameter);
    layer.copied = is_as_it_came(module, row);
    if (layer.copied) {
      for (const std::string& entry : *there_->entries(row)) {
        const io::WeightEntry& e = source_->entry(entry);
        const bool lacks = !prefix_.empty() && row.name.starts_with(prefix_);
        layer.items.push_back({cat(lacks ? prefix_ : "", entry), e.type, e.shape});
      }
    } else if (found != packed.end()) {
      const std::optional<PackedWeight> part = shown(found->second, row.view);
      check(part.has_value(), kOp, "low-bit weights of \"", row.parameter, "\" cannot be stored as ", row.name,
            ": it is not made of whole rows of them; nn::unpack_linear() first");
      layer.weight = with_blocks(*part, scheme_->block_rows);
      for (const auto& [suffix, t] : pieces(layer)) {
        const bool fp8 = suffix == "weight" && layer.weight.format->codes == WeightCodes::e4m3;
        layer.items.push_back({cat(layer.name, ".", suffix),
                               fp8 ? io::find_stored_type("F8_E4M3") : &io::stored_type(t.dtype()), t.shape()});
      }
    } else {
      continue;
    }
    for (const io::StoredItem& item : layer.items) layer_of_.emplace(item.name, row.name);
    layers_.emplace(row.name, std::move(layer));
  }
}

bool PackedExport::is_as_it_came(const nn::Module& module, const WeightRow& row) {
  if (!there_ || there_->entries(row) == nullptr) return false;
  // All rows of a packed layer came or came not; those of a parameter are each for themselves.
  const auto [known, fresh] = as_it_came_.try_emplace(parameters_.contains(row.parameter) ? row.name : row.parameter);
  if (fresh) known->second = there_->holds(module, row, *source_);
  return known->second;
}

PackedPieces PackedExport::pieces(const Layer& layer) const {
  return write_packed(*scheme_, layer.weight, layer.name);
}

const std::vector<io::StoredItem>* PackedExport::items(const WeightRow& row) const {
  const auto found = layers_.find(row.name);
  return found == layers_.end() ? nullptr : &found->second.items;
}

Tensor PackedExport::bytes(const std::string& item) const {
  const Layer& layer = layers_.at(layer_of_.at(item));
  if (layer.copied) {
    const bool lacks = !prefix_.empty() && layer.row.name.starts_with(prefix_);
    return source_->bytes(lacks ? item.substr(prefix_.size()) : item);
  }
  if (last_.first != layer.name) last_ = {layer.name, pieces(layer)};
  const Tensor t = last_.second.at(item.substr(layer.name.size() + 1)).contiguous();
  const Tensor bytes = empty({{t.nbytes()}, DType::u8, Device::cpu(), std::nullopt});
  if (t.nbytes() > 0) std::memcpy(bytes.raw_data(), t.raw_data(), static_cast<size_t>(t.nbytes()));
  return bytes;
}

}  // namespace strata
