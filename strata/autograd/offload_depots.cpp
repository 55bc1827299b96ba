// Plain memory as a place for saved tensors, and clocks.

#include <chrono>
#include <cstring>
#include <utility>

#include "strata/autograd/offload_depot_inl.h"
#include "strata/cuda/runtime.h"

namespace strata::offload {

double host_seconds() {
  static const auto begun = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

Ref<Storage> new_near(Device device, size_t nbytes) {
  static constexpr std::string_view kHolder = "offload";  // where memory is listed
  const memory::TagScope tag(memory::Tag::activation);
  const memory::OpScope holder(kHolder);
  return Storage::create(device, nbytes, Tier());
}

namespace {

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
std::unique_ptr<StepClock> make_clock(Device device) {
  if (device.is_cuda()) return std::make_unique<CardClock>(device.index);
  return std::make_unique<HostClock>();
}

}  // namespace strata::offload
