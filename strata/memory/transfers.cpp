#include "strata/memory/transfers.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <tuple>

namespace strata::memory {
namespace {

// Those that live. Threads that move may outlive everything.
struct Logs {
  std::mutex mutex;  // of the list, and of what each has
  std::vector<TransferLog*> all;
};
Logs& logs() {
  static auto* l = new Logs;
  return *l;
}

thread_local std::string t_moved_name;

}  // namespace

double host_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TransferLog::TransferLog() : begun_(host_seconds()) {
  const std::lock_guard lock(logs().mutex);
  logs().all.push_back(this);
  detail::g_transfer_logs.fetch_add(1, std::memory_order_relaxed);
}

TransferLog::~TransferLog() {
  detail::g_transfer_logs.fetch_sub(1, std::memory_order_relaxed);
  const std::lock_guard lock(logs().mutex);
  std::erase(logs().all, this);
}

std::vector<Transfer> TransferLog::take() {
  decltype(noted_) noted;
  {
    const std::lock_guard lock(logs().mutex);
    noted.swap(noted_);
  }
  std::vector<Transfer> all;
  all.reserve(noted.size());
  for (auto& [t, times] : noted) {
    if (times) std::tie(t.begin, t.end) = times->read();
    t.begin = std::max(t.begin - begun_, 0.0);
    t.end = std::max(t.end - begun_, t.begin);
    all.push_back(std::move(t));
  }
  std::stable_sort(all.begin(), all.end(), [](const Transfer& a, const Transfer& b) { return a.begin < b.begin; });
  return all;
}

void note_transfer(const Transfer& transfer, std::shared_ptr<TransferTimes> times) {
  const std::lock_guard lock(logs().mutex);
  for (TransferLog* log : logs().all)
    if (times || transfer.begin >= log->begun_) log->noted_.emplace_back(transfer, times);
}

void MovedName::set(std::string name) {
  before_ = std::exchange(t_moved_name, std::move(name));
}
void MovedName::restore() {
  t_moved_name = std::move(*before_);
}
const std::string& moved_name() {
  return t_moved_name;
}

TimedTransfer::TimedTransfer(TransferKind kind, std::string_view track, int64_t bytes) {
  if (!transfers_wanted()) return;
  transfer_ = Transfer{kind, std::string(track), t_moved_name, host_seconds(), 0, bytes};
}
TimedTransfer::~TimedTransfer() {
  if (!transfer_) return;
  transfer_->end = host_seconds();
  note_transfer(*transfer_);
}

}  // namespace strata::memory
