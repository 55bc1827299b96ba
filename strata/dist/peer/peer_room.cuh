#pragma once
// Memory of each rank's card that the other ranks of one host map, and what kernels over it share.

#include <cstddef>
#include <string_view>
#include <utility>

#include <unistd.h>

#include "strata/core/error.h"
#include "strata/cuda/check.cuh"
#include "strata/cuda/driver_function_inl.h"
#include "strata/cuda/kernel.cuh"
#include "strata/dist/peer/peer_sum_kernel.h"

namespace strata::distributed::detail {

/// As many bytes of each rank, zeros at first. They live as long as the program, and the others' as long as this
/// process maps them: graphs may hold calls.
class PeerRoom {
 public:
  /// Throws DeviceError, as `where`'s, where the card or the driver cannot.
  PeerRoom(std::string_view where, int device, int rank, int64_t bytes) : where_(where), device_(device) {
    find(export_, "cuMemExportToShareableHandle");
    find(import_, "cuMemImportFromShareableHandle");
    const cuda::DeviceScope here(device);
    const cuda::Driver& d = cuda::driver();
    const CUmemAllocationProp prop{.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_}};
    cuda::check_driver(d.mem_get_allocation_granularity(&unit_, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), where_,
                       "cuMemGetAllocationGranularity");
    bytes_ = (static_cast<size_t>(bytes) + unit_ - 1) / unit_ * unit_;
    CUmemGenericAllocationHandle memory = 0;
    cuda::check_driver(d.mem_create(&memory, bytes_, &prop, 0), where_, "cuMemCreate");
    map(rank, memory);
    cuda::check_driver(export_(&file_, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), where_,
                       "cuMemExportToShareableHandle");
    cuda::check_cuda(cudaMemset(at(rank), 0, static_cast<size_t>(bytes)), where_, "cudaMemset");
    cuda::check_cuda(cudaDeviceSynchronize(), where_, "cudaDeviceSynchronize");
  }
  PeerRoom(const PeerRoom&) = delete;
  ~PeerRoom() { close_file(); }

  /// Rank's memory as this process sees it; null before it joined.
  std::byte* at(int rank) const { return rooms_[rank]; }
  int file() const { return file_; }
  /// Maps another rank's, and closes its file.
  void join(int rank, int file) {
    CUmemGenericAllocationHandle memory = 0;
    const CUresult e = import_(&memory, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ::close(file);
    cuda::check_driver(e, where_, "cuMemImportFromShareableHandle");
    const cuda::DeviceScope here(device_);
    map(rank, memory);
  }
  /// Once every rank has it.
  void close_file() {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
  }

 private:
  template <class F>
  void find(F& f, const char* name) const {
    void* const p = cuda::driver_function(name, 10020);
    check<DeviceError>(p != nullptr, where_, "the driver has no ", name);
    f = reinterpret_cast<F>(p);
  }
  // This card may read and write it from here on.
  void map(int rank, CUmemGenericAllocationHandle memory) {
    const cuda::Driver& d = cuda::driver();
    CUdeviceptr at = 0;
    cuda::check_driver(d.mem_address_reserve(&at, bytes_, unit_, 0, 0), where_, "cuMemAddressReserve");
    cuda::check_driver(d.mem_map(at, bytes_, 0, memory, 0), where_, "cuMemMap");
    const CUmemAccessDesc access{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_},
                                 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    cuda::check_driver(d.mem_set_access(at, bytes_, &access, 1), where_, "cuMemSetAccess");
    rooms_[rank] = reinterpret_cast<std::byte*>(at);
  }

  std::string_view where_;
  int device_;
  size_t bytes_ = 0, unit_ = 0;
  int file_ = -1;
  std::byte* rooms_[peer::kMostRanks] = {};
  decltype(&cuMemExportToShareableHandle) export_ = nullptr;
  decltype(&cuMemImportFromShareableHandle) import_ = nullptr;
};

/// The block of a card that runs peer_sum_kernel.h's and peer_copies_kernel.h's source; a turn of waiting rests for so
/// many nanoseconds.
template <unsigned kRest>
struct CardBlock {
  int index = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x),
      threads = static_cast<int>(blockDim.x);
  __device__ CardBlock() {}
  __device__ void sync() const { __syncthreads(); }
  __device__ void idle() const {
    if constexpr (kRest > 0) __nanosleep(kRest);
  }
  template <class T>
  __device__ auto widen(T x) const {
    return cuda::widen(x);
  }
  template <class T, class W>
  __device__ T narrow(W x) const {
    return cuda::narrow<T>(x);
  }
};

/// A word in the host's memory that kernels look at while they wait. It lives as long as the program.
inline volatile uint32_t* make_abort_word(std::string_view where) {
  void* word = nullptr;
  cuda::check_cuda(cudaHostAlloc(&word, sizeof(uint32_t), cudaHostAllocPortable | cudaHostAllocMapped), where,
                   "cudaHostAlloc");
  *static_cast<volatile uint32_t*>(word) = 0;
  return static_cast<volatile uint32_t*>(word);
}

/// `count` counters on the card, zero. They live as long as the program.
inline uint32_t* make_counters(std::string_view where, int count) {
  uint32_t* counters = nullptr;
  const size_t bytes = static_cast<size_t>(count) * sizeof(uint32_t);
  cuda::check_cuda(cudaMalloc(reinterpret_cast<void**>(&counters), bytes), where, "cudaMalloc");
  cuda::check_cuda(cudaMemset(counters, 0, bytes), where, "cudaMemset");
  cuda::check_cuda(cudaDeviceSynchronize(), where, "cudaDeviceSynchronize");
  return counters;
}

}  // namespace strata::distributed::detail
