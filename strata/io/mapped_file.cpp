#include "strata/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "strata/core/error.h"
#include "strata/io/descriptor.h"
#include "strata/io/files.h"

namespace strata::io {
MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer; it is refused below.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  check<IoError>(file.fd >= 0, "MappedFile", "cannot open '", path, "': ", errno_text(errno));
  struct stat st {};
  check<IoError>(::fstat(file.fd, &st) == 0, "MappedFile", "cannot stat '", path, "': ", errno_text(errno));
  check<IoError>(!S_ISDIR(st.st_mode), "MappedFile", "'", path, "' is a directory, a file is wanted");
  check<IoError>(S_ISREG(st.st_mode), "MappedFile", "'", path, "' is not a regular file");
  check<IoError>(st.st_size > 0, "MappedFile", "'", path, "' is empty");
  size_ = static_cast<size_t>(st.st_size);
  data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    throw IoError("MappedFile", cat("cannot map '", path, "' (", size_, " bytes): ", errno_text(errno)));
  }
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

void MappedFile::advise_sequential() const {
  if (data_) ::madvise(data_, size_, MADV_SEQUENTIAL);
}

}  // namespace strata::io
