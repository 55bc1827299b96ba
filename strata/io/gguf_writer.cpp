#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/gguf.h"
#include "strata/io/gguf_coding_inl.h"
#include "strata/io/stored_write_inl.h"

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

uint64_t bytes_of(const StoredItem& item) {
  return *stored_bytes(*item.type, item.shape);
}

void check_item(const StoredItem& item, std::set<std::string_view>& names) {
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
std::string header_of(const GgufMetadata& metadata, const std::vector<StoredItem>& items, uint32_t version,
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
  for (const StoredItem& item : items) {
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
  std::vector<StoredItem> items;
  std::string header;
  FileWriter file;
  size_t next = 0;
  uint64_t position = 0;  // in the file, of the next tensor

  State(const std::string& path, const GgufMetadata& metadata, std::vector<StoredItem> all, uint32_t version)
      : alignment(alignment_of(metadata)),
        items(std::move(all)),
        header(header_of(metadata, items, version, alignment, data_bytes)),
        file(path, header.size() + data_bytes) {
    file.write(header);
    position = header.size();
    header = {};
  }
  const StoredItem& take() {
    check<ValueError>(next < items.size(), kOp, "all ", items.size(), " tensors have been written");
    check<ValueError>(file.bytes_written() == position, kOp, "tensor ", quote(items[next].name),
                      " was written in part, when an error ended that");
    return items[next];
  }
  void pad() {
    const uint64_t bytes = bytes_of(items[next]);
    file.write(std::string(padded(bytes, alignment) - bytes, '\0'));
    position += padded(bytes, alignment);
    ++next;
  }
};

GgufWriter::GgufWriter(const std::string& path, const GgufMetadata& metadata, std::vector<StoredItem> items,
                       uint32_t version)
    : state_(std::make_unique<State>(path, metadata, std::move(items), version)) {}
GgufWriter::~GgufWriter() = default;
GgufWriter::GgufWriter(GgufWriter&&) noexcept = default;

void GgufWriter::write(const Tensor& tensor) {
  const StoredItem& item = state_->take();
  write_stored(state_->file, item, tensor, kOp);
  state_->pad();
}

void GgufWriter::write_bytes(std::span<const std::byte> bytes) {
  write_stored(state_->file, state_->take(), bytes, kOp);
  state_->pad();
}

WrittenFile GgufWriter::commit() {
  check<ValueError>(state_->next == state_->items.size(), kOp, state_->items.size() - state_->next,
                    " tensors have not been written");
  return state_->file.commit();
}

}  // namespace strata::io
