#include "strata/io/folder_writer.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <optional>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/io/temporary_directory_inl.h"

namespace strata::io {
namespace {

void check_free(const std::string& target) {
  struct stat st {};
  check<IoError>(::lstat(target.c_str(), &st) != 0, "", "'", target,
                 "' is there already; name another folder, or delete it first");
}

// The last part of a path; trailing slashes aside.
std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

struct FolderWriter::State {
  std::string target, parent;
  std::optional<TemporaryDirectory> made;
};

FolderWriter::FolderWriter(std::string target) : state_(std::make_unique<State>()) {
  state_->target = without_slashes(std::move(target));
  const std::string name = std::filesystem::path(state_->target).filename().string();
  check<IoError>(!name.empty() && name != "." && name != "..", "", "'", state_->target, "' names no folder");
  check_free(state_->target);
  state_->parent = parent_directory(state_->target);
  make_directories(state_->parent);
  remove_leftover_directories(state_->parent, cat(kTemporaryPrefix, name, "-"));
  state_->made.emplace(state_->parent, name);
}
FolderWriter::~FolderWriter() = default;
FolderWriter::FolderWriter(FolderWriter&&) noexcept = default;

const std::string& FolderWriter::path() const {
  return state_->made->path();
}

void FolderWriter::commit() {
  const std::string &from = path(), &to = state_->target;
  sync_directory(from);
  int failed = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
  if (failed == EINVAL || failed == ENOSYS) {  // a file system that cannot refuse by itself
    check_free(to);
    failed = ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
  }
  if (failed == EEXIST || failed == ENOTEMPTY) check_free(to);
  check<IoError>(failed == 0, "", "cannot rename '", from, "' to '", to, "': ", errno_text(failed));
  sync_directory(state_->parent);
}

}  // namespace strata::io
