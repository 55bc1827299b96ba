// How a request is cut into pieces: whole pages of one file, contiguous there and in memory.

#include <algorithm>

#include "strata/core/error.h"
#include "strata/memory/disk_core.h"

namespace strata::memory {
namespace {
constexpr int64_t kPage = kDiskPage;

int64_t page_down(int64_t n) {
  return n / kPage * kPage;
}
int64_t page_up(int64_t n) {
  return page_down(n + kPage - 1);
}
}  // namespace

DiskCore::Place DiskCore::place(const Block& block, int64_t at) const {
  const size_t files = lanes_.size();
  if (files == 1) return {0, block.offsets[0] + at, block.nbytes + kDiskPage};
  const size_t stripe = static_cast<size_t>(at) / options_.stripe, within = static_cast<size_t>(at) % options_.stripe;
  const size_t order = stripe % files;
  return {(block.first_file + order) % files,
          block.offsets[order] + static_cast<int64_t>(stripe / files * options_.stripe + within),
          options_.stripe - within};
}

int64_t DiskCore::bytes_in_file(size_t nbytes, size_t order) const {
  const size_t all = whole_pages(nbytes), files = lanes_.size();
  if (files == 1) return static_cast<int64_t>(all);
  const size_t stripes = (all + options_.stripe - 1) / options_.stripe;
  if (order >= stripes) return 0;
  const size_t mine = (stripes - order + files - 1) / files * options_.stripe;
  const bool has_last = (stripes - 1) % files == order;
  return static_cast<int64_t>(has_last ? mine - (stripes * options_.stripe - all) : mine);
}

bool DiskCore::fits_straight(const std::byte* p) const {
  return reinterpret_cast<uintptr_t>(p) % alignment_ == 0;
}

// Adds [first, end), at most `most` bytes a piece.
void DiskCore::add_pieces(DiskRequest& r, int64_t first, int64_t end, size_t most, const DiskPiece& like) const {
  for (int64_t at = first; at < end;) {
    const Place where = place(*r.block, at);
    DiskPiece& p = r.pieces.emplace_back(like);
    p.request = &r;
    p.at = at;
    p.size = std::min({static_cast<size_t>(end - at), where.nbytes, most});
    p.lane = where.lane;
    p.file_offset = where.offset;
    if (!p.bounced) p.memory += at - first;
    p.offset = where.offset;
    p.data = p.memory;
    p.nbytes = p.size;
    p.write = r.write && !p.fill;
    at += static_cast<int64_t>(p.size);
  }
}
void DiskCore::add_straight(DiskRequest& r, int64_t first, int64_t end, std::byte* memory) const {
  DiskPiece like;
  like.memory = memory;
  add_pieces(r, first, end, options_.request, like);
}
void DiskCore::add_bounced(DiskRequest& r, int64_t first, int64_t end, bool fill) const {
  DiskPiece like;
  like.bounced = true;
  like.fill = fill;
  add_pieces(r, first, end, std::min(options_.request, kMostBounced), like);
}

void DiskCore::plan_read(DiskRequest& r) const {
  const int64_t from = r.rows[0].from, to = from + static_cast<int64_t>(r.row_bytes);
  const int64_t head = page_up(from), tail = page_down(to);
  if (head >= tail || !fits_straight(r.rows[0].to + (head - from))) return add_bounced(r, r.first, r.end);
  add_bounced(r, r.first, head);
  add_straight(r, head, tail, r.rows[0].to + (head - from));
  add_bounced(r, tail, r.end);
}

void DiskCore::plan_rows(DiskRequest& r, size_t stride_bytes) const {
  if (r.row_bytes % kDiskPage == 0 && fits_straight(r.rows[0].to) && fits_straight(r.rows[0].to + stride_bytes)) {
    for (const DiskRequest::Row& row : r.rows)
      add_straight(r, row.from, row.from + static_cast<int64_t>(r.row_bytes), row.to);
    return;
  }
  int64_t first = 0, end = -1;
  for (const DiskRequest::Row& row : r.rows) {
    const int64_t a = page_down(row.from), b = page_up(row.from + static_cast<int64_t>(r.row_bytes));
    if (end < 0 || a > end) {
      add_bounced(r, first, end);
      first = a;
    }
    end = std::max(end, b);
  }
  add_bounced(r, first, end);
}

void DiskCore::plan_write(DiskRequest& r) const {
  const int64_t from = r.from, to = from + static_cast<int64_t>(r.nbytes);
  const int64_t head = page_up(from);
  // Behind the block's last byte nobody has anything: its page is written whole.
  const bool reaches_end = static_cast<size_t>(to) == r.block->nbytes;
  const int64_t tail = std::max(page_down(to), head);
  add_bounced(r, r.first, head, true);
  auto* data = const_cast<std::byte*>(r.data + (head - from));
  if (fits_straight(data))
    add_straight(r, head, tail, data);
  else
    add_bounced(r, head, tail);
  add_bounced(r, tail, r.end, !reaches_end);
}

}  // namespace strata::memory
