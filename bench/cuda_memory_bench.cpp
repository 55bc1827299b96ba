// What a card's memory costs before it is used: milliseconds a GiB to make, map and open it to the card, and to give it
// back, by the size of the pieces; and what a tensor of as much takes that the engine's heap must grow for.
//     cuda_memory_bench [GiB]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/ops/factory/factory.h"

#ifdef STRATA_WITH_CUDA
#include "strata/cuda/check.cuh"

namespace {

using namespace strata;
using Clock = std::chrono::steady_clock;

// Milliseconds since the last call.
double lap(Clock::time_point& since) {
  const Clock::time_point now = Clock::now();
  const double ms = std::chrono::duration<double, std::milli>(now - since).count();
  since = now;
  return ms;
}

void by_pieces(int64_t gib, int64_t piece) {
  const cuda::Driver& d = cuda::driver();
  const auto all = static_cast<size_t>(gib << 30), one = static_cast<size_t>(piece);
  const CUmemAllocationProp prop{.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
  const CUmemAccessDesc access{.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const auto must = [](CUresult e, const char* what) { cuda::check_driver(e, "cuda_memory_bench", what); };
  CUdeviceptr base = 0;
  must(d.mem_address_reserve(&base, all, 0, 0, 0), "cuMemAddressReserve");
  std::vector<CUmemGenericAllocationHandle> handles(all / one);
  Clock::time_point t = Clock::now();
  for (auto& h : handles) must(d.mem_create(&h, one, &prop, 0), "cuMemCreate");
  const double made = lap(t);
  for (size_t i = 0; i < handles.size(); ++i) must(d.mem_map(base + i * one, one, 0, handles[i], 0), "cuMemMap");
  const double mapped = lap(t);
  must(d.mem_set_access(base, all, &access, 1), "cuMemSetAccess");
  const double opened = lap(t);
  for (size_t i = 0; i < handles.size(); ++i) must(d.mem_unmap(base + i * one, one), "cuMemUnmap");
  const double unmapped = lap(t);
  for (const auto h : handles) must(d.mem_release(h), "cuMemRelease");
  const double released = lap(t);
  must(d.mem_address_free(base, all), "cuMemAddressFree");
  const auto n = static_cast<double>(gib);
  std::printf("| %lld | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", static_cast<long long>(piece >> 20), made / n,
              mapped / n, opened / n, unmapped / n, released / n, (made + mapped + opened) / n);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (cuda::device_count() == 0) {
    std::printf("%s\n", cuda::unavailable_reason().c_str());
    return 0;
  }
  const int64_t gib = argc > 1 ? std::atoll(argv[1]) : 16;
  Clock::time_point t = Clock::now();
  cuda::properties(0);
  std::printf("the card's context: %.0f ms\n\n", lap(t));
  std::printf(
      "| MiB a piece | made | mapped | opened | unmapped | released | made, mapped, opened |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const int64_t mib : {2, 8, 32, 128, 512, 2}) by_pieces(gib, mib << 20);
  for (int round = 0; round < 2; ++round) {
    t = Clock::now();
    Tensor whole = empty({{gib << 30}, DType::u8, Device::cuda(), std::nullopt});
    const double taken = lap(t);
    whole = Tensor();
    lap(t);
    memory::release_cached();
    std::printf("\na tensor of %lld GiB: %.2f ms a GiB to take, %.2f to give back to the card", (long long)gib,
                taken / static_cast<double>(gib), lap(t) / static_cast<double>(gib));
  }
  std::printf("\n");
}
#else
int main() {
  std::printf("%s\n", strata::cuda::unavailable_reason().c_str());
}
#endif
