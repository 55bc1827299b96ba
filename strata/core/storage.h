#pragma once
// Storage: the bytes behind one or several tensors, with the version counter that in-place ops advance.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "strata/core/device.h"
#include "strata/core/ref.h"
#include "strata/memory/allocator.h"

namespace strata {

/// The bytes; tensors that show them share one Storage.
struct Storage : RefCounted {
  std::byte* data = nullptr;  ///< nullptr on the meta device
  size_t nbytes = 0;
  Device device;
  memory::Tag tag = memory::Tag::activation;
  std::atomic<uint32_t> version{0};  ///< writes so far by in-place ops
  /// The op that wrote last, for error texts: its name, which ends where a name can.
  std::atomic<const char*> writer{""};
  std::string_view last_writer() const;
  std::atomic<uint64_t> watched{0};  ///< its number, once a recorder has seen it: its end is then reported
  void (*release)(void*) = nullptr;  ///< for borrowed memory: called with `owner` at the end
  void* owner = nullptr;             ///< or the allocator's block

  /// Allocates from memory::allocate with the thread's current tag.
  static Ref<Storage> create(Device device, size_t nbytes);
  /// Wraps memory that someone else owns; release(owner) is called when the last tensor goes.
  static Ref<Storage> borrow(void* data, size_t nbytes, void (*release)(void*), void* owner);
};
void ref_dispose(Storage* s);

namespace detail {
/// Tells recorders that a storage which one of them has seen is about to go.
void storage_ends(const Storage& s);
}  // namespace detail

}  // namespace strata
