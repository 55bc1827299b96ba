// Calls whose arguments come in boxes.

#include <bit>

#include "strata/core/call_path_inl.h"

namespace strata::detail {

// Arguments out of their boxes.
class CallPath::Arguments {
 public:
  // By the other constructor, so that what is constructed is destroyed where a later one throws.
  Arguments(const CallPath& op, std::span<const Value> given) : Arguments(op) {
    check_boxed_count(op, given.size());
    const auto count = static_cast<size_t>(op.facts_.args);
    if (given.size() < count) defaults_.reserve(count - given.size());
    for (size_t i = 0; i < count; ++i) {
      const Value& v = i < given.size() ? given[i] : defaults_.emplace_back(boxed_default(op, i));
      const ArgType& type = *op.facts_.types[i];
      void* const room = rooms_ + i * kRoom;
      at_[i] = type.unbox(v, room);
      if (!at_[i]) throw_boxed_type(op, i, {});
      if (at_[i] == room) constructed_ |= uint32_t{1} << i;
      if (type.kind == ArgType::tensor && !arg_at<Tensor>(at_[i]).defined()) check_boxed_optional(op, i);
    }
  }
  ~Arguments() {
    for (; constructed_; constructed_ &= constructed_ - 1) {
      const int i = std::countr_zero(constructed_);
      op_.facts_.types[i]->destroy(rooms_ + static_cast<size_t>(i) * kRoom);
    }
  }
  Arguments(const Arguments&) = delete;
  ArgsAt at() const { return at_; }

 private:
  // For what a record's function wants in another type than a Value has it.
  static constexpr size_t kRoom = 80;
  static_assert(kRoom >= sizeof(std::optional<Dims>) && kRoom >= sizeof(std::optional<std::string>) &&
                kRoom >= sizeof(std::optional<Scalar>) && kRoom >= sizeof(std::optional<RngKey>) && kRoom % 16 == 0);

  explicit Arguments(const CallPath& op) : op_(op) {}

  const CallPath& op_;
  uint32_t constructed_ = 0;
  std::vector<Value> defaults_;
  const void* at_[kMostArgs];
  alignas(16) std::byte rooms_[kMostArgs * kRoom];
};

void CallPath::samples(Samples& s) const {
  if (facts_.samples) facts_.samples(s);
}

std::vector<Value> CallPath::call_boxed(std::span<const Value> args) const {
  try {
    const Arguments given(*this, args);
    Slots results(*this);
    call(given.at(), results.results());
    return results.boxed();
  } catch (...) {
    rethrow_named(*this, args);
  }
}

std::vector<Value> CallPath::inplace_boxed(std::span<const Value> args) const {
  if (facts_.results != 1 || !(tensors_ & ~lists_ & 1) || !has_inplace())
    throw ValueError(name_, "has no in-place form");
  try {
    const Arguments given(*this, args);
    Tensor self = arg_at<Tensor>(given.at()[0]);
    Substitutes all(*this, given.at());
    all.address(0, &self);
    if (facts_.inplace) {
      call_inplace(self, all.at());
      return {self};
    }
    // A gradient may read what is written over: it gets a copy.
    const Tensor kept = see(all.at()).wants_grad ? self.clone() : self;
    all.address(0, &kept);
    Tensor result;
    Tensor* const slot = &result;
    call(all.at(), {&slot, 1, nullptr});
    self.copy_(result);
    return {self};
  } catch (...) {
    rethrow_named(*this, args);
  }
}

std::vector<Value> CallPath::reference_boxed(std::span<const Value> args) const {
  const AnyFunction f = facts_.reference ? facts_.reference : facts_.composed;
  if (!f) throw ValueError(name_, "the record has neither a reference nor a composed form");
  const Arguments given(*this, args);
  Slots results(*this);
  facts_.calls->form(f, given.at(), results.results());
  return results.boxed();
}

Cost CallPath::cost_boxed(std::span<const Value> args) const {
  if (!facts_.cost) return {};
  const Arguments given(*this, args);
  return facts_.calls->cost(facts_.cost, given.at());
}

uint64_t CallPath::draws_boxed(std::span<const Value> args) const {
  if (!facts_.draws) return OpBase::draws_boxed(args);
  const Arguments given(*this, args);
  return facts_.calls->draws(facts_.draws, given.at());
}

}  // namespace strata::detail
