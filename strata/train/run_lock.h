#pragma once
// One process at a time writes into a run's folder.

#include <string>

#include "strata/io/descriptor.h"

namespace strata {

/// Holds a run's folder for as long as it lives; a process that ends, however it does, lets go. Two that trained into
/// one folder would delete each other's checkpoints and mix their logs. The lock is advisory, on the folder itself
/// (flock(2)); where the file system has none, nothing is held.
class RunLock {
 public:
  /// Throws IoError where somebody holds the folder.
  explicit RunLock(const std::string& out);

 private:
  io::Descriptor folder_;
};

}  // namespace strata
