#pragma once
// What the rooms of device memory, of page-locked memory and of homes share.

#include "strata/cuda/check.cuh"

namespace strata::cuda {

/// What put_bytes() takes at most: every card's launches take 4 KiB of parameters.
constexpr size_t kMostPut = 4000;

/// `stream` has been given a copy from or to `host`. Where that lies in a page-locked block, the block is not reused
/// after it is given back until the stream has passed. A copy that a graph captures is not noted: each replay makes it,
/// so the block must be held as long as the graph.
void record_pinned(const void* host, const Stream& stream);

/// Whether the stream's heap has a hole of so many bytes, or may grow by them without reaching beyond `limit` bytes.
bool heap_holds(const Stream& stream, size_t nbytes, int64_t limit);

/// Calls in a scope that wait for nothing, yet are counted by the driver among those that a capture forbids: mapping
/// and locking memory.
class RelaxedScope {
 public:
  explicit RelaxedScope(bool on) : on_(on) {
    if (on_) cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  ~RelaxedScope() {
    if (on_) cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  RelaxedScope(const RelaxedScope&) = delete;

 private:
  bool on_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace strata::cuda
