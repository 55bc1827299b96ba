#pragma once
// Time that other programs do not lengthen.

#include <ctime>

namespace strata::lab {

// Seconds of a processor that the calling thread has had, since some moment.
inline double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace strata::lab
