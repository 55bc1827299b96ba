// A disk as a place for saved tensors.

#include <exception>
#include <list>
#include <utility>

#include "strata/autograd/offload_pinned_inl.h"
#include "strata/memory/disk_store.h"

namespace strata::offload {
namespace {

using memory::DiskStore;
using Transfers = std::vector<OffloadTransfer>;

// What parcels share with their depot.
struct Disk {
  explicit Disk(std::shared_ptr<DiskStore> s) : store(std::move(s)) {}
  std::shared_ptr<DiskStore> store;
  Transfers done;
};

// A block of the store, with at most one request under way.
class DiskBlock {
 public:
  DiskBlock(std::shared_ptr<Disk> disk, size_t nbytes, std::string name)
      : disk_(std::move(disk)), block_(disk_->store->allocate(nbytes)), nbytes_(nbytes), name_(std::move(name)) {}
  ~DiskBlock() {
    try {
      wait();
    } catch (const Error&) {  // nobody wants the bytes
    }
    disk_->store->deallocate(block_);
  }
  DiskBlock(const DiskBlock&) = delete;

  void write(const std::byte* from) { begin(true, disk_->store->write(block_, from, nbytes_)); }
  void read(std::byte* to) { begin(false, disk_->store->read(block_, to, nbytes_)); }
  bool done() {
    if (!ticket_) return true;
    if (!disk_->store->done(ticket_)) return false;
    if (end_ == 0) end_ = host_seconds();
    return true;
  }
  // Throws IoError.
  void wait() {
    if (!ticket_) return;
    const DiskStore::Ticket ticket = std::exchange(ticket_, {});
    disk_->store->wait(ticket);
    const double end = end_ != 0 ? end_ : host_seconds();
    disk_->done.push_back({begin_, end, static_cast<int64_t>(nbytes_), out_, SavedPlace::disk, name_});
  }

 private:
  void begin(bool out, DiskStore::Ticket ticket) {
    out_ = out;
    begin_ = host_seconds();
    end_ = 0;
    ticket_ = std::move(ticket);
  }
  std::shared_ptr<Disk> disk_;
  DiskStore::Block* block_;
  size_t nbytes_;
  std::string name_;
  DiskStore::Ticket ticket_;
  bool out_ = false;
  double begin_ = 0, end_ = 0;
};

// ---- from and to memory --------------------------------------------------------------------------------------------

class DiskParcel final : public Parcel {
 public:
  DiskParcel(const std::shared_ptr<Disk>& disk, const Ref<Storage>& source, const std::string& name)
      : device_(source->device), nbytes_(source->nbytes), block_(disk, nbytes_, name) {
    block_.write(source->data);
  }
  void leave() override { block_.wait(); }
  bool sent() override { return block_.done(); }
  void fetch() override {
    near_ = new_near(device_, nbytes_);
    block_.read(near_->data);
  }
  Ref<Storage> take() override {
    // Another fetch() may follow a failed one, so what it reads into is not kept.
    Ref<Storage> near = std::move(near_);
    block_.wait();
    return near;
  }

 private:
  Device device_;
  size_t nbytes_;
  Ref<Storage> near_;  // outlives a request of block_'s
  DiskBlock block_;
};

class DiskDepot final : public Depot {
 public:
  explicit DiskDepot(std::shared_ptr<DiskStore> store) : disk_(std::make_shared<Disk>(std::move(store))) {}
  std::unique_ptr<Parcel> send(const Ref<Storage>& source, const std::string& name) override {
    return std::make_unique<DiskParcel>(disk_, source, name);
  }
  void take_transfers(Transfers& into) override {
    into.insert(into.end(), std::make_move_iterator(disk_->done.begin()), std::make_move_iterator(disk_->done.end()));
    disk_->done.clear();
  }

 private:
  std::shared_ptr<Disk> disk_;
};

// ---- from and to a card --------------------------------------------------------------------------------------------

constexpr int64_t kStaging = int64_t{2} << 30;

class CardDiskParcel;
// Those with something under way, in the order in which it began.
using Busy = std::list<CardDiskParcel*>;

// Goes by way of a page-locked block: one leg is the card's, the other the store's, and poll() begins the second.
class CardDiskParcel final : public Parcel {
 public:
  CardDiskParcel(std::shared_ptr<Pinned> shared, std::shared_ptr<Busy> busy, const std::shared_ptr<Disk>& disk,
                 const Ref<Storage>& source, const std::string& name)
      : shared_(std::move(shared)),
        busy_(std::move(busy)),
        nbytes_(source->nbytes),
        name_(name),
        compute_(cuda::current_stream(shared_->device.index)),
        home_(compute_),
        sent_(std::make_unique<cuda::Event>(false, shared_->device.index)),
        block_(disk, nbytes_, name),
        staging_(shared_->copy_out(source, name_, *sent_)) {
    busy_->push_back(this);
  }
  ~CardDiskParcel() override {
    try {
      if (state_ == State::copying) sent_->synchronize();  // the block is free only then
      if (state_ == State::writing || state_ == State::reading) block_.wait();
    } catch (const Error&) {  // nobody wants the bytes
    }
    try {
      if (near_ && arrived_) arrived_->wait(home_);
      settle();
    } catch (const Error&) {  // the device has failed: whoever asks next is told
      busy_->remove(this);
    }
  }

  void leave() override { sent_->wait(compute_); }
  bool sent() override { return sent_->query(); }
  void fetch() override {
    poll();
    if (failed_) std::rethrow_exception(failed_);
    home_ = cuda::current_stream(shared_->device.index);
    near_ = new_near(shared_->device, nbytes_);
    if (state_ != State::stored) return bring_in(sent_.get());  // the block still has the bytes
    try {
      staging_ = shared_->blocks->get(nbytes_);
      if (staging_.used) staging_.used->synchronize();  // the disk waits for no stream
    } catch (...) {
      near_.reset();
      throw;
    }
    block_.read(static_cast<std::byte*>(staging_.bytes.raw_data()));
    state_ = State::reading;
    busy_->push_back(this);
  }
  Ref<Storage> take() override {
    if (state_ == State::reading) finish_reading();
    Ref<Storage> near = std::move(near_);
    if (std::exception_ptr e = std::exchange(read_failed_, nullptr)) std::rethrow_exception(e);
    shared_->wait_for(near, home_, *arrived_);
    return near;
  }

  // Begins the next leg, where one is done. What fails is told by fetch() and take().
  void poll() {
    if (state_ == State::copying && sent_->query()) {
      block_.write(static_cast<const std::byte*>(staging_.bytes.raw_data()));
      state_ = State::writing;
    }
    if (state_ == State::writing && block_.done()) {
      try {
        block_.wait();
      } catch (const Error&) {
        failed_ = std::current_exception();
      }
      settle();
    }
    if (state_ == State::reading && block_.done()) finish_reading();
  }

 private:
  enum class State : uint8_t { copying, writing, stored, reading };

  void bring_in(const cuda::Event* ready) {
    arrived_ = std::make_unique<cuda::Event>(false, shared_->device.index);
    shared_->copy_in(*near_, home_, staging_, ready, name_, *arrived_);
  }
  void finish_reading() {
    try {
      block_.wait();
      bring_in(nullptr);
    } catch (const Error&) {
      read_failed_ = std::current_exception();
    }
    settle();
  }
  // Nothing is under way for it but a copy to the card.
  void settle() {
    state_ = State::stored;
    busy_->remove(this);
    if (!staging_.bytes.defined()) return;
    if (arrived_) {
      staging_.used = std::make_unique<cuda::Event>(false, shared_->device.index);
      staging_.used->record(shared_->in);
    }
    shared_->blocks->put(std::exchange(staging_, {}));
  }

  std::shared_ptr<Pinned> shared_;
  std::shared_ptr<Busy> busy_;
  size_t nbytes_;
  std::string name_;
  cuda::Stream compute_, home_;
  std::unique_ptr<cuda::Event> sent_, arrived_;
  Ref<Storage> near_;
  DiskBlock block_;
  Block staging_;
  State state_ = State::copying;
  std::exception_ptr failed_, read_failed_;
};

class CardDiskDepot final : public Depot {
 public:
  CardDiskDepot(Device device, std::shared_ptr<DiskStore> store, int64_t most)
      : shared_(std::make_shared<Pinned>(device, most > 0 ? most : kStaging, false)),
        disk_(std::make_shared<Disk>(std::move(store))) {}
  std::unique_ptr<Parcel> send(const Ref<Storage>& source, const std::string& name) override {
    check<DeviceError>(!cuda::capturing(), "offload",
                       "saved tensors go to a disk: a CUDA graph that is being captured cannot record that");
    return std::make_unique<CardDiskParcel>(shared_, busy_, disk_, source, name);
  }
  void poll() override {
    if (cuda::capturing()) return;
    for (auto at = busy_->begin(); at != busy_->end();) (*at++)->poll();  // which may take itself out
  }
  void take_transfers(Transfers& into) override {
    into.insert(into.end(), std::make_move_iterator(disk_->done.begin()), std::make_move_iterator(disk_->done.end()));
    disk_->done.clear();
  }
  int64_t host_bytes() const override { return shared_->held->load(); }

 private:
  std::shared_ptr<Pinned> shared_;
  std::shared_ptr<Busy> busy_ = std::make_shared<Busy>();
  std::shared_ptr<Disk> disk_;
};

}  // namespace

std::unique_ptr<Depot> make_disk_depot(std::shared_ptr<DiskStore> store) {
  return std::make_unique<DiskDepot>(std::move(store));
}
std::unique_ptr<Depot> make_card_disk_depot(Device device, std::shared_ptr<DiskStore> store, int64_t most) {
  return std::make_unique<CardDiskDepot>(device, std::move(store), most);
}

}  // namespace strata::offload
