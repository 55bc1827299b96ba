#include "strata/dist/group.h"

#include <algorithm>

#include "strata/core/error.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/memory.h"
#include "strata/dist/device_group_inl.h"
#include "strata/dist/group_inl.h"
#include "strata/ops/factory/factory.h"

namespace strata::distributed {

void Work::wait() {
  if (state_) state_->wait();
}

Group::Group(std::string name, std::vector<int> ranks, int rank, std::unique_ptr<Transport> transport)
    : impl_(std::make_unique<Impl>(std::move(name), std::move(ranks), rank, std::move(transport))) {}

Group::~Group() {
  if (!impl_->thread.joinable()) return;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ending = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
}

const std::string& Group::name() const {
  return impl_->name;
}
int Group::rank() const {
  return impl_->communicator.rank();
}
int Group::size() const {
  return impl_->communicator.size();
}
const std::vector<int>& Group::ranks() const {
  return impl_->ranks;
}

// One call at a time gets here: `busy` is set.
void Group::Impl::perform(const Task& task) {
  const uint64_t number = recorder().begin(name, ++sequence, task.what);
  try {
    communicator.announce(task.what);
    task.run(communicator);
  } catch (const std::exception& e) {
    // The entry still runs while others are asked: what they learn of this rank is where it is.
    const std::string text = failure_of(name, ranks, e.what());
    recorder().end(number, e.what());
    throw DistributedError(task.what.substr(0, task.what.find_first_of("( ")), text);
  }
  recorder().end(number);
}

void Group::run(std::string what, const std::function<void(Communicator&)>& run) {
  Impl& g = *impl_;
  std::unique_lock lock(g.mutex);
  g.changed.wait(lock, [&] { return !g.busy && g.queue.empty(); });
  g.busy = true;
  lock.unlock();
  struct Free {
    Impl& g;
    ~Free() {
      {
        const std::lock_guard l(g.mutex);
        g.busy = false;
      }
      g.changed.notify_all();
    }
  } const free{g};
  g.perform({std::move(what), run, nullptr});
}

Work Group::start(std::string what, std::function<void(Communicator&)> run) {
  Impl& g = *impl_;
  Work work;
  const auto state = std::make_shared<HostWork>();
  work.state_ = state;
  {
    const std::lock_guard lock(g.mutex);
    if (!g.thread.joinable()) g.thread = std::thread([&g] { g.work(); });
    g.queue.push_back({std::move(what), std::move(run), state});
  }
  g.changed.notify_all();
  return work;
}

void Group::Impl::work() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return (!busy && !queue.empty()) || (ending && queue.empty()); });
    if (queue.empty()) return;
    Task task = std::move(queue.front());
    queue.pop_front();
    busy = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      perform(task);
    } catch (...) {
      error = std::current_exception();
    }
    task.run = nullptr;  // what it holds goes before anybody hears that it is done
    {
      const std::lock_guard done(task.state->mutex);
      task.state->done = true;
      task.state->error = error;
    }
    task.state->changed.notify_all();
    lock.lock();
    busy = false;
    changed.notify_all();
  }
}

namespace {

// A group of one, on a card: on the caller's stream.
class LoneCard final : public Collectives {
 public:
  explicit LoneCard(Device device) : device_(device) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(void*, int64_t, DType, Reduction) override {}
  void reduce(void*, int64_t, DType, Reduction, int) override {}
  void broadcast(void*, size_t, int) override {}
  void reduce_scatter(void* out, const void* in, int64_t count, DType dtype, Reduction) override {
    copy(out, in, static_cast<size_t>(count) * size_of(dtype));
  }
  void all_gather(void* out, const void* in, size_t bytes) override { copy(out, in, bytes); }
  void all_to_all(void* out, std::span<const size_t>, const void* in, std::span<const size_t> in_bytes) override {
    copy(out, in, in_bytes[0]);
  }
  void send(const void*, size_t, int) override {}
  void receive(void*, size_t, int) override {}
  void shift(void* out, const void* in, size_t bytes, int, int) override { copy(out, in, bytes); }

 private:
  void copy(void* out, const void* in, size_t bytes) {
    if (bytes > 0 && out != in) cuda::copy_bytes(out, device_, in, device_, bytes);
  }
  Device device_;
};

}  // namespace

Work Group::queue(Device device, std::string what, const std::function<void(Collectives&)>& run,
                  std::vector<Tensor> held, bool all_ranks) {
  Impl& g = *impl_;
  if (size() == 1) {
    LoneCard alone(device);
    run(alone);
    return {};
  }
  detail::check_job(what.substr(0, what.find_first_of("( ")));
  std::shared_ptr<detail::DeviceGroup> cards;
  {
    const std::lock_guard lock(g.cards_mutex);
    if (!g.cards) {
      check<DeviceError>(!cuda::capturing(), what, "group ", g.name,
                         " is not connected between cards yet: its first call cannot be captured in a CUDA graph");
      g.cards = detail::make_device_group(g.name, g.ranks, rank(), device);
    }
    cards = g.cards;
  }
  check<DeviceError>(cards->device() == device, what, "group ", g.name,
                     " is connected between other cards: here it is ", cards->device(), ", not ", device);
  Work work;
  work.state_ = cards->start(std::move(what), all_ranks, std::move(held), run);
  return work;
}

namespace {
bool on_host(Device device, int size) {
  return device.is_cpu() && (size == 1 || detail::test_lanes() == nullptr);
}
}  // namespace

void Group::run(Device device, std::string what, const std::function<void(Collectives&)>& run_there) {
  if (on_host(device, size())) return run(std::move(what), [&](Communicator& c) { run_there(c); });
  queue(device, std::move(what), run_there, {}, true).wait();
}

Work Group::start(Device device, std::string what, std::function<void(Collectives&)> run_there,
                  std::vector<Tensor> held) {
  if (on_host(device, size())) {
    return start(std::move(what),
                 [run_there = std::move(run_there), held = std::move(held)](Communicator& c) { run_there(c); });
  }
  return queue(device, std::move(what), run_there, std::move(held), true);
}

void Group::message(Device device, std::string what, const std::function<void(Collectives&)>& run_there) {
  if (on_host(device, size())) return run(std::move(what), [&](Communicator& c) { run_there(c); });
  queue(device, std::move(what), run_there, {}, false).wait();
}

std::string Group::way_of_cards() const {
  const std::lock_guard lock(impl_->cards_mutex);
  return impl_->cards ? impl_->cards->way() : std::string();
}

namespace {
// A card's streams are a pool, and others use it, too.
constexpr size_t kMostWays = 16;

void check_ways(size_t n, int rank, const std::string& group) {
  check(n <= kMostWays, "connect", "rank ", rank, " of group ", group, " would have more than ", kMostWays,
        " ways of messages on its card: take fewer stages on each rank");
}
}  // namespace

void Group::connect(Device device, std::span<const Way> ways) {
  Impl& g = *impl_;
  if (on_host(device, size())) return;
  const std::lock_guard lock(g.cards_mutex);
  std::vector<size_t> counts(static_cast<size_t>(size()));
  for (const Way& w : ways) {
    check(w.from != w.to && std::min(w.from, w.to) >= 0 && std::max(w.from, w.to) < size(), "connect", "group ", g.name,
          " of ", size(), " has no way from rank ", w.from, " to rank ", w.to);
    ++counts[static_cast<size_t>(w.from)], ++counts[static_cast<size_t>(w.to)];
  }
  for (int r = 0; r < size(); ++r) check_ways(counts[static_cast<size_t>(r)], r, g.name);  // on all ranks alike
  for (const Way& w : ways) {
    if (rank() != w.from && rank() != w.to) continue;
    if (g.ways.contains({w.from, w.to, w.number})) continue;
    check_ways(g.ways.size() + 1, rank(), g.name);
    check<DeviceError>(!cuda::capturing(), "connect", "a way between cards cannot be connected in a CUDA graph");
    const std::vector<int> ends{g.ranks[static_cast<size_t>(w.from)], g.ranks[static_cast<size_t>(w.to)]};
    const bool sends = rank() == w.from;
    const auto way = detail::make_device_group(cat(g.name, ">", ends[0], ">", ends[1], ">", w.number), ends,
                                               sends ? 0 : 1, device, {.messages = true, .concerns = g.ranks});
    g.ways.emplace(std::tuple{w.from, w.to, w.number}, way);
    // The first message makes both ends wait for each other on the host, which none of those that are begun ahead may.
    const Tensor first = empty(TensorMeta{{1}, DType::u8, device, std::nullopt});
    way->start("message(the first)", true, {first},
               [&](Collectives& c) { sends ? c.send(first.raw_data(), 1, 1) : c.receive(first.raw_data(), 1, 0); })
        ->wait();
  }
}

namespace {
// A message of the host's memory.
struct Posted final : detail::WorkState {
  Posted(Group& g, Tensor t, std::string w) : group(g), tensor(std::move(t)), what(std::move(w)) {}
  void wait() override {
    if (!transfer) return;
    group.run(what, [&](Communicator&) { transfer->wait(); });
    transfer = nullptr;
    tensor = {};
  }
  Group& group;
  Tensor tensor;  // longer than its transfer
  std::string what;
  std::unique_ptr<Transfer> transfer;
};
}  // namespace

Work Group::send(const Tensor& t, const Way& way, std::string what, const Work& behind) {
  return post(t, way, std::move(what), true, behind);
}
Work Group::receive(const Tensor& t, const Way& way, std::string what, const Work& behind) {
  return post(t, way, std::move(what), false, behind);
}

Work Group::post(const Tensor& t, const Way& way, std::string what, bool sends, const Work& behind) {
  Impl& g = *impl_;
  void* const data = t.raw_data();
  const auto bytes = static_cast<size_t>(t.nbytes());
  check(t.is_contiguous() && rank() == (sends ? way.from : way.to), "message", what, " of ", t, " by rank ", rank(),
        ": wanted contiguous elements, and the way's end");
  Work work;
  if (on_host(t.device(), size())) {
    const auto state = std::make_shared<Posted>(*this, t, std::move(what));
    try {
      state->transfer = sends ? g.communicator.post_send(data, bytes, way.to, way.number)
                              : g.communicator.post_receive(data, bytes, way.from, way.number);
    } catch (const std::exception&) {  // told as of any call of the group's
      run(state->what, [error = std::current_exception()](Communicator&) { std::rethrow_exception(error); });
    }
    work.state_ = state;
    return work;
  }
  detail::check_job("message");
  std::shared_ptr<detail::DeviceGroup> cards;
  {
    const std::lock_guard lock(g.cards_mutex);
    const auto it = g.ways.find({way.from, way.to, way.number});
    if (it != g.ways.end()) cards = it->second;
  }
  check(cards != nullptr && cards->device() == t.device(), "message", "way ", way.number, " from rank ", way.from,
        " to rank ", way.to, " of group ", g.name, " is not connected on ", t.device());
  work.state_ = cards->start(
      std::move(what), true, {t}, [&](Collectives& c) { sends ? c.send(data, bytes, 1) : c.receive(data, bytes, 0); },
      behind.state_.get());
  return work;
}

void Group::barrier() {
  run("barrier", [](Communicator& c) { c.barrier(); });
}

}  // namespace strata::distributed
