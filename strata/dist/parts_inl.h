#pragma once
// How a tensor is cut along dimension 0 between the ranks of a group, and how the parts come together again.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/core/tensor.h"
#include "strata/dist/group.h"

namespace strata::distributed {

/// The parts of a row-major tensor with at least one dimension, one for each rank: rows behind one another, as
/// Placement "S(0)" has them. Some may be empty.
struct Cut {
  Cut() = default;
  Cut(const Shape& whole, int ranks);
  /// Elements of rank r's part.
  int64_t numel(int r) const { return begins[static_cast<size_t>(r) + 1] - begins[static_cast<size_t>(r)]; }
  int64_t begin(int r) const { return begins[static_cast<size_t>(r)]; }
  int ranks() const { return static_cast<int>(begins.size()) - 1; }
  bool even() const { return numel(0) == numel(ranks() - 1); }
  /// How many of a tensor's `rows` rank r has.
  int64_t rows(int64_t rows, int r) const { return rows / ranks() + (r < rows % ranks() ? 1 : 0); }
  /// Rank r's part of `whole`, a view of its rows.
  Tensor part(const Tensor& whole, int r) const;

  std::vector<int64_t> begins;  ///< of each rank's elements, and the end
};

/// Brings every rank's part to its place in `whole`: of an even cut from `part`, else, and where that is nullptr, this
/// rank's own is there already. Every rank of the group calls it.
void gather_parts(Collectives& c, std::byte* whole, const std::byte* part, const Cut& cut, int64_t element_bytes);

/// Throws DistributedError, naming the first parameter that differs, unless every rank of `group` has the same list of
/// names, dtypes and shapes.
void check_same_parameters(std::string_view op, const std::vector<std::pair<std::string, Tensor>>& parameters,
                           Group& group);
/// Makes every rank's elements those of the group's first: of sharded tensors, of the parts.
void broadcast_parameters(const std::vector<std::pair<std::string, Tensor>>& parameters, Group& group);

/// The order in which `count` gradients travel: `arrived`, the order in which they came here (each counts once), then
/// the others; of the group's first rank, since ranks must agree and theirs may come in another.
std::vector<size_t> agreed_order(const std::vector<size_t>& arrived, size_t count, Group& group);
/// For each parameter whether a rank of any of the groups has used it in this step. `before` is what they agreed on in
/// the step before, empty in the first, and what a step that is captured in a CUDA graph takes, as no host takes part
/// in a replay. Throws DeviceError, naming the parameter, where a captured step uses more.
std::vector<uint8_t> agreed_use(std::string_view op, std::vector<uint8_t> used, std::vector<uint8_t>& before,
                                const std::vector<Group*>& groups, const std::function<std::string(size_t)>& name);

}  // namespace strata::distributed
