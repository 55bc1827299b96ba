// JPEG by libjpeg-turbo. Its errors are long jumps, so between setjmp and the end of reading nothing has a destructor.

#include <csetjmp>
#include <cstdio>
#include <string>
#include <vector>

#include <jpeglib.h>
// Behind it.
#include <jerror.h>

#include "strata/core/error.h"
#include "strata/data/picture_formats_inl.h"
#include "strata/io/files.h"
#include "strata/ops/factory/factory.h"

namespace strata::data {
namespace {

constexpr int kMostScans = 100;              // a progressive file has some ten; each is a pass over all of it
constexpr long kMostMemory = long{1} << 30;  // of coefficients: no files are made for more

struct Errors {
  jpeg_error_mgr manager;
  std::jmp_buf jump;
  char why[JMSG_LENGTH_MAX];
};

void fail(j_common_ptr info) {
  auto* e = reinterpret_cast<Errors*>(info->err);
  (*info->err->format_message)(info, e->why);
  longjmp(e->jump, 1);
}
// Damage that the decoder would go on behind; other warnings change nothing.
void warn(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) fail(info);
}
void tell(j_common_ptr) {}
void count_scans(j_common_ptr info) {
  if (info->is_decompressor && reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMostScans) {
    auto* e = reinterpret_cast<Errors*>(info->err);
    std::snprintf(e->why, sizeof e->why, "it has more than %d scans", kMostScans);
    longjmp(e->jump, 1);
  }
}

// As png.cpp's.
class Reading {
 public:
  explicit Reading(std::span<const std::byte> file) {
    errors_.why[0] = 0;
    info_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = fail;
    errors_.manager.emit_message = warn;
    errors_.manager.output_message = tell;
    if (setjmp(errors_.jump)) return;
    jpeg_create_decompress(&info_);
    made_ = true;
    info_.mem->max_memory_to_use = kMostMemory;
    progress_ = {};
    progress_.progress_monitor = count_scans;
    info_.progress = &progress_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  }
  Reading(const Reading&) = delete;
  ~Reading() {
    if (made_) jpeg_destroy_decompress(&info_);
  }

  bool begin(int64_t& width, int64_t& height) {
    if (!made_) return false;
    if (setjmp(errors_.jump)) return false;
    jpeg_read_header(&info_, TRUE);
    width = info_.image_width;
    height = info_.image_height;
    four_ = info_.num_components == 4;
    info_.out_color_space = JCS_RGB;
    return true;
  }
  bool has_four_colours() const { return four_; }
  bool rows(unsigned char* to) {
    if (setjmp(errors_.jump)) return false;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = to + static_cast<size_t>(info_.output_scanline) * info_.output_width * 3;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }
  const char* why() const { return errors_.why; }

 private:
  Errors errors_;
  jpeg_decompress_struct info_ = {};
  jpeg_progress_mgr progress_ = {};
  bool made_ = false, four_ = false;
};

}  // namespace

Tensor parse_jpeg(std::span<const std::byte> file, std::string_view name) {
  const auto refuse = [&](std::string_view why) { throw IoError("read_picture", cat(io::quote(name), ": ", why)); };
  Reading reading(file);
  int64_t width = 0, height = 0;
  if (!reading.begin(width, height)) refuse(cat("JPEG: ", reading.why()));
  if (reading.has_four_colours()) refuse("JPEG: pictures of four colours (CMYK) are not taken");
  if (width * height > kMostPixels) refuse(cat(width, " x ", height, " pixels are more than ", kMostPixels));
  std::vector<uint8_t> values(static_cast<size_t>(width * height * 3));
  if (!reading.rows(values.data())) refuse(cat("JPEG: ", reading.why()));
  return from_span<uint8_t>(values, {height, width, 3});
}

}  // namespace strata::data
