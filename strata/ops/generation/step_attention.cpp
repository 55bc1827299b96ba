// The record of rotary_cache_attention.

#include "strata/ops/generation/step_attention.h"

#include <algorithm>
#include <cmath>

#include "strata/ops/attention/attention.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/generation/generation.h"
#include "strata/ops/generation/generation_records_inl.h"
#include "strata/ops/generation/step_attention_cuda.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {
using generation::ids;

constexpr std::string_view kOp = "rotary_cache_attention";
using Triple = std::tuple<Tensor, Tensor, Tensor>;

int64_t heads_of(const Tensor& packed, const Tensor& k) {
  return packed.size(2) / std::max<int64_t>(1, k.size(3)) - 2 * k.size(1);
}

std::array<TensorMeta, 3> infer(const Tensor& k, const Tensor& v, const Tensor& packed, const Tensor& cos,
                                const Tensor& sin, const Tensor& starts, const Tensor& counts,
                                std::optional<double> scale, int64_t window, double soft_cap) {
  check<ShapeError>(k.dim() == 4 && v.shape() == k.shape(), kOp, "k and v are one shape [B, Hkv, C, D], got ", k,
                    " and ", v);
  const int64_t batch = k.size(0), kv_heads = k.size(1), d = k.size(3);
  check<ShapeError>(kv_heads > 0 && d > 0 && k.size(2) > 0, kOp, "the cache is empty: ", k);
  check<ShapeError>(packed.dim() == 3 && packed.size(0) == batch && packed.size(1) == 1 && packed.size(2) % d == 0, kOp,
                    "packed is ", packed, ", wants [", batch, ", 1, (H + ", 2 * kv_heads, ") ", d, "]");
  const int64_t heads = heads_of(packed, k);
  check<ShapeError>(heads > 0 && heads % kv_heads == 0, kOp, "packed ", packed, " has ", heads, " heads for ", kv_heads,
                    " of the cache");
  check<ShapeError>(cos.dim() == 2 && cos.size(0) == batch && 2 * cos.size(1) <= d && sin.shape() == cos.shape(), kOp,
                    "cos and sin are [", batch, ", P], P at most ", d / 2, ", got ", cos, " and ", sin);
  check<DTypeError>(is_floating(k.dtype()) && v.dtype() == k.dtype() && packed.dtype() == k.dtype(), kOp,
                    "needs one floating dtype, got ", k, ", ", v, " and ", packed);
  for (const Tensor* t : {&cos, &sin})
    check<DTypeError>(t->dtype() == statistic_dtype(k.dtype()), kOp, "cos and sin are ", statistic_dtype(k.dtype()),
                      ", got ", *t);
  for (const Tensor* t : {&v, &packed, &cos, &sin})
    check<DeviceError>(t->device() == k.device(), kOp, "k is on ", k.device(), ", got ", *t);
  generation::check_rows(starts, "starts", batch, DType::i64, k, kOp);
  if (counts.defined()) generation::check_rows(counts, "counts", batch, DType::i64, k, kOp);
  check(window >= 0 && window < INT32_MAX, kOp, "window must be from 0 to 2^31, got ", window);
  check(soft_cap >= 0 && std::isfinite(soft_cap), kOp, "logit_soft_cap must not be negative, got ", soft_cap);
  check(!scale || std::isfinite(*scale), kOp, "scale must be finite, got ", scale.value_or(0));
  return {like(packed).with_shape({batch, 1, heads * d}), like(k), like(v)};
}

Triple by_ops(const Tensor& k, const Tensor& v, const Tensor& packed, const Tensor& cos, const Tensor& sin,
              const Tensor& starts, const Tensor& counts, std::optional<double> scale, int64_t window,
              double soft_cap) {
  const int64_t batch = k.size(0), kv_heads = k.size(1), d = k.size(3), heads = heads_of(packed, k);
  const Tensor turned = packed_rotary(packed.reshape({1, batch, packed.size(2)}), cos, sin, heads, kv_heads);
  const auto part = [&](int64_t first, int64_t count) {
    return narrow(turned, 2, first * d, count * d).reshape({batch, count, 1, d});
  };
  const Tensor key = part(heads, kv_heads), value = part(heads + kv_heads, kv_heads);
  const Tensor keys = cache_write(k, key, starts), values = cache_write(v, value, starts);
  const Tensor y = cache_attention(part(0, heads), keys, values, starts,
                                   {.scale = scale, .window = window, .logit_soft_cap = soft_cap});
  if (!counts.defined()) return {y.reshape({batch, 1, heads * d}), keys, values};
  return {y.reshape({batch, 1, heads * d}), cache_write(k, key, starts, counts), cache_write(v, value, starts, counts)};
}

#ifdef STRATA_WITH_CUDA
bool step(Tensor& y, Tensor& k, Tensor& v, const Tensor& packed, const Tensor& cos, const Tensor& sin,
          const Tensor& starts, const Tensor& counts, std::optional<double> scale, int64_t window, double soft_cap) {
  const double factor = scale ? *scale : 1 / std::sqrt(static_cast<double>(k.size(3)));
  return generation::step_attention_cuda(y, k, v, {packed, cos, sin, starts, counts, factor, soft_cap, window});
}
#endif

void run(auto on, Tensor& y, Tensor& keys, Tensor& values, const Tensor& k, const Tensor& v, const Tensor& packed,
         const Tensor& cos, const Tensor& sin, const Tensor& starts, const Tensor& counts, std::optional<double> scale,
         int64_t window, double soft_cap) {
  if (y.numel() == 0) return;
#ifdef STRATA_WITH_CUDA
  if constexpr (on.cuda) {
    copy_elements(keys, k);
    copy_elements(values, v);
    if (step(y, keys, values, packed, cos, sin, starts, counts, scale, window, soft_cap)) return;
  }
#endif
  const auto [attended, new_keys, new_values] = by_ops(k, v, packed, cos, sin, starts, counts, scale, window, soft_cap);
  copy_elements(y, attended);
  copy_elements(keys, new_keys);
  copy_elements(values, new_values);
}

void add_samples(Samples& s) {
  const auto none = std::nullopt;
  const DType t = statistic_dtype(s.dtype());
  const auto add = [&](int64_t batch, int64_t heads, int64_t kv_heads, int64_t d, int64_t capacity, int64_t pairs) {
    return std::array{s.tensor({batch, kv_heads, capacity, d}), s.tensor({batch, kv_heads, capacity, d}),
                      s.tensor({batch, 1, (heads + 2 * kv_heads) * d}), s.tensor({batch, pairs}, t),
                      s.tensor({batch, pairs}, t)};
  };
  auto a = add(2, 4, 2, 8, 9, 4);
  s.add(a[0], a[1], a[2], a[3], a[4], ids({8, 3}));
  a = add(3, 6, 3, 16, 40, 8);
  s.add(a[0], a[1], a[2], a[3], a[4], ids({39, 0, 17}), ids({1, 0, 1})).named("counts");
  a = add(2, 8, 2, 64, 300, 32);
  s.add(a[0], a[1], a[2], a[3], a[4], ids({299, 120}), none, 0.2, 130, 3.0).named("scale, window, soft cap");
  a = add(1, 4, 1, 48, 20, 8);
  s.add(a[0], a[1], a[2], a[3], a[4], ids({11})).named("turned in part");
  a = add(1, 2, 2, 8, 1, 4);
  s.add(a[0], a[1], a[2], a[3], a[4], ids({0})).named("one place");
  a = add(2, 4, 2, 8, 9, 4);
  s.invalid<ShapeError>("one shape", a[0], s.tensor({2, 2, 9, 4}), a[2], a[3], a[4], ids({1, 1}));
  s.invalid<ShapeError>("packed is", a[0], a[1], s.tensor({2, 1, 63}), a[3], a[4], ids({1, 1}));
  s.invalid<ShapeError>("heads for", a[0], a[1], s.tensor({2, 1, 32}), a[3], a[4], ids({1, 1}));
  s.invalid<ShapeError>("cos and sin are", a[0], a[1], a[2], s.tensor({2, 5}, t), s.tensor({2, 5}, t), ids({1, 1}));
  s.invalid<ShapeError>("starts is", a[0], a[1], a[2], a[3], a[4], ids({1}));
  s.invalid<ValueError>("window", a[0], a[1], a[2], a[3], a[4], ids({1, 1}), none, none, -1);
  if (s.benchmarking()) {
    a = add(1, 32, 8, 128, 2048, 64);
    s.bench(a[0], a[1], a[2], a[3], a[4], ids({2000}));
  }
}

const Op<Triple(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                std::optional<double>, int64_t, double)>
    rotary_cache_attention_op{{
        .schema = "rotary_cache_attention(Tensor k, Tensor v, Tensor packed, Tensor cos, Tensor sin, Tensor starts, "
                  "Tensor? counts=None, float? scale=None, int window=0, float logit_soft_cap=0.0) -> (Tensor y, "
                  "Tensor keys, Tensor values)",
        .shard = "whole",
        .internal = true,
        .doc = "What a decoder's step does between two products: packed [B, 1, (H + 2 Hkv) D] has queries, keys and "
               "values of heads beside one another; queries and keys turn by cos and sin [B, P] (packed_rotary), keys "
               "and values stand at place starts[b] (i64 [B]) of the cache k, v [B, Hkv, C, D] (cache_write, with "
               "counts only where they are above 0), and queries attend to the places up to that (cache_attention; of "
               "a text that is not written as if it were): [B, 1, H D], and the cache. IndexError (on the CPU) where "
               "a place is not below C; ShapeError, DTypeError, ValueError. Not differentiable.",
        .example = "const Tensor cache = zeros({1, 1, 3, 2}), one = ones({1, 1}), at = zeros({1}, DType::i64); "
                   "const RotaryCacheAttentionOptions last{.window = 2}; "
                   "const auto [y, k, v] = rotary_cache_attention(cache, cache, ones({1, 1, 6}), one, one - 1, at, {}, "
                   "last); assert(y.to_vector<float>() == std::vector<float>({1, 1}));",
        .infer = infer,
        .kernels = on_each_device([](auto on, auto&&... all) { run(on, all...); }),
        .cost =
            [](const Tensor& k, const Tensor&, const Tensor& packed, const Tensor&, const Tensor&, const Tensor&,
               const Tensor&, std::optional<double>, int64_t, double) {
              const double pairs = static_cast<double>(packed.numel()) * static_cast<double>(k.size(2));
              return Cost{4 * pairs, static_cast<double>(4 * k.nbytes() + 2 * packed.nbytes())};
            },
        .samples = add_samples,
        .reference = by_ops,
        .tolerance = 16,
        .tolerance_reason = "as cache_attention; queries and keys are rounded to their dtype when they have turned",
    }};

}  // namespace

std::tuple<Tensor, Tensor, Tensor> rotary_cache_attention(const Tensor& k, const Tensor& v, const Tensor& packed,
                                                          const Tensor& cos, const Tensor& sin, const Tensor& starts,
                                                          const Tensor& counts, const RotaryCacheAttentionOptions& o) {
  return rotary_cache_attention_op(k, v, packed, cos, sin, starts, counts, o.scale, o.window, o.logit_soft_cap);
}

Tensor rotary_cache_attention_(Tensor& k, Tensor& v, const Tensor& packed, const Tensor& cos, const Tensor& sin,
                               const Tensor& starts, const Tensor& counts, const RotaryCacheAttentionOptions& o) {
  [[maybe_unused]] const auto metas =
      infer(k, v, packed, cos, sin, starts, counts, o.scale, o.window, o.logit_soft_cap);
#ifdef STRATA_WITH_CUDA
  if (k.device().is_cuda()) {
    Tensor y = empty(metas[0]);
    if (step(y, k, v, packed, cos, sin, starts, counts, o.scale, o.window, o.logit_soft_cap)) return y;
  }
#endif
  return {};
}

}  // namespace strata
