// CUB's radix sort of 2^28 random keys of 32 bits, alone and with places of 32 bits: what strata::msort and strata::sort are
// measured against (Onesweep). A program of its own, so that nothing of the engine is in it:
//
//   nvcc -O3 -std=c++17 -arch=sm_90 bench/cub_sort.cu -o cub_sort && ./cub_sort
//
// Prints the median of eleven sorts between events, from a copy that is never sorted, and G keys/s; the keys are looked
// at once.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cub/cub.cuh>

namespace {

void ok(cudaError_t e) {
  if (e == cudaSuccess) return;
  std::fprintf(stderr, "cub_sort: %s\n", cudaGetErrorString(e));
  std::exit(1);
}

__global__ void fill(uint32_t* keys, uint32_t* places, int64_t n) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += int64_t{gridDim.x} * blockDim.x) {
    uint64_t z = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u + 0xD1B54A32D192ED03u;  // SplitMix64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    keys[i] = static_cast<uint32_t>((z ^ (z >> 31)) >> 16);
    places[i] = static_cast<uint32_t>(i);
  }
}

template <class F>
void timed(const char* what, int64_t n, F&& sort) {
  cudaEvent_t begin, end;
  ok(cudaEventCreate(&begin));
  ok(cudaEventCreate(&end));
  std::vector<float> ms(11);
  sort();
  for (float& m : ms) {
    ok(cudaEventRecord(begin));
    sort();
    ok(cudaEventRecord(end));
    ok(cudaEventSynchronize(end));
    ok(cudaEventElapsedTime(&m, begin, end));
  }
  std::sort(ms.begin(), ms.end());
  std::printf("%-32s %8.3f ms  %6.1f G keys/s\n", what, ms[5], static_cast<double>(n) / ms[5] * 1e-6);
}

}  // namespace

int main() {
  const int64_t n = int64_t{1} << 28;
  uint32_t *keys, *sorted, *places, *moved;
  for (uint32_t** p : {&keys, &sorted, &places, &moved}) ok(cudaMalloc(p, n * sizeof(uint32_t)));
  fill<<<1056, 256>>>(keys, places, n);
  size_t alone = 0, pairs = 0;
  ok(cub::DeviceRadixSort::SortKeys(nullptr, alone, keys, sorted, n));
  ok(cub::DeviceRadixSort::SortPairs(nullptr, pairs, keys, sorted, places, moved, n));
  void* workspace;
  ok(cudaMalloc(&workspace, std::max(alone, pairs)));
  timed("CUB, 2^28 keys alone", n, [&] { ok(cub::DeviceRadixSort::SortKeys(workspace, alone, keys, sorted, n)); });
  timed("CUB, with places of 32 bits", n,
        [&] { ok(cub::DeviceRadixSort::SortPairs(workspace, pairs, keys, sorted, places, moved, n)); });
  std::vector<uint32_t> host(static_cast<size_t>(n));
  ok(cudaMemcpy(host.data(), sorted, host.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost));
  if (!std::is_sorted(host.begin(), host.end())) {
    std::fprintf(stderr, "cub_sort: the keys are not in order\n");
    return 1;
  }
}
