#include "strata/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "strata/core/backend.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/fill.h"

namespace strata::io {
namespace {
constexpr std::string_view kOp = "safetensors";

std::string_view format_name(DType type) {
  switch (type) {
    case DType::u8:
      return "U8";
    case DType::i8:
      return "I8";
    case DType::i16:
      return "I16";
    case DType::i32:
      return "I32";
    case DType::i64:
      return "I64";
    case DType::f16:
      return "F16";
    case DType::bf16:
      return "BF16";
    case DType::f32:
      return "F32";
    case DType::f64:
      return "F64";
    case DType::boolean:
      return "BOOL";
  }
  return "";
}

std::string json_string(std::string_view text, std::string_view what) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw ValueError("save_safetensors", cat(what, " ", quote(text), " is not UTF-8"));
  }
}
void check_booleans(const Tensor& t, const SafetensorsEntry& e, std::string_view file) {
  if (e.dtype != DType::boolean || e.nbytes == 0) return;
  const Pin pin(t, Access::read);
  const auto* bytes = static_cast<const uint8_t*>(t.raw_data());
  const auto* bad = std::find_if(bytes, bytes + e.nbytes, [](uint8_t b) { return b > 1; });
  check<IoError>(bad == bytes + e.nbytes, kOp, quote(file), ": tensor ", quote(e.name), ": byte ", bad - bytes,
                 " of its data is neither 0 nor 1, which BOOL does not allow");
}

template <class Read>
Tensor copy_entry(const SafetensorsEntry& e, std::string_view file, Read&& read) {
  Tensor t = empty(TensorMeta{e.shape, e.dtype, Device::cpu()});
  if (e.nbytes == 0) return t;
  const Pin pin(t);
  read(t.raw_data());
  check_booleans(t, e, file);
  return t;
}

// Whether the bytes of an entry can be read straight into `t`.
bool takes(const Tensor& t, const SafetensorsEntry& e) {
  return t.defined() && !t.is_meta() && t.dtype() == e.dtype && t.shape() == e.shape && t.is_contiguous() &&
         e.dtype != DType::boolean;
}
}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : SafetensorsFile(InputFile(path)) {}

SafetensorsFile::SafetensorsFile(InputFile file) : file_(std::move(file)), header_(read_safetensors_header(file_)) {
  for (size_t i = 0; i < header_.entries.size(); ++i) index_.emplace(header_.entries[i].name, i);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.entries[found->second];
}

const SafetensorsEntry& SafetensorsFile::entry(std::string_view name) const {
  const SafetensorsEntry* e = find(name);
  check<IoError>(e != nullptr, kOp, quote(path()), ": has no tensor ", quote(name), " (it has ", entries().size(),
                 " tensors)");
  return *e;
}

Tensor SafetensorsFile::tensor(std::string_view name) const {
  return copy(entry(name));
}

TensorMap SafetensorsFile::tensors() const {
  return read({});
}

TensorMap SafetensorsFile::read(const TensorMap& into, Device device, Hasher* hasher) const {
  TensorMap result;
  std::vector<Filling> fillings;
  for (const SafetensorsEntry& e : entries()) {
    const auto found = into.find(e.name);
    const bool in_place = found != into.end() && takes(found->second, e);
    const Device there = e.dtype == DType::boolean ? Device::cpu() : device;
    fillings.push_back({e.offset, in_place ? found->second : empty(TensorMeta{e.shape, e.dtype, there})});
    result.emplace(e.name, fillings.back().tensor);
    if (in_place) bump_version(found->second, "read");
  }
  fill_tensors(file_, fillings, hasher);
  for (const SafetensorsEntry& e : entries()) check_booleans(result.at(e.name), e, path());
  return result;
}

Tensor SafetensorsFile::copy(const SafetensorsEntry& e) const {
  return copy_entry(e, path(), [&](void* to) { file_.read(e.offset, to, e.nbytes); });
}

TensorMap read_safetensors(std::span<const std::byte> file, const SafetensorsHeader& header, std::string_view name) {
  TensorMap result;
  for (const SafetensorsEntry& e : header.entries) {
    check<IoError>(e.offset <= file.size() && e.nbytes <= file.size() - e.offset, kOp, quote(name), ": tensor ",
                   quote(e.name), " is not in the ", file.size(), " bytes given");
    result.emplace(e.name, copy_entry(e, name, [&](void* to) { std::memcpy(to, file.data() + e.offset, e.nbytes); }));
  }
  return result;
}

namespace {

// The header of a file with these tensors, its length before it; `items` come into the order of the data.
std::string header_of(std::vector<SafetensorsItem>& items, const Metadata& metadata, uint64_t& data_bytes) {
  std::sort(items.begin(), items.end(), [](const SafetensorsItem& a, const SafetensorsItem& b) {
    const int64_t sa = size_of(a.dtype), sb = size_of(b.dtype);
    return sa != sb ? sa > sb : a.name < b.name;
  });
  std::vector<std::string_view> names;
  names.reserve(items.size());
  for (const SafetensorsItem& item : items) names.push_back(item.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  check<ValueError>(twice == names.end(), "save_safetensors", "the name ", twice == names.end() ? "" : quote(*twice),
                    " is given twice");

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
  for (const SafetensorsItem& item : items) {
    check<ValueError>(!item.name.empty() && item.name != "__metadata__", "save_safetensors",
                      "a tensor cannot be named ", quote(item.name));
    const uint64_t bytes = static_cast<uint64_t>(item.shape.product() * size_of(item.dtype));
    if (header.size() > 1) header += ',';
    header +=
        json_string(item.name, "the name") + ":{\"dtype\":\"" + std::string(format_name(item.dtype)) + "\",\"shape\":[";
    for (int i = 0; i < item.shape.size(); ++i) header += cat(i ? "," : "", item.shape[i]);
    header += cat("],\"data_offsets\":[", position, ",", position + bytes, "]}");
    position += bytes;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');  // the data starts aligned
  check<ValueError>(header.size() <= kMaxSafetensorsHeader, "save_safetensors", "the header would have ", header.size(),
                    " bytes, at most ", kMaxSafetensorsHeader, " are allowed: use fewer tensors or less metadata");

  data_bytes = position;
  const uint64_t length = header.size();
  header.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
  return header;
}

size_t bytes_of(const SafetensorsItem& item) {
  return static_cast<size_t>(item.shape.product() * size_of(item.dtype));
}

std::vector<SafetensorsItem> items_of(const TensorMap& tensors) {
  std::vector<SafetensorsItem> items;
  for (const auto& [name, tensor] : tensors) {
    check<DeviceError>(!tensor.is_meta(), "save_safetensors", "tensor ", quote(name),
                       " is a meta tensor: it has no data");
    items.push_back({name, tensor.dtype(), tensor.shape(), nullptr});
  }
  return items;
}

// Row-major on the host, one tensor after the other: they may be more than its memory holds.
template <class Write>
void each_bytes(const std::vector<SafetensorsItem>& items, const TensorMap& tensors, Write&& write) {
  const memory::TierScope own{Tier()};
  for (const SafetensorsItem& item : items) {
    if (bytes_of(item) == 0) continue;
    const Tensor t = tensors.at(item.name).detach().to(Device::cpu()).contiguous();
    const Pin pin(t, Access::read);
    write({static_cast<const char*>(t.raw_data()), bytes_of(item)});
  }
}

}  // namespace

WrittenFile save_safetensors(const std::string& path, std::vector<SafetensorsItem> items, const Metadata& metadata) {
  for (const SafetensorsItem& item : items)
    check<ValueError>(item.data != nullptr || item.shape.product() == 0, "save_safetensors", "tensor ",
                      quote(item.name), " has no data");
  uint64_t data = 0;
  const std::string header = header_of(items, metadata, data);
  FileWriter file(path, header.size() + data);
  file.write(header);
  for (const SafetensorsItem& item : items) file.write({static_cast<const char*>(item.data), bytes_of(item)});
  return file.commit();
}

WrittenFile save_safetensors(const std::string& path, const TensorMap& tensors, const Metadata& metadata) {
  std::vector<SafetensorsItem> items = items_of(tensors);
  uint64_t data = 0;
  const std::string header = header_of(items, metadata, data);
  FileWriter file(path, header.size() + data);
  file.write(header);
  each_bytes(items, tensors, [&](std::string_view bytes) { file.write(bytes); });
  return file.commit();
}

std::string encode_safetensors(const TensorMap& tensors, const Metadata& metadata) {
  std::vector<SafetensorsItem> items = items_of(tensors);
  uint64_t data = 0;
  std::string file = header_of(items, metadata, data);
  file.reserve(file.size() + data);
  each_bytes(items, tensors, [&](std::string_view bytes) { file += bytes; });
  return file;
}

}  // namespace strata::io
