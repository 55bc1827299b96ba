#include "strata/lab/device_clock.h"

#include <utility>

#include "strata/cuda/stream_transfer.h"
#include "strata/memory/transfers.h"

namespace strata::lab {

namespace {
// Events that wait to be read; more of them only cost memory.
constexpr size_t kMostMarks = 8192;

class HostLine final : public LineClock {
 public:
  void mark(int32_t call) override {
    const double now = memory::host_seconds();
    if (call_ >= 0 && now > since_) line_.push_back({call_, since_, now});
    if (call_ < 0) none_ += now - since_;
    call_ = call;
    since_ = now;
  }
  double read(std::span<double> seconds) override {
    mark(-1);
    for (; read_ < line_.size(); ++read_)
      seconds[static_cast<size_t>(line_[read_].call)] += line_[read_].end - line_[read_].begin;
    return std::exchange(none_, 0);
  }
  std::vector<CallStretch> line() override { return line_; }

 private:
  int32_t call_ = -1;
  double since_ = memory::host_seconds(), none_ = 0;
  std::vector<CallStretch> line_;
  size_t read_ = 0;  // stretches that were told
};
}  // namespace

DeviceClock::DeviceClock(Device device, bool line) : device_(device), keeps_line_(line) {
  mark(-1);
  if (!line) return;
  const auto point = cuda::ClockPoint::recent(device.index);
  marks_.back().at->synchronize();
  at_ = point->host_seconds(*marks_.back().at);
}

void DeviceClock::mark(int32_t call) {
  if (marks_.size() >= kMostMarks) settle();
  Mark m;
  if (spare_.empty()) {
    m.at = std::make_unique<cuda::Event>(/*timing=*/true, device_.index);
  } else {
    m.at = std::move(spare_.back());
    spare_.pop_back();
  }
  m.at->record(cuda::current_stream(device_.index));
  m.call = call;
  marks_.push_back(std::move(m));
}

void DeviceClock::settle() {
  marks_.back().at->synchronize();
  for (size_t i = 0; i + 1 < marks_.size(); ++i) {
    const double seconds = marks_[i + 1].at->elapsed_ms(*marks_[i].at) * 1e-3;
    const auto call = static_cast<size_t>(marks_[i].call);
    if (marks_[i].call >= 0 && call >= calls_.size()) calls_.resize(call + 1);
    (marks_[i].call < 0 ? none_ : calls_[call]) += seconds;
    if (keeps_line_ && marks_[i].call >= 0) line_.push_back({marks_[i].call, at_, at_ + seconds});
    at_ += seconds;
    spare_.push_back(std::move(marks_[i].at));
  }
  marks_.erase(marks_.begin(), marks_.end() - 1);
}

double DeviceClock::read(std::span<double> seconds) {
  mark(-1);
  settle();
  for (size_t i = 0; i < calls_.size(); ++i) seconds[i] += calls_[i];
  calls_.clear();
  return std::exchange(none_, 0);
}

std::vector<CallStretch> DeviceClock::line() {
  mark(-1);
  settle();
  return line_;
}

std::unique_ptr<LineClock> line_clock_of(Device device) {
  if (device.is_cuda()) return std::make_unique<DeviceClock>(device, true);
  return std::make_unique<HostLine>();
}
std::unique_ptr<RecordClock> clock_of(Device device) {
  return device.is_cuda() ? std::make_unique<DeviceClock>(device) : nullptr;
}

}  // namespace strata::lab
