#include "strata/cuda/stream_transfer.h"

#include <map>
#include <mutex>
#include <utility>

#include "strata/core/error.h"
#include "strata/cuda/graph.h"

namespace strata::cuda {

ClockPoint::ClockPoint(int device) : event_(true, device) {
  event_.record(Stream::create(device));
  event_.synchronize();
  at_ = memory::host_seconds();
}

std::shared_ptr<const ClockPoint> ClockPoint::recent(int device) {
  constexpr double kMostSeconds = 10;
  struct Points {
    std::mutex mutex;
    std::map<int, std::shared_ptr<const ClockPoint>> of;
  };
  static auto* points = new Points;
  const std::lock_guard lock(points->mutex);
  std::shared_ptr<const ClockPoint>& point = points->of[device];
  if (!point || memory::host_seconds() - point->at_ > kMostSeconds) point = std::make_shared<ClockPoint>(device);
  return point;
}

struct StreamTransfer::Times final : memory::TransferTimes {
  explicit Times(int device) : point(ClockPoint::recent(device)), begin(true, device), end(true, device) {}
  std::pair<double, double> read() override {
    end.synchronize();
    return {point->host_seconds(begin), point->host_seconds(end)};
  }
  const std::shared_ptr<const ClockPoint> point;
  Event begin, end;
};

StreamTransfer::StreamTransfer(memory::TransferKind kind, std::string_view track, int64_t bytes, const Stream& stream)
    : stream_(stream) {
  if (!memory::transfers_wanted() || capturing()) return;
  transfer_ = {kind, std::string(track), memory::moved_name(), 0, 0, bytes};
  times_ = std::make_unique<Times>(stream.device());
  times_->begin.record(stream_);
}

StreamTransfer::~StreamTransfer() {
  if (!times_) return;
  try {
    times_->end.record(stream_);
  } catch (const Error&) {  // the device has failed: whoever asks it next is told
    return;
  }
  memory::note_transfer(transfer_, std::move(times_));
}

}  // namespace strata::cuda
