#include "strata/io/sharded_safetensors.h"

#include <cstdio>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/folder_writer.h"
#include "strata/io/safetensors_stored_inl.h"
#include "strata/io/stored_write_inl.h"

namespace strata::io {
namespace {

constexpr std::string_view kOp = "ShardedSafetensorsWriter";

struct Shard {
  std::string name;  // of its file
  std::vector<StoredItem> items;
  std::string header;
  uint64_t data_bytes = 0;
};

std::vector<Shard> cut(std::vector<StoredItem> items, uint64_t max_bytes) {
  std::vector<Shard> shards(1);
  uint64_t held = 0;
  for (StoredItem& item : items) {
    check<ValueError>(item.type != nullptr, kOp, "tensor ", quote(item.name), " has no type");
    const uint64_t bytes = stored_bytes(*item.type, item.shape).value_or(0);  // stored_header() refuses what has none
    if (!shards.back().items.empty() && (held > max_bytes || bytes > max_bytes - held)) {
      shards.emplace_back();
      held = 0;
    }
    held += bytes;
    shards.back().items.push_back(std::move(item));
  }
  return shards;
}

std::string shard_name(const std::string& stem, size_t index, size_t count) {
  if (count == 1) return stem + ".safetensors";
  char numbers[48];
  std::snprintf(numbers, sizeof numbers, "-%05zu-of-%05zu", index + 1, count);
  return stem + numbers + ".safetensors";
}

}  // namespace

struct ShardedSafetensorsWriter::State {
  std::string folder, stem;
  std::vector<Shard> shards;
  std::vector<std::string> order;
  size_t shard = 0, item = 0;
  std::optional<FileWriter> file;
  uint64_t position = 0;  // in the file, of the next tensor

  std::string path(const std::string& name) const { return folder + "/" + name; }
  // The next item; its file is open.
  const StoredItem& next() {
    while (shard < shards.size() && item == shards[shard].items.size()) finish();
    check<ValueError>(shard < shards.size(), kOp, "all ", order.size(), " tensors have been written");
    if (!file) open();
    const StoredItem& next = shards[shard].items[item];
    check<ValueError>(file->bytes_written() == position, kOp, "tensor ", quote(next.name),
                      " was written in part, when an error ended that");
    return next;
  }
  void open() {
    Shard& s = shards[shard];
    file.emplace(path(s.name), s.header.size() + s.data_bytes);
    file->write(s.header);
    position = s.header.size();
    s.header = {};
  }
  void written(const StoredItem& done) {
    position += *stored_bytes(*done.type, done.shape);
    ++item;
  }
  void finish() {
    if (!file) open();
    file->commit();
    file.reset();
    ++shard;
    item = 0;
  }
};

ShardedSafetensorsWriter::ShardedSafetensorsWriter(std::string folder, std::vector<StoredItem> items,
                                                   uint64_t max_shard_bytes, Metadata metadata, std::string stem)
    : state_(std::make_unique<State>()) {
  check<ValueError>(max_shard_bytes > 0, kOp, "max_shard_bytes must be at least 1");
  state_->folder = std::move(folder);
  state_->stem = std::move(stem);
  std::map<std::string_view, int> names;
  for (const StoredItem& item : items)
    check<ValueError>(names[item.name]++ == 0, kOp, "the name ", quote(item.name), " is given twice");
  state_->shards = cut(std::move(items), max_shard_bytes);
  for (size_t i = 0; i < state_->shards.size(); ++i) {
    Shard& s = state_->shards[i];
    s.name = shard_name(state_->stem, i, state_->shards.size());
    s.header = stored_header(s.items, metadata, s.data_bytes);
    for (const StoredItem& item : s.items) state_->order.push_back(item.name);
  }
}
ShardedSafetensorsWriter::~ShardedSafetensorsWriter() = default;
ShardedSafetensorsWriter::ShardedSafetensorsWriter(ShardedSafetensorsWriter&&) noexcept = default;

const std::vector<std::string>& ShardedSafetensorsWriter::order() const {
  return state_->order;
}

void ShardedSafetensorsWriter::write(const Tensor& tensor) {
  const StoredItem& item = state_->next();
  write_stored(*state_->file, item, tensor, kOp);
  state_->written(item);
}

void ShardedSafetensorsWriter::write_bytes(std::span<const std::byte> bytes) {
  const StoredItem& item = state_->next();
  write_stored(*state_->file, item, bytes, kOp);
  state_->written(item);
}

std::vector<std::string> ShardedSafetensorsWriter::commit() {
  State& s = *state_;
  check<ValueError>(
      s.shard == s.shards.size() || (s.shard + 1 == s.shards.size() && s.item == s.shards[s.shard].items.size()), kOp,
      "not all of ", s.order.size(), " tensors have been written");
  if (s.shard < s.shards.size()) s.finish();
  std::vector<std::string> names;
  uint64_t total = 0;
  nlohmann::json map = nlohmann::json::object();
  for (const Shard& shard : s.shards) {
    names.push_back(shard.name);
    total += shard.data_bytes;
    for (const StoredItem& item : shard.items) map[item.name] = shard.name;
  }
  if (s.shards.size() > 1) {
    const nlohmann::json index{{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
    names.push_back(s.stem + ".safetensors.index.json");
    write_file(s.path(names.back()), index.dump(2) + "\n");
  }
  return names;
}

void save_sharded(const std::string& folder, const TensorMap& tensors, uint64_t max_shard_bytes,
                  const Metadata& metadata) {
  std::vector<StoredItem> items;
  for (const auto& [name, t] : tensors) {
    check<DeviceError>(!t.is_meta(), "save_sharded", "tensor ", quote(name), " is a meta tensor: it has no data");
    items.push_back({name, &stored_type(t.dtype()), t.shape()});
  }
  FolderWriter target(folder);
  ShardedSafetensorsWriter out(target.path(), std::move(items), max_shard_bytes, metadata);
  for (const std::string& name : out.order()) out.write(tensors.at(name));
  out.commit();
  target.commit();
}

}  // namespace strata::io
