#include "strata/io/torch_file_inl.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "strata/core/error.h"
#include "strata/io/torch_pickle_inl.h"
#include "strata/io/zip_inl.h"

namespace strata::io {
namespace {

constexpr std::string_view kOp = "PyTorch file";
constexpr std::string_view kPickle = "data.pkl";

// The folder in the archive that the pickle is in, with the '/' behind it.
std::string root_of(const ZipFile& zip, const Source& source) {
  std::string root;
  size_t found = 0;
  for (const auto& [name, entry] : zip.entries()) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos || std::string_view(name).substr(slash + 1) != kPickle) continue;
    root = name.substr(0, slash + 1);
    ++found;
  }
  check<IoError>(found == 1, kOp, quote(source.name()), found == 0 ? ": has no data.pkl" : ": has several data.pkl",
                 "; a file that torch.save wrote is wanted");
  const bool script = zip.contains(root + "constants.pkl");
  check<IoError>(!script, kOp, quote(source.name()), ": is a TorchScript archive; save its state_dict() instead");
  if (zip.contains(root + "byteorder")) {
    const std::string order = zip.read(root + "byteorder", 16);
    check<IoError>(order == "little", kOp, quote(source.name()), ": byte order ", quote(order), ", little is read");
  }
  return root;
}

// Names and tensors of a tree of dicts and lists.
class Collector {
 public:
  Collector(const Pickle& pickle, std::string_view source) : pickle_(pickle), source_(source) {}

  std::vector<WeightEntry> run() {
    const PickleValue::Kind kind = pickle_.root.kind;
    if (kind != PickleValue::Kind::dict) fail("holds no dict of tensors");
    visit("", pickle_.root, 0);
    std::sort(entries_.begin(), entries_.end(), [](const WeightEntry& a, const WeightEntry& b) {
      return std::tie(a.offset, a.nbytes, a.name) < std::tie(b.offset, b.nbytes, b.name);
    });
    return std::move(entries_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw IoError(kOp, cat(quote(source_), ": ", parts...));
  }
  static std::string joined(const std::string& folder, std::string_view name) {
    return folder.empty() ? std::string(name) : cat(folder, ".", name);
  }
  void visit(const std::string& name, const PickleValue& v, int depth) {
    if (++visits_ > kMaxPickleTensors + kMaxPickleContainers) fail("its dicts and lists hold too many values");
    names_ += name.size();
    if (names_ > kMaxPickleNames) fail("its tensors' names have more than ", kMaxPickleNames, " bytes");
    const bool container = v.kind == PickleValue::Kind::dict || v.kind == PickleValue::Kind::list;
    if (container && depth == kMaxPickleDepth)
      fail("dict ", quote(name), " nests more than ", kMaxPickleDepth, " deep");
    if (v.kind == PickleValue::Kind::dict) {
      for (const auto& [key, value] : pickle_.dicts[v.index]) {
        if (key.kind == PickleValue::Kind::text) {
          visit(joined(name, key.view()), value, depth + 1);
        } else if (key.kind == PickleValue::Kind::integer) {
          visit(joined(name, std::to_string(key.integer)), value, depth + 1);
        } else {
          fail("dict ", quote(name), " has a key that is neither a text nor an integer");
        }
      }
    } else if (v.kind == PickleValue::Kind::list) {
      const auto& values = pickle_.sequences[v.index];
      for (size_t i = 0; i < values.size(); ++i) visit(joined(name, std::to_string(i)), values[i], depth + 1);
    } else if (v.kind == PickleValue::Kind::tensor) {
      add(name, pickle_.tensors[v.index]);
    }
  }
  void add(const std::string& name, const PickleTensor& t) {
    if (name.empty()) fail("a tensor has no name");
    if (!seen_.insert(name).second) fail("tensor ", quote(name), " is given twice");
    WeightEntry e;
    e.name = name;
    e.type = t.type;
    e.shape = t.shape;
    const PickleStorage& s = pickle_.storages[t.storage];
    const auto element = static_cast<uint64_t>(t.type->block_bytes);
    e.offset = s.offset + static_cast<uint64_t>(t.first) * element;
    int64_t reach = 1, row_major = 1;
    bool in_order = true;
    for (int i = t.shape.size(); i-- > 0;) {
      in_order = in_order && (t.shape[i] == 1 || t.strides[i] == row_major);
      row_major *= t.shape[i];
      if (t.shape[i] > 0) reach += (t.shape[i] - 1) * t.strides[i];
    }
    if (row_major == 0) {
      e.offset = s.offset;
      reach = 0;
    } else if (!in_order) {
      e.strides = t.strides;
    }
    e.nbytes = static_cast<uint64_t>(reach) * element;
    entries_.push_back(std::move(e));
  }

  const Pickle& pickle_;
  std::string_view source_;
  size_t visits_ = 0, names_ = 0;
  std::set<std::string> seen_;
  std::vector<WeightEntry> entries_;
};

}  // namespace

std::vector<WeightEntry> read_torch_file(const Source& source) {
  const ZipFile zip(source);
  const std::string root = root_of(zip, source);
  const std::string text = zip.read(root + std::string(kPickle), kMaxPickle);
  const Pickle pickle = read_pickle(text, source.name(), [&](std::string_view key) {
    const ZipFile::Place place = zip.place(cat(root, "data/", key));
    return PickleStorage{nullptr, place.offset, place.size};
  });
  return Collector(pickle, source.name()).run();
}

}  // namespace strata::io
