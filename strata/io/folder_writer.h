#pragma once
// Folders written so that a crash, a kill or a full disk never leaves half of one under its name.

#include <memory>
#include <string>

namespace strata::io {

/// Makes a folder under a temporary name beside its own; commit() gives it that. A folder that is there already is
/// refused. Destroyed without a commit, it takes with it what was written.
///
///     io::FolderWriter folder("my-model");
///     io::write_file(folder.path() + "/config.json", config);
///     folder.commit();
class FolderWriter {
 public:
  /// Makes parents where there are none, and removes what killed writers of the same folder left. Throws IoError where
  /// something has the name, or the folder cannot be made.
  explicit FolderWriter(std::string target);
  ~FolderWriter();
  FolderWriter(FolderWriter&&) noexcept;

  /// Where it is until commit(): write files here, with FileWriter, so that they are on the disk.
  const std::string& path() const;
  /// Throws IoError: something has taken the name meanwhile, or it cannot be renamed. Once.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata::io
