// The update of a home with `ahead`: which parameters take part, what runs of rules it is, and the norm of gradients
// that leave as they are made.

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>

#include "strata/autograd/hooks.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/op_call.h"
#include "strata/core/storage_watch.h"
#include "strata/cuda/graph.h"
#include "strata/memory/allocator.h"
#include "strata/memory/tiers.h"
#include "strata/ops/copy/copy.h"
#include "strata/optim/ahead_inl.h"
#include "strata/optim/gradient_notes_inl.h"
#include "strata/optim/home.h"
#include "strata/optim/home_ahead_inl.h"
#include "strata/optim/kernels.h"

namespace strata::optim {
namespace {

bool moves(const Tensor& t) {
  return !t.is_meta() && t.storage()->backend().bytes == memory::Bytes::movable;
}

// Whether it always is where the processor reads and writes it.
bool lies_on_host(const Tensor& t) {
  return !t.is_meta() && t.storage()->backend().bytes == memory::Bytes::fixed &&
         (t.device().is_cpu() || t.tier() == memory::kUnified);
}

// Makes `owner` hold the tensor's bytes; where they are at home, or nullptr where they cannot be had.
std::byte* reserve(AheadUpdate::Owner& owner, const Tensor& t, bool written) {
  if (lies_on_host(t)) {
    owner.fixed.push_back(t);
    return static_cast<std::byte*>(t.raw_data());
  }
  memory::Reserved r = memory::Reserved::of(t.storage());
  std::byte* home = r ? r.home() : nullptr;
  if (home == nullptr) return nullptr;
  owner.parts.push_back({std::move(r), written});
  return home + t.storage_offset() * size_of(t.dtype());
}

}  // namespace

Optimizer::Ahead::Ahead(Optimizer& o, const StateHome& home)
    : who(home.who), here(o.params_.size()), early(o.params_.size()) {
  notes.resize(o.params_.size());
  for (const Param& p : o.params_) {
    here[p.index] = p.tensor.dim() == 0 || (!moves(p.tensor) && !lies_on_host(p.tensor));
    if (here[p.index] || !p.tensor.requires_grad()) continue;
    const Device device = p.tensor.device();
    if (!parts.defined()) {
      int64_t n = 0;
      for (const Param& q : o.params_)
        if (q.tensor.device() == device) n += square_parts(q.tensor.numel(), device);
      const memory::TagScope tag(memory::Tag::optimizer);
      parts = empty({{n}, DType::f64, device, std::nullopt});
    }
    if (!(parts.device() == device)) continue;
    Note& note = notes[p.index];
    note.at = noted;
    noted += square_parts(p.tensor.numel(), device);
    note.hook = register_post_accumulate_grad_hook(p.tensor, [this, i = p.index](const Tensor& leaf) {
      {
        const std::lock_guard lock(mutex);
        notes[i].came = ++came;
      }
      note_squares(i, leaf.grad());
      gradient_came(i);
    });
  }
}
Optimizer::Ahead::~Ahead() {
  for (Note& note : notes) note.hook.remove();
}

void Optimizer::Ahead::note_squares(size_t i, const Tensor& grad) {
  const std::lock_guard lock(mutex);
  Note& note = notes[i];
  note.storage = 0;
  if (!grad.defined() || grad.is_meta() || !grad.is_contiguous() || !is_floating(grad.dtype()) ||
      !(grad.device() == parts.device()) || cuda::capturing())
    return;
  const NoGrad guard;
  const Pin near(grad, Access::read);
  squares_of({.grad = grad.raw_data(), .numel = grad.numel(), .grad_dtype = grad.dtype(), .device = grad.device()},
             static_cast<double*>(parts.raw_data()) + note.at);
  note.storage = strata::detail::watch_number(*grad.storage());
  note.offset = grad.storage_offset();
  note.dtype = grad.dtype();
  note.version = grad.version();
}
bool Optimizer::Ahead::Note::is_of(const Tensor& grad) const {
  return storage != 0 && storage == strata::detail::watch_number(*grad.storage()) && version == grad.version() &&
         offset == grad.storage_offset() && dtype == grad.dtype();
}

void GradientNotes::take(Optimizer& o) {
  if (!o.ahead_) return;
  for (const Optimizer::Param& p : o.params_) {
    const Optimizer::Ahead::Note& note = o.ahead_->notes[p.index];
    const Tensor g = p.tensor.grad();
    if (note.came > 0 && g.defined() && !note.is_of(g)) o.ahead_->note_squares(p.index, g);
  }
}

void Optimizer::forget_squares() {
  if (!ahead_) return;
  const std::lock_guard lock(ahead_->mutex);
  for (Ahead::Note& note : ahead_->notes) note.storage = 0;
}

Tensor Optimizer::noted_squares(Device device) {
  if (!ahead_ || !ahead_->parts.defined() || !(ahead_->parts.device() == device)) return {};
  Ahead& a = *ahead_;
  const std::lock_guard lock(a.mutex);
  // In the order in which they are added.
  struct Run {
    int64_t at, n;
  };
  std::vector<Run> runs;
  int64_t n = 0;
  const auto take = [&](const Param& p, const Tensor& g) {
    const Ahead::Note& note = a.notes[p.index];
    if (!note.is_of(g)) return false;
    const int64_t more = square_parts(g.numel(), device);
    n += more;
    if (!runs.empty() && runs.back().at + runs.back().n == note.at) {
      runs.back().n += more;
    } else {
      runs.push_back({note.at, more});
    }
    return true;
  };
  const std::array dtypes{DType::f32, DType::bf16, DType::f16, DType::f64};
  size_t taken = 0, all = 0;
  for (const Param& p : params_) all += p.tensor.grad().defined();
  for (const DType dtype : device.is_cuda() ? std::span<const DType>(dtypes) : std::span<const DType>(dtypes).first(1))
    for (const Param& p : params_) {
      const Tensor g = p.tensor.grad();
      if (!g.defined() || (device.is_cuda() && g.dtype() != dtype)) continue;
      if (!take(p, g)) return {};
      ++taken;
    }
  if (taken != all || all == 0) return {};
  const auto part = [&](const Tensor& t, int64_t at, int64_t size) { return alias(t, {size}, {1}, at); };
  if (runs.size() == 1) return total_of(part(a.parts, runs[0].at, runs[0].n));
  const Tensor together = empty({{n}, DType::f64, device, std::nullopt});
  int64_t at = 0;
  for (const Run& r : runs) {
    copy_elements(part(together, at, r.n), part(a.parts, r.at, r.n));
    at += r.n;
  }
  return total_of(together);
}

// What of `p` goes ahead, given to `update`; false where it cannot, and nothing has changed.
bool Optimizer::goes_ahead(Param& p, double grad_scale, AheadUpdate& update) {
  const Tensor g = p.tensor.grad();
  const bool wide = p.tensor.dtype() == DType::f64;
  const bool readable = wide ? g.dtype() == DType::f64 : g.dtype() != DType::f64 && is_floating(g.dtype());
  const bool exposed = lies_on_host(p.tensor);
  // State of one number stays with the parameter's device.
  if (p.tensor.dim() == 0 || p.tensor.numel() == 0 || !(moves(p.tensor) || exposed) || !readable ||
      !g.is_contiguous() || g.shape() != p.tensor.shape() || !(moves(g) || (exposed && lies_on_host(g))))
    return false;
  const std::vector<StateSpec> spec = full_spec(p);
  // A card takes pieces of any size from the host, whose numbers it does not change.
  if (p.tensor.device().is_cuda() && ahead_->who != StateHome::Who::cpu)
    if ((p.low.stochastic_rounding && p.tensor.dtype() == DType::bf16) ||
        std::ranges::any_of(spec, [](const StateSpec& s) { return s.after != nullptr; }))
      return false;
  // What is new is filled at its home.
  const bool fresh = p.state.empty() && !spec.empty() && !has_master(p);
  if (fresh) {
    const memory::TagScope tag(memory::Tag::optimizer);
    for (const StateSpec& s : spec) {
      p.state.push_back(place_of(p, s).make(s));
      if (s.shape.empty()) fill_elements(p.state.back(), s.fill + (s.key == "step" ? 1 : 0));
    }
    p.first = true;
  } else {
    strata::detail::Pins pins;
    if (has_master(p) && (p.state.size() != spec.size() || p.version != p.tensor.version()))
      pins.hold(p.tensor, Access::read);  // its elements are what the weights in f32 come from
    const bool made = prepare_state(p, false, pins);
    p.first = p.first || made;
  }
  auto owner = std::make_unique<AheadUpdate::Owner>();
  owner->exposed = exposed;
  // Forward wants first what backward comes to last: an embedding stands behind the blocks in some networks, and all
  // of the next forward would wait for it.
  owner->order = std::numeric_limits<size_t>::max() - ahead_->notes[p.index].came;
  owner->name = p.name;
  bool reserved = true;
  // The same elements, at home.
  const auto at_home = [&](const Tensor& t, bool written) -> Tensor {
    std::byte* home = reserved ? reserve(*owner, t, written) : nullptr;
    reserved = home != nullptr;
    return reserved ? from_blob(home, t.shape(), t.dtype()) : Tensor();
  };
  Param q = p;
  q.tensor = at_home(p.tensor, true);
  q.grad = at_home(g.detach(), false);
  for (size_t i = 0; i < spec.size(); ++i) {
    Tensor& t = q.state[i];
    if (t.dim() > 0) {
      t = at_home(t, true);
      if (!fresh || !reserved) continue;
      fill_elements(t, spec[i].fill);
      if (moves(p.state[i])) owner->parts.back().bytes.written();
    } else if (t.dtype() == DType::i64) {
      owner->count = t;
    }
  }
  if (!reserved) {
    if (fresh) {
      p.state.clear();
      p.first = false;
    } else if (owner->count.defined()) {
      --*owner->count.data<int64_t>();
    }
    return false;
  }
  LowCopy& low = autograd_meta(p.tensor).low;
  if (p.tensor.dtype() == DType::f32 && low.tensor.defined() && low.is_current(p.tensor, low.tensor.dtype()) &&
      low.tensor.is_contiguous())
    if (const Tensor there = at_home(low.tensor, true); there.defined()) {
      autograd_meta(q.tensor).low = {there, q.tensor.version()};
      q.renews_low = true;
    }
  const bool renews = q.renews_low;
  ahead_->collected.clear();
  ahead_->collecting = true;
  try {
    update_taken({&q}, grad_scale, false);
  } catch (...) {
    ahead_->collecting = false;
    throw;
  }
  ahead_->collecting = false;
  update.add(std::move(owner), ahead_->collected);
  ahead_->collected.clear();
  // Written, for whoever asks from now on: before it has been, they wait.
  bump_version(p.tensor, name_);
  p.version = p.tensor.version();
  p.first = false;
  if (!renews) return true;
  bump_version(low.tensor, name_);
  low.version = p.tensor.version();
  return true;
}

std::vector<bool> Optimizer::begin_ahead(double grad_scale) {
  std::vector<bool> begun(params_.size());
  Ahead& a = *ahead_;
  // What began in backward goes on, and the rest with it.
  const bool opened = a.early.update != nullptr;
  std::unique_ptr<AheadUpdate> update = opened ? std::move(a.early.update) : std::make_unique<AheadUpdate>();
  if (opened) begun = std::exchange(a.early.begun, std::vector<bool>(params_.size()));
  a.early.complete.clear();
  a.early.any = false;
  // Those first that step() waits for, then those whose gradients came last.
  std::vector<Param*> order;
  for (Param& p : params_)
    if (p.tensor.grad().defined()) order.push_back(&p);
  std::ranges::stable_sort(order, [&](const Param* p, const Param* q) {
    const auto key = [&](const Param& x) { return std::pair(lies_on_host(x.tensor), a.notes[x.index].came); };
    return key(*p) > key(*q);
  });
  Device device;
  for (Param* p : order) {
    if (begun[p->index]) {
      if (t_mode.unusual & kObserved) show_update({p});
      continue;
    }
    a.here[p->index] = false;
    begun[p->index] = goes_ahead(*p, grad_scale, *update);
    a.here[p->index] = !begun[p->index];
    if (begun[p->index]) device = p->tensor.device();
  }
  if (opened) {
    a.update = std::move(update);
    a.update->close();
    a.update->wait_for_exposed();
    return begun;
  }
  if (update->empty()) return begun;
  const bool card = device.is_cuda() && a.who != StateHome::Who::cpu;
  if (card && !a.card) a.card = make_ahead_card(device);
  a.update = std::move(update);
  a.update->begin(device, !card || a.who == StateHome::Who::split, card ? a.card.get() : nullptr, verdict_);
  a.update->wait_for_exposed();
  return begun;
}

// ---- beside backward

void Optimizer::Ahead::gradient_came(size_t i) {
  const std::lock_guard lock(early.mutex);
  if (early.optimizer == nullptr) return;
  ++early.came[i];
  check<AutogradError>(!early.begun[i], early.optimizer->name(), "'", early.optimizer->params_[i].name,
                       "' got more of its gradient when its update had begun: it came in one piece in the pass before");
  if (early.update == nullptr) return;
  if (early.once[i]) early.complete.push_back(i);
  if (!early.complete.empty()) early.optimizer->begin_complete();
}

// Of what is complete, those that nobody holds: a part of a network holds its weights until its turn ends.
void Optimizer::begin_complete() {
  Ahead& a = *ahead_;
  const NoGrad guard;
  const strata::detail::ThreadModeScope plain({false, 0});  // whoever watches is shown it by step()
  const strata::detail::PhaseScope phase(Phase::update);
  const memory::TierScope own{Tier()};
  std::erase_if(a.early.complete, [&](size_t i) {
    Param& p = params_[i];
    if (a.here[i] || p.state.size() != full_spec(p).size() || !moves(p.tensor) || !p.tensor.grad().defined())
      return true;
    if (!memory::Reserved::of(p.tensor.storage())) return false;
    a.early.begun[i] = goes_ahead(p, 1, *a.early.update);
    a.early.any = a.early.any || a.early.begun[i];
    return true;
  });
}

void Optimizer::open_ahead() {
  if (!ahead_ || cuda::capturing()) return;
  Ahead& a = *ahead_;
  check(a.early.optimizer == nullptr, name_, "there is an UpdateInBackward already");
  check(a.early.update == nullptr, name_, "the step of the last UpdateInBackward has not been made");
  end_ahead();
  Device device;
  bool any = false;
  for (const Param& p : params_)
    if (moves(p.tensor) && a.early.once[p.index]) device = p.tensor.device(), any = true;
  a.early.came.assign(params_.size(), 0);
  a.early.optimizer = this;
  if (!any) return;
  const bool card = device.is_cuda() && a.who != StateHome::Who::cpu;
  if (card && !a.card) a.card = make_ahead_card(device);
  a.early.update = std::make_unique<AheadUpdate>();
  a.early.update->begin(device, !card || a.who == StateHome::Who::split, card ? a.card.get() : nullptr, {}, true);
}

void Optimizer::leave_backward() {
  if (!ahead_) return;
  const std::lock_guard lock(ahead_->early.mutex);
  Ahead::Early& e = ahead_->early;
  e.optimizer = nullptr;
  for (size_t i = 0; i < e.came.size(); ++i) e.once[i] = e.came[i] == 1;
}

void Optimizer::end_early() const {
  Ahead::Early& e = ahead_->early;
  if (e.update == nullptr) return;
  end_ahead();
  e.update->close();
  ahead_->update = std::move(e.update);
  e.begun.assign(e.begun.size(), false);
  e.complete.clear();
  e.any = false;
}

void Optimizer::check_none_begun(bool scales) const {
  check(!scales || !ahead_ || !ahead_->early.any, name_,
        "updates began in backward (UpdateInBackward): gradients can neither be clipped nor scaled now");
}

UpdateInBackward::UpdateInBackward(Optimizer& optimizer) : optimizer_(optimizer) {
  optimizer_.open_ahead();
}
UpdateInBackward::~UpdateInBackward() {
  optimizer_.leave_backward();
}

std::optional<AheadTimes> Optimizer::ahead_times() const {
  return ahead_ ? ahead_->times : std::nullopt;
}

void Optimizer::end_ahead() const {
  if (!ahead_ || !ahead_->update) return;
  const std::unique_ptr<AheadUpdate> update = std::move(ahead_->update);
  update->wait();
  ahead_->times = update->times();
}

}  // namespace strata::optim
