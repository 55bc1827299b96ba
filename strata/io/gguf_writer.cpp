#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/gguf.h"
#include "strata/io/gguf_coding_inl.h"

namespace strata::io {
namespace {

constexpr std::string_view kOp = "GgufWriter";

bool is_utf8(std::string_view text) {
  try {
    return !nlohmann::json(text).dump().empty();
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

void check_text(std::string_view text, std::string_view what) {
  check<ValueError>(!text.empty(), kOp, what, " is empty");
  check<ValueError>(is_utf8(text), kOp, what, " ", quote(text), " is not UTF-8");
}

uint64_t bytes_of(const GgufItem& item) {
  return *stored_bytes(*item.type, item.shape);
}

void check_item(const GgufItem& item, std::set<std::string_view>& names) {
  check_text(item.name, "a tensor's name");
  const std::string what = cat("tensor ", quote(item.name));
  check<ValueError>(names.insert(item.name).second, kOp, what, " is given twice");
  check<ValueError>(item.type && item.type->ggml >= 0, kOp, what, ": GGUF files have no type for ",
                    item.type ? item.type->name : "it");
  check<ValueError>(stored_bytes(*item.type, item.shape).has_value(), kOp, what, ": shape ", item.shape, " of ",
                    item.type->name, " is too large, or its last size is no multiple of ", item.type->block);
}

uint64_t alignment_of(const GgufMetadata& metadata) {
  const GgufValue* value = metadata.find(kGgufAlignmentKey);
  if (!value) return kGgufAlignment;
  const int64_t alignment = value->type() == GgufType::u32 ? value->integer() : 0;
  check<ValueError>(alignment > 0 && (alignment & (alignment - 1)) == 0, kOp, "key '", kGgufAlignmentKey,
                    "': a u32 that is a power of two is wanted");
  return static_cast<uint64_t>(alignment);
}

// All before the data, with the padding after it; `data_bytes` are what the tensors need with theirs.
std::string header_of(const GgufMetadata& metadata, const std::vector<GgufItem>& items, uint32_t version,
                      uint64_t alignment, uint64_t& data_bytes) {
  check<ValueError>(version == 2 || version == 3, kOp, "version ", version, ": 2 and 3 are written");
  std::string header(kGguf);
  append_number(header, version);
  append_number<uint64_t>(header, items.size());
  append_number<uint64_t>(header, metadata.entries().size());
  for (const auto& [key, value] : metadata.entries()) {
    check_text(key, "a key");
    append_string(header, key);
    append_number(header, static_cast<uint32_t>(value.type()));
    GgufCoding::write(header, value);
  }
  std::set<std::string_view> names;
  data_bytes = 0;
  for (const GgufItem& item : items) {
    check_item(item, names);
    append_string(header, item.name);
    append_number(header, static_cast<uint32_t>(item.shape.size()));
    for (int i = item.shape.size(); i > 0; --i)
      append_number<uint64_t>(header, static_cast<uint64_t>(item.shape[i - 1]));
    append_number(header, static_cast<uint32_t>(item.type->ggml));
    append_number<uint64_t>(header, data_bytes);
    data_bytes += padded(bytes_of(item), alignment);
  }
  check<ValueError>(header.size() <= kMaxGgufHeader, kOp, "metadata and table would have ", header.size(),
                    " bytes, at most ", kMaxGgufHeader, " are allowed");
  header.resize(padded(header.size(), alignment), '\0');
  return header;
}

}  // namespace

struct GgufWriter::State {
  uint64_t alignment, data_bytes = 0;
  std::vector<GgufItem> items;
  std::string header;
  FileWriter file;
  size_t next = 0;

  State(const std::string& path, const GgufMetadata& metadata, std::vector<GgufItem> all, uint32_t version)
      : alignment(alignment_of(metadata)),
        items(std::move(all)),
        header(header_of(metadata, items, version, alignment, data_bytes)),
        file(path, header.size() + data_bytes) {
    file.write(header);
    header = {};
  }
  const GgufItem& take() {
    check<ValueError>(next < items.size(), kOp, "all ", items.size(), " tensors have been written");
    return items[next];
  }
  void pad() {
    const uint64_t bytes = bytes_of(items[next]);
    file.write(std::string(padded(bytes, alignment) - bytes, '\0'));
    ++next;
  }
};

GgufWriter::GgufWriter(const std::string& path, const GgufMetadata& metadata, std::vector<GgufItem> items,
                       uint32_t version)
    : state_(std::make_unique<State>(path, metadata, std::move(items), version)) {}
GgufWriter::~GgufWriter() = default;
GgufWriter::GgufWriter(GgufWriter&&) noexcept = default;

void GgufWriter::write(const Tensor& tensor) {
  const GgufItem& item = state_->take();
  const StoredType& type = *item.type;
  const std::string what = cat("tensor ", quote(item.name));
  check<DTypeError>(type.dtype && (type.is_plain() || type.encode), kOp, what, ": there is no encoder for ", type.name);
  check<DTypeError>(type.is_plain() || is_floating(tensor.dtype()), kOp, what, ": ", tensor.dtype(),
                    " does not become ", type.name, ", floating elements are wanted");
  check<ShapeError>(tensor.shape() == item.shape, kOp, what, " is ", tensor.shape(), ", ", item.shape,
                    " was said before");
  check<DeviceError>(!tensor.is_meta(), kOp, what, " is a meta tensor: it has no data");
  constexpr int64_t kPiece = int64_t{1} << 20;  // elements, a multiple of every block
  const Tensor flat = tensor.detach().reshape({tensor.numel()});
  std::string blocks;
  for (int64_t at = 0; at < flat.numel(); at += kPiece) {
    const int64_t n = std::min(kPiece, flat.numel() - at);
    const memory::TierScope own{Tier()};
    const Tensor piece = flat.narrow(0, at, n).to(*type.dtype).to(Device::cpu()).contiguous();
    const Pin pin(piece, Access::read);
    if (type.is_plain()) {
      state_->file.write(piece.raw_data(), static_cast<size_t>(piece.nbytes()));
      continue;
    }
    blocks.resize(static_cast<size_t>(n / type.block * type.block_bytes));
    try {
      type.encode(piece.data<float>(), n / type.block, reinterpret_cast<std::byte*>(blocks.data()));
    } catch (const ValueError& e) {
      throw ValueError(kOp, cat(what, ": ", e.what()));
    }
    state_->file.write(blocks);
  }
  state_->pad();
}

void GgufWriter::write_bytes(std::span<const std::byte> bytes) {
  const GgufItem& item = state_->take();
  check<ValueError>(bytes.size() == bytes_of(item), kOp, "tensor ", quote(item.name), ": ", bytes.size(),
                    " bytes are given, ", bytes_of(item), " are wanted");
  state_->file.write(bytes.data(), bytes.size());
  state_->pad();
}

WrittenFile GgufWriter::commit() {
  check<ValueError>(state_->next == state_->items.size(), kOp, state_->items.size() - state_->next,
                    " tensors have not been written");
  return state_->file.commit();
}

}  // namespace strata::io
