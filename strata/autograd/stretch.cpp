#include "strata/autograd/stretch_inl.h"

#include <set>

#include "strata/core/recording.h"
#include "strata/core/storage_watch.h"

namespace strata::detail {

StretchValue StretchValue::of(const Tensor& t) {
  const TensorImpl& impl = t.impl();
  return {watch_number(*t.storage()), impl.dtype, impl.shape, impl.strides, impl.offset, impl.wrapped_number};
}

Tensor StretchValue::in(const Tensor& bytes) const {
  Tensor t = alias(bytes, shape, strides, offset);
  t.impl().dtype = dtype;
  t.impl().wrapped_number = number;
  return t;
}

Tensor KeptInput::get() const {
  return packed.hooks ? storage_bytes(packed.hooks->unpack(packed.value).storage()) : bytes;
}

StretchToken::~StretchToken() {
  if (stretch) stretch->end(*this);
}

bool Stretch::is_stale(const Tensor& t) const {
  const std::lock_guard lock(mutex_);
  const uint64_t storage = t.storage()->watched.load(std::memory_order_relaxed);
  if (const auto m = made_.find(storage); m != made_.end()) return m->second.version != t.version();
  const auto in = inputs_.find(storage);
  return in != inputs_.end() && in->second->version != t.version();
}

bool Stretch::makes(uint64_t storage) const {
  const std::lock_guard lock(mutex_);
  return made_.contains(storage);
}

bool Stretch::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

std::shared_ptr<KeptInput> Stretch::find_input(uint64_t storage) const {
  const std::lock_guard lock(mutex_);
  const auto found = inputs_.find(storage);
  return found == inputs_.end() ? nullptr : found->second;
}

bool Stretch::count(const StretchToken& token, std::optional<uint32_t> version) {
  const std::lock_guard lock(mutex_);
  const auto m = made_.find(token.value.storage);
  if (closed_ || m == made_.end() || (version && m->second.version != *version)) return false;
  ++m->second.tokens;
  newest_ = &token;
  return true;
}

void Stretch::note_results(int32_t call, std::span<const Tensor> results, bool inplace) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  bool any = inplace;
  Noted& n = calls_[static_cast<size_t>(call)];
  for (const Tensor& t : results) {
    StretchValue v;
    if (t.defined()) {
      v = StretchValue::of(t);
      if (inplace) {
        Made& m = made_[v.storage];
        m.version = t.version();
        m.overwritten = call;
      } else if (made_.contains(v.storage) || inputs_.contains(v.storage)) {
        v.storage = 0;  // a view: its storage and geometry say it
      } else {
        made_[v.storage].version = t.version();
        any = true;
      }
    }
    n.results.push_back(v);
  }
  if (!any) n = {};
}

void Stretch::drop(int32_t call) {
  const std::lock_guard lock(mutex_);
  if (!closed_) calls_[static_cast<size_t>(call)] = {};
}

void Stretch::close() {
  const std::lock_guard lock(mutex_);
  close_locked();
}

void Stretch::close_locked() {
  if (closed_) return;
  closed_ = true;
  std::set<uint64_t> needed;
  for (const auto& [storage, m] : made_)
    if (m.tokens > 0) needed.insert(storage);
  std::unordered_map<uint64_t, std::shared_ptr<KeptInput>> inputs;
  for (size_t i = calls_.size(); i-- > 0;) {
    Noted& n = calls_[i];
    bool wanted = false;
    for (const StretchValue& v : n.results) wanted = wanted || needed.contains(v.storage);
    if (!wanted) {
      n = {};
      continue;
    }
    for (const auto& [at, v] : n.tensors) {
      if (v.storage == 0) continue;
      if (const auto in = inputs_.find(v.storage); in != inputs_.end())
        inputs.insert(*in);
      else
        needed.insert(v.storage);
    }
  }
  std::erase_if(calls_, [](const Noted& n) { return n.op == nullptr; });
  inputs_ = std::move(inputs);
}

Tensor Stretch::take(StretchToken& token) {
  const std::lock_guard lock(mutex_);
  close_locked();
  const std::string_view op = "backward";
  Made& m = made_.at(token.value.storage);
  check<AutogradError>(m.overwritten <= token.call, op, "a saved tensor (", token.value.shape, " ", token.value.dtype,
                       ") was overwritten after it was saved; clone it first, or use the form that is not in place");
  if (!m.bytes.defined()) run_again();
  Tensor t = token.value.in(m.bytes);
  if (token.round != round_) {
    token.round = round_;
    --m.left;
  }
  if (m.left <= 0) m.bytes = {};  // a second backward makes it again
  return t;
}

void Stretch::end(const StretchToken& token) {
  const std::lock_guard lock(mutex_);
  Made& m = made_.at(token.value.storage);
  --m.tokens;
  if (newest_ == &token) newest_ = nullptr;
  if (token.round != round_ && m.bytes.defined() && --m.left <= 0) m.bytes = {};
}

void Stretch::list_inputs(const StretchToken& token, std::vector<PackedTensor>& all) const {
  const std::unique_lock lock(mutex_, std::try_to_lock);  // whoever runs it may wait for who asks
  if (!lock || (newest_ && newest_ != &token) || made_.at(token.value.storage).bytes.defined()) return;
  for (const auto& [storage, in] : inputs_)
    if (in->packed.hooks) all.push_back(in->packed);
}

void Stretch::prefetch() {
  for (const auto& [storage, in] : inputs_)
    if (in->moved) in->bytes.storage()->prefetch();
}

void Stretch::run_again() {
  const ThreadModeScope mode({false, t_mode.unusual & kObserved});
  const memory::TagScope tag(memory::Tag::activation);
  const memory::TierScope own{Tier()};
  for (const auto& [storage, in] : inputs_)
    if (in->overwritten())
      throw AutogradError("backward", cat("a tensor that is needed to compute a saved one again was overwritten by ",
                                          in->bytes.storage()->last_writer(), " since forward"));
  if (const std::shared_ptr<Stretch> next = before_.lock()) {
    const std::unique_lock lock(next->mutex_, std::try_to_lock);
    if (lock) next->prefetch();
  }
  std::unordered_map<uint64_t, size_t> last;
  for (size_t i = 0; i < calls_.size(); ++i) {
    for (const auto& [at, v] : calls_[i].tensors) last[v.storage] = i;
    for (const StretchValue& v : calls_[i].results) last[v.storage] = i;
  }
  std::unordered_map<uint64_t, Tensor> there, came;  // what the stretch makes, and what comes in
  for (size_t i = 0; i < calls_.size(); ++i) {
    run(i, there, came);
    const auto let_go = [&](const StretchValue& v) {
      if (last[v.storage] != i) return;
      came.erase(v.storage);
      const auto m = made_.find(v.storage);
      if (m != made_.end() && m->second.tokens == 0) there.erase(v.storage);
    };
    for (const auto& [at, v] : calls_[i].tensors) let_go(v);
    for (const StretchValue& v : calls_[i].results) let_go(v);
  }
  ++round_;
  for (auto& [storage, bytes] : there) {
    Made& m = made_.at(storage);
    m.bytes = std::move(bytes);
    m.left = m.tokens;
  }
}

void Stretch::run(size_t i, std::unordered_map<uint64_t, Tensor>& there, std::unordered_map<uint64_t, Tensor>& came) {
  const Noted& n = calls_[i];
  std::vector<Value> args = n.args;
  size_t in_list = 0, last_list = args.size();
  for (const auto& [at, v] : n.tensors) {
    Tensor t;
    if (v.storage != 0) {
      if (const auto in = inputs_.find(v.storage); in == inputs_.end()) {
        t = v.in(there.at(v.storage));
      } else {
        Tensor& bytes = came[v.storage];
        if (!bytes.defined()) bytes = in->second->get();
        t = v.in(bytes);
      }
    }
    if (auto* list = std::get_if<TensorList>(&args[at])) {
      in_list = at == last_list ? in_list + 1 : 0;
      last_list = at;
      (*list)[in_list] = std::move(t);
    } else {
      args[at] = std::move(t);
    }
  }
  const memory::detail::RecordedModule module(n.module);
  std::vector<Value> given = n.inplace ? n.op->inplace_boxed(args) : n.op->call_boxed(args);
  TensorList results;
  for (Value& v : given) {
    if (auto* list = std::get_if<TensorList>(&v))
      results.insert(results.end(), list->begin(), list->end());
    else
      results.push_back(std::holds_alternative<Tensor>(v) ? std::get<Tensor>(v) : Tensor());
  }
  check<AutogradError>(results.size() == n.results.size(), n.op->name(), "gave ", results.size(),
                       " results when it ran again for backward, and ", n.results.size(), " in forward");
  for (size_t k = 0; k < results.size(); ++k) {
    const StretchValue& v = n.results[k];
    if (v.storage == 0 || n.inplace) continue;
    const Tensor& t = results[k];
    check<AutogradError>(t.defined() && t.shape() == v.shape && t.dtype() == v.dtype && t.strides() == v.strides &&
                             t.storage_offset() == v.offset,
                         n.op->name(), "gave ", t, " when it ran again for backward, and ", v.shape, " ", v.dtype,
                         " in forward");
    there[v.storage] = storage_bytes(t.storage());
  }
}

}  // namespace strata::detail
