#include <atomic>

#include "strata/cuda/check.cuh"
#include "strata/cuda/job_inl.h"

namespace strata::cuda {
namespace {

constexpr int kStride = 16;  // words: a line of memory for each counter

// One thread: begins and ends are in the order of their stream, so that nobody else adds meanwhile.
__global__ void add_mark_kernel(uint64_t* count, volatile uint64_t* seen) {
  const uint64_t n = *count + 1;
  *count = n;
  *seen = n;
  __threadfence_system();
}

}  // namespace

void on_card(int device, const std::function<void()>& fn) {
  const DeviceScope scope(device);
  fn();
}

std::string card_uuid(int device) {
  properties(device);  // says where there is no such card
  cudaDeviceProp p;
  check_cuda(cudaGetDeviceProperties(&p, device), "cuda", "cudaGetDeviceProperties");
  std::string text;
  for (const char c : p.uuid.bytes) {
    const auto byte = static_cast<unsigned char>(c);
    for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

Marks make_marks(int device) {
  properties(device);
  const DeviceScope scope(device);
  Marks m;
  constexpr size_t kBytes = 2 * kStride * sizeof(uint64_t);
  check_cuda(cudaMalloc(reinterpret_cast<void**>(&m.counts), kBytes), "cuda", "cudaMalloc");
  check_cuda(cudaMemset(m.counts, 0, kBytes), "cuda", "cudaMemset");
  void* seen = nullptr;
  check_cuda(cudaHostAlloc(&seen, kBytes, cudaHostAllocPortable | cudaHostAllocMapped), "cuda", "cudaHostAlloc");
  for (int i = 0; i < 2 * kStride; ++i) static_cast<uint64_t*>(seen)[i] = 0;
  // The counters are zero before any stream adds to them: these do not wait for the one that set them.
  check_cuda(cudaDeviceSynchronize(), "cuda", "cudaDeviceSynchronize");
  m.seen = static_cast<const volatile uint64_t*>(seen);
  return m;
}

void add_mark(const Marks& marks, Mark which, const Stream& stream) {
  const DeviceScope scope(stream.device());
  add_mark_kernel<<<1, 1, 0, raw(stream)>>>(marks.counts + which * kStride,
                                            const_cast<volatile uint64_t*>(marks.seen) + which * kStride);
  check_cuda(cudaGetLastError(), "cuda", "a launch");
}

uint64_t read_mark(const Marks& marks, Mark which) {
  return marks.seen[which * kStride];
}

}  // namespace strata::cuda
