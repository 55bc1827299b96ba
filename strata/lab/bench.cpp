#include "strata/lab/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "strata/autograd/autograd.h"
#include "strata/core/samples.h"
#include "strata/cuda/runtime.h"
#include "strata/lab/compare.h"

namespace strata::lab {
namespace {

using Args = std::vector<Value>;
using Clock = std::chrono::steady_clock;

// Elements that an enlarged sample's largest tensor has, about: past the caches of most machines.
constexpr double kElements = 1 << 23;
// The same on a card, also of benchmark samples, which are made for processors.
constexpr double kCardElements = 1 << 24;
// The same there for an op that is made of others and has no cost of its own: it may do any amount of work.
constexpr double kUnknownElements = 1 << 20;

struct Timing {
  double median = 0;
  int repetitions = 0;
  bool host_bound = false;
};

Timing median(std::vector<double> times, int group) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return {times[times.size() / 2], static_cast<int>(times.size()) * group};
}

// run(i) is called with i = 0, 1, ...
template <class F>
Timing time_on_card(Device device, double seconds, F&& run) {
  const cuda::Stream stream = cuda::current_stream(device.index);
  cuda::Event begin(true, device.index), end(true, device.index);
  int64_t calls = 0;
  double queueing = 0;
  const auto timed = [&](int count) {
    begin.record(stream);
    const auto t = Clock::now();
    for (int i = 0; i < count; ++i) run(calls++);
    queueing = std::chrono::duration<double>(Clock::now() - t).count() / count;
    end.record(stream);
    end.synchronize();
    return 1e-3 * end.elapsed_ms(begin) / count;
  };
  timed(1);  // the first call loads the kernel, takes memory, chooses an algorithm
  double once = timed(1);
  if (once > 0.1) return {once, 1, false};
  if (once < 1e-3) once = timed(4);
  const int group = std::clamp(static_cast<int>(1e-3 / std::max(once, 1e-9)), 1, 200);
  std::vector<double> times, queueings;
  const auto start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  do {
    times.push_back(timed(group));
    queueings.push_back(queueing);
  } while (times.size() < 3 || (times.size() < 5 && elapsed() < 10 * seconds) || elapsed() < seconds);
  Timing t = median(std::move(times), group);
  t.host_bound = group > 1 && median(std::move(queueings), group).median > 0.9 * t.median;
  return t;
}

template <class F>
Timing time(double seconds, F&& run) {
  run();
  const auto first = Clock::now();
  run();
  const double once = std::chrono::duration<double>(Clock::now() - first).count();
  // Short calls are timed in groups, so that reading the clock does not count.
  const int group = std::clamp(static_cast<int>(2e-5 / std::max(once, 1e-9)), 1, 1000);
  std::vector<double> times;
  const auto begin = Clock::now();
  while (times.size() < 5 ||
         (times.size() < 10000 && std::chrono::duration<double>(Clock::now() - begin).count() < seconds)) {
    const auto t = Clock::now();
    for (int i = 0; i < group; ++i) run();
    times.push_back(std::chrono::duration<double>(Clock::now() - t).count() / group);
    if (std::chrono::duration<double>(Clock::now() - begin).count() > 10 * seconds && times.size() >= 3) break;
  }
  return median(std::move(times), group);
}

Args moved(const Args& args, Device device) {
  Args r = map(args, [&](const Tensor& t) { return t.defined() && !t.impl().wrapped_number ? t.to(device) : t; });
  for (Value& v : r)
    if (Device* d = std::get_if<Device>(&v)) *d = device;
  return r;
}

// Results that take more than this are not made.
constexpr double kMostBytes = 1e9;

bool runs(const OpBase& op, const Args& args) {
  if (result_bytes(op, args) > kMostBytes) return false;
  try {
    NoGrad guard;
    op.call_boxed(args);
    return true;
  } catch (const Error&) {
    return false;
  }
}

Cost cost_of(const OpBase& op, const Args& args) {
  try {
    return op.cost_boxed(args);
  } catch (const Error&) {
    return {};
  }
}

// Calls with more operations than this are made smaller: a convolution's grow faster than its tensors.
constexpr double kMostFlops = 1e12;

bool fits(const OpBase& op, const Args& args) {
  return cost_of(op, args).flops <= kMostFlops && result_bytes(op, args) <= kMostBytes;
}

// `args` on a card, with every size doubled as often as kCardElements allows; as they are where the op does not take
// that.
Args grown_for_card(const OpBase& op, const Args& args, Device device) {
  double most = 1;
  int rank = 1;
  visit(args, [&](const Tensor& t) {
    if (!t.defined() || static_cast<double>(t.numel()) <= most) return;
    most = static_cast<double>(t.numel());
    rank = std::max(
        1, static_cast<int>(std::count_if(t.shape().begin(), t.shape().end(), [](int64_t n) { return n > 1; })));
  });
  const double doublings = std::floor(std::log2(kCardElements / most) / rank);
  for (double d = doublings; d >= 1; --d) {
    const Args large = enlarged(args, most * std::exp2(d * rank) * (1 + 1e-9), device);  // a root may round down
    if (fits(op, large)) return large;  // indices stay in range: sizes only grow
  }
  return moved(args, device);
}

std::vector<Args> arguments(const OpBase& op, DType dtype, Device device) {
  std::vector<Args> r;
  Samples samples(dtype);
  samples.set_benchmarking(true);
  op.samples(samples);
  for (const Sample& s : samples.valid)
    if (s.benchmark) r.push_back(device.is_cpu() ? s.args : grown_for_card(op, s.args, device));
  if (!r.empty()) return r;
  int tried = 0;
  for (const Sample& s : samples.valid) {
    bool empty = false;
    visit(s.args, [&](const Tensor& t) { empty = empty || (t.defined() && t.numel() == 0); });
    if (empty) continue;
    // An index out of range stops a card for good: a small form of the same tries it on the host first.
    if (!device.is_cpu() && !runs(op, enlarged(s.args, 4096))) continue;
    const bool known = !op.is_composed() || cost_of(op, s.args).flops > 0;
    const double elements = device.is_cpu() ? kElements : known ? kCardElements : kUnknownElements;
    Args large = enlarged(s.args, elements, device);
    for (int smaller = 1; smaller < 4 && !device.is_cpu() && !fits(op, large); ++smaller)
      large = enlarged(s.args, elements / std::exp2(3 * smaller), device);
    if (device.is_cpu() ? runs(op, large) : fits(op, large)) return {large};
    if (++tried == 4) break;
  }
  if (!samples.valid.empty()) r.push_back(moved(samples.valid.front().args, device));
  return r;
}

void rate(BenchResult& r, const OpBase& op, Cost cost, const Limits& limits) {
  r.gflops = 1e-9 * cost.flops / r.seconds;
  r.gb_s = 1e-9 * cost.bytes / r.seconds;
  const double least = least_seconds(op, r.dtype, cost, limits);
  r.memory_bound = least == least_seconds(op, r.dtype, {0, cost.bytes}, limits);
  r.fraction = least / r.seconds;
}

// Guesses of the least work of a rule that computed `gradients`, the largest first: it writes what is new (a rule that
// hands a gradient on, or a view of it, does nothing), reads the results' gradients, and reads the arguments. Twice the
// operations of the forward call.
std::vector<Cost> backward_costs(const TensorList& gradients, const TensorList& weights, const Args& args,
                                 Cost forward) {
  std::vector<const Storage*> fresh;
  double written = 0, given = 0, arguments = 0;
  for (const Tensor& g : gradients) {
    if (!g.defined()) continue;
    const Storage* s = g.storage().get();
    const bool passed_on =
        std::any_of(weights.begin(), weights.end(), [&](const Tensor& w) { return w.storage().get() == s; });
    if (passed_on || std::find(fresh.begin(), fresh.end(), s) != fresh.end()) continue;
    fresh.push_back(s);
    written += static_cast<double>(s->nbytes);
  }
  if (fresh.empty()) return {Cost{}};
  for (const Tensor& w : weights) given += static_cast<double>(w.nbytes());
  if (forward.flops > 0)
    visit(args, [&](const Tensor& t) { arguments += t.defined() ? static_cast<double>(t.nbytes()) : 0; });
  const double flops = 2 * forward.flops;
  return {{flops, written + given + arguments}, {flops, written + given}, {flops, written}};
}

}  // namespace

namespace {

int64_t bytes_of(const Args& args) {
  int64_t n = 0;
  visit(args, [&](const Tensor& t) { n += t.defined() ? static_cast<int64_t>(t.nbytes()) : 0; });
  return n;
}

// Copies of the arguments that take turns: several where one set would stay in a card's L2 cache.
std::vector<Args> in_turn(const Args& args, Device device) {
  std::vector<Args> turns{args};
  if (device.is_cpu()) return turns;
  const int64_t enough = 3 * cuda::properties(device.index).l2_bytes;
  const int64_t copies = std::clamp<int64_t>(enough / std::max<int64_t>(bytes_of(args), 1) + 1, 1, 16);
  for (int64_t i = 1; i < copies; ++i)
    turns.push_back(map(args, [](const Tensor& t) {
      return t.defined() && !t.impl().wrapped_number && t.device().is_cuda() ? t.clone() : t;
    }));
  return turns;
}

// Times call(i), where i counts through `turns`; what the last calls returned is kept, so that the next one does not
// write to memory that is still in the cache.
template <class F>
Timing time_in_turn(const BenchOptions& o, size_t turns, F&& call) {
  if (o.device.is_cpu()) return time(o.seconds, [&] { call(0); });
  std::vector<decltype(call(0))> kept(turns);
  return time_on_card(o.device, o.seconds, [&](int64_t i) {
    const size_t at = static_cast<size_t>(i) % turns;
    kept[at] = {};
    kept[at] = call(at);
  });
}

// One op's gradient rule, ready to be called.
struct Recorded {
  TensorList inputs, outputs, weights;
  Args args;
};

Recorded record(const OpBase& op, const Args& args) {
  Recorded r;
  r.args = map(args, [](const Tensor& t) {
    if (!t.defined() || t.impl().wrapped_number) return t;
    Tensor x = t.detach();
    if (is_floating(t.dtype())) x.set_requires_grad();
    return x;
  });
  const Tensor pattern = from_span<float>(std::vector<float>{0.5f, -1, 0.25f, 1, -0.5f}, {5});
  visit(r.args, [&](const Tensor& t) {
    if (t.defined() && t.requires_grad()) r.inputs.push_back(t);
  });
  visit(op.call_boxed(r.args), [&](const Tensor& t) {
    if (!t.defined() || !t.requires_grad()) return;
    r.outputs.push_back(t);
    r.weights.push_back(tiled(converted(pattern, t.dtype()), t.shape(), t.device()));
  });
  return r;
}

// Forward, then backward, of one set of arguments.
void bench_arguments(const OpBase& op, const Args& args, const BenchOptions& o, BenchResult r,
                     std::vector<BenchResult>& results) {
  r.arguments = text_of(args);
  const Cost cost = cost_of(op, args);
  const std::vector<Args> turns = in_turn(args, o.device);
  const auto add = [&](const Timing& t, const std::vector<Cost>& costs) {
    r.seconds = t.median;
    r.repetitions = t.repetitions;
    r.host_bound = t.host_bound;
    // Of several guesses the first that the time allows.
    for (const Cost& c : costs) {
      rate(r, op, c, o.limits);
      if (r.fraction <= 1.05) break;
    }
    results.push_back(r);
  };
  {
    NoGrad guard;
    add(time_in_turn(o, turns.size(), [&](size_t i) { return op.call_boxed(turns[i]); }), {cost});
  }
  if (!o.backward || !op.has_backward() || !is_floating(r.dtype)) return;
  r.backward = true;
  std::vector<Recorded> recorded;
  for (const Args& a : turns) recorded.push_back(record(op, a));
  if (recorded.front().inputs.empty() || recorded.front().outputs.empty()) return;
  const auto call = [&](size_t i) {
    const Recorded& c = recorded[i];
    return grad(c.outputs, c.inputs, c.weights, false, true, true);
  };
  const Timing t = time_in_turn(o, turns.size(), call);
  add(t, backward_costs(call(0), recorded[0].weights, recorded[0].args, cost));
}

}  // namespace

std::vector<BenchResult> bench(const OpBase& op, const BenchOptions& options) {
  std::vector<BenchResult> results;
  if (!op.has_samples()) return results;
  DeviceScope scope(options.device);
  for (const DType dtype : kAllDTypes) {
    if (!(options.dtypes & op.dtypes() & dtype_bit(dtype))) continue;
    BenchResult r;
    r.op = op.name();
    r.family = op.family();
    r.dtype = dtype;
    const auto attempt = [&](auto&& work) {
      if (options.device.is_cpu()) return work();
      try {
        work();
      } catch (const Error& e) {  // no kernel for this device, or not enough of its memory
        r.problem = e.what();
        results.push_back(r);
      }
    };
    attempt([&] {
      std::vector<Args> all;
      {
        DeviceScope host(Device::cpu());
        all = arguments(op, dtype, options.device);
      }
      for (const Args& args : all) attempt([&] { bench_arguments(op, args, options, r, results); });
    });
  }
  return results;
}

namespace {
std::string duration(double s) {
  if (s < 1e-6) return fmt::format("{:.0f} ns", s * 1e9);
  if (s < 1e-3) return fmt::format("{:.1f} us", s * 1e6);
  if (s < 1) return fmt::format("{:.2f} ms", s * 1e3);
  return fmt::format("{:.2f} s", s);
}
std::string shortened(std::string text, size_t most) {
  if (text.size() > most) text = text.substr(0, most - 3) + "...";
  return text;
}
}  // namespace

std::string table(const std::vector<BenchResult>& results) {
  size_t name = 10, arguments = 9;
  for (const BenchResult& r : results) {
    name = std::max(name, r.op.size());
    arguments = std::max(arguments, std::min<size_t>(r.arguments.size(), 56));
  }
  std::string text = fmt::format("{:<{}}  {:<{}}  {:<5}  {:<8}  {:>10}  {:>9}  {:>8}  {:>8}\n", "op", name, "arguments",
                                 arguments, "dtype", "pass", "time", "GFLOP/s", "GB/s", "of limit");
  for (const BenchResult& r : results) {
    if (!r.problem.empty()) {
      text += fmt::format("{:<{}}  not timed in {}: {}\n", r.op, name, name_of(r.dtype), r.problem);
      continue;
    }
    text += fmt::format("{:<{}}  {:<{}}  {:<5}  {:<8}  {:>10}  {:>9}  {:>8}  {:>8}\n", r.op, name,
                        shortened(r.arguments, 56), arguments, name_of(r.dtype), r.backward ? "backward" : "forward",
                        duration(r.seconds), r.gflops > 0 ? fmt::format("{:.1f}", r.gflops) : "-",
                        r.gb_s > 0 ? fmt::format("{:.1f}", r.gb_s) : "-",
                        r.fraction > 0 ? fmt::format("{:.0f}% {}", 100 * r.fraction,
                                                     r.host_bound     ? "h"
                                                     : r.memory_bound ? "m"
                                                                      : "c")
                                       : "-");
  }
  text += "\nof limit: the least time that memory (m) or arithmetic (c) allows on this machine, over the time taken";
  if (std::any_of(results.begin(), results.end(), [](const BenchResult& r) { return r.fraction > 1; }))
    text += "; above 100%: rows read again come from a cache, or a product is better than the measured one";
  if (std::any_of(results.begin(), results.end(), [](const BenchResult& r) { return r.host_bound; }))
    text += "; h: a small call, whose time is the host's to queue it";
  text += ".\n";
  return text;
}

std::string to_json(const std::vector<BenchResult>& results, const Limits& limits) {
  nlohmann::ordered_json j;
  j["limits"] = {{"gb_s", limits.gb_s},
                 {"gflops", limits.gflops},
                 {"matmul_f32", limits.matmul_f32},
                 {"matmul_bf16", limits.matmul_bf16}};
  j["results"] = nlohmann::ordered_json::array();
  for (const BenchResult& r : results) {
    if (!r.problem.empty()) {
      j["results"].push_back({{"op", r.op}, {"dtype", name_of(r.dtype)}, {"problem", r.problem}});
      continue;
    }
    j["results"].push_back({{"op", r.op},
                            {"family", r.family},
                            {"arguments", r.arguments},
                            {"dtype", name_of(r.dtype)},
                            {"pass", r.backward ? "backward" : "forward"},
                            {"seconds", r.seconds},
                            {"repetitions", r.repetitions},
                            {"gflops", r.gflops},
                            {"gb_s", r.gb_s},
                            {"fraction", r.fraction},
                            {"bound", r.host_bound     ? "host"
                                      : r.memory_bound ? "memory"
                                                       : "compute"}});
  }
  return j.dump(2) + "\n";
}

}  // namespace strata::lab
