// What the Hopper kernels need first: tensor maps.

#include "strata/cuda/tile/encode_inl.h"
#include "strata/ops/attention/mask_tile.cuh"

namespace strata::attention_cuda::hopper {
namespace {

// A block a part, a thread a map.
__global__ void maps_kernel(const __grid_constant__ MapSet set, const Sequences sequences, CUtensorMap* to) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const int i = threadIdx.x;
  if (i >= set.count) return;
  const Sequence s = sequences.all[blockIdx.x];
  const bool keys = set.of_keys >> i & 1;
  CUtensorMap* const map = to + static_cast<int64_t>(blockIdx.x) * set.count + i;
  *map = set.maps[i];
  const char* const data = static_cast<const char*>(set.data[i]) + (keys ? s.k0 : s.q0) * set.row_bytes[i];
  asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(map), "l"(data) : "memory");
  asm volatile("tensormap.replace.tile.global_dim.global.b1024.b32 [%0], 1, %1;" ::"l"(map),
               "r"(max(keys ? s.tk : s.tq, 1))
               : "memory");
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
#endif
}

}  // namespace

bool fits_copies(const AttentionView& v, int64_t batch, int64_t heads, int64_t time) {
  const auto fits = [](int64_t size, int64_t stride) {
    return size == 1 || (stride > 0 && stride % 8 == 0 && stride < (int64_t{1} << 39));
  };
  return cuda::tile::encode_tiled() != nullptr && cuda::aligned16(v.data) && fits(batch, v.batch) &&
         fits(heads, v.head) && fits(time, v.time) && batch < INT32_MAX && heads < INT32_MAX && time < INT32_MAX;
}

CUtensorMap tensor_map(DType dtype, const AttentionView& v, int64_t batch, int64_t heads, int64_t time, int64_t size,
                       int rows) {
  const auto bytes = [](int64_t n, int64_t stride) { return static_cast<cuuint64_t>(n == 1 ? 16 : 2 * stride); };
  const cuuint64_t sizes[4] = {static_cast<cuuint64_t>(size), static_cast<cuuint64_t>(time),
                               static_cast<cuuint64_t>(heads), static_cast<cuuint64_t>(batch)};
  const cuuint64_t strides[3] = {bytes(time, v.time), bytes(heads, v.head), bytes(batch, v.batch)};
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(rows), 1, 1}, steps[4] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult e = cuda::tile::encode_tiled()(
      &map, dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, v.data, sizes,
      strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  cuda::check_driver(e, "scaled_dot_product_attention", "cuTensorMapEncodeTiled");
  return map;
}

CUtensorMap mask_map(const AttentionCall& c, int rows, Options& o) {
  const bool batches = c.mask_stride[0] != 0, heads = c.mask_stride[1] != 0, queries = c.mask_stride[2] != 0;
  const AttentionView v{const_cast<void*>(c.mask), c.mask_stride[0], c.mask_stride[1], c.mask_stride[2], 0};
  const int64_t b = batches ? c.batch : 1, h = heads ? c.heads : 1, t = queries ? c.tq : 1;
  o.copied = o.additive && c.mask_dtype != DType::f32 && c.mask_stride[3] == 1 && fits_copies(v, b, h, t);
  o.one_query = !queries;
  return o.copied ? tensor_map(c.mask_dtype, v, b, h, t, c.tk, queries ? rows : 1) : CUtensorMap{};
}

const CUtensorMap* maps_of_sequences(const MapSet& set, const Sequences& s, int64_t parts, const Tensor& like_this,
                                     Tensor& space) {
  constexpr int64_t kBytes = sizeof(CUtensorMap);
  space = empty({Shape{kBytes * (parts * set.count + 1)}, DType::u8, like_this.device(), std::nullopt});
  const uintptr_t at = reinterpret_cast<uintptr_t>(space.raw_data());
  CUtensorMap* const to = reinterpret_cast<CUtensorMap*>((at + kBytes - 1) / kBytes * kBytes);
  maps_kernel<<<cuda::blocks_for(parts, 1), 32, 0, cuda::stream()>>>(set, s, to);
  return to;
}

int multiprocessors() {
  int device = 0;
  cuda::check_cuda(cudaGetDevice(&device), "scaled_dot_product_attention", "cudaGetDevice");
  return cuda::properties(device).multiprocessors;
}

}  // namespace strata::attention_cuda::hopper

namespace strata::attention_cuda {

bool fits_hopper(const AttentionCall& c, bool backward) {
  using hopper::fits_copies;
  int device = 0;
  cuda::check_cuda(cudaGetDevice(&device), "scaled_dot_product_attention", "cudaGetDevice");
  // A block's work is numbered in 32 bits.
  const bool size = c.d > 32 && c.d <= 256 && c.batch * c.heads < (1 << 24) &&
                    c.batch * c.heads * ((std::max(c.tq, c.tk) + 63) / 64 + c.sequences + 2) < (1 << 30) &&
                    c.offset > -(1 << 30) && c.offset < (1 << 30) && c.window < (1 << 30) &&
                    // Registers do not hold the cap's slopes beside an additive mask.
                    !(backward && c.soft_cap > 0 && c.mask != nullptr && c.mask_dtype != DType::boolean);
  const auto keys = [&](const AttentionView& v) { return fits_copies(v, c.batch, c.kv_heads, c.tk); };
  const auto queries = [&](const AttentionView& v) { return fits_copies(v, c.batch, c.heads, c.tq); };
  return size && cuda::properties(device).major == 9 && cuda::tile::built_for_tiles() && queries(c.q) && keys(c.k) &&
         keys(c.v) && queries(c.out) &&
         (!backward || (queries(c.grad_out) && queries(c.grad_q) && keys(c.grad_k) && keys(c.grad_v)));
}

}  // namespace strata::attention_cuda
