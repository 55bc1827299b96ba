#include <cmath>
#include <cstring>
#include <limits>

#include "strata/core/error.h"
#include "strata/io/gguf.h"
#include "strata/io/gguf_coding_inl.h"

namespace strata::io {
namespace {

struct TypeRecord {
  std::string_view name;
  size_t bytes;  // of one; 0: of no fixed size
};
constexpr TypeRecord kTypes[] = {{"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},    {"u32", 4},
                                 {"i32", 4}, {"f32", 4}, {"bool", 1}, {"string", 0}, {"array", 0},
                                 {"u64", 8}, {"i64", 8}, {"f64", 8}};
constexpr int kMaxDepth = 4;

const TypeRecord& record(GgufType type) {
  return kTypes[static_cast<size_t>(type)];
}

template <class T>
T at(const std::string& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
  return value;
}

template <class T>
std::string bytes_of(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes;
  for (const T value : values) append_number(bytes, value);
  return bytes;
}

}  // namespace

std::string_view name_of(GgufType type) {
  return record(type).name;
}

#define STRATA_GGUF_NUMBER(T, name)        \
  GgufValue GgufValue::of(T value) {       \
    GgufValue v;                           \
    v.type_ = v.element_ = GgufType::name; \
    v.bytes_ = bytes_of(value);            \
    return v;                              \
  }
#define STRATA_GGUF_ARRAY(T, name)                        \
  GgufValue GgufValue::of(const std::vector<T>& values) { \
    GgufValue v;                                          \
    v.type_ = GgufType::array;                            \
    v.element_ = GgufType::name;                          \
    v.bytes_ = bytes_of(values);                          \
    return v;                                             \
  }
STRATA_GGUF_NUMBER(uint8_t, u8)
STRATA_GGUF_NUMBER(int8_t, i8)
STRATA_GGUF_NUMBER(uint16_t, u16)
STRATA_GGUF_NUMBER(int16_t, i16)
STRATA_GGUF_NUMBER(uint32_t, u32)
STRATA_GGUF_NUMBER(int32_t, i32)
STRATA_GGUF_NUMBER(uint64_t, u64)
STRATA_GGUF_NUMBER(int64_t, i64)
STRATA_GGUF_NUMBER(float, f32)
STRATA_GGUF_NUMBER(double, f64)
STRATA_GGUF_NUMBER(bool, boolean)
STRATA_GGUF_ARRAY(int32_t, i32)
STRATA_GGUF_ARRAY(uint32_t, u32)
STRATA_GGUF_ARRAY(float, f32)
STRATA_GGUF_ARRAY(bool, boolean)
#undef STRATA_GGUF_NUMBER
#undef STRATA_GGUF_ARRAY

GgufValue GgufValue::of(std::string value) {
  GgufValue v;
  v.type_ = v.element_ = GgufType::string;
  v.bytes_ = std::move(value);
  return v;
}

GgufValue GgufValue::of(std::vector<std::string> values) {
  GgufValue v;
  v.type_ = GgufType::array;
  v.element_ = GgufType::string;
  v.texts_ = std::move(values);
  return v;
}

GgufValue GgufValue::of(std::vector<GgufValue> values, GgufType element) {
  GgufValue v;
  v.type_ = GgufType::array;
  v.element_ = element;
  for (const GgufValue& value : values)
    check<ValueError>(value.type_ == element, kGguf, "an array of ", name_of(element), " holds a ",
                      name_of(value.type_));
  if (element == GgufType::array) {
    v.arrays_ = std::move(values);
  } else if (element == GgufType::string) {
    for (GgufValue& value : values) v.texts_.push_back(std::move(value.bytes_));
  } else {
    for (const GgufValue& value : values) v.bytes_ += value.bytes_;
  }
  return v;
}

size_t GgufValue::size() const {
  if (type_ != GgufType::array) return 1;
  if (element_ == GgufType::array) return arrays_.size();
  return element_ == GgufType::string ? texts_.size() : bytes_.size() / record(element_).bytes;
}

void GgufValue::want(bool ok, std::string_view wanted) const {
  check<ValueError>(ok, "", "is ",
                    type_ == GgufType::array ? cat("an array of ", name_of(element_)) : cat("a ", name_of(type_)), ", ",
                    wanted, " is wanted");
}

int64_t GgufValue::integer_at(size_t i) const {
  switch (element_) {
    case GgufType::u8:
      return at<uint8_t>(bytes_, i);
    case GgufType::i8:
      return at<int8_t>(bytes_, i);
    case GgufType::u16:
      return at<uint16_t>(bytes_, i);
    case GgufType::i16:
      return at<int16_t>(bytes_, i);
    case GgufType::u32:
      return at<uint32_t>(bytes_, i);
    case GgufType::i32:
      return at<int32_t>(bytes_, i);
    case GgufType::i64:
      return at<int64_t>(bytes_, i);
    case GgufType::u64: {
      const auto value = at<uint64_t>(bytes_, i);
      check<ValueError>(value <= static_cast<uint64_t>(INT64_MAX), "", "is ", value, ", more than 63 bits hold");
      return static_cast<int64_t>(value);
    }
    default:
      want(false, type_ == GgufType::array ? "an array of integers" : "an integer");
      return 0;
  }
}

double GgufValue::number_at(size_t i) const {
  if (element_ == GgufType::f32) return at<float>(bytes_, i);
  if (element_ == GgufType::f64) return at<double>(bytes_, i);
  if (element_ == GgufType::u64) return static_cast<double>(at<uint64_t>(bytes_, i));
  const bool integer = element_ != GgufType::boolean && record(element_).bytes > 0;
  want(integer, type_ == GgufType::array ? "an array of numbers" : "a number");
  return static_cast<double>(integer_at(i));
}

int64_t GgufValue::integer() const {
  want(type_ != GgufType::array, "an integer");
  return integer_at(0);
}

double GgufValue::number() const {
  want(type_ != GgufType::array, "a number");
  return number_at(0);
}

bool GgufValue::boolean() const {
  want(type_ == GgufType::boolean, "a bool");
  return bytes_[0] != 0;
}

const std::string& GgufValue::text() const {
  want(type_ == GgufType::string, "a string");
  return bytes_;
}

std::vector<int64_t> GgufValue::integers() const {
  want(type_ == GgufType::array, "an array of integers");
  std::vector<int64_t> values(size());
  if (values.empty()) return values;
  for (size_t i = 0; i < values.size(); ++i) values[i] = integer_at(i);
  return values;
}

std::vector<double> GgufValue::numbers() const {
  want(type_ == GgufType::array, "an array of numbers");
  std::vector<double> values(size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = number_at(i);
  return values;
}

std::vector<bool> GgufValue::booleans() const {
  want(type_ == GgufType::array && element_ == GgufType::boolean, "an array of bools");
  return std::vector<bool>(bytes_.begin(), bytes_.end());
}

const std::vector<std::string>& GgufValue::texts() const {
  want(type_ == GgufType::array && element_ == GgufType::string, "an array of strings");
  return texts_;
}

const std::vector<GgufValue>& GgufValue::arrays() const {
  want(type_ == GgufType::array && element_ == GgufType::array, "an array of arrays");
  return arrays_;
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries_[found->second].second;
}

void GgufMetadata::set(std::string key, GgufValue value) {
  const auto [place, fresh] = index_.emplace(key, entries_.size());
  if (fresh) {
    entries_.emplace_back(std::move(key), std::move(value));
  } else {
    entries_[place->second].second = std::move(value);
  }
}

const GgufValue& GgufMetadata::at(std::string_view key) const {
  const GgufValue* value = find(key);
  check<IoError>(value != nullptr, kGguf, quote(source_), ": has no key ", quote(key));
  return *value;
}

template <class Read>
auto GgufMetadata::read(std::string_view key, Read&& read) const {
  const GgufValue& value = at(key);
  try {
    return read(value);
  } catch (const ValueError& e) {
    throw IoError(kGguf, cat(quote(source_), ": key ", quote(key), " ", e.what()));
  }
}

int64_t GgufMetadata::integer(std::string_view key) const {
  return read(key, [](const GgufValue& v) { return v.integer(); });
}
double GgufMetadata::number(std::string_view key) const {
  return read(key, [](const GgufValue& v) { return v.number(); });
}
bool GgufMetadata::boolean(std::string_view key) const {
  return read(key, [](const GgufValue& v) { return v.boolean(); });
}
const std::string& GgufMetadata::text(std::string_view key) const {
  return *read(key, [](const GgufValue& v) { return &v.text(); });
}
std::vector<int64_t> GgufMetadata::integers(std::string_view key) const {
  return read(key, [](const GgufValue& v) { return v.integers(); });
}
std::vector<double> GgufMetadata::numbers(std::string_view key) const {
  return read(key, [](const GgufValue& v) { return v.numbers(); });
}
const std::vector<std::string>& GgufMetadata::texts(std::string_view key) const {
  return *read(key, [](const GgufValue& v) { return &v.texts(); });
}

size_t GgufCoding::width(GgufType type) {
  return record(type).bytes;
}

GgufType GgufCoding::read_type(Cursor& from, const std::string& what) {
  const uint64_t place = from.at();
  const auto number = from.number<uint32_t>(what);
  if (number >= std::size(kTypes)) from.fail(place, what, " has the unknown type ", number);
  return static_cast<GgufType>(number);
}

GgufValue GgufCoding::read(Cursor& from, GgufType type, const std::string& what, int depth) {
  GgufValue v;
  v.type_ = v.element_ = type;
  const auto check_bools = [&](uint64_t place) {
    for (size_t i = 0; i < v.bytes_.size(); ++i)
      if (static_cast<unsigned char>(v.bytes_[i]) > 1)
        from.fail(place + i, what, " is a bool of ", static_cast<int>(static_cast<unsigned char>(v.bytes_[i])));
  };
  if (type == GgufType::string) {
    v.bytes_ = from.text(from.number<uint64_t>(what), what);
    return v;
  }
  if (type != GgufType::array) {
    const uint64_t place = from.at();
    v.bytes_ = from.text(record(type).bytes, what);
    if (type == GgufType::boolean) check_bools(place);
    return v;
  }
  if (depth == kMaxDepth) from.fail(from.at(), what, " nests arrays more than ", kMaxDepth, " deep");
  v.element_ = read_type(from, what);
  const uint64_t place = from.at();
  const auto n = from.number<uint64_t>(what);
  // A string has its length before it; an array its type, too.
  const uint64_t least = v.element_ == GgufType::array    ? 12
                         : v.element_ == GgufType::string ? 8
                                                          : record(v.element_).bytes;
  if (n > from.left() / least)
    from.fail(place, what, " has ", n, " elements, which ", from.left(), " bytes do not hold (was the file cut off?)");
  if (v.element_ == GgufType::array) {
    for (uint64_t i = 0; i < n; ++i) v.arrays_.push_back(read(from, GgufType::array, what, depth + 1));
  } else if (v.element_ == GgufType::string) {
    v.texts_.reserve(n);
    for (uint64_t i = 0; i < n; ++i) v.texts_.push_back(from.text(from.number<uint64_t>(what), what));
  } else {
    const uint64_t first = from.at();
    v.bytes_ = from.text(n * record(v.element_).bytes, what);
    if (v.element_ == GgufType::boolean) check_bools(first);
  }
  return v;
}

void GgufCoding::write(std::string& to, const GgufValue& value) {
  if (value.type_ == GgufType::string) {
    append_string(to, value.bytes_);
  } else if (value.type_ != GgufType::array) {
    to += value.bytes_;
  } else {
    append_number(to, static_cast<uint32_t>(value.element_));
    append_number<uint64_t>(to, value.size());
    to += value.bytes_;
    for (const std::string& text : value.texts_) append_string(to, text);
    for (const GgufValue& array : value.arrays_) write(to, array);
  }
}

}  // namespace strata::io
