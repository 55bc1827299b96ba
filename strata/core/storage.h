#pragma once
// Storage: the bytes behind one or several tensors, with the version counter that in-place ops advance.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "strata/core/backend.h"
#include "strata/core/device.h"
#include "strata/core/ref.h"

namespace strata {

/// The bytes; tensors that show them share one Storage. They live in memory of a tier, which a backend holds. Where
/// that lets blocks move, they have an address, and `data` is set, only while somebody pins them.
struct Storage : RefCounted {
  std::byte* data = nullptr;  ///< nullptr on the meta device, and of a movable block that nobody pins
  size_t nbytes = 0;
  Device device;
  memory::Tag tag = memory::Tag::activation;
  Tier place;                        ///< as it was asked for: tier() says which that is
  std::atomic<uint32_t> version{0};  ///< writes so far by in-place ops
  /// The op that wrote last, for error texts: its name, which ends where a name can.
  std::atomic<const char*> writer{""};
  std::string_view last_writer() const;
  std::atomic<uint64_t> watched{0};  ///< its number, once a recorder has seen it: its end is then reported
  void (*release)(void*) = nullptr;  ///< for borrowed memory: called with `owner` at the end
  void* owner = nullptr;             ///< or the backend's block, or what keeps track of a movable one

  /// Allocates with the thread's current tag, in the tier of its TierScope. Throws MemoryError, or DeviceError where
  /// there is no such device.
  static Ref<Storage> create(Device device, size_t nbytes);
  /// The same in a tier. Throws DeviceError where the device has no such memory.
  static Ref<Storage> create(Device device, size_t nbytes, Tier tier);
  /// Wraps memory that someone else owns; release(owner) is called when the last tensor goes.
  static Ref<Storage> borrow(void* data, size_t nbytes, void (*release)(void*), void* owner);

  /// Who holds the bytes (of borrowed memory: who would).
  memory::Backend& backend() const { return memory::backend(device, place); }
  /// Where they live.
  Tier tier() const { return backend().tier; }
  /// Whether they are where the device's kernels can read them. Not on the meta device.
  bool resident() const;
  /// Brings the bytes where the device's kernels read and write them and holds them there, for work that is queued on
  /// this thread's current stream from now on; `data` is set until unpin(). Pins count; any thread may pin. Does
  /// nothing where bytes do not move. Throws MemoryError or IoError, and is then not pinned.
  void pin(Access access = Access::write);
  /// Ends one pin, after the work queued so far.
  void unpin();
  /// Begins to bring the bytes near, and returns: a hint.
  void prefetch();
  /// Counts the bytes under another tag.
  void retag(memory::Tag to);

 private:
  struct Movable;  // the pins of a movable block
  static Ref<Storage> create_in(memory::Backend& backend, Device device, size_t nbytes, Tier place);
  Movable* movable() const;
  friend void ref_dispose(Storage* s);
};
void ref_dispose(Storage* s);

namespace detail {
/// Tells recorders that a storage which one of them has seen is about to go.
void storage_ends(const Storage& s);
}  // namespace detail

}  // namespace strata
