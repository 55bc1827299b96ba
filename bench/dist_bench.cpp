// Collectives between the cards of one machine: bus GB/s of 1 GiB (as nccl-tests count it), microseconds of small
// all_reduces in a CUDA graph, and a check of what they compute.
//     strata launch -n 4 -- dist_bench [--mib 1024]
// Rank 0 writes a JSON object a line, as bench/pytorch/collectives.py does for PyTorch; bench/dist_bench.py sets them
// side by side.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/group.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/view/view.h"

namespace {
using namespace strata;
using distributed::Collectives;
using distributed::Reduction;

constexpr int kWarm = 3, kTimed = 10;

double milliseconds(int count, const std::function<void()>& f) {
  cuda::Event begin(true), end(true);
  begin.record(cuda::current_stream());
  for (int i = 0; i < count; ++i) f();
  end.record(cuda::current_stream());
  end.synchronize();
  return end.elapsed_ms(begin) / count;
}

void check_values(distributed::Group& g) {
  const Tensor x = full({5, 3}, g.rank() + 1.0).to(DType::f32);
  const int n = g.size();
  check(distributed::all_reduce(x).to_vector<float>() == std::vector<float>(15, static_cast<float>(n * (n + 1) / 2)),
        "dist_bench", "all_reduce is wrong");
  const std::vector<float> all = distributed::all_gather(x).to_vector<float>();
  for (int r = 0; r < n; ++r) {
    check(all[static_cast<size_t>(15 * r)] == static_cast<float>(r + 1), "dist_bench", "all_gather is wrong");
  }
}

int run(int64_t mib) {
  distributed::init();
  distributed::take_own_card();
  distributed::Group& g = distributed::group("world");
  const int n = g.size();
  if (n == 1) {
    std::fprintf(stderr, "dist_bench is for several ranks: strata launch -n 4 -- dist_bench\n");
    return 2;
  }
  const Device device = distributed::card();
  const DeviceScope there(device);
  check_values(g);
  const int64_t bytes = mib << 20, count = bytes / 4 / n * n;
  const auto part = static_cast<size_t>(count / n * 4);
  Tensor whole = zeros({count}), other = zeros({count});
  void *const a = whole.raw_data(), *const b = other.raw_data();
  const std::vector<size_t> parts(static_cast<size_t>(n), part);
  const double moved = static_cast<double>(count) * 4 * (n - 1) / n;
  struct Case {
    const char* name;
    double bus_bytes;
    std::function<void(Collectives&)> call;
  };
  const Case cases[] = {
      {"all_reduce", 2 * moved, [&](Collectives& c) { c.all_reduce(a, count, DType::f32, Reduction::sum); }},
      {"all_gather", moved, [&](Collectives& c) { c.all_gather(b, a, part); }},
      {"reduce_scatter", moved, [&](Collectives& c) { c.reduce_scatter(b, a, count / n, DType::f32, Reduction::sum); }},
      {"all_to_all", moved, [&](Collectives& c) { c.all_to_all(b, parts, a, parts); }},
  };
  for (const Case& c : cases) {
    const auto call = [&] { g.run(device, c.name, c.call); };
    milliseconds(kWarm, call);
    const double ms = milliseconds(kTimed, call);
    if (g.rank() == 0)
      std::printf("{\"what\": \"%s\", \"ranks\": %d, \"mib\": %lld, \"ms\": %.3f, \"bus_gb_s\": %.1f}\n", c.name, n,
                  static_cast<long long>(mib), ms, c.bus_bytes / ms / 1e6);
    std::fflush(stdout);
  }
  // The marks of the flight recorder are part of it.
  Tensor small = zeros({(64 << 10) / 4});
  constexpr int kInGraph = 20;
  const auto reduce_small = [&] {
    g.run(device, "small",
          [&](Collectives& c) { c.all_reduce(small.raw_data(), small.numel(), DType::f32, Reduction::sum); });
  };
  reduce_small();
  cuda::Graph graph;
  graph.capture([&] {
    for (int i = 0; i < kInGraph; ++i) reduce_small();
  });
  milliseconds(kWarm, [&] { graph.replay(); });
  const double us = 1e3 * milliseconds(kTimed, [&] { graph.replay(); }) / kInGraph;
  if (g.rank() == 0) std::printf("{\"what\": \"64 KiB all_reduce in a graph\", \"ranks\": %d, \"us\": %.2f}\n", n, us);
  distributed::shutdown();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    int64_t mib = 1024;
    for (int i = 1; i < argc; ++i) {
      if (std::strcmp(argv[i], "--mib") == 0 && i + 1 < argc) {
        mib = std::atoll(argv[++i]);
      } else {
        std::fprintf(stderr, "usage: strata launch -n 4 -- dist_bench [--mib 1024]\n");
        return 2;
      }
    }
    return run(mib > 0 ? mib : 1024);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "dist_bench: %s\n", e.what());
    return 1;
  }
}
