#include "strata/core/recording.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "strata/core/autocast.h"
#include "strata/core/recording_marks.h"
#include "strata/core/storage_watch.h"

namespace strata {
namespace {

// Time on the host.
class HostClock final : public RecordClock {
 public:
  void mark(int32_t call) override {
    const Clock::time_point now = Clock::now();
    spent() += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    call_ = call;
    if (call >= 0 && static_cast<size_t>(call) >= calls_.size()) calls_.resize(static_cast<size_t>(call) + 1);
  }
  double read(std::span<double> seconds) override {
    mark(-1);
    for (size_t i = 0; i < calls_.size(); ++i) seconds[i] += calls_[i];
    calls_.clear();
    return std::exchange(none_, 0);
  }

 private:
  using Clock = std::chrono::steady_clock;
  double& spent() { return call_ < 0 ? none_ : calls_[static_cast<size_t>(call_)]; }
  Clock::time_point since_ = Clock::now();
  int32_t call_ = -1;
  std::vector<double> calls_;
  double none_ = 0;
};

// Bytes of constants that are kept in any case.
constexpr int64_t kAlwaysKept = 64;

// The stream that this thread launches on, `known` for a device without.
int32_t stream_of(Device d, int32_t known) {
  const LaunchRoom* room = launch_room(d.type);
  return room ? room->stream(d) : known;
}

Tensor copy_bytes(const Ref<Storage>& storage) {
  const detail::ThreadModeScope plain({false, 0});
  return detail::storage_bytes(storage).clone();
}

}  // namespace

Tensor detail::storage_bytes(const Ref<Storage>& storage) {
  Ref<TensorImpl> bytes = make_ref<TensorImpl>();
  bytes->storage = storage;
  bytes->shape = {static_cast<int64_t>(storage->nbytes)};
  bytes->strides = {1};
  bytes->numel = bytes->shape[0];
  bytes->dtype = DType::u8;
  bytes->device = storage->device;
  return Tensor(std::move(bytes));
}

struct Recorder::State {
  bool asking = false;  // for a call's cost
  // What a storage's version was when the last call that wrote it was done.
  struct Written {
    uint32_t version = 0;
    bool updated = false;  // by an optimizer, which counts its write later
  };
  struct Ended {
    uint64_t watched;
    int32_t calls;
  };

  RecordOptions options;
  Recording recording;
  uint64_t first = 0;                           // numbers from here on were given since the recorder began
  std::vector<int32_t> index;                   // places of storages, by number - first
  std::unordered_map<uint64_t, int32_t> older;  // and of those that an earlier recorder numbered
  std::vector<Written> written;                 // by place
  std::vector<int32_t> last_value;              // by place of the storage
  HostClock host;
  RecordClock* clock = &host;
  std::vector<int32_t> open;
  std::vector<Value> scratch;
  std::atomic<int32_t> begun{0};
  std::mutex ended_lock;
  std::vector<Ended> ended;
  std::unordered_map<int32_t, int32_t> copies;      // that are a place's too, how many
  std::vector<std::pair<int32_t, int32_t>> joined;  // places of storages that are another's since so many calls
  std::optional<ObserverScope> observing;
  std::optional<detail::ModulesWatched> modules;

  // What was recorded, whole; the state is as at the beginning.
  Recording take() {
    std::vector<double> seconds(recording.calls.size());
    recording.outside = clock->read(seconds);
    for (size_t i = 0; i < seconds.size(); ++i) recording.calls[i].seconds = seconds[i];
    const std::lock_guard guard(ended_lock);
    for (RecordedStorage& s : recording.storages) s.freed = static_cast<int32_t>(recording.calls.size());
    for (const Ended& e : ended) {
      const int32_t place = find(e.watched);
      if (place < 0) continue;
      if (const auto at = copies.find(place); at != copies.end() && at->second-- > 0) continue;  // others live
      recording.storages[static_cast<size_t>(place)].freed = e.calls;
    }
    copies.clear();
    for (const auto& [place, calls] : joined) recording.storages[static_cast<size_t>(place)].freed = calls;
    joined.clear();
    ended.clear();
    begun.store(0, std::memory_order_relaxed);
    first = detail::last_watch_number();
    index.clear();
    older.clear();
    written.clear();
    last_value.clear();
    return std::exchange(recording, {});
  }
  // A call ended: time is its caller's again.
  void close() {
    open.pop_back();
    clock->mark(open.empty() ? -1 : open.back());
  }
  void hand_over() {
    if (options.sink && open.empty() && std::ssize(recording.calls) >= options.part_calls) options.sink->take(take());
  }

  // -1 where it has none yet.
  int32_t find(uint64_t watched) const {
    if (watched > first) {
      const uint64_t at = watched - first - 1;
      return at < index.size() ? index[at] : -1;
    }
    const auto found = older.find(watched);
    return found == older.end() ? -1 : found->second;
  }

  int32_t place_of(const Tensor& t, int32_t born) {
    Storage& s = *t.storage();
    const uint64_t watched = detail::watch_number(s);
    int32_t place = find(watched);
    if (place >= 0) {
      recording.storages[static_cast<size_t>(place)].tag = s.tag;  // a result of backward became a gradient
      return place;
    }
    place = static_cast<int32_t>(recording.storages.size());
    recording.storages.push_back({static_cast<int64_t>(s.nbytes), s.device, s.tag, born, 0, {}});
    written.push_back({s.version.load(std::memory_order_relaxed)});
    last_value.push_back(-1);
    know(watched, place);
    return place;
  }
  void know(uint64_t watched, int32_t place) {
    if (watched > first) {
      const uint64_t at = watched - first - 1;
      if (at >= index.size()) index.resize(at + 1, -1);
      index[at] = place;
    } else {
      older.insert_or_assign(watched, place);
    }
  }
  // A place that a call made for it has had its time.
  void join(uint64_t copy, int32_t place) {
    if (const int32_t own = find(copy); own >= 0 && own != place)
      joined.emplace_back(own, begun.load(std::memory_order_relaxed));
    ++copies[place];
    know(copy, place);
  }

  bool keeps(const Storage& s) const {
    if (s.device.is_meta() || s.data == nullptr) return false;
    return options.values || (s.device.is_cpu() && static_cast<int64_t>(s.nbytes) <= kAlwaysKept);
  }

  // An argument: a storage that is new here was given.
  ValueIndex read(const Tensor& t, int32_t call) {
    if (!t.defined()) return {};
    const auto known = static_cast<int32_t>(recording.storages.size());
    const int32_t place = place_of(t, -1);
    const auto at = static_cast<size_t>(place);
    const Storage& s = *t.storage();
    if (place == known) {
      if (keeps(s)) recording.storages[at].given = copy_bytes(t.storage());
    } else if (const uint32_t version = s.version.load(std::memory_order_relaxed); version != written[at].version) {
      if (!(written[at].updated && version == written[at].version + 1))
        recording.writes.push_back({call, place, keeps(s) ? copy_bytes(t.storage()) : Tensor()});
      written[at] = {version};
    }
    return value_of(t, place);
  }

  ValueIndex value_of(const Tensor& t, int32_t place) {
    const TensorImpl& impl = t.impl();
    int32_t& last = last_value[static_cast<size_t>(place)];
    if (last >= 0) {
      const RecordedValue& v = recording.values[static_cast<size_t>(last)];
      if (v.offset == impl.offset && v.dtype == impl.dtype && v.number == impl.wrapped_number &&
          v.shape == impl.shape && v.strides == impl.strides)
        return {last};
    }
    last = static_cast<int32_t>(recording.values.size());
    recording.values.push_back({place, impl.dtype, impl.shape, impl.strides, impl.offset, impl.wrapped_number});
    return {last};
  }

  void results(const Call& call, std::span<const Tensor> results, int32_t at);
  RecordedArg argument(const Value& v, int32_t call) {
    return std::visit(
        [&](const auto& a) -> RecordedArg {
          using T = std::remove_cvref_t<decltype(a)>;
          if constexpr (std::is_same_v<T, Tensor>) {
            return read(a, call);
          } else if constexpr (std::is_same_v<T, TensorList>) {
            std::vector<ValueIndex> all;
            all.reserve(a.size());
            for (const Tensor& t : a) all.push_back(read(t, call));
            return all;
          } else if constexpr (std::is_same_v<T, RngKey>) {
            return RngKey{a.seed, a.offset};
          } else {
            return a;
          }
        },
        v);
  }
};

namespace {
// Those that record now, on whatever thread.
struct Recorders {
  struct One {
    Recorder* recorder;
    std::thread::id thread;
    const std::atomic<int32_t>* begun;  // calls
    void (*returns)(Recorder&, uint64_t copy, uint64_t number);
  };
  std::mutex lock;
  std::vector<One> all;
  std::atomic<int> count{0};
};
Recorders& recorders() {
  static Recorders& r = *new Recorders();  // storages may end after static objects
  return r;
}
}  // namespace

void detail::storage_ends(const Storage& s) {
  StorageWatch::ends(s);
  Recorders& r = recorders();
  if (r.count.load(std::memory_order_acquire) == 0) return;
  const uint64_t watched = s.watched.load(std::memory_order_relaxed);
  const std::lock_guard lock(r.lock);
  for (const Recorders::One& one : r.all) {
    Recorder::State& state = *one.recorder->state_;
    const std::lock_guard guard(state.ended_lock);
    state.ended.push_back({watched, state.begun.load(std::memory_order_relaxed)});
  }
}

Recorder::Recorder(const RecordOptions& options) : state_(std::make_unique<State>()) {
  state_->options = options;
  if (options.clock) state_->clock = options.clock;
  state_->first = detail::last_watch_number();
  state_->modules.emplace();
  state_->observing.emplace(*this);
  Recorders& r = recorders();
  const std::lock_guard lock(r.lock);
  r.all.push_back(
      {this, std::this_thread::get_id(), &state_->begun, [](Recorder& recorder, uint64_t copy, uint64_t number) {
         State& s = *recorder.state_;
         if (const int32_t place = s.find(number); place >= 0) s.join(copy, place);
       }});
  r.count.fetch_add(1);
}

void detail::storage_returns(Storage& copy, uint64_t number) {
  Recorders& r = recorders();
  if (r.count.load(std::memory_order_acquire) == 0) return;
  const uint64_t watched = watch_number(copy);
  const std::lock_guard lock(r.lock);
  for (const Recorders::One& one : r.all)
    if (one.thread == std::this_thread::get_id()) one.returns(*one.recorder, watched, number);
}

int32_t detail::recorded_calls() {
  Recorders& r = recorders();
  if (r.count.load(std::memory_order_acquire) == 0) return 0;
  const std::lock_guard lock(r.lock);
  for (size_t i = r.all.size(); i-- > 0;)
    if (r.all[i].thread == std::this_thread::get_id()) return r.all[i].begun->load(std::memory_order_relaxed);
  return 0;
}

Recorder::~Recorder() {
  if (state_->observing) (void)finish();
}

Recording Recorder::finish() {
  State& s = *state_;
  if (s.observing) {
    s.observing.reset();
    s.modules.reset();
    Recorders& r = recorders();
    const std::lock_guard lock(r.lock);
    std::erase_if(r.all, [this](const Recorders::One& one) { return one.recorder == this; });
    r.count.fetch_sub(1);
  }
  return s.take();
}

Recording Recorder::cut() {
  check(state_->open.empty(), "Recorder", "cut() within a call");
  return state_->take();
}

void Recorder::before(const Call& call) {
  State& s = *state_;
  if (s.asking) return;
  const auto at = static_cast<int32_t>(s.recording.calls.size());
  s.begun.store(at + 1, std::memory_order_relaxed);
  RecordedCall& c = s.recording.calls.emplace_back();
  c.op = &call.op;
  c.form = call.form;
  c.composed = call.composed;
  c.phase = current_phase();
  c.autocast = autocast_enabled();
  if (c.autocast) c.autocast_dtype = autocast_dtype();
  c.parent = s.open.empty() ? -1 : s.open.back();
  c.module = memory::detail::t_caller.module;
  s.scratch.clear();
  call.args(s.scratch);
  c.args.reserve(s.scratch.size());
  for (const Value& v : s.scratch) c.args.push_back(s.argument(v, at));
  s.scratch.clear();
  for (const Tensor& t : call.targets) {
    c.targets.push_back(s.read(t, at));
    if (t.defined()) c.stream = stream_of(t.device(), c.stream);
  }
  s.open.push_back(at);
  s.clock->mark(at);
}

void Recorder::after(const Call& call, std::span<const Tensor> results) {
  State& s = *state_;
  if (s.asking || s.open.empty()) return;  // it began before this did
  const int32_t at = s.open.back();
  s.close();
  s.results(call, results, at);
  s.hand_over();
}

void Recorder::State::results(const Call& call, std::span<const Tensor> results, int32_t at) {
  RecordedCall& c = recording.calls[static_cast<size_t>(at)];
  double bytes = 0;
  c.results.reserve(results.size());
  for (const Tensor& t : results) {
    if (!t.defined()) {
      c.results.emplace_back();
      continue;
    }
    const int32_t place = place_of(t, at);
    c.results.push_back(value_of(t, place));
    bytes += static_cast<double>(t.nbytes());
    if (call.form != Form::fresh) written[static_cast<size_t>(place)] = {t.version(), c.phase == Phase::update};
    c.stream = stream_of(t.device(), c.stream);
  }
  if (c.composed || call.op.is_view()) return;
  // The arguments are known to be good only now. What a cost calls to be known is no part of the program.
  {
    struct Asking {
      explicit Asking(bool& a) : asks(a) { asks = true; }
      ~Asking() { asks = false; }
      bool& asks;
    } scope(asking);
    c.cost = call.cost();
  }
  if (c.cost.flops != 0 || c.cost.bytes != 0) return;
  const auto add = [&](ValueIndex v) {
    if (v.at < 0) return;
    const RecordedValue& value = recording.values[static_cast<size_t>(v.at)];
    bytes += static_cast<double>(value.shape.product() * size_of(value.dtype));
  };
  for (const RecordedArg& a : c.args) {
    if (const auto* v = std::get_if<ValueIndex>(&a)) add(*v);
    if (const auto* l = std::get_if<std::vector<ValueIndex>>(&a)) std::for_each(l->begin(), l->end(), add);
  }
  c.cost.bytes = bytes;
}

// What a call that threw had called before stands.
void Recorder::failed(const Call&) {
  State& s = *state_;
  if (s.asking || s.open.empty()) return;
  s.recording.calls[static_cast<size_t>(s.open.back())].composed = true;
  s.close();
  s.hand_over();
}

bool Recording::is_work(size_t i) const {
  if (calls[i].composed) return false;
  for (int32_t p = calls[i].parent; p >= 0; p = calls[static_cast<size_t>(p)].parent)
    if (!calls[static_cast<size_t>(p)].composed) return false;
  return true;
}

std::vector<int64_t> Recording::live_bytes() const {
  std::vector<int64_t> live(calls.size() + 1, 0);  // differences, then sums
  for (const RecordedStorage& s : storages) {
    live[static_cast<size_t>(std::max(s.born, 0))] += s.nbytes;
    live[static_cast<size_t>(std::max(s.freed, std::max(s.born, 0)))] -= s.nbytes;
  }
  for (size_t i = 1; i < live.size(); ++i) live[i] += live[i - 1];
  live.pop_back();
  return live;
}

std::pair<int64_t, int32_t> Recording::peak_bytes() const {
  const std::vector<int64_t> live = live_bytes();
  const auto most = std::max_element(live.begin(), live.end());
  if (most == live.end()) return {0, -1};
  return {*most, static_cast<int32_t>(most - live.begin())};
}

}  // namespace strata
