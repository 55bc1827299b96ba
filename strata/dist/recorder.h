#pragma once
// The flight recorder: what this process's collectives were, are, and how far they got.

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/dtype.h"
#include "strata/core/tensor.h"

namespace strata::distributed {

/// One collective of this process.
struct CollectiveEntry {
  std::string group;      ///< "world", "dp", ...
  uint64_t sequence = 0;  ///< the group's first is 1
  std::string what;       ///< "all_reduce(sum) f32 [4, 1024]": what every rank of the group must agree on
  std::string holder;     ///< "linear in blocks.3": who called it; empty where that is not known
  int64_t step = -1;      ///< of training; -1 outside
  double begun = 0;       ///< seconds since the epoch
  double ended = 0;       ///< 0 while it runs
  std::string error;      ///< how it failed; empty otherwise
};

/// A line of an entry that other processes can read: "in dp #7: all_reduce(sum) f32 [1024] | linear in blocks.3 | step 12";
/// "after" for one that has ended well.
std::string line_of(const CollectiveEntry& entry);
/// What line_of() wrote; an entry without a group for any other text. `ended` is 1 for one that has ended.
CollectiveEntry entry_of(std::string_view line);

/// The last collectives of this process. Any thread may call anything.
class FlightRecorder {
 public:
  /// Keeps the last `kept`.
  explicit FlightRecorder(size_t kept = 256) : kept_(kept) {}
  /// A collective begins; the number is for end().
  uint64_t begin(std::string_view group, uint64_t sequence, std::string what);
  /// One that began on a card; who called it, and in which step, is known from when it was queued.
  uint64_t begin(std::string_view group, uint64_t sequence, std::string what, std::string holder, int64_t step);
  /// It ended; `error` says how where it failed.
  void end(uint64_t number, std::string_view error = {});
  /// Those that run have ended so: of groups that are gone.
  void end_all(std::string_view error);
  /// The training step that later ones belong to.
  void set_step(int64_t step);
  int64_t step() const;
  /// The oldest that runs, or the newest that ended; one without a group where there was none.
  CollectiveEntry now() const;
  /// Seconds in which any was under way, so far: what this process has waited for others, transfers included.
  double waited() const;
  /// All that are kept, oldest first.
  std::vector<CollectiveEntry> entries() const;

 private:
  void end_one(double now);

  mutable std::mutex mutex_;
  std::deque<CollectiveEntry> entries_;
  uint64_t first_ = 0;  // the number of the oldest kept
  size_t kept_;
  int64_t step_ = -1;
  int64_t running_ = 0;            // that have begun and not ended
  double since_ = 0, waited_ = 0;  // when the first of these began; before that
};

/// What is known of a rank when something is wrong.
struct RankView {
  int rank = 0;
  std::string host;
  int64_t pid = 0;
  std::string failure;   ///< why it is taken for dead; empty where it is not
  bool left = false;     ///< ended in order
  CollectiveEntry last;  ///< where it is
  double waiting = 0;    ///< seconds in the collective that it is in
};

/// Why a collective of `group` (these ranks) does not go on, as far as the ranks' states tell: first the ranks to blame
/// (dead; in another collective than most; not in it at all), then a line for each rank.
std::string explain(std::string_view group, const std::vector<int>& ranks, const std::vector<RankView>& views);

}  // namespace strata::distributed
