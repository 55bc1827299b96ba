#include "strata/cuda/choice_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "strata/core/error.h"

namespace strata::cuda {
namespace {

constexpr char kDigits[] = "0123456789abcdef";

std::string to_hex(std::string_view bytes) {
  std::string s;
  for (const char c : bytes) {
    s += kDigits[static_cast<uint8_t>(c) >> 4];
    s += kDigits[static_cast<uint8_t>(c) & 15];
  }
  return s;
}
std::optional<std::string> from_hex(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  if (text.size() % 2 != 0) return std::nullopt;
  std::string s;
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = digit(text[i]), low = digit(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    s += static_cast<char>(high * 16 + low);
  }
  return s;
}

// FNV-1a: tells a damaged line from a whole one.
std::string checksum(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  std::string s(16, '0');
  for (int i = 15; i >= 0; --i, h >>= 4) s[static_cast<size_t>(i)] = kDigits[h & 15];
  return s;
}

// Holds the lock of a file for a scope.
class FileLock {
 public:
  explicit FileLock(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (fd_ >= 0 && flock(fd_, LOCK_EX) != 0) {
      close(fd_);
      fd_ = -1;
    }
  }
  ~FileLock() {
    if (fd_ >= 0) close(fd_);
  }
  FileLock(const FileLock&) = delete;
  bool held() const { return fd_ >= 0; }

 private:
  int fd_;
};

}  // namespace

ChoiceFile::ChoiceFile(std::string path, std::string title, size_t most)
    : path_(std::move(path)), title_(std::move(title)), most_(most) {}

void ChoiceFile::read() {
  read_ = true;
  values_.clear();
  order_.clear();
  std::ifstream in(path_);
  if (!in) return;
  std::string line;
  bool whole = std::getline(in, line) && line == title_;
  while (whole && std::getline(in, line)) {
    // checksum key value
    const size_t second = line.find(' ', 17);
    whole = line.size() > 17 && line[16] == ' ' && second != std::string::npos && !in.eof() &&
            line.compare(0, 16, checksum(std::string_view(line).substr(17))) == 0;
    if (!whole) break;
    const auto key = from_hex(std::string_view(line).substr(17, second - 17));
    const auto value = from_hex(std::string_view(line).substr(second + 1));
    whole = key && value;
    if (whole && values_.emplace(*key, *value).second) order_.push_back(*key);
  }
  if (whole) return;
  values_.clear();
  order_.clear();
  std::fprintf(stderr, "strata: %s is damaged or of another version; it is ignored and will be written anew\n",
               path_.c_str());
}

std::optional<std::string> ChoiceFile::find(const std::string& key) {
  if (!read_) read();
  const auto at = values_.find(key);
  return at == values_.end() ? std::nullopt : std::optional(at->second);
}

bool ChoiceFile::writable() {
  if (!read_) read();
  if (order_.size() >= most_) return false;
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  return std::filesystem::is_directory(folder, failed) && access(folder.c_str(), W_OK) == 0;
}

bool ChoiceFile::write() const {
  const std::string temporary = cat(path_, ".", static_cast<int64_t>(getpid()));
  std::string text = title_ + "\n";
  for (const std::string& key : order_) {
    const std::string entry = to_hex(key) + " " + to_hex(values_.at(key));
    text += checksum(entry) + " " + entry + "\n";
  }
  std::ofstream out(temporary, std::ios::trunc);
  out << text;
  out.close();
  std::error_code failed;
  if (out) {
    std::filesystem::rename(temporary, path_, failed);
    if (!failed) return true;
  }
  std::filesystem::remove(temporary, failed);
  return false;
}

std::optional<std::string> ChoiceFile::put(const std::string& key, const std::string& value) {
  if (const auto known = find(key)) return known;
  if (!writable()) return std::nullopt;
  const FileLock lock(path_ + ".lock");
  if (!lock.held()) return std::nullopt;
  read();
  if (const auto theirs = find(key)) return theirs;
  if (order_.size() >= most_) return std::nullopt;
  values_[key] = value;
  order_.push_back(key);
  if (write()) return value;
  values_.erase(key);
  order_.pop_back();
  return std::nullopt;
}

std::string cache_folder() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg == '/') return cat(xdg, "/strata");
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') return cat(home, "/.cache/strata");
  return {};
}

}  // namespace strata::cuda
