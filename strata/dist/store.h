#pragma once
// The job's common memory: a few small values by key, through which ranks find each other, say that they live, and
// vote. One process holds it (the coordinator: strata/dist/coordinator.h); every rank is a client.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "strata/core/error.h"

namespace strata::distributed {

/// Something between processes went wrong: a rank died, does not answer, or did something else than the others. The
/// text names the rank, its host, and what each rank was doing, as far as it is known.
class DistributedError : public Error {
  using Error::Error;
};

/// Values by key, seen by every rank of a job. Keys are at most 256 bytes of printable ASCII without blanks, values at
/// most 1 MiB of any bytes; both are checked where they arrive. Any thread may call anything.
class Store {
 public:
  virtual ~Store() = default;
  /// Sets `key`. Throws DistributedError where the coordinator cannot be reached, ValueError for a key or value past
  /// the limits.
  virtual void set(std::string_view key, std::string_view value) = 0;
  /// The value of `key`, waited for until `timeout`. Throws DistributedError naming the key when it is not set by then.
  virtual std::string get(std::string_view key, std::chrono::milliseconds timeout) = 0;
  /// Adds to the integer at `key` (0 where there is none) and returns the sum: in one step, whoever else does so.
  virtual int64_t add(std::string_view key, int64_t amount) = 0;
  /// Removes `key`; nothing happens where there is none.
  virtual void remove(std::string_view key) = 0;
};

/// A store for the threads of this process: tests, and jobs of one rank.
std::unique_ptr<Store> make_local_store();

}  // namespace strata::distributed
