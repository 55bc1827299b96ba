#pragma once
// Bytes of movable memory that one user has for himself, from whichever thread: an update that runs beside what reads
// the weights. docs/design/tiers.md, "What is reserved".

#include <cstddef>
#include <exception>
#include <utility>

#include "strata/core/ref.h"
#include "strata/core/storage.h"

namespace strata::memory {

class HomedMemory;

/// A storage whose pins wait until it is released, and whose prefetches wait with them. Its holder reads and writes the
/// bytes at home; calls come one at a time, from any thread. A destructor releases.
class Reserved {
 public:
  Reserved() = default;
  /// Empty where the storage's bytes do not move, or not as a HomedMemory's do, where it is pinned, and where somebody
  /// has it already.
  static Reserved of(const Ref<Storage>& storage);
  Reserved(Reserved&& other) noexcept { *this = std::move(other); }
  Reserved& operator=(Reserved&& other) noexcept;
  ~Reserved() { release(); }

  explicit operator bool() const { return memory_ != nullptr; }
  const Storage& storage() const { return *storage_; }

  /// Where the bytes are at home; nullptr where only copies reach them. They are there after settle_home().
  std::byte* home() const;
  /// Waits until the newest bytes are at home, and lets go what is near. Throws IoError of a copy that failed.
  void settle_home();
  /// There are new bytes at home.
  void written() { written_ = true; }

  /// Others have the bytes again; with `failure` the next pin throws that.
  void release(std::exception_ptr failure = nullptr) noexcept;

 private:
  Ref<Storage> storage_;
  HomedMemory* memory_ = nullptr;
  void* block_ = nullptr;
  bool written_ = false;
};

}  // namespace strata::memory
