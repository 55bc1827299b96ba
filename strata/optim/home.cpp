#include "strata/optim/home.h"

#include <algorithm>
#include <future>
#include <map>
#include <mutex>
#include <optional>

#include "strata/autograd/hooks.h"
#include "strata/core/error.h"
#include "strata/core/op_call.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/cuda/stream_transfer.h"
#include "strata/memory/allocator.h"
#include "strata/memory/transfers.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/optim/home_ahead_inl.h"
#include "strata/optim/kernels.h"
#include "strata/optim/record.h"

namespace strata::optim {
namespace {

// Host memory that a device copies from and to on its own, for what is shaped like `t`.
Tensor host_copy_of(const Tensor& t, memory::Tag tag) {
  const memory::TagScope scope(tag);
  return empty({t.shape(), t.dtype(), Device::cpu(), std::nullopt}, t.device().is_cuda() ? Tier::pinned : Tier());
}

// Copies between a device and the host that work beside the thread's current stream. Where both are the CPU a copy is
// done when it returns.
class Lane {
 public:
  explicit Lane(Device device) : device_(device) {
    if (device.is_cuda()) stream_.emplace(cuda::Stream::create(device.index));
  }
  // Calls copy(), whose work comes after what the current stream holds now. `track` and bytes are for a log.
  template <class F>
  void run(std::string_view track, int64_t bytes, F&& copy) {
    if (!stream_) {
      const memory::TimedTransfer transfer(memory::TransferKind::copy, track, bytes);
      return copy();
    }
    stream_->wait(cuda::current_stream(device_.index));
    const cuda::StreamScope scope(*stream_);
    const cuda::StreamTransfer transfer(memory::TransferKind::copy, track, bytes, *stream_);
    copy();
  }
  // The point that run() has come to; nullptr where nothing is under way.
  std::shared_ptr<cuda::Event> mark() const {
    if (!stream_) return nullptr;
    auto event = std::make_shared<cuda::Event>(false, device_.index);
    event->record(*stream_);
    return event;
  }
  // `t`, which the current stream made, is used here.
  void uses(const Tensor& t) const {
    if (stream_) cuda::record_stream(t, *stream_);
  }
  // What the current stream gets from now on comes after what is here.
  void join() const {
    if (stream_) cuda::current_stream(device_.index).wait(*stream_);
  }

 private:
  Device device_;
  std::optional<cuda::Stream> stream_;
};

void wait_for(std::shared_ptr<cuda::Event>& event) {
  if (event) event->synchronize();
  event.reset();
}

// "blocks.0.weight to blocks.3.bias"
template <class Params>
std::string shown_name(const Params& params) {
  if (params.size() == 1) return params[0]->name;
  return params.empty() ? std::string() : cat(params.front()->name, " to ", params.back()->name);
}

}  // namespace

void StateHome::validate() const {
  check(group_bytes > 0, "StateHome", "group_bytes must be positive, got ", group_bytes);
  check(cpu_share <= 1, "StateHome", "cpu_share is at most 1, got ", cpu_share);
  check(!gradients_leave || who != Who::device, "StateHome",
        "gradients_leave is for parameters that the CPU updates; who is device");
  check(!delayed || who == Who::cpu, "StateHome", "delayed is for parameters that the CPU updates; who is ",
        name_of(who));
  check(!ahead || !(delayed || gradients_leave), "StateHome",
        "ahead reads gradients at their home: delayed and gradients_leave do not go with it");
}
std::string_view name_of(StateHome::Who who) {
  return who == StateHome::Who::device ? "device" : who == StateHome::Who::cpu ? "cpu" : "split";
}

struct Optimizer::Home {
  // What the host has of a parameter that the CPU updates.
  struct Side {
    bool cpu = false;
    Tensor mirror;         // its elements, a leaf; its gradient is the parameter's
    uint32_t version = 0;  // of the parameter, whose elements these are
    bool current = false;  // whether they are of any version
    // The last copy of a gradient that was queued; `more` is added to the mirror's when it has come.
    std::shared_ptr<cuda::Event> arriving;
    Tensor more;
    HookHandle hook;
  };
  struct Lanes {
    Lane to_host, to_device;
    std::shared_ptr<cuda::Event> returned;  // the parameters of the last step
    explicit Lanes(Device device) : to_host(device), to_device(device) {}
  };

  explicit Home(const StateHome& options) : options(options) {}
  ~Home() {
    for (Side& s : sides) s.hook.remove();
  }
  Lanes& lanes(Device device) { return all_lanes.try_emplace({device.type, device.index}, device).first->second; }

  // The tier of a state that the CPU, or `device`, updates.
  Tier tier_for(Device device) const {
    const bool host = options.where == Tier::host || options.where == Tier::pinned;
    return memory::backend(device, !host ? options.where : device.is_cuda() ? Tier::pinned : Tier()).tier;
  }

  // Queues the gradient of `parameter` on its way to the host.
  void send(Side& side, const Tensor& parameter, const std::string& name, bool leaves) {
    check(!cuda::capturing(), "optimizer", "a gradient on its way to the host cannot be captured in a CUDA graph");
    const NoGrad guard;
    const Tensor grad = parameter.grad();
    check<ShapeError>(grad.shape() == parameter.shape(), "optimizer", "the gradient ", grad,
                      " does not have the shape of its parameter ", parameter);
    const Tensor from = contiguous(grad.detach());
    const Tensor to = host_copy_of(from, memory::Tag::gradient);
    arrived(side);
    Lane& lane = lanes(parameter.device()).to_host;
    const memory::MovedName moved([&] { return "gradient of " + name; });
    lane.run("to host", from.nbytes(), [&] {
      const Pin near(from, Access::read);  // for this stream
      if (from.device().is_cuda()) {
        cuda::copy_to_pinned(to, from);
      } else {
        copy_elements(to, from);
      }
    });
    lane.uses(from);
    side.arriving = lane.mark();
    if (leaves && side.mirror.grad().defined()) {
      side.more = to;
    } else {
      side.mirror.set_grad(to);
    }
  }
  void leave(size_t i, const Tensor& parameter, const std::string& name) {
    const std::lock_guard lock(mutex);
    if (!parameter.grad().defined()) return;
    send(sides[i], parameter, name, true);
    Tensor leaf = parameter;
    leaf.set_grad({});
  }
  // Waits for the gradient that is under way.
  void arrived(Side& side) {
    wait_for(side.arriving);
    if (!side.more.defined()) return;
    if (job.valid()) job.wait();  // it may read what is written now
    const NoGrad guard;
    side.mirror.grad().detach().add_(side.more);
    side.more = {};
  }

  // The parameter as the CPU updates it, with the gradient that has come.
  Param stand_in(const Param& p) {
    Side& side = sides[p.index];
    const DType dtype = side.mirror.grad().dtype();
    if (options.delayed && !side.more.defined() && dtype != DType::f64 && p.tensor.dtype() != DType::f64) {
      if (side.arriving) awaited.push_back(std::move(side.arriving));
      side.arriving.reset();
    } else {
      arrived(side);
    }
    Param q = p;
    q.tensor = side.mirror;
    const uint32_t version = p.tensor.version();
    if (!side.current || side.version != version) {
      const Pin from(p.tensor, Access::read);
      copy_elements(side.mirror.detach(), p.tensor.detach());
    }
    side.current = true;
    side.version = version;
    // Whether somebody wrote to the parameter since its weights in f32 were left, which renew_master() asks the mirror.
    q.version = p.version == version ? side.mirror.version() : side.mirror.version() - 1;
    return q;
  }
  // What the parameters' devices get from now on comes after what is on its way to them.
  void join() {
    for (auto& [device, l] : all_lanes) {
      l.returned = l.to_device.mark();
      l.to_device.join();
    }
  }
  // Waits for a delayed update, and queues its way back.
  void finish(std::string_view name) {
    if (!job.valid()) return;
    job.wait();
    const std::vector<Param*> params = std::exchange(due, {});
    held.clear();
    job.get();
    for (Param* p : params) give_back(*p, name);
    join();
  }
  // While one lives, runs of rules are put down for begin(); without that they are forgotten.
  struct Delaying {
    explicit Delaying(Home& home) : h(home) { h.collecting = h.options.delayed; }
    ~Delaying() {
      h.collecting = false;
      h.awaited.clear();
      h.work.clear();
      if (h.job.valid()) return;
      h.held.clear();
      h.due.clear();
    }
    void begin() {
      h.job = std::async(std::launch::async, [events = std::exchange(h.awaited, {}), runs = std::exchange(h.work, {})] {
        for (const auto& event : events) event->synchronize();
        const memory::MovedName moved([] { return std::string("delayed update"); });
        const memory::TimedTransfer processor(memory::TransferKind::processor, "processor");
        for (const auto& [rule, slabs] : runs) run_rule_cpu(rule, slabs);
      });
    }
    Home& h;
  };
  // Queues the way back of what the CPU made of it.
  void give_back(Param& p, std::string_view name) {
    Side& side = sides[p.index];
    LowCopy& low = autograd_meta(p.tensor).low;
    const bool renews = low.tensor.defined() && low.is_current(p.tensor, low.tensor.dtype());
    const memory::MovedName moved([&] { return p.name; });
    lanes(p.tensor.device()).to_device.run("from host", p.tensor.nbytes(), [&] {
      strata::detail::Pins pins;  // for this stream: what it writes may go only when it has written
      pins.hold(p.tensor, Access::write);
      if (renews) pins.hold(low.tensor, Access::write);
      copy_elements(p.tensor.detach(), side.mirror.detach());
      if (renews) copy_elements(low.tensor, p.tensor.detach());
    });
    bump_version(p.tensor, name);
    p.version = side.version = p.tensor.version();
    if (!renews) return;
    bump_version(low.tensor, name);
    low.version = p.tensor.version();
  }

  StateHome options;
  std::vector<Side> sides;  // by the parameters' index
  std::map<std::pair<DeviceType, int>, Lanes> all_lanes;
  std::mutex mutex;  // of gradients that leave
  int gathered = 0;  // HostGradients that live
  // Of a delayed update: what it waits for, runs and reads, and whose it is.
  bool collecting = false;
  std::vector<std::shared_ptr<cuda::Event>> awaited;
  std::vector<std::pair<Rule, std::vector<Slab>>> work;
  TensorList held;
  std::vector<Param*> due;
  std::future<void> job;  // the last member: its end is waited for before the others go
};

void Optimizer::finish() const {
  const NoGrad guard;
  if (ahead_) end_early();
  end_ahead();
  if (home_) home_->finish(name_);
}
bool Optimizer::delay(Rule rule, const std::vector<Slab>& slabs) {
  if (ahead_ && ahead_->collecting) {
    ahead_->collected.emplace_back(rule, slabs);
    return true;
  }
  if (!home_ || !home_->collecting) return false;
  home_->work.emplace_back(rule, slabs);
  return true;
}

StateHome Optimizer::home() const {
  StateHome home = home_ ? home_->options : StateHome{};
  if (ahead_ && ahead_->times && home.who == StateHome::Who::split) home.cpu_share = ahead_->times->cpu_share;
  return home;
}

void Optimizer::set_home(const StateHome& given) {
  given.validate();
  check(!cuda::capturing(), name_, "set_home() cannot be captured in a CUDA graph");
  check(!given.delayed || one_run(), name_, "its update is more than one fused rule, which cannot be delayed");
  finish();
  const NoGrad guard;
  const memory::TierScope own{Tier()};
  std::shared_ptr<Home> made;
  std::shared_ptr<Ahead> ahead;
  if (given.who != StateHome::Who::device || !(given.where == Tier())) {
    for (const Param& p : params_)
      check(!p.sharded.defined(), name_, "the state of '", p.name,
            "', which is sharded, has no home but its parameter's device");
    made = std::make_shared<Home>(given);
    made->sides.resize(params_.size());
    StateHome& o = made->options;
    o.ahead = o.ahead && one_run();
    if (o.ahead) ahead = std::make_shared<Ahead>(*this, o);
    if (o.who != StateHome::Who::split) o.cpu_share = o.who == StateHome::Who::cpu ? 1 : 0;
    if (o.cpu_share < 0 && !o.ahead && !params_.empty() && !params_[0].tensor.is_meta()) {
      const Param& first = params_[0];
      const HomeRates rates = measure_home_rates(*this, first.tensor.device(), first.tensor.dtype());
      double elements = 0, parameter = 0, state = 0;
      for (const Param& p : params_) {
        const auto n = static_cast<double>(p.tensor.numel());
        elements += n;
        parameter += n * static_cast<double>(size_of(p.tensor.dtype()));
        for (const StateSpec& s : full_spec(p)) state += static_cast<double>(s.shape.product() * size_of(s.dtype));
      }
      elements = std::max(elements, 1.0);
      if (o.where == Tier()) state = 0;
      o.cpu_share = best_cpu_share(rates, {parameter / elements, parameter / elements, state / elements});
    }
    // Dealt out in the parameters' order, so that both have work all the way.
    double seen = 0, dealt = 0;
    for (Param& p : params_) {
      if (p.tensor.is_meta()) continue;
      const auto n = static_cast<double>(p.tensor.numel());
      seen += n;
      Home::Side& side = made->sides[p.index];
      side.cpu = !o.ahead && (o.cpu_share >= 1 || (o.cpu_share > 0 && dealt + n / 2 <= o.cpu_share * seen));
      if (!side.cpu) {
        made->tier_for(p.tensor.device());  // throws where there is none
        continue;
      }
      const Tier tier = made->tier_for(Device::cpu());
      check(!o.delayed || memory::backend(Device::cpu(), tier).bytes == memory::Bytes::fixed, name_,
            "a delayed update reads its state in the host's memory, not on ", tier);
      dealt += n;
      side.mirror = host_copy_of(p.tensor, memory::Tag::optimizer);
      side.mirror.set_requires_grad();
      if (o.gradients_leave && p.tensor.requires_grad())
        side.hook = register_post_accumulate_grad_hook(
            p.tensor, [home = std::weak_ptr<Home>(made), i = p.index, name = p.name](const Tensor& leaf) {
              if (const auto h = home.lock()) h->leave(i, leaf, name);
            });
    }
  }
  // Gradients that left the device go back to it.
  if (home_ && home_->options.gradients_leave)
    for (Param& p : params_) {
      Home::Side& side = home_->sides[p.index];
      if (!side.cpu) continue;
      if (p.tensor.grad().defined()) home_->leave(p.index, p.tensor, p.name);
      home_->arrived(side);
      if (const Tensor g = side.mirror.grad(); g.defined()) p.tensor.set_grad(g.to(p.tensor.device()));
      side.mirror.set_grad({});
    }
  std::swap(home_, made);
  std::swap(ahead_, ahead);
  try {
    for (Param& p : params_) {
      if (p.state.empty() || p.tensor.is_meta()) continue;
      strata::detail::Pins pins;
      Param q = p;
      if (home_ && home_->sides[p.index].cpu) q.tensor = home_->sides[p.index].mirror;
      const memory::TagScope tag(memory::Tag::optimizer);
      keep_state(q, full_spec(q), pins);
      for (Tensor& t : q.state)
        if (const Tier near = memory::backend(t.device()).tier; !home_ && !(t.tier() == near)) t = t.to(near);
      p.state = std::move(q.state);
    }
  } catch (...) {
    std::swap(ahead_, ahead);
    std::swap(home_, made);  // states that moved are used where they are, or moved back by the next step
    throw;
  }
}

Optimizer::Place Optimizer::place_of(const Param& p, const StateSpec& spec) const {
  const bool cpu = home_ && home_->sides[p.index].cpu;
  const Device own = cpu ? Device::cpu() : p.tensor.device();
  // Whoever takes a piece is told the numbers, which stay with the host.
  if (ahead_ && !ahead_->here[p.index] && spec.shape.empty())
    return {Device::cpu(), memory::backend(Device::cpu()).tier};
  const Device device = spec.key == "step" && !cpu ? step_device(p.tensor) : own;
  if (!home_ || p.tensor.is_meta()) return {device, std::nullopt};
  // A number stays with whoever computes.
  const Tier tier = spec.shape.empty() ? memory::backend(device).tier : home_->tier_for(device);
  return {device, tier};
}
Tensor Optimizer::Place::make(const StateSpec& spec) const {
  const TensorMeta meta{spec.shape, spec.dtype, device, std::nullopt};
  return tier ? empty(meta, *tier) : empty(meta);
}

Optimizer::HostGradients::HostGradients(Optimizer& o) : optimizer_(o) {
  if (!o.home_ || o.home_->gathered++ > 0) return;
  Home& h = *o.home_;
  for (const Param& p : o.params_) {
    if (!h.sides[p.index].cpu || !p.tensor.grad().defined()) continue;
    if (h.options.gradients_leave) {
      h.leave(p.index, p.tensor, p.name);
    } else {
      h.send(h.sides[p.index], p.tensor, p.name, false);
    }
  }
}
Optimizer::HostGradients::~HostGradients() {
  const std::shared_ptr<Home>& home = optimizer_.home_;
  if (!home || --home->gathered > 0 || home->options.gradients_leave) return;
  for (Home::Side& side : home->sides) {
    side.arriving.reset();
    if (side.cpu) side.mirror.set_grad({});
  }
}
TensorList Optimizer::HostGradients::holders() const {
  TensorList all;
  for (const Param& p : optimizer_.params_) {
    if (!optimizer_.home_ || !optimizer_.home_->sides[p.index].cpu) {
      all.push_back(p.given());
      continue;
    }
    Home::Side& side = optimizer_.home_->sides[p.index];
    optimizer_.home_->arrived(side);
    all.push_back(side.mirror);
  }
  return all;
}

void Optimizer::clear_host_gradients(bool set_to_none) {
  if (!home_) return;
  forget_squares();
  const NoGrad guard;
  for (Home::Side& side : home_->sides) {
    if (!side.cpu) continue;
    side.arriving.reset();
    side.more = {};
    if (set_to_none) {
      side.mirror.set_grad({});
    } else if (const Tensor g = side.mirror.grad(); g.defined()) {
      const Tensor zero = host_copy_of(g, memory::Tag::gradient);  // a delayed update may still read `g`
      fill_elements(zero, 0);
      side.mirror.set_grad(zero);
    }
  }
}

void Optimizer::step_from_home(double grad_scale) {
  Home& h = *home_;
  end_ahead();
  h.finish(name_);
  const HostGradients gathered(*this);
  const std::vector<bool> begun = ahead_ ? begin_ahead(grad_scale) : std::vector<bool>(params_.size());
  struct Group {
    bool cpu = false;
    int64_t bytes = 0;
    std::vector<Param*> params;
  };
  std::vector<Group> groups;
  size_t open[2] = {SIZE_MAX, SIZE_MAX};  // the group of the device, and of the CPU, that takes more
  for (Param& p : params_) {
    const Home::Side& side = h.sides[p.index];
    if (begun[p.index]) continue;
    if (!(side.cpu ? side.mirror : p.tensor).grad().defined()) continue;
    int64_t bytes = 0;
    for (const StateSpec& s : full_spec(p)) bytes += s.shape.product() * size_of(s.dtype);
    // A rule with little state still has weights and gradients near, where these come from elsewhere too.
    int64_t away = 0;
    for (const Tensor& t : {p.tensor, p.tensor.grad()})
      if (t.defined() && !(t.tier() == memory::backend(t.device()).tier)) away += t.nbytes();
    bytes = std::max(bytes, away);
    size_t& at = open[side.cpu];
    if (at == SIZE_MAX || groups[at].bytes + bytes > h.options.group_bytes) {
      at = groups.size();
      groups.push_back({.cpu = side.cpu});
    }
    groups[at].bytes += bytes;
    groups[at].params.push_back(&p);
  }
  size_t fetched[2] = {0, 0};  // the next group of either, whose state is on its way
  Home::Delaying delaying(h);
  // The mirrors are written again.
  for (auto& [device, lanes] : h.all_lanes) {
    if (h.options.delayed && lanes.returned) h.awaited.push_back(std::move(lanes.returned));
    wait_for(lanes.returned);
  }
  for (size_t k = 0; k < groups.size(); ++k) {
    const Group& group = groups[k];
    strata::detail::Pins pins;
    std::vector<Param> stand_ins;
    std::vector<Param*> active;
    bool dry = false;
    if (group.cpu)
      for (const Param* p : group.params) stand_ins.push_back(h.stand_in(*p));
    for (size_t i = 0; i < group.params.size(); ++i) {
      active.push_back(group.cpu ? &stand_ins[i] : group.params[i]);
      take_gradient(*active.back(), pins);
      dry = dry || active.back()->tensor.is_meta() || active.back()->grad.is_meta();
    }
    for (Param* p : active) p->first = prepare_state(*p, dry, pins) || p->first;
    for (const bool cpu : {false, true}) {
      size_t& next = fetched[cpu];
      if (next > k) continue;  // it is on its way already
      for (next = k + 1; next < groups.size() && groups[next].cpu != cpu;) ++next;
      if (next == groups.size()) continue;
      for (const Param* p : groups[next].params)
        for (const Tensor& t : p->state) {
          const memory::MovedName moved([&] { return "state of " + p->name; });
          t.storage()->prefetch();
        }
    }
    if (h.options.delayed)
      for (const Param* p : active) h.held.push_back(p->grad);
    {
      std::optional<memory::TimedTransfer> processor;
      const memory::MovedName moved([&] { return shown_name(active); });
      if (group.cpu && !dry && !h.options.delayed) processor.emplace(memory::TransferKind::processor, "processor");
      update_taken(active, grad_scale, dry);
    }
    for (size_t i = 0; i < stand_ins.size(); ++i) {
      Param& p = *group.params[i];
      p.state = std::move(stand_ins[i].state);
      if (h.options.delayed) {
        h.due.push_back(&p);
      } else {
        h.give_back(p, name_);
      }
    }
  }
  if (h.options.delayed) {
    delaying.begin();
  } else {
    h.join();
  }
}

}  // namespace strata::optim
