#include <cstdlib>
#include <string_view>

#include "strata/cuda/graph.h"
#include "strata/cuda/job_inl.h"
#include "strata/cuda/memory.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/lane_inl.h"

namespace strata::distributed::detail {
namespace {

// STRATA_LANE_PRIORITY=1: what travels does not wait behind the blocks of large kernels that computed first.
cuda::Stream stream_of_lane(int device) {
  const char* const set = std::getenv("STRATA_LANE_PRIORITY");
  const bool first = set != nullptr && std::string_view(set) == "1";
  return first ? cuda::urgent_stream(device) : cuda::Stream::create(device);
}

class CardPoint final : public Lane::Point {
 public:
  CardPoint(int device, const cuda::Stream& lane) : event_(false, device), home_(cuda::current_stream(device)) {
    event_.record(lane);
  }
  void wait() override {
    const cuda::Stream here = cuda::current_stream(home_.device());
    event_.wait(here);
    // Memory is given back to the stream that it was made on.
    if (!(here == home_)) event_.wait(home_);
  }
  void before(const cuda::Stream& lane) const { event_.wait(lane); }

 private:
  cuda::Event event_;
  cuda::Stream home_;
};

class CardLane final : public Lane {
 public:
  explicit CardLane(int device) : device_(device), stream_(stream_of_lane(device)), marks_(cuda::make_marks(device)) {}
  Device device() const override { return Device::cuda(device_); }
  void* stream() const override { return stream_.handle(); }
  void within(const std::function<void()>& fn) const override { cuda::on_card(device_, fn); }
  void fork() override { stream_.wait(cuda::current_stream(device_)); }
  std::unique_ptr<Point> point() override { return std::make_unique<CardPoint>(device_, stream_); }
  void follow(const Point& point) override { static_cast<const CardPoint&>(point).before(stream_); }
  void mark_begun() override { cuda::add_mark(marks_, cuda::kBegun, stream_); }
  void mark_ended() override { cuda::add_mark(marks_, cuda::kEnded, stream_); }
  uint64_t begun() const override { return cuda::read_mark(marks_, cuda::kBegun); }
  uint64_t ended() const override { return cuda::read_mark(marks_, cuda::kEnded); }
  uint64_t capture() const override { return cuda::capture_number(); }
  void on_replay(std::weak_ptr<const void> owner, std::function<void()> fn) override {
    cuda::before_replays(std::move(owner), [fn = std::move(fn), device = device_, stream = stream_] {
      // What was queued on the lane by itself comes before what the graph holds.
      cuda::current_stream(device).wait(stream);
      fn();
    });
  }
  void synchronize() override { stream_.synchronize(); }

 private:
  int device_;
  cuda::Stream stream_;
  cuda::Marks marks_;
};

}  // namespace

std::unique_ptr<Lane> make_card_lane(Device device) {
  return std::make_unique<CardLane>(device.index);
}

}  // namespace strata::distributed::detail
