#include "strata/io/files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <utility>

#include "strata/core/error.h"
#include "strata/io/descriptor.h"
#include "strata/io/input_file.h"

namespace strata::io {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxStem = 200;       // of a temporary file's name: 255 bytes are allowed
constexpr int kMaxTemporaries = 1000;  // of one path at a time
constexpr int kMostAbsent = 8;

// Where a path leads.
struct Target {
  std::string path;
  bool exists = false;
  bool through = false;  // written to as it is, not replaced
  int open_as = -1;      // the descriptor of ours that it names
  struct stat st {};
};

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

Target find_target(const std::string& path) {
  Target t;
  t.path = path;
  const auto refuse = [&](int error) { throw IoError("", cat("cannot write '", path, "': ", errno_text(error))); };
  for (int links = 0;; ++links) {
    if (::lstat(t.path.c_str(), &t.st) != 0) {
      if (errno != ENOENT) refuse(errno);
      return t;
    }
    if (!S_ISLNK(t.st.st_mode)) break;
    if (links == 40) refuse(ELOOP);
    const fs::path link(t.path);
    const std::string folder = parent_directory(t.path);
    struct statfs system {};
    if (::statfs(folder.c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC) {
      // /dev/stdout, /dev/fd/3: a file that is open, whatever it is, and that others write to as well
      if (::stat(t.path.c_str(), &t.st) != 0) refuse(errno);
      t.through = true;
      std::error_code ignored;
      const std::string name = link.filename().string();
      if (is_number(name) && fs::canonical(folder, ignored) == cat("/proc/", ::getpid(), "/fd"))
        std::from_chars(name.data(), name.data() + name.size(), t.open_as);
      break;
    }
    std::error_code error;
    const fs::path to = fs::read_symlink(link, error);
    if (error) refuse(error.value());
    t.path = (to.is_absolute() ? to : link.parent_path() / to).string();
  }
  t.exists = true;
  t.through = t.through || !(S_ISREG(t.st.st_mode) || S_ISDIR(t.st.st_mode));
  return t;
}

// Removes a temporary file that nobody writes any more; false where somebody does, or it is not ours to remove.
bool remove_abandoned(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  if (file.fd < 0) return errno == ENOENT;
  struct stat st {};
  if (::fstat(file.fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != ::geteuid()) return false;
  // while the lock is held, nobody else can take the file for abandoned and put another one there
  return try_lock(file.fd) && is_named(file.fd, path) && ::unlink(path.c_str()) == 0;
}

}  // namespace

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
  check<IoError>(fs::path(path_).has_filename(), "", "'", path_, "' names no file");
  const Target target = find_target(path_);
  target_ = target.path;
  check<IoError>(!target.exists || !S_ISDIR(target.st.st_mode), "", "cannot write '", path_, "': it is a directory");
  if (target.through) {
    fd_ = target.open_as >= 0 ? ::fcntl(target.open_as, F_DUPFD_CLOEXEC, 0)
                              : ::open(target_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd_ < 0) fail("open", errno, 0);
    return;
  }
  replaces_ = target.exists;
  mode_ = target.st.st_mode & 07777;
  owner_ = target.st.st_uid;
  group_ = target.st.st_gid;
  open_temporary(replaces_ ? (mode_ & 0777) | 0600 : 0666);
}

void FileWriter::open_temporary(unsigned mode) {
  const fs::path target(target_);
  std::string stem = target.filename().string();
  if (stem.size() > kMaxStem) {
    size_t end = kMaxStem;
    while (end > 0 && (stem[end] & 0xc0) == 0x80) --end;  // not within a character
    stem.resize(end);
  }
  const auto name = [&](int i) { return (target.parent_path() / cat(".", stem, ".tmp.", i)).string(); };
  int i = 0;
  while (fd_ < 0) {
    temporary_ = name(i);
    fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd_ < 0) {
      const int error = errno;
      if (error != EEXIST || i == kMaxTemporaries) fail("create a file beside", error, 0);
      if (!remove_abandoned(temporary_)) ++i;
      continue;
    }
    // Somebody who cleans up may have had it between the two calls. Where there are no locks, nobody does.
    if (::flock(fd_, LOCK_EX) == 0 && !is_named(fd_, temporary_)) ::close(std::exchange(fd_, -1));
  }
  // What others left, who may have had the next names: those between were given back.
  for (int absent = 0; absent < kMostAbsent && ++i < kMaxTemporaries;) {
    absent = ::access(name(i).c_str(), F_OK) == 0 ? 0 : absent + 1;
    if (absent == 0) remove_abandoned(name(i));
  }
}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  ::close(fd_);
}

void FileWriter::fail(std::string_view what, int error, uint64_t wanted) {
  std::string text = cat("cannot ", what, " '", path_, "': ", errno_text(error));
  if (!temporary_.empty() && (error == ENOSPC || error == EDQUOT || error == EFBIG)) {
    text += cat(": the file needs ", expected_ ? "" : "at least ", std::max(expected_, wanted), " bytes, ", written_,
                " were written");
    struct statvfs space {};
    if (::statvfs(parent_directory(target_).c_str(), &space) == 0 && error != EFBIG)
      text += cat(", ", static_cast<uint64_t>(space.f_bavail) * space.f_frsize, " are free");
    if (replaces_) text += "; the file that was there is unchanged";
  }
  throw IoError("", text);
}

void FileWriter::write(const void* data, size_t bytes) {
  check<IoError>(fd_ >= 0, "", "'", path_, "' is finished, nothing more can be written to it");
  const uint64_t wanted = written_ + bytes;
  size_t done = 0;
  const int error = write_all(fd_, data, bytes, done);
  written_ += done;
  if (error != 0) fail("write", error, wanted);
  hasher_.update(data, bytes);
}

void FileWriter::rewrite(uint64_t offset, const void* data, size_t bytes) {
  check<IoError>(fd_ >= 0 && offset + bytes <= written_, "", "cannot write bytes ", offset, " to ", offset + bytes,
                 " of '", path_, "' again, it has ", written_, " so far");
  check<IoError>(!temporary_.empty(), "", "cannot write '", path_,
                 "': it is a device or a pipe, and this kind of file is not written in one go");
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
  check<IoError>(fd_ >= 0, "", "'", path_, "' is finished already");
  if (temporary_.empty()) {
    // pipes and most devices have nothing to sync
    if (::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP) fail("write", errno, written_);
    if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) fail("write", errno, written_);
    return {written_, hasher_.digest()};
  }
  if (replaces_) {
    [[maybe_unused]] const int given = ::fchown(fd_, owner_, group_);  // only root may, mostly
    if (::fchmod(fd_, mode_) != 0) fail("set the permissions of", errno, written_);
  }
  if (::fsync(fd_) != 0) fail("sync", errno, written_);
  if (rewritten_ && written_ > 0) {
    hasher_ = Hasher();
    InputFile(temporary_).hash(hasher_);
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("rename a finished file to", errno, written_);
  ::close(std::exchange(fd_, -1));
  sync_directory(parent_directory(target_));
  return {written_, hasher_.digest()};
}

WrittenFile write_file(const std::string& path, std::string_view text) {
  FileWriter file(path, text.size());
  file.write(text);
  return file.commit();
}

std::string why_not_writable(const std::string& path) {
  try {
    if (!fs::path(path).has_filename()) return cat("'", path, "' names no file");
    const Target target = find_target(path);
    if (target.exists && S_ISDIR(target.st.st_mode)) return cat("'", path, "' is a directory");
    if (target.through) {
      if (target.open_as >= 0 || ::access(target.path.c_str(), W_OK) == 0) return "";
      return cat("cannot write '", path, "': ", errno_text(errno));
    }
    const std::string folder = parent_directory(target.path);
    struct stat st {};
    if (::stat(folder.c_str(), &st) == 0 && !S_ISDIR(st.st_mode))
      errno = ENOTDIR;
    else if (::access(folder.c_str(), W_OK | X_OK) == 0)
      return "";
    return cat("cannot write into '", folder, "': ", errno_text(errno));
  } catch (const IoError& e) {
    return e.what();
  }
}

void remove_leftovers(const std::string& directory) {
  std::error_code ignored;
  std::vector<std::string> found;
  for (auto it = fs::directory_iterator(directory, ignored); !ignored && it != fs::directory_iterator();
       it.increment(ignored)) {
    // .NAME.tmp.N, and .NAME.tmp.PROCESS.N of versions before the locks
    const std::string name = it->path().filename().string();
    const size_t at = name.rfind(".tmp.");
    if (!name.starts_with('.') || at == std::string::npos || at < 2) continue;
    const std::string number = name.substr(at + 5);
    const size_t dot = number.find('.');
    if (!is_number(number.substr(0, dot))) continue;
    if (dot != std::string::npos) {
      int process = 0;
      std::from_chars(number.data(), number.data() + dot, process);
      if (!is_number(number.substr(dot + 1)) || process <= 0) continue;
      if (::kill(process, 0) == 0 || errno == EPERM) continue;
    }
    found.push_back(it->path().string());
  }
  for (const std::string& path : found) remove_abandoned(path);
}

std::string keep_aside(const std::string& path) {
  const fs::path p(path);
  for (int i = 1;; ++i) {
    const std::string to = (p.parent_path() / cat(p.stem().string(), ".", i, p.extension().string())).string();
    struct stat st {};
    if (::lstat(to.c_str(), &st) == 0) continue;
    check<IoError>(::rename(path.c_str(), to.c_str()) == 0, "", "cannot rename '", path, "' to '", to,
                   "': ", errno_text(errno));
    return to;
  }
}

std::string read_file(const std::string& path, uint64_t limit) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  check<IoError>(file.fd >= 0, "", "cannot open '", path, "': ", errno_text(errno));
  struct stat st {};
  check<IoError>(::fstat(file.fd, &st) == 0, "", "cannot stat '", path, "': ", errno_text(errno));
  check<IoError>(!S_ISDIR(st.st_mode), "", "'", path, "' is a directory, a file is wanted");
  const auto too_long = [&](uint64_t bytes) {
    throw IoError("", cat("'", path, "' has ", bytes, " bytes or more, at most ", limit, " are allowed here"));
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
    check<IoError>(n >= 0, "", "cannot read '", path, "': ", errno_text(errno));
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
  check<IoError>(!error, "", "cannot make the directory '", path, "': ", error.message());
}

void sync_directory(const std::string& path) {
  const Descriptor folder{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  // one that lets us write but not look cannot be synced
  if (folder.fd < 0 && errno == EACCES) return;
  check<IoError>(folder.fd >= 0, "", "cannot open the directory '", path, "': ", errno_text(errno));
  const int failed = ::fsync(folder.fd) != 0 ? errno : 0;
  // some file systems cannot sync a directory; they have nothing to lose by it
  check<IoError>(failed == 0 || failed == EINVAL || failed == ENOTSUP, "", "cannot sync the directory '", path,
                 "': ", errno_text(failed));
}

}  // namespace strata::io
