#include "strata/data/ppm.h"

#include <cstring>
#include <vector>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/ops/factory/factory.h"

namespace strata::data {
using io::quote;
namespace {
constexpr std::string_view kOp = "read_ppm";

// The text before the bytes.
class Header {
 public:
  Header(std::string_view file, std::string_view name) : file_(file), name_(name) {}

  [[noreturn]] void refuse(std::string_view why) const {
    throw IoError(kOp, cat(quote(name_), ": byte ", at_, ": ", why));
  }
  // A number from 1 to 65535 behind blanks and comments.
  int64_t number(std::string_view what) {
    while (at_ < file_.size() && (is_blank(file_[at_]) || file_[at_] == '#'))
      if (file_[at_++] == '#')
        while (at_ < file_.size() && file_[at_] != '\n') ++at_;
    const size_t begin = at_;
    int64_t value = 0;
    while (at_ < file_.size() && at_ - begin < 5 && file_[at_] >= '0' && file_[at_] <= '9')
      value = value * 10 + (file_[at_++] - '0');
    if (value < 1 || value > 65535 || at_ == file_.size() || !is_blank(file_[at_]))
      refuse(cat("the ", what, " is to be a number from 1 to 65535"));
    return value;
  }
  size_t at() const { return at_; }

 private:
  static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
  std::string_view file_, name_;
  size_t at_ = 2;
};

}  // namespace

Tensor parse_ppm(std::span<const std::byte> bytes, std::string_view name) {
  const std::string_view file(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Header header(file, name);
  const bool colour = file.starts_with("P6");
  if (!colour && !file.starts_with("P5")) header.refuse("this is no PPM file: it does not begin with P6 or P5");
  const int64_t width = header.number("width"), height = header.number("height");
  if (header.number("largest value") != 255) header.refuse("the largest value is taken as 255 alone");
  const size_t begin = header.at() + 1;  // one blank
  const auto pixels = static_cast<size_t>(width * height), size = pixels * (colour ? 3 : 1);
  if (file.size() - begin != size)
    header.refuse(cat(file.size() - begin, " bytes follow, a picture of ", width, " x ", height, " has ", size));
  std::vector<uint8_t> values(pixels * 3);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(file[begin + (colour ? i : i / 3)]);
  return from_span<uint8_t>(values, {height, width, 3});
}

Tensor read_ppm(const std::string& path) {
  const std::string file = io::read_file(path);
  return parse_ppm(std::as_bytes(std::span(file)), path);
}

}  // namespace strata::data
