#pragma once
// A file from its first byte to its last, unpacked on the way where it is compressed.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "strata/io/hash.h"

namespace strata::io {

/// How a file is compressed.
enum class Compression : uint8_t { none, gzip, zlib, zstd };
/// "none", "gzip", "zlib", "zstd".
std::string_view to_string(Compression compression);

/// The bytes of a file in order. What it is compressed with is seen in its first bytes, whatever its name: gzip (RFC
/// 1952) and zstd (RFC 8878), both also as several one behind another, and zlib (RFC 1950) where its two bytes of
/// header cannot begin a text. Memory is a few hundred KiB, with zstd also the window, at most 128 MiB, whatever the
/// data unpack to. Errors are IoError that name the file and the byte in it. Move-only; one thread at a time.
/// \code
///   io::ByteStream stream("corpus.jsonl.zst");
///   char buffer[4096];
///   for (size_t n; (n = stream.read(buffer, sizeof buffer)) > 0;) use(buffer, n);
/// \endcode
class ByteStream {
 public:
  /// Opens the file, which is not empty. `raw`, which must outlive this, is fed with the bytes as they are in the file.
  explicit ByteStream(const std::string& path, Hasher* raw = nullptr);
  /// Bytes in memory, which must outlive this; `name` stands in the messages.
  ByteStream(std::string_view bytes, std::string name);
  ~ByteStream();
  ByteStream(ByteStream&&) noexcept;
  ByteStream& operator=(ByteStream&&) noexcept;

  /// Fills `to` with the next bytes and returns how many: fewer than asked for only at the end, then 0. Throws IoError:
  /// compressed data that are damaged or cut off, or have something else behind them.
  size_t read(char* to, size_t bytes);
  /// Bytes that read() gave so far.
  uint64_t position() const;
  /// Bytes of the file that were taken so far, and all of them.
  uint64_t raw_position() const;
  uint64_t raw_size() const;
  Compression compression() const;
  const std::string& name() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::io
