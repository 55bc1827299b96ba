// The records of a cache of keys and values whose lengths are on the device.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "strata/ops/attention/attention.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/generation/decode_attention_cuda.h"
#include "strata/ops/generation/decode_attention_kernel.h"
#include "strata/ops/generation/generation_records_inl.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {
using generation::ids;
using naive::Array;

// ---- cache_write

constexpr std::string_view kWrite = "cache_write";

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&)> cache_write_op{{
    .schema = "cache_write(Tensor cache, Tensor x, Tensor starts, Tensor? counts=None) -> Tensor",
    .shard = "whole",
    .doc = "cache [B, H, C, D] with row i of x [B, H, T, D] at place starts[b] + i (i64 [B]); with counts (i64 [B]) "
           "only the first counts[b] rows. The starts are read on the device. IndexError where a place is not below C; "
           "ShapeError, DTypeError. Not differentiable.",
    .example = "Tensor y = cache_write(zeros({1, 1, 3, 1}), ones({1, 1, 1, 1}), full({1}, 2)); "
               "assert(y.to_vector<float>() == std::vector<float>({0, 0, 1}));",
    .infer =
        [](const Tensor& cache, const Tensor& x, const Tensor& starts, const Tensor& counts) {
          check<ShapeError>(cache.dim() == 4 && x.dim() == 4 && x.size(0) == cache.size(0) &&
                                x.size(1) == cache.size(1) && x.size(3) == cache.size(3),
                            kWrite, "needs a cache [B, H, C, D] and x [B, H, T, D], got ", cache, " and ", x);
          check<DTypeError>(x.dtype() == cache.dtype(), kWrite, "the cache is ", cache, ", x is ", x);
          check<DeviceError>(x.device() == cache.device(), kWrite, "the cache is on ", cache.device(), ", x on ",
                             x.device());
          generation::check_rows(starts, "starts", cache.size(0), DType::i64, cache, kWrite);
          if (counts.defined()) generation::check_rows(counts, "counts", cache.size(0), DType::i64, cache, kWrite);
          return like(cache);
        },
    .kernels = on_each_device(
        [](auto on, Tensor& y, const Tensor& cache, const Tensor& x, const Tensor& starts, const Tensor& counts) {
          if (y.raw_data() != cache.raw_data()) copy_elements(y, cache);
          if constexpr (on.cuda)
            generation::cache_write_cuda(y, x, starts, counts);
          else
            generation::cache_write_cpu(y, x, starts, counts);
        }),
    .inplace = true,
    .dtypes = kAllTypes,
    .cost =
        [](const Tensor& cache, const Tensor& x, const Tensor&, const Tensor&) {
          return Cost{0, 2.0 * static_cast<double>(cache.nbytes()) + static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 8, 5}), s.tensor({2, 3, 2, 5}), ids({6, 0}));
          s.add(s.tensor({3, 1, 4, 1}), s.tensor({3, 1, 3, 1}), ids({3, 0, 9}), ids({1, 2, 0})).named("counts");
          s.add(s.tensor({2, 2, 5, 6}).transpose(1, 2).transpose(1, 2), s.tensor({2, 3, 2, 6}).transpose(1, 2),
                ids({1, 2}))
              .named("strided");
          s.add(s.tensor({1, 2, 3, 0}), s.tensor({1, 2, 1, 0}), ids({0})).named("empty rows");
          s.add(s.tensor({0, 2, 3, 4}), s.tensor({0, 2, 1, 4}), ids({})).named("no batch");
          const Tensor cache = s.tensor({2, 3, 8, 5}), x = s.tensor({2, 3, 2, 5});
          s.invalid<IndexError>("the cache has 8", cache, x, ids({7, 0}));
          s.invalid<IndexError>("the cache has 8", cache, x, ids({-1, 0}));
          s.invalid<ShapeError>("[B, H, T, D]", cache, s.tensor({2, 3, 2, 4}), ids({0, 0}));
          s.invalid<ShapeError>("starts is", cache, x, ids({0}));
          s.invalid<ShapeError>("counts is", cache, x, ids({0, 0}), ids({1}));
          s.invalid<DTypeError>("starts must be i64", cache, x, s.integers({2}, 0, 1, DType::i32));
          if (s.benchmarking())
            s.bench(s.tensor({8, 8, 2048, 128}), s.tensor({8, 8, 1, 128}), s.integers({8}, 0, 2048));
        },
    .reference =
        [](const Tensor& cache, const Tensor& x, const Tensor& starts, const Tensor& counts) {
          Array y(cache);
          const Array from(x);
          const std::vector<int64_t> start = starts.to_vector<int64_t>();
          naive::each(x.shape(), [&](const Dims& place) {
            const auto b = static_cast<size_t>(place[0]);
            if (counts.defined() && place[2] >= counts.to_vector<int64_t>()[b]) return;
            y[naive::moved(place, 2, start[b] + place[2])] = from[place];
          });
          return Tensor(y);
        },
}};

// ---- cache_attention

constexpr std::string_view kAttend = "cache_attention";

AttentionOptions causal(std::optional<double> scale, double soft_cap, const Tensor& sinks) {
  AttentionOptions o;
  o.is_causal = true;
  o.scale = scale;
  o.logit_soft_cap = soft_cap;
  o.sinks = sinks;
  return o;
}

double scale_of(std::optional<double> given, const Tensor& q) {
  return given ? *given : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, q.size(3))));
}

// One query a text: all texts in one call, each over the keys that it sees.
void attend_one(Tensor& y, const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<int64_t>& places,
                std::optional<double> scale, int64_t window, double soft_cap, const Tensor& sinks) {
  const auto rows = [](const Tensor& t) {
    const Strides& s = t.strides();
    return generation::DecodeAttention::Rows{t.raw_data(), s[0], s[1], s[2]};
  };
  std::vector<int64_t> first(places.size());
  for (size_t b = 0; b < places.size(); ++b) {
    check<IndexError>(places[b] >= 0 && places[b] < k.size(2), kAttend, "row ", b, " has 1 queries from place ",
                      places[b], " on; the cache has ", k.size(2));
    first[b] = window > 0 ? std::max<int64_t>(0, places[b] - window + 1) : 0;
  }
  const std::vector<double> sink = sinks.defined() ? sinks.to(DType::f64).to_vector<double>() : std::vector<double>();
  generation::DecodeAttention c;
  c.dtype = q.dtype();
  c.q = rows(q), c.k = rows(k), c.v = rows(v);
  c.out = y.raw_data();
  c.batches = q.size(0), c.heads = q.size(1), c.kv_heads = k.size(1), c.d = q.size(3), c.dv = v.size(3);
  c.first = first.data(), c.last = places.data();
  c.scale = scale_of(scale, q);
  c.soft_cap = soft_cap;
  c.sinks = sink.empty() ? nullptr : sink.data();
  generation::decode_attention_cpu(c);
}

// The host reads the starts: rows that begin at one place are one call of attention, over the keys that they see.
void attend_cpu(Tensor& y, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& starts,
                std::optional<double> scale, int64_t window, double soft_cap, const Tensor& sinks) {
  const std::vector<int64_t> start = starts.to_vector<int64_t>();
  const auto rows = static_cast<int64_t>(start.size()), queries = q.size(2), capacity = k.size(2);
  const auto in_rows = [](const Tensor& t) { return t.strides()[3] == 1; };
  if (queries == 1 && y.numel() > 0 && in_rows(q) && in_rows(k) && in_rows(v))
    return attend_one(y, q, k, v, start, scale, window, soft_cap, sinks);
  for (int64_t b = 0, end = 0; b < rows; b = end) {
    const int64_t from = start[static_cast<size_t>(b)];
    check<IndexError>(from >= 0 && from <= capacity - queries, kAttend, "row ", b, " has ", queries,
                      " queries from place ", from, " on; the cache has ", capacity);
    for (end = b + 1; end < rows && start[static_cast<size_t>(end)] == from;) ++end;
    const int64_t first = window > 0 ? std::max<int64_t>(0, from - window + 1) : 0, keys = from + queries - first;
    AttentionOptions o = causal(scale, soft_cap, sinks);
    o.window = window;
    o.query_offset = from - first;
    const auto part = [&](const Tensor& t) { return narrow(t, 0, b, end - b); };
    copy_elements(part(y), scaled_dot_product_attention(part(q), narrow(part(k), 2, first, keys),
                                                        narrow(part(v), 2, first, keys), {}, o));
  }
}

// With a mask that is made of the starts where they are; tiles behind each row's keys are skipped.
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& starts, std::optional<double> scale,
              int64_t window, double soft_cap, const Tensor& sinks) {
  const int64_t rows = q.size(0), queries = q.size(2), capacity = k.size(2);
  AttentionOptions o = causal(scale, soft_cap, sinks);
  o.is_causal = false;
  o.key_lengths = starts + queries;
  if (queries == 1 && window == 0) return scaled_dot_product_attention(q, k, v, {}, o);
  const DeviceScope there(q.device());
  const auto on_device = [&](int64_t n) { return arange(n, DType::i64); };
  const Tensor place = view(starts, {rows, 1, 1, 1}) + view(on_device(queries), {queries, 1}),
               key = on_device(capacity);
  Tensor seen = le(key, place);
  if (window > 0) seen = logical_and(seen, gt(key, place - window));
  return scaled_dot_product_attention(q, k, v, seen, o);
}

Tensor attend_by_loops(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& starts,
                       std::optional<double> scale, int64_t window, double soft_cap, const Tensor& sinks) {
  const Array queries(q), keys(k), values(v);
  const std::vector<int64_t> start = starts.to_vector<int64_t>();
  const std::vector<double> sink = sinks.defined() ? sinks.to_vector<double>() : std::vector<double>();
  const int64_t d = q.size(3), group = q.size(1) / std::max<int64_t>(1, k.size(1));
  const double factor = scale ? *scale : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, d)));
  Array y({q.size(0), q.size(1), q.size(2), v.size(3)});
  naive::each({q.size(0), q.size(1), q.size(2)}, [&](const Dims& at) {
    const int64_t b = at[0], h = at[1], i = at[2], place = start[static_cast<size_t>(b)] + i;
    const int64_t first = window > 0 ? std::max<int64_t>(0, place - window + 1) : 0;
    double sum = sink.empty() ? 0 : std::exp(sink[static_cast<size_t>(h)]);
    for (int64_t j = first; j <= place; ++j) {
      double score = 0;
      for (int64_t e = 0; e < d; ++e) score += queries[{b, h, i, e}] * keys[{b, h / group, j, e}];
      score *= factor;
      if (soft_cap > 0) score = soft_cap * std::tanh(score / soft_cap);
      const double weight = std::exp(score);
      sum += weight;
      for (int64_t e = 0; e < v.size(3); ++e) y[{b, h, i, e}] += weight * values[{b, h / group, j, e}];
    }
    for (int64_t e = 0; e < v.size(3); ++e) y[{b, h, i, e}] /= sum;
  });
  return y;
}

void add_attention_samples(Samples& s) {
  const auto none = std::nullopt;
  const auto q = [&](int64_t t) { return s.tensor({2, 4, t, 8}); };
  const auto kv = [&](int64_t heads, int64_t d = 8) { return s.tensor({2, heads, 9, d}); };
  s.add(q(1), kv(2), kv(2), ids({8, 3})).named("one query");
  s.add(s.tensor({3, 14, 1, 37}), s.tensor({3, 2, 70, 37}), s.tensor({3, 2, 70, 19}), ids({0, 33, 69}))
      .named("one query of many heads");
  s.add(s.tensor({2, 3, 1, 40}), s.tensor({2, 1, 33, 40}), s.tensor({2, 1, 33, 24}), ids({32, 17}), 0.4, 9, 2.0,
        s.uniform({3}, -1, 1))
      .named("one query with all options");
  s.add(q(3), kv(4), kv(4), ids({0, 6})).named("several queries");
  s.add(q(1), kv(1), kv(1), ids({5, 5}), none, 3).named("a window");
  s.add(q(4), kv(2), kv(2, 5), ids({1, 5}), 0.3, 2, 1.5).named("window, soft cap, scale, narrow values");
  s.add(q(2), kv(2), kv(2), ids({0, 7}), none, 0, 0.0, s.uniform({4}, -1, 1)).named("sinks");
  s.add(s.tensor({1, 2, 1, 4}), s.tensor({1, 2, 1, 4}), s.tensor({1, 2, 1, 4}), ids({0})).named("one key");
  s.add(s.tensor({0, 2, 1, 4}), s.tensor({0, 2, 3, 4}), s.tensor({0, 2, 3, 4}), ids({})).named("no batch");
  s.invalid<ShapeError>("starts is", q(1), kv(2), kv(2), ids({1}));
  s.invalid<DTypeError>("starts must be i64", q(1), kv(2), kv(2), s.integers({2}, 0, 1, DType::i32));
  s.invalid<ShapeError>("[B, H, T, D]", s.tensor({2, 4, 8}), kv(2), kv(2), ids({1, 1}));
  s.invalid<ShapeError>("do not fit", q(1), kv(2), s.tensor({2, 2, 8, 8}), ids({1, 1}));
  s.invalid<ShapeError>("no multiple", q(1), kv(3), kv(3), ids({1, 1}));
  s.invalid<ShapeError>("queries", q(10), kv(2), kv(2), ids({0, 0}));
  s.invalid<ValueError>("window", q(1), kv(2), kv(2), ids({1, 1}), none, -1);
  if (s.benchmarking())
    s.bench(s.tensor({8, 32, 1, 128}), s.tensor({8, 8, 2048, 128}), s.tensor({8, 8, 2048, 128}),
            s.integers({8}, 2047, 2048));
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, std::optional<double>, int64_t, double,
                const Tensor&)>
    cache_attention_op{{
        .schema = "cache_attention(Tensor q, Tensor k, Tensor v, Tensor starts, float? scale=None, int window=0, float "
                  "logit_soft_cap=0.0, Tensor? sinks=None) -> Tensor",
        .shard = "whole",
        .doc =
            "Attention of q [B, H, T, D], whose queries are at places starts[b] .. starts[b] + T - 1 (i64 [B], read "
            "on the device) of a cache, to the cache's k [B, Hkv, C, D] and v [B, Hkv, C, Dv]: each to the places up "
            "to its own, with window > 0 to the window - 1 before it and its own: [B, H, T, Dv]. scale, "
            "logit_soft_cap and sinks are scaled_dot_product_attention's. IndexError (on the CPU) where a place is "
            "not below C; ShapeError, DTypeError, ValueError.",
        .example = "Tensor y = cache_attention(ones({1, 1, 1, 2}), zeros({1, 1, 4, 2}), ones({1, 1, 4, 2}), "
                   "full({1}, 2)); assert(y.to_vector<float>() == std::vector<float>({1, 1}));",
        .infer =
            [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& starts, std::optional<double> scale,
               int64_t window, double soft_cap, const Tensor& sinks) {
              check<DTypeError>(is_floating(q.dtype()) && k.dtype() == q.dtype() && v.dtype() == q.dtype(), kAttend,
                                "needs q, k and v of one floating dtype, got ", q, ", ", k, " and ", v);
              check<ShapeError>(q.dim() == 4 && k.dim() == 4 && v.dim() == 4, kAttend,
                                "needs q [B, H, T, D] and a cache [B, Hkv, C, D], got ", q, ", ", k, " and ", v);
              check<ShapeError>(k.size(0) == q.size(0) && k.size(3) == q.size(3) && v.size(0) == k.size(0) &&
                                    v.size(1) == k.size(1) && v.size(2) == k.size(2),
                                kAttend, "q ", q, ", k ", k, " and v ", v, " do not fit together");
              check<ShapeError>(k.size(1) > 0 ? q.size(1) % k.size(1) == 0 : q.size(1) == 0, kAttend, "the ", q.size(1),
                                " heads of q are no multiple of the ", k.size(1), " of the cache");
              check<ShapeError>(q.size(2) <= k.size(2), kAttend, q.size(2), " queries for a cache of ", k.size(2));
              for (const Tensor* t : {&k, &v})
                check<DeviceError>(t->device() == q.device(), kAttend, "q is on ", q.device(), ", the cache on ",
                                   t->device());
              generation::check_rows(starts, "starts", q.size(0), DType::i64, q, kAttend);
              check(window >= 0 && window < INT32_MAX, kAttend, "window must be from 0 to 2^31, got ", window);
              check(soft_cap >= 0 && std::isfinite(soft_cap), kAttend, "logit_soft_cap must not be negative, got ",
                    soft_cap);
              check(!scale || std::isfinite(*scale), kAttend, "scale must be finite, got ", scale.value_or(0));
              if (sinks.defined()) {
                check<ShapeError>(sinks.shape() == Shape{q.size(1)}, kAttend, "sinks are ", sinks, ", wanted [",
                                  q.size(1), "]");
                check<DTypeError>(is_floating(sinks.dtype()), kAttend, "sinks must be floating, got ", sinks);
              }
              return like(q).with_shape({q.size(0), q.size(1), q.size(2), v.size(3)});
            },
        .kernels = on_each_device([](auto on, Tensor& y, const Tensor& q, const Tensor& k, const Tensor& v,
                                     const Tensor& starts, std::optional<double> scale, int64_t window, double soft_cap,
                                     const Tensor& sinks) {
          if constexpr (on.cuda) {
            if (!generation::decode_attention_cuda(y, q, k, v, starts, {scale_of(scale, q), window, soft_cap, sinks}))
              copy_elements(y, attend(q, k, v, starts, scale, window, soft_cap, sinks));
          } else {
            attend_cpu(y, q, k, v, starts, scale, window, soft_cap, sinks);
          }
        }),
        .composed = attend,
        .autocast = Autocast::low,
        .cost =
            [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&, std::optional<double>, int64_t, double,
               const Tensor&) {
              const double pairs = static_cast<double>(q.size(0) * q.size(1) * q.size(2) * k.size(2));
              return Cost{2 * pairs * static_cast<double>(q.size(3) + v.size(3)),
                          static_cast<double>(2 * q.nbytes() + k.nbytes() + v.nbytes())};
            },
        .samples = add_attention_samples,
        .reference = attend_by_loops,
        .tolerance = 16,
        .tolerance_reason = "as scaled_dot_product_attention: weights are rounded to the operands' dtype before the "
                            "second product",
    }};

}  // namespace

Tensor cache_write(const Tensor& cache, const Tensor& x, const Tensor& starts, const Tensor& counts) {
  return cache_write_op(cache, x, starts, counts);
}
Tensor& cache_write_(Tensor& cache, const Tensor& x, const Tensor& starts, const Tensor& counts) {
  return cache_write_op.inplace(cache, x, starts, counts);
}
Tensor cache_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& starts,
                       const CacheAttentionOptions& o) {
  return cache_attention_op(q, k, v, starts, o.scale, o.window, o.logit_soft_cap, o.sinks);
}

}  // namespace strata
