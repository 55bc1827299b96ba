// The safetensors header of a file that is to be written.

#include <algorithm>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/safetensors_stored_inl.h"

namespace strata::io {
namespace {

constexpr std::string_view kOp = "save_safetensors";

std::string json_string(std::string_view text, std::string_view what) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw ValueError(kOp, cat(what, " ", quote(text), " is not UTF-8"));
  }
}

int64_t element_bytes(const StoredItem& item) {
  return item.type->block_bytes / item.type->block;
}

void check_names(const std::vector<StoredItem>& items) {
  std::vector<std::string_view> names;
  names.reserve(items.size());
  for (const StoredItem& item : items) names.push_back(item.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  check<ValueError>(twice == names.end(), kOp, "the name ", twice == names.end() ? "" : quote(*twice),
                    " is given twice");
}

}  // namespace

std::string stored_header(std::vector<StoredItem>& items, const Metadata& metadata, uint64_t& data_bytes) {
  check_names(items);
  std::sort(items.begin(), items.end(), [](const StoredItem& a, const StoredItem& b) {
    const int64_t sa = element_bytes(a), sb = element_bytes(b);
    return sa != sb ? sa > sb : a.name < b.name;
  });

  // Written by hand, so that the header keeps the order of the data.
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (header.back() != '{') header += ',';
      header += json_string(key, "the metadata key") + ":" + json_string(value, "the metadata value");
    }
    header += '}';
  }
  uint64_t position = 0;
  for (const StoredItem& item : items) {
    check<ValueError>(!item.name.empty() && item.name != "__metadata__", kOp, "a tensor cannot be named ",
                      quote(item.name));
    check<ValueError>(item.type->safetensors, kOp, "tensor ", quote(item.name), ": the format has no type ",
                      item.type->name);
    const std::optional<uint64_t> bytes = stored_bytes(*item.type, item.shape);
    check<ValueError>(bytes.has_value(), kOp, "tensor ", quote(item.name), ": shape ", item.shape, " of ",
                      item.type->name, " is no whole number of bytes, or too large");
    if (header.size() > 1) header += ',';
    header += json_string(item.name, "the name") + ":{\"dtype\":\"" + std::string(item.type->name) + "\",\"shape\":[";
    for (int i = 0; i < item.shape.size(); ++i) header += cat(i ? "," : "", item.shape[i]);
    header += cat("],\"data_offsets\":[", position, ",", position + *bytes, "]}");
    position += *bytes;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');  // the data starts aligned
  check<ValueError>(header.size() <= kMaxSafetensorsHeader, kOp, "the header would have ", header.size(),
                    " bytes, at most ", kMaxSafetensorsHeader, " are allowed: use fewer tensors or less metadata");

  data_bytes = position;
  const uint64_t length = header.size();
  header.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
  return header;
}

}  // namespace strata::io
