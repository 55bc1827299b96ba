#pragma once
// Numbers too small for their type count as zero for a while.

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace strata {

/// While it lives, the calling thread's vector arithmetic takes and gives 0 for denormal numbers. A product with one
/// costs some processors over a hundred cycles, and a kernel whose numbers are weights of a sum loses nothing by 0.
class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | 0x8040U);
  }
  ~FlushDenormals() {
    _mm_setcsr(before_);
  }
#else
  FlushDenormals() {}
  ~FlushDenormals() {}
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

#if defined(__x86_64__)
 private:
  unsigned before_;
#endif
};

}  // namespace strata
