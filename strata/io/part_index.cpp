// Tensors in parts, as state.json describes them and as they are read.

#include <charconv>
#include <set>

#include "strata/core/backend.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/io/checkpoint_inl.h"
#include "strata/ops/copy/copy.h"

namespace strata::io::detail {
namespace {

using json = nlohmann::json;
constexpr std::string_view kRank = ".rank-";
constexpr int64_t kMostRanks = int64_t{1} << 20;

// The rank of "model.rank-3"; -1 where it names none.
int64_t rank_of(std::string_view stem) {
  const size_t at = stem.rfind(kRank);
  if (at == stem.npos) return -1;
  const char *begin = stem.data() + at + kRank.size(), *end = stem.data() + stem.size();
  int64_t rank = -1;
  const auto [last, error] = std::from_chars(begin, end, rank);
  return error == std::errc() && last == end && rank >= 0 && rank < kMostRanks ? rank : -1;
}

// One entry of the field "tensors".
class EntryReader {
 public:
  EntryReader(const json& entry, std::string where, const std::string& path)
      : entry_(entry), where_(std::move(where)), path_(path) {}

  StoredTensor read() const {
    StoredTensor t;
    need(entry_.is_object(), "", "an object");
    const json dtype = field("dtype"), mesh = field("mesh"), placements = field("placements"), parts = field("parts");
    need(dtype.is_string() && placements.is_string(), "", "an object with texts 'dtype' and 'placements'");
    try {
      t.dtype = parse_dtype(dtype.get<std::string>());
      t.shape = shape();
      t.layout = {mesh_of(mesh), parse_placements(placements.get<std::string>())};
      t.layout.check(t.shape, "checkpoint");
    } catch (const ValueError& e) {
      throw IoError("checkpoint", cat(quote(path_), ": field ", quote(where_), ": ", e.what()));
    }
    size_t n = 1;
    for (size_t a = 0; a < t.layout.placements.size(); ++a) {
      need(!t.layout.placements[a].is_partial(), ".placements", "no sum that is still to be taken");
      if (t.layout.placements[a].is_shard()) n *= static_cast<size_t>(t.layout.mesh->axes[a].size);
      need(n <= static_cast<size_t>(kMostRanks), ".mesh", "of fewer ranks");
    }
    need(parts.is_array() && parts.size() == n, ".parts", cat("a list of ", n));
    uint64_t sum = 0;
    for (const json& p : parts) {
      need(p.is_array() && p.size() == 3 && p[0].is_number_unsigned() && p[0].get<uint64_t>() < uint64_t{kMostRanks} &&
               p[1].is_number_unsigned(),
           ".parts", "lists of rank, byte and hash");
      t.parts.push_back({p[0].get<int64_t>(), p[1].get<uint64_t>(), hash(p[2], ".parts")});
      sum += *t.parts.back().hash;
    }
    t.hash = hash(field("hash"), ".hash");
    need(*t.hash == sum, ".hash", "the sum of the parts'");
    return t;
  }

  void need(bool ok, std::string_view field, const std::string& wanted) const {
    check<IoError>(ok, "checkpoint", quote(path_), ": field ", quote(cat(where_, field)), " must be ", wanted);
  }

 private:
  json field(const char* name) const { return entry_.value(name, json()); }
  uint64_t hash(const json& j, std::string_view where) const {
    uint64_t value = 0;
    need(j.is_string() && parse_hex(j.get<std::string>(), value), where, "16 hex digits");
    return value;
  }
  Shape shape() const {
    const json j = field("shape");
    need(j.is_array() && j.size() <= kMaxDims, ".shape", cat("a list of at most ", kMaxDims, " sizes"));
    Shape shape;
    int64_t elements = 1;
    for (const json& n : j) {
      need(n.is_number_unsigned() && n.get<uint64_t>() < uint64_t{1} << 60 &&
               !__builtin_mul_overflow(elements, std::max<int64_t>(n.get<int64_t>(), 1), &elements) &&
               elements < int64_t{1} << 58,
           ".shape", "sizes that a tensor may have");
      shape.push_back(n.get<int64_t>());
    }
    return shape;
  }
  std::shared_ptr<const MeshPlace> mesh_of(const json& j) const {
    MeshPlace mesh;
    need(j.is_array() && j.size() <= 16, ".mesh", "a list of axes");
    for (const json& a : j) {
      need(a.is_array() && a.size() == 2 && a[0].is_string() && a[1].is_number_unsigned() && a[1] >= 1 &&
               a[1].get<uint64_t>() <= uint64_t{kMostRanks},
           ".mesh", "lists of name and size");
      mesh.axes.push_back({a[0].get<std::string>(), a[1].get<int>(), 0});
    }
    return std::make_shared<const MeshPlace>(std::move(mesh));
  }

  const json& entry_;
  std::string where_;
  const std::string& path_;
};

uint64_t bytes_of(const StoredTensor& t, size_t part) {
  return static_cast<uint64_t>(t.layout.local_shape(t.shape, t.places(part)).product() * size_of(t.dtype));
}

}  // namespace

std::string stem_of(const std::string& file, bool in_parts) {
  std::string stem = file.substr(0, file.size() - kExtension.size());
  if (in_parts && rank_of(stem) >= 0) stem.resize(stem.rfind(kRank));
  return stem;
}

std::string file_name(const std::string& stem, int64_t rank) {
  return cat(stem, kRank, rank, kExtension);
}

StoredTensors parse_parts(const json& state, const std::string& path, const std::map<std::string, WrittenFile>& files) {
  const json all = state.value("tensors", json());
  check<IoError>(all.is_object(), "checkpoint", quote(path), ": field 'tensors' must be an object");
  StoredTensors found;
  std::map<std::string, uint64_t> used;  // bytes of each file
  for (const auto& [stem, tensors] : all.items()) {
    check<IoError>(tensors.is_object(), "checkpoint", quote(path), ": field ", quote(cat("tensors.", stem)),
                   " must be an object");
    auto& here = found[stem];
    for (const auto& [name, entry] : tensors.items()) {
      const EntryReader reader(entry, cat("tensors.", stem, '.', name), path);
      StoredTensor t = reader.read();
      for (size_t i = 0; i < t.parts.size(); ++i) {
        const std::string file = file_name(stem, t.parts[i].file);
        const auto known = files.find(file);
        reader.need(known != files.end(), ".parts", cat("in files that there are, not ", quote(file)));
        const uint64_t bytes = bytes_of(t, i), end = known->second.bytes;
        used[file] += bytes;
        reader.need(t.parts[i].offset <= end && bytes <= end - t.parts[i].offset && used[file] <= end, ".parts",
                    cat("within the ", end, " bytes of ", quote(file)));
      }
      here.emplace(name, std::move(t));
    }
  }
  for (const auto& [file, written] : files)
    check<IoError>(found.contains(stem_of(file, true)), "checkpoint", quote(path), ": of ", quote(file),
                   " there are no tensors");
  return found;
}

void check_parts(const std::map<std::string, StoredTensor>& tensors, const std::string& file,
                 const SafetensorsHeader& header) {
  const int64_t rank = rank_of(stem_of(file, false));
  std::map<std::string_view, const SafetensorsEntry*> entries;
  for (const SafetensorsEntry& e : header.entries) entries.emplace(e.name, &e);
  for (const auto& [name, t] : tensors)
    for (size_t i = 0; i < t.parts.size(); ++i) {
      if (t.parts[i].file != rank) continue;
      const auto e = entries.find(name);
      check<IoError>(e != entries.end() && e->second->dtype == t.dtype && e->second->offset == t.parts[i].offset &&
                         e->second->shape == t.layout.local_shape(t.shape, t.places(i)),
                     "checkpoint", quote(file), " does not have the part of tensor ", quote(name),
                     " that state.json says: it is another one's");
    }
}

std::map<std::string, StoredTensor> whole_tensors(const SafetensorsHeader& header) {
  std::map<std::string, StoredTensor> all;
  const auto alone = std::make_shared<const MeshPlace>();
  for (const SafetensorsEntry& e : header.entries)
    all[e.name] = {e.dtype, e.shape, {alone, {}}, {{0, e.offset, std::nullopt}}, std::nullopt};
  return all;
}

TensorMap read_parts(const std::string& stem, const std::map<std::string, StoredTensor>& tensors,
                     const std::function<const InputFile&(int64_t rank)>& file, const TensorMap& into, Device device,
                     const RankPlaces& wanted, SeenHashes* seen) {
  const NoGrad guard;
  TensorMap result;
  for (const auto& [name, from] : tensors) {
    if (wanted.has && !wanted.has(stem, name)) continue;
    const auto given = into.find(name);
    const bool fits = given != into.end() && given->second.shape() == from.shape;
    LayoutRef to;
    if (fits)
      to = is_placed(given->second) ? layout_of(given->second) : nullptr;
    else if (wanted.layout)
      to = wanted.layout(stem, name, from.shape);
    const Shape shape = to ? to->local_shape(from.shape) : from.shape;
    Tensor target;  // this rank's part
    if (fits && given->second.dtype() == from.dtype && !given->second.is_meta()) {
      target = to ? local_part(given->second) : given->second;
      if (!target.is_contiguous()) target = {};
    }
    const bool in_place = target.defined();
    if (!in_place) target = empty(TensorMeta{shape, from.dtype, device});
    // Straight to memory of the host; a card's gets a copy.
    const bool direct = target.device().is_cpu();
    const Tensor host = direct ? target : empty(TensorMeta{shape, from.dtype, Device::cpu()});
    const Layout whole{std::make_shared<const MeshPlace>(), {}};
    uint64_t hash = 0;
    {
      const Pin pin(host);
      hash = read_part(from, name, file, box_of(to ? *to : whole, from.shape, to ? to->places() : std::vector<int>()),
                       host.numel() > 0 ? host.raw_data() : nullptr);
      if (from.dtype == DType::boolean) {
        const auto* bytes = static_cast<const uint8_t*>(host.raw_data());
        for (int64_t i = 0; i < host.numel(); ++i)
          check<IoError>(bytes[i] <= 1, "checkpoint", "tensor ", quote(name), " of ", quote(stem), ": byte ", i,
                         " is neither 0 nor 1, which BOOL does not allow");
      }
    }
    if (!direct) copy_elements(target, host);
    if (in_place) bump_version(given->second, "read");
    if (from.hash && seen)
      (*seen)[{stem, name}] = {to ? StoredTensor::number_of(*to, to->places()) : 0,
                               to ? StoredTensor::count_parts(*to) : 1, hash};
    else if (from.hash && !to)
      check<IoError>(hash == *from.hash, "checkpoint", "tensor ", quote(name), " of ", quote(stem),
                     " is not the one that was written: its hash is ", to_hex(hash), ", state.json says ",
                     to_hex(*from.hash));
    if (in_place) {
      result[name] = given->second;
    } else if (to) {
      result[name] = strata::detail::place(target, TensorMeta{from.shape, from.dtype, target.device()}, to);
    } else {
      result[name] = target;
    }
  }
  return result;
}

}  // namespace strata::io::detail
