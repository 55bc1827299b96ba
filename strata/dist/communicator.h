#pragma once
// Collectives of a group of ranks: what they are, and those on bytes of the host's memory, over a transport.

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

/// The collectives of one group, on memory of one kind: the host's (Communicator), or a card's, where a call queues and
/// returns at once. One call at a time.
class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// data = the ranks' data, reduced: for each of `count` elements. A rank sends and receives 2 (n-1)/n of the bytes.
  virtual void all_reduce(void* data, int64_t count, DType dtype, Reduction r) = 0;
  /// The same at `root` alone; the others' data stays.
  virtual void reduce(void* data, int64_t count, DType dtype, Reduction r, int root) = 0;
  /// out[rank] of each rank = the ranks' `count` elements at in[rank], reduced: `in` has size() times as many.
  virtual void reduce_scatter(void* out, const void* in, int64_t count, DType dtype, Reduction r) = 0;
  /// The root's bytes everywhere.
  virtual void broadcast(void* data, size_t bytes, int root) = 0;
  /// Every rank's `bytes`, in the order of the ranks. `in` may be this rank's part of `out`.
  virtual void all_gather(void* out, const void* in, size_t bytes) = 0;
  /// Byte counts for each peer: what goes to it and comes from it, one behind the other in the order of the ranks.
  virtual void all_to_all(void* out, std::span<const size_t> out_bytes, const void* in,
                          std::span<const size_t> in_bytes) = 0;
  /// To and from one rank: not a collective.
  virtual void send(const void* data, size_t bytes, int to) = 0;
  virtual void receive(void* data, size_t bytes, int from) = 0;
  /// Sends to one rank and receives from another at once.
  virtual void shift(void* out, const void* in, size_t bytes, int to, int from) = 0;
};

/// The collectives of the host's memory. Each begins with a few bytes to every peer that say which one it is and how large: a
/// rank that finds another one than its own throws std::runtime_error naming the peer before anything is written. Sums
/// are taken in the order of the ranks, so all ranks get the same bits, and the same in every run. One call at a time;
/// abort() alone may come beside it.
class Communicator final : public Collectives {
 public:
  /// `transport` is nullptr for a group of one.
  Communicator(std::unique_ptr<Transport> transport, int rank, int size);
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  /// The next call is this one: a hash of the text that its ranks must agree on.
  void announce(std::string_view what);

  void all_reduce(void* data, int64_t count, DType dtype, Reduction r) override;
  void reduce(void* data, int64_t count, DType dtype, Reduction r, int root) override;
  void reduce_scatter(void* out, const void* in, int64_t count, DType dtype, Reduction r) override;
  void broadcast(void* data, size_t bytes, int root) override;
  void all_gather(void* out, const void* in, size_t bytes) override;
  void all_to_all(void* out, std::span<const size_t> out_bytes, const void* in,
                  std::span<const size_t> in_bytes) override;
  /// On a channel of its own.
  void send(const void* data, size_t bytes, int to) override;
  void receive(void* data, size_t bytes, int from) override;
  void shift(void* out, const void* in, size_t bytes, int to, int from) override;
  /// Returns when every rank has called it.
  void barrier();

  /// Begin a message between two ranks that runs beside all other calls, on channel 0, 1, .. of those for such
  /// messages: what is sent to a rank on one is received there in the same order, and sizes must agree. The transfer's
  /// wait() ends it. Throws std::runtime_error where the connections are closed.
  std::unique_ptr<Transfer> post_send(const void* data, size_t bytes, int to, uint64_t channel);
  std::unique_ptr<Transfer> post_receive(void* data, size_t bytes, int from, uint64_t channel);

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
