#pragma once
// Sharded tensors: a handle of the whole's shape, whose elements lie in parts on the ranks of a mesh. What a call does
// with them is in docs/design/placements.md; strata/dist/placed.h has the functions that make and read them.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/node.h"
#include "strata/core/tensor.h"

namespace strata {

/// How a tensor lies along one axis of a mesh.
struct Placement {
  /// What an axis means for the tensor.
  enum Kind : uint8_t {
    replicate,  ///< every rank has all of it: "R"
    shard,      ///< each rank has a part of one dimension: "S(0)"
    partial,    ///< the ranks' tensors are to be reduced: "P(sum)"
  };
  Kind kind = replicate;
  int dim = 0;       ///< of shard
  int64_t unit = 1;  ///< of shard: what is never cut apart, "S(0,unit=64)" for the rows of a head
  /// Of shard: lengths of what is cut for itself, "S(0,segments=64+32+32)" for q, k and v behind one another. A rank
  /// has its part of each. Empty: one segment.
  std::vector<int64_t> segments;
  /// Of shard: what the axes before have left of the dimension is cut as it lies, one row behind the other, however they
  /// cut it: "S(0,segments=64+32+32) S(0,part)". So a rank's part is a stretch of what the first axis' rank has.
  bool part = false;
  std::string reduction = "sum";  ///< of partial: sum, avg, max, min or product

  /// "S(dim)".
  static Placement sharded(int dim) { return {.kind = shard, .dim = dim}; }
  /// "P(reduction)".
  static Placement partial_of(std::string_view reduction) {
    return {.kind = partial, .reduction = std::string(reduction)};
  }
  bool is_replicate() const { return kind == replicate; }
  bool is_shard() const { return kind == shard; }
  bool is_partial() const { return kind == partial; }
  /// The same way of cutting, whatever the dimension.
  bool cuts_like(const Placement& o) const { return unit == o.unit && part == o.part && segments == o.segments; }
  bool operator==(const Placement& o) const;
};
/// "S(0,unit=64)".
std::string text_of(const Placement& p);
std::string text_of(const std::vector<Placement>& all);  ///< one behind the other, with blanks
/// What text_of() writes: "S(0) R". Throws ValueError with what stands wrong.
std::vector<Placement> parse_placements(std::string_view text);

/// Some axes of a mesh, and where this process is on each.
struct MeshPlace {
  /// One axis: how many ranks it has, and which this process is.
  struct Axis {
    std::string name;
    int size = 1;
    int place = 0;
    bool operator==(const Axis&) const = default;
  };
  std::vector<Axis> axes;
  bool operator==(const MeshPlace&) const = default;
};

/// A stretch of a dimension.
struct Stretch {
  int64_t begin = 0, length = 0;
};

/// A mesh and a placement for each of its axes. Where several axes shard one dimension they do so one after the other,
/// the first axis outermost, and cut alike, or cut what is left (Placement::part).
struct Layout {
  std::shared_ptr<const MeshPlace> mesh;
  std::vector<Placement> placements;

  /// Throws ValueError unless there is a placement for each axis, and each fits a tensor of this shape.
  void check(const Shape& whole, std::string_view op) const;
  /// What of dimension `dim`, `size` long, the rank at `places` has, in order. The parts are as equal as whole units
  /// allow, the first ranks' the larger ones.
  std::vector<Stretch> stretches(int dim, int64_t size, const std::vector<int>& places) const;
  std::vector<int> places() const;  ///< this process's, by axis
  Shape local_shape(const Shape& whole, const std::vector<int>& places) const;
  Shape local_shape(const Shape& whole) const { return local_shape(whole, places()); }
  bool is_replicate() const;  ///< on every axis
  bool operator==(const Layout& o) const { return *mesh == *o.mesh && placements == o.placements; }
};
using LayoutRef = std::shared_ptr<const Layout>;

/// Whether `t` is a sharded tensor's handle: shape and strides are the whole's, elements are in local_part() alone.
bool is_placed(const Tensor& t);
/// How it lies. Throws ValueError for a tensor that is not sharded.
const LayoutRef& layout_of(const Tensor& t);
/// This process's part. Throws ValueError for a tensor that is not sharded.
const Tensor& local_part(const Tensor& t);

namespace detail {
/// What of a tensor is in this process: a sharded one's part, a plain one itself.
inline const Tensor& here(const Tensor& t) {
  return is_placed(t) ? local_part(t) : t;
}
/// Of t_mode.unusual: this thread has made sharded tensors, and calls look for them.
inline constexpr uint32_t kPlacements = 8;
/// A handle over `local`. With `storage`, which must be another handle's, it is a view of that. Turns kPlacements on.
Tensor place(const Tensor& local, const TensorMeta& whole, LayoutRef layout, const Ref<Storage>& storage = {});
/// What core asks of those who can communicate.
struct PlacementRoom {
  /// `local` as it lies by `from`, as it lies by `to`; row-major where it had to change. All ranks of the mesh call it.
  Tensor (*relay)(const Tensor& local, const Shape& whole, const Layout& from, const Layout& to);
  /// The same of handles and plain tensors (the same in every rank), recorded where gradients are on.
  Tensor (*redistribute)(const Tensor& t, const LayoutRef& to);
  /// All of it in every rank, as a plain tensor; recorded.
  Tensor (*whole)(const Tensor& t);
  /// The sum of the ranks' along one axis.
  double (*sum)(double value, const std::string& axis);
};
inline constinit const PlacementRoom* g_placement_room = nullptr;
const PlacementRoom& placement_room();
/// A gradient for `leaf`: as its leaf lies, whole where that is plain.
Tensor as_leaf_lies(const Tensor& gradient, const Tensor& leaf);
/// Whether it is a sharded tensor's, by what ends its storage.
bool is_handle(const TensorImpl& t);
/// The end of a handle, for ref_dispose().
void delete_handle(TensorImpl* t);
/// detach() and the like: the same part under the same geometry. Throws DeviceError for another geometry.
Tensor alias_of_placed(const Tensor& t, const Shape& shape, const Strides& strides, int64_t offset);
/// Where elements of a handle are asked for: DeviceError saying what to call.
[[noreturn]] void throw_placed(const Tensor& t);
}  // namespace detail

}  // namespace strata
