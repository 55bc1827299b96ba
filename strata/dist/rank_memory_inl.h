#pragma once
// The tier "ranks": tensors of which each rank keeps a part. A call that wants one finds it gathered; who says so
// before (Storage::prefetch) has it gathered meanwhile.

#include <memory>
#include <string>

#include "strata/dist/group.h"
#include "strata/dist/parts_inl.h"

namespace strata::distributed {

/// Memory whose bytes are with all ranks of a group. It moves: whole tensors are in the device's own memory while
/// somebody pins them, or they were asked for. All ranks must pin and ask in the same order.
extern const Tier kRanks;

/// Tensors of the tier that come and go together: where one of them is wanted all are gathered by one call, the small ones
/// of a dtype in one buffer, whichever it is that a rank wants. They go when none is pinned any more.
class RankUnit {
 public:
  RankUnit();
  ~RankUnit();
  RankUnit(const RankUnit&) = delete;
  /// Takes the tensors of `other` in, which is empty then.
  void join(RankUnit& other);
  /// The tensor of this part is one of `to` from now on. Nothing is pinned.
  void give(const Tensor& part, RankUnit& to);
  /// From now on its tensors come when they are wanted, and not before.
  void only_when_wanted();
  /// From now on what goes outside of a backward pass is kept as parts of a share each of `near`'s ranks, which have the
  /// same parts together, and comes from them when it is next wanted, until the parts change. What is kept now goes;
  /// nullptr: nothing is kept. `near` must outlive it.
  void keep_among(Group* near);
  /// Lets go what was gathered and is not pinned.
  void drop();

  struct State;
  std::unique_ptr<State> state;  ///< for the memory
};

/// A tensor of the tier, of which this rank has `part`: its rows of a tensor of shape `whole`. `part` is the memory
/// that stays: who changes it changes the tensor, from the next time on that it is gathered. What is written to the
/// whole tensor, by all ranks alike, goes to the parts. `name` is told by errors and the flight recorder. `group` and
/// `unit` must outlive it.
Tensor tensor_of_parts(const Tensor& part, const Shape& whole, std::string name, Group& group, RankUnit& unit);

/// While one lives, what this thread makes in the tier is cut between the ranks of `group` as soon as it is not pinned
/// any more; without one it stays whole.
class CutBetween {
 public:
  explicit CutBetween(Group& group);
  ~CutBetween();
  CutBetween(const CutBetween&) = delete;

 private:
  Group* previous_;
};

}  // namespace strata::distributed
