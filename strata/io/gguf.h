#pragma once
// GGUF files (https://github.com/ggml-org/ggml, docs/gguf.md): "GGUF", a version, counts, typed metadata, a table of
// tensors, and their bytes, each at a multiple of the alignment. Everything is checked before anything is believed.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/io/files.h"
#include "strata/io/input_file.h"
#include "strata/io/stored_type.h"

namespace strata::io {

/// What a value of the metadata is; the numbers are the file's.
enum class GgufType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
/// "u8", "string", "array".
std::string_view name_of(GgufType type);

/// A value of the metadata, bit for bit as a file has it.
class GgufValue {
 public:
  /// @name Values of each type
  /// @{
  static GgufValue of(uint8_t value);
  static GgufValue of(int8_t value);
  static GgufValue of(uint16_t value);
  static GgufValue of(int16_t value);
  static GgufValue of(uint32_t value);
  static GgufValue of(int32_t value);
  static GgufValue of(uint64_t value);
  static GgufValue of(int64_t value);
  static GgufValue of(float value);
  static GgufValue of(double value);
  static GgufValue of(bool value);
  static GgufValue of(std::string value);
  static GgufValue of(const char* value) { return of(std::string(value)); }
  static GgufValue of(std::vector<std::string> values);
  static GgufValue of(const std::vector<int32_t>& values);
  static GgufValue of(const std::vector<uint32_t>& values);
  static GgufValue of(const std::vector<float>& values);
  static GgufValue of(const std::vector<bool>& values);
  /// Arrays, all of one type.
  static GgufValue of(std::vector<GgufValue> values, GgufType element);
  /// @}

  GgufType type() const { return type_; }
  /// Of an array's elements; type() of others.
  GgufType element() const { return element_; }
  /// Of an array; 1 for others.
  size_t size() const;

  /// @name What it holds
  /// Throws ValueError where it is of another kind ("is a string, an integer is wanted"), or the number does not fit.
  /// Integers of any width, an f32 or f64 as number(); of arrays the plural ones.
  /// @{
  int64_t integer() const;
  double number() const;  ///< of integers as well
  bool boolean() const;
  const std::string& text() const;
  std::vector<int64_t> integers() const;
  std::vector<double> numbers() const;
  std::vector<bool> booleans() const;
  const std::vector<std::string>& texts() const;
  const std::vector<GgufValue>& arrays() const;
  /// @}

  bool operator==(const GgufValue&) const = default;

 private:
  friend struct GgufCoding;
  int64_t integer_at(size_t i) const;
  double number_at(size_t i) const;
  void want(bool ok, std::string_view wanted) const;

  GgufType type_ = GgufType::u8, element_ = GgufType::u8;
  std::string bytes_;               // of numbers and booleans, or the text itself
  std::vector<std::string> texts_;  // of an array of strings
  std::vector<GgufValue> arrays_;   // of an array of arrays
};

/// Keys and values in a file's order, by key. Keys are given once.
class GgufMetadata {
 public:
  GgufMetadata() = default;
  /// `source` is the file that it is of, for messages.
  explicit GgufMetadata(std::string source) : source_(std::move(source)) {}

  const std::vector<std::pair<std::string, GgufValue>>& entries() const { return entries_; }
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  /// nullptr where there is none.
  const GgufValue* find(std::string_view key) const;
  /// Appends, or replaces the value where the key is there.
  void set(std::string key, GgufValue value);

  /// @name A value by its key
  /// Throws IoError that names file and key where there is none, or it is of another kind (GgufValue).
  /// @{
  const GgufValue& at(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  bool boolean(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;
  const std::vector<std::string>& texts(std::string_view key) const;
  /// @}

 private:
  template <class Read>
  auto read(std::string_view key, Read&& read) const;

  std::string source_;
  std::vector<std::pair<std::string, GgufValue>> entries_;
  std::map<std::string, size_t, std::less<>> index_;
};

/// One tensor of a file.
struct GgufEntry {
  std::string name;
  const StoredType* type = nullptr;
  Shape shape;          ///< PyTorch's order: the file has the sizes the other way round
  uint64_t offset = 0;  ///< of its first byte in the file
  uint64_t nbytes = 0;
};

/// All that a file says before its tensors' bytes.
struct GgufHeader {
  uint32_t version = 3;
  uint64_t alignment = 32;
  GgufMetadata metadata;
  std::vector<GgufEntry> entries;  ///< in the order of the table, which is that of their bytes
};

/// A longer part before the tensors is refused.
inline constexpr uint64_t kMaxGgufHeader = 100'000'000;

/// Checks a whole file image and describes it; `name` stands in the messages. Versions 2 and 3, little-endian. Throws
/// IoError that names the file, the key or tensor, and the byte, for: another version or byte order, a count or length
/// over what the file has, a key or name given twice, an unknown type of value or tensor, an alignment that is no power
/// of two, arrays nested more than 4 deep, more than kMaxDims dimensions, a size that is no multiple of the block,
/// offsets that are not one tensor after the other, and a file that is too short or too long for them. Allocates no
/// more than a small multiple of the part before the tensors that is really there.
GgufHeader parse_gguf(std::span<const std::byte> file, std::string_view name);
/// The same of a file, of which only that part is read.
GgufHeader read_gguf_header(const InputFile& file);

/// The parts of a model that is split among files, in order: NAME-00001-of-00003.gguf and the others, as llama.cpp
/// names them, whether they are there or not; `path` itself where it is not named so.
std::vector<std::string> gguf_parts(const std::string& path);

/// The GGUF models of a folder by their first parts (gguf_parts), sorted: files named *.gguf. Empty where the folder
/// cannot be listed.
std::vector<std::string> gguf_models(const std::string& folder);

/// The GGUF file that a path names: itself where it is a file that begins as one, or the only *.gguf of a folder; of a
/// split model its first part, whichever is named, or where a folder has nothing but its parts. Empty where it is none
/// of these.
std::string find_gguf(const std::string& path);

/// Writes a GGUF file, whole or not at all (FileWriter): metadata and table first, then one tensor after the other, in
/// the order of the items. What parse_gguf read is written again byte for byte where its bytes are.
///
///     io::GgufMetadata about;
///     about.set("general.architecture", io::GgufValue::of("llama"));
///     io::GgufWriter file(path, about, {{"output.weight", io::find_stored_type("Q8_0"), w.shape()}});
///     file.write(w);
///     file.commit();
class GgufWriter {
 public:
  /// The alignment is the metadata's general.alignment, 32 without. Throws ValueError for an item without a type that
  /// GGUF has, a name or key given twice or empty or not UTF-8, sizes that its blocks do not divide, an alignment that
  /// is no power of two, a `version` other than 2 and 3; IoError where the file cannot be written.
  GgufWriter(const std::string& path, const GgufMetadata& metadata, std::vector<StoredItem> items,
             uint32_t version = 3);
  ~GgufWriter();
  GgufWriter(GgufWriter&&) noexcept;

  /// The next tensor, of the item's shape, from any device and tier. Plain types take the elements as copy_ converts
  /// them; blocks are encoded. Throws ShapeError, DTypeError (a type that has no encoder; integers for blocks), and
  /// ValueError for elements that blocks do not hold, or where all items have been written.
  void write(const Tensor& tensor);
  /// The next tensor's bytes as the file has them. Throws ValueError unless there are as many as it needs.
  void write_bytes(std::span<const std::byte> bytes);
  /// Throws ValueError where items have not been written.
  WrittenFile commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata::io
