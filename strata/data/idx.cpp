#include "strata/data/idx.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstring>

#include <zlib.h>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/input_file.h"

namespace strata::data {
using io::quote;
namespace {
constexpr std::string_view kOp = "read_idx";
// Deflate cannot expand more than this, so a larger claim in a header is a lie.
constexpr uint64_t kMaxExpansion = 1032;

// Hands out the bytes of a plain or compressed file in order.
class Source {
 public:
  Source(std::span<const std::byte> file, std::string_view name) : file_(file), name_(name) {
    compressed_ = file.size() >= 2 && file[0] == std::byte{0x1f} && file[1] == std::byte{0x8b};
    limit_ = file.size();
    if (!compressed_) return;
    limit_ = file.size() > UINT64_MAX / kMaxExpansion ? UINT64_MAX : file.size() * kMaxExpansion;
    check<IoError>(inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK, kOp, quote(name), ": cannot start decompression");
  }
  ~Source() {
    if (compressed_) inflateEnd(&stream_);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  /// Bytes that the rest of the file can hold at the most.
  uint64_t limit() const { return limit_ - std::min(limit_, position_); }

  void read(void* to, uint64_t bytes, std::string_view what) {
    const uint64_t got = read_some(to, bytes);
    check<IoError>(got == bytes, kOp, quote(name_), ": byte ", position_, ": the file ends within the ", what,
                   ", which needs ", bytes - got, " more bytes");
  }

  void expect_end() {
    char extra;
    const uint64_t end = position_;
    check<IoError>(read_some(&extra, 1) == 0, kOp, quote(name_), ": there is data from byte ", end,
                   " on, after all elements that the sizes ask for");
    check<IoError>(!compressed_ || (ended_ && used_ - stream_.avail_in == file_.size()), kOp, quote(name_),
                   ": there is data after the compressed part");
  }

 private:
  uint64_t read_some(void* to, uint64_t bytes) {
    uint64_t done = 0;
    if (!compressed_) {
      done = std::min<uint64_t>(bytes, file_.size() - position_);
      if (done > 0) std::memcpy(to, file_.data() + position_, done);
    } else {
      // zlib counts in 32 bits: input and output go in slices
      while (done < bytes && !ended_) {
        if (stream_.avail_in == 0) {
          const uint64_t n = std::min<uint64_t>(file_.size() - used_, 1u << 30);
          stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(file_.data() + used_));
          stream_.avail_in = static_cast<uInt>(n);
          used_ += n;
        }
        const uint64_t room = std::min<uint64_t>(bytes - done, 1u << 30);
        stream_.next_out = static_cast<Bytef*>(to) + done;
        stream_.avail_out = static_cast<uInt>(room);
        const int status = inflate(&stream_, Z_NO_FLUSH);
        done += room - stream_.avail_out;
        ended_ = status == Z_STREAM_END;
        if (status == Z_BUF_ERROR && stream_.avail_in == 0 && used_ == file_.size())
          throw IoError(kOp, cat(quote(name_), ": the compressed data is cut off at byte ", used_));
        check<IoError>(status == Z_OK || ended_, kOp, quote(name_), ": the compressed data is damaged near byte ",
                       used_ - stream_.avail_in, stream_.msg ? cat(" (", stream_.msg, ")") : "");
      }
    }
    position_ += done;
    return done;
  }

  std::span<const std::byte> file_;
  std::string_view name_;
  bool compressed_ = false, ended_ = false;
  uint64_t position_ = 0, used_ = 0, limit_ = 0;
  z_stream stream_{};
};

DType type_of(uint8_t code, std::string_view name) {
  switch (code) {
    case 0x08:
      return DType::u8;
    case 0x09:
      return DType::i8;
    case 0x0b:
      return DType::i16;
    case 0x0c:
      return DType::i32;
    case 0x0d:
      return DType::f32;
    case 0x0e:
      return DType::f64;
    default:
      throw IoError(
          kOp, cat(quote(name), ": byte 2: the element type ", code + 0, " is unknown (8, 9, 11, 12, 13, 14 are)"));
  }
}
}  // namespace

Tensor parse_idx(std::span<const std::byte> file, std::string_view name) {
  Source source(file, name);
  uint8_t magic[4];
  source.read(magic, 4, "magic number");
  check<IoError>(magic[0] == 0 && magic[1] == 0, kOp, quote(name),
                 ": byte 0: is not an IDX file (it starts with two zero bytes)");
  const DType dtype = type_of(magic[2], name);
  check<IoError>(magic[3] >= 1 && magic[3] <= kMaxDims, kOp, quote(name), ": byte 3: ", magic[3] + 0,
                 " dimensions, 1 to ", kMaxDims, " are allowed");
  Shape shape;
  uint64_t bytes = static_cast<uint64_t>(size_of(dtype));
  for (int i = 0; i < magic[3]; ++i) {
    uint8_t size[4];
    source.read(size, 4, "sizes");
    const uint32_t n = uint32_t{size[0]} << 24 | uint32_t{size[1]} << 16 | uint32_t{size[2]} << 8 | size[3];
    shape.push_back(n);
    check<IoError>(!__builtin_mul_overflow(bytes, uint64_t{n}, &bytes), kOp, quote(name), ": byte ", 4 + 4 * i,
                   ": the sizes ", shape, " are larger than 64 bits can count");
  }
  check<IoError>(bytes <= source.limit(), kOp, quote(name), ": byte 4: the sizes ", shape, " need ", bytes,
                 " bytes, the rest of the file cannot hold more than ", source.limit());
  Tensor t = empty(TensorMeta{shape, dtype, Device::cpu()});
  if (bytes > 0) source.read(t.raw_data(), bytes, "elements");
  source.expect_end();
  if (const int64_t width = size_of(dtype); width > 1 && bytes > 0) {
    char* p = static_cast<char*>(t.raw_data());
    for (uint64_t i = 0; i < bytes; i += static_cast<uint64_t>(width)) std::reverse(p + i, p + i + width);
  }
  return t;
}

Tensor read_idx(const std::string& path) {
  const io::InputFile file(path);
  const std::string image = file.read(0, file.size());
  return parse_idx(std::as_bytes(std::span(image)), path);
}

}  // namespace strata::data
