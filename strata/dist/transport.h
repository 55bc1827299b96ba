#pragma once
// What carries bytes between the ranks of a group: an interface that modules implement, so that the engine runs without
// the libraries that they stand on. A module is a shared library with one function, strata_transport; the engine calls
// it and nothing else, and it calls nothing of the engine.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace strata::distributed {

/// How ranks tell each other their addresses while they connect. get() waits.
class AddressBook {
 public:
  virtual ~AddressBook() = default;
  /// Tells `value` under `key`.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// The value of `key`, when it is there. Throws where it does not come.
  virtual std::string get(const std::string& key) = 0;
};

/// An operation that was begun.
class Transfer {
 public:
  /// Ends it, done or not: its memory is not touched afterwards.
  virtual ~Transfer() = default;
  /// Returns when the memory may be used again. Throws std::runtime_error when the peer is gone, nothing comes within
  /// the transport's time, or the transport was aborted.
  virtual void wait() = 0;
};

/// Bytes from rank to rank of one group. Any thread may call anything, but abort() alone runs beside others.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Begins to send. What is sent to one rank on one channel is received there in the same order; sizes must agree.
  virtual std::unique_ptr<Transfer> send(int to, uint64_t channel, const void* data, size_t bytes) = 0;
  /// Begins to receive.
  virtual std::unique_ptr<Transfer> receive(int from, uint64_t channel, void* data, size_t bytes) = 0;
  /// Ends every operation, present and future, with an error, and closes the connections, so that peers see it too.
  virtual void abort() noexcept = 0;
};

/// What a module is asked for.
struct TransportRequest {
  int rank = 0;
  int size = 1;
  std::string interface;              ///< the address of this host that peers reach it at
  std::chrono::milliseconds timeout;  ///< for one operation
};

/// The function that a module exports: a connected transport. Throws std::runtime_error where peers cannot be reached.
using MakeTransport = std::unique_ptr<Transport> (*)(const TransportRequest& request, AddressBook& book);
inline constexpr const char* kTransportSymbol = "strata_transport_1";

/// The module of that name ("gloo", "mpi"), loaded once: from the folder of this program or library, or the lib/strata
/// beside it. Throws DistributedError saying where it was looked for.
MakeTransport transport_module(const std::string& name);

}  // namespace strata::distributed
