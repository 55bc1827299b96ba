#include "strata/io/gguf.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/format.h>

#include "strata/core/error.h"
#include "strata/io/gguf_coding_inl.h"

namespace strata::io {
namespace {

// Of either, as little-endian numbers.
constexpr uint32_t kMagic = 0x46554747;
constexpr uint64_t kMinPair = 8 + 4 + 1, kMinTensor = 8 + 4 + 4 + 8;  // bytes of the shortest ones

uint64_t alignment_of(const GgufMetadata& metadata, const Cursor& at) {
  const GgufValue* value = metadata.find(kGgufAlignmentKey);
  if (!value) return kGgufAlignment;
  if (value->type() != GgufType::u32)
    at.fail(at.at(), "key '", kGgufAlignmentKey, "' is a ", name_of(value->type()), ", a u32 is wanted");
  const auto alignment = static_cast<uint64_t>(value->integer());
  if (alignment == 0 || (alignment & (alignment - 1)) != 0)
    at.fail(at.at(), "key '", kGgufAlignmentKey, "' is ", alignment, ", a power of two is wanted");
  return alignment;
}

uint32_t read_version(Cursor& from) {
  if (from.left() < 4 || from.number<uint32_t>("the magic number") != kMagic)
    from.fail(0, "does not begin with 'GGUF'");
  const auto version = from.number<uint32_t>("the version");
  if (version != 0 && (version & 0xffff) == 0) from.fail(4, "is big-endian, which is not read");
  if (version != 2 && version != 3) from.fail(4, "version ", version, "; 2 and 3 are read");
  return version;
}

GgufEntry read_entry(Cursor& from) {
  GgufEntry e;
  const uint64_t start = from.at();
  e.name = from.text(from.number<uint64_t>("a tensor's name"), "a tensor's name");
  if (e.name.empty()) from.fail(start, "a tensor has no name");
  const std::string what = cat("tensor ", quote(e.name));
  const uint64_t at_dims = from.at();
  const auto dims = from.number<uint32_t>(what);
  if (dims > kMaxDims) from.fail(at_dims, what, " has ", dims, " dimensions, at most ", kMaxDims, " are read");
  int64_t sizes[kMaxDims] = {};
  for (uint32_t i = 0; i < dims; ++i) {
    const uint64_t place = from.at();
    const auto size = from.number<uint64_t>(what);
    if (size > static_cast<uint64_t>(INT64_MAX)) from.fail(place, what, ": size ", size, " is too large");
    sizes[i] = static_cast<int64_t>(size);
  }
  for (uint32_t i = dims; i > 0; --i) e.shape.push_back(sizes[i - 1]);
  const uint64_t place = from.at();
  const auto type = from.number<uint32_t>(what);
  e.type = find_ggml_type(type);
  if (!e.type) from.fail(place, what, " has the unknown type ", type);
  const std::optional<uint64_t> bytes = stored_bytes(*e.type, e.shape);
  if (!bytes)
    from.fail(at_dims, what, ": shape ", e.shape, " of ", e.type->name,
              " is too large, or its last size is no multiple of ", e.type->block);
  e.nbytes = *bytes;
  e.offset = from.number<uint64_t>(what);
  return e;
}

GgufHeader parse(const Source& source) {
  Cursor from(source, 0, kMaxGgufHeader, kGguf);
  GgufHeader header;
  header.version = read_version(from);
  const auto tensors = from.number<uint64_t>("the number of tensors");
  const auto pairs = from.number<uint64_t>("the number of keys");
  if (tensors > from.left() / kMinTensor)
    from.fail(8, tensors, " tensors are more than ", from.left(), " bytes describe (was the file cut off?)");
  if (pairs > from.left() / kMinPair)
    from.fail(16, pairs, " keys are more than ", from.left(), " bytes hold (was the file cut off?)");

  header.metadata = GgufMetadata(source.name());
  for (uint64_t i = 0; i < pairs; ++i) {
    const uint64_t start = from.at();
    std::string key = from.text(from.number<uint64_t>("a key"), "a key");
    const std::string what = cat("key ", quote(key));
    if (key.empty()) from.fail(start, "a key is empty");
    if (header.metadata.contains(key)) from.fail(start, what, " is given twice");
    const GgufType type = GgufCoding::read_type(from, what);
    header.metadata.set(std::move(key), GgufCoding::read(from, type, what));
  }
  header.alignment = alignment_of(header.metadata, from);

  std::set<std::string> names;
  header.entries.reserve(tensors);
  for (uint64_t i = 0; i < tensors; ++i) {
    const uint64_t start = from.at();
    header.entries.push_back(read_entry(from));
    const std::string& name = header.entries.back().name;
    if (!names.insert(name).second) from.fail(start, "tensor ", quote(name), " is given twice");
  }

  // One tensor after the other, each at a multiple of the alignment, which need not be kept after the last one.
  const uint64_t data = padded(from.at(), header.alignment);
  uint64_t position = 0, end = from.at();
  for (GgufEntry& e : header.entries) {
    const std::string what = cat("tensor ", quote(e.name));
    if (e.offset != position) from.fail(from.at(), what, " is at ", e.offset, " of the data, ", position, " is wanted");
    if (e.nbytes > source.size() || data > source.size() - e.nbytes || position > source.size() - e.nbytes - data)
      from.fail(source.size(), what, " needs ", e.nbytes, " bytes at ", position,
                " of the data (was the file cut off?)");
    e.offset = data + position;
    end = e.offset + e.nbytes;
    position = padded(position + e.nbytes, header.alignment);
  }
  const uint64_t last = padded(end, header.alignment);
  if (source.size() > last) from.fail(last, source.size() - last, " bytes belong to no tensor");
  return header;
}

}  // namespace

GgufHeader parse_gguf(std::span<const std::byte> file, std::string_view name) {
  return parse(Source(file, std::string(name)));
}

GgufHeader read_gguf_header(const InputFile& file) {
  return parse(Source(file));
}

std::vector<std::string> gguf_parts(const std::string& path) {
  constexpr std::string_view kEnding = ".gguf", kOf = "-of-";
  constexpr size_t kDigits = 5, kTail = 1 + kDigits + kOf.size() + kDigits + kEnding.size();
  constexpr int kMostParts = 10'000;
  // "-00001-of-00003.gguf"
  const auto number = [&](size_t at) {
    int n = 0;
    for (size_t i = at; i < at + kDigits; ++i)
      n = n < 0 || path[i] < '0' || path[i] > '9' ? -1 : 10 * n + (path[i] - '0');
    return n;
  };
  if (path.size() <= kTail || !path.ends_with(kEnding)) return {path};
  const size_t begin = path.size() - kTail, of = begin + 1 + kDigits, last = of + kOf.size();
  if (path[begin] != '-' || path.compare(of, kOf.size(), kOf) != 0) return {path};
  const int which = number(begin + 1), count = number(last);
  if (which < 1 || count < which || count > kMostParts) return {path};
  std::vector<std::string> all;
  for (int i = 1; i <= count; ++i) all.push_back(fmt::format("{}-{:05}{}", path.substr(0, begin), i, path.substr(of)));
  return all;
}

std::vector<std::string> gguf_models(const std::string& folder) {
  namespace fs = std::filesystem;
  std::set<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".gguf") found.insert(gguf_parts(at->path().string())[0]);
  return error ? std::vector<std::string>() : std::vector<std::string>(found.begin(), found.end());
}

std::string find_gguf(const std::string& path) {
  namespace fs = std::filesystem;
  const auto begins_as_one = [](const std::string& file) {
    char begin[kGguf.size()] = {};
    std::ifstream(file, std::ios::binary).read(begin, sizeof begin);
    return std::string_view(begin, sizeof begin) == kGguf;
  };
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    if (!begins_as_one(path)) return "";
    const std::string first = gguf_parts(path)[0];
    return begins_as_one(first) ? first : path;
  }
  const std::vector<std::string> models = gguf_models(path);
  return models.size() == 1 ? models[0] : "";
}

}  // namespace strata::io
