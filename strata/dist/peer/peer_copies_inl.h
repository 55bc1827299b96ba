#pragma once
// Large gathers and reduce_scatters between the cards of one host, moved by the cards' copy engines: NCCL's kernels
// take multiprocessors from the products that run beside them.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "strata/core/dtype.h"
#include "strata/dist/peer/peer_sums_inl.h"
#include "strata/dist/reduction.h"
#include "strata/dist/transport.h"

namespace strata::distributed::detail {

/// Each rank puts its numbers where the others may fetch them, all meet (one small block that waits), and each fetches
/// the others'. In a graph as outside.
class PeerCopies : public PeerMemory {
 public:
  /// Whether all_gather() takes parts of so many bytes: from 256 KiB on. All ranks ask about the same.
  static bool takes(size_t bytes);
  /// Whether reduce_scatter() takes such a call: sums and averages of f16, bf16, f32 or f64, of parts from 256 KiB on.
  static bool takes(int64_t count, DType dtype, Reduction r);
  /// Queues out = the ranks' `bytes` of `in`, one behind the other, on the card's stream; `in` may be its place in out.
  /// One call at a time.
  virtual void all_gather(void* out, const void* in, size_t bytes, void* stream) = 0;
  /// Queues out[0, count) = the sum or average of the ranks' in[rank * count, ...], added in the order of the ranks in
  /// f32 (f64) and rounded once; out is not within in. One call at a time.
  virtual void reduce_scatter(void* out, const void* in, int64_t count, DType dtype, Reduction r, void* stream) = 0;
};

/// This rank's memory on its card, the current one: 48 MiB, which live as long as the program. Throws DeviceError.
std::unique_ptr<PeerCopies> make_peer_copies(int device, int rank, int size);

/// The same, connected, as connect_peer_sums(): for those who set STRATA_PEER_COPIES=1.
std::unique_ptr<PeerCopies> connect_peer_copies(int device, int rank, int size, AddressBook& book,
                                                std::chrono::milliseconds patience, std::string& why);

}  // namespace strata::distributed::detail
