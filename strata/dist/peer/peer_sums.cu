#include <cstring>

#include <unistd.h>

#include "strata/core/error.h"
#include "strata/cuda/check.cuh"
#include "strata/cuda/driver_function_inl.h"
#include "strata/cuda/kernel.cuh"
#include "strata/dist/peer/peer_sum_kernel.h"
#include "strata/dist/peer/peer_sums_inl.h"

namespace strata::distributed::detail {
namespace {

constexpr std::string_view kWhere = "peer sums";

struct CardBlock {
  int index, thread, threads;
  __device__ void sync() const { __syncthreads(); }
  __device__ void idle() const {}
  template <class T>
  __device__ auto widen(T x) const {
    return cuda::widen(x);
  }
  template <class T, class W>
  __device__ T narrow(W x) const {
    return cuda::narrow<T>(x);
  }
};

template <class T>
__global__ void __launch_bounds__(peer::kThreads)
    all_reduce_kernel(const __grid_constant__ peer::Call c, Reduction r, T* data) {
  peer::all_reduce_block(
      c, r, data, CardBlock{static_cast<int>(blockIdx.x), static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)});
}

// What the driver has for memory that several processes map.
struct Sharing {
  decltype(&cuMemExportToShareableHandle) export_to;
  decltype(&cuMemImportFromShareableHandle) import_from;
};
const Sharing& sharing() {
  static const Sharing s = [] {
    Sharing found{};
    const auto find = [](auto& f, const char* name) {
      void* const p = cuda::driver_function(name, 10020);
      check<DeviceError>(p != nullptr, kWhere, "the driver has no ", name);
      f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(p);
    };
    find(found.export_to, "cuMemExportToShareableHandle");
    find(found.import_from, "cuMemImportFromShareableHandle");
    return found;
  }();
  return s;
}

class CardPeerSums final : public PeerSums {
 public:
  CardPeerSums(int device, int rank, int size) : device_(device) {
    const cuda::DeviceScope here(device);
    const cuda::Driver& d = cuda::driver();
    const CUmemAllocationProp prop = properties();
    size_t unit = 0;
    cuda::check_driver(d.mem_get_allocation_granularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), kWhere,
                       "cuMemGetAllocationGranularity");
    bytes_ = (static_cast<size_t>(peer::kRoomBytes) + unit - 1) / unit * unit;
    unit_ = unit;
    CUmemGenericAllocationHandle memory = 0;
    cuda::check_driver(d.mem_create(&memory, bytes_, &prop, 0), kWhere, "cuMemCreate");
    call_.rank = rank;
    call_.size = size;
    map(rank, memory);
    cuda::check_driver(sharing().export_to(&file_, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), kWhere,
                       "cuMemExportToShareableHandle");
    constexpr size_t kCounts = peer::kBlocks * sizeof(uint32_t);
    cuda::check_cuda(cudaMalloc(reinterpret_cast<void**>(&call_.calls), kCounts), kWhere, "cudaMalloc");
    cuda::check_cuda(cudaMemset(call_.calls, 0, kCounts), kWhere, "cudaMemset");
    cuda::check_cuda(cudaMemset(call_.rooms[rank].data, 0, static_cast<size_t>(peer::kRoomBytes)), kWhere,
                     "cudaMemset");
    void* flag = nullptr;
    cuda::check_cuda(cudaHostAlloc(&flag, sizeof(uint32_t), cudaHostAllocPortable | cudaHostAllocMapped), kWhere,
                     "cudaHostAlloc");
    aborted_ = static_cast<volatile uint32_t*>(flag);
    *aborted_ = 0;
    call_.aborted = aborted_;
    cuda::check_cuda(cudaDeviceSynchronize(), kWhere, "cudaDeviceSynchronize");
  }
  // The memory lives as long as the program, and the others' as long as this process maps it: graphs may hold calls.
  ~CardPeerSums() override { close_file(); }

  int file() const override { return file_; }
  void join(int rank, int file) override {
    CUmemGenericAllocationHandle memory = 0;
    const CUresult e = sharing().import_from(&memory, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    ::close(file);
    cuda::check_driver(e, kWhere, "cuMemImportFromShareableHandle");
    const cuda::DeviceScope here(device_);
    map(rank, memory);
  }

  void all_reduce(void* data, int64_t count, DType dtype, Reduction r, void* stream) override {
    close_file();  // everybody has it
    switch (dtype) {
      case DType::f16:
        return launch(static_cast<Half*>(data), count, r, stream);
      case DType::bf16:
        return launch(static_cast<BFloat16*>(data), count, r, stream);
      case DType::f32:
        return launch(static_cast<float*>(data), count, r, stream);
      default:
        return launch(static_cast<double*>(data), count, r, stream);
    }
  }
  void abort() noexcept override { *aborted_ = 1; }

 private:
  CUmemAllocationProp properties() const {
    return {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_}};
  }
  // Rank's memory, which this card may read and write from here on.
  void map(int rank, CUmemGenericAllocationHandle memory) {
    const cuda::Driver& d = cuda::driver();
    CUdeviceptr at = 0;
    cuda::check_driver(d.mem_address_reserve(&at, bytes_, unit_, 0, 0), kWhere, "cuMemAddressReserve");
    cuda::check_driver(d.mem_map(at, bytes_, 0, memory, 0), kWhere, "cuMemMap");
    const CUmemAccessDesc access{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_},
                                 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    cuda::check_driver(d.mem_set_access(at, bytes_, &access, 1), kWhere, "cuMemSetAccess");
    auto* const data = reinterpret_cast<std::byte*>(at);
    call_.rooms[rank] = {data, reinterpret_cast<uint32_t*>(data + peer::kDataBytes)};
  }
  template <class T>
  void launch(T* data, int64_t count, Reduction r, void* stream) {
    const peer::Shares shares = peer::shares_of(count, sizeof(T));
    peer::Call call = call_;
    call.count = count;
    call.per_block = shares.per_block;
    all_reduce_kernel<T>
        <<<static_cast<unsigned>(shares.blocks), peer::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(call, r, data);
    cuda::check_cuda(cudaGetLastError(), kWhere, "a launch");
  }
  void close_file() {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
  }

  int device_;
  size_t bytes_ = 0, unit_ = 0;
  int file_ = -1;
  peer::Call call_{};
  volatile uint32_t* aborted_ = nullptr;
};

}  // namespace

std::unique_ptr<PeerSums> make_peer_sums(int device, int rank, int size) {
  return std::make_unique<CardPeerSums>(device, rank, size);
}

}  // namespace strata::distributed::detail
