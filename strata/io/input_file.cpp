#include "strata/io/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "strata/core/error.h"
#include "strata/io/files.h"

namespace strata::io {

InputFile::InputFile(const std::string& path) : path_(path) {
  open(AT_FDCWD, path);
}

InputFile::InputFile(int directory, const std::string& name, std::string path) : path_(std::move(path)) {
  open(directory, name);
}

void InputFile::open(int directory, const std::string& name) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer; it is refused below.
  fd_ = ::openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  check<IoError>(fd_ >= 0, "", "cannot open '", path_, "': ", errno_text(errno));
  try {
    struct stat st {};
    check<IoError>(::fstat(fd_, &st) == 0, "", "cannot stat '", path_, "': ", errno_text(errno));
    check<IoError>(!S_ISDIR(st.st_mode), "", "'", path_, "' is a directory, a file is wanted");
    check<IoError>(S_ISREG(st.st_mode), "", "'", path_, "' is not a regular file");
    check<IoError>(st.st_size > 0, "", "'", path_, "' is empty");
    size_ = static_cast<uint64_t>(st.st_size);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), size_(std::exchange(other.size_, 0)), path_(std::move(other.path_)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

InputFile InputFile::again() const {
  InputFile other;
  other.fd_ = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  check<IoError>(other.fd_ >= 0, "", "cannot open '", path_, "' once more: ", errno_text(errno));
  other.size_ = size_;
  other.path_ = path_;
  return other;
}

void InputFile::read(uint64_t offset, void* to, size_t bytes) const {
  check<IoError>(offset <= size_ && bytes <= size_ - offset, "", "'", path_, "': bytes ", offset, " to ",
                 offset + bytes, " are wanted, it has ", size_);
  char* p = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd_, p, std::min<size_t>(bytes, size_t{1} << 30), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    check<IoError>(n >= 0, "", "cannot read '", path_, "' at byte ", offset, ": ", errno_text(errno));
    check<IoError>(n > 0, "", "'", path_, "' ends at byte ", offset, ", it had ", size_,
                   " bytes when it was opened: it was cut while it was in use");
    p += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
}

void InputFile::will_need(uint64_t offset, uint64_t bytes) const noexcept {
  // Of a longer stretch Linux reads no more than the device's window for reading ahead.
  constexpr uint64_t kStretch = uint64_t{128} << 10;
  const uint64_t end = offset > size_ ? offset : offset + std::min(bytes, size_ - offset);
  for (; offset < end; offset += kStretch)
    ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(std::min(kStretch, end - offset)),
                    POSIX_FADV_WILLNEED);
}

std::string InputFile::read(uint64_t offset, size_t bytes) const {
  std::string text(bytes, '\0');
  read(offset, text.data(), bytes);
  return text;
}

void InputFile::hash(Hasher& hasher) const {
  constexpr size_t kBuffer = size_t{256} << 10;  // stays in the cache between the copy and the hash
  const auto buffer = std::make_unique_for_overwrite<char[]>(kBuffer);
  for (uint64_t at = 0; at < size_;) {
    const auto n = static_cast<size_t>(std::min<uint64_t>(kBuffer, size_ - at));
    read(at, buffer.get(), n);
    hasher.update(buffer.get(), n);
    at += n;
  }
}

}  // namespace strata::io
