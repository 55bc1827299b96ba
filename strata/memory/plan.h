#pragma once
// What a recorded step needs in a device's memory when some of its tensors are elsewhere while nobody uses them, and
// what that costs in time: the arithmetic under every plan. docs/design/tiers.md.

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "strata/core/recording.h"

namespace strata::memory {

/// A stretch of a step during which a storage is not in the device's memory.
struct Away {
  int32_t storage = 0;  ///< in Recording::storages
  int32_t from = -1;    ///< it leaves after this call; -1: it begins the step elsewhere
  int32_t until = 0;    ///< it must be back before this call; the number of calls: it stays away to the end
  bool write = true;    ///< its bytes go out; else what is elsewhere holds already, and room is free at once
  /// Counted in MoveRules::near where it is near, and never in `budget`: weights that come by turns. All stretches of a
  /// storage have the same here.
  bool apart = false;
  /// It is fetched past the window too, where no call until its use leaves less room below the most that was held so
  /// far: saved tensors, which come back as soon as backward has let go of others.
  bool early = false;
  friend bool operator==(const Away&, const Away&) = default;
};

/// The way between the device's memory and the next tier. Both directions work at once.
struct Link {
  double out = 0;  ///< bytes a second from the device
  double in = 0;   ///< bytes a second to it
};

/// What simulate() goes by.
struct MoveRules {
  Link link;
  int64_t budget = 0;                   ///< bytes in the device's memory at most; 0: no bound
  int64_t window = int64_t{256} << 20;  ///< bytes fetched ahead of their use at most; the next one always may be
  int64_t others = 0;                   ///< bytes that are there all the time and not in the recording
  /// Bytes of what is `apart` that are near at most, but that the next one always may be. What is not written and not
  /// used for a while stays as long as nothing else wants its room.
  int64_t near = 0;
};

/// What came out.
struct Movement {
  double seconds = 0;       ///< of the step
  double forward = 0;       ///< of them, before the first call of backward
  double left = 0;          ///< when the last of what leaves has gone, maybe after the step
  double waited = 0;        ///< of them, for room or for bytes that had not come
  int64_t peak = 0;         ///< most bytes in the device's memory; past the budget where it could not be kept
  int64_t out = 0, in = 0;  ///< bytes moved each way
  int64_t forward_in = 0;   ///< bytes whose way in began before the first call of backward
  int64_t forwarded = 0;    ///< bytes that were wanted before they had begun to leave, and stayed
  int64_t elsewhere = 0;    ///< most bytes on the other tier at once
  int64_t near = 0;         ///< most bytes of what is `apart` that were near at once
};

/// Goes through the calls in order, each taking `seconds[call]`, while transfers run beside them in the order in which
/// they were asked for: a storage leaves when the call `from` is done, and is fetched again, in order of use, as far
/// ahead within the phase that uses it as window and budget let it be. A call waits where its storages have not
/// arrived, or where its results find no room until something has left. What is `apart` is fetched ahead across phases,
/// in order of use among its like. Throws ValueError for stretches that name no
/// storage or call, or that overlap.
Movement simulate(const Recording& step, std::span<const double> seconds, std::span<const Away> away,
                  const MoveRules& rules);

/// The storages that a step's forward makes and its backward reads, from the last use in forward to the first in
/// backward, in the order in which forward is done with them: what may leave between. Only those of `at_least` bytes,
/// of the tag activation.
std::vector<Away> saved_stretches(const Recording& step, int64_t at_least);

/// The first call from `call` on that is of another phase; the number of calls where none is.
int32_t end_of_phase(const Recording& step, int32_t call);

/// Changes a recorded step into one whose calls [begin, end) of forward keep nothing that they make for backward but
/// what later calls of forward read: backward makes it again where it first reads any of it, in the time that these
/// calls took (strata/autograd/recompute.h does that). What these calls read from outside for it stays, and is one more
/// argument of the call that reads first. `seconds` are the calls'.
void run_again(Recording& step, std::span<double> seconds, int32_t begin, int32_t end);

/// The last call that reads or writes each storage before the first call of `phase`; -1 where there is none.
std::vector<int32_t> last_use_before(const Recording& step, Phase phase);

/// The stretches between uses of what is there after the step, of that tag: from the step's beginning to the first use
/// of what was there before, between uses in different phases, and from the last use to the end; also between uses in
/// one phase that have `gap` calls or more between them. Bytes that calls wrote in between go out.
std::vector<Away> home_stretches(const Recording& step, Tag tag, int32_t gap = std::numeric_limits<int32_t>::max());
/// The same of these storages, whatever their tags. What no call uses is away all the time.
std::vector<Away> home_stretches(const Recording& step, std::span<const int32_t> storages,
                                 int32_t gap = std::numeric_limits<int32_t>::max());

}  // namespace strata::memory
