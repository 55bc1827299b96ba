#pragma once
// What a DiskStore is inside: blocks and their order (disk_core.cpp), requests cut into pieces (disk_pieces.cpp),
// pieces on their way through an engine (disk_lane.cpp). docs/design/tiers.md has the picture.

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "strata/core/error.h"
#include "strata/memory/disk_engine.h"
#include "strata/memory/disk_file.h"
#include "strata/memory/disk_store.h"
#include "strata/memory/transfers.h"

namespace strata::memory {

/// `n` rounded up to whole pages.
constexpr size_t whole_pages(size_t n) {
  return (n + kDiskPage - 1) / kDiskPage * kDiskPage;
}
/// In place of a page's checksum.
inline constexpr uint64_t kNeverWritten = 0, kLost = 1;
/// XXH3 of a page, and never one of these.
uint64_t page_sum(const std::byte* page);
/// Bytes of a piece that goes by way of a buffer, at most.
inline constexpr size_t kMostBounced = size_t{256} << 10;

struct DiskRequest;
class DiskLane;

/// Pages of a block on their way; `DiskTransfer` is what is left of them for the system to do.
struct DiskPiece : DiskTransfer {
  DiskRequest* request = nullptr;
  int64_t at = 0;   ///< byte of the block where it begins: a page does
  size_t size = 0;  ///< of all of it: whole pages
  int64_t file_offset = 0;
  size_t lane = 0;
  std::byte* memory = nullptr;  ///< the caller's, or the bounce buffer that it has while it is under way
  bool bounced = false;
  bool fill = false;  ///< a page of which a part is written: the rest has to be read first
  bool ready = false;
  int idle = 0;  ///< answers in a row that brought it no further
};

/// What a TransferLog is told of a request: its part in each file.
class DiskNotes {
 public:
  explicit DiskNotes(size_t lanes) : name_(moved_name()), asked_(host_seconds()), parts_(lanes) {}
  void starts(size_t lane);
  void ends(const DiskPiece& piece);
  /// `directory(lane)` names the file's.
  template <class F>
  void tell(bool write, F&& directory) const {
    for (size_t i = 0; i < parts_.size(); ++i)
      if (const Part& p = parts_[i]; p.bytes > 0)
        note_transfer({TransferKind::disk, cat(write ? "write " : "read ", directory(i)), name_, p.begin, p.end,
                       p.bytes, p.begin - asked_});
  }

 private:
  struct Part {
    double begin = 0, end = 0;
    int64_t bytes = 0;
  };
  const std::string name_;
  const double asked_;
  std::mutex mutex_;
  std::vector<Part> parts_;
};

/// What a Ticket speaks of.
struct DiskRequest {
  DiskStore::Block* block = nullptr;
  bool write = false;
  int64_t first = 0, end = 0;  ///< bytes of the block that it concerns: whole pages

  struct Row {
    int64_t from;
    std::byte* to;
  };
  std::vector<Row> rows;  ///< of a read: ordered by `from`, each of row_bytes
  size_t row_bytes = 0;
  const std::byte* data = nullptr;  ///< of a write: bytes [from, from + nbytes)
  int64_t from = 0;
  size_t nbytes = 0;

  std::vector<DiskPiece> pieces;
  std::atomic<size_t> left{0};  ///< pieces that have not ended
  std::atomic<bool> failed{false};
  std::unique_ptr<DiskNotes> notes;  ///< where somebody listens
  std::string error;                 ///< set by whoever set `failed`, read when it is done
  std::atomic<bool> is_done{false};

  // Under the core's lock: the block's unfinished requests, in the order in which they were made.
  DiskRequest *before = nullptr, *after = nullptr;
  int behind = 0;  ///< of those before it, how many have to end first
  std::shared_ptr<DiskRequest> self;
};

/// What DiskStore::Block is.
struct DiskStore::Block {
  size_t nbytes = 0;             ///< as it was asked for
  size_t first_file = 0;         ///< where its first stripe is
  std::vector<int64_t> offsets;  ///< in each file, from the first one on
  struct Free {
    void operator()(uint64_t* p) const { std::free(p); }
  };
  std::unique_ptr<uint64_t[], Free> sums;  ///< of each page; null without checksums
  DiskRequest *oldest = nullptr, *newest = nullptr;
  int writes = 0;  ///< of its unfinished requests
  bool given_back = false;
};

/// A file with its engine: at most `depth` pieces are with the system, the others wait.
class DiskLane final : public DiskSink {
 public:
  DiskLane(const DiskOptions& options, const std::string& directory, const MakeDiskEngine& make,
           void (*ended)(void* owner, DiskRequest& r), void* owner);
  ~DiskLane();
  DiskLane(const DiskLane&) = delete;

  void enqueue(std::span<DiskPiece* const> pieces);
  void starting(DiskTransfer& t) override;
  void finished(DiskTransfer& t, int64_t result) override;

  const UnnamedFile& file() const { return file_; }
  DiskEngine& engine() { return *engine_; }
  /// Adds its counts.
  void add_to(DiskStats& stats) const;

 private:
  void next(int more_slots);
  void again(DiskPiece& piece);
  void end(DiskPiece& piece, const std::string& error);
  // Empty, or what is wrong with the pages that were read.
  std::string wrong_pages(const DiskPiece& piece) const;
  std::string failure(const DiskPiece& piece, std::string_view cause) const;
  void make_sums(const DiskPiece& piece);

  void (*const ended_)(void*, DiskRequest&);
  void* const owner_;
  UnnamedFile file_;
  mutable std::mutex mutex_;  // of what follows
  std::deque<DiskPiece*> waiting_;
  int slots_;                     // how many more may be with the system
  std::byte* bounces_ = nullptr;  // one piece of memory, cut into buffers
  size_t bounces_bytes_ = 0;
  std::vector<std::byte*> free_bounces_;
  DiskStats stats_;
  std::unique_ptr<DiskEngine> engine_;  // the last member: its threads end first
};

/// The store. Its members are DiskStore's, whose comments hold.
class DiskCore {
 public:
  using Block = DiskStore::Block;
  using Request = std::shared_ptr<DiskRequest>;

  explicit DiskCore(DiskOptions options, const MakeDiskEngine& make = make_disk_engine);
  ~DiskCore();
  DiskCore(const DiskCore&) = delete;

  Block* allocate(size_t nbytes);
  void deallocate(Block* block);
  Request read(const Block* block, std::byte* to, size_t nbytes, size_t from);
  Request write(Block* block, const std::byte* data, size_t nbytes, size_t at);
  Request read_rows(const Block* block, std::byte* to, size_t stride_bytes, const int64_t* rows, size_t n,
                    size_t row_bytes);
  static void wait(const Request& request);
  void register_buffer(std::byte* data, size_t nbytes);
  void unregister_buffer(std::byte* data);
  Bound bound() const;
  int64_t set_limit(int64_t bytes);
  DiskStats stats() const;
  std::string_view engine() const;
  bool direct() const;

 private:
  struct Time {
    int under_way = 0;
    int64_t since = 0, total = 0;  // nanoseconds
    void begin();
    void end();
    double seconds() const;
  };
  struct Place {
    size_t lane;
    int64_t offset;  // in its file
    size_t nbytes;   // that follow each other there
  };
  Place place(const Block& block, int64_t at) const;
  int64_t bytes_in_file(size_t nbytes, size_t order) const;
  void plan_read(DiskRequest& r) const;
  void plan_rows(DiskRequest& r, size_t stride_bytes) const;
  void plan_write(DiskRequest& r) const;
  void add_straight(DiskRequest& r, int64_t first, int64_t end, std::byte* memory) const;
  void add_bounced(DiskRequest& r, int64_t first, int64_t end, bool fill = false) const;
  void add_pieces(DiskRequest& r, int64_t first, int64_t end, size_t most, const DiskPiece& like) const;
  bool fits_straight(const std::byte* p) const;
  Request begin(Request request);
  void launch(DiskRequest& r);
  void ended(DiskRequest& r);
  Time& time_of(const DiskRequest& r) { return r.write ? writing_ : reading_; }
  void free_room(const Block& block, size_t parts);
  int take_room(size_t lane, int64_t nbytes, int64_t& offset);
  int64_t backed_and_free() const;
  void release_backed();

  DiskOptions options_;
  std::string names_;         // of the directories
  mutable std::mutex mutex_;  // of requests, blocks and the times
  std::condition_variable none_left_;
  int64_t unfinished_ = 0;
  std::unordered_map<const Block*, std::unique_ptr<Block>> blocks_;
  Time reading_, writing_;
  mutable std::mutex room_mutex_;  // of what follows; never together with the other
  std::vector<FreeExtents> free_;  // of each file
  int64_t limit_ = 0, taken_ = 0;
  size_t next_file_ = 0;
  bool direct_ = true;
  size_t alignment_ = 1;                          // of memory that whole pages go straight to
  std::vector<std::unique_ptr<DiskLane>> lanes_;  // the last member: engines end first
};

}  // namespace strata::memory
