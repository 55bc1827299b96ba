#include "strata/data/picture.h"

#include "strata/core/error.h"
#include "strata/data/picture_formats_inl.h"
#include "strata/data/ppm.h"
#include "strata/io/files.h"

namespace strata::data {
namespace {

struct Format {
  const char* name;
  std::string_view begins;
  Tensor (*parse)(std::span<const std::byte>, std::string_view);
};
constexpr Format kFormats[] = {
    {"PNG", "\x89PNG", parse_png},
    {"JPEG", "\xff\xd8\xff", parse_jpeg},
    {"PPM", "P6", parse_ppm},
    {"PPM", "P5", parse_ppm},
};

}  // namespace

Tensor parse_picture(std::span<const std::byte> file, std::string_view name) {
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  for (const Format& f : kFormats)
    if (bytes.starts_with(f.begins)) return f.parse(file, name);
  throw IoError("read_picture", cat(io::quote(name), ": this is no picture in PNG, JPEG or PPM"));
}

Tensor read_picture(const std::string& path) {
  const std::string file = io::read_file(path);
  return parse_picture(std::as_bytes(std::span(file)), path);
}

}  // namespace strata::data
