#pragma once
// How a DiskStore's transfers reach the system: one engine for each file. Tests put one that fails in between.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "strata/memory/disk_store.h"

namespace strata::memory {

/// Contiguous bytes of a file, to or from contiguous memory. It stays where it is until it has finished.
struct DiskTransfer {
  int64_t offset = 0;  ///< in the file
  std::byte* data = nullptr;
  size_t nbytes = 0;
  bool write = false;
};

/// Whom an engine tells, on threads of its own.
class DiskSink {
 public:
  /// Before the system hears of a transfer: its memory is made ready now.
  virtual void starting(DiskTransfer& t) = 0;
  /// The system's answer: how many bytes (less than asked is not an error), or -errno. The transfer may be submitted
  /// again.
  virtual void finished(DiskTransfer& t, int64_t result) = 0;

 protected:
  ~DiskSink() = default;
};

/// Does what it is told with one file. Any thread may call anything, the engine's own from within a DiskSink too.
class DiskEngine {
 public:
  virtual ~DiskEngine() = default;  ///< nothing is under way

  /// Begins transfers. There are never more than DiskOptions::depth under way.
  virtual void submit(std::span<DiskTransfer* const> transfers) = 0;
  /// Takes room for bytes of the file from the file system; 0 or errno.
  virtual int reserve(int64_t offset, int64_t nbytes) = 0;
  /// Gives it back: advice.
  virtual void release(int64_t offset, int64_t nbytes) = 0;
  /// Memory that transfers will use often: advice, which never fails. From outside the engine's threads only.
  virtual void register_buffer(std::byte* data, size_t nbytes) = 0;
  virtual void unregister_buffer(std::byte* data) = 0;
  /// "io_uring", "threads"
  virtual std::string_view name() const = 0;
};

using MakeDiskEngine = std::function<std::unique_ptr<DiskEngine>(const DiskOptions&, int fd, DiskSink&)>;

/// As DiskOptions::engine wants it. Throws IoError.
std::unique_ptr<DiskEngine> make_disk_engine(const DiskOptions& options, int fd, DiskSink& sink);

/// What a DiskStore makes its engines with: make_disk_engine(), unless exchange_disk_engines() said otherwise.
MakeDiskEngine disk_engines();
/// Stores that are made from now on make theirs so; returns what there was. For tests of what stands on a store.
MakeDiskEngine exchange_disk_engines(MakeDiskEngine make);

/// io_uring, driven by one thread. Null, with errno in `error`, where the system has none or forbids it. Throws IoError
/// where there is no thread.
std::unique_ptr<DiskEngine> make_uring_engine(int depth, int fd, DiskSink& sink, int& error);

/// pread and pwrite on at most `depth` threads, started when they are wanted. Throws IoError where there is not one.
std::unique_ptr<DiskEngine> make_threads_engine(int depth, int fd, DiskSink& sink);

/// fallocate, and where the file system has no such thing, zeros written. 0 or errno; EFBIG, without the signal, past
/// the process's limit of file sizes.
int reserve_in_file(int fd, int64_t offset, int64_t nbytes);
/// The zeros.
int write_zeros(int fd, int64_t offset, int64_t nbytes);
void release_in_file(int fd, int64_t offset, int64_t nbytes);

/// Every signal but those of faults is held back from the calling thread, and from threads that it starts, for a scope.
class AllSignalsHeld {
 public:
  AllSignalsHeld();
  ~AllSignalsHeld();
  AllSignalsHeld(const AllSignalsHeld&) = delete;

 private:
  alignas(8) std::byte before_[128];  // a sigset_t
};

}  // namespace strata::memory
