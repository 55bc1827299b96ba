#include "strata/lab/device_clock.h"

#include <utility>

namespace strata::lab {

namespace {
// Events that wait to be read; more of them only cost memory.
constexpr size_t kMostMarks = 8192;
}  // namespace

DeviceClock::DeviceClock(Device device) : device_(device) {
  mark(-1);
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

std::unique_ptr<RecordClock> clock_of(Device device) {
  return device.is_cuda() ? std::make_unique<DeviceClock>(device) : nullptr;
}

}  // namespace strata::lab
