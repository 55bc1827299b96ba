#include "strata/dist/device_group_inl.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <map>

#include "strata/core/backend.h"
#include "strata/core/error.h"

namespace strata::distributed::detail {
namespace {

uint64_t mixed(uint64_t h, uint64_t with) {
  h = (h ^ with) * 0x9e3779b97f4a7c15u;
  return h ^ (h >> 29);
}

uint64_t hash_of(std::string_view text) {  // FNV-1a
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

std::string op_of(const std::string& what) {
  return what.substr(0, what.find_first_of("( "));
}

// Waited for by streams.
struct QueuedWork final : WorkState {
  void wait() override {
    if (!point) return;
    point->wait();
    point = nullptr;
    held.clear();
  }
  ~QueuedWork() override {
    try {
      wait();
    } catch (const std::exception&) {
      // The card has failed, or the capture that the call was in: who asks next is told.
    }
  }
  std::unique_ptr<Lane::Point> point;
  std::vector<Tensor> held;
};

std::atomic<LaneMaker> g_test_lanes{nullptr};

}  // namespace

void set_test_lanes(LaneMaker maker) {
  g_test_lanes = maker;
}
LaneMaker test_lanes() {
  return g_test_lanes;
}

DeviceGroup::DeviceGroup(std::string name, std::string key, std::vector<int> ranks, std::vector<int> concerns,
                         std::unique_ptr<Lane> lane, std::unique_ptr<NcclCollectives> calls)
    : name_(std::move(name)),
      key_(std::move(key)),
      ranks_(std::move(ranks)),
      concerns_(concerns.empty() ? ranks_ : std::move(concerns)),
      lane_(std::move(lane)),
      calls_(std::move(calls)) {}

std::shared_ptr<WorkState> DeviceGroup::start(std::string what, bool all_ranks, std::vector<Tensor> held,
                                              const std::function<void(Collectives&)>& run, const WorkState* behind) {
  const std::lock_guard one(call_mutex_);
  const auto work = std::make_shared<QueuedWork>();
  const uint64_t capture = lane_->capture();
  const std::string* const holder = memory::holder();
  Call call{what, holder != nullptr ? *holder : "", recorder().step(), all_ranks, hash_of(what)};
  try {
    lane_->within([&] {
      if (capture == 0) {
        queued(std::move(call));
      } else {
        if (capture != std::exchange(capture_, capture)) {
          captured_ = std::make_shared<std::vector<Call>>();
          lane_->on_replay(weak_from_this(), [this, calls = captured_] { replayed(*calls); });
        }
        captured_->push_back(std::move(call));
      }
      lane_->fork();
      // What was waited for is behind the stream that computes, for which fork() waits.
      const auto* const before = dynamic_cast<const QueuedWork*>(behind);
      if (before != nullptr && before->point) lane_->follow(*before->point);
      lane_->mark_begun();
      calls_->use(lane_->stream());
      run(*calls_);
      lane_->mark_ended();
      work->held = std::move(held);
      work->point = lane_->point();
    });
  } catch (const DistributedError& e) {
    // What a capture queued reached nobody.
    if (capture != 0) throw;
    throw DistributedError(op_of(what), failure_of(name_, ranks_, e.what()));
  }
  return work;
}

void DeviceGroup::queued(Call call) {
  const std::lock_guard lock(mutex_);
  if (call.all_ranks) {
    hash_ = mixed(hash_, call.hash);
    history_[++sequence_ % kHistory] = hash_;
  }
  queue_.push_back({std::move(call), sequence_, 0});
}

void DeviceGroup::replayed(const std::vector<Call>& calls) {
  check_job("replay");
  const int64_t step = recorder().step();
  for (Call call : calls) {
    call.step = step;
    queued(std::move(call));
  }
}

void DeviceGroup::advance() {
  // In this order: what has ended has begun.
  const uint64_t ended = lane_->ended(), begun = lane_->begun();
  const std::lock_guard lock(mutex_);
  if (frozen_) return;
  const uint64_t last = first_ + queue_.size() - 1;
  const auto at = [&](uint64_t n) -> Queued& { return queue_[n - first_]; };
  for (uint64_t n = std::max(told_begun_ + 1, first_); n <= std::min(begun, last); ++n) {
    Queued& q = at(n);
    // The recorder would forget all but the newest.
    if (n + kKept > begun) q.number = 1 + recorder().begin(name_, q.sequence, q.call.what, q.call.holder, q.call.step);
    told_begun_ = n;
  }
  for (uint64_t n = std::max(told_ended_ + 1, first_); n <= std::min(ended, told_begun_); ++n) {
    if (at(n).number > 0) recorder().end(at(n).number - 1);
    told_ended_ = n;
  }
  for (; !queue_.empty() && first_ + kKept <= told_ended_; ++first_) queue_.pop_front();
}

void DeviceGroup::freeze() {
  advance();
  const std::lock_guard lock(mutex_);
  frozen_ = true;
}

std::string DeviceGroup::calls() const {
  const std::lock_guard lock(mutex_);
  return cat(key_, " ", sequence_, " ", hash_);
}

bool DeviceGroup::agrees(std::string_view theirs) const {
  for (size_t at = 0; at < theirs.size();) {
    const size_t end = std::min(theirs.find(';', at), theirs.size());
    std::string_view one = theirs.substr(at, end - at);
    at = end + 1;
    if (!one.starts_with(key_) || one.size() <= key_.size() || one[key_.size()] != ' ') continue;
    one.remove_prefix(key_.size() + 1);
    uint64_t count = 0, hash = 0;
    const auto number = std::from_chars(one.data(), one.data() + one.size(), count);
    if (number.ec != std::errc() || number.ptr == one.data() + one.size()) continue;
    if (std::from_chars(number.ptr + 1, one.data() + one.size(), hash).ec != std::errc()) continue;
    const std::lock_guard lock(mutex_);
    // What this rank has not come to, or no longer knows, is compared by the other one, or was.
    if (count == 0 || count > sequence_ || sequence_ - count >= kHistory) continue;
    return history_[count % kHistory] == hash;
  }
  return true;
}

std::string DeviceGroup::lines() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const Queued& q : queue_) {
    if (q.call.all_ranks) text += cat(q.sequence, " ", q.call.what, "\n");
  }
  return text;
}

std::vector<CollectiveEntry> first_difference(const std::string& group, const std::vector<std::string>& lines) {
  std::map<uint64_t, std::vector<std::string>> by_number;  // of each rank what it called
  for (size_t r = 0; r < lines.size(); ++r) {
    for (size_t at = 0; at < lines[r].size();) {
      const size_t end = std::min(lines[r].find('\n', at), lines[r].size());
      uint64_t number = 0;
      const char* const begin = lines[r].data() + at;
      const auto [rest, error] = std::from_chars(begin, lines[r].data() + end, number);
      if (error == std::errc() && rest < lines[r].data() + end) {
        std::vector<std::string>& ranks = by_number[number];
        ranks.resize(lines.size());
        ranks[r].assign(rest + 1, lines[r].data() + end);
      }
      at = end + 1;
    }
  }
  for (const auto& [number, ranks] : by_number) {
    std::string one;
    bool differ = false;
    for (const std::string& what : ranks) {
      if (what.empty()) continue;
      differ = differ || (!one.empty() && what != one);
      one = what;
    }
    if (!differ) continue;
    std::vector<CollectiveEntry> entries(ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (!ranks[r].empty()) entries[r] = {.group = group, .sequence = number, .what = ranks[r]};
    }
    return entries;
  }
  return {};
}

void DeviceGroup::finish() {
  lane_->synchronize();
  advance();
}

void DeviceGroup::close() noexcept {
  const std::lock_guard one(call_mutex_);
  // NCCL waits until no graph holds calls any more, which it hears of when the driver has come to it: a communicator
  // that graphs have held is left to the end of the process.
  if (capture_ == 0) calls_->close();
}

}  // namespace strata::distributed::detail
