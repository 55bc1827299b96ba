#include "strata/train/budget_turns_inl.h"

#include <algorithm>
#include <set>
#include <utility>

#include "strata/autograd/autograd.h"
#include "strata/core/parallel.h"
#include "strata/core/recording_marks.h"
#include "strata/memory/allocator.h"
#include "strata/ops/vec/scratch_kept.h"

namespace strata::budget {
namespace {

constexpr size_t kMostPasses = 4096;  // that are noted

// The part of the network that a parameter belongs to: an item of the outermost container, or a child.
std::string part_of(const std::string& name, const std::set<std::string>& containers) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
    if (containers.count(name.substr(0, dot))) return name.substr(0, name.find('.', dot + 1));
  return name.substr(0, name.find('.'));
}

// Of activations and workspace: what is at home elsewhere comes and goes under other tags.
int64_t of_calls(const int64_t (&tags)[memory::kNumTags]) {
  return tags[static_cast<int>(memory::Tag::activation)] + tags[static_cast<int>(memory::Tag::workspace)];
}

}  // namespace

std::vector<Part> parts_of(const nn::Module& model) {
  std::set<std::string> containers;
  for (const auto& [name, m] : model.named_modules())
    if (m.kind() == "ModuleList" || m.kind() == "Sequential") containers.insert(name);
  const bool all = containers.count("") > 0;  // the model is one: its children are its items
  containers.erase("");
  std::vector<Part> parts;
  for (const auto& [name, t] : model.named_parameters()) {
    const std::string at = all ? name.substr(0, name.find('.')) : part_of(name, containers);
    if (parts.empty() || parts.back().name != at) parts.push_back({at, {}, 0});
    parts.back().parameters.push_back(t);
    parts.back().bytes += t.nbytes();
  }
  return parts;
}

void Turns::set_again(int64_t turns, bool note) {
  rest();
  stale_ = true;
  again_ = turns;
  if (turns == 0 && !note) return observing_.reset();
  if (!observing_) observing_.emplace(*this);
}
void Turns::rest() {
  recompute_.reset();
  over_ = true;
}

// ---- what calls take for themselves

void Turns::begin_own() {
  owns_.clear();
  own_.reset();
  peak_ = memory::stats(device_).peak_total;
  measuring_ = true;
}
std::vector<Turns::Own> Turns::end_own(int64_t& peak) {
  measuring_ = false;
  own_.reset();
  peak = std::max(peak_, memory::stats(device_).peak_total);
  return std::exchange(owns_, {});
}

void Turns::before(const Call& call) {
  const bool within = !open_.empty() && !open_.back();
  if (!within) see(call);
  if (measuring_ && !within && !call.composed) {
    if (device_.is_cpu()) release_scratch();  // from calls before
    const memory::Stats s = memory::stats(device_);
    peak_ = std::max(peak_, s.peak_total);
    memory::reset_peak(device_);
    own_ = {detail::recorded_calls(), of_calls(s.live)};
  }
  open_.push_back(call.composed && !within);
}
void Turns::after(const Call& call, std::span<const Tensor> results) {
  close();
  if (!own_ || (!open_.empty() && !open_.back())) return;
  int64_t made = 0;
  if (call.form == Form::fresh && !call.op.is_view())
    for (const Tensor& t : results)
      if (t.defined() && t.device() == device_ && t.storage()->tag == memory::Tag::activation)
        made += static_cast<int64_t>(t.storage()->nbytes);
  own_->bytes = std::max<int64_t>(of_calls(memory::stats(device_).peak) - own_->bytes - made, 0);
  // Which threads take part in a loop is another matter each time: on a busy machine it may have been one.
  if (device_.is_cpu()) {
    const KeptScratch kept = release_scratch();
    own_->bytes += std::max(kept.width - kept.threads, 0) * kept.least;
  }
  if (own_->bytes > 0) owns_.push_back(*own_);
  own_.reset();
}
void Turns::failed(const Call&) {
  close();
  if (open_.empty() || open_.back()) own_.reset();
}
void Turns::close() {
  if (!open_.empty()) open_.pop_back();
}

// ---- whose turn it is

void Turns::see(const Call& call) {
  if (current_phase() == Phase::backward) {
    stale_ = true;
    return rest();
  }
  if (current_phase() != Phase::forward || !grad_enabled()) return;
  if (std::exchange(stale_, false)) refresh();
  args_.clear();
  call.args(args_);
  for (const Value& v : args_) {
    const auto* t = std::get_if<Tensor>(&v);
    if (!t || !t->defined()) continue;
    const auto found = owner_.find(t->storage().get());
    if (found == owner_.end() || (!over_ && found->second == now_)) continue;
    begin(found->second);
    break;
  }
  args_.clear();
}

// The storages of parameters now, and of what autocast keeps of them.
void Turns::refresh() {
  owner_.clear();
  for (size_t i = 0; i < parts_.size(); ++i)
    for (const Tensor& t : parts_[i].parameters) {
      owner_.try_emplace(t.storage().get(), i);
      const AutogradMeta* known = t.impl().autograd.get();
      if (known && known->low.tensor.defined()) owner_.try_emplace(known->low.tensor.storage().get(), i);
    }
}

void Turns::begin(size_t part) {
  if (over_) passes_.emplace_back();
  if (passes_.size() > kMostPasses) passes_.erase(passes_.begin());
  over_ = false;
  now_ = part;
  // Recorders see a call after this does.
  passes_.back().push_back(detail::recorded_calls());
  if (static_cast<int64_t>(passes_.back().size()) > again_) return recompute_.reset();
  if (!recompute_) recompute_.emplace();
  recompute_->begin();
}

}  // namespace strata::budget
