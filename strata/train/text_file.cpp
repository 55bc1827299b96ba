#include "strata/train/text_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <unistd.h>

#include "strata/core/error.h"

namespace strata {
namespace {

struct Close {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, Close>;
}  // namespace

std::string read_text_file(const std::string& path, size_t limit) {
  const File file(std::fopen(path.c_str(), "rb"));
  check<IoError>(file != nullptr, "read", "cannot open '", path, "': ", std::strerror(errno));
  std::string text;
  char buffer[1 << 14];
  while (text.size() < limit) {
    const size_t n = std::fread(buffer, 1, std::min(sizeof buffer, limit - text.size()), file.get());
    if (n == 0) break;
    text.append(buffer, n);
  }
  check<IoError>(!std::ferror(file.get()), "read", "cannot read '", path, "': ", std::strerror(errno));
  return text;
}

void write_text_file(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  std::FILE* f = std::fopen(temporary.c_str(), "wb");
  check<IoError>(f != nullptr, "write", "cannot create '", temporary, "': ", std::strerror(errno));
  bool ok = std::fwrite(text.data(), 1, text.size(), f) == text.size() && std::fflush(f) == 0;
  int error = errno;
  if (std::fclose(f) != 0 && ok) ok = false, error = errno;
  if (ok && std::rename(temporary.c_str(), path.c_str()) != 0) ok = false, error = errno;
  if (!ok) {
    ::unlink(temporary.c_str());
    throw IoError("write", cat("cannot write '", path, "': ", std::strerror(error)));
  }
}

// Unicode, table 3-7.
size_t utf8_length(std::string_view s) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  size_t n = 0;
  unsigned char low = 0x80, high = 0xbf;  // limits of the second byte
  if (first >= 0xc2 && first <= 0xdf) n = 2;
  if (first >= 0xe0 && first <= 0xef) n = 3;
  if (first >= 0xf0 && first <= 0xf4) n = 4;
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  if (n == 0 || s.size() < n || at(1) < low || at(1) > high) return 0;
  for (size_t i = 2; i < n; ++i)
    if (at(i) < 0x80 || at(i) > 0xbf) return 0;
  return n;
}

std::string valid_utf8(std::string_view text) {
  std::string s;
  s.reserve(text.size());
  while (!text.empty()) {
    const size_t n = utf8_length(text);
    if (n == 0) {
      s += "\xef\xbf\xbd";
    } else {
      s += text.substr(0, n);
    }
    text.remove_prefix(std::max<size_t>(n, 1));
  }
  return s;
}

}  // namespace strata
