// What gelu_gemm.cuh's kernels need of the host: when they fit, and tensor maps.

#include "strata/cuda/gelu_gemm.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>

#include "strata/cuda/blas_odd.h"
#include "strata/cuda/gelu_gemm.cuh"
#include "strata/cuda/kernel.cuh"

namespace strata::cuda {
namespace {
using cpu::Epilogue;
using cpu::Gemm;

constexpr double kLarge = 2e9;  // flops; cuBLASLt has kernels for smaller products

auto find_encode() {
  void* p = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const cudaError_t e =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000, cudaEnableDefault, &result);
#else
  const cudaError_t e = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &p, cudaEnableDefault, &result);
#endif
  const bool found = e == cudaSuccess && result == cudaDriverEntryPointSuccess;
  if (!found) cudaGetLastError();
  return found ? reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(p) : nullptr;
}
auto encode() {
  static const auto f = find_encode();
  return f;
}

// Has shared memory of its own only where it is compiled for sm_90a, as the kernels must be.
__global__ void gelu_gemm_probe() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ volatile int there;
  there = 1;
#endif
}
// Whether the kernels are in this program and may have the shared memory that they want on the current device.
bool ready(int device) {
  enum : char { unknown, no, yes };
  static auto* known = new std::array<std::atomic<char>, 64>{};
  std::atomic<char>& is = (*known)[static_cast<size_t>(device)];
  if (is == unknown) {
    using namespace gelu_tiles;
    const auto allow = [](auto kernel) {
      return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes) == cudaSuccess;
    };
    cudaFuncAttributes a{};
    const bool found = encode() != nullptr && cudaFuncGetAttributes(&a, gelu_gemm_probe) == cudaSuccess &&
                       a.sharedSizeBytes > 0 && allow(gelu_gemm_kernel<Kind::gelu>) &&
                       allow(gelu_gemm_kernel<Kind::gelu_grad>);
    cudaGetLastError();
    is = found ? yes : no;
  }
  return is == yes;
}

// A map of a [rows, columns] matrix for boxes of 64 columns.
CUtensorMap map_of(const void* p, int64_t rows, int64_t columns, int64_t ld, int box_rows) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)},
                   strides[1] = {static_cast<cuuint64_t>(2 * ld)};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)}, steps[2] = {1, 1};
  CUtensorMap map;
  check_driver(encode()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(p), sizes, strides, box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
               "matmul", "cuTensorMapEncodeTiled");
  return map;
}

bool well(const void* p, int64_t ld) {
  return aligned16(p) && ld % 8 == 0 && ld < (int64_t{1} << 38);
}

}  // namespace

int64_t gelu_gemm_blocks(int64_t m) {
  return (m + 2 * gelu_tiles::kTile - 1) / (2 * gelu_tiles::kTile) * 2;
}

bool gelu_gemm(const Gemm& g, float* sums, Device device) {
  using namespace gelu_tiles;
  static const bool wanted = std::getenv("STRATA_GELU_GEMM") != nullptr;
  if (!wanted) return false;
  const bool grad = g.epilogue == Epilogue::gelu_tanh_grad;
  if (g.in != DType::bf16 || g.out != DType::bf16 || g.aux == nullptr || !(grad || g.epilogue == Epilogue::gelu_tanh))
    return false;
  if (!g.batch.empty() || g.alpha != 1 || g.beta != 0 || g.c_col != 1 || g.n % 8 != 0 || g.k % 8 != 0) return false;
  if (g.bias != nullptr && (grad || g.bias_dtype != DType::bf16 || !aligned16(g.bias))) return false;
  const double flops = 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
  constexpr int64_t kMost = int64_t{1} << 30;
  if (flops < kLarge || std::max({g.m, g.n, g.k}) > kMost) return false;
  const auto a = lie(g.m, g.k, g.a_row, g.a_col), b = lie(g.k, g.n, g.b_row, g.b_col);
  if (!a || !b || !a->by_rows || b->by_rows != grad) return false;
  if (!well(g.a, a->ld) || !well(g.b, b->ld) || !well(g.c, g.c_row) || !well(g.aux, g.c_row)) return false;
  const DeviceProperties& card = properties(device.index);
  if (card.major != 9 || !ready(device.index)) return false;

  Job job{};
  job.n = g.n;
  job.tiles_m = static_cast<int>(gelu_gemm_blocks(g.m));
  job.tiles_n = static_cast<int>((g.n + kTile - 1) / kTile);
  job.depth = static_cast<int>((g.k + kDepth - 1) / kDepth);
  job.bias = static_cast<const __nv_bfloat16*>(g.bias);
  job.sums = sums;
  const int64_t tiles = static_cast<int64_t>(job.tiles_m / 2) * job.tiles_n;
  if (tiles > kMost) return false;
  const CUtensorMap map_a = map_of(g.a, g.m, g.k, a->ld, kTile),
                    map_b = grad ? map_of(g.b, g.k, g.n, b->ld, kDepth) : map_of(g.b, g.n, g.k, b->ld, kTile / 2),
                    map_c = map_of(g.c, g.m, g.n, g.c_row, kTile), map_aux = map_of(g.aux, g.m, g.n, g.c_row, kTile);
  const auto blocks = static_cast<unsigned>(2 * std::min<int64_t>(card.multiprocessors / 2, tiles));
  if (grad) {
    gelu_gemm_kernel<Kind::gelu_grad><<<blocks, kBlock, kSharedBytes, stream()>>>(map_a, map_b, map_c, map_aux, job);
  } else {
    gelu_gemm_kernel<Kind::gelu><<<blocks, kBlock, kSharedBytes, stream()>>>(map_a, map_b, map_c, map_aux, job);
  }
  return true;
}

}  // namespace strata::cuda
