#include "strata/io/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "strata/core/error.h"
#include "strata/io/descriptor.h"
#include "strata/io/mapped_file.h"

namespace strata::io {
namespace fs = std::filesystem;

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

std::string quote(std::string_view text, size_t limit) {
  std::string s = "'";
  for (const char c : text.substr(0, limit)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      s += "\\x";
      s += "0123456789abcdef"[byte >> 4];
      s += "0123456789abcdef"[byte & 15];
    } else {
      s += c;
    }
  }
  return s + (text.size() > limit ? "...'" : "'");
}

std::string parent_directory(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

FileWriter::FileWriter(std::string path, uint64_t expected_bytes) : path_(std::move(path)), expected_(expected_bytes) {
  static std::atomic<uint64_t> counter{0};
  const fs::path p(path_);
  check<IoError>(p.has_filename(), "FileWriter", "'", path_, "' names no file");
  std::error_code ignored;
  check<IoError>(!fs::is_directory(p, ignored), "FileWriter", "cannot write '", path_, "': it is a directory");
  temporary_ = (p.parent_path() / cat(".", p.filename().string(), ".tmp.", ::getpid(), ".", ++counter)).string();
  fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("create a file beside", errno, 0);
}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void FileWriter::fail(std::string_view what, int error, uint64_t wanted) {
  std::string text = cat("cannot ", what, " '", path_, "': ", errno_text(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    text += cat(": the file needs ", expected_ ? "" : "at least ", std::max(expected_, wanted), " bytes, ", written_,
                " were written");
    struct statvfs space {};
    if (::statvfs(parent_directory(path_).c_str(), &space) == 0 && error != EFBIG)
      text += cat(", ", static_cast<uint64_t>(space.f_bavail) * space.f_frsize, " are free");
    std::error_code ignored;
    if (fs::exists(path_, ignored)) text += "; the file that was there is unchanged";
  }
  throw IoError("FileWriter", text);
}

void FileWriter::write(const void* data, size_t bytes) {
  check<IoError>(fd_ >= 0, "FileWriter", "write to '", path_, "' after commit");
  const uint64_t wanted = written_ + bytes;
  const char* p = static_cast<const char*>(data);
  for (size_t left = bytes; left > 0;) {
    const ssize_t n = ::write(fd_, p, std::min<size_t>(left, size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write", errno, wanted);
    p += n;
    left -= static_cast<size_t>(n);
    written_ += static_cast<uint64_t>(n);
  }
  hasher_.update(data, bytes);
}

void FileWriter::rewrite(uint64_t offset, const void* data, size_t bytes) {
  check<IoError>(fd_ >= 0 && offset + bytes <= written_, "FileWriter", "rewrite of bytes ", offset, " to ",
                 offset + bytes, " of '", path_, "', which has ", written_, " so far");
  rewritten_ = true;
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd_, p, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("write", errno, written_);
    p += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
}

WrittenFile FileWriter::commit() {
  check<IoError>(fd_ >= 0, "FileWriter", "'", path_, "' was committed before");
  if (::fsync(fd_) != 0) fail("sync", errno, written_);
  if (rewritten_ && written_ > 0) {
    hasher_ = Hasher();
    const MappedFile whole(temporary_);
    hasher_.update(whole.text());
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename a finished file to", errno, written_);
  ::close(std::exchange(fd_, -1));
  sync_directory(parent_directory(path_));
  return {written_, hasher_.digest()};
}

WrittenFile write_file(const std::string& path, std::string_view text) {
  FileWriter file(path, text.size());
  file.write(text);
  return file.commit();
}

std::string read_file(const std::string& path, uint64_t limit) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  check<IoError>(file.fd >= 0, "read_file", "cannot open '", path, "': ", errno_text(errno));
  struct stat st {};
  check<IoError>(::fstat(file.fd, &st) == 0, "read_file", "cannot stat '", path, "': ", errno_text(errno));
  check<IoError>(!S_ISDIR(st.st_mode), "read_file", "'", path, "' is a directory, a file is wanted");
  const auto too_long = [&](uint64_t bytes) {
    throw IoError("read_file", cat("'", path, "' has ", bytes, " bytes or more, at most ", limit, " are allowed here"));
  };
  // What the system says is a hint: files of /proc have no size, others may grow meanwhile.
  const auto expected = static_cast<uint64_t>(st.st_size);
  if (expected > limit) too_long(expected);
  std::string text;
  constexpr size_t kLeast = size_t{1} << 14;
  for (size_t used = 0;;) {
    text.resize(std::max<size_t>({used + kLeast, used + used / 2, expected + 1}));
    const ssize_t n = ::read(file.fd, text.data() + used, text.size() - used);
    if (n < 0 && errno == EINTR) continue;
    check<IoError>(n >= 0, "read_file", "cannot read '", path, "': ", errno_text(errno));
    used += static_cast<size_t>(n);
    if (used > limit) too_long(used);
    if (n == 0) {
      text.resize(used);
      return text;
    }
  }
}

void make_directories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  // create_directories reports no error for a file at `path` in some library versions
  if (!error && !fs::is_directory(path, error) && !error) error = std::make_error_code(std::errc::not_a_directory);
  check<IoError>(!error, "make_directories", "cannot make the directory '", path, "': ", error.message());
}

void sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check<IoError>(fd >= 0, "sync_directory", "cannot open the directory '", path, "': ", errno_text(errno));
  const int failed = ::fsync(fd) != 0 ? errno : 0;
  ::close(fd);
  // some file systems cannot sync a directory; they have nothing to lose by it
  check<IoError>(failed == 0 || failed == EINVAL, "sync_directory", "cannot sync the directory '", path,
                 "': ", errno_text(failed));
}

}  // namespace strata::io
