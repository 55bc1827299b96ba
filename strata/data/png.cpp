// PNG by libpng. Its errors are long jumps, so between setjmp and the end of reading nothing has a destructor.

#include <csetjmp>
#include <cstring>
#include <string>
#include <vector>

#include <png.h>

#include "strata/core/error.h"
#include "strata/data/picture_formats_inl.h"
#include "strata/io/files.h"
#include "strata/ops/factory/factory.h"

namespace strata::data {
namespace {

// What deflate makes of a byte at most, with room to spare.
constexpr uint64_t kMostGrowth = 1100;

struct Source {
  const png_byte* bytes;
  size_t size, at;
  char why[128];
};

void fail(png_structp png, png_const_charp why) {
  auto* s = static_cast<Source*>(png_get_error_ptr(png));
  std::strncpy(s->why, why, sizeof s->why - 1);
  longjmp(png_jmpbuf(png), 1);
}
void pass(png_structp, png_const_charp) {}
void take(png_structp png, png_bytep to, size_t n) {
  auto* s = static_cast<Source*>(png_get_io_ptr(png));
  if (n > s->size - s->at) png_error(png, "the file is cut");
  std::memcpy(to, s->bytes + s->at, n);
  s->at += n;
}

// One reading of a file: begin() tells the size, rows() fills in the pixels. False where `source.why` says why not.
class Reading {
 public:
  explicit Reading(Source& source) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, fail, pass);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return;
    png_set_read_fn(png_, &source, take);
    png_set_user_limits(png_, 65535, 65535);
    png_set_chunk_malloc_max(png_, 8 << 20);
    png_set_chunk_cache_max(png_, 64);
  }
  Reading(const Reading&) = delete;
  ~Reading() { png_destroy_read_struct(&png_, &info_, nullptr); }

  bool begin(int64_t& width, int64_t& height) {
    if (info_ == nullptr) return false;
    if (setjmp(png_jmpbuf(png_))) return false;
    png_read_info(png_, info_);
    width = png_get_image_width(png_, info_);
    height = png_get_image_height(png_, info_);
    const auto bits = static_cast<uint64_t>(png_get_bit_depth(png_, info_) * png_get_channels(png_, info_));
    stored_ = (static_cast<uint64_t>(width) * bits / 8 + 1) * static_cast<uint64_t>(height);
    png_set_palette_to_rgb(png_);
    png_set_expand_gray_1_2_4_to_8(png_);
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    png_set_gray_to_rgb(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    if (png_get_rowbytes(png_, info_) != static_cast<size_t>(width) * 3) png_error(png_, "its rows are no colours");
    return true;
  }
  // Bytes of the rows as the file has them, before they were packed.
  uint64_t stored() const { return stored_; }
  bool rows(png_bytepp to) {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_read_image(png_, to);
    png_read_end(png_, nullptr);
    return true;
  }

 private:
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  uint64_t stored_ = 0;
};

}  // namespace

Tensor parse_png(std::span<const std::byte> file, std::string_view name) {
  Source source{reinterpret_cast<const png_byte*>(file.data()), file.size(), 0, "libpng does not start"};
  const auto refuse = [&](std::string_view why) { throw IoError("read_picture", cat(io::quote(name), ": ", why)); };
  Reading reading(source);
  int64_t width = 0, height = 0;
  if (!reading.begin(width, height)) refuse(cat("PNG, byte ", source.at, ": ", source.why));
  if (width * height > kMostPixels) refuse(cat(width, " x ", height, " pixels are more than ", kMostPixels));
  if (reading.stored() / kMostGrowth > file.size())
    refuse(cat("a file of ", file.size(), " bytes cannot hold ", width, " x ", height, " pixels"));
  std::vector<uint8_t> values(static_cast<size_t>(width * height * 3));
  std::vector<png_bytep> rows(static_cast<size_t>(height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = values.data() + y * static_cast<size_t>(width) * 3;
  if (!reading.rows(rows.data())) refuse(cat("PNG, byte ", source.at, ": ", source.why));
  return from_span<uint8_t>(values, {height, width, 3});
}

}  // namespace strata::data
