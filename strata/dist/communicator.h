#pragma once
// Collectives on bytes of the host's memory, over a transport.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "strata/core/dtype.h"
#include "strata/dist/reduction.h"
#include "strata/dist/transport.h"

namespace strata::distributed {

/// The collectives of one group. Each begins with a few bytes to every peer that say which one it is and how large: a
/// rank that finds another one than its own throws std::runtime_error naming the peer before anything is written. Sums
/// are taken in the order of the ranks, so all ranks get the same bits, and the same in every run. One call at a time;
/// abort() alone may come beside it.
class Communicator {
 public:
  /// `transport` is nullptr for a group of one.
  Communicator(std::unique_ptr<Transport> transport, int rank, int size);
  int rank() const { return rank_; }
  int size() const { return size_; }

  /// The next call is this one: a hash of the text that its ranks must agree on.
  void announce(std::string_view what);

  /// data = the ranks' data, reduced: for each of `count` elements. A rank sends and receives 2 (n-1)/n of the bytes.
  void all_reduce(void* data, int64_t count, DType dtype, Reduction r);
  /// The same at `root` alone; the others' data stays.
  void reduce(void* data, int64_t count, DType dtype, Reduction r, int root);
  /// out[rank] of each rank = the ranks' `count` elements at in[rank], reduced: `in` has size() times as many.
  void reduce_scatter(void* out, const void* in, int64_t count, DType dtype, Reduction r);
  /// The root's bytes everywhere.
  void broadcast(void* data, size_t bytes, int root);
  /// Every rank's `bytes`, in the order of the ranks.
  void all_gather(void* out, const void* in, size_t bytes);
  /// Byte counts for each peer: what goes to it and comes from it, one behind the other in the order of the ranks.
  void all_to_all(void* out, std::span<const size_t> out_bytes, const void* in, std::span<const size_t> in_bytes);
  /// To and from one rank, on a channel of their own: not a collective.
  void send(const void* data, size_t bytes, int to);
  void receive(void* data, size_t bytes, int from);
  /// Sends to one rank and receives from another at once.
  void shift(void* out, const void* in, size_t bytes, int to, int from);
  /// Returns when every rank has called it.
  void barrier();

  /// Ends the call that runs, and all later ones, with an error.
  void abort() noexcept;
  /// Bytes that this rank has sent, headers aside.
  int64_t sent_bytes() const { return sent_; }

 private:
  struct Part;
  struct Header;
  void exchange(std::span<const Part> parts, bool collective = true);
  void reduce_stretch(void* out, const void* in, int64_t count, DType dtype, Reduction r,
                      std::span<const int64_t> begins);

  std::unique_ptr<Transport> transport_;
  int rank_, size_;
  uint64_t hash_ = 0;
  uint64_t sequence_ = 0;  // of exchanges
  int64_t sent_ = 0;
};

}  // namespace strata::distributed
