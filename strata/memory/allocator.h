#pragma once
// Host memory for tensors: a caching allocator with per-tag accounting. Freed blocks are kept and reused, because
// returning large blocks to the kernel costs a page fault per page at the next step.
// The meta device accounts for the same requests without touching memory: that is how a dry run knows its peak.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "strata/core/device.h"

namespace strata::memory {

/// What a block holds; one call (stats) says how much of each there is.
enum class Tag : uint8_t { parameter, gradient, optimizer, activation, data, workspace };
inline constexpr int kNumTags = 6;
std::string_view name_of(Tag tag);

/// Every block starts at a multiple of this many bytes.
inline constexpr size_t kAlignment = 64;

/// Uninitialised memory of at least `nbytes` on `device` (nullptr for 0 bytes), attributed to `tag` and to the thread's
/// current module. On the meta device: a token that must not be read through. Throws MemoryError, naming what was
/// asked, the limit and who holds what.
void* allocate(Device device, size_t nbytes, Tag tag);
/// Gives back what allocate() returned for the same arguments. Any thread may call it.
void deallocate(Device device, void* data, size_t nbytes, Tag tag);

namespace detail {
// On whose behalf this thread takes memory.
struct Caller {
  Tag tag = Tag::activation;
  const std::string_view* op = nullptr;  // lives as long as the program
  const std::string* module = nullptr;   // the same
};
inline constinit thread_local Caller t_caller;
// The one copy of a module's name, which lives as long as the program.
const std::string* module_name(std::string_view name);
// Names a module again, for the backward of what its forward recorded.
class RecordedModule {
 public:
  explicit RecordedModule(const std::string* module) : previous_(std::exchange(t_caller.module, module)) {}
  ~RecordedModule() { t_caller.module = previous_; }
  RecordedModule(const RecordedModule&) = delete;

 private:
  const std::string* previous_;
};
}  // namespace detail

/// The tag that new tensors on this thread get.
inline Tag current_tag() {
  return detail::t_caller.tag;
}
/// Sets it for a scope.
class TagScope {
 public:
  explicit TagScope(Tag tag) : previous_(std::exchange(detail::t_caller.tag, tag)) {}
  ~TagScope() { detail::t_caller.tag = previous_; }
  TagScope(const TagScope&) = delete;

 private:
  Tag previous_;
};

/// Names the op that runs on this thread: what a MemoryError and a Timeline list beside the tags. The name must live as
/// long as the program.
class OpScope {
 public:
  explicit OpScope(const std::string_view& name) : previous_(std::exchange(detail::t_caller.op, &name)) {}
  ~OpScope() { detail::t_caller.op = previous_; }
  OpScope(const OpScope&) = delete;

 private:
  const std::string_view* previous_;
};

/// Names the module whose forward runs on this thread, for the same lists.
class ModuleScope {
 public:
  explicit ModuleScope(std::string_view name);
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;

 private:
  const std::string* previous_;
};

/// While one lives, allocate() fills host memory with `pattern`, on every thread: what a kernel leaves unwritten shows,
/// because it differs between two patterns. 0xff makes NaN of every floating type. For tests and `strata lab verify`.
class PoisonScope {
 public:
  explicit PoisonScope(uint8_t pattern);
  ~PoisonScope();
  PoisonScope(const PoisonScope&) = delete;

 private:
  int previous_;
};
/// Bytes that a request of `nbytes` really gets; those past `nbytes` belong to nobody and are poisoned too.
size_t block_size(size_t nbytes);

/// Bytes in use now and at most since the last reset, for one device type. Blocks of up to 4 KiB on the host come from
/// small pools and are not counted.
struct Stats {
  int64_t live[kNumTags] = {};
  int64_t peak[kNumTags] = {};  ///< each tag's bytes at the moment of the total's peak
  int64_t live_total = 0;
  int64_t peak_total = 0;
  int64_t reserved = 0;  ///< extent of the heap, cached holes included: what stays resident
  int64_t peak_reserved = 0;
  int64_t blocks = 0;       ///< in use now
  int64_t allocations = 0;  ///< requests since the start
  /// Requests that found memory only after the holes were given back to the device, or not at all.
  int64_t retries = 0;
};
/// Of the host, of the meta device, or of one card.
Stats stats(Device device);
/// The peaks start again from what is in use now.
void reset_peak(Device device);
/// The same of a device type; for cuda, of the first card.
Stats stats(DeviceType device);
void reset_peak(DeviceType device);
/// Returns the heap's holes to the system.
void release_cached();
/// At most this many bytes of host memory for tensors; 0 (the default) means the machine's memory or the control
/// group's share of it. Returns the previous value.
int64_t set_limit(int64_t bytes);

}  // namespace strata::memory
