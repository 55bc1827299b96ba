#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "strata/core/error.h"
#include "strata/memory/disk_core.h"

namespace strata::memory {
namespace {

// A device that says "later" so often in a row is not going to.
constexpr int kMostIdle = 1000;

// Calls use(where in the piece, where in the request's memory, bytes) for what the piece has of the bytes [from,
// from + nbytes).
template <class Use>
void common_bytes(const DiskPiece& p, int64_t from, size_t nbytes, Use&& use) {
  const int64_t a = std::max(p.at, from);
  const int64_t b = std::min(p.at + static_cast<int64_t>(p.size), from + static_cast<int64_t>(nbytes));
  if (a < b) use(p.memory + (a - p.at), a - from, static_cast<size_t>(b - a));
}

void copy_in(const DiskPiece& p) {
  const DiskRequest& r = *p.request;
  common_bytes(p, r.from, r.nbytes, [&](std::byte* at, int64_t i, size_t n) { std::memcpy(at, r.data + i, n); });
}

void copy_out(const DiskPiece& p) {
  const DiskRequest& r = *p.request;
  const int64_t first = p.at - static_cast<int64_t>(r.row_bytes);  // rows from here on end before the piece begins
  auto row = std::upper_bound(r.rows.begin(), r.rows.end(), first,
                              [](int64_t from, const DiskRequest::Row& row) { return from < row.from; });
  for (; row != r.rows.end() && row->from < p.at + static_cast<int64_t>(p.size); ++row)
    common_bytes(p, row->from, r.row_bytes,
                 [&](const std::byte* at, int64_t i, size_t n) { std::memcpy(row->to + i, at, n); });
}

}  // namespace

void DiskNotes::starts(size_t lane) {
  const std::lock_guard lock(mutex_);
  if (parts_[lane].begin == 0) parts_[lane].begin = host_seconds();
}
void DiskNotes::ends(const DiskPiece& piece) {
  const std::lock_guard lock(mutex_);
  parts_[piece.lane].end = host_seconds();
  parts_[piece.lane].bytes += static_cast<int64_t>(piece.size);
}

DiskLane::DiskLane(const DiskOptions& options, const std::string& directory, const MakeDiskEngine& make,
                   void (*ended)(void*, DiskRequest&), void* owner)
    : ended_(ended), owner_(owner), file_(directory, options.direct), slots_(options.depth) {
  engine_ = make(options, file_.fd(), *this);
  // As many again as are with the system: their pages are looked at when the system has the next ones already. What is
  // never used takes no memory.
  const size_t each = std::min(options.request, kMostBounced), n = static_cast<size_t>(options.depth) * 2 + 1;
  void* memory = ::mmap(nullptr, each * n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check<MemoryError>(memory != MAP_FAILED, "DiskStore", "no memory for ", n, " buffers of ", each, " bytes");
  bounces_ = static_cast<std::byte*>(memory);
  bounces_bytes_ = each * n;
  for (size_t i = n; i-- > 0;) free_bounces_.push_back(bounces_ + i * each);
  // Those that are used first: as many as an engine with one thread needs, and no more than is worth their fixed pages.
  engine_->register_buffer(bounces_, each * (static_cast<size_t>(std::min(options.depth, 64)) + 1));
}

DiskLane::~DiskLane() {
  engine_.reset();
  if (bounces_) ::munmap(bounces_, bounces_bytes_);
}

void DiskLane::enqueue(std::span<DiskPiece* const> pieces) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.insert(waiting_.end(), pieces.begin(), pieces.end());
  }
  next(0);
}

// Hands the system as many of those that wait as it may have.
void DiskLane::next(int more_slots) {
  std::vector<DiskTransfer*> start;
  std::vector<DiskPiece*> skip;
  {
    const std::lock_guard lock(mutex_);
    slots_ += more_slots;
    while (slots_ > 0 && !waiting_.empty()) {
      DiskPiece* p = waiting_.front();
      waiting_.pop_front();
      // Its request has failed: nobody wants the rest.
      if (p->request->failed.load(std::memory_order_relaxed)) {
        skip.push_back(p);
      } else {
        --slots_;
        start.push_back(p);
      }
    }
  }
  if (!start.empty()) engine_->submit(start);
  for (DiskPiece* p : skip) end(*p, {});
}

void DiskLane::again(DiskPiece& piece) {
  DiskTransfer* t = &piece;
  engine_->submit({&t, 1});
}

void DiskLane::starting(DiskTransfer& t) {
  auto& p = static_cast<DiskPiece&>(t);
  if (p.ready) return;
  p.ready = true;
  if (p.request->notes) p.request->notes->starts(p.lane);
  if (p.bounced) {
    const std::lock_guard lock(mutex_);
    p.memory = p.data = free_bounces_.back();
    free_bounces_.pop_back();
  }
  if (!p.request->write) return;
  if (p.fill) {
    const uint64_t* sums = p.request->block->sums.get();
    if (!sums || sums[p.at / kDiskPage] != kNeverWritten) return;
    t.write = true;  // nothing to read first
  }
  if (p.bounced) {
    std::memset(p.memory, 0, p.size);
    copy_in(p);
  }
  make_sums(p);
}

void DiskLane::finished(DiskTransfer& t, int64_t result) {
  auto& p = static_cast<DiskPiece&>(t);
  const bool later = result == -EINTR || result == -EAGAIN;
  // O_DIRECT goes on at a page.
  size_t got = result > 0 ? static_cast<size_t>(result) : 0;
  if (got < t.nbytes && file_.direct()) got -= got % kDiskPage;
  const bool done = got == t.nbytes;
  p.idle = got == 0 ? p.idle + 1 : 0;
  const bool give_up = !done && ((result < 0 && !later) || (result == 0 && !t.write) || p.idle > kMostIdle);
  {
    const std::lock_guard lock(mutex_);
    ++(t.write ? stats_.writes : stats_.reads);
    (t.write ? stats_.bytes_written : stats_.bytes_read) += static_cast<int64_t>(got);
    if (!done && !give_up) ++stats_.retried;
  }
  if (give_up) {
    next(1);
    const std::string cause = result < 0    ? std::generic_category().message(static_cast<int>(-result))
                              : result == 0 ? "the file ends there"
                                            : "the system does not get on with it";
    end(p, failure(p, cause));
    return;
  }
  t.offset += static_cast<int64_t>(got);
  t.data += got;
  t.nbytes -= got;
  if (!done) return again(p);
  if (p.fill && !t.write) {
    if (const std::string wrong = wrong_pages(p); !wrong.empty()) {
      next(1);
      return end(p, wrong);
    }
    copy_in(p);
    make_sums(p);
    t.write = true;
    t.offset = p.file_offset;
    t.data = p.memory;
    t.nbytes = p.size;
    return again(p);
  }
  next(1);
  std::string wrong;
  if (!p.request->write) {
    wrong = wrong_pages(p);
    if (wrong.empty() && p.bounced) copy_out(p);
  }
  end(p, wrong);
}

// The piece is gone when this returns.
void DiskLane::end(DiskPiece& p, const std::string& error) {
  if (p.bounced && p.ready) {
    const std::lock_guard lock(mutex_);
    free_bounces_.push_back(p.memory);
  }
  DiskRequest& r = *p.request;
  if (r.notes && p.ready) r.notes->ends(p);
  if (!error.empty() && !r.failed.exchange(true)) r.error = error;
  if (r.left.fetch_sub(1, std::memory_order_acq_rel) == 1) ended_(owner_, r);
}

void DiskLane::make_sums(const DiskPiece& p) {
  uint64_t* sums = p.request->block->sums.get();
  if (!sums) return;
  for (size_t i = 0; i < p.size; i += kDiskPage) sums[(p.at + i) / kDiskPage] = page_sum(p.memory + i);
}

std::string DiskLane::wrong_pages(const DiskPiece& p) const {
  const uint64_t* sums = p.request->block->sums.get();
  if (!sums) return {};
  for (size_t i = 0; i < p.size; i += kDiskPage) {
    const uint64_t written = sums[(p.at + i) / kDiskPage];
    if (written == page_sum(p.memory + i)) continue;
    const char* why = "this page is not what was written: its checksum differs";
    if (written == kNeverWritten) why = "this page was never written";
    if (written == kLost) why = "a write of this page has failed";
    return cat("reading ", file_.directory(), ", byte ", p.file_offset + static_cast<int64_t>(i), " of its file (byte ",
               p.at + static_cast<int64_t>(i), " of a block of ", p.request->block->nbytes, "): ", why);
  }
  return {};
}

std::string DiskLane::failure(const DiskPiece& p, std::string_view cause) const {
  return cat(p.write ? "writing " : "reading ", file_.directory(), ", byte ", p.offset, " of its file (byte ",
             p.at + (p.offset - p.file_offset), " of a block of ", p.request->block->nbytes, "): ", cause);
}

void DiskLane::add_to(DiskStats& s) const {
  const std::lock_guard lock(mutex_);
  s.bytes_read += stats_.bytes_read;
  s.bytes_written += stats_.bytes_written;
  s.reads += stats_.reads;
  s.writes += stats_.writes;
  s.retried += stats_.retried;
}

}  // namespace strata::memory
