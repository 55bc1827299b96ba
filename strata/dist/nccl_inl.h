#pragma once
// NCCL, loaded at run time: the few functions that the engine calls, and collectives on them. The declarations are
// NCCL's interface since 2.10 (nccl.h), written out so that a build needs neither its header nor CUDA's.

#include <atomic>
#include <chrono>
#include <climits>
#include <functional>
#include <memory>
#include <string>

#include "strata/dist/communicator.h"
#include "strata/dist/peer/peer_copies_inl.h"
#include "strata/dist/peer/peer_sums_inl.h"

namespace strata::distributed::detail {

/// ncclUniqueId, ncclComm_t, ncclResult_t, ncclDataType_t, ncclRedOp_t.
struct NcclId {
  char bytes[128];
};
using NcclComm = struct NcclCommOpaque*;
enum NcclResult : int { kNcclSuccess = 0, kNcclRemoteError = 6, kNcclInProgress = 7 };
enum NcclType : int {
  kNcclInt8 = 0,
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclInt64 = 4,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9
};
/// ncclConfig_t as of 2.18, which later ones know by its version; what is not said is NCCL's to choose.
struct NcclConfig {
  static constexpr int kNothing = INT_MIN;
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef, version = 21800;
  int blocking = kNothing, cluster = kNothing, least_blocks = kNothing, most_blocks = kNothing;
  const char* net = nullptr;
  int share = kNothing, traffic = kNothing;
};
enum NcclOp : int { kNcclSum = 0, kNcclProd = 1, kNcclMax = 2, kNcclMin = 3, kNcclAvg = 4 };

/// The functions, by their names without "nccl".
struct Nccl {
  int (*GetVersion)(int* version);
  int (*GetUniqueId)(NcclId* id);
  int (*CommInitRankConfig)(NcclComm* comm, int size, NcclId id, int rank, NcclConfig* config);
  int (*CommDestroy)(NcclComm comm);
  int (*CommAbort)(NcclComm comm);
  int (*CommGetAsyncError)(NcclComm comm, int* result);
  const char* (*GetErrorString)(int result);
  const char* (*GetLastError)(NcclComm comm);
  int (*GroupStart)();
  int (*GroupEnd)();
  int (*AllReduce)(const void* in, void* out, size_t count, int type, int op, NcclComm comm, void* stream);
  int (*Reduce)(const void* in, void* out, size_t count, int type, int op, int root, NcclComm comm, void* stream);
  int (*Broadcast)(const void* in, void* out, size_t count, int type, int root, NcclComm comm, void* stream);
  int (*AllGather)(const void* in, void* out, size_t count, int type, NcclComm comm, void* stream);
  int (*ReduceScatter)(const void* in, void* out, size_t count, int type, int op, NcclComm comm, void* stream);
  int (*Send)(const void* in, size_t count, int type, int to, NcclComm comm, void* stream);
  int (*Recv)(void* out, size_t count, int type, int from, NcclComm comm, void* stream);
  std::string file;  ///< what was loaded
  int version = 0;   ///< 22803 for 2.28.3
};

/// The library, loaded once: the file that STRATA_NCCL names and no other, or libnccl.so.2 as the system finds it, or
/// in PyPI's package nvidia/nccl of a Python environment. Multicast (NVLS) is left off, and so is the registration of
/// buffers of graphs, unless the environment says otherwise. Throws DistributedError saying where it was looked for.
const Nccl& nccl();

/// The ranks' cards; calls queue on the stream that use() named last.
class NcclCollectives final : public Collectives {
 public:
  /// Connects; all ranks call it with the id that one of them got of NCCL. `within` makes the card current for a
  /// function on any thread. A call takes up to `blocks` blocks of the card (0: as many as NCCL likes). Throws
  /// DistributedError where that fails or takes longer than `patience`.
  NcclCollectives(const NcclId& id, int rank, int size, std::chrono::milliseconds patience,
                  std::function<void(const std::function<void()>&)> within, int blocks = 0);
  /// Leaves the connections as they are, unless close() was called.
  ~NcclCollectives() override = default;

  void use(void* stream) { stream_ = stream; }
  /// From here on small sums go over them; nullptr: over NCCL, and `why` says what the ranks lack. All ranks have them,
  /// or none.
  void take(std::unique_ptr<PeerSums> peers, std::string why) {
    peers_ = std::move(peers);
    why_ = std::move(why);
  }
  /// The same of large gathers and reduce_scatters.
  void take(std::unique_ptr<PeerCopies> copies) { copies_ = std::move(copies); }
  /// Over what calls go, for people: "NCCL 2.28.3; sums of up to 256 KiB over memory that the ranks map".
  std::string way() const;
  /// Ends what runs, and refuses what comes. What is on the stream ends as if it had succeeded, on garbage.
  void abort() noexcept;
  /// What went wrong by itself (a peer is gone), empty where nothing did. Any thread may ask.
  std::string error();
  /// Frees what NCCL holds, within seconds or not at all; all ranks call it when nothing runs any more. No graph may
  /// hold calls.
  void close() noexcept;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(void* data, int64_t count, DType dtype, Reduction r) override;
  void reduce(void* data, int64_t count, DType dtype, Reduction r, int root) override;
  void reduce_scatter(void* out, const void* in, int64_t count, DType dtype, Reduction r) override;
  void broadcast(void* data, size_t bytes, int root) override;
  void all_gather(void* out, const void* in, size_t bytes) override;
  void all_to_all(void* out, std::span<const size_t> out_bytes, const void* in,
                  std::span<const size_t> in_bytes) override;
  void send(const void* data, size_t bytes, int to) override;
  void receive(void* data, size_t bytes, int from) override;
  void shift(void* out, const void* in, size_t bytes, int to, int from) override;

 private:
  void call(const char* what, int result);
  void end(int (*free)(NcclComm), std::chrono::milliseconds patience) noexcept;
  NcclComm comm() const;  // throws where it was aborted
  template <class F>
  void grouped(F&& calls);

  const Nccl& n_;
  const int rank_, size_;
  const std::function<void(const std::function<void()>&)> within_;
  NcclComm comm_ = nullptr;
  std::unique_ptr<PeerSums> peers_;
  std::unique_ptr<PeerCopies> copies_;
  std::string why_;
  void* stream_ = nullptr;
  std::atomic<bool> gone_{false};
};

}  // namespace strata::distributed::detail
