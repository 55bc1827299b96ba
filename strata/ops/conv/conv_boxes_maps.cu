// Tensor maps of images with their channels innermost, for boxes of pixels and for runs of them.

#include "strata/cuda/tile/encode_inl.h"
#include "strata/ops/conv/conv_boxes.cuh"

namespace strata::conv_cuda {
namespace {

CUtensorMapDataType type_of(DType t) {
  return t == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}

}  // namespace

bool copies_boxes() {
  using namespace cuda::tile;
  return encode_tiled() != nullptr && encode_im2col() != nullptr && built_for_tiles();
}

CUtensorMap box_map(DType t, const void* data, const BoxMap& m) {
  // Where there is one element only, its stride means nothing, but must be allowed.
  const auto bytes = [&](int64_t count, int64_t stride) {
    return static_cast<cuuint64_t>(count == 1 ? 16 : stride * size_of(t));
  };
  const cuuint64_t sizes[4] = {static_cast<cuuint64_t>(m.channels), static_cast<cuuint64_t>(m.columns),
                               static_cast<cuuint64_t>(m.rows), static_cast<cuuint64_t>(m.n)};
  const cuuint64_t strides[3] = {bytes(m.columns, m.column), bytes(m.rows, m.row), bytes(m.n, m.image)};
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(m.box_columns), static_cast<cuuint32_t>(m.box_rows),
                             static_cast<cuuint32_t>(m.box_images)};
  const char* const from = static_cast<const char*>(data) + m.offset * size_of(t);
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult e = cuda::tile::encode_tiled()(&map, type_of(t), 4, const_cast<char*>(from), sizes, strides, box,
                                                steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  cuda::check_driver(e, "convolution", "cuTensorMapEncodeTiled");
  return map;
}

CUtensorMap run_map(const ConvSizes& s, DType t, const void* data, int pixels) {
  const auto row = static_cast<cuuint64_t>(s.ic * size_of(t));
  const cuuint64_t sizes[4] = {static_cast<cuuint64_t>(s.ic), static_cast<cuuint64_t>(s.iw),
                               static_cast<cuuint64_t>(s.ih), static_cast<cuuint64_t>(s.n)};
  const cuuint64_t strides[3] = {row, row * sizes[1], row * sizes[1] * sizes[2]};
  // The first and the last window's first tap, from the image's corners.
  const int low[2] = {static_cast<int>(-s.pw), static_cast<int>(-s.ph)};
  const int high[2] = {static_cast<int>(s.pw - (s.kw - 1) * s.dw), static_cast<int>(s.ph - (s.kh - 1) * s.dh)};
  const cuuint32_t steps[4] = {1, static_cast<cuuint32_t>(s.sw), static_cast<cuuint32_t>(s.sh), 1};
  CUtensorMap map;
  const CUresult e = cuda::tile::encode_im2col()(&map, type_of(t), 4, const_cast<void*>(data), sizes, strides, low,
                                                 high, 64, static_cast<cuuint32_t>(pixels), steps,
                                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  cuda::check_driver(e, "convolution", "cuTensorMapEncodeIm2col");
  return map;
}

bool fits_boxes(const ConvSizes& s, DType t, Device device, const void* x, const void* y) {
  constexpr int64_t kMost = int64_t{1} << 30;
  return size_of(t) == 2 && s.groups == 1 && s.ic % 8 == 0 && s.oc % 8 == 0 && aligned16(x) && aligned16(y) &&
         s.n > 0 && s.ic > 0 && s.oc > 0 && s.oh * s.ow > 0 && s.n * s.ih * s.iw < kMost / 4 &&
         s.n * s.oh * s.ow < kMost / 4 && s.ic < (1 << 20) && s.oc < (1 << 20) && s.kh * s.kw < 65536 && s.ph < 4096 &&
         s.pw < 4096 && s.kh * s.dh < 4096 && s.kw * s.dw < 4096 && properties(device.index).major == 9 &&
         copies_boxes();
}

}  // namespace strata::conv_cuda
