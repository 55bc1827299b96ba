#include "strata/dist/communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "strata/core/error.h"

namespace strata::distributed {
namespace {

// Elements of one exchange take at most this many bytes for each peer: what bounds the memory that a reduction needs.
constexpr int64_t kPieceBytes = int64_t{1} << 20;
// Up to here one round in which everybody sends everything beats two.
constexpr int64_t kSmallBytes = 2048;
// Channels of the transport. Collectives and messages of send() may be under way at once.
constexpr uint64_t kHeaders = 0, kBodies = 1, kMessageHeaders = 2, kMessages = 3, kPosted = 4;

uint64_t hash_of(std::string_view text) {  // FNV-1a
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

// The first of `count` elements that are the part of rank r of n.
int64_t begin_of(int64_t count, int r, int n) {
  return count / n * r + std::min<int64_t>(r, count % n);
}

std::byte* at(void* data, int64_t bytes) {
  return static_cast<std::byte*>(data) + bytes;
}
const std::byte* at(const void* data, int64_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}

}  // namespace

struct Communicator::Header {
  uint64_t hash, sequence, bytes;
};

struct Communicator::Part {
  int peer;
  bool sends, receives;
  const void* in = nullptr;
  size_t in_bytes = 0;
  void* out = nullptr;
  size_t out_bytes = 0;
};

Communicator::Communicator(std::unique_ptr<Transport> transport, int rank, int size)
    : transport_(std::move(transport)), rank_(rank), size_(size) {}

void Communicator::announce(std::string_view what) {
  hash_ = hash_of(what);
}

void Communicator::abort() noexcept {
  if (transport_) transport_->abort();
}

void Communicator::exchange(std::span<const Part> parts, bool collective) {
  const uint64_t headers = collective ? kHeaders : kMessageHeaders, bodies = collective ? kBodies : kMessages;
  const uint64_t sequence = collective ? ++sequence_ : 0;
  // In the order in which they are ended: transfers before the memory that they use.
  std::vector<Header> mine(parts.size()), theirs(parts.size());
  std::vector<std::unique_ptr<Transfer>> sent, received(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& p = parts[i];
    if (p.receives) received[i] = transport_->receive(p.peer, headers, &theirs[i], sizeof(Header));
    if (!p.sends) continue;
    mine[i] = {hash_, sequence, p.in_bytes};
    sent.push_back(transport_->send(p.peer, headers, &mine[i], sizeof(Header)));
    if (p.in_bytes > 0) sent.push_back(transport_->send(p.peer, bodies, p.in, p.in_bytes));
    sent_ += static_cast<int64_t>(p.in_bytes);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& p = parts[i];
    if (!p.receives) continue;
    received[i]->wait();
    if (theirs[i].hash != hash_ || (collective && theirs[i].sequence != sequence)) {
      throw std::runtime_error(cat("rank ", p.peer, " of the group is in another collective"));
    }
    if (theirs[i].bytes != p.out_bytes) {
      throw std::runtime_error(
          cat("rank ", p.peer, " of the group sends ", theirs[i].bytes, " bytes, wanted ", p.out_bytes));
    }
    received[i] = p.out_bytes > 0 ? transport_->receive(p.peer, bodies, p.out, p.out_bytes) : nullptr;
  }
  for (const auto& t : received) {
    if (t) t->wait();
  }
  for (const auto& t : sent) t->wait();
}

// `begins[r]` is the first element of `in` that is rank r's; each has as many as this rank.
void Communicator::reduce_stretch(void* out, const void* in, int64_t count, DType dtype, Reduction r,
                                  std::span<const int64_t> begins) {
  const auto element = static_cast<int64_t>(size_of(dtype));
  std::vector<std::byte> room(static_cast<size_t>((size_ - 1) * count * element));
  std::vector<Part> parts;
  std::vector<const void*> values(static_cast<size_t>(size_));
  std::byte* next = room.data();
  for (int p = 0; p < size_; ++p) {
    const std::byte* const theirs = at(in, begins[static_cast<size_t>(p)] * element);
    values[static_cast<size_t>(p)] = p == rank_ ? theirs : next;
    if (p == rank_) continue;
    const int64_t sends = begins[static_cast<size_t>(p + size_)] - begins[static_cast<size_t>(p)];
    parts.push_back({p, true, true, theirs, static_cast<size_t>(sends * element), next,
                     static_cast<size_t>(count * element)});
    next += count * element;
  }
  exchange(parts);
  reduce_parts(r, dtype, values, out, count);
}

void Communicator::all_reduce(void* data, int64_t count, DType dtype, Reduction r) {
  const auto element = static_cast<int64_t>(size_of(dtype));
  if (size_ == 1) return;
  if (count * element <= kSmallBytes) {
    const auto bytes = static_cast<size_t>(count * element);
    std::vector<std::byte> all(bytes * static_cast<size_t>(size_));
    all_gather(all.data(), data, bytes);
    std::vector<const void*> values;
    for (int p = 0; p < size_; ++p) values.push_back(all.data() + bytes * static_cast<size_t>(p));
    reduce_parts(r, dtype, values, data, count);
    return;
  }
  const int64_t piece = kPieceBytes / element * size_;
  for (int64_t from = 0; from < count; from += piece) {
    const int64_t n = std::min(piece, count - from);
    std::vector<int64_t> begins(static_cast<size_t>(2 * size_));
    for (int p = 0; p < size_; ++p) {
      begins[static_cast<size_t>(p)] = begin_of(n, p, size_);
      begins[static_cast<size_t>(p + size_)] = begin_of(n, p + 1, size_);
    }
    std::byte* const stretch = at(data, from * element);
    const int64_t own = begins[static_cast<size_t>(rank_)];
    reduce_stretch(at(stretch, own * element), stretch, begins[static_cast<size_t>(rank_ + size_)] - own, dtype, r,
                   begins);
    std::vector<Part> parts;
    for (int p = 0; p < size_; ++p) {
      if (p == rank_) continue;
      const int64_t b = begins[static_cast<size_t>(p)], e = begins[static_cast<size_t>(p + size_)];
      parts.push_back({p, true, true, at(stretch, own * element),
                       static_cast<size_t>((begins[static_cast<size_t>(rank_ + size_)] - own) * element),
                       at(stretch, b * element), static_cast<size_t>((e - b) * element)});
    }
    exchange(parts);
  }
}

void Communicator::reduce(void* data, int64_t count, DType dtype, Reduction r, int root) {
  const auto element = static_cast<int64_t>(size_of(dtype));
  if (size_ == 1) return;
  const int64_t piece = kPieceBytes / element;
  for (int64_t from = 0; from < count || from == 0; from += piece) {
    const int64_t n = std::min(piece, count - from);
    const auto bytes = static_cast<size_t>(n * element);
    std::byte* const stretch = at(data, from * element);
    if (rank_ != root) {
      const Part part{root, true, false, stretch, bytes};
      exchange({&part, 1});
      continue;
    }
    std::vector<std::byte> room(bytes * static_cast<size_t>(size_ - 1));
    std::vector<Part> parts;
    std::vector<const void*> values;
    for (int p = 0; p < size_; ++p) {
      if (p == root) {
        values.push_back(stretch);
        continue;
      }
      values.push_back(room.data() + bytes * parts.size());
      parts.push_back({p, false, true, nullptr, 0, room.data() + bytes * parts.size(), bytes});
    }
    exchange(parts);
    reduce_parts(r, dtype, values, stretch, n);
  }
}

void Communicator::reduce_scatter(void* out, const void* in, int64_t count, DType dtype, Reduction r) {
  const auto element = static_cast<int64_t>(size_of(dtype));
  if (size_ == 1) {
    if (count > 0) std::memcpy(out, in, static_cast<size_t>(count * element));
    return;
  }
  const int64_t piece = kPieceBytes / element;
  for (int64_t from = 0; from < count || from == 0; from += piece) {
    const int64_t n = std::min(piece, count - from);
    std::vector<int64_t> begins(static_cast<size_t>(2 * size_));
    for (int p = 0; p < size_; ++p) {
      begins[static_cast<size_t>(p)] = p * count + from;
      begins[static_cast<size_t>(p + size_)] = p * count + from + n;
    }
    reduce_stretch(at(out, from * element), in, n, dtype, r, begins);
  }
}

void Communicator::broadcast(void* data, size_t bytes, int root) {
  std::vector<Part> parts;
  if (rank_ != root) {
    parts.push_back({root, false, true, nullptr, 0, data, bytes});
  } else {
    for (int p = 0; p < size_; ++p) {
      if (p != root) parts.push_back({p, true, false, data, bytes});
    }
  }
  exchange(parts);
}

void Communicator::all_gather(void* out, const void* in, size_t bytes) {
  std::vector<Part> parts;
  for (int p = 0; p < size_; ++p) {
    std::byte* const theirs = static_cast<std::byte*>(out) + bytes * static_cast<size_t>(p);
    if (p == rank_) {
      if (theirs != in && bytes > 0) std::memcpy(theirs, in, bytes);
    } else {
      parts.push_back({p, true, true, in, bytes, theirs, bytes});
    }
  }
  exchange(parts);
}

void Communicator::all_to_all(void* out, std::span<const size_t> out_bytes, const void* in,
                              std::span<const size_t> in_bytes) {
  std::vector<Part> parts;
  auto* to = static_cast<std::byte*>(out);
  const auto* from = static_cast<const std::byte*>(in);
  for (int p = 0; p < size_; ++p) {
    const size_t gets = out_bytes[static_cast<size_t>(p)], gives = in_bytes[static_cast<size_t>(p)];
    if (p != rank_) {
      parts.push_back({p, true, true, from, gives, to, gets});
    } else if (gives != gets) {
      throw std::runtime_error(cat("this rank sends itself ", gives, " bytes, wanted ", gets));
    } else if (gives > 0) {
      std::memcpy(to, from, gives);
    }
    to += gets;
    from += gives;
  }
  exchange(parts);
}

void Communicator::send(const void* data, size_t bytes, int to) {
  const Part part{to, true, false, data, bytes};
  exchange({&part, 1}, false);
}

void Communicator::receive(void* data, size_t bytes, int from) {
  const Part part{from, false, true, nullptr, 0, data, bytes};
  exchange({&part, 1}, false);
}

std::unique_ptr<Transfer> Communicator::post_send(const void* data, size_t bytes, int to, uint64_t channel) {
  sent_ += static_cast<int64_t>(bytes);
  return transport_->send(to, kPosted + channel, data, bytes);
}

std::unique_ptr<Transfer> Communicator::post_receive(void* data, size_t bytes, int from, uint64_t channel) {
  return transport_->receive(from, kPosted + channel, data, bytes);
}

void Communicator::shift(void* out, const void* in, size_t bytes, int to, int from) {
  if (to == rank_) {
    if (bytes > 0) std::memcpy(out, in, bytes);
    return;
  }
  std::vector<Part> parts;
  if (to == from) {
    parts.push_back({to, true, true, in, bytes, out, bytes});
  } else {
    parts.push_back({to, true, false, in, bytes});
    parts.push_back({from, false, true, nullptr, 0, out, bytes});
  }
  exchange(parts);
}

void Communicator::barrier() {
  // Dissemination (Hensgen, Finkel, Manber 1988): after round k everybody knows of 2^k ranks.
  for (int step = 1; step < size_; step *= 2) {
    shift(nullptr, nullptr, 0, (rank_ + step) % size_, (rank_ - step + size_) % size_);
  }
}

}  // namespace strata::distributed
