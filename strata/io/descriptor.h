#pragma once
// A file descriptor that is closed at the end of its scope.

#include <unistd.h>

namespace strata::io {

struct Descriptor {
  int fd;  ///< negative for none
  explicit Descriptor(int descriptor) : fd(descriptor) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

}  // namespace strata::io
