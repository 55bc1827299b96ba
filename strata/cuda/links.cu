#include "strata/cuda/links_inl.h"

#include <algorithm>

#include "strata/cuda/check.cuh"

namespace strata::cuda {
namespace {

constexpr size_t kBytes = size_t{128} << 20;
constexpr int kLarge = 8, kSmall = 100;
constexpr const char* kWhere = "measure_links";

// Memory of one card, outside of the heaps, whose pages other cards cannot reach.
class Room {
 public:
  explicit Room(int device) : device_(device) {
    const DeviceScope scope(device);
    check_cuda(cudaMalloc(&data_, kBytes), kWhere, "cudaMalloc");
  }
  ~Room() {
    int previous = 0;
    cudaGetDevice(&previous);
    cudaSetDevice(device_);
    cudaFree(data_);
    cudaSetDevice(previous);
  }
  Room(const Room&) = delete;
  void* data() const { return data_; }

 private:
  int device_;
  void* data_ = nullptr;
};

// Milliseconds of `count` copies of `bytes`.
double copies(const Room& to, int to_device, const Room& from, int from_device, size_t bytes, int count) {
  const Stream s = current_stream(from_device);
  Event begin(true, from_device), end(true, from_device);
  const auto copy = [&] {
    check_cuda(cudaMemcpyPeerAsync(to.data(), to_device, from.data(), from_device, bytes, raw(s)), kWhere,
               "cudaMemcpyPeerAsync");
  };
  copy();
  begin.record(s);
  for (int i = 0; i < count; ++i) copy();
  end.record(s);
  end.synchronize();
  return end.elapsed_ms(begin);
}

}  // namespace

std::vector<Link> measure_links() {
  std::vector<Link> links;
  const int n = device_count();
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      if (from == to) continue;
      Link link{.from = from, .to = to};
      const DeviceScope scope(from);
      int can = 0;
      check_cuda(cudaDeviceCanAccessPeer(&can, from, to), kWhere, "cudaDeviceCanAccessPeer");
      link.direct = can != 0;
      const cudaError_t enabled = link.direct ? cudaDeviceEnablePeerAccess(to, 0) : cudaSuccess;
      if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();
      } else {
        check_cuda(enabled, kWhere, "cudaDeviceEnablePeerAccess");
      }
      const Room here(from), there(to);
      link.gb_s = static_cast<double>(kBytes) * kLarge / copies(there, to, here, from, kBytes, kLarge) / 1e6;
      link.latency_us = 1e3 * copies(there, to, here, from, 4, kSmall) / kSmall;
      links.push_back(link);
    }
  }
  return links;
}

}  // namespace strata::cuda
