// Ways to read rows of page-locked memory from a card, by themselves: how many bytes a thread takes at a time, how many
// loads it has on their way, loads or bulk copies, small pages or large. GB/s of the rows' bytes.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <sys/mman.h>

#include <cuda_runtime.h>

#include "bench/gather_ways.h"

namespace strata {
namespace {

constexpr int kThreads = 256;

void must(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(e));
  std::exit(1);
}

// Lines of 128 bytes, one to 128 / sizeof(U) threads, N lines of a thread on their way.
template <class U, int N>
__global__ void __launch_bounds__(kThreads)
    lines_kernel(const char* x, const int64_t* index, char* y, int64_t n, int64_t row_bytes, int lines) {
  constexpr int kLanes = 128 / sizeof(U), kGroups = kThreads / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kGroups * N) + threadIdx.x / kLanes;
  int64_t from[N], row[N], at[N];
  U v[N];
#pragma unroll
  for (int u = 0; u < N; ++u) {
    const int64_t item = first + u * kGroups;
    row[u] = item / lines;
    at[u] = (item - row[u] * lines) * 128 + lane * static_cast<int>(sizeof(U));
    from[u] = row[u] < n ? index[row[u]] : 0;
  }
#pragma unroll
  for (int u = 0; u < N; ++u)
    if (row[u] < n && at[u] < row_bytes) v[u] = __ldcg(reinterpret_cast<const U*>(x + from[u] * row_bytes + at[u]));
#pragma unroll
  for (int u = 0; u < N; ++u)
    if (row[u] < n && at[u] < row_bytes) *reinterpret_cast<U*>(y + row[u] * row_bytes + at[u]) = v[u];
}

// Each warp brings rows by bulk copies to shared memory, and takes them on from there.
constexpr int kBulkBytes = 8192;
__global__ void __launch_bounds__(128)
    bulk_kernel(const char* x, const int64_t* index, char* y, int64_t n, int64_t row_bytes) {
#if __CUDA_ARCH__ >= 900
  __shared__ alignas(128) char rows[4][kBulkBytes];
  __shared__ alignas(8) uint64_t arrived[4];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t each = kBulkBytes / row_bytes, warps = static_cast<int64_t>(gridDim.x) * 4;
  const uint32_t barrier = static_cast<uint32_t>(__cvta_generic_to_shared(&arrived[warp])),
                 to = static_cast<uint32_t>(__cvta_generic_to_shared(rows[warp]));
  if (lane == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier));
  asm volatile("fence.mbarrier_init.release.cluster;");
  __syncwarp();
  int phase = 0;
  for (int64_t r = (static_cast<int64_t>(blockIdx.x) * 4 + warp) * each; r < n; r += warps * each, phase ^= 1) {
    const int64_t count = min(each, n - r);
    if (lane == 0)
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                   "r"(static_cast<uint32_t>(count * row_bytes)));
    __syncwarp();
    for (int64_t k = lane; k < count; k += 32)
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       to + static_cast<uint32_t>(k * row_bytes)),
                   "l"(x + index[r + k] * row_bytes), "r"(static_cast<uint32_t>(row_bytes)), "r"(barrier)
                   : "memory");
    uint32_t done = 0;
    while (!done)
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done)
                   : "r"(barrier), "r"(phase)
                   : "memory");
    for (int64_t b = lane * 16; b < count * row_bytes; b += 512)
      *reinterpret_cast<uint4*>(y + r * row_bytes + b) = *reinterpret_cast<const uint4*>(rows[warp] + b);
    __syncwarp();
  }
#endif
}

template <class Launch>
double gb_s(double bytes, Launch launch) {
  cudaEvent_t a, b;
  must(cudaEventCreate(&a), "event");
  must(cudaEventCreate(&b), "event");
  float best = 1e9;
  for (int i = 0; i < 4; ++i) {
    cudaEventRecord(a);
    launch();
    cudaEventRecord(b);
    must(cudaEventSynchronize(b), "kernel");
    float ms = 0;
    cudaEventElapsedTime(&ms, a, b);
    if (i > 0) best = ms < best ? ms : best;
  }
  cudaEventDestroy(a);
  cudaEventDestroy(b);
  return bytes / best * 1e-6;
}

}  // namespace

void bench_gather_ways() {
  const int64_t bytes = int64_t{2} << 30, n = 262144;
  for (const bool large : {false, true}) {
    void* host = nullptr;
    if (large) {
      host = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (host == MAP_FAILED) return;
      madvise(host, bytes, MADV_HUGEPAGE);
      for (int64_t i = 0; i < bytes; i += 4096) static_cast<char*>(host)[i] = static_cast<char>(i >> 12);
      must(cudaHostRegister(host, bytes, cudaHostRegisterMapped), "register");
    } else {
      must(cudaHostAlloc(&host, bytes, cudaHostAllocMapped), "alloc");
      for (int64_t i = 0; i < bytes; i += 4096) static_cast<char*>(host)[i] = static_cast<char>(i >> 12);
    }
    const char* x = nullptr;
    must(cudaHostGetDevicePointer(reinterpret_cast<void**>(const_cast<char**>(&x)), host, 0), "map");
    char* y = nullptr;
    int64_t* index = nullptr;
    must(cudaMalloc(&y, n * 4096), "y");
    must(cudaMalloc(&index, n * 8), "index");
    std::printf("%s pages: a copy of 1 GiB %.1f GB/s\n", large ? "large" : "cudaHostAlloc's",
                gb_s(1 << 30, [&] { cudaMemcpyAsync(y, host, n * 4096, cudaMemcpyHostToDevice); }));
    std::printf(
        "  row bytes |  x1     x4     x8  |  4 B x4 |  bulk | sorted  in order | within 16 MiB  64 MiB  256 MiB  1 "
        "GiB\n");
    for (const int64_t row_bytes : {128, 256, 400, 512, 1024, 4096}) {
      std::vector<int64_t> which(n);
      uint64_t s = 88172645463325252ull;
      const auto draw = [&](int64_t of) {
        for (int64_t& i : which) {
          s ^= s << 13, s ^= s >> 7, s ^= s << 17;
          i = static_cast<int64_t>(s % static_cast<uint64_t>(of / row_bytes));
        }
      };
      const auto send = [&] { must(cudaMemcpy(index, which.data(), n * 8, cudaMemcpyHostToDevice), "index"); };
      const double moved = static_cast<double>(n) * static_cast<double>(row_bytes);
      const auto lines = [&]<class U, int N>() {
        const int per_row = static_cast<int>((row_bytes + 127) / 128), groups = kThreads / (128 / sizeof(U));
        const auto blocks = static_cast<unsigned>((n * per_row + groups * N - 1) / (groups * N));
        return gb_s(moved, [&] { lines_kernel<U, N><<<blocks, kThreads>>>(x, index, y, n, row_bytes, per_row); });
      };
      draw(bytes);
      send();
      std::printf("  %9d | %6.1f %6.1f %6.1f |  %6.1f |", static_cast<int>(row_bytes),
                  lines.template operator()<uint4, 1>(), lines.template operator()<uint4, 4>(),
                  lines.template operator()<uint4, 8>(), lines.template operator()<uint32_t, 4>());
      std::printf("%6.1f |", gb_s(moved, [&] { bulk_kernel<<<264, 128>>>(x, index, y, n, row_bytes); }));
      std::sort(which.begin(), which.end());
      send();
      std::printf(" %6.1f ", lines.template operator()<uint4, 4>());
      for (int64_t i = 0; i < n; ++i) which[static_cast<size_t>(i)] = i % (bytes / row_bytes);
      send();
      std::printf("   %6.1f |      ", lines.template operator()<uint4, 4>());
      for (const int64_t part : {16, 64, 256, 1024}) {
        draw(part << 20);
        send();
        std::printf(" %6.1f ", lines.template operator()<uint4, 4>());
      }
      std::printf("\n");
      std::fflush(stdout);
    }
    cudaFree(y);
    cudaFree(index);
    if (large) {
      cudaHostUnregister(host);
      munmap(host, bytes);
    } else {
      cudaFreeHost(host);
    }
  }
}

}  // namespace strata
