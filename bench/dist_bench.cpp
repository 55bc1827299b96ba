// Collectives between the cards of one machine: bus GB/s of 1 GiB (as nccl-tests count it), microseconds of small
// all_reduces in a CUDA graph, what a gather of 64 MiB adds to products beside it, and a check of what they compute.
//     strata launch -n 4 -- dist_bench [--mib 1024]
// Rank 0 writes a JSON object a line, as bench/pytorch/collectives.py does for PyTorch; bench/dist_bench.py sets them
// side by side.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/group.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
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

// Milliseconds of two products of 8192 x 8192 matrices in bf16, and microseconds more where the ranks gather 64 MiB
// meanwhile, both in a graph.
std::pair<double, double> gather_beside_products(distributed::Group& g, Device device) {
  constexpr int64_t kWidth = 8192;
  const Tensor a = randn({kWidth, kWidth}).to(DType::bf16), b = randn({kWidth, kWidth}).to(DType::bf16);
  const Tensor all = zeros({(64 << 20) / 4});
  const auto part = static_cast<size_t>(all.nbytes() / g.size());
  auto* const to = static_cast<std::byte*>(all.raw_data());
  const auto products = [&] {
    for (int i = 0; i < 2; ++i) matmul(a, b);
  };
  const auto both = [&] {
    distributed::Work work =
        g.start(device, "gather beside",
                [&](Collectives& c) { c.all_gather(to, to + static_cast<size_t>(c.rank()) * part, part); }, {all});
    products();
    work.wait();
  };
  double ms[2] = {};
  // In turn, the least of several: cards that draw more power are slower.
  for (int turn = 0; turn < 5; ++turn) {
    for (const bool gathers : {false, true}) {
      gathers ? both() : products();
      cuda::Graph graph;
      graph.capture([&] { gathers ? both() : products(); });
      g.barrier();
      milliseconds(kWarm, [&] { graph.replay(); });
      const double now = milliseconds(kTimed, [&] { graph.replay(); });
      ms[gathers] = turn == 0 ? now : std::min(ms[gathers], now);
    }
  }
  return {ms[0], 1e3 * (ms[1] - ms[0])};
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
  const auto [alone, added] = gather_beside_products(g, device);
  if (g.rank() == 0)
    std::printf(
        "{\"what\": \"64 MiB gather beside products\", \"ranks\": %d, \"us\": %.1f, \"products_ms\": %.3f, \"way\": "
        "\"%s\"}\n",
        n, added, alone, g.way_of_cards().c_str());
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
