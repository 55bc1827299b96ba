// What a card's tiers move: GB/s of fetches and of blocks leaving, at home in page-locked memory and on a disk, beside the
// same bytes by cudaMemcpyAsync alone; kernels over unified memory; what locking pages costs.
//     tiers_bench [MiB a block] [GiB in all] [DIRECTORY of the disk]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "strata/core/node.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/memory/disk.h"
#include "strata/memory/tiers.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"

#ifdef STRATA_WITH_CUDA
#include "strata/cuda/check.cuh"

namespace {

using namespace strata;
using Clock = std::chrono::steady_clock;
using memory::kDisk;
using memory::kUnified;

const Device kCard = Device::cuda();

// Seconds that f() and what it queued take.
template <class F>
double seconds(F&& f) {
  cuda::synchronize();
  const Clock::time_point start = Clock::now();
  f();
  cuda::synchronize();
  return std::chrono::duration<double>(Clock::now() - start).count();
}
void row(const std::string& name, double bytes, double s) {
  std::printf("| %s | %.2f GiB | %.1f ms | %.2f GB/s |\n", name.c_str(), bytes / (1 << 30), 1e3 * s, bytes / s / 1e9);
  std::fflush(stdout);
}

// The least that a bus needs: one copy of all the bytes, each way, and both ways at once.
void bare(int64_t bytes) {
  const Tensor host = empty({{bytes}, DType::u8, Device::cpu(), std::nullopt}, Tier::pinned);
  const Tensor back = empty({{bytes}, DType::u8, Device::cpu(), std::nullopt}, Tier::pinned);
  const Tensor card = empty({{bytes}, DType::u8, kCard, std::nullopt}), other = empty({{bytes}, DType::u8, kCard, std::nullopt});
  const cuda::Stream in = cuda::Stream::create(), out = cuda::Stream::create();
  const auto copy = [&](const Tensor& to, const Tensor& from, const cuda::Stream& s) {
    cuda::check_cuda(cudaMemcpyAsync(to.raw_data(), from.raw_data(), static_cast<size_t>(bytes), cudaMemcpyDefault,
                                     cuda::raw(s)),
                     "tiers_bench", "cudaMemcpyAsync");
  };
  for (int round = 0; round < 2; ++round) {
    const double to = seconds([&] { copy(card, host, in); }), from = seconds([&] { copy(back, other, out); });
    const double both = seconds([&] {
      copy(card, host, in);
      copy(back, other, out);
    });
    if (round == 0) continue;
    row("cudaMemcpyAsync to the card", static_cast<double>(bytes), to);
    row("cudaMemcpyAsync to the host", static_cast<double>(bytes), from);
    row("both at once, each way", static_cast<double>(bytes), both);
  }
}

// Blocks that are many times what may be near: each is fetched, used, and leaves.
void tier(Tier where, int64_t block, int64_t blocks) {
  const auto bytes = static_cast<double>(block * blocks);
  const std::string name(where.name());
  memory::set_near_limit(4 * block, kCard, where);
  std::vector<Tensor> all;
  row("make and write " + name, bytes, seconds([&] {
        for (int64_t i = 0; i < blocks; ++i) {
          all.push_back(empty({{block}, DType::u8, kCard, std::nullopt}, where));
          all.back().fill_(static_cast<double>(i % 200));
        }
        memory::backend(kCard, where).release_cached();
      }));
  const auto pass = [&](Access access, bool ahead) {
    const auto use = [&](size_t i) {
      if (ahead)
        for (size_t k = i + 1; k < std::min(i + 3, all.size()); ++k) all[k].storage()->prefetch();
      const Pin pin(all[i], access);
    };
    return seconds([&] {
      for (size_t i = 0; i < all.size(); ++i) use(i);
      if (access == Access::write) memory::backend(kCard, where).release_cached();
    });
  };
  row("fetch from " + name, bytes, pass(Access::read, false));
  row("fetch from " + name + ", two ahead", bytes, pass(Access::read, true));
  row("fetch from and leave to " + name + ", each way", bytes, pass(Access::write, true));
  const memory::NearStats s = memory::near_stats(kCard, where);
  std::printf("| %s: %.2f GB in, %.2f GB out, %lld hits of %lld fetches, threads waited %.3f s | | | |\n", name.c_str(),
              static_cast<double>(s.bytes_in) / 1e9, static_cast<double>(s.bytes_out) / 1e9,
              static_cast<long long>(s.hits), static_cast<long long>(s.fetches), s.seconds_waited);
  bool right = true;
  for (int64_t i = 0; i < blocks; ++i)
    right = right && max(all[static_cast<size_t>(i)]).item<uint8_t>() == static_cast<uint8_t>(i % 200);
  std::printf("| %s bytes | %s | | |\n", name.c_str(), right ? "right" : "WRONG");
}

void unified(int64_t bytes) {
  const int64_t n = bytes / 4;
  const Tensor u = empty({{n}, DType::f32, kCard, std::nullopt}, kUnified);
  Tensor v = empty({{n}, DType::f32, kCard, std::nullopt}, kUnified), x = empty({{n}, DType::f32, kCard, std::nullopt});
  Tensor(u).fill_(1);
  const NoGrad guard;
  for (int round = 0; round < 2; ++round) {
    const double read = seconds([&] { x.copy_(u); }), sum_of = seconds([&] { static_cast<void>(sum(u)); });
    const double write = seconds([&] { v.fill_(2); }), in_place = seconds([&] { v.add_(1.0); });
    if (round == 0) continue;
    row("unified to the card's own", static_cast<double>(bytes), read);
    row("sum of unified, read in place", static_cast<double>(bytes), sum_of);
    row("fill of unified, written in place", static_cast<double>(bytes), write);
    row("add_ to unified, each way", static_cast<double>(bytes), in_place);
  }
}

void locking(int64_t bytes) {
  memory::release_cached();
  const auto make = [&](int64_t each) {
    std::vector<Tensor> all;
    for (int64_t i = 0; i < bytes / each; ++i)
      all.push_back(empty({{each}, DType::u8, Device::cpu(), std::nullopt}, Tier::pinned));
    return all;
  };
  for (const int64_t each : {int64_t{1} << 20, int64_t{16} << 20, int64_t{256} << 20}) {
    if (each > bytes) continue;
    std::vector<Tensor> all;
    row("lock, blocks of " + std::to_string(each >> 20) + " MiB", static_cast<double>(bytes), seconds([&] { all = make(each); }));
    all.clear();
    row("again from what is kept", static_cast<double>(bytes), seconds([&] { all = make(each); }));
    all.clear();
    row("unlock", static_cast<double>(bytes), seconds([] { memory::release_cached(); }));
  }
  void* p = nullptr;
  row("cudaHostAlloc", static_cast<double>(bytes), seconds([&] {
        cuda::check_cuda(cudaHostAlloc(&p, static_cast<size_t>(bytes), cudaHostAllocDefault), "tiers_bench",
                         "cudaHostAlloc");
      }));
  row("cudaFreeHost", static_cast<double>(bytes), seconds([&] { cudaFreeHost(p); }));
}

}  // namespace

int main(int argc, char** argv) {
  if (cuda::device_count() == 0) {
    std::printf("%s\n", cuda::unavailable_reason().c_str());
    return 0;
  }
  const int64_t block = (argc > 1 ? std::atoll(argv[1]) : 64) << 20;
  const int64_t all = (argc > 2 ? std::atoll(argv[2]) : 4) << 30;
  if (argc > 3) {
    memory::DiskOptions options;
    options.directories = {argv[3]};
    memory::use_disk(options);
  }
  std::printf("%s, blocks of %lld MiB\n\n| | bytes | time | |\n|---|---|---|---|\n", cuda::properties(0).name.c_str(),
              static_cast<long long>(block >> 20));
  bare(all / 4);
  locking(all / 2);
  tier(Tier::pinned, block, all / block);
  memory::release_cached();
  unified(all / 4);
  tier(kDisk, block, all / block);
  std::printf("\ndisk: %s\n", std::string(memory::disk()->engine()).c_str());
}
#else
int main() {
  std::printf("%s\n", strata::cuda::unavailable_reason().c_str());
}
#endif
