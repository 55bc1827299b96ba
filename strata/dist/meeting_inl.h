#pragma once
// How the ranks of one host find their coordinator, and what goes with it.

#include <cstdint>
#include <string>

#include "strata/dist/store.h"

namespace strata::distributed::detail {

/// 128 random bits of the system, as 32 hexadecimal digits.
std::string random_secret();

/// What a coordinator listens at so that others reach it under the name `host`: a number itself, for a name (which its
/// own host may know as its loopback) all interfaces.
std::string interface_for(const std::string& host);

/// Where a job's coordinator is, and what it wants to hear.
struct Address {
  std::string coordinator;  ///< "host:port"
  std::string secret;
};

/// A file through which the processes of one user on one host find each other. It is there while this lives, with mode
/// 0600, in one piece.
class MeetingFile {
 public:
  /// Replaces what another job left there. Throws DistributedError where it cannot be written.
  MeetingFile(std::string path, const Address& address);
  ~MeetingFile();
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;
  /// What a file says; empty members where there is none yet. Throws DistributedError for one that belongs to somebody
  /// else, that others can read or write, or that is no such file.
  static Address read(const std::string& path);

 private:
  std::string path_;
  uint64_t file_ = 0;  // its inode
};

}  // namespace strata::distributed::detail
