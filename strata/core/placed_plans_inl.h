#pragma once
// What is decided of a call with sharded arguments before anything is computed, and the plans that a thread keeps:
// calls like an earlier one, a layer's like the layer's before, ask no rule again.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "strata/core/placement.h"
#include "strata/core/sharding.h"

namespace strata::detail {

/// How a call with sharded arguments goes.
struct PlacedPlan {
  std::vector<TensorMeta> metas;    ///< the whole results; none where they depend on values
  Layout whole;                     ///< how plain tensors lie
  std::vector<Layout> to;           ///< how each tensor argument is to lie, lists flattened
  std::vector<uint8_t> moves;       ///< whether it lies otherwise
  std::vector<LayoutRef> results;   ///< how each result lies
  std::vector<Shape> local_shapes;  ///< and this rank's part of it
  bool whole_size = false;          ///< as Possibility::of_whole_size
  LocalChange before, after;
  std::vector<std::string> changing;  ///< the axes that they are for
  bool repeats = true;                ///< for further calls, too
  /// Arguments, by their number, that `before` sets: known once it was called, where the plan is for further calls.
  std::vector<std::pair<int, Value>> set;

  /// Whether arguments and results are this call's parts as they are.
  bool simple() const { return !before && !after && !whole_size && !metas.empty(); }
};

/// The plans of one thread, by what tells calls apart: the op, of tensors shape, strides, dtype, device and where they
/// lie, of other arguments the value, all written as words of which no two calls that may go differently have the same.
/// Nothing that a plan depends on can change otherwise, so none becomes invalid. They are bounded: of twice kMost,
/// those stay that were used among the last kMost.
class PlacedPlans {
 public:
  static constexpr size_t kMost = 1024;
  /// This thread's.
  static PlacedPlans& mine();
  /// nullptr where there is none.
  std::shared_ptr<const PlacedPlan> find(std::span<const uint64_t> key);
  void keep(std::vector<uint64_t> key, std::shared_ptr<const PlacedPlan> plan);
  void clear();
  size_t size() const { return newer_.size() + older_.size(); }
  uint64_t found() const { return found_; }  ///< how often find() had one

  /// For the words of the call that is looked up now.
  std::vector<uint64_t> words;
  bool off = false;  ///< every call makes its own: for tests

 private:
  struct Entry {
    std::vector<uint64_t> key;
    std::shared_ptr<const PlacedPlan> plan;
  };
  using Generation = std::unordered_map<uint64_t, Entry>;  // by hash; of two keys of one hash the later one stays
  void put(uint64_t hash, Entry entry);

  Generation newer_, older_;
  uint64_t found_ = 0;
};

/// Appends what tells values apart; of random numbers' keys that there is one.
void append_words(std::vector<uint64_t>& words, const Value& v);
void append_words(std::vector<uint64_t>& words, const Dims& d);
void append_text(std::vector<uint64_t>& words, std::string_view text);
/// Of a tensor, or undefined, that lies on `mesh` where it is sharded: the first sharded one's, which is set by it.
void append_words(std::vector<uint64_t>& words, const Tensor& t, const MeshPlace*& mesh);

}  // namespace strata::detail
