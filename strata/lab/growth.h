#pragma once
// How a sample's arguments grow: which of their sizes can change, and which only together.

#include <span>
#include <vector>

#include "strata/core/op_base.h"
#include "strata/core/value.h"

namespace strata::lab {

/// One set of arguments of an op, whose sizes can be changed. Which sizes belong together is found by asking the op:
/// the least sets of sizes that it takes multiplied (an inner size of both factors of a product; a hidden size and four
/// times it). A size that can only grow where another grows as well stays as it is (a kernel inside its image), but
/// for those of index tensors. Sizes given as numbers take part where the tensors' cannot change without them.
class Growth {
 public:
  /// How sizes are rounded.
  enum class Round : uint8_t {
    powers,  ///< to powers of two, times what the sizes of one group have to each other
    odd,     ///< one less than those
  };
  /// Asks the op, on the meta device; one that needs values is called with small tensors.
  Growth(const OpBase& op, std::vector<Value> args);

  /// Whether any size can change.
  bool possible() const { return !groups_.empty(); }
  /// Arguments as tensors of the meta device of which the largest has at most about `elements` elements, never less
  /// than the sample's, unless these are large; as they are where the op refuses every such set. Odd sizes that the op
  /// refuses: nothing.
  std::vector<Value> sized(double elements, Round round) const;
  /// How many groups of sizes there are.
  size_t groups() const { return groups_.size(); }
  /// By how much a group's sizes are multiplied in `args`, a result of sized(); 1 for one without a tensor.
  double factor(std::span<const Value> args, size_t group) const;
  /// Whether the op takes these on the meta device, or where it needs values, small tensors like them.
  bool accepts(std::span<const Value> args) const;

 private:
  // A size of a tensor (of the list of all tensors) or a number among the arguments.
  struct Size {
    int tensor = -1, arg = -1, at = -1, from_end = -1;
    int64_t value = 0;
    bool index = false;  // of an integer tensor
  };
  struct Group {
    std::vector<size_t> sizes;
    int64_t unit = 1;
  };
  using Chosen = std::vector<bool>;

  void list_sizes();
  Chosen first_choice() const;
  Chosen least_with(size_t i, const Chosen& all) const;
  void find_groups(const Chosen& all);
  bool takes(const Chosen& chosen) const;
  std::vector<Value> with(const std::vector<int64_t>& values) const;
  std::vector<int64_t> targets(double factor, Round round) const;
  double largest(const std::vector<int64_t>& values) const;

  const OpBase& op_;
  std::vector<Value> args_;
  std::vector<Size> sizes_;
  std::vector<Group> groups_;
  bool dry_ = true;  // the meta device tells what the op takes
};

}  // namespace strata::lab
