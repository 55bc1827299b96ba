#include "strata/data/wav.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::data {
using io::quote;
namespace {
constexpr std::string_view kOp = "read_wav";
constexpr int64_t kMaxChannels = 64;

// How samples stand in a file.
struct Format {
  uint16_t kind = 0;  // 1: whole numbers, 3: floating
  int64_t channels = 0, rate = 0, block = 0, bits = 0;
};
constexpr uint16_t kWhole = 1, kFloating = 3, kExtensible = 0xFFFE;

// Little-endian numbers at places of a file.
class Bytes {
 public:
  Bytes(std::span<const std::byte> file, std::string_view name) : file_(file), name_(name) {}
  uint64_t size() const { return file_.size(); }
  template <class T>
  T at(uint64_t place, std::string_view what) const {
    check<IoError>(place <= size() && sizeof(T) <= size() - place, kOp, quote(name_), ": byte ", place,
                   ": the file ends within the ", what);
    T value;
    std::memcpy(&value, file_.data() + place, sizeof(T));
    return value;
  }
  std::string_view tag(uint64_t place, std::string_view what) const {
    at<uint32_t>(place, what);
    return {reinterpret_cast<const char*>(file_.data() + place), 4};
  }
  [[noreturn]] void refuse(uint64_t place, std::string_view why) const {
    throw IoError(kOp, cat(quote(name_), ": byte ", place, ": ", why));
  }
  const std::byte* data(uint64_t place) const { return file_.data() + place; }

 private:
  std::span<const std::byte> file_;
  std::string_view name_;
};

Format read_format(const Bytes& file, uint64_t at, uint64_t length) {
  if (length < 16) file.refuse(at, "the chunk 'fmt ' is shorter than 16 bytes");
  Format f;
  f.kind = file.at<uint16_t>(at, "format");
  f.channels = file.at<uint16_t>(at + 2, "format");
  f.rate = file.at<uint32_t>(at + 4, "format");
  f.block = file.at<uint16_t>(at + 12, "format");
  f.bits = file.at<uint16_t>(at + 14, "format");
  if (f.kind == kExtensible) {
    if (length < 40) file.refuse(at, "the longer header is shorter than 40 bytes");
    f.kind = file.at<uint16_t>(at + 24, "format");  // the first bytes of the kind's GUID
  }
  const bool whole = f.kind == kWhole && (f.bits == 8 || f.bits == 16 || f.bits == 24 || f.bits == 32);
  const bool floating = f.kind == kFloating && (f.bits == 32 || f.bits == 64);
  if (!whole && !floating)
    file.refuse(at, cat("samples of kind ", f.kind, " and ", f.bits,
                        " bits are not taken: PCM of 8, 16, 24 or 32 bits and floating numbers of 32 or 64 are"));
  if (f.channels < 1 || f.channels > kMaxChannels) file.refuse(at + 2, cat("there are ", f.channels, " channels"));
  if (f.rate < 1) file.refuse(at + 4, "there are 0 samples a second");
  if (f.block != f.channels * f.bits / 8)
    file.refuse(at + 12, cat("a sample of all channels is ", f.block, " bytes, wanted ", f.channels * f.bits / 8));
  return f;
}

// One number, from -1 to 1 where it is whole.
double number(const std::byte* p, const Format& f) {
  const auto as = [&]<class T>(T) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    return static_cast<double>(value);
  };
  if (f.kind == kFloating) return f.bits == 32 ? as(float{}) : as(double{});
  if (f.bits == 8) return (static_cast<double>(std::to_integer<int>(*p)) - 128) / 128;  // the only one without a sign
  if (f.bits == 16) return as(int16_t{}) / 32768;
  if (f.bits == 32) return as(int32_t{}) / 2147483648.0;
  const auto byte = [&](int i) { return std::to_integer<uint32_t>(p[i]); };
  return static_cast<double>(static_cast<int32_t>(byte(0) << 8 | byte(1) << 16 | byte(2) << 24)) / 2147483648.0;
}

}  // namespace

Tensor Sound::mono() const {
  return samples.size(0) == 1 ? samples.select(0, 0) : mean(samples, {0});
}

Sound parse_wav(std::span<const std::byte> bytes, std::string_view name) {
  const Bytes file(bytes, name);
  if (file.tag(0, "header") != "RIFF" || file.tag(8, "header") != "WAVE")
    file.refuse(0, "this is no WAV file: it does not begin with RIFF and WAVE");
  std::optional<Format> format;
  for (uint64_t at = 12;;) {
    const std::string_view tag = file.tag(at, "chunks, of which none is called 'data'");
    const uint64_t length = file.at<uint32_t>(at + 4, "header of a chunk");
    const uint64_t begin = at + 8;
    if (length > file.size() - begin)
      file.refuse(at, cat("a chunk of ", length, " bytes is longer than the file, which has ", file.size() - begin));
    if (tag == "fmt ") {
      if (format) file.refuse(at, "there is a second chunk 'fmt '");
      format = read_format(file, begin, length);
    } else if (tag == "data") {
      if (!format) file.refuse(at, "the chunk 'data' stands before 'fmt '");
      const auto block = static_cast<uint64_t>(format->block);
      if (length % block != 0) file.refuse(at, cat(length, " bytes are no whole number of samples of ", block));
      const uint64_t n = length / block, channels = static_cast<uint64_t>(format->channels);
      const uint64_t size = static_cast<uint64_t>(format->bits) / 8;
      std::vector<float> samples(n * channels);
      for (uint64_t i = 0; i < n; ++i)
        for (uint64_t c = 0; c < channels; ++c) {
          const uint64_t place = begin + (i * channels + c) * size;
          const auto value = static_cast<float>(number(file.data(place), *format));
          if (!std::isfinite(value)) file.refuse(place, "a sample is not a finite number");
          samples[c * n + i] = value;
        }
      return {from_span<float>(samples, {format->channels, static_cast<int64_t>(n)}), format->rate};
    }
    at = begin + length + length % 2;  // chunks begin at even places
  }
}

Sound sound_of(const Tensor& samples, int64_t rate) {
  constexpr std::string_view op = "sound_of";
  check<ShapeError>(samples.dim() == 1 || (samples.dim() == 2 && samples.size(0) > 0), op,
                    "samples are [n] or [channels, n], got ", samples);
  check<DTypeError>(samples.dtype() == DType::f32, op, "samples are f32, got ", samples);
  check(rate >= 1, op, "a rate is at least 1, got ", rate);
  return {samples.dim() == 1 ? samples.unsqueeze(0) : samples, rate};
}

Sound read_wav(const std::string& path) {
  const std::string file = io::read_file(path);
  return parse_wav(std::as_bytes(std::span(file)), path);
}

}  // namespace strata::data
