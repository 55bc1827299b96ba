// Page-locked memory as a place for saved tensors.

#include "strata/autograd/offload_pinned_inl.h"

namespace strata::offload {
namespace {

class PinnedParcel final : public Parcel {
 public:
  PinnedParcel(std::shared_ptr<Pinned> shared, const Ref<Storage>& source, std::string name)
      : shared_(std::move(shared)),
        blocks_(shared_->blocks_here()),
        nbytes_(source->nbytes),
        name_(std::move(name)),
        compute_(cuda::current_stream(shared_->device.index)),
        home_(compute_),
        sent_(std::make_unique<cuda::Event>(false, shared_->device.index)),
        block_(shared_->copy_out(source, name_, *sent_)) {}
  ~PinnedParcel() override {
    try {
      if (near_) arrived_->wait(home_);  // its memory is free for home_'s later work
      block_.used = arrived_ ? std::move(arrived_) : std::move(sent_);
      blocks_->put(std::move(block_));
    } catch (const Error&) {  // the device has failed: whoever asks next is told
    }
  }

  // Of the stream that made the source, to which its memory goes back.
  void leave() override { sent_->wait(compute_); }
  bool sent() override { return sent_->query(); }
  void fetch() override {
    home_ = cuda::current_stream(shared_->device.index);
    near_ = new_near(shared_->device, nbytes_);
    arrived_ = std::make_unique<cuda::Event>(false, shared_->device.index);
    shared_->copy_in(*near_, home_, block_, sent_.get(), name_, *arrived_);
  }
  Ref<Storage> take() override {
    shared_->wait_for(near_, home_, *arrived_);
    return std::move(near_);
  }

 private:
  std::shared_ptr<Pinned> shared_;
  std::shared_ptr<Blocks> blocks_;
  size_t nbytes_;
  std::string name_;
  cuda::Stream compute_, home_;
  std::unique_ptr<cuda::Event> sent_, arrived_;
  Block block_;
  Ref<Storage> near_;
};

class PinnedDepot final : public Depot {
 public:
  PinnedDepot(Device device, int64_t most, bool timed) : shared_(std::make_shared<Pinned>(device, most, timed)) {}

  std::unique_ptr<Parcel> send(const Ref<Storage>& source, const std::string& name) override {
    return std::make_unique<PinnedParcel>(shared_, source, name);
  }
  void take_transfers(std::vector<OffloadTransfer>& into) override { shared_->take_transfers(into); }
  bool quiet() override { return shared_->quiet(); }
  int64_t host_bytes() const override { return shared_->held->load(); }

 private:
  std::shared_ptr<Pinned> shared_;
};

}  // namespace

std::unique_ptr<Depot> make_pinned_depot(Device device, int64_t most, bool timed) {
  return std::make_unique<PinnedDepot>(device, most, timed);
}

}  // namespace strata::offload
