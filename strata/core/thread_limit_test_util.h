#pragma once
// A system that gives no more threads, for tests.

#include <cstddef>

#include <pthread.h>

namespace strata {

/// While one lives, no thread of this process can start: each would get a stack larger than the address space.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_attr_t huge;
    pthread_getattr_default_np(&before_);
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 62);
    works_ = pthread_setattr_default_np(&huge) == 0;
    pthread_attr_destroy(&huge);
  }
  ~NoMoreThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  /// Whether the C library took it.
  bool works() const { return works_; }

 private:
  pthread_attr_t before_;
  bool works_ = false;
};

}  // namespace strata
