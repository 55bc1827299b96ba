#include "strata/lab/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "strata/autograd/autograd.h"
#include "strata/core/samples.h"
#include "strata/lab/compare.h"

namespace strata::lab {
namespace {

using Args = std::vector<Value>;
using Clock = std::chrono::steady_clock;

// Elements that an enlarged sample's largest tensor has, about: past the caches of most machines.
constexpr double kElements = 1 << 23;

struct Timing {
  double median = 0;
  int repetitions = 0;
};

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
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return {times[times.size() / 2], static_cast<int>(times.size()) * group};
}

bool runs(const OpBase& op, const Args& args) {
  try {
    NoGrad guard;
    DeviceScope device(Device::meta());
    Args dry = map(args, [](const Tensor& t) { return empty({t.shape(), t.dtype(), Device::meta(), std::nullopt}); });
    double bytes_needed = 0;
    if (!op.is_dynamic())
      visit(op.call_boxed(dry),
            [&](const Tensor& t) { bytes_needed += t.defined() ? static_cast<double>(t.nbytes()) : 0; });
    if (bytes_needed > 1e9) return false;
  } catch (const Error&) {
    return false;
  }
  try {
    NoGrad guard;
    op.call_boxed(args);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<Args> arguments(const OpBase& op, DType dtype) {
  std::vector<Args> r;
  Samples samples(dtype);
  samples.set_benchmarking(true);
  op.samples(samples);
  for (const Sample& s : samples.valid)
    if (s.benchmark) r.push_back(s.args);
  if (!r.empty()) return r;
  int tried = 0;
  for (const Sample& s : samples.valid) {
    bool empty = false;
    visit(s.args, [&](const Tensor& t) { empty = empty || (t.defined() && t.numel() == 0); });
    if (empty) continue;
    const Args large = enlarged(s.args, kElements);
    if (runs(op, large)) return {large};
    if (++tried == 4) break;
  }
  if (!samples.valid.empty()) r.push_back(samples.valid.front().args);
  return r;
}

double peak_flops(const OpBase& op, DType dtype, const Limits& limits) {
  if (op.autocast() != Autocast::low) return 1e9 * limits.gflops;
  return 1e9 * (is_reduced_floating(dtype) && limits.matmul_bf16 > 0 ? limits.matmul_bf16 : limits.matmul_f32);
}

void rate(BenchResult& r, const OpBase& op, Cost cost, const Limits& limits) {
  r.gflops = 1e-9 * cost.flops / r.seconds;
  r.gb_s = 1e-9 * cost.bytes / r.seconds;
  const double compute = peak_flops(op, r.dtype, limits) > 0 ? cost.flops / peak_flops(op, r.dtype, limits) : 0;
  const double memory = limits.gb_s > 0 ? cost.bytes / (1e9 * limits.gb_s) : 0;
  r.memory_bound = memory >= compute;
  r.fraction = std::max(compute, memory) / r.seconds;
}

Cost cost_of(const OpBase& op, const Args& args) {
  try {
    return op.cost_boxed(args);
  } catch (const Error&) {
    return {};
  }
}

// Least work of a rule that computed `gradients`: it reads the results' gradients and the arguments and writes what is
// new; a rule that hands a gradient on, or a view of it, does nothing. Twice the operations of the forward call.
Cost backward_cost(const TensorList& gradients, const TensorList& weights, const Args& args, Cost forward) {
  std::vector<const Storage*> fresh;
  double moved = 0;
  for (const Tensor& g : gradients) {
    if (!g.defined()) continue;
    const Storage* s = g.storage().get();
    const bool passed_on =
        std::any_of(weights.begin(), weights.end(), [&](const Tensor& w) { return w.storage().get() == s; });
    if (passed_on || std::find(fresh.begin(), fresh.end(), s) != fresh.end()) continue;
    fresh.push_back(s);
    moved += static_cast<double>(s->nbytes);
  }
  if (fresh.empty()) return {};
  for (const Tensor& w : weights) moved += static_cast<double>(w.nbytes());
  if (forward.flops > 0)
    visit(args, [&](const Tensor& t) { moved += t.defined() ? static_cast<double>(t.nbytes()) : 0; });
  return {2 * forward.flops, moved};
}

}  // namespace

std::vector<BenchResult> bench(const OpBase& op, const BenchOptions& options) {
  std::vector<BenchResult> results;
  if (!op.has_samples()) return results;
  for (const DType dtype : kAllDTypes) {
    if (!(options.dtypes & op.dtypes() & dtype_bit(dtype))) continue;
    for (const Args& args : arguments(op, dtype)) {
      BenchResult r;
      r.op = op.name();
      r.family = op.family();
      r.arguments = text_of(args);
      r.dtype = dtype;
      const Cost cost = cost_of(op, args);
      {
        NoGrad guard;
        const Timing t = time(options.seconds, [&] { op.call_boxed(args); });
        r.seconds = t.median;
        r.repetitions = t.repetitions;
      }
      rate(r, op, cost, options.limits);
      results.push_back(r);
      if (!options.backward || !op.has_backward() || !is_floating(dtype)) continue;

      const Args own = map(args, [](const Tensor& t) {
        Tensor x = t.detach();
        if (is_floating(t.dtype())) x.set_requires_grad();
        return x;
      });
      TensorList inputs, outputs, weights;
      const Tensor pattern = from_span<float>(std::vector<float>{0.5f, -1, 0.25f, 1, -0.5f}, {5});
      visit(own, [&](const Tensor& t) {
        if (t.defined() && t.requires_grad()) inputs.push_back(t);
      });
      visit(op.call_boxed(own), [&](const Tensor& t) {
        if (!t.defined() || !t.requires_grad()) return;
        outputs.push_back(t);
        weights.push_back(tiled(converted(pattern, t.dtype()), t.shape()));
      });
      if (inputs.empty() || outputs.empty()) continue;
      r.backward = true;
      const Timing t = time(options.seconds, [&] { grad(outputs, inputs, weights, false, true, true); });
      r.seconds = t.median;
      r.repetitions = t.repetitions;
      rate(r, op, backward_cost(grad(outputs, inputs, weights, false, true, true), weights, own, cost), options.limits);
      results.push_back(r);
    }
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
    text += fmt::format("{:<{}}  {:<{}}  {:<5}  {:<8}  {:>10}  {:>9}  {:>8}  {:>8}\n", r.op, name,
                        shortened(r.arguments, 56), arguments, name_of(r.dtype), r.backward ? "backward" : "forward",
                        duration(r.seconds), r.gflops > 0 ? fmt::format("{:.1f}", r.gflops) : "-",
                        r.gb_s > 0 ? fmt::format("{:.1f}", r.gb_s) : "-",
                        r.fraction > 0 ? fmt::format("{:.0f}% {}", 100 * r.fraction, r.memory_bound ? "m" : "c") : "-");
  }
  text += "\nof limit: the least time that memory (m) or arithmetic (c) allows on this machine, over the time taken.\n";
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
                            {"bound", r.memory_bound ? "memory" : "compute"}});
  }
  return j.dump(2) + "\n";
}

}  // namespace strata::lab
