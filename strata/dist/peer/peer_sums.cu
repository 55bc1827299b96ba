#include "strata/core/dispatch.h"
#include "strata/cuda/check.cuh"
#include "strata/cuda/kernel.cuh"
#include "strata/dist/peer/peer_room.cuh"
#include "strata/dist/peer/peer_sum_kernel.h"
#include "strata/dist/peer/peer_sums_inl.h"

namespace strata::distributed::detail {
namespace {

constexpr std::string_view kWhere = "peer sums";

template <class T>
__global__ void __launch_bounds__(peer::kThreads)
    all_reduce_kernel(const __grid_constant__ peer::Call c, Reduction r, T* data) {
  peer::all_reduce_block(c, r, data, CardBlock<0>());
}

class CardPeerSums final : public PeerSums {
 public:
  CardPeerSums(int device, int rank, int size) : room_(kWhere, device, rank, peer::kRoomBytes) {
    const cuda::DeviceScope here(device);
    call_.rank = rank;
    call_.size = size;
    call_.calls = make_counters(kWhere, peer::kBlocks);
    call_.aborted = aborted_ = make_abort_word(kWhere);
    see(rank);
  }

  int file() const override { return room_.file(); }
  void join(int rank, int file) override {
    room_.join(rank, file);
    see(rank);
  }

  void all_reduce(void* data, int64_t count, DType dtype, Reduction r, void* stream) override {
    room_.close_file();  // everybody has it
    dispatch_floats(dtype, kWhere, [&]<class T>() { launch(static_cast<T*>(data), count, r, stream); });
  }
  void abort() noexcept override { *aborted_ = 1; }

 private:
  void see(int rank) {
    std::byte* const data = room_.at(rank);
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

  PeerRoom room_;
  peer::Call call_{};
  volatile uint32_t* aborted_ = nullptr;
};

}  // namespace

std::unique_ptr<PeerSums> make_peer_sums(int device, int rank, int size) {
  return std::make_unique<CardPeerSums>(device, rank, size);
}

}  // namespace strata::distributed::detail
