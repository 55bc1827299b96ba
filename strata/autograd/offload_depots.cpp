// Plain and page-locked memory as places for saved tensors.

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "strata/autograd/offload_depot_inl.h"
#include "strata/core/recording.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/runtime.h"

namespace strata::offload {

double host_seconds() {
  static const auto begun = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

namespace {

// What fetched bytes are called where memory is listed.
constexpr std::string_view kHolder = "offload";

Ref<Storage> new_near(Device device, size_t nbytes) {
  const memory::TagScope tag(memory::Tag::activation);
  const memory::OpScope holder(kHolder);
  return Storage::create(device, nbytes, Tier());
}

// ---- plain memory --------------------------------------------------------------------------------------------------

using Transfers = std::vector<OffloadTransfer>;

class PlainParcel final : public Parcel {
 public:
  PlainParcel(const Ref<Storage>& source, std::string name, std::shared_ptr<Transfers> done)
      : device_(source->device), nbytes_(source->nbytes), name_(std::move(name)), done_(std::move(done)) {
    const double begin = host_seconds();
    if (!device_.is_meta()) {
      bytes_ = std::make_unique_for_overwrite<std::byte[]>(nbytes_);
      std::memcpy(bytes_.get(), source->data, nbytes_);
    }
    note(begin, true);
  }
  void leave() override {}
  bool sent() override { return true; }
  void fetch() override {
    const double begin = host_seconds();
    near_ = new_near(device_, nbytes_);
    if (bytes_) std::memcpy(near_->data, bytes_.get(), nbytes_);
    note(begin, false);
  }
  Ref<Storage> take() override { return std::move(near_); }

 private:
  void note(double begin, bool out) {
    done_->push_back({begin, host_seconds(), static_cast<int64_t>(nbytes_), out, SavedPlace::host, name_});
  }
  Device device_;
  size_t nbytes_;
  std::string name_;
  std::shared_ptr<Transfers> done_;
  std::unique_ptr<std::byte[]> bytes_;
  Ref<Storage> near_;
};

class PlainDepot final : public Depot {
 public:
  std::unique_ptr<Parcel> send(const Ref<Storage>& source, const std::string& name) override {
    return std::make_unique<PlainParcel>(source, name, done_);
  }
  void take_transfers(Transfers& into) override {
    into.insert(into.end(), std::make_move_iterator(done_->begin()), std::make_move_iterator(done_->end()));
    done_->clear();
  }

 private:
  std::shared_ptr<Transfers> done_ = std::make_shared<Transfers>();
};

// ---- page-locked memory --------------------------------------------------------------------------------------------

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
    const memory::OpScope holder(kHolder);
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

class PinnedParcel final : public Parcel {
 public:
  PinnedParcel(std::shared_ptr<Pinned> shared, const Ref<Storage>& source, std::string name)
      : shared_(std::move(shared)),
        blocks_(shared_->blocks_here()),
        nbytes_(source->nbytes),
        name_(std::move(name)),
        compute_(cuda::current_stream(shared_->device.index)),
        home_(compute_),
        block_(blocks_->get(nbytes_)),
        sent_(std::make_unique<cuda::Event>(false, shared_->device.index)) {
    const cuda::Stream& out = shared_->out;
    out.wait(compute_);
    if (block_.used) block_.used->wait(out);
    Timed* times = shared_->begin(out, nbytes_, true, name_);
    {
      const cuda::StreamScope on(out);
      cuda::copy_to_pinned(alias(block_.bytes, {static_cast<int64_t>(nbytes_)}, {1}, 0),
                           strata::detail::storage_bytes(source));
    }
    if (times) times->end.record(out);
    sent_->record(out);
  }
  ~PinnedParcel() override {
    try {
      if (near_) arrived_->wait(home_);  // its memory is free for home_'s later work
      block_.used = arrived_ ? std::move(arrived_) : std::move(sent_);
      blocks_->put(std::move(block_));
    } catch (const Error&) {  // the device has failed: whoever asks next is told
    }
  }

  void leave() override { sent_->wait(compute_); }
  bool sent() override { return sent_->query(); }
  void fetch() override {
    const int device = shared_->device.index;
    const cuda::Stream& in = shared_->in;
    home_ = cuda::current_stream(device);
    near_ = new_near(shared_->device, nbytes_);
    in.wait(home_);  // work before this may still use the memory
    sent_->wait(in);
    Timed* times = shared_->begin(in, nbytes_, false, name_);
    {
      const cuda::StreamScope on(in);
      cuda::copy_bytes(near_->data, shared_->device, block_.bytes.raw_data(), Device::cpu(), nbytes_);
    }
    if (times) times->end.record(in);
    arrived_ = std::make_unique<cuda::Event>(false, device);
    arrived_->record(in);
  }
  Ref<Storage> take() override {
    const cuda::Stream here = cuda::current_stream(shared_->device.index);
    arrived_->wait(here);
    if (!(here == home_)) cuda::record_stream(strata::detail::storage_bytes(near_), here);
    return std::move(near_);
  }

 private:
  std::shared_ptr<Pinned> shared_;
  std::shared_ptr<Blocks> blocks_;
  size_t nbytes_;
  std::string name_;
  cuda::Stream compute_, home_;
  Block block_;
  std::unique_ptr<cuda::Event> sent_, arrived_;
  Ref<Storage> near_;
};

class PinnedDepot final : public Depot {
 public:
  PinnedDepot(Device device, int64_t most, bool timed) : shared_(std::make_shared<Pinned>(device, most, timed)) {}

  std::unique_ptr<Parcel> send(const Ref<Storage>& source, const std::string& name) override {
    return std::make_unique<PinnedParcel>(shared_, source, name);
  }
  void take_transfers(Transfers& into) override {
    for (const auto& c : shared_->copies) {
      c->end.synchronize();
      const auto at = [&](const cuda::Event& e) { return shared_->base_seconds + e.elapsed_ms(*shared_->base) / 1e3; };
      into.push_back({at(c->begin), at(c->end), c->bytes, c->out, SavedPlace::host, std::move(c->name)});
    }
    shared_->copies.clear();
  }
  bool quiet() override {
    for (const auto& c : shared_->copies)
      if (!c->end.query()) return false;
    return true;
  }
  int64_t host_bytes() const override { return shared_->held->load(); }

 private:
  std::shared_ptr<Pinned> shared_;
};

// ---- clocks --------------------------------------------------------------------------------------------------------

class HostClock final : public StepClock {
 public:
  void mark() override { marks_.push_back(host_seconds()); }
  bool done() override { return true; }
  std::vector<double> read() override {
    std::vector<double> times = std::exchange(marks_, {});
    for (size_t i = times.size(); i-- > 0;) times[i] -= times[0];
    return times;
  }

 private:
  std::vector<double> marks_;
};

class CardClock final : public StepClock {
 public:
  explicit CardClock(int device) : device_(device) {}
  void mark() override {
    marks_.push_back(std::make_unique<cuda::Event>(true, device_));
    marks_.back()->record(cuda::current_stream(device_));
  }
  bool done() override { return marks_.empty() || marks_.back()->query(); }
  std::vector<double> read() override {
    std::vector<double> times;
    if (!marks_.empty()) marks_.back()->synchronize();
    times.reserve(marks_.size());
    for (const auto& e : marks_) times.push_back(e->elapsed_ms(*marks_.front()) / 1e3);
    marks_.clear();
    return times;
  }

 private:
  int device_;
  std::vector<std::unique_ptr<cuda::Event>> marks_;
};

}  // namespace

std::unique_ptr<Depot> make_plain_depot() {
  return std::make_unique<PlainDepot>();
}
std::unique_ptr<Depot> make_pinned_depot(Device device, int64_t most, bool timed) {
  return std::make_unique<PinnedDepot>(device, most, timed);
}
std::unique_ptr<StepClock> make_clock(Device device) {
  if (device.is_cuda()) return std::make_unique<CardClock>(device.index);
  return std::make_unique<HostClock>();
}

}  // namespace strata::offload
