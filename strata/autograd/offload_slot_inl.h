#pragma once
// A saved storage, and how a call makes it again.

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "strata/autograd/offload_depot_inl.h"
#include "strata/core/op_base.h"
#include "strata/core/storage_watch.h"

namespace strata::offload {

/// A tensor without its storage.
struct View {
  Shape shape;
  Strides strides;
  int64_t offset = 0;
  DType dtype = DType::f32;
  bool number = false;
  static View of(const Tensor& t);
  Tensor on(const Ref<Storage>& storage) const;
};

/// Whether the memory of `t`, which wants a gradient, is there whoever saves it: a leaf, what autocast keeps of one, a
/// parameter that is computed before each use.
bool stays(const Tensor& t);

class Recipe;

/// One storage that is saved, as of one version.
struct Slot {
  Slot(Storage& s, int64_t pass, int32_t order)
      : watch(s),
        version(watch.version()),
        bytes(static_cast<int64_t>(s.nbytes)),
        pass(pass),
        order(order),
        device(s.device) {}

  strata::detail::StorageWatch watch;
  const uint32_t version;
  const int64_t bytes;
  const int64_t pass;
  const int32_t order;  ///< among those that the pass saves
  const Device device;
  std::string name;
  SavedPlace place = SavedPlace::keep;
  int32_t release_at = OffloadPlan::kNever;

  /// Exactly one of these three has the bytes; while a copy is on the way out, source and parcel do.
  Ref<Storage> source;
  std::unique_ptr<Parcel> parcel;
  std::shared_ptr<Recipe> recipe;
  int result = 0;  ///< of the recipe

  Ref<Storage> near;      ///< what came back, until all users have had it
  bool fetching = false;  ///< parcel->fetch() was called, take() not yet
  bool waits = false;     ///< in the queue of those that go when others have come after
  bool leaving = false;   ///< in the queue of those on the way out
  bool counted = false;   ///< among those kept or forwarded

  /// A saved tensor or a recipe that asks for it.
  struct User {
    int served_in = 0;
  };
  int users = 0;   ///< how many there are
  int round = 1;   ///< of being near
  int served = 0;  ///< users who have had it in this round
  void serve(User& u);
  void add_user() { ++users; }
  void remove_user(const User& u);
  /// Lets go of what is near once all have had it: a further backward fetches it again.
  void tidy();

  /// Throws AutogradError where the storage was written since.
  void check_version() const;
};

/// A call that made storages: what it takes to run it again. It holds no tensor but parameters and small ones, until it
/// is bound.
class Recipe {
 public:
  /// A tensor argument: held, or part of a saved storage, or the result of another recipe.
  struct Source {
    View view;
    uint64_t storage = 0;  ///< its number; 0 where the tensor is undefined
    uint32_t version = 0;
    Tensor held;
    std::shared_ptr<Slot> slot;
    Slot::User user;  ///< of slot
    std::shared_ptr<Recipe> made;
    int result = 0;
  };
  using Arg = std::variant<Value, Source, std::vector<Source>>;

  ~Recipe();
  Recipe() = default;
  Recipe(const Recipe&) = delete;

  const OpBase* op = nullptr;
  int32_t number = -1;  ///< of the call in its pass
  Cost cost;
  std::vector<Arg> args;
  std::vector<std::weak_ptr<Slot>> results;  ///< those that wait for it, by the op's results
  bool bound = false;

  template <class F>
  void each_source(F&& f) {
    for (Arg& a : args) {
      if (auto* one = std::get_if<Source>(&a)) f(*one);
      if (auto* many = std::get_if<std::vector<Source>>(&a))
        for (Source& s : *many) f(s);
    }
  }
};

/// What the calls of a pass made, by the number of the storage.
class Recipes {
 public:
  /// Parameters are held, tensors below `small` bytes, and those with a tag but activation.
  explicit Recipes(int64_t small) : small_(small) {}
  /// A call that gave `results`: remembered where one of them has memory of its own and is not small.
  void note(const Call& call, std::span<const Tensor> results);
  /// Forgets them.
  void clear() { made_.clear(); }
  /// A pass begins: forgets the work, too.
  void begin();
  /// Work of all calls that note() saw.
  Cost total() const { return total_; }

  /// Finds a saved storage by number and version; nullptr where there is none.
  using FindSlot = std::function<std::shared_ptr<Slot>(uint64_t number, uint32_t version)>;
  /// How to make a storage again from what is saved besides.
  struct Way {
    std::shared_ptr<Recipe> recipe;  ///< nullptr where it cannot be
    int result = 0;
    Cost cost;                                 ///< of all calls needed
    int64_t beside = 0;                        ///< bytes of what they make that is not saved
    std::vector<std::shared_ptr<Slot>> reads;  ///< the saved storages that they read
  };
  Way find(const Slot& slot, const FindSlot& saved) const;
  /// Takes hold of what the recipe reads: `find` has just given it.
  void bind(Recipe& recipe, const FindSlot& saved) const;

 private:
  struct Made {
    std::shared_ptr<Recipe> recipe;
    int result = 0;
    uint32_t version = 0;
    int64_t bytes = 0;
  };
  bool resolve(const Recipe& r, const FindSlot& saved, uint64_t not_this, int depth, Way& way) const;
  const Made* made(uint64_t storage, uint32_t version) const;

  int64_t small_;
  int32_t next_ = 0;
  Cost total_;
  std::unordered_map<uint64_t, Made> made_;
};

/// Runs a bound recipe. `bring` gives the bytes of a saved storage. One storage for each result of the op.
std::vector<Ref<Storage>> run(Recipe& recipe, const std::function<Ref<Storage>(Slot&, Slot::User&)>& bring);

}  // namespace strata::offload
