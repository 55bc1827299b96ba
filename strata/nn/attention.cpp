#include "strata/nn/attention.h"

#include <bit>
#include <mutex>
#include <tuple>

#include "strata/core/node.h"
#include "strata/nn/init.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/attention/multi_head_attention.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"

namespace strata::nn {
namespace {

int64_t checked_head_size(std::string_view op, int64_t dim, int64_t heads) {
  check(dim > 0 && heads > 0 && dim % heads == 0, op, heads, " heads do not divide ", dim, " dimensions");
  return dim / heads;
}

// [B, T, n D] to [B, n, T, D].
Tensor split_heads(const Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}
Tensor join_heads(const Tensor& x) {
  return x.transpose(1, 2).flatten(2);
}

}  // namespace

MultiheadAttention::MultiheadAttention(int64_t embed_dim, int64_t num_heads, const MultiheadAttentionOptions& options)
    : Module("MultiheadAttention", cat("heads=", num_heads)),
      out_proj(embed_dim, embed_dim, options.bias),
      dim_(embed_dim),
      heads_(num_heads),
      options_(options) {
  checked_head_size("MultiheadAttention", embed_dim, num_heads);
  const int64_t kdim = options.kdim > 0 ? options.kdim : embed_dim, vdim = options.vdim > 0 ? options.vdim : embed_dim;
  if (kdim == embed_dim && vdim == embed_dim) {
    in_proj_weight = new_parameter("in_proj_weight", {3 * embed_dim, embed_dim});
    init::xavier_uniform_(in_proj_weight);
  } else {
    q_proj_weight = new_parameter("q_proj_weight", {embed_dim, embed_dim});
    k_proj_weight = new_parameter("k_proj_weight", {embed_dim, kdim});
    v_proj_weight = new_parameter("v_proj_weight", {embed_dim, vdim});
    for (const Tensor& w : {q_proj_weight, k_proj_weight, v_proj_weight}) init::xavier_uniform_(w);
  }
  if (options.bias) in_proj_bias = new_parameter("in_proj_bias", {3 * embed_dim});
  register_module("out_proj", out_proj);
  if (options.add_bias_kv) {
    bias_k = new_parameter("bias_k", {1, 1, embed_dim});
    bias_v = new_parameter("bias_v", {1, 1, embed_dim});
    init::xavier_normal_(bias_k);
    init::xavier_normal_(bias_v);
  }
  if (!options.bias) return;
  init::zeros_(in_proj_bias);
  init::zeros_(out_proj.bias);
}

std::pair<Tensor, Tensor> MultiheadAttention::attend(const Tensor& query, const Tensor& key, const Tensor& value,
                                                     const AttentionMasks& masks, bool need_weights,
                                                     bool average) const {
  for (const Tensor* t : {&query, &key, &value})
    check<ShapeError>(t->dim() == 3 && (t != &query || t->size(2) == dim_), "MultiheadAttention",
                      "wants three dimensions, the last of ", dim_, ", got ", *t);
  const auto time_first = [&](const Tensor& t) { return options_.batch_first ? t.transpose(0, 1) : t; };
  // One tensor stays one: its three projections are then one product.
  const Tensor q = time_first(query), k = key.same_as(query) ? q : time_first(key),
               v = value.same_as(key) ? k : time_first(value);
  Tensor mask = masks.attn_mask;
  if (mask.defined()) {
    if (mask.dtype() == DType::boolean) mask = logical_not(mask);  // the record's true hides
    while (mask.dim() < 4) mask = mask.unsqueeze(0);
  }
  auto [y, weights] = multi_head_attention_forward(q, k, v,
                                                   {.num_heads = heads_,
                                                    .in_proj_weight = in_proj_weight,
                                                    .in_proj_bias = in_proj_bias,
                                                    .q_proj_weight = q_proj_weight,
                                                    .k_proj_weight = k_proj_weight,
                                                    .v_proj_weight = v_proj_weight,
                                                    .out_proj_weight = out_proj.weight,
                                                    .out_proj_bias = out_proj.bias,
                                                    .bias_k = bias_k,
                                                    .bias_v = bias_v,
                                                    .add_zero_attn = options_.add_zero_attn,
                                                    .dropout_p = options_.dropout,
                                                    .training = is_training(),
                                                    .key_padding_mask = masks.key_padding_mask,
                                                    .attn_mask = mask,
                                                    .is_causal = masks.is_causal,
                                                    .need_weights = need_weights,
                                                    .average_attn_weights = average});
  return {time_first(y), weights};
}

KvCache KvCache::create(int64_t batch, int64_t kv_heads, int64_t capacity, int64_t head_size, DType dtype) {
  const Shape shape{batch, kv_heads, capacity, head_size};
  return {empty(shape, dtype), empty(shape, dtype), 0};
}

// Rows 0 .. of rotary_tables() on the device and in the dtype that were last asked for.
struct SelfAttention::RotaryTables {
  std::mutex mutex;
  Tensor cosines, sines;

  std::tuple<Tensor, Tensor> rows(int64_t offset, int64_t time, int64_t dim, double base, const Tensor& like) {
    const DType dtype = statistic_dtype(like.dtype());
    const std::lock_guard lock(mutex);
    if (!cosines.defined() || cosines.size(0) < offset + time || cosines.dtype() != dtype ||
        !(cosines.device() == like.device())) {
      const NoGrad guard;
      const DeviceScope there(like.device());
      // A text that grows by a token at a time gets new tables a few times only.
      const auto capacity = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(offset + time)));
      std::tie(cosines, sines) = rotary_tables(capacity, dim, base, 0, dtype);
    }
    return {cosines.narrow(0, offset, time), sines.narrow(0, offset, time)};
  }
};

SelfAttention::SelfAttention(int64_t dim, int64_t heads, const SelfAttentionOptions& options)
    : Module("SelfAttention", cat("heads=", heads, ", kv_heads=", options.kv_heads > 0 ? options.kv_heads : heads)),
      qkv(register_module("qkv", Linear(dim,
                                        (heads + 2 * (options.kv_heads > 0 ? options.kv_heads : heads)) *
                                            checked_head_size("SelfAttention", dim, heads),
                                        options.bias))),
      out(register_module("out", Linear(dim, dim, options.bias))),
      heads_(heads),
      kv_heads_(options.kv_heads > 0 ? options.kv_heads : heads),
      head_size_(dim / heads),
      options_(options),
      tables_(options.rope_base ? std::make_shared<RotaryTables>() : nullptr) {
  check(heads_ % kv_heads_ == 0, "SelfAttention", "kv_heads ", kv_heads_, " does not divide heads ", heads_);
  check(!options.rope_base || head_size_ % 2 == 0, "SelfAttention", "rotary positions turn pairs, but the head size ",
        head_size_, " is odd");
}

Tensor SelfAttention::rotate(const Tensor& x, int64_t offset) const {
  const auto [cosines, sines] = tables_->rows(offset, x.size(2), head_size_, *options_.rope_base, x);
  return rotary(x, cosines, sines);
}

Tensor SelfAttention::forward(const Tensor& x, KvCache* cache) const {
  check<ShapeError>(x.dim() == 3, "SelfAttention", "wants [B, T, dim], got ", x);
  const int64_t time = x.size(1);
  const Tensor packed = qkv(x);
  AttentionOptions options{.is_causal = options_.causal, .dropout_p = is_training() ? options_.dropout : 0.0};
  if (!cache && options_.rope_base) {
    const auto [cosines, sines] = tables_->rows(0, time, head_size_, *options_.rope_base, packed);
    return out(packed_attention(packed_rotary(packed, cosines, sines, heads_, kv_heads_), heads_, kv_heads_, options));
  }
  if (!cache) return out(packed_attention(packed, heads_, kv_heads_, options));

  const Tensor heads = split_heads(packed, heads_ + 2 * kv_heads_);
  const int64_t offset = cache ? cache->length : 0;
  Tensor q = heads.narrow(1, 0, heads_), k = heads.narrow(1, heads_, kv_heads_);
  Tensor v = heads.narrow(1, heads_ + kv_heads_, kv_heads_);
  if (options_.rope_base) {
    const Tensor turned = rotate(heads.narrow(1, 0, heads_ + kv_heads_), offset);
    q = turned.narrow(1, 0, heads_);
    k = turned.narrow(1, heads_, kv_heads_);
  }
  if (cache) {
    check(offset + time <= cache->k.size(2), "SelfAttention", "the cache has room for ", cache->k.size(2),
          " positions, ", offset, " are filled and ", time, " more came");
    NoGrad guard;
    cache->k.narrow(2, offset, time).copy_(k);
    cache->v.narrow(2, offset, time).copy_(v);
    cache->length = offset + time;
    k = cache->k.narrow(2, 0, cache->length);
    v = cache->v.narrow(2, 0, cache->length);
    options.query_offset = offset;
  }
  return out(join_heads(scaled_dot_product_attention(q, k, v, {}, options)));
}

}  // namespace strata::nn
