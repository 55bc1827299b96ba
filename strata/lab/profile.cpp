#include "strata/lab/profile.h"

#include <algorithm>

#include <fmt/format.h>

namespace strata::lab {

namespace {
// Events that wait to be read; more of them only cost memory.
constexpr size_t kMostMarks = 8192;
}  // namespace

OpProfile::OpProfile(Device device) : device_(device), scope_(*this), begin_(Clock::now()) {
  if (device_.is_cuda()) mark();
}

OpProfile::Row& OpProfile::row(const OpBase& op) {
  const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.op == &op; });
  return found != rows_.end() ? *found : rows_.emplace_back(Row{&op});
}

void OpProfile::mark() {
  if (marks_.size() >= kMostMarks) settle();
  Mark m;
  if (spare_.empty()) {
    m.at = std::make_unique<cuda::Event>(/*timing=*/true, device_.index);
  } else {
    m.at = std::move(spare_.back());
    spare_.pop_back();
  }
  m.at->record(cuda::current_stream(device_.index));
  m.op = open_.empty() ? nullptr : open_.back().op;
  marks_.push_back(std::move(m));
}

void OpProfile::settle() {
  if (marks_.size() < 2) return;
  marks_.back().at->synchronize();
  for (size_t i = 0; i + 1 < marks_.size(); ++i) {
    const double seconds = marks_[i + 1].at->elapsed_ms(*marks_[i].at) * 1e-3;
    device_seconds_ += seconds;
    if (marks_[i].op) row(*marks_[i].op).seconds += seconds;
    spare_.push_back(std::move(marks_[i].at));
  }
  marks_.erase(marks_.begin(), marks_.end() - 1);
}

void OpProfile::reset() {
  settle();
  rows_.clear();
  device_seconds_ = 0;
  begin_ = Clock::now();
}

void OpProfile::before(const Call& call) {
  open_.push_back({&call.op, Clock::now()});
  if (device_.is_cuda()) mark();
}

void OpProfile::failed(const Call&) {
  if (!open_.empty()) open_.pop_back();
}

void OpProfile::after(const Call& seen, std::span<const Tensor>) {
  const OpBase& op = seen.op;
  const Clock::time_point now = Clock::now();
  if (open_.empty()) return;  // it began before this did
  const Open call = open_.back();
  open_.pop_back();
  ++row(op).calls;
  if (device_.is_cuda()) return mark();
  const double seconds = std::chrono::duration<double>(now - call.begin).count();
  if (!open_.empty()) open_.back().inner += seconds;
  row(op).seconds += seconds - call.inner;
}

double OpProfile::elapsed() {
  if (!device_.is_cuda()) return std::chrono::duration<double>(Clock::now() - begin_).count();
  settle();
  return device_seconds_;
}

std::vector<OpProfile::Row> OpProfile::rows() {
  settle();
  std::vector<Row> sorted = rows_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return sorted;
}

std::string OpProfile::table() {
  const double total = elapsed();
  std::string text = fmt::format("{:<36} {:>9} {:>11} {:>7} {:>11}\n", "op", "calls", "ms", "share", "us/call");
  double inside = 0;
  for (const Row& r : rows()) {
    inside += r.seconds;
    text += fmt::format("{:<36} {:>9} {:>11.2f} {:>6.1f}% {:>11.2f}\n", r.op->name(), r.calls, r.seconds * 1e3,
                        100 * r.seconds / total, r.seconds * 1e6 / static_cast<double>(r.calls));
  }
  text += fmt::format("{:<36} {:>9} {:>11.2f} {:>6.1f}%\n", "outside", "", (total - inside) * 1e3,
                      100 * (total - inside) / total);
  return text;
}

}  // namespace strata::lab
