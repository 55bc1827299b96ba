#pragma once
// A stretch of forward: its calls, what came in, and what it makes again when backward asks. Used by recompute.cpp
// alone.

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "strata/core/node.h"
#include "strata/core/op_base.h"

namespace strata::detail {

/// A storage from outside of a stretch, as it was when a call of it read it. Stretches share it.
struct KeptInput {
  Tensor bytes;         ///< u8, all of the storage; a copy on another tier once it was moved
  PackedTensor packed;  ///< or what the hooks around the stretch keep of it
  uint64_t storage = 0;
  uint32_t version = 0;
  bool moved = false;
  /// u8, all of the storage. Throws AutogradError where hooks around find it overwritten.
  Tensor get() const;
  bool overwritten() const { return !packed.hooks && !moved && bytes.version() != version; }
};

/// A tensor as a part of a storage, which it does not hold.
struct StretchValue {
  uint64_t storage = 0;  ///< Storage::watched; 0: an undefined tensor
  DType dtype = DType::f32;
  Shape shape;
  Strides strides;
  int64_t offset = 0;
  bool number = false;
  static StretchValue of(const Tensor& t);
  Tensor in(const Tensor& bytes) const;
};

class Stretch;

/// What stands for a saved tensor.
struct StretchToken {
  ~StretchToken();
  std::shared_ptr<Stretch> stretch;  ///< that makes it again; or else one of these holds it
  std::shared_ptr<KeptInput> input;
  PackedTensor packed;
  Tensor tensor;
  StretchValue value;
  int32_t call = -1;   ///< that saved it
  uint32_t round = 0;  ///< of the stretch, when backward last took it
};

/// One stretch. It is filled on the thread of forward until close(), which backward, on whatever thread, does where
/// forward has not.
class Stretch {
 public:
  explicit Stretch(std::weak_ptr<Stretch> before) : before_(std::move(before)) {}

  /// @name Forward
  /// @{
  /// Whether reading `t` cannot be noted any more: it was written since by no call of the stretch.
  bool is_stale(const Tensor& t) const;
  /// Notes a call, whose tensors are all not stale, and returns its number; -1 where the stretch is closed. `input`
  /// makes or finds what is kept of a storage from outside.
  template <class Input>
  int32_t note(const Call& call, std::vector<Value>&& args, Input&& input);
  void note_results(int32_t call, std::span<const Tensor> results, bool inplace);
  /// The call made nothing: it threw.
  void drop(int32_t call);
  bool makes(uint64_t storage) const;
  std::shared_ptr<KeptInput> find_input(uint64_t storage) const;
  /// Counts a saved tensor that calls of the stretch made and (where `version` is given) nothing has written since: the
  /// stretch will make it again. False, and nothing was done, where it is none or the stretch is closed.
  bool count(const StretchToken& token, std::optional<uint32_t> version);
  /// Forgets the calls and inputs that nothing saved depends on.
  void close();
  bool closed() const;
  /// @}

  /// @name Backward: any thread
  /// @{
  Tensor take(StretchToken& token);
  void end(const StretchToken& token);
  /// Appends what hooks around the stretch keep of its inputs, if it is to run again for `token`: for the last of its
  /// tokens, which backward wants first, or any once that has ended. Nothing while it runs.
  void list_inputs(const StretchToken& token, std::vector<PackedTensor>& all) const;
  /// @}

 private:
  struct Noted {
    const OpBase* op = nullptr;
    bool inplace = false;
    const std::string* module = nullptr;
    std::vector<Value> args;  // without tensors
    std::vector<std::pair<size_t, StretchValue>>
        tensors;                        // argument, and the tensor in it; of lists one after the other
    std::vector<StretchValue> results;  // storage 0 where nothing new was made
  };
  struct Made {
    int32_t tokens = 0;        // that stand for parts of it
    int32_t left = 0;          // of them, not taken in this round
    uint32_t version = 0;      // after the last call that wrote it
    int32_t overwritten = -1;  // the last call that wrote it in place
    Tensor bytes;              // made again
  };
  void close_locked();
  void run_again();
  void run(size_t i, std::unordered_map<uint64_t, Tensor>& there, std::unordered_map<uint64_t, Tensor>& came);
  void prefetch();

  mutable std::mutex mutex_;
  std::vector<Noted> calls_;
  std::unordered_map<uint64_t, std::shared_ptr<KeptInput>> inputs_;
  std::unordered_map<uint64_t, Made> made_;
  std::weak_ptr<Stretch> before_;
  const StretchToken* newest_ = nullptr;  // of those that are counted
  uint32_t round_ = 0;
  bool closed_ = false;
};

template <class Input>
int32_t Stretch::note(const Call& call, std::vector<Value>&& args, Input&& input) {
  const std::lock_guard lock(mutex_);
  if (closed_) return -1;
  Noted& n = calls_.emplace_back();
  n.op = &call.op;
  n.inplace = call.form == Form::inplace;
  n.module = memory::detail::t_caller.module;
  const auto see = [&](size_t i, const Tensor& t) {
    StretchValue v;
    if (t.defined()) {
      v = StretchValue::of(t);
      if (!made_.contains(v.storage) && !inputs_.contains(v.storage)) inputs_.emplace(v.storage, input(t));
    }
    n.tensors.emplace_back(i, v);
  };
  for (size_t i = 0; i < args.size(); ++i) {
    if (auto* t = std::get_if<Tensor>(&args[i])) {
      see(i, *t);
      *t = {};
    } else if (auto* list = std::get_if<TensorList>(&args[i])) {
      for (Tensor& each : *list) {
        see(i, each);
        each = {};
      }
    }
  }
  n.args = std::move(args);
  return static_cast<int32_t>(calls_.size()) - 1;
}

}  // namespace strata::detail
