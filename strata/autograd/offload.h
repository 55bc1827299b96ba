#pragma once
// Saved tensors that leave the device during forward and are back when backward wants them. docs/design/tiers.md.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strata/autograd/offload_plan.h"
#include "strata/core/node.h"
#include "strata/memory/disk_store.h"

namespace strata {

/// How a SavedTensorOffload works.
struct OffloadOptions {
  /// Where tensors go: host, or disk (which needs `disk`); keep: none leaves, and what `recompute` drops is all.
  SavedPlace away = SavedPlace::host;
  std::shared_ptr<memory::DiskStore> disk;
  /// Whether what a cheap call made of saved tensors is dropped, and that call runs again: the same kernel on the same
  /// bits.
  bool recompute = false;
  int64_t min_bytes = int64_t{1} << 20;  ///< storages below stay (on a card, those below 64 KiB in any case)
  /// Without a plan: bytes of the last saved tensors that stay, because backward wants them at once.
  int64_t keep_bytes = int64_t{256} << 20;
  /// Without a plan: bytes on the way out at once. Beyond, the device waits for the first of them.
  int64_t queue_bytes = int64_t{512} << 20;
  /// Bytes that come back early beyond the room which backward has made: it brings tensors near while no more memory of
  /// the device is in use than was at most before, plus this.
  int64_t fetch_bytes = int64_t{128} << 20;
  int64_t host_bytes = 0;  ///< of page-locked memory at most; 0: as much as there is. What finds no room stays.
  /// Measure the first passes, and from then on do what plan_offload() says within `slowdown` (and `most_kept`), again
  /// whenever other tensors are saved. Else every pass is as the first.
  bool adaptive = true;
  double slowdown = 1.02;
  /// Bytes of saved tensors that stay at most, whatever that costs, and at least: OffloadLimits::keep_bytes; 0: as
  /// `slowdown` lets.
  int64_t most_kept = 0;
  bool log = false;  ///< keep a list of transfers: transfers(); else only while a lab::Tracer lives
};

/// What a SavedTensorOffload did since it was made; bytes of storages.
struct OffloadStats {
  int64_t passes = 0;      ///< forward passes begun
  int64_t saved = 0;       ///< saved, each storage once a pass
  int64_t sent = 0;        ///< copied away
  int64_t fetched = 0;     ///< copied back
  int64_t kept = 0;        ///< that stayed, by a plan or because they were the last
  int64_t forwarded = 0;   ///< used where they were, though they were to go: backward was there first
  int64_t recomputed = 0;  ///< made again
  int64_t refused = 0;     ///< that stayed for want of room, or because writing failed
  /// That the host waited for copies; on a card, that its compute stream did in the passes that were measured.
  double seconds_waited = 0;
  int64_t away_bytes = 0;    ///< away now
  int64_t host_bytes = 0;    ///< page-locked memory held for it now, free blocks included
  int64_t device_peak = 0;   ///< the most that was in use of the device since memory::reset_peak()
  std::string last_failure;  ///< why something was refused last
};

/// One copy. Seconds since the first one's object was made: by the device's clock on a card.
struct OffloadTransfer {
  double begin = 0, end = 0;
  int64_t bytes = 0;
  bool out = false;  ///< away from the device; else back
  SavedPlace place = SavedPlace::host;
  std::string name;
};

/// Saved-tensor hooks that send tensors away during forward and fetch them ahead of backward:
///
///     auto offload = SavedTensorOffload::create({.recompute = true});
///     for (...) {
///       Tensor loss;
///       { SavedTensorOffload::Scope scope(offload); loss = model.loss(batch); }
///       loss.backward();
///     }
///
/// Storages move, not tensors: what several nodes (or views) save of one moves once. Parameters, leaves and their
/// low-precision copies, integers, what is small, borrowed or on another tier already stay. A storage's memory is given
/// back when its copy is done; by default the compute stream waits then, so that it may be used again at once.
/// Gradients have the bits that they have without. What is written in place after it was saved is an AutogradError from
/// backward, as without. Throws from backward IoError where a disk fails; the next pass works.
///
/// While a CUDA graph is captured the same happens on forked streams inside the graph, by the plan of then (see
/// settle()); its page-locked blocks live as long as the graph. To disk that is a DeviceError.
class SavedTensorOffload final : public SavedTensorHooks {
 public:
  /// Throws ValueError for options that make no sense.
  static std::shared_ptr<SavedTensorOffload> create(const OffloadOptions& options = {});
  ~SavedTensorOffload() override;

  /// A forward pass on this thread.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<SavedTensorOffload> offload);
    ~Scope();
    Scope(const Scope&) = delete;

   private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
  };

  /// From the next pass on this plan, and no other. Throws ValueError for one with a place that the options do not
  /// allow.
  void set_plan(const OffloadPlan& plan);
  /// The one that the next pass follows, if there is one.
  std::optional<OffloadPlan> plan() const;
  /// Waits for the device and makes the plan of what was measured so far, where the options are adaptive: before a
  /// graph is captured, whose passes cannot be measured. Not within a capture. What was measured is passes whose calls
  /// a host queued; `pass_seconds` is what forward and backward take in the graph, where that is known and less: as
  /// much shorter is the time for copies, and what a plan sends beyond it would be waited for.
  void settle(double pass_seconds = 0);
  /// Whether the plan stays as it is: it was given, or made of as many measured passes as there will be; or there is to
  /// be none.
  bool settled() const;
  /// The last pass that was measured whole; what it saved in any case.
  OffloadMeasured measured() const;

  OffloadStats stats() const;
  /// Those that were kept since the last call (OffloadOptions::log), the last 100,000 of them; waits for the device.
  std::vector<OffloadTransfer> transfers();

  std::shared_ptr<void> pack(const Tensor& t) override;
  Tensor unpack(const std::shared_ptr<void>& packed) override;
  void ahead(std::span<Node* const> next) override;
  bool looks_ahead() const override { return true; }

 private:
  explicit SavedTensorOffload(const OffloadOptions& options);
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace strata
