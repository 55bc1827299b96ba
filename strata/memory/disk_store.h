#pragma once
// Blocks of bytes in files: what the disk tier, activations and rows on a disk stand on. docs/design/tiers.md.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/core/backend.h"

namespace strata::memory {

/// How a DiskStore works. Fixed when it is made.
struct DiskOptions {
  /// One file in each; blocks are spread over them in turn, a stripe at a time, so that several devices work at once.
  /// The files have no name as soon as they are open, and vanish with the process however it ends.
  std::vector<std::string> directories;
  int64_t limit = 0;                 ///< bytes of blocks at most; 0: as much as the file systems have
  size_t stripe = size_t{4} << 20;   ///< bytes on one file before the next; a multiple of kDiskPage
  int depth = 64;                    ///< requests under way at once, of each file
  size_t request = size_t{1} << 20;  ///< bytes of the largest request; a multiple of kDiskPage
  bool checksums = true;             ///< every page written is checked when it is read (XXH3, kept in memory)
  /// Who asks the system.
  enum class Engine : uint8_t {
    best,     ///< io_uring where the system permits it, else threads
    uring,    ///< io_uring, or IoError
    threads,  ///< pread and pwrite on threads of the store's own
  };
  Engine engine = Engine::best;
  /// Whether files are opened with O_DIRECT. A file system that refuses it is used without, and DiskStore::direct()
  /// says so.
  bool direct = true;
};

struct DiskRequest;  // private

/// What blocks are made of: each begins on one. Checksums speak of one each.
inline constexpr size_t kDiskPage = 4096;

/// What a DiskStore did so far.
struct DiskStats {
  int64_t bytes_read = 0, bytes_written = 0;
  int64_t reads = 0, writes = 0;                    ///< requests to the system
  double seconds_reading = 0, seconds_writing = 0;  ///< during which at least one was under way
  int64_t retried = 0;                              ///< short or interrupted requests that were continued
};

/// Room for blocks in files, read and written asynchronously. Any thread may call anything; requests for the same pages
/// of a block are done in the order in which they were made where one of them writes.
class DiskStore {
 public:
  /// Throws IoError where a directory cannot be written to; ValueError for options that make no sense.
  explicit DiskStore(DiskOptions options);
  /// Waits for what is under way.
  ~DiskStore();
  DiskStore(const DiskStore&) = delete;
  DiskStore& operator=(const DiskStore&) = delete;

  /// A block; only the store looks into it.
  struct Block;
  /// A request under way; empty where there is none. Copies speak of the same one.
  class Ticket {
   public:
    Ticket() = default;
    explicit operator bool() const { return request_ != nullptr; }

   private:
    friend class DiskStore;
    explicit Ticket(std::shared_ptr<DiskRequest> request) : request_(std::move(request)) {}
    std::shared_ptr<DiskRequest> request_;
  };

  /// Room for `nbytes`, whose contents are undefined until they are written. Throws MemoryError where the limit or the
  /// file system has no such room: it is taken from the file system now, so that a later write does not find the disk
  /// full.
  Block* allocate(size_t nbytes);
  /// Gives it back, when what is under way for it is done. Throws ValueError for a block that is not the store's.
  void deallocate(Block* block);
  /// As it was asked for.
  static size_t size(const Block* block);

  /// Begins to read bytes [from, from + nbytes) of a block into `to`, or to write them. The memory must stay as it is
  /// until wait() has returned, and nothing beside it is touched. Whole pages go straight to memory that is aligned,
  /// where the page begins, as the device wants it: to a page is always enough, many take less, and without O_DIRECT
  /// all will do. Others and parts of pages go by way of a buffer; a part that is written has the rest of its page read
  /// first, but for the block's last page. Throws ValueError for bytes outside the block, never for what the disk does:
  /// wait() does.
  Ticket read(const Block* block, std::byte* to, size_t nbytes, size_t from = 0);
  /// The same from `data` to bytes [at, at + nbytes).
  Ticket write(Block* block, const std::byte* data, size_t nbytes, size_t at = 0);
  /// One request for many rows: row i is bytes [rows[i] * row_bytes, (rows[i] + 1) * row_bytes) of the block, to
  /// to + i * stride_bytes. Rows that share a page share its read. Throws ValueError for a row outside the block.
  Ticket read_rows(const Block* block, std::byte* to, size_t stride_bytes, const int64_t* rows, size_t n,
                   size_t row_bytes);
  /// Returns when it is done. Throws IoError naming the file, the byte and the cause: an I/O error, or a page whose
  /// checksum is not what was written (of pages never written: that they were not). Several threads may wait for one
  /// ticket.
  void wait(const Ticket& ticket);
  /// Whether wait() would return at once.
  bool done(const Ticket& ticket) const;

  /// Memory that the engine reads and writes best (registered with io_uring): page-aligned, up to the process's limits.
  /// `data` must stay until unregister; advice that never fails.
  void register_buffer(std::byte* data, size_t nbytes);
  /// The memory may go when this returns. No request uses it.
  void unregister_buffer(std::byte* data);

  /// "disk /scratch, /fast": what bounds it (the limit or the fullest file system) and how much of that is taken.
  Bound bound() const;
  /// Bytes of blocks at most from now on; 0: as much as there is. Returns the previous value. Throws ValueError below
  /// 0.
  int64_t set_limit(int64_t bytes);
  /// Since it was made.
  DiskStats stats() const;
  /// "io_uring" or "threads".
  std::string_view engine() const;
  /// Whether every file goes past the page cache.
  bool direct() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::memory
