#pragma once
// weight_cases.txt, and small files of weights, for tests.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/io/files.h"

namespace strata::io {

/// "0aff" as two bytes; "-" as none.
inline std::string from_hex(std::string_view text) {
  std::string bytes;
  if (text == "-") return bytes;
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (size_t i = 0; i + 1 < text.size(); i += 2) bytes += static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1]));
  return bytes;
}

/// The words of the lines that begin with `kind` (and then with `name`, where given), that word left out.
inline std::vector<std::vector<std::string>> weight_cases(std::string_view kind, std::string_view name = {}) {
  const char* root = std::getenv("STRATA_SOURCE_DIR");
  std::istringstream lines(read_file(std::string(root ? root : ".") + "/strata/io/weight_cases.txt"));
  std::vector<std::vector<std::string>> found;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> all;
    for (std::string word; words >> word;) all.push_back(word);
    if (all.size() < 2 || all[0] != kind || (!name.empty() && all[1] != name)) continue;
    all.erase(all.begin());
    found.push_back(std::move(all));
  }
  return found;
}

/// A little-endian number's bytes.
template <class T>
std::string number_bytes(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

/// The elements' bytes of a contiguous tensor on the host.
inline std::string bytes_of(const Tensor& t) {
  const Tensor c = t.contiguous();
  return c.numel() == 0 ? std::string()
                        : std::string(static_cast<const char*>(c.raw_data()), static_cast<size_t>(c.nbytes()));
}

/// Elements 0, 1, 2, ... as f32.
inline Tensor counted(const Shape& shape) {
  Tensor t = empty(TensorMeta{shape, DType::f32, Device::cpu(), std::nullopt});
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = static_cast<float>(i);
  return t;
}

/// A zip archive of stored entries, as simple as the format allows.
class ZipBuilder {
 public:
  /// Adds an entry; `method` other than 0 claims that it is compressed.
  void add(const std::string& name, const std::string& data, uint16_t method = 0) {
    const std::string fixed = number_bytes<uint16_t>(20) + number_bytes<uint16_t>(0) + number_bytes(method) +
                              number_bytes<uint32_t>(0) + number_bytes<uint32_t>(0) + size(data) + size(data) +
                              number_bytes(static_cast<uint16_t>(name.size()));
    list_ += number_bytes<uint32_t>(0x02014b50) + number_bytes<uint16_t>(20) + fixed + number_bytes<uint16_t>(0) +
             std::string(10, '\0') + number_bytes(static_cast<uint32_t>(file_.size())) + name;
    file_ += number_bytes<uint32_t>(0x04034b50) + fixed + number_bytes<uint16_t>(0) + name + data;
    ++count_;
  }
  /// The archive; with zip64's end records where `wide`.
  std::string finish(bool wide = false, const std::string& comment = {}) const {
    std::string end = file_ + list_;
    const uint64_t at = end.size();
    if (wide) {
      end += number_bytes<uint32_t>(0x06064b50) + number_bytes<uint64_t>(44) + number_bytes<uint16_t>(45) +
             number_bytes<uint16_t>(45) + number_bytes<uint64_t>(0) + number_bytes<uint64_t>(count_) +
             number_bytes<uint64_t>(count_) + number_bytes<uint64_t>(list_.size()) +
             number_bytes<uint64_t>(file_.size());
      end += number_bytes<uint32_t>(0x07064b50) + number_bytes<uint32_t>(0) + number_bytes<uint64_t>(at) +
             number_bytes<uint32_t>(1);
    }
    const auto count = wide ? uint16_t{0xffff} : static_cast<uint16_t>(count_);
    end += number_bytes<uint32_t>(0x06054b50) + number_bytes<uint32_t>(0) + number_bytes(count) + number_bytes(count) +
           number_bytes(wide ? 0xffffffffU : static_cast<uint32_t>(list_.size())) +
           number_bytes(wide ? 0xffffffffU : static_cast<uint32_t>(file_.size())) +
           number_bytes(static_cast<uint16_t>(comment.size())) + comment;
    return end;
  }

 private:
  static std::string size(const std::string& data) { return number_bytes(static_cast<uint32_t>(data.size())); }
  std::string file_, list_;
  uint64_t count_ = 0;
};

/// `file` with a few bytes changed, repeated, dropped or put in, numbers that are edges among them.
inline std::string mutated(std::string file, std::mt19937_64& random) {
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  constexpr uint64_t kEdges[] = {0,          1,          0x7f,       0x80,      0xff,       0xffff,
                                 0x7fffffff, 0x80000000, 0xffffffff, INT64_MAX, UINT64_MAX, uint64_t{1} << 62,
                                 40,         100'000'000};
  for (size_t n = 1 + pick(4); n > 0 && !file.empty(); --n) {
    const size_t at = pick(file.size()), length = std::min(file.size() - at, 1 + pick(12));
    switch (pick(8)) {
      case 0:
        file.erase(at, length);
        break;
      case 1:
        file.insert(pick(file.size()), file.substr(at, length));
        break;
      case 2:
        file.resize(at);
        break;
      case 3:
      case 4: {
        const uint64_t edge = kEdges[pick(std::size(kEdges))];
        const size_t width = std::min(file.size() - at, size_t{1} << pick(4));
        file.replace(at, width, reinterpret_cast<const char*>(&edge), width);
        break;
      }
      case 5:
        file[at] = static_cast<char>(static_cast<unsigned char>(file[at]) ^ (1U << pick(8)));
        break;
      default:
        file[at] = static_cast<char>(random());
    }
  }
  return file;
}

}  // namespace strata::io
