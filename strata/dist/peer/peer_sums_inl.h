#pragma once
// Small all_reduces between the cards of one host, by a kernel of our own (peer_sum_kernel.h): NCCL's takes 16 us of
// 64 KiB on four cards, most of it before a byte has moved.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strata/core/dtype.h"
#include "strata/dist/reduction.h"
#include "strata/dist/transport.h"

namespace strata::distributed::detail {

/// Memory of each rank that the others map, and calls that go over it.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  /// Ends what waits, on garbage. Any thread may call it at any time.
  virtual void abort() noexcept = 0;
  /// The descriptor of this rank's memory, for exchange_files(); join() maps another rank's and closes the file.
  virtual int file() const = 0;
  virtual void join(int rank, int file) = 0;
};

class PeerSums : public PeerMemory {
 public:
  /// Whether all_reduce() takes such a call: f16, bf16, f32 or f64, not empty, no more than 256 KiB. All ranks ask
  /// about the same.
  static bool takes(int64_t count, DType dtype);
  /// Queues data = the ranks' data, reduced in the order of the ranks, on the card's stream. One call at a time.
  virtual void all_reduce(void* data, int64_t count, DType dtype, Reduction r, void* stream) = 0;
};

/// This rank's memory on its card, the current one, and counters, which live as long as the program: graphs may hold
/// calls. Throws DeviceError where the card, the driver or the build cannot.
std::unique_ptr<PeerSums> make_peer_sums(int device, int rank, int size);

/// The same, connected: all ranks call it, and all get one or none does (no memory that others map, more than eight
/// ranks, STRATA_PEER_SUMS=0 on any; `why` says which). Throws what `book` throws.
std::unique_ptr<PeerSums> connect_peer_sums(int device, int rank, int size, AddressBook& book,
                                            std::chrono::milliseconds patience, std::string& why);

/// Gives each other rank of this host an open file and gets theirs: [rank] = a descriptor, -1 at one's own. All ranks
/// call it; names are told in `book`. Files pass through sockets of the kernel's own names (unix(7)), from processes of
/// the same user alone. Throws std::runtime_error naming the rank where one does not come within `patience`.
std::vector<int> exchange_files(int file, int rank, int size, AddressBook& book, std::chrono::milliseconds patience);

}  // namespace strata::distributed::detail
