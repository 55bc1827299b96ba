#include "strata/autograd/recompute.h"

#include <optional>

#include "strata/autograd/stretch_inl.h"
#include "strata/core/recording.h"
#include "strata/core/saving.h"
#include "strata/core/storage_watch.h"

namespace strata {
namespace {
using detail::KeptInput;
using detail::Stretch;
using detail::StretchToken;
using detail::StretchValue;

// A rule's own calls are no stretch's, also where they are to be differentiated again.
bool in_forward() {
  return current_phase() == Phase::forward;
}
}  // namespace

struct Recompute::State final : SavedTensorHooks {
  explicit State(const RecomputeOptions& o) : options(o) {
    const std::shared_ptr<SavedTensorHooks>& outer = detail::innermost_hooks();
    if (options.inputs == Tier() && outer && outer->looks_ahead()) around = outer;
  }

  RecomputeOptions options;
  std::shared_ptr<SavedTensorHooks> around;  // that move what they keep
  std::shared_ptr<Stretch> stretch;
  std::weak_ptr<Stretch> last;
  std::vector<std::weak_ptr<KeptInput>> inputs;  // that are not where they shall be kept
  // The calls that are open: composed ones, whose own calls count; others, within which nothing does.
  struct Open {
    bool composed = false;
    std::shared_ptr<Stretch> stretch;  // that noted it
    int32_t call = -1;
  };
  std::vector<Open> open;
  std::vector<std::weak_ptr<StretchToken>> pending;  // saved by the open call: its results, if they turn out to be

  void begin() {
    end_stretch();
    stretch = std::make_shared<Stretch>(last);
    last = stretch;
  }
  void end_stretch() {
    if (stretch) stretch->close();
    stretch.reset();
    move_inputs();
  }

  // Of a storage that no call of the stretch made. Of those that hooks around keep each stretch has its own, so that
  // they know when all have had it.
  std::shared_ptr<KeptInput> input_of(const Tensor& t) {
    const uint64_t number = detail::watch_number(*t.storage());
    PackedTensor packed = detail::pack_with(around, t);
    if (!packed.hooks)
      for (const auto& known : inputs)
        if (std::shared_ptr<KeptInput> in = known.lock(); in && in->storage == number && in->version == t.version())
          return in;
    auto in = std::make_shared<KeptInput>();
    in->storage = number;
    in->version = t.version();
    if (packed.hooks) {
      in->packed = std::move(packed);
    } else {
      in->bytes = detail::storage_bytes(t.storage());
      inputs.push_back(in);
    }
    return in;
  }

  // Those that nobody else holds any more go to their tier.
  void move_inputs() {
    std::erase_if(inputs, [](const auto& in) { return in.expired(); });
    if (options.inputs == Tier()) return;
    const detail::ThreadModeScope plain({false, 0});
    for (const auto& weak : inputs) {
      const std::shared_ptr<KeptInput> in = weak.lock();
      if (in->moved || in->bytes.storage().use_count() > 1 || in->bytes.nbytes() < options.least_bytes ||
          in->bytes.version() != in->version || in->bytes.tier() == options.inputs)
        continue;
      in->bytes = in->bytes.to(options.inputs);
      in->moved = true;
    }
  }

  std::shared_ptr<void> pack(const Tensor& t) override {
    auto token = std::make_shared<StretchToken>();
    if (!stretch || !in_forward()) {
      hold(*token, t);
      return token;
    }
    token->value = StretchValue::of(t);
    const int32_t call = open.empty() ? -1 : open.back().call;
    if (stretch->count(*token, t.version())) {
      given_to(*token, stretch, call);
    } else if (const auto in = stretch->find_input(token->value.storage);
               in && !in->packed.hooks && in->version == t.version()) {
      token->input = in;
    } else if (!in && !open.empty() && open.back().stretch) {
      token->call = call;
      token->tensor = t;
      pending.push_back(token);
    } else {
      hold(*token, t);
    }
    return token;
  }
  // As without a stretch.
  void hold(StretchToken& token, const Tensor& t) const {
    const Tensor* original = detail::tensor_being_saved();
    token.packed = detail::pack_with(around, original ? *original : t);
    if (!token.packed.hooks) token.tensor = t;
  }
  static void given_to(StretchToken& token, const std::shared_ptr<Stretch>& stretch, int32_t call) {
    token.stretch = stretch;
    token.call = call;
    token.tensor = {};
  }

  Tensor unpack(const std::shared_ptr<void>& packed) override {
    auto& token = *static_cast<StretchToken*>(packed.get());
    if (token.stretch) return token.stretch->take(token);
    if (token.packed.hooks) return token.packed.hooks->unpack(token.packed.value);
    if (!token.input) return token.tensor;
    const KeptInput& in = *token.input;
    check<AutogradError>(!in.overwritten(), "backward", "a tensor needed for a gradient (", token.value.shape, " ",
                         token.value.dtype, ") was overwritten by ", in.bytes.storage()->last_writer(), " (version ",
                         in.bytes.version(), ", saved at version ", in.version,
                         "); clone it first, or use the form that is not in place");
    return token.value.in(in.bytes);
  }
  void list_within(const std::shared_ptr<void>& packed, std::vector<PackedTensor>& all) const override {
    const auto& token = *static_cast<const StretchToken*>(packed.get());
    if (token.stretch) token.stretch->list_inputs(token, all);
    if (token.packed.hooks) all.push_back(token.packed);
  }

  void note(const Call& call, Open& now) {
    if (stretch->closed()) begin();      // backward came between
    if (call.form == Form::out) return;  // whoever reads it reads what came from outside
    std::vector<Value> args = call.args();
    if (any_stale(args)) begin();
    if (call.form == Form::inplace)
      for (const Tensor& t : call.targets)
        if (!stretch->makes(detail::watch_number(*t.storage()))) return;  // of outside: not to be done twice
    now.call = stretch->note(call, std::move(args), [&](const Tensor& t) { return input_of(t); });
    if (now.call >= 0) now.stretch = stretch;
  }

  // What the open call saved of its results is made by the stretch.
  void settle(const Open& call) {
    for (const auto& weak : pending)
      if (const std::shared_ptr<StretchToken> token = weak.lock(); token && call.stretch->count(*token, {}))
        given_to(*token, call.stretch, call.call);
    pending.clear();
  }

  bool any_stale(std::span<const Value> args) const {
    const auto stale = [this](const Tensor& t) { return t.defined() && stretch->is_stale(t); };
    for (const Value& v : args) {
      if (const auto* t = std::get_if<Tensor>(&v); t && stale(*t)) return true;
      if (const auto* list = std::get_if<TensorList>(&v))
        for (const Tensor& t : *list)
          if (stale(t)) return true;
    }
    return false;
  }

  std::optional<ObserverScope> observing;
  std::optional<SavedTensorHooksScope> hooks;
};

Recompute::Recompute(const RecomputeOptions& options) : state_(std::make_shared<State>(options)) {
  state_->hooks.emplace(state_);
  state_->observing.emplace(*this);
}

Recompute::~Recompute() {
  state_->observing.reset();
  state_->hooks.reset();
  state_->open.clear();
  if (state_->stretch) state_->stretch->close();
  state_->stretch.reset();
}

void Recompute::begin() {
  state_->begin();
}

void Recompute::keep() {
  state_->end_stretch();
}

void Recompute::before(const Call& call) {
  State& s = *state_;
  const bool within = !s.open.empty() && !s.open.back().composed;
  State::Open now{.composed = call.composed && !within};
  if (!within && !call.composed && s.stretch && in_forward()) s.note(call, now);
  s.open.push_back(std::move(now));
}

void Recompute::after(const Call& call, std::span<const Tensor> results) {
  State& s = *state_;
  if (s.open.empty()) return;  // it began before this did
  const State::Open ended = std::move(s.open.back());
  s.open.pop_back();
  if (!ended.stretch) return;
  ended.stretch->note_results(ended.call, results, call.form == Form::inplace);
  s.settle(ended);
}

void Recompute::failed(const Call&) {
  State& s = *state_;
  if (s.open.empty()) return;
  const State::Open ended = std::move(s.open.back());
  s.open.pop_back();
  if (ended.stretch) ended.stretch->drop(ended.call);
  s.pending.clear();
}

}  // namespace strata
