#pragma once
// Kinds of memory: the tiers, what a backend of one does, who takes memory for what, and the list of backends. core
// knows none of them by name; docs/design/memory.md explains.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/core/device.h"

namespace strata {

/// Where a storage's bytes live while nobody computes with them. A tier is a name: further ones are made by named().
class Tier {
 public:
  /// The device's own memory: host for cpu, device for cuda, meta for meta.
  constexpr Tier() = default;
  /// @name The tiers that are always there by name (whether there is memory of one: memory::find_backend)
  static const Tier host, device, pinned, meta;
  /// The tier of that name, made where there is none; the name must live as long as the program. Throws ValueError for
  /// an empty name, or one too many (kMostTiers).
  static Tier named(std::string_view name);
  /// "host", "device", "pinned", "meta"; "own" of a Tier().
  std::string_view name() const;
  /// A number below kMostTiers.
  constexpr uint8_t id() const { return id_; }
  friend constexpr bool operator==(Tier, Tier) = default;

 private:
  friend struct TierNames;
  explicit constexpr Tier(uint8_t id) : id_(id) {}
  uint8_t id_ = 0;
};
inline constexpr Tier Tier::host{1}, Tier::device{2}, Tier::pinned{3}, Tier::meta{4};
/// Names that there can be, Tier()'s included.
inline constexpr int kMostTiers = 16;
inline void append_text(std::string& s, Tier t) {
  s += t.name();
}

/// What a pin is for.
enum class Access : uint8_t { read, write };

}  // namespace strata

namespace strata::memory {

/// What a block holds; one call (stats) says how much of each there is.
enum class Tag : uint8_t { parameter, gradient, optimizer, activation, data, workspace };
/// How many there are.
inline constexpr int kNumTags = 6;
/// "parameter", "gradient", ...
std::string_view name_of(Tag tag);

/// Bytes in use now and at most since the last reset, of one kind of memory of one device. Blocks of up to 4 KiB on the
/// host come from small pools and are not counted.
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

/// One block in use.
struct BlockInfo {
  uintptr_t address = 0;
  int64_t bytes = 0;
  Tag tag = Tag::activation;
  std::string holder;  ///< "linear in blocks.3": the op and the module it was made by; empty where neither is known
};

/// One of the things that bound what a process can take.
struct Bound {
  std::string name;   ///< "this machine", "the control group /job/7", "ulimit -v", "cuda:0 (NVIDIA H200)"
  int64_t limit = 0;  ///< bytes
  int64_t used = 0;   ///< of them, by whomever; without caches that the system gives up when memory is wanted
  /// What is left.
  int64_t free() const { return limit > used ? limit - used : 0; }
};

/// How a backend's blocks are reached.
enum class Bytes : uint8_t {
  fixed,    ///< a block is the address of its bytes, for as long as it lives
  movable,  ///< the bytes have an address only while the storage is pinned
  none,     ///< there are none: a dry run
};

/// A kind of memory: of one tier, for the tensors of one type of device. Derive, make one object that lives as long as
/// the program, and hand it to register_backend(); nothing else has to know of it. Any thread may call anything.
/// `Device` says which of several devices of the type; requests are never for 0 bytes.
class Backend {
 public:
  /// `name` is for error texts ("page-locked host") and lives as long as the backend.
  Backend(std::string_view name, DeviceType device, Tier tier, Bytes bytes)
      : name(name), device(device), tier(tier), bytes(bytes) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;

  const std::string_view name;
  const DeviceType device;
  const Tier tier;
  const Bytes bytes;

  /// A block of at least `nbytes`, uninitialised, attributed to `tag` and holder(). Fixed blocks begin at a multiple of
  /// 64 bytes. Throws MemoryError, naming what was asked, the limit and who holds what; DeviceError where there is no
  /// such device.
  virtual void* allocate(Device device, size_t nbytes, Tag tag) = 0;
  /// Gives back what allocate() returned for the same arguments. No pin holds it.
  virtual void deallocate(Device device, void* block, size_t nbytes, Tag tag) = 0;
  /// Counts a block under another tag from now on; deallocate() is then given `to`.
  virtual void retag(Device device, void* block, size_t nbytes, Tag from, Tag to) = 0;

  /// Copies host memory to bytes of a (pinned) block, or back, on the calling thread's current stream of the device:
  /// work queued there later sees the bytes. `from` may be reused when copy_in returns; `to` is filled when copy_out
  /// does. memcpy, unless overridden.
  virtual void copy_in(Device device, void* to, const void* from, size_t nbytes);
  /// The other way.
  virtual void copy_out(Device device, void* to, const void* from, size_t nbytes);

  /// @name Movable blocks: core counts the pins and calls these one at a time for each block; others throw ValueError
  /// @{
  /// The first pin: brings the bytes to where the device's kernels read and write them and returns the address, which
  /// holds until leave(). Work that is queued on the thread's current stream from now on finds them there. Throws
  /// MemoryError or IoError.
  virtual std::byte* fetch(Device device, void* block);
  /// The last pin has gone: the bytes may move once the work queued so far on the thread's current stream is done.
  /// `written`: one of the pins was for writing.
  virtual void leave(Device device, void* block, bool written);
  /// Begins what fetch() would do, and returns: advice.
  virtual void prefetch(Device device, void* block);
  /// Whether a fetch() would find the bytes in place.
  virtual bool resident(Device device, const void* block);
  /// @}

  /// What bounds it: the tightest limit, and how much of that is taken.
  virtual Bound bound(Device device) = 0;
  /// At most this many bytes from now on; 0: as much as there is. Returns the previous value. Throws ValueError where
  /// the kind has no such limit.
  virtual int64_t set_limit(Device device, int64_t bytes);
  /// What is in use.
  virtual Stats stats(Device device) = 0;
  /// The peaks start again from what is in use now.
  virtual void reset_peak(Device device) = 0;
  /// Every block in use, by address.
  virtual std::vector<BlockInfo> blocks(Device device) = 0;
  /// Returns what is kept for reuse.
  virtual void release_cached() {}
};

/// Adds a backend. Throws ValueError where there is one for its device type and tier. Any thread may call it.
void register_backend(Backend& backend);
/// The backend of a device's memory of that tier; nullptr where there is none.
Backend* find_backend(DeviceType device, Tier tier = {});
/// The same. Throws DeviceError where there is none.
Backend& backend(Device device, Tier tier = {});
/// Every backend, in order of device type and tier.
std::vector<Backend*> backends();

namespace detail {
// By device type and Tier::id(); 0 is the device's own tier.
inline constinit std::atomic<Backend*> g_backends[kNumDeviceTypes][kMostTiers] = {};
// Storages that live in movable blocks: while there are none, nothing has to be pinned.
inline constinit std::atomic<int64_t> g_movable{0};
inline bool any_movable() {
  return g_movable.load(std::memory_order_relaxed) != 0;
}
// Registers the host's memory and the dry run's, which every program has. In strata/memory/.
void register_builtin_backends();
// Of a table's empty place: the device's own memory. Sets `tier` to it.
Backend& own_backend(Device device, Tier& tier);

// On whose behalf this thread takes memory.
struct Caller {
  Tag tag = Tag::activation;
  Tier tier;
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
// Around a kernel: what it takes for itself is workspace, in the device's own memory.
class KernelScope {
 public:
  explicit KernelScope(Tag tag = Tag::workspace) : tag_(t_caller.tag), tier_(t_caller.tier) {
    t_caller.tag = tag;
    t_caller.tier = Tier();
  }
  ~KernelScope() {
    t_caller.tag = tag_;
    t_caller.tier = tier_;
  }
  KernelScope(const KernelScope&) = delete;

 private:
  Tag tag_;
  Tier tier_;
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

/// The tier of new tensors on this thread, results of ops included; those of a device that has no such memory, and what
/// kernels take for themselves, are in the device's own.
class TierScope {
 public:
  explicit TierScope(Tier tier) : previous_(std::exchange(detail::t_caller.tier, tier)) {}
  ~TierScope() { detail::t_caller.tier = previous_; }
  TierScope(const TierScope&) = delete;

 private:
  Tier previous_;
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

/// Who takes memory on this thread, "linear in blocks.3", as a string that lives as long as the program; nullptr where
/// neither op nor module is known.
const std::string* holder();

}  // namespace strata::memory
