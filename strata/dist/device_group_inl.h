#pragma once
// A group's collectives on cards: queued on a lane, told to the flight recorder as the card gets on, and compared with
// the other ranks' by their heartbeats.

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/dist/group.h"
#include "strata/dist/group_inl.h"
#include "strata/dist/lane_inl.h"
#include "strata/dist/nccl_inl.h"

namespace strata::distributed::detail {

/// How a device group is connected.
struct DeviceGroupOptions {
  /// For messages from one rank to another alone, beside all else: little of the card is taken while one is waited for.
  bool messages = false;
  /// Ranks whose failure ends its calls, too: those that its ranks wait for by way of others.
  std::vector<int> concerns = {};
};

class DeviceGroup : public std::enable_shared_from_this<DeviceGroup> {
 public:
  /// `name` is for people ("dp/cuda"), `key` for heartbeats: without blanks, another one for each mesh. `concerns` as
  /// in DeviceGroupOptions; empty: its ranks.
  DeviceGroup(std::string name, std::string key, std::vector<int> ranks, std::vector<int> concerns,
              std::unique_ptr<Lane> lane, std::unique_ptr<NcclCollectives> calls);

  const std::string& name() const { return name_; }
  const std::string& key() const { return key_; }
  const std::vector<int>& ranks() const { return ranks_; }
  const std::vector<int>& concerns() const { return concerns_; }
  Device device() const { return lane_->device(); }
  std::string way() const { return calls_->way(); }

  /// Calls `run`, which queues on the lane. A call of all ranks counts among those that they must agree on. Throws
  /// DistributedError where NCCL refuses; outside of a capture the job is over then. It begins behind `behind`, a
  /// device group's, where one is given.
  std::shared_ptr<WorkState> start(std::string what, bool all_ranks, std::vector<Tensor> held,
                                   const std::function<void(Collectives&)>& run, const WorkState* behind = nullptr);

  /// @name For the thread that watches
  /// Tells the recorder what began and ended on the card since.
  void advance();
  /// "key 17 8f3a...": how many calls of all ranks were queued, and a hash of their texts.
  std::string calls() const;
  /// Whether another rank's calls, as calls() of all its groups joined by ';' tell, may be the beginning of this one's.
  bool agrees(std::string_view theirs) const;
  /// The last calls of all ranks, a line each: "17 all_reduce(sum) f32 [8]".
  std::string lines() const;
  /// What NCCL found by itself; empty where it found nothing.
  std::string error() { return calls_->error(); }
  /// Whether a call has begun on the card and not ended.
  bool inside() const { return lane_->begun() > lane_->ended(); }
  /// The recorder keeps what is running as it is: what ends from here on has not come to its end.
  void freeze();
  void abort() noexcept { calls_->abort(); }

  /// @name The end of the job, in order: every rank finishes, all meet, every rank closes
  void finish();
  void close() noexcept;

 private:
  struct Call {
    std::string what, holder;
    int64_t step = -1;
    bool all_ranks = true;
    uint64_t hash = 0;
  };
  struct Queued {
    Call call;
    uint64_t sequence = 0;  // among the calls of all ranks
    uint64_t number = 0;    // the recorder's, once it has begun
  };
  void queued(Call call);
  void replayed(const std::vector<Call>& calls);

  const std::string name_, key_;
  const std::vector<int> ranks_, concerns_;
  const std::unique_ptr<Lane> lane_;
  const std::unique_ptr<NcclCollectives> calls_;
  std::mutex call_mutex_;  // one call at a time
  uint64_t capture_ = 0;   // the last that had calls
  std::shared_ptr<std::vector<Call>> captured_;

  static constexpr size_t kHistory = 1 << 14;
  static constexpr uint64_t kKept = 256;  // that have ended
  mutable std::mutex mutex_;              // of what follows
  std::deque<Queued> queue_;
  uint64_t first_ = 1;  // the number of the queue's first call: what the lane's marks count
  uint64_t told_begun_ = 0, told_ended_ = 0;
  bool frozen_ = false;
  uint64_t sequence_ = 0, hash_ = 0;
  std::vector<uint64_t> history_ = std::vector<uint64_t>(kHistory);  // hash_ after call n at n % kHistory
};

/// For tests: makes the lane of a device that is no card. The default makes none.
using LaneMaker = std::unique_ptr<Lane> (*)(Device device);
void set_test_lanes(LaneMaker maker);
LaneMaker test_lanes();

/// The device group of a group of this process, connected: all its ranks call it.
std::shared_ptr<DeviceGroup> make_device_group(const std::string& name, const std::vector<int>& ranks, int rank,
                                               Device device, const DeviceGroupOptions& options = {});
/// As many of a card's queues as there may be, unless the environment says how many: streams that share one wait for
/// each other, and with the usual eight a pipeline's message that waits for another rank's may stand before what that
/// rank waits for (GPipe's did).
void want_queues();
/// What CUDA_VISIBLE_DEVICES becomes for one rank of a host: `visible` is what it is, nullptr where it is not set.
/// Throws DistributedError where it names several cards, and fewer than ranks.
std::string own_card(const char* visible, int local_rank, int local_size);
/// Throws DistributedError where the job has failed.
void check_job(std::string_view op);
/// What the ranks' last calls (DeviceGroup::lines(), "" where it is not known) tell of the first one that is not the
/// same everywhere: each rank's as the entry that it is in. Empty where there is none.
std::vector<CollectiveEntry> first_difference(const std::string& group, const std::vector<std::string>& lines);

}  // namespace strata::distributed::detail
