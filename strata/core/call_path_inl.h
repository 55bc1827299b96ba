#pragma once
// What the files of the call path share.

#include <bit>
#include <utility>

#include "strata/core/call_path.h"

namespace strata::detail {

// A few tensors whose addresses stay: on the stack while they are few.
class HeldTensors {
 public:
  explicit HeldTensors(size_t most) {
    if (most > kFew) many_.reserve(most);
  }
  const Tensor* hold(Tensor t) {
    if (few_count_ == kFew || many_.capacity() > 0) return &many_.emplace_back(std::move(t));
    few_[few_count_] = std::move(t);
    return &few_[few_count_++];
  }

 private:
  static constexpr size_t kFew = 6;
  Tensor few_[kFew];
  size_t few_count_ = 0;
  TensorList many_;
};

// f(tensor, position of its argument), in order.
template <class F>
void CallPath::each_tensor(ArgsAt at, F&& f) const {
  for (uint32_t left = tensors_; left; left &= left - 1) {
    const int i = std::countr_zero(left);
    if (lists_ >> i & 1) [[unlikely]] {
      for (const Tensor& t : arg_at<TensorList>(at[i])) f(t, i);
    } else {
      f(arg_at<Tensor>(at[i]), i);
    }
  }
}

// The arguments of a call with others in the place of some.
class CallPath::Substitutes {
 public:
  Substitutes(const CallPath& op, ArgsAt at) : tensors_(static_cast<size_t>(std::popcount(op.tensors_ & ~op.lists_))) {
    std::copy_n(at, op.facts_.args, at_);
    if (op.lists_) lists_.reserve(static_cast<size_t>(std::popcount(op.lists_)));
  }
  // Of one shape and dtype, as the adapter says: it looks at all tensors, lists included, and adapts those of no list.
  Substitutes(const CallPath& op, ArgsAt at, Adapter& adapter) : Substitutes(op, at) {
    op.each_tensor(at, [&](const Tensor& t, int) { adapter.see(t); });
    for (uint32_t left = op.tensors_ & ~op.lists_; left; left &= left - 1) {
      const int i = std::countr_zero(left);
      tensor(i, adapter.apply(arg_at<Tensor>(at[i])));
    }
  }
  void tensor(int i, Tensor t) { at_[i] = tensors_.hold(std::move(t)); }
  void list(int i, TensorList l) { at_[i] = &lists_.emplace_back(std::move(l)); }
  void address(int i, const void* p) { at_[i] = p; }
  ArgsAt at() const { return at_; }

 private:
  HeldTensors tensors_;
  std::vector<TensorList> lists_;
  const void* at_[kMostArgs];
};

// Room for the results of a call whose caller does not have them in their C++ type.
class CallPath::Slots {
 public:
  explicit Slots(const CallPath& op) : list_(op.facts_.results < 0) {
    for (int i = 0; i < kMostResults; ++i) at_[i] = &each_[i];
    results_ = list_ ? Results{nullptr, 0, &all_} : Results{at_, static_cast<size_t>(op.facts_.results), nullptr};
  }
  Slots(const Slots&) = delete;
  const Results& results() const { return results_; }
  std::vector<Value> boxed() {
    std::vector<Value> values;
    if (list_) {
      values.emplace_back(std::move(all_));
    } else {
      values.reserve(results_.count);
      for (size_t i = 0; i < results_.count; ++i) values.emplace_back(std::move(each_[i]));
    }
    return values;
  }

 private:
  bool list_;
  Results results_;
  Tensor* at_[kMostResults];
  Tensor each_[kMostResults];
  TensorList all_;
};

// What a call must know of its tensors, in one look at each.
struct CallPath::Seen {
  AlreadyAlike shapes;
  bool wants_grad = false;
  bool one_device = true;
  bool alike() const { return shapes.ok; }
};
[[gnu::always_inline]] inline CallPath::Seen CallPath::see(ArgsAt at) const {
  Seen seen{{policies_.adapt}};
  const TensorImpl* placed = nullptr;
  const bool recording = grad_enabled();
  each_tensor(at, [&](const Tensor& t, int) {
    if (!t.defined()) return;
    const TensorImpl& x = t.impl();
    if (recording && t.requires_grad()) seen.wants_grad = true;
    if (policies_.adapt != Adapt::none) seen.shapes.see(t);
    if (x.wrapped_number) return;
    if (placed) seen.one_device &= placed->device == x.device;
    placed = &x;
  });
  return seen;
}

}  // namespace strata::detail
