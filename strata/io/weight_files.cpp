#include "strata/io/weight_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>

#include "strata/core/error.h"
#include "strata/io/fill.h"
#include "strata/io/gguf.h"
#include "strata/io/safetensors_stored_inl.h"
#include "strata/io/torch_file_inl.h"
#include "strata/io/weight_index_inl.h"
#include "strata/io/weight_read_inl.h"

namespace strata::io {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kOp = "WeightFiles";
constexpr std::string_view kGgufEnding = ".gguf";

// What a folder's weights are named, the first that is there is taken; transformers looks in the same order.
constexpr std::string_view kNames[] = {"model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors",
                                       "pytorch_model.bin", "pytorch_model.bin.index.json", "adapter_model.bin"};

bool is_folder(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

bool exists(const std::string& path) {
  struct stat st {};
  return ::lstat(path.c_str(), &st) == 0;  // a link that leads nowhere is an error, not an absence
}

std::string in_folder(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

// The file or index of a folder's weights.
std::string find_in(const std::string& folder) {
  for (const std::string_view name : kNames)
    if (const std::string path = in_folder(folder, name); exists(path)) return path;
  const std::vector<std::string> models = gguf_models(folder);
  check<IoError>(models.size() < 2, kOp, quote(folder), " has ", models.size(), " GGUF files; name one of them");
  if (!models.empty()) return models[0];
  std::string names;
  for (const std::string_view name : kNames) names += cat(name, ", ");
  throw IoError(kOp, cat(quote(folder), " has no weights: ", names, "or a *", kGgufEnding, " file is wanted"));
}

// The first bytes that tell what a file is.
WeightsFormat format_of(const InputFile& file) {
  const std::string start = file.read(0, static_cast<size_t>(std::min<uint64_t>(file.size(), 9)));
  if (start.starts_with("GGUF")) return WeightsFormat::gguf;
  if (start.starts_with("PK\x03\x04")) return WeightsFormat::torch;
  // The length of a safetensors header may begin with the same bytes: its JSON follows behind eight of them.
  if (start.ends_with('{') && start.size() == 9) return WeightsFormat::safetensors;
  check<IoError>(
      start.size() < 2 || start[0] != '\x80' || start[1] < 2 || start[1] > 5, kOp, quote(file.path()),
      ": is PyTorch's format from before 1.6, which is pickled objects one after the other; where PyTorch is "
      "installed, write it again: torch.save(torch.load('FILE', map_location='cpu'), 'FILE')");
  return WeightsFormat::safetensors;
}

// An index is JSON. So is the header of a safetensors file, behind its length, which text would make longer than any
// file.
bool is_index(const InputFile& file) {
  const std::string start = file.read(0, static_cast<size_t>(std::min<uint64_t>(file.size(), 8)));
  const size_t first = start.find_first_not_of(" \t\r\n");
  uint64_t length = UINT64_MAX;
  if (start.size() == sizeof length) std::memcpy(&length, start.data(), sizeof length);
  return first != std::string::npos && start[first] == '{' && length > file.size();
}

// Of a split model: what llama.cpp's gguf-split writes into each part.
constexpr std::string_view kPart = "split.no", kParts = "split.count", kTensors = "split.tensors.count";

int64_t number_of(const GgufMetadata& metadata, std::string_view key, int64_t otherwise) {
  return metadata.contains(key) ? metadata.integer(key) : otherwise;
}

}  // namespace

std::string_view name_of(WeightsFormat format) {
  constexpr std::string_view kFormats[] = {"safetensors", "PyTorch zip", "GGUF"};
  return kFormats[static_cast<size_t>(format)];
}

struct WeightFiles::State {
  std::string path;
  WeightsFormat format = WeightsFormat::safetensors;
  std::vector<std::string> files;
  std::vector<InputFile> inputs;
  std::vector<WeightEntry> entries;
  Metadata metadata;
  std::unique_ptr<GgufMetadata> gguf;
  std::map<std::string_view, size_t> index;  // views of the entries' names

  explicit State(const std::string& given) : path(given) {
    const std::string file = is_folder(given) ? find_in(given) : given;
    InputFile input(file);
    if (is_index(input)) {
      open_shards(parse_weight_index(read_file(file, kMaxWeightIndex), file), file);
    } else {
      open_file(std::move(input));
    }
    for (size_t i = 0; i < entries.size(); ++i) index.emplace(entries[i].name, i);
  }

  // A file's entries, in the order of their bytes.
  std::vector<WeightEntry> entries_of(const InputFile& input, WeightsFormat kind, Metadata& about) {
    std::vector<WeightEntry> found;
    if (kind == WeightsFormat::gguf) {
      GgufHeader header = read_gguf_header(input);
      gguf = std::make_unique<GgufMetadata>(std::move(header.metadata));
      for (GgufEntry& e : header.entries)
        found.push_back({std::move(e.name), e.type, e.shape, 0, e.offset, e.nbytes, std::nullopt});
    } else if (kind == WeightsFormat::torch) {
      found = read_torch_file(Source(input));
    } else {
      StoredHeader header = read_stored_header(input);
      about = std::move(header.metadata);
      for (StoredEntry& e : header.entries)
        found.push_back({std::move(e.name), e.type, e.shape, 0, e.offset, e.nbytes, std::nullopt});
    }
    return found;
  }

  void open_file(InputFile input) {
    format = format_of(input);
    entries = entries_of(input, format, metadata);
    files.push_back(input.path());
    inputs.push_back(std::move(input));
    if (gguf && number_of(*gguf, kParts, 1) > 1) open_other_parts();
  }

  // Of a split GGUF model, whose part named was opened. The first says what the model is; each which it is.
  void open_other_parts() {
    const std::vector<std::string> parts = gguf_parts(files[0]);
    const int64_t count = gguf->integer(kParts);
    check<IoError>(static_cast<int64_t>(parts.size()) == count, kOp, quote(files[0]), ": is one of ", count,
                   " parts of a GGUF model, and its name does not end in -00001-of-", fmt::format("{:05}", count),
                   ".gguf, so the others are not found");
    entries.clear(), files.clear(), inputs.clear();
    std::unique_ptr<GgufMetadata> first;
    std::set<std::string> names;
    for (int64_t i = 0; i < count; ++i) {
      const std::string& path = parts[static_cast<size_t>(i)];
      check<IoError>(exists(path), kOp, quote(path), ": is missing, one of ", count, " parts of a GGUF model");
      InputFile input(path);
      check<IoError>(format_of(input) == WeightsFormat::gguf, kOp, quote(path), ": is no GGUF file, but one of ", count,
                     " parts of a GGUF model");
      Metadata none;
      for (WeightEntry& e : entries_of(input, WeightsFormat::gguf, none)) {
        check<IoError>(names.insert(e.name).second, kOp, quote(path), ": tensor ", quote(e.name),
                       " is in an earlier part, too");
        e.file = files.size();
        entries.push_back(std::move(e));
      }
      const int64_t which = number_of(*gguf, kPart, -1), of = number_of(*gguf, kParts, 1);
      check<IoError>(which == i && of == count, kOp, quote(path), ": says that it is part ", which + 1, " of ", of,
                     ", part ", i + 1, " of ", count, " is wanted (were files swapped?)");
      if (i == 0) first = std::move(gguf);
      files.push_back(path);
      inputs.push_back(std::move(input));
    }
    gguf = std::move(first);
    const auto tensors = static_cast<int64_t>(entries.size());
    check<IoError>(number_of(*gguf, kTensors, tensors) == tensors, kOp, quote(files[0]), ": says that the parts have ",
                   number_of(*gguf, kTensors, tensors), " tensors, they have ", tensors);
  }

  // The files of an index, each checked against its lines.
  void open_shards(const std::vector<WeightIndexLine>& lines, const std::string& source) {
    std::map<std::string_view, std::map<std::string_view, uint64_t>> shards;  // by file: its tensors and their lines
    std::map<std::string_view, const WeightIndexLine*> places;
    for (const WeightIndexLine& l : lines) {
      shards[l.file].emplace(l.name, l.line);
      places.emplace(l.name, &l);
    }
    check<IoError>(!shards.empty(), kOp, quote(source), ": its weight_map is empty");
    const std::string folder = parent_directory(source);
    for (const auto& [name, tensors] : shards) {
      const std::string path = in_folder(folder, name);
      const uint64_t line = std::min_element(tensors.begin(), tensors.end(), [](auto& a, auto& b) {
                              return a.second < b.second;
                            })->second;
      try {
        open_shard(path, name, tensors, places, source);
      } catch (const IoError& e) {
        throw IoError("", cat(quote(source), ", line ", line, " and on, file ", quote(name), ": ", e.what()));
      }
    }
  }
  void open_shard(const std::string& path, std::string_view name, const std::map<std::string_view, uint64_t>& tensors,
                  const std::map<std::string_view, const WeightIndexLine*>& places, const std::string& source) {
    InputFile input(path);
    const WeightsFormat kind = format_of(input);
    if (files.empty()) format = kind;
    check<IoError>(kind == format && kind != WeightsFormat::gguf, kOp, quote(path), " is a ", name_of(kind),
                   " file, a ", name_of(format == WeightsFormat::gguf ? WeightsFormat::safetensors : format),
                   " file is wanted");
    Metadata about;
    std::vector<WeightEntry> found = entries_of(input, kind, about);
    if (files.empty()) metadata = std::move(about);
    std::set<std::string_view> there;
    for (const WeightEntry& e : found) {
      there.insert(e.name);
      const auto place = places.find(e.name);
      check<IoError>(place != places.end(), kOp, quote(path), " has tensor ", quote(e.name),
                     ", which the index does not");
      check<IoError>(place->second->file == name, kOp, quote(path), " has tensor ", quote(e.name), ", which line ",
                     place->second->line, " of the index says is in ", quote(place->second->file),
                     " (were files swapped?)");
    }
    for (const auto& [tensor, line] : tensors)
      check<IoError>(there.contains(tensor), kOp, quote(path), " has no tensor ", quote(tensor), ", which line ", line,
                     " of ", quote(source), " says is there (were files swapped?)");
    for (WeightEntry& e : found) {
      e.file = files.size();
      entries.push_back(std::move(e));
    }
    files.push_back(path);
    inputs.push_back(std::move(input));
  }
};

WeightFiles::WeightFiles(const std::string& path) : state_(std::make_unique<State>(path)) {}
WeightFiles::~WeightFiles() = default;
WeightFiles::WeightFiles(WeightFiles&&) noexcept = default;
WeightFiles& WeightFiles::operator=(WeightFiles&&) noexcept = default;

const std::string& WeightFiles::path() const {
  return state_->path;
}
WeightsFormat WeightFiles::format() const {
  return state_->format;
}
const std::vector<std::string>& WeightFiles::files() const {
  return state_->files;
}
const std::vector<WeightEntry>& WeightFiles::entries() const {
  return state_->entries;
}
const Metadata& WeightFiles::metadata() const {
  return state_->metadata;
}
const GgufMetadata* WeightFiles::gguf() const {
  return state_->gguf.get();
}

uint64_t WeightFiles::size() const {
  uint64_t bytes = 0;
  for (const InputFile& file : state_->inputs) bytes += file.size();
  return bytes;
}

const WeightEntry* WeightFiles::find(std::string_view name) const {
  const auto found = state_->index.find(name);
  return found == state_->index.end() ? nullptr : &state_->entries[found->second];
}

const WeightEntry& WeightFiles::entry(std::string_view name) const {
  const WeightEntry* e = find(name);
  check<IoError>(e != nullptr, kOp, quote(path()), ": has no tensor ", quote(name), " (it has ", entries().size(),
                 " tensors)");
  return *e;
}

Tensor WeightFiles::tensor(std::string_view name, Device device) const {
  const WeightEntry& e = entry(name);
  return rows(name, 0, e.shape.empty() ? 1 : e.shape[0], device);
}

Tensor WeightFiles::rows(std::string_view name, int64_t first, int64_t count, Device device) const {
  const WeightEntry& e = entry(name);
  const std::string what = cat(quote(files()[e.file]), ": tensor ", quote(name));
  check<DTypeError>(e.type->dtype.has_value(), kOp, what, " is ", e.type->name,
                    ", which is not decoded; bytes() reads it as it is");
  const int64_t all = e.shape.empty() ? 1 : e.shape[0];
  check<IndexError>(first >= 0 && count >= 0 && first <= all && count <= all - first, kOp, what, " has ", all,
                    " rows, ", count, " from ", first, " on are wanted");
  Shape shape = e.shape;
  if (!shape.empty()) shape[0] = count;
  Tensor t = empty(TensorMeta{shape, *e.type->dtype, device, std::nullopt});
  read({{std::string(name), t, first}});
  return t;
}

void WeightFiles::read_into(std::string_view name, const Tensor& target) const {
  read({{std::string(name), target}});
}

void WeightFiles::read(const std::vector<WeightRead>& parts) const {
  std::vector<WeightPart> checked;
  checked.reserve(parts.size());
  for (const WeightRead& part : parts) {
    const WeightEntry& e = entry(part.name);
    checked.push_back(check_part(e, part, files()[e.file]));
  }
  read_parts(state_->inputs, std::move(checked));
}

Tensor WeightFiles::bytes(std::string_view name) const {
  const WeightEntry& e = entry(name);
  const std::string& file = files()[e.file];
  check<IoError>(!e.strides, kOp, quote(file), ": tensor ", quote(name), " is a view with strides ", *e.strides,
                 ": its bytes do not lie in its order");
  const memory::TierScope own{Tier()};
  Tensor t = empty(TensorMeta{{static_cast<int64_t>(e.nbytes)}, DType::u8, Device::cpu(), std::nullopt});
  fill_tensors(state_->inputs[e.file], {{e.offset, t}}, nullptr);
  return t;
}

}  // namespace strata::io
