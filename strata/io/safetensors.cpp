#include "strata/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "strata/core/backend.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/fill.h"
#include "strata/io/safetensors_stored_inl.h"

namespace strata::io {
namespace {
constexpr std::string_view kOp = "safetensors";

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

size_t bytes_of(const StoredItem& item) {
  return static_cast<size_t>(*stored_bytes(*item.type, item.shape));
}

std::vector<StoredItem> items_of(const TensorMap& tensors) {
  std::vector<StoredItem> items;
  for (const auto& [name, tensor] : tensors) {
    check<DeviceError>(!tensor.is_meta(), "save_safetensors", "tensor ", quote(name),
                       " is a meta tensor: it has no data");
    items.push_back({name, &stored_type(tensor.dtype()), tensor.shape()});
  }
  return items;
}

// Row-major on the host, one tensor after the other: they may be more than its memory holds.
template <class Write>
void each_bytes(const std::vector<StoredItem>& items, const TensorMap& tensors, Write&& write) {
  const memory::TierScope own{Tier()};
  for (const StoredItem& item : items) {
    if (bytes_of(item) == 0) continue;
    const Tensor t = tensors.at(item.name).detach().to(Device::cpu()).contiguous();
    const Pin pin(t, Access::read);
    write({static_cast<const char*>(t.raw_data()), bytes_of(item)});
  }
}

}  // namespace

WrittenFile save_safetensors(const std::string& path, std::vector<SafetensorsItem> items, const Metadata& metadata) {
  std::vector<StoredItem> stored;
  std::map<std::string_view, const void*> data;
  for (const SafetensorsItem& item : items) {
    check<ValueError>(item.data != nullptr || item.shape.product() == 0, "save_safetensors", "tensor ",
                      quote(item.name), " has no data");
    stored.push_back({item.name, &stored_type(item.dtype), item.shape});
    data.emplace(item.name, item.data);
  }
  uint64_t data_bytes = 0;
  const std::string header = stored_header(stored, metadata, data_bytes);
  FileWriter file(path, header.size() + data_bytes);
  file.write(header);
  for (const StoredItem& item : stored) file.write({static_cast<const char*>(data.at(item.name)), bytes_of(item)});
  return file.commit();
}

WrittenFile save_safetensors(const std::string& path, const TensorMap& tensors, const Metadata& metadata) {
  std::vector<StoredItem> items = items_of(tensors);
  uint64_t data_bytes = 0;
  const std::string header = stored_header(items, metadata, data_bytes);
  FileWriter file(path, header.size() + data_bytes);
  file.write(header);
  each_bytes(items, tensors, [&](std::string_view bytes) { file.write(bytes); });
  return file.commit();
}

std::string encode_safetensors(const TensorMap& tensors, const Metadata& metadata) {
  std::vector<StoredItem> items = items_of(tensors);
  uint64_t data_bytes = 0;
  std::string file = stored_header(items, metadata, data_bytes);
  file.reserve(file.size() + data_bytes);
  each_bytes(items, tensors, [&](std::string_view bytes) { file += bytes; });
  return file;
}

}  // namespace strata::io
