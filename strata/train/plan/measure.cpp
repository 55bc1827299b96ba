#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/core/error.h"
#include "strata/core/recording.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/group.h"
#include "strata/lab/peaks.h"
#include "strata/lab/processor_time_inl.h"
#include "strata/lab/step_costs.h"
#include "strata/memory/bounds.h"
#include "strata/models/language_model.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/train/machine.h"
#include "strata/train/plan/machine.h"
#include "strata/train/plan/network_inl.h"
#include "strata/train/precision.h"

namespace strata::plan {
namespace {

using distributed::Collectives;
using distributed::Reduction;
using Clock = std::chrono::steady_clock;

void settle(Device device) {
  if (device.is_cuda()) cuda::synchronize(device.index);
}

double seconds_of(Device device, const std::function<void()>& f) {
  settle(device);
  const auto begin = Clock::now();
  f();
  settle(device);
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The least of some times.
double least(int times, const std::function<double()>& f) {
  double best = f();
  for (int i = 1; i < times; ++i) best = std::min(best, f());
  return best;
}

// The middle one of some times: on a host that others use the least is luck, which a run does not have at every message.
double typical(int times, const std::function<double()>& f) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) all.push_back(f());
  std::ranges::nth_element(all, all.begin() + times / 2);
  return all[static_cast<size_t>(times / 2)];
}

// The ranks' values, reduced: all go on with the same ones.
std::vector<double> agreed(std::vector<double> v, Reduction r) {
  if (distributed::size() == 1) return v;
  distributed::group("world").run(cat("measured [", v.size(), "]"), [&](distributed::Communicator& c) {
    c.all_reduce(v.data(), static_cast<int64_t>(v.size()), DType::f64, r);
  });
  return v;
}

// A step of a small decoder: what it takes alone, what its records say at least, and how many calls it has. Some more of
// them by the clock, and what those take alone.
struct Small {
  double seconds = 0, least = 0, calls = 0;
  double passed = 0, alone = 0;
};
Small small_step(Device device, std::string_view dtype, int64_t dim, int64_t rows, const lab::Limits& limits) {
  const DeviceScope there(device);
  const ModelConfig shape{.layers = 2, .dim = dim, .heads = 4, .context = 64, .vocab = 256};
  const std::shared_ptr<LanguageModel> model = strata::make_model(shape);
  const Tensor tokens = zeros({rows, shape.context}, DType::i64), targets = zeros({rows, shape.context}, DType::i64);
  const auto step = [&] {
    std::optional<AutocastScope> autocast;
    if (dtype == "bf16" || dtype == "f16" || dtype == "fp8") autocast.emplace(dtype == "f16" ? DType::f16 : DType::bf16);
    for (Tensor& p : model->parameters()) p.set_grad({});
    model->loss(tokens, targets).backward();
  };
  step();
  const Recording r = record(step);
  Small s;
  for (size_t i = 0; i < r.calls.size(); ++i) {
    if (!r.is_work(i)) continue;
    const double t = lab::least_seconds(r, i, limits);
    s.least += t, s.calls += t > 0 ? 1 : 0;
  }
  constexpr int kTimes = 8;
  s.seconds = least(kTimes, [&] {
    // A processor's own time has no turns of other programs in it.
    const double before = lab::thread_seconds(), passed = seconds_of(device, step);
    s.passed += passed;
    return device.is_cpu() ? lab::thread_seconds() - before : passed;
  });
  s.alone = kTimes * s.seconds;
  return s;
}

// seconds = least / efficiency + calls * call_us, of two sizes of a step.
void measure_steps(Machine& m, Device device, std::string_view dtype) {
  const bool card = device.is_cuda();
  const Small few = small_step(device, dtype, card ? 128 : 32, 2, m.limits);
  const Small many = small_step(device, dtype, card ? 1024 : 256, card ? 32 : 8, m.limits);
  const double det = few.least * many.calls - many.least * few.calls;
  double inverse = (few.seconds * many.calls - many.seconds * few.calls) / det;
  double call = (few.least * many.seconds - many.least * few.seconds) / det;
  // On a host that does other things beside, the larger one says what is reached, and the smaller one the rest.
  if (!(inverse >= 1) || !(call >= 0)) {
    inverse = std::max(many.seconds / many.least, 1.0);
    call = (few.seconds - few.least * inverse) / few.calls;
  }
  // A card's step is one graph: its calls cost less than these, one by one from the host.
  if (card) inverse = std::max(many.seconds / many.least, 1.0), call = 2e-6;
  if (!card) m.share = std::clamp((few.alone + many.alone) / (few.passed + many.passed), 1e-3, 1.0);
  m.efficiency = std::clamp(1 / inverse, 1e-3, 1.0);
  m.call_us = 1e6 * std::clamp(call, 0.0, 1e-3);
}

// Every pair of ranks alone, one after the other; of many ranks pairs that have no rank in common at once, as in a round of
// a tournament.
void measure_pairs(Machine& m, Device device) {
  distributed::Group& world = distributed::group("world");
  const int n = world.size(), rank = world.rank();
  constexpr size_t kLarge = size_t{4} << 20;
  const DeviceScope there(device);
  Tensor mine = zeros({static_cast<int64_t>(kLarge)}, DType::u8), other = zeros({static_cast<int64_t>(kLarge)}, DType::u8);
  // Cards connect at the first call, all of them.
  world.run(device, "links, begin", [&](Collectives& c) { c.all_reduce(mine.raw_data(), 4, DType::u8, Reduction::max); });
  const auto ping = [&](int peer, size_t bytes, int times) {
    const bool first = rank < peer;
    return seconds_of(device, [&] {
      for (int i = 0; i < times; ++i)
        for (const bool sends : {first, !first})
          world.message(device, "link", [&](Collectives& c) {
            sends ? c.send(mine.raw_data(), bytes, peer) : c.receive(other.raw_data(), bytes, peer);
          });
    }) / (2 * times);
  };
  std::vector<double> flat(static_cast<size_t>(n * n) * 2, 0);
  const auto pair = [&](int a, int b) {
    if (rank != a && rank != b) return;
    const int peer = rank == a ? b : a;
    ping(peer, 1, 2);
    ping(peer, kLarge, 1);
    const double few = typical(5, [&] { return ping(peer, 1, 8); });
    const double many = typical(5, [&] { return ping(peer, kLarge, 1); });
    const auto at = 2 * static_cast<size_t>(rank * n + peer);
    // There and back are one measurement: both ranks say what the first one saw, on a busy host too.
    if (rank > peer) return;
    const auto back = 2 * static_cast<size_t>(peer * n + rank);
    flat[at] = flat[back] = static_cast<double>(kLarge) / std::max(many - few, many / 2) * 1e-9;
    flat[at + 1] = flat[back + 1] = 1e6 * std::min(few, many);
  };
  constexpr int kOneByOne = 8;
  if (n <= kOneByOne) {
    for (int a = 0; a < n; ++a)
      for (int b = a + 1; b < n; ++b) {
        pair(a, b);
        world.barrier();
      }
  } else {
    // One stays, the others go round.
    const int seats = n + n % 2;
    for (int round = 0; round + 1 < seats; ++round) {
      const auto seat = [&](int i) { return i == 0 ? 0 : 1 + (i - 1 + round) % (seats - 1); };
      for (int i = 0; i < seats / 2; ++i) {
        const int a = seat(i), b = seat(seats - 1 - i);
        if (a < n && b < n) pair(a, b);
      }
      world.barrier();
    }
  }
  flat = agreed(std::move(flat), Reduction::sum);
  m.links.pairs.clear();
  for (int i = 0; i < n * n; ++i) m.links.pairs.push_back({flat[static_cast<size_t>(2 * i)], flat[static_cast<size_t>(2 * i + 1)]});
  for (int i = 0; i < n; ++i) {  // of a rank to itself: nothing asks for it
    m.links.pairs[static_cast<size_t>(i * n + i)] = m.links.pairs[static_cast<size_t>(i * n + (i + 1) % n)];
  }
  const int next = m.links.ranks_per_host < n ? m.links.ranks_per_host : 1;
  m.links.inside = m.links.of(0, 1), m.links.between = m.links.of(0, next);
}

// A collective of all ranks beside what pairs let one expect, and how much of it a rank's computing hides.
void measure_collectives(Machine& m, Device device) {
  distributed::Group& world = distributed::group("world");
  const int64_t n = world.size();
  const DeviceScope there(device);
  constexpr int64_t kLarge = int64_t{8} << 20;
  Tensor x = zeros({kLarge / 4});
  const auto reduce = [&](int64_t count) {
    return [&world, device, &x, count] {
      world.run(device, "all_reduce, measured",
                [&](Collectives& c) { c.all_reduce(x.raw_data(), count, DType::f32, Reduction::sum); });
    };
  };
  const auto timed = [&](const std::function<void()>& f) {
    f();
    const double t = typical(5, [&] {
      world.barrier();
      return seconds_of(device, f);
    });
    return agreed({t}, Reduction::max)[0];
  };
  const double few = timed(reduce(2)), many = timed(reduce(kLarge / 4));
  m.links.scale = m.links.small_scale = 1;
  const Network net(m.links, n);
  const Span all{1, n};
  const double first = net.seconds(Collective::all_reduce, all, 8);
  const double bytes = net.seconds(Collective::all_reduce, all, kLarge) - first;
  m.links.small_scale = std::max(few / first, 1e-3);
  m.links.scale = std::max((many - few) / bytes, 1e-3);
  // As long a time of products.
  const Tensor a = ones({256, 256});
  const NoGrad guard;
  const double one = least(3, [&] { return seconds_of(device, [&] { matmul(a, a); }); });
  const auto times = static_cast<int>(std::clamp(agreed({many / one}, Reduction::max)[0], 1.0, 1e5));
  const auto compute = [&] {
    for (int i = 0; i < times; ++i) matmul(a, a);
  };
  const double computes = timed(compute);
  const double both = timed([&] {
    distributed::Work work = world.start(device, "all_reduce, beside", [&](Collectives& c) {
      c.all_reduce(x.raw_data(), kLarge / 4, DType::f32, Reduction::sum);
    });
    compute();
    work.wait();
  });
  m.links.overlap = std::clamp((computes + many - both) / std::min(computes, many), 0.0, 1.0);
}

}  // namespace

Machine measure_machine(Device device, std::string_view dtype) {
  Machine m;
  const MachineInfo info = machine_info();
  m.name = device.is_cuda() ? cuda::properties(device.index).name : info.cpu;
  const int n = distributed::size();
  if (n > 1) distributed::group("world").barrier();  // all at once: they share what a host has
  const lab::Limits l = lab::measure_limits(device, /*seconds=*/0.1, /*room=*/int64_t{48} << 20);
  std::vector<double> v = agreed({l.gb_s, l.gflops, l.matmul_f32, l.matmul_bf16}, Reduction::min);
  m.limits = {.gb_s = v[0], .gflops = v[1], .matmul_f32 = v[2], .matmul_bf16 = v[3]};
  measure_steps(m, device, dtype);
  const int64_t sharing = device.is_cuda() ? 1 : std::max(distributed::job().local_size, 1);
  const int64_t free = memory::tightest_bound(device).free() / sharing;
  v = agreed({-m.efficiency, m.call_us, -static_cast<double>(free), -m.share}, Reduction::max);
  m.efficiency = -v[0], m.call_us = v[1], m.share = -v[3];
  m.memory = static_cast<int64_t>(-v[2]);
  if (n == 1) return m;
  m.name += cat(", ", n, " ranks");
  m.links.transport = device.is_cuda() ? "nccl" : "gloo";
  m.links.ranks_per_host = std::max(distributed::job().local_size, 1);
  measure_pairs(m, device);
  measure_collectives(m, device);
  return m;
}

}  // namespace strata::plan
