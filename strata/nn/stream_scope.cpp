#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string_view>

#include "strata/autograd/recompute.h"
#include "strata/core/autocast.h"
#include "strata/core/op_base.h"
#include "strata/core/placement.h"
#include "strata/memory/transfers.h"
#include "strata/nn/streamed_inl.h"

namespace strata::nn {

namespace {
// STRATA_TELL_LATE=1: what a call waits for, by name, as steps are made (a captured one once).
bool tells_late() {
  static const bool tells = [] {
    const char* const set = std::getenv("STRATA_TELL_LATE");
    return set != nullptr && std::string_view(set) == "1";
  }();
  return tells;
}
}  // namespace

// Follows the calls of a scope's thread: whose turn it is, what is held near for it, what comes next.
struct StreamScope::Watch final : CallObserver {
  using State = Streamed::State;
  using Key = State::Key;
  using Visit = State::Visit;

  explicit Watch(State& s) : state(s), with_gradients(grad_enabled()), plan(s.plans[with_gradients]), observing(*this) {
    if (state.options.recompute && with_gradients) recompute.emplace(RecomputeOptions{.inputs = state.options.inputs});
    if (state.options.whole_parts && state.options.near_bytes == 0) {
      // Of what comes now: autocast's copies are smaller than what they are of.
      near_bytes = 0;
      for (size_t i = 0; i < state.parts.size(); ++i)
        near_bytes = std::max(near_bytes, state.options.parts_near * part_bytes(i));
    }
    // Of ranks' parts the first call says what it reads, which is not to come behind what is for later.
    if (!state.options.whole_parts) bring_next(nullptr, {}, 0, {});
  }
  ~Watch() override {
    recompute.reset();
    while (!held.empty()) let_go(held.begin()->first);
    try {
      for (State::Slot& s : state.slots) state.settle_low(s);
    } catch (const Error&) {  // there is no room: the next scope begins with it, and can say so
    }
    if (std::uncaught_exceptions() > exceptions || now.empty()) return;
    for (State::Part& p : state.parts) p.shown.reads = 0;
    for (const Visit& v : now)
      if (!v.backward) ++state.parts[v.part].shown.reads;
    state.plans[with_gradients] = std::move(now);
  }

  void before(const Call& call) override {
    const bool within = !open.empty() && !open.back();
    if (!within && current_phase() != Phase::update) follow(call);
    open.push_back(call.composed && !within);
  }
  void after(const Call&, std::span<const Tensor> results) override {
    close();
    if (!cast) return;
    on_tier.reset();
    const size_t slot = state.keys.at(cast.get()) / 2;
    cast = {};
    let_go(2 * slot + 1);
    state.set_low(slot, results[0]);
  }
  void failed(const Call&) override {
    close();
    on_tier.reset();
    cast = {};
  }

 private:
  void follow(const Call& call) {
    const std::vector<Value> args = call.args();
    const bool converts = is_cast(call, args);
    looks_up = call.op.name().starts_with("linear_cross_entropy");
    // Of what a composed call is given a part's turn begins; what it is made of says what is read, which of a weight
    // may be autocast's copy alone.
    const auto meet = [&](const Tensor& t, bool hold) { call.composed ? begin_turn_of(t) : see(t, hold); };
    for (const Value& v : args) {
      if (const auto* t = std::get_if<Tensor>(&v)) meet(*t, !converts);
      if (const auto* list = std::get_if<TensorList>(&v))
        for (const Tensor& t : *list) meet(t, true);
    }
    for (const Tensor& t : call.targets) meet(t, true);
    if (!converts) return;
    // What autocast will read in the parameter's place lives where that does.
    cast = strata::detail::here(std::get<Tensor>(args[0])).storage();
    on_tier.emplace(state.options.tier);
  }
  // Of a whole parameter to autocast's precision.
  bool is_cast(const Call& call, const std::vector<Value>& args) const {
    if (call.form != Form::fresh || call.op.name() != "to" || grad_enabled() || current_phase() != Phase::forward)
      return false;
    const auto* t = std::get_if<Tensor>(&args[0]);
    if (!t || !t->defined() || t->dtype() != DType::f32 || !is_reduced_floating(std::get<DType>(args[1]))) return false;
    const auto known = state.keys.find(strata::detail::here(*t).storage().get());
    return known != state.keys.end() && t->shape() == state.slots[known->second / 2].parameter.shape();
  }
  void close() {
    if (!open.empty()) open.pop_back();
  }

  void begin_turn(Key key, std::optional<Key> first) {
    const size_t part = state.slots[key / 2].part;
    const bool backward = current_phase() == Phase::backward;
    if (now.empty() || now.back().part != part || now.back().backward != backward) enter(part, backward, first);
  }

  std::optional<Key> key_of(const Tensor& t) const {
    if (!t.defined()) return std::nullopt;
    const auto known = state.keys.find(strata::detail::here(t).storage().get());
    return known == state.keys.end() ? std::nullopt : std::optional(known->second);
  }
  void begin_turn_of(const Tensor& t) {
    if (const std::optional<Key> key = key_of(t)) begin_turn(*key, std::nullopt);
  }
  // An argument. What is only converted need not stay near.
  void see(const Tensor& t, bool hold) {
    const std::optional<Key> key = key_of(t);
    if (!key) return;
    use(*key, hold);
    // The kernel of the head's loss looks the copy up itself. Others get what they read.
    if (looks_up && hold && *key % 2 == 0 && autocast_enabled() && state.storage_of(*key + 1)) use(*key + 1, true);
  }
  void use(Key key, bool hold) {
    begin_turn(key, hold ? std::optional(key) : std::nullopt);
    std::vector<Key>& used = now.back().used;
    if (std::ranges::find(used, key) == used.end()) used.push_back(key);
    if (hold && !held.contains(key)) pin(key);
  }
  void pin(Key key) {
    Storage* storage = state.storage_of(key);
    if (!storage) return;
    if (!storage->resident()) {
      state.stats.bytes_late += coming_bytes(key, *storage);
      if (tells_late()) std::fprintf(stderr, "strata: %s came late\n", name_of(key).c_str());
    }
    const auto start = std::chrono::steady_clock::now();
    const memory::MovedName moved([&] { return name_of(key); });
    storage->pin(Access::read);
    state.stats.seconds_waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    held.emplace(key, Ref<Storage>(storage));
  }
  void let_go(Key key) {
    const auto found = held.find(key);
    if (found == held.end()) return;
    const Ref<Storage> storage = std::move(found->second);
    held.erase(found);
    storage->unpin();
  }

  // A part's turn begins, with a call that reads `first`, if any.
  void enter(size_t part, bool backward, std::optional<Key> first) {
    if (backward && plan.empty()) {
      // The first step: backward goes the other way.
      plan = now;
      for (size_t i = now.size(); i-- > 0;) plan.push_back({now[i].part, true, now[i].used});
      next = now.size();
    }
    ++state.stats.visits;
    const bool found = locate(part, backward);
    now.push_back({part, backward, {}});
    if (recompute && !backward && grad_enabled()) {
      // Backward begins with the last part.
      if (found && next < plan.size() && plan[next].backward)
        recompute->keep();
      else
        recompute->begin();
    }
    const Visit* const turn = found ? &plan[next - 1] : nullptr;
    bring_next(turn, {part}, turn ? bytes_of(*turn) : state.parts[part].shown.bytes, first);
  }
  // Whether the part's turn is in the plan; `next` is the one after it then.
  bool locate(size_t part, bool backward) {
    const auto is = [&](size_t i) { return plan[i].part == part && plan[i].backward == backward; };
    if (next < plan.size() && is(next)) return ++next, true;
    // Skipped turns do no harm, as long as the part is near or on its way.
    if (!state.plans[with_gradients].empty() && std::ranges::find(window, part) == window.end()) {
      ++state.stats.unforeseen;
      state.parts[part].unforeseen = true;
    }
    for (size_t i = 0; i < plan.size(); ++i) {
      const size_t at = (next + i) % plan.size();  // a scope may have several passes
      if (is(at)) return next = at + 1, true;
    }
    return false;
  }

  // Of all that a part has.
  int64_t part_bytes(size_t part) const {
    int64_t n = 0;
    for (const size_t slot : state.parts[part].slots) {
      const Storage* const low = state.storage_of(2 * slot + 1);
      if (const Storage* s = low ? low : state.storage_of(2 * slot)) n += static_cast<int64_t>(s->nbytes);
    }
    return n;
  }
  int64_t bytes_of(const Visit& v) const {
    if (state.options.whole_parts) return part_bytes(v.part);
    int64_t n = 0;
    for (const Key key : v.used)
      if (const Storage* s = state.storage_of(key)) n += static_cast<int64_t>(s->nbytes);
    return n;
  }
  // Of the parts whose turns come next as many as there is room for beside those in `wanted`, which take `bytes`; the
  // others go. Of the first that does not fit as a whole, the weights that do come as well. What is not on its way of
  // this turn comes before them, and after what goes; `first` is read at once.
  void bring_next(const Visit* turn, std::vector<size_t> wanted, int64_t bytes, std::optional<Key> first) {
    std::vector<std::pair<const Visit*, int64_t>> coming;  // with bytes that there are for it
    for (size_t i = next; i < plan.size() && bytes < near_bytes; ++i) {
      if (std::ranges::find(wanted, plan[i].part) != wanted.end()) continue;
      const int64_t room = near_bytes - bytes;
      bytes += bytes_of(plan[i]);
      if (bytes > near_bytes && state.options.whole_parts) break;
      coming.emplace_back(&plan[i], room);
      if (bytes <= near_bytes) wanted.push_back(plan[i].part);
    }
    window = wanted;
    std::vector<Key> going;
    for (const auto& [key, storage] : held)
      if (std::ranges::find(wanted, state.slots[key / 2].part) == wanted.end()) going.push_back(key);
    for (const Key key : going) {
      let_go(key);
      if (key % 2 == 0) state.settle_low(state.slots[key / 2]);
    }
    // Ranks' parts come one behind the other, and what comes when it is wanted alone (RankUnit) would be the last.
    if (state.options.whole_parts && first && !held.contains(*first)) pin(*first);
    if (turn) {
      for (const Key key : turn->used)
        if (Storage* s = held.contains(key) ? nullptr : state.storage_of(key)) prefetch(*s, coming_bytes(key, *s));
    }
    for (auto [visit, room] : coming) {
      for (const Key key : visit->used) {
        Storage* s = state.storage_of(key);
        // What has a copy comes from ranks when it is wanted, and takes no room of what comes ahead.
        if (!s || (state.options.whole_parts && key % 2 == 0 && state.storage_of(key + 1))) continue;
        room -= static_cast<int64_t>(s->nbytes);
        if (room < 0) break;
        const memory::MovedName moved([&] { return name_of(key); });
        prefetch(*s, coming_bytes(key, *s));
      }
      if (room < 0) break;
      if (!visit->backward) continue;
      for (const size_t slot : state.parts[visit->part].slots)
        if (const Tensor g = state.slots[slot].parameter.grad(); g.defined()) {
          const memory::MovedName moved([&] { return "gradient of " + state.slots[slot].name; });
          prefetch(*g.storage(), static_cast<int64_t>(g.storage()->nbytes));
        }
    }
  }
  std::string name_of(Key key) const {
    const std::string& name = state.slots[key / 2].name;
    return key % 2 == 0 ? name : name + " in low precision";
  }
  // What comes with a parameter.
  int64_t coming_bytes(Key key, const Storage& s) const {
    return state.options.whole_parts ? part_bytes(state.slots[key / 2].part) : static_cast<int64_t>(s.nbytes);
  }
  void prefetch(Storage& s, int64_t bytes) {
    if (s.resident()) return;
    state.stats.bytes_ahead += bytes;
    s.prefetch();
  }

 public:
  State& state;
  bool looks_up = false;  // the call that is followed
  int64_t near_bytes = state.near_bytes;
  const bool with_gradients;
  const int exceptions = std::uncaught_exceptions();
  std::vector<Visit> plan;     // the last scope's turns
  size_t next = 0;             // in it
  std::vector<size_t> window;  // parts that are near or on their way
  std::vector<Visit> now;
  std::unordered_map<Key, Ref<Storage>> held;  // pinned
  std::vector<bool> open;                      // calls, whether they are composed
  Ref<Storage> cast;                           // the parameter that the open call converts
  std::optional<memory::TierScope> on_tier;
  ObserverScope observing;
  std::optional<Recompute> recompute;
};

StreamScope::StreamScope(Streamed& streamed) {
  Streamed::State& s = *streamed.state_;
  check(!s.in_scope, "StreamScope", "the network has a scope already");
  s.refresh();
  watch_ = std::make_unique<Watch>(s);
  s.in_scope = true;
}

StreamScope::~StreamScope() {
  Streamed::State& s = watch_->state;
  watch_.reset();
  s.in_scope = false;
}

}  // namespace strata::nn
