// The backward kernels for Hopper of heads above 128 columns, one of each for each dtype.

#include "strata/ops/attention/hopper_wide_backward.cuh"

#include "strata/ops/attention/hopper_backward_rows.cuh"

namespace strata::attention_cuda::hopper {
namespace {

template <class T, bool kOptions>
void queue_wide(const AttentionCall& c, const Tensor& like_this) {
  using S = WideShape;
  Tensor lists, floats, all_maps, spaces[4];
  // Of keys, whose scores are transposed, and of queries.
  Options options[2];
  if constexpr (kOptions)
    for (int i = 0; i < 2; ++i) {
      options[i] = options_of(c, S::kTile, S::kTile, i == 0, like_this, spaces[i]);
      draw_kept(options[i], c, S::kTile, S::kTile, i == 0, like_this, spaces[2 + i]);
    }
  const Sequences sequences = sequences_of(c, S::kRows, S::kTile, like_this, lists);
  const bool several = c.sequences > 0;
  const int64_t heads = c.batch * c.heads;
  WideSpace space{};
  space.row_tiles = static_cast<int>(several ? sequences.q_tiles : (c.tq + S::kRows - 1) / S::kRows);
  space.key_tiles = static_cast<int>(several ? sequences.k_tiles : (c.tk + S::kTile - 1) / S::kTile);
  space.pitch = space.row_tiles * S::kRows;
  const int64_t rows = heads * space.pitch;
  floats = empty({Shape{2 * rows + 1}, DType::f32, like_this.device(), std::nullopt});
  BackwardSpace terms{};  // without sums and counts
  terms.lse2 = static_cast<float*>(floats.raw_data()), terms.delta = terms.lse2 + rows;
  terms.ticket = reinterpret_cast<int*>(terms.delta + rows);
  terms.pitch = space.pitch;
  space.lse2 = terms.lse2, space.delta = terms.delta;
  WideMaps maps;
  const auto map_of = [&](const AttentionView& v, int64_t heads_of, int64_t time) {
    return tensor_map(c.dtype, v, c.batch, heads_of, time, c.d, S::kTile);
  };
  maps.q = map_of(c.q, c.heads, c.tq), maps.grad_out = map_of(c.grad_out, c.heads, c.tq);
  maps.k = map_of(c.k, c.kv_heads, c.tk), maps.v = map_of(c.v, c.kv_heads, c.tk);
  maps.grad_q = map_of(c.grad_q, c.heads, c.tq);
  maps.grad_k = map_of(c.grad_k, c.kv_heads, c.tk), maps.grad_v = map_of(c.grad_v, c.kv_heads, c.tk);
  const WideMaps* maps_of = nullptr;
  if (several) {
    MapSet set{};
    set.add(maps.q, c.q, false), set.add(maps.k, c.k, true), set.add(maps.v, c.v, true);
    set.add(maps.grad_out, c.grad_out, false), set.add(maps.grad_q, c.grad_q, false);
    set.add(maps.grad_k, c.grad_k, true), set.add(maps.grad_v, c.grad_v, true);
    maps_of =
        reinterpret_cast<const WideMaps*>(maps_of_sequences(set, sequences, c.sequences + 2, like_this, all_maps));
  }
  const cudaStream_t stream = cuda::stream();
  const float lse_unit = kOptions ? 1 / options[0].lse_factor : static_cast<float>(kLog2e);
  if (rows > 0)
    backward_rows_kernel<T, S>
        <<<cuda::blocks_for(rows * (S::D / 8), 256), 256, 0, stream>>>(c, terms, sequences, lse_unit);
  const auto queue = [&](auto kernel, int64_t blocks, int bytes, const Options& o) {
    if (blocks == 0) return;
    cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                     "scaled_dot_product_attention_backward", "cudaFuncSetAttribute");
    kernel<<<cuda::blocks_for(blocks, 1), S::kThreads, bytes, stream>>>(c, maps, space, sequences, maps_of, o);
  };
  const auto queue_both = [&](auto keys, auto queries) {
    queue(keys, c.batch * c.kv_heads * space.key_tiles, S::kKeysSharedBytes, options[0]);
    queue(queries, heads * space.row_tiles, S::kQueriesSharedBytes, options[1]);
  };
  if constexpr (kOptions) {
    queue_both(wide_keys_kernel<T, S, false, kEveryOption>, wide_queries_kernel<T, S, false, kEveryOption>);
  } else if (several) {
    queue_both(wide_keys_kernel<T, S, true, kNoOptions>, wide_queries_kernel<T, S, true, kNoOptions>);
  } else {
    queue_both(wide_keys_kernel<T, S, false, kNoOptions>, wide_queries_kernel<T, S, false, kNoOptions>);
  }
}

}  // namespace

void backward_wide(const AttentionCall& c, const Tensor& like_this) {
  const auto with_options = [&]<class T>() {
    has_options(c) ? queue_wide<T, true>(c, like_this) : queue_wide<T, false>(c, like_this);
  };
  c.dtype == DType::bf16 ? with_options.template operator()<BFloat16>() : with_options.template operator()<Half>();
}

}  // namespace strata::attention_cuda::hopper
