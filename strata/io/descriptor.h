#pragma once
// File descriptors: closed at the end of a scope, written to the last byte, locked by the living.

#include <unistd.h>

#include <cstddef>
#include <string>

namespace strata::io {

struct Descriptor {
  int fd = -1;  ///< negative for none
  Descriptor() = default;
  explicit Descriptor(int descriptor) : fd(descriptor) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

/// Writes all of it. Returns 0 or what went wrong (errno), with the bytes that were written in `done`. A file size
/// limit is EFBIG and a reader that went away EPIPE: their signals, which would end the process, are held back.
int write_all(int fd, const void* data, size_t bytes, size_t& done);

/// Whether `fd` is still what `path` names.
bool is_named(int fd, const std::string& path);
/// Takes the lock that says "somebody works on this", without waiting. False where a living process has it, or where
/// there are no locks. It ends with the descriptor, however the process ends.
bool try_lock(int fd);

}  // namespace strata::io
