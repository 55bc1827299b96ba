#include "strata/io/fill.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>

#include "strata/core/backend.h"
#include "strata/core/error.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/tiers.h"

namespace strata::io {
namespace {

constexpr uint64_t kPiece = uint64_t{2} << 20;  // still in the cache between the read, the checksum and the copy
constexpr size_t kThreads = 4, kSlots = 3 * kThreads;
constexpr size_t kAhead = 32;  // pieces: a disk that has as many to read at once is nearly twice as fast

struct Piece {
  uint64_t offset = 0, bytes = 0;
};

// Memory for one piece. `sent` is behind the copies out of it.
struct Slot {
  Tensor memory;
  std::map<int, std::unique_ptr<cuda::Event>> sent;
  std::byte* data() const { return static_cast<std::byte*>(memory.raw_data()); }
};

// A thread's streams, one for each card: its copies do not wait for what the program's stream does.
class Lanes {
 public:
  explicit Lanes(const std::map<int, cuda::Stream>& callers) {
    for (const auto& [device, caller] : callers) {
      streams_.emplace(device, cuda::Stream::create(device));
      streams_.at(device).wait(caller);  // the tensors' memory may still be read by what had it before
    }
  }
  // What was sent is there, or its memory could be somebody else's by then.
  ~Lanes() {
    try {
      finish();
    } catch (const Error&) {  // finish() told of it, or another error is on its way
    }
  }
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  void send(Slot& slot, const Tensor& t, size_t at, const std::byte* from, size_t bytes) {
    auto* to = static_cast<std::byte*>(t.raw_data()) + at;
    if (t.device().is_cpu() || t.tier() == memory::kUnified) {
      std::memcpy(to, from, bytes);
      return;
    }
    const cuda::Stream& stream = streams_.at(t.device().index);
    const cuda::StreamScope scope(stream);
    memory::backend(t.device()).copy_in(t.device(), to, from, bytes);
    auto& sent = slot.sent[t.device().index];
    if (!sent) sent = std::make_unique<cuda::Event>(false, t.device().index);
    sent->record(stream);
  }
  void finish() const {
    for (const auto& [device, stream] : streams_) stream.synchronize();
  }

 private:
  std::map<int, cuda::Stream> streams_;
};

class Filler {
 public:
  // With a hasher, of all bytes in [begin, end).
  Filler(const InputFile& file, std::span<const Filling> fillings, Hasher* hasher, uint64_t begin, uint64_t end)
      : file_(file), fillings_(fillings), hasher_(hasher) {
    if (hasher_) {
      cut(begin, end - begin);
    } else {
      for (const Filling& f : fillings_) cut(f.offset, static_cast<uint64_t>(f.tensor.nbytes()));
    }
    for (const Filling& f : fillings_)
      if (const Device d = f.tensor.device(); d.is_cuda() && !callers_.contains(d.index))
        callers_.emplace(d.index, cuda::current_stream(d.index));
    ready_.resize(pieces_.size());
    slots_.resize(std::min(kSlots, pieces_.size()));
  }

  void run() {
    if (pieces_.empty()) return;
    const int64_t piece = static_cast<int64_t>(
        std::max_element(pieces_.begin(), pieces_.end(), [](auto& a, auto& b) { return a.bytes < b.bytes; })->bytes);
    const Tier tier = callers_.empty() ? Tier() : Tier(Tier::pinned);
    for (Slot& s : slots_) s.memory = empty({{piece}, DType::u8, Device::cpu(), std::nullopt}, tier);
    std::vector<std::jthread> threads;
    const size_t wanted = pieces_.size() <= 2 ? 0 : std::min(kThreads, pieces_.size());  // two are not worth a thread
    try {
      while (threads.size() < wanted) threads.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // those that there are, then
    }
    if (threads.empty()) return run_alone();
    for (size_t k = 0; k < pieces_.size(); ++k) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ready_[k] || error_; });
      if (error_) break;
      lock.unlock();
      hash(k);
      lock.lock();
      passed_ = k + 1;
      changed_.notify_all();
    }
    threads.clear();  // joins them
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void cut(uint64_t offset, uint64_t bytes) {
    for (uint64_t at = 0; at < bytes; at += kPiece) pieces_.push_back({offset + at, std::min(kPiece, bytes - at)});
  }
  void run_alone() {
    Lanes lanes(callers_);
    for (size_t k = 0; k < pieces_.size(); ++k) {
      take(k, lanes);
      hash(k);
    }
    lanes.finish();
  }
  Slot& slot(size_t k) { return slots_[k % slots_.size()]; }

  // Piece k into its slot and from there to its tensors.
  void take(size_t k, Lanes& lanes) {
    Slot& s = slot(k);
    for (auto& [device, sent] : s.sent) sent->synchronize();
    if (k + kAhead < pieces_.size()) file_.will_need(pieces_[k + kAhead].offset, pieces_[k + kAhead].bytes);
    const Piece p = pieces_[k];
    file_.read(p.offset, s.data(), p.bytes);
    const auto ends_before = [](const Filling& f, uint64_t offset) {
      return f.offset + static_cast<uint64_t>(f.tensor.nbytes()) <= offset;
    };
    auto f = std::lower_bound(fillings_.begin(), fillings_.end(), p.offset, ends_before);
    for (; f != fillings_.end() && f->offset < p.offset + p.bytes; ++f) {
      const uint64_t begin = std::max(p.offset, f->offset),
                     end = std::min(p.offset + p.bytes, f->offset + static_cast<uint64_t>(f->tensor.nbytes()));
      if (begin < end) lanes.send(s, f->tensor, begin - f->offset, s.data() + (begin - p.offset), end - begin);
    }
  }
  void hash(size_t k) {
    if (hasher_) hasher_->update(slot(k).data(), pieces_[k].bytes);
  }

  void work() {
    try {
      Lanes lanes(callers_);
      for (;;) {
        std::unique_lock lock(mutex_);
        const size_t k = next_++;
        if (k >= pieces_.size() || error_) break;
        // The slot is free when the piece before this one in it has been hashed.
        changed_.wait(lock, [&] { return k < passed_ + slots_.size() || error_; });
        if (error_) break;
        lock.unlock();
        take(k, lanes);
        lock.lock();
        ready_[k] = true;
        changed_.notify_all();
      }
      lanes.finish();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      changed_.notify_all();
    }
  }

  const InputFile& file_;
  std::span<const Filling> fillings_;
  Hasher* hasher_;
  std::vector<Piece> pieces_;
  std::map<int, cuda::Stream> callers_;
  std::vector<Slot> slots_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<char> ready_;
  size_t next_ = 0, passed_ = 0;
  std::exception_ptr error_;
};

bool is_movable(const Filling& f) {
  return f.tensor.storage()->backend().bytes == memory::Bytes::movable;
}

}  // namespace

void fill_tensors(const InputFile& file, const std::vector<Filling>& fillings, Hasher* hasher) {
  for (const Filling& f : fillings)  // the host writes there: nobody else may
    if (f.tensor.tier() == memory::kUnified) cuda::current_stream(f.tensor.device().index).synchronize();
  if (std::none_of(fillings.begin(), fillings.end(), is_movable)) {
    Filler(file, fillings, hasher, 0, file.size()).run();
    return;
  }
  // What moves is near while it is filled: stretch by stretch, so that a file may be larger than the memory near.
  constexpr uint64_t kStretch = uint64_t{64} << 20;
  uint64_t begin = 0;
  for (size_t first = 0; first < fillings.size() || begin < file.size();) {
    std::vector<Pin> pins;
    uint64_t end = begin;
    size_t past = first;
    for (; past < fillings.size() && (past == first || end - begin < kStretch); ++past) {
      try {
        pins.emplace_back(fillings[past].tensor);
      } catch (const MemoryError&) {
        if (pins.empty()) throw;
        break;
      }
      end = fillings[past].offset + static_cast<uint64_t>(fillings[past].tensor.nbytes());
    }
    if (past == fillings.size()) end = file.size();
    Filler(file, std::span(fillings).subspan(first, past - first), hasher, begin, end).run();
    begin = end;
    first = past;
  }
}

}  // namespace strata::io
