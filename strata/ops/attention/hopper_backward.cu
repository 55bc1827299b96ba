// The backward kernels for Hopper of heads up to 128 columns, one for each dtype and head size.

#include "strata/ops/attention/hopper_backward.cuh"
#include "strata/ops/attention/hopper_backward_rows.cuh"

namespace strata::attention_cuda {
namespace hopper {
namespace {

template <class T, class S, bool kOptions>
void queue_backward(const AttentionCall& c, const Tensor& like_this) {
  Tensor lists, floats, all_maps, bits, drawn;
  Options options;
  CUtensorMap mask{};
  if constexpr (kOptions) {
    options = options_of(c, S::kRows, S::kKeys, true, like_this, bits);
    draw_kept(options, c, S::kRows, S::kKeys, true, like_this, drawn);
    mask = mask_map(c, S::kRows, options);
  }
  const Sequences sequences = sequences_of(c, S::kRows, S::kKeys, like_this, lists);
  const bool several = c.sequences > 0;
  const int64_t heads = c.batch * c.heads;
  BackwardSpace space{};
  space.row_tiles = static_cast<int>(several ? sequences.q_tiles : (c.tq + S::kRows - 1) / S::kRows);
  space.key_tiles = static_cast<int>(several ? sequences.k_tiles : (c.tk + S::kKeys - 1) / S::kKeys);
  space.together = multiprocessors();
  space.rotated = !c.causal && c.window == 0 && (several || space.key_tiles <= space.together);
  space.pitch = space.row_tiles * S::kRows;
  const int64_t rows = heads * space.pitch, tiles = heads * space.row_tiles;
  floats = empty({Shape{rows * (S::D + 2) + tiles + 1}, DType::f32, like_this.device(), std::nullopt});
  space.sums = static_cast<float*>(floats.raw_data());
  space.lse2 = space.sums + rows * S::D;
  space.delta = space.lse2 + rows;
  space.counts = reinterpret_cast<int*>(space.delta + rows);
  space.ticket = space.counts + tiles;
  BackwardMaps maps;
  maps.q = tensor_map(c.dtype, c.q, c.batch, c.heads, c.tq, c.d, S::kRows);
  maps.grad_out = tensor_map(c.dtype, c.grad_out, c.batch, c.heads, c.tq, c.d, S::kRows);
  maps.k = tensor_map(c.dtype, c.k, c.batch, c.kv_heads, c.tk, c.d, S::kKeys);
  maps.v = tensor_map(c.dtype, c.v, c.batch, c.kv_heads, c.tk, c.d, S::kKeys);
  maps.grad_k = tensor_map(c.dtype, c.grad_k, c.batch, c.kv_heads, c.tk, c.d, 64);
  maps.grad_v = tensor_map(c.dtype, c.grad_v, c.batch, c.kv_heads, c.tk, c.d, 64);
  const cudaStream_t stream = cuda::stream();
  float lse_unit = static_cast<float>(kLog2e);
  if constexpr (kOptions)
    with_set<true>(c, options, [&]<int kSet>() {
      if constexpr (!OptionsIn<kSet>::kPlainScores) lse_unit = 1 / options.lse_factor;
    });
  backward_rows_kernel<T, S>
      <<<cuda::blocks_for(rows * (S::D / 8), 256), 256, 0, stream>>>(c, space, sequences, lse_unit);
  const int64_t items = c.batch * c.kv_heads * space.key_tiles;
  const int64_t blocks = S::kStays ? std::min<int64_t>(items, multiprocessors()) : items;
  const auto queue = [&](auto kernel, const BackwardMaps* maps_of) {
    constexpr int kBytes = S::kSharedBytes + (kOptions ? S::kOptionBytes : 0);
    cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
                     "scaled_dot_product_attention_backward", "cudaFuncSetAttribute");
    kernel<<<cuda::blocks_for(blocks, 1), S::kThreads, kBytes, stream>>>(c, maps, space, sequences, maps_of, options,
                                                                         mask);
  };
  if constexpr (kOptions) {
    with_set<true>(c, options, [&]<int kSet>() { queue(backward_hopper_kernel<T, S, false, kSet>, nullptr); });
  } else if (several) {
    MapSet set{};
    set.add(maps.q, c.q, false), set.add(maps.k, c.k, true), set.add(maps.v, c.v, true);
    set.add(maps.grad_out, c.grad_out, false), set.add(maps.grad_k, c.grad_k, true),
        set.add(maps.grad_v, c.grad_v, true);
    const CUtensorMap* const written = maps_of_sequences(set, sequences, c.sequences + 2, like_this, all_maps);
    queue(backward_hopper_kernel<T, S, true, kNoOptions>, reinterpret_cast<const BackwardMaps*>(written));
  } else {
    queue(backward_hopper_kernel<T, S, false, kNoOptions>, nullptr);
  }
  backward_queries_kernel<T, S>
      <<<cuda::blocks_for(heads * space.row_tiles * (S::kRows * S::D / 16), 256), 256, 0, stream>>>(c, space, sequences,
                                                                                                    options);
}

}  // namespace
}  // namespace hopper

void backward_hopper(const AttentionCall& c, const Tensor& like_this) {
  using namespace hopper;
  if (c.d > 128) return backward_wide(c, like_this);
  const auto with = [&]<class T, bool kOptions>() {
    // Sizes between fill up with zeros in the copies.
    c.d <= 64 ? queue_backward<T, BackwardShape<64, 128, 2, 2>, kOptions>(c, like_this)
              : queue_backward<T, BackwardShape<128, 64, 2, 1>, kOptions>(c, like_this);
  };
  const auto with_options = [&]<class T>() {
    has_options(c) ? with.template operator()<T, true>() : with.template operator()<T, false>();
  };
  c.dtype == DType::bf16 ? with_options.template operator()<BFloat16>() : with_options.template operator()<Half>();
}

}  // namespace strata::attention_cuda
