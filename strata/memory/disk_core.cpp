#include "strata/memory/disk_core.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <map>
#include <numeric>
#include <system_error>

#include "strata/core/error.h"
#include "strata/memory/budget.h"

namespace strata::memory {
namespace {

int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Whether one has to wait for the other.
bool clash(const DiskRequest& a, const DiskRequest& b) {
  return (a.write || b.write) && a.first < b.end && b.first < a.end;
}

void check_range(const DiskStore::Block* block, size_t from, size_t nbytes, std::string_view what) {
  check(block != nullptr, "DiskStore", what, " of no block");
  check(from <= block->nbytes && nbytes <= block->nbytes - from, "DiskStore", what, " of bytes [", from, ", ", from,
        " + ", nbytes, ") of a block of ", block->nbytes);
}

}  // namespace

void DiskCore::Time::begin() {
  if (under_way++ == 0) since = now();
}
void DiskCore::Time::end() {
  if (--under_way == 0) total += now() - since;
}
double DiskCore::Time::seconds() const {
  return static_cast<double>(total + (under_way > 0 ? now() - since : 0)) * 1e-9;
}

DiskCore::DiskCore(DiskOptions options, const MakeDiskEngine& make) : options_(std::move(options)) {
  const DiskOptions& o = options_;
  check(!o.directories.empty(), "DiskStore", "needs a directory at least");
  check(o.limit >= 0, "DiskStore", "needs a limit of bytes, or 0 for none; got ", o.limit);
  check(o.stripe > 0 && o.stripe % kDiskPage == 0, "DiskStore", "needs a stripe of whole pages of ", kDiskPage,
        " bytes; got ", o.stripe);
  check(o.request > 0 && o.request % kDiskPage == 0 && o.request <= (size_t{1} << 30), "DiskStore",
        "needs requests of whole pages of ", kDiskPage, " bytes, at most 1 GiB; got ", o.request);
  check(o.depth > 0 && o.depth <= 4096, "DiskStore", "needs a depth of 1 to 4096 requests; got ", o.depth);
  limit_ = o.limit;
  for (const std::string& directory : o.directories) {
    names_ += (names_.empty() ? "" : ", ") + directory;
    lanes_.push_back(std::make_unique<DiskLane>(
        o, directory, make, [](void* self, DiskRequest& r) { static_cast<DiskCore*>(self)->ended(r); }, this));
    direct_ = direct_ && lanes_.back()->file().direct();
    alignment_ = std::max(alignment_, lanes_.back()->file().memory_alignment());
  }
  free_.resize(lanes_.size());
}

DiskCore::~DiskCore() {
  std::unique_lock lock(mutex_);
  none_left_.wait(lock, [&] { return unfinished_ == 0; });
}

int64_t DiskCore::backed_and_free() const {
  return std::accumulate(free_.begin(), free_.end(), int64_t{0},
                         [](int64_t sum, const FreeExtents& f) { return sum + f.backed_bytes(); });
}
void DiskCore::release_backed() {
  for (size_t i = 0; i < lanes_.size(); ++i)
    free_[i].release_backed([&](int64_t offset, int64_t nbytes) { lanes_[i]->engine().release(offset, nbytes); });
}

// 0 or errno.
int DiskCore::take_room(size_t lane, int64_t nbytes, int64_t& offset) {
  for (bool released = false;;) {
    const FreeExtents::Taken taken = free_[lane].take(nbytes);
    offset = taken.offset;
    if (taken.backed) return 0;
    // What blocks left behind would keep the files larger than the limit.
    if (!released && limit_ > 0 && taken_ + backed_and_free() + nbytes > limit_) {
      release_backed();
      released = true;
    }
    DiskEngine& engine = lanes_[lane]->engine();
    const int error = engine.reserve(offset, nbytes);
    if (error == 0) return 0;
    engine.release(offset, nbytes);  // the part of it that there was
    free_[lane].give(offset, nbytes, false);
    if (released || backed_and_free() == 0) return error;
    release_backed();
    released = true;
  }
}

DiskStore::Block* DiskCore::allocate(size_t nbytes) {
  check<MemoryError>(nbytes <= (size_t{1} << 60), "DiskStore", "cannot get ", nbytes, " bytes on disk ", names_);
  const auto pages = static_cast<int64_t>(whole_pages(nbytes));
  auto block = std::make_unique<Block>();
  block->nbytes = nbytes;
  if (options_.checksums && pages > 0) {
    block->sums.reset(static_cast<uint64_t*>(std::calloc(static_cast<size_t>(pages) / kDiskPage, sizeof(uint64_t))));
    check<MemoryError>(block->sums != nullptr, "DiskStore", "no memory for the checksums of ", bytes_text(pages));
  }
  {
    const std::lock_guard lock(room_mutex_);
    check<MemoryError>(limit_ == 0 || taken_ + pages <= limit_, "DiskStore", "cannot get ", bytes_text(pages),
                       " on disk ", names_, ": ", bytes_text(taken_), " are in use and the limit is ",
                       bytes_text(limit_));
    block->first_file = next_file_;
    for (size_t order = 0; order < lanes_.size(); ++order) {
      const size_t lane = (block->first_file + order) % lanes_.size();
      const int64_t part = bytes_in_file(nbytes, order);
      int64_t offset = 0;
      if (part > 0) {
        if (const int error = take_room(lane, part, offset); error != 0) {
          free_room(*block, order);
          const UnnamedFile& file = lanes_[lane]->file();
          throw MemoryError("DiskStore",
                            cat("cannot get ", bytes_text(part), " in ", file.directory(), ": ",
                                std::generic_category().message(error), "; its file system has ",
                                bytes_text(file.room().free), " free, and blocks here have ", bytes_text(taken_)));
        }
      }
      block->offsets.push_back(offset);
    }
    taken_ += pages;
    next_file_ = (next_file_ + 1) % lanes_.size();
  }
  Block* result = block.get();
  const std::lock_guard lock(mutex_);
  blocks_.emplace(result, std::move(block));
  return result;
}

// Of the first `parts` files of a block. Under room_mutex_.
void DiskCore::free_room(const Block& block, size_t parts) {
  for (size_t order = 0; order < parts; ++order) {
    const int64_t part = bytes_in_file(block.nbytes, order);
    if (part > 0) free_[(block.first_file + order) % lanes_.size()].give(block.offsets[order], part, true);
  }
}

void DiskCore::deallocate(Block* block) {
  std::unique_ptr<Block> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto at = blocks_.find(block);
    check(at != blocks_.end() && !block->given_back, "DiskStore", "deallocate of a block that is not the store's");
    block->given_back = true;
    if (block->oldest) return;  // the last of its requests does it
    gone = std::move(at->second);
    blocks_.erase(at);
  }
  const std::lock_guard lock(room_mutex_);
  free_room(*gone, lanes_.size());
  taken_ -= static_cast<int64_t>(whole_pages(gone->nbytes));
}

DiskCore::Request DiskCore::read(const Block* block, std::byte* to, size_t nbytes, size_t from) {
  check_range(block, from, nbytes, "read");
  auto r = std::make_shared<DiskRequest>();
  r->block = const_cast<Block*>(block);
  r->row_bytes = nbytes;
  r->rows.push_back({static_cast<int64_t>(from), to});
  r->first = static_cast<int64_t>(from / kDiskPage * kDiskPage);
  r->end = static_cast<int64_t>(whole_pages(from + nbytes));
  if (nbytes > 0) plan_read(*r);
  return begin(std::move(r));
}

DiskCore::Request DiskCore::write(Block* block, const std::byte* data, size_t nbytes, size_t at) {
  check_range(block, at, nbytes, "write");
  auto r = std::make_shared<DiskRequest>();
  r->block = block;
  r->write = true;
  r->data = data;
  r->from = static_cast<int64_t>(at);
  r->nbytes = nbytes;
  r->first = static_cast<int64_t>(at / kDiskPage * kDiskPage);
  r->end = static_cast<int64_t>(whole_pages(at + nbytes));
  if (nbytes > 0) plan_write(*r);
  return begin(std::move(r));
}

DiskCore::Request DiskCore::read_rows(const Block* block, std::byte* to, size_t stride_bytes, const int64_t* rows,
                                      size_t n, size_t row_bytes) {
  check(block != nullptr, "DiskStore", "read_rows of no block");
  const size_t most = row_bytes == 0 ? std::numeric_limits<size_t>::max() : block->nbytes / row_bytes;
  auto r = std::make_shared<DiskRequest>();
  r->block = const_cast<Block*>(block);
  r->row_bytes = row_bytes;
  r->rows.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    check(rows[i] >= 0 && static_cast<size_t>(rows[i]) < most, "DiskStore", "read_rows: row ", rows[i], " (number ", i,
          ") of a block of ", block->nbytes, " bytes, which has ", most, " rows of ", row_bytes);
    r->rows.push_back({rows[i] * static_cast<int64_t>(row_bytes), to + i * stride_bytes});
  }
  if (n > 0 && row_bytes > 0) {
    const auto before = [](const DiskRequest::Row& a, const DiskRequest::Row& b) { return a.from < b.from; };
    if (!std::is_sorted(r->rows.begin(), r->rows.end(), before)) std::sort(r->rows.begin(), r->rows.end(), before);
    r->first = r->rows.front().from / static_cast<int64_t>(kDiskPage) * static_cast<int64_t>(kDiskPage);
    r->end = static_cast<int64_t>(whole_pages(static_cast<size_t>(r->rows.back().from) + row_bytes));
    plan_rows(*r, stride_bytes);
  }
  return begin(std::move(r));
}

// Puts a request behind those for the same block that it has to wait for, or on its way.
DiskCore::Request DiskCore::begin(Request request) {
  DiskRequest& r = *request;
  if (r.pieces.empty()) {
    r.is_done = true;
    return request;
  }
  r.left = r.pieces.size();
  if (transfers_wanted()) r.notes = std::make_unique<DiskNotes>(lanes_.size());
  {
    const std::lock_guard lock(mutex_);
    Block& b = *r.block;
    check(!b.given_back, "DiskStore", "a request for a block that was given back");
    if (r.write || b.writes > 0)
      for (const DiskRequest* o = b.oldest; o; o = o->after) r.behind += clash(*o, r);
    r.before = b.newest;
    (b.newest ? b.newest->after : b.oldest) = &r;
    b.newest = &r;
    b.writes += r.write;
    r.self = request;
    ++unfinished_;
    if (r.behind > 0) return request;
    time_of(r).begin();
  }
  launch(r);
  return request;
}

// `r` may have ended when this returns.
void DiskCore::launch(DiskRequest& r) {
  const Request alive = r.self;
  std::vector<std::vector<DiskPiece*>> of_lane(lanes_.size());
  for (DiskPiece& p : r.pieces) of_lane[p.lane].push_back(&p);
  for (size_t i = 0; i < lanes_.size(); ++i)
    if (!of_lane[i].empty()) lanes_[i]->enqueue(of_lane[i]);
}

// All pieces of a request have ended.
void DiskCore::ended(DiskRequest& r) {
  Request alive;
  std::vector<DiskRequest*> ready;
  std::unique_ptr<Block> gone;
  // Which of its pages are new and which old nobody knows: all are lost until they are written again.
  if (r.write && r.failed.load(std::memory_order_relaxed) && r.block->sums)
    std::fill(r.block->sums.get() + r.first / static_cast<int64_t>(kDiskPage),
              r.block->sums.get() + r.end / static_cast<int64_t>(kDiskPage), kLost);
  if (r.notes) r.notes->tell(r.write, [&](size_t i) -> const std::string& { return lanes_[i]->file().directory(); });
  r.pieces = {};
  r.rows = {};
  {
    const std::lock_guard lock(mutex_);
    Block& b = *r.block;
    if (b.writes > 0)
      for (DiskRequest* o = r.after; o; o = o->after)
        if (clash(r, *o) && --o->behind == 0) {
          time_of(*o).begin();
          ready.push_back(o);
        }
    (r.before ? r.before->after : b.oldest) = r.after;
    (r.after ? r.after->before : b.newest) = r.before;
    b.writes -= r.write;
    time_of(r).end();
    if (b.given_back && !b.oldest) {
      const auto at = blocks_.find(&b);
      gone = std::move(at->second);
      blocks_.erase(at);
    }
    alive = std::move(r.self);
  }
  if (gone) {
    const std::lock_guard lock(room_mutex_);
    free_room(*gone, lanes_.size());
    taken_ -= static_cast<int64_t>(whole_pages(gone->nbytes));
  }
  for (DiskRequest* o : ready) launch(*o);
  r.is_done.store(true, std::memory_order_release);
  r.is_done.notify_all();
  // The last of all, because the store's destructor waits for it.
  const std::lock_guard lock(mutex_);
  if (--unfinished_ == 0) none_left_.notify_all();
}

void DiskCore::wait(const Request& request) {
  if (!request) return;
  request->is_done.wait(false, std::memory_order_acquire);
  if (request->failed.load(std::memory_order_relaxed)) throw IoError("DiskStore", request->error);
}

void DiskCore::register_buffer(std::byte* data, size_t nbytes) {
  for (const auto& lane : lanes_) lane->engine().register_buffer(data, nbytes);
}
void DiskCore::unregister_buffer(std::byte* data) {
  for (const auto& lane : lanes_) lane->engine().unregister_buffer(data);
}

Bound DiskCore::bound() const {
  std::map<uint64_t, int> files;  // on each file system
  std::vector<UnnamedFile::Room> rooms;
  for (const auto& lane : lanes_) ++files[rooms.emplace_back(lane->file().room()).device];
  // Blocks are spread evenly, so that the fullest ends it for all.
  int64_t each = std::numeric_limits<int64_t>::max();
  const std::lock_guard lock(room_mutex_);
  for (size_t i = 0; i < rooms.size(); ++i)
    each = std::min(each, rooms[i].free / files[rooms[i].device] + free_[i].backed_bytes());
  const int64_t disk = taken_ + each * static_cast<int64_t>(rooms.size());
  return {"disk " + names_, limit_ > 0 ? std::min(limit_, disk) : disk, taken_};
}

int64_t DiskCore::set_limit(int64_t bytes) {
  check(bytes >= 0, "set_limit", "needs a number of bytes, or 0 for no limit of its own; got ", bytes);
  const std::lock_guard lock(room_mutex_);
  return std::exchange(limit_, bytes);
}

DiskStats DiskCore::stats() const {
  DiskStats s;
  for (const auto& lane : lanes_) lane->add_to(s);
  const std::lock_guard lock(mutex_);
  s.seconds_reading = reading_.seconds();
  s.seconds_writing = writing_.seconds();
  return s;
}

std::string_view DiskCore::engine() const {
  return lanes_[0]->engine().name();
}
bool DiskCore::direct() const {
  return direct_;
}

}  // namespace strata::memory
