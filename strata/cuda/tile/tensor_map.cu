// Tensor maps are made by a function of the driver, which is found at run time.

#include "strata/cuda/tile/tensor_map.cuh"

#include "strata/cuda/driver_function_inl.h"
#include "strata/cuda/tile/encode_inl.h"

namespace strata::cuda::tile {
namespace {

// Has shared memory of its own only where it is compiled for sm_90a, as kernels of tiles must be.
__global__ void probe_kernel() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ volatile int there;
  there = 1;
#endif
}

}  // namespace

decltype(&cuTensorMapEncodeTiled) encode_tiled() {
  static const auto f =
      reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(driver_function("cuTensorMapEncodeTiled", 12000));
  return f;
}
decltype(&cuTensorMapEncodeIm2col) encode_im2col() {
  static const auto f =
      reinterpret_cast<decltype(&cuTensorMapEncodeIm2col)>(driver_function("cuTensorMapEncodeIm2col", 12000));
  return f;
}

bool built_for_tiles() {
  static const bool built = [] {
    cudaFuncAttributes a{};
    const bool found = cudaFuncGetAttributes(&a, probe_kernel) == cudaSuccess && a.sharedSizeBytes > 0;
    cudaGetLastError();
    return found;
  }();
  return built;
}

CUtensorMap tensor_map(const Matrices& m, int rows) {
  const auto bytes = [](int64_t size, int64_t stride) { return static_cast<cuuint64_t>(size == 1 ? 16 : stride); };
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(m.columns), static_cast<cuuint64_t>(m.rows),
                               static_cast<cuuint64_t>(m.batches)};
  const cuuint64_t strides[2] = {bytes(m.rows, m.row_bytes), bytes(m.batches, m.batch_bytes)};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(kRowBytes / m.element_bytes), static_cast<cuuint32_t>(rows), 1},
                   steps[3] = {1, 1, 1};
  // Copies move bits, so that only the size of an element matters.
  const CUtensorMapDataType type = m.element_bytes == 1   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : m.element_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                                                          : CU_TENSOR_MAP_DATA_TYPE_UINT32;
  CUtensorMap map;
  const CUresult e = encode_tiled()(&map, type, 3, const_cast<void*>(m.data), sizes, strides, box, steps,
                                    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                    CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check_driver(e, "tiles", "cuTensorMapEncodeTiled");
  return map;
}

bool has_tiles() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "tiles", "cudaGetDevice");
  return properties(device).major == 9 && built_for_tiles() && encode_tiled() != nullptr;
}

}  // namespace strata::cuda::tile
