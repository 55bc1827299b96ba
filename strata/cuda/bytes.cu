// How bytes come to a card, go from it and are filled there, on the current stream (memory.h).

#include <algorithm>

#include "strata/core/error.h"
#include "strata/cuda/check.cuh"
#include "strata/cuda/graph.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/memory_inl.cuh"

namespace strata::cuda {

namespace {
template <size_t N>
struct Bytes {
  uint8_t v[N];
};
template <size_t N>
__global__ void put_kernel(uint8_t* to, const __grid_constant__ Bytes<N> from, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) to[i] = from.v[i];
}
template <size_t N>
void put(void* to, const uint8_t* from, size_t n, cudaStream_t s) {
  Bytes<N> bytes;
  std::copy_n(from, n, bytes.v);
  put_kernel<N><<<1, N <= 32 ? 32 : 128, 0, s>>>(static_cast<uint8_t*>(to), bytes, static_cast<int>(n));
}

// Page-locked: a copy from it is recorded as one that each replay makes.
bool is_pinned(const void* host) {
  cudaPointerAttributes a;
  const bool known = cudaPointerGetAttributes(&a, host) == cudaSuccess;
  cudaGetLastError();
  return known && a.type == cudaMemoryTypeHost;
}
}  // namespace

void put_bytes(void* to, Device device, const void* from, size_t nbytes) {
  check(nbytes <= kMostPut, "put_bytes", "takes at most ", kMostPut, " bytes, got ", nbytes);
  if (nbytes == 0) return;
  const DeviceScope scope(device.index);
  const auto* bytes = static_cast<const uint8_t*>(from);
  nbytes <= 32 ? put<32>(to, bytes, nbytes, stream()) : put<kMostPut>(to, bytes, nbytes, stream());
  check_cuda(cudaGetLastError(), "put_bytes", "the launch");
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t nbytes) {
  if (nbytes == 0) return;
  const Device card = to_device.is_cuda() ? to_device : from_device;
  const DeviceScope scope(card.index);
  const Stream s = current_stream(card.index);
  if (capturing()) [[unlikely]] {
    if (!to_device.is_cuda())
      refuse_in_capture("copy",
                        "a value is read on the host (item(), to_vector(), to(cpu)), which waits for the device");
    if (!from_device.is_cuda() && !is_pinned(from))
      refuse_in_capture("copy", "the source is host memory that is not pinned");
  }
  if (to_device.is_cuda() && from_device.is_cuda() && to_device != from_device) {
    s.wait(current_stream(from_device.index));
  }
  check_cuda(cudaMemcpyAsync(to, from, nbytes, cudaMemcpyDefault, raw(s)), "copy", "cudaMemcpyAsync");
  if (!from_device.is_cuda()) record_pinned(from, s);
  if (from_device.is_cuda() && !to_device.is_cuda()) s.synchronize();
}
void fill_bytes(Device device, void* data, uint8_t value, size_t nbytes) {
  if (nbytes == 0) return;
  const DeviceScope scope(device.index);
  check_cuda(cudaMemsetAsync(data, value, nbytes, stream()), "fill", "cudaMemsetAsync");
}

}  // namespace strata::cuda
