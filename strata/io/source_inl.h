#pragma once
// What a reader of headers reads from: a file, or bytes in memory (the fuzz targets' and the tests').

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/input_file.h"

namespace strata::io {

/// Bytes with a name, at random; the file or the memory stays the caller's.
class Source {
 public:
  explicit Source(const InputFile& file) : file_(&file), size_(file.size()), name_(file.path()) {}
  Source(std::span<const std::byte> bytes, std::string name)
      : bytes_(bytes), size_(bytes.size()), name_(std::move(name)) {}

  uint64_t size() const { return size_; }
  const std::string& name() const { return name_; }
  /// Throws IoError past the end.
  void read(uint64_t offset, void* to, size_t n) const {
    check<IoError>(offset <= size_ && n <= size_ - offset, "", quote(name_), ": bytes ", offset, " to ", offset + n,
                   " are wanted, it has ", size_);
    if (file_) {
      file_->read(offset, to, n);
    } else if (n > 0) {
      std::memcpy(to, bytes_.data() + offset, n);
    }
  }
  std::string read(uint64_t offset, size_t n) const {
    check<IoError>(offset <= size_ && n <= size_ - offset, "", quote(name_), ": bytes ", offset, " to ", offset + n,
                   " are wanted, it has ", size_);  // before anything is allocated
    std::string text(n, '\0');
    read(offset, text.data(), n);
    return text;
  }

 private:
  const InputFile* file_ = nullptr;
  std::span<const std::byte> bytes_;
  uint64_t size_ = 0;
  std::string name_;
};

/// Reads little-endian numbers one after the other, through a buffer, up to a limit.
class Cursor {
 public:
  /// Of [begin, end) of the source; `end` is cut to its size. `format` begins the messages.
  Cursor(const Source& source, uint64_t begin, uint64_t end, std::string_view format)
      : source_(source), at_(begin), end_(std::min(end, source.size())), buffered_(begin), format_(format) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return end_ - at_; }
  /// Throws IoError that names the byte.
  template <class... Parts>
  [[noreturn]] void fail(uint64_t byte, const Parts&... parts) const {
    throw IoError(format_, cat(quote(source_.name()), ": byte ", byte, ": ", parts...));
  }
  /// Throws where so many bytes are not left. `what` they are stands in the message.
  void need(uint64_t n, std::string_view what) const {
    if (n > left()) fail(at_, what, " needs ", n, " bytes, ", left(), " are left (was the file cut off?)");
  }
  template <class T>
  T number(std::string_view what) {
    static_assert(std::is_arithmetic_v<T>);
    T value;
    need(sizeof value, what);
    take(&value, sizeof value);
    return value;
  }
  std::string text(uint64_t n, std::string_view what) {
    need(n, what);
    std::string s(static_cast<size_t>(n), '\0');
    take(s.data(), s.size());
    return s;
  }

 private:
  static constexpr uint64_t kBuffer = uint64_t{256} << 10;

  void take(void* to, size_t n) {
    if (n > kBuffer) {
      source_.read(at_, to, n);
    } else if (n > 0) {
      if (at_ < buffered_ || at_ + n > buffered_ + buffer_.size()) {
        buffered_ = at_;
        buffer_.resize(static_cast<size_t>(std::min(kBuffer, left())));
        source_.read(at_, buffer_.data(), buffer_.size());
      }
      std::memcpy(to, buffer_.data() + (at_ - buffered_), n);
    }
    at_ += n;
  }

  const Source& source_;
  uint64_t at_, end_, buffered_;
  std::string buffer_;
  std::string_view format_;
};

}  // namespace strata::io
