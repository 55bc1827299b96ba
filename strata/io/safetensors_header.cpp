// The safetensors header: parsing and validation.

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <string>
#include <tuple>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/io/json_cursor_inl.h"
#include "strata/io/safetensors_stored_inl.h"

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

namespace strata::io {
namespace {
constexpr std::string_view kOp = "safetensors";
constexpr uint64_t kPrefix = 8;   // bytes of the header's length
constexpr uint64_t kStart = 256;  // enough to know other formats by
constexpr std::string_view kMetadataKey = "__metadata__";

const StoredType* find_type(std::string_view name, bool with_dtype) {
  const StoredType* type = find_stored_type(name);
  return type && type->safetensors && (type->dtype || !with_dtype) ? type : nullptr;
}

std::string type_names(bool with_dtype) {
  std::string names;
  for (const StoredType& t : stored_types())
    if (find_type(t.name, with_dtype)) names += cat(names.empty() ? "" : " ", t.name);
  return names;
}

struct RawEntry {
  std::string name;
  const StoredType* type = nullptr;
  Shape shape;
  uint64_t begin = 0, end = 0;
};

// Builds the entries straight from the parser's events: duplicates are seen, and no tree is built of a hostile header.
class HeaderReader {
 public:
  using json = nlohmann::json;

  HeaderReader(std::string_view file, std::string_view text, bool with_dtype)
      : file_(file), text_(text), progress_(text.data()), with_dtype_(with_dtype) {}

  void run() {
    JsonCursor first{text_.data(), &progress_}, last{text_.data() + text_.size(), &progress_};
    json::sax_parse(first, last, this);
  }

  std::vector<RawEntry> entries;
  Metadata metadata;

  // The parser's events. Every refusal throws: the parser is exception-neutral.
  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool number_float(double, const std::string& text) {
    return unexpected(cat("the number ", quote(text, 30), " (not an integer of 64 bits)"));
  }
  bool number_integer(int64_t value) { return unexpected(cat("the negative number ", value)); }
  bool number_unsigned(uint64_t value) {
    if (place_ == Place::shape) {
      if (entries.back().shape.size() == kMaxDims) fail("shape has more than ", kMaxDims, " dimensions");
      if (value > static_cast<uint64_t>(INT64_MAX)) fail("shape entry ", value, " is too large");
      entries.back().shape.push_back(static_cast<int64_t>(value));
    } else if (place_ == Place::offsets) {
      if (offsets_ == 2) fail("data_offsets has more than 2 numbers");
      (offsets_++ == 0 ? entries.back().begin : entries.back().end) = value;
    } else {
      unexpected(cat("the number ", value));
    }
    return true;
  }
  bool string(std::string& text) {
    if (place_ == Place::dtype) {
      const StoredType* type = find_type(text, with_dtype_);
      if (!type)
        fail("dtype ", quote(text, 30), with_dtype_ ? " is not one that Strata has (" : " is not one of the format (",
             type_names(with_dtype_), ")");
      entries.back().type = type;
      place_ = Place::tensor;
    } else if (place_ == Place::metadata_value) {
      metadata[key_] = std::move(text);
      place_ = Place::metadata;
    } else {
      unexpected(cat("the string ", quote(text, 40)));
    }
    return true;
  }
  bool binary(json::binary_t&) { return unexpected("binary data"); }
  bool start_object(size_t) {
    if (place_ == Place::start) {
      place_ = Place::names;
    } else if (place_ == Place::entry) {
      place_ = Place::tensor;
      seen_ = 0;
    } else if (place_ == Place::metadata_entry) {
      place_ = Place::metadata;
    } else {
      unexpected("an object");
    }
    return true;
  }
  bool key(std::string& key) {
    if (place_ == Place::names) {
      key_.clear();
      if (key == kMetadataKey) {
        if (have_metadata_) fail("__metadata__ is given twice");
        have_metadata_ = true;
        place_ = Place::metadata_entry;
      } else {
        entries.emplace_back();
        entries.back().name = std::move(key);
        place_ = Place::entry;
      }
    } else if (place_ == Place::metadata) {
      if (metadata.contains(key)) fail("the key ", quote(key), " of __metadata__ is given twice");
      key_ = std::move(key);
      place_ = Place::metadata_value;
    } else {  // Place::tensor: the parser calls key() only inside an object
      constexpr std::string_view fields[] = {"dtype", "shape", "data_offsets"};
      const auto* field = std::find(std::begin(fields), std::end(fields), key);
      if (field == std::end(fields))
        fail("unknown field ", quote(key, 40), " (dtype, shape and data_offsets are known)");
      const int index = static_cast<int>(field - fields);
      if (seen_ & (1 << index)) fail("the field ", key, " is given twice");
      seen_ |= 1 << index;
      place_ = index == 0 ? Place::dtype : index == 1 ? Place::shape_start : Place::offsets_start;
    }
    return true;
  }
  bool end_object() {
    if (place_ == Place::tensor) {
      for (int i = 0; i < 3; ++i)
        if (!(seen_ & (1 << i)))
          fail("the field ", i == 0 ? "dtype" : i == 1 ? "shape" : "data_offsets", " is missing");
      place_ = Place::names;
    } else if (place_ == Place::metadata) {
      place_ = Place::names;
    } else {  // Place::names: the header's own closing brace
      place_ = Place::done;
    }
    return true;
  }
  bool start_array(size_t) {
    if (place_ == Place::shape_start) {
      place_ = Place::shape;
    } else if (place_ == Place::offsets_start) {
      place_ = Place::offsets;
      offsets_ = 0;
    } else {
      unexpected("an array");
    }
    return true;
  }
  bool end_array() {
    if (place_ == Place::offsets && offsets_ != 2) fail("data_offsets has ", offsets_, " numbers, 2 are wanted");
    place_ = Place::tensor;
    return true;
  }
  bool parse_error(size_t position, const std::string& token, const json::exception&) {
    throw IoError(kOp, cat(quote(file_), ": the header is not valid JSON at byte ",
                           kPrefix + (position > 0 ? position - 1 : 0), ", at ", quote(token, 40)));
  }

 private:
  enum class Place : uint8_t {
    start,
    names,
    entry,
    tensor,
    dtype,
    shape_start,
    shape,
    offsets_start,
    offsets,
    metadata_entry,
    metadata,
    metadata_value,
    done
  };

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    const bool in_tensor = place_ != Place::start && place_ != Place::names && place_ != Place::metadata_entry &&
                           place_ != Place::metadata && place_ != Place::metadata_value && !entries.empty();
    throw IoError(kOp,
                  cat(quote(file_), ": ", in_tensor ? cat("tensor ", quote(entries.back().name), ": ") : "", parts...,
                      " (header, near byte ", kPrefix + static_cast<uint64_t>(progress_ - text_.data()), ")"));
  }
  bool unexpected(std::string_view what) const {
    switch (place_) {
      case Place::start:
        fail("the header is ", what, ", an object is wanted");
      case Place::entry:
        fail("its value is ", what, ", an object with dtype, shape and data_offsets is wanted");
      case Place::dtype:
        fail("dtype is ", what, ", a string is wanted");
      case Place::shape_start:
        fail("shape is ", what, ", an array of sizes is wanted");
      case Place::shape:
        fail("shape holds ", what, ", sizes are wanted");
      case Place::offsets_start:
        fail("data_offsets is ", what, ", an array of two numbers is wanted");
      case Place::offsets:
        fail("data_offsets holds ", what, ", byte offsets are wanted");
      case Place::metadata_entry:
        fail("__metadata__ is ", what, ", an object of strings is wanted");
      default:
        fail("the value of ", quote(key_), " in __metadata__ is ", what, ", a string is wanted");
    }
  }

  std::string_view file_, text_;
  const char* progress_;
  bool with_dtype_;
  Place place_ = Place::start;
  std::string key_;
  int seen_ = 0, offsets_ = 0;
  bool have_metadata_ = false;
};

// What else the file is, by its first bytes; empty for none that is known. `name` as it is quoted.
std::string other_format(std::string_view start, const std::string& name) {
  const bool zip = start.starts_with("PK\x03\x04");
  const auto torch = [&](std::string_view kind) {
    return cat(
        name, " is a PyTorch file (", kind,
        "), which runs code when it is read; where PyTorch is installed, convert it: from safetensors.torch import "
        "save_file; save_file(torch.load('FILE', map_location='cpu'), 'FILE.safetensors')");
  };
  if (zip && start.find(".npy") != std::string_view::npos)
    return cat(name,
               " is a NumPy archive (.npz); convert it: st.save({k: st.tensor(v) for k, v in "
               "numpy.load('FILE').items()}, 'FILE.safetensors')");
  if (zip) return torch("a zip archive of pickled objects");
  if (start.starts_with("\x93NUMPY"))
    return cat(name, " is a NumPy array (.npy); read it: st.tensor(numpy.load('FILE'))");
  if (start.starts_with("GGUF")) return cat(name, " is a GGUF file; a safetensors file is wanted");
  if (start.size() > 2 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5) return torch("pickled objects");
  return "";
}

uint64_t header_length(std::string_view start, uint64_t size, std::string_view name) {
  check<IoError>(size >= kPrefix, kOp, quote(name), ": has ", size,
                 " bytes, a safetensors file starts with 8 bytes of header length");
  uint64_t length = 0;
  std::memcpy(&length, start.data(), kPrefix);
  if (length > kMaxSafetensorsHeader || length > size - kPrefix) {
    const std::string other = other_format(start, quote(name));
    check<IoError>(other.empty(), "", other);
  }
  check<IoError>(length <= kMaxSafetensorsHeader, kOp, quote(name), ": byte 0: the header length is ", length,
                 ", at most ", kMaxSafetensorsHeader, " is allowed (is this a safetensors file?)");
  check<IoError>(length <= size - kPrefix, kOp, quote(name), ": byte 0: the header length is ", length,
                 ", the file has only ", size - kPrefix, " bytes after it (was it cut off?)");
  return length;
}

// As messages name it: what Strata has by its own name.
std::string_view type_text(const StoredType& type) {
  return type.dtype ? strata::name_of(*type.dtype) : type.name;
}

// `text` is the header, `data_bytes` is what the file has after it.
StoredHeader parse_header(std::string_view text, uint64_t data_bytes, std::string_view name, bool with_dtype) {
  check<IoError>(text.starts_with('{'), kOp, quote(name), ": byte 8: the header does not start with '{'");
  HeaderReader reader(name, text, with_dtype);
  reader.run();

  const uint64_t data_begin = kPrefix + text.size();
  std::vector<RawEntry>& raw = reader.entries;
  std::set<std::string_view> names;
  for (const RawEntry& e : raw)
    check<IoError>(names.insert(e.name).second, kOp, quote(name), ": tensor ", quote(e.name), " is given twice");
  names.clear();

  std::sort(raw.begin(), raw.end(), [](const RawEntry& a, const RawEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  StoredHeader header;
  header.metadata = std::move(reader.metadata);
  header.entries.reserve(raw.size());
  uint64_t position = 0;
  for (RawEntry& e : raw) {
    const auto offsets = [&] { return cat("data_offsets [", e.begin, ", ", e.end, "]"); };
    if (e.begin > e.end || e.end > data_bytes)
      throw IoError(kOp,
                    cat(quote(name), ": tensor ", quote(e.name), ": ", offsets(), " are out of range, the data has ",
                        data_bytes, " bytes (from byte ", data_begin, " of the file)"));
    if (e.begin != position)
      throw IoError(kOp, cat(quote(name), ": tensor ", quote(e.name), ": ", offsets(),
                             e.begin < position ? " overlap another tensor that ends at "
                                                : " leave bytes that belong to no tensor, from ",
                             position));
    const std::optional<uint64_t> bytes = stored_bytes(*e.type, e.shape);
    check<IoError>(bytes.has_value(), kOp, quote(name), ": tensor ", quote(e.name), ": shape ", e.shape, " of ",
                   type_text(*e.type), e.type->block > 1 ? " is no whole number of bytes, or" : " is",
                   " larger than 64 bits can count");
    if (*bytes != e.end - e.begin)
      throw IoError(kOp, cat(quote(name), ": tensor ", quote(e.name), ": ", offsets(), " are ", e.end - e.begin,
                             " bytes, shape ", e.shape, " of ", type_text(*e.type), " needs ", *bytes));
    position = e.end;
    header.entries.push_back({std::move(e.name), e.type, e.shape, data_begin + e.begin, *bytes});
  }
  check<IoError>(position == data_bytes, kOp, quote(name), ": the tensors end at byte ", position,
                 " of the data, which has ", data_bytes, " bytes: ", data_bytes - position, " belong to no tensor");
  return header;
}

StoredHeader read_header(const InputFile& file, bool with_dtype) {
  const std::string start = file.read(0, static_cast<size_t>(std::min<uint64_t>(file.size(), kStart)));
  const uint64_t length = header_length(start, file.size(), file.path());
  return parse_header(file.read(kPrefix, length), file.size() - kPrefix - length, file.path(), with_dtype);
}

SafetensorsHeader with_dtypes(StoredHeader&& stored) {
  SafetensorsHeader header;
  header.metadata = std::move(stored.metadata);
  header.entries.reserve(stored.entries.size());
  for (StoredEntry& e : stored.entries)
    header.entries.push_back({std::move(e.name), *e.type->dtype, e.shape, e.offset, e.nbytes});
  return header;
}
}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, std::string_view name) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const uint64_t length = header_length(text.substr(0, kStart), file.size(), name);
  return with_dtypes(parse_header(text.substr(kPrefix, length), file.size() - kPrefix - length, name, true));
}

SafetensorsHeader read_safetensors_header(const InputFile& file) {
  return with_dtypes(read_header(file, true));
}

StoredHeader read_stored_header(const InputFile& file) {
  return read_header(file, false);
}

}  // namespace strata::io
