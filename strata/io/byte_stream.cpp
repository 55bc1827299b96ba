#include "strata/io/byte_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/input_file.h"

namespace strata::io {
namespace {

constexpr size_t kBuffer = size_t{256} << 10;  // of the file's bytes
constexpr size_t kHead = 4;                    // bytes that tell what it is

constexpr std::string_view kNames[] = {"none", "gzip", "zlib", "zstd"};

Compression recognise(std::string_view head) {
  const auto byte = [&](size_t i) { return i < head.size() ? static_cast<unsigned char>(head[i]) : 0u; };
  if (byte(0) == 0x1f && byte(1) == 0x8b) return Compression::gzip;
  // A frame, or one that is to be skipped.
  if (byte(1) == 0xb5 && byte(0) == 0x28 && byte(2) == 0x2f && byte(3) == 0xfd) return Compression::zstd;
  if ((byte(0) & 0xf0) == 0x50 && byte(1) == 0x2a && byte(2) == 0x4d && byte(3) == 0x18) return Compression::zstd;
  // Of zlib's headers with the usual window, 78 5e is "x^"; 78 da may begin a letter, which its next byte would end.
  if (byte(0) == 0x78 && (byte(1) == 0x01 || byte(1) == 0x9c || (byte(1) == 0xda && (byte(2) & 0xc0) != 0x80)))
    return Compression::zlib;
  return Compression::none;
}

// What unpacks: takes from `in`, gives to `out`, both moved on. False where the data end here.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual bool step(std::string_view& in, char*& out, size_t& room) = 0;
  /// For the member that follows.
  virtual void restart() = 0;
};

struct Damaged {
  std::string why;
};

class Inflater final : public Decoder {
 public:
  explicit Inflater(bool gzip) {
    if (inflateInit2(&z_, gzip ? 15 + 16 : 15) != Z_OK) throw MemoryError("", "no memory to unpack with");
  }
  ~Inflater() override { inflateEnd(&z_); }
  bool step(std::string_view& in, char*& out, size_t& room) override {
    z_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    z_.avail_in = static_cast<uInt>(in.size());
    z_.next_out = reinterpret_cast<Bytef*>(out);
    z_.avail_out = static_cast<uInt>(std::min<size_t>(room, size_t{1} << 30));
    const uInt room_before = z_.avail_out;
    const int r = inflate(&z_, Z_NO_FLUSH);
    in.remove_prefix(in.size() - z_.avail_in);
    out += room_before - z_.avail_out;
    room -= room_before - z_.avail_out;
    if (r == Z_STREAM_END) return false;
    if (r == Z_MEM_ERROR) throw MemoryError("", "no memory to unpack with");
    if (r != Z_OK && r != Z_BUF_ERROR) throw Damaged{z_.msg ? z_.msg : "a dictionary is wanted"};
    return true;
  }
  void restart() override { inflateReset(&z_); }

 private:
  z_stream z_{};
};

class Unzstd final : public Decoder {
 public:
  Unzstd() : context_(ZSTD_createDCtx()) {
    if (context_ == nullptr) throw MemoryError("", "no memory to unpack with");
    ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, 27);
  }
  ~Unzstd() override { ZSTD_freeDCtx(context_); }
  bool step(std::string_view& in, char*& out, size_t& room) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out, room, 0};
    const size_t r = ZSTD_decompressStream(context_, &to, &from);
    in.remove_prefix(from.pos);
    out += to.pos;
    room -= to.pos;
    if (ZSTD_isError(r)) throw Damaged{ZSTD_getErrorName(r)};
    return r != 0;
  }
  void restart() override { ZSTD_DCtx_reset(context_, ZSTD_reset_session_only); }

 private:
  ZSTD_DCtx* context_;
};

}  // namespace

std::string_view to_string(Compression compression) {
  return kNames[static_cast<size_t>(compression)];
}

struct ByteStream::Impl {
  InputFile file;
  std::string_view memory;  // where there is no file
  std::string name;
  Hasher* raw = nullptr;
  uint64_t size = 0, fetched = 0, given = 0;
  std::vector<char> buffer;
  std::string_view in;  // of the buffer, or of the memory: fetched and not yet taken
  Compression compression = Compression::none;
  std::unique_ptr<Decoder> decoder;
  bool between = true;  // at the start of a member, where the file may end

  uint64_t taken() const { return fetched - in.size(); }

  void fetch() {
    if (fetched == size) return;
    const auto n = static_cast<size_t>(std::min<uint64_t>(kBuffer, size - fetched));
    if (file.size() > 0) {
      buffer.resize(n);
      file.read(fetched, buffer.data(), n);
      in = {buffer.data(), n};
    } else {
      in = memory.substr(fetched, n);
    }
    if (raw) raw->update(in);
    fetched += n;
  }

  void start() {
    fetch();
    compression = recognise(in.substr(0, kHead));
    if (compression == Compression::gzip || compression == Compression::zlib)
      decoder = std::make_unique<Inflater>(compression == Compression::gzip);
    if (compression == Compression::zstd) decoder = std::make_unique<Unzstd>();
  }

  [[noreturn]] void fail(std::string_view why) const {
    throw IoError("", cat(quote(name), ": byte ", taken(), " of the file: the ", to_string(compression),
                          " data are damaged: ", why));
  }

  size_t copy(char* to, size_t bytes) {
    if (in.empty()) fetch();
    const size_t n = std::min(bytes, in.size());
    if (n == 0) return 0;  // memcpy may not be given the null of empty bytes
    std::memcpy(to, in.data(), n);
    in.remove_prefix(n);
    return n;
  }

  // Up to `bytes` of what is unpacked; 0 at the end.
  size_t unpack(char* to, size_t bytes) {
    char* out = to;
    size_t room = bytes;
    while (room == bytes) {
      if (in.empty()) fetch();
      if (between) {
        if (in.empty()) return 0;
        // zlib's data are one piece; zeros behind gzip's are padding of tapes.
        if (compression == Compression::zlib && given > 0) fail("something follows them");
        between = false;
      }
      const size_t in_before = in.size();
      try {
        if (!decoder->step(in, out, room)) {
          decoder->restart();
          between = true;
          continue;
        }
      } catch (const Damaged& d) {
        fail(d.why);
      }
      if (in.empty() && fetched == size && room == bytes && in_before == 0) fail("the file ends within them");
    }
    return bytes - room;
  }
};

ByteStream::ByteStream(const std::string& path, Hasher* raw) : impl_(std::make_unique<Impl>()) {
  impl_->file = InputFile(path);
  impl_->name = path;
  impl_->raw = raw;
  impl_->size = impl_->file.size();
  impl_->file.will_need(0, std::min<uint64_t>(impl_->size, uint64_t{8} << 20));
  impl_->start();
}
ByteStream::ByteStream(std::string_view bytes, std::string name) : impl_(std::make_unique<Impl>()) {
  impl_->memory = bytes;
  impl_->name = std::move(name);
  impl_->size = bytes.size();
  impl_->start();
}
ByteStream::~ByteStream() = default;
ByteStream::ByteStream(ByteStream&&) noexcept = default;
ByteStream& ByteStream::operator=(ByteStream&&) noexcept = default;

size_t ByteStream::read(char* to, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const size_t n = impl_->decoder ? impl_->unpack(to + done, bytes - done) : impl_->copy(to + done, bytes - done);
    if (n == 0) break;
    done += n;
    impl_->given += n;
  }
  return done;
}

uint64_t ByteStream::position() const {
  return impl_->given;
}
uint64_t ByteStream::raw_position() const {
  return impl_->taken();
}
uint64_t ByteStream::raw_size() const {
  return impl_->size;
}
Compression ByteStream::compression() const {
  return impl_->compression;
}
const std::string& ByteStream::name() const {
  return impl_->name;
}

}  // namespace strata::io
