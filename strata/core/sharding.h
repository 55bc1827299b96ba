#pragma once
// What a shard rule sees of a call, and what it says: the possibilities for one axis of a mesh.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/core/op_base.h"
#include "strata/core/placement.h"
#include "strata/core/shard_rule.h"

namespace strata {

/// The call of an op on one rank's parts, for what has to change in it or after it.
struct LocalCall {
  const OpBase& op;
  std::vector<Value>& args;              ///< the local tensors, the other arguments as they came
  TensorList results;                    ///< once the call was made
  Shape local_result;                    ///< the shape that result 0 will have here
  Stretch rows;                          ///< what of dimension 0 of result 0 is here, where that is one stretch
  std::vector<Stretch> arg_rows;         ///< the same of each tensor argument, lists flattened
  std::vector<std::string> axes;         ///< of the mesh, whose possibility this belongs to
  std::span<const Layout> layouts = {};  ///< how each tensor argument lies for it, lists flattened
  Value& arg(std::string_view name) const;
};

/// What has to change in a local call.
using LocalChange = std::function<void(LocalCall&)>;

/// One call, seen from one axis of a mesh: its rule adds the placements with which each rank can compute its part of
/// the results from its parts of the arguments. "All whole" is always one of them.
class Sharding {
 public:
  /// A tensor argument; those of a list one after the other.
  struct Arg {
    Shape shape;
    DType dtype = DType::f32;
    bool defined = false;
    int arg = 0;    ///< which argument of the schema it is, or is in
    Placement now;  ///< how it lies along this axis
  };
  /// Placements along this axis with which each rank computes its part.
  struct Possibility {
    std::vector<Placement> args, results;
    bool may_be_empty = false;  ///< a rank may have nothing of a tensor that is not empty
    bool evenly = false;        ///< only where every rank has as much, of each segment, whatever axes cut beside this
    /// The op's random numbers are the elements', so the call is made on tensors of the whole's size.
    bool of_whole_size = false;
    /// Change the local call, and its results. Called once, for all axes whose possibilities have some: parts are then
    /// cut by all of them.
    LocalChange before = nullptr, after = nullptr;
    /// Without them: nothing. With one: that it remembers nothing of a call, and does the same for every one whose
    /// tensors have the same shapes and lie alike, and whose other arguments are the same. Such calls share a plan.
    bool repeats = false;
  };

  Sharding(const OpBase& op, std::span<const Value> values, int ranks, int all_ranks)
      : op(op), values(values), ranks(ranks), all_ranks(all_ranks) {}
  const OpBase& op;
  std::span<const Value> values;  ///< all arguments, with the handles
  const int ranks;                ///< of this axis
  const int all_ranks;            ///< of all axes: what divides by it has equal parts however many of them cut it
  std::vector<Arg> args;
  std::vector<Shape> results;  ///< shapes of the whole results

  /// @name Arguments that are no tensors, by their names in the schema
  std::optional<int64_t> integer(std::string_view name) const;
  /// Of an int[] or int: the dimensions meant, counted from 0, for a tensor of `rank` dimensions; none of None.
  std::optional<std::vector<int>> dims(std::string_view name, int64_t rank) const;
  std::string text(std::string_view name) const;
  double number(std::string_view name) const;
  bool has(std::string_view name) const;

  /// A possibility in which all is whole so far.
  Possibility whole() const { return {std::vector<Placement>(args.size()), std::vector<Placement>(results.size())}; }
  void add(Possibility p) { possible.push_back(std::move(p)); }
  /// The ways in which `dim` of argument `i` is cut now, and the plain one, as placements of dimension 0. Those that do
  /// not fit a length of `size` are left out.
  void ways(std::vector<Placement>& into, size_t i, int dim, int64_t size) const;
  std::vector<Possibility> possible;
};

namespace detail {
/// Adds what `rule` says. Throws ValueError where its text is no rule, or not one for the op's schema.
void apply_rule(const ShardRule& rule, Sharding& s);
/// The rule of an op: its record's; "elementwise" for the families of elementwise functions; "parts" for what is only
/// composed of other ops, "whole" for what takes no tensors and for plugins. Empty: there is none.
const ShardRule& rule_of(const OpBase& op);
/// Whether text begins with the name of a rule that many records share.
bool is_shared_rule(std::string_view text);
/// How many patterns of arguments and results a rule's text has; nothing for a function or a shared rule.
std::optional<std::pair<size_t, size_t>> patterns_of(const ShardRule& rule);
}  // namespace detail

}  // namespace strata
