#include "strata/nn/attention.h"

#include <cmath>

#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/dist/collectives/own_parts_inl.h"
#include "strata/dist/collectives/placed.h"
#include "strata/nn/hooks.h"
#include "strata/nn/init.h"
#include "strata/nn/window_ring_inl.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/attention/multi_head_attention.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/generation/generation.h"
#include "strata/ops/join/join.h"
#include "strata/ops/join/segments_inl.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/view/view.h"

namespace strata::nn {
namespace {

int64_t checked_head_size(std::string_view op, int64_t dim, int64_t heads) {
  check(dim > 0 && heads > 0 && dim % heads == 0, op, heads, " heads do not divide ", dim, " dimensions");
  return dim / heads;
}

// [B, n, T, D] to [B, T, n D].
Tensor join_heads(const Tensor& x) {
  return x.transpose(1, 2).flatten(2);
}

const AttentionSpec& checked(const AttentionSpec& s) {
  constexpr const char* op = "SelfAttention";
  check(s.heads > 0 && s.kv_heads > 0 && s.heads % s.kv_heads == 0, op, "kv_heads ", s.kv_heads,
        " does not divide heads ", s.heads);
  check(!s.latent || (s.latent->kv_rank > 0 && s.latent->q_rank >= 0 && s.latent->rope_size > 0 &&
                      s.latent->rope_size < s.head_size && s.kv_heads == s.heads),
        op, "a latent wants kv_rank, rope_size below head_size, and as many kv_heads as heads");
  check(s.head_size > 0 && s.value_size > 0, op, "head_size is ", s.head_size, ", value_size ", s.value_size);
  return s;
}

// Rows of the first product.
int64_t packed_width(const AttentionSpec& s) {
  if (!s.latent) return s.heads * s.head_size + s.kv_heads * (s.head_size + s.value_size);
  return (s.latent->q_rank > 0 ? s.latent->q_rank : s.heads * s.head_size) + s.latent->kv_rank + s.latent->rope_size;
}

// x [B, T, n, D] turned.
Tensor turned(const Tensor& x, const Turns& turns, bool by_row) {
  if (!by_row) return rotary(x.transpose(1, 2), turns.cos, turns.sin, turns.interleaved).transpose(1, 2);
  const Tensor rows = x.reshape({x.size(0) * x.size(1), x.size(2), x.size(3)}).transpose(0, 1);
  return rotary(rows, turns.cos, turns.sin, turns.interleaved).transpose(0, 1).reshape(x.shape());
}

// k and v [B, T, n, D] behind what each text has.
void write(KvCache& cache, const Tensor& k, const Tensor& v, const Places& places) {
  const NoGrad guard;
  cache_write_(cache.k, k.transpose(1, 2).to(cache.k.dtype()), places.starts, places.counts);
  cache_write_(cache.v, v.transpose(1, 2).to(cache.v.dtype()), places.starts, places.counts);
}

using detail::WindowRing;

// The ring that a cache is; nothing of one that has a place for every position.
std::optional<WindowRing> ring_of(const AttentionSpec& spec, const KvCache& cache) {
  if (spec.window == 0 || spec.latent) return {};
  const WindowRing ring = WindowRing::of(spec.window);
  return cache.k.size(2) == ring.places() ? std::optional(ring) : std::nullopt;
}

// Its turn where `t` is: made there, so that a graph may replay what reads it.
Tensor turn_beside(const WindowRing& ring, const Tensor& t) {
  const DeviceScope there(t.device());
  return full({}, ring.turn(), DType::i64);
}

// k and v [B, T <= chunk, n, D] of positions starts[b] + t.
void write(KvCache& cache, const WindowRing& ring, const Tensor& k, const Tensor& v, Places places) {
  const Tensor first = remainder(places.starts, turn_beside(ring, places.starts));
  places.starts = first + ring.chunk;
  write(cache, k, v, places);
  places.starts = first + (ring.chunk + ring.turn());
  write(cache, k, v, places);
  if (k.size(1) == 1) return;
  places.starts = clamp_min(first + (ring.chunk - ring.turn()), 0);
  write(cache, k, v, places);
}

// Where the queries of such a chunk are in what is read of the ring: [B].
Tensor queries_of(const WindowRing& ring, const Tensor& starts, int64_t time) {
  const Tensor last = starts + (time - 1), turn = turn_beside(ring, starts);
  return where(lt(last, turn), starts, remainder(last, turn) + (ring.turn() - time + 1));
}

// The tokens of a call by chunks: f(first, count, places of theirs).
template <class F>
void by_chunks(const WindowRing& ring, int64_t time, const Places& places, F&& f) {
  for (int64_t at = 0; at < time; at += ring.chunk) {
    Places own;
    own.starts = places.starts + at;
    if (places.counts.defined()) own.counts = places.counts - at;
    f(at, std::min(ring.chunk, time - at), own);
  }
}

const Turns* turns_for(const AttentionSpec& spec, const Places& places) {
  if (spec.rotary < 0) return nullptr;
  check(static_cast<size_t>(spec.rotary) < places.turns.size(), "SelfAttention", "wants the turns of rotary ",
        spec.rotary, ", got those of ", places.turns.size());
  return &places.turns[static_cast<size_t>(spec.rotary)];
}

// Of positions in parts, heads first. Where tensor parallelism has cut the heads each rank attends with its own.
Tensor attend_in_parts(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o,
                       const distributed::ContextParallel& context) {
  if (!is_placed(q)) return distributed::context_attention(q, k, v, o, context);
  const auto by_heads = [](const Tensor& t) { return distributed::redistribute(t, "S(1)"); };
  const auto own = [&](const Tensor& t) { return distributed::detail::own_part(by_heads(t)); };
  const Tensor queries = by_heads(q);
  const LayoutRef& layout = layout_of(queries);
  const int64_t all = q.size(1), first = layout->stretches(1, all, layout->places())[0].begin;
  const Tensor y =
      distributed::context_attention(distributed::detail::own_part(queries), own(k), own(v), o, context, {first, all});
  return distributed::detail::joined_parts(y, {q.size(0), all, q.size(2), v.size(3)}, layout);
}

// Of heads first, [B, n, T, D]; `cached` keys are those of a cache.
Tensor attend_heads(const AttentionSpec& spec, bool training, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Places& places, bool cached) {
  if (cached && places.seen.defined())
    return join_heads(
        scaled_dot_product_attention(q, k, v, places.seen, {.scale = spec.scale, .logit_soft_cap = spec.soft_cap}));
  if (cached)
    return join_heads(cache_attention(q, k, v, places.queries,
                                      {.scale = spec.scale, .window = spec.window, .logit_soft_cap = spec.soft_cap}));
  const AttentionOptions o{.is_causal = spec.causal,
                           .scale = spec.scale,
                           .window = spec.window,
                           .dropout_p = training ? spec.dropout : 0.0,
                           .logit_soft_cap = spec.soft_cap};
  if (places.context) return join_heads(attend_in_parts(q, k, v, o, *places.context));
  return join_heads(scaled_dot_product_attention(q, k, v, places.seen, o));
}

// Whether attention over the compressed keys takes fewer operations than making heads' keys and values of them first.
// Where something else than the weights of kv_up decides what it gives, it is called. On a card attention to so wide a
// key (kv_rank + rope_size numbers) has no kernel that shares one head's keys among blocks, and making them is cheap.
bool absorbing_is_less(const SelfAttention& a, const Tensor& small, int64_t queries, int64_t keys) {
  if (has_forward_hooks(*a.kv_up) || !small.device().is_cpu()) return false;
  const AttentionSpec& s = a.spec();
  const LatentSpec& l = *s.latent;
  const int64_t up = l.kv_rank * (s.head_size - l.rope_size + s.value_size);
  const int64_t absorbed = queries * (up + keys * (2 * l.kv_rank + l.rope_size));
  return absorbed < keys * (up + queries * (s.head_size + s.value_size));
}

// A head's scores q . (K c) are (K^T q) . c, and its sums of values V c are V of sums of c: queries are mapped to the
// compressed space, which all heads then share as keys and values (DeepSeek-V2, arXiv:2405.04434, section 2.1.2).
// q [B, T, H, head_size], turned; small [B, 1, C, kv_rank] and shared [B, 1, C, rope_size]: [B, T, H value_size].
Tensor absorbed(const SelfAttention& a, const Tensor& q, const Tensor& small, const Tensor& shared,
                const Places& places) {
  const AttentionSpec& s = a.spec();
  const LatentSpec& l = *s.latent;
  const int64_t batch = q.size(0), time = q.size(1), plain = s.head_size - l.rope_size;
  const Tensor up = a.kv_up->weight.view({s.heads, plain + s.value_size, l.kv_rank});
  const Tensor rows = q.narrow(3, 0, plain).reshape({batch * time, s.heads, plain}).transpose(0, 1);
  const Tensor mapped = matmul(rows, up.narrow(1, 0, plain)).transpose(0, 1).reshape({batch, time, s.heads, l.kv_rank});
  const Tensor queries = strata::cat({mapped, q.narrow(3, plain, l.rope_size)}, 3).to(small.dtype());
  const Tensor keys = strata::cat({small, shared}, 3);
  const double scale = s.scale.value_or(1 / std::sqrt(static_cast<double>(s.head_size)));
  Tensor sums;  // [B, H, T, kv_rank]
  if (time == 1 && s.window == 0) {
    // All heads ask the same keys from the same place: they are the queries of one head, which reads the cache once.
    AttentionOptions o;
    o.scale = scale;
    o.logit_soft_cap = s.soft_cap;
    o.key_lengths = places.queries + 1;
    sums = scaled_dot_product_attention(queries, keys, small, {}, o).transpose(1, 2);
  } else {
    sums = cache_attention(queries.transpose(1, 2), keys, small, places.queries,
                           {.scale = scale, .window = s.window, .logit_soft_cap = s.soft_cap});
  }
  const Tensor by_head = sums.to(q.dtype()).transpose(0, 1).reshape({s.heads, batch * time, l.kv_rank});
  return matmul(by_head, up.narrow(1, plain, s.value_size).transpose(1, 2))
      .transpose(0, 1)
      .reshape({batch, time, s.heads * s.value_size});
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

KvCache KvCache::create(int64_t batch, int64_t kv_heads, int64_t capacity, int64_t head_size, int64_t value_size,
                        DType dtype) {
  return {zeros({batch, kv_heads, capacity, head_size}, dtype), zeros({batch, kv_heads, capacity, value_size}, dtype)};
}

SelfAttention::SelfAttention(int64_t dim, const AttentionSpec& spec)
    : Module("SelfAttention", cat("heads=", spec.heads, ", kv_heads=", spec.kv_heads)),
      qkv(register_module("qkv", Linear(dim, packed_width(checked(spec)), spec.bias))),
      out(register_module("out", Linear(spec.heads * spec.value_size, dim, spec.out_bias))),
      spec_(spec) {
  if (spec.bias && !spec.key_bias)
    init::zeros_(qkv.bias.narrow(0, spec.heads * spec.head_size, spec.kv_heads * spec.head_size));
  if (spec.latent) {
    const LatentSpec& l = *spec.latent;
    const NormSpec norm = spec.query_key_norm.value_or(NormSpec{.kind = NormSpec::Kind::rms});
    if (l.q_rank > 0) {
      q_norm = register_module("q_norm", Norm(l.q_rank, norm));
      q_up = register_module("q_up", Linear(l.q_rank, spec.heads * spec.head_size, false));
    }
    k_norm = register_module("k_norm", Norm(l.kv_rank, norm));
    const int64_t plain = spec.head_size - l.rope_size;
    kv_up = register_module("kv_up", Linear(l.kv_rank, spec.heads * (plain + spec.value_size), false));
    return;
  }
  if (!spec.query_key_norm) return;
  const int64_t q_width = spec.norm_whole_width ? spec.heads * spec.head_size : spec.head_size;
  const int64_t k_width = spec.norm_whole_width ? spec.kv_heads * spec.head_size : spec.head_size;
  q_norm = register_module("q_norm", Norm(q_width, *spec.query_key_norm));
  k_norm = register_module("k_norm", Norm(k_width, *spec.query_key_norm));
}

KvCache SelfAttention::make_cache(int64_t batch, int64_t capacity, DType dtype) const {
  if (spec_.latent) return KvCache::create(batch, 1, capacity, spec_.latent->kv_rank, spec_.latent->rope_size, dtype);
  if (spec_.window > 0) {
    const int64_t places = WindowRing::of(spec_.window).places();
    // One with a place for every position is told from a ring by its size.
    capacity = capacity > places ? places : capacity == places ? places + 1 : capacity;
  }
  return KvCache::create(batch, spec_.kv_heads, capacity, spec_.head_size, spec_.value_size, dtype);
}

Tensor SelfAttention::forward(const Tensor& x, const Places& places, KvCache* cache) const {
  check<ShapeError>(x.dim() == 3, "SelfAttention", "wants [B, T, dim], got ", x);
  if (spec_.latent) return latent(x, places, cache);
  const auto [heads, kv_heads] = std::pair(spec_.heads, spec_.kv_heads);
  const int64_t batch = x.size(0), time = x.size(1), d = spec_.head_size, dv = spec_.value_size;
  const Turns* turns = turns_for(spec_, places);
  Tensor packed = qkv(x);
  // Queries and keys turn where they lie, unless they are changed before or their values have another size.
  const bool in_place = !q_norm && d == dv && !(turns && turns->interleaved);
  if (in_place && turns) {
    packed = places.turns_by_row ? packed_rotary(packed.view({1, batch * time, packed.size(2)}), turns->cos, turns->sin,
                                                 heads, kv_heads)
                                       .view(packed.shape())
                                 : packed_rotary(packed, turns->cos, turns->sin, heads, kv_heads);
  }
  check(!places.context || (!cache && !places.seen.defined()), "SelfAttention",
        "positions in parts have neither a cache nor a mask");
  if (in_place && !cache && !places.seen.defined() && !places.context)
    return out(packed_attention(packed, heads, kv_heads,
                                {.is_causal = spec_.causal,
                                 .scale = spec_.scale,
                                 .window = spec_.window,
                                 .dropout_p = is_training() ? spec_.dropout : 0.0,
                                 .logit_soft_cap = spec_.soft_cap}));

  const TensorList parts = strata::detail::segments_of(packed, {heads * d, kv_heads * d, kv_heads * dv}, 2);
  Tensor q = parts[0], k = parts[1];
  if (q_norm && spec_.norm_whole_width) {
    q = (*q_norm)(q);
    k = (*k_norm)(k);
  }
  q = q.view({batch, time, heads, d});
  k = k.view({batch, time, kv_heads, d});
  if (q_norm && !spec_.norm_whole_width) {
    q = (*q_norm)(q);
    k = (*k_norm)(k);
  }
  Tensor v = parts[2].view({batch, time, kv_heads, dv});
  if (turns && !in_place) {
    q = turned(q, *turns, places.turns_by_row);
    k = turned(k, *turns, places.turns_by_row);
  }
  q = q.transpose(1, 2);
  if (const std::optional<WindowRing> ring = cache ? ring_of(spec_, *cache) : std::nullopt) {
    const NoGrad guard;
    check(places.first || !places.seen.defined(), "SelfAttention", "a cache of a window has no mask beside it");
    std::vector<Tensor> parts;
    by_chunks(*ring, time, places, [&](int64_t at, int64_t n, Places own) {
      write(*cache, *ring, k.narrow(1, at, n), v.narrow(1, at, n), own);
      if (places.first) return;
      own.queries = queries_of(*ring, own.starts, n);
      const auto turning = [&](const Tensor& t) { return t.narrow(2, ring->chunk, 2 * ring->turn()); };
      parts.push_back(
          attend_heads(spec_, is_training(), q.narrow(2, at, n), turning(cache->k), turning(cache->v), own, true));
    });
    if (!places.first) return out(parts.size() == 1 ? parts[0] : strata::cat(parts, 1));
  } else if (cache) {
    write(*cache, k, v, places);
  }
  if (!cache || places.first)
    return out(attend_heads(spec_, is_training(), q, k.transpose(1, 2), v.transpose(1, 2), places, false));
  return out(attend_heads(spec_, is_training(), q, cache->k.narrow(2, 0, places.reach),
                          cache->v.narrow(2, 0, places.reach), places, true));
}

Tensor SelfAttention::latent(const Tensor& x, const Places& places, KvCache* cache) const {
  const LatentSpec& l = *spec_.latent;
  const int64_t batch = x.size(0), time = x.size(1), heads = spec_.heads, plain = spec_.head_size - l.rope_size;
  const int64_t first = l.q_rank > 0 ? l.q_rank : heads * spec_.head_size;
  const Turns* turns = turns_for(spec_, places);
  const Tensor packed = qkv(x);
  Tensor q = packed.narrow(2, 0, first);
  if (q_up) q = (*q_up)((*q_norm)(q));
  q = q.view({batch, time, heads, spec_.head_size});
  Tensor small = (*k_norm)(packed.narrow(2, first, l.kv_rank)).view({batch, time, 1, l.kv_rank});
  Tensor shared = packed.narrow(2, first + l.kv_rank, l.rope_size).view({batch, time, 1, l.rope_size});
  if (turns) {
    q = strata::cat({q.narrow(3, 0, plain), turned(q.narrow(3, plain, l.rope_size), *turns, places.turns_by_row)}, 3);
    shared = turned(shared, *turns, places.turns_by_row);
  }
  const bool cached = cache && !places.first;
  if (cache) write(*cache, small, shared, places);
  if (cached && absorbing_is_less(*this, cache->k, time, places.reach))
    return out(absorbed(*this, q, cache->k.narrow(2, 0, places.reach), cache->v.narrow(2, 0, places.reach), places));
  if (cached) {
    small = cache->k.narrow(2, 0, places.reach).transpose(1, 2);
    shared = cache->v.narrow(2, 0, places.reach).transpose(1, 2);
  }
  const int64_t keys = small.size(1);
  const Tensor both =
      (*kv_up)(small.reshape({batch, keys, l.kv_rank})).view({batch, keys, heads, plain + spec_.value_size});
  const Tensor k = strata::cat({both.narrow(3, 0, plain), shared.expand({batch, keys, heads, l.rope_size})}, 3);
  const Tensor v = both.narrow(3, plain, spec_.value_size);
  return out(
      attend_heads(spec_, is_training(), q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), places, cached));
}

}  // namespace strata::nn
