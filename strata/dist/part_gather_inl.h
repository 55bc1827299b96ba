#pragma once
// Several tensors whose parts are with the ranks, gathered by one call.

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/dist/group.h"
#include "strata/dist/parts_inl.h"

namespace strata::distributed {

/// Whole tensors on their way. Small ones of a dtype travel in one buffer, since what each costs by itself is more than
/// two copies, and large ones straight to their places, for which no memory is needed besides: so that a block with any
/// number of parameters is one call of its group.
class PartGather {
 public:
  /// One of them.
  struct Item {
    std::string name;
    Tensor whole;  ///< flat
    Cut cut;
    Tensor part{};  ///< this rank's, which stays as it is until finish(); none: it is in its place in `whole`
  };
  /// Begins. Every rank of the group must have the same, at least one, all of one device; names and dtypes are what the
  /// flight recorder shows.
  PartGather(Group& group, std::vector<Item> items);
  /// Waits until they are whole. Throws DistributedError where they do not come, each time.
  void finish();
  /// Waits until nobody writes to them any more, whatever becomes of them.
  void end() noexcept;

 private:
  // Of each rank the parts of all members, each with as much room as rank 0's takes.
  struct Packed {
    Tensor memory;
    int64_t stretch = 0;                            // of a rank, elements
    std::vector<std::pair<Item, int64_t>> members;  // and where they are in a stretch
  };
  Packed pack(const std::vector<Item>& small) const;
  void unpack(const Packed& p) const;

  int rank_, ranks_;
  std::vector<Packed> packed_;
  Work work_;
  std::exception_ptr failed_;
};

}  // namespace strata::distributed
