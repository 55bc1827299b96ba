#include <algorithm>

#include "strata/core/dispatch.h"
#include "strata/cuda/check.cuh"
#include "strata/cuda/kernel.cuh"
#include "strata/dist/peer/peer_copies_inl.h"
#include "strata/dist/peer/peer_copies_kernel.h"
#include "strata/dist/peer/peer_room.cuh"

namespace strata::distributed::detail {
namespace {

constexpr std::string_view kWhere = "peer copies";
// [2][kHalf] to be fetched, [kHalf] fetched, then who has met.
constexpr int64_t kFetched = 2 * peer::kHalf, kMet = 3 * peer::kHalf;
constexpr int64_t kBytes = kMet + peer::kMostRanks * static_cast<int64_t>(sizeof(uint32_t));
constexpr int kAddThreads = 256, kAddBlocks = 64;

using Block = CardBlock<100>;

__global__ void __launch_bounds__(peer::kMostRanks) meet_kernel(const __grid_constant__ peer::Meeting m) {
  peer::meet_block(m, Block());
}

template <class T>
struct Parts {
  const T* at[peer::kMostRanks];
};
template <class T>
__global__ void __launch_bounds__(kAddThreads)
    add_parts_kernel(const __grid_constant__ Parts<T> parts, int size, int64_t count, peer::Wide<T> scale, T* out) {
  peer::add_block(parts.at, size, count, scale, out, Block(), static_cast<int>(gridDim.x));
}

class CardPeerCopies final : public PeerCopies {
 public:
  CardPeerCopies(int device, int rank, int size) : rank_(rank), size_(size), room_(kWhere, device, rank, kBytes) {
    const cuda::DeviceScope here(device);
    meeting_.rank = rank;
    meeting_.size = size;
    meeting_.meetings = make_counters(kWhere, 1);
    meeting_.aborted = aborted_ = make_abort_word(kWhere);
    see(rank);
  }

  int file() const override { return room_.file(); }
  void join(int rank, int file) override {
    room_.join(rank, file);
    see(rank);
  }
  void abort() noexcept override { *aborted_ = 1; }

  // Two halves in turn, so that one meeting a turn is enough: who has come to that of turn n + 1 has fetched what there
  // was in turn n. Which half is first is fixed in a graph, so calls begin with a meeting of their own.
  void all_gather(void* out, const void* in, size_t bytes, void* on) override {
    room_.close_file();  // everybody has it
    auto* const stream = static_cast<cudaStream_t>(on);
    auto* const to = static_cast<std::byte*>(out);
    const auto* const from = static_cast<const std::byte*>(in);
    meet(stream);
    int half = 0;
    for (size_t at = 0; at < bytes; half = 1 - half) {
      const size_t n = std::min(bytes - at, static_cast<size_t>(peer::kHalf));
      copy(room_.at(rank_) + half * peer::kHalf, from + at, n, stream);
      meet(stream);
      for (int k = 1; k < size_; ++k) {  // not all from one card at once
        const int p = (rank_ + k) % size_;
        copy(to + static_cast<size_t>(p) * bytes + at, room_.at(p) + half * peer::kHalf, n, stream);
      }
      at += n;
    }
    if (std::byte* const own = to + static_cast<size_t>(rank_) * bytes; own != from) copy(own, from, bytes, stream);
  }

  void reduce_scatter(void* out, const void* in, int64_t count, DType dtype, Reduction r, void* on) override {
    room_.close_file();
    dispatch_floats(dtype, kWhere, [&]<class T>() {
      scatter(static_cast<T*>(out), static_cast<const T*>(in), count, r, static_cast<cudaStream_t>(on));
    });
  }

 private:
  void see(int rank) { meeting_.met[rank] = reinterpret_cast<uint32_t*>(room_.at(rank) + kMet); }

  static void copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
    cuda::check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), kWhere, "cudaMemcpyAsync");
  }
  void meet(cudaStream_t stream) const {
    meet_kernel<<<1, peer::kMostRanks, 0, stream>>>(meeting_);
    cuda::check_cuda(cudaGetLastError(), kWhere, "a launch");
  }

  template <class T>
  void scatter(T* out, const T* in, int64_t count, Reduction r, cudaStream_t stream) const {
    constexpr auto kItem = static_cast<int64_t>(sizeof(T));
    const int64_t most = peer::turn_of(size_, kItem);
    const peer::Wide<T> scale = r == Reduction::avg ? peer::Wide<T>{1} / static_cast<peer::Wide<T>>(size_) : 1;
    meet(stream);
    int half = 0;
    for (int64_t at = 0; at < count; half = 1 - half) {
      const int64_t n = std::min(count - at, most);
      const auto bytes = static_cast<size_t>(n * kItem), pitch = static_cast<size_t>(most * kItem);
      // Each rank's own, one behind the other: that of this rank too, which costs less than two copies.
      cuda::check_cuda(
          cudaMemcpy2DAsync(room_.at(rank_) + half * peer::kHalf, pitch, in + at, static_cast<size_t>(count * kItem),
                            bytes, static_cast<size_t>(size_), cudaMemcpyDeviceToDevice, stream),
          kWhere, "cudaMemcpy2DAsync");
      meet(stream);
      Parts<T> parts{};
      for (int k = 1; k < size_; ++k) {
        const int p = (rank_ + k) % size_;
        std::byte* const to = room_.at(rank_) + kFetched + static_cast<size_t>(k - 1) * pitch;
        copy(to, room_.at(p) + half * peer::kHalf + static_cast<size_t>(rank_) * pitch, bytes, stream);
        parts.at[p] = reinterpret_cast<const T*>(to);
      }
      parts.at[rank_] = in + static_cast<int64_t>(rank_) * count + at;
      add_parts_kernel<T><<<kAddBlocks, kAddThreads, 0, stream>>>(parts, size_, n, scale, out + at);
      cuda::check_cuda(cudaGetLastError(), kWhere, "a launch");
      at += n;
    }
  }

  int rank_, size_;
  PeerRoom room_;
  peer::Meeting meeting_{};
  volatile uint32_t* aborted_ = nullptr;
};

}  // namespace

std::unique_ptr<PeerCopies> make_peer_copies(int device, int rank, int size) {
  return std::make_unique<CardPeerCopies>(device, rank, size);
}

}  // namespace strata::distributed::detail
