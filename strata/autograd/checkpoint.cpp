#include "strata/autograd/checkpoint.h"

namespace strata::detail {
namespace {
// Ends a recomputation as soon as the last tensor that backward needs is there.
struct Enough {};
}  // namespace

struct CheckpointFrame::Token {
  std::shared_ptr<CheckpointFrame> frame;
  size_t index;
  ~Token() {
    Slot& s = frame->slots_[index];
    s.wanted = false;
    s.tensor = Tensor();
  }
};

// The hooks of the second run: catches what is saved, in the order of the first.
struct CheckpointFrame::Refill final : SavedTensorHooks {
  explicit Refill(CheckpointFrame& f) : frame(f) {}
  std::shared_ptr<void> pack(const Tensor& t) override {
    // Not with the last tensor that is wanted: the call that saves it is to end as in forward, whoever watches calls.
    // Again where a function caught the end and went on (a language's catch of everything).
    if (next == frame.slots_.size()) throw Enough();
    Slot& s = frame.slots_[next];
    check<AutogradError>(t.version() == s.version, "checkpoint", "a tensor that the function reads (", t,
                         ") was overwritten since the forward pass");
    if (s.wanted) s.tensor = t;
    ++next;
    return std::make_shared<Tensor>(t);
  }
  Tensor unpack(const std::shared_ptr<void>& packed) override { return *static_cast<Tensor*>(packed.get()); }

  CheckpointFrame& frame;
  size_t next = 0;
};

CheckpointFrame::CheckpointFrame()
    : random_(default_generator().state()),
      rows_(row_share()),
      device_(default_device()),
      autocast_(autocast_settings()) {}

std::shared_ptr<void> CheckpointFrame::pack(const Tensor& t) {
  slots_.push_back({.version = t.version()});
  return std::shared_ptr<Token>(new Token{shared_from_this(), slots_.size() - 1});
}

Tensor CheckpointFrame::unpack(const std::shared_ptr<void>& packed) {
  Slot& s = slots_[static_cast<Token*>(packed.get())->index];
  if (!s.tensor.defined()) recompute();
  // Given away: backward frees it as soon as it is used. A second backward through the same graph computes it again.
  return std::exchange(s.tensor, Tensor());
}

void CheckpointFrame::list_within(const std::shared_ptr<void>& packed, std::vector<PackedTensor>& all) const {
  if (!slots_[static_cast<const Token*>(packed.get())->index].tensor.defined()) list_inputs(all);
}

void CheckpointFrame::recompute() {
  struct RandomState {
    RngKey outer = default_generator().state();
    ~RandomState() { default_generator().set_state(outer); }
  } restore;
  default_generator().set_state(random_);
  const RowShareScope rows(rows_);
  const auto refill = std::make_shared<Refill>(*this);
  GradMode on(true);
  DeviceScope device(device_);
  AutocastScope autocast(autocast_);
  SavedTensorHooksScope scope(refill);
  try {
    run_again();
  } catch (const Enough&) {
  }
  check<AutogradError>(refill->next == slots_.size(), "checkpoint", "the function saved ", slots_.size(),
                       " tensors in the forward pass and ", refill->next,
                       " when it ran again; it must do the same each time");
}

}  // namespace strata::detail
