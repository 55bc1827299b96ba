#pragma once
// Copies between a card and page-locked blocks, on streams beside the computing one.

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/autograd/offload_depot_inl.h"
#include "strata/core/recording.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/runtime.h"

namespace strata::offload {

inline constexpr std::string_view kPinnedHolder = "offload";

// Bytes of page-locked memory, counted as long as they are held.
class Held {
 public:
  Held(std::shared_ptr<std::atomic<int64_t>> total, int64_t bytes) : total_(std::move(total)), bytes_(bytes) {
    *total_ += bytes_;
  }
  ~Held() { *total_ -= bytes_; }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  std::shared_ptr<std::atomic<int64_t>> total_;
  int64_t bytes_;
};

// A page-locked block, and the last work that uses it.
struct Block {
  Tensor bytes;
  std::unique_ptr<Held> held;
  std::unique_ptr<cuda::Event> used;
};

// Free blocks by size. They are handed out as soon as they are free: whoever copies into one makes its stream wait for
// what uses it, the host waits for nothing.
class Blocks {
 public:
  Blocks(std::shared_ptr<std::atomic<int64_t>> held, int64_t most) : held_(std::move(held)), most_(most) {}

  Block get(size_t nbytes) {
    if (const auto at = free_.lower_bound(nbytes); at != free_.end() && at->first <= nbytes + nbytes / 4) {
      Block b = std::move(at->second);
      free_.erase(at);
      return b;
    }
    const auto wanted = static_cast<int64_t>(nbytes);
    const auto too_much = [&] { return most_ > 0 && *held_ + wanted > most_; };
    while (too_much() && !free_.empty()) free_.erase(free_.begin());  // those of other sizes
    if (too_much())
      throw MemoryError("offload", cat(nbytes, " bytes more of page-locked memory would pass the limit of ", most_,
                                       " (host_bytes), of which ", held_->load(), " are held"));
    const memory::TagScope tag(memory::Tag::activation);
    const memory::OpScope holder(kPinnedHolder);
    const Ref<Storage> fresh = Storage::create(Device::cpu(), nbytes, Tier::pinned);
    return {strata::detail::storage_bytes(fresh), std::make_unique<Held>(held_, wanted), nullptr};
  }
  void put(Block b) {
    const auto n = static_cast<size_t>(b.bytes.nbytes());
    free_.emplace(n, std::move(b));
  }

 private:
  std::shared_ptr<std::atomic<int64_t>> held_;
  int64_t most_;
  std::multimap<size_t, Block> free_;
};

// A copy with its times.
struct Timed {
  Timed(int device, int64_t bytes, bool out, std::string name)
      : begin(true, device), end(true, device), bytes(bytes), out(out), name(std::move(name)) {}
  cuda::Event begin, end;
  int64_t bytes;
  bool out;
  std::string name;
};

// What parcels share with their depot.
struct Pinned {
  Pinned(Device device, int64_t most, bool timed)
      : device(device),
        most(most),
        timed(timed),
        out(cuda::Stream::create(device.index)),
        in(cuda::Stream::create(device.index)),
        blocks(std::make_shared<Blocks>(held, most)) {}

  // Outside of a graph, or of the graph that this thread captures: its replays use them again, so they are its own.
  std::shared_ptr<Blocks> blocks_here() {
    const uint64_t capture = cuda::capture_number();
    if (capture == 0) return blocks;
    std::shared_ptr<Blocks> own = captured.lock();
    if (capture != captured_by || !own) {
      own = std::make_shared<Blocks>(held, most);
      cuda::before_replays(own, [own] {});  // lives as long as the graph, which is all it is for
      captured = own;
      captured_by = capture;
    }
    return own;
  }
  // Copies a storage to a block of its own, beside later work of the current stream: `sent` when it is there.
  Block copy_out(const Ref<Storage>& source, const std::string& name, cuda::Event& sent) {
    Block block = blocks_here()->get(source->nbytes);
    out.wait(cuda::current_stream(device.index));
    if (block.used) block.used->wait(out);
    Timed* times = begin(out, source->nbytes, true, name);
    {
      const cuda::StreamScope on(out);
      cuda::copy_to_pinned(alias(block.bytes, {static_cast<int64_t>(source->nbytes)}, {1}, 0),
                           strata::detail::storage_bytes(source));
    }
    if (times) times->end.record(out);
    sent.record(out);
    return block;
  }
  // Copies a block to `near`, which was made on `home`, when `ready` has passed: `arrived` when it is there.
  void copy_in(const Storage& near, const cuda::Stream& home, const Block& block, const cuda::Event* ready,
               const std::string& name, cuda::Event& arrived) {
    in.wait(home);  // work before this may still use the memory
    if (ready) ready->wait(in);
    Timed* times = begin(in, near.nbytes, false, name);
    {
      const cuda::StreamScope on(in);
      cuda::copy_bytes(near.data, device, block.bytes.raw_data(), Device::cpu(), near.nbytes);
    }
    if (times) times->end.record(in);
    arrived.record(in);
  }
  // Later work of the current stream finds what copy_in() brought.
  void wait_for(const Ref<Storage>& near, const cuda::Stream& home, const cuda::Event& arrived) const {
    const cuda::Stream here = cuda::current_stream(device.index);
    arrived.wait(here);
    if (!(here == home)) cuda::record_stream(strata::detail::storage_bytes(near), here);
  }
  void take_transfers(std::vector<OffloadTransfer>& into) {
    for (const auto& c : copies) {
      c->end.synchronize();
      const auto at = [&](const cuda::Event& e) { return base_seconds + e.elapsed_ms(*base) / 1e3; };
      into.push_back({at(c->begin), at(c->end), c->bytes, c->out, SavedPlace::host, std::move(c->name)});
    }
    copies.clear();
  }
  bool quiet() const {
    return std::all_of(copies.begin(), copies.end(), [](const auto& c) { return c->end.query(); });
  }

  // The beginning of a copy on `stream`; nullptr where nobody asks for times.
  Timed* begin(const cuda::Stream& stream, size_t bytes, bool is_out, const std::string& name) {
    if (!timed || cuda::capturing()) return nullptr;
    if (!base) {
      base = std::make_unique<cuda::Event>(true, device.index);
      base->record(stream);
      base_seconds = host_seconds();
    }
    copies.push_back(std::make_unique<Timed>(device.index, static_cast<int64_t>(bytes), is_out, name));
    copies.back()->begin.record(stream);
    return copies.back().get();
  }

  Device device;
  int64_t most;
  bool timed;
  cuda::Stream out, in;
  std::shared_ptr<std::atomic<int64_t>> held = std::make_shared<std::atomic<int64_t>>(0);
  std::shared_ptr<Blocks> blocks;
  std::weak_ptr<Blocks> captured;
  uint64_t captured_by = 0;
  std::unique_ptr<cuda::Event> base;
  double base_seconds = 0;
  std::vector<std::unique_ptr<Timed>> copies;
};

}  // namespace strata::offload
