// Rows of a table that lives in page-locked memory, gathered by the card (PyTorch-Direct), beside indexing on the
// processor and copying: GB/s of the rows' bytes, 262,144 random rows of a table of 2 GiB, and a million.
//     gather_bench [filter] [--lines FILE] [--ways]
// --ways prints how the card's reads themselves do, by how they are asked for. FILE takes "name <tab> bytes <tab>
// milliseconds" lines, which bench/pytorch/gather.py sets beside PyTorch's. Without a card it times the processor's
// part.

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/clock.h"
#include "bench/device_time.h"
#include "strata/core/node.h"
#include "strata/memory/tiers.h"
#include "strata/nn/feature_table.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/random/random.h"
#include "strata/ops/view/view.h"
#ifdef STRATA_WITH_CUDA
#include "bench/gather_ways.h"
#endif

namespace {
using namespace strata;

constexpr int64_t kTable = int64_t{2} << 30;

struct Case {
  const char* what;
  int64_t width;
  DType dtype;
  int64_t stride = 0;  // of rows that are part of longer ones, in elements; 0: the width
  int64_t n = 262144;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"256 f32", 256, DType::f32},
      {"64 f32", 64, DType::f32},
      {"100 f32", 100, DType::f32},
      {"128 f32", 128, DType::f32},
      {"1024 f32", 1024, DType::f32},
      {"602 f32", 602, DType::f32},  // of a graph of posts
      {"32 f32", 32, DType::f32},
      {"301 bf16", 301, DType::bf16},
      {"1001 u8", 1001, DType::u8},
      {"256 f32 of rows of 259", 256, DType::f32, 259},
      {"256 f32, a million", 256, DType::f32, 0, 1000000},
      {"100 f32, a million", 100, DType::f32, 0, 1000000},
  };
  return all;
}

Tensor bytes_of_table(int64_t rows, int64_t width, DType dtype, Device device, Tier tier) {
  const Tensor t = empty({{rows, width}, dtype, device, std::nullopt}, tier);
  fill_elements(t, 1);
  return t;
}

void gather(const Rows& out, const Case& c, bool on_card) {
  const int64_t stride = c.stride ? c.stride : c.width, rows = kTable / (stride * size_of(c.dtype));
  const double bytes = static_cast<double>(c.n * c.width * size_of(c.dtype));
  const Tensor index = randint(0, rows, {c.n});
  double processor = 0;
  {
    const Tier tier = on_card ? Tier::pinned : Tier();
    const Tensor table = bytes_of_table(rows, stride, c.dtype, Device::cpu(), tier).narrow(1, 0, c.width);
    const Tensor staged = empty({{c.n, c.width}, c.dtype, Device::cpu(), std::nullopt}, tier);
    processor = best_seconds([&] {
      const memory::TierScope scope(tier);
      const Tensor got = index_select(table, 0, index);
      if (on_card) {
        const memory::TierScope own{Tier()};
        got.to(Device::cuda());
        cuda::synchronize();
      }
    });
  }
  if (!on_card) {
    std::printf("%-26s processor alone %6.1f GB/s\n", c.what, bytes / processor * 1e-9);
    return;
  }
  double card = 0;
  {
    const Tensor table = bytes_of_table(rows, stride, c.dtype, Device::cuda(), memory::kUnified).narrow(1, 0, c.width);
    const Tensor there = index.to(Device::cuda());
    card = device_ms(1, [&](int64_t) { index_select(table, 0, there); });
  }
  std::printf("%-26s %8.3f ms %6.1f GB/s   indexed by the processor, then copied %6.1f   %5.1f times\n", c.what, card,
              bytes / card * 1e-6, bytes / processor * 1e-9, processor * 1e3 / card);
  out.line(c.what, bytes, card);
  std::fflush(stdout);
}

// Indices on the host: a FeatureTable lets the processor read short rows for the card, piece by piece.
void by_host(const Rows& out) {
  for (const int64_t width : {32, 64, 100, 128, 150, 200, 256}) {
    const int64_t rows = kTable / (width * 4), n = 262144;
    nn::FeatureTable table(rows, width, DType::f32, {.device = Device::cuda(), .home = memory::kUnified});
    const int64_t part = rows / 16;
    const Tensor one = ones({part, width});
    for (int64_t r = 0; r + part <= rows; r += part) table.write(r, one);
    cuda::synchronize();
    std::vector<Tensor> given;
    for (int i = 0; i < 4; ++i) given.push_back(randint(0, part * 16, {n}));
    const double bytes = static_cast<double>(n * width * 4), s = best_seconds([&] {
                                                                   for (const Tensor& t : given) table.gather(t);
                                                                   cuda::synchronize();
                                                                 }) /
                                                                 4;
    std::printf("%4lld f32, host's indices     %8.3f ms %6.1f GB/s\n", static_cast<long long>(width), s * 1e3,
                bytes / s * 1e-9);
    out.line(cat("host ", width, " f32"), bytes, s * 1e3);
    std::fflush(stdout);
  }
}

// A table with rows that are asked for more often: with a tenth of it kept, and without.
void cached(const Rows& out, bool on_card) {
  const int64_t width = 256, rows = (on_card ? kTable : kTable / 8) / (width * 4), n = on_card ? 262144 : 32768;
  // Row r is as likely as (r + 1)^-3/4: more than half of the positions name the first tenth.
  const auto batch = [&] { return floor(pow(rand({n}), 4.0) * static_cast<double>(rows)).to(DType::i64); };
  std::vector<Tensor> seen, used;
  for (int i = 0; i < 4; ++i) {
    seen.push_back(batch());
    used.push_back(batch());
  }
  const double bytes = static_cast<double>(n * width * 4);
  using Keep = nn::FeatureTableOptions::Keep;
  for (const Keep keep : {Keep::most_used, Keep::last_used})
    for (const int64_t part : {0, 10}) {
      nn::FeatureTable table(rows, width, DType::f32,
                             {.device = on_card ? Device::cuda() : Device::cpu(),
                              .home = on_card ? memory::kUnified : Tier(),
                              .keep = keep,
                              .cache_bytes = part == 0 ? 0 : rows / part * width * 4});
      const Tensor one = ones({rows / 8, width});
      for (int64_t r = 0; r < rows; r += rows / 8) table.write(r, one.narrow(0, 0, std::min(rows / 8, rows - r)));
      if (keep == Keep::most_used) {
        table.count_uses(true);
        for (const Tensor& t : seen) table.gather(t);
        table.keep_most_used();
        table.count_uses(false);
      }
      std::vector<Tensor> given;  // where what is kept is decided
      for (const Tensor& t : used) given.push_back(keep == Keep::most_used ? t.to(table.device()) : t);
      table.reset_stats();
      const double s = best_seconds([&] {
                         for (const Tensor& t : given) table.gather(t);
                         if (on_card) cuda::synchronize();
                       }) /
                       static_cast<double>(given.size());
      std::printf("%-26s %8.3f ms %6.1f GB/s   %4.1f%% kept, hits %.3f\n",
                  keep == Keep::most_used ? "the most used kept" : "the last used kept", s * 1e3, bytes / s * 1e-9,
                  part == 0 ? 0. : 100. / static_cast<double>(part), table.stats().hit_rate());
      out.line(cat("kept ", keep == Keep::most_used ? "most " : "last ", part), bytes, s * 1e3);
      std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
  bool ways = false;
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    if (std::strcmp(argv[i], "--ways") == 0)
      ways = true;
    else
      rest.push_back(argv[i]);
  }
  const Rows out(static_cast<int>(rest.size()), rest.data());
  const NoGrad no_grad;
  manual_seed(1);
  const bool on_card = Rows::on_a_card();
#ifdef STRATA_WITH_CUDA
  if (ways && on_card) bench_gather_ways();
#endif
  if (ways) return 0;
  if (on_card) {
    const Tensor from = empty({{kTable / 4}, DType::f32, Device::cpu(), std::nullopt}, Tier::pinned);
    Tensor to = empty({{kTable / 4}, DType::f32, Device::cuda(), std::nullopt});
    fill_elements(from, 0);
    const double ms = device_ms(1, [&](int64_t) { to.copy_(from); });
    std::printf("a copy of 2 GiB to the card: %.1f GB/s, which bounds what follows\n",
                static_cast<double>(kTable) / ms * 1e-6);
  }
  for (const Case& c : cases())
    if (out.wanted(c.what)) gather(out, c, on_card);
  if (on_card && out.wanted("host")) by_host(out);
  if (out.wanted("kept")) cached(out, on_card);
  return 0;
}
