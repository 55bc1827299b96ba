#include "strata/nn/cross_attention.h"

#include <cmath>

#include "strata/core/error.h"
#include "strata/nn/init.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/softmax/softmax.h"

namespace strata::nn {
namespace {

constexpr std::string_view kOp = "CrossAttention";

const AttentionSpec& checked(const AttentionSpec& s) {
  check(s.heads > 0 && s.kv_heads > 0 && s.heads % s.kv_heads == 0, kOp, "kv_heads ", s.kv_heads,
        " does not divide heads ", s.heads);
  check(s.head_size > 0 && s.value_size > 0, kOp, "head_size is ", s.head_size, ", value_size ", s.value_size);
  check(!s.query_key_norm && !s.latent, kOp, "has no norms of queries and keys, and no latent");
  return s;
}

const LayerSpec& checked(const LayerSpec& s) {
  check(s.placement == NormPlacement::before && !s.layer_scale, "CrossBlock",
        "has norms before its parts, and no layer_scale");
  return s;
}

// [B, T, n D] to [B, n, T, D].
Tensor heads_of(const Tensor& x, int64_t heads, int64_t size) {
  return x.view({x.size(0), x.size(1), heads, size}).transpose(1, 2);
}

}  // namespace

CrossAttention::CrossAttention(int64_t dim, const AttentionSpec& spec)
    : Module("CrossAttention", cat("heads=", spec.heads, ", kv_heads=", spec.kv_heads)),
      q(register_module("q", Linear(dim, checked(spec).heads * spec.head_size, spec.bias))),
      kv(register_module("kv", Linear(dim, spec.kv_heads * (spec.head_size + spec.value_size), spec.bias))),
      out(register_module("out", Linear(spec.heads * spec.value_size, dim, spec.out_bias))),
      spec_(spec) {
  if (spec.bias && !spec.key_bias) init::zeros_(kv.bias.narrow(0, 0, spec.kv_heads * spec.head_size));
}

KvCache CrossAttention::keys(const Tensor& source) const {
  check<ShapeError>(source.dim() == 3, kOp, "wants a source [B, S, dim], got ", source);
  const Tensor both = kv(source);
  const int64_t k = spec_.kv_heads * spec_.head_size, v = spec_.kv_heads * spec_.value_size;
  return {heads_of(both.narrow(2, 0, k), spec_.kv_heads, spec_.head_size),
          heads_of(both.narrow(2, k, v), spec_.kv_heads, spec_.value_size)};
}

Tensor CrossAttention::forward(const Tensor& x, const KvCache& source, const Tensor& seen) const {
  check<ShapeError>(x.dim() == 3, kOp, "wants [B, T, dim], got ", x);
  const Tensor y = scaled_dot_product_attention(
      heads_of(q(x), spec_.heads, spec_.head_size), source.k, source.v, seen,
      {.scale = spec_.scale, .dropout_p = is_training() ? spec_.dropout : 0.0, .logit_soft_cap = spec_.soft_cap});
  return out(y.transpose(1, 2).flatten(2));
}

Tensor CrossAttention::weights(const Tensor& x, const KvCache& source) const {
  check<ShapeError>(x.dim() == 3, kOp, "wants [B, T, dim], got ", x);
  const int64_t groups = spec_.heads / spec_.kv_heads;
  const Tensor queries = heads_of(q(x), spec_.heads, spec_.head_size);
  const Tensor keys = groups == 1 ? source.k : repeat_interleave(source.k, groups, 1);
  const double scale = spec_.scale.value_or(1 / std::sqrt(static_cast<double>(spec_.head_size)));
  Tensor scores = matmul(queries, keys.transpose(2, 3)) * scale;
  if (spec_.soft_cap > 0) scores = tanh(scores / spec_.soft_cap) * spec_.soft_cap;
  return softmax(scores, -1);
}

CrossBlock::CrossBlock(int64_t dim, const LayerSpec& spec)
    : Module("CrossBlock"),
      norm1(register_module("norm1", Norm(dim, checked(spec).norm))),
      attn(register_module("attn", SelfAttention(dim, spec.attention))),
      norm2(register_module("norm2", Norm(dim, spec.norm))),
      cross(register_module("cross", CrossAttention(dim, spec.attention))),
      norm3(register_module("norm3", Norm(dim, spec.norm))),
      mlp(register_module("mlp", FeedForward(dim, spec.feed_forward))),
      dropout(register_module("dropout", Dropout(spec.dropout))) {}

Residual CrossBlock::step(const Residual& r, const Source& source, const Places& places, KvCache* cache) const {
  const auto [normed, stream] = add_norm(norm1, r);
  const auto [normed2, stream2] = add_norm(norm2, {dropout(attn(normed, places, cache)), stream});
  if (source.reader != nullptr) *source.reader = normed2;
  const auto [normed3, stream3] = add_norm(norm3, {dropout(cross(normed2, source.keys, source.seen)), stream2});
  return {dropout(mlp(normed3)), stream3};
}

}  // namespace strata::nn
