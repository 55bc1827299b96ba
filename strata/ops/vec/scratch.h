#pragma once
// Working memory of a kernel's threads, kept between calls so that no kernel pays for fresh pages.

#include <cstddef>
#include <cstdint>

namespace strata {

/// A stack of 64-byte aligned blocks, one per thread. A kernel opens a frame and takes blocks from it; closing the
/// frame gives them back to the thread's stack. Contents are not initialised. What threads keep is given back where a
/// request for the host's memory finds none.
class ScratchFrame {
 public:
  ScratchFrame();
  ~ScratchFrame();
  ScratchFrame(const ScratchFrame&) = delete;
  ScratchFrame& operator=(const ScratchFrame&) = delete;

  /// `count` elements, valid until the frame closes. Throws MemoryError.
  template <class T>
  T* take(int64_t count) {
    return static_cast<T*>(take_bytes(static_cast<size_t>(count) * sizeof(T)));
  }

 private:
  void* take_bytes(size_t bytes);
  size_t chunk_, used_;
};

}  // namespace strata
