#include <algorithm>
#include <utility>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/memory/transfers.h"
#include "strata/optim/ahead_inl.h"
#include "strata/optim/eight_bit_inl.h"

namespace strata::optim {
namespace {

// Pieces that the processor takes at once, so that its threads meet seldom.
constexpr size_t kHostPieces = 8;

// Whether parts of it may be updated by themselves: not where random bits go by the element's place, or a number is
// replaced.
bool divides(const Slab& s) {
  return !s.stochastic && s.rate == nullptr;
}

// The elements from `begin` on.
Slab part_of(const Slab& s, int64_t begin, int64_t n) {
  Slab part = s;
  const auto at = [&](void* array, DType dtype) -> void* {
    return array ? static_cast<std::byte*>(array) + begin * size_of(dtype) : nullptr;
  };
  part.param = at(s.param, s.dtype);
  part.grad = at(s.grad, s.grad_dtype);
  part.low = at(s.low, s.low_dtype);
  for (int i = 0; i < kMostStates; ++i) {
    part.state[i] = at(s.state[i], s.state_dtype);
    if (s.scale[i]) part.scale[i] = s.scale[i] + begin / kScaleBlock;
  }
  part.numel = n;
  return part;
}
static_assert(AheadUpdate::kPiece % kScaleBlock == 0);

}  // namespace

AheadUpdate::~AheadUpdate() {
  {
    const std::lock_guard lock(mutex_);
    open_ = false;
    changed_.notify_all();
  }
  threads_.clear();
  for (const auto& owner : owners_) end(*owner, nullptr);
}

void AheadUpdate::add(std::unique_ptr<Owner> owner, std::span<const std::pair<Rule, std::vector<Slab>>> runs) {
  const std::lock_guard lock(mutex_);
  if (open_ && running_ == 0) return end(*owner, failure_);  // it has failed
  if (owner->exposed && exposed_ready_) exposed_ready_->record(cuda::current_stream(device_.index));
  for (const auto& [rule, slabs] : runs)
    for (const Slab& s : slabs) {
      const int64_t each = divides(s) ? kPiece : s.numel;
      for (int64_t begin = 0; begin < s.numel; begin += each) {
        pieces_.push_back({rule, part_of(s, begin, std::min(each, s.numel - begin)), owner.get()});
        ++owner->left;
      }
      added_ += s.numel;
    }
  if (owner->left == 0) end(*owner, nullptr);
  exposed_ += owner->left > 0 && owner->exposed;
  owners_.push_back(std::move(owner));
  changed_.notify_all();
}

void AheadUpdate::begin(Device device, bool host, AheadCard* card, const Tensor& verdict, bool open) {
  begun_ = known_ = std::chrono::steady_clock::now();
  open_ = open;
  device_ = device;
  if (verdict.defined()) {
    verdict_ = verdict;
    report_ = strata::empty({verdict.shape(), verdict.dtype(), Device::cpu(), std::nullopt}, Tier::pinned);
    cuda::copy_to_pinned(report_, verdict);
  }
  if (device.is_cuda()) {
    ready_.emplace(false, device.index);
    ready_->record(cuda::current_stream(device.index));
    if (open) exposed_ready_.emplace(false, device.index);
  }
  if (card) card->follow();
  running_ = (host ? 1 : 0) + (card ? 1 : 0);
  if (host) threads_.emplace_back([this] { run([this] { on_host(); }); });
  if (!card) return;
  try {
    threads_.emplace_back([this, card] { run([this, card] { card->run(*this); }); });
  } catch (...) {
    run([] { throw; });  // the executor that there is ends, and everything with it
    throw;
  }
}

void AheadUpdate::close() {
  const std::lock_guard lock(mutex_);
  if (!open_) return;
  open_ = false;
  before_close_ = added_ > 0 ? static_cast<double>(done_) / static_cast<double>(added_) : 0;
  // Pieces of one owner stay in their order.
  std::stable_sort(pieces_.begin() + static_cast<ptrdiff_t>(next_), pieces_.end(), [](const Piece& a, const Piece& b) {
    const auto key = [](const Piece& p) { return std::pair(!p.owner->exposed, p.owner->order); };
    return key(a) < key(b);
  });
  changed_.notify_all();
}

void AheadUpdate::wait() {
  close();
  threads_.clear();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void AheadUpdate::wait_for_exposed() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return exposed_ == 0 || running_ == 0; });
}

AheadTimes AheadUpdate::times() const {
  const auto seconds = [](auto from, auto to) { return std::chrono::duration<double>(to - from).count(); };
  return {seconds(begun_, known_), seconds(known_, ended_),
          added_ > 0 ? static_cast<double>(by_host_.load()) / static_cast<double>(added_) : 0, before_close_};
}

// The last executor to end gives back what failed on the way.
void AheadUpdate::run(const std::function<void()>& executor) noexcept {
  const NoGrad guard;
  try {
    std::call_once(judged_, [this] { judge(); });
    executor();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    changed_.notify_all();
  }
  const std::lock_guard lock(mutex_);
  if (--running_ > 0) return;
  ended_ = std::chrono::steady_clock::now();
  if (failure_ || skipped_)
    for (const auto& owner : owners_) end(*owner, failure_);
  changed_.notify_all();
}

// Waits for what was found of the gradients.
void AheadUpdate::judge() {
  if (ready_) ready_->synchronize();
  known_ = std::chrono::steady_clock::now();
  if (!verdict_.defined()) return;
  factor_ = static_cast<const Verdict*>(report_.raw_data())->factor;
  if (!std::isnan(factor_)) return;
  skipped_ = true;
  for (const auto& owner : owners_)
    if (owner->count.defined()) --*owner->count.data<int64_t>();
}

std::vector<const AheadUpdate::Piece*> AheadUpdate::claim(size_t most) {
  std::vector<const Piece*> taken;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_ < pieces_.size() || !open_ || failure_; });
    if (failure_ || skipped_) return taken;
    while (taken.size() < most && next_ < pieces_.size()) {
      if (!taken.empty() && pieces_[next_].rule != taken[0]->rule) break;
      taken.push_back(&pieces_[next_++]);
    }
  }
  for (const Piece* p : taken) settle(*p->owner);
  return taken;
}

void AheadUpdate::settle(Owner& owner) {
  const std::lock_guard lock(owner.mutex);
  if (owner.settled) return;
  if (owner.exposed && exposed_ready_) exposed_ready_->synchronize();
  for (Owner::Part& part : owner.parts) part.bytes.settle_home();
  owner.settled = true;
}

void AheadUpdate::done(const Piece& piece) {
  {
    const std::lock_guard lock(mutex_);
    done_ += piece.slab.numel;
  }
  if (--piece.owner->left > 0) return;
  for (Owner::Part& part : piece.owner->parts)
    if (part.written) part.bytes.written();
  end(*piece.owner, nullptr);
  if (!piece.owner->exposed) return;
  const std::lock_guard lock(mutex_);
  if (--exposed_ == 0) changed_.notify_all();
}

void AheadUpdate::end(Owner& owner, const std::exception_ptr& failure) {
  for (Owner::Part& part : owner.parts) part.bytes.release(part.written ? failure : nullptr);
}

const double* AheadUpdate::factor() const {
  return verdict_.defined() ? &static_cast<const Verdict*>(verdict_.raw_data())->factor : nullptr;
}

void AheadUpdate::on_host() {
  for (std::vector<const Piece*> taken; !(taken = claim(kHostPieces)).empty();) {
    std::vector<Slab> slabs;
    for (const Piece* p : taken) {
      slabs.push_back(p->slab);
      Slab& s = slabs.back();
      if (!verdict_.defined()) continue;
      // As a card scales: in the precision that it computes with.
      const bool wide = s.dtype == DType::f64;
      s.k[0] = wide ? s.k[0] * factor_ : static_cast<double>(static_cast<float>(s.k[0]) * static_cast<float>(factor_));
    }
    {
      const memory::MovedName moved([&] { return "update of " + taken[0]->owner->name; });
      const memory::TimedTransfer processor(memory::TransferKind::processor, "processor");
      run_rule_cpu(taken[0]->rule, slabs);
    }
    for (const Piece* p : taken) {
      by_host_ += p->slab.numel;
      done(*p);
    }
  }
}

}  // namespace strata::optim
